"""The Python side of measurements: does what it is told so many times, and says how long once took.

The first line of standard input is a JSON object of Python sources; each line after it a task, how often it is to be done and
what it takes. Each is answered by a line: microseconds for once, and the result of the last time.
"""

import json
import platform
import sys
import time


def load(source):
    scope = {"__name__": "reference"}
    exec(compile(source, "reference.py", "exec"), scope)
    return scope


def md5(bytes):
    message = (b"".join(number.to_bytes(4, "little") for number in range(256)) * (bytes // 1024 + 1))[:bytes]
    digest = SOURCES["md5"]["digest"]
    return lambda: digest(message).hex()


def eviction(hot, pages, kept_in):
    policy = SOURCES["eviction"]["Eviction"]({"set": frozenset, "list": tuple}[kept_in])
    policy.hot(range(hot))
    pages = list(pages)
    return lambda: policy.evict(pages)


def logical_disk(blocks, segment_blocks, logical_blocks, batch):
    disk = SOURCES["logical_disk"]["LogicalDisk"](blocks, segment_blocks, logical_blocks)
    at = 0

    def write():
        nonlocal at
        places = [disk.write(block) for block in range(at, at + batch)]
        at = (at + batch) % logical_blocks
        return places

    return write


def workload(count, logical_blocks):
    """Logical blocks to be written, of which a fifth gets four writes in five. The same as the Rust side's."""
    blocks = []
    state = 1
    for _ in range(count):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        among = logical_blocks // 5 if (state >> 16) % 5 else logical_blocks
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        blocks.append((state >> 8) % among)
    return blocks


def cleaned_disk(blocks, segment_blocks, logical_blocks, batch):
    disk = SOURCES["logical_disk"]["LogicalDisk"](blocks, segment_blocks, logical_blocks)
    disk.update(range(logical_blocks))
    writes = workload(16 * batch, logical_blocks)
    at = 0

    def update():
        nonlocal at
        steps = disk.update(writes[at : at + batch])
        at = (at + batch) % len(writes)
        return steps

    return update


SOURCES = {name: load(source) for name, source in json.loads(sys.stdin.readline()).items()}
TASKS = {"md5": md5, "eviction": eviction, "logical_disk": logical_disk, "cleaned_disk": cleaned_disk}
prepared = {}
print(json.dumps({"version": platform.python_version()}), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    key = json.dumps([order["task"], order["arguments"]])
    if key not in prepared:
        prepared[key] = TASKS[order["task"]](**order["arguments"])
    task = prepared[key]
    started = time.perf_counter()
    for _ in range(order["times"]):
        result = task()
    taken = time.perf_counter() - started
    print(json.dumps({"us": taken * 1e6 / order["times"], "result": result}), flush=True)

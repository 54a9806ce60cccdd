"""A tour of the package: `python tour.py target/applets/echo.wasm` (or `target/applets/echo`, the same as a native program).

The applet is `applets/echo`: it echoes, reverses, counts its calls in a persistent heap, and streams numbers.
"""

import asyncio
import sys

import holdfast


def calls(path: str) -> None:
    with holdfast.Applet(path, call_timeout=1.0, heap="tour") as applet:
        print("functions:", ", ".join(applet.functions))
        print("reversed:", applet.call("reverse", b"live on").decode())
        print("calls so far, this and earlier runs:", int.from_bytes(applet.call("count"), "little"))
        print("streamed:", b" ".join(applet.stream("numbers", b"5")).decode())

        # Large data: shared memory instead of messages.
        buffer = applet.buffer("1MiB")
        view = memoryview(buffer)
        view[:5] = b"hello"
        applet.call("upper", buffer=buffer)
        print("in shared memory:", bytes(view[:5]).decode())

        try:
            applet.call("numbers", b"many")
        except holdfast.CallFailed as failure:
            print("a failure:", failure)
        cost = applet.metrics()
        print(f"cost: {cost.calls} calls, {cost.kind}, {cost.peak_memory_bytes} bytes at most")


def heap() -> None:
    with holdfast.Heap("tour-notes", limit="16MiB") as notes:
        if "visits" not in notes:
            notes.create("visits", 8).release()
        with notes["visits"] as visits, notes.transaction() as transaction:
            transaction.add(visits)
            visits[:] = (int.from_bytes(visits, "little") + 1).to_bytes(8, "little")
            print("visits:", int.from_bytes(visits, "little"))


async def tasks(path: str) -> None:
    async with holdfast.AsyncApplet(path) as applet:
        words = await asyncio.gather(*(applet.call("reverse", word) for word in [b"one", b"two", b"three"]))
        print("from tasks:", *(word.decode() for word in words))


if __name__ == "__main__":
    calls(sys.argv[1])
    heap()
    asyncio.run(tasks(sys.argv[1]))

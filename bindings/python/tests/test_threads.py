"""Threads, forks, and what is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import holdfast
import pytest
from conftest import Start, call_under_way, children, number, program


# Guarantee: programs/python-threads
def test_many_threads_call_one_applet(trial: holdfast.Applet) -> None:
    failures: list[BaseException] = []

    def work(mark: int) -> None:
        try:
            for turn in range(100):
                data = f"{mark}-{turn}".encode() * (1 + turn)
                assert trial.call("echo", data) == data
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert trial.metrics().calls == 800


# Guarantee: programs/python-threads
def test_python_goes_on_during_a_call(start: Start) -> None:
    applet = start(call_timeout=0.5)
    turns = 0
    done = threading.Event()

    def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        with pytest.raises(holdfast.AppletTimeout):
            applet.call("spin")
    finally:
        done.set()
        thread.join()
    # One that waits for the call has no turn, or one.
    assert turns > 5


# Guarantee: programs/python-threads
def test_closing_waits_for_a_call_and_cancel_ends_it(start: Start) -> None:
    applet = start(grace=0.05)
    outcome: list[BaseException] = []

    def call() -> None:
        try:
            applet.call("spin")
        except BaseException as failure:
            outcome.append(failure)

    caller = threading.Thread(target=call)
    caller.start()
    time.sleep(1)
    closer = threading.Thread(target=applet.close)
    closer.start()
    time.sleep(0.2)
    assert closer.is_alive()
    with pytest.raises(holdfast.Closed):
        applet.call("echo")
    assert applet.cancel()
    caller.join(10)
    closer.join(10)
    assert isinstance(outcome[0], holdfast.Cancelled)
    assert applet.closed


# Guarantee: programs/python-threads
def test_a_call_waits_for_others_no_longer_than_its_timeout(start: Start) -> None:
    with call_under_way(start) as applet:
        uses: list[Callable[[], object]] = [
            lambda: applet.call("echo", timeout=0.3),
            lambda: applet.stream("echo", timeout=0.3),
        ]
        for use in uses:
            began = time.monotonic()
            with pytest.raises(holdfast.AppletBusy, match="another thread's call") as raised:
                use()
            assert 0.3 <= time.monotonic() - began < 10
            assert isinstance(raised.value, TimeoutError)
            assert raised.value.limit_seconds == pytest.approx(0.3)
    # The other call was left alone, and the applet serves on.
    assert applet.call("echo", b"on", timeout=20) == b"on"
    assert list(applet.stream("echo", b"on", timeout=20)) == [b"on"]


# Guarantee: programs/python-threads
def test_a_call_that_waits_gets_its_turn(start: Start) -> None:
    results: list[bytes] = []
    with call_under_way(start) as applet:
        thread = threading.Thread(target=lambda: results.append(applet.call("echo", b"next", timeout=60)))
        thread.start()
        time.sleep(0.3)
        assert not results
    thread.join(20)
    assert results == [b"next"]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


# Guarantee: programs/python-leaks
def test_nothing_is_left_of_applets(kind: str, places: dict[str, Any]) -> None:
    def cycle() -> None:
        applet = holdfast.Applet(program("trial", kind), heap="left", **places)
        buffer = applet.buffer(4096)
        applet.call("increment", buffer=buffer)
        next(applet.stream("parts", number(100)))
        view = memoryview(buffer)
        view[0] = 1
        if applet.alive:
            applet.call("count")

    for _ in range(3):
        cycle()
    gc.collect()
    before = (descriptors(), threads(), len(children()))
    objects = len(gc.get_objects())
    for _ in range(20):
        cycle()
    gc.collect()
    deadline = time.monotonic() + 20
    while (descriptors(), threads(), len(children())) != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (descriptors(), threads(), len(children())) == before
    assert len(gc.get_objects()) - objects < 100


# Guarantee: programs/python-buffers
def test_calls_leak_no_references(trial: holdfast.Applet) -> None:
    data, name = bytearray(b"x" * 1000), "echo"
    before = (sys.getrefcount(data), sys.getrefcount(name), sys.getrefcount(trial))
    for _ in range(1000):
        trial.call(name, data)
    for _ in range(100):
        with pytest.raises(holdfast.CallFailed):
            trial.call("fail", data)
    gc.collect()
    assert (sys.getrefcount(data), sys.getrefcount(name), sys.getrefcount(trial)) == before


# Guarantee: programs/python-leaks
def test_an_applet_that_nobody_refers_to_ends(start: Start, kind: str, places: dict[str, Any]) -> None:
    applet = holdfast.Applet(program("trial", kind), heap="mine", **places)
    gone = weakref.ref(applet)
    del applet
    gc.collect()
    assert gone() is None
    # Its heap is free.
    with holdfast.Applet(program("trial", kind), heap="mine", **places) as again:
        again.call("count")


# Guarantee: programs/python-leaks
def test_an_applet_that_its_own_function_refers_to_ends(kind: str, places: dict[str, Any]) -> None:
    class Host:
        def __init__(self) -> None:
            functions = {"double": self.double}
            self.applet = holdfast.Applet(program("trial", kind), heap="mine", functions=functions, **places)

        def double(self, data: bytes) -> bytes:
            return data * 2

    host = Host()
    # The collector takes nothing from what is in use, nor from a stream that is all that is left.
    gc.collect()
    stream = host.applet.stream("ask_host", b"double\0ab")
    gone = weakref.ref(host.applet)
    del host
    gc.collect()
    assert list(stream) == [b"abab"]
    stream.close()
    del stream
    gc.collect()
    assert gone() is None
    # Its heap is free.
    with holdfast.Applet(program("trial", kind), heap="mine", **places) as again:
        assert again.call("echo", b"on") == b"on"


# Guarantee: programs/python-leaks
@pytest.mark.parametrize("is_over", [True, False])
def test_an_applet_ends_whose_stream_its_function_keeps(kind: str, places: dict[str, Any], is_over: bool) -> None:
    class Host:
        def __init__(self) -> None:
            functions = {"double": self.double}
            self.applet = holdfast.Applet(program("trial", kind), heap="mine", functions=functions, **places)
            self.stream = self.applet.stream("parts", number(3))

        def double(self, data: bytes) -> bytes:
            return data * 2

    host = Host()
    if is_over:
        assert len(list(host.stream)) == 4
    else:
        next(host.stream)
    gone = weakref.ref(host.applet)
    del host
    gc.collect()
    assert gone() is None
    # Its heap is free.
    with holdfast.Applet(program("trial", kind), heap="mine", **places) as again:
        assert again.call("echo", b"on") == b"on"


def run_forked(work: Any) -> int:
    """Runs `work` in a forked child; 0 when it returned."""
    with warnings.catch_warnings():
        # Newer versions of Python warn of forks with threads, and rightly.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as failure:
            print(repr(failure), file=sys.stderr)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# Guarantee: programs/python-forks
def test_a_forked_child_changes_nothing(trial: holdfast.Applet, places: dict[str, Any]) -> None:
    buffer = trial.buffer(16)
    memoryview(buffer)[:] = b"0123456789abcdef"
    heap = holdfast.Heap("parents", **places)
    heap.create("state", 8)[:] = b"12345678"
    transaction = heap.transaction()

    def child() -> None:
        nonlocal trial, buffer, heap
        uses: list[Callable[[], object]] = [
            lambda: trial.call("echo"),
            lambda: trial.stream("echo"),
            lambda: trial.alive,
            trial.close,
            trial.cancel,
            lambda: heap["state"],
            heap.close,
            heap.transaction,
            transaction.__enter__,
        ]
        for use in uses:
            with pytest.raises(holdfast.Forked, match="fork"):
                use()
        with pytest.raises(holdfast.Forked):
            memoryview(buffer)
        del trial, buffer, heap
        gc.collect()

    assert run_forked(child) == 0
    assert trial.call("echo", b"here") == b"here"
    assert bytes(memoryview(buffer)) == b"0123456789abcdef"
    assert bytes(heap["state"]) == b"12345678"
    heap.close()


# Guarantee: programs/python-forks
def test_a_forked_child_awaits_no_applet_of_its_parent(kind: str, places: dict[str, Any]) -> None:
    applet = asyncio.run(holdfast.AsyncApplet.start(program("trial", kind), **places))

    async def use(work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        with pytest.raises(holdfast.Forked, match="fork"):
            await asyncio.wait_for(work(), 20)

    def child() -> None:
        uses: list[Callable[[], Coroutine[Any, Any, object]]] = [lambda: applet.call("echo"), applet.metrics, applet.close]
        for work in uses:
            asyncio.run(use(work))

    assert run_forked(child) == 0
    assert asyncio.run(applet.call("echo", b"here")) == b"here"
    asyncio.run(applet.close())


async def refuses_the_child(work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    with pytest.raises(holdfast.Forked, match="fork"):
        await asyncio.wait_for(work(), 20)


def await_forked(work: Callable[[], Coroutine[Any, Any, object]]) -> int:
    """Awaits `work` in a forked child, which it is to refuse; 0 when it did."""

    def child() -> None:
        # What waits for a thread of the parent ends in no other way.
        signal.alarm(60)
        asyncio.run(refuses_the_child(work))

    return run_forked(child)


# Guarantee: programs/python-forks
def test_a_forked_child_awaits_no_part_for_its_parent(kind: str, places: dict[str, Any]) -> None:
    with asyncio.Runner() as runner:
        applet = runner.run(holdfast.AsyncApplet.start(program("trial", kind), **places))
        parts = applet.stream("parts", number(2))

        async def part() -> bytes:
            return await anext(parts)

        async def end() -> None:
            await parts.aclose()
            await applet.close()

        assert runner.run(part()) == number(0)
        assert await_forked(part) == 0
        assert runner.run(part()) == number(1)
        runner.run(end())


# Guarantee: programs/python-forks
def test_a_forked_child_awaits_no_start_after_one_that_failed(places: dict[str, Any], tmp_path: Path) -> None:
    applet = holdfast.AsyncApplet(tmp_path / "nowhere", **places)

    async def start() -> None:
        await applet.__aenter__()

    with pytest.raises(holdfast.AppletNotFound):
        asyncio.run(start())
    assert await_forked(start) == 0
    asyncio.run(applet.close())


def test_a_child_may_have_applets_of_its_own(kind: str, places: dict[str, Any]) -> None:
    # In a process that has started nothing: with threads of the library a fork takes none of them along.
    code = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_threads import run_forked
        import holdfast
        def child():
            with holdfast.Applet({str(program("echo", kind))!r}, home={str(places["home"])!r},
                                 pool={str(places["pool"])!r}) as applet:
                assert applet.call("reverse", b"ab") == b"ba"
        sys.exit(run_forked(child))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)


# Guarantee: programs/python-leaks
@pytest.mark.parametrize("way", ["end", "exit", "killed"])
def test_the_end_of_python_ends_its_applets(kind: str, places: dict[str, Any], way: str) -> None:
    ends = {"end": "pass", "exit": "sys.exit(3)", "killed": "os.kill(os.getpid(), 9)"}
    code = f"""
        import os, sys, holdfast
        applet = holdfast.Applet({str(program("trial", kind))!r}, heap="kept", home={str(places["home"])!r},
                                 pool={str(places["pool"])!r})
        assert applet.call("count") == (1).to_bytes(8, "little")
        stream = applet.stream("flood")
        next(stream)
        keep = (applet, stream)
        keep_alive = [keep]; keep_alive.append(keep_alive)
        {ends[way]}
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=60)
    assert done.returncode == {"end": 0, "exit": 3, "killed": -9}[way]
    deadline = time.monotonic() + 10
    while True:
        try:
            applet = holdfast.Applet(program("trial", kind), heap="kept", **places)
            break
        except holdfast.HeapHeld:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    with applet:
        assert applet.call("look") == number(1)

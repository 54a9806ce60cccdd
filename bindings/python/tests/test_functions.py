"""Functions in Python that applets call."""

from __future__ import annotations

import array
import asyncio
import ctypes
import gc
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast
import pytest
from conftest import HeldFunction, Start, program

Places = dict[str, Any]


def ask(applet: holdfast.Applet, name: str, data: bytes = b"") -> bytes:
    """What the applet got from the function."""
    return applet.call("ask_host", name.encode() + b"\0" + data)


def test_functions_take_and_return_bytes(start: Start) -> None:
    calls: list[bytes] = []

    def keep(data: bytes) -> None:
        calls.append(data)

    functions: dict[str, Callable[[bytes], Any]] = {
        "double": lambda data: data * 2,
        "keep": keep,
        "view": lambda data: memoryview(bytearray(data)),
        "apart": lambda data: memoryview(data)[::2],
        "numbers": lambda data: array.array("d", [1.5]),
    }
    applet = start("trial", functions=functions)
    for size in (0, 1, 5000, 1 << 20):
        assert ask(applet, "double", b"x" * size) == b"x" * (2 * size)
    assert ask(applet, "keep", b"this") == b"" and calls == [b"this"]
    assert ask(applet, "view", b"that") == b"that"
    assert ask(applet, "apart", b"abcd") == b"ac"
    assert ask(applet, "numbers") == struct.pack("d", 1.5)
    with pytest.raises(holdfast.CallFailed, match="calls? no function of this name"):
        ask(applet, "other")


# Guarantee: programs/python-types
def test_functions_are_any_mapping(start: Start) -> None:
    functions = types.MappingProxyType({"double": lambda data: data * 2})
    assert ask(start("trial", functions=functions), "double", b"on") == b"onon"


def test_what_a_function_raises_is_told_the_applet(start: Start) -> None:
    def fail(data: bytes) -> bytes:
        raise ValueError(f"not {data.decode()}")

    applet = start("trial", functions={"fail": fail, "text": lambda _: "no bytes", "double": lambda data: data * 2})
    with pytest.raises(holdfast.CallFailed, match="1: ValueError: not today"):
        ask(applet, "fail", b"today")
    with pytest.raises(holdfast.CallFailed, match="return bytes"):
        ask(applet, "text")
    assert ask(applet, "double", b"on") == b"onon"


# Guarantee: programs/python-types
def test_addresses_of_this_process_are_no_data(start: Start) -> None:
    class Pointer(ctypes.Structure):
        _fields_ = [("number", ctypes.c_int32), ("place", ctypes.c_void_p)]

    class Plain(ctypes.Structure):
        _fields_ = [("OP", ctypes.c_int32), ("Z", ctypes.c_int32)]

    objects: Any = ctypes.py_object * 2
    refused: dict[str, Any] = {
        "objects": objects("a", "b"),
        "addresses": (ctypes.c_void_p * 2)(1, 2),
        "texts": (ctypes.c_char_p * 1)(b"a"),
        "fields": (Pointer * 1)(Pointer(1, 2)),
    }
    plain = (Plain * 1)(Plain(1, 2))
    results = {**refused, "plain": plain}
    applet = start("trial", functions={name: lambda _, data=data: data for name, data in results.items()})
    for name, data in refused.items():
        with pytest.raises(holdfast.CallFailed, match="return bytes"):
            ask(applet, name)
        with pytest.raises(TypeError, match="addresses"):
            applet.call("echo", data)
    with pytest.raises(BufferError, match="bytes"):
        applet.call("echo", Plain(1, 2))
    # Names of fields are no formats.
    assert ask(applet, "plain") == applet.call("echo", plain) == bytes(plain)


def test_a_function_cannot_call_its_applet_back(start: Start) -> None:
    applets: list[holdfast.Applet] = []
    applets.append(start("trial", functions={"back": lambda data: applets[0].call("echo", data)}))
    with pytest.raises(holdfast.CallFailed, match="in a host function"):
        ask(applets[0], "back")
    assert applets[0].call("echo", b"on") == b"on"
    applets.append(start("trial", functions={"close": lambda _: applets[1].close()}))
    with pytest.raises(holdfast.CallFailed, match="in a host function"):
        ask(applets[1], "close")
    assert applets[1].call("echo", b"on") == b"on"


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_function_may_close_an_applet_that_ends(places: Places, timeout: float | None) -> None:
    applets: list[holdfast.Applet] = []
    closed: list[object] = []

    # As a helper that closes everything: each of them ends when it is called.
    def close(data: bytes) -> bytes:
        for applet in applets:
            closed.append(applet.close())
        return data

    functions = {"close": holdfast.HostFunction(close, timeout=timeout)}
    for _ in range(2):
        applet = holdfast.Applet(program("trial", "native"), functions=functions, grace=10.0, **places)
        applets.append(applet)
        applet.call("ask_at_the_end", b"close")
    ended = threading.Thread(target=lambda: close(b""), daemon=True)
    ended.start()
    ended.join(30)
    assert not ended.is_alive()
    assert all(applet.closed for applet in applets)
    # The second one was closed by the function of the first, and its own function found both closed.
    first, *_, last = closed
    assert first is None and last is None
    assert len(closed) == 6 and sum(one is not None for one in closed) == 2


# Guarantee: programs/python-calls
def test_what_an_end_calls_is_in_the_call_around_it(places: Places) -> None:
    applets: list[holdfast.Applet] = []
    refused: list[str] = []

    def look(data: bytes) -> bytes:
        uses: list[Callable[[], object]] = [lambda: applets[0].call("echo"), applets[0].close]
        for use in uses:
            with pytest.raises(holdfast.CallError) as raised:
                use()
            refused.append(str(raised.value))
        return data

    def close_other(data: bytes) -> bytes:
        applets[1].close()
        return data

    for name, function in [("close_other", close_other), ("look", look)]:
        applets.append(holdfast.Applet(program("trial", "native"), functions={name: function}, grace=10.0, **places))
    applets[1].call("ask_at_the_end", b"look")
    results: list[bytes] = []
    call = threading.Thread(
        target=lambda: results.append(applets[0].call("ask_host", b"close_other\0done")), daemon=True
    )
    call.start()
    call.join(30)
    assert results == [b"done"]
    assert len(refused) == 2 and all("in a host function" in text for text in refused)
    applets[0].close()


# Guarantee: applets/interruptible
def test_an_end_that_was_left_is_over_before_the_interpreter_ends(tmp_path: Path) -> None:
    script = f"""
import os, signal, threading, time
import holdfast

def slow(data):
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    time.sleep(1)
    print("over", flush=True)
    return data

applet = holdfast.Applet({str(program("trial", "native"))!r}, functions={{"slow": slow}}, grace=20.0)
applet.call("ask_at_the_end", b"slow")
applet.close()
"""
    environment = {**os.environ, "HOLDFAST_HOME": str(tmp_path / "home"), "HOLDFAST_POOL": str(tmp_path / "pool")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "over\n", done.stderr
    assert done.stderr.rstrip().endswith("KeyboardInterrupt"), done.stderr
    assert done.returncode == -signal.SIGINT


def test_a_function_does_not_wait_for_its_own_stream(start: Start) -> None:
    streams: list[holdfast.Stream] = []
    opened = threading.Event()

    def back(data: bytes) -> bytes:
        assert opened.wait(20)
        uses: list[Callable[[], object]] = [lambda: next(streams[0]), streams[0].close]
        for use in uses:
            with pytest.raises(holdfast.CallError, match="in a host function"):
                use()
        return data

    def drop(data: bytes) -> bytes:
        assert opened.wait(20)
        streams.clear()
        gc.collect()
        return data

    applet = start("trial", functions={"back": back, "drop": drop})
    streams.append(applet.stream("ask_host", b"back\0done"))
    opened.set()
    assert list(streams[0]) == [b"done"]
    streams[0].close()
    streams.clear()
    opened.clear()
    streams.append(applet.stream("ask_host", b"drop\0done"))
    opened.set()
    deadline = time.monotonic() + 20
    while True:
        # Until the call of that stream is over.
        try:
            assert applet.call("echo", b"on") == b"on"
            break
        except holdfast.CallError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_other_threads_run_while_a_function_waits(start: Start) -> None:
    wait = HeldFunction()
    applet, other = start("trial", functions={"wait": wait}), start("trial")
    results: list[bytes] = []
    thread = threading.Thread(target=lambda: results.append(ask(applet, "wait", b"done")))
    thread.start()
    assert wait.reached.wait(20)
    assert other.call("echo", b"meanwhile") == b"meanwhile"
    wait.go_on.set()
    thread.join(20)
    assert results == [b"done"]


def test_a_signal_in_a_function_ends_the_call(start: Start) -> None:
    def interrupted(data: bytes) -> bytes:
        signal.raise_signal(signal.SIGINT)
        return data

    applet = start("trial", functions={"interrupted": interrupted})
    with pytest.raises(KeyboardInterrupt):
        ask(applet, "interrupted")
    assert applet.call("echo", b"on") == b"on"


def test_functions_have_codes_and_bounds(start: Start) -> None:
    def fail(data: bytes) -> None:
        raise holdfast.HostFunctionError("not today", code=-7)

    hung = threading.Event()

    def hang(_: bytes) -> None:
        hung.wait(20)

    functions = {
        "fail": fail,
        "hang": holdfast.HostFunction(hang, timeout=0.05),
        "small": holdfast.HostFunction(lambda data: data * 2, input_bytes_max=8, result_bytes_max="12B"),
    }
    applet = start("trial", functions=functions)
    for name, data, words in [
        ("fail", b"", "-7: not today"),
        ("hang", b"", "did not return within 50ms"),
        ("small", b"123456789", "takes 8 bytes"),
        ("small", b"1234567", "has 14 bytes, more than 12"),
    ]:
        with pytest.raises(holdfast.CallFailed, match=words):
            ask(applet, name, data)
        assert ask(applet, "small", b"on") == b"onon"
    hung.set()


def test_coroutine_functions_run_in_the_loop(kind: str, places: Places) -> None:
    async def work() -> None:
        loop, seen = asyncio.get_running_loop(), []
        reached, ended = asyncio.Event(), asyncio.Event()

        async def double(data: bytes) -> bytes:
            await asyncio.sleep(0.01)
            seen.append(asyncio.get_running_loop())
            return data * 2

        async def back(data: bytes) -> bytes:
            return await applet.call("echo", data)

        async def hang(_: bytes) -> None:
            reached.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        functions: dict[str, Any] = {
            "double": double,
            "back": back,
            "hang": hang,
            "late": holdfast.HostFunction(hang, timeout=0.05),
            "plain": lambda data: data[::-1],
        }
        async with holdfast.AsyncApplet(program("trial", kind), functions=functions, **places) as applet:
            assert await applet.call("ask_host", b"double\0ab") == b"abab"
            assert await applet.call("ask_host", b"plain\0ab") == b"ba"
            with pytest.raises(holdfast.CallFailed, match="waits for this host function"):
                await applet.call("ask_host", b"back\0ab")
            with pytest.raises(holdfast.CallFailed, match="did not return within 0.05 s"):
                await applet.call("ask_host", b"late\0")
            assert ended.is_set()
            reached.clear()
            ended.clear()
            task = asyncio.create_task(applet.call("ask_host", b"hang\0"))
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ended.is_set()
        assert seen == [loop]

    asyncio.run(asyncio.wait_for(work(), 60))


def test_what_is_no_function_is_refused(places: Places) -> None:
    cases: list[tuple[Any, type[Exception]]] = [
        ({"a": 1}, TypeError),
        ({1: print}, TypeError),
        ({"": print}, holdfast.AppletError),
    ]
    for functions, error in cases:
        with pytest.raises(error):
            holdfast.Applet(program("trial", "wasm"), functions=functions, **places)

    async def coroutine(data: bytes) -> bytes:
        return data

    with pytest.raises(TypeError, match="AsyncApplet"):
        holdfast.Applet(program("trial", "wasm"), functions={"a": coroutine}, **places)
    with pytest.raises(ValueError):
        holdfast.Applet(program("trial", "wasm"), functions={"a": holdfast.HostFunction(print, timeout=-1)}, **places)
    with pytest.raises(TypeError, match="mapping"):
        holdfast.run(program("trial", "wasm"), args=["--ask"], functions=print, **places)  # type: ignore[arg-type]
    double = {"double": lambda data: data * 2}
    done = holdfast.run(program("trial", "wasm"), args=["--ask"], heap="own", output="capture", functions=double, **places)
    assert done.stdout == b"0 runrun\n"

"""Calls: what goes in, what comes out, and how they fail."""

from __future__ import annotations

import array
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import holdfast
import pytest
from conftest import Start, number, program


# Guarantee: programs/python-calls
def test_a_call_returns_bytes(start: Start, kind: str) -> None:
    with start("echo") as applet:
        assert applet.functions == ("echo", "reverse", "upper", "count", "numbers")
        assert applet.call("reverse", b"abc") == b"cba"
        assert applet.call("echo") == b""
        assert applet.path == program("echo", kind)
        assert "serving" in repr(applet)
        assert applet.alive and not applet.closed
    assert applet.closed and not applet.alive


# Guarantee: programs/python-buffers
def test_anything_with_the_buffer_protocol_is_data(trial: holdfast.Applet) -> None:
    numpy = pytest.importorskip("numpy")
    floats = numpy.arange(6, dtype="float64").reshape(2, 3)
    for data in [b"abc", bytearray(b"abc"), memoryview(b"xabc")[1:], array.array("i", [1, 2]), floats]:
        assert trial.call("echo", data) == bytes(data)
    with pytest.raises(BufferError, match="contiguous"):
        trial.call("echo", floats.T)
    with pytest.raises(TypeError, match="bytes-like"):
        trial.call("echo", "text")  # type: ignore[arg-type]


def test_large_data_goes_both_ways(trial: holdfast.Applet) -> None:
    data = bytes(range(256)) * 40_000
    assert trial.call("echo", data) == data


# Guarantee: programs/python-buffers
def test_data_is_let_go_of_afterwards(trial: holdfast.Applet) -> None:
    data = bytearray(b"abc")
    for _ in range(3):
        assert trial.call("echo", data) == b"abc"
        with pytest.raises(holdfast.CallFailed):
            trial.call("fail", data)
    # A bytearray that is exported cannot be resized.
    data.append(1)


# Guarantee: programs/python-calls
def test_a_failure_has_the_functions_code_and_words(trial: holdfast.Applet) -> None:
    with pytest.raises(holdfast.CallFailed) as raised:
        trial.call("fail")
    assert raised.value.code == 42
    # What could change a terminal was replaced.
    assert raised.value.message == "as it was asked to\ufffd[31m"
    assert "code 42" in str(raised.value)
    assert trial.call("echo", b"goes on") == b"goes on"


def test_an_unknown_function_is_told_with_those_that_there_are(trial: holdfast.Applet) -> None:
    with pytest.raises(holdfast.UnknownFunction, match="ehco.*echo") as raised:
        trial.call("ehco")
    assert raised.value.name == "ehco"
    assert raised.value.known == trial.functions
    assert isinstance(raised.value, LookupError)


# Guarantee: programs/python-calls
def test_a_crash_is_an_exception_and_respawn_goes_on(trial: holdfast.Applet, kind: str) -> None:
    with pytest.raises(holdfast.AppletCrashed) as raised:
        trial.call("crash")
    crash = raised.value
    if kind == "native":
        assert (crash.signal, crash.signal_name) == (11, "SIGSEGV")
    else:
        assert crash.trap and crash.backtrace and crash.function == "crash"
    assert crash.metrics is not None and crash.metrics.kind == kind
    assert not trial.alive and "gone" in repr(trial)
    with pytest.raises(holdfast.AppletGone, match="respawn") as again:
        trial.call("echo")
    assert isinstance(again.value.__cause__, holdfast.AppletCrashed)
    trial.respawn()
    assert trial.alive
    assert trial.call("echo", b"back") == b"back"


def test_an_end_in_a_call_is_a_crash(trial: holdfast.Applet) -> None:
    with pytest.raises(holdfast.AppletError) as raised:
        trial.call("exit", number(7))
    assert "7" in str(raised.value)
    assert not trial.alive


# Guarantee: programs/python-calls
def test_a_violation_says_which_system_call(places: dict[str, Any]) -> None:
    with holdfast.Applet(program("trial", "native"), **places) as applet:
        with pytest.raises(holdfast.PolicyViolation) as raised:
            applet.call("kexec")
    violation = raised.value
    assert (violation.syscall, violation.name) == (246, "kexec_load")
    assert violation.arguments[:4] == (11, 22, 33, 44) and len(violation.arguments) == 6
    assert violation.instruction_pointer > 0
    assert violation.arch == "x86-64" and violation.reason


# Guarantee: programs/python-calls
@pytest.mark.parametrize("by_call", [True, False])
def test_a_call_that_takes_too_long_is_stopped(start: Start, by_call: bool) -> None:
    applet = start(call_timeout=30.0 if by_call else 0.1)
    began = time.monotonic()
    with pytest.raises(holdfast.AppletTimeout) as raised:
        applet.call("spin", timeout=timedelta(milliseconds=100) if by_call else None)
    assert time.monotonic() - began < 10
    assert isinstance(raised.value, TimeoutError)
    assert raised.value.limit_seconds == pytest.approx(0.1)
    assert not applet.alive


def test_a_call_is_cancelled_from_another_thread(start: Start, kind: str) -> None:
    applet = start(grace=10.0)
    assert applet.cancel() is False
    timer = threading.Timer(0.2, applet.cancel)
    timer.start()
    with pytest.raises(holdfast.Cancelled) as raised:
        applet.call("spin_until_cancelled")
    timer.join()
    assert raised.value.is_alive == applet.alive
    if kind == "native":
        assert applet.alive
    else:
        applet.respawn()
    assert applet.call("echo", b"on") == b"on"


def test_an_applet_that_ignores_a_cancellation_is_killed(start: Start) -> None:
    applet = start(grace=0.05)
    timer = threading.Timer(0.2, applet.cancel)
    timer.start()
    with pytest.raises(holdfast.Cancelled) as raised:
        applet.call("spin")
    timer.join()
    assert not raised.value.is_alive and not applet.alive
    with pytest.raises(holdfast.AppletGone) as again:
        applet.call("echo")
    assert isinstance(again.value.__cause__, holdfast.Cancelled)


def test_a_result_has_a_limit(start: Start) -> None:
    applet = start(result="1MiB", grace=10.0)
    assert len(applet.call("large", number(1 << 20))) == 1 << 20
    with pytest.raises(holdfast.HoldfastError):
        applet.call("large", number((1 << 20) + 1))


def test_costs_are_counted(trial: holdfast.Applet, kind: str) -> None:
    assert trial.last_call is None
    trial.call("echo", b"12345")
    last = trial.last_call
    assert last is not None and last.wall_seconds > 0 and last.message_bytes == 10
    metrics = trial.metrics()
    assert (metrics.kind, metrics.calls) == (kind, 1)
    assert metrics.peak_memory_bytes > 0 and metrics.start_seconds > 0
    assert metrics.fuel_used is None


def test_fuel_is_counted_and_ends(places: dict[str, Any]) -> None:
    with holdfast.Applet(program("trial", "wasm"), fuel=10_000_000, **places) as applet:
        applet.call("echo")
        used = applet.metrics().fuel_used
        assert used is not None and used > 0
        with pytest.raises(holdfast.AppletLimit, match="fuel"):
            applet.call("spin")


def test_output_is_captured(start: Start) -> None:
    applet = start(output="capture")
    applet.call("write_output", b"seen")
    closed = applet.close()
    assert closed is not None and closed.stdout == b"seen" and closed.stderr == b""
    assert closed.metrics.calls == 1
    assert applet.close() is None


# Guarantee: applets/captured-output
def test_output_beyond_its_bound_is_dropped_and_told(start: Start) -> None:
    applet = start(output="capture")
    for _ in range(3):
        applet.call("write_output", b"x" * 500_000)
    closed = applet.close()
    assert closed is not None
    assert (closed.stdout, closed.output_truncated) == (b"x" * 2**20, True)


def test_a_closed_applet_says_so(trial: holdfast.Applet) -> None:
    trial.close()
    uses: list[Callable[[], object]] = [lambda: trial.call("echo"), trial.metrics, trial.respawn, lambda: trial.buffer(1)]
    for use in uses:
        with pytest.raises(holdfast.Closed, match="closed"):
            use()
    with pytest.raises(holdfast.Closed):
        trial.stream("echo")
    with pytest.raises(holdfast.Closed, match="another"), trial:
        raise AssertionError("the block is not entered")
    assert trial.cancel() is False
    assert "closed" in repr(trial)
    assert issubclass(holdfast.Closed, ValueError)


def test_what_cannot_be_started_is_told_apart(places: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(holdfast.AppletNotFound, match="nowhere") as raised:
        holdfast.Applet(tmp_path / "nowhere.wasm", **places)
    assert isinstance(raised.value, FileNotFoundError)
    text = tmp_path / "text"
    text.write_text("hello")
    with pytest.raises(holdfast.AppletError, match="neither WebAssembly"):
        holdfast.Applet(text, **places)
    empty = tmp_path / "empty.wat"
    empty.write_text("(module)")
    with pytest.raises(holdfast.AppletError, match="_start"):
        holdfast.Applet(empty, **places)


def test_an_applet_that_does_not_serve_is_refused(start: Start) -> None:
    with pytest.raises(holdfast.AppletError, match="3"):
        start(args=["--never-serve"])


def test_arguments_are_checked(start: Start, places: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="timout.*call_timeout"):
        start(timout=1)
    with pytest.raises(TypeError, match="Limits"):
        start(limits={"fuel": 1})
    with pytest.raises(ValueError, match="64MiB"):
        start(memory="lots")
    with pytest.raises(ValueError, match="-1"):
        start(memory=-1)
    with pytest.raises(TypeError, match="size"):
        start(memory=1.5)
    with pytest.raises(ValueError, match="seconds"):
        start(call_timeout=-1)
    with pytest.raises(TypeError, match="timedelta"):
        start(call_timeout="1 s")
    with pytest.raises(ValueError, match="output"):
        start(output="printer")
    with pytest.raises(ValueError, match="no such directory"):
        start(dirs=[tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="HOST"):
        start(dirs=["::"])


def test_limits_of_an_object_and_by_name_go_together(start: Start) -> None:
    limits = holdfast.Limits(call_timeout=30.0, result=5000)
    applet = start(limits=limits, call_timeout=0.1)
    with pytest.raises(holdfast.AppletTimeout):
        applet.call("spin")
    applet.respawn()
    with pytest.raises(holdfast.HoldfastError):
        applet.call("large", number(5001))


def test_a_limit_that_a_kind_cannot_keep_is_refused(places: dict[str, Any]) -> None:
    with pytest.raises(holdfast.AppletError, match="fuel"):
        holdfast.Applet(program("echo", "native"), fuel=1, **places)
    with pytest.raises(holdfast.AppletError, match="cpu_time"):
        holdfast.Applet(program("echo", "wasm"), cpu_time=1, **places)

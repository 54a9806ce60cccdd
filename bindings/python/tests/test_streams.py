"""Results that come in parts."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import holdfast
import pytest
from conftest import Start, number, program


def test_parts_come_in_order_and_the_result_last(trial: holdfast.Applet) -> None:
    parts = list(trial.stream("parts", number(5)))
    assert parts == [number(part) for part in range(5)] + [number(5)]
    last = trial.last_call
    assert last is not None and last.messages >= 7


def test_a_failure_comes_after_the_parts(trial: holdfast.Applet) -> None:
    with pytest.raises(holdfast.UnknownFunction):
        trial.stream("nothing")
    stream = trial.stream("fail")
    with pytest.raises(holdfast.CallFailed):
        next(stream)
    assert list(stream) == []
    stream = trial.stream("crash")
    with pytest.raises(holdfast.AppletCrashed):
        list(stream)
    assert not trial.alive


# Guarantee: programs/python-calls
# Guarantee: programs/python-cancel
def test_a_stream_that_is_left_early_is_cancelled(start: Start) -> None:
    applet = start(grace=0.05)
    for way in ["close", "with", "drop"]:
        stream = applet.stream("flood")
        assert len(next(stream)) == 64 << 10
        if way == "close":
            stream.close()
            assert list(stream) == []
            stream.close()
        elif way == "with":
            with stream:
                next(stream)
        del stream
        gc.collect()
        if not applet.alive:
            applet.respawn()
        assert applet.call("echo", b"next") == b"next"


# Guarantee: programs/python-calls
# Guarantee: programs/python-cancel
def test_an_applet_that_heeds_a_cancellation_serves_on(places: dict[str, Any]) -> None:
    with holdfast.Applet(program("echo", "native"), grace=20, **places) as applet:
        for _ in range(20):
            with applet.stream("numbers", b"100000000") as stream:
                assert next(stream) == b"1"
            assert applet.alive
            assert applet.call("echo", b"next") == b"next"


# Guarantee: programs/python-calls
# Guarantee: programs/python-cancel
def test_an_applet_of_either_kind_outlives_a_stream_that_is_closed_early(start: Start) -> None:
    applet = start(grace=20.0)
    for way in ["close", "drop"]:
        stream = applet.stream("flood")
        next(stream)
        if way == "close":
            stream.close()
        del stream
        gc.collect()
        assert applet.alive
        assert applet.call("echo", b"next") == b"next"
    assert applet.metrics().calls == 4


# Guarantee: programs/python-calls
# Guarantee: programs/python-cancel
def test_a_function_that_never_notices_is_ended_after_the_grace(start: Start) -> None:
    applet = start(grace=0.2)
    began = time.monotonic()
    for function in ["spin", "flood_on"]:
        applet.stream(function).close()
        assert not applet.alive
        applet.respawn()
    assert time.monotonic() - began < 10


# Guarantee: programs/python-calls
def test_a_call_that_would_wait_for_its_own_stream_is_refused(trial: holdfast.Applet) -> None:
    with trial.stream("parts", number(1000)) as stream:
        next(stream)
        uses: list[Callable[[], object]] = [lambda: trial.call("echo"), trial.metrics, trial.respawn, lambda: trial.buffer(1)]
        for use in uses:
            with pytest.raises(holdfast.CallError, match="stream"):
                use()
        # What needs no waiting works.
        assert trial.alive and trial.functions
        assert len(list(stream)) == 1000
    assert trial.call("echo", b"x") == b"x"


def test_another_thread_waits_for_a_stream(trial: holdfast.Applet) -> None:
    stream = trial.stream("parts", number(3))
    next(stream)
    results: list[bytes] = []
    thread = threading.Thread(target=lambda: results.append(trial.call("echo", b"after")))
    thread.start()
    time.sleep(0.2)
    assert not results
    assert len(list(stream)) == 3
    thread.join(10)
    assert results == [b"after"]


def test_another_thread_learns_the_costs_between_parts(trial: holdfast.Applet) -> None:
    with trial.stream("parts", number(1000)) as stream:
        next(stream)
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(trial.metrics().calls))
        thread.start()
        thread.join(20)
        assert len(found) == 1


def test_another_thread_learns_the_costs_of_a_flood(trial: holdfast.Applet) -> None:
    # Parts that come and are taken without a pause, so that there is hardly a moment between them.
    stop = threading.Event()

    def read() -> None:
        with trial.stream("flood_empty_until_cancelled", timeout=60) as parts:
            while not stop.is_set():
                next(parts)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        began = time.monotonic()
        for _ in range(20):
            assert trial.metrics().kind
        assert time.monotonic() - began < 20
    finally:
        stop.set()
        reader.join(20)


def test_any_thread_may_go_on_with_a_stream(trial: holdfast.Applet) -> None:
    stream = trial.stream("parts", number(200))
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.extend(stream)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(found) == sorted([number(part) for part in range(200)] + [number(200)])


def test_closing_the_applet_ends_its_stream(start: Start) -> None:
    applet = start()
    stream = applet.stream("flood")
    next(stream)
    applet.close()
    assert list(stream) == []


def test_a_time_limit_holds_for_a_stream(trial: holdfast.Applet) -> None:
    with pytest.raises(holdfast.AppletTimeout):
        for _ in trial.stream("flood", timeout=0.2):
            pass

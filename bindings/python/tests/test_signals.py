"""Ctrl-C, which reaches whoever waits for an applet."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import holdfast
import pytest
from conftest import HeldFunction, Start, call_under_way, program, wait_until_no_pool_starts


@contextmanager
def interrupted(after: float = 0.3) -> Iterator[None]:
    """Presses Ctrl-C in a moment, and wants it noticed long before a test is given up."""
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        timer.join()
    assert time.monotonic() - started < 20


# Guarantee: applets/cancel
# Guarantee: applets/interruptible
# Guarantee: programs/python-cancel
def test_an_interrupt_ends_a_call_that_hangs(trial: holdfast.Applet) -> None:
    for function in ("spin_until_cancelled", "spin"):
        with interrupted():
            trial.call(function, timeout=60)
        if not trial.alive:
            trial.respawn()
        assert trial.call("echo", b"it goes on") == b"it goes on"


# Guarantee: applets/interruptible
# Guarantee: programs/python-cancel
def test_an_interrupt_is_heard_whatever_the_applet_sends(trial: holdfast.Applet, kind: str) -> None:
    # Only a native applet can stop in the middle of a message.
    for function in ("flood_empty", "stop_in_a_part") if kind == "native" else ("flood_empty",):
        with interrupted():
            trial.call(function, timeout=60)
        if not trial.alive:
            trial.respawn()
        assert trial.call("echo", b"it goes on") == b"it goes on"


def test_an_interrupt_reaches_who_waits_for_a_part(trial: holdfast.Applet) -> None:
    with interrupted(), trial.stream("spin_until_cancelled", timeout=60) as parts:
        next(parts)
    if not trial.alive:
        trial.respawn()
    assert trial.call("echo", b"it goes on") == b"it goes on"


# Guarantee: applets/interruptible
# Guarantee: programs/python-cancel
def test_an_interrupt_reaches_who_waits_for_a_stream(trial: holdfast.Applet) -> None:
    streams: list[holdfast.Stream] = []
    opened = threading.Event()

    def read() -> None:
        with contextlib.suppress(holdfast.HoldfastError), trial.stream("spin_until_cancelled", timeout=60) as parts:
            streams.append(parts)
            opened.set()
            next(parts)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert opened.wait(20)
        # Long enough for the other thread to be the one that waits for the part.
        time.sleep(0.2)
        uses: list[Callable[[], object]] = [trial.metrics, lambda: trial.buffer(1), lambda: next(streams[0])]
        for use in uses:
            with interrupted():
                use()
        # The stream was left alone.
        assert reader.is_alive() and trial.alive
    finally:
        trial.cancel()
        reader.join(20)
    if not trial.alive:
        trial.respawn()
    assert trial.call("echo", b"it goes on") == b"it goes on"


# Guarantee: applets/interruptible
# Guarantee: programs/python-cancel
def test_an_interrupt_reaches_who_closes_a_stream(start: Start) -> None:
    wait = HeldFunction()
    applet = start(functions={"wait": wait})
    stream = applet.stream("ask_host", b"wait\0done")
    assert wait.reached.wait(20)
    try:
        with interrupted():
            stream.close()
        with interrupted():
            applet.close()
        assert not applet.closed
    finally:
        wait.go_on.set()
    # Who closes it again waits for the end.
    stream.close()
    if not applet.alive:
        applet.respawn()
    assert applet.call("echo", b"it goes on") == b"it goes on"


# Guarantee: applets/interruptible
def test_an_interrupt_reaches_who_waits_for_a_start(kind: str, places: dict[str, Any]) -> None:
    with interrupted(after=1):
        holdfast.Applet(program("trial", kind), args=["--spin"], heap="mine", **places)
    # Nothing of it is left.
    with holdfast.Applet(program("trial", kind), heap="mine", **places) as applet:
        assert applet.call("echo", b"it goes on") == b"it goes on"


# Guarantee: applets/interruptible
def test_an_interrupt_reaches_who_makes_a_pool(kind: str, places: dict[str, Any]) -> None:
    grant = holdfast.HeapGrant("mine", compartment="worker-{}")
    with interrupted(after=1):
        holdfast.Pool(program("trial", kind), args=["--spin"], heap=grant, **places)
    # The compartment is free.
    grant = holdfast.HeapGrant("mine", compartment="worker-1")
    with holdfast.Applet(program("trial", kind), heap=grant, **places) as applet:
        assert applet.call("echo", b"it goes on") == b"it goes on"


# Guarantee: applets/interruptible
def test_an_interrupt_reaches_who_waits_for_a_pool(places: dict[str, Any], tmp_path: Path) -> None:
    path, spinner = tmp_path / "applet", tmp_path / "spinner"
    shutil.copy(program("trial", "native"), path)
    # The pool's thread, which hears no signals, tries for as long as this.
    with holdfast.Pool(path, size=1, start_timeout=8.0, **places) as pool:
        # What starts from here on never serves.
        spinner.write_text('(module (func (export "_start") (loop $on (br $on))))')
        spinner.replace(path)
        applet = pool.take()
        uses: list[Callable[[], object]] = [pool.take, applet.respawn]
        for use in uses:
            with interrupted(after=1):
                use()
        assert not applet.alive and not pool.closed
        applet.close()
    wait_until_no_pool_starts()


# Guarantee: applets/interruptible
def test_an_interrupt_reaches_who_closes_a_pool(places: dict[str, Any], tmp_path: Path) -> None:
    path, spinner = tmp_path / "applet", tmp_path / "spinner"
    shutil.copy(program("trial", "native"), path)
    pool = holdfast.Pool(path, size=1, start_timeout=4.0, **places)
    # What starts from here on never serves, and the end of the pool waits a second for that.
    spinner.write_text('(module (func (export "_start") (loop $on (br $on))))')
    spinner.replace(path)
    applet = pool.take()
    time.sleep(0.3)
    began = time.monotonic()
    with interrupted(after=0.2):
        pool.close()
    assert time.monotonic() - began < 0.9
    # It goes on to end, which closing it again waits for.
    assert pool.closed
    pool.close()
    applet.close()
    wait_until_no_pool_starts()


# Guarantee: applets/interruptible
def test_an_interrupt_reaches_who_waits_for_the_end(places: dict[str, Any]) -> None:
    # It takes no message any more, and so not the one that it is to end.
    applet = holdfast.Applet(program("trial", "native"), grace=5.0, heap="kept", **places)
    applet.call("count")
    applet.call("stop_reading")
    time.sleep(0.3)
    began = time.monotonic()
    with interrupted(after=0.2):
        applet.close()
    assert time.monotonic() - began < 3
    # It goes on to end, which closing it again waits for.
    assert applet.closed
    closed = applet.close()
    assert closed is not None and closed.metrics.calls == 2
    assert applet.close() is None
    with holdfast.Applet(program("trial", "native"), heap="kept", **places) as again:
        assert again.call("look") == (1).to_bytes(8, "little")


# Guarantee: programs/python-leaks
def test_an_end_that_was_left_is_over_before_its_applet_is_gone(places: dict[str, Any]) -> None:
    applet = holdfast.Applet(program("trial", "native"), grace=2.0, heap="kept", **places)
    applet.call("stop_reading")
    time.sleep(0.3)
    with interrupted(after=0.2):
        applet.close()
    del applet
    gc.collect()
    # Its heap is free.
    holdfast.Applet(program("trial", "native"), heap="kept", **places).close()


# Guarantee: applets/interruptible
# Guarantee: programs/python-cancel
def test_an_interrupt_reaches_who_waits_for_another_call(start: Start) -> None:
    with call_under_way(start) as applet:
        uses: list[Callable[[], object]] = [
            lambda: applet.call("echo"),
            lambda: applet.stream("echo"),
            lambda: applet.buffer(1),
            applet.metrics,
            applet.respawn,
            applet.close,
        ]
        for use in uses:
            with interrupted():
                use()
            # Also one that was being closed is as before.
            assert not applet.closed
    # The other call was left alone.
    assert applet.alive
    assert applet.call("echo", b"it goes on") == b"it goes on"


def test_an_interrupt_reaches_who_waits_for_a_transaction(places: dict[str, Any]) -> None:
    heap = holdfast.Heap("state", **places)
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with heap.transaction():
            begun.set()
            assert go_on.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert begun.wait(20)
        uses: list[Callable[[], object]] = [
            lambda: heap.create("a", 8),
            lambda: "a" in heap,
            heap.transaction().__enter__,
            heap.commit,
            heap.close,
        ]
        for use in uses:
            with interrupted():
                use()
    finally:
        go_on.set()
        thread.join(20)
    # None of them was done, and none has the turn.
    assert list(heap) == []
    other = threading.Thread(target=lambda: heap.create("b", 8).release())
    other.start()
    other.join(20)
    assert list(heap) == ["b"]
    heap.close()


# Guarantee: programs/python-calls
def test_a_handler_does_not_wait_for_the_call_that_it_interrupts(trial: holdfast.Applet) -> None:
    refused: list[str] = []
    uses: list[Callable[[], object]] = [
        lambda: trial.call("echo"),
        lambda: trial.stream("echo"),
        lambda: trial.buffer(1),
        trial.metrics,
        trial.respawn,
        trial.close,
    ]

    def handle(number: int, frame: FrameType | None) -> None:
        for use in uses:
            with pytest.raises(holdfast.CallError) as raised:
                use()
            refused.append(str(raised.value))

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        with pytest.raises(holdfast.AppletTimeout):
            trial.call("spin", timeout=0.6)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(refused) == len(uses)
    assert all("a signal interrupted" in text for text in refused)


# Guarantee: programs/python-calls
def test_a_handler_does_not_close_what_its_thread_waits_for(start: Start) -> None:
    refused: list[str] = []
    with call_under_way(start) as applet:

        def handle(number: int, frame: FrameType | None) -> None:
            with pytest.raises(holdfast.CallError) as raised:
                applet.close()
            refused.append(str(raised.value))

        before = signal.signal(signal.SIGUSR1, handle)
        try:
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
            timer.start()
            with pytest.raises(holdfast.AppletBusy):
                applet.call("echo", timeout=1.5)
            timer.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
    assert len(refused) == 1 and "a signal interrupted" in refused[0]
    assert applet.call("echo", b"it goes on") == b"it goes on"


def test_a_signal_whose_handler_returns_changes_nothing(trial: holdfast.Applet) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    try:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        with pytest.raises(holdfast.AppletTimeout):
            trial.call("spin", timeout=0.6)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [signal.SIGUSR1]

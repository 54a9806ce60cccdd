"""Ctrl-C, which reaches whoever waits for an applet."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import holdfast
import pytest


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

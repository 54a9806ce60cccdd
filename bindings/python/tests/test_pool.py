"""Applets that are started before they are needed."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import holdfast
import pytest
from conftest import children, number, program, wait_until_no_pool_starts


def wait_for(pool: holdfast.Pool, count: int) -> None:
    deadline = time.monotonic() + 20
    while pool.ready < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_taken_applets_are_fresh(kind: str, places: dict[str, Any]) -> None:
    with holdfast.Pool(program("trial", kind), size=2, **places) as pool:
        wait_for(pool, 2)
        for _ in range(4):
            with pool.take() as applet:
                assert applet.metrics().calls == 0
                assert applet.call("echo", b"abc") == b"abc"
            assert applet.closed
        wait_for(pool, 2)
        assert pool.ready == 2
    assert pool.closed
    with pytest.raises(holdfast.Closed, match="pool"):
        pool.take()


def test_applets_that_are_reused_go_back(kind: str, places: dict[str, Any]) -> None:
    with holdfast.Pool(program("trial", kind), size=1, reuse=True, **places) as pool:
        deadline = time.monotonic() + 20
        calls = 0
        # The pool starts another one meanwhile, which may be there first.
        while calls < 3:
            assert time.monotonic() < deadline
            with pool.take() as applet:
                applet.call("echo")
                calls = max(calls, applet.metrics().calls)
        with pool.take() as applet, pytest.raises(holdfast.AppletCrashed):
            applet.call("crash")
        # A dead one does not.
        for _ in range(3):
            with pool.take() as applet:
                assert applet.call("echo", b"abc") == b"abc"


def test_more_than_are_ready_can_be_taken(kind: str, places: dict[str, Any]) -> None:
    pool = holdfast.Pool(program("trial", kind), size=1, **places)
    applets = [pool.take() for _ in range(3)]
    assert [applet.call("echo", b"x") for applet in applets] == [b"x"] * 3
    # They outlive their pool.
    pool.close()
    pool.close()
    assert applets[0].call("echo", b"y") == b"y"
    for applet in applets:
        assert applet.close() is None


def test_threads_take_from_one_pool(kind: str, places: dict[str, Any]) -> None:
    failures: list[BaseException] = []
    with holdfast.Pool(program("trial", kind), size=2, reuse=True, **places) as pool:

        def work() -> None:
            try:
                for _ in range(10):
                    with pool.take() as applet:
                        assert applet.call("echo", b"abc") == b"abc"
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    assert not failures


def test_a_pool_ends_while_another_thread_takes_from_it(places: dict[str, Any], tmp_path: Path) -> None:
    path, spinner = tmp_path / "applet", tmp_path / "spinner"
    shutil.copy(program("trial", "native"), path)
    before = children()
    pool = holdfast.Pool(path, size=1, reuse=True, start_timeout=4.0, **places)
    served = children() - before
    assert served
    # What starts from here on never serves.
    spinner.write_text('(module (func (export "_start") (loop $on (br $on))))')
    spinner.replace(path)
    applet, taking = pool.take(), threading.Event()

    def take() -> None:
        taking.set()
        with contextlib.suppress(holdfast.HoldfastError):
            pool.take()

    taker = threading.Thread(target=take)
    taker.start()
    assert taking.wait(20)
    time.sleep(0.3)
    # It goes back, and is ended with the pool.
    applet.close()
    assert pool.ready == 1
    pool.close()
    assert not served & children()
    assert taker.is_alive()
    taker.join(20)
    wait_until_no_pool_starts()


def test_each_has_a_compartment_of_its_own(kind: str, places: dict[str, Any]) -> None:
    grant = holdfast.HeapGrant("words", compartment="worker-{}")
    with holdfast.Pool(program("trial", kind), size=1, heap=grant, **places) as pool:
        applets = [pool.take() for _ in range(3)]
        assert [applet.call("count") for applet in applets] == [number(1)] * 3
        for applet in applets:
            applet.close()
    with pytest.raises(ValueError, match="worker-{}"):
        holdfast.Pool(program("trial", kind), heap="words", **places)


def test_a_mistake_shows_when_the_pool_is_made(places: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(holdfast.AppletNotFound):
        holdfast.Pool(tmp_path / "nowhere", **places)
    with pytest.raises(TypeError, match="timout"):
        holdfast.Pool(program("trial", "wasm"), timout=1, **places)  # type: ignore[call-arg]


def test_a_pool_that_nobody_refers_to_ends(kind: str, places: dict[str, Any]) -> None:
    before = os.listdir("/proc/self/task")
    pool = holdfast.Pool(program("trial", kind), size=1, **places)
    applet = pool.take()
    wait_for(pool, 1)
    threads = [task for task in os.listdir("/proc/self/task") if task not in before]
    names = [Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in threads]
    assert "holdfast-pool" in names
    del pool
    gc.collect()
    left = [task for task, name in zip(threads, names, strict=True) if name == "holdfast-pool"]
    assert not set(left) & set(os.listdir("/proc/self/task"))
    assert applet.call("echo", b"x") == b"x"
    applet.close()


# Guarantee: programs/python-leaks
def test_a_pool_that_its_own_function_refers_to_ends(kind: str, places: dict[str, Any]) -> None:
    class Host:
        def __init__(self) -> None:
            functions = {"double": self.double}
            self.pool = holdfast.Pool(program("trial", kind), size=1, functions=functions, **places)

        def double(self, data: bytes) -> bytes:
            return data * 2

    host = Host()
    gone = weakref.ref(host.pool)
    applet = host.pool.take()
    del host
    gc.collect()
    # The collector takes nothing from an applet that is in use.
    assert applet.call("ask_host", b"double\0ab") == b"abab"
    applet.close()
    del applet
    gc.collect()
    assert gone() is None

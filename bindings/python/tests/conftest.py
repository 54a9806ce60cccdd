"""What the tests share: the built applets, and a home of their own for each test.

`cargo xtask test` names the folder of the applets in `HOLDFAST_APPLETS`; by hand, `cargo xtask applets` puts them where the
default looks for them.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import holdfast
import pytest

APPLETS = Path(os.environ.get("HOLDFAST_APPLETS") or Path(__file__).parents[3] / "target" / "applets")

#: Starts an applet: its name, and options.
Start = Callable[..., holdfast.Applet]


def program(name: str, kind: str) -> Path:
    """The file of an applet."""
    path = APPLETS / (f"{name}.wasm" if kind == "wasm" else name)
    assert path.exists(), f"{path} is missing: cargo xtask applets {name}"
    return path


def number(value: int) -> bytes:
    """As the applet `trial` takes and gives numbers."""
    return struct.pack("<Q", value)


class HeldFunction:
    """A function for an applet that returns what it is given, once it may go on."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self, data: bytes) -> bytes:
        self.reached.set()
        assert self.go_on.wait(60)
        return data


def wait_until_no_pool_starts() -> None:
    """Waits for the threads of pools that were closed while one started an applet that never serves."""
    deadline = time.monotonic() + 20
    while any(name == "holdfast-pool" for name in thread_names()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def thread_names() -> list[str]:
    names = []
    for task in Path("/proc/self/task").iterdir():
        # It may end meanwhile.
        with suppress(OSError):
            names.append((task / "comm").read_text().strip())
    return names


def children() -> set[str]:
    me, found = os.getpid(), set()
    for task in os.listdir(f"/proc/{me}/task"):
        found.update(Path(f"/proc/{me}/task/{task}/children").read_text().split())
    return found


@contextmanager
def call_under_way(start: Start) -> Iterator[holdfast.Applet]:
    """An applet that another thread calls meanwhile; that call ends with its result."""
    wait = HeldFunction()
    applet = start(functions={"wait": wait})
    results: list[bytes] = []
    thread = threading.Thread(target=lambda: results.append(applet.call("ask_host", b"wait\0done")))
    thread.start()
    try:
        assert wait.reached.wait(20)
        yield applet
    finally:
        wait.go_on.set()
        thread.join(20)
    assert results == [b"done"]


@pytest.fixture(params=["native", "wasm"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is compiled of WebAssembly, kept for the session."""
    cache = tmp_path_factory.mktemp("cache")
    cache.chmod(0o700)
    return cache


@pytest.fixture
def places(tmp_path: Path, cache: Path) -> dict[str, Any]:
    """The directories of heaps, as options."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "cache").symlink_to(cache)
    return {"home": home, "pool": tmp_path / "pool"}


@pytest.fixture
def start(kind: str, places: dict[str, Any]) -> Iterator[Start]:
    """Starts applets of one kind and closes them."""
    started: list[holdfast.Applet] = []

    def start(name: str = "trial", **options: Any) -> holdfast.Applet:
        applet = holdfast.Applet(program(name, kind), **{**places, **options})
        started.append(applet)
        return applet

    yield start
    for applet in started:
        applet.close()


@pytest.fixture
def trial(start: Start) -> holdfast.Applet:
    return start("trial")

"""What the tests share: the built applets, and a home of their own for each test.

`cargo xtask test` names the folder of the applets in `HOLDFAST_APPLETS`; by hand, `cargo xtask applets` puts them where the
default looks for them.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def call_under_way(start: Start) -> Iterator[holdfast.Applet]:
    """An applet that another thread calls meanwhile; that call ends with its result."""
    reached, go_on = threading.Event(), threading.Event()

    def wait(data: bytes) -> bytes:
        reached.set()
        assert go_on.wait(60)
        return data

    applet = start(functions={"wait": wait})
    results: list[bytes] = []
    thread = threading.Thread(target=lambda: results.append(applet.call("ask_host", b"wait\0done")))
    thread.start()
    try:
        assert reached.wait(20)
        yield applet
    finally:
        go_on.set()
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

"""A heap belongs to the applet that made it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import holdfast
import pytest
from conftest import program

Places = dict[str, Any]


def version(directory: Path, kind: str, number: int) -> Path:
    """The ledgers, with other bytes: a custom section, or something behind the program."""
    path = directory / f"{number}.applet"
    shutil.copy(program("ledgers", kind), path)
    with path.open("ab") as file:
        file.write(b"\0\x02\x01" + bytes([number]))
    return path


def test_another_applet_is_refused(tmp_path: Path, kind: str, places: Places) -> None:
    one, two = version(tmp_path, kind, 1), version(tmp_path, kind, 2)
    with holdfast.Applet(one, heap="book", **places) as applet:
        applet.call("add", b"book")
    with pytest.raises(holdfast.HeapDenied, match="belongs to the unsigned program .* this applet is the unsigned"):
        holdfast.Applet(two, heap="book", **places)
    with pytest.raises(holdfast.HeapDenied):
        holdfast.Pool(two, size=1, heap="book:ro", **places)
    with holdfast.Applet(one, heap="book", **places) as applet:
        applet.call("add", b"book")
    # The program that runs them opens the heaps of all.
    with holdfast.Heap("book", **places) as heap:
        assert heap.backed_bytes > 0


def test_a_name_outlives_the_code(tmp_path: Path, kind: str, places: Places) -> None:
    one, two = version(tmp_path, kind, 1), version(tmp_path, kind, 2)
    for path in (one, two):
        with holdfast.Applet(path, heap="book", app="https://example.org", **places) as applet:
            applet.call("add", b"book")
    with pytest.raises(holdfast.HeapDenied, match="its host names `https://example.org`"):
        holdfast.Applet(two, heap="book", app="https://example.com", **places)
    with pytest.raises(ValueError, match="the name of an applet"):
        holdfast.Applet(two, heap="book", app="no name", **places)


def test_heaps_of_the_program_open_for_all(tmp_path: Path, kind: str, places: Places) -> None:
    with holdfast.Heap("book", **places):
        pass
    for number in (1, 2):
        with holdfast.Applet(version(tmp_path, kind, number), heap="book:ro", **places):
            pass
    mine = holdfast.HeapGrant("mine", key="mine")
    with holdfast.Applet(version(tmp_path, kind, 3), heap=mine, **places) as applet:
        applet.call("add", b"mine")
    with holdfast.Applet(version(tmp_path, kind, 4), heap=mine, **places) as applet:
        applet.call("add", b"mine")


def test_a_forged_signature_does_not_start(tmp_path: Path, places: Places) -> None:
    path = version(tmp_path, "wasm", 1)
    with path.open("ab") as file:
        file.write(b"\0\x15\x12holdfast.signatureno")
    with pytest.raises(holdfast.AppletError, match="signature"):
        holdfast.Applet(path, heap="book", **places)

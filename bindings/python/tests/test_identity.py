"""A heap belongs to the applet that made it."""

from __future__ import annotations

import os
import shutil
import warnings
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


NOTE = "heap book is one of the key `default`, which every applet may use; `holdfast heap adopt book --by"


def test_a_heap_of_all_applets_is_told(tmp_path: Path, kind: str, places: Places) -> None:
    with holdfast.Heap("book", **places):
        pass
    one = version(tmp_path, kind, 1)
    with pytest.warns(UserWarning, match=NOTE), holdfast.Applet(one, heap="book", **places):
        pass
    with pytest.warns(UserWarning, match=NOTE), holdfast.Pool(one, size=1, heap="book:ro", **places):
        pass
    # Also when nothing starts.
    with pytest.warns(UserWarning, match=NOTE), pytest.raises(holdfast.HeapNotFound):
        holdfast.Applet(one, heap=["book", "missing:ro"], **places)


def test_a_warning_that_is_an_error_starts_nothing(tmp_path: Path, kind: str, places: Places) -> None:
    one = version(tmp_path, kind, 1)
    with holdfast.Applet(one, heap=holdfast.HeapGrant("book", key="default"), **places) as applet:
        applet.call("add", b"book")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=NOTE):
            holdfast.Applet(one, heap=["book", "fresh"], **places)
        with pytest.raises(UserWarning, match=NOTE):
            holdfast.Pool(one, size=1, heap="book:ro", **places)
    assert not (places["pool"] / "fresh.image").exists()
    with holdfast.Applet(one, heap="book", **places) as applet:
        applet.call("add", b"book")


def test_a_heap_that_cannot_be_closed_again_is_told(
    tmp_path: Path, kind: str, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.Heap("book", **places):
        pass
    [image] = places["pool"].rglob("book.image")

    def cut_off(message: Warning | str, *_: Any) -> None:
        os.truncate(image, 0)
        raise UserWarning(str(message))

    with warnings.catch_warnings(), monkeypatch.context() as patch:
        warnings.simplefilter("always")
        patch.setattr(warnings, "showwarning", cut_off)
        with pytest.raises(UserWarning, match=NOTE) as raised:
            holdfast.Applet(version(tmp_path, kind, 1), heap=["book", "fresh"], **places)
    text = str(raised.value)
    assert "; the heap book could not be closed in order: " in text
    # The other one was closed all the same, and removed.
    assert "the heap fresh" not in text
    assert not list(places["pool"].rglob("fresh.image"))


def test_compartments_take_no_applet_s_key(tmp_path: Path, kind: str, places: Places) -> None:
    one, two = version(tmp_path, kind, 1), version(tmp_path, kind, 2)
    with holdfast.Heap("other", **places):
        pass
    with holdfast.Applet(one, heap="book", **places) as applet:
        applet.call("add", b"book")
    worker = holdfast.HeapGrant("book", compartment="worker")
    for path in (one, two):
        with pytest.raises(holdfast.HeapDenied):
            holdfast.Applet(path, heap=worker, **places)
    worker = holdfast.HeapGrant("other", compartment="worker")
    with holdfast.Applet(two, heap=worker, **places) as applet:
        applet.call("add", b"other+worker")


def test_a_forged_signature_gets_no_heap_of_a_named_key(tmp_path: Path, places: Places) -> None:
    path = version(tmp_path, "wasm", 1)
    with path.open("ab") as file:
        file.write(b"\0\x15\x12holdfast.signatureno")
    for grant in (holdfast.HeapGrant("book", key="mine"), holdfast.HeapGrant("book", compartment="worker")):
        with pytest.raises(holdfast.AppletError, match="signature"):
            holdfast.Applet(path, heap=grant, **places)

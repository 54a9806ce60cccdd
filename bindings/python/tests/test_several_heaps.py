"""Applets with several heaps."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import holdfast
import pytest
from conftest import Start, program

Places = dict[str, Any]


def look(applet: holdfast.Applet, name: str) -> int:
    """How many entries the ledger in a heap has."""
    return int(struct.unpack("<Q", applet.call("look", name.encode()))[0])


def closed_in_order(places: Places, heap: str) -> bool:
    """Whether the header of the heap's image says so: the slot of the two that is newer (docs/format.md)."""
    [image] = Path(places["pool"]).rglob(f"{heap}.image")
    with image.open("rb") as file:
        slots = [file.read(4096), file.read(4096)]
    newer = max(slots, key=lambda slot: int(struct.unpack_from("<Q", slot, 16)[0]))
    return int(struct.unpack_from("<I", newer, 72)[0]) == 0


def test_each_heap_has_its_name(start: Start) -> None:
    heaps = ["dict", holdfast.HeapGrant("notes", alias="diary", limit="8MiB")]
    applet = start("ledgers", heap=heaps)
    applet.call("add", b"dict diary")
    applet.call("add", b"diary")
    assert (look(applet, "dict"), look(applet, "diary")) == (1, 2)
    with pytest.raises(holdfast.CallError):
        applet.call("add", b"notes")
    applet.close()
    applet = start("ledgers", heap=("diary=notes", "dict:ro"))
    assert (look(applet, "dict"), look(applet, "diary")) == (1, 2)
    with pytest.raises(holdfast.CallError, match="may only be read"):
        applet.call("add", b"dict")


def test_readers_share_a_heap(start: Start) -> None:
    start("ledgers", heap="dict").call("add", b"dict")
    # The one above has it still, to write.
    with pytest.raises(holdfast.HeapHeld):
        start("ledgers", heap=["dict:ro"])


def test_room_is_made_before_the_start(start: Start) -> None:
    with start("ledgers", heap=holdfast.HeapGrant("dict", reserve="20MiB")) as applet:
        applet.call("add", b"dict")
        assert 20 << 20 <= applet.metrics().heap_backed_bytes < 32 << 20
    with pytest.raises(holdfast.HeapError):
        start("ledgers", heap=holdfast.HeapGrant("dict", reserve="1TiB"))


def test_any_number_reads(start: Start, kind: str, places: Places) -> None:
    with holdfast.Applet(program("ledgers", kind), heap="dict", **places) as maker:
        maker.call("add", b"dict")
    readers = [start("ledgers", heap=[holdfast.HeapGrant("dict", read_only=True), f"own-{n}"]) for n in range(3)]
    for number, reader in enumerate(readers):
        reader.call("add", f"own-{number}".encode())
        assert (look(reader, "dict"), look(reader, f"own-{number}")) == (1, 1)


def test_impossible_grants_leave_nothing(start: Start, places: Places) -> None:
    for heap, error, words in [
        (["new", "dict:ro"], holdfast.HeapNotFound, "dict"),
        (["new", "new=other"], holdfast.AppletError, "under the name"),
        (["new", "dict:rw"], ValueError, "write dict:ro"),
        (["new", 7], TypeError, "HeapGrant"),
    ]:
        with pytest.raises(error, match=words):
            start("ledgers", heap=heap)
    with pytest.raises(holdfast.HeapNotFound):
        holdfast.Heap("new", create=False, **places)


def test_arguments_that_would_be_ignored_are_refused(start: Start, kind: str, places: Places) -> None:
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"compartment": "w"}, "leave out read_only, or compartment"),
        ({"compartment": "w-{}"}, "leave out read_only, or compartment"),
        ({"reserve": "8MiB"}, "leave out reserve, or read_only"),
        ({"atomic": True}, "leave out atomic, or read_only"),
    ]
    for wrong, words in wrongs:
        grant = holdfast.HeapGrant("dict", read_only=True, **wrong)
        with pytest.raises(ValueError, match=words):
            start("ledgers", heap=["new", grant])
        with pytest.raises(ValueError, match=words):
            holdfast.Pool(program("ledgers", kind), heap=grant, **places)
    of_the_host = [holdfast.HeapGrant("new", compartment="w"), holdfast.HeapGrant("dict", key="mine")]
    for heap, words in [(None, 'pass heap="NAME"'), ([], 'pass heap="NAME"'), (of_the_host, "leave out app")]:
        with pytest.raises(ValueError, match=words):
            start("ledgers", heap=heap, app="https://example.org")
    for name in ("new", "dict"):
        with pytest.raises(holdfast.HeapNotFound):
            holdfast.Heap(name, create=False, **places)
    # It says whose one of them is.
    start("ledgers", heap=["new", holdfast.HeapGrant("dict", key="mine")], app="https://example.org")


def test_a_start_that_is_refused_closes_the_heaps_before(start: Start, places: Places) -> None:
    for name in ("first", "second"):
        start("ledgers", heap=name).close()
    with start("ledgers", heap="second"):
        assert not closed_in_order(places, "second")
        large = holdfast.HeapGrant("first", reserve="8MiB")
        with pytest.raises(holdfast.HeapHeld, match="second"):
            start("ledgers", heap=[large, "made", "second"])
    # It was closed with the room that was made in it, and what was made now is removed.
    assert closed_in_order(places, "first")
    with holdfast.Heap("first", create=False, **places) as heap:
        assert heap.backed_bytes >= 8 << 20
    # The one that cannot be had so is closed, too.
    for name in ("first", "made"):
        with pytest.raises(holdfast.HeapError):
            start("ledgers", heap=holdfast.HeapGrant(name, reserve="1TiB"))
    assert closed_in_order(places, "first")
    with pytest.raises(holdfast.HeapNotFound):
        holdfast.Heap("made", create=False, **places)


def test_death_names_the_heap_that_was_rolled_back(start: Start) -> None:
    applet = start("ledgers", heap=["a", "b"])
    applet.call("add", b"a b")
    with pytest.raises(holdfast.AppletError) as raised:
        applet.call("add_and_crash", b"a b")
    assert raised.value.heap == "a" and raised.value.heap_recovery == "rolled-back"
    applet.respawn()
    assert (look(applet, "a"), look(applet, "b")) == (1, 2)

"""Portable heaps: types that lie in memory the same way everywhere, and one heap for programs of every kind."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import holdfast
import pytest
from conftest import Start

Places = dict[str, Any]


class Entry(holdfast.Portable):
    """As applets/portable has it."""

    version = 1
    fields = {
        "older": holdfast.ref("Entry"),
        "below": holdfast.ref("Entry"),
        "number": holdfast.u64,
        "by": holdfast.array(holdfast.u8, 8),
    }


class Ledger(holdfast.Portable):
    version = 1
    fields = {
        "newest": holdfast.ref(Entry),
        "count": holdfast.u32,
        "sum": holdfast.u64,
        "shelves": holdfast.array(holdfast.ref(Entry), 8),
    }


class SignedLedger(holdfast.Portable):
    version = 1
    fields = {**Ledger.fields, "count": holdfast.i32}


class Node(holdfast.Portable):
    version = 1
    fields = {"next": holdfast.ref("Node"), "flags": holdfast.u32, "key": holdfast.u64}


class Ratio(holdfast.Portable):
    version = 1
    fields = {"value": holdfast.f32}


class First(holdfast.Portable):
    version = 1
    fields = {"second": holdfast.ref("Second"), "text": holdfast.array(holdfast.u8, 4)}


class Second(holdfast.Portable):
    version = 1
    fields = {"third": holdfast.ref("Third"), "count": holdfast.u32}


class Third(holdfast.Portable):
    version = 1
    fields = {"first": holdfast.ref(First), "node": holdfast.ref(Node)}


class Whole(holdfast.Portable):
    version = 1
    fields = {"first": holdfast.array(First, 2), "at": holdfast.f64}


def add(heap: holdfast.Heap) -> None:
    """What `ledger.c` does."""
    ledger = Ledger.open(heap, "ledger") or Ledger.create(heap, "ledger")
    with heap.transaction() as tx:
        tx.add(ledger.view)
        entry = Entry.new(heap)
        ledger.count += 1
        ledger.sum += ledger.count
        entry.older, entry.number, entry.by = ledger.newest, ledger.count, b"python"
        entry.below = ledger.shelves[ledger.count % 8]
        ledger.newest = ledger.shelves[ledger.count % 8] = entry


def entries(heap: holdfast.Heap) -> list[int]:
    """The numbers of the entries, the newest first."""
    ledger = Ledger.open(heap, "ledger")
    assert ledger is not None
    found, entry = [], ledger.newest
    while entry is not None:
        found.append(entry.number)
        entry = entry.older
    assert (len(found), sum(found)) == (ledger.count, ledger.sum)
    return found


def look(applet: holdfast.Applet) -> int:
    return int(struct.unpack("<Q", applet.call("look", b"book"))[0])


def test_layouts_are_those_of_other_languages() -> None:
    """Guarantee: programs/portable-types"""
    # The numbers that holdfast-heap pins.
    assert Node.layout() == 0xE85007852806A773
    assert First.layout() == 0xF19C71EE76EEAAAD
    assert Whole.layout() == 0xCCDACFF2969FF358
    assert (Node.size(), Whole.size()) == (16, 24)
    assert Ledger.layout() != SignedLedger.layout()


def test_python_and_applets_change_one_heap_in_turn(start: Start, places: Places) -> None:
    """Guarantee: applets/portable"""
    for count in range(1, 12, 3):
        with holdfast.Heap("book", portable=True, **places) as heap:
            assert heap.portable
            add(heap)
            assert entries(heap) == list(range(count, 0, -1))
        with start("portable", heap="book") as applet:
            assert look(applet) == count
            applet.call("add", b"book")
            assert look(applet) == count + 1
            with pytest.raises(holdfast.AppletCrashed):
                applet.call("add_and_crash", b"book")
        # A process that is killed in the middle of a transaction.
        script = (
            "import os, holdfast, test_portable as t\n"
            f"heap = holdfast.Heap('book', portable=True, home={str(places['home'])!r}, pool={str(places['pool'])!r})\n"
            "t.add(heap)\n"
            "tx = heap.transaction(); tx.__enter__()\n"
            "ledger = t.Ledger.open(heap, 'ledger'); tx.add(ledger.view); ledger.count = 99; ledger.newest = None\n"
            "os.kill(os.getpid(), 9)\n"
        )
        killed = subprocess.run([sys.executable, "-c", script], cwd=__file__.rsplit("/", 1)[0], check=False)
        assert killed.returncode == -9
        with start("portable", heap="book") as applet:
            assert look(applet) == count + 2


def test_other_heaps_and_other_types_are_refused(places: Places) -> None:
    """Guarantee: programs/portable-types"""
    with holdfast.Heap("plain", **places) as heap:
        assert not heap.portable
        heap.create("root", 8)
    with pytest.raises(holdfast.HeapError, match="another heap"):
        holdfast.Heap("plain", portable=True, **places)
    with holdfast.Heap("book", portable=True, **places) as heap:
        add(heap)
        with pytest.raises(holdfast.LayoutMismatch, match="SignedLedger has") as refused:
            SignedLedger.open(heap, "ledger")
        assert (refused.value.stored, refused.value.wanted) == (Ledger.layout(), SignedLedger.layout())
        heap.create("untyped", 96).release()
        with pytest.raises(holdfast.LayoutMismatch, match="no layout"):
            Ledger.open(heap, "untyped")
        assert Ledger.open(heap, "nothing") is None
    # Whatever it is, it is data for who asks for no kind.
    with holdfast.Heap("book", **places) as heap:
        assert heap.portable and entries(heap) == [1]


def test_fields_are_read_and_stored_in_place(places: Places) -> None:
    with holdfast.Heap("book", portable=True, **places) as heap:
        whole = Whole.create(heap, "whole")
        whole.at = 0.5  # type: ignore[assignment, method-assign]  # the field hides the method
        whole.first[1].text = b"abc"
        assert bytes(heap["whole"]) == bytes(12) + b"abc\0" + struct.pack("<d", 0.5)
        whole.first[0] = whole.first[1]
        assert bytes(whole.first[0].text) == b"abc\0" and len(whole.first) == 2
        node = Node.new(heap)
        node.next = node
        assert node.next == node and node.next.offset == node.offset
        for wrong in (-1, 1 << 32, "x", 1.5):
            with pytest.raises(ValueError):
                node.flags = wrong
        ratio = Ratio.new(heap)
        for wrong in (1e300, "x"):
            with pytest.raises(ValueError, match="is no f32"):
                ratio.value = wrong
        with pytest.raises(TypeError, match="leads to a Node"):
            node.next = whole
        with pytest.raises(ValueError, match="3 were given"):
            whole.first = [1, 2, 3]
        with pytest.raises(IndexError):
            whole.first[2]
        with pytest.raises(TypeError, match="lie in heaps"):
            Node()


def test_an_array_is_stored_whole_or_not_at_all(places: Places) -> None:
    """Guarantee: programs/portable-types"""
    with holdfast.Heap("book", portable=True, **places) as heap:
        ledger, entry = Ledger.create(heap, "ledger"), Entry.new(heap)
        ledger.shelves = [entry] * 8
        with pytest.raises(TypeError, match="leads to a Entry"):
            ledger.shelves = [None] * 7 + [ledger]
        assert list(ledger.shelves) == [entry] * 8
        with pytest.raises(ValueError, match="256 is no u8"):
            entry.by = [1, 2, 3, 4, 5, 6, 7, 256]
        assert bytes(entry.by) == bytes(8)
        # Its own elements change places: none is overwritten before it is read.
        whole = Whole.new(heap)
        whole.first[0].text, whole.first[1].text = b"one", b"two"
        whole.first = reversed(whole.first)
        assert [bytes(first.text) for first in whole.first] == [b"two\0", b"one\0"]


def test_values_lose_their_memory_when_the_heap_closes(places: Places) -> None:
    with holdfast.Heap("book", portable=True, **places) as heap:
        ledger = Ledger.create(heap, "ledger")
        ledger.count = 1
        with heap.transaction(), pytest.raises(holdfast.TransactionError):
            heap.close()
        shelves, view = ledger.shelves, ledger.view[:4]
        other = heap.create("other", 8)
        with pytest.raises(BufferError, match="1 memoryview is"):
            heap.close()
        other.release()
        # A part of the value's memory: found only when the value has let go of it.
        with pytest.raises(BufferError, match="still exported"):
            heap.close()
        # A heap that stays open takes nothing away.
        ledger.count += 1
        assert (ledger.count, shelves[0], len(ledger.view)) == (2, None, Ledger.size())
        ledger.count = 1
        view.release()
    assert heap.closed
    for use in (lambda: ledger.count, lambda: shelves[0], lambda: Ledger.open(heap, "ledger")):
        with pytest.raises((ValueError, holdfast.Closed)):
            use()
    with pytest.raises(RuntimeError, match="seen"), holdfast.Heap("book", portable=True, **places) as heap:
        held = Ledger.open(heap, "ledger")
        raise RuntimeError("seen")
    with holdfast.Heap("book", portable=True, **places) as heap:
        assert held is not None and entries_count(heap) == 1


def test_a_closing_heap_waits_for_another_threads_transaction(places: Places) -> None:
    heap = holdfast.Heap("book", portable=True, **places)
    ledger = Ledger.create(heap, "ledger")
    begun = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with heap.transaction() as tx:
                tx.add(ledger.view)
                begun.set()
                for count in range(1, 2001):
                    ledger.count = count
                    if count % 500 == 0:
                        time.sleep(0.01)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(60)
    heap.close()
    thread.join(60)
    assert failures == []
    with holdfast.Heap("book", portable=True, **places) as heap:
        found = Ledger.open(heap, "ledger")
        assert found is not None and found.count == 2000


def test_what_a_transaction_frees_is_not_looked_at(places: Places) -> None:
    """Guarantee: programs/portable-types"""
    with holdfast.Heap("book", portable=True, **places) as heap:
        holder, node = Node.create(heap, "holder"), Node.new(heap)
        holder.next = node
        offset = node.offset
        with heap.transaction():
            node.free()
            with pytest.raises(holdfast.HeapError, match="leads to no object"):
                Node.at(heap, offset)
            with pytest.raises(holdfast.HeapError, match="leads to no object"):
                _ = holder.next
        whole = Whole.new(heap)
        with pytest.raises(ValueError, match="a part of another"):
            whole.first[0].free()
        whole.free()


def test_what_a_removed_root_was_is_not_looked_at(places: Places) -> None:
    """Guarantee: programs/portable-types"""
    with holdfast.Heap("book", portable=True, **places) as heap:
        holder, root = Node.create(heap, "holder"), Node.create(heap, "root")
        holder.next = root
        offset = root.offset
        root.view.release()
        with heap.transaction():
            del heap["root"]
            # Its memory is given to others when the transaction commits.
            with pytest.raises(holdfast.HeapError, match="leads to no object"):
                Node.at(heap, offset)
            with pytest.raises(holdfast.HeapError, match="leads to no object"):
                _ = holder.next


def test_references_stay_out_of_heaps_with_pointers(places: Places) -> None:
    """Guarantee: programs/portable"""
    with holdfast.Heap("plain", **places) as heap:
        makers: list[Callable[[], Node]] = [
            lambda: Node.create(heap, "root"),
            lambda: Node.new(heap),
            lambda: Node.at(heap, 65536),
        ]
        for make in makers:
            with pytest.raises(holdfast.HeapError, match="holds pointers of 8 bytes"):
                make()
        assert "root" not in heap


def entries_count(heap: holdfast.Heap) -> int:
    ledger = Ledger.open(heap, "ledger")
    assert ledger is not None
    return int(ledger.count)


def test_freed_and_hostile_references_are_errors(places: Places) -> None:
    """Guarantee: programs/portable-types"""
    with holdfast.Heap("book", portable=True, **places) as heap:
        node, other = Node.new(heap), Node.new(heap)
        node.next = other
        seen = node.next
        with pytest.raises(BufferError, match="still exported"):
            other.free()
        assert seen is not None and other.key == 0
        other.view.release()
        seen.free()
        with pytest.raises(holdfast.HeapError, match="leads to no object"):
            _ = node.next
        for offset in (8, 65536, 1 << 34):
            with pytest.raises(holdfast.HeapError):
                Node.at(heap, offset)
        root = Ledger.create(heap, "ledger")
        with pytest.raises(holdfast.RootExists):
            root.free()
        assert "ledger" in heap


def test_unportable_types_are_refused() -> None:
    """Guarantee: programs/portable-types"""
    for fields, words in [
        ({"small": holdfast.u8, "large": holdfast.u64}, r"7 bytes before 'large'.*array\(u8, 7\)"),
        ({"large": holdfast.u64, "small": holdfast.u8}, "7 bytes at the end"),
        ({"number": int}, "no portable kind"),
        ({}, "has no fields"),
        ({"view": holdfast.u8}, "another name"),
    ]:
        with pytest.raises(TypeError, match=words):
            type("Wrong", (holdfast.Portable,), {"fields": fields})
    with pytest.raises(TypeError, match="no Portable"):
        lost: Any = type("Lost", (holdfast.Portable,), {"fields": {"to": holdfast.ref("Nowhere")}, "__module__": __name__})
        lost.layout()

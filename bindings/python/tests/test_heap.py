"""Heaps from Python."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import holdfast
import pytest
from conftest import Start, number

Places = dict[str, Any]


@pytest.fixture
def heap(places: Places) -> Iterator[holdfast.Heap]:
    heap = holdfast.Heap("state", limit="16MiB", **places)
    yield heap
    gc.collect()
    heap.close()


def test_what_is_stored_is_there_again(places: Places) -> None:
    with holdfast.Heap("state", **places) as heap:
        assert list(heap) == [] and len(heap) == 0 and heap
        view = heap.create("greeting", 5)
        assert bytes(view) == b"\0" * 5 and not view.readonly
        view[:] = b"hello"
        view.release()
        assert heap.name == "state" and heap.limit_bytes == 64 << 20 and not heap.read_only
        assert "open" in repr(heap) and 0 < heap.backed_bytes <= heap.limit_bytes
    assert heap.closed and "closed" in repr(heap)
    with holdfast.Heap("state", **places) as heap:
        assert bytes(heap["greeting"]) == b"hello"


def test_roots_are_as_in_a_mapping(heap: holdfast.Heap) -> None:
    for name in ["b", "a", "ü"]:
        heap.create(name, 8)
    assert list(heap) == ["a", "b", "ü"] and len(heap) == 3
    assert "a" in heap and "c" not in heap and 7 not in heap
    assert heap.get("c") is None and heap.get("c", 5) == 5
    found = heap.get("a")
    assert found is not None and found.nbytes == 8
    del found
    del heap["a"]
    assert list(heap) == ["b", "ü"]
    with pytest.raises(holdfast.RootNotFound, match="'a'|\"a\"") as raised:
        heap["a"]
    assert isinstance(raised.value, KeyError)
    with pytest.raises(KeyError):
        del heap["a"]
    with pytest.raises(holdfast.RootExists, match="b"):
        heap.create("b", 1)
    with pytest.raises(ValueError, match="255"):
        heap.create("", 1)
    with pytest.raises(ValueError, match="255"):
        heap.create("n" * 256, 1)
    assert heap.create("none", 0).nbytes == 0


def test_numpy_works_in_a_root(heap: holdfast.Heap) -> None:
    numpy = pytest.importorskip("numpy")
    matrix = numpy.frombuffer(heap.create("matrix", 800), dtype="float64").reshape(10, 10)
    matrix[:] = numpy.eye(10)
    assert numpy.frombuffer(heap["matrix"], dtype="float64").sum() == 10
    assert matrix.ctypes.data % 16 == 0


def test_no_room_is_an_error_and_leaves_things_as_they_were(heap: holdfast.Heap) -> None:
    with pytest.raises(holdfast.HeapNoRoom, match="holdfast heap limit"):
        heap.create("large", "1GiB")
    assert isinstance(holdfast.HeapNoRoom("x"), MemoryError)
    assert "large" not in heap
    heap.create("small", 100)


# Guarantee: programs/python-threads
def test_threads_may_close_a_heap_at_once(places: Places) -> None:
    heap = holdfast.Heap("state", **places)
    begun, go_on = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def hold() -> None:
        with heap.transaction():
            begun.set()
            assert go_on.wait(60)

    def close() -> None:
        try:
            heap.close()
        except BaseException as failure:
            failures.append(failure)

    holder = threading.Thread(target=hold)
    holder.start()
    assert begun.wait(20)
    closers = [threading.Thread(target=close) for _ in range(4)]
    for thread in closers:
        thread.start()
    # Until each waits for the transaction.
    time.sleep(0.3)
    assert not heap.closed
    go_on.set()
    for thread in [holder, *closers]:
        thread.join(20)
    assert not failures and heap.closed


# Guarantee: programs/python-buffers
def test_closing_is_refused_while_there_are_views(places: Places) -> None:
    heap = holdfast.Heap("state", **places)
    view = heap.create("a", 100)
    part = view[10:20]
    with pytest.raises(BufferError, match="1 memoryview"):
        heap.close()
    view.release()
    # The part refers to the same memory.
    with pytest.raises(BufferError, match="release"):
        heap.close()
    part[:] = b"0123456789"
    second = heap["a"]
    assert bytes(second[10:20]) == b"0123456789"
    with pytest.raises(BufferError, match="root \"a\""):
        del heap["a"]
    part.release()
    del second
    del heap["a"]
    heap.close()
    heap.close()
    uses: list[Callable[[], object]] = [
        lambda: heap["a"], lambda: heap.create("b", 1), lambda: list(heap), heap.commit, heap.transaction
    ]
    for use in uses:
        with pytest.raises(holdfast.Closed, match="closed"):
            use()


# Guarantee: programs/python-buffers
def test_numpy_arrays_count_as_views(places: Places) -> None:
    numpy = pytest.importorskip("numpy")
    heap = holdfast.Heap("state", **places)
    array = numpy.frombuffer(heap.create("a", 80), dtype="float64")
    with pytest.raises(BufferError):
        heap.close()
    array[:] = 3
    del array
    heap.close()


# Guarantee: programs/python-buffers
def test_views_outlive_the_heap_object(places: Places) -> None:
    heap = holdfast.Heap("state", **places)
    view = heap.create("a", 8)
    gone = weakref.ref(heap)
    del heap
    gc.collect()
    assert gone() is None
    view[:] = b"12345678"
    with pytest.raises(holdfast.HeapHeld):
        holdfast.Heap("state", **places)
    # The last view closes it.
    view.release()
    with holdfast.Heap("state", **places) as heap:
        assert bytes(heap["a"]) == b"12345678"


def test_an_exception_is_not_hidden_by_views(places: Places) -> None:
    with pytest.raises(ZeroDivisionError):
        with holdfast.Heap("state", **places) as heap:
            view = heap.create("a", 8)
            view[:] = b"12345678"
            raise ZeroDivisionError
    assert heap.closed
    with pytest.raises(holdfast.Closed):
        heap["a"]
    del view
    gc.collect()
    with holdfast.Heap("state", **places) as heap:
        assert bytes(heap["a"]) == b"12345678"


# Guarantee: programs/python-transactions
def test_a_transaction_happens_altogether_or_not_at_all(heap: holdfast.Heap) -> None:
    view = heap.create("a", 16)
    other = heap.create("b", 8)
    heap.create("c", 8).release()
    with heap.transaction() as tx:
        tx.add(view[0:8], other)
        view[0:8] = b"11111111"
        other[:] = b"22222222"
        heap.create("made", 4).release()
        del heap["c"]
    assert list(heap) == ["a", "b", "made"]
    with pytest.raises(ZeroDivisionError):
        with heap.transaction() as tx:
            tx.add(view[0:8])
            view[0:8] = b"33333333"
            tx.add(other)
            other[:] = b"44444444"
            heap.create("undone", 4).release()
            del heap["made"]
            raise ZeroDivisionError
    assert bytes(view[0:8]) == b"11111111" and bytes(other) == b"22222222"
    assert list(heap) == ["a", "b", "made"]


def test_transactions_nest_and_count_as_one(heap: holdfast.Heap) -> None:
    view = heap.create("a", 8)
    with heap.transaction() as outer:
        outer.add(view)
        view[:] = b"11111111"
        with heap.transaction() as inner:
            inner.add(view)
            view[:] = b"22222222"
    assert bytes(view) == b"22222222"
    with pytest.raises(holdfast.TransactionError, match="rolled back"):
        with heap.transaction() as outer:
            outer.add(view)
            view[:] = b"33333333"
            with pytest.raises(ZeroDivisionError), heap.transaction():
                raise ZeroDivisionError
    assert bytes(view) == b"22222222"


def test_a_transaction_is_used_in_its_block_only(heap: holdfast.Heap) -> None:
    view = heap.create("a", 8)
    tx = heap.transaction()
    with pytest.raises(holdfast.TransactionError, match="with"):
        tx.add(view)
    with tx:
        with pytest.raises(holdfast.TransactionError, match="open"):
            tx.__enter__()
        with pytest.raises(ValueError, match="inside the heap"):
            tx.add(b"not in the heap")
        with pytest.raises(BufferError):
            tx.add(view[::2])
        with pytest.raises(holdfast.TransactionError, match="inside a transaction"):
            heap.commit()
        with pytest.raises(BufferError):
            heap.close()
        del view
        gc.collect()
        with pytest.raises(holdfast.TransactionError, match="inside a transaction"):
            heap.close()
    with pytest.raises(holdfast.TransactionError):
        tx.__exit__(None, None, None)
    with tx:
        pass
    assert list(heap) == ["a"]


# Guarantee: programs/python-buffers
def test_memory_of_an_undone_root_is_given_to_nobody_while_it_is_seen(heap: holdfast.Heap) -> None:
    with pytest.raises(ZeroDivisionError):
        with heap.transaction():
            view = heap.create("undone", 4096)
            raise ZeroDivisionError
    assert "undone" not in heap
    view[:] = b"x" * 4096
    uses: list[Callable[[], object]] = [lambda: heap.create("next", 4096), heap.transaction().__enter__]
    for use in uses:
        with pytest.raises(BufferError, match="rollback"):
            use()
    view.release()
    assert bytes(heap.create("next", 4096)) == b"\0" * 4096


# Guarantee: programs/python-transactions
def test_an_abandoned_transaction_is_rolled_back(heap: holdfast.Heap) -> None:
    view = heap.create("a", 8)

    def forgets() -> Iterator[None]:
        with heap.transaction() as tx:
            tx.add(view)
            view[:] = b"11111111"
            yield

    generator = forgets()
    next(generator)
    del generator
    gc.collect()
    assert bytes(view) == b"\0" * 8
    tx = heap.transaction()
    tx.__enter__()
    tx.add(view)
    view[:] = b"22222222"
    del tx
    gc.collect()
    assert bytes(view) == b"\0" * 8
    # The turn was given back.
    thread = threading.Thread(target=lambda: heap.get("a"))
    thread.start()
    thread.join(5)
    assert not thread.is_alive()


# Guarantee: programs/python-transactions
def test_a_transaction_is_of_one_heap(heap: holdfast.Heap, places: Places) -> None:
    with holdfast.Heap("other", **places) as other:
        with heap.transaction(), pytest.raises(holdfast.TransactionError, match="another heap"), other.transaction():
            pass
        with other.transaction():
            other.create("a", 8).release()
        assert list(other) == ["a"]


# Guarantee: programs/errors
def test_damage_of_an_open_heap_is_told_as_damage(places: Places) -> None:
    with holdfast.Heap("state", **places) as heap:
        heap.create("a", 8).release()
    [image] = places["pool"].rglob("state.image")
    with image.open("r+b") as file:
        # Where the table of the roots lies (docs/format.md); no object begins 8 bytes further on.
        file.seek((2 << 20) + 128)
        [low] = file.read(1)
        file.seek((2 << 20) + 128)
        file.write(bytes([low ^ 8]))
    with holdfast.Heap("state", **places) as heap:
        with pytest.raises(holdfast.HeapDamaged, match="root table"):
            heap.create("b", 8)


def test_other_threads_wait_for_a_transaction(heap: holdfast.Heap) -> None:
    view = heap.create("counter", 8)
    seen: list[bytes] = []

    def look() -> None:
        seen.append(bytes(heap["counter"]))

    with heap.transaction() as tx:
        tx.add(view)
        view[:] = number(1)
        thread = threading.Thread(target=look)
        thread.start()
        time.sleep(0.2)
        assert not seen
        view[:] = number(2)
    thread.join(10)
    assert seen == [number(2)]

    def count() -> None:
        for _ in range(200):
            with heap.transaction() as tx:
                tx.add(view)
                view[:] = number(int.from_bytes(view, "little") + 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert bytes(view) == number(802)


def test_commits_have_levels(heap: holdfast.Heap) -> None:
    heap.create("a", 8)[:] = b"12345678"
    heap.commit()
    heap.commit("process")
    heap.commit("system")
    heap.commit(level="power")
    with pytest.raises(ValueError, match="\"system\" or \"power\""):
        heap.commit("memory")  # type: ignore[arg-type]
    with pytest.raises(holdfast.HeapError, match="atomic"):
        heap.rollback()


# Guarantee: heap/persist
def test_parts_of_roots_are_persisted(heap: holdfast.Heap) -> None:
    view = heap.create("a", 16)
    view[:8] = b"12345678"
    heap.persist(view[:8])
    heap.persist(view, view[8:], view[:0])
    heap.persist()
    with pytest.raises(ValueError, match="not inside the heap"):
        heap.persist(b"no part of a heap")
    view.release()


# Guarantee: programs/python-transactions
def test_atomic_stores_count_at_a_commit(places: Places) -> None:
    with holdfast.Heap("state", atomic=True, **places) as heap:
        view = heap.create("a", 8)
        view[:] = b"11111111"
        heap.commit("process")
        view[:] = b"22222222"
        with pytest.raises(BufferError):
            heap.rollback()
        view.release()
        heap.rollback()
        assert bytes(heap["a"]) == b"11111111"
        heap["a"][:] = b"33333333"
    with pytest.raises(ZeroDivisionError):
        with holdfast.Heap("state", atomic=True, **places) as heap:
            assert bytes(heap["a"]) == b"33333333"
            heap["a"][:] = b"44444444"
            raise ZeroDivisionError
    heap = holdfast.Heap("state", atomic=True, **places)
    assert bytes(heap["a"]) == b"33333333"
    heap["a"][:] = b"55555555"
    # Without close, without commit.
    del heap
    gc.collect()
    with holdfast.Heap("state", **places) as heap:
        assert bytes(heap["a"]) == b"33333333"


# Guarantee: programs/python-transactions
@pytest.mark.parametrize("atomic", [False, True])
def test_a_kill_loses_what_does_not_count_and_nothing_else(places: Places, atomic: bool) -> None:
    code = f"""
        import os, holdfast
        heap = holdfast.Heap("state", atomic={atomic}, home={str(places["home"])!r}, pool={str(places["pool"])!r})
        view = heap.create("a", 16)
        view[:8] = b"11111111"
        heap.commit("process")
        view[8:] = b"22222222"
        tx = heap.transaction().__enter__()
        tx.add(view[:8])
        view[:8] = b"33333333"
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=60)
    assert done.returncode == -9
    with holdfast.Heap("state", **places) as heap:
        assert bytes(heap["a"]) == b"11111111" + (b"\0" * 8 if atomic else b"22222222")


def test_the_end_of_python_loses_nothing(places: Places) -> None:
    code = f"""
        import holdfast
        heap = holdfast.Heap("state", home={str(places["home"])!r}, pool={str(places["pool"])!r})
        view = heap.create("a", 8)
        view[:] = b"12345678"
        keep = [heap, view]; keep.append(keep)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)
    with holdfast.Heap("state", **places) as heap:
        assert bytes(heap["a"]) == b"12345678"


def test_an_applets_heap_is_read_by_python_and_the_other_way_round(start: Start, places: Places) -> None:
    applet = start(heap="shared")
    for count in range(1, 4):
        assert applet.call("count") == number(count)
    with pytest.raises(holdfast.HeapHeld):
        holdfast.Heap("shared", **places)
    applet.close()
    with holdfast.Heap("shared", **places) as heap:
        assert list(heap) == ["counter"]
        heap["counter"][:] = number(41)
        heap.create("pythons", 8)
        gc.collect()
        with pytest.raises(holdfast.HeapHeld, match="shared"):
            start(heap="shared")
    with start(heap="shared") as applet:
        assert applet.call("count") == number(42)


def test_a_crash_rolls_the_heap_back(start: Start) -> None:
    applet = start(heap=holdfast.HeapGrant("shared", limit="16MiB"))
    applet.call("count")
    with pytest.raises(holdfast.AppletCrashed) as raised:
        applet.call("count_and_crash")
    assert raised.value.heap == "shared" and raised.value.heap_recovery == "rolled-back"
    applet.respawn()
    assert applet.call("look") == number(1)
    assert applet.metrics().heap_backed_bytes > 0


def test_atomic_grants_undo_failed_calls(start: Start) -> None:
    applet = start(heap=holdfast.HeapGrant("shared", atomic=True))
    applet.call("store", number(5))
    with pytest.raises(holdfast.CallFailed):
        applet.call("store_and_fail", number(6))
    assert applet.call("look") == number(5)


def test_threads_have_compartments_besides_the_heap(start: Start, kind: str) -> None:
    count = 1 if kind == "wasm" else 3
    applet = start(heap=holdfast.HeapGrant("shared", compartments=count, quota="4MiB"))
    assert applet.call("count") == number(1)
    applet.close()
    assert start(heap="shared").call("count") == number(2)
    if kind == "wasm":
        with pytest.raises(ValueError, match="one thread"):
            start(heap=holdfast.HeapGrant("more", compartments=2))
    wrongs: list[dict[str, Any]] = [{"compartment": "w"}, {"read_only": True}, {"atomic": True}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="compartments"):
            start(heap=holdfast.HeapGrant("more", compartments=1, **wrong))


def test_compartments_are_apart(start: Start) -> None:
    one = start(heap=holdfast.HeapGrant("words", compartment="one"))
    two = start(heap=holdfast.HeapGrant("words", compartment="two"))
    assert one.call("count") == number(1)
    assert one.call("count") == number(2)
    assert two.call("count") == number(1)
    numbered = [start(heap=holdfast.HeapGrant("words", compartment="w-{}")) for _ in range(3)]
    assert [applet.call("count") for applet in numbered] == [number(1)] * 3
    numbered[1].close()
    again = start(heap=holdfast.HeapGrant("words", compartment="w-{}"))
    assert again.call("count") == number(2)


def test_names_keys_and_sizes_are_checked(start: Start, places: Places) -> None:
    with pytest.raises(ValueError, match="name"):
        holdfast.Heap("no/heap", **places)
    with holdfast.Heap("state", **places):
        pass
    # Who makes a heap where there is none does not take it for that.
    for create in (True, False):
        with pytest.raises(holdfast.HeapDenied, match="nobodys"):
            holdfast.Heap("state", key="nobodys", create=create, **places)
    with pytest.raises(ValueError, match="64MiB"):
        holdfast.Heap("other", limit="much", **places)
    with pytest.raises(ValueError, match="name"):
        start(heap="no/heap")
    with pytest.raises(ValueError, match="leave out atomic"):
        holdfast.Heap("state", atomic=True, read_only=True, **places)


# Guarantee: programs/python-leaks
def test_a_heap_for_an_applet_that_never_starts_is_not_left_behind(places: Places, tmp_path: Any) -> None:
    text = tmp_path / "text"
    text.write_text("hello")
    with pytest.raises(holdfast.AppletError):
        holdfast.Applet(text, heap="fresh", **places)
    assert not list((places["home"] / "store").glob("fresh*"))
    assert not list(places["pool"].rglob("fresh*image*"))

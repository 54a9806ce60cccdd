"""Shared memory."""

from __future__ import annotations

import gc
import weakref

import holdfast
import pytest
from conftest import Start


def test_a_buffer_is_changed_where_it_is(trial: holdfast.Applet) -> None:
    buffer = trial.buffer("64KiB")
    assert len(buffer) == 65536 and "65536" in repr(buffer)
    view = memoryview(buffer)
    assert not view.readonly and view.format == "B" and view.contiguous
    assert bytes(view[:3]) == b"\0\0\0"
    view[:3] = b"abc"
    trial.call("increment", buffer=buffer)
    assert bytes(view[:4]) == b"bcd\x01"


def test_numpy_sees_the_same_memory(trial: holdfast.Applet) -> None:
    numpy = pytest.importorskip("numpy")
    buffer = trial.buffer(1 << 20)
    array = numpy.frombuffer(buffer, dtype="uint8")
    array[:] = 41
    trial.call("increment", buffer=buffer)
    assert (array == 42).all()
    floats = numpy.frombuffer(buffer, dtype="float64", count=10)
    floats[:] = 1.5
    assert array[7] == 0x3F
    # And it can be data itself.
    assert trial.call("echo", floats) == floats.tobytes()


# Guarantee: programs/python-buffers
def test_memory_lives_as_long_as_something_refers_to_it(start: Start) -> None:
    applet = start()
    buffer = applet.buffer(4096)
    gone = weakref.ref(buffer)
    view = memoryview(buffer)
    view[0] = 7
    del buffer
    applet.close()
    del applet
    gc.collect()
    assert gone() is not None and view[0] == 7
    view[4095] = 8
    view.release()
    gc.collect()
    assert gone() is None


def test_freed_memory_is_used_again(start: Start) -> None:
    applet = start(buffers="1MiB")
    for _ in range(50):
        buffer = applet.buffer("512KiB")
        assert memoryview(buffer)[0] == 0
        memoryview(buffer)[0] = 1
        del buffer
    kept = applet.buffer("1MiB")
    with pytest.raises(holdfast.NoBuffer, match="buffer"):
        applet.buffer("1MiB")
    assert issubclass(holdfast.NoBuffer, MemoryError)
    assert len(kept) == 1 << 20


def test_a_buffer_of_another_applet_is_refused(start: Start) -> None:
    one, other = start(), start()
    buffer = one.buffer(10)
    with pytest.raises(holdfast.ForeignBuffer, match="`buffer`"):
        other.call("increment", buffer=buffer)
    one.respawn()
    with pytest.raises(holdfast.ForeignBuffer):
        one.call("increment", buffer=buffer)
    # It is still memory.
    assert bytes(memoryview(buffer)[:1]) == b"\0"


# Guarantee: programs/python-buffers
def test_a_buffer_outlives_a_crash(trial: holdfast.Applet) -> None:
    buffer = trial.buffer(10)
    view = memoryview(buffer)
    with pytest.raises(holdfast.AppletCrashed):
        trial.call("crash", buffer=buffer)
    view[:] = b"0123456789"
    assert bytes(view) == b"0123456789"


def test_a_stream_has_the_buffer(trial: holdfast.Applet) -> None:
    buffer = trial.buffer(10)
    assert list(trial.stream("increment", buffer=buffer)) == [(10).to_bytes(8, "little")]
    assert bytes(memoryview(buffer)) == b"\x01" * 10

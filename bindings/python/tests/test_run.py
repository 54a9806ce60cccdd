"""Programs that are run to their end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import holdfast
import pytest
from conftest import program


# Guarantee: programs/python-run
def test_a_run_reads_its_input_and_gives_status_output_and_costs(kind: str, places: dict[str, Any]) -> None:
    data = bytes(range(256)) * 400
    copy: dict[str, Any] = {"args": ["--copy"], "heap": "copied", **places}
    done = holdfast.run(program("trial", kind), input=memoryview(data), **copy)
    assert (done.exit_status, done.stdout, done.stderr) == (0, data, b"")
    assert done.metrics.kind == kind and done.metrics.wall_seconds > 0
    assert all(isinstance(note, str) for note in done.notes)
    # Without one there is nothing to read.
    assert holdfast.run(program("trial", kind), **copy).stdout == b""
    assert holdfast.run(program("trial", kind), input=b"x", output="discard", **copy).stdout == b""


# Guarantee: programs/python-run
def test_a_status_is_the_programs_own_and_no_exception(kind: str, places: dict[str, Any]) -> None:
    done = holdfast.run(program("guestbook", kind), args=["burn"], **places)
    assert done.exit_status == 2 and done.stderr.startswith(b"usage:")


# Guarantee: programs/python-run
def test_what_a_run_stored_is_there_in_the_next_one(kind: str, places: dict[str, Any]) -> None:
    book = program("guestbook", kind)
    for number in [1, 2]:
        done = holdfast.run(book, args=["add", "It rained."], heap="book", **places)
        assert done.stdout == f"entry {number} is written\n".encode()
        assert done.exit_status == 0 and done.metrics.heap_dirty
    with pytest.raises(holdfast.AppletCrashed) as raised:
        holdfast.run(book, args=["crash"], heap="book", **places)
    assert b"the program dies" in raised.value.stdout
    assert (raised.value.heap, raised.value.heap_recovery) == ("book", "rolled-back")
    assert holdfast.run(book, args=["list"], heap="book", **places).stdout.endswith(b"2 entries\n")


# Guarantee: programs/python-run
def test_a_run_that_takes_too_long_is_ended(kind: str, places: dict[str, Any]) -> None:
    endless = program("trial", kind)
    began = time.monotonic()
    with pytest.raises(holdfast.AppletTimeout, match="timeout"):
        holdfast.run(endless, args=["--spin"], heap="spun", timeout=0.3, **places)
    assert time.monotonic() - began < 10


# Guarantee: applets/run-or-call
# Guarantee: programs/python-run
def test_a_program_that_serves_is_called_and_not_run(kind: str, places: dict[str, Any]) -> None:
    with pytest.raises(holdfast.AppletError, match=r"none ran; start it with Applet\(path\)"):
        holdfast.run(program("notes", kind), heap="notes", **places)


def test_a_missing_heap_is_named_as_python_grants_it(kind: str, places: dict[str, Any]) -> None:
    with pytest.raises(holdfast.AppletError, match='pass heap="NAME"'):
        holdfast.Applet(program("notes", kind), **places)
    with pytest.raises(holdfast.AppletError, match="no heap was granted") as captured:
        holdfast.Applet(program("notes", kind), output="capture", **places)
    with holdfast.Applet(program("trial", kind), **places) as trial, pytest.raises(holdfast.CallFailed) as in_c:
        trial.call("count", b"")
    for raised in [captured, in_c]:
        # The applet's own words: it does not know its host, and names what each kind of host does.
        assert "in Python heap=" in str(raised.value)


# Guarantee: programs/python-run
def test_what_cannot_be_run_is_told_apart_and_leaves_no_heap(places: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(holdfast.AppletNotFound, match="nowhere"):
        holdfast.run(tmp_path / "nowhere.wasm", heap="none", **places)
    assert not list((places["home"] / "store").glob("none*"))
    with pytest.raises(TypeError, match="timout"):
        holdfast.run(program("trial", "wasm"), timout=1, **places)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="bytes-like"):
        holdfast.run(program("trial", "wasm"), input="text", **places)  # type: ignore[arg-type]

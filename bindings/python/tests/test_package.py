"""The package itself: exceptions, types, documentation, examples."""

from __future__ import annotations

import inspect
import os
import pickle
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import holdfast
import pytest
from conftest import APPLETS, program

PACKAGE = Path(__file__).parents[1]
EXCEPTIONS = [
    value for value in vars(holdfast).values() if isinstance(value, type) and issubclass(value, BaseException)
]


@pytest.mark.parametrize("exception", EXCEPTIONS)
def test_every_exception_is_of_one_family_and_can_be_pickled(exception: type[Exception]) -> None:
    assert issubclass(exception, holdfast.HoldfastError)
    assert exception.__doc__
    raised = exception("what happened; what to do")
    assert str(raised) == "what happened; what to do"
    again = pickle.loads(pickle.dumps(raised))
    assert type(again) is exception and str(again) == str(raised)
    assert vars(again) == vars(raised)


def test_exceptions_with_fields_survive_pickling(places: dict[str, Any]) -> None:
    with holdfast.Applet(program("trial", "native"), **places) as applet:
        with pytest.raises(holdfast.AppletCrashed) as raised:
            applet.call("crash")
    again = pickle.loads(pickle.dumps(raised.value))
    assert again.signal_name == "SIGSEGV" and again.metrics == raised.value.metrics


def test_all_that_is_public_is_exported_and_documented() -> None:
    public = {name for name, value in vars(holdfast).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public == set(holdfast.__all__) - {"__version__"}
    for name in public:
        value = getattr(holdfast, name)
        assert value.__doc__, name
        members = vars(value) if inspect.isclass(value) else {}
        for member, method in members.items():
            if not member.startswith("_") and (callable(method) or isinstance(method, property)):
                assert method.__doc__, f"{name}.{member}"
    assert holdfast.__version__


def test_limits_and_grants_are_values() -> None:
    assert holdfast.Limits(fuel=1) == holdfast.Limits(fuel=1)
    assert holdfast.HeapGrant("a").key is None
    with pytest.raises(AttributeError):
        holdfast.Limits().fuel = 1  # type: ignore[misc]


def test_a_limit_is_named_as_in_python(places: dict[str, Any]) -> None:
    with holdfast.Applet(program("trial", "wasm"), fuel=1_000_000, **places) as applet:
        with pytest.raises(holdfast.AppletLimit) as raised:
            applet.call("spin")
    assert "(fuel)" in str(raised.value) and "--" not in str(raised.value)


def run_tool(*arguments: str) -> None:
    environment = {**os.environ, "MYPYPATH": str(PACKAGE / "tests")}
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=PACKAGE, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


# Guarantee: programs/python-types
def test_types_are_right_in_the_package_the_tests_and_the_examples() -> None:
    pytest.importorskip("mypy")
    run_tool("mypy", "--strict", "python/holdfast", "tests", "examples", "../../applets/video/player.py")


# Guarantee: programs/python-types
def test_the_stub_describes_what_there_is() -> None:
    pytest.importorskip("mypy")
    run_tool("mypy.stubtest", "holdfast", "--concise", "--allowlist", "tests/stubtest.allow")


# Guarantee: documents/python
@pytest.mark.parametrize("example", sorted((PACKAGE / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(
    example: Path, places: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # What an example calls; `echo` for those that take an applet alone.
    arguments = {"plugin_host.py": ["plugin", "count_vowels", "Hello"]}
    applet, *rest = arguments.get(example.name, ["echo"])
    for kind in ["native", "wasm"]:
        # A heap is for applets of one kind.
        monkeypatch.setenv("HOLDFAST_HOME", f"{places['home']}-{kind}")
        monkeypatch.setenv("HOLDFAST_POOL", f"{places['pool']}-{kind}")
        monkeypatch.setattr(sys, "argv", [str(example), str(program(applet, kind)), *rest])
        runpy.run_path(str(example), run_name="__main__")
        assert capsys.readouterr().out
    assert APPLETS.exists()

"""WebAssembly is compiled in a process of its own, which the interpreter is started anew for."""

import resource
import uuid
from pathlib import Path

import pytest

import holdfast


def _number(value: int) -> bytes:
    """LEB128."""
    head = b""
    while value > 0x7F:
        head += bytes([value & 0x7F | 0x80])
        value >>= 7
    return head + bytes([value])


def _section(number: int, content: bytes) -> bytes:
    content = b"\x01" + content
    return bytes([number]) + _number(len(content)) + content


def _bomb() -> bytes:
    """30,000 conditions that merge 139 locals: more than 10 GB without a limit."""
    code = b"".join(
        b"\x20" + _number(step * 7 % 139) + b"\x04\x40"
        b"\x20" + _number(step * 13 % 139) + b"\x21" + _number(step * 11 % 139) + b"\x0b"
        for step in range(30_000)
    )
    body = b"\x01" + _number(139) + b"\x7f" + code + b"\x0b"
    sections = [(1, b"\x60\0\0"), (3, b"\0"), (10, _number(len(body)) + body)]
    # A section that nothing reads: what was compiled before is kept, so it is another program each time.
    unread = b"\x01x" + uuid.uuid4().bytes
    head = b"\0asm\x01\0\0\0" + b"\0" + _number(len(unread)) + unread
    return head + b"".join(_section(number, content) for number, content in sections)


@pytest.fixture
def bomb(tmp_path: Path) -> Path:
    path = tmp_path / "bomb.wasm"
    path.write_bytes(_bomb())
    return path


def test_a_bomb_is_stopped_in_time(bomb: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(holdfast.AppletTimeout, match="not compiled within 1s"):
        holdfast.run(bomb, timeout=1.0)
    with pytest.raises(holdfast.AppletTimeout, match="compile_timeout"):
        holdfast.Applet(bomb, compile_timeout=1.0)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before <= 64 << 10, "KiB"


def test_memory_for_compiling_has_a_limit(bomb: Path) -> None:
    with pytest.raises(holdfast.AppletLimit, match=r"raise the limit \(compile_memory\)"):
        holdfast.run(bomb, timeout=60.0, compile_memory="100MiB")


def test_long_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.wat"
    # What was compiled before is not read again, so it is another text each time.
    path.write_text(f';; {uuid.uuid4()}\n(module (func (export "_start")))' + ";; comment\n" * 200_000)
    with pytest.raises(holdfast.AppletError, match=r"raise the limit \(text\)"):
        holdfast.run(path)
    assert holdfast.run(path, text="4MiB").exit_status == 0

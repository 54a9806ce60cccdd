"""The video player `applets/video/player.py`: a real video, decoded in the sandbox, as PNG files and in a window; and
applets that are no players or turn on their host."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from conftest import APPLETS, program
from numpy.typing import NDArray

ROOT = Path(__file__).parents[3]
PLAYER = ROOT / "applets" / "video" / "player.py"
#: 720x405, 25 frames a second.
CLIP = APPLETS.parent / "videos" / "city.mpg"
WIDTH, HEIGHT, FRAMES, FRAMES_PER_S = 720, 405, 190, 25
NO_VIDEO, NOT_FOUND, NO_WINDOW, APPLET_DIED, CANNOT_WRITE = 1, 3, 4, 5, 6

Picture = NDArray[numpy.uint8]

#: Is the player of a video that names what it does.
HOSTILE = r"""
#include <holdfast_applet.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static char video[16];

static int open_video(holdfast_call *call, void *context) {
    (void)context;
    size_t size;
    memcpy(video, holdfast_buffer(call, &size), sizeof video - 1);
    const char *it = "{\"width\":4,\"height\":4,\"frames\":9,\"rate\":1e6,\"codec\":\"x\"}";
    if (!strcmp(video, "no-json")) it = "{\"width\":";
    if (!strcmp(video, "negative")) it = "{\"width\":-4,\"height\":-4,\"frames\":9,\"rate\":25,\"codec\":\"x\"}";
    if (!strcmp(video, "huge")) it = "{\"width\":1000000,\"height\":1000000,\"frames\":9,\"rate\":25,\"codec\":\"x\"}";
    if (!strcmp(video, "types")) it = "{\"width\":4.5,\"height\":true,\"frames\":\"9\",\"rate\":25,\"codec\":[]}";
    char rate[512] = "{\"width\":4,\"height\":4,\"frames\":9,\"codec\":\"x\",\"rate\":";
    if (!strcmp(video, "rate")) {
        size_t used = strlen(rate);
        memset(rate + used, '9', 400);
        memcpy(rate + used + 400, "}", 2);
        it = rate;
    }
    return holdfast_reply(call, it, strlen(it));
}

static int next_frame(holdfast_call *call, void *context) {
    static int frames;
    (void)context;
    if (!strcmp(video, "empty")) return 0;
    if (!strcmp(video, "no-time")) return holdfast_reply(call, "12", 2);
    if (++frames == 3) {
        if (!strcmp(video, "crash")) *(volatile char *)1 = 0;
        if (!strcmp(video, "forbidden")) syscall(SYS_kexec_load, 0L, 0L, 0L, 0L);
        holdfast_fail(call, "the rest is damaged");
        return 5;
    }
    return holdfast_reply(call, "\0\0\0\0\0\0\0\0", 8);
}

int main(void) {
    holdfast_export("open", open_video, 0);
    holdfast_export("next_frame", next_frame, 0);
    return holdfast_serve();
}
"""


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile.c").write_text(HOSTILE)
    include, library = ROOT / "bindings" / "c" / "include", APPLETS.parent / "applet"
    compile = ["cc", "-D_GNU_SOURCE", "-o", str(folder / "hostile"), str(folder / "hostile.c")]
    compile += [f"-I{include}", f"-L{library}", "-lholdfast_applet"]
    subprocess.run(compile, check=True, timeout=60)
    return folder / "hostile"


@pytest.fixture
def clip() -> Path:
    if not (APPLETS / "video").exists():
        pytest.skip("the video player: it takes libavcodec-dev; ./test installs it")
    if not CLIP.exists():
        pytest.skip(f"the video player: there is no {CLIP}; ./test gets it from a package")
    return CLIP


def command(*arguments: object) -> list[str]:
    return [sys.executable, str(PLAYER), *map(str, arguments)]


def environment(places: dict[str, Any], **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
    return {**kept, "HOLDFAST_HOME": str(places["home"]), "HOLDFAST_POOL": str(places["pool"]), **more}


def play(places: dict[str, Any], *arguments: object, applet: Path | None = None, **more: str) -> Any:
    """What the player says, as JSON; or its exit code and its message."""
    words = command(*arguments, "--json", "--applet", applet or APPLETS / "video")
    done = subprocess.run(words, env=environment(places, **more), capture_output=True, text=True, timeout=60)
    if done.returncode:
        assert not done.stdout and done.stderr.startswith("error: ") and "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stderr
    return json.loads(done.stdout)


def read_png(path: Path) -> Picture:
    """Pixels of a PNG file as the player writes them: true colour, no filter."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        chunks[kind] = data[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack_from(">I", data, at + 8 + length)
        assert checksum == zlib.crc32(data[at + 4 : at + 8 + length])
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert rest == [8, 2, 0, 0, 0]
    rows = numpy.frombuffer(zlib.decompress(chunks[b"IDAT"]), numpy.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any(), "rows without a filter"
    return rows[:, 1:].reshape(height, width, 3)


def by_ffmpeg(*arguments: object) -> Picture:
    """The first picture of a file, as the system's own decoder sees it."""
    words = ["ffmpeg", "-v", "error", "-i", *map(str, arguments), "-frames:v", "1"]
    words += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=60)
    return numpy.frombuffer(done.stdout, numpy.uint8).reshape(HEIGHT, WIDTH, 3)


# Guarantee: applets/examples
# Guarantee: programs/python-video
def test_a_real_video_plays_in_the_sandbox_to_its_end(clip: Path, places: dict[str, Any]) -> None:
    result = play(places, clip)
    assert (result["width"], result["height"], result["frames_per_s"]) == (WIDTH, HEIGHT, FRAMES_PER_S)
    assert result["frames"] == result["frames_in_file"] == FRAMES
    assert result["policy_violations"] == 0 and result["pngs"] == 0
    assert 0 < result["decode_ms"] <= result["decode_max_ms"] and result["start_ms"] > 0 and result["open_ms"] > 0
    # The same in words.
    words = command(clip, "--applet", APPLETS / "video", "--frames", 3)
    said = subprocess.run(words, env=environment(places), capture_output=True, text=True, check=True, timeout=60).stdout
    assert "3 frames of 190" in said and "policy violations: none" in said


# Guarantee: applets/examples
# Guarantee: programs/python-video
def test_frames_are_written_as_png_files_with_the_videos_pictures(
    clip: Path, places: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "frames"
    assert play(places, clip, "--png", folder, "--every", 5, "--frames", 11)["pngs"] == 3
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["frame-00000.png", "frame-00005.png", "frame-00010.png"]
    first, later = read_png(folder / names[0]), read_png(folder / names[2])
    assert first.shape == later.shape == (HEIGHT, WIDTH, 3)
    # Buildings at night: dark, with lights.
    assert 20 < first.mean() < 200 and first.std() > 20 and first.max() > 200
    assert (first != later).any(), "pictures that move"
    if shutil.which("ffmpeg"):
        assert (by_ffmpeg(folder / names[0]) == first).all(), "another reader of PNG sees the same"
        # Colours between pixels made the way the applet does it: equal, but for another version's rounding. (The second
        # frame is 8 away.)
        differences = numpy.abs(by_ffmpeg(clip, "-sws_flags", "bilinear").astype(int) - first)
        assert differences.mean() < 0.5 and numpy.percentile(differences, 99) <= 4


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A display of its own: its name, and the file with what it shows."""
    if not shutil.which("Xvfb"):
        pytest.skip("the video player's window: there is no Xvfb; ./test installs it")
    read, write = os.pipe()
    words = ["Xvfb", "-displayfd", str(write), "-screen", "0", "800x600x24", "-fbdir", str(tmp_path)]
    words += ["-nolisten", "tcp"]
    server = subprocess.Popen(words, pass_fds=[write], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        with open(read) as number:
            display = number.readline().strip()
        assert display, "Xvfb does not start"
        yield f":{display}", tmp_path / "Xvfb_screen0"
    finally:
        server.terminate()
        server.wait(10)


def screenshot(path: Path) -> Picture:
    """A picture in the format XWD, which is how Xvfb keeps its screen."""
    data = path.read_bytes()
    words = struct.unpack_from(">25I", data)
    header_bytes, width, height, row_bytes, colours = words[0], words[4], words[5], words[12], words[19]
    assert words[11] == 32, "bits of a pixel"
    pixels = numpy.frombuffer(data, numpy.uint8, row_bytes * height, header_bytes + 12 * colours)
    # Blue, green, red and nothing.
    return pixels.reshape(height, row_bytes // 4, 4)[:, :width, 2::-1]


# Guarantee: applets/examples
# Guarantee: programs/python-video
def test_the_window_shows_the_video_at_its_rate(
    clip: Path, places: dict[str, Any], screen: tuple[str, Path], tmp_path: Path
) -> None:
    display, file = screen
    # Every frame as a file as well, to know which one is on the screen.
    folder, frames = tmp_path / "frames", 75
    words = command(clip, "--applet", APPLETS / "video", "--window", "--frames", frames, "--png", folder, "--json")
    seen: set[int] = set()
    # Without a window manager it would be in the middle.
    around = environment(places, DISPLAY=display, SDL_VIDEO_WINDOW_POS="0,0")
    with subprocess.Popen(words, env=around, stdout=subprocess.PIPE, text=True) as player:
        try:
            shots: list[Picture] = []
            while player.poll() is None and len(shots) < 40:
                time.sleep(0.1)
                shots.append(screenshot(file)[:HEIGHT, :WIDTH].copy())
            output, _ = player.communicate(timeout=60)
        finally:
            player.kill()
    assert player.returncode == 0
    pictures = [read_png(path) for path in sorted(folder.glob("*.png"))]
    assert len(pictures) == frames
    for shot in shots:
        # One that is taken while the server draws has parts of two.
        seen.update(number for number, picture in enumerate(pictures) if (picture == shot).all())
    assert len(seen) >= 2, f"{len(shots)} screenshots show frames {sorted(seen)}"
    result = json.loads(output)
    assert result["frames"] == frames and result["shown"] == frames


# Guarantee: applets/examples
# Guarantee: programs/python-video
def test_the_window_takes_as_long_as_the_video(clip: Path, places: dict[str, Any], screen: tuple[str, Path]) -> None:
    frames = 50
    started = time.monotonic()
    result = play(places, clip, "--window", "--frames", frames, DISPLAY=screen[0])
    assert time.monotonic() - started >= (frames - 1) / FRAMES_PER_S
    assert result["frames"] == frames and result["shown"] == frames


#: Plays, and after a moment does what a window manager does when the window is closed.
CLOSED_BY_HAND = """
import sys, threading
sys.path.insert(0, sys.argv.pop(1))
import player

class Window(player.Window):
    def prepare(self, *of_video):
        super().prepare(*of_video)
        post = self._pygame.event.post
        threading.Timer(0.5, lambda: post(self._pygame.event.Event(self._pygame.QUIT))).start()

player.Window = Window
sys.exit(player.main())
"""


def test_closing_the_window_ends_the_video(clip: Path, places: dict[str, Any], screen: tuple[str, Path]) -> None:
    words = [sys.executable, "-B", "-c", CLOSED_BY_HAND, str(PLAYER.parent), str(clip)]
    words += ["--applet", str(APPLETS / "video"), "--window", "--json"]
    kept = environment(places, DISPLAY=screen[0])
    done = subprocess.run(words, env=kept, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert 0 < json.loads(done.stdout)["frames"] < FRAMES


# Guarantee: programs/python-video
def test_without_a_display_there_is_a_message(clip: Path, places: dict[str, Any]) -> None:
    code, message = play(places, clip, "--window")
    assert code == NO_WINDOW and "no display" in message and "--png" in message


# Guarantee: programs/python-video
def test_without_pygame_there_is_a_message(clip: Path, places: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "pygame.py").write_text("raise ImportError")
    code, message = play(places, clip, "--window", PYTHONPATH=str(tmp_path))
    assert code == NO_WINDOW and "pygame-ce" in message


# Guarantee: programs/python-video
def test_what_is_no_video_is_a_message(clip: Path, places: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no video " * 100)
    (tmp_path / "nothing").touch()
    for name, words in [("text", "cannot be played"), ("nothing", "0 bytes")]:
        code, message = play(places, tmp_path / name)
        assert code == NO_VIDEO and words in message
    cut = tmp_path / "cut"
    cut.write_bytes(clip.read_bytes()[: 1 << 20])
    assert 0 < play(places, cut)["frames"] < FRAMES


# Guarantee: programs/python-video
def test_what_is_not_there_is_a_message(places: dict[str, Any], tmp_path: Path) -> None:
    code, message = play(places, tmp_path / "none.mpg")
    assert code == NOT_FOUND and "none.mpg" in message
    assert play(places, tmp_path)[0] == NOT_FOUND
    code, message = play(places, PLAYER, applet=tmp_path / "none")
    assert code == NOT_FOUND and "cargo xtask applets video" in message
    code, message = play(places, PLAYER, applet=program("echo", "native"))
    assert code == APPLET_DIED and "no video player" in message


# Guarantee: programs/python-video
def test_png_files_that_cannot_be_written_are_a_message(places: dict[str, Any], hostile: Path, tmp_path: Path) -> None:
    (tmp_path / "video").write_text("good")
    (tmp_path / "file").touch()
    code, message = play(places, tmp_path / "video", "--png", tmp_path / "file", applet=hostile)
    assert code == CANNOT_WRITE and "--png" in message
    (tmp_path / "frames" / "frame-00001.png.part").mkdir(parents=True)
    code, message = play(places, tmp_path / "video", "--png", tmp_path / "frames", applet=hostile)
    assert code == CANNOT_WRITE and "frame-00001.png" in message


@pytest.mark.parametrize(
    ("video", "expected_code", "words"),
    [
        ("crash", APPLET_DIED, "AppletCrashed"),
        ("forbidden", APPLET_DIED, "PolicyViolation"),
        ("damaged", NO_VIDEO, "the rest is damaged"),
        ("no-json", APPLET_DIED, "makes no sense"),
        ("types", APPLET_DIED, "wrong types"),
        ("rate", APPLET_DIED, "wrong types"),
        ("negative", NO_VIDEO, "-4 x -4"),
        ("huge", NO_VIDEO, "1000000 x 1000000"),
        ("no-time", APPLET_DIED, "no time"),
        ("empty", NO_VIDEO, "no picture"),
    ],
)
# Guarantee: programs/python-video
def test_an_applet_that_dies_or_lies_costs_a_message(
    places: dict[str, Any], hostile: Path, tmp_path: Path, video: str, expected_code: int, words: str
) -> None:
    (tmp_path / "video").write_text(video)
    code, message = play(places, tmp_path / "video", applet=hostile)
    assert code == expected_code and words in message
    # What it gave before stays.
    if video == "crash":
        result = play(places, tmp_path / "video", "--frames", 2, "--png", tmp_path / "frames", applet=hostile)
        assert result["frames"] == 2 and read_png(tmp_path / "frames" / "frame-00001.png").shape == (4, 4, 3)


def test_ctrl_c_ends_the_video(clip: Path, places: dict[str, Any], screen: tuple[str, Path], tmp_path: Path) -> None:
    words = command(clip, "--applet", APPLETS / "video", "--window", "--png", tmp_path / "frames")
    with subprocess.Popen(words, env=environment(places, DISPLAY=screen[0]), stderr=subprocess.PIPE) as player:
        try:
            for _ in range(300):
                if (tmp_path / "frames" / "frame-00000.png").exists():
                    break
                time.sleep(0.05)
            player.send_signal(signal.SIGINT)
            _, said = player.communicate(timeout=20)
        finally:
            player.kill()
    assert player.returncode == 130 and not said

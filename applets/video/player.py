#!/usr/bin/env python3
"""Plays a video that is decoded in a sandbox: in a window, into PNG files, or for the figures alone.

The decoder is the applet `video`: whatever a video does to it, this program gets pixels or an exception. A call
decodes one frame into one of two shared buffers, while the frame in the other one is shown or written; the window and
PNG files take the pixels straight from there.

Invariants: what the applet says (sizes, times, rates) is checked before it is used. While pixels are read no call that
is under way has their buffer; an applet that stores to them all the same changes the picture and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holdfast

#: A pixel is red, green and blue, a byte each.
FORMAT, PIXEL_BYTES = b"rgb24", 3
#: The largest video and the largest frame that are taken, so that a bad one cannot ask for all memory.
VIDEO_BYTES_MAX = 1 << 30
FRAME_BYTES_MAX = 256 << 20
#: For the decoder beside the video itself: libraries and pictures that it keeps.
DECODER_BYTES = 1 << 30
#: Any frame of any video takes less.
CALL_TIMEOUT_S = 30.0
#: No frame is waited for longer, whatever its time says.
PAUSE_MAX_S = 10.0
#: What nobody sees of a delay.
LATE_S = 0.02

# Exit codes beside 0; 2, wrong arguments, is argparse's.
NO_VIDEO, NOT_FOUND, NO_WINDOW, APPLET_DIED, CANNOT_WRITE, INTERRUPTED = 1, 3, 4, 5, 6, 130


class PlayerError(Exception):
    """What ends the program with a message, which says what to do, and an exit code."""

    exit_code = NO_VIDEO


class NotAVideo(PlayerError):
    """The decoder makes nothing of the file, or of the rest of it."""


class FileMissing(PlayerError):
    """There is no video, or no applet, where it was said to be."""

    exit_code = NOT_FOUND


class WindowMissing(PlayerError):
    """There is no pygame, or no display."""

    exit_code = NO_WINDOW


class AppletDied(PlayerError):
    """The applet crashed, hung, took too much, did something forbidden, or is no video player."""

    exit_code = APPLET_DIED


class PngFailed(PlayerError):
    """A PNG file cannot be written."""

    exit_code = CANNOT_WRITE


@dataclass(frozen=True, slots=True)
class Properties:
    """What the applet says about a video, checked."""

    width: int
    height: int
    #: As many as the file has packets of video.
    frames: int
    frames_per_s: float
    codec: str

    @classmethod
    def of(cls, answer: bytes) -> Properties:
        try:
            said = json.loads(answer)
            width, height, frames, rate = said["width"], said["height"], said["frames"], said["rate"]
            codec = said["codec"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise AppletDied(f"the applet's answer to `open` makes no sense; build it anew ({error!r})") from None
        is_sound = all(type(value) is int for value in (width, height, frames)) and isinstance(codec, str)
        # A rate is for the summary alone: frames come with their times.
        if not is_sound or type(rate) not in (int, float) or not -1e9 < rate < 1e9:
            raise AppletDied("the applet's answer to `open` has values of wrong types; build it anew")
        if width < 1 or height < 1 or width * height * PIXEL_BYTES > FRAME_BYTES_MAX:
            raise NotAVideo(f"frames of {width} x {height} pixels are not played; the limit is {FRAME_BYTES_MAX} bytes")
        codec = "".join(letter for letter in codec if letter.isprintable())
        return cls(width, height, frames, float(rate), codec)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. Its pixels are those of the next one as soon as that is asked for."""

    number: int
    #: When it is to be shown, from the start of the video.
    time_s: float
    #: Of the call that decoded it, there and back.
    decode_ms: float
    pixels: memoryview


class Video:
    """A video, open in an applet of its own."""

    def __init__(self, applet: Path, video: Path) -> None:
        size = size_of(video)
        if not applet.is_file():
            raise FileMissing(f"there is no applet {applet}; `cargo xtask applets video` builds it; or see --applet")
        self._applet = holdfast.Applet(
            applet,
            call_timeout=CALL_TIMEOUT_S,
            memory=DECODER_BYTES + size,
            buffers=size + 2 * FRAME_BYTES_MAX,
        )
        try:
            self.start_ms = self._applet.metrics().start_seconds * 1000
            self.properties = Properties.of(self._open(video, size))
            self.open_ms = self._spent_ms()
            frame_bytes = self.properties.width * self.properties.height * PIXEL_BYTES
            self._buffers = [self._applet.buffer(frame_bytes) for _ in range(2)]
            self._pixels = [memoryview(buffer)[:frame_bytes] for buffer in self._buffers]
        except BaseException:
            self._applet.close()
            raise

    def _open(self, video: Path, size: int) -> bytes:
        # Read to where the applet has it, and given back when the applet has made its own copy.
        buffer = self._applet.buffer(size)
        try:
            with memoryview(buffer) as whole, whole[:size] as room, open(video, "rb") as file:
                is_whole = file.readinto(room) == size
        except OSError as error:
            raise cannot_read(video, error) from None
        if not is_whole:
            raise NotAVideo(f"{video} became shorter while it was read; play it when it is complete")
        return self._applet.call("open", buffer=buffer)

    def frames(self) -> Iterator[Frame]:
        """The frames in their order. Each is decoded while the one before is looked at."""
        number = 0
        with ThreadPoolExecutor(1, "decoder") as decoder:
            ahead = decoder.submit(self._decode, number)
            while decoded := ahead.result():
                ahead = decoder.submit(self._decode, number + 1)
                yield Frame(number, *decoded, self._pixels[number % 2])
                number += 1

    def _decode(self, number: int) -> tuple[float, float] | None:
        """The time of the next frame, and of the call; nothing behind the last one."""
        answer = self._applet.call("next_frame", FORMAT, buffer=self._buffers[number % 2])
        if not answer:
            return None
        if len(answer) != 8:
            raise AppletDied("the applet's answer to `next_frame` is no time; build it anew")
        (time_us,) = struct.unpack("<q", answer)
        return max(time_us, 0) / 1e6, self._spent_ms()

    def _spent_ms(self) -> float:
        last = self._applet.last_call
        return last.wall_seconds * 1000 if last else 0.0

    @property
    def peak_memory_bytes(self) -> int:
        return self._applet.metrics().peak_memory_bytes

    @property
    def weaker(self) -> tuple[str, ...]:
        """The layers of the sandbox that this system does not have."""
        return self._applet.weaker

    def close(self) -> None:
        self._applet.close()


def cannot_read(video: Path, error: OSError) -> FileMissing:
    return FileMissing(f"cannot read {video}: {error.strerror}; name a video file")


def size_of(video: Path) -> int:
    try:
        size = video.stat().st_size
    except OSError as error:
        raise cannot_read(video, error) from None
    if not video.is_file():
        raise FileMissing(f"{video} is no file; name a video file")
    if not 0 < size <= VIDEO_BYTES_MAX:
        raise NotAVideo(f"{video} has {size} bytes; videos of 1 byte to 1 GiB are played")
    return size


def write_png(path: Path, pixels: memoryview, width: int, height: int) -> None:
    """Writes rows of packed pixels as a PNG file (ISO/IEC 15948), which appears when it is whole."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))

    # 8 bits each of red, green and blue; rows are compressed one by one, as they are.
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    compressor = zlib.compressobj(level=1)
    packed = bytearray()
    stride = width * PIXEL_BYTES
    for row in range(height):
        packed += compressor.compress(b"\0")
        packed += compressor.compress(pixels[row * stride : (row + 1) * stride])
    packed += compressor.flush()
    part = path.with_name(f"{path.name}.part")
    try:
        with open(part, "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header))
            file.write(chunk(b"IDAT", bytes(packed)) + chunk(b"IEND", b""))
        os.replace(part, path)
    except OSError as error:
        raise PngFailed(f"cannot write {path}: {error.strerror}; --png takes a folder with room") from None


class Window:
    """A window that shows frames at their times. Closing it, or Escape, ends the video."""

    def __init__(self, waits: bool = True) -> None:
        #: Whether a frame waits until it is to be shown.
        self._waits = waits
        # A display of one of these kinds, and no picture in memory; and no greeting.
        os.environ.setdefault("SDL_VIDEODRIVER", "wayland" if os.environ.get("WAYLAND_DISPLAY") else "x11")
        os.environ["PYGAME_HIDE_SUPPORT_PROMPT"] = "1"
        try:
            import pygame
        except ImportError:
            raise WindowMissing("a window needs pygame (pip install pygame-ce); without one: --png DIR") from None
        try:
            pygame.display.init()
        except pygame.error as error:
            raise WindowMissing(f"there is no display for a window ({error}); set DISPLAY, or use --png DIR") from None
        self._pygame = pygame
        self.is_open = True
        self.shown = 0
        #: Frames that came later than they should; the video is as much longer.
        self.late = 0
        self._started: float | None = None

    def prepare(self, title: str, width: int, height: int) -> None:
        self._size = width, height
        try:
            self._screen = self._pygame.display.set_mode(self._size)
        except self._pygame.error as error:
            raise WindowMissing(f"there is no window of {width} x {height} ({error}); use --png DIR") from None
        self._pygame.display.set_caption(title)

    def show(self, frame: Frame) -> None:
        """Waits until it is time, and shows the frame. One that is late is shown at once, and those that follow are as
        much later: a machine that is too slow plays slowly, and leaves nothing out."""
        now = time.monotonic()
        if self._started is None:
            self._started = now - frame.time_s
        late_s = now - self._started - frame.time_s
        if self._waits:
            if late_s > LATE_S:
                self.late += 1
                self._started += late_s
            self._wait_until(min(self._started + frame.time_s, now + PAUSE_MAX_S))
        self._screen.blit(self._pygame.image.frombuffer(frame.pixels, self._size, "RGB"), (0, 0))
        self._pygame.display.flip()
        self._take_events()
        self.shown += 1

    def _take_events(self) -> None:
        pygame = self._pygame
        for event in pygame.event.get():
            if event.type == pygame.QUIT or (event.type == pygame.KEYDOWN and event.key == pygame.K_ESCAPE):
                self.is_open = False

    def _wait_until(self, due: float) -> None:
        while self.is_open and (left := due - time.monotonic()) > 0:
            self._take_events()
            time.sleep(min(left, 0.01))

    def close(self) -> None:
        self._pygame.quit()


def play(video: Video, options: argparse.Namespace, window: Window | None) -> dict[str, Any]:
    """Plays to the end, or as far as asked; returns what it came to."""
    it = video.properties
    if window:
        window.prepare(f"{options.video.name} ({it.codec}, {it.width} x {it.height})", it.width, it.height)
    if options.png:
        try:
            options.png.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PngFailed(f"cannot make {options.png}: {error.strerror}; --png takes a folder") from None
    decode_ms: list[float] = []
    pngs = 0
    started = time.monotonic()
    for frame in video.frames():
        decode_ms.append(frame.decode_ms)
        if options.png and frame.number % options.every == 0:
            write_png(options.png / f"frame-{frame.number:05}.png", frame.pixels, it.width, it.height)
            pngs += 1
        if window:
            window.show(frame)
        if len(decode_ms) == options.frames or (window and not window.is_open):
            break
    if not decode_ms:
        raise NotAVideo(f"{options.video} has no picture; try another file")
    played_s = time.monotonic() - started
    return {
        "codec": it.codec,
        "width": it.width,
        "height": it.height,
        "frames_per_s": it.frames_per_s,
        "frames_in_file": it.frames,
        "frames": len(decode_ms),
        "decode_ms": round(sum(decode_ms) / len(decode_ms), 3),
        "decode_max_ms": round(max(decode_ms), 3),
        "played_s": round(played_s, 6),
        "start_ms": round(video.start_ms, 3),
        "open_ms": round(video.open_ms, 3),
        "peak_memory_bytes": video.peak_memory_bytes,
        "shown": window.shown if window else None,
        "late": window.late if window else None,
        "pngs": pngs,
        # One would have ended the applet, and the program with exit code 5.
        "policy_violations": 0,
        "missing_layers": list(video.weaker),
    }


def summary(result: dict[str, Any]) -> str:
    lines = [
        "{codec}, {width} x {height}, {frames_per_s:g} frames a second",
        "{frames} frames of {frames_in_file}, decoded in {decode_ms} ms each, at most {decode_max_ms} ms",
        "start {start_ms} ms, opening the video {open_ms} ms, memory at most {peak_memory_bytes} bytes",
        "policy violations: none",
    ]
    if result["missing_layers"]:
        lines.append("layers of the sandbox that this system does not have: " + ", ".join(result["missing_layers"]))
    if result["shown"] is not None:
        lines.append("{shown} shown, {late} of them late")
    if result["pngs"]:
        lines.append("{pngs} PNG files written")
    return "\n".join(lines).format(**result)


def default_applet() -> Path:
    target = os.environ.get("CARGO_TARGET_DIR") or Path(__file__).resolve().parents[2] / "target"
    return Path(target) / "applets" / "video"


def number(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Plays a video that is decoded in a sandbox.",
        epilog="Exit codes: 0 played; 1 no video, or a damaged one; 2 wrong arguments; 3 no such file; 4 no window "
        "to be had; 5 the applet crashed, hung, took too much or did something forbidden; 6 a PNG file cannot be "
        "written; 130 Ctrl-C.",
    )
    parser.add_argument("video", metavar="VIDEO", type=Path, help="any format that the system's libavformat knows")
    parser.add_argument("--applet", metavar="PATH", type=Path, default=default_applet(), help="default: %(default)s")
    parser.add_argument("--window", action="store_true", help="show it, at the video's own rate")
    parser.add_argument("--no-wait", action="store_true", help="in the window: show each frame as soon as it is decoded")
    parser.add_argument("--png", metavar="DIR", type=Path, help="write frames as DIR/frame-NUMBER.png")
    parser.add_argument("--every", metavar="N", type=number, default=1, help="of every N frames the first one only")
    parser.add_argument("--frames", metavar="N", type=number, help="stop after N frames")
    parser.add_argument("--json", action="store_true", help="say as JSON what it came to")
    return parser


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Plays; whatever goes wrong is a `PlayerError`."""
    # First, because nothing has to be started to know that there is none.
    window = Window(not options.no_wait) if options.window else None
    try:
        video = Video(options.applet, options.video)
        try:
            return play(video, options, window)
        finally:
            video.close()
    except holdfast.CallFailed as failure:
        raise NotAVideo(f"{options.video} cannot be played: {failure.message or failure}; try another file") from None
    except holdfast.UnknownFunction as unknown:
        raise AppletDied(f"{options.applet} is no video player, it has no `{unknown.name}`; see --applet") from None
    except holdfast.HoldfastError as error:
        # It says what happened, and what to do.
        raise AppletDied(f"{type(error).__name__}: {error}") from None
    finally:
        if window:
            window.close()


def main() -> int:
    options = parser().parse_args()
    try:
        result = run(options)
    except PlayerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    print(json.dumps(result) if options.json else summary(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())

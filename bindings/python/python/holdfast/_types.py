"""What goes in and comes out as plain data."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import Buffer as BytesLike

#: A number of bytes, or a text with a unit: `"64MiB"`, `"512KiB"`, `"1GiB"`.
Size = int | str
#: Seconds, or a `timedelta`.
Time = float | timedelta


@dataclasses.dataclass(frozen=True, slots=True)
class HostFunction:
    """A function that an applet may call, and what bounds it."""

    #: Takes bytes and returns bytes or None; for `AsyncApplet` also a coroutine function, which runs in the loop.
    function: Callable[[bytes], BytesLike | Awaitable[BytesLike | None] | None]
    #: The applet gets a failure after this time. A function that blocks goes on in a thread of its own, and its result is
    #: dropped; a coroutine is cancelled. By default there is no limit but the time of the applet's call.
    timeout: Time | None = dataclasses.field(default=None, kw_only=True)
    #: A longer input is refused: 64 MiB, which is the most.
    input_bytes_max: Size | None = dataclasses.field(default=None, kw_only=True)
    #: A longer result is refused: 64 MiB, which is the most.
    result_bytes_max: Size | None = dataclasses.field(default=None, kw_only=True)


#: Functions by the names by which an applet calls them.
HostFunctions = Mapping[str, Callable[[bytes], Any] | HostFunction]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an applet may use up. `None` is the default of each; one that its kind cannot keep is refused by name.

    What a field says holds for native and WebAssembly applets unless it names one.
    """

    #: Wall time of each call, unless the call brings a `timeout` of its own. By default there is none.
    call_timeout: Time | None = None
    #: Wall time until the applet serves: 30 s.
    start_timeout: Time | None = None
    #: How long an applet that was asked to cancel a call, or to end, may take before it is killed: 0.2 s.
    grace: Time | None = None
    #: WebAssembly: wall time for compiling one that is not in the cache: as long as `start_timeout`.
    compile_timeout: Time | None = None
    #: WebAssembly: memory that compiling may take, in a process of its own: 1 GiB.
    compile_memory: Size | None = None
    #: WebAssembly: the largest program in the text format: 1 MiB.
    text: Size | None = None
    #: Volatile memory (native: address space) besides the heap and shared buffers: 1 GiB.
    memory: Size | None = None
    #: WebAssembly: fuel for each call, about one unit for an instruction. By default none is counted.
    fuel: int | None = None
    #: Native: processor time in all, in whole seconds. By default there is no limit.
    cpu_time: Time | None = None
    #: Native: threads at a time: 16.
    threads: int | None = None
    #: Native: how much it yields to other processes, 0 to 19: 0.
    nice: int | None = None
    #: The result of one call, and one part of a stream: 64 MiB.
    result: Size | None = None
    #: Shared buffers, all together: 64 MiB.
    buffers: Size | None = None


class LimitOptions(TypedDict, total=False):
    """The fields of `Limits`, as options by name."""

    call_timeout: Time | None
    start_timeout: Time | None
    grace: Time | None
    compile_timeout: Time | None
    compile_memory: Size | None
    text: Size | None
    memory: Size | None
    fuel: int | None
    cpu_time: Time | None
    threads: int | None
    nice: int | None
    result: Size | None
    buffers: Size | None


class AppletOptions(LimitOptions, total=False):
    """The options of `Applet`."""

    args: Sequence[str]
    env: dict[str, str] | None
    dirs: Sequence[str | os.PathLike[str] | DirGrant]
    heap: str | HeapGrant | Sequence[str | HeapGrant] | None
    app: str | None
    functions: HostFunctions | None
    limits: Limits | None
    strict: bool
    output: Literal["discard", "inherit", "capture"]
    home: str | os.PathLike[str] | None
    pool: str | os.PathLike[str] | None


def limits_of(limits: Limits | None, named: Mapping[str, Any] | None) -> Limits:
    """The limits, with those that were given by name on top."""
    limits = Limits() if limits is None else limits
    if not isinstance(limits, Limits):
        raise TypeError(f"limits must be a Limits, not {type(limits).__name__}")
    known = {field.name for field in dataclasses.fields(Limits)}
    for name in named or ():
        if name not in known:
            raise TypeError(f"there is no option and no limit {name!r}; the limits are {', '.join(sorted(known))}")
    return dataclasses.replace(limits, **named) if named else limits


@dataclasses.dataclass(frozen=True, slots=True)
class HeapGrant:
    """A heap for an applet, by its name. It is made if there is none."""

    #: Its name.
    name: str
    #: How large a new one may ever get; an existing one keeps its limit.
    limit: Size = dataclasses.field(default="64MiB", kw_only=True)
    #: The name of the key that opens it, instead of the applet's own: the owner's, or one that was granted something.
    key: str | None = dataclasses.field(default=None, kw_only=True)
    #: Give the applet the private compartment of this worker instead of the heap itself. `{}` in the name becomes the lowest
    #: number of which no other applet has the compartment.
    compartment: str | None = dataclasses.field(default=None, kw_only=True)
    #: Give the applet so many private compartments of the heap besides the heap itself, "thread-1" and so on: one for each
    #: of its threads that enters it. A WebAssembly applet has one thread.
    compartments: int = dataclasses.field(default=0, kw_only=True)
    #: How large a new compartment may ever get.
    quota: Size = dataclasses.field(default="8MiB", kw_only=True)
    #: Whether the applet's stores count only together, when a call returns, instead of at once.
    atomic: bool = dataclasses.field(default=False, kw_only=True)
    #: Whether the applet may only read it, whatever the key allows: any number of applets share it then. Not with
    #: `compartment`, `compartments`, `atomic` and `reserve`, which are about heaps that it may write to.
    read_only: bool = dataclasses.field(default=False, kw_only=True)
    #: How much of it is allocated at least before the applet starts, so that it need not ask for it bit by bit.
    reserve: Size = dataclasses.field(default=0, kw_only=True)
    #: The name by which the applet knows it; by default its own.
    alias: str | None = dataclasses.field(default=None, kw_only=True)


@dataclasses.dataclass(frozen=True, slots=True)
class DirGrant:
    """A directory for an applet."""

    #: The directory.
    host: str | os.PathLike[str]
    #: The path under which the applet sees it; by default the same.
    guest: str | None = None
    #: Whether it may only read there.
    read_only: bool = dataclasses.field(default=False, kw_only=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What an applet cost."""

    #: "native" or "wasm".
    kind: str
    #: From the request until it served.
    start_seconds: float
    #: Wall time of all calls.
    wall_seconds: float
    #: Processor time.
    cpu_seconds: float
    #: WebAssembly: fuel, when it is counted.
    fuel_used: int | None
    #: The most volatile memory that it had.
    peak_memory_bytes: int
    #: Backed bytes of its heap.
    heap_backed_bytes: int
    #: Whether the heap may have been stored to.
    heap_dirty: bool
    #: Calls that were begun.
    calls: int
    #: Messages in both directions.
    messages: int
    #: Bytes of input and of results, shared buffers not counted.
    message_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CallMetrics:
    """What one call cost."""

    #: From the request to the result.
    wall_seconds: float
    #: Processor time of the applet since the call before it ended; `None` where it is not counted for each call.
    cpu_seconds: float | None
    #: Messages in both directions.
    messages: int
    #: Bytes of input and result.
    message_bytes: int
    #: Backed bytes of the heap when it ended.
    heap_backed_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to."""

    #: The program's own exit status.
    exit_status: int
    #: Captured standard output.
    stdout: bytes
    #: Captured standard error.
    stderr: bytes
    #: Whether it wrote more than is kept of either; the rest was dropped.
    output_truncated: bool
    #: What it cost.
    metrics: Metrics
    #: What did not stop it but made it slower, or the sandbox weaker, in words.
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """What is left of an applet that was closed."""

    #: What it cost.
    metrics: Metrics
    #: Captured standard output (`output="capture"`).
    stdout: bytes
    #: Captured standard error.
    stderr: bytes
    #: Whether it wrote more than is kept of either; the rest was dropped.
    output_truncated: bool

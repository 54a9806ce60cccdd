"""The exceptions of `holdfast`, each with its fields as attributes.

The native half raises them by name: text first, then fields by keyword. Every text says what to do next. They can be pickled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._types import Metrics


class HoldfastError(Exception):
    """Whatever `holdfast` raises, but for wrong arguments (`TypeError`, `ValueError`) and `BufferError`."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)

    def __str__(self) -> str:
        # KeyError would show its argument quoted, OSError look for a number.
        return str(self.args[0]) if self.args else ""


class Closed(HoldfastError, ValueError):
    """The applet, heap, pool or stream was closed before."""


class Forked(HoldfastError):
    """The object belongs to the process from which this one was forked."""


class AppletError(HoldfastError):
    """An applet that did not start, or is gone. Its heap is at its last consistent state."""

    #: What it cost up to there.
    metrics: Metrics | None
    #: The name of its heap, if it had one.
    heap: str | None
    #: What became of the heap: "not-needed", "in-order", "rolled-back", "no-heap" (bytes that are none), "failed".
    heap_recovery: str | None
    #: Captured standard output (`output="capture"`).
    stdout: bytes
    #: Captured standard error.
    stderr: bytes
    #: Whether it wrote more than is kept of either; the rest was dropped.
    output_truncated: bool

    def __init__(
        self,
        message: str = "",
        *,
        metrics: Metrics | None = None,
        heap: str | None = None,
        heap_recovery: str | None = None,
        stdout: bytes = b"",
        stderr: bytes = b"",
        output_truncated: bool = False,
    ) -> None:
        super().__init__(message)
        self.metrics = metrics
        self.heap = heap
        self.heap_recovery = heap_recovery
        self.stdout = stdout
        self.stderr = stderr
        self.output_truncated = output_truncated


class AppletNotFound(AppletError, FileNotFoundError):
    """There is no such file."""


class AppletGone(AppletError):
    """The applet died in an earlier call; `__cause__` is what that call raised. `respawn` starts it anew."""


class AppletLimit(AppletError):
    """The applet used up what it was given, other than time: fuel, memory, threads, output."""


class AppletCrashed(AppletError):
    """The applet crashed: a signal (native), a trap (WebAssembly), or it ended although it was to serve."""

    #: The signal's number (native).
    signal: int | None
    #: The signal's name, such as "SIGSEGV".
    signal_name: str | None
    #: What went wrong (WebAssembly).
    trap: str | None
    #: The function in which it did, if it has a name.
    function: str | None
    #: The functions that were running, innermost first; "?" for one without a name.
    backtrace: tuple[str, ...]
    #: The status with which it ended by itself.
    exit_status: int | None

    def __init__(
        self,
        message: str = "",
        *,
        metrics: Metrics | None = None,
        heap: str | None = None,
        heap_recovery: str | None = None,
        stdout: bytes = b"",
        stderr: bytes = b"",
        output_truncated: bool = False,
        signal: int | None = None,
        signal_name: str | None = None,
        trap: str | None = None,
        function: str | None = None,
        backtrace: tuple[str, ...] = (),
        exit_status: int | None = None,
    ) -> None:
        super().__init__(
            message,
            metrics=metrics,
            heap=heap,
            heap_recovery=heap_recovery,
            stdout=stdout,
            stderr=stderr,
            output_truncated=output_truncated,
        )
        self.signal = signal
        self.signal_name = signal_name
        self.trap = trap
        self.function = function
        self.backtrace = backtrace
        self.exit_status = exit_status


class AppletTimeout(AppletError, TimeoutError):
    """The applet took longer than it was allowed to, and was killed."""

    #: What was allowed, where it is known.
    limit_seconds: float | None

    def __init__(
        self,
        message: str = "",
        *,
        metrics: Metrics | None = None,
        heap: str | None = None,
        heap_recovery: str | None = None,
        stdout: bytes = b"",
        stderr: bytes = b"",
        output_truncated: bool = False,
        limit_seconds: float | None = None,
    ) -> None:
        super().__init__(
            message,
            metrics=metrics,
            heap=heap,
            heap_recovery=heap_recovery,
            stdout=stdout,
            stderr=stderr,
            output_truncated=output_truncated,
        )
        self.limit_seconds = limit_seconds


class PolicyViolation(AppletError):
    """The native applet made a system call that its policy forbids. The call was not carried out."""

    #: The system call's number, as the applet gave it.
    syscall: int
    #: Its name, or "unknown".
    name: str
    #: Its six arguments. (`args` are the exception's own, as of every exception.)
    arguments: tuple[int, ...]
    #: The address of the instruction after the call.
    instruction_pointer: int
    #: "x86-64", "x32" or "i386".
    arch: str
    #: What is forbidden about it.
    reason: str

    def __init__(
        self,
        message: str = "",
        *,
        metrics: Metrics | None = None,
        heap: str | None = None,
        heap_recovery: str | None = None,
        stdout: bytes = b"",
        stderr: bytes = b"",
        output_truncated: bool = False,
        syscall: int = -1,
        name: str = "unknown",
        arguments: tuple[int, ...] = (),
        instruction_pointer: int = 0,
        arch: str = "",
        reason: str = "",
    ) -> None:
        super().__init__(
            message,
            metrics=metrics,
            heap=heap,
            heap_recovery=heap_recovery,
            stdout=stdout,
            stderr=stderr,
            output_truncated=output_truncated,
        )
        self.syscall = syscall
        self.name = name
        self.arguments = arguments
        self.instruction_pointer = instruction_pointer
        self.arch = arch
        self.reason = reason


class HostFunctionError(HoldfastError):
    """For functions that an applet calls (`functions=`): raise it for a failure with a code of your choice, which the applet
    gets with the words."""

    #: For the applet; 0, which stands for success, becomes 1.
    code: int

    def __init__(self, message: str = "", *, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class CallError(HoldfastError):
    """A call without a result. Unless the class says otherwise, the applet serves on."""


class AppletBusy(CallError, TimeoutError):
    """Other threads' calls of the applet took longer than the call's `timeout`, so it was not made."""

    #: The `timeout`.
    limit_seconds: float | None

    def __init__(self, message: str = "", *, limit_seconds: float | None = None) -> None:
        super().__init__(message)
        self.limit_seconds = limit_seconds


class CallFailed(CallError):
    """The function failed."""

    #: The function's own code, never 0.
    code: int
    #: The function's own words: untrusted, cleaned of control characters.
    message: str

    def __init__(self, text: str = "", *, code: int = -1, message: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.message = message


class UnknownFunction(CallError, LookupError):
    """The applet has no function of that name."""

    #: The name that was called.
    name: str
    #: The names that there are.
    known: tuple[str, ...]

    def __init__(self, message: str = "", *, name: str = "", known: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.name = name
        self.known = known


class Cancelled(CallError):
    """The call was cancelled."""

    #: Whether the applet gave up in time and serves on; otherwise it was stopped, and `respawn` starts it anew.
    is_alive: bool

    def __init__(self, message: str = "", *, is_alive: bool = True) -> None:
        super().__init__(message)
        self.is_alive = is_alive


class ResultTooLarge(CallError):
    """The result has more bytes than the limit `result`. The call was cancelled."""

    #: The limit.
    limit_bytes: int

    def __init__(self, message: str = "", *, limit_bytes: int = 0) -> None:
        super().__init__(message)
        self.limit_bytes = limit_bytes


class ForeignBuffer(CallError, ValueError):
    """The buffer is another applet's, or one of before a `respawn`."""


class NoBuffer(CallError, MemoryError):
    """There is no room for a shared buffer, or this kind of applet has none."""


class HeapError(HoldfastError):
    """A heap that cannot be used as asked."""


class HeapNotFound(HeapError, LookupError):
    """There is no heap of that name."""


class HeapHeld(HeapError):
    """Another process, or another object of this one, has the heap."""


class HeapDenied(HeapError, PermissionError):
    """The key may not do that, or there is no key of that name."""


class HeapNoRoom(HeapError, MemoryError):
    """The heap's limit is reached, or there is no room for it in its pool or store."""


class HeapDamaged(HeapError):
    """The heap, or a file of it, is damaged, foreign or newer. `holdfast heap repair` may help."""


class RootNotFound(HeapError, KeyError):
    """The heap has no root of that name."""


class RootExists(HeapError, ValueError):
    """The heap has a root of that name already."""


class LayoutMismatch(HeapError):
    """The root was made with another layout than the type has, or with none."""

    #: What the root carries; None for none.
    stored: int | None
    #: That of the type.
    wanted: int

    def __init__(self, message: str = "", *, stored: int | None = None, wanted: int = 0) -> None:
        super().__init__(message)
        self.stored = stored
        self.wanted = wanted


class TransactionError(HeapError):
    """Not possible inside, or outside, of a transaction, or in one of another heap; or an inner one failed, and so did the outer."""


class DocumentError(HoldfastError):
    """A document that cannot be used as asked."""


class DocumentNotFound(DocumentError, LookupError):
    """The heap has no document of that name."""


class DocumentDamaged(DocumentError):
    """Bytes of the document are wrong, or a newer version wrote it. Parse the page again."""


class DocumentTooLarge(DocumentError, ValueError):
    """The page, or the selector, is more than a limit allows. What was there before stays."""

    #: Which limit, in words.
    limit: str
    #: What it is.
    max: int

    def __init__(self, message: str = "", *, limit: str = "", max: int = 0) -> None:
        super().__init__(message)
        self.limit = limit
        self.max = max


class SelectorError(DocumentError, ValueError):
    """A selector that is none."""

    #: The text.
    selector: str
    #: What is wrong with it.
    reason: str
    #: At which character, from 1.
    column: int

    def __init__(self, message: str = "", *, selector: str = "", reason: str = "", column: int = 0) -> None:
        super().__init__(message)
        self.selector = selector
        self.reason = reason
        self.column = column


class ChangeRefused(DocumentError, ValueError):
    """A change that no tree can have; nothing was changed."""

"""Untrusted programs as functions, heaps that outlive them, and pages that are parsed once.

    import holdfast

    with holdfast.Applet("md5.wasm", call_timeout=1.0) as md5:
        digest = md5.call("digest", b"message digest")

- `run`: runs a program to its end in a sandbox.
- `Applet`: a program, native or WebAssembly, in a sandbox, that serves calls. `AsyncApplet`: the same for asyncio.
- `Pool`: applets that are started before they are needed.
- `Buffer`: memory that host and applet share, for large data without a copy.
- `Heap`: persistent memory by name, for an applet (`heap=`) or for Python itself.
- `Portable`: a type whose values lie in memory the same way for programs of every kind, in a heap for all of them.
- `Document`: an HTML page, parsed once into a heap, and from then on read, searched and changed where it lies.
- `HoldfastError`: the root of all exceptions.
"""

from ._aio import AsyncApplet
from ._document import Document
from ._errors import (
    AppletBusy,
    AppletCrashed,
    AppletError,
    AppletGone,
    AppletLimit,
    AppletNotFound,
    AppletTimeout,
    CallError,
    CallFailed,
    Cancelled,
    ChangeRefused,
    Closed,
    DocumentDamaged,
    DocumentError,
    DocumentNotFound,
    DocumentTooLarge,
    ForeignBuffer,
    Forked,
    HeapDamaged,
    HeapDenied,
    HeapError,
    HeapHeld,
    HeapNoRoom,
    HeapNotFound,
    HoldfastError,
    HostFunctionError,
    LayoutMismatch,
    NoBuffer,
    PolicyViolation,
    ResultTooLarge,
    RootExists,
    RootNotFound,
    SelectorError,
    TransactionError,
    UnknownFunction,
)
from ._holdfast import VERSION as __version__
from ._holdfast import Applet, Buffer, Heap, Pool, Stream, Transaction, run
from ._nodes import Comment, Element, Text
from ._portable import Portable, array, f32, f64, i8, i16, i32, i64, ref, u8, u16, u32, u64
from ._types import CallMetrics, DirGrant, HeapGrant, HostFunction, Limits, Metrics, Outcome

__all__ = [
    "Applet",
    "AppletBusy",
    "AppletCrashed",
    "AppletError",
    "AppletGone",
    "AppletLimit",
    "AppletNotFound",
    "AppletTimeout",
    "AsyncApplet",
    "Buffer",
    "CallError",
    "CallFailed",
    "CallMetrics",
    "Cancelled",
    "ChangeRefused",
    "Closed",
    "Comment",
    "DirGrant",
    "Document",
    "DocumentDamaged",
    "DocumentError",
    "DocumentNotFound",
    "DocumentTooLarge",
    "Element",
    "ForeignBuffer",
    "Forked",
    "Heap",
    "HeapDamaged",
    "HeapDenied",
    "HeapError",
    "HeapGrant",
    "HeapHeld",
    "HeapNoRoom",
    "HeapNotFound",
    "HoldfastError",
    "HostFunction",
    "HostFunctionError",
    "LayoutMismatch",
    "Limits",
    "Metrics",
    "NoBuffer",
    "Outcome",
    "PolicyViolation",
    "Pool",
    "Portable",
    "ResultTooLarge",
    "RootExists",
    "RootNotFound",
    "SelectorError",
    "Stream",
    "Text",
    "Transaction",
    "TransactionError",
    "UnknownFunction",
    "__version__",
    "array",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "ref",
    "run",
    "u8",
    "u16",
    "u32",
    "u64",
]

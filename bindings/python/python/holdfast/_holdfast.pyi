# Types of the native half; what everything does is said by the docstrings there (help(holdfast.Applet)).
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeVar, final, overload

from typing_extensions import Buffer as BytesLike
from typing_extensions import Unpack

from ._types import (
    CallMetrics,
    Closed,
    DirGrant,
    HeapGrant,
    LimitOptions,
    Limits,
    Metrics,
    Outcome,
    Size,
    Time,
)

VERSION: Final[str]

_T = TypeVar("_T")

def run(
    path: str | PathLike[str],
    *,
    input: BytesLike | None = None,
    timeout: Time | None = None,
    args: Sequence[str] = ...,
    env: dict[str, str] | None = None,
    dirs: Sequence[str | PathLike[str] | DirGrant] = ...,
    heap: str | HeapGrant | None = None,
    limits: Limits | None = None,
    strict: bool = False,
    output: Literal["discard", "inherit", "capture"] = ...,
    home: str | PathLike[str] | None = None,
    pool: str | PathLike[str] | None = None,
    **named: Unpack[LimitOptions],
) -> Outcome: ...

@final
class Applet:
    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        args: Sequence[str] = ...,
        env: dict[str, str] | None = None,
        dirs: Sequence[str | PathLike[str] | DirGrant] = ...,
        heap: str | HeapGrant | None = None,
        limits: Limits | None = None,
        strict: bool = False,
        output: Literal["discard", "inherit", "capture"] = ...,
        home: str | PathLike[str] | None = None,
        pool: str | PathLike[str] | None = None,
        **named: Unpack[LimitOptions],
    ) -> Self: ...
    def call(
        self,
        function: str,
        data: BytesLike | None = None,
        *,
        buffer: Buffer | None = None,
        timeout: Time | None = None,
    ) -> bytes: ...
    def stream(
        self,
        function: str,
        data: BytesLike | None = None,
        *,
        buffer: Buffer | None = None,
        timeout: Time | None = None,
    ) -> Stream: ...
    def buffer(self, size: Size) -> Buffer: ...
    def metrics(self) -> Metrics: ...
    def cancel(self) -> bool: ...
    def respawn(self) -> None: ...
    def close(self) -> Closed | None: ...
    @property
    def functions(self) -> tuple[str, ...]: ...
    @property
    def path(self) -> Path: ...
    @property
    def weaker(self) -> tuple[str, ...]: ...
    @property
    def alive(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    @property
    def last_call(self) -> CallMetrics | None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class Buffer:
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Stream:
    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class Pool:
    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        size: int = 2,
        reuse: bool = False,
        args: Sequence[str] = ...,
        env: dict[str, str] | None = None,
        dirs: Sequence[str | PathLike[str] | DirGrant] = ...,
        heap: HeapGrant | None = None,
        limits: Limits | None = None,
        strict: bool = False,
        output: Literal["discard", "inherit", "capture"] = ...,
        home: str | PathLike[str] | None = None,
        pool: str | PathLike[str] | None = None,
        **named: Unpack[LimitOptions],
    ) -> Self: ...
    def take(self) -> Applet: ...
    def close(self) -> None: ...
    @property
    def ready(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class Heap:
    def __new__(
        cls,
        name: str,
        *,
        limit: Size | None = None,
        key: str = "default",
        atomic: bool = False,
        home: str | PathLike[str] | None = None,
        pool: str | PathLike[str] | None = None,
    ) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    @property
    def limit_bytes(self) -> int: ...
    @property
    def backed_bytes(self) -> int: ...
    @property
    def read_only(self) -> bool: ...
    def create(self, name: str, size: Size) -> memoryview: ...
    @overload
    def get(self, name: str, default: None = None, /) -> memoryview | None: ...
    @overload
    def get(self, name: str, default: _T, /) -> memoryview | _T: ...
    def __getitem__(self, name: str, /) -> memoryview: ...
    def __delitem__(self, name: str, /) -> None: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def transaction(self) -> Transaction: ...
    def persist(self, *views: BytesLike) -> None: ...
    def commit(self, level: Literal["process", "system", "power"] = "power") -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class Transaction:
    def add(self, *views: BytesLike) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

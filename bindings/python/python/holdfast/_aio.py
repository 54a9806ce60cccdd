"""Applets in asyncio.

Each `AsyncApplet` has one thread for the calls that block; tasks that call it wait for each other without any.

Invariants: a cancelled task cancels its own call and no other, and does not go on before that call has ended: so the next
task finds an applet that waits for it, or one that is gone. A coroutine that an applet calls runs in the loop that started the
applet, ends with the call, and never waits for the applet that waits for it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from ._errors import CallError, Closed, Forked, HostFunctionError
from ._holdfast import Applet, Buffer, Stream
from ._types import HostFunction

if TYPE_CHECKING:
    from typing import Unpack

    from typing_extensions import Buffer as BytesLike

    from ._types import AppletOptions, CallMetrics, Metrics, Time
    from ._types import Closed as ClosedApplet

P = ParamSpec("P")
R = TypeVar("R")

#: Between two attempts to cancel a call that is only about to begin.
_CANCEL_PAUSE_SECONDS = 0.001
#: Rounds of the event loop in which an iterator that nobody refers to any more begins to be closed.
_ROUNDS_TO_CLOSE = 4


#: The applets that wait for the coroutine of theirs in which this is asked.
_WAITING: ContextVar[tuple[AsyncApplet, ...]] = ContextVar("holdfast_waiting", default=())


class AsyncApplet:
    """An `Applet` for asyncio: `applet = await AsyncApplet.start(path, ...)`, or `async with AsyncApplet(path, ...) as applet:`.

    Options are those of `Applet`; `functions` may be coroutine functions, too, which run in the loop that starts the applet.
    Calls come one after the other; cancelling a task cancels its call, and the coroutine that this is in.
    """

    def __init__(self, path: str | os.PathLike[str], **options: Unpack[AppletOptions]) -> None:
        self._coroutines: set[Future[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        if functions := options.get("functions"):
            options["functions"] = self._in_loop(functions)
        self._start: Callable[[], Applet] = functools.partial(Applet, path, **options)
        self._path = Path(path)
        self._applet: Applet | None = None
        self._is_closed = False
        self._lock = asyncio.Lock()
        self._owner: asyncio.Task[Any] | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="holdfast")
        #: The process that has the thread, once there is one.
        self._process: int | None = None

    @classmethod
    async def start(cls, path: str | os.PathLike[str], **options: Unpack[AppletOptions]) -> Self:
        """Starts an applet to be called."""
        return await cls(path, **options).__aenter__()

    async def __aenter__(self) -> Self:
        async with _Turn(self):
            if self._is_closed:
                raise Closed("the applet is closed; start another one")
            if self._applet is None:
                self._loop = asyncio.get_running_loop()
                self._applet = await self._run(self._start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def call(
        self,
        function: str,
        data: BytesLike = b"",
        *,
        buffer: Buffer | None = None,
        timeout: Time | None = None,
    ) -> bytes:
        """As `Applet.call`."""
        async with _Turn(self):
            applet = self._started()
            return await self._run(applet.call, function, data, buffer=buffer, timeout=timeout)

    async def stream(
        self,
        function: str,
        data: BytesLike = b"",
        *,
        buffer: Buffer | None = None,
        timeout: Time | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """As `Applet.stream`, for `async for`. Leaving the loop early cancels the call when the iterator is closed: use
        `contextlib.aclosing` to have that at once."""
        async with _Turn(self):
            applet = self._started()
            stream = await self._run(applet.stream, function, data, buffer=buffer, timeout=timeout)
            try:
                while (part := await self._run(_next_part, stream)) is not None:
                    yield part
            finally:
                # Whichever task ends it: the one that left the loop may wait for that now.
                self._owner = asyncio.current_task()
                await self._run(stream.close)

    async def buffer(self, size: int | str) -> Buffer:
        """As `Applet.buffer`."""
        async with _Turn(self):
            return await self._run(self._started().buffer, size)

    async def metrics(self) -> Metrics:
        """As `Applet.metrics`."""
        async with _Turn(self):
            return await self._run(self._started().metrics)

    async def respawn(self) -> None:
        """As `Applet.respawn`."""
        async with _Turn(self):
            await self._run(self._started().respawn)

    async def close(self) -> ClosedApplet | None:
        """As `Applet.close`; also ends the thread. A stream of this task has to be closed before (`contextlib.aclosing`), and
        one of another task is waited for."""
        async with _Turn(self):
            applet, self._applet = self._applet, None
            self._is_closed = True
            try:
                return None if applet is None else await self._run(applet.close)
            finally:
                self._executor.shutdown(wait=False)

    def cancel(self) -> bool:
        """As `Applet.cancel`."""
        return self._applet is not None and self._applet.cancel()

    @property
    def functions(self) -> tuple[str, ...]:
        """As `Applet.functions`."""
        return self._started().functions

    @property
    def path(self) -> Path:
        """The file that it runs."""
        return self._path

    @property
    def alive(self) -> bool:
        """As `Applet.alive`."""
        return self._applet is not None and self._applet.alive

    @property
    def last_call(self) -> CallMetrics | None:
        """As `Applet.last_call`."""
        return self._started().last_call

    def _started(self) -> Applet:
        if self._applet is None:
            raise Closed("the applet is not started, or closed; use `async with`, or await AsyncApplet.start(...)")
        return self._applet

    def _refuse_fork(self) -> None:
        """Refuses in a forked child, in which the thread is not that would do the work."""
        if self._process not in (None, os.getpid()):
            raise Forked(
                f"this applet belongs to process {self._process}, from which process {os.getpid()} was forked; start it after the"
                ' fork, or start children with the method "spawn"'
            )

    async def _run(self, work: Callable[P, R], /, *arguments: P.args, **named: P.kwargs) -> R:
        """Runs what blocks on the applet's thread; the caller has the turn."""
        self._refuse_fork()
        self._process = os.getpid()
        future = self._executor.submit(work, *arguments, **named)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            # Nobody else may have the applet before this call has ended.
            while not future.cancel() and not future.done():
                for coroutine in tuple(self._coroutines):
                    coroutine.cancel()
                if self._applet is not None:
                    self._applet.cancel()
                await _pause()
            if not future.cancelled():
                future.exception()
            raise


    def _in_loop(self, functions: Mapping[str, Any]) -> dict[str, Any]:
        """The functions as the applet's thread calls them."""
        called = {}
        for name, given in functions.items():
            function = given if isinstance(given, HostFunction) else HostFunction(given)
            if inspect.iscoroutinefunction(function.function):
                run = functools.partial(self._run_coroutine, name, function.function, function.timeout)
                called[name] = dataclasses.replace(function, function=run, timeout=None)
            else:
                called[name] = given
        return called

    def _run_coroutine(
        self, name: str, function: Callable[[bytes], Awaitable[Any]], timeout: Time | None, data: bytes
    ) -> BytesLike | None:
        """Has the loop run a coroutine function; on the applet's thread, which waits for it."""
        assert self._loop is not None, "the applet was started in a loop"
        future = asyncio.run_coroutine_threadsafe(self._coroutine(name, function, timeout, data), self._loop)
        self._coroutines.add(future)
        try:
            result: BytesLike | None = future.result()
            return result
        finally:
            self._coroutines.discard(future)

    async def _coroutine(
        self, name: str, function: Callable[[bytes], Awaitable[Any]], timeout: Time | None, data: bytes
    ) -> BytesLike | None:
        _WAITING.set((*_WAITING.get(), self))
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                result: BytesLike | None = await function(data)
                return result
        except TimeoutError as error:
            # It may be one of the function's own.
            if not limit.expired():
                raise
            raise HostFunctionError(f"the host function {name!r} did not return within {seconds} s") from error


class _Turn:
    """One task at a time; a task that would wait for itself is told."""

    def __init__(self, applet: AsyncApplet) -> None:
        self._applet = applet

    async def __aenter__(self) -> None:
        applet = self._applet
        # Here, too: in a child, a turn that a task of the parent had never ends.
        applet._refuse_fork()
        if applet in _WAITING.get():
            raise CallError("the applet waits for this host function; call it when that has returned")
        for _ in range(_ROUNDS_TO_CLOSE):
            if applet._owner is None or applet._owner is not asyncio.current_task():
                break
            # It may be a stream that was just left, and is about to be closed by a task of the loop.
            await asyncio.sleep(0)
        else:
            raise CallError("this task has a stream of the applet open; use it up or close it first")
        await applet._lock.acquire()
        applet._owner = asyncio.current_task()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._applet._owner = None
        self._applet._lock.release()


async def _pause() -> None:
    """A moment, also for a task that is being cancelled once more."""
    try:
        await asyncio.sleep(_CANCEL_PAUSE_SECONDS)
    except asyncio.CancelledError:
        pass


def _next_part(stream: Stream) -> bytes | None:
    return next(stream, None)

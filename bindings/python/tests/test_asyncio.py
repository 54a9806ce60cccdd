"""Applets in asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import holdfast
import pytest
from conftest import number, program


@pytest.fixture
def run(kind: str, places: dict[str, Any]) -> Callable[..., None]:
    """Runs an asynchronous test with an applet."""

    def run(test: Callable[[holdfast.AsyncApplet], Awaitable[None]], **options: Any) -> None:
        async def main() -> None:
            async with holdfast.AsyncApplet(program("trial", kind), **{**places, **options}) as applet:
                await asyncio.wait_for(test(applet), 30)

        asyncio.run(main())

    return run


def test_calls_are_awaited(run: Callable[..., None], kind: str) -> None:
    async def test(applet: holdfast.AsyncApplet) -> None:
        assert await applet.call("echo", b"abc") == b"abc"
        assert applet.alive and "echo" in applet.functions and applet.path == program("trial", kind)
        with pytest.raises(holdfast.CallFailed):
            await applet.call("fail")
        buffer = await applet.buffer(10)
        await applet.call("increment", buffer=buffer)
        assert bytes(memoryview(buffer)) == b"\x01" * 10
        assert (await applet.metrics()).calls == 3
        assert applet.last_call is not None
        with pytest.raises(holdfast.AppletTimeout):
            await applet.call("spin", timeout=0.1)
        await applet.respawn()
        assert await applet.call("echo", b"abc") == b"abc"

    run(test)


def test_many_tasks_share_one_applet(run: Callable[..., None]) -> None:
    async def test(applet: holdfast.AsyncApplet) -> None:
        data = [str(turn).encode() for turn in range(100)]
        assert await asyncio.gather(*(applet.call("echo", text) for text in data)) == data

    run(test)


def test_the_loop_goes_on_during_a_call(run: Callable[..., None]) -> None:
    async def test(applet: holdfast.AsyncApplet) -> None:
        call = asyncio.create_task(applet.call("spin", timeout=0.5))
        turns = 0
        while not call.done():
            await asyncio.sleep(0.001)
            turns += 1
        with pytest.raises(holdfast.AppletTimeout):
            await call
        # One that waits for the call has no turn, or one.
        assert turns > 5

    run(test)


# Guarantee: programs/python-calls
# Guarantee: programs/python-cancel
def test_cancelling_a_task_cancels_its_call(run: Callable[..., None], kind: str) -> None:
    async def test(applet: holdfast.AsyncApplet) -> None:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(applet.call("spin_until_cancelled"), 0.2)
        assert time.monotonic() - began < 10
        if kind == "wasm":
            await applet.respawn()
        assert await applet.call("echo", b"next") == b"next"

    run(test, grace=20)


# Guarantee: programs/python-calls
# Guarantee: programs/python-cancel
def test_cancelling_a_task_that_waits_cancels_no_other_call(run: Callable[..., None]) -> None:
    async def test(applet: holdfast.AsyncApplet) -> None:
        first = asyncio.create_task(applet.call("spin", timeout=1.0))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(applet.call("echo"))
        await asyncio.sleep(0.1)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        with pytest.raises(holdfast.AppletTimeout):
            await first

    run(test)


def test_parts_come_with_async_for(run: Callable[..., None]) -> None:
    async def test(applet: holdfast.AsyncApplet) -> None:
        parts = [part async for part in applet.stream("parts", number(4))]
        assert parts == [number(part) for part in range(5)]
        with pytest.raises(holdfast.CallFailed):
            async for part in applet.stream("fail"):
                pass

    run(test)


# Guarantee: programs/python-calls
# Guarantee: programs/python-cancel
def test_a_stream_that_is_left_early_is_cancelled(run: Callable[..., None]) -> None:
    async def test(applet: holdfast.AsyncApplet) -> None:
        for way in ["aclosing", "break"]:
            if way == "aclosing":
                async with contextlib.aclosing(applet.stream("flood")) as parts:
                    async for part in parts:
                        with pytest.raises(holdfast.CallError, match="stream"):
                            await applet.call("echo")
                        break
            else:
                async for part in applet.stream("flood"):
                    break
            # After the break nobody refers to the iterator any more; the loop closes it.
            deadline = time.monotonic() + 20
            while True:
                if not applet.alive:
                    await applet.respawn()
                try:
                    assert await applet.call("echo", b"next") == b"next"
                    break
                except holdfast.CallError as refused:
                    is_open = way == "break" and "stream" in str(refused)
                    if not is_open or time.monotonic() > deadline:
                        raise
                    await asyncio.sleep(0.05)

    run(test, grace=0.05)


def test_a_task_that_is_cancelled_in_a_stream_cancels_the_call(run: Callable[..., None]) -> None:
    async def test(applet: holdfast.AsyncApplet) -> None:
        async def read() -> None:
            async with contextlib.aclosing(applet.stream("flood")) as parts:
                async for part in parts:
                    await asyncio.sleep(0)

        task = asyncio.create_task(read())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if not applet.alive:
            await applet.respawn()
        assert await applet.call("echo", b"next") == b"next"

    run(test, grace=0.05)


def test_an_applet_is_used_between_start_and_close(kind: str, places: dict[str, Any]) -> None:
    async def main() -> None:
        applet = holdfast.AsyncApplet(program("trial", kind), **places)
        with pytest.raises(holdfast.Closed, match="start"):
            await applet.call("echo")
        assert not applet.alive and applet.cancel() is False
        applet = await holdfast.AsyncApplet.start(program("trial", kind), **places)
        assert await applet.call("echo", b"x") == b"x"
        closed = await applet.close()
        assert closed is not None and closed.metrics.calls == 1
        assert await applet.close() is None
        with pytest.raises(holdfast.Closed):
            await applet.call("echo")
        with pytest.raises(holdfast.Closed, match="another"):
            await applet.__aenter__()
        with pytest.raises(holdfast.AppletNotFound):
            await holdfast.AsyncApplet.start("/nowhere", **places)

    asyncio.run(main())

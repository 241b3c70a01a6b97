"""A time limit that a busy machine does not break."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")
TICK_SECONDS = 0.01


async def in_time(work: Awaitable[T], seconds: float) -> T:
    """What comes of it, if it comes within so many seconds in which this loop could run; else TimeoutError.

    As `asyncio.wait_for`, but a moment in which the machine had no time for us counts as one tick, however
    long it was. Where it has time, the two are the same.
    """
    task = asyncio.ensure_future(work)
    try:
        for _ in range(round(seconds / TICK_SECONDS)):
            done, _ = await asyncio.wait([task], timeout=TICK_SECONDS)
            if done:
                return task.result()
        raise TimeoutError(f"it took more than {seconds} seconds")
    finally:
        task.cancel()
        await asyncio.wait([task])

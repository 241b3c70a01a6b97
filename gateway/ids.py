"""Request ids: unique over processes, machines and restarts, and cheap to make."""

import secrets
import time


class RequestIds:
    """`req_` + 12 hex digits of the start's milliseconds + 8 random ones + a running count.

    Two starts within a millisecond differ in the random part; within a start the count never repeats.
    """

    def __init__(self) -> None:
        self._prefix = f"req_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(4)}"
        self._count = 0

    def next(self) -> str:
        """A fresh id, 24 characters and the count in at least six hex digits."""
        self._count += 1
        return f"{self._prefix}{self._count:06x}"

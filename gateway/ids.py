"""Request ids: unique over processes, machines and restarts, and cheap to make."""

import secrets
import time
from collections.abc import Callable
from itertools import count


class RequestIds:
    """`req_` + 12 hex digits of the start's milliseconds + 8 random ones + a running count.

    Two starts within a millisecond differ in the random part; within a start the count never repeats.
    """

    __slots__ = ("next",)

    def __init__(self) -> None:
        prefix = f"req_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(4)}"
        self.next: Callable[[], str] = map(f"{prefix}%06x".__mod__, count(1)).__next__
        """A fresh id, 24 characters and the count in at least six hex digits."""

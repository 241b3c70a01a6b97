"""Deadlines by the thousand: adding one and dropping it cost a dict operation each.

Deadlines a second or more away wait in slots of 100 ms and fire at most that much late. Nearer ones get a
timer of their own. An entry is told once, by `expire`; it looks itself whether it is really due, and adds
itself again if its deadline moved meanwhile. The wheel stands still while it is empty.
"""

import asyncio
from math import inf
from typing import Protocol

SLOTS_PER_SECOND = 10
NEAR_SECONDS = 1.0

Token = int | asyncio.TimerHandle
"""Where an entry waits: a slot's number, or its own timer."""


class Expiring(Protocol):
    """What may wait in a wheel."""

    def expire(self) -> None:
        """The deadline passed. May also be told to an entry that another one's end has just dropped."""
        ...


class Wheel:
    """The deadlines of one event loop's attempts."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: dict[int, dict[Expiring, None]] = {}
        self._at = 0  # the next slot to empty, while turning
        self._timer: asyncio.TimerHandle | None = None

    def add(self, entry: Expiring, now: float, due: float) -> Token:
        """Have `entry.expire()` called at `due`; both moments by the loop's clock."""
        if due - now < NEAR_SECONDS:
            return self._loop.call_at(due, entry.expire)
        number = int(due * SLOTS_PER_SECOND) + 1
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = {}
            if self._timer is None:
                self._at = int(now * SLOTS_PER_SECOND) + 1
                self._turn_at(self._at)
        slot[entry] = None
        return number

    def drop(self, entry: Expiring, token: Token) -> None:
        """Forget a deadline; harmless if it has passed."""
        if isinstance(token, int):
            slot = self._slots.get(token)
            if slot is not None:
                slot.pop(entry, None)
                if not slot:
                    del self._slots[token]
        else:
            token.cancel()

    def stop(self) -> None:
        """Forget everything."""
        self._slots.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn_at(self, number: int) -> None:
        self._timer = self._loop.call_at(number / SLOTS_PER_SECOND, self._turn)

    def _turn(self) -> None:
        self._timer = None
        # A loop's clock may stand a hair before the moment it woke for.
        upto = int(self._loop.time() * SLOTS_PER_SECOND + 0.05)
        while self._at <= upto:
            slot = self._slots.pop(self._at, None)
            self._at += 1
            if slot is not None:
                for entry in slot:
                    entry.expire()
        if self._slots and self._timer is None:
            self._turn_at(self._at)


class Alarm:
    """One place in a wheel, for one deadline after the other.

    It stays set to the earliest moment that was asked for, even when nobody waits for that one any more: to be
    woken too early now and then costs less than to move it for every exchange.
    """

    __slots__ = ("_token", "_wheel", "due", "sleeper")

    def __init__(self, wheel: Wheel, sleeper: Expiring | None = None) -> None:
        self._wheel = wheel
        self.sleeper = sleeper  # who is woken, and looks whether anything is really due
        self.due = inf  # by the loop's clock; inf: not set
        self._token: Token | None = None

    def set(self, now: float, due: float) -> None:
        """Wake at this moment, and no more at the one that was set before."""
        if self._token is not None:
            self._wheel.drop(self, self._token)
        self.due = due
        self._token = self._wheel.add(self, now, due)

    def drop(self) -> None:
        """Wake nobody."""
        if self._token is not None:
            self._wheel.drop(self, self._token)
            self._token = None
        self.due = inf

    def expire(self) -> None:
        """The wheel's turn."""
        self._token = None
        self.due = inf
        if self.sleeper is not None:
            self.sleeper.expire()

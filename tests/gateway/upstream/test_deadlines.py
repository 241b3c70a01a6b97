"""The wheel and its alarms: who is told when, by a clock of the test's own."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gateway.upstream.deadlines import Alarm, Token, Wheel


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time passes when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.timers: list[asyncio.TimerHandle] = []

    def time(self) -> float:
        return self.now

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, **_: Any
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self)
        self.timers.append(timer)
        return timer

    def pass_to(self, moment: float) -> None:
        while due := [timer for timer in self.timers if timer.when() <= moment and not timer.cancelled()]:
            timer = min(due, key=lambda timer: timer.when())
            self.timers.remove(timer)
            self.now = max(self.now, timer.when())
            timer._run()  # pyright: ignore[reportPrivateUsage,reportUnknownMemberType,reportAttributeAccessIssue]
        self.now = moment

    @property
    def waiting(self) -> int:
        return sum(not timer.cancelled() for timer in self.timers)


class Entry:
    """Notes when it was told."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.told: list[float] = []
        self.token: Token = 0

    def expire(self) -> None:
        self.told.append(self.clock.now)


@pytest.fixture
def clock():
    loop = Clock()
    yield loop
    loop.close()


@pytest.mark.parametrize("seconds", [1.0, 1.01, 1.999, 2.0, 59.95, 600.0])
def test_a_far_deadline_is_told_once_and_at_most_a_slot_late(clock: Clock, seconds: float) -> None:
    wheel, entry = Wheel(clock), Entry(clock)
    wheel.add(entry, clock.now, clock.now + seconds)
    clock.pass_to(2000.0)
    assert len(entry.told) == 1
    assert 0 <= entry.told[0] - 1000.0 - seconds <= 0.1 + 1e-6


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.3, 0.999])
def test_a_near_deadline_is_told_on_time(clock: Clock, seconds: float) -> None:
    wheel, entry = Wheel(clock), Entry(clock)
    wheel.add(entry, clock.now, clock.now + seconds)
    clock.pass_to(2000.0)
    assert entry.told == [1000.0 + seconds]


@pytest.mark.parametrize("seconds", [0.5, 5.0])
def test_a_dropped_deadline_is_not_told_and_leaves_nothing(clock: Clock, seconds: float) -> None:
    wheel, kept, dropped = Wheel(clock), Entry(clock), Entry(clock)
    wheel.add(kept, clock.now, clock.now + seconds)
    token = wheel.add(dropped, clock.now, clock.now + seconds)
    wheel.drop(dropped, token)
    wheel.drop(dropped, token)
    clock.pass_to(2000.0)
    assert (len(kept.told), len(dropped.told)) == (1, 0)
    assert clock.waiting == 0


def test_an_empty_wheel_stands_still_and_turns_again(clock: Clock) -> None:
    wheel, entry = Wheel(clock), Entry(clock)
    for start in (1000.0, 5000.0):
        clock.pass_to(start)
        token = wheel.add(entry, clock.now, clock.now + 30)
        wheel.drop(entry, token)
        clock.pass_to(start + 0.5)
        assert clock.waiting == 0
    wheel.add(entry, clock.now, clock.now + 2)
    clock.pass_to(6000.0)
    assert len(entry.told) == 1


def test_an_entry_may_add_itself_again_while_it_is_told(clock: Clock) -> None:
    wheel = Wheel(clock)

    class Again(Entry):
        def expire(self) -> None:
            super().expire()
            if len(self.told) < 3:
                wheel.add(self, clock.now, clock.now + 5)

    entry = Again(clock)
    wheel.add(entry, clock.now, clock.now + 5)
    clock.pass_to(2000.0)
    assert [round(moment - 1000) for moment in entry.told] == [5, 10, 15]


def test_a_stopped_wheel_tells_nobody(clock: Clock) -> None:
    wheel, entry = Wheel(clock), Entry(clock)
    wheel.add(entry, clock.now, clock.now + 5)
    wheel.stop()
    clock.pass_to(2000.0)
    assert entry.told == []
    assert clock.waiting == 0


def test_an_alarm_wakes_at_the_moment_that_was_set_last(clock: Clock) -> None:
    wheel, entry = Wheel(clock), Entry(clock)
    alarm = Alarm(wheel, entry)
    alarm.set(clock.now, clock.now + 30)
    alarm.set(clock.now, clock.now + 0.5)
    clock.pass_to(1060.0)
    assert entry.told == [1000.5]
    assert alarm.due == float("inf")
    alarm.set(clock.now, clock.now + 0.5)
    clock.pass_to(1120.0)
    assert entry.told == [1000.5, 1060.5]


@pytest.mark.parametrize("seconds", [0.5, 30.0])
def test_a_dropped_alarm_wakes_nobody_and_leaves_nothing_behind(clock: Clock, seconds: float) -> None:
    wheel, entry = Wheel(clock), Entry(clock)
    alarm = Alarm(wheel, entry)
    alarm.set(clock.now, clock.now + seconds)
    alarm.drop()
    alarm.drop()
    clock.pass_to(1060.0)
    assert entry.told == []
    assert clock.waiting == 0

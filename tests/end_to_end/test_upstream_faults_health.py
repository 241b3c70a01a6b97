"""What providers say with a status, and which deployments rest for it (U14 to U27 of the list of upstream faults)."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.faulty import Client, Setting, own_first, run, setting, settled
from tests.end_to_end.harness import PROVIDER_KEY

LIMITED = (429, "rate_limit_error", "upstream_rate_limited")
OVERLOADED = (503, "server_error", "overloaded")


class Clock:
    """The services' clock, standing still: only the test puts it forward, not a busy machine."""

    def __init__(self) -> None:
        self._start = asyncio.get_running_loop().time()
        self.ahead_seconds = 0.0

    def __call__(self) -> float:
        return self._start + self.ahead_seconds

    @staticmethod
    def of(s: Setting) -> "Clock":
        """Put one into a gateway."""
        clock = s.running.process.services.clock = Clock()
        return clock


async def served_by(s: Setting) -> str:
    """Who answers one request now."""
    answer = await s.ask()
    assert answer.status == 200
    return answer.headers["x-faregate-deployment"]


@own_first
@pytest.mark.parametrize(
    ("fault", "rests"),
    [
        pytest.param("U14:2", (1.7, 2.2), id="U14: seconds"),
        pytest.param("U15:30", (25.0, 31.0), id="U15: a date"),
        pytest.param("U16:250", (0.01, 0.26), id="U16: milliseconds win"),
    ],
)
def test_a_rate_limit_rests_its_deployment_for_as_long_as_it_asks(
    tmp_path: Path, kind: Client, fault: str, rests: tuple[float, float]
) -> None:
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            clock = Clock.of(s)
            s.a.next(fault)
            assert await served_by(s) == "b"
            rest = s.running.process.services.health.rests_for("a", clock())
            assert rests[0] < rest <= rests[1]
            assert await served_by(s) == ("b" if rest > 1 else await served_by(s))
            clock.ahead_seconds += rests[1]
            assert await served_by(s) == "a"
            assert (await s.states())[:2] == [("a", "unbilled", "status_429"), settled("b")]

    run(trial())


def test_a_date_in_the_past_rests_nobody(tmp_path: Path) -> None:  # U15
    async def trial() -> None:
        async with setting(tmp_path) as s:
            s.a.next("U15:-5")
            assert [await served_by(s), await served_by(s)] == ["b", "a"]

    run(trial())


@own_first
def test_a_short_wait_alone_is_waited_for(tmp_path: Path, kind: Client) -> None:  # U16
    async def trial() -> None:
        async with setting(tmp_path, kind=kind, alone=True, retry_wait_seconds=1.0) as s:
            began = asyncio.get_running_loop().time()
            s.a.next("U16:250")
            answer = await s.ask()
            assert (answer.status, answer.attempts) == (200, 2)
            assert asyncio.get_running_loop().time() - began >= 0.25
            assert await s.states() == [("a", "unbilled", "status_429"), settled("a")]

    run(trial())


@pytest.mark.parametrize("value", ["-1", "abc", "1e9", "digits400", "none", "61", "nan", "0.5"])
def test_a_wait_that_makes_no_sense_is_bounded(tmp_path: Path, value: str) -> None:  # U17
    async def trial() -> None:
        async with setting(tmp_path, alone=True) as s:
            s.a.always(f"U17:{value}")
            answer = await s.ask()
            assert answer.error() == LIMITED
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert answer.headers["x-should-retry"] == "false"
            assert set(await s.states()) == {("a", "unbilled", "status_429")}
            assert s.running.process.services.health.rests_for("a", 0.0) > 0

    run(trial())


@own_first
def test_when_everybody_is_limited_the_shortest_wait_is_told(tmp_path: Path, kind: Client) -> None:  # U18
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            Clock.of(s)
            s.a.next("U18:20")
            s.b.next("U18:30")
            answer = await s.ask()
            assert answer.error() == LIMITED
            assert (answer.headers["retry-after"], answer.headers["retry-after-ms"]) == ("20", "20000")
            assert await s.states() == [("a", "unbilled", "status_429"), ("b", "unbilled", "status_429")]
            # While both rest one request a second still asks; the others hear the same at once.
            s.b.always("U18:30")
            s.a.always("U18:20")
            for _ in range(4):
                assert (await s.ask()).error() == LIMITED
            assert len(s.a.seen) + len(s.b.seen) <= 4

    run(trial())


@own_first
def test_a_quota_that_is_gone_rests_long_and_alerts(tmp_path: Path, kind: Client) -> None:  # U19
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            clock = Clock.of(s)
            s.a.always("U19")
            assert await served_by(s) == "b"
            assert s.metric("faregate_alerts_total") == 1
            clock.ahead_seconds = 290
            assert await served_by(s) == "b"
            alone = await s.ask(model="a")
            assert (alone.status, alone.json()["error"]["code"]) == (429, "insufficient_quota")
            assert "retry-after" not in alone.headers
            assert alone.headers["x-should-retry"] == "false"
            s.a.always(None)
            clock.ahead_seconds = 700
            assert await served_by(s) == "a"

    run(trial())


def test_of_two_rests_the_later_end_counts(tmp_path: Path) -> None:  # U20
    async def trial() -> None:
        async with setting(tmp_path) as s:
            clock = Clock.of(s)
            s.a.next("late_head")
            s.a.next("U20:30")
            first = asyncio.ensure_future(s.ask())
            while not s.a.seen:
                await asyncio.sleep(0)
            assert await served_by(s) == "b"
            s.a.release()
            assert (await first).headers["x-faregate-deployment"] == "a"  # late news change nothing
            health = s.running.process.services.health
            health.note("a", "rests", clock(), rest_seconds=5)
            assert health.rests_for("a", clock()) > 29

    run(trial())


@own_first
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [500, 502, 503, 529, 408])
def test_a_server_error_moves_to_the_next_deployment(
    tmp_path: Path, kind: Client, stream: bool, status: int
) -> None:  # U21
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            s.a.next(f"U21:{status}")
            answer = await s.ask(stream=stream)
            assert (answer.status, answer.whole, answer.attempts) == (200, True, 2)
            assert await s.states() == [("a", "unbilled", f"status_{status}"), settled("b")]

    run(trial())


@own_first
@pytest.mark.parametrize("status", [500, 502, 503, 529])
def test_a_server_error_alone_is_tried_three_times_with_growing_gaps(
    tmp_path: Path, kind: Client, status: int
) -> None:  # U22
    async def trial() -> None:
        async with setting(tmp_path, kind=kind, alone=True, retry_base_seconds=0.04) as s:
            s.a.always(f"U22:{status}")
            answer = await s.ask()
            code, type_, _ = answer.error()
            assert (code, type_) == (status, "upstream_error")
            assert answer.json()["error"]["message"].startswith(f"Fake failure {status} for")
            assert "org-canary" not in answer.body.decode()
            assert answer.headers["x-should-retry"] == "false"
            assert answer.headers["x-upstream-request-id"] == "req_fake"
            assert len(await s.attempts()) == len(s.a.seen) == answer.attempts == 3
            first, second, third = [one.at_seconds for one in s.a.seen]
            assert second - first > 0.015
            assert 0.035 < third - second != second - first
            assert (await s.request_row())["error"] == "upstream_error"

    run(trial())


@own_first
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_what_is_the_clients_fault_is_told_and_never_repeated(
    tmp_path: Path, kind: Client, stream: bool, status: int
) -> None:  # U23
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            for _ in range(6):
                s.a.next(f"U23:{status}")
                answer = await s.ask(stream=stream)
                assert answer.error() == (status, "invalid_request_error", f"fake_{status}")
                said = answer.json()["error"]["message"]
                assert "org-canary" not in said
                assert PROVIDER_KEY[:8] not in said
                assert answer.attempts == 1
            assert len(s.a.seen) == 6
            assert s.b.seen == []
            assert set(await s.states()) == {("a", "unbilled", f"status_{status}")}
            assert await served_by(s) == "a"  # its health is as it was

    run(trial())


@own_first
@pytest.mark.parametrize("larger", [True, False])
def test_a_prompt_too_long_moves_once_to_a_larger_window(
    tmp_path: Path, kind: Client, larger: bool
) -> None:  # U23
    async def trial() -> None:
        windows = {"a": "context_tokens = 8000", "b": f"context_tokens = {16000 if larger else 8000}"}
        async with setting(tmp_path, kind=kind, deployment_lines=windows) as s:
            s.a.next("context_length")
            answer = await s.ask()
            if larger:
                assert answer.headers["x-faregate-deployment"] == "b"
            else:
                assert answer.error() == (400, "invalid_request_error", "context_length_exceeded")
                assert s.b.seen == []

    run(trial())


@own_first
@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_refused_rests_its_deployment(tmp_path: Path, kind: Client, status: int) -> None:  # U24
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            s.a.always(f"U24:{status}")
            answers = [await s.ask() for _ in range(50)]
            assert [one.status for one in answers] == [200] * 50
            assert len(s.a.seen) == 1
            assert s.metric("faregate_alerts_total") == 1
            assert (await s.states())[0] == ("a", "unbilled", f"status_{status}")
            for _ in range(5):
                alone = await s.ask(model="a")
                assert alone.error() == (502, "upstream_error", "upstream_error")
                assert alone.headers["x-should-retry"] == "false"

    run(trial())


def test_a_refused_key_met_by_many_at_once_is_no_error_for_any(tmp_path: Path) -> None:  # U24
    async def trial() -> None:
        async with setting(tmp_path) as s:
            s.a.always("U24:401")
            answers = await asyncio.gather(*(s.ask() for _ in range(50)))
            assert [one.status for one in answers] == [200] * 50

    run(trial())


def test_one_failure_of_one_request_ejects_nobody(tmp_path: Path) -> None:  # U25
    async def trial() -> None:
        async with setting(tmp_path) as s:
            s.a.next("U21:500")
            assert [await served_by(s), await served_by(s)] == ["b", "a"]

    run(trial())


async def _eject_both(s: Setting) -> None:
    s.a.always("status:500")
    s.b.always("status:500")
    health, clock = s.running.process.services.health, s.running.process.services.clock
    for name in ("a", "b"):
        for _ in range(5):
            health.note(name, "failed", clock())
        assert health.is_open(name, clock())


@pytest.mark.parametrize("heals", [True, False])
def test_where_all_are_ejected_one_request_probes(tmp_path: Path, heals: bool) -> None:  # U26
    async def trial() -> None:
        async with setting(tmp_path) as s:
            clock = Clock.of(s)
            await _eject_both(s)
            if heals:
                s.a.always(None)
                assert await served_by(s) == "a"
                assert await s.states() == [settled("a")]
                return
            answer = await s.ask()
            assert answer.error() == OVERLOADED
            assert int(answer.headers["retry-after"]) >= 1
            assert await s.states() == [("a", "unbilled", "status_500")]
            # Of all that come now each deployment is asked at most once a second.
            for _ in range(5):
                assert (await s.ask()).error() == OVERLOADED
            assert len(s.a.seen) + len(s.b.seen) <= 2
            clock.ahead_seconds += 1.1
            s.a.always(None)
            s.b.always(None)
            assert (await s.ask()).status == 200

    run(trial())


def test_a_deployment_that_fails_and_heals_costs_no_client_an_error(tmp_path: Path) -> None:  # U27
    async def trial() -> None:
        async with setting(tmp_path) as s:
            clock = Clock.of(s)
            step = 0.2  # five requests a second
            for _ in range(50):
                assert await served_by(s) == "a"
                clock.ahead_seconds += step
            s.a.always("status:500")
            before = len(s.a.seen)
            for _ in range(300):  # a minute
                assert await served_by(s) == "b"
                clock.ahead_seconds += step
            assert len(s.a.seen) - before < 60
            s.a.always(None)
            waited = 0.0
            while await served_by(s) != "a":
                clock.ahead_seconds += step
                waited += step
            assert waited <= 15
            assert await served_by(s) == "a"

    run(trial(), within_seconds=40)


def test_when_everything_fails_the_providers_see_hardly_more_than_the_clients_ask(tmp_path: Path) -> None:
    async def trial() -> None:  # limit 8
        async with setting(tmp_path) as s:
            clock = Clock.of(s)
            s.a.always("status:500")
            s.b.always("status:500")
            for _ in range(100):
                answer = await s.ask()
                assert answer.status in (500, 503)
                clock.ahead_seconds += 0.01
            assert len(s.a.seen) + len(s.b.seen) <= 120

    run(trial(), within_seconds=40)


def test_a_client_that_waits_for_another_try_and_leaves_is_not_tried_for(tmp_path: Path) -> None:
    async def trial() -> None:  # compat K2
        async with setting(tmp_path, alone=True, retry_base_seconds=30) as s:
            s.a.always("status:500")
            asking = asyncio.ensure_future(s.ask())
            await _until(lambda: len(s.a.seen) == 1 and s.a.seen[0].over)
            await _until(lambda: bool(s.running.process.services.retries._unwell))  # pyright: ignore[reportPrivateUsage]
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await _until(lambda: not s.running.recorder.stats().open)
            assert await s.states() == [("a", "unbilled", "status_500")]
            assert (await s.request_row())["state"] == "cancelled"

    run(trial())


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.002)

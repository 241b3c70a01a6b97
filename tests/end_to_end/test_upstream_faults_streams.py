"""Faults of streams, odd spellings and counts, and clients that leave (U12 to U53 of the upstream faults)."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.relay import COMMENT
from tests.end_to_end.faulty import Client, Setting, both_clients, own_first, run, setting, settled
from tests.fakes.provider import Pace
from tests.patience import in_time

INTERRUPTED = ("upstream_error", "stream_interrupted")
INVALID = ("upstream_error", "upstream_invalid_response")
TIMEOUT = ("upstream_error", "upstream_timeout")


def _break(s: Setting) -> None:
    """Reset every connection of A's."""
    for one in list(s.a._open):  # pyright: ignore[reportPrivateUsage]
        one.abort()


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that has no event."""
    while not holds():
        await asyncio.sleep(0.002)


BREAKS: Sequence[Any] = [
    pytest.param("U12:3", INTERRUPTED, 3, id="U12: reset"),
    pytest.param("close_in_stream:3", INTERRUPTED, 3, id="U12: closed without the last chunk"),
    pytest.param("U30:5", TIMEOUT, 5, id="U30: stalled"),
    pytest.param("U32", INTERRUPTED, 8, id="U32: no finish"),
    pytest.param("U32:close", INTERRUPTED, 8, id="U32: no finish, framed by the connection"),
    pytest.param("U38:2", INVALID, 2, id="U38: not JSON"),
    pytest.param("U43:3000000", INVALID, 1, id="U43: a line without end"),
    pytest.param("error_in_stream:2", ("upstream_error", "upstream_error"), 2, id="an error event"),
    pytest.param("bad_chunk", INVALID, 1, id="a chunk that is none"),
]


@both_clients
@pytest.mark.parametrize(("fault", "error", "events"), BREAKS)
def test_a_stream_that_breaks_ends_as_broken_and_nobody_else_is_asked(
    tmp_path: Path, kind: Client, fault: str, error: tuple[str, str], events: int
) -> None:
    async def trial() -> None:
        lines = "idle_seconds = 0.3" if error == TIMEOUT else ""
        async with setting(tmp_path, kind=kind, lines=lines) as s:
            s.a.next(fault)
            answer = await s.ask(stream=True)
            if fault == "bad_chunk" and kind == "httpx":
                assert answer.stream_error()[0] == "upstream_error"
            else:
                assert answer.stream_error() == error
            assert answer.attempts == 1
            assert s.b.seen == []
            ((_, state, failure),) = await s.states()
            assert state == "estimated"
            assert failure == answer.stream_error()[1]
            (row,) = await s.attempts()
            assert row["output_text"] == -(-len(answer.text().encode()) // 4) > 0
            assert sum(bool(e["choices"][0]["delta"].get("content")) for e in answer.events[1:-1]) == events
            request = await s.request_row()
            assert (request["state"], request["status"]) == ("failed", 200)
            await s.a.over(s.a.seen[0].tag)
            assert "canary" not in repr(await s.log())

    run(trial())


@own_first
def test_an_endless_drip_after_the_first_content_ends_at_the_total_limit(
    tmp_path: Path, kind: Client
) -> None:  # U31
    async def trial() -> None:
        pace = Pace(drip_seconds=0.0003)
        async with setting(tmp_path, kind=kind, tier="total_seconds = 1", pace=pace) as s:
            s.a.next("U31")
            answer = await s.ask(stream=True)
            assert answer.stream_error() == TIMEOUT
            assert (await s.states())[0][1] == "estimated"
            await s.a.closed(s.a.seen[0].tag)

    run(trial())


@both_clients
@pytest.mark.parametrize("fails", [False, True])
def test_a_slow_first_token_is_kept_alive_by_comments_and_commits_the_status(
    tmp_path: Path, kind: Client, fails: bool
) -> None:  # U29
    async def trial() -> None:
        async with setting(tmp_path, kind=kind, tier="first_token_seconds = 31") as s:
            s.running.process.services.keep_alive_seconds = 0.02
            s.a.next("U29")
            got = bytearray()
            waiting = True
            body = {"model": "standard", "messages": [{"role": "user", "content": "x"}], "stream": True}
            async with s.http.stream("POST", "/v1/chat/completions", json=body) as response:
                assert response.status_code == 200
                try:
                    async for piece in response.aiter_raw():
                        got += piece
                        if waiting and got.startswith(COMMENT * 2):
                            waiting = False
                            if fails:
                                _break(s)
                            else:
                                s.a.release()
                except Exception:
                    assert fails
            assert got.startswith(COMMENT * 2)
            if fails:
                assert b'"upstream_invalid_response"' in got
                assert b"[DONE]" not in got
                assert s.b.seen == []
                assert await s.states() == [("a", "estimated", "reset")]
                request = await s.request_row()
                assert (request["state"], request["status"]) == ("failed", 200)
            else:
                assert got.endswith(b"data: [DONE]\n\n")
                assert await s.states() == [settled("a")]

    run(trial())


@own_first
def test_a_stream_without_its_usage_is_estimated_and_ends_well(tmp_path: Path, kind: Client) -> None:  # U33
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            for stream in (True, False):
                s.a.next("U33")
                answer = await s.ask(stream=stream)
                assert answer.whole
            rows = await s.attempts()
            for row in rows:
                assert (row["state"], row["failure"], row["usage_source"]) == ("estimated", None, "estimated")
                assert "estimated_output" in row["flags"]
                assert row["output_text"] > 0
            assert s.metric("faregate_usage_source_total") == 2

    run(trial())


GOOD_STREAMS = [
    *(f"U34:{order}" for order in ("after_done", "twice", "lower")),
    *(
        f"U36:{how}"
        for how in ["no_space", "crlf", "cr", "bom", "comments", "event_lines", "ids", "multi_line"]
    ),
    "U37:every",
    "U47",
    *(f"U50:{shape}" for shape in ("tool_calls", "refusal", "logprobs", "reasoning_text")),
    "U52",
    "growing_usage",
    "empty_choices",
    "connection_close",
    "reasoning:7",
]


@own_first
def test_odd_but_good_streams_pass_through_and_settle(tmp_path: Path, kind: Client) -> None:
    async def trial() -> None:  # U34 to U37, U47, U50, U52
        async with setting(tmp_path, kind=kind) as s:
            for fault in GOOD_STREAMS:
                for wants in (False, True):
                    s.a.next(fault)
                    more: dict[str, Any] = {"stream_options": {"include_usage": True}} if wants else {}
                    answer = await s.ask(stream=True, **more)
                    assert (fault, answer.status, answer.whole) == (fault, 200, True)
                    assert s.a.seen[-1].json()["stream_options"]["include_usage"] is True  # U35
                    usages = [e for e in answer.events if e != "[DONE]" and e.get("usage")]
                    only = [e for e in usages if not e["choices"]]
                    assert (fault, bool(only)) == (fault, wants)
                    if fault not in ("U34:after_done",):
                        assert answer.events[-1] == "[DONE]"
            rows = await s.attempts()
            assert [row["state"] for row in rows] == ["settled"] * 2 * len(GOOD_STREAMS)
            assert {row["failure"] for row in rows} == {None}

    run(trial(), within_seconds=40)


@own_first
def test_a_stream_cut_anywhere_is_the_same_text(tmp_path: Path, kind: Client) -> None:  # U37
    async def trial() -> None:
        async with setting(tmp_path, kind=kind, answer_tokens=7) as s:
            whole = await s.ask(stream=True)
            assert "🙂" in whole.text() or "日本" in whole.text() or "ï" in whole.text()
            cuts = [n for n, byte in enumerate(whole.body) if byte > 127 or whole.body[n : n + 1] == b"\n"]
            for at in cuts[:60]:
                s.a.next(f"U37:{at}")
                assert (await s.ask(stream=True)).body == whole.body
            assert {state for _, state, _ in await s.states()} == {"settled"}

    run(trial(), within_seconds=40)


@both_clients
def test_only_headers_on_the_list_reach_the_client(tmp_path: Path, kind: Client) -> None:  # U47
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            for stream in (False, True):
                s.a.next("U47")
                answer = await s.ask(stream=stream)
                names = set(answer.headers)
                assert {"openai-processing-ms", "x-ratelimit-remaining-requests"} <= names
                assert not names & {
                    "x-a",
                    "keep-alive",
                    "set-cookie",
                    "server",
                    "x-internal",
                    "proxy-authenticate",
                    "openai-organization",
                }
            assert {state for _, state, _ in await s.states()} == {"settled"}

    run(trial())


ODD_COUNTS = {
    "negative": ("estimated", "invalid_count"),
    "float": ("settled", "coerced"),
    "string": ("settled", "coerced"),
    "null": ("estimated", "estimated_input"),
    "huge": (None, None),
    "cached_over": ("settled", "clamped"),
    "mismatch": ("settled", "totals_mismatch"),
    "bool": ("estimated", "invalid_count"),
    "list": ("estimated", "estimated_input"),
}


@own_first
def test_counts_that_cannot_be_are_flagged_and_never_touch_the_answer(tmp_path: Path, kind: Client) -> None:
    async def trial() -> None:  # U48
        async with setting(tmp_path, kind=kind) as s:
            for odd, (state, flag) in ODD_COUNTS.items():
                for stream in (False, True):
                    s.a.next(f"U48:{odd}")
                    answer = await s.ask(stream=stream)
                    assert (odd, answer.status, answer.whole) == (odd, 200, True)
                    row = (await s.attempts())[-1]
                    assert row["cost_pico_usd"] >= 0
                    assert min(row["input_uncached"], row["input_cached"], row["output_text"]) >= 0
                    if state is None:  # beyond what any answer can be: not a count, and not a bill
                        assert row["state"] == "estimated"
                    else:
                        assert (odd, row["state"]) == (odd, state)
                        assert flag in row["flags"]

    run(trial(), within_seconds=40)


@own_first
def test_both_names_of_an_answer_by_another_model_are_kept(tmp_path: Path, kind: Client) -> None:  # U49
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            for stream in (False, True):
                s.a.next("U49:another-model")
                answer = await s.ask(stream=stream)
                assert answer.headers["x-faregate-model"] == "another-model"
            for row in await s.attempts():
                assert (row["model_called"], row["model_answered"]) == ("model-a", "another-model")
                assert row["state"] == "settled"

    run(trial())


def test_a_slow_answer_is_waited_for_and_never_asked_twice(tmp_path: Path) -> None:  # U53
    async def trial() -> None:
        async with setting(tmp_path, pace=Pace(first_token_seconds=0.005)) as s:
            for n in range(40):
                if n % 10 == 0:
                    s.a.next("U53")
            answers = await asyncio.gather(*(s.ask() for _ in range(40)))
            assert {answer.attempts for answer in answers} == {1}
            assert len(s.a.seen) == 40
            assert s.b.seen == []

    run(trial())


@pytest.mark.slow
def test_an_endless_line_grows_no_memory(tmp_path: Path) -> None:  # U43
    async def trial() -> None:
        async with setting(tmp_path) as s:
            await s.ask(stream=True)
            gc.collect()
            tracemalloc.start()
            s.a.next("U43")
            assert (await s.ask(stream=True)).stream_error() == INVALID
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 8 << 20

    run(trial(), within_seconds=60)


# ── the client goes away ──


@both_clients
@pytest.mark.parametrize(
    ("fault", "stream", "events"),
    [
        pytest.param("late_head", False, 0, id="whole, before the head"),
        pytest.param("late_head", True, 0, id="streaming, before the head"),
        pytest.param("late_token", True, 1, id="streaming, before the first token"),
        pytest.param("stall:3", True, 4, id="streaming, in the middle"),
    ],
)
def test_a_client_that_leaves_takes_its_upstream_along(
    tmp_path: Path, kind: Client, fault: str, stream: bool, events: int
) -> None:
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            s.a.always(fault)
            asking = asyncio.ensure_future(s.ask(stream=stream, user="left"))
            await s.a.sent("left", events=events) if events else await s.a.request("left")
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await in_time(s.a.closed("left"), 1.0)
            await until(lambda: not s.running.recorder.stats().open)
            ((_, state, failure),) = await s.states()
            assert (state, failure) == ("estimated", "client_left")
            request = await s.request_row()
            assert (request["state"], request["error"]) == ("cancelled", "client_left")
            assert s.b.seen == []

    run(trial())


@both_clients
@pytest.mark.parametrize("stream", [False, True])
def test_where_the_provider_is_to_be_drained_its_answer_is_read_on_to_the_usage(
    tmp_path: Path, kind: Client, stream: bool
) -> None:
    async def trial() -> None:
        async with setting(tmp_path, kind=kind, lines='on_disconnect = "drain"') as s:
            s.a.always("stall:3" if stream else "late_head")
            asking = asyncio.ensure_future(s.ask(stream=stream, user="left"))
            await s.a.sent("left", events=4) if stream else await s.a.request("left")
            if stream:
                await until(lambda: s.running.process.services.health._circuits != {})  # pyright: ignore[reportPrivateUsage]
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await until(lambda: not s.running.listener.connections)  # it saw the client go
            s.a.release()
            await until(lambda: not s.running.recorder.stats().open)
            assert await s.states() == [settled("a")]
            assert (await s.request_row())["state"] == "cancelled"

    run(trial())


@own_first
def test_cancelled_requests_leave_the_connections_usable(tmp_path: Path, kind: Client) -> None:
    async def trial() -> None:
        async with setting(tmp_path, kind=kind, lines="max_connections = 2") as s:
            for n in range(12):
                s.a.next("stall:1")
                asking = asyncio.ensure_future(s.ask(stream=True, user=f"n{n}"))
                await s.a.sent(f"n{n}", events=2)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                await until(lambda: not s.running.recorder.stats().open)
            assert (await s.ask()).attempts == 1
            await s.a.no_open_requests()

    run(trial())


@both_clients
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_outlasts_the_drain_time_says_so(tmp_path: Path, kind: Client, stream: bool) -> None:
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            s.a.always("stall:3" if stream else "late_head")
            asking = asyncio.ensure_future(s.ask(stream=stream, user="slow"))
            await s.a.sent("slow", events=4) if stream else await s.a.request("slow")
            await until(lambda: not stream or bool(s.running.process.services.health._circuits))  # pyright: ignore[reportPrivateUsage]
            _drain(s)
            answer = await asking
            if stream:
                assert answer.stream_error() == ("server_error", "draining")
            else:
                assert answer.error() == (503, "server_error", "draining")
            ((_, state, failure),) = await s.states()
            assert (state, failure) == ("estimated", "draining")

    run(trial())


def _drain(s: Setting) -> None:
    """What the listener tells the running answer when the drain time is over."""
    (running,) = [wire.running for wire in s.running.listener.connections if wire.is_busy]
    assert running is not None
    assert running.drain_over is not None
    running.drain_over()

"""What clients do wrong, and what must come of it: the answer, the rows, what is held, what the provider saw.

The entries' numbers are those of the project's list of faults, "client faults".
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway import flow
from gateway.serving import ServingLimits
from gateway.shared_state import Admission, Demand, Refusal
from gateway.upstream.httpx_client import HttpxUpstream
from gateway.upstream.own import OwnUpstream
from gateway.wire import endpoints
from gateway.wire.openai_chat import ChatRequest, read_request
from tests.end_to_end.faulty import CANARY_PROMPT, Client, Setting, both_clients, own_first, run, setting
from tests.end_to_end.raw import CHAT, RawClient, chat_body, raw_client, request
from tests.patience import in_time

WITHIN_SECONDS = 1.0  # from a client's leaving to the end of the upstream call
BUDGET = """
[[budgets]]
name = "all"
limit_usd = 100.00
per = "month"
"""


async def upstream_ends(made: Setting, tag: str) -> None:
    """The provider sees its caller go in time."""
    await in_time(made.a.over(tag), WITHIN_SECONDS)


async def books_close(made: Setting) -> None:
    """Every request that was let in is closed."""
    while made.running.recorder.stats().open:
        await asyncio.sleep(0)


async def assert_cancelled(
    made: Setting, *, status: int, state: str, output: bool, failure: str | None = "client_left"
) -> dict[str, Any]:
    """One cancelled request with one attempt, nothing held; the attempt's row."""
    (row,) = await made.running.rows("request")
    assert (row["state"], row["status"], row["error"]) == ("cancelled", status, "client_left")
    (attempt,) = await made.attempts()
    assert (attempt["state"], attempt["failure"]) == (state, failure)
    assert (attempt["output_text"] > 0) is output
    if state != "unbilled":
        assert attempt["cost_pico_usd"] > 0
    assert_nothing_is_held(made)
    return attempt


def assert_nothing_is_held(made: Setting) -> None:
    state = made.running.process.state
    assert state.open_admissions == 0
    assert [standing.held for standing in state.standings(time.time())] in ([], [0])


def in_use(made: Setting) -> int:
    """Connections to provider a that a request holds."""
    upstream = made.running.process.services.live.targets["a"].upstream
    if isinstance(upstream, OwnUpstream):
        return upstream.standing().in_use
    assert isinstance(upstream, HttpxUpstream)
    return upstream.in_use


async def assert_serves(made: Setting) -> None:
    """The next request is answered as if nothing had happened."""
    answer = await made.ask(user="afterwards")
    assert (answer.status, answer.attempts) == (200, 1)


# ── clients that leave ──


@both_clients
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_before_the_headers_ends_the_upstream_call(  # C1, C4
    tmp_path: Path, kind: Client, stream: bool
) -> None:
    async def work() -> None:
        async with setting(tmp_path, kind=kind, more=BUDGET) as made:
            async with raw_client(made.running) as client:
                client.chat(chat_body("C1", fault="late_head", stream=stream))
                await made.a.request("C1")
                client.leave()
                await upstream_ends(made, "C1")
            attempt = await assert_cancelled(made, status=499, state="estimated", output=False)
            assert attempt["input_uncached"] > 0
            metrics = made.running.process.metrics.render().decode()
            assert 'outcome="cancelled",route="asked for by name",status_class="4xx"' in metrics
            assert made.b.seen == []
            await assert_serves(made)

    run(work())


def test_a_client_that_leaves_while_its_limits_are_asked_for_elsewhere_costs_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with setting(tmp_path, more=BUDGET) as made:
            state, listener = made.running.process.state, made.running.listener
            admit, asked, gone = state.admit, asyncio.Event(), asyncio.Event()

            async def slowly(demand: Demand, now: float) -> Admission | Refusal:
                asked.set()
                await gone.wait()
                answer = admit(demand, now)
                assert isinstance(answer, Admission)
                return answer

            state.admit = slowly  # type: ignore[method-assign]
            async with raw_client(made.running) as client:
                client.chat(chat_body("C1"))
                await asked.wait()
                client.leave()
                while listener.connections:
                    await asyncio.sleep(0)
            gone.set()
            state.admit = admit  # type: ignore[method-assign]
            await assert_serves(made)
            assert [seen.tag for seen in made.a.seen] == ["afterwards"]
            left, _ = await made.running.rows("request")
            assert (left["state"], left["status"], left["error"]) == ("cancelled", 499, "client_left")
            assert (left["attempts"], left["cost_pico_usd"]) == (0, 0)
            assert_nothing_is_held(made)

    run(work())


@own_first
def test_a_client_that_leaves_between_two_comments_ends_the_upstream_call(
    tmp_path: Path, kind: Client
) -> None:
    async def work() -> None:
        async with setting(tmp_path, kind=kind, tier="first_token_seconds = 60", more=BUDGET) as made:
            made.running.process.services.keep_alive_seconds = 0.01
            async with raw_client(made.running) as client:
                client.chat(chat_body("C1", fault="late_token", stream=True))
                await client.until(b": still waiting", times=2)
                client.leave()
                await upstream_ends(made, "C1")
            await assert_cancelled(made, status=200, state="estimated", output=False)
            await assert_serves(made)

    run(work())


@both_clients
def test_a_client_that_leaves_in_a_stream_ends_it_upstream(tmp_path: Path, kind: Client) -> None:  # C2, C3
    async def work() -> None:
        async with setting(tmp_path, kind=kind, answer_tokens=20, more=BUDGET) as made:
            async with raw_client(made.running) as client:
                client.chat(chat_body("C2", fault="stall:10", stream=True))
                await client.until(b'"content":', times=11)  # the role event has one too
                client.leave()  # the provider is silent now
                await upstream_ends(made, "C2")
            attempt = await assert_cancelled(made, status=200, state="estimated", output=True)
            assert attempt["output_low"] <= 10 * 4
            assert attempt["output_high"] == 64
            await assert_serves(made)

    run(work())


@own_first
@pytest.mark.parametrize("stream", [True, False])
def test_a_provider_that_is_drained_is_read_on_to_its_usage(  # C2, C4
    tmp_path: Path, kind: Client, stream: bool
) -> None:
    async def work() -> None:
        async with setting(tmp_path, kind=kind, lines='on_disconnect = "drain"', more=BUDGET) as made:
            async with raw_client(made.running) as client:
                client.chat(chat_body("C2", fault="stall:2" if stream else "late_head", stream=stream))
                if stream:
                    await client.until(b'"content":', times=3)
                else:
                    await made.a.request("C2")
                client.half_close()
                await client.rest()  # it saw the client go, and closed
                assert made.a.requests("C2")[0].over is False
                made.a.release()
                await upstream_ends(made, "C2")
            await assert_cancelled(
                made, status=200 if stream else 499, state="settled", output=True, failure=None
            )
            await assert_serves(made)

    run(work())


@own_first
@pytest.mark.parametrize("leave", [RawClient.leave, RawClient.reset, RawClient.half_close])
def test_every_way_of_leaving_counts_as_having_left(  # C5, C6: a half-closed connection counts as left
    tmp_path: Path, kind: Client, leave: Callable[[RawClient], None]
) -> None:
    async def work() -> None:
        async with setting(tmp_path, kind=kind, more=BUDGET) as made:
            async with raw_client(made.running) as client:
                client.chat(chat_body("C5", fault="stall:2", stream=True))
                await client.until(b'"content":', times=3)
                leave(client)
                await upstream_ends(made, "C5")
                if leave is RawClient.half_close:
                    assert b"[DONE]" not in await client.rest()
            await assert_cancelled(made, status=200, state="estimated", output=True)

    run(work())


def test_a_client_that_vanished_is_found_by_the_write_limit(tmp_path: Path) -> None:  # C5, C7
    async def work() -> None:
        limits = ServingLimits(write_seconds=0.1)
        async with setting(tmp_path, more=BUDGET, limits=limits) as made:
            async with raw_client(made.running, receive_buffer=4096) as client:
                client.writer.transport.pause_reading()  # type: ignore[attr-defined]
                client.chat(chat_body("C5", fault="flood:30000000", stream=True))
                await made.a.over("C5")
                assert made.a.requests("C5")[0].bytes_sent < 20_000_000
            await assert_cancelled(made, status=200, state="estimated", output=True)

    run(work())


def test_a_client_that_vanished_is_found_by_the_total_limit(tmp_path: Path) -> None:  # C5
    async def work() -> None:
        async with setting(tmp_path, more=BUDGET, tier="total_seconds = 0.2") as made:
            async with raw_client(made.running) as client:
                client.chat(chat_body("C5", fault="stall:2", stream=True))
                await made.a.over("C5")
                await client.rest()
            (row,) = await made.running.rows("request")
            assert (row["state"], row["error"]) == ("failed", "upstream_timeout")
            (attempt,) = await made.attempts()
            assert attempt["state"] == "estimated"
            assert_nothing_is_held(made)

    run(work())


def test_slow_readers_get_their_whole_stream_and_hold_up_nobody(tmp_path: Path) -> None:  # C7, C8
    async def work() -> None:
        async with setting(tmp_path, more=BUDGET) as made:
            size = 8_000_000

            async def slow(n: int, may_read: asyncio.Event) -> bytes:
                async with raw_client(made.running, receive_buffer=4096) as client:
                    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
                    client.chat(chat_body(f"slow{n}", fault=f"flood:{size}", stream=True))
                    await may_read.wait()
                    client.writer.transport.resume_reading()  # type: ignore[attr-defined]
                    got, last = 0, b""
                    while not last.endswith(b"0\r\n\r\n"):
                        piece = await client.reader.read(1 << 20)
                        assert piece
                        got += len(piece)
                        last = (last + piece)[-64:]
                    assert got > size
                    return last

            may_read = asyncio.Event()
            readers = [asyncio.create_task(slow(n, may_read)) for n in range(3)]
            for n in range(3):
                await made.a.sent(f"slow{n}", events=3)
            for _ in range(10):
                await assert_serves(made)
            assert [made.a.requests(f"slow{n}")[0].done for n in range(3)] == [False] * 3
            may_read.set()
            assert all(b"data: [DONE]" in last for last in await asyncio.gather(*readers))
            states = [row["state"] for row in await made.running.rows("request")]
            assert states == ["answered"] * 13
            assert_nothing_is_held(made)

    run(work())


# ── clients that come slowly or not at all ──


def test_drips_and_silence_are_ended_while_others_are_served(tmp_path: Path) -> None:  # C9, C10, C11, C30
    async def work() -> None:
        limits = ServingLimits(head_seconds=0.25, body_idle_seconds=0.25)
        async with setting(tmp_path, limits=limits) as made, raw_client(made.running) as other:
            # Whoever is served has a connection already and says its request in one piece, and a drip says all
            # it says before it is taken: then none of them is late because the machine is.
            other.chat(chat_body("before"))
            assert (await other.answer()).status == 200
            body = chat_body("never")
            whole = request(body, key=made.running.key)
            head = whole[: len(whole) - len(body)]
            waits = head.replace(b"host:", b"expect: 100-continue\r\nhost:")

            async def drip(words: bytes) -> bytes:
                async with raw_client(made.running, first=words) as client:
                    return await client.rest()

            kinds = [b"", head[:30], head + body[:10], waits]
            drips = [asyncio.create_task(drip(words)) for words in kinds * 10]
            other.chat(chat_body("beside"))
            assert (await other.answer()).status == 200
            nothing, *answers = (await asyncio.gather(*drips))[:4]
            assert nothing == b""
            for answer in answers:
                assert b"HTTP/1.1 408 " in answer
                assert b'"request_timeout"' in answer
            assert [one.tag for one in made.a.seen] == ["before", "beside"]
            assert len(await made.running.rows("request")) == 2

    run(work())


def test_more_connections_than_the_cap_are_told_so(tmp_path: Path) -> None:  # C11
    async def work() -> None:
        async with setting(tmp_path, limits=ServingLimits(max_connections=2)) as made:
            async with raw_client(made.running) as one, raw_client(made.running) as two:
                for client in (one, two):
                    client.chat(b"", path="/", method="GET")
                    assert (await client.answer()).status == 200
                async with raw_client(made.running) as three:
                    assert b"HTTP/1.1 503 " in await three.rest()
            assert await made.running.rows("request") == []

    run(work())


# ── too much ──


@pytest.mark.parametrize(("words", "beside"), [(10, False), (100_000, True)])
def test_a_large_body_is_read_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: int, beside: bool
) -> None:
    threads: list[threading.Thread] = []

    def reading(body: bytes) -> ChatRequest:
        threads.append(threading.current_thread())
        return read_request(body)

    async def work() -> None:
        async with setting(tmp_path) as made:
            answer = await made.ask(messages=[{"role": "user", "content": "a word, " * words}])
            assert answer.status == 200

    monkeypatch.setattr(flow, "ENDPOINTS", {endpoints.CHAT.path: replace(endpoints.CHAT, read=reading)})
    run(work())
    assert [thread is not threading.main_thread() for thread in threads] == [beside]


def test_a_body_over_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:  # C12
    async def work() -> None:
        async with setting(tmp_path, limits=ServingLimits(max_body=10_000)) as made:
            key = made.running.key
            head = request(b"", key=key)
            bodies = {
                "limit + 1": request(b"x" * 10_001, key=key),
                "10^18": head.replace(b"content-length: 0", b"content-length: 1000000000000000000"),
                "no end": head.replace(b"content-length: 0", b"transfer-encoding: chunked")
                + b"1000\r\n"
                + b"x" * 4096
                + b"\r\n1000\r\n"
                + b"x" * 4096
                + b"\r\n1000\r\n"
                + b"x" * 4096,
            }
            for name, words in bodies.items():
                async with raw_client(made.running) as client:
                    client.say(words)
                    answer = await client.answer()
                    assert answer.error() == (413, "invalid_request_error", "request_too_large"), name
                    assert answer.headers["connection"] == "close"
                    client.half_close()
                    assert await client.rest() == b""
            fits = chat_body("fits", note="x" * 9_000)
            async with raw_client(made.running) as client:
                client.chat(fits + b" " * (10_000 - len(fits)))
                assert (await client.answer()).status == 200
            assert [one.tag for one in made.a.seen] == ["fits"]

    run(work())


def test_a_head_over_its_limits_is_refused(tmp_path: Path) -> None:  # C13
    async def work() -> None:
        async with setting(tmp_path) as made:
            heads: dict[str, tuple[int, str, list[str]]] = {
                "64 KiB": (431, CHAT, [f"x-{n}: {'x' * 6_000}" for n in range(11)]),
                "101 lines": (431, CHAT, [f"x-{n}: 1" for n in range(98)]),
                "URL": (414, "/v1/" + "x" * 100_000, []),
            }
            for name, (status, path, lines) in heads.items():
                async with raw_client(made.running) as client:
                    client.chat(chat_body("never"), *lines, path=path)
                    answer = await client.answer()
                    assert answer.error() == (status, "invalid_request_error", "headers_too_large"), name
            async with raw_client(made.running) as client:
                client.chat(chat_body("fits"), *[f"x-{n}: 1" for n in range(97)])
                assert (await client.answer()).status == 200
            assert [one.tag for one in made.a.seen] == ["fits"]

    run(work())


# ── bodies that are wrong ──

MESSAGES = b'"messages":[{"role":"user","content":"x"}]'


def with_member(member: bytes) -> bytes:
    """A good request with one more member."""
    return b'{"model":"standard",' + MESSAGES + b"," + member + b"}"


def nested(depth: int) -> bytes:
    return with_member(b'"note":' + b"[" * (depth - 1) + b"]" * (depth - 1))


GOOD = with_member(b'"user":"good"')
WRONG_BODIES: dict[str, tuple[bytes, str]] = {
    **{f"C14 {depth}": (nested(depth), "json_too_deep") for depth in (65, 1_000, 100_000)},
    "C15 broken": (GOOD[:-1], "invalid_json"),
    "C15 empty": (b"", "invalid_json"),
    "C15 null": (b"null", "invalid_json"),
    "C15 list": (b"[]", "invalid_json"),
    "C15 number": (b"7", "invalid_json"),
    "C15 two": (GOOD + GOOD, "invalid_json"),
    "C15 trailing": (GOOD + b" x", "invalid_json"),
    "C15 BOM": (b"\xef\xbb\xbf" + GOOD, "invalid_json"),
    "C15 NaN": (with_member(b'"temperature":NaN'), "invalid_json"),
    "C15 Infinity": (with_member(b'"temperature":Infinity'), "invalid_json"),
    "C15 1e999": (with_member(b'"temperature":1e999'), "invalid_json"),
    "C16 not UTF-8": (with_member(b'"note":"\xff"'), "invalid_utf8"),
    "C16 surrogate": (with_member(rb'"note":"\ud800"'), "invalid_utf8"),
    "C16 NUL": (with_member(rb'"note":"\u0000"'), "invalid_utf8"),
    "C17": (with_member(b'"note":' + b"1" * 1_000_000), "invalid_json"),
}


def test_a_body_that_is_not_one_good_json_object_reaches_nobody(tmp_path: Path) -> None:  # C14 to C17
    async def work() -> None:
        async with setting(tmp_path) as made:
            for name, (body, code) in WRONG_BODIES.items():
                began = time.perf_counter()
                answer = await made.http.post(CHAT, content=body)
                took = time.perf_counter() - began
                error = answer.json()["error"]
                found = (answer.status_code, error["type"], error["code"])
                assert found == (400, "invalid_request_error", code), name
                assert answer.headers["x-should-retry"] == "false"
                assert answer.headers["x-faregate-attempts"] == "0"
                if name == "C17":
                    assert took < 0.5  # the limit of 50 ms, with room for a busy machine
            assert (await made.http.post(CHAT, content=nested(64))).status_code == 200
            assert len(made.a.seen) == 1
            assert len(await made.running.rows("request")) == 1

    run(work())


DUPLICATES: dict[str, tuple[bytes, str]] = {
    **{
        f"C18 {name}": (with_member(f'"{name}":1,"{name}":2'.encode()), name)
        for name in ("stream", "max_tokens", "tools", "user")
    },
    "C18 model": (with_member(b'"model":"other"'), "model"),
    "C18 messages": (with_member(b'"messages":[]'), "messages"),
    "C18 escaped": (with_member(rb'"\u006dodel":"other"'), "model"),
    "C18 escaped late": (with_member(rb'"m\u006fdel":"other"'), "model"),
    "C19 messages": (
        b'{"model":"standard","messages":[{"role":"user","role":"system","content":"x"}]}',
        "role",
    ),
    "C19 tools": (with_member(b'"tools":[{"type":"function","type":"x"}]'), "type"),
    "C19 response_format": (with_member(b'"response_format":{"type":"text","type":"x"}'), "type"),
    "C19 reasoning": (with_member(b'"reasoning":{"effort":"low","effort":"high"}'), "effort"),
    "C19 metadata": (with_member(b'"metadata":{"a":"1","a":"2"}'), "a"),
}


def test_a_name_that_stands_twice_is_refused_where_a_decision_reads(tmp_path: Path) -> None:  # C18, C19
    async def work() -> None:
        async with setting(tmp_path) as made:
            for name, (body, param) in DUPLICATES.items():
                answer = await made.http.post(CHAT, content=body)
                error = answer.json()["error"]
                found = (answer.status_code, error["type"], error["code"], error["param"])
                assert found == (400, "invalid_request_error", "duplicate_key", param), name
            assert made.a.seen == []
            body = with_member(b'"elsewhere":{"a":1,"a":2}')
            assert (await made.http.post(CHAT, content=body)).status_code == 200
            assert b'"elsewhere":{"a":1,"a":2}' in made.a.seen[0].body
            assert len(await made.running.rows("request")) == 1

    run(work())


# ── bodies that are odd ──


def test_what_the_gateway_does_not_know_is_forwarded_and_never_obeyed(tmp_path: Path) -> None:  # C20 to C22
    async def work() -> None:
        trap_connections: list[object] = []

        async def trapped(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            trap_connections.append(writer)
            writer.close()

        trap = await asyncio.start_server(trapped, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{trap.sockets[0].getsockname()[1]}/v1"
        steering: dict[str, Any] = {
            "api_base": url,
            "base_url": url,
            "api_key": "sk-other",
            "organization": "org-other",
            "extra_headers": {"authorization": "Bearer other", "host": "elsewhere"},
            "extra_body": {"model": "other"},
            "fallbacks": ["other"],
            "num_retries": 9,
            "timeout": 0.001,
            "mock_response": "mocked",
            "custom_llm_provider": "other",
        }
        odd: list[dict[str, Any]] = [
            {"Model": "other"},
            {"MODEL": "other"},
            {"model ": "other"},
            {"never_heard_of": {"a": [1, 2.50, "ü", None]}},
            *({name: value} for name, value in steering.items()),
            {"metadata": {"tags": "other", "api_base": url}},
            {"nested": steering},
            steering,
        ]
        async with trap, setting(tmp_path) as made:
            for more in odd:
                sent = {
                    "model": "standard",
                    "messages": [{"role": "user", "content": CANARY_PROMPT}],
                    "max_tokens": 64,
                    **more,
                }
                body = json.dumps(sent, ensure_ascii=False).encode()
                answer = await made.http.post(CHAT, content=body)
                assert answer.status_code == 200, more
                assert answer.headers["x-faregate-deployment"] == "a"
                assert "mocked" not in answer.text
                seen = made.a.seen[-1]
                assert seen.body == body.replace(b'"model": "standard"', b'"model": "model-a"', 1)
                assert "host" not in seen.headers or seen.headers["host"] in made.a.base_url
            assert trap_connections == []
            assert made.b.seen == []
            rows = await made.attempts()
            assert [row["state"] for row in rows] == ["settled"] * len(odd)
            assert {row["model_called"] for row in rows} == {"model-a"}
        trap.close()

    run(work())


WRONG_VALUES: dict[str, tuple[bytes, str]] = {
    "C23 0": (b'"max_tokens":0', "max_tokens"),
    "C23 -1": (b'"max_tokens":-1', "max_tokens"),
    "C23 1.5": (b'"max_tokens":1.5', "max_tokens"),
    "C23 text": (b'"max_tokens":"5"', "max_tokens"),
    "C24 n": (b'"n":1000', "n"),
}


def test_a_limit_that_cannot_be_is_refused(tmp_path: Path) -> None:  # C23, C24
    async def work() -> None:
        async with setting(tmp_path) as made:
            for name, (member, param) in WRONG_VALUES.items():
                answer = await made.http.post(CHAT, content=with_member(member))
                error = answer.json()["error"]
                found = (answer.status_code, error["code"], error["param"])
                assert found == (400, "invalid_value", param), name
            assert made.a.seen == []

    run(work())


@pytest.mark.parametrize("member", [b'"max_tokens":1000000000000', b'"user":"absent"'])
def test_a_limit_above_the_tiers_is_lowered_to_it_and_said(tmp_path: Path, member: bytes) -> None:  # C23
    async def work() -> None:
        async with setting(tmp_path, tier="max_output_tokens = 100", more=BUDGET) as made:
            answer = await made.http.post(CHAT, content=with_member(member))
            assert answer.status_code == 200
            assert "max_tokens" in answer.headers["x-faregate-changed"]
            assert made.a.seen[0].json()["max_tokens"] == 100
            (row,) = await made.running.rows("request")
            assert row["max_output_tokens"] == 100

    run(work())


def test_every_choice_is_held_for(tmp_path: Path) -> None:  # C24
    async def work() -> None:
        async with setting(tmp_path, more=BUDGET) as made:
            for n in (1, 8):
                answer = await made.ask(n=n, max_tokens=1_000)
                assert answer.status == 200
            one, eight = [row["held_pico_usd"] for row in await made.running.rows("request")]
            output = 1_000 * 10_000_000  # tokens at $10 a million, in pico-dollars
            assert (one - output) < output / 2
            assert eight - one == 7 * output
            answer = await made.ask(messages=[{"role": "user", "content": "x"}] * 10_000)
            assert answer.status == 200

    run(work())


def test_only_plain_json_in_utf_8_is_taken(tmp_path: Path) -> None:  # C25, C26
    kinds: list[tuple[str, str | None, str | None]] = [
        ("text/plain", None, "unsupported_media_type"),
        ("application/json; charset=utf-16", None, "unsupported_media_type"),
        ("application/json; charset=UTF-8", None, None),
        ("", None, None),
        ("application/json", "gzip", "unsupported_content_encoding"),
    ]

    async def work() -> None:
        async with setting(tmp_path) as made:
            for media_type, encoding, code in kinds:
                lines = [f"content-type: {media_type}"] if media_type else []
                lines += [f"content-encoding: {encoding}"] if encoding else []
                async with raw_client(made.running) as client:
                    client.chat(GOOD, *lines)
                    answer = await client.answer()
                if code is None:
                    assert answer.status == 200, media_type
                else:
                    assert answer.error() == (415, "invalid_request_error", code)
            assert len(made.a.seen) == 2

    run(work())


def test_pipelined_requests_are_answered_in_order_each_with_its_own_id(tmp_path: Path) -> None:  # C29
    async def work() -> None:
        async with setting(tmp_path) as made:
            async with raw_client(made.running) as client:
                for n in range(3):
                    client.chat(chat_body(f"C29 {n}"))
                answers = [await client.answer() for _ in range(3)]
            assert [answer.status for answer in answers] == [200] * 3
            rows = await made.running.rows("request")
            assert [answer.headers["x-request-id"] for answer in answers] == [row["id"] for row in rows]
            assert [one.tag for one in made.a.seen] == ["C29 0", "C29 1", "C29 2"]
            async with raw_client(made.running) as client:
                old = request(chat_body("old"), key=made.running.key).replace(b"HTTP/1.1", b"HTTP/1.0")
                client.say(old)
                got = await client.rest()
            assert got.startswith(b"HTTP/1.1 200 ")
            assert len(await made.running.rows("request")) == 4

    run(work())


MAY_BE_SERVED = ("/v1/Chat/Completions", "/v1/unknown")
"""Paths that a provider may have: there a stranger is asked for a key first."""


@pytest.mark.parametrize("key", ["", "the key"])
def test_no_other_spelling_of_a_path_leads_to_an_endpoint(tmp_path: Path, key: str) -> None:  # C31
    paths = [
        ("POST", "/v1/chat/completions/", 404),
        ("POST", "//v1/chat/completions", 404),
        ("POST", "/v1//chat/completions", 404),
        ("POST", "/v1/%2e%2e/v1/chat/completions", 404),
        ("POST", "/v1/../v1/chat/completions", 404),
        ("POST", "/v1/chat/completions;a=b", 404),
        ("POST", "/v1/chat%2fcompletions", 404),
        ("POST", "/v1/Chat/Completions", 404),
        ("POST", "/v1/unknown", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/chat/completions", 405),
        ("POST", "/v1/models", 405),
    ]

    async def work() -> None:
        async with setting(tmp_path) as made:
            for method, path, status in paths:
                async with raw_client(made.running) as client:
                    words = request(GOOD, path=path, method=method, key=key or "none")
                    client.say(words.replace(b"Bearer the key", f"Bearer {made.running.key}".encode()))
                    answer = await client.answer()
                code = "not_found" if status == 404 else "method_not_allowed"
                if not key and path in MAY_BE_SERVED:
                    status, code = 401, "invalid_api_key"
                assert answer.error() == (status, "invalid_request_error", code), (method, path)
            assert made.a.seen == []
            assert await made.running.rows("request") == []

    run(work())


# ── leaving at every moment ──


@both_clients
def test_however_and_whenever_clients_leave_nothing_stays_behind(tmp_path: Path, kind: Client) -> None:
    """Limits 4, 11, 12 and 13, scaled."""

    async def work() -> None:
        async with setting(tmp_path, kind=kind, more=BUDGET, answer_tokens=20) as made:
            faults = ["late_head", "late_token", "stall:0", "stall:1", "stall:7", "stall:19", "none"]
            ways = [RawClient.leave, RawClient.reset, RawClient.half_close]

            async def one(n: int) -> None:
                stream = n % 3 != 0
                async with raw_client(made.running) as client:
                    fault = faults[n % len(faults)] if stream else faults[n % 2]
                    client.chat(chat_body(f"n{n}", fault=fault, stream=stream))
                    if n % 5:
                        await made.a.request(f"n{n}")
                    if n % 4 == 0 and stream and fault.startswith("stall:") and fault != "stall:0":
                        await client.until(b"data: ")
                    ways[n % len(ways)](client)
                    if ways[n % len(ways)] is RawClient.half_close:
                        await client.rest()

            await asyncio.gather(*(one(n) for n in range(84)))
            await in_time(made.a.no_open_requests(), WITHIN_SECONDS)
            await books_close(made)
            assert_nothing_is_held(made)
            assert in_use(made) == 0
            states = {row["state"] for row in await made.running.rows("request")}
            assert "cancelled" in states
            assert "failed" not in states
            await assert_serves(made)

    run(work())


def test_a_client_that_leaves_in_a_pause_between_attempts_ends_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with setting(tmp_path, alone=True, more=BUDGET, retry_base_seconds=60.0) as made:
            async with raw_client(made.running) as client:
                client.chat(chat_body("pause", fault="status:500"))
                await made.a.over("pause")
                client.leave()
                await books_close(made)
            (row,) = await made.running.rows("request")
            assert (row["state"], row["status"]) == ("cancelled", 499)
            assert len(made.a.seen) == 1
            assert_nothing_is_held(made)

    run(work(), within_seconds=5)

"""The fake provider does what the other tests rely on."""

import asyncio
import gzip
import http.client
import json
import re
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.answers import ATTEMPT_HEADER
from tests.fakes.caller import Caller, chat, payloads, streamed, text_of, with_provider
from tests.fakes.faults import FAULTS
from tests.fakes.provider import FakeNames, FakeProvider, HangingPort, Pace, RefusingPort


def test_whole_and_streamed_answers_to_one_body_say_the_same_and_are_the_same_each_time() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(chat(seed=1))
        _, _, first = await caller.answer()
        caller.ask(chat(seed=1))
        _, _, second = await caller.answer()
        assert json.loads(first)["choices"] == json.loads(second)["choices"]
        caller.ask(streamed())
        _, headers, body = await caller.answer()
        assert headers["content-type"].startswith("text/event-stream")
        assert body.endswith(b"data: [DONE]\n\n")
        assert payloads(body)[-1]["usage"]["completion_tokens"] == 8
        assert all(one["usage"] is None for one in payloads(body)[:-1])
        assert len(text_of(body)) > 8

    with_provider(play)


def test_usage_is_streamed_only_to_who_asks_for_it() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(chat(stream=True))
        _, _, body = await caller.answer()
        assert b"usage" not in body

    with_provider(play)


def test_a_prefix_seen_before_is_cached_in_whole_blocks_and_billed_so() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(chat(), x_faregate_attempt="one")
        await caller.answer()
        longer = chat()["messages"] + [{"role": "user", "content": "and more of it"}]
        caller.ask(chat(messages=longer), x_faregate_attempt="two")
        _, _, body = await caller.answer()
        usage = json.loads(body)["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 64
        prompt = usage["prompt_tokens"]
        # 1.25, 0.125 and 10 dollars per million tokens are so many pico-dollars a token
        assert provider.bill()["two"] == (prompt - 64) * 1_250_000 + 64 * 125_000 + 8 * 10_000_000
        caller.ask(path="/__bill")
        _, _, bill = await caller.answer()
        assert json.loads(bill) == provider.bill()
        assert provider.charges["two"].reported

    with_provider(play)


def test_a_limit_on_the_output_ends_the_answer_with_length() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(chat(max_tokens=3))
        _, _, body = await caller.answer()
        assert json.loads(body)["choices"][0]["finish_reason"] == "length"
        assert json.loads(body)["usage"]["completion_tokens"] == 3

    with_provider(play)


def test_a_fault_is_chosen_by_header_then_user_then_queue_then_for_all() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.always("status:500")
        provider.next("status:501")
        caller.ask(chat(user="fault:status:502 my-tag"), x_fake_fault="status:503")
        assert (await caller.answer())[0] == 503
        caller.ask(chat(user="fault:status:502 my-tag"))
        assert (await caller.answer())[0] == 502
        caller.ask(chat(user="somebody"))
        assert (await caller.answer())[0] == 501
        caller.ask(chat())
        assert (await caller.answer())[0] == 500
        caller.ask(chat(user="fault:status:502@b"))
        assert (await caller.answer())[0] == 200
        assert [one.tag for one in provider.seen] == ["my-tag", "my-tag", "somebody", "#4", "#5"]
        assert set(provider.bill().values()) == {0, provider.bill()["#5"]}

    with_provider(play)


def test_every_upstream_fault_of_the_list_has_its_script_or_its_place() -> None:
    elsewhere = {
        *("U1", "U2"),  # RefusingPort, FakeProvider.refuse
        "U3",  # HangingPort
        *("U4", "U5"),  # FakeNames
        *("U6", "U7"),  # FakeProvider(tls=...)
        *("U25", "U26", "U27"),  # several requests with other faults
        "U35",  # a good answer to a stream that did not ask for usage
    }
    missing = {f"U{n}" for n in range(1, 54)} - elsewhere - {name.upper() for name in FAULTS}
    assert missing == set()
    assert all(script.__doc__ for script in FAULTS.values())


def test_a_fault_nobody_knows_is_refused_at_once() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        with pytest.raises(KeyError, match="no fault called 'u99'"):
            provider.next("U99")

    with_provider(play)


@pytest.mark.parametrize(
    ("fault", "header", "value"),
    [
        ("U14:2", "retry-after", "2"),
        ("U15:3", "retry-after", "sun, 29 nov 2026 12:00:03 gmt"),
        ("U15:-60", "retry-after", "sun, 29 nov 2026 11:59:00 gmt"),
        ("U16:250", "retry-after-ms", "250"),
        ("U17:-1", "retry-after", "-1"),
        ("U17:digits400", "retry-after", "9" * 400),
        ("U19", "retry-after", None),
    ],
)
def test_a_rate_limit_says_when_to_come_back(fault: str, header: str, value: str | None) -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.next(fault)
        caller.ask(chat())
        status, headers, body = await caller.answer()
        assert status == 429
        assert headers.get(header) == value
        assert json.loads(body)["error"]["code"] == (
            "insufficient_quota" if fault == "U19" else "rate_limit_exceeded"
        )

    with_provider(play)


@pytest.mark.parametrize("fault", ["U8", "U11", "U12", "U13"])
def test_a_reset_is_a_reset_and_comes_after_what_was_sent(fault: str) -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.next(fault)
        caller.ask(chat() if fault == "U11" else streamed())
        got = b""
        try:
            while piece := await caller.reader.read(65_536):
                got += piece
        except ConnectionResetError:
            got += b"(reset)"
        assert got.endswith(b"(reset)")
        assert got.count(b'"content":"') == {"U8": 0, "U11": 1, "U12": 3, "U13": 1}[fault]
        assert b"[DONE]" not in got
        assert provider.charges["#1"].reported is False
        assert provider.charges["#1"].counts.completion == {"U8": 0, "U11": 8, "U12": 2, "U13": 0}[fault]

    with_provider(play)


def test_an_idempotency_key_is_billed_once() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.next("U9")
        caller.ask(chat(), idempotency_key="k", x_faregate_attempt="one")
        with pytest.raises(ConnectionResetError):
            await caller.reader.read()
        again = await Caller.to(provider)
        again.ask(chat(), idempotency_key="k", x_faregate_attempt="two")
        status, _, body = await again.answer()
        await again.close()
        assert (status, json.loads(body)["usage"]["completion_tokens"]) == (200, 8)
        assert [name for name, pico in provider.bill().items() if pico] == ["one"]

    with_provider(play)


def test_an_idle_connection_can_die_as_it_is_used_again_or_before() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.next("U10")
        caller.ask(chat())
        assert (await caller.answer())[0] == 200
        caller.ask(chat())
        with pytest.raises(ConnectionResetError):
            await caller.reader.readexactly(1)
        assert len(provider.seen) == 1
        other = await Caller.to(provider)
        other.ask(chat())
        await other.answer()
        await provider.no_open_requests()
        assert provider.close_idle() == 1
        assert await other.reader.read() == b""
        await other.close()

    with_provider(play)


@pytest.mark.parametrize("fault", ["U28", "U30"])
def test_a_held_answer_goes_on_when_released(fault: str) -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(streamed(user=f"fault:{fault} held"))
        before = {"U28": 1, "U30": 6}[fault]
        seen = await provider.sent("held", events=before)
        await asyncio.sleep(0)
        assert (seen.events_sent, seen.done) == (before, False)
        provider.release()
        _, _, body = await caller.answer()
        assert body.endswith(b"[DONE]\n\n")
        assert (await provider.over("held")).done

    with_provider(play)


def test_a_caller_that_leaves_is_noticed_and_billed_for_what_was_made() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(streamed(user="fault:stall:3 gone"))
        await provider.sent("gone", events=4)
        assert provider.open_connections == 1
        await caller.close()
        seen = await provider.closed("gone")
        assert (seen.over, seen.done, provider.open_connections) == (True, False, 0)
        assert provider.charges["#1"].counts.completion == 3

    with_provider(play)


@pytest.mark.parametrize("fault", ["U32", "U32:close", "connection_close"])
def test_a_stream_can_end_by_chunk_or_by_close(fault: str) -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.next(fault)
        caller.ask(streamed())
        _, headers, body = await caller.answer()
        assert ("transfer-encoding" in headers) == (fault == "U32")
        assert (b"[DONE]" in body) == (fault == "connection_close")
        assert provider.charges["#1"].reported == (fault == "connection_close")

    with_provider(play)


def test_usage_can_be_missing_late_twice_lower_or_growing() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        totals: dict[str, list[int]] = {}
        for fault in ("U33", "U34", "U34:twice", "U34:lower", "growing_usage"):
            caller.ask(streamed(user=f"fault:{fault}"))
            _, _, body = await caller.answer()
            usages = [one["usage"] for one in payloads(body) if one["usage"]]
            totals[fault] = [one["completion_tokens"] for one in usages]
            if fault == "U34":
                assert body.index(b"[DONE]") < body.index(b'"completion_tokens"')
        assert totals["U33"] == []
        assert totals["U34"] == [8]
        assert totals["U34:twice"] == [8, 8]
        assert totals["U34:lower"] == [8, 1]
        assert totals["growing_usage"] == [0, *range(1, 9), 8, 8]

    with_provider(play)


@pytest.mark.parametrize(
    ("spelling", "mark"),
    [
        ("no_space", rb"\Adata:\{"),
        ("crlf", rb"\}\r\n\r\ndata: "),
        ("cr", rb"\}\r\rdata: "),
        ("bom", rb"\A\xef\xbb\xbfdata: "),
        ("comments", rb"\A: keep-alive\n\n: another\ndata: "),
        ("event_lines", rb"\Aevent: message\ndata: "),
        ("ids", rb"\n\nid: 1\nretry: 10\ndata: "),
        ("multi_line", rb'"\ndata: ,"object"'),
    ],
)
def test_events_can_be_spelt_in_every_way_the_standard_allows(spelling: str, mark: bytes) -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.next(f"U36:{spelling}")
        caller.ask(streamed())
        _, _, body = await caller.answer()
        assert re.search(mark, body)

    with_provider(play)


def test_a_stream_can_be_cut_anywhere_without_losing_a_byte() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(streamed())
        await caller.head()
        whole = b"".join(await caller.pieces())
        provider.next("cut:100")
        caller.ask(streamed())
        await caller.head()
        pieces = await caller.pieces()
        assert len(pieces[0]) == 100
        assert b"".join(pieces) == whole.replace(b'"cached_tokens":0', b'"cached_tokens":64')
        provider.next("cut:every")
        caller.ask(streamed())
        await caller.head()
        assert {len(one) for one in await caller.pieces()} == {1}

    with_provider(play, answer_tokens=2)


@pytest.mark.parametrize(
    ("fault", "status", "start"),
    [
        ("U39", 200, b'{"id":'),
        ("U40", 200, b"<!doctype html>"),
        ("U41", 200, b'{"error":'),
        ("U42", 200, b""),
        ("U23:404", 404, b'{"error":'),
        ("context_length", 400, b'{"error":'),
    ],
)
def test_an_answer_can_be_something_else_than_an_answer(fault: str, status: int, start: bytes) -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.next(fault)
        caller.ask(chat())
        got, _, body = await caller.answer()
        assert (got, body[: len(start)]) == (status, start)
        if start == b'{"id":':
            with pytest.raises(ValueError):
                json.loads(body)
        assert provider.charges["#1"].reported is False

    with_provider(play)


def test_a_redirect_names_the_host_it_is_told() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.next("U42:http://127.0.0.1:1/elsewhere")
        caller.ask(chat())
        status, headers, _ = await caller.answer()
        assert (status, headers["location"]) == (301, "http://127.0.0.1:1/elsewhere")

    with_provider(play)


def test_an_error_message_holds_the_key_it_was_called_with() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.next("U24:401")
        caller.ask(chat(), authorization="Bearer sk-canary-0123456789")
        status, _, body = await caller.answer()
        assert status == 401
        assert b"sk-canary-0123456789" in body
        assert b"sk-canar...6789" in body

    with_provider(play)


def test_a_stream_can_break_off_into_an_error_or_into_no_json() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(streamed(user="fault:U41"))
        _, _, body = await caller.answer()
        assert body.startswith(b'data: {"error":')
        caller.ask(streamed(user="fault:error_in_stream:2"))
        _, _, body = await caller.answer()
        assert body.index(b'"error"') > body.index(b'"content"')
        caller.ask(streamed(user="fault:U38"))
        _, _, body = await caller.answer()
        assert b"data: {canary-answer-text: broken\n\n" in body

    with_provider(play)


def test_a_packed_answer_is_small_on_the_wire_and_large_unpacked() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(chat(user="fault:U45"))
        _, headers, body = await caller.answer()
        assert headers["content-encoding"] == "gzip"
        assert len(body) < 300_000
        first = gzip.decompress(body[: len(body) // 256])
        assert len(first) * 256 == 256 * 2**20
        caller.ask(chat(user="fault:U45:plain"))
        _, _, body = await caller.answer()
        assert json.loads(gzip.decompress(body))["usage"]["completion_tokens"] == 8

    with_provider(play)


@pytest.mark.parametrize(("fault", "left"), [("U46", 0), ("U46:long", -10)])
def test_a_length_can_lie(fault: str, left: int) -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.next(fault)
        caller.ask(chat())
        _, headers = await caller.head()
        body = await caller.reader.read()
        json.loads(body)
        assert len(body) - int(headers["content-length"]) == {0: 10, -10: -10}[left]

    with_provider(play)


def test_headers_can_be_too_large_too_many_or_none_of_our_business() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(chat(user="fault:U44:many"))
        _, headers, _ = await caller.answer()
        assert len(headers) > 500
        caller.ask(chat(user="fault:U47"))
        _, headers, _ = await caller.answer()
        assert headers["set-cookie"] == "session=canary-cookie"
        big = await Caller.to(provider)
        big.ask(chat(user="fault:U44"))
        with pytest.raises(asyncio.LimitOverrunError):
            await big.head()
        await big.close()

    with_provider(play)


@pytest.mark.parametrize("kind", ["negative", "float", "string", "null", "huge", "cached_over", "mismatch"])
@pytest.mark.parametrize("stream", [False, True])
def test_usage_can_be_what_it_cannot_be_and_the_bill_stays_true(kind: str, stream: bool) -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.next(f"U48:{kind}")
        caller.ask(streamed() if stream else chat())
        _, _, body = await caller.answer()
        usage = payloads(body)[-1]["usage"] if stream else json.loads(body)["usage"]
        expected: dict[str, object] = {
            "negative": usage["prompt_tokens"] == -5,
            "float": usage["completion_tokens"] == 8.0 and isinstance(usage["completion_tokens"], float),
            "string": usage["completion_tokens"] == "8",
            "null": usage["prompt_tokens"] is None,
            "huge": usage["completion_tokens"] == 10**30,
            "cached_over": usage["prompt_tokens_details"]["cached_tokens"] > usage["prompt_tokens"]
            if kind == "cached_over"
            else None,
            "mismatch": kind == "mismatch"
            and usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] + 7,
        }
        assert expected[kind] is True
        input_rate = 125_000 if kind == "cached_over" else 1_250_000
        assert provider.bill()["#1"] == 70 * input_rate + 8 * 10_000_000

    with_provider(play)


def test_another_model_is_billed_at_its_own_price() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.next("U49:other")
        caller.ask(chat())
        _, _, body = await caller.answer()
        assert json.loads(body)["model"] == "other"
        assert provider.bill() == {"#1": 70 * 3_000_000 + 8 * 15_000_000}

    with_provider(play)


def test_reasoning_is_counted_inside_the_completion_and_billed() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        for body in (chat(user="fault:reasoning:7"), streamed(user="fault:reasoning:7")):
            caller.ask(body)
            _, _, answer = await caller.answer()
            usage = json.loads(answer)["usage"] if "stream" not in body else payloads(answer)[-1]["usage"]
            assert usage["completion_tokens"] == 15
            assert usage["completion_tokens_details"]["reasoning_tokens"] == 7
        assert {one.counts.completion for one in provider.charges.values()} == {15}

    with_provider(play)


@pytest.mark.parametrize(
    ("shape", "mark"),
    [
        ("tool_calls", b'"tool_calls"'),
        ("refusal", b'"refusal":"'),
        ("logprobs", b'"logprob"'),
        ("reasoning_text", b'"reasoning_content"'),
    ],
)
def test_answers_come_in_every_shape_and_each_delta_is_a_token(shape: str, mark: bytes) -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(chat(user=f"fault:U50:{shape}"))
        _, _, body = await caller.answer()
        assert mark in body
        caller.ask(streamed(user=f"fault:U50:{shape}"))
        _, _, body = await caller.answer()
        assert body.count(mark) >= 8
        deltas = [c["delta"] for one in payloads(body) for c in one["choices"] if len(c["delta"]) == 1]
        assert payloads(body)[-1]["usage"]["completion_tokens"] == len(deltas)
        assert provider.charges["#2"].counts.completion == len(deltas)
        if shape == "tool_calls":
            calls: dict[int, str] = {0: "", 1: ""}
            for one in deltas:
                for call in one["tool_calls"]:
                    calls[call["index"]] += call["function"]["arguments"]
            assert all(json.loads(text)["city"].startswith("Zürich") for text in calls.values())
            assert len(deltas) == 100

    with_provider(play)


def test_two_choices_are_both_streamed_and_billed() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(streamed(n=2))
        _, _, body = await caller.answer()
        assert {c["index"] for one in payloads(body) for c in one["choices"]} == {0, 1}
        assert payloads(body)[-1]["usage"]["completion_tokens"] == 16
        assert provider.charges["#1"].counts.completion == 16

    with_provider(play)


def test_a_refusal_can_come_before_the_body_has() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.next("U51")
        caller.writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 8000000\r\n\r\n"
        )
        assert (await caller.answer())[0] == 413
        await caller.close()
        await provider.closed("#1")

    with_provider(play)


def test_informational_answers_come_first() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.next("U52")
        caller.ask(chat())
        assert [(await caller.head())[0] for _ in range(3)] == [100, 103, 200]

    with_provider(play)


def test_an_endless_line_and_a_drip_go_on_until_the_caller_leaves() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(streamed(user="fault:U43 line"))
        await caller.reader.readexactly(3_000_000)
        await caller.close()
        line = await provider.closed("line")
        assert line.bytes_sent < 100_000_000  # it waited for its reader
        drip = await Caller.to(provider)
        drip.ask(streamed(user="fault:U31 drip"))
        await provider.sent("drip", events=2)
        await drip.close()
        await provider.closed("drip")

    with_provider(play, pace=Pace(drip_seconds=0))


def test_a_chunked_request_and_one_that_expects_100_are_read_whole() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        body = json.dumps(chat()).encode()
        caller.writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
            b"transfer-encoding: chunked\r\n\r\n" + b"5\r\n" + body[:5] + b"\r\n"
        )
        assert (await caller.head())[0] == 100
        caller.writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body) - 5, body[5:]))
        assert (await caller.answer())[0] == 200
        assert provider.seen[0].body == body

    with_provider(play)


def test_a_wrong_key_is_refused_and_the_models_are_listed() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(chat(), authorization="Bearer wrong")
        assert (await caller.answer())[0] == 401
        caller.ask(path="/v1/models", authorization="Bearer right")
        _, _, body = await caller.answer()
        assert [one["id"] for one in json.loads(body)["data"]] == ["m", "other"]
        assert provider.bill() == {}

    with_provider(play, api_key="right")


def test_a_provider_can_refuse_connections_and_come_back_on_the_same_port() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        await provider.refuse()
        with pytest.raises(ConnectionRefusedError):
            await Caller.to(provider)
        caller.ask(chat())
        assert (await caller.answer())[0] == 200
        await provider.accept_again()
        again = await Caller.to(provider)
        again.ask(chat())
        assert (await again.answer())[0] == 200
        await again.close()

    with_provider(play)


def test_ports_can_refuse_or_hang() -> None:
    with RefusingPort() as refusing, pytest.raises(ConnectionRefusedError):
        socket.create_connection((refusing.host, refusing.port), timeout=5)
    with HangingPort() as hanging, pytest.raises(TimeoutError):
        socket.create_connection((hanging.host, hanging.port), timeout=0.2)


def test_names_resolve_as_told_or_not_at_all() -> None:
    async def look() -> None:
        names = FakeNames({"two.test": ["127.0.0.2", "127.0.0.1"]})
        found = await names.getaddrinfo("two.test", 80)
        assert [one[4] for one in found] == [("127.0.0.2", 80), ("127.0.0.1", 80)]
        with pytest.raises(socket.gaierror):
            await names.getaddrinfo("unknown.test", 80)
        assert names.asked == ["two.test", "unknown.test"]

    asyncio.run(look())


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("good", None),
        ("expired", "expired"),
        ("self_signed", "self-signed"),
        ("wrong_host", "IP address mismatch"),
    ],
)
def test_tls_certificates_are_good_or_bad_in_one_way(kind: str, problem: str | None) -> None:
    async def run() -> None:
        async with FakeProvider(tls=kind) as provider:  # pyright: ignore[reportArgumentType] - from the table
            trusting = ssl.create_default_context(cafile=provider.ca_file)
            connecting = asyncio.open_connection(provider.host, provider.port, ssl=trusting)
            if problem is not None:
                with pytest.raises(ssl.SSLCertVerificationError, match=problem):
                    await connecting
                return
            caller = Caller(*await connecting)
            caller.ask(chat(), **{ATTEMPT_HEADER.replace("-", "_"): "over-tls"})
            assert (await caller.answer())[0] == 200
            assert list(provider.bill()) == ["over-tls"]
            await caller.close()

    asyncio.run(run())


def test_a_tls_handshake_can_stall() -> None:
    async def run() -> None:
        async with FakeProvider(tls="stalls") as provider:
            opening = asyncio.open_connection(provider.host, provider.port, ssl=ssl.create_default_context())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(opening, 0.2)

    asyncio.run(run())


def test_a_fault_used_wrongly_is_told_when_the_provider_stops() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(chat(user="fault:no_such_fault"))
        with pytest.raises(ConnectionResetError):
            await caller.reader.read()

    with pytest.raises(KeyError, match="no_such_fault"):
        with_provider(play)


def test_it_runs_by_itself_and_stops_when_told() -> None:
    script = Path(__file__).with_name("provider.py")
    command = [sys.executable, str(script), "--price", "m=1,0.1,2", "--always", "status:503"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", process.stdout.readline())
        assert found is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=5)
        connection.request("POST", "/v1/chat/completions", json.dumps(chat()))
        assert connection.getresponse().status == 503
        connection.close()
        process.terminate()
        assert process.wait(5) == 0

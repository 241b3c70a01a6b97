"""The fake provider's messages wire does what the other tests rely on."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest

from tests.fakes.answers import Text, Thought, ToolCall
from tests.fakes.caller import Caller, payloads, with_provider
from tests.fakes.messages import signature
from tests.fakes.provider import FakeProvider, Prices

VERSION = {"anthropic_version": "2023-06-01"}
PATH = "/v1/messages"
TOOLS = [{"name": "look_up", "input_schema": {"type": "object"}}]
PRICE = Prices(input="3", input_cached="0.3", cache_write="3.75", cache_write_1h="6", output="15")
SETTINGS = {"default_prices": PRICE}


def message(**more: Any) -> dict[str, Any]:
    return {
        "model": "claude",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "hello " * 40}],
    } | more


def faulty(fault: str, **more: Any) -> dict[str, Any]:
    return message(metadata={"user_id": f"fault:{fault}"}, **more)


async def ask(
    caller: Caller, body: object, *, path: str = PATH, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    caller.ask(body, path=path, **(VERSION | headers))
    return await caller.answer()


def joined(events: Iterable[Any]) -> list[dict[str, Any]]:
    """The content of a stream, put together as a client does."""
    blocks: list[dict[str, Any]] = []
    parts: list[str] = []
    for one in events:
        match one["type"]:
            case "content_block_start":
                blocks.append(dict(one["content_block"]))
                parts = []
            case "content_block_delta":
                delta = one["delta"]
                name = delta["type"].removesuffix("_delta")
                if name == "signature":
                    blocks[-1]["signature"] = delta["signature"]
                else:
                    parts.append(delta["partial_json" if name == "input_json" else name])
            case "content_block_stop":
                kind = blocks[-1]["type"]
                text = "".join(parts)
                blocks[-1] |= {"input": json.loads(text)} if kind == "tool_use" else {kind: text}
            case _:
                pass
    return blocks


def test_whole_and_streamed_answers_say_and_cost_the_same() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.turns(
            [[Thought(("well ", "then")), Text("I look"), ToolCall("look_up", {"q": "Zürich"})]] * 2
        )
        status, headers, body = await ask(caller, message(tools=TOOLS))
        whole = json.loads(body)
        assert (status, whole["stop_reason"]) == (200, "tool_use")
        assert (headers["request-id"], "x-request-id" in headers) == ("req_fake", False)
        assert "anthropic-ratelimit-tokens-reset" in headers
        _, headers, body = await ask(caller, message(tools=TOOLS, stream=True))
        events = payloads(body)
        names = [line[7:] for line in body.decode().split("\n") if line.startswith("event: ")]
        assert names == [one["type"] for one in events]
        assert [one["type"] for one in whole["content"]] == ["thinking", "text", "tool_use"]
        streamed = joined(events)
        ids = [one.pop("id") for one in (whole["content"][2], streamed[2])]
        assert ids[0] != ids[1]
        assert streamed == whole["content"]
        assert events[0]["message"]["usage"]["output_tokens"] == 1
        assert events[-2]["delta"]["stop_reason"] == "tool_use"
        assert events[-2]["usage"]["output_tokens"] == whole["usage"]["output_tokens"] == 5
        charges = [provider.charges[name] for name in ("#1", "#2")]
        assert charges[0].counts == charges[1].counts
        assert [charges[0].counts.reasoning, charges[0].reported, provider.turns_left] == [2, True, 0]
        assert charges[0].pico_usd == charges[0].counts.prompt * 3_000_000 + 5 * 15_000_000

    with_provider(play, **SETTINGS)


def test_what_is_marked_is_written_once_and_then_read_beside_the_input() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        system = [
            {"type": "text", "text": "rules " * 40, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
        ]
        first = {
            "role": "user",
            "content": [{"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}}],
        }
        _, _, body = await ask(caller, message(system=system, messages=[first]))
        usage = json.loads(body)["usage"]
        split = usage["cache_creation"]
        assert split["ephemeral_1h_input_tokens"] > split["ephemeral_5m_input_tokens"] > 0
        written = usage["cache_creation_input_tokens"]
        assert written == sum(split.values())
        assert (usage["cache_read_input_tokens"], usage["input_tokens"]) == (0, 1)
        unmarked = {"role": "user", "content": [{"type": "text", "text": "one"}]}  # the mark has moved on
        second = {
            "role": "user",
            "content": [{"type": "text", "text": "two", "cache_control": {"type": "ephemeral"}}],
        }
        _, _, body = await ask(caller, message(system=system, messages=[unmarked, second], stream=True))
        usage = payloads(body)[0]["message"]["usage"]
        assert usage["cache_read_input_tokens"] == written
        new = usage["cache_creation"]["ephemeral_5m_input_tokens"]
        assert new == usage["cache_creation_input_tokens"] > 0
        assert payloads(body)[-2]["usage"] | {"output_tokens": 1} == {
            name: usage[name]
            for name in (
                "input_tokens",
                "cache_creation_input_tokens",
                "cache_read_input_tokens",
                "output_tokens",
            )
        }
        assert provider.bill()["#1"] == (
            1 * 3_000_000
            + split["ephemeral_5m_input_tokens"] * 3_750_000
            + split["ephemeral_1h_input_tokens"] * 6_000_000
            + 8 * 15_000_000
        )
        assert provider.bill()["#2"] == (
            usage["input_tokens"] * 3_000_000 + written * 300_000 + new * 3_750_000 + 8 * 15_000_000
        )
        await ask(caller, message(system="rules " * 40, messages=[unmarked]))  # no mark: no cache
        assert provider.charges["#3"].counts.cached == 0

    with_provider(play, **SETTINGS)


@pytest.mark.parametrize(
    ("body", "headers", "told"),
    [
        (message(), {}, "anthropic-version"),
        ({"model": "claude", "messages": []}, VERSION, "max_tokens"),
        (
            message(
                messages=[
                    {
                        "role": "assistant",
                        "content": [{"type": "thinking", "thinking": "b", "signature": signature("a")}],
                    }
                ]
            ),
            VERSION,
            "Invalid `signature`",
        ),
    ],
)
def test_what_the_real_one_refuses_is_refused(body: object, headers: dict[str, str], told: str) -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(body, path=PATH, **headers)
        status, _, answer = await caller.answer()
        problem = json.loads(answer)
        assert (status, problem["type"], problem["error"]["type"]) == (400, "error", "invalid_request_error")
        assert told in problem["error"]["message"]
        assert provider.bill() == {}

    with_provider(play)


@pytest.mark.parametrize(
    ("fault", "status", "type_"),
    [
        ("status:529", 529, "overloaded_error"),
        ("status:500", 500, "api_error"),
        ("status:402", 402, "billing_error"),
        ("rate_limited:7", 429, "rate_limit_error"),
    ],
)
def test_errors_have_anthropics_form(fault: str, status: int, type_: str) -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        got, headers, body = await ask(caller, faulty(fault))
        assert (got, json.loads(body)["error"]["type"], headers["request-id"]) == (status, type_, "req_fake")
        assert headers.get("retry-after") == ("7" if status == 429 else None)
        assert provider.bill() == {"#1": 0}

    with_provider(play)


@pytest.mark.parametrize(
    ("fault", "said", "tokens"),
    [("reset_before_head", 0, 0), ("reset_after_role", 0, 0), ("reset_in_stream:3", 3, 3)],
)
def test_a_stream_breaks_where_it_is_told_and_bills_its_input_once_it_began(
    fault: str, said: int, tokens: int
) -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(faulty(fault, stream=True), path=PATH, **VERSION)
        got = await caller.until_reset()
        assert got.count(b"event: content_block_delta") == said
        assert (b"message_stop" in got, b"content_block_start" in got) == (
            False,
            fault != "reset_before_head",
        )
        charge = provider.charges["#1"]
        assert (charge.counts.completion, charge.reported) == (tokens, False)
        began = 0 if fault == "reset_before_head" else charge.counts.prompt
        assert charge.pico_usd == began * 3_000_000 + tokens * 15_000_000

    with_provider(play, **SETTINGS)


def test_a_stream_can_stall_err_or_forget_its_usage() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(faulty("stall:3 held", stream=True), path=PATH, **VERSION)
        await provider.sent("held", events=6)
        await asyncio.sleep(0)
        provider.release()
        _, _, body = await caller.answer()
        assert payloads(body)[-1] == {"type": "message_stop"}
        _, _, body = await ask(caller, faulty("error_in_stream", stream=True))
        assert body.endswith(
            b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
        )
        for stream in (False, True):
            _, _, body = await ask(caller, faulty("no_usage", stream=stream))
            assert b"usage" not in body
            assert provider.charges[f"#{provider.seen[-1].number}"].reported is False
        _, _, body = await ask(caller, faulty("usage:negative", stream=True))
        assert payloads(body)[-2]["usage"]["input_tokens"] == -5
        _, _, body = await ask(caller, faulty("U40"))
        assert body.startswith(b"<!doctype html>")
        _, _, body = await ask(caller, faulty("sse:crlf", stream=True))
        assert body.count(b"\n") == body.count(b"\r\n") > 0

    with_provider(play)


def test_counting_is_free_and_needs_no_model() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        body = message(tools=TOOLS, system="rules")
        status, _, counted = await ask(caller, body, path=f"{PATH}/count_tokens?beta=true")
        _, _, answer = await ask(caller, body)
        assert (status, json.loads(counted)) == (
            200,
            {"input_tokens": json.loads(answer)["usage"]["input_tokens"]},
        )
        assert provider.bill()["#1"] == 0
        assert (await ask(caller, faulty("status:529"), path=f"{PATH}/count_tokens"))[0] == 529

    with_provider(play)


@pytest.mark.parametrize(
    ("headers", "status", "where"),
    [
        ({"x_api_key": "right"}, 200, {"x-api-key": "right"}),
        ({"authorization": "Bearer right"}, 200, {"authorization": "right"}),
        ({"x_api_key": "wrong"}, 401, {"x-api-key": "wrong"}),
        ({}, 401, {}),
    ],
)
def test_a_key_may_come_in_either_header_and_it_is_noted_in_which(
    headers: dict[str, str], status: int, where: dict[str, str]
) -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        got, _, body = await ask(caller, message(), **headers)
        assert (got, provider.seen[0].keys) == (status, where)
        if status == 401:
            assert json.loads(body)["error"]["type"] == "authentication_error"

    with_provider(play, api_key="right")


def test_a_turn_that_did_not_arrive_is_said_again_and_only_to_who_offers_tools() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.turns([ToolCall("look_up", {}), Text("done")])
        await ask(caller, message())
        await ask(caller, faulty("status:500", tools=TOOLS))
        await ask(caller, faulty("error_in_stream:1", tools=TOOLS, stream=True))
        assert provider.turns_left == 2
        for kind in ("tool_use", "text"):
            _, _, body = await ask(caller, message(tools=TOOLS))
            assert json.loads(body)["content"][0]["type"] == kind
        assert provider.turns_left == 0
        with pytest.raises(ValueError, match="thoughts come first"):
            provider.turns([[Text("a"), Thought("b")]])

    with_provider(play)


def test_models_are_listed_in_anthropics_form_to_who_names_its_version() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(path="/v1/models?limit=1000", **VERSION)
        _, _, body = await caller.answer()
        listed = json.loads(body)
        assert [one["id"] for one in listed["data"]] == ["m", "other"]
        assert (listed["data"][0]["type"], listed["has_more"], listed["last_id"]) == ("model", False, "other")
        caller.ask(path="/", method="HEAD")
        assert (await caller.head())[0] == 200

    with_provider(play)

"""The fake provider's responses wire does what the other tests rely on."""

import json
from typing import Any

import pytest

from tests.fakes.answers import FreeToolCall, Text, Thought, ToolCall
from tests.fakes.caller import Caller, payloads, with_provider
from tests.fakes.provider import FakeProvider

PATH = "/v1/responses"
TOOLS = [{"type": "function", "name": "look_up", "parameters": {"type": "object"}}]


def response(**more: Any) -> dict[str, Any]:
    return {"model": "m", "input": "hello " * 40} | more


async def ask(caller: Caller, body: object, **headers: str) -> tuple[int, dict[str, str], bytes]:
    caller.ask(body, path=PATH, **headers)
    return await caller.answer()


async def look(caller: Caller, rest: str, method: str = "GET") -> tuple[int, Any]:
    caller.ask(path=f"{PATH}/{rest}", method=method)
    status, _, body = await caller.answer()
    return status, json.loads(body)


def unnamed(value: Any) -> Any:
    """The same without its ids."""
    if isinstance(value, dict):
        return {name: unnamed(one) for name, one in value.items() if name not in ("id", "call_id")}  # pyright: ignore[reportUnknownVariableType] - any JSON
    return [unnamed(one) for one in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType] - any JSON


def test_whole_and_streamed_answers_say_and_cost_the_same() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        turn = [
            Thought(("well ", "then")),
            Text("I look"),
            ToolCall("look_up", {"q": "Zürich"}),
            FreeToolCall("patch", "*** Begin"),
        ]
        provider.turns([turn, turn])
        _, _, body = await ask(caller, response(tools=TOOLS))
        whole = json.loads(body)
        kinds = ["reasoning", "message", "function_call", "custom_tool_call"]
        assert [one["type"] for one in whole["output"]] == kinds
        _, _, body = await ask(caller, response(tools=TOOLS, stream=True))
        events = payloads(body)
        assert [one["sequence_number"] for one in events] == list(range(len(events)))
        assert [one["type"] for one in events[:2]] == ["response.created", "response.in_progress"]
        assert events[-1]["type"] == "response.completed"
        assert b"[DONE]" not in body
        done = [one["item"] for one in events if one["type"] == "response.output_item.done"]
        assert done == events[-1]["response"]["output"]
        assert unnamed(done) == unnamed(whole["output"])
        deltas = [one for one in events if one["type"].endswith(".delta")]
        assert all(one["obfuscation"] for one in deltas)
        assert "".join(one["delta"] for one in deltas if "arguments" in one["type"]) == '{"q":"Zürich"}'
        usage = events[-1]["response"]["usage"]
        assert usage["output_tokens"] == len(deltas) == whole["usage"]["output_tokens"]
        assert usage["output_tokens_details"] == {"reasoning_tokens": 2}
        cached = usage["input_tokens_details"]["cached_tokens"]
        assert (cached > 0, cached % 16) == (True, 0)
        assert provider.bill()["#2"] == (
            (usage["input_tokens"] - cached) * 1_250_000 + cached * 125_000 + len(deltas) * 10_000_000
        )

    with_provider(play)


def test_a_stream_has_no_noise_for_who_wants_none() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        quiet = {"include_obfuscation": False}
        _, _, body = await ask(caller, response(stream=True, stream_options=quiet))
        assert b"obfuscation" not in body

    with_provider(play)


def test_a_response_can_be_found_by_its_id_where_it_was_made_and_nowhere_else() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        _, _, body = await ask(caller, response(stream=True))
        made = payloads(body)[-1]["response"]
        assert await look(caller, made["id"]) == (200, made)
        status, items = await look(caller, f"{made['id']}/input_items")
        assert (status, items["data"][0]["role"]) == (200, "user")
        _, _, body = await ask(caller, response(input="and?", previous_response_id=made["id"]))
        after = json.loads(body)
        assert after["usage"]["input_tokens"] > made["usage"]["input_tokens"]
        _, items = await look(caller, f"{after['id']}/input_items")
        assert [one["role"] for one in items["data"]] == ["user", "assistant", "user"]
        assert (await look(caller, f"{made['id']}/cancel", "POST"))[0] == 400
        assert (await look(caller, made["id"], "DELETE"))[1]["deleted"] is True
        assert (await look(caller, made["id"]))[0] == 404
        status, _, body = await ask(caller, response(previous_response_id=made["id"]))
        assert (status, json.loads(body)["error"]["code"]) == (400, "previous_response_not_found")
        assert len(provider.bill()) == 2

    with_provider(play)


def test_what_is_not_to_be_stored_or_did_not_end_is_not_found() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        for more in ({"store": False}, {"user": "fault:response_failed:server_error"}):
            _, _, body = await ask(caller, response(**more))
            assert (await look(caller, json.loads(body)["id"]))[0] == 404

    with_provider(play)


def test_one_in_the_background_is_done_when_asked_again_and_can_be_cancelled() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        _, _, body = await ask(caller, response(background=True))
        queued = json.loads(body)
        assert (queued["status"], queued["usage"]) == ("queued", None)
        status, done = await look(caller, queued["id"])
        assert (status, done["status"], done["usage"]["output_tokens"]) == (200, "completed", 8)
        assert (await look(caller, f"{queued['id']}/cancel", "POST"))[1]["status"] == "cancelled"

    with_provider(play)


def test_encrypted_reasoning_is_read_only_by_who_made_it() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        provider.turns([[Thought("hm"), Text("so")]])
        _, _, body = await ask(caller, response(tools=TOOLS, store=False))
        items = json.loads(body)["output"]
        assert (await ask(caller, response(input=items)))[0] == 200
        other = await Caller.to(elsewhere)
        status, _, body = await ask(other, response(input=items))
        await other.close()
        assert (status, json.loads(body)["error"]["code"]) == (400, "invalid_encrypted_content")

    elsewhere = FakeProvider(name="b")

    async def both(provider: FakeProvider, caller: Caller) -> None:
        async with elsewhere:
            await play(provider, caller)

    with_provider(both)


@pytest.mark.parametrize(
    ("fault", "end"),
    [
        ("response_failed:insufficient_quota", '"code":"insufficient_quota"'),
        ("error_in_stream", '"code":"server_error"'),
    ],
)
def test_a_stream_can_fail_in_either_way(fault: str, end: str) -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        _, _, body = await ask(caller, response(stream=True, user=f"fault:{fault}"))
        last = body.decode().strip().split("\n\n")[-1]
        kind = "response.failed" if fault.startswith("response_failed") else "error"
        assert last.startswith(f"event: {kind}\n")
        assert end in last
        assert provider.charges["#1"].counts.completion == 2

    with_provider(play)


def test_a_limit_leaves_it_incomplete() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        _, _, body = await ask(caller, response(stream=True, max_output_tokens=3))
        last = payloads(body)[-1]
        assert last["type"] == "response.incomplete"
        assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
        assert last["response"]["usage"]["output_tokens"] == 3

    with_provider(play)


def test_usage_can_be_odd_or_missing() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        _, _, body = await ask(caller, response(user="fault:usage:mismatch"))
        usage = json.loads(body)["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] + 7
        _, _, body = await ask(caller, response(stream=True, user="fault:no_usage"))
        assert "usage" not in payloads(body)[-1]["response"]
        with pytest.raises(ConnectionResetError):
            await ask(caller, response(user="fault:growing_usage"))  # only chat has it

    with pytest.raises(ValueError, match="for the chat wire"):
        with_provider(play)


def test_an_upgrade_is_told_to_post() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask(path=PATH, upgrade="websocket", connection="Upgrade")
        assert (await caller.answer())[0] == 426

    with_provider(play)

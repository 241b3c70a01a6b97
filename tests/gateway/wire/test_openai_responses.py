import json
from typing import Any

import pytest

from gateway.errors import GatewayError
from gateway.wire.openai_responses import read_response_request
from gateway.wire.request import Request, facts_for, prepare
from routers.classify import classify
from routers.facts import RequestFacts


def asked(**members: Any) -> Request:
    return read_response_request(json.dumps({"model": "m", "input": "hello", **members}).encode())


def facts(**members: Any) -> RequestFacts:
    return facts_for(asked(**members), None, ())


def said(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def test_a_plain_text_is_one_message_of_the_user():
    request = asked()
    found = facts_for(request, None, ())
    assert (found.endpoint, found.messages, found.turn, found.stream) == ("responses", 1, 1, False)
    assert request.peek().user == b"hello"


def test_an_agents_turn_is_read():
    items: list[dict[str, Any]] = [
        said("developer", "rules"),
        said("user", "fix it"),
        {"type": "reasoning", "encrypted_content": "x", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
    ]
    request = asked(
        input=items,
        instructions="You are Codex",
        tools=[{"type": "function", "name": "shell"}],
        stream=True,
        max_output_tokens=500,
        reasoning={"effort": "high"},
        prompt_cache_key="s-1",
        service_tier="priority",
    )
    found = facts_for(request, None, ())
    assert (found.messages, found.turn, found.stream, found.max_output_tokens) == (5, 1, True, 500)
    assert (found.reasoning_effort, found.session, found.service_tier) == ("high", "s-1", "priority")
    peek = request.peek()
    assert (peek.system, peek.user, peek.tool_results) == (b"You are Codex", b"fix it", True)
    assert classify(found, peek).task_kind == "agent"


def test_a_message_needs_no_type():
    assert facts(input=[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]).turn == 2


@pytest.mark.parametrize(
    ("part", "images", "audio"),
    [
        ({"type": "input_image", "image_url": "data:"}, True, False),
        ({"type": "input_audio", "input_audio": "a"}, False, True),
        ({"type": "input_text", "text": "input_image"}, False, False),
    ],
)
def test_pictures_and_sound_are_seen(part: dict[str, Any], images: bool, audio: bool):
    found = facts(input=[{"role": "user", "content": [part]}])
    assert (found.has_images, found.has_audio) == (images, audio)
    output = {"type": "function_call_output", "call_id": "c", "output": [part]}
    assert facts(input=[output]).has_images == images


@pytest.mark.parametrize(
    ("kind", "json_output", "json_schema"),
    [("text", False, False), ("json_object", True, False), ("json_schema", True, True)],
)
def test_json_is_asked_for(kind: str, json_output: bool, json_schema: bool):
    found = facts(text={"format": {"type": kind}})
    assert (found.json_output, found.json_schema) == (json_output, json_schema)


def test_what_it_goes_on_from_is_known():
    assert asked(previous_response_id="resp_1").continues == "resp_1"
    assert asked().continues is None


def test_the_same_beginning_is_the_same_session():
    first = [said("developer", "rules"), said("user", "fix it")]
    later = [*first, said("assistant", "done"), said("user", "and now?")]
    assert facts(input=first).session == facts(input=later).session
    assert facts(input=first).session != facts(input=[said("user", "other")]).session
    assert facts(instructions="a").session != facts(instructions="b").session


@pytest.mark.parametrize("odd", [[3, "x", {"role": "user", "content": "hi"}], {"a": 1}, None, 4])
def test_an_odd_input_is_the_providers_to_judge(odd: Any):
    assert facts(input=odd).model == "m"


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"[]", "invalid_json", None),
        (b'{"input": "a"}', "missing_field", "model"),
        (b'{"model": null}', "invalid_value", "model"),
        (b'{"model": "m", "max_output_tokens": "9"}', "invalid_value", "max_output_tokens"),
        (b'{"model": "m", "input": [{"role": "user", "role": "system"}]}', "duplicate_key", "role"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(body: bytes, code: str, param: str | None):
    with pytest.raises(GatewayError) as raised:
        read_response_request(body)
    assert (raised.value.code, raised.value.param) == (code, param)


def test_the_bytes_stay_but_for_the_models_name_and_a_cap():
    body = b'{"model":"tier","input":[{"b":1,"a":"\\u00e9"}],"max_output_tokens":900}'
    prepared = prepare(read_response_request(body), model="gpt-5.6", max_output_tokens=800)
    assert prepared.body == b'{"model":"gpt-5.6","input":[{"b":1,"a":"\\u00e9"}],"max_output_tokens":800}'
    assert prepared.changed == ("max_output_tokens=800",)

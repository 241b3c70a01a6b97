import json
from typing import Any

import pytest

from gateway.auth import Caller
from gateway.errors import GatewayError
from gateway.wire.anthropic_messages import read_count_tokens, read_messages
from gateway.wire.request import Request, facts_for, prepare
from routers.classify import classify
from routers.facts import RequestFacts

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]


def asked(**members: Any) -> Request:
    whole = {"model": "m", "max_tokens": 100, "messages": HELLO, **members}
    return read_messages(json.dumps(whole).encode())


def facts(headers: tuple[tuple[bytes, bytes], ...] = (), **members: Any) -> RequestFacts:
    return facts_for(asked(**members), None, headers)


def refusal(body: bytes) -> tuple[int, str, str | None]:
    with pytest.raises(GatewayError) as raised:
        read_messages(body)
    return raised.value.status, raised.value.code, raised.value.param


def test_a_plain_question_is_read():
    found = facts()
    assert found.endpoint == "messages"
    assert (found.model, found.stream, found.max_output_tokens, found.messages, found.turn) == (
        "m", False, 100, 1, 1,
    )  # fmt: skip
    assert (found.has_tools, found.has_images, found.json_output) == (False, False, False)


def test_a_tools_result_is_no_turn_of_the_user():
    conversation: list[dict[str, Any]] = [
        *HELLO,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "ls", "input": "i"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "a.py"}]},
    ]
    request = asked(messages=conversation, tools=[{"name": "ls"}])
    found = facts_for(request, None, ())
    assert (found.messages, found.turn, found.has_tools) == (3, 1, True)
    assert request.peek().tool_results
    assert request.peek().user == b"hello"
    assert classify(found, request.peek()).task_kind == "agent"


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "image", "source": "s"}],
        [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": "s"}]}],
        [3, {"type": "image", "source": "s"}],
    ],
)
def test_a_picture_is_seen_wherever_it_stands(content: list[Any]):
    assert facts(messages=[{"role": "user", "content": content}]).has_images


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "tool_result", "content": 'he said "image"'}],
        [{"type": "text", "text": '"image"'}],
        None,
        7,
        [],
    ],
)
def test_the_word_alone_is_no_picture(content: Any):
    assert not facts(messages=[{"role": "user", "content": content}]).has_images


@pytest.mark.parametrize(
    ("members", "effort"),
    [
        ({}, None),
        ({"thinking": {"type": "disabled"}}, None),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "enabled"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "max"),
    ],
)
def test_how_hard_it_asks_to_think(members: dict[str, Any], effort: str | None):
    assert facts(**members).reasoning_effort == effort


@pytest.mark.parametrize(
    "where",
    [{"output_format": {"type": "json_schema"}}, {"output_config": {"format": {"type": "json_schema"}}}],
)
def test_a_schema_is_asked_for_in_two_ways(where: dict[str, Any]):
    found = facts(**where)
    assert (found.json_output, found.json_schema) == (True, True)


def test_the_session_of_claude_code_is_in_its_user_id_and_in_its_header():
    by_body = facts(metadata={"user_id": "user_ab_account__session_0f1e"})
    assert (by_body.session, by_body.user) == ("0f1e", "user_ab_account_")
    by_json = facts(metadata={"user_id": '{"device_id":"d1","account_uuid":"","session_id":"s1"}'})
    assert (by_json.session, by_json.user) == ("s1", "d1")
    assert facts(((b"x-claude-code-session-id", b"s2"),)).session == "s2"
    assert facts(((b"x-faregate-session", b"mine"),), metadata={"user_id": "u_session_x"}).session == "mine"


def test_the_changing_billing_line_does_not_change_the_session():
    def system(cch: str) -> list[dict[str, str]]:
        return [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2; cch={cch};"},
            {"type": "text", "text": "You are careful. Translate nothing."},
        ]

    one, other = asked(system=system("aaaa")), asked(system=system("bbbb"))
    assert facts_for(one, None, ()).session == facts_for(other, None, ()).session
    assert one.peek().system == b"You are careful. Translate nothing."
    assert facts_for(one, None, ()).session != facts().session


def test_the_team_comes_from_the_key_alone():
    caller = Caller(key_id="key_1", team="search", application="bot")
    found = facts_for(asked(), caller, ((b"x-faregate-application", b"other"),))
    assert (found.key_id, found.team, found.application) == ("key_1", "search", "bot")


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (b"", (400, "invalid_json", None)),
        (b'{"model": "m"}', (400, "missing_field", "messages")),
        (b'{"messages": []}', (400, "missing_field", "model")),
        (b'{"model": "m", "messages": 3}', (400, "invalid_value", "messages")),
        (b'{"model": "m", "messages": [3]}', (400, "invalid_value", "messages")),
        (b'{"model": "m", "messages": [], "max_tokens": 0}', (400, "invalid_value", "max_tokens")),
        (b'{"model": "m", "messages": [], "stream": "yes"}', (400, "invalid_value", "stream")),
        (b'{"model": "m", "model": "n", "messages": []}', (400, "duplicate_key", "model")),
        (
            b'{"model": "m", "messages": [{"role": "user", "role": "assistant"}]}',
            (400, "duplicate_key", "role"),
        ),
        (
            b'{"model": "m", "messages": [], "thinking": {"type": "a", "type": "b"}}',
            (400, "duplicate_key", "type"),
        ),
        (b'{"model": "m", "messages": []} \xff', (400, "invalid_utf8", None)),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(body: bytes, refused: tuple[int, str, str | None]):
    assert refusal(body) == refused


def test_the_bytes_stay_but_for_the_models_name():
    body = b'{ "messages":[{"content":"<&\\u00e9>","role":"user"}],"max_tokens" : 9,  "model":"tier" }'
    request = read_messages(body)
    assert prepare(request, model="tier").body is body
    assert prepare(request, model="claude-x").body == body.replace(b'"tier"', b'"claude-x"')


def test_a_tiers_cap_lowers_what_was_asked_for():
    prepared = prepare(asked(max_tokens=100), model="m", max_output_tokens=10)
    assert json.loads(prepared.body)["max_tokens"] == 10
    assert prepared.changed == ("max_tokens=10",)


def test_counting_tokens_makes_no_output_and_no_stream():
    request = read_count_tokens(json.dumps({"model": "m", "messages": HELLO, "stream": True}).encode())
    found = facts_for(request, None, ())
    assert (found.endpoint, found.stream, found.max_output_tokens) == ("count_tokens", False, 0)
    body = prepare(request, model="n", max_output_tokens=5).body
    assert json.loads(body) == {"model": "n", "messages": HELLO, "stream": True}

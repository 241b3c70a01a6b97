import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.auth import Caller
from gateway.errors import GatewayError
from gateway.wire.openai_chat import (
    ChatRequest,
    facts_for,
    prepare,
    read_request,
)
from routers.session import session_from_prefix

USER: list[dict[str, object]] = [{"role": "user", "content": "hello"}]


@dataclass(frozen=True)
class Changes:
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    drop: tuple[str, ...] = ()


def chat(**members: object) -> ChatRequest:
    return read_request(json.dumps({"model": "m", "messages": USER, **members}).encode())


def refusal(body: bytes) -> tuple[int, str, str | None]:
    with pytest.raises(GatewayError) as raised:
        read_request(body)
    return raised.value.status, raised.value.code, raised.value.param


# ── reading ──


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"messages":[]}', (400, "missing_field", "model")),
        ('{"model":"m"}', (400, "missing_field", "messages")),
        ('{"model":null,"messages":[]}', (400, "invalid_value", "model")),
        ('{"model":"m","messages":null}', (400, "invalid_value", "messages")),
        ('{"model":5,"messages":[]}', (400, "invalid_value", "model")),
        ('{"model":["m"],"messages":[]}', (400, "invalid_value", "model")),
        ('{"model":"","messages":[]}', (404, "model_not_found", "model")),
        ('{"model":"' + "m" * 257 + '","messages":[]}', (404, "model_not_found", "model")),
        ('{"model":"' + "é" * 129 + '","messages":[]}', (404, "model_not_found", "model")),
        ('{"model":"a\\r\\nx-evil: 1","messages":[]}', (400, "invalid_value", "model")),
        ('{"model":"a\\u007f","messages":[]}', (400, "invalid_value", "model")),
        ('{"model":"m","messages":"hello"}', (400, "invalid_value", "messages")),
        ('{"model":"m","messages":[{},5]}', (400, "invalid_value", "messages")),
        ('{"model":"m","messages":[],"stream":"true"}', (400, "invalid_value", "stream")),
        ('{"model":"m","messages":[],"stream":1}', (400, "invalid_value", "stream")),
        ('{"model":"m","messages":[],"n":0}', (400, "invalid_value", "n")),
        ('{"model":"m","messages":[],"n":1000}', (400, "invalid_value", "n")),
        ('{"model":"m","messages":[],"n":true}', (400, "invalid_value", "n")),
    ],
)
def test_a_field_that_a_decision_reads_must_be_right(body: str, expected: tuple[int, str, str]):
    assert refusal(body.encode()) == expected


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "5.0", '"5"', "true", "[]", "1000000000001", "1" * 40])
def test_a_limit_on_the_answer_must_be_a_whole_number(name: str, value: str):
    body = f'{{"model":"m","messages":[],"{name}":{value}}}'.encode()
    assert refusal(body) == (400, "invalid_value", name)


def test_a_limit_may_be_absent_or_null_or_huge():
    assert chat().max_output_tokens is None
    assert chat(max_tokens=None).max_output_tokens is None
    assert chat(max_tokens=10**12).max_output_tokens == 10**12


def test_of_two_limits_the_larger_is_reserved_for():
    assert chat(max_tokens=5, max_completion_tokens=9).max_output_tokens == 9
    assert chat(max_tokens=9, max_completion_tokens=5).max_output_tokens == 9


def test_the_name_that_is_checked_is_the_name_that_was_sent():
    for name in ("M", "ｍ", "m.", "m ", "m\u200b", "../m", "m%2f", "\u202em"):
        assert chat(model=name).model == name


def test_facts_are_read_from_the_body():
    body: dict[str, object] = {
        "model": "auto",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
            {"role": "tool", "content": "result"},
            {"role": "user", "content": [{"type": "text", "text": "two"}]},
        ],
        "stream": True,
        "n": 3,
        "max_tokens": 7,
        "tools": [{"type": "function"}],
        "response_format": {"type": "json_schema", "json_schema": {}},
        "reasoning_effort": "high",
        "service_tier": "flex",
        "user": "u-1",
        "metadata": {"customer": "acme", "feature": "search", "task": "t-1", "session_id": "s-1"},
    }
    raw = json.dumps(body).encode()
    facts = read_request(raw).facts
    assert (facts.model, facts.stream, facts.choices, facts.max_output_tokens) == ("auto", True, 3, 7)
    assert (facts.messages, facts.turn) == (5, 2)
    assert (facts.input_bytes, facts.input_tokens) == (len(raw), (len(raw) + 3) // 4)
    assert (facts.has_tools, facts.json_output, facts.json_schema) == (True, True, True)
    assert (facts.has_images, facts.has_audio) == (False, False)
    assert (facts.reasoning_effort, facts.service_tier, facts.user) == ("high", "flex", "u-1")
    assert (facts.customer, facts.feature, facts.task) == ("acme", "search", "t-1")
    assert facts.session == "s-1"
    assert read_request(raw).peek().tool_results


CONTENTS: list[tuple[object, bool, bool]] = [
    ([{"type": "image_url", "image_url": {"url": "data:,"}}], True, False),
    ([{"type": "text", "text": "image_url"}], False, False),
    ([{"type": "input_audio", "input_audio": {}}], False, True),
    (["text", 5, {"type": "image_url"}], True, False),
    ("image_url", False, False),
    ([{"type": ["image_url"]}], False, False),
]


@pytest.mark.parametrize(("content", "images", "audio"), CONTENTS)
def test_images_and_sound_are_seen_in_the_parts_of_a_message(content: object, images: bool, audio: bool):
    facts = chat(messages=[{"role": "user", "content": "x"}, {"role": "user", "content": content}]).facts
    assert (facts.has_images, facts.has_audio) == (images, audio)


def test_an_escape_hides_no_image():
    body = rb'{"model":"m","messages":[{"role":"user","content":[{"typ\u0065":"imag\u0065_url"}]}]}'
    assert read_request(body).facts.has_images


@pytest.mark.parametrize("tools", ["null", "[]", " [ ] ", "{}"])
def test_no_tools_are_no_tools(tools: str):
    body = f'{{"model":"m","messages":[],"tools":{tools}}}'.encode()
    assert not read_request(body).facts.has_tools


def test_tools_in_the_older_form_are_tools():
    assert chat(functions=[{"name": "f"}]).facts.has_tools


def test_json_is_seen_with_and_without_a_schema():
    assert chat(response_format={"type": "json_object"}).json_output == (True, False)
    assert chat(response_format={"type": "text"}).json_output == (False, False)
    assert chat(response_format="json").json_output == (False, False)


def test_fields_of_other_gateways_and_unknown_ones_change_no_fact():
    plain = chat().facts
    steering = chat(
        api_base="http://evil", base_url="x", api_key="k", fallbacks=["a"], mock_response="m", timeout=1,
        custom_llm_provider="y", extra_body={"model": "z"}, Model="big", chat_template_kwargs={"a": 1},
    ).facts  # fmt: skip
    for name in ("model", "has_tools", "json_output", "team", "application", "session", "choices"):
        assert getattr(plain, name) == getattr(steering, name)


def test_the_team_and_a_keys_application_come_from_the_key_alone():
    headers = [
        (b"x-faregate-application", b"other"),
        (b"x-faregate-customer", b"acme"),
        (b"x-faregate-feature", b"search"),
        (b"x-faregate-task", b"t-9"),
        (b"x-faregate-session", b"s-9"),
        (b"x-faregate-team", b"rich"),
        (b"authorization", b"Bearer x"),
    ]
    bound = facts_for(chat(), Caller(key_id="k1", team="search", application="tickets"), headers)
    free = facts_for(chat(), Caller(key_id="k1", team="search"), headers)
    assert (bound.team, bound.application, free.application) == ("search", "tickets", "other")
    assert (bound.customer, bound.feature, bound.task, bound.session) == ("acme", "search", "t-9", "s-9")
    assert bound.key_id == "k1"


def test_labels_are_kept_printable_and_short():
    facts = facts_for(chat(user="a\nb" + "c" * 500), None, [(b"x-faregate-task", b"x\x00\xff" + b"y" * 500)])
    assert facts.user is not None
    assert facts.task is not None
    assert facts.user.isprintable()
    assert len(facts.user) <= 128
    assert len(facts.task) <= 128


def test_the_session_of_claude_code_is_inside_its_user_id():
    user_id = "user_" + "a" * 64 + "_account__session_8f14e45f"
    assert chat(metadata={"user_id": user_id}).facts.session == "8f14e45f"
    assert chat(prompt_cache_key="codex-1").facts.session == "codex-1"


def test_without_an_id_the_session_is_the_prompts_beginning():
    first = chat(tools=[{"a": 1}])
    later = chat(tools=[{"a": 1}], messages=[*USER, {"role": "assistant", "content": "x"}, *USER])
    other = chat(tools=[{"a": 2}])
    assert first.facts.session == later.facts.session
    assert first.facts.session != other.facts.session
    key = Caller(key_id="k", team="t")
    assert facts_for(first, key, ()).session != first.facts.session


# ── the look at the texts ──


def test_the_look_is_at_the_last_user_message_and_the_system_text():
    peek = chat(
        messages=[
            {"role": "developer", "content": "be kind"},
            {"role": "user", "content": "first"},
            {"role": "assistant", "content": "answer"},
            {"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "last é"}]},
            {"role": "tool", "content": "5"},
        ]
    ).peek()
    assert (peek.system, peek.user, peek.tool_results) == (b"be kind", "last é".encode(), True)


@pytest.mark.parametrize(
    ("roles", "seen"),
    [
        (["system", "user"], (b"0", b"1")),
        (["user", "system", "assistant"], (b"1", b"0")),
        (["developer", "system", "user", "user", "assistant", "tool"], (b"0", b"3")),
        (["user", "assistant", "system"], (b"", b"0")),
        (["system"], (b"0", b"")),
        (["assistant", "developer"], (b"1", b"")),
        (["critic", None, "user"], (b"", b"2")),
        ([], (b"", b"")),
    ],
)
def test_the_system_text_is_one_of_the_first_two_messages(roles: list[str | None], seen: tuple[bytes, bytes]):
    peek = chat(messages=[{"role": role, "content": str(i)} for i, role in enumerate(roles)]).peek()
    assert (peek.system, peek.user) == seen


def test_the_look_is_bounded_and_reads_escapes():
    long = "翻译" * 20_000 + "end"
    for ascii_only in (True, False):
        body = json.dumps(
            {"model": "m", "messages": [{"role": "user", "content": long}]}, ensure_ascii=ascii_only
        )
        peek = read_request(body.encode()).peek()
        assert peek.user.decode("utf-8", "ignore").startswith("翻译翻译")
        assert peek.user_end.endswith(b"end")
        assert len(peek.user) <= 4_096


def test_a_message_without_a_text_gives_nothing_to_look_at():
    for content in (None, 5, [], ["a"], [{"type": "text", "text": 5}], {"a": 1}):
        assert chat(messages=[{"role": "user", "content": content}]).peek().user == b""
    assert chat(messages=[{"role": "user"}, {}]).peek().user == b""


# ── the usual body and every other ──

_texts: st.SearchStrategy[Any] = st.sampled_from(
    [
        "hello", "Translate é this", "翻译", "", "a\n```x```", '"quoted" \\ `', "😀" * 40, "x" * 4_095, "é" * 3_000,
        "x-anthropic-billing-header: a; cch=1;", [{"type": "text", "text": "Summarize"}, {"type": "image_url"}],
        [{"type": "input_audio"}, 5], [], None, 5, {"a": 1},
    ]
)  # fmt: skip
_messages: st.SearchStrategy[list[dict[str, Any]]] = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(
                ["user", "user", "user", "system", "developer", "assistant", "tool", "function"]
            )
        },
        optional={"content": _texts, "tool_calls": st.just([{"id": "1"}])},
    ),
    max_size=5,
)
_more: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"model": st.sampled_from(["m", "é" * 70, "m" * 256, "a\u200bb"])},
    optional={
        "stream": st.sampled_from([True, False, None]),
        "stream_options": st.sampled_from([None, {}, {"include_usage": True}, {"include_usage": 1}, "x"]),
        "max_tokens": st.sampled_from([None, 1, 9, 10**12]),
        "max_completion_tokens": st.sampled_from([None, 1, 5, 10**12]),
        "n": st.sampled_from([None, 1, 128]),
        "tools": st.sampled_from([None, [], {}, [{"a": 1}], [{"a": "b" * 100}]]),
        "functions": st.sampled_from([None, [], [{"name": "f"}]]),
        "response_format": st.sampled_from([None, {"type": "json_object"}, {"type": "json_schema"}, "text"]),
        "reasoning_effort": st.sampled_from([None, "high", 5]),
        "user": st.sampled_from([None, "u-1", ""]),
        "metadata": st.sampled_from([None, {"customer": "acme"}, {"user_id": "a_session_b"}]),
        "temperature": st.just(0.5),
    },
)


@settings(max_examples=300, deadline=None)
@given(
    _messages, _more, st.booleans(), st.sampled_from([None, Caller(key_id="k", team="t", application="a")])
)
@example([{"role": "system", "content": "be kind"}, USER[0]], {"model": "m", "tools": [{}]}, False, None)
@example([USER[0], {"role": "system", "content": "be kind"}], {"model": "m"}, False, None)
def test_what_is_read_of_a_usual_body_is_what_is_read_of_every_body(
    messages: list[dict[str, Any]], more: dict[str, Any], ascii_only: bool, caller: Caller | None
):
    usual = '{"role":"assistant"}'
    body = json.dumps({**more, "messages": [*messages, "LAST"]}, ensure_ascii=ascii_only)
    # A message that no API knows, as long, and a header that says nothing: both make the look a careful one.
    reads = [
        read_request(body.replace('"LAST"', last.ljust(len(usual))).encode())
        for last in (usual, '{"role":1}')
    ]
    no_label = [(b"host", b"a"), (b"x-faregate-task", b"")]

    facts = [facts_for(read, caller, headers) for read in reads for headers in ((), no_label)]

    assert facts[1:] == facts[:1] * 3
    assert facts[0].session == (
        reads[0].own_session or session_from_prefix(facts[0].key_id, reads[1].prefix())
    )
    assert reads[0].peek() == reads[1].peek()
    assert reads[0].wants_usage == reads[1].wants_usage


@pytest.mark.parametrize(
    ("parameters", "model", "cap", "stream"),
    [
        (Changes(rename={"a": "b"}), "m", None, False),
        (None, "n", None, False),
        (None, "m", 5, False),
        (None, "m", None, True),
    ],
)
def test_each_thing_that_may_change_a_body_changes_it(
    parameters: Changes | None, model: str, cap: int | None, stream: bool
):
    request = chat(a=1, stream=stream)
    assert prepare(request, model="m", ask_usage=False).body is request.body
    changed = prepare(request, model=model, parameters=parameters, max_output_tokens=cap)
    assert json.loads(changed.body) != json.loads(request.body)


# ── what is sent on ──

BODY = b"""{ "temperature" : 0.5,
  "model":"m", "mess\\u0061ges":[{"role":"user","content":"<a> \\u00e9 \xc3\xa9 \\"model\\":\\"m\\""}],
  "stream": true , "max_tokens" : 50, "logit_bias":{"1":1,"1":2}, "x":1.50 } """


def test_only_the_models_name_and_the_usage_switch_are_changed():
    sent = prepare(read_request(BODY), model="gpt-5.6")
    expected = BODY.replace(b'"model":"m",', b'"model":"gpt-5.6",', 1).replace(
        b"1.50 }", b'1.50, "stream_options": {"include_usage": true} }'
    )
    assert sent.body == expected
    assert sent.changed == ()


def test_a_body_that_needs_no_change_is_sent_as_it_is():
    request = read_request(BODY)
    assert prepare(request, model="m", ask_usage=False).body is BODY


def test_a_name_spelt_in_escapes_is_found():
    sent = prepare(read_request(b'{"mod\\u0065l":"\\u006d","messages":[]}'), model='a"b\\c')
    assert sent.body == b'{"mod\\u0065l":"a\\"b\\\\c","messages":[]}'


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (b"null", b'{"include_usage": true}'),
        (b"{}", b'{"include_usage": true}'),
        (b"{ }", b'{"include_usage": true}'),
        (b'{"include_usage":false}', b'{"include_usage":true}'),
        (b'{"include_usage" : null , "a":1}', b'{"include_usage" : true , "a":1}'),
        (b'{"include_obfuscation":false }', b'{"include_obfuscation":false, "include_usage": true }'),
        (b'{"include_usage":true}', b'{"include_usage":true}'),
        (b'{"include_us\\u0061ge":false}', b'{"include_us\\u0061ge":true}'),
    ],
)
def test_the_usage_switch_is_set_and_its_neighbours_kept(options: bytes, expected: bytes):
    body = b'{"model":"m","messages":[],"stream":true,"stream_options":%s,"z":1}'
    sent = prepare(read_request(body % options), model="m")
    assert sent.body == body % expected


def test_usage_is_not_asked_of_a_whole_answer_or_where_it_is_not_wanted():
    for body, ask in (
        (b'{"model":"m","messages":[]}', True),
        (b'{"model":"m","messages":[],"stream":true}', False),
    ):
        assert prepare(read_request(body), model="m", ask_usage=ask).body == body


def test_wants_usage_is_what_the_client_asked_for():
    assert chat(stream=True, stream_options={"include_usage": True}).wants_usage
    assert not chat(stream=True, stream_options={"include_usage": 1}).wants_usage
    assert not chat(stream=True).wants_usage


def test_declared_parameters_are_spliced_and_named():
    changes = Changes(rename={"max_tokens": "max_completion_tokens"}, drop=("temperature", "absent"))
    sent = prepare(read_request(BODY), model="m", parameters=changes, ask_usage=False)
    expected = BODY.replace(b'"temperature" : 0.5,\n  ', b"").replace(
        b'"max_tokens"', b'"max_completion_tokens"'
    )
    assert sent.body == expected
    assert sent.changed == ("max_tokens->max_completion_tokens", "-temperature")


def test_of_two_names_for_one_thing_the_deployments_own_stays():
    changes = Changes(rename={"max_tokens": "max_completion_tokens"})
    sent = prepare(chat(max_tokens=5, max_completion_tokens=9), model="m", parameters=changes)
    assert json.loads(sent.body) == {"model": "m", "messages": USER, "max_completion_tokens": 9}
    assert sent.changed == ("-max_tokens",)


def test_what_makes_a_request_cannot_be_dropped():
    changes = Changes(rename={"stream": "s"}, drop=("model", "messages"))
    body = b'{"model":"m","messages":[],"stream":true}'
    assert prepare(read_request(body), model="m", parameters=changes, ask_usage=False).body == body


@pytest.mark.parametrize(
    ("set_by_client", "sent_on", "changed"),
    [
        ({"max_tokens": 50}, {"max_tokens": 50}, ()),
        ({"max_tokens": 10**12}, {"max_tokens": 100}, ("max_tokens=100",)),
        ({"max_tokens": None}, {"max_tokens": 100}, ("max_tokens=100",)),
        ({}, {"max_tokens": 100}, ("max_tokens=100",)),
        (
            {"max_tokens": 500, "max_completion_tokens": 600},
            {"max_tokens": 100, "max_completion_tokens": 100},
            ("max_tokens=100", "max_completion_tokens=100"),
        ),
    ],
)
def test_a_tiers_cap_lowers_what_was_set_and_stands_in_where_nothing_was(
    set_by_client: dict[str, object], sent_on: dict[str, object], changed: tuple[str, ...]
):
    sent = prepare(chat(**set_by_client), model="m", max_output_tokens=100)
    assert json.loads(sent.body) == {"model": "m", "messages": USER, **sent_on}
    assert sent.changed == changed


def test_a_cap_goes_by_the_deployments_name():
    changes = Changes(rename={"max_tokens": "max_completion_tokens"})
    for request in (chat(), chat(max_tokens=500)):
        sent = prepare(request, model="m", parameters=changes, max_output_tokens=100)
        assert json.loads(sent.body)["max_completion_tokens"] == 100
        assert "max_completion_tokens=100" in sent.changed


_letters = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
_value = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), _letters, st.just('"model": \\')),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_letters, inner, max_size=3)),
    max_leaves=5,
)
_names = ("temperature", "top_p", "seed", "max_tokens", "x", "stream_options", "user")


@settings(max_examples=100, deadline=None)
@given(
    st.permutations(["model", "messages", "stream", *_names]),
    st.sets(st.sampled_from(_names)),
    st.dictionaries(st.sampled_from(_names[:5]), _value),
    st.sets(st.sampled_from(_names[:5])),
    st.dictionaries(st.sampled_from(_names[:5]), st.sampled_from(["p", "q", "seed"]), max_size=3),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\n ", " :\t")]),
)
def test_a_prepared_body_is_the_same_object_with_the_same_edits(
    order: list[str],
    present: set[str],
    values: dict[str, Any],
    drop: set[str],
    rename: dict[str, str],
    stream: bool,
    ascii_only: bool,
    separators: tuple[str, str],
):
    members: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "user", "content": 'é "\\'}],
        "stream": stream,
    }
    members |= {name: values.get(name) for name in present}
    if "max_tokens" in members:
        members["max_tokens"] = 50
    if "stream_options" in members:
        members["stream_options"] = {"a": 1}
    body: dict[str, Any] = {name: members[name] for name in order if name in members}
    raw = json.dumps(body, ensure_ascii=ascii_only, separators=separators).encode()

    sent = prepare(read_request(raw), model="né", parameters=Changes(rename=rename, drop=tuple(sorted(drop))))

    expected: list[tuple[str, Any]] = []
    taken: set[str] = set()
    moved: dict[str, str] = {}
    for old, new in rename.items():  # the first of two that want one name gets it
        if old in body and old not in drop and new not in body and new not in taken:
            taken.add(new)
            moved[old] = new
    for name, value in body.items():
        if name in drop or (name in rename and name not in moved):
            continue
        value = "né" if name == "model" else value
        if name == "stream_options" and stream:
            value = {"a": 1, "include_usage": True}
        expected.append((moved.get(name, name), value))
    if stream and "stream_options" not in body:
        expected.append(("stream_options", {"include_usage": True}))
    assert json.loads(sent.body, object_pairs_hook=list) == json.loads(
        json.dumps(dict(expected)), object_pairs_hook=list
    )

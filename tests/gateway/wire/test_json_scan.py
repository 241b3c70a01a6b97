import json
import time
from collections.abc import Iterator
from math import isinf
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.errors import GatewayError
from gateway.wire.json_scan import (
    _FORMS_KEPT,  # pyright: ignore[reportPrivateUsage] - the bound is the point
    _SHAPES_KEPT,  # pyright: ignore[reportPrivateUsage] - the bound is the point
    DECIDED,
    MAX_DEPTH,
    _forms,  # pyright: ignore[reportPrivateUsage]
    _shapes,  # pyright: ignore[reportPrivateUsage]
    check_text,
    has_lone_surrogate,
    look,
    scan,
    value_start,
)
from gateway.wire.openai_chat import read_request

EXAMPLES = 100  # thousands were run when this was written
HEAD = b'{"model":"m","messages":[],'


def refused(body: bytes) -> str | None:
    """The code that a body is refused with, None if it is taken."""
    try:
        read_request(body)
    except GatewayError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"   ", "invalid_json"),
        (b"null", "invalid_json"),
        (b"[]", "invalid_json"),
        (b"12", "invalid_json"),
        (b'"text"', "invalid_json"),
        (b"{}{}", "invalid_json"),
        (HEAD + b'"a":1} x', "invalid_json"),
        (b"\xef\xbb\xbf" + HEAD + b'"a":1}', "invalid_json"),
        (HEAD + b'"a":NaN}', "invalid_json"),
        (HEAD + b'"a":Infinity}', "invalid_json"),
        (HEAD + b'"a":-Infinity}', "invalid_json"),
        (HEAD + b'"a":1e999}', "invalid_json"),
        (HEAD + b'"a":-1E+999}', "invalid_json"),
        (HEAD + b'"a":[1,2,[1e400]]}', "invalid_json"),
        (HEAD + b'"a":' + b"9" * 309 + b"}", "invalid_json"),
        (HEAD + b'"a":' + b"9" * 300 + b"e99}", "invalid_json"),
        (HEAD + b'"a":"\xff"}', "invalid_utf8"),
        (HEAD + b'"a":"\xed\xa0\x80"}', "invalid_utf8"),
        (HEAD + b'"\xff":1}', "invalid_utf8"),
        (HEAD + rb'"a":"\ud800"}', "invalid_utf8"),
        (HEAD + rb'"a":"\ud800 and more text behind it"}', "invalid_utf8"),
        (HEAD + rb'"a":"\uDC00\ud800"}', "invalid_utf8"),
        (HEAD + rb'"a":"\ud83d\ud83d\ude00"}', "invalid_utf8"),
        (HEAD + rb'"a":"\u0000"}', "invalid_utf8"),
        (HEAD + rb'"a":"\\\u0000"}', "invalid_utf8"),
        (HEAD + b'"a":"\x00"}', "invalid_utf8"),
        (HEAD + b'"a":"\x01"}', "invalid_json"),
        (HEAD + b'"a":' + b"[" * 63 + b"]" * 63 + b"}", None),
        (HEAD + b'"a":' + b"[" * 64 + b"]" * 64 + b"}", "json_too_deep"),
        (HEAD + b'"a":' + b'{"b":' * 63 + b"1" + b"}" * 63 + b"}", None),
        (HEAD + b'"a":' + b'{"b":' * 64 + b"1" + b"}" * 64 + b"}", "json_too_deep"),
        (HEAD + b'"a":' + b"[" * 1000 + b"]" * 1000 + b"}", "json_too_deep"),
        (HEAD + b'"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "json_too_deep"),
        (HEAD + b'"a":' + b"9" * 308 + b"}", None),
        (HEAD + b'"a":[1e308,-1e-999,0e0,1E2]}', None),
        (HEAD + rb'"a":"\\u0000 \ud83d\ude00 \uD83D\uDE00 \\ud800 u0000"}', None),
    ],
)
def test_a_body_is_refused_for_what_is_wrong_with_it(body: bytes, code: str | None):
    assert refused(body) == code


@pytest.mark.parametrize("name", ["model", "stream", "max_tokens", "messages", "tools", "user", "unknown"])
def test_a_name_that_stands_twice_at_the_top_is_refused(name: str):
    spelt = '"' + "".join(f"\\u{ord(c):04x}" for c in name) + '"'
    for first, second in ((f'"{name}"', f'"{name}"'), (f'"{name}"', spelt), (spelt, spelt)):
        body = f'{{"model":"m","messages":[],{first}:null,"b":1,{second}:null}}'.encode()
        with pytest.raises(GatewayError, match="one object of the body") as raised:
            scan(body)
        assert (raised.value.code, raised.value.param) == ("duplicate_key", name)


@pytest.mark.parametrize("member", sorted(name.decode() for name in DECIDED))
def test_a_name_that_stands_twice_where_a_decision_reads_is_refused(member: str):
    for inner in ('{"a":1,"b":2,"a":3}', '[{"c":[{"a":1},{"a":1,"\\u0061":2}]}]', '{"x":{"a":[],"a":[]}}'):
        with pytest.raises(GatewayError, match=member) as raised:
            scan(f'{{"before":{{}},"{member}":{inner},"after":1}}'.encode())
        assert (raised.value.code, raised.value.param) == ("duplicate_key", "a")


def test_a_name_that_stands_twice_elsewhere_is_data():
    body = b'{"logit_bias":{"a":1,"a":2},"x":[{"messages":{"a":1,"a":2}}],"messages":[{"a":1},{"a":1}]}'
    assert list(scan(body).members) == ["logit_bias", "x", "messages"]


def test_a_body_has_a_bounded_number_of_members():
    members = [b'"%d":%d' % (i, i) for i in range(1_025)]
    assert len(scan(b"{" + b",".join(members[1:]) + b"}").members) == 1_024
    with pytest.raises(GatewayError) as raised:
        scan(b"{" + b",".join(members) + b"}")
    assert raised.value.code == "invalid_value"


def test_what_is_remembered_of_shapes_is_bounded_and_changes_no_answer():
    for i in range(0, 20_000, 7):
        body = b'{"a":%s[%d,"x"%s],"b":{"c":%d.%d}}' % (b" " * (i % 40), i, b"\n" * (i % 7), i, i)
        assert list(scan(body).members) == ["a", "b"]
    assert len(_shapes) <= _SHAPES_KEPT + 1


def test_names_in_two_objects_are_not_one_name_twice():
    body = b'{"messages":[{"role":"a","content":[{"role":"b"}],"name":"c"},{"role":"a"}],"role":1}'
    assert list(scan(body).members) == ["messages", "role"]


def test_other_spellings_of_a_name_are_other_names():
    body = b'{"model":"a","Model":"b","MODEL":"c","model ":"d","messages":[]}'
    assert read_request(body).model == "a"


def test_a_text_that_ends_in_an_escape_hides_nothing():
    hidden = rb'{"messages":[{"a":"\\\", ", "b": ", \"a\": ", "a":1}],"x":"\\"}'
    with pytest.raises(GatewayError) as raised:
        scan(hidden)
    assert raised.value.param == "a"


def test_however_a_body_is_cut_the_same_names_are_the_same():
    doubled = rb'{"metadata":{"x\"":1,"\\q":"\\","\\s\"":"\"","\u005cq":2}}'
    single = rb'{"metadata":{"x\"":1,"\\q":"\\","\\s\"":"\"","\"q":2,"\\\"":3,"\\\\":4,"\\s":5}}'
    for window in range(1, len(single) + 1):
        with pytest.raises(GatewayError) as raised:
            scan(doubled, window=window)
        assert raised.value.param == "\\q"
        assert list(scan(single, window=window).members) == ["metadata"]


def test_lists_inside_messages_are_seen_and_others_are_not():
    assert scan(b'{"messages":[{"content":[{}]}]}').lists_in_messages
    assert not scan(b'{"messages":[{"content":"[]"}],"tools":[{"a":[]}]}').lists_in_messages


def test_a_number_of_a_million_digits_is_refused_at_once():
    body = HEAD + b'"a":' + b"1" * 1_000_000 + b"}"
    started = time.process_time()
    assert refused(body) == "invalid_json"
    assert time.process_time() - started < 0.05


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":[' + b'"",' * 400_000 + b"1]}",
        b'{"messages":[' + b'{"":1},' * 200_000 + b"1]}",
        b'{"a":"' + b'\\"' * 500_000 + b'"}',
        b'{"a":["' + b'\\\\","' * 200_000 + b'"]}',
        b'{"metadata":{' + b",".join(b'"%d":%d' % (i, i) for i in range(100_000)) + b"}}",
        b'{"a":' + b" " * 1_000_000 + b"1}",
        b'{"a":[' + b"1e100," * 200_000 + b"1]}",
    ],
    ids=["texts", "objects", "quotes", "backslashes", "members", "white", "exponents"],
)
def test_the_worst_bodies_take_time_in_proportion_to_their_length(body: bytes):
    started = time.process_time()
    scan(body)
    assert time.process_time() - started < 3e-6 * len(body)


# ── bodies that have the form of an earlier one ──


@pytest.mark.parametrize(
    ("first", "then", "code"),
    [
        (b'"x":1,"y":2}', b'"x":1,"x":2}', "duplicate_key"),
        (b'"x":1,"y":2}', rb'"x":1,"\u0078":2}', "duplicate_key"),
        (b'"x":{"a":1,"a":2}}', b'"metadata":{"a":1,"a":2}}', "duplicate_key"),
        (b'"metadata":{"a":1,"b":2}}', b'"metadata":{"a":1,"a":2}}', "duplicate_key"),
        (b'"x":"a","y":"b","z":1}', rb'"x":"a\",","y":"b\",","y":1}', "duplicate_key"),
        (b'"x":1e108}', b'"x":9e908}', "invalid_json"),
        (b'"x":"a"}', rb'"x":"\ud800"}', "invalid_utf8"),
        (b'"x":"a"}', rb'"x":"\u0000"}', "invalid_utf8"),
        (b'"x":1,"y":2}', b'"y":3,"z":4}', None),
        (b'"x":"a","y":"b"}', b'"x":"x","y":"x"}', None),
    ],
)
def test_a_form_that_was_approved_hides_nothing(first: bytes, then: bytes, code: str | None):
    for _ in range(2):
        assert refused(HEAD + first) is None
    assert refused(HEAD + then) == code


@pytest.mark.parametrize("size", [100, 16_384, 32_768, 32_769, 70_000])
@pytest.mark.parametrize("text", ["é", "漢", "😀", "a😀é"])
def test_a_long_text_is_read_as_a_short_one_wherever_it_is_cut(size: int, text: str):
    for before in range(4):
        body = b"a" * before + (text * (size // len(text.encode()))).encode()
        check_text(body)
        with pytest.raises(GatewayError) as raised:
            check_text(body + "é".encode()[:1])
        assert f"byte {len(body)} " in raised.value.message


def test_what_is_remembered_of_forms_is_bounded():
    for i in range(1_200):
        body = b'{"a":%s1,"b":{"c":2}}' % (b" " * i)
        assert list(look(body).names) == ["a", "b"]
    assert len(_forms) <= _FORMS_KEPT


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","x":1}',
        b'{"x" : "model" , "model" : "m" , "y":{"model":1} }',
        b'{"x":{"model":1},"model":"m","y":[]}',
        b'{ "model":null}',
        b' { "x":[1], "model":\n-1.5E3\n } ',
        b'{"model":{"a":"}"},"x":true}',
        rb'{"mod\u0065l":"m","x":"\n"}',
        rb'{"x":"\"","model":"a\"b"}',
    ],
)
def test_a_member_is_found_where_a_whole_scan_finds_it(body: bytes):
    expected = scan(body).members
    for _ in range(2):
        places = look(body)
        assert places.get("model") == expected["model"]
        assert places.get("absent") is None
        assert places.end() == list(expected.values())[-1][2]
        assert list(places.names) == list(expected)
        assert places.all() == expected


# ── against Python's own parser ──


class Pairs(list[tuple[str, Any]]):
    """An object with all its pairs."""


def _faults(body: bytes) -> set[str]:
    """Everything that is wrong with a body, by Python's own parser."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"invalid_utf8"}
    if "\x00" in text:
        return {"invalid_utf8", "invalid_json"}
    faults: set[str] = set()

    def number(digits: str) -> float:
        if isinf(float(digits)) or max(map(len, digits.replace("e", ".").replace("E", ".").split("."))) > 309:
            faults.add("invalid_json")
        return float(digits)

    def constant(name: str) -> float:
        faults.add("invalid_json")
        return 0.0

    try:
        value: Any = json.loads(
            text, object_pairs_hook=Pairs, parse_int=number, parse_float=number, parse_constant=constant
        )
    except ValueError:
        broken_text = has_lone_surrogate(body) or b"\\u0000" in body  # as well: either may be told
        return {"invalid_json", "invalid_utf8"} if broken_text else {"invalid_json"}
    except RecursionError:
        return {"json_too_deep"}
    if not isinstance(value, Pairs):
        faults.add("invalid_json")
        return faults
    faults.update(_faults_in(value, 1, compared=True, top=True))
    return faults


def _faults_in(value: Any, depth: int, *, compared: bool, top: bool = False) -> Iterator[str]:
    if isinstance(value, str):
        if "\x00" in value or any("\ud800" <= c <= "\udfff" for c in value):
            yield "invalid_utf8"
        return
    if isinstance(value, Pairs):
        names = [name for name, _ in value]
        if depth > MAX_DEPTH:
            yield "json_too_deep"
        if compared and len(names) != len(set(names)):
            yield "duplicate_key"
        for name, inner in value:
            yield from _faults_in(name, depth, compared=False)
            inside = name.encode("utf-8", "surrogatepass") in DECIDED if top else compared
            yield from _faults_in(inner, depth + 1, compared=inside)
    elif isinstance(value, list):
        if depth > MAX_DEPTH:
            yield "json_too_deep"
        for inner in value:  # pyright: ignore[reportUnknownVariableType] - foreign JSON
            yield from _faults_in(inner, depth + 1, compared=compared)


_white = st.sampled_from(["", "", "", " ", "\n", " \t\r\n "])
_letters = st.sampled_from(
    [*"abc{}[]:,e1 é漢😀/", '\\"', "\\\\", "\\n", "\\u0061", "\\/", "\\ud83d\\ude00", '\\"a', "\\\\b"]
)
_rare = st.sampled_from(["\\u0000", "\\ud800", "\\udc00", "\x01"])
_text = st.one_of(
    st.lists(_letters, max_size=6).map("".join),
    st.lists(_letters, max_size=6).map("".join),
    st.lists(st.one_of(_letters, _letters, _letters, _rare), max_size=6).map("".join),
).map(lambda inside: f'"{inside}"')
_name = st.one_of(
    st.sampled_from(['"a"', '"b"', '"c"', '"\\u0061"', '"\\\\"', '"a\\""', '"role"', '"content"', '""']),
    _text,
)
_number = st.sampled_from(
    ["0", "-1", "1.5e3", "1E+2", "1e308", "-0.0", "12345678901234567890", "1e999", "1e-9"]
)
_plain = st.one_of(_text, _number, st.sampled_from(["true", "false", "null"]))


def _list_of(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def write(white: str, parts: list[str]) -> str:
        return "[" + white + f"{white},{white}".join(parts) + white + "]"

    return st.builds(write, _white, st.lists(inner, max_size=4))


def _object_of(inner: st.SearchStrategy[str], names: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def write(white: str, other: str, pairs: list[tuple[str, str]]) -> str:
        members = [f"{name}{other}:{white}{value}" for name, value in pairs]
        return "{" + white + f"{white},{other}".join(members) + white + "}"

    return st.builds(write, _white, _white, st.lists(st.tuples(names, inner), max_size=5))


_value = st.recursive(
    _plain, lambda inner: st.one_of(_list_of(inner), _object_of(inner, _name)), max_leaves=12
)
_top_name = st.one_of(
    st.sampled_from([f'"{name.decode()}"' for name in DECIDED - {b"messages"}]), _name, _name
)


def _whole(white: str, members: str) -> str:
    inside = members.strip(" \t\r\n")[1:-1].strip(" \t\r\n")
    return white + '{"model":"m"' + ("," + inside if inside else "") + white + "}" + white


_body = st.builds(_whole, _white, _object_of(_value, _top_name))


def _cut(body: str, at: int, instead: str) -> bytes:
    raw = body.encode()
    at %= len(raw)
    return raw[:at] + instead.encode() + raw[at + 1 :]


def code_of(body: bytes, window: int) -> str | None:
    """As `read_request` judges a body's structure, cut in windows of this size."""
    try:
        check_text(body)
        read_request(body)
        scan(body, window=window)
    except GatewayError as error:
        return None if error.code in ("missing_field", "invalid_value", "model_not_found") else error.code
    return None


@settings(max_examples=EXAMPLES, deadline=None)
@given(_body, st.sampled_from([1, 3, 7, 20, 65_536]))
@example('{"model":"m","a":"\\\\","b":"\\"","c":1}', 1)
def test_pythons_parser_says_the_same_of_whole_documents(text: str, window: int):
    body = text.encode()
    code = code_of(body, window)
    faults = _faults(body)
    assert code in faults if faults else code is None


@settings(max_examples=EXAMPLES, deadline=None)
@given(_body, st.integers(0, 10_000), st.sampled_from([*'"\\,:{}[] 1eat\x00\x01é', "", "\\u", "nul"]))
def test_pythons_parser_says_the_same_of_broken_documents(text: str, at: int, instead: str):
    body = _cut(text, at, instead)
    code = code_of(body, 7)
    faults = _faults(body)
    assert code in faults if faults else code is None


@settings(max_examples=EXAMPLES, deadline=None)
@given(_body, st.sampled_from([1, 5, 65_536]))
def test_the_places_of_the_members_are_exact(text: str, window: int):
    body = text.encode()
    if _faults(body):
        return
    expected: Any = json.loads(text)
    members = scan(body, window=window).members
    assert {name: look(body).get(name) for name in look(body).names} == members
    assert list(members) == list(expected)
    for name, member in members.items():
        start, name_end, end = member
        assert json.loads(body[start:name_end]) == name
        assert json.loads(body[value_start(body, member) : end]) == expected[name]
        assert body[end - 1 : end] not in (b" ", b"\n", b"\r", b"\t", b"")


def test_the_parser_is_as_strict_in_what_it_skips_as_this_module_relies_on():
    class Nothing(msgspec.Struct):
        pass

    for value in (
        rb'"\ud800"',
        rb'"\udc00\ud800"',
        rb'"\x"',
        b'"\x01"',
        b"01",
        b"1.",
        b"[1,]",
        b'{"a":1,}',
        b"tru",
    ):
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(b'{"x":' + value + b',"z":"zzzzzzzzzz"}', type=Nothing)

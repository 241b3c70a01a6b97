"""Answers of Gemini's wire: whole, as events and as an array, in any pieces, and what does not look as it should."""

import gzip
import itertools
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire import gemini_answer
from gateway.wire.answer import LESSONS
from gateway.wire.gemini_answer import GenerateAnswer, read_whole_generated
from gateway.wire.sse import MAX_EVENT_BYTES
from pricing.usage import End, Reading, Usage

CASES = Path(__file__).parents[2] / "recorded" / "usage-cases"
NONE: frozenset[str] = frozenset()


def part(text: str = "", **more: Any) -> dict[str, Any]:
    return {"text": text, **more} if text else more


def chunk(*parts: dict[str, Any], usage: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One object of a stream, or a whole body."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **more}
    told = {} if usage is None else {"usageMetadata": usage}
    return {"candidates": [candidate], **told, "modelVersion": "gemini-2.5-flash", "responseId": "r"}


def counts(prompt: int, candidates: int | None = None, thoughts: int | None = None) -> dict[str, int]:
    told = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": candidates,
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": prompt + (candidates or 0) + (thoughts or 0),
    }
    return {name: count for name, count in told.items() if count is not None}


ERROR: dict[str, Any] = {
    "error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
}


def sse(*objects: object, end: str = "\r\n\r\n") -> bytes:
    return b"".join(f"data: {json.dumps(one)}{end}".encode() for one in objects)


def array(*objects: object) -> bytes:
    return (
        "[" + "\n,\r\n".join(json.dumps(one, indent=2, ensure_ascii=False) for one in objects) + "\n]\n"
    ).encode()


THOUGHT = chunk(part("First I think.", thought=True), usage=counts(10, None, 40))
ONE = chunk(part("Blue"), usage=counts(10, 1, 40))
TWO = chunk(part(" vans, Zoë 🚲"), usage=counts(10, 6, 40))
CALL = chunk(part(functionCall={"name": "find", "args": {"q": "]}{[", "n": 1.5}}, thoughtSignature="c2ln"))
LAST = chunk(part(" leave."), usage=counts(10, 9, 40), finishReason="STOP")
PLAIN = [chunk(part(f"word {n} ")) for n in range(3)]


def recorded_streams() -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in sorted(CASES.glob("*.json")):
        case = json.loads(path.read_text("utf-8"))
        chunks = case.get("response", {}).get("chunks")
        if case.get("wire") == "gemini-generate" and chunks:
            found[path.stem] = "".join(chunks).encode()
    return found


STREAMS = {
    **recorded_streams(),
    "events": sse(THOUGHT, ONE, TWO, CALL, LAST),
    "events without usage": sse(*PLAIN, LAST, end="\n\n"),
    "events with an error": sse(ONE, ERROR, TWO),
    "events with a list": sse(ONE, [TWO, ERROR]),
    "events cut off": sse(ONE, TWO)[:-30],
    "array": array(THOUGHT, ONE, TWO, CALL, LAST),
    "array without usage": array(*PLAIN, LAST),
    "array with an error": array(ONE, ERROR, TWO),
    "array cut off": array(ONE, TWO)[:-90],
    "array of nothing": b"\xef\xbb\xbf [ ]\n",
    "array after a mark": b"\xef\xbb\xbf" + array(ONE, LAST),
    "event of two lines": sse(LAST).replace(b', "usage', b'\r\ndata: , "usage'),
    "event of mixed lines": sse(LAST).replace(b', "usage', b'\ndata: , "usage'),
    "event of lines that end in CR": sse(LAST).replace(b', "usage', b'\rdata: , "usage'),
    "one object": json.dumps(LAST, indent=1).encode(),
    "blanks": b"\r\n\r\n  ",
    "no answer": b"<html>",
}


def fed(body: bytes, *cuts: int) -> tuple[GenerateAnswer, bytes]:
    """A meter that was given a body in pieces, and all that it gave out."""
    meter = GenerateAnswer(dialect="gemini")
    out = b"".join(meter.feed(body[a:b]) for a, b in itertools.pairwise([0, *sorted(cuts), len(body)]))
    return meter, out + meter.rest()


def read(body: bytes, end: End = "complete", *, status: int = 200) -> Reading:
    return fed(body)[0].reading(status=status, end=end, input_tokens_estimate=33)


def state_of(meter: GenerateAnswer) -> tuple[object, ...]:
    reading = meter.reading(status=200, end="complete", input_tokens_estimate=33)
    early = meter.reading(status=200, end="client_abort", input_tokens_estimate=33)
    return (
        reading,
        early,
        meter.events,
        meter.content_seen,
        meter.finished,
        meter.model,
        meter.usage_seen,
        meter.error,
    )


def summary(reading: Reading) -> tuple[str, int, int, set[str]]:
    return reading.source, reading.usage.input_total, reading.usage.output_total, set(reading.flags)


def whole(
    body: object, end: End = "complete", *, status: int = 200, content_encoding: str | None = None
) -> Reading:
    return read_whole_generated(
        body if isinstance(body, bytes) else json.dumps(body).encode(),
        status=status,
        dialect="gemini",
        content_encoding=content_encoding,
        end=end,
        input_tokens_estimate=33,
    )


# ── cuts ──


def test_there_are_recorded_streams() -> None:
    assert len(recorded_streams()) >= 2


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_at_any_byte_is_read_and_passed_on_the_same(name: str) -> None:
    body = STREAMS[name]
    meter, out = fed(body)
    wanted = state_of(meter)
    for cut in range(1, len(body)):
        pieces, passed_on = fed(body, cut)
        assert (state_of(pieces), passed_on) == (wanted, out)
    braces = {at + (byte == b"}"[0]) for at, byte in enumerate(body) if byte in b"{}"}
    for cuts in (range(len(body)), braces):
        pieces, passed_on = fed(body, *cuts)
        assert (state_of(pieces), passed_on) == (wanted, out)


OBJECTS = st.sampled_from([THOUGHT, ONE, TWO, CALL, LAST, *PLAIN, ERROR, {}, 7, "]", [ONE], [ERROR], None])


@settings(deadline=None)
@given(
    objects=st.lists(OBJECTS, max_size=7),
    form=st.sampled_from(["\n\n", "\r\n\r\n", "\r\r", "array", "close array"]),
    cuts=st.lists(st.integers(0, 1500), max_size=8),
    end=st.integers(0, 1500),
)
def test_any_stream_reads_the_same_however_it_is_cut(
    objects: list[object], form: str, cuts: list[int], end: int
) -> None:
    if form == "array":
        body = array(*objects)
    else:
        body = json.dumps(objects).encode() if form == "close array" else sse(*objects, end=form)
    if end < len(body):
        body = body[:end]
    meter, out = fed(body)
    pieces, passed_on = fed(body, *(min(cut, len(body)) for cut in cuts))
    assert (state_of(pieces), passed_on) == (state_of(meter), out)


def test_events_and_an_array_of_the_same_objects_read_the_same() -> None:
    objects = [THOUGHT, ONE, TWO, CALL, LAST]
    by_events, by_array = read(sse(*objects)), read(array(*objects))
    assert by_events == by_array == read(sse(*objects, end="\n\n")) == whole(objects)
    assert by_events.usage == Usage(input_uncached=10, output_text=9, output_reasoning=40)
    assert (by_events.source, by_events.reasoning_on_wire, by_events.flags) == ("provider", "beside", NONE)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    *("candidates", "content", "parts", "text", "thought", "functionCall", "name", "args"),
                    *("usageMetadata", "promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"),
                    *("promptTokensDetails", "modality", "tokenCount", "groundingMetadata", "error"),
                    *("webSearchQueries", "index", "promptFeedback", "executableCode", "partialArgs"),
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=25,
)


@settings(deadline=None)
@given(value=JSON, data=st.binary(max_size=60))
def test_anything_is_read_without_an_exception(value: object, data: bytes) -> None:
    body = json.dumps(value).encode()
    for odd in (body, b'{"candidates":[' + body + b'],"usageMetadata":' + body + b"}", data, body[:-2]):
        whole(odd)
        whole(odd, content_encoding="gzip")
        for stream in (b"data: " + odd + b"\n\n", b"[" + odd + b"," + odd + b"]", odd):
            read(stream, "upstream_cut")


# ── what is passed on ──


@pytest.mark.parametrize(
    "name",
    ["events", "events without usage", "array", "array without usage", "array of nothing", "one object"],
)
def test_every_byte_of_a_sound_stream_is_passed_on(name: str) -> None:
    assert fed(STREAMS[name])[1] == STREAMS[name]


def test_whole_events_are_passed_on_as_the_same_object() -> None:
    meter = GenerateAnswer(dialect="gemini")
    for data in (sse(ONE), sse(TWO), sse(*PLAIN, end="\n\n"), sse(PLAIN[0]), sse(PLAIN[1]), sse(PLAIN[2])):
        assert meter.feed(data) is data


def test_objects_of_an_array_are_passed_on_as_they_come() -> None:
    meter = GenerateAnswer(dialect="gemini")
    pieces = [b"[", json.dumps(ONE).encode(), b",\r\n", json.dumps(TWO, indent=1).encode(), b"\n,\r\n"]
    for piece in pieces:
        assert meter.feed(piece) == piece
    half = json.dumps(LAST).encode()
    assert meter.feed(half[:9]) == b""
    assert meter.feed(half[9:] + b"]") == half + b"]"


@pytest.mark.parametrize("body", [sse(ONE, ERROR, TWO), array(ONE, ERROR, TWO), sse(ONE, [ERROR], TWO)])
def test_nothing_is_passed_on_from_an_error_on_and_counting_goes_on(body: bytes) -> None:
    meter, out = fed(body)
    assert out.endswith((b"\r\n\r\n", b",\r\n"))
    assert body.startswith(out)
    assert b"overloaded" not in out
    assert meter.error is not None
    assert (meter.error.kind, meter.error.message) == ("error_event", "The model is overloaded.")
    assert (meter.error.code, meter.error.status) == ("503", 503)
    reading = meter.reading(status=200, end="complete", input_tokens_estimate=33)
    assert summary(reading) == ("provider", 10, 46, {"upstream_error"})


def test_objects_after_an_error_are_counted_and_not_passed_on() -> None:
    meter = GenerateAnswer(dialect="gemini")
    pieces = [b"[", *(json.dumps(one).encode() + b",\n" for one in (*PLAIN[:2], ERROR, *PLAIN, LAST))]
    assert [meter.feed(piece) for piece in pieces] == [*pieces[:3], *[b""] * 5]
    assert summary(meter.reading(status=200, end="complete", input_tokens_estimate=33)) == (
        "provider",
        10,
        49,
        {"upstream_error"},
    )


@pytest.mark.parametrize("body", [sse(ONE), array(ONE)])
def test_nothing_is_given_out_after_the_end(body: bytes) -> None:
    meter, _ = fed(body)
    assert (meter.feed(body), meter.rest(), meter.events) == (b"", b"", 1)


@pytest.mark.parametrize("size", [1000, 65_536, 5_000_000])
@pytest.mark.parametrize("start", [b"data: ", b"["])
def test_an_event_over_the_limit_is_a_problem_and_ends_the_count(start: bytes, size: int) -> None:
    good = json.dumps(PLAIN[0]).encode()
    long = b'{"candidates":[{"content":{"parts":[{"text":"' + b"x" * MAX_EVENT_BYTES + b'"}]}}]}'
    between = b"\n\ndata: " if start == b"data: " else b","
    body = start + good + between + long + between + good
    meter = GenerateAnswer(dialect="gemini")
    out = b"".join(meter.feed(body[at : at + size]) for at in range(0, len(body), size)) + meter.rest()
    assert meter.error is not None
    assert (meter.error.kind, meter.text_bytes) == ("too_long", len("word 0 "))
    assert out.rstrip(b",\n") == start + good


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n"])
def test_an_event_that_is_not_json_is_a_problem(end: str) -> None:
    body = sse(PLAIN[0], end=end) + b"data: {oops" + end.encode() + sse(PLAIN[1], end=end)
    meter, out = fed(body)
    assert meter.error is not None
    assert (meter.error.kind, out) == ("not_json", sse(PLAIN[0], end=end))
    meter, _ = fed(b"[" + json.dumps(ONE).encode() + b",{oops},]")
    assert meter.error is not None
    assert meter.error.kind == "not_json"


def test_a_mark_of_the_end_that_others_add_is_no_problem() -> None:
    meter, out = fed(sse(LAST) + b"data: [DONE]\n\n")
    assert (meter.error, out) == (None, sse(LAST) + b"data: [DONE]\n\n")


# ── what the model produced ──


@pytest.mark.parametrize(
    ("parts", "size"),
    [
        ([part("Zoë")], 4),
        ([part("one"), part("two")], 6),
        ([part("hm", thought=True), part("yes", thoughtSignature="x" * 90)], 5),
        ([part(functionCall={"name": "find", "args": {"q": "a", "n": 1.5}})], len('find{"q":"a","n":1.5}')),
        ([part(functionCall={"name": "now"})], 3),
        ([part(functionCall={"name": "now", "args": {}, "id": "i"})], 3),
        ([part(functionCall={"partialArgs": [{"jsonPath": "$.q", "stringValue": "Paris"}]})], 5),
        ([part(executableCode={"language": "PYTHON", "code": "print(1)"})], 8),
        ([part(codeExecutionResult={"outcome": "OUTCOME_OK", "output": "1"})], 0),
        ([part(inlineData={"mimeType": "image/png", "data": "A" * 400})], 0),
        ([part(functionCall={"name": "f", "args": {"a": "\ud83d"}})], 1 + len('{"a":"\\ud83d"}')),
        ([], 0),
    ],
)
def test_text_is_what_the_model_produced(parts: list[dict[str, Any]], size: int) -> None:
    meter, _ = fed(sse(chunk(*parts)))
    assert (meter.text_bytes, meter.content_seen) == (size, bool(parts))


def test_the_text_of_several_candidates_counts() -> None:
    body = chunk(part("one"))
    body["candidates"] += chunk(part("four"), index=1)["candidates"]
    assert whole(body).text_bytes == 7


@pytest.mark.parametrize(
    "odd",
    [
        {"candidates": []},
        {
            "candidates": [
                None,
                7,
                {"content": None},
                {"content": {"parts": None}},
                {"content": {"parts": [1]}},
            ]
        },
        chunk(part(text=7)),  # pyright: ignore[reportArgumentType] - what a provider may send
        {"candidates": [{"finishReason": "SAFETY", "index": 0}]},
    ],
)
def test_an_answer_without_text_and_usage_is_estimated_on_its_input_only(odd: dict[str, Any]) -> None:
    assert summary(whole(odd)) == ("estimated", 33, 0, {"estimated_input"})
    assert summary(read(sse(odd))) == ("estimated", 33, 0, {"estimated_input"})


@pytest.mark.parametrize("reason", ["STOP", "MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL"])
def test_a_reason_of_the_end_finishes_an_answer(reason: str) -> None:
    assert not fed(sse(ONE))[0].finished
    assert fed(sse(chunk(finishReason=reason)))[0].finished
    assert fed(sse({"promptFeedback": {"blockReason": reason}}))[0].finished


# ── tools ──


def grounded(*queries: str, index: int = 0) -> dict[str, Any]:
    return chunk(part("Six."), index=index, groundingMetadata={"webSearchQueries": list(queries)})


@pytest.mark.parametrize(
    ("objects", "tools"),
    [
        ([grounded("a")], {"web_search": 1, "grounded_prompt": 1}),
        ([grounded("a", "b")], {"web_search": 2, "grounded_prompt": 1}),
        # Told again, or growing, they are the same searches.
        ([grounded("a"), grounded("a", "b"), grounded("a", "b")], {"web_search": 2, "grounded_prompt": 1}),
        # Another candidate's are others.
        ([grounded("a"), grounded("a", "b", index=1)], {"web_search": 3, "grounded_prompt": 1}),
        # There is an end to that.
        ([grounded("a", index=n) for n in range(1000)], {"web_search": 64, "grounded_prompt": 1}),
        ([grounded()], {}),
        ([chunk(part("x"), groundingMetadata={"searchEntryPoint": {}})], {}),
        ([chunk(part("x"), groundingMetadata={"webSearchQueries": None})], {}),
    ],
)
def test_searches_are_counted_and_a_grounded_prompt_is_one(
    objects: list[dict[str, Any]], tools: dict[str, int]
) -> None:
    objects = [*objects, LAST]
    assert dict(read(sse(*objects)).usage.tools) == tools
    assert dict(read(array(*objects)).usage.tools) == tools
    assert dict(whole(objects[0]).usage.tools) == dict(read(sse(objects[0])).usage.tools)


# ── names and tiers ──


def test_the_model_and_the_tier_are_those_that_the_answer_names() -> None:
    told = {**counts(10, 5), "trafficType": "ON_DEMAND_PRIORITY"}
    body = chunk(part("x"), usage=told)
    for reading in (whole(body), read(sse(body)), read(array(body))):
        assert (reading.model, reading.service_tier) == ("gemini-2.5-flash", "priority")
    assert whole({**body, "modelVersion": None}).model is None


# ── how an answer ended ──

WRAPPED = json.dumps([ERROR])


@pytest.mark.parametrize(
    ("body", "end", "expected"),
    [
        # The running totals in or after the last text are as good as they get.
        (sse(ONE, TWO), "client_abort", ("provider_partial", 10, 46, {"client_abort"})),
        (array(ONE, TWO), "upstream_cut", ("provider_partial", 10, 46, {"upstream_cut"})),
        (sse(THOUGHT), "client_abort", ("provider_partial", 10, 40, {"client_abort"})),
        # Counted while nothing was to be seen: a lower bound.
        (
            sse(chunk(usage=counts(10, None, 40))),
            "client_abort",
            ("mixed", 10, 40, {"client_abort", "estimated_output"}),
        ),
        # Counted before the last text.
        (sse(ONE, *PLAIN), "client_abort", ("mixed", 10, 41, {"client_abort", "estimated_output"})),
        (
            sse(chunk(part("a"), usage=counts(10, 1)), *PLAIN),
            "client_abort",
            ("mixed", 10, 6, {"client_abort", "estimated_output"}),
        ),
        # The prompt alone is counted, beside text: that is no answer of zero tokens.
        (
            sse(chunk(part("eight by"), usage=counts(10))),
            "client_abort",
            ("mixed", 10, 2, {"client_abort", "estimated_output"}),
        ),
        (sse(chunk(part("eight by"), usage=counts(10))), "complete", ("mixed", 10, 2, {"estimated_output"})),
        # Thoughts are counted and the text after them is not.
        (
            sse(chunk(part("eight by"), usage=counts(10, None, 40))),
            "complete",
            ("mixed", 10, 42, {"estimated_output"}),
        ),
        (
            sse(chunk(part("eight by"), usage=counts(10, None, 40))),
            "client_abort",
            ("mixed", 10, 42, {"client_abort", "estimated_output"}),
        ),
        # Cut off while it thought: the candidates are none, and none is left out on this wire.
        (
            sse(chunk(usage=counts(10, None, 500), finishReason="MAX_TOKENS")),
            "complete",
            ("provider", 10, 500, NONE),
        ),
        (sse(chunk(usage=counts(52), finishReason="SAFETY")), "complete", ("provider", 52, 0, NONE)),
        (sse(*PLAIN), "complete", ("estimated", 33, 6, {"estimated_input", "estimated_output"})),
        (
            sse(*PLAIN),
            "client_abort",
            ("estimated", 33, 6, {"client_abort", "estimated_input", "estimated_output"}),
        ),
        (sse(*PLAIN, LAST), "complete", ("provider", 10, 49, NONE)),
        (sse(LAST)[:-4], "complete", ("provider", 10, 49, NONE)),
        (sse(ONE, LAST)[:-9], "upstream_cut", ("provider_partial", 10, 41, {"upstream_cut"})),
        (array(ONE, LAST)[:-9], "upstream_cut", ("provider_partial", 10, 41, {"upstream_cut"})),
        (b"", "client_abort", ("estimated", 33, 0, {"client_abort", "estimated_input"})),
        (b"", "complete", ("none", 0, 0, {"upstream_error"})),
        (b"[]", "complete", ("none", 0, 0, {"upstream_error"})),
        (b"<html>", "complete", ("none", 0, 0, {"upstream_error"})),
        (sse(ERROR), "complete", ("none", 0, 0, {"upstream_error"})),
        (array(ERROR), "complete", ("none", 0, 0, {"upstream_error"})),
        (WRAPPED.encode(), "complete", ("none", 0, 0, {"upstream_error"})),
        (json.dumps(ERROR).encode(), "complete", ("none", 0, 0, {"upstream_error"})),
        # After text: what was counted with it or after it is final, what before it is a lower bound.
        (sse(ONE, ERROR), "complete", ("provider", 10, 41, {"upstream_error"})),
        (
            sse(chunk(part("a"), usage=counts(10, 1)), *PLAIN, ERROR),
            "complete",
            ("mixed", 10, 6, {"estimated_output", "upstream_error"}),
        ),
        (
            sse(*PLAIN, ERROR),
            "complete",
            ("estimated", 33, 6, {"estimated_input", "estimated_output", "upstream_error"}),
        ),
        (
            sse({"promptFeedback": {"blockReason": "OTHER"}, "usageMetadata": counts(8)}),
            "complete",
            ("provider", 8, 0, NONE),
        ),
        (
            sse({"promptFeedback": {"blockReason": "OTHER"}}),
            "complete",
            ("estimated", 33, 0, {"estimated_input"}),
        ),
    ],
)
def test_what_is_missing_is_estimated_and_flagged(
    body: bytes, end: End, expected: tuple[str, int, int, set[str]]
) -> None:
    assert summary(read(body, end)) == expected


@pytest.mark.parametrize(
    ("count", "flags"),
    [("12", {"coerced"}), (12.0, {"coerced"}), (-1, {"invalid_count", "estimated_output"})],
)
def test_a_count_in_another_spelling_is_read_or_refused(count: object, flags: set[str]) -> None:
    told: dict[str, Any] = {"promptTokenCount": 7, "candidatesTokenCount": count}
    reading = whole(chunk(part("x" * 48), usage=told))
    assert (reading.usage, reading.flags) == (Usage(input_uncached=7, output_text=12), flags)


@pytest.mark.parametrize("status", [400, 404, 429, 503])
@pytest.mark.parametrize(
    "body", [json.dumps(ERROR).encode(), WRAPPED.encode(), json.dumps(LAST).encode(), b"<html>"]
)
def test_an_error_status_costs_nothing_whatever_the_body_is(status: int, body: bytes) -> None:
    assert summary(whole(body, status=status)) == ("none", 0, 0, {"http_error"})
    assert summary(read(body, status=status)) == ("none", 0, 0, {"http_error"})


# ── whole bodies ──


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"null", b"7", b'"x"', b'{"id":1}', b'{"usageMetadata":[]}', WRAPPED.encode()],
)
def test_a_body_that_is_no_answer_costs_nothing_and_says_so(body: bytes) -> None:
    assert summary(whole(body)) == ("none", 0, 0, {"upstream_error"})


def test_a_packed_body_is_unpacked() -> None:
    assert summary(whole(gzip.compress(json.dumps(LAST).encode()), content_encoding="gzip")) == (
        "provider",
        10,
        49,
        set(),
    )


def test_a_body_may_begin_with_a_mark_and_hold_bad_utf8() -> None:
    assert whole(b"\xef\xbb\xbf" + json.dumps(LAST).encode()) == whole(LAST)
    assert whole(json.dumps(LAST).encode().replace(b"leave", b"lea\xffve")).usage == whole(LAST).usage


BODY = json.dumps(chunk(part("one two three"), usage=counts(120, 3000), finishReason="STOP")).encode()


@pytest.mark.parametrize("cut", range(len(BODY)))
def test_a_body_that_breaks_off_is_searched_for_what_it_tells(cut: int) -> None:
    reading = whole(BODY[:cut], "upstream_cut")
    text = min(max(0, cut - BODY.find(b"one two")), len("one two three"))
    seen = BODY[:cut]
    has_input, has_output = b"120," in seen, b"3000," in seen
    assert (reading.text_bytes, reading.usage.input_total) == (text, 120 if has_input else 33)
    assert reading.usage.output_total == (3000 if has_output else -(-text // 4))
    assert reading.model in (None, "gemini-2.5-flash")
    assert "upstream_cut" in reading.flags
    assert "upstream_error" in whole(BODY[:cut]).flags


# ── bounds ──


@pytest.mark.parametrize("start", [b"data: ", b"["])
def test_memory_is_bounded_whatever_comes(start: bytes) -> None:
    end = b"\r\n\r\n" if start == b"data: " else b"\n,\r\n"
    lead = start if start == b"data: " else b""
    objects = [
        chunk(part("some text"), usage={**counts(9, 9), **{f"x{n}": n for n in range(50)}}),
        *(grounded("a", index=n) for n in range(200)),
    ]
    events = [lead + json.dumps(one).encode() + end for one in objects]
    meter, other = GenerateAnswer(dialect="gemini"), GenerateAnswer(dialect="gemini")
    meter.feed(b"" if lead else start)
    other.feed(start + b'{"x":"')
    meter.feed(events[0])
    tracemalloc.start()
    for _ in range(20):
        for one in events:
            meter.feed(one)
        for cut in range(0, len(events[0]), 7):
            meter.feed(events[0][cut : cut + 7])
    for _ in range(100):
        other.feed(b"x" * 65_536)
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert meter.events == 1 + 20 * (len(events) + 1)
    assert kept < 100_000
    assert most < 8 * 1024 * 1024


# ── events told by their form ──


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The events that were parsed."""
    payloads: list[bytes] = []

    def decode(payload: bytes) -> object:
        payloads.append(payload)
        return plain(payload)

    plain = gemini_answer._decode  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(gemini_answer, "_decode", decode)
    return payloads


def words(form: str, number: int) -> list[bytes]:
    told = {"trafficType": "ON_DEMAND"}
    objects = [json.dumps(chunk(part(f"word {n} "), usage=told)).encode() for n in range(number)]
    if form == "array":
        return [b"[", *(one + b"\n,\r\n" for one in objects)]
    return [b"data: " + one + form.encode() for one in objects]


@pytest.mark.parametrize("form", ["\n\n", "\r\n\r\n", "array"])
def test_a_stream_of_one_form_is_parsed_for_its_first_events_only(form: str, parsed: list[bytes]) -> None:
    meter = GenerateAnswer(dialect="gemini")
    for data in words(form, 100):
        assert meter.feed(data) is data or data == b"["
    assert len(parsed) == 2
    assert (meter.events, meter.text_bytes) == (100, sum(len(f"word {n} ") for n in range(100)))


def test_a_stream_of_ever_new_forms_is_soon_not_asked_for_one(parsed: list[bytes]) -> None:
    meter = GenerateAnswer(dialect="gemini")
    for number in range(100):
        meter.feed(sse({**chunk(part("word")), "noise": number}))
    assert len(parsed) == 100 + LESSONS
    assert meter.text_bytes == 400


def test_a_text_that_stands_twice_is_not_taken_for_the_one_that_counts() -> None:
    meter = GenerateAnswer(dialect="gemini")
    for beside in ("aa", "aa", "bbbb"):
        meter.feed(sse({"noise": {"text": beside}, **chunk(part("aa"))}))
    assert meter.text_bytes == 6


@pytest.mark.parametrize("form", ["\n\n", "\r\n\r\n", "array"])
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ({"thought": True}, {}),
        ({}, {"usage": counts(3, 4)}),
        ({}, {"usage": {"trafficType": "ON_DEMAND"}}),
        ({}, {"finishReason": "STOP"}),
        ({}, {"groundingMetadata": {"webSearchQueries": ["a"]}}),
    ],
)
def test_what_else_an_event_holds_counts_as_if_each_was_parsed(
    form: str, kind: dict[str, Any], more: dict[str, Any]
) -> None:
    objects = [chunk(part(f"word {n}", **kind), **more) for n in range(3)]
    states: dict[int, list[object]] = {LESSONS: [], 0: []}
    for lessons, found in states.items():
        for last in ([], [chunk(usage=counts(10, None, 40))]):
            meter = GenerateAnswer(dialect="gemini")
            meter._lessons = lessons  # pyright: ignore[reportPrivateUsage] - with 0 every event is parsed
            meter.feed(b"[" if form == "array" else b"")
            for one in [*objects, *last]:
                plain = json.dumps(one).encode()
                meter.feed(plain + b"," if form == "array" else b"data: " + plain + form.encode())
            found.append(state_of(meter))
    assert states[LESSONS] == states[0]


TEXTS = st.sampled_from(
    ["a", "hello ", '"', "\\", "\n", "é", "\u2028", "another text", '"}', "\x7f", "data: x"]
)


@given(
    st.lists(
        st.tuples(
            TEXTS,
            st.sampled_from(
                [
                    {},
                    {},
                    {"usage": {"trafficType": "ON_DEMAND"}},
                    {"usage": counts(3, 4)},
                    {"finishReason": "STOP"},
                    {"groundingMetadata": {"webSearchQueries": ["a"]}},
                ]
            ),
            st.sampled_from([{}, {}, {"thought": True}]),
        ),
        max_size=10,
    ),
    st.sampled_from(["\n\n", "\r\n\r\n", "array"]),
    st.booleans(),
)
def test_events_told_by_their_form_count_as_if_each_was_parsed(
    events: list[tuple[str, dict[str, Any], dict[str, Any]]], form: str, is_ascii: bool
) -> None:
    quick, careful = GenerateAnswer(dialect="gemini"), GenerateAnswer(dialect="gemini")
    careful._lessons = 0  # pyright: ignore[reportPrivateUsage] - every event is parsed
    objects = [chunk(part(text, **kind), **more) for text, more, kind in events]
    plain = [json.dumps(one, ensure_ascii=is_ascii).encode() for one in objects]
    data = (
        [b"[", *(one + b"," for one in plain)]
        if form == "array"
        else [b"data: " + one + form.encode() for one in plain]
    )
    for piece in data:
        assert quick.feed(piece) == careful.feed(piece)
    assert state_of(quick) == state_of(careful)

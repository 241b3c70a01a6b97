import base64
import gzip
import itertools
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.wire.openai_chat_answer import ChatStream, read_whole
from gateway.wire.packing import MAX_UNPACKED_BYTES, Unpacker, unpacked
from gateway.wire.provider_words import provider_words
from gateway.wire.sse import MAX_EVENT_BYTES
from pricing.usage import End, Reading, Usage

CASES = Path(__file__).parents[2] / "recorded" / "usage-cases"
DONE = b"data: [DONE]\n\n"


def recorded_streams() -> dict[str, tuple[str, bytes]]:
    """The streams of the usage cases of this wire: dialect and bytes."""
    found: dict[str, tuple[str, bytes]] = {}
    for path in sorted(CASES.glob("*.json")):
        case: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if case.get("wire") != "openai-chat":
            continue
        response = case["response"]
        chunks = [chunk.encode() for chunk in response.get("chunks", [])]
        chunks += [base64.b64decode(chunk) for chunk in response.get("chunks_base64", [])]
        body = b"".join(chunks)
        if body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        if body:
            found[case["id"]] = (case["dialect"], body)
    return found


STREAMS = recorded_streams()


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps({"model": "m", **fields}).encode() + b"\n\n"


def delta(index: int = 0, finish_reason: str | None = None, **fields: Any) -> bytes:
    return event(choices=[{"index": index, "delta": fields, "finish_reason": finish_reason}])


def usage(prompt: int, completion: int, **more: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        **more,
    }


ONLY_USAGE = event(choices=[], usage=usage(20, 7))


def stream(*, drop_usage: bool = False, dialect: str = "openai") -> ChatStream:
    return ChatStream(dialect=dialect, drop_usage=drop_usage)


def fed(
    body: bytes, *cuts: int, drop_usage: bool = False, dialect: str = "openai"
) -> tuple[ChatStream, bytes]:
    """A stream that was given a body in pieces, and all that it gave out."""
    meter = stream(drop_usage=drop_usage, dialect=dialect)
    borders = [0, *sorted(cuts), len(body)]
    out = b"".join(meter.feed(body[a:b]) for a, b in itertools.pairwise(borders))
    return meter, out + meter.rest()


def read(
    meter: ChatStream, end: End = "complete", *, status: int = 200, estimate: int | None = 33
) -> Reading:
    return meter.reading(status=status, end=end, input_tokens_estimate=estimate)


def summary(reading: Reading) -> tuple[str, int, int, set[str]]:
    return reading.source, reading.usage.input_total, reading.usage.output_total, set(reading.flags)


# ── what is passed on ──


def test_whole_events_are_passed_on_as_the_same_object() -> None:
    meter = stream(drop_usage=True)
    for data in (delta(content="a"), delta(content="b") + delta(content="c"), b": waiting\n\n", DONE):
        assert meter.feed(data) is data


def test_an_incomplete_event_is_held_back() -> None:
    meter = stream()
    data = delta(content="a") + delta(content="b")
    assert meter.feed(data[:-1]) == delta(content="a")
    assert meter.feed(data[-1:]) == delta(content="b")


def test_only_the_usage_event_that_nobody_asked_for_is_dropped() -> None:
    body = delta(content="a") + ONLY_USAGE + DONE
    assert fed(body)[1] == body
    meter, out = fed(body, drop_usage=True)
    assert out == delta(content="a") + DONE
    assert summary(read(meter)) == ("provider", 20, 7, set())


@pytest.mark.parametrize(
    "kept",
    [
        event(choices=[], prompt_filter_results=[{"prompt_index": 0}]),
        event(choices=[], usage=None),
        event(choices=[{"index": 0, "delta": {"content": "x"}}], usage=usage(1, 1)),
        event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage(1, 1)}]),
        event(choices=[{"index": 0, "delta": {}}], x_groq={"id": "r", "usage": usage(1, 1)}),
        event(x_groq={"id": "r"}),
        b": comment\n\n",
        b"\n",
        b"event: ping\ndata: {}\n\n",
        b"data: 5\n\n",
        b"data: null\n\n",
        b'data: "words"\n\n',
        b"data: []\n\n",
    ],
)
def test_every_other_event_is_passed_on(kept: bytes) -> None:
    body = kept + delta(content="a")
    meter, out = fed(body, drop_usage=True)
    assert (out, meter.error) == (body, None)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_dropping_leaves_no_line_ends_behind(end: bytes) -> None:
    body = b"".join(part[:-2] + end for part in (delta(content="a"), ONLY_USAGE, ONLY_USAGE, DONE))
    wanted = b"".join(part[:-2] + end for part in (delta(content="a"), DONE))
    for cut in range(len(body)):
        assert fed(body, cut, drop_usage=True)[1] == wanted


# ── cuts ──


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_may_be_cut_at_every_byte(name: str) -> None:
    dialect, body = STREAMS[name]
    whole, out = fed(body, drop_usage=True, dialect=dialect)
    wanted = read(whole)
    for cut in range(1, len(body)):
        meter, pieces = fed(body, cut, drop_usage=True, dialect=dialect)
        assert pieces == out
        assert read(meter) == wanted
    single, pieces = fed(body, *range(len(body)), drop_usage=True, dialect=dialect)
    assert (pieces, read(single)) == (out, wanted)


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_whose_usage_was_asked_for_is_passed_on_untouched(name: str) -> None:
    dialect, body = STREAMS[name]
    meter, out = fed(body, dialect=dialect)
    if meter.error is not None:
        assert body.startswith(out)
    elif not name.startswith("sse-019"):  # cut off within an event
        assert out == body


EVENTS = st.lists(
    st.sampled_from(
        [
            delta(content="Zoë 🚲"),
            delta(role="assistant", content=""),
            delta(content="", finish_reason="stop"),
            delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": '{"a'}}]),
            ONLY_USAGE,
            event(choices=[], usage=usage(20, 3)),
            event(choices=[{"index": 1, "delta": {"content": "x"}}], usage=usage(21, 9)),
            event(error={"message": "broke", "code": 502}, choices=[]),
            DONE,
            b"data: {broken\n\n",
            b": comment\n\n",
            b"\n",
            b"\r\n",
            b"data: {}\r\n\r\n",
            b'data: {"choices":[],\r\ndata: "usage":{"prompt_tokens":4,"completion_tokens":4}}\r\n\r\n',
            b"data:" + delta(content="b")[6:-2] + b"\r\r",
            b"\xef\xbb\xbf",
            b'data: {"choices": [{"delta": {"content": "cut',
        ]
    ),
    max_size=8,
)


@settings(deadline=None)
@given(events=EVENTS, cuts=st.lists(st.integers(0, 800), max_size=8), drop_usage=st.booleans())
@example(events=[b"data: {}\r\n\r\n", b"\n"], cuts=[11], drop_usage=True)
def test_any_stream_reads_the_same_however_it_is_cut(
    events: list[bytes], cuts: list[int], drop_usage: bool
) -> None:
    body = b"".join(events)
    whole, out = fed(body, drop_usage=drop_usage)
    meter, pieces = fed(body, *(min(cut, len(body)) for cut in cuts), drop_usage=drop_usage)
    assert pieces == out
    assert (read(meter), meter.error) == (read(whole), whole.error)
    assert (meter.finished, meter.content_seen, meter.events) == (
        whole.finished,
        whole.content_seen,
        whole.events,
    )
    ends: tuple[End, ...] = ("client_abort", "upstream_cut")
    for end in ends:
        assert read(meter, end) == read(whole, end)


WORDS = (
    "choices",
    "delta",
    "message",
    "content",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "usage",
    "prompt_tokens",
    "model",
    "error",
    "completion_tokens",
    "total_tokens",
    "prompt_tokens_details",
    "cached_tokens",
    "x_groq",
    "service_tier",
    "cost",
    "finish_reason",
    "reasoning",
    "reasoning_details",
    "audio",
    "transcript",
    "refusal",
    "custom",
    "is_byok",
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**40), 10**40), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(WORDS),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=25,
)


@settings(deadline=None)
@given(value=JSON, dialect=st.sampled_from(["openai", "openrouter", "xai", "gemini", "perplexity", "nobody"]))
def test_any_json_is_read_without_an_exception(value: object, dialect: str) -> None:
    body = json.dumps(value).encode()
    for choices in (body, b'{"choices":[' + body + b'],"usage":' + body + b"}"):
        reading = read_whole(choices, status=200, dialect=dialect, input_tokens_estimate=1)
        assert reading.usage.input_total >= 0
        provider_words(choices)
        fed(b"data: " + choices + b"\n\n", dialect=dialect)


@settings(deadline=None)
@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=5))
def test_any_bytes_are_read_without_an_exception(data: bytes, cuts: list[int]) -> None:
    body = b"data: " + data + b"\n\ndata:" + data
    fed(body, *(min(cut, len(body)) for cut in cuts))
    fed(data)
    read_whole(data, status=200, dialect="openai")
    read_whole(data, status=200, dialect="openai", content_encoding="gzip")
    provider_words(data)


# ── content, names, ends ──


@pytest.mark.parametrize(
    ("data", "content", "text"),
    [
        (delta(role="assistant"), False, 0),
        (delta(role="assistant", content=""), False, 0),
        (delta(role="assistant", content=None, refusal=None), False, 0),
        (event(choices=[]), False, 0),
        (ONLY_USAGE, False, 0),
        (delta(content="Zoë"), True, 4),
        (delta(content="\ud83d"), True, 3),
        (delta(refusal="no"), True, 2),
        (delta(content="a", refusal="no"), True, 3),
        (delta(reasoning_content="hm"), True, 2),
        (delta(reasoning="hm"), True, 2),
        (delta(content="a", reasoning="hm"), True, 3),
        (delta(reasoning="hm", reasoning_content="hm"), True, 2),
        (delta(reasoning="hm", reasoning_details=[{"type": "reasoning.text", "text": "hm"}]), True, 2),
        (delta(reasoning_details=[{"type": "reasoning.text", "text": "hm"}]), True, 2),
        (
            delta(
                content=[{"type": "text", "text": "ab"}, {"type": "thinking", "thinking": [{"text": "c"}]}]
            ),
            True,
            3,
        ),
        (delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "fn", "arguments": ""}}]), True, 2),
        (delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]), True, 2),
        (delta(tool_calls=[{"index": 0, "id": "c"}]), True, 0),
        (delta(tool_calls=[{"index": 0, "custom": {"name": "c", "input": "xyz"}}]), True, 4),
        (delta(function_call={"name": "f", "arguments": "{}"}), True, 3),
        (delta(audio={"transcript": "hi", "data": "AAAA"}), True, 2),
        (delta(finish_reason="stop"), True, 0),
        (
            event(choices=[{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]),
            True,
            2,
        ),
        (event(choices=[{"index": 0, "message": {"content": "abc"}}]), True, 3),
        (
            event(choices=[{"index": 0, "delta": {"content": "a"}, "message": {"content": "all of it"}}]),
            True,
            1,
        ),
        (event(choices=[{"index": 0, "delta": "odd"}, 7, {"index": 1, "delta": {"content": "b"}}]), True, 1),
    ],
)
def test_text_is_what_the_model_produced(data: bytes, content: bool, text: int) -> None:
    meter, _ = fed(data)
    assert (meter.content_seen, meter.text_bytes) == (content, text)


def test_a_stream_is_finished_by_a_reason_or_by_done() -> None:
    assert not fed(delta(content="a"))[0].finished
    assert fed(delta(finish_reason="stop"))[0].finished
    assert fed(DONE)[0].finished
    assert fed(b"data:[DONE]\r\n\r\n")[0].finished
    assert fed(b"data: [DONE]")[0].finished


def test_the_last_name_and_tier_count_and_empty_ones_do_not() -> None:
    body = event(model="", choices=[]) + event(model="a", service_tier="flex", choices=[])
    meter, _ = fed(body + event(model="b", choices=[]) + event(model="", service_tier=None, choices=[]))
    assert (meter.model, meter.service_tier) == ("b", "flex")
    assert (read(meter).model, read(meter).service_tier) == ("b", "flex")


def test_events_of_this_form_are_counted() -> None:
    assert fed(b": c\n\ndata: {}\n\n" + DONE)[0].events == 0
    assert fed(delta(content="a") + event(choices=[]) + event(usage=usage(1, 1)))[0].events == 3


def test_usage_seen_needs_a_main_count() -> None:
    assert not fed(event(choices=[], usage={"total_tokens": 5}))[0].usage_seen
    assert fed(event(choices=[], usage={"completion_tokens": 0}))[0].usage_seen


# ── problems ──


def test_an_error_event_stops_what_is_passed_on_and_not_the_count() -> None:
    error = event(choices=[], error={"message": "worker gone", "type": "server", "code": 502})
    meter, out = fed(delta(content="abcd") + error + ONLY_USAGE + DONE)
    assert out == delta(content="abcd")
    assert meter.error is not None
    assert (meter.error.kind, meter.error.message, meter.error.type) == (
        "error_event",
        "worker gone",
        "server",
    )
    assert (meter.error.code, meter.error.status) == ("502", 502)
    assert summary(read(meter)) == ("provider", 20, 7, {"upstream_error"})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (event(error="plain words"), "plain words"),
        (event(object="error", message="vllm words"), "vllm words"),
        (event(choices=[{"index": 0, "delta": {}, "error": {"message": "in the choice"}}]), "in the choice"),
        (event(choices=[], x_groq={"error": "in x_groq"}), "in x_groq"),
        (b"event: error\n" + event(error={"message": "named"}), "named"),
    ],
)
def test_an_error_has_many_forms(data: bytes, message: str) -> None:
    meter, out = fed(data)
    assert meter.error is not None
    assert (meter.error.kind, meter.error.message, out) == ("error_event", message, b"")
    assert summary(read(meter)) == ("none", 0, 0, {"upstream_error"})


@pytest.mark.parametrize("nothing", [None, False, "", {}])
def test_an_empty_error_is_none(nothing: object) -> None:
    assert fed(event(choices=[], error=nothing))[0].error is None


@pytest.mark.parametrize(
    "data", [b"data: {\n\n", b"data: NaN\n\n", b"data: words\n\n", b"data: " + b"[" * 100_000 + b"\n\n"]
)
def test_an_event_that_is_not_json_is_a_problem_and_is_not_counted(data: bytes) -> None:
    meter, out = fed(delta(content="abcd") + data + delta(content="efgh"))
    assert out == delta(content="abcd")
    assert meter.error is not None
    assert meter.error.kind == "not_json"
    assert summary(read(meter)) == ("estimated", 33, 2, {"estimated_input", "estimated_output"})


def test_bad_utf8_in_a_text_is_counted_as_its_replacement_and_passed_on() -> None:
    data = delta(content="ab").replace(b"ab", b"a\xff")
    meter, out = fed(data)
    assert (meter.text_bytes, out, meter.error) == (4, data, None)


@pytest.mark.parametrize("size", [1000, 65_536, 3_000_000])
def test_an_event_over_the_limit_is_a_problem_and_ends_the_count(size: int) -> None:
    long = b"data: " + b"x" * MAX_EVENT_BYTES + b"\n\n"
    body = delta(content="abcd") + long + ONLY_USAGE
    meter = stream()
    out = b"".join(meter.feed(body[at : at + size]) for at in range(0, len(body), size))
    assert (out, meter.rest()) == (delta(content="abcd"), b"")
    assert meter.error is not None
    assert meter.error.kind == "too_long"
    assert summary(read(meter)) == ("estimated", 33, 1, {"estimated_input", "estimated_output"})


def test_an_event_at_the_limit_passes() -> None:
    data = delta(content="")
    data = delta(content="x" * (MAX_EVENT_BYTES - len(data)))
    assert len(data) == MAX_EVENT_BYTES
    assert stream().feed(data) is data
    assert fed(data, 5)[1] == data


def test_memory_is_bounded_whatever_comes() -> None:
    pieces = [
        delta(content="some text"),
        event(choices=[], usage=usage(1, 1, **{f"x{n}": n for n in range(50)})),
    ]
    endless = b"x" * 65_536
    meter, other = stream(), stream()
    meter.feed(pieces[0])
    other.feed(endless)
    tracemalloc.start()
    for _ in range(3000):
        meter.feed(pieces[0])
        meter.feed(pieces[1])
    for _ in range(500):
        other.feed(endless)
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 100_000
    assert most < 8 * 1024 * 1024


# ── the end of a body ──


@pytest.mark.parametrize(
    ("tail", "given"),
    [
        (b"", b""),
        (DONE[:-1], DONE[:-1]),
        (DONE[:-2], DONE[:-2]),
        (delta(content="b")[:-2], delta(content="b")[:-2]),
        (delta(content="b")[:-9], b""),
        (b"da", b"da"),
        (b": comm", b": comm"),
    ],
)
def test_what_is_held_at_the_end_counts_if_it_is_whole(tail: bytes, given: bytes) -> None:
    meter, out = fed(delta(content="a") + tail)
    assert out == delta(content="a") + given
    assert meter.error is None
    assert meter.text_bytes == 1 + (b'"b"' in given)


def test_usage_in_an_event_without_its_blank_line_counts_and_is_dropped() -> None:
    meter, out = fed(delta(content="a") + ONLY_USAGE[:-2], drop_usage=True)
    assert out == delta(content="a")
    assert summary(read(meter)) == ("provider", 20, 7, set())


def test_nothing_is_given_out_after_the_end() -> None:
    meter, _ = fed(delta(content="a"))
    assert (meter.feed(delta(content="b")), meter.rest(), meter.text_bytes) == (b"", b"", 1)


# ── how an answer ended ──

EARLY = event(choices=[], usage=usage(20, 1))
TEXT = delta(content="eight by")


@pytest.mark.parametrize(
    ("body", "end", "expected"),
    [
        (TEXT, "complete", ("estimated", 33, 2, {"estimated_input", "estimated_output"})),
        (TEXT, "client_abort", ("estimated", 33, 2, {"estimated_input", "estimated_output", "client_abort"})),
        (b"", "client_abort", ("estimated", 33, 0, {"estimated_input", "client_abort"})),
        (b"", "complete", ("none", 0, 0, {"upstream_error"})),
        (b": c\n\n" + DONE, "complete", ("none", 0, 0, {"upstream_error"})),
        (delta(finish_reason="stop") + DONE, "complete", ("estimated", 33, 0, {"estimated_input"})),
        (EARLY + TEXT, "complete", ("provider", 20, 1, set[str]())),
        (EARLY + TEXT, "upstream_cut", ("mixed", 20, 2, {"estimated_output", "upstream_cut"})),
        (TEXT + EARLY, "upstream_cut", ("provider_partial", 20, 1, {"upstream_cut"})),
        (EARLY, "client_abort", ("mixed", 20, 1, {"estimated_output", "client_abort"})),
        (
            event(choices=[], usage=usage(20, 9)) + TEXT,
            "client_abort",
            ("mixed", 20, 9, {"estimated_output", "client_abort"}),
        ),
        (
            TEXT + event(error="x"),
            "complete",
            ("estimated", 33, 2, {"estimated_input", "estimated_output", "upstream_error"}),
        ),
        (
            EARLY + TEXT + event(error="x"),
            "complete",
            ("mixed", 20, 2, {"estimated_output", "upstream_error"}),
        ),
        (TEXT + EARLY + event(error="x"), "complete", ("provider", 20, 1, {"upstream_error"})),
        (EARLY + event(error="x"), "complete", ("provider", 20, 1, {"upstream_error"})),
        (event(error="x"), "client_abort", ("none", 0, 0, {"upstream_error", "client_abort"})),
        (
            TEXT + event(choices=[], usage={"prompt_tokens": 20}),
            "complete",
            ("mixed", 20, 2, {"estimated_output"}),
        ),
        (
            TEXT + event(choices=[], usage={"completion_tokens": 9}),
            "complete",
            ("mixed", 33, 9, {"estimated_input"}),
        ),
        (
            TEXT + event(choices=[], usage={"total_tokens": 9}),
            "complete",
            ("estimated", 33, 2, {"estimated_input", "estimated_output"}),
        ),
        (TEXT + event(choices=[], usage=usage(0, 0)), "complete", ("provider", 0, 0, set[str]())),
    ],
)
def test_what_is_missing_is_estimated_and_flagged(
    body: bytes, end: End, expected: tuple[str, int, int, set[str]]
) -> None:
    assert summary(read(fed(body)[0], end)) == expected


def test_an_http_error_costs_nothing_whatever_its_body_is() -> None:
    assert summary(read(fed(TEXT + ONLY_USAGE)[0], status=500)) == ("none", 0, 0, {"http_error"})
    assert summary(read_whole(whole(usage=usage(1, 1)), status=404, dialect="openai")) == (
        "none",
        0,
        0,
        {"http_error"},
    )


def test_the_counter_can_be_replaced() -> None:
    meter = ChatStream(dialect="openai", drop_usage=False, counter=lambda size: size * 100)
    meter.feed(TEXT)
    assert read(meter).usage == Usage(input_uncached=33, output_text=800)


def test_an_unknown_estimate_of_the_input_is_flagged_and_counts_as_nothing() -> None:
    assert summary(read(fed(TEXT)[0], estimate=None)) == (
        "estimated",
        0,
        2,
        {"estimated_input", "estimated_output"},
    )


# ── whole answers ──


def whole(content: object = "eight by", **fields: Any) -> bytes:
    message = {"role": "assistant", "content": content}
    return json.dumps({"model": "m", "choices": [{"index": 0, "message": message}], **fields}).encode()


def whole_reading(body: bytes, end: End = "complete", **more: Any) -> Reading:
    return read_whole(body, status=200, dialect="openai", end=end, input_tokens_estimate=33, **more)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><body>Sign in</body></html>",
        b"{}",
        b"[]",
        b"null",
        b'"x"',
        b'{"message": "moved"}',
        b"\xff\xfe",
    ],
)
def test_a_200_that_is_no_answer_costs_nothing(body: bytes) -> None:
    assert summary(whole_reading(body)) == ("none", 0, 0, {"upstream_error"})


def test_an_answer_that_our_client_did_not_wait_for_is_estimated() -> None:
    assert summary(whole_reading(b"", "client_abort")) == (
        "estimated",
        33,
        0,
        {"estimated_input", "client_abort"},
    )


def test_an_error_in_a_200_is_free_unless_there_was_usage_or_text() -> None:
    error = {"message": "no", "code": "server_error"}
    assert summary(whole_reading(json.dumps({"error": error}).encode())) == ("none", 0, 0, {"upstream_error"})
    assert summary(whole_reading(json.dumps({"error": error, "usage": usage(5, 0)}).encode())) == (
        "provider",
        5,
        0,
        {"upstream_error"},
    )
    assert summary(whole_reading(whole(error=error)))[0] == "estimated"


BODY = whole('one "two" Zoë 🚲 three', id="c", usage=usage(1, 2))


@pytest.mark.parametrize("cut", range(len(BODY)))
def test_a_truncated_body_is_searched_for_its_text(cut: int) -> None:
    reading = whole_reading(BODY[:cut])
    text = json.loads(BODY)["choices"][0]["message"]["content"]
    seen = cut - BODY.find(b'"one') - 1
    assert "upstream_error" in reading.flags
    if seen <= 0:
        assert reading.text_bytes == 0
    else:
        assert 0 < reading.text_bytes <= len(text.encode()) + 3
        assert reading.source in ("estimated", "provider", "mixed")
    cut_off = whole_reading(BODY[:cut], "upstream_cut")
    assert {"upstream_cut", "upstream_error"} & cut_off.flags == {"upstream_cut"}


def test_a_huge_truncated_body_is_read_in_bounded_time() -> None:
    assert whole_reading(b'{"choices":[{"message":{"content":"' + b"x" * 5_000_000).text_bytes == 2**20 - 35
    whole_reading(b'{"choices":' + b"[" * 900_000)
    whole_reading(b'{"choices":' + b"[0," * 300_000)
    whole_reading(b'{"choices":[{"message":{"content":"' + b'\\"' * 400_000)


def test_a_packed_body_is_unpacked() -> None:
    body = whole(usage=usage(3, 4))
    assert summary(whole_reading(gzip.compress(body), content_encoding="gzip")) == ("provider", 3, 4, set())
    assert summary(whole_reading(body, content_encoding="identity")) == ("provider", 3, 4, set())
    assert summary(whole_reading(gzip.compress(body), content_encoding="br"))[0] == "none"
    assert summary(whole_reading(body, content_encoding="gzip"))[0] == "none"


def test_a_packed_body_is_unpacked_only_up_to_the_limit() -> None:
    bomb = gzip.compress(bytes(MAX_UNPACKED_BYTES + 1), 1)
    assert len(unpacked(bomb, "gzip")) == MAX_UNPACKED_BYTES


def test_a_packed_stream_is_unpacked_in_pieces() -> None:
    packed = gzip.compress(b"first") + gzip.compress(b" second")
    for size in (1, 7, 100):
        unpacker = Unpacker("GZIP")
        assert (
            b"".join(unpacker.feed(packed[at : at + size]) for at in range(0, len(packed), size))
            == b"first second"
        )


def test_numbers_of_money_are_exact() -> None:
    body = whole(usage={**usage(8, 2), "cost": 0}).replace(b'"cost": 0', b'"cost": 1.2e-06')
    figure = read_whole(body, status=200, dialect="openrouter").provider_cost_usd
    assert str(figure) == "0.0000012"


def test_a_fee_key_is_a_word_of_the_usage_object() -> None:
    reading = whole_reading(
        whole(usage={**usage(1, 1), "search_context_size": "low", "cached": True, "n": 3})
    )
    assert dict(reading.fee_keys) == {"search_context_size": "low", "cached": "true"}


# ── the provider's words ──


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "m", "type": "t", "code": "c", "param": "p"}}, ("m", "t", "c", "p", None)),
        ({"error": {"message": "m", "code": 429}}, ("m", None, "429", None, 429)),
        ({"error": {"message": "m", "code": "503"}}, ("m", None, "503", None, 503)),
        ({"error": {"status": 500}}, ("", None, None, None, 500)),
        ([{"error": {"message": "m", "status": "INVALID"}}], ("m", None, None, None, None)),
        ({"error": "m", "type": "t"}, ("m", "t", None, None, None)),
        ({"object": "error", "message": "m", "type": "t", "code": 404}, ("m", "t", "404", None, 404)),
        ({"detail": "m"}, ("m", None, None, None, None)),
        ({"detail": [{"msg": "m"}]}, (None, None, None, None, None)),
        ({}, (None, None, None, None, None)),
        ([], (None, None, None, None, None)),
        ("m", (None, None, None, None, None)),
    ],
)
def test_a_providers_words_are_found_in_every_form(body: object, words: tuple[object, ...]) -> None:
    found = provider_words(json.dumps(body).encode())
    assert (found.message, found.type, found.code, found.param, found.status) == words


def test_a_page_has_no_words_and_a_long_message_is_cut() -> None:
    assert provider_words(b"<html>").message is None
    said = provider_words(json.dumps({"error": {"message": "x" * 100_000}}).encode()).message
    assert said is not None
    assert len(said) == 2000

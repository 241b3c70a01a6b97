"""Answers of Bedrock's Converse wire: whole, in frames and out of them, and what does not look as it should."""

import gzip
import itertools
import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.converse_answer import ConverseAnswer, read_whole_converse
from gateway.wire.sse import MAX_EVENT_BYTES
from pricing.usage import End, Reading, Usage

CASES = Path(__file__).parents[2] / "recorded" / "usage-cases"
NONE: frozenset[str] = frozenset()
EMPTY: dict[str, Any] = {}


def frame(name: str, payload: object, *, message_type: str = "event") -> bytes:
    """A frame of AWS."""
    names = {"event": ":event-type", "exception": ":exception-type", "error": ":error-code"}
    headers = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value.encode())) + value.encode()
        for key, value in {names[message_type]: name, ":message-type": message_type}.items()
    )
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    start = struct.pack(">II", 16 + len(headers) + len(data), len(headers))
    whole = start + struct.pack(">I", crc32(start)) + headers + data
    return whole + struct.pack(">I", crc32(whole))


def delta(**content: Any) -> dict[str, Any]:
    return {"contentBlockDelta": {"contentBlockIndex": 0, "delta": content, "p": "abcdefg"}}


def usage(given: int | None = 20, made: int | None = 9, **more: Any) -> dict[str, Any]:
    told = {"inputTokens": given, "outputTokens": made, "totalTokens": (given or 0) + (made or 0), **more}
    return {name: count for name, count in told.items() if count is not None}


def metadata(table: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"metadata": {"usage": usage() if table is None else table, "metrics": {"latencyMs": 6}, **more}}


START: dict[str, Any] = {"messageStart": {"role": "assistant"}}
STOP: dict[str, Any] = {"messageStop": {"stopReason": "end_turn"}}
BLOCK_STOP: dict[str, Any] = {"contentBlockStop": {"contentBlockIndex": 0}}
THROTTLED: dict[str, Any] = {"throttlingException": {"message": "Too many tokens."}}
TEXT = delta(text="eight by")
EVENTS = [
    START,
    delta(reasoningContent={"text": "Hm."}),
    delta(reasoningContent={"signature": "c2ln" * 20}),
    delta(text="Zoë 🚲"),
    BLOCK_STOP,
    {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "t", "name": "find"}}}},
    delta(toolUse={"input": '{"q":'}),
    delta(toolUse={"input": "1}"}),
    BLOCK_STOP,
    STOP,
    metadata(),
]
SIZE = len("Hm.") + len("Zoë 🚲".encode()) + len("find") + len('{"q":1}')


def frames(events: list[dict[str, Any]]) -> bytes:
    return b"".join(
        frame(name, inner, message_type="exception" if name.endswith("Exception") else "event")
        for event in events
        for name, inner in event.items()
    )


def sse(events: list[dict[str, Any]]) -> bytes:
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)


def recorded_events() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(CASES.glob("*.json")):
        case = json.loads(path.read_text("utf-8"))
        if case.get("wire") == "bedrock-converse" and case["response"].get("events"):
            found[path.stem] = [json.loads(event) for event in case["response"]["events"]]
    return found


STREAMS = {
    **{name: frames(events) for name, events in recorded_events().items()},
    "frames": frames(EVENTS),
    "an exception": frames([START, TEXT, THROTTLED, TEXT]),
    "an error": frames([START, TEXT]) + frame("InternalError", b"", message_type="error") + frames([TEXT]),
    "no json": frames([TEXT]) + frame("metadata", b"{oops") + frames([TEXT]),
    "a broken frame": frames([TEXT]) + b"\x00" * 20 + frames([TEXT]),
    "cut off": frames([START, TEXT, TEXT])[:-9],
    "events": sse(EVENTS),
    "nothing": b"",
    "no answer": b"<html>",
}


def fed(body: bytes, *cuts: int) -> tuple[ConverseAnswer, bytes]:
    """A meter that was given a body in pieces, and all that it gave out."""
    meter = ConverseAnswer(dialect="bedrock")
    out = b"".join(meter.feed(body[a:b]) for a, b in itertools.pairwise([0, *sorted(cuts), len(body)]))
    return meter, out + meter.rest()


def taken(*events: object) -> ConverseAnswer:
    """A meter that was given events without their frames."""
    meter = ConverseAnswer(dialect="bedrock")
    for event in events:
        meter.take_payload(event if isinstance(event, bytes) else json.dumps(event).encode())
    return meter


def read(meter: ConverseAnswer, end: End = "complete", *, status: int = 200) -> Reading:
    return meter.reading(status=status, end=end, input_tokens_estimate=33)


def state_of(meter: ConverseAnswer) -> tuple[object, ...]:
    return (
        read(meter),
        read(meter, "client_abort"),
        meter.events,
        meter.content_seen,
        meter.finished,
        meter.usage_seen,
        meter.error,
    )


def summary(reading: Reading) -> tuple[str, int, int, set[str]]:
    return reading.source, reading.usage.input_total, reading.usage.output_total, set(reading.flags)


def body(*content: dict[str, Any], table: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    told = {} if table is None else {"usage": table}
    message = {"message": {"role": "assistant", "content": list(content)}}
    return {"metrics": {"latencyMs": 8}, "output": message, "stopReason": "end_turn", **told, **more}


def whole(
    answer: object, end: End = "complete", *, status: int = 200, content_encoding: str | None = None
) -> Reading:
    return read_whole_converse(
        answer if isinstance(answer, bytes) else json.dumps(answer).encode(),
        status=status,
        dialect="bedrock",
        content_encoding=content_encoding,
        end=end,
        input_tokens_estimate=33,
    )


# ── cuts ──


def test_there_are_recorded_streams() -> None:
    assert len(recorded_events()) >= 1


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_at_any_byte_is_read_and_passed_on_the_same(name: str) -> None:
    whole_stream = STREAMS[name]
    meter, out = fed(whole_stream)
    wanted = state_of(meter)
    for cut in range(1, len(whole_stream)):
        pieces, passed_on = fed(whole_stream, cut)
        assert (state_of(pieces), passed_on) == (wanted, out)
    pieces, passed_on = fed(whole_stream, *range(len(whole_stream)))
    assert (state_of(pieces), passed_on) == (wanted, out)


@settings(deadline=None)
@given(
    events=st.lists(st.sampled_from([*EVENTS, TEXT, THROTTLED, {"new": {}}]), max_size=8),
    is_framed=st.booleans(),
    cuts=st.lists(st.integers(0, 1500), max_size=8),
    end=st.integers(0, 1500),
)
def test_any_stream_reads_the_same_however_it_is_cut(
    events: list[dict[str, Any]], is_framed: bool, cuts: list[int], end: int
) -> None:
    stream = (frames(events) if is_framed else sse(events))[:end]
    meter, out = fed(stream)
    pieces, passed_on = fed(stream, *(min(cut, len(stream)) for cut in cuts))
    assert (state_of(pieces), passed_on) == (state_of(meter), out)


def test_frames_and_events_without_them_read_the_same() -> None:
    wanted = state_of(taken(*EVENTS))
    assert state_of(fed(frames(EVENTS))[0]) == state_of(fed(sse(EVENTS))[0]) == wanted
    # Some take an event out of its frame and leave its name behind.
    assert state_of(taken(*(inner for event in EVENTS for inner in event.values()))) == wanted
    reading = read(taken(*EVENTS))
    assert (reading.usage, reading.source) == (Usage(input_uncached=20, output_text=9), "provider")
    assert (reading.flags, reading.text_bytes) == (NONE, SIZE)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    *("output", "message", "content", "text", "toolUse", "input", "reasoningContent"),
                    *("contentBlockDelta", "delta", "contentBlockStart", "start", "metadata", "usage"),
                    *("inputTokens", "outputTokens", "cacheDetails", "ttl", "serviceTier", "trace"),
                    *("throttlingException", "__type", "stopReason", "messageStop", "originalStatusCode"),
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
    plain = json.dumps(value).encode()
    for odd in (plain, b'{"metadata":' + plain + b',"output":' + plain + b"}", data, plain[:-2]):
        whole(odd)
        whole(odd, content_encoding="gzip")
        read(taken(odd), "upstream_cut")
        for kind in ("event", "exception", "error"):
            read(fed(frame("metadata", odd, message_type=kind))[0])
        read(fed(b"\x00" + odd)[0])


# ── what is passed on ──


@pytest.mark.parametrize("name", ["frames", "events"])
def test_every_byte_of_a_sound_stream_is_passed_on(name: str) -> None:
    assert fed(STREAMS[name])[1] == STREAMS[name]


def test_a_frame_is_passed_on_as_the_same_object() -> None:
    meter = ConverseAnswer(dialect="bedrock")
    for event in EVENTS:
        data = frames([event])
        assert meter.feed(data) is data
    assert meter.feed(b"") == b""


@pytest.mark.parametrize(
    ("problem", "kind", "type_", "message", "status"),
    [
        (frames([THROTTLED]), "error_event", "throttlingException", "Too many tokens.", 429),
        (
            frames(
                [
                    {
                        "modelStreamErrorException": {
                            "message": "m",
                            "originalMessage": "o",
                            "originalStatusCode": 529,
                        }
                    }
                ]
            ),
            "error_event",
            "modelStreamErrorException",
            "o",
            529,
        ),
        (frames([{"modelStreamErrorException": {}}]), "error_event", "modelStreamErrorException", None, 424),
        (frames([{"newException": {"Message": "m"}}]), "error_event", "newException", "m", None),
        (
            frame("internalServerException", b"no json", message_type="exception"),
            "error_event",
            "internalServerException",
            None,
            500,
        ),
        (frame("InternalError", b"", message_type="error"), "error_event", "InternalError", None, None),
        (frame("metadata", b"no json"), "not_json", None, None, None),
        (b"\x00" * 20, "not_json", None, None, None),
        (frame("x", b"x" * MAX_EVENT_BYTES), "too_long", None, None, None),
    ],
)
def test_nothing_is_passed_on_from_a_problem_on(
    problem: bytes, kind: str, type_: str | None, message: str | None, status: int | None
) -> None:
    before = frames([START, TEXT])
    meter, out = fed(before + problem + frames([TEXT]), len(before), len(before + problem))
    assert out == before
    assert meter.error is not None
    assert (meter.error.kind, meter.error.type) == (kind, type_)
    assert (meter.error.message, meter.error.status) == (message, status)


@pytest.mark.parametrize(
    ("event", "type_", "message", "status"),
    [
        (THROTTLED, "throttlingException", "Too many tokens.", 429),
        ({"validationException": {"message": "bad"}}, "validationException", "bad", 400),
        (
            {"__type": "com.amazon.coral#ThrottlingException", "message": "slow"},
            "ThrottlingException",
            "slow",
            429,
        ),
        ({"message": "plain words"}, None, "plain words", None),
        ({"error": {"message": "of a proxy", "code": 502}}, None, "of a proxy", 502),
    ],
)
def test_an_exception_without_its_frame_is_a_problem(
    event: dict[str, Any], type_: str | None, message: str, status: int | None
) -> None:
    meter = taken(event)
    assert meter.error is not None
    assert (meter.error.kind, meter.error.type) == ("error_event", type_)
    assert (meter.error.message, meter.error.status) == (message, status)
    assert summary(read(meter)) == ("none", 0, 0, {"upstream_error"})
    assert fed(sse([TEXT, event]))[1] == sse([TEXT])


def test_nothing_is_given_out_after_the_end() -> None:
    meter, _ = fed(frames([TEXT]))
    assert (meter.feed(frames([TEXT])), meter.rest(), meter.text_bytes) == (b"", b"", 8)


# ── what the model produced ──


@pytest.mark.parametrize(
    ("content", "size"),
    [
        ([{"text": "Zoë"}], 4),
        ([{"text": "one"}, {"text": "two"}], 6),
        (
            [{"toolUse": {"toolUseId": "t", "name": "find", "input": {"q": "a", "n": 1.5}}}],
            len('find{"q":"a","n":1.5}'),
        ),
        ([{"toolUse": {"name": "now", "input": EMPTY}}], 3),
        ([{"reasoningContent": {"reasoningText": {"text": "hm", "signature": "x" * 90}}}], 2),
        ([{"reasoningContent": {"redactedContent": "A" * 90}}], 0),
        ([{"citationsContent": {"content": [{"text": "so"}], "citations": [{"title": "source"}]}}], 2),
        ([{"image": {"format": "png", "source": {"bytes": "A" * 90}}}], 0),
        ([{"toolResult": {"content": [{"text": "not the model's"}]}}], 0),
        ([{"text": 7}, {"text": None}, {"citationsContent": {"content": [7]}}], 0),
    ],
)
def test_text_is_what_the_model_produced(content: list[dict[str, Any]], size: int) -> None:
    assert whole(body(*content)).text_bytes == size


@pytest.mark.parametrize(
    ("event", "size", "content"),
    [
        (START, 0, False),
        (delta(text="Zoë"), 4, True),
        (delta(text=""), 0, False),
        (delta(reasoningContent={"text": "hm"}), 2, True),
        (delta(reasoningContent={"signature": "x"}), 0, False),
        (delta(reasoningContent={"redactedContent": "AAAA"}), 0, False),
        (delta(toolUse={"input": '{"a":1}'}), 7, True),
        (delta(citation={"title": "source", "sourceContent": [{"text": "not the model's"}]}), 0, False),
        (delta(toolResult=[{"text": "not the model's"}]), 0, False),
        ({"contentBlockStart": {"start": {"toolUse": {"name": "find"}}}}, 4, True),
        ({"contentBlockStart": {"start": {"toolUse": {"toolUseId": "t"}}}}, 0, True),
        (BLOCK_STOP, 0, False),
        (STOP, 0, True),
        (metadata(), 0, False),
    ],
)
def test_pieces_of_text_are_what_the_model_produced(event: dict[str, Any], size: int, content: bool) -> None:
    meter = taken(event)
    assert (meter.text_bytes, meter.content_seen, meter.events) == (size, content, 1)


# ── counts ──


@pytest.mark.parametrize(
    ("table", "used", "on_wire", "flags"),
    [
        (usage(), Usage(input_uncached=20, output_text=9), "none", NONE),
        (
            usage(562, 88, cacheReadInputTokens=3059, cacheWriteInputTokens=0, totalTokens=3709),
            Usage(input_uncached=562, input_cached=3059, output_text=88),
            "beside",
            NONE,
        ),
        # The lifetime of a write that nobody told is the short one.
        (
            usage(20, 9, cacheWriteInputTokens=6000, totalTokens=6029),
            Usage(input_uncached=20, cache_write_5m=6000, output_text=9),
            "beside",
            NONE,
        ),
        (
            usage(
                20,
                9,
                cacheWriteInputTokens=6000,
                cacheDetails=[{"ttl": "1h", "inputTokens": 4000}],
                totalTokens=6029,
            ),
            Usage(input_uncached=20, cache_write_5m=2000, cache_write_1h=4000, output_text=9),
            "beside",
            NONE,
        ),
        (
            usage(
                20,
                9,
                cacheWriteInputTokens=6000,
                cacheDetails=[{"ttl": "24h", "inputTokens": 6000}],
                totalTokens=6029,
            ),
            Usage(input_uncached=20, cache_write_5m=6000, output_text=9),
            "beside",
            NONE,
        ),
        # One entry for each place in the prompt that was written up to.
        (
            usage(
                20,
                9,
                cacheWriteInputTokens=600,
                cacheDetails=[
                    {"ttl": "1h", "inputTokens": 100},
                    {"ttl": "1h", "inputTokens": 200},
                    {"ttl": "5m", "inputTokens": 300},
                ],
                totalTokens=629,
            ),
            Usage(input_uncached=20, cache_write_5m=300, cache_write_1h=300, output_text=9),
            "beside",
            NONE,
        ),
        (
            usage(
                20,
                9,
                cacheDetails=[{"ttl": "1h", "inputTokens": 40}, {"ttl": "5m", "inputTokens": 2}],
                totalTokens=71,
            ),
            Usage(input_uncached=20, cache_write_5m=2, cache_write_1h=40, output_text=9),
            "beside",
            NONE,
        ),
        (
            usage(20, 9, cacheReadInputTokens=0, cacheWriteInputTokens=0, cacheDetails=[]),
            Usage(input_uncached=20, output_text=9),
            "none",
            NONE,
        ),
        # Two names for one count.
        (
            usage(
                20,
                9,
                cacheReadInputTokens=7,
                cacheReadInputTokenCount=7,
                cacheWriteInputTokenCount=3,
                totalTokens=39,
            ),
            Usage(input_uncached=20, input_cached=7, cache_write_5m=3, output_text=9),
            "beside",
            NONE,
        ),
        # A total that nothing explains is flagged, as on every wire; one that is not there is not missed.
        (usage(totalTokens=30), Usage(input_uncached=20, output_text=9), "none", {"totals_mismatch"}),
        (
            usage(cacheReadInputTokens=7, totalTokens=29),
            Usage(input_uncached=20, input_cached=7, output_text=9),
            "beside",
            {"totals_mismatch"},
        ),
        (usage(totalTokens=None), Usage(input_uncached=20, output_text=9), "none", NONE),
        (
            usage(inputTokens="20", outputTokens=9.0),
            Usage(input_uncached=20, output_text=9),
            "none",
            {"coerced"},
        ),
        (
            usage(20, 9, cacheReadInputTokens=-1, cacheDetails=[{"ttl": "1h", "inputTokens": -1}]),
            Usage(input_uncached=20, output_text=9),
            "none",
            {"invalid_count"},
        ),
        (usage(0, 0), Usage(), "none", NONE),
        (
            usage(20, 9, cacheDetails=[7, {}, {"ttl": []}, {"ttl": "1h"}], cacheReadInputTokens=None),
            Usage(input_uncached=20, output_text=9),
            "none",
            NONE,
        ),
    ],
)
def test_every_token_is_in_one_bucket(
    table: dict[str, Any], used: Usage, on_wire: str, flags: set[str]
) -> None:
    for reading in (whole(body({"text": "x"}, table=table)), read(taken(TEXT, STOP, metadata(table)))):
        assert (reading.usage, reading.source) == (used, "provider")
        assert (reading.cached_on_wire, reading.reasoning_on_wire) == (on_wire, "none")
        assert reading.flags == flags


def test_usage_is_read_from_the_metadata_and_not_from_any_event() -> None:
    meter, _ = fed(frame("forecast", {"usage": usage(500, 500)}) + frames([TEXT, metadata()]))
    assert summary(read(meter)) == ("provider", 20, 9, set())


def test_usage_objects_are_merged_and_never_added_up() -> None:
    first = metadata(usage(20, 3, cacheDetails=[{"ttl": "1h", "inputTokens": 5}], cacheWriteInputTokens=5))
    later = metadata(usage(0, 9, totalTokens=34, cacheDetails=[{"ttl": "1h", "inputTokens": 5}]))
    reading = read(taken(first, TEXT, later, later))
    assert reading.usage == Usage(input_uncached=20, cache_write_1h=5, output_text=9)
    assert reading.flags == NONE


# ── names and tiers ──


@pytest.mark.parametrize(
    ("more", "tier", "model"),
    [
        ({}, None, None),
        ({"serviceTier": {"type": "priority"}}, "priority", None),
        ({"serviceTier": {"type": "default"}}, "default", None),
        ({"serviceTier": "flex"}, None, None),
        ({"performanceConfig": {"latency": "standard"}}, None, None),
        ({"performanceConfig": {"latency": "optimized"}}, "optimized", None),
        (
            {"serviceTier": {"type": "default"}, "performanceConfig": {"latency": "optimized"}},
            "optimized",
            None,
        ),
        (
            {
                "trace": {
                    "promptRouter": {"invokedModelId": "arn:aws:bedrock:us-west-2::foundation-model/a.b-v1:0"}
                }
            },
            None,
            "a.b-v1:0",
        ),
        ({"trace": {"promptRouter": {"invokedModelId": "a.b-v1:0"}}}, None, "a.b-v1:0"),
        ({"trace": {"promptRouter": {"invokedModelId": 7}}}, None, None),
    ],
)
def test_the_model_and_the_tier_are_those_that_the_answer_names(
    more: dict[str, Any], tier: str | None, model: str | None
) -> None:
    for reading in (whole(body(table=usage(), **more)), read(taken(TEXT, metadata(**more)))):
        assert (reading.service_tier, reading.model) == (tier, model)


# ── how an answer ended ──

EARLY = metadata(usage(20, 1))


@pytest.mark.parametrize(
    ("events", "end", "expected"),
    [
        ([START, TEXT, STOP, metadata()], "complete", ("provider", 20, 9, NONE)),
        (
            [START, TEXT],
            "client_abort",
            ("estimated", 33, 2, {"client_abort", "estimated_input", "estimated_output"}),
        ),
        ([START], "client_abort", ("estimated", 33, 0, {"client_abort", "estimated_input"})),
        ([START, TEXT, STOP], "complete", ("estimated", 33, 2, {"estimated_input", "estimated_output"})),
        ([TEXT, STOP, metadata()], "upstream_cut", ("provider_partial", 20, 9, {"upstream_cut"})),
        ([EARLY, TEXT], "upstream_cut", ("mixed", 20, 2, {"estimated_output", "upstream_cut"})),
        ([EARLY], "client_abort", ("mixed", 20, 1, {"client_abort", "estimated_output"})),
        ([], "complete", ("none", 0, 0, {"upstream_error"})),
        ([{"new": EMPTY}], "complete", ("none", 0, 0, {"upstream_error"})),
        ([START, THROTTLED], "complete", ("none", 0, 0, {"upstream_error"})),
        (
            [START, TEXT, THROTTLED],
            "complete",
            ("estimated", 33, 2, {"estimated_input", "estimated_output", "upstream_error"}),
        ),
        (
            [START, TEXT, THROTTLED],
            "upstream_cut",
            ("estimated", 33, 2, {"estimated_input", "estimated_output", "upstream_error", "upstream_cut"}),
        ),
        ([EARLY, TEXT, THROTTLED], "complete", ("mixed", 20, 2, {"estimated_output", "upstream_error"})),
        ([TEXT, metadata(), THROTTLED], "complete", ("provider", 20, 9, {"upstream_error"})),
        ([THROTTLED, metadata()], "complete", ("provider", 20, 9, {"upstream_error"})),
        # A side that is not counted is estimated, as on the messages wire.
        ([TEXT, metadata(usage(20, None))], "complete", ("mixed", 20, 2, {"estimated_output"})),
        ([TEXT, metadata(usage(None, 9))], "complete", ("mixed", 33, 9, {"estimated_input"})),
        ([TEXT, metadata(usage(-1, 9))], "complete", ("mixed", 33, 9, {"estimated_input", "invalid_count"})),
    ],
)
def test_what_is_missing_is_estimated_and_flagged(
    events: list[dict[str, Any]], end: End, expected: tuple[str, int, int, set[str]]
) -> None:
    assert summary(read(taken(*events), end)) == expected
    assert summary(read(fed(frames(events))[0], end)) == expected


ERRORS = [
    b'{"message":"Too many requests."}',
    b'{"Message":"Forbidden"}',
    b'{"__type":"a#ThrottlingException"}',
]


@pytest.mark.parametrize("status", [400, 403, 424, 429, 503])
@pytest.mark.parametrize(
    "answer", [*ERRORS, json.dumps(body({"text": "x"}, table=usage())).encode(), b"<html>"]
)
def test_an_error_status_costs_nothing_whatever_the_body_is(status: int, answer: bytes) -> None:
    assert summary(whole(answer, status=status)) == ("none", 0, 0, {"http_error"})


# ── whole bodies ──


@pytest.mark.parametrize(
    "answer",
    [
        *ERRORS,
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"7",
        b'{"id":1}',
        b'{"output":{}}',
        b'{"usage":null}',
        b'{"Output":{"__type":"com.amazon.coral.service#UnknownOperationException"},"Version":"1.0"}',
    ],
)
def test_a_body_that_is_no_answer_costs_nothing_and_says_so(answer: bytes) -> None:
    assert summary(whole(answer)) == ("none", 0, 0, {"upstream_error"})


def test_a_packed_body_is_unpacked() -> None:
    packed = gzip.compress(json.dumps(body({"text": "x"}, table=usage())).encode())
    assert summary(whole(packed, content_encoding="gzip")) == ("provider", 20, 9, set())


BODY = json.dumps(
    {
        "output": {"message": {"content": [{"text": "one two three"}], "role": "assistant"}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 120, "outputTokens": 3000, "totalTokens": 3120},
    }
).encode()


@pytest.mark.parametrize("cut", range(len(BODY)))
def test_a_body_that_breaks_off_is_searched_for_what_it_tells(cut: int) -> None:
    reading = whole(BODY[:cut], "upstream_cut")
    text = min(max(0, cut - BODY.find(b"one two")), len("one two three"))
    has_input, has_output = b"120," in BODY[:cut], b"3000," in BODY[:cut]
    assert (reading.text_bytes, reading.usage.input_total) == (text, 120 if has_input else 33)
    assert reading.usage.output_total == (3000 if has_output else -(-text // 4))
    assert "upstream_cut" in reading.flags
    assert "upstream_error" in whole(BODY[:cut]).flags


# ── bounds ──


def test_memory_is_bounded_whatever_comes() -> None:
    events = [frames([event]) for event in EVENTS]
    events += [frame(f"new{n}", {"x": n}) for n in range(50)]
    meter, other = ConverseAnswer(dialect="bedrock"), ConverseAnswer(dialect="bedrock")
    long = frame("metadata", b"x" * (MAX_EVENT_BYTES - 1000))
    tracemalloc.start()
    for _ in range(50):
        for data in events:
            meter.feed(data)
        for cut in range(0, len(events[3]), 7):
            meter.feed(events[3][cut : cut + 7])
    for _ in range(8):
        for cut in range(0, len(long), 65_536):
            other.feed(long[cut : cut + 65_536])
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert meter.events == 50 * (len(EVENTS) + 1)
    assert kept < 100_000
    assert most < 8 * 1024 * 1024

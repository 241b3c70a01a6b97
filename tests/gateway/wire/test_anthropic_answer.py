"""Answers of the messages wire: whole and streamed, in any pieces, and what does not look as it should."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.wire.anthropic_answer import MessagesAnswer, read_whole_message
from pricing.usage import End, Reading, Usage

CASES = Path(__file__).parents[2] / "recorded" / "usage-cases"


def recorded_streams() -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in sorted(CASES.glob("*.json")):
        case = json.loads(path.read_text("utf-8"))
        chunks = case.get("response", {}).get("chunks")
        if case.get("wire") == "anthropic-messages" and chunks:
            found[path.stem] = "".join(chunks).encode()
    return found


STREAMS = recorded_streams()


def event(kind: str, **members: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


def started(**usage: Any) -> bytes:
    return event("message_start", message={"type": "message", "model": "m", "content": [], "usage": usage})


def text(piece: str) -> bytes:
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})


def read(*pieces: bytes, end: End = "complete") -> tuple[bytes, Reading, MessagesAnswer]:
    stream = MessagesAnswer(dialect="anthropic")
    out = b"".join(stream.feed(piece) for piece in pieces) + stream.rest()
    return out, stream.reading(status=200, end=end, input_tokens_estimate=9), stream


def test_there_are_recorded_streams() -> None:
    assert len(STREAMS) >= 5


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_at_any_byte_is_read_and_passed_on_the_same(name: str) -> None:
    whole = STREAMS[name]
    expected = read(whole)
    for cut in range(1, len(whole)):
        out, reading, stream = read(whole[:cut], whole[cut:])
        assert (out, reading, stream.error) == (expected[0], expected[1], expected[2].error)
    by_bytes = read(*(whole[at : at + 1] for at in range(len(whole))))
    assert by_bytes[:2] == expected[:2]


def test_every_byte_of_a_sound_stream_is_passed_on() -> None:
    whole = started(input_tokens=3, output_tokens=1) + text("a") + event("message_stop")
    assert read(whole)[0] == whole


def test_nothing_is_passed_on_from_an_error_on() -> None:
    before = started(input_tokens=3, output_tokens=1) + text("some text")
    wrong = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    out, reading, stream = read(before + wrong + text("more"))
    assert out == before
    assert stream.error is not None
    assert (stream.error.kind, stream.error.type) == ("error_event", "overloaded_error")
    assert reading.flags == {"upstream_error", "estimated_output"}


def test_all_that_the_model_produced_counts_as_text_and_a_signature_does_not() -> None:
    deltas = [
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "x" * 100},
        {"type": "text_delta", "text": "\u00e9"},
        {"type": "input_json_delta", "partial_json": '{"a":1}'},
    ]
    tool = event("content_block_start", index=1, content_block={"type": "tool_use", "name": "find"})
    pieces = [event("content_block_delta", index=0, delta=delta) for delta in deltas]
    assert read(tool, *pieces)[2].text_bytes == 4 + 2 + 2 + 7


def test_counts_are_merged_and_never_added_up() -> None:
    first = started(input_tokens=10, cache_read_input_tokens=5, output_tokens=1)
    later = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 7})
    again = event(
        "message_delta", delta={}, usage={"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 7}
    )
    _, reading, _ = read(first, text("hello"), later, again)
    assert reading.usage == Usage(input_uncached=10, input_cached=5, output_text=7)
    assert (reading.source, reading.cached_on_wire) == ("provider", "beside")


@pytest.mark.parametrize(
    ("count", "read_as", "flags"),
    [("12", 12, {"coerced"}), (12.0, 12, {"coerced"}), (-1, 9, {"invalid_count", "estimated_input"})],
)
def test_a_count_in_another_spelling_is_read_or_refused(count: Any, read_as: int, flags: set[str]) -> None:
    body: dict[str, Any] = {"type": "message", "model": "m", "content": [{"type": "text", "text": "a"}]}
    body["usage"] = {"input_tokens": count, "output_tokens": 2}
    reading = read_whole_message(
        json.dumps(body).encode(), status=200, dialect="anthropic", input_tokens_estimate=9
    )
    assert reading.usage == Usage(input_uncached=read_as, output_text=2)
    assert reading.flags == flags


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b'{"id":1}', b'{"usage":[]}'])
def test_a_body_that_is_no_answer_costs_nothing_and_says_so(body: bytes) -> None:
    reading = read_whole_message(body, status=200, dialect="anthropic", input_tokens_estimate=9)
    assert (reading.usage, reading.source, reading.flags) == (Usage(), "none", {"upstream_error"})


@pytest.mark.parametrize("status", [400, 429, 529])
def test_an_error_status_is_billed_nothing(status: int) -> None:
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"no"}}'
    reading = read_whole_message(body, status=status, dialect="anthropic")
    assert (reading.usage, reading.source, reading.flags) == (Usage(), "none", {"http_error"})


@pytest.mark.parametrize(
    ("usage", "tier"),
    [
        ({"service_tier": "standard", "speed": "fast"}, "fast"),
        ({"speed": "fast"}, "fast"),
        ({"service_tier": "standard", "speed": "standard"}, "standard"),
        ({"service_tier": "standard", "speed": None}, "standard"),
        ({"service_tier": "batch"}, "batch"),
    ],
)
def test_fast_mode_is_priced_as_a_service_tier(usage: dict[str, Any], tier: str) -> None:
    counts = {"input_tokens": 3, "output_tokens": 1, **usage}
    _, reading, _ = read(started(**counts) + text("a") + event("message_stop"))
    assert reading.service_tier == tier


BODY = json.dumps(
    {
        "type": "message",
        "model": "claude-sonnet-4-6",
        "content": [{"type": "text", "text": "one two three"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 120, "output_tokens": 3000},
    }
).encode()


@pytest.mark.parametrize("cut", range(len(BODY)))
def test_a_body_that_breaks_off_is_searched_for_what_it_tells(cut: int) -> None:
    reading = read_whole_message(
        BODY[:cut], status=200, dialect="anthropic", end="upstream_cut", input_tokens_estimate=9
    )
    text = min(max(0, cut - BODY.find(b"one")), len("one two three"))
    has_input, has_output = b"120," in BODY[:cut], b"3000}" in BODY[:cut]
    assert (reading.text_bytes, reading.usage.input_total) == (text, 120 if has_input else 9)
    assert reading.usage.output_total == (3000 if has_output else -(-text // 4))
    assert "upstream_cut" in reading.flags
    assert "upstream_error" in read_whole_message(BODY[:cut], status=200, dialect="anthropic").flags


def test_arguments_that_are_no_utf8_are_counted() -> None:
    body = b'{"type":"message","content":[{"type":"tool_use","name":"f","input":{"a":"\\ud83d","b":1.5}}]}'
    reading = read_whole_message(body, status=200, dialect="anthropic")
    assert reading.text_bytes == len('f{"a":"\\ud83d","b":1.5}')

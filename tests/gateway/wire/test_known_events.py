"""Streams of one form of event: told without being parsed, and told the same."""

import json
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire import openai_chat_answer
from gateway.wire.answer import LESSONS
from gateway.wire.openai_chat_answer import ChatStream


def state_of(stream: ChatStream) -> tuple[object, ...]:
    reading = stream.reading(status=200, end="complete", input_tokens_estimate=7)
    return (
        reading,
        stream.events,
        stream.text_bytes,
        stream.content_seen,
        stream.finished,
        stream.model,
        stream.service_tier,
        stream.usage_seen,
        stream.error,
    )


def careful_stream() -> ChatStream:
    stream = ChatStream(dialect="openai", drop_usage=True)
    stream._lessons = 0  # pyright: ignore[reportPrivateUsage] - every event is parsed
    return stream


TEXTS = st.sampled_from(
    [
        "a",
        "hello ",
        '"',
        "\\",
        "\\n",
        "\n",
        "é",
        "\u2028",
        "\U0001f600",
        "another text",
        '"}',
        "\x7f",
        "",
        "data: x",
    ]
)
FORMS: list[Callable[[str], object]] = [
    lambda text: {"model": "m", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]},
    lambda text: {"model": "n", "choices": [{"delta": {"content": text}}], "usage": None},
    lambda text: {
        "choices": [{"delta": {"content": "fixed"}, "finish_reason": None}],
        "id": {"content": text},
    },
    lambda text: {"id": {"content": text}, "choices": [{"delta": {"content": text}}], "service_tier": "flex"},
    lambda text: {"choices": [{"delta": {"content": text, "reasoning_content": "why"}}]},
    lambda text: {"choices": [{"delta": {"content": text, "tool_calls": [{"function": {"name": "f"}}]}}]},
    lambda text: {"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]},
    lambda text: {"choices": [{"delta": {"content": text}}, {"delta": {"content": text}}]},
    lambda text: {"choices": [{"delta": {"content": text}, "error": {}}]},
    lambda text: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
    lambda text: {
        "choices": [{"delta": {"content": text}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    },
    lambda text: {"error": {"message": text or "broken"}},
]


@given(
    st.lists(st.tuples(st.sampled_from(FORMS), TEXTS, st.booleans(), st.booleans()), max_size=12),
    st.lists(st.integers(0, 400), max_size=4),
)
def test_events_told_by_their_form_count_as_if_each_was_parsed(
    events: list[tuple[Callable[[str], object], str, bool, bool]], cuts: list[int]
) -> None:
    data = b""
    for form, text, is_compact, is_ascii in events:
        separators = (",", ":") if is_compact else (", ", ": ")
        data += (
            b"data: %b\n\n" % json.dumps(form(text), separators=separators, ensure_ascii=is_ascii).encode()
        )
    quick, careful = ChatStream(dialect="openai", drop_usage=True), careful_stream()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for start, end in pairwise(places):
        piece = data[start:end]
        assert quick.feed(piece) == careful.feed(piece)
    assert quick.rest() == careful.rest()
    assert state_of(quick) == state_of(careful)


@pytest.mark.parametrize("text", [b"\x01", b"\xff", b"\\x", b"\\", b'"', b'","x":1,"y":"', b"\n"])
def test_what_is_no_text_in_a_known_form_is_a_problem_as_ever(text: bytes) -> None:
    good = b'data: {"choices":[{"delta":{"content":"hello"}}]}\n\n'
    for stream in (quick := ChatStream(dialect="openai", drop_usage=True)), (careful := careful_stream()):
        stream.feed(good + good)
        stream.feed(good.replace(b"hello", text))
        stream.rest()
    assert state_of(quick) == state_of(careful)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The events that were parsed."""
    payloads: list[bytes] = []

    def decode(payload: bytes) -> object:
        payloads.append(payload)
        return whole(payload)

    whole = openai_chat_answer._decode  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(openai_chat_answer, "_decode", decode)
    return payloads


def test_a_stream_of_one_form_is_parsed_for_its_first_events_only(parsed: list[bytes]) -> None:
    stream = ChatStream(dialect="openai", drop_usage=True)
    for number in range(100):
        data = b'data: {"choices":[{"delta":{"content":"word %d "}}]}\n\n' % number
        assert stream.feed(data) is data
    assert len(parsed) == 2
    assert stream.text_bytes == sum(len(f"word {number} ") for number in range(100))


def test_a_text_that_stands_twice_is_not_taken_for_the_one_that_counts() -> None:
    stream = ChatStream(dialect="openai", drop_usage=True)
    for beside in (b"aa", b"aa", b"bbbb"):
        stream.feed(b'data: {"id":{"content":"%b"},"choices":[{"delta":{"content":"aa"}}]}\n\n' % beside)
    assert stream.text_bytes == 6


def test_a_stream_of_ever_new_forms_is_soon_not_asked_for_one(parsed: list[bytes]) -> None:
    stream = ChatStream(dialect="openai", drop_usage=True)
    for number in range(100):
        stream.feed(b'data: {"choices":[{"delta":{"content":"word"}}],"noise":"%d"}\n\n' % number)
    assert len(parsed) == 100 + LESSONS
    assert stream.text_bytes == 400

"""Meters answers of Anthropic's messages wire: whole ones and streams, of Anthropic itself, Bedrock and Vertex.

`input_tokens`, `cache_read_input_tokens` and `cache_creation_input_tokens` do not overlap; the last is split by
lifetime in `cache_creation`. In a stream `message_start` has the input and a placeholder for the output, each
`message_delta` the counts so far (https://docs.anthropic.com/en/api/messages-streaming, read 2026-11-30). All usage
objects of one answer describe the same totals, so the larger number of each field counts and nothing is added up,
but for `iterations`: the passes of one answer, whose sum is what is billed where it is more than the top level says.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from gateway.wire.answer import AnswerMeter, Counted, StreamProblem
from gateway.wire.counts import count_in
from gateway.wire.mending import mended
from gateway.wire.packing import unpacked
from gateway.wire.provider_words import exact, provider_words, table_in, untyped
from gateway.wire.sse import without_byte_order_mark
from gateway.wire.text_length import json_length, utf8_length
from pricing.tokens import Counter, quarter_of_bytes
from pricing.usage import End, Reading
from routers.session import clean_id

_COUNTS: Final[Mapping[str, str]] = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_input_tokens": "cached",
    "cache_creation_input_tokens": "written",
}
_LIFETIMES: Final[Mapping[str, str]] = {
    "ephemeral_5m_input_tokens": "written_5m",
    "ephemeral_1h_input_tokens": "written_1h",
}
_BEDROCK: Final[Mapping[str, str]] = {  # the same counts, repeated at the end of a stream
    "inputTokenCount": "input",
    "outputTokenCount": "output",
    "cacheReadInputTokenCount": "cached",
    "cacheWriteInputTokenCount": "written",
}
_BILLED: Final = ("input", "output", "cached", "written")
_MOST_PASSES = 256
_BROKEN: Final[Mapping[str, Any]] = {"type": "error"}
_TEXTS: Final = ("text", "thinking", "partial_json")

_decode: Final = msgspec.json.Decoder(float_hook=exact).decode
_NOT_DECODED: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class MessagesAnswer(AnswerMeter):
    """Meter and filter of one answer of the messages wire. Nothing is kept back: usage is part of the wire."""

    __slots__ = ("_counts", "_flags", "_passes")

    def __init__(
        self, *, dialect: str, drop_usage: bool = False, counter: Counter = quarter_of_bytes
    ) -> None:
        """See AnswerMeter; `drop_usage` changes nothing here."""
        super().__init__(dialect=dialect, drop_usage=drop_usage, counter=counter)
        self._counts: dict[str, int] = {}
        self._passes: dict[str, int] = {}  # the sums over `iterations`
        self._flags: set[str] = set()

    @property
    def usage_seen(self) -> bool:
        """See AnswerMeter."""
        return "input" in self._counts or "output" in self._counts

    # ── what comes ──

    def _event(self, payload: bytes) -> bool:
        event = _read(payload)
        if event is None:
            if self.error is None:
                self.error = StreamProblem(kind="not_json")
            return False
        self.take(event)
        if self._failed and self.error is None:
            words = provider_words(payload)
            self.error = StreamProblem(
                kind="error_event",
                message=words.message,
                type=words.type,
                code=words.code,
                status=words.status,
            )
        return self.error is None

    def take(self, event: Mapping[str, Any]) -> None:
        """Count one event, or a whole body."""
        kind = event.get("type")
        if kind == "content_block_delta":
            self.events += 1
            self._take_text(_delta_bytes(table_in(event.get("delta"))))
        elif kind == "content_block_start":
            self.events += 1
            block = table_in(event.get("content_block"))
            self._take_text(_block_bytes(block))
            if block.get("type") != "text" and block.get("type") != "thinking":
                self.content_seen = True
        elif kind == "message_start":
            self.events += 1
            self._take_message(table_in(event.get("message")))
        elif kind == "message_delta":
            self.events += 1
            if table_in(event.get("delta")).get("stop_reason"):
                self.content_seen = True
            self._take_usage(event.get("usage"))
        elif kind == "message_stop":
            self.finished = True
        elif kind == "message":
            self.events += 1
            self._take_message(event)
            if event.get("stop_reason"):
                self.content_seen = self.finished = True
        elif kind == "error" or event.get("error"):
            self._failed = True
        metrics = event.get("amazon-bedrock-invocationMetrics")
        if metrics is not None:
            self._merge(table_in(metrics), _BEDROCK, self._counts)
            self._usage_is_last = True

    def _take_text(self, size: int) -> None:
        if size:
            self.text_bytes += size
            self.content_seen = True
            self._usage_is_last = False

    def _take_message(self, message: Mapping[str, Any]) -> None:
        model = message.get("model")
        if model and isinstance(model, str):
            self.model = model
        answer_id = message.get("id")
        if isinstance(answer_id, str):
            self.answer_id = clean_id(answer_id)
        content = message.get("content")
        if isinstance(content, list):
            for block in cast("list[object]", content):
                self._take_text(_block_bytes(table_in(block)))
        self._take_usage(message.get("usage"))

    def _take_usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        table = cast("dict[str, Any]", usage)
        counts = self._counts
        if self._merge(table, _COUNTS, counts):
            self._usage_is_last = True
        self._merge(table_in(table.get("cache_creation")), _LIFETIMES, counts)
        tools = table_in(table.get("server_tool_use"))
        if tools:
            self._merge(tools, {"web_search_requests": "web_search"}, counts)
        passes = table.get("iterations")
        if isinstance(passes, list):
            self._take_passes(cast("list[object]", passes))
        tier, place = table.get("service_tier"), table.get("inference_geo")
        if isinstance(tier, str):
            self.service_tier = tier
        if isinstance(place, str):
            self._inference_geo = place
        # Fast mode has a price of its own and is told beside the service tier, which stays "standard"
        # (https://platform.claude.com/docs/en/build-with-claude/fast-mode, read 2026-12-01).
        if table.get("speed") == "fast":
            self.service_tier = "fast"

    def _take_passes(self, passes: list[object]) -> None:
        sums: dict[str, int] = {}
        for one in passes[:_MOST_PASSES]:
            counts: dict[str, int] = {}
            self._merge(table_in(one), _COUNTS, counts)
            self._merge(table_in(table_in(one).get("cache_creation")), _LIFETIMES, counts)
            for name, count in counts.items():
                sums[name] = sums.get(name, 0) + count
        for name, count in sums.items():
            self._passes[name] = max(count, self._passes.get(name, 0))

    def _merge(self, table: Mapping[str, Any], names: Mapping[str, str], counts: dict[str, int]) -> bool:
        """Take the larger number of each; True if one of the two main counts was among them."""
        has_main = False
        for key, name in names.items():
            value = table.get(key)
            if value is None:
                continue
            count = count_in(value, self._flags)
            if count is not None:
                counts[name] = max(count, counts.get(name, 0))
                has_main = has_main or name == "input" or name == "output"
        return has_main

    # ── what it comes to ──

    def reading(self, *, status: int, end: End, input_tokens_estimate: int | None) -> Reading:
        """The counts of what was seen, as an answer that ended so; see `AnswerMeter.careful_reading`."""
        return self.careful_reading(status, end, input_tokens_estimate)

    def _count_flags(self) -> frozenset[str]:
        return frozenset(self._flags)

    def _counted(self) -> Counted | None:
        if not self._counts:
            return None
        counts = self._counts
        if sum(self._passes.get(name, 0) for name in _BILLED) > sum(counts.get(name, 0) for name in _BILLED):
            counts = {**counts, **self._passes}
        cached = counts.get("cached", 0)
        long_lived = counts.get("written_1h", 0)
        written = max(counts.get("written", 0), counts.get("written_5m", 0) + long_lived)
        searches = counts.get("web_search", 0)
        return Counted(
            input={
                "input_uncached": counts["input"],
                "input_cached": cached,
                "cache_write_5m": written - long_lived,
                "cache_write_1h": long_lived,
            }
            if "input" in counts
            else None,
            output={"output_text": counts["output"]} if "output" in counts else None,
            cached_on_wire="beside" if cached or written else "none",
            tools={"web_search": searches} if searches else {},
        )


def read_whole_message(
    body: bytes,
    *,
    status: int,
    dialect: str,
    content_encoding: str | None = None,
    end: End = "complete",
    input_tokens_estimate: int | None = None,
    counter: Counter = quarter_of_bytes,
) -> Reading:
    """Read a whole JSON answer. A 200 that is no answer of this wire is told by the flag `upstream_error`.

    A body that is cut off is searched for the text and the counts it holds.
    """
    answer = MessagesAnswer(dialect=dialect, counter=counter)
    if status < 400:
        if content_encoding is not None:
            body = unpacked(body, content_encoding)
        body = without_byte_order_mark(body)
        event = _read(body)
        if event is None:
            event = table_in(mended(body, _is_message))
            if event and end == "complete":
                answer.take(_BROKEN)
        answer.take(event)
    return answer.reading(status=status, end=end, input_tokens_estimate=input_tokens_estimate)


def _is_message(value: object) -> bool:
    return table_in(value).get("type") == "message"


def _read(payload: bytes) -> Mapping[str, Any] | None:
    """The object that a payload is; None: it is not JSON. Of JSON that is no object nothing is to be learnt."""
    try:
        value: object = _decode(payload)
    except _NOT_DECODED:
        value = untyped(payload)
        if value is None:
            return None
    return table_in(value)


def _delta_bytes(delta: Mapping[str, Any]) -> int:
    """UTF-8 length of what the model produced in this delta; a signature is none of its text."""
    return sum(utf8_length(delta.get(name)) for name in _TEXTS)


def _block_bytes(block: Mapping[str, Any]) -> int:
    """UTF-8 length of what the model produced in this block: text, thinking, a tool's name and arguments."""
    size = utf8_length(block.get("text")) + utf8_length(block.get("thinking"))
    if block.get("type") in ("tool_use", "server_tool_use"):
        size += utf8_length(block.get("name"))
        size += json_length(block.get("input"))
    return size

"""Meters answers of Bedrock's Converse wire: whole ones, and streams in frames of AWS or taken out of them.

`inputTokens`, `cacheReadInputTokens` and `cacheWriteInputTokens` do not overlap, and the total is the sum of them and
the output; `cacheDetails` splits the writes by lifetime
(https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_TokenUsage.html, read 2026-12-01). In a stream they
come once, in the `metadata` event behind the end of the message.

An event that was taken out of its frame is an object with one member, named as the event:
`{"contentBlockDelta":{...}}`. The payload alone is understood as well.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from gateway.wire.answer import AnswerMeter, Counted, StreamProblem
from gateway.wire.counts import count_in
from gateway.wire.event_stream import Frame, FrameProblem, FrameSplitter
from gateway.wire.mending import mended
from gateway.wire.packing import unpacked
from gateway.wire.provider_words import exact, provider_words, table_in, untyped
from gateway.wire.sse import without_byte_order_mark
from gateway.wire.text_length import json_length, utf8_length
from pricing.tokens import Counter, quarter_of_bytes
from pricing.usage import End, Reading

_COUNTS: Final[Mapping[str, str]] = {
    "inputTokens": "input",
    "outputTokens": "output",
    "totalTokens": "total",
    "cacheReadInputTokens": "cached",
    "cacheWriteInputTokens": "written",
    "cacheReadInputTokenCount": "cached",  # older names, sent beside the others for a while
    "cacheWriteInputTokenCount": "written",
}
_LIFETIMES: Final[Mapping[object, str]] = {"5m": "written_5m", "1h": "written_1h"}
_MOST_DETAILS = 64
# https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html, read 2026-12-01
_STATUS_OF: Final[Mapping[str, int]] = {
    "validationexception": 400,
    "accessdeniedexception": 403,
    "resourcenotfoundexception": 404,
    "modeltimeoutexception": 408,
    "modelerrorexception": 424,
    "modelstreamerrorexception": 424,
    "throttlingexception": 429,
    "modelnotreadyexception": 429,
    "servicequotaexceededexception": 429,
    "internalserverexception": 500,
    "serviceunavailableexception": 503,
}
_LONGEST_WORDS = 2_000
_NOTHING: Final[Mapping[str, Any]] = {}
_BROKEN: Final[Mapping[str, Any]] = {"internalServerException": {}}

_decode: Final = msgspec.json.Decoder(float_hook=exact).decode
_NOT_DECODED: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class ConverseAnswer(AnswerMeter):
    """Meter and filter of one answer of the Converse wire. Nothing is kept back: usage is part of the wire."""

    __slots__ = ("_counts", "_exception", "_flags", "_frames", "_is_sse")

    def __init__(
        self, *, dialect: str, drop_usage: bool = False, counter: Counter = quarter_of_bytes
    ) -> None:
        """See AnswerMeter; `drop_usage` changes nothing here."""
        super().__init__(dialect=dialect, drop_usage=drop_usage, counter=counter)
        self._counts: dict[str, int] = {}
        self._flags: set[str] = set()
        self._exception: StreamProblem | None = None  # what the provider reported
        self._frames: FrameSplitter | None = None
        self._is_sse = False  # the events come as server-sent events, as some pass them on

    @property
    def usage_seen(self) -> bool:
        """See AnswerMeter."""
        return "input" in self._counts or "output" in self._counts

    # ── a stream in frames ──

    def feed(self, data: bytes) -> bytes:
        """See AnswerMeter. A stream that begins with a zero, as every length below 16 MiB does, comes in frames."""
        frames = self._frames
        if frames is None:
            if not self._is_sse and data:
                self._is_sse = data[0] != 0
                self._frames = None if self._is_sse else FrameSplitter()
            if self._frames is None:
                return AnswerMeter.feed(self, data)
            frames = self._frames
        if self._done:
            return b""
        problem: FrameProblem | None = None
        try:
            found = frames.feed(data)
        except FrameProblem as wrong:
            found, problem = wrong.frames, wrong
        if problem is None and len(found) == 1:  # as nearly all reads are
            return found[0].data if self._take_frame(found[0]) else b""
        out = [frame.data for frame in found if self._take_frame(frame)]
        if problem is not None:
            self._done = True
            self._frames = FrameSplitter()  # let go of what it holds
            if self.error is None:
                self.error = StreamProblem(kind="too_long" if problem.is_too_long else "not_json")
        return b"".join(out)

    def rest(self) -> bytes:
        """See AnswerMeter. A frame that is not whole is dropped."""
        if self._frames is None:
            return AnswerMeter.rest(self)
        self._done = True
        return b""

    def _take_frame(self, frame: Frame) -> bool:
        """Count one frame; True if it may go to the client."""
        headers = frame.headers
        if headers.message_type == "error":
            self._fail(headers.name, {"message": headers.message})
            return self._may_go()
        event = _read(frame.payload)
        if headers.message_type == "exception":
            self._fail(headers.name, _NOTHING if event is None else event)
        elif event is None:
            return self._not_json()
        elif headers.name == "contentBlockDelta":
            self.events += 1
            self._take_delta(table_in(event.get("delta")))
        else:
            self.take({headers.name: event} if headers.name else event)
        return self._may_go()

    # ── what comes ──

    def _event(self, payload: bytes) -> bool:
        event = _read(payload)
        if event is None:
            return self._not_json()
        self.take(event)
        if self._failed and self._exception is None and self.error is None:
            words = provider_words(payload)
            self._exception = StreamProblem(
                kind="error_event",
                message=words.message,
                type=words.type,
                code=words.code,
                status=words.status,
            )
        return self._may_go()

    def _not_json(self) -> bool:
        if self.error is None:
            self.error = StreamProblem(kind="not_json")
        return False

    def _may_go(self) -> bool:
        if self._failed and self.error is None:
            self.error = self._exception
        return self.error is None

    def _fail(self, name: str, table: Mapping[str, Any]) -> None:
        """The provider reported an exception of this name."""
        self._failed = True
        message = table.get("originalMessage") or table.get("message") or table.get("Message")
        status = table.get("originalStatusCode")
        self._exception = StreamProblem(
            kind="error_event",
            message=message[:_LONGEST_WORDS] if isinstance(message, str) else None,
            type=name or None,
            status=status
            if isinstance(status, int) and 400 <= status <= 599
            else _STATUS_OF.get(name.lower()),
        )

    def take(self, event: Mapping[str, Any]) -> None:
        """Count one event, or a whole body."""
        delta = event.get("contentBlockDelta")
        if delta is not None:
            self.events += 1
            self._take_delta(table_in(table_in(delta).get("delta")))
            return
        is_known = False
        for name, value in event.items():
            if name == "metadata":
                is_known = True
                self._take_metadata(table_in(value))
            elif name == "output":
                message = table_in(table_in(value).get("message"))
                is_known = is_known or bool(message)
                self._take_message(message)
            elif name == "contentBlockStart":
                is_known = True
                self._take_start(table_in(table_in(value).get("start")))
            elif name == "start":
                is_known = True
                self._take_start(table_in(value))
            elif name == "delta":
                is_known = True
                self._take_delta(table_in(value))
            elif name == "messageStop":
                is_known = True
                self._take_reason(table_in(value).get("stopReason"))
            elif name == "stopReason":
                is_known = True
                self._take_reason(value)
            elif name in ("messageStart", "contentBlockStop", "contentBlockIndex", "role"):
                is_known = True
            elif name[-9:].lower() == "exception":
                self._fail(name, table_in(value))
        if event.get("usage") is not None:
            is_known = True
            self._take_metadata(event)
        if is_known:
            self.events += 1
        elif isinstance(event.get("__type"), str):
            self._fail(event["__type"].rpartition("#")[2], event)
        elif event.get("message") or event.get("Message") or event.get("error"):
            self._failed = True

    def _take_message(self, message: Mapping[str, Any]) -> None:
        content = message.get("content")
        if isinstance(content, list):
            for block in cast("list[object]", content):
                self._take_block(table_in(block))

    def _take_block(self, block: Mapping[str, Any]) -> None:
        """A block of a whole message."""
        size = utf8_length(block.get("text"))
        call = table_in(block.get("toolUse"))
        if call:
            self.content_seen = True
            size += utf8_length(call.get("name")) + json_length(call.get("input"))
        reasoning = table_in(block.get("reasoningContent"))
        if reasoning:
            size += utf8_length(table_in(reasoning.get("reasoningText")).get("text"))
        cited = table_in(block.get("citationsContent")).get("content")
        if isinstance(cited, list):
            size += sum(utf8_length(table_in(piece).get("text")) for piece in cast("list[object]", cited))
        self._take_text(size)

    def _take_start(self, start: Mapping[str, Any]) -> None:
        call = table_in(start.get("toolUse"))
        if call:
            self.content_seen = True
            self._take_text(utf8_length(call.get("name")))

    def _take_delta(self, delta: Mapping[str, Any]) -> None:
        """A piece of a block; a signature is none of its text, and a citation is its source's."""
        text = delta.get("text")
        if text is None:
            text = table_in(delta.get("toolUse")).get("input")
        if text is None:
            text = table_in(delta.get("reasoningContent")).get("text")
        self._take_text(utf8_length(text))

    def _take_text(self, size: int) -> None:
        if size:
            self.text_bytes += size
            self.content_seen = True
            self._usage_is_last = False

    def _take_reason(self, reason: object) -> None:
        if reason:
            self.content_seen = self.finished = True

    def _take_metadata(self, table: Mapping[str, Any]) -> None:
        """The members that a whole body and the last event of a stream have in common."""
        usage = table_in(table.get("usage"))
        if usage:
            self._take_usage(usage)
        tier = table_in(table.get("serviceTier")).get("type")
        if isinstance(tier, str):
            self.service_tier = tier
        # Latency-optimised inference has a price of its own and is told beside the tier, which stays "default"
        # (https://docs.aws.amazon.com/bedrock/latest/userguide/latency-optimized-inference.html, read 2026-12-01).
        if table_in(table.get("performanceConfig")).get("latency") == "optimized":
            self.service_tier = "optimized"
        # A prompt router answers with one of several models.
        model = table_in(table_in(table.get("trace")).get("promptRouter")).get("invokedModelId")
        if model and isinstance(model, str):
            self.model = model.rpartition("/")[2] or model

    def _take_usage(self, usage: Mapping[str, Any]) -> None:
        counts = self._counts
        for key, name in _COUNTS.items():
            value = usage.get(key)
            if value is None:
                continue
            count = count_in(value, self._flags)
            if count is not None:
                counts[name] = max(count, counts.get(name, 0))
                if name in ("input", "output"):
                    self._usage_is_last = True
        details = usage.get("cacheDetails")
        if isinstance(details, list):
            sums: dict[str, int] = {}
            for detail in cast("list[object]", details)[:_MOST_DETAILS]:
                table = table_in(detail)
                lifetime = table.get("ttl")
                name = _LIFETIMES.get(lifetime) if isinstance(lifetime, str) else None
                count = None if name is None else count_in(table.get("inputTokens"), self._flags)
                if name is not None and count is not None:
                    sums[name] = sums.get(name, 0) + count
            for name, count in sums.items():
                counts[name] = max(count, counts.get(name, 0))

    # ── what it comes to ──

    def reading(self, *, status: int, end: End, input_tokens_estimate: int | None) -> Reading:
        """The counts of what was seen, as an answer that ended so; see `AnswerMeter.careful_reading`."""
        return self.careful_reading(status, end, input_tokens_estimate)

    def _count_flags(self) -> frozenset[str]:
        return frozenset(self._flags)

    def _counted(self) -> Counted | None:
        counts = self._counts
        if not counts:
            return None
        get = counts.get
        cached, long_lived = get("cached", 0), get("written_1h", 0)
        written = max(get("written", 0), get("written_5m", 0) + long_lived)
        is_mismatch = (
            "total" in counts
            and "input" in counts
            and "output" in counts
            and counts["total"] != counts["input"] + counts["output"] + cached + written
        )
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
            flags=frozenset({"totals_mismatch"}) if is_mismatch else frozenset(),
        )


def read_whole_converse(
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
    answer = ConverseAnswer(dialect=dialect, counter=counter)
    if status < 400:
        if content_encoding is not None:
            body = unpacked(body, content_encoding)
        body = without_byte_order_mark(body)
        event = _read(body)
        if event is None:
            event = table_in(mended(body, _is_answer))
            if event and end == "complete":
                answer.take(_BROKEN)
        answer.take(event)
    return answer.reading(status=status, end=end, input_tokens_estimate=input_tokens_estimate)


def _is_answer(value: object) -> bool:
    return not {"output", "usage"}.isdisjoint(table_in(value))


def _read(payload: bytes) -> Mapping[str, Any] | None:
    """The object that a payload is; None: it is not JSON. Of JSON that is no object nothing is to be learnt."""
    try:
        value: object = _decode(payload)
    except _NOT_DECODED:
        value = untyped(payload)
        if value is None and payload.strip() != b"null":
            return None
    return table_in(value)

"""Meters answers of Gemini's generateContent wire, of the Gemini API and of Vertex: whole ones and streams.

A stream comes as events (`alt=sse`) or as one JSON array, as it was asked for; the first byte tells which. Both hold
the same objects, in each of which `usageMetadata` may say the counts so far, and none is marked as the last
(https://ai.google.dev/api/generate-content, read 2026-12-01).
"""

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from gateway.wire.answer import AnswerMeter, Counted, StreamProblem
from gateway.wire.gemini_usage import TIER_KEYS, UsageMerge
from gateway.wire.json_elements import ElementSplitter, ElementTooLong
from gateway.wire.mending import mended
from gateway.wire.packing import unpacked
from gateway.wire.provider_words import exact, provider_words, table_in, untyped
from gateway.wire.sse import MAX_EVENT_BYTES, without_byte_order_mark
from gateway.wire.text_length import json_length, utf8_length
from pricing.tokens import Counter, quarter_of_bytes
from pricing.usage import End, Reading

_MOST_CANDIDATES = 64  # whose searches are kept apart
_MOST_BLANKS = 64  # that may stand before a stream, if it is to be told by its first byte
_MARK: Final = b"\xef\xbb\xbf"
_BLANKS: Final = b" \t\r\n"
_OTHER_TEXT: Final = "another text"
_BROKEN: Final[Mapping[str, Any]] = {"error": "broken off"}

_decode: Final = msgspec.json.Decoder(float_hook=exact).decode
_NOT_DECODED: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class GenerateAnswer(AnswerMeter):
    """Meter and filter of one answer of the generateContent wire. Nothing is kept back: usage is part of the wire."""

    __slots__ = ("_elements", "_head", "_is_sse", "_merge", "_searches", "_thought_bytes")

    def __init__(
        self, *, dialect: str, drop_usage: bool = False, counter: Counter = quarter_of_bytes
    ) -> None:
        """See AnswerMeter; `drop_usage` changes nothing here."""
        super().__init__(dialect=dialect, drop_usage=drop_usage, counter=counter)
        self._merge = UsageMerge()
        self._thought_bytes = 0  # of `text_bytes`, what is told as a thought
        self._searches: dict[int, int] = {}  # candidate -> its web searches
        self._head: bytes = b""  # blanks that came before it was clear which form the stream has
        self._is_sse = False
        self._elements: ElementSplitter | None = None

    @property
    def usage_seen(self) -> bool:
        """See AnswerMeter."""
        return self._merge.has_main

    # ── a stream, as events or as an array ──

    def feed(self, data: bytes) -> bytes:
        """See AnswerMeter. An array is passed on object by object, and what stands between them as it comes."""
        if self._is_sse:
            return AnswerMeter.feed(self, data)
        if self._elements is None:
            data = self._head + data
            start = without_byte_order_mark(data).lstrip(_BLANKS)
            if _MARK.startswith(data) or (not start and len(data) < _MOST_BLANKS):
                self._head = data
                return b""
            self._head = b""
            self._is_sse = start[:1] not in (b"[", b"{") or len(data) - len(start) >= _MOST_BLANKS
            if self._is_sse:
                return AnswerMeter.feed(self, data)
            self._elements = ElementSplitter()
        return self._take_elements(self._elements, data)

    def rest(self) -> bytes:
        """See AnswerMeter. An object of an array that is not whole is dropped."""
        if self._elements is None:
            head, self._head = self._head, b""
            return (AnswerMeter.feed(self, head) if head else b"") + AnswerMeter.rest(self)
        self._done = True
        return b""

    def _take_elements(self, elements: ElementSplitter, data: bytes) -> bytes:
        if self._done:
            return b""
        if elements.is_between and len(data) <= MAX_EVENT_BYTES:
            one = data.strip(b" \t\r\n,")  # most reads are one object
            if one[:1] == b"{" and one[-1:] == b"}" and self._took_whole(one):
                return data if self.error is None else b""
        too_long = False
        try:
            pieces = elements.feed(data)
        except ElementTooLong as wrong:
            pieces, too_long = wrong.pieces, True
        out: list[bytes] = []
        for piece in pieces:
            keep = self._event(piece.data) if piece.is_object else self.error is None
            if keep:
                out.append(piece.data)
        if too_long:
            self._done = True
            self._elements = ElementSplitter()  # let go of what it holds
            if self.error is None:
                self.error = StreamProblem(kind="too_long")
        return b"".join(out)

    def _took_whole(self, payload: bytes) -> bool:
        """Count an object of an array; False: these bytes are not just one, nothing was counted."""
        if self._before and self._took_known(self._before, payload):
            return True
        try:
            value: object = _decode(payload)
        except _NOT_DECODED:
            return False
        self._take_value(value, payload)
        return True

    # ── what comes ──

    def _event(self, payload: bytes) -> bool:
        before = self._before
        if before and self._took_known(before, payload):
            return True
        try:
            value: object = _decode(payload)
        except _NOT_DECODED:
            self._before = self._line = b""
            bare = payload.strip()
            if bare == b"[DONE]":  # some that pass this wire on end it so
                self.finished = True
                return self.error is None
            value = untyped(payload)
            if value is None and bare != b"null":
                if self.error is None:
                    self.error = StreamProblem(kind="not_json")
                return False
        return self._take_value(value, payload)

    def _take_value(self, value: object, payload: bytes) -> bool:
        """Count one event's value; True if the event may go to the client."""
        self._before = self._line = b""
        if isinstance(value, dict):
            event = cast("dict[str, Any]", value)
            self.take(event)
            if self._lessons and self.error is None and not self._failed:
                self._learn(event, payload)
        elif isinstance(value, list):  # errors may come wrapped in a list
            self.take_all(cast("list[object]", value))
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

    def take_all(self, events: list[object]) -> None:
        """Count the objects of an array."""
        for event in events:
            self.take(table_in(event))

    def take(self, event: Mapping[str, Any]) -> None:
        """Count one object of a stream, or a whole body."""
        candidates, usage = event.get("candidates"), event.get("usageMetadata")
        feedback: object = event.get("promptFeedback")
        if isinstance(candidates, list):
            self.events += 1
            for candidate in cast("list[object]", candidates):
                if isinstance(candidate, dict):
                    self._take_candidate(cast("dict[str, Any]", candidate))
        elif isinstance(usage, dict) or isinstance(feedback, dict):
            self.events += 1
        if isinstance(usage, dict):
            merge = self._merge
            if merge.take(cast("dict[str, Any]", usage)):
                self._usage_is_last = True
            self.service_tier = merge.service_tier
        model = event.get("modelVersion")
        if model and isinstance(model, str):
            self.model = model
        if feedback and table_in(cast("object", feedback)).get("blockReason"):
            self.content_seen = self.finished = True
        if event.get("error"):
            self._failed = True

    def _take_candidate(self, candidate: Mapping[str, Any]) -> None:
        content = candidate.get("content")
        if isinstance(content, dict):
            parts = cast("dict[str, Any]", content).get("parts")
            if isinstance(parts, list):
                for part in cast("list[object]", parts):
                    if isinstance(part, dict):
                        self._take_part(cast("dict[str, Any]", part))
        if candidate.get("finishReason"):
            self.content_seen = self.finished = True
        grounding = candidate.get("groundingMetadata")
        if grounding is not None:
            queries = table_in(grounding).get("webSearchQueries")
            if isinstance(queries, list) and queries:
                self._take_searches(candidate.get("index"), len(cast("list[object]", queries)))

    def _take_part(self, part: Mapping[str, Any]) -> None:
        text = part.get("text")
        size = utf8_length(text)
        if size and part.get("thought") is True:
            self._thought_bytes += size
        if text is None:
            size += _call_bytes(part)
            if part:
                self.content_seen = True  # a call, an image, code or its result
        if size:
            self.text_bytes += size
            self.content_seen = True
            self._usage_is_last = False

    def _take_searches(self, index: object, count: int) -> None:
        """The searches of one candidate: told again, they are the same ones."""
        which = index if isinstance(index, int) else 0
        if which in self._searches or len(self._searches) < _MOST_CANDIDATES:
            self._searches[which] = max(count, self._searches.get(which, 0))

    def _learn(self, event: Mapping[str, Any], payload: bytes) -> None:
        """If the event is a piece of text without counts, keep what stands around the text.

        Whatever else it holds is the same in the next event that is told by its form, and was taken with this one.
        """
        usage: object = event.get("usageMetadata")
        if usage is not None and not TIER_KEYS.issuperset(table_in(usage) or ("none",)):
            return
        candidates = event.get("candidates")
        if not isinstance(candidates, list) or len(cast("list[object]", candidates)) != 1:
            return
        candidate = table_in(cast("list[object]", candidates)[0])
        parts = table_in(candidate.get("content")).get("parts")
        if not isinstance(parts, list) or len(cast("list[object]", parts)) != 1:
            return
        part = table_in(cast("list[object]", parts)[0])
        text = part.get("text")
        if len(part) != 1 or not text or not isinstance(text, str):
            return
        self._lessons -= 1
        plain = text.encode("utf-8", "surrogatepass")
        start = payload.find(b'"', payload.find(b'"text"') + len(b'"text"')) + 1
        if payload[start : start + len(plain)] != plain:
            return
        before, after = payload[:start], payload[start + len(plain) :]
        part["text"] = _OTHER_TEXT  # is it this text that counts, and nothing but it that changes?
        try:
            is_known: bool = _decode(before + _OTHER_TEXT.encode() + after) == event
        except _NOT_DECODED:
            return
        if is_known:
            self._before, self._after = before, after
            if after.endswith((b"\n\n", b"\r\n\r\n")):
                self._line = b"data: " + before

    # ── what it comes to ──

    def reading(self, *, status: int, end: End, input_tokens_estimate: int | None) -> Reading:
        """The counts of what was seen, as an answer that ended so; see `AnswerMeter.careful_reading`."""
        reading = self.careful_reading(status, end, input_tokens_estimate)
        if reading.source in ("provider", "provider_partial") and "estimated_output" in reading.flags:
            reading = msgspec.structs.replace(
                reading, source="mixed"
            )  # the thoughts are theirs, the rest is ours
        return reading

    def _counted(self) -> Counted | None:
        if not self._merge.counts and not self._searches:
            return None
        searches = sum(self._searches.values())
        return self._merge.counted(
            answer_bytes=self.text_bytes - self._thought_bytes,
            text_bytes=self.text_bytes,
            tools={"web_search": searches, "grounded_prompt": 1} if searches else {},
            counter=self._counter,
        )

    def _count_flags(self) -> frozenset[str]:
        return frozenset(self._merge.flags)


def read_whole_generated(
    body: bytes,
    *,
    status: int,
    dialect: str,
    content_encoding: str | None = None,
    end: End = "complete",
    input_tokens_estimate: int | None = None,
    counter: Counter = quarter_of_bytes,
) -> Reading:
    """Read a whole JSON answer, or the array of a stream that was waited for.

    A body that is cut off is searched for the text and the counts it holds. A 200 that is no answer of this wire is
    told by the flag `upstream_error`.
    """
    answer = GenerateAnswer(dialect=dialect, counter=counter)
    if status < 400:
        if content_encoding is not None:
            body = unpacked(body, content_encoding)
        body = without_byte_order_mark(body)
        try:
            value: object = _decode(body)
        except _NOT_DECODED:
            value = untyped(body)
            if value is None:
                value = mended(body, _is_answer)
                if value is not None and end == "complete":
                    answer.take(_BROKEN)
        if isinstance(value, list):
            answer.take_all(cast("list[object]", value))
        else:
            answer.take(table_in(value))
    return answer.reading(status=status, end=end, input_tokens_estimate=input_tokens_estimate)


def _is_answer(value: object) -> bool:
    if isinstance(value, list):
        return any(_is_answer(table_in(one)) for one in cast("list[object]", value))
    return not {"candidates", "usageMetadata", "promptFeedback"}.isdisjoint(table_in(value))


def _call_bytes(part: Mapping[str, Any]) -> int:
    """UTF-8 length of a call that the model wrote: a function's name and arguments, or code that was run for it."""
    size = utf8_length(table_in(part.get("executableCode")).get("code"))
    for name in ("functionCall", "toolCall"):
        call = table_in(part.get(name))
        if call:
            size += utf8_length(call.get("name")) + json_length(call.get("args"))
            pieces = call.get("partialArgs")
            if isinstance(pieces, list):  # arguments in pieces, as Vertex streams them on request
                for piece in cast("list[object]", pieces):
                    table = table_in(piece)
                    size += utf8_length(table.get("stringValue")) + json_length(table.get("numberValue"))
    return size

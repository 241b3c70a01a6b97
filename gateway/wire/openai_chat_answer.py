"""Meters answers of the chat wire: whole ones and streams, in every dialect.

A stream is read to its end, past `finish_reason` and past `[DONE]`, and passed on as the bytes that came, less the
one usage event that the client did not ask for. Each event is parsed once.

What can go wrong in a stream is a `StreamProblem`: an error event, an event that is not JSON, an event that is too
long. From the event with the problem on nothing is passed on; counting goes on, but not past an event too long.
"""

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, Final, Literal, NoReturn, cast

import msgspec

from gateway.wire.openai_usage import PlainUsage, UsageMerge, decode_plain_usage
from gateway.wire.sse import (
    MAX_EVENT_BYTES,
    EventSplitter,
    SseTooLong,
    payload_of,
    without_byte_order_mark,
)
from pricing.tokens import Counter, quarter_of_bytes
from pricing.usage import End, Reading, Usage, UsageSource

DIALECTS: Final = (
    "openai",
    "mistral",
    "deepseek",
    "groq",
    "xai",
    "gemini",
    "azure",
    "moonshot",
    "qwen",
    "qianfan",
    "together",
    "fireworks",
    "openrouter",
    "perplexity",
    "vllm",
    "sglang",
    "llamacpp",
    "ollama",
)
"""Whose variants of the wire are known. Another name is read as plain OpenAI."""

MAX_UNPACKED_BYTES = 64 * 1024 * 1024
_MAX_MENDED_BYTES = 1 << 20  # of a truncated body that are looked through for text
_DEEPEST_MENDED = 32
_LONGEST_WORDS = 2_000  # of a provider's error message
_NO_FEE_KEYS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderWords:
    """What a provider says of an error, as it says it. None: nothing. May hold secrets: scrub before showing."""

    message: str | None = None
    type: str | None = None
    code: str | None = None
    param: str | None = None
    status: int | None = None  # an HTTP status that the error names


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProblem:
    """Why a stream cannot be passed on any further."""

    kind: Literal["error_event", "not_json", "too_long"]
    message: str | None = None  # the provider's words, of an error event only; they may hold secrets
    type: str | None = None
    code: str | None = None
    status: int | None = None  # an HTTP status that the error event names


class _Function(msgspec.Struct, gc=False):
    name: Any = None
    arguments: Any = None


class _Custom(msgspec.Struct, gc=False):
    name: Any = None
    input: Any = None


class _ToolCall(msgspec.Struct, gc=False):
    function: _Function | None = None
    custom: _Custom | None = None


class _Message(msgspec.Struct, gc=False):
    """A message of a whole answer, or a delta of a stream."""

    content: Any = None
    tool_calls: list[_ToolCall] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    function_call: _Function | None = None
    thinking: Any = None
    reasoning_details: Any = None
    audio: Any = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: Any = None
    usage: Any = None
    error: Any = None


class _Event(msgspec.Struct, gc=False):
    """A whole answer, or one event of a stream: the fields that count."""

    choices: list[_Choice] | None = None
    usage: Any = None
    model: Any = None
    service_tier: Any = None
    error: Any = None
    x_groq: Any = None
    object: Any = None


class _Whole(_Event, gc=False):
    """A whole answer whose usage object is not read yet."""

    usage: msgspec.Raw = msgspec.Raw(b"null")


def _exact(text: str) -> Decimal:
    """Numbers with a point or an exponent are read as decimals, never as floats."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("NaN")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decode: Final = msgspec.json.Decoder(_Event, float_hook=_exact).decode
_decode_whole: Final = msgspec.json.Decoder(_Whole, float_hook=_exact).decode
_decode_value: Final = msgspec.json.Decoder(float_hook=_exact).decode
_NOT_DECODED: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)

LESSONS = 8  # how often a stream may show another form of event before it is parsed event by event
_OTHER_TEXT: Final = "another text"
# What stands for itself in a JSON text:
_PLAIN_TEXT: Final = bytes(byte for byte in range(0x20, 0x7F) if byte not in b'"\\')


class ChatAnswer:
    """What has been seen of one answer: its text's length, its usage, its names. Memory does not grow with it."""

    __slots__ = (
        "_counter",
        "_dialect",
        "_failed",
        "_inference_geo",
        "_merge",
        "_plain",
        "_usage_is_last",
        "content_seen",
        "events",
        "finished",
        "model",
        "service_tier",
        "text_bytes",
    )

    def __init__(self, *, dialect: str, counter: Counter = quarter_of_bytes) -> None:
        self._dialect = dialect
        self._counter = counter
        self._plain: PlainUsage | None = None  # the first usage object, while there is no other
        self._merge: UsageMerge | None = None
        self._usage_is_last = False  # usage came with or after the last piece of text
        self._failed = False  # the provider reported an error
        self._inference_geo: str | None = None
        self.events: int = 0  # events, or bodies, of this wire's form
        self.text_bytes: int = 0  # UTF-8 length of all text the model produced
        self.content_seen = False
        """A choice came with text, a tool call, a refusal, reasoning or a finish reason."""
        self.finished = False
        """A finish reason or `[DONE]` came."""
        self.model: str | None = None  # the last name the answer gave
        self.service_tier: str | None = None

    @property
    def usage_seen(self) -> bool:
        """The provider reported at least one of the two main counts."""
        if self._plain is not None:
            return True
        return self._merge is not None and (
            "prompt" in self._merge.counts or "completion" in self._merge.counts
        )

    def take(self, event: _Event) -> bool:
        """Count one event or body; True if it is nothing but usage."""
        choices = event.choices
        usage = event.usage
        if event.model and isinstance(event.model, str):
            self.model = event.model
        if event.service_tier is not None and isinstance(event.service_tier, str):
            self.service_tier = event.service_tier
        if event.error or (choices is None and event.object == "error"):
            self._failed = True
        if choices:
            self.events += 1
            for choice in choices:
                message = choice.delta or choice.message
                if message is not None:
                    content = message.content
                    if content and type(content) is str:
                        size = len(content) if content.isascii() else _utf8_length(content)
                    else:
                        size = 0
                    if (
                        size == 0
                        or message.tool_calls is not None
                        or message.reasoning_content is not None
                        or message.reasoning is not None
                        or message.refusal is not None
                        or message.function_call is not None
                        or message.thinking is not None
                        or message.reasoning_details is not None
                        or message.audio is not None
                    ):
                        size = _text_bytes(message)
                    if size:
                        self.text_bytes += size
                        self.content_seen = True
                        self._usage_is_last = False
                    elif message.tool_calls:
                        self.content_seen = True
                if choice.finish_reason:
                    self.content_seen = self.finished = True
                if choice.usage is not None:
                    self._take_usage(choice.usage)
                if choice.error:
                    self._failed = True
        elif choices is not None:
            self.events += 1
        if event.x_groq is not None:
            self._take_groq(event.x_groq)
        if usage is not None and isinstance(usage, dict):
            self._take_usage(cast("object", usage))
            if not choices:
                if choices is None:
                    self.events += 1
                return True
        return False

    def _take_groq(self, beside: object) -> None:
        if isinstance(beside, dict):
            table = cast("dict[str, Any]", beside)
            self._take_usage(table.get("usage"))
            if table.get("error"):
                self._failed = True

    def _take_usage(self, usage: object) -> None:
        if not isinstance(usage, dict):
            return
        table = cast("dict[str, Any]", usage)
        merge = self._merged()
        if merge is None:
            try:
                self._plain = msgspec.convert(table, PlainUsage)
            except msgspec.ValidationError:
                self._merge = merge = UsageMerge()
            else:
                self._usage_is_last = True
                return
        if merge.take(table):
            self._usage_is_last = True
        tier, place = table.get("service_tier"), table.get("inference_geo")
        if self.service_tier is None and isinstance(tier, str):
            self.service_tier = tier
        if isinstance(place, str):
            self._inference_geo = place

    def _merged(self) -> UsageMerge | None:
        """All usage objects so far; None: there was none."""
        if self._plain is not None:
            self._merge = UsageMerge()
            self._merge.take(msgspec.to_builtins(self._plain))
            self._plain = None
        return self._merge

    def reading(self, *, status: int, end: End, input_tokens_estimate: int | None) -> Reading:
        """The counts of what was seen, as an answer that ended so.

        `input_tokens_estimate` is what our own counter said of the prompt; it is used only where the provider
        told nothing, and counts as 0 if it is None.
        """
        is_whole = end == "complete" and status < 400 and not self._failed
        if is_whole and self._plain is not None and self._dialect != "perplexity":
            reading = _reading_of(self._plain, self.model, self.service_tier, self.text_bytes)
            if reading is not None:
                return reading
        merge = self._merged()
        if is_whole and merge is not None:
            plain = merge.plainly(self._dialect)
            if plain is not None:
                usage = plain[0]
                provider_cost = merge.provider_cost_usd(self._dialect)
                return Reading(
                    usage=usage,
                    source="provider",
                    cached_on_wire=plain[1],
                    reasoning_on_wire=plain[2],
                    model=self.model,
                    service_tier=self.service_tier,
                    inference_geo=self._inference_geo,
                    provider_cost_usd=provider_cost,
                    fee_keys=MappingProxyType(dict(merge.scalars)) if merge.scalars else _NO_FEE_KEYS,
                    text_bytes=self.text_bytes,
                    is_plain=not usage.cache_write_5m
                    and provider_cost is None
                    and self._inference_geo is None,
                )
        return self._careful_reading(status, end, input_tokens_estimate)

    def _careful_reading(self, status: int, end: End, input_tokens_estimate: int | None) -> Reading:
        flags: set[str] = set() if end == "complete" else {end}
        if status >= 400:
            return Reading(usage=Usage(), source="none", flags=frozenset({*flags, "http_error"}))
        merge = self._merged()
        seen = self.usage_seen
        has_text = self.text_bytes > 0
        if self._failed or (end == "complete" and not self.events):
            flags.add("upstream_error")
        if merge is not None:
            flags |= merge.flags
        provider_cost = None if merge is None else merge.provider_cost_usd(self._dialect)
        if not seen and not has_text and "upstream_error" in flags:
            return Reading(
                usage=Usage(),
                source="none",
                flags=frozenset(flags),
                model=self.model,
                service_tier=self.service_tier,
                provider_cost_usd=provider_cost,
            )
        counted = None if merge is None else merge.counted(self._dialect)
        given = None if counted is None else counted.input
        made = None if counted is None else counted.output
        estimate = self._counter(self.text_bytes) if has_text else 0
        is_early = end != "complete"
        source: UsageSource = "provider_partial" if is_early else "provider"
        if given is None:
            given = {"input_uncached": input_tokens_estimate or 0}
            flags.add("estimated_input")
            source = "mixed"
        estimates_output = made is None
        if seen and ((is_early and not (has_text and self._usage_is_last)) or self._stopped_by_error()):
            # What the provider had counted by then is a lower bound.
            source = "mixed"
            flags.add("estimated_output")
            estimates_output = made is None or estimate > sum(made.values())
        elif made is None:
            source = "mixed"
            if seen or has_text:
                flags.add("estimated_output")
        if estimates_output or made is None:
            made = {"output_text": estimate}
        if not seen:
            source = "estimated"
        return Reading(
            usage=Usage(
                **given,
                **made,
                tools=_frozen(counted.tools if counted else None),
                extra=_frozen(counted.extra if counted else None),
            ),
            source=source,
            flags=frozenset(flags if counted is None else flags | counted.flags),
            cached_on_wire="none" if counted is None else counted.cached_on_wire,
            reasoning_on_wire="none" if counted is None or estimates_output else counted.reasoning_on_wire,
            model=self.model,
            service_tier=self.service_tier,
            inference_geo=self._inference_geo,
            provider_cost_usd=provider_cost,
            fee_keys=_NO_FEE_KEYS if merge is None else MappingProxyType(dict(merge.scalars)),
            text_bytes=self.text_bytes,
        )

    def _stopped_by_error(self) -> bool:
        return self._failed and self.text_bytes > 0 and not self._usage_is_last


class ChatStream(ChatAnswer):
    """Meter and filter of one streamed answer."""

    __slots__ = (
        "_after",
        "_before",
        "_began",
        "_done",
        "_drop_usage",
        "_dropped",
        "_is_between",
        "_lessons",
        "_line",
        "_splitter",
        "error",
    )

    def __init__(self, *, dialect: str, drop_usage: bool, counter: Counter = quarter_of_bytes) -> None:
        """`drop_usage`: keep back events that are nothing but usage, because the client did not ask for them."""
        super().__init__(dialect=dialect, counter=counter)
        self._drop_usage = drop_usage
        self._splitter = EventSplitter()
        self._is_between = True  # nothing is held: the next byte begins an event
        self._began = False
        self._dropped = False  # the last event was kept back
        self._done = False  # an event was too long, or the body ended
        # What stands before and after the text of the last event, if it was nothing but a piece of text: most
        # streams are one such event after the other, and are told by that without being parsed.
        self._before = b""
        self._after = b""
        self._line = b""  # `data: ` and what stands before, if the event ends in a blank line
        self._lessons = LESSONS
        self.error: StreamProblem | None = None

    def feed(self, data: bytes) -> bytes:
        """What may go to the client now. It is `data` itself if that is whole events and all may go."""
        line = self._line
        if line and self._is_between and len(data) <= MAX_EVENT_BYTES and self._took_known(line, data):
            self._dropped = False
            return data
        if (
            self._is_between
            and data[-2:] == b"\n\n"
            and b"\r" not in data
            and len(data) <= MAX_EVENT_BYTES
            and (self._began or data[0] != 0xEF)
            and not self._done
        ):
            self._began = True
            if data[:6] == b"data: " and data.find(b"\n") == len(data) - 2:
                # One event on one line, as nearly all are. JSON does not mind the line ends behind it.
                if self._event(data[6:]):
                    self._dropped = False
                    return data
                self._dropped = True
                return b""
            return self._whole_events(data)
        return self._cut_events(data)

    def rest(self) -> bytes:
        """At the end of the body: the bytes still held that count, and may go. Feed nothing after it.

        An event that lacks its blank line counts, and one that is not whole JSON does not and is no problem: a
        stream may have been cut there. What is given out need not end in a blank line.
        """
        if self._done:
            return b""
        self._done = True
        self._before = self._line = b""
        event = self._splitter.held
        if not event:
            return b""
        payload = payload_of(event if self._began else without_byte_order_mark(event))
        if payload is None:
            return event if self.error is None else b""
        if _parsed(payload) is None and payload.strip() != b"[DONE]":
            return b""
        return event if self._event(payload) else b""

    def _whole_events(self, data: bytes) -> bytes:
        """Several events, complete, their lines ended by LF."""
        out: list[bytes] = []
        start, kept_from, size = 0, 0, len(data)
        while start < size:
            end = data.find(b"\n\n", start) + 2
            if end == 1 or data[start] == 10:
                end = start + 1  # a blank line by itself
                keep = self.error is None
            elif data[start : start + 6] == b"data: " and data.find(b"\n", start) == end - 2:
                keep = self._event(data[start + 6 : end])
            else:
                keep = self._raw_event(data[start:end])
            self._dropped = not keep
            if not keep:
                if kept_from < start:
                    out.append(data[kept_from:start])
                kept_from = end
            start = end
        if kept_from == 0:
            return data
        if kept_from < size:
            out.append(data[kept_from:])
        return out[0] if len(out) == 1 else b"".join(out)

    def _cut_events(self, data: bytes) -> bytes:
        """Any bytes."""
        if self._done or not data:
            return b""
        splitter = self._splitter
        too_long = False
        try:
            events = splitter.feed(data)
        except SseTooLong as wrong:
            events = wrong.events
            too_long = True
        out: list[bytes] = []
        for index, event in enumerate(events):
            if index == 0 and splitter.continued:
                keep = not self._dropped
            else:
                if not self._began:
                    self._began = True
                    keep = self._raw_event(event, without_byte_order_mark(event))
                else:
                    keep = self._raw_event(event)
                self._dropped = not keep
            if keep:
                out.append(event)
        if too_long:
            self._done = True
            self._before = self._line = b""
            self._splitter = EventSplitter()  # let go of what it holds
            if self.error is None:
                self.error = StreamProblem(kind="too_long")
        self._is_between = splitter.is_empty
        return b"".join(out)

    def _raw_event(self, event: bytes, readable: bytes | None = None) -> bool:
        """Count one complete event; True if it may go to the client."""
        payload = payload_of(readable or event)
        if payload is None:
            return self.error is None
        return self._event(payload)

    def _event(self, payload: bytes) -> bool:
        """Count one event's payload; True if the event may go to the client."""
        before = self._before
        if before and self._took_known(before, payload):
            return True
        self._before = self._line = b""
        try:
            event = _decode(payload)
        except _NOT_DECODED:
            if payload.strip() == b"[DONE]":
                self.finished = True
                return self.error is None
            event = _parsed(payload)
            if event is None:
                if self.error is None:
                    self.error = StreamProblem(kind="not_json")
                return False
        is_usage = self.take(event)
        if self._lessons and self.error is None and not self._failed and not is_usage:
            self._learn(event, payload)
        if self._failed and self.error is None:
            words = provider_words(payload)
            self.error = StreamProblem(
                kind="error_event",
                message=words.message,
                type=words.type,
                code=words.code,
                status=words.status,
            )
        return self.error is None and not (is_usage and self._drop_usage)

    def _learn(self, event: _Event, payload: bytes) -> None:
        """If the event is a piece of text and nothing else that counts, keep what stands around the text."""
        if (
            not event.choices
            or len(event.choices) != 1
            or event.usage is not None
            or event.x_groq is not None
        ):
            return
        choice = event.choices[0]
        message = choice.delta
        if message is None or choice.finish_reason or choice.usage is not None:
            return
        content = message.content
        if not content or type(content) is not str or message != _Message(content=content):
            return
        self._lessons -= 1
        text = content.encode()
        start = payload.find(b'"', payload.find(b'"content"') + len(b'"content"')) + 1
        if payload[start : start + len(text)] != text:
            return
        before, after = payload[:start], payload[start + len(text) :]
        message.content = _OTHER_TEXT  # is it this text that counts, and nothing but it that changes?
        try:
            is_known = _decode(before + _OTHER_TEXT.encode() + after) == event
        except _NOT_DECODED:
            return
        if is_known:
            self._before, self._after = before, after
            if after.endswith(b"\n\n"):
                self._line = b"data: " + before

    def _took_known(self, before: bytes, event: bytes) -> bool:
        """Count an event that is the last one with another text in it; False: it is not, nothing was counted."""
        if not (event.startswith(before) and event.endswith(self._after)):
            return False
        text = event[len(before) : -len(self._after)]
        if not text or text.translate(None, _PLAIN_TEXT):
            return False
        self.events += 1
        self.text_bytes += len(text)
        self.content_seen = True
        self._usage_is_last = False
        return True


def read_whole(
    body: bytes,
    *,
    status: int,
    dialect: str,
    content_encoding: str | None = None,
    end: End = "complete",
    input_tokens_estimate: int | None = None,
    counter: Counter = quarter_of_bytes,
) -> Reading:
    """Read a whole JSON answer.

    A body that is cut off is searched for the text it holds. A 200 that is no answer of this wire has the source
    "none" and the flag `upstream_error`; `provider_words` then tells what it says.
    """
    event: _Event | None = None
    if status < 400:
        if content_encoding is not None:
            body = unpacked(body, content_encoding)
        try:
            whole = _decode_whole(body)
            if end == "complete":
                reading = _plain_reading(whole, dialect)
                if reading is not None:
                    return reading
            event = whole
            event.usage = _decode_value(whole.usage)
        except _NOT_DECODED:
            event = _parsed(without_byte_order_mark(body))
        if event is None:
            event = _mended(body)
            if event is not None and end == "complete":
                event.error = True
    answer = ChatAnswer(dialect=dialect, counter=counter)
    if event is not None:
        answer.take(event)
    return answer.reading(status=status, end=end, input_tokens_estimate=input_tokens_estimate)


def _plain_reading(whole: _Whole, dialect: str) -> Reading | None:
    """What `ChatAnswer` says of a complete answer that is one text with plain counts that add up; None: look closer."""
    choices, model, tier = whole.choices, whole.model, whole.service_tier
    if (
        not choices
        or len(choices) != 1
        or not model
        or type(model) is not str
        or (tier is not None and type(tier) is not str)
        or whole.error
        or whole.x_groq is not None
        or dialect == "perplexity"  # it counts reasoning beside the completion
    ):
        return None
    choice = choices[0]
    message = choice.message
    if message is None or choice != _Choice(message=message, finish_reason=choice.finish_reason):
        return None
    text = message.content
    if type(text) is not str or message != _Message(text):
        return None
    try:
        told = decode_plain_usage(whole.usage)
    except _NOT_DECODED:
        return None
    return _reading_of(told, model, tier, _utf8_length(text))


def _reading_of(
    told: PlainUsage, model: str | None, service_tier: str | None, text_bytes: int
) -> Reading | None:
    """The reading of a complete answer with one usage object; None: its counts do not add up."""
    prompt, completion = told.prompt_tokens, told.completion_tokens
    given, made = told.prompt_tokens_details, told.completion_tokens_details
    cached = 0 if given is None else given.cached_tokens or 0
    thought = 0 if made is None else made.reasoning_tokens or 0
    if cached > prompt or thought > completion or told.total_tokens != prompt + completion:
        return None
    return Reading(
        usage=Usage(
            input_uncached=prompt - cached,
            input_cached=cached,
            output_text=completion - thought,
            output_reasoning=thought,
        ),
        source="provider",
        cached_on_wire="inside" if cached else "none",
        reasoning_on_wire="inside" if thought else "none",
        model=model,
        service_tier=service_tier,
        text_bytes=text_bytes,
        is_plain=True,
    )


def provider_words(body: bytes) -> ProviderWords:
    """What an error body or an error event says; nothing if it has no form that is known."""
    parsed = _untyped(body)
    if isinstance(parsed, list) and parsed:  # Gemini wraps its errors in a list
        parsed = cast("list[object]", parsed)[0]
    if not isinstance(parsed, dict):
        return ProviderWords()
    table = cast("dict[str, Any]", parsed)
    error = table.get("error") or _error_in_choice(table)
    if isinstance(error, str):
        return ProviderWords(
            message=_word(error), type=_word(table.get("type")), code=_word(table.get("code"))
        )
    if not isinstance(error, dict):
        said = table.get("message") or table.get("detail")
        if not isinstance(said, str):
            return ProviderWords()
        error = {**table, "message": said}
    words = cast("dict[str, Any]", error)
    code = words.get("code")
    return ProviderWords(
        message=_word(words.get("message")) or "",
        type=_word(words.get("type")),
        code=_word(code),
        param=_word(words.get("param")),
        status=_status(code) or _status(words.get("status")),
    )


def unpacked(body: bytes, content_encoding: str) -> bytes:
    """A packed body as far as it can be unpacked, MAX_UNPACKED_BYTES at most; of an unknown packing nothing."""
    encoding = content_encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    unpacker = Unpacker(encoding)
    return unpacker.feed(body)


class Unpacker:
    """Unpacks gzip or deflate in pieces. What cannot be unpacked is left out: a broken packing ends the body."""

    __slots__ = ("_left", "_unpack")

    def __init__(self, content_encoding: str) -> None:
        self._left = MAX_UNPACKED_BYTES
        known = content_encoding.strip().lower() in ("gzip", "x-gzip", "deflate")
        self._unpack = zlib.decompressobj(wbits=47) if known else None

    def feed(self, data: bytes) -> bytes:
        """What these bytes unpack to."""
        out: list[bytes] = []
        while data and self._unpack is not None and self._left > 0:
            try:
                out.append(self._unpack.decompress(data, self._left))
            except zlib.error:
                self._unpack = None
                break
            self._left -= len(out[-1])
            data = b""
            if self._unpack.eof:  # a gzip body may have several members
                data = self._unpack.unused_data
                self._unpack = zlib.decompressobj(wbits=47)
        return b"".join(out)


def _frozen(counts: Mapping[str, int] | None) -> Mapping[str, int]:
    return MappingProxyType(dict(counts)) if counts else MappingProxyType({})


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _text_bytes(message: _Message) -> int:
    """UTF-8 length of all that the model produced here."""
    size = _length(message.content) + _length(message.refusal)
    thought = max(_length(message.reasoning_content), _length(message.reasoning), _length(message.thinking))
    size += thought or _length(message.reasoning_details)  # several names for one text: it counts once
    if message.tool_calls:
        for call in message.tool_calls:
            if call.function is not None:
                size += _length(call.function.name) + _length(call.function.arguments)
            if call.custom is not None:
                size += _length(call.custom.name) + _length(call.custom.input)
    if message.function_call is not None:
        size += _length(message.function_call.name) + _length(message.function_call.arguments)
    if message.audio is not None:
        size += _length(_dict(message.audio).get("transcript"))
    return size


_TEXT_KEYS = ("text", "thinking", "reasoning", "refusal", "content", "summary")


def _length(value: object) -> int:
    """UTF-8 length of a text, or of the texts in a list of parts."""
    if type(value) is str:
        return _utf8_length(value)
    if value is None:
        return 0
    size = 0
    waiting: list[object] = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            size += _utf8_length(part)
        elif isinstance(part, list):
            waiting += cast("list[object]", part)
        elif isinstance(part, dict):
            table = cast("dict[str, object]", part)
            waiting += [table[key] for key in _TEXT_KEYS if key in table]
    return size


def _untyped(payload: bytes) -> object:
    """JSON as plain values, bad UTF-8 replaced; None: it is not JSON, or too deep."""
    try:
        return json.loads(
            payload.decode("utf-8", "replace"), parse_float=_exact, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):
        return None


def _parsed(payload: bytes) -> _Event | None:
    """An event whose fields are not all of the expected kind; None: it is not JSON."""
    value = _untyped(payload)
    if value is None:
        return _Event() if payload.strip() == b"null" else None
    return _event_of(value)


def _event_of(value: object) -> _Event:
    table = _dict(value)
    choices = table.get("choices")
    return _Event(
        choices=[_choice_of(choice) for choice in cast("list[object]", choices)]
        if isinstance(choices, list)
        else None,
        usage=table.get("usage"),
        model=table.get("model"),
        service_tier=table.get("service_tier"),
        error=table.get("error"),
        x_groq=table.get("x_groq"),
        object=table.get("object"),
    )


def _choice_of(value: object) -> _Choice:
    table = _dict(value)
    return _Choice(
        delta=_message_of(table.get("delta")),
        message=_message_of(table.get("message")),
        finish_reason=table.get("finish_reason"),
        usage=table.get("usage"),
        error=table.get("error"),
    )


def _message_of(value: object) -> _Message | None:
    if not isinstance(value, dict):
        return None
    table = cast("dict[str, Any]", value)
    calls = table.get("tool_calls")
    return _Message(
        content=table.get("content"),
        tool_calls=[_call_of(call) for call in cast("list[object]", calls)]
        if isinstance(calls, list)
        else None,
        reasoning_content=table.get("reasoning_content"),
        reasoning=table.get("reasoning"),
        refusal=table.get("refusal"),
        function_call=_function_of(table.get("function_call")),
        thinking=table.get("thinking"),
        reasoning_details=table.get("reasoning_details"),
        audio=table.get("audio"),
    )


def _call_of(value: object) -> _ToolCall:
    table = _dict(value)
    custom = _dict(table.get("custom"))
    return _ToolCall(
        function=_function_of(table.get("function")),
        custom=_Custom(name=custom.get("name"), input=custom.get("input")),
    )


def _function_of(value: object) -> _Function:
    table = _dict(value)
    return _Function(name=table.get("name"), arguments=table.get("arguments"))


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


# A text that never ends is one token too, so that nothing is searched twice.
_STRUCTURE = re.compile(rb'"(?:[^"\\]++|\\.)*+("|\\?\Z)|[{}\[\],]', re.DOTALL)


def _mended(body: bytes) -> _Event | None:
    """What a body that breaks off still tells: it is closed where it broke. None: it was no answer of this wire."""
    body = body[:_MAX_MENDED_BYTES].lstrip()
    if body[:1] != b"{":
        return None
    closers: list[bytes] = []
    last_comma: tuple[int, bytes] | None = None  # where it stands, and what closes all that was open there
    in_text = False
    for token in _STRUCTURE.finditer(body):
        text = token[0]
        if token[1] is not None:
            in_text = token[1] != b'"'
        elif text in (b"{", b"["):
            closers.append(b"}" if text == b"{" else b"]")
            if len(closers) > _DEEPEST_MENDED:
                return None
        elif text in (b"}", b"]"):
            if not closers:
                return None
            closers.pop()
        elif text == b",":
            last_comma = (token.start(), b"".join(reversed(closers)))
    close = b"".join(reversed(closers))
    tries: list[bytes] = []
    if in_text:  # it broke inside a text; up to five bytes of an escape may be lost
        broken = re.sub(rb"\\(?:u[0-9A-Fa-f]{0,3})?\Z", b"", body)
        tries += [body + b'"' + close, broken + b'"' + close]
    tries.append(body + close)
    if last_comma is not None:
        tries.append(body[: last_comma[0]] + last_comma[1])
    for candidate in tries:
        value = _untyped(candidate)
        if isinstance(value, dict) and "choices" in value:
            return _event_of(cast("object", value))
    return None


def _error_in_choice(table: Mapping[str, Any]) -> object:
    choices = table.get("choices")
    if isinstance(choices, list):
        for choice in cast("list[object]", choices):
            if isinstance(choice, dict) and cast("dict[str, Any]", choice).get("error"):
                return cast("dict[str, Any]", choice)["error"]
    return _dict(table.get("x_groq")).get("error")


def _word(value: object) -> str | None:
    if isinstance(value, str):
        return value[:_LONGEST_WORDS]
    return (
        str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**9 else None
    )


def _status(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599 else None

"""Meters answers of the chat wire: whole ones and streams, in every dialect.

A stream is read to its end, past `finish_reason` and past `[DONE]`, and passed on as the bytes that came, less the
one usage event that the client did not ask for. Each event is parsed once.
"""

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec

from gateway.wire.answer import NO_FEE_KEYS, AnswerMeter, Counted, StreamProblem
from gateway.wire.mending import mended
from gateway.wire.openai_usage import PlainUsage, UsageMerge, decode_plain_usage
from gateway.wire.packing import unpacked
from gateway.wire.provider_words import exact, provider_words, table_in, untyped
from gateway.wire.sse import without_byte_order_mark
from pricing.tokens import Counter, quarter_of_bytes
from pricing.usage import End, Reading, Usage

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


_decode: Final = msgspec.json.Decoder(_Event, float_hook=exact).decode
_decode_whole: Final = msgspec.json.Decoder(_Whole, float_hook=exact).decode
_decode_value: Final = msgspec.json.Decoder(float_hook=exact).decode
_NOT_DECODED: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)

_OTHER_TEXT: Final = "another text"


class ChatAnswer(AnswerMeter):
    """A whole answer, or the counting half of a stream."""

    __slots__ = ("_merge", "_plain")

    def __init__(
        self, *, dialect: str, drop_usage: bool = False, counter: Counter = quarter_of_bytes
    ) -> None:
        """See AnswerMeter."""
        super().__init__(dialect=dialect, drop_usage=drop_usage, counter=counter)
        self._plain: PlainUsage | None = None  # the first usage object, while there is no other
        self._merge: UsageMerge | None = None

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
                    fee_keys=MappingProxyType(dict(merge.scalars)) if merge.scalars else NO_FEE_KEYS,
                    text_bytes=self.text_bytes,
                    is_plain=not usage.cache_write_5m
                    and provider_cost is None
                    and self._inference_geo is None,
                )
        return self.careful_reading(status, end, input_tokens_estimate)

    def _counted(self) -> Counted | None:
        merge = self._merged()
        return None if merge is None else merge.counted(self._dialect)

    def _count_flags(self) -> frozenset[str]:
        merge = self._merged()
        return frozenset() if merge is None else frozenset(merge.flags)

    def _provider_cost_usd(self) -> Decimal | None:
        merge = self._merged()
        return None if merge is None else merge.provider_cost_usd(self._dialect)

    def _fee_keys(self) -> Mapping[str, str]:
        merge = self._merged()
        return NO_FEE_KEYS if merge is None else MappingProxyType(dict(merge.scalars))


class ChatStream(ChatAnswer):
    """Meter and filter of one streamed answer."""

    __slots__ = ()

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
            value = mended(body, _is_answer)
            if value is not None:
                event = _event_of(value)
                if end == "complete":
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
        size += _length(table_in(message.audio).get("transcript"))
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


def _parsed(payload: bytes) -> _Event | None:
    """An event whose fields are not all of the expected kind; None: it is not JSON."""
    value = untyped(payload)
    if value is None:
        return _Event() if payload.strip() == b"null" else None
    return _event_of(value)


def _event_of(value: object) -> _Event:
    table = table_in(value)
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
    table = table_in(value)
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
    table = table_in(value)
    custom = table_in(table.get("custom"))
    return _ToolCall(
        function=_function_of(table.get("function")),
        custom=_Custom(name=custom.get("name"), input=custom.get("input")),
    )


def _function_of(value: object) -> _Function:
    table = table_in(value)
    return _Function(name=table.get("name"), arguments=table.get("arguments"))


def _is_answer(value: object) -> bool:
    return isinstance(value, dict) and "choices" in value

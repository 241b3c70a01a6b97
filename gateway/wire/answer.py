"""What the meters of every wire share: cutting a stream into events, and what a reading is made of.

A meter sees one answer, whole or streamed. A stream is read to its end and passed on as the bytes that came, less
the events that a wire keeps back. Each event is parsed once; a text event like the one before it not even that.

What can go wrong in a stream is a `StreamProblem`: an error event, an event that is not JSON, an event that is too
long. From the event with the problem on nothing is passed on; counting goes on, but not past an event too long.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Final, Literal

from gateway.wire.provider_words import untyped
from gateway.wire.sse import (
    MAX_EVENT_BYTES,
    EventSplitter,
    SseTooLong,
    payload_of,
    without_byte_order_mark,
)
from pricing.tokens import Counter, quarter_of_bytes
from pricing.usage import End, OnWire, Reading, Usage, UsageSource

LESSONS = 8  # how often a stream may show another form of event before it is parsed event by event
NO_FEE_KEYS: Mapping[str, str] = MappingProxyType({})
# What stands for itself in a JSON text:
_PLAIN_TEXT: Final = bytes(byte for byte in range(0x20, 0x7F) if byte not in b'"\\')


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One answer's counts in disjoint buckets. A side is None where its main count was not reported."""

    input: Mapping[str, int] | None
    output: Mapping[str, int] | None
    cached_on_wire: OnWire = "none"
    reasoning_on_wire: OnWire = "none"
    tools: Mapping[str, int] = field(default_factory=dict[str, int])
    extra: Mapping[str, int] = field(default_factory=dict[str, int])
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProblem:
    """Why a stream cannot be passed on any further."""

    kind: Literal["error_event", "not_json", "too_long"]
    message: str | None = None  # the provider's words, of an error event only; they may hold secrets
    type: str | None = None
    code: str | None = None
    status: int | None = None  # an HTTP status that the error event names


class AnswerMeter:
    """What has been seen of one answer: its text's length, its usage, its names. Memory does not grow with it.

    A wire says in `_event` what an event's payload means, and in the methods behind it what its usage comes to.
    """

    __slots__ = (
        "_after",
        "_before",
        "_began",
        "_counter",
        "_dialect",
        "_done",
        "_drop_usage",
        "_dropped",
        "_failed",
        "_inference_geo",
        "_is_between",
        "_lessons",
        "_line",
        "_splitter",
        "_usage_is_last",
        "answer_id",
        "content_seen",
        "error",
        "events",
        "finished",
        "model",
        "service_tier",
        "text_bytes",
    )

    def __init__(
        self, *, dialect: str, drop_usage: bool = False, counter: Counter = quarter_of_bytes
    ) -> None:
        """`drop_usage`: keep back events that are nothing but usage, because the client did not ask for them."""
        self._dialect = dialect
        self._counter = counter
        self._drop_usage = drop_usage
        self._usage_is_last = False  # usage came with or after the last piece of text
        self._failed = False  # the provider reported an error
        self._inference_geo: str | None = None
        self.events: int = 0  # events, or bodies, of this wire's form
        self.text_bytes: int = 0  # UTF-8 length of all text the model produced
        self.content_seen = False
        """Something of the answer itself came: text, a tool call, a refusal, reasoning or the reason of its end."""
        self.finished = False
        """The answer said that it is at its end."""
        self.model: str | None = None  # the last name the answer gave
        self.answer_id: str | None = None  # the id it gives itself, where somebody asks for it later
        self.service_tier: str | None = None
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

    # ── what a wire says ──

    @property
    def usage_seen(self) -> bool:
        """The provider reported at least one of the two main counts."""
        raise NotImplementedError

    def _event(self, payload: bytes) -> bool:
        """Count one event's payload; True if the event may go to the client."""
        raise NotImplementedError

    def _counted(self) -> Counted | None:
        """The counts so far in disjoint buckets; None: there was no usage object."""
        raise NotImplementedError

    def _count_flags(self) -> frozenset[str]:
        """What was wrong with single counts."""
        return frozenset()

    def _provider_cost_usd(self) -> Decimal | None:
        """The provider's own figure."""
        return None

    def _fee_keys(self) -> Mapping[str, str]:
        """Fields of the usage object that a fee may depend on."""
        return NO_FEE_KEYS

    # ── a stream ──

    def take_payload(self, payload: bytes) -> None:
        """One event whose framing was taken off elsewhere."""
        self._event(payload)

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
        size = len(data)
        if (
            data[:6] == b"data: "
            and data[-4:] == b"\r\n\r\n"
            and data.find(b"\r") == size - 4
            and data.find(b"\n") == size - 3
            and self._is_between
            and size <= MAX_EVENT_BYTES
            and not self._done
        ):
            # The same in CRLF, as Google's come.
            self._began = True
            self._dropped = not self._event(data[6:])
            return b"" if self._dropped else data
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
        if payload.strip() != b"[DONE]" and untyped(payload) is None and payload.strip() != b"null":
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

    # ── what it comes to ──

    def careful_reading(self, status: int, end: End, input_tokens_estimate: int | None) -> Reading:
        flags: set[str] = set() if end == "complete" else {end}
        if status >= 400:
            return Reading(usage=Usage(), source="none", flags=frozenset({*flags, "http_error"}))
        seen = self.usage_seen
        has_text = self.text_bytes > 0
        if self._failed or (end == "complete" and not self.events):
            flags.add("upstream_error")
        flags |= self._count_flags()
        provider_cost = self._provider_cost_usd()
        if not seen and not has_text and "upstream_error" in flags:
            return Reading(
                usage=Usage(),
                source="none",
                flags=frozenset(flags),
                model=self.model,
                answer_id=self.answer_id,
                service_tier=self.service_tier,
                provider_cost_usd=provider_cost,
            )
        counted = self._counted()
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
            answer_id=self.answer_id,
            service_tier=self.service_tier,
            inference_geo=self._inference_geo,
            provider_cost_usd=provider_cost,
            fee_keys=self._fee_keys(),
            text_bytes=self.text_bytes,
        )

    def _stopped_by_error(self) -> bool:
        return self._failed and self.text_bytes > 0 and not self._usage_is_last


def _frozen(counts: Mapping[str, int] | None) -> Mapping[str, int]:
    return MappingProxyType(dict(counts)) if counts else MappingProxyType({})

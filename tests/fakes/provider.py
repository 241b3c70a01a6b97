"""A small provider that speaks OpenAI's chat wire, shows every fault on demand and keeps its own bill.

It is a plain asyncio HTTP/1.1 server that writes each byte itself, because half of what it must do no HTTP
library would agree to. An answer is a *script*: a generator of steps (send, hold, reset, close, ...) that
touches nothing; one runner carries the steps out. A fault is another script.

    async with FakeProvider(prices={"m": Prices(input="1.25", input_cached="0.1", output="10")}) as provider:
        provider.next("U14:2")            # the next request only: 429 with `retry-after: 2`
        ...                               # provider.base_url is http://127.0.0.1:PORT/v1
        provider.seen[-1].headers, provider.bill()

Who decides which fault a request gets, first match: the header `x-fake-fault: NAME`; a body whose `user`
is `fault:NAME` (`fault:NAME@b` is for the provider called b alone; what follows a blank is the tag); `next`;
`always`. A name is a number of the list of faults ("U12") or a word ("reset_in_stream"), with an argument
after a colon: "status:503".
`python tests/fakes/provider.py --help` lists them all.

The bill is arithmetic of its own: nothing of the product is imported here. An attempt is known by the header
`x-faregate-attempt`, else by the number of its request.
"""

import argparse
import asyncio
import gzip
import hashlib
import json
import os
import re
import signal
import socket
import struct
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from fractions import Fraction
from types import TracebackType
from typing import Any, Literal, Self, cast

ATTEMPT_HEADER = "x-faregate-attempt"
FAULT_HEADER = "x-fake-fault"
CREATED = 1_764_547_200  # the moment every answer says it was made
CACHE_ENTRIES = 20_000  # prefixes remembered; the oldest go first

TlsKind = Literal["good", "expired", "self_signed", "wrong_host", "stalls"]


# --- the bill ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """One model's prices: decimal texts, US dollars per million tokens."""

    input: str
    output: str
    input_cached: str | None = None  # None: as `input`
    cache_write: str | None = None  # None: as `input`
    output_reasoning: str | None = None  # None: as `output`

    def charge(self, counts: "Counts") -> int:
        """Pico-dollars, exact; a rest is rounded half to even."""
        pico_a_token = Fraction(10**12, 10**6)
        written = min(counts.written, counts.prompt - counts.cached)
        total = (
            (counts.prompt - counts.cached - written) * Fraction(self.input)
            + counts.cached * Fraction(self.input_cached or self.input)
            + written * Fraction(self.cache_write or self.input)
            + (counts.completion - counts.reasoning) * Fraction(self.output)
            + counts.reasoning * Fraction(self.output_reasoning or self.output)
        )
        return round(total * pico_a_token)


@dataclass(slots=True, kw_only=True)
class Counts:
    """True tokens of one answer so far: cached and written are in prompt, reasoning is in completion."""

    prompt: int = 0
    cached: int = 0
    written: int = 0
    completion: int = 0
    reasoning: int = 0


@dataclass(slots=True, kw_only=True)
class Charge:
    """What one attempt costs its caller, as the provider sees it."""

    attempt: str
    model: str
    counts: Counts
    pico_usd: int = 0
    reported: bool = False  # the usage went out to the caller, as it is


# --- what a test can look at ------------------------------------------------------------------------------


@dataclass(eq=False, slots=True, kw_only=True)
class Seen:
    """One request as it came in, and how far its answer got."""

    number: int  # 1 for the first
    connection: int  # 1 for the first connection
    method: str
    path: str
    headers: dict[str, str]  # names in lower case; of a repeated header the last
    raw_headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    tag: str = ""  # the rest of `user` after the fault, else the attempt id, else "#3" for the third
    fault: str = ""
    bytes_sent: int = 0
    events_sent: int = 0  # events of a stream, or pieces of a whole answer
    done: bool = False  # the script ran to its end
    over: bool = False  # done, or its connection is closed

    @property
    def attempt(self) -> str:
        return self.headers.get(ATTEMPT_HEADER) or f"#{self.number}"

    def json(self) -> dict[str, Any]:
        """The body as JSON; {} when it is none."""
        try:
            value: Any = json.loads(self.body)
        except ValueError:
            return {}
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast it answers, in seconds. The default needs no waiting in tests."""

    first_token_seconds: float = 0.0
    gap_seconds: float = 0.0
    drip_seconds: float = 0.01  # between the bytes of a drip


# --- steps of a script ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes as one piece."""

    raw: bytes
    tokens: int = 0  # output tokens that are billed once this is sent
    event: bool = False  # counts as an event of the answer
    reports: bool = False  # carries the true usage


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait until the test calls `release`, or the caller goes away."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait as the pace says."""

    for_: Literal["first_token", "gap", "drip"]
    times: float = 1.0


@dataclass(frozen=True, slots=True)
class End:
    """Be done with the connection: a reset, an orderly close, or (`trap`) a reset at the next request."""

    how: Literal["reset", "close", "trap"]


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait until what was written has left for the caller: makes the next piece one of its own."""


Step = Send | Hold | Wait | End | Drain
Script = Iterator[Step]


@dataclass(slots=True, kw_only=True)
class Asked:
    """A chat request, understood: what a script needs to answer it."""

    seen: Seen
    argument: str
    counts: Counts  # changed by the runner as tokens go out; a script may correct it
    model: str  # the one billed; a script may change it
    words: tuple[str, ...]
    finish: str = "stop"
    stream: bool = False
    include_usage: bool = False
    choices: int = 1
    authorization: str = ""
    max_bytes: int = 200 * 2**20
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    @property
    def id(self) -> str:
        return "chatcmpl-" + hashlib.sha256(self.seen.body).hexdigest()[:16]

    @property
    def text(self) -> str:
        return "".join(self.words)


def usage_object(counts: Counts, **changes: Any) -> dict[str, Any]:
    """`usage` as OpenAI writes it, then the changes."""
    prompt: dict[str, Any] = {"cached_tokens": counts.cached, "audio_tokens": 0}
    if counts.written:
        prompt["cache_write_tokens"] = counts.written
    usage: dict[str, Any] = {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.completion,
        "total_tokens": counts.prompt + counts.completion,
        "prompt_tokens_details": prompt,
        "completion_tokens_details": {"reasoning_tokens": counts.reasoning, "audio_tokens": 0},
    }
    return usage | changes


def dumps(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def head(status: int, *headers: str, reason: str = "") -> bytes:
    lines = [
        f"HTTP/1.1 {status} {reason or REASONS.get(status, 'Unknown')}",
        *headers,
        "x-request-id: req_fake",
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def whole(status: int, body: bytes, *headers: str, content_type: str = "application/json") -> bytes:
    return head(status, f"content-type: {content_type}", f"content-length: {len(body)}", *headers) + body


def chunk(raw: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(raw), raw)


LAST_CHUNK = b"0\r\n\r\n"
REASONS = {
    200: "OK",
    204: "No Content",
    301: "Moved Permanently",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    413: "Payload Too Large",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    529: "Overloaded",
}
SSE_HEAD = head(
    200,
    "content-type: text/event-stream; charset=utf-8",
    "cache-control: no-cache",
    "transfer-encoding: chunked",
)


def error(status: int, message: str, type_: str, code: str | None, *headers: str) -> bytes:
    return whole(
        status, dumps({"error": {"message": message, "type": type_, "param": None, "code": code}}), *headers
    )


# --- good answers -----------------------------------------------------------------------------------------


def completion(
    asked: Asked, *, message: Mapping[str, Any] | None = None, usage: object = None
) -> dict[str, Any]:
    """A whole answer as JSON."""
    said: Mapping[str, Any] = message or {"role": "assistant", "content": asked.text, "refusal": None}
    return {
        "id": asked.id,
        "object": "chat.completion",
        "created": CREATED,
        "model": asked.model,
        "choices": [
            {"index": i, "message": dict(said), "logprobs": None, "finish_reason": asked.finish}
            for i in range(asked.choices)
        ],
        "usage": usage if usage is not None else usage_object(finished(asked)),
        "service_tier": "default",
        "system_fingerprint": "fp_fake",
    }


def finished(asked: Asked) -> Counts:
    """The counts once the whole answer is out."""
    c = asked.counts
    return Counts(
        prompt=c.prompt,
        cached=c.cached,
        written=c.written,
        completion=c.reasoning + len(asked.words) * asked.choices,
        reasoning=c.reasoning,
    )


def event(asked: Asked, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """One chunk of a stream as JSON. Asked for usage, every chunk has a `usage`, null but for the last."""
    made: dict[str, Any] = {
        "id": asked.id,
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": asked.model,
        "service_tier": "default",
        "system_fingerprint": "fp_fake",
        "choices": choices,
    }
    if asked.include_usage:
        made["usage"] = None
    return made | more


def delta(index: int, change: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": dict(change), "logprobs": None, "finish_reason": finish}


def data(value: object) -> bytes:
    return b"data: " + dumps(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream before it is framed."""

    raw: bytes
    tokens: int = 0
    kind: Literal["role", "content", "finish", "usage", "done"] = "content"


def events(asked: Asked, *, usage: object = None) -> list[Event]:
    """A good stream's events."""
    made = [
        Event(
            data(event(asked, [delta(i, {"role": "assistant", "content": "", "refusal": None})])), 0, "role"
        )
        for i in range(asked.choices)
    ]
    for word in asked.words:
        made += [Event(data(event(asked, [delta(i, {"content": word})])), 1) for i in range(asked.choices)]
    made += [
        Event(data(event(asked, [delta(i, {}, asked.finish)])), 0, "finish") for i in range(asked.choices)
    ]
    if asked.include_usage:
        report = usage if usage is not None else usage_object(finished(asked))
        made.append(Event(data(event(asked, [], usage=report)), 0, "usage"))
    made.append(Event(DONE, 0, "done"))
    return made


def stream(
    made: Iterable[Event], *, start: bytes = SSE_HEAD, end: bytes = LAST_CHUNK, slow: float = 1.0
) -> Script:
    """Send the events with the pace between them."""
    yield Send(start)
    begun = False
    for one in made:
        if one.kind != "role":
            yield Wait("gap" if begun else "first_token", slow)
            begun = True
        yield Send(chunk(one.raw), one.tokens, event=True, reports=one.kind == "usage")
    yield Send(end)


def answer(asked: Asked) -> Script:
    """The good answer, whole or streamed."""
    yield from answer_slower(asked, 1.0)


def answer_slower(asked: Asked, times: float) -> Script:
    if asked.stream:
        yield from stream(events(asked), slow=times)
        return
    yield Wait("first_token", times)
    body = dumps(completion(asked))
    yield Send(whole(200, body), len(asked.words) * asked.choices, event=True, reports=True)


# --- faults -----------------------------------------------------------------------------------------------

FaultScript = Callable[[Asked], Script]
FAULTS: dict[str, FaultScript] = {}
ON_HEADERS: set[str] = set()  # faults that begin before the body is read


def fault(*names: str, on_headers: bool = False) -> Callable[[FaultScript], FaultScript]:
    """Register a script under its names."""

    def register(script: FaultScript) -> FaultScript:
        for name in names:
            FAULTS[name.lower()] = script
            if on_headers:
                ON_HEADERS.add(name.lower())
        return script

    return register


@fault("none")
def _none(asked: Asked) -> Script:
    """No fault: the good answer."""
    yield from answer(asked)


@fault("U8", "reset_before_head")
def _reset_before_head(asked: Asked) -> Script:
    """Read the request, then reset."""
    yield End("reset")


@fault("U9", "reset_after_work")
def _reset_after_work(asked: Asked) -> Script:
    """Do and bill the whole work, then reset before any header. A repeat with its idempotency key is free."""
    yield Send(b"", len(asked.words) * asked.choices)
    yield End("reset")


@fault("U10", "reset_when_reused")
def _reset_when_reused(asked: Asked) -> Script:
    """Answer well, then reset the kept connection when the next request's first byte comes."""
    yield from answer(asked)
    yield End("trap")


@fault("close_after_answer")
def _close_after_answer(asked: Asked) -> Script:
    """Answer well as if the connection were kept, then close it at once."""
    yield from answer(asked)
    yield End("close")


@fault("U11", "reset_in_body")
def _reset_in_body(asked: Asked) -> Script:
    """Reset in the middle of a whole answer."""
    raw = whole(200, dumps(completion(asked)))
    yield Send(raw[: len(raw) - 200], len(asked.words), event=True)
    yield Drain()
    yield End("reset")


@fault("U12", "reset_in_stream")
def _reset_in_stream(asked: Asked) -> Script:
    """Reset a stream after N content events (2)."""
    yield from _first_content_events(asked, int(asked.argument or 2))
    yield End("reset")


@fault("close_in_stream")
def _close_in_stream(asked: Asked) -> Script:
    """Close a stream in an orderly way after N content events (2), without the last chunk."""
    yield from _first_content_events(asked, int(asked.argument or 2))
    yield End("close")


@fault("U13", "reset_after_role")
def _reset_after_role(asked: Asked) -> Script:
    """Reset a stream after its role-only first event."""
    yield from _first_content_events(asked, 0)
    yield End("reset")


def _first_content_events(asked: Asked, count: int) -> Script:
    made = events(asked)
    roles = [one for one in made if one.kind == "role"]
    contents = [one for one in made if one.kind == "content"][:count]
    yield from stream(roles + contents, end=b"")
    yield Drain()


@fault("U14", "U17", "U18", "U20", "rate_limited")
def _rate_limited(asked: Asked) -> Script:
    """429 with `retry-after` as the argument says (2); `digits400`: 400 digits; `none`: no header."""
    value = "9" * 400 if asked.argument == "digits400" else asked.argument or "2"
    headers = [] if value == "none" else [f"retry-after: {value}"]
    yield Send(error(429, "Rate limit reached for requests", "requests", "rate_limit_exceeded", *headers))


@fault("U15", "rate_limited_date")
def _rate_limited_date(asked: Asked) -> Script:
    """429 with `retry-after` as an HTTP date N seconds ahead (3); negative: in the past."""
    when = asked.now + timedelta(seconds=float(asked.argument or 3))
    date = format_datetime(when, usegmt=True)
    yield Send(error(429, "Rate limit reached", "requests", "rate_limit_exceeded", f"retry-after: {date}"))


@fault("U16", "rate_limited_ms")
def _rate_limited_ms(asked: Asked) -> Script:
    """429 with `retry-after-ms: N` (250) and a `retry-after` that differs."""
    headers = (f"retry-after-ms: {asked.argument or 250}", "retry-after: 9")
    yield Send(error(429, "Rate limit reached", "requests", "rate_limit_exceeded", *headers))


@fault("U19", "quota_gone")
def _quota_gone(asked: Asked) -> Script:
    """429 that means the account has no money left."""
    message = "You exceeded your current quota, please check your plan and billing details."
    yield Send(error(429, message, "insufficient_quota", "insufficient_quota"))


@fault("U21", "U22", "U23", "U24", "status")
def _status(asked: Asked) -> Script:
    """The HTTP status N (500), with account details and a piece of the key in the message."""
    status = int(asked.argument or 500)
    kind = "server_error" if status >= 500 else "invalid_request_error"
    key = asked.authorization.removeprefix("Bearer ")
    message = (
        f"Fake failure {status} for organization org-canary1234567890 with key {key[:8]}...{key[-4:]}; "
        f"full key {key}. Please retry."
    )
    yield Send(error(status, message, kind, f"fake_{status}"))


@fault("context_length")
def _context_length(asked: Asked) -> Script:
    """400 context_length_exceeded."""
    message = f"This model's maximum context length is 10 tokens. Your messages had {asked.counts.prompt}."
    yield Send(error(400, message, "invalid_request_error", "context_length_exceeded"))


@fault("late_head")
def _late_head(asked: Asked) -> Script:
    """Nothing at all until released; then the good answer."""
    yield Hold()
    yield from answer(asked)


@fault("U28", "U29", "late_token")
def _late_token(asked: Asked) -> Script:
    """Head and role event at once, the first content when released (a whole answer: nothing till then)."""
    if not asked.stream:
        yield from _late_head(asked)
        return
    made = events(asked)
    roles = [one for one in made if one.kind == "role"]
    yield from stream(roles, end=b"")
    yield Hold()
    yield from stream(made[len(roles) :], start=b"")


@fault("U30", "stall")
def _stall(asked: Asked) -> Script:
    """Stop after N content events (5) until released; then go on to the good end."""
    made = events(asked)
    before = sum(1 for one in made if one.kind == "role") + int(asked.argument or 5)
    yield from stream(made[:before], end=b"")
    yield Hold()
    yield from stream(made[before:], start=b"")


@fault("U31", "drip")
def _drip(asked: Asked) -> Script:
    """One byte at a time for ever, at the pace's drip."""
    if asked.stream:
        yield from stream([one for one in events(asked) if one.kind == "role"], end=b"")
        line = data(event(asked, [delta(0, {"content": "drop "})]))
    else:
        yield Send(head(200, "content-type: application/json", "transfer-encoding: chunked"))
        yield Send(chunk(b"{"))
        line = b" "
    while True:
        for byte in line:
            yield Wait("drip")
            yield Send(chunk(bytes((byte,))), event=byte == 10)
        yield Send(b"", 1 if asked.stream else 0)


@fault("U32", "no_finish")
def _no_finish(asked: Asked) -> Script:
    """A stream ending cleanly without finish_reason and [DONE]; `close`: framed by the connection's end."""
    made = [one for one in events(asked) if one.kind in ("role", "content")]
    if asked.argument != "close":
        yield from stream(made)
        return
    yield Send(head(200, "content-type: text/event-stream", "connection: close"))
    for one in made:
        yield Send(one.raw, one.tokens, event=True)
    yield End("close")


@fault("connection_close")
def _connection_close(asked: Asked) -> Script:
    """A good stream or body framed by the connection's end."""
    if asked.stream:
        yield Send(head(200, "content-type: text/event-stream", "connection: close"))
        for one in events(asked):
            yield Send(one.raw, one.tokens, event=True, reports=one.kind == "usage")
    else:
        yield Send(head(200, "content-type: application/json", "connection: close"))
        yield Send(dumps(completion(asked)), len(asked.words) * asked.choices, event=True, reports=True)
    yield End("close")


@fault("U33", "no_usage")
def _no_usage(asked: Asked) -> Script:
    """[DONE], and no usage though it was asked for; whole: no `usage` at all."""
    if asked.stream:
        yield from stream(one for one in events(asked) if one.kind != "usage")
        return
    body = completion(asked)
    del body["usage"]
    yield Send(whole(200, dumps(body)), len(asked.words) * asked.choices, event=True)


@fault("U34", "usage_order")
def _usage_order(asked: Asked) -> Script:
    """The usage event `after_done` (default), `twice`, or a second time with `lower` counts."""
    made = events(asked)
    usage = [one for one in made if one.kind == "usage"]
    rest = [one for one in made if one.kind not in ("usage", "done")]
    done = [one for one in made if one.kind == "done"]
    true = usage_object(finished(asked))
    low = true | {"completion_tokens": 1, "total_tokens": true["prompt_tokens"] + 1}
    lower = [Event(data(event(asked, [], usage=low)))] if usage else []
    order = {
        "after_done": rest + done + usage,
        "twice": rest + usage + usage + done,
        "lower": rest + usage + lower + done,
    }
    yield from stream(order[asked.argument or "after_done"])


@fault("growing_usage")
def _growing_usage(asked: Asked) -> Script:
    """Usage on every event, growing, as vLLM's continuous_usage_stats."""
    so_far = 0
    made: list[Event] = []
    for one in events(asked):
        so_far += one.tokens
        if one.kind in ("done", "usage"):
            made.append(one)
            continue
        value = json.loads(one.raw[6:])
        value["usage"] = usage_object(
            Counts(prompt=asked.counts.prompt, cached=asked.counts.cached, completion=so_far)
        )
        made.append(Event(data(value), one.tokens, "usage" if one.kind == "finish" else one.kind))
    yield from stream(made)


@fault("empty_choices")
def _empty_choices(asked: Asked) -> Script:
    """A first event with empty `choices` and no usage, as Azure's content filter sends."""
    first = event(asked, [], prompt_filter_results=[{"prompt_index": 0, "content_filter_results": {}}])
    first.pop("usage", None)
    yield from stream([Event(data(first), 0, "role"), *events(asked)])


@fault("U36", "sse")
def _sse(asked: Asked) -> Script:
    """A good stream spelt unusually: no_space, crlf, cr, bom, comments, event_lines, ids, multi_line."""
    made = events(asked)

    def spelt(n: int, raw: bytes) -> bytes:
        line = raw[:-2]
        match asked.argument or "no_space":
            case "no_space":
                return line.replace(b"data: ", b"data:", 1) + b"\n\n"
            case "crlf":
                return line + b"\r\n\r\n"
            case "cr":
                return line + b"\r\r"
            case "bom":
                return (b"\xef\xbb\xbf" if n == 0 else b"") + raw
            case "comments":
                return b": keep-alive\n\n: another\n" + raw
            case "event_lines":
                return b"event: message\n" + raw
            case "ids":
                return b"id: %d\nretry: 10\n" % n + raw
            case "multi_line":
                return line.replace(b',"choices"', b'\ndata: ,"choices"', 1) + b"\n\n"
            case other:
                raise ValueError(f"unknown spelling {other!r}")

    yield from stream(Event(spelt(n, one.raw), one.tokens, one.kind) for n, one in enumerate(made))


@fault("U37", "cut")
def _cut(asked: Asked) -> Script:
    """The stream's bytes cut at byte N into two pieces of their own; `every`: each byte by itself."""
    raw = b"".join(one.raw for one in events(asked))
    at = asked.argument or "every"
    if at == "every":
        pieces = [raw[i : i + 1] for i in range(len(raw))]
    else:
        pieces = [raw[: int(at)], raw[int(at) :]]
    yield Send(SSE_HEAD)
    yield Drain()
    for piece in pieces:
        if piece:
            yield Send(chunk(piece))
            yield Drain()
    yield Send(LAST_CHUNK, len(asked.words) * asked.choices, event=True, reports=asked.include_usage)


@fault("U38", "not_json")
def _not_json(asked: Asked) -> Script:
    """One event that is not JSON, after N content events (2); it holds canary text."""
    made = events(asked)
    at = sum(1 for one in made if one.kind == "role") + int(asked.argument or 2)
    yield from stream([*made[:at], Event(b"data: {canary-answer-text: broken\n\n", 0), *made[at:]])


@fault("U39", "truncated_json")
def _truncated_json(asked: Asked) -> Script:
    """200 with a JSON body cut short, and a content-length that agrees."""
    body = dumps(completion(asked))
    yield Send(whole(200, body[: len(body) // 2]), len(asked.words), event=True)


@fault("U40", "html")
def _html(asked: Asked) -> Script:
    """200 with an HTML page."""
    page = b"<!doctype html><title>Sign in</title><p>canary-answer-text: accept the terms to go on</p>"
    yield Send(whole(200, page, content_type="text/html; charset=utf-8"), event=True)


@fault("U41", "error_in_body")
def _error_in_body(asked: Asked) -> Script:
    """200 with an error object: as the body, or as the first event of a stream."""
    yield from _error_after(asked, 0)


@fault("error_in_stream")
def _error_in_stream(asked: Asked) -> Script:
    """A stream with an error event after N content events (2)."""
    yield from _error_after(asked, int(asked.argument or 2))


def _error_after(asked: Asked, count: int) -> Script:
    problem = {
        "error": {
            "message": "The model is overloaded",
            "type": "server_error",
            "param": None,
            "code": "overloaded",
        }
    }
    if not asked.stream:
        yield Send(whole(200, dumps(problem)), event=True)
        return
    if count:
        yield from _first_content_events(asked, count)
    else:
        yield Send(SSE_HEAD)
    yield Send(chunk(data(problem)), event=True)
    yield Send(LAST_CHUNK)


@fault("U42", "empty")
def _empty(asked: Asked) -> Script:
    """`body` (default): 200 with an empty body; `204`; `301`, or a URL: a redirect to it."""
    if asked.argument == "204":
        yield Send(head(204))
    elif asked.argument and asked.argument != "body":
        target = "http://other.invalid/v1/chat/completions" if asked.argument == "301" else asked.argument
        yield Send(head(301, f"location: {target}", "content-length: 0"))
    else:
        kind = "text/event-stream" if asked.stream else "application/json"
        yield Send(whole(200, b"", content_type=kind))


@fault("U43", "endless_line")
def _endless_line(asked: Asked) -> Script:
    """One line of a stream of N bytes (200 MiB) without its end."""
    yield from _first_content_events(asked, 1)
    left = int(asked.argument or asked.max_bytes)
    piece = b"x" * 65_536
    yield Send(chunk(b"data: "))
    while left > 0:
        yield Send(chunk(piece[:left]))
        left -= len(piece)
    yield Send(LAST_CHUNK)


@fault("flood")
def _flood(asked: Asked) -> Script:
    """A good stream of about N bytes (200 MiB) in events of 16 KiB, for slow readers."""
    left = int(asked.argument or asked.max_bytes)
    made = events(asked)
    big = data(event(asked, [delta(0, {"content": "flood " * 2_700})]))
    roles = [one for one in made if one.kind == "role"]
    yield from stream(roles, end=b"")
    while left > 0:
        yield Send(chunk(big), event=True)
        left -= len(big)
    yield from stream(made[len(roles) :], start=b"")


@fault("U44", "headers")
def _headers(asked: Asked) -> Script:
    """`big` (default): one header of 300 KB; `many`: 500 headers."""
    body = dumps(completion(asked))
    if asked.argument == "many":
        yield Send(whole(200, body, *(f"x-filler-{i}: {i}" for i in range(500))))
    else:
        yield Send(whole(200, body, "x-filler: " + "y" * 300_000))


@fault("U45", "gzip")
def _gzip(asked: Asked) -> Script:
    """`bomb` (default): 250 KB that unpack to 256 MiB; `nested`: gzip twice; `plain`: the good answer."""
    body = dumps(completion(asked))
    if asked.argument == "plain":
        packed = gzip.compress(body, mtime=0)
        yield Send(whole(200, packed, "content-encoding: gzip"), len(asked.words), event=True, reports=True)
    elif asked.argument == "nested":
        packed = gzip.compress(gzip.compress(body, mtime=0), mtime=0)
        yield Send(whole(200, packed, "content-encoding: gzip, gzip"), len(asked.words), event=True)
    else:
        bomb = gzip.compress(b" " * 2**20, mtime=0) * 256  # members after one another are one valid body
        kind = "text/event-stream" if asked.stream else "application/json"
        yield Send(
            whole(200, bomb, "content-encoding: gzip", content_type=kind), len(asked.words), event=True
        )


@fault("U46", "length")
def _length(asked: Asked) -> Script:
    """A wrong content-length: `short` (default) or `long` by 10 bytes; `long` then closes."""
    body = dumps(completion(asked))
    stated = len(body) + (10 if asked.argument == "long" else -10)
    yield Send(head(200, "content-type: application/json", f"content-length: {stated}"))
    yield Send(body, len(asked.words), event=True)
    yield Drain()
    yield End("close")


@fault("U47", "stray_headers")
def _stray_headers(asked: Asked) -> Script:
    """A good answer with hop-by-hop and stray headers, and two that may pass."""
    stray = (
        "connection: x-a, keep-alive",
        "x-a: hop",
        "keep-alive: timeout=5",
        "set-cookie: session=canary-cookie",
        "server: fake/1.0",
        "x-internal: canary-internal",
        "proxy-authenticate: Basic",
        "openai-organization: org-canary1234567890",
        "openai-processing-ms: 12",
        "x-ratelimit-remaining-requests: 99",
    )
    if asked.stream:
        start = head(200, "content-type: text/event-stream", "transfer-encoding: chunked", *stray)
        yield from stream(events(asked), start=start)
    else:
        yield Send(whole(200, dumps(completion(asked)), *stray), len(asked.words), event=True, reports=True)


@fault("U48", "usage")
def _usage(asked: Asked) -> Script:
    """An odd usage: negative (default), float, string, null, huge, cached_over, mismatch, bool, list."""
    true = usage_object(finished(asked))
    p, c = cast("int", true["prompt_tokens"]), cast("int", true["completion_tokens"])
    report: object
    match asked.argument or "negative":
        case "negative":
            report = true | {"prompt_tokens": -5, "total_tokens": c - 5}
        case "float":
            report = true | {"prompt_tokens": float(p), "completion_tokens": float(c)}
        case "string":
            report = true | {"prompt_tokens": str(p), "completion_tokens": str(c)}
        case "null":
            report = {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None}
        case "huge":
            report = true | {"completion_tokens": 10**30}
        case "cached_over":
            asked.counts.cached = p  # clamped: all of the prompt counts as cached
            report = true | {"prompt_tokens_details": {"cached_tokens": p + 50}}
        case "mismatch":
            report = true | {"total_tokens": p + c + 7}
        case "bool":
            report = true | {"prompt_tokens": True}
        case "list":
            report = [1, 2, 3]
        case other:
            raise ValueError(f"unknown usage {other!r}")
    if asked.stream:
        yield from stream(events(asked, usage=report))
    else:
        body = dumps(completion(asked, usage=report))
        yield Send(whole(200, body), len(asked.words) * asked.choices, event=True, reports=True)


@fault("reasoning")
def _reasoning(asked: Asked) -> Script:
    """A good answer that thought first: N reasoning tokens (7), counted inside the completion."""
    asked.counts.reasoning = int(asked.argument or 7)
    asked.counts.completion = asked.counts.reasoning
    yield from answer(asked)


@fault("U49", "model")
def _model(asked: Asked) -> Script:
    """A good answer by another model (the argument), billed as that one."""
    asked.model = asked.argument or "another-model"
    yield from answer(asked)


@fault("U50", "shape")
def _shape(asked: Asked) -> Script:
    """Good answers of other shapes: tool_calls (100 mixed deltas), refusal, logprobs, reasoning_text."""
    kind = asked.argument or "tool_calls"
    if kind == "tool_calls":
        asked.finish = "tool_calls"
    pieces, message = _shape_pieces(asked, kind)
    asked.words = tuple("x" for _ in pieces)  # one token a piece
    asked.choices = 1
    if not asked.stream:
        body = dumps(completion(asked, message={"role": "assistant", "content": None} | message))
        yield Send(whole(200, body), len(pieces), event=True, reports=True)
        return
    frame = events(asked)
    made = [one for one in frame if one.kind == "role"]
    made += [Event(data(event(asked, [piece])), 1) for piece in pieces]
    made += [one for one in frame if one.kind in ("finish", "usage", "done")]
    yield from stream(made)


def _shape_pieces(asked: Asked, kind: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The choices of each event of that shape, and the message of the whole answer."""
    words = asked.words
    if kind == "refusal":
        return [delta(0, {"refusal": word}) for word in words], {"refusal": asked.text}
    if kind == "reasoning_text":
        thought = [delta(0, {"reasoning_content": word}) for word in words]
        said = [delta(0, {"content": word}) for word in words]
        return thought + said, {"reasoning_content": asked.text, "content": asked.text}
    if kind == "logprobs":
        made: list[dict[str, Any]] = []
        for word in words:
            probability = {"token": word, "logprob": -0.25, "bytes": list(word.encode()), "top_logprobs": []}
            made.append(
                delta(0, {"content": word}) | {"logprobs": {"content": [probability], "refusal": None}}
            )
        return made, {"content": asked.text}
    if kind != "tool_calls":
        raise ValueError(f"unknown shape {kind!r}")
    pieces: list[dict[str, Any]] = []
    for tool in range(2):
        call = {
            "index": tool,
            "id": f"call_{tool}",
            "type": "function",
            "function": {"name": f"look_{tool}", "arguments": ""},
        }
        pieces.append(delta(0, {"tool_calls": [call]}))
    for n in range(98):
        text = ('{"city": "Zürich' if n < 2 else f" {n}") if n < 96 else '"}'
        pieces.append(delta(0, {"tool_calls": [{"index": n % 2, "function": {"arguments": text}}]}))
    arguments = '{"city": "Zürich' + "".join(f" {n}" for n in range(2, 96, 2)) + '"}'
    calls = [
        {
            "id": f"call_{tool}",
            "type": "function",
            "function": {"name": f"look_{tool}", "arguments": arguments},
        }
        for tool in range(2)
    ]
    return pieces, {"tool_calls": calls}


@fault("U51", "early_413", on_headers=True)
def _early_413(asked: Asked) -> Script:
    """413 as soon as the headers came, reading no more; then it stays open, or `close`, `reset`."""
    yield Send(
        error(
            413, "Request body too large", "invalid_request_error", "request_too_large", "connection: close"
        )
    )
    if asked.argument in ("close", "reset"):
        yield Drain()
        yield End(asked.argument)
    yield Hold()


@fault("read_nothing", on_headers=True)
def _read_nothing(asked: Asked) -> Script:
    """Read the headers and no byte of the body more, and answer nothing, until the caller goes."""
    yield Hold()


@fault("U52", "informational")
def _informational(asked: Asked) -> Script:
    """100 and 103 answers before the good one."""
    yield Send(b"HTTP/1.1 100 Continue\r\n\r\n")
    yield Send(b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n")
    yield from answer(asked)


@fault("U53", "slow")
def _slow(asked: Asked) -> Script:
    """The good answer at N times the pace's waits (10)."""
    yield from answer_slower(asked, float(asked.argument or 10))


@fault("not_http")
def _not_http(asked: Asked) -> Script:
    """Bytes that are not HTTP."""
    yield Send(b"SSH-2.0-OpenSSH_9.2\r\n")
    yield Drain()
    yield End("close")


@fault("bad_chunk")
def _bad_chunk(asked: Asked) -> Script:
    """A stream whose second chunk has a size that is none."""
    yield from _first_content_events(asked, 1)
    yield Send(b"zz\r\ndata: x\r\n")
    yield Drain()
    yield End("close")


# --- the server -------------------------------------------------------------------------------------------


class FakeProvider:
    """The server. An async context manager; everything on it may be used from the same event loop."""

    def __init__(
        self,
        *,
        name: str = "a",
        prices: Mapping[str, Prices] | None = None,
        default_prices: Prices = Prices(input="1", input_cached="0.1", output="4"),
        api_key: str | None = None,  # given: any other bearer key gets 401
        models: Sequence[str] = (),
        answer_tokens: int = 8,
        pace: Pace = Pace(),
        cache_block_tokens: int = 16,
        tls: TlsKind | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.name = name
        self.prices = dict(prices or {})
        self.default_prices = default_prices
        self.api_key = api_key
        self.models = tuple(models) or tuple(self.prices)
        self.answer_tokens = answer_tokens
        self.pace = pace
        self.now = now
        self.host, self.port = host, port
        self.tls: TlsKind | None = tls
        self.ca_file: str | None = None  # of a provider with TLS, once started: the authority to trust
        self.seen: list[Seen] = []
        self.charges: dict[str, Charge] = {}
        self.connections_made = 0
        self.problems: list[Exception] = []  # mistakes in a fault's use; the first is raised by `stop`
        self._numbers = 0
        self._block_bytes = cache_block_tokens * 4
        self._cache: OrderedDict[bytes, None] = OrderedDict()
        self._kept: dict[str, bytes] = {}  # idempotency key -> the whole answer given for it
        self._queue: deque[str] = deque()
        self._always: str | None = None
        self._released = asyncio.Event()
        self._changed = asyncio.Event()
        self._open: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._parked: socket.socket | None = None

    # --- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen. The port stays the same over `refuse` and `accept_again`."""
        self._parked = _bound_socket(self.host, self.port)
        self.port = self._parked.getsockname()[1]
        await self.accept_again()

    async def stop(self) -> None:
        """Close every connection and the port."""
        await self.refuse()
        if self._parked is not None:
            self._parked.close()
            self._parked = None
        tasks = [one.task for one in self._open if one.task is not None]
        for one in list(self._open):
            one.abort()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._open:
            await self._change()
        if self.problems:
            raise self.problems[0]

    async def refuse(self) -> None:
        """U1: from now on connecting is refused (the port stays ours). Open connections live on."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        self._parked = _bound_socket(self.host, self.port)

    async def accept_again(self) -> None:
        """Undo `refuse`."""
        if self._parked is None:
            return
        context = None
        if self.tls is not None and self.tls != "stalls":
            from tests.fakes.certificates import server_context

            context, self.ca_file = server_context(self.tls)
        sock, self._parked = self._parked, None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), sock=sock, ssl=context, backlog=1024
        )

    @property
    def base_url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}/v1"

    # --- what a test says

    def next(self, fault: str, *, times: int = 1) -> None:
        """Show this fault to the next request, or the next so many; after those that wait already."""
        _known(fault)
        self._queue.extend([fault] * times)

    def always(self, fault: str | None) -> None:
        """Show this fault to every request that has none of its own. None: no more."""
        if fault is not None:
            _known(fault)
        self._always = fault

    def release(self) -> None:
        """Let every answer that is held go on."""
        self._released.set()
        self._released = asyncio.Event()

    def close_idle(self, *, reset: bool = False) -> int:
        """Close the connections that serve no request now. Returns how many."""
        idle = [one for one in self._open if one.serving is None]
        for one in idle:
            one.abort() if reset else one.close()
        return len(idle)

    # --- what a test asks

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def bill(self) -> dict[str, int]:
        """Attempt id -> pico-dollars, of every attempt that was let in (0: free)."""
        return {name: charge.pico_usd for name, charge in self.charges.items()}

    def requests(self, tag: str) -> list[Seen]:
        return [one for one in self.seen if one.tag == tag]

    async def request(self, tag: str) -> Seen:
        """Wait until a request with this tag has come in; the last of them."""
        while not (found := self.requests(tag)):
            await self._change()
        return found[-1]

    async def sent(self, tag: str, *, events: int = 1) -> Seen:
        """Wait until that many events of the answer to this tag were sent."""
        while (one := await self.request(tag)).events_sent < events:
            await self._change()
        return one

    async def closed(self, tag: str) -> Seen:
        """Wait until the connection of the last request with this tag is closed."""
        one = await self.request(tag)
        while any(c.number == one.connection for c in self._open):
            await self._change()
        return one

    async def over(self, tag: str) -> Seen:
        """Wait until the answer to this tag is finished or its connection closed."""
        while not (one := await self.request(tag)).over:
            await self._change()
        return one

    async def no_open_requests(self) -> None:
        """Wait until no connection serves a request."""
        while any(one.serving is not None for one in self._open):
            await self._change()

    async def _change(self) -> None:
        await self._changed.wait()

    def note_change(self) -> None:
        """Wake everybody who waits for something to happen here."""
        self._changed.set()
        self._changed = asyncio.Event()

    # --- what a connection asks

    def opened(self, connection: "_Connection") -> int:
        self.connections_made += 1
        self._open.add(connection)
        return self.connections_made

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def gone(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        self.note_change()

    def released(self) -> asyncio.Event:
        return self._released

    def fault_on_headers(self, headers: Mapping[str, str]) -> str | None:
        """The fault to show before the body is read, if this request has one."""
        name = headers.get(FAULT_HEADER)
        if name is None and self._queue:
            name = self._queue[0]
            if _split(name)[0] in ON_HEADERS:
                return self._queue.popleft()
        name = name or self._always
        return name if name and _split(name)[0] in ON_HEADERS else None

    def fault_for(self, seen: Seen, body: Mapping[str, Any]) -> str:
        """The fault of a request whose body is read; sets its tag. `none` for none."""
        user = body.get("user")
        words = user.split(" ", 1) if isinstance(user, str) else [""]
        chosen: str | None = None
        if words[0].startswith("fault:"):
            chosen, _, whom = words[0].removeprefix("fault:").partition("@")
            if whom and whom != self.name:
                chosen = "none"
            seen.tag = words[1] if len(words) > 1 else ""
        elif isinstance(user, str):
            seen.tag = user
        seen.tag = seen.tag or seen.headers.get(ATTEMPT_HEADER) or f"#{seen.number}"
        if FAULT_HEADER in seen.headers:
            return seen.headers[FAULT_HEADER]
        if chosen is not None:
            return chosen
        if self._queue:
            return self._queue.popleft()
        return self._always or "none"

    def script(self, seen: Seen, known_fault: str | None) -> "tuple[Script, Asked | None]":
        """The answer to one request, and, of a chat, what was understood of it."""
        path = seen.path.partition("?")[0]
        if path == "/__bill":
            return iter([Send(whole(200, dumps(self.bill())))]), None
        if path == "/__seen":
            return iter([Send(whole(200, dumps([_described(one) for one in self.seen])))]), None
        body = seen.json()
        name = known_fault or self.fault_for(seen, body)
        seen.fault = "" if name == "none" else name
        if self.api_key is not None and seen.headers.get("authorization") != f"Bearer {self.api_key}":
            return iter(
                [Send(error(401, "Incorrect API key provided", "invalid_request_error", "invalid_api_key"))]
            ), None
        if seen.method == "GET" and path == "/v1/models":
            listed = [
                {"id": m, "object": "model", "created": CREATED, "owned_by": "fake"} for m in self.models
            ]
            return iter([Send(whole(200, dumps({"object": "list", "data": listed})))]), None
        if seen.method != "POST" or path != "/v1/chat/completions":
            return iter(
                [Send(error(404, f"Invalid URL ({seen.method} {path})", "invalid_request_error", None))]
            ), None
        key = seen.headers.get("idempotency-key")
        if key is not None and key in self._kept:
            return iter([Send(self._kept[key], event=True)]), None
        asked = self._understood(seen, body, _split(name)[1])
        if key is not None:
            self._kept[key] = b"".join(s.raw for s in answer(asked) if isinstance(s, Send))
        return FAULTS[_known(name)](asked), asked

    def _understood(self, seen: Seen, body: Mapping[str, Any], argument: str) -> Asked:
        model = body.get("model")
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        count = self.answer_tokens
        short = isinstance(limit, int) and not isinstance(limit, bool) and 0 < limit < count
        if short:
            count = cast("int", limit)
        options = body.get("stream_options")
        asks = isinstance(options, dict) and cast("dict[str, Any]", options).get("include_usage") is True
        n = body.get("n")
        prompt, cached = self._prompt_tokens(body)
        return Asked(
            seen=seen,
            argument=argument,
            counts=Counts(prompt=prompt, cached=cached),
            model=model if isinstance(model, str) else "",
            words=_words(seen.body, count),
            finish="length" if short else "stop",
            stream=body.get("stream") is True,
            include_usage=asks,
            choices=n if isinstance(n, int) and 0 < n <= 128 else 1,
            authorization=seen.headers.get("authorization", ""),
            now=self.now(),
        )

    def _prompt_tokens(self, body: Mapping[str, Any]) -> tuple[int, int]:
        """Tokens of the prompt (bytes / 4, rounded up), and how many of them a former prefix serves."""
        text = dumps([body.get("tools"), body.get("messages")])
        salt = str(body.get("model")).encode() + b"\0"
        digest, cached, still = hashlib.sha256(salt), 0, True
        for end in range(self._block_bytes, len(text) + 1, self._block_bytes):
            digest.update(text[end - self._block_bytes : end])
            block = digest.digest()
            if still and block in self._cache:
                cached = end // 4
            else:
                still = False
            self._cache[block] = None
            self._cache.move_to_end(block)
        while len(self._cache) > CACHE_ENTRIES:
            self._cache.popitem(last=False)
        return -(-len(text) // 4), cached

    def charge(self, asked: Asked, *, new_tokens: int, reports: bool) -> None:
        """Book what has been produced so far."""
        name = asked.seen.attempt
        asked.counts.completion += new_tokens
        price = self.prices.get(asked.model, self.default_prices)
        known = self.charges.get(name)
        self.charges[name] = Charge(
            attempt=name,
            model=asked.model,
            counts=asked.counts,
            pico_usd=price.charge(asked.counts),
            reported=reports or (known is not None and known.reported),
        )

    def let_in(self, seen: Seen) -> None:
        """Put an attempt on the bill, free until it produces something."""
        self.charges.setdefault(seen.attempt, Charge(attempt=seen.attempt, model="", counts=Counts()))


class _Connection(asyncio.Protocol):
    """One connection: reads requests, runs their scripts one after another."""

    def __init__(self, provider: FakeProvider) -> None:
        self.provider = provider
        self.number = 0
        self.serving: Seen | None = None
        self.task: asyncio.Task[None] | None = None
        self._trap = False
        self._buffer = bytearray()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    # --- the protocol's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.number = self.provider.opened(self)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.provider.tls != "stalls":
            self.task = asyncio.ensure_future(self._serve())

    def data_received(self, data: bytes) -> None:
        if self._trap:
            self.abort()
            return
        self._buffer += data
        self._arrived.set()

    def eof_received(self) -> bool:
        return False  # a caller that stops sending is gone

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.task is not None:
            self.task.cancel()
        if self.serving is not None:
            self.serving.over = True
        self.provider.gone(self)

    def abort(self) -> None:
        """Reset: the caller gets ECONNRESET, not an orderly end."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def close(self) -> None:
        self.transport.close()

    # --- one request after another

    async def _serve(self) -> None:
        try:
            await self._serve_requests()
        except Exception as problem:  # a test's mistake: told at the end, not lost in a task
            self.provider.problems.append(problem)
            self.abort()

    async def _serve_requests(self) -> None:
        while (seen := await self._read_head()) is not None:
            self.serving = seen
            early = self.provider.fault_on_headers(seen.headers)
            if early is None:
                await self._read_body(seen)
            else:
                self.transport.pause_reading()
                seen.tag = seen.headers.get(ATTEMPT_HEADER) or f"#{seen.number}"
            script, asked = self.provider.script(seen, early)
            if asked is not None:
                self.provider.let_in(seen)
            self.provider.seen.append(seen)
            self.provider.note_change()
            kept = await self._run(script, seen, asked)
            seen.done = seen.over = True
            self.serving = None
            self.provider.note_change()
            if not kept:
                return

    async def _run(self, script: Script, seen: Seen, asked: Asked | None) -> bool:
        """Carry out the steps. False: the connection is finished with."""
        for step in script:
            match step:
                case Send():
                    await self._send(step, seen, asked)
                case Drain():
                    await self._flushed()
                case Wait():
                    await self._wait(step)
                case Hold():
                    await self.provider.released().wait()
                case End():
                    if step.how == "trap":
                        self._trap = True
                        return True
                    self.abort() if step.how == "reset" else self.close()
                    return False
        return not self.transport.is_closing()

    async def _send(self, step: Send, seen: Seen, asked: Asked | None) -> None:
        if asked is not None and (step.tokens or step.reports):
            self.provider.charge(asked, new_tokens=step.tokens, reports=step.reports)
        if step.raw:
            self.transport.write(step.raw)
            await self._writable.wait()
            seen.bytes_sent += len(step.raw)
        if step.event:
            seen.events_sent += 1
            self.provider.note_change()
            await asyncio.sleep(0)

    async def _wait(self, step: Wait) -> None:
        pace = self.provider.pace
        seconds = {
            "first_token": pace.first_token_seconds,
            "gap": pace.gap_seconds,
            "drip": pace.drip_seconds,
        }
        await asyncio.sleep(seconds[step.for_] * step.times)

    async def _flushed(self) -> None:
        """Until the kernel has it all, and whoever shares this loop had a few turns to read it."""
        while self.transport.get_write_buffer_size():  # noqa: ASYNC110 - it has no event for "all gone"
            await asyncio.sleep(0.001)
        for _ in range(4):
            await asyncio.sleep(0)

    # --- reading

    async def _more(self) -> None:
        self._arrived.clear()
        await self._arrived.wait()

    async def _read_head(self) -> Seen | None:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            await self._more()
        raw = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        first, *lines = raw.split(b"\r\n")
        parts = first.split(b" ")
        if len(parts) != 3:
            self.close()
            return None
        pairs = [(name.strip(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
        return Seen(
            number=self.provider.next_number(),
            connection=self.number,
            method=parts[0].decode("latin-1"),
            path=parts[1].decode("latin-1"),
            headers={name.decode("latin-1").lower(): value.decode("latin-1") for name, value in pairs},
            raw_headers=pairs,
        )

    async def _read_body(self, seen: Seen) -> None:
        if seen.headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if seen.headers.get("transfer-encoding", "").lower() == "chunked":
            seen.body = await self._read_chunks()
            return
        length = int(seen.headers.get("content-length", "0"))
        while len(self._buffer) < length:
            await self._more()
        seen.body = bytes(self._buffer[:length])
        del self._buffer[:length]

    async def _read_chunks(self) -> bytes:
        body = bytearray()
        while True:
            while (end := self._buffer.find(b"\r\n")) < 0:
                await self._more()
            size = int(bytes(self._buffer[:end]).split(b";")[0], 16)
            while len(self._buffer) < end + 2 + size + 2:
                await self._more()
            body += self._buffer[end + 2 : end + 2 + size]
            del self._buffer[: end + 2 + size + 2]
            if size == 0:
                return bytes(body)


# --- ports that misbehave ---------------------------------------------------------------------------------


class HangingPort:
    """U3: connecting to it neither works nor fails (its queue is full, so the kernel drops what comes)."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._listener = _bound_socket(host, port)
        self._listener.listen(0)
        self.host, self.port = self._listener.getsockname()[:2]
        self._fillers: list[socket.socket] = []

    def __enter__(self) -> Self:
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex((self.host, self.port))
            self._fillers.append(filler)
        return self

    def __exit__(self, *_: object) -> None:
        for one in [*self._fillers, self._listener]:
            one.close()

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}/v1"


class RefusingPort:
    """U2: connecting is refused, and nobody else can take the port meanwhile."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._parked = _bound_socket(host, port)
        self.host, self.port = self._parked.getsockname()[:2]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._parked.close()

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}/v1"


class FakeNames:
    """U4, U5: a resolver with the signature of `loop.getaddrinfo`. An unknown name does not resolve."""

    def __init__(self, names: Mapping[str, Sequence[str]] | None = None) -> None:
        self.names = dict(names or {})
        self.asked: list[str] = []
        self.gate = asyncio.Event()  # cleared: a look-up hangs until it is set
        self.gate.set()

    async def getaddrinfo(
        self, host: str, port: int, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
        """Raises socket.gaierror for a name it does not know."""
        self.asked.append(host)
        await self.gate.wait()
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))
            for address in self.names[host]
        ]


# --- small things -----------------------------------------------------------------------------------------


def _bound_socket(host: str, port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    sock.setblocking(False)
    return sock


def _split(fault: str) -> tuple[str, str]:
    name, _, argument = fault.partition(":")
    return name.lower(), argument


def _known(fault: str) -> str:
    name = _split(fault)[0]
    if name not in FAULTS:
        raise KeyError(f"no fault called {name!r}; there are: {', '.join(sorted(FAULTS))}")
    return name


def _words(body: bytes, count: int) -> tuple[str, ...]:
    """The answer's pieces, one token each; the same for the same body. Some have long characters."""
    stock = (
        "The ",
        "answer ",
        "is ",
        "forty-two",
        ", ",
        "naïve ",
        "日本 ",
        "🙂 ",
        "once\n",
        "more ",
        '"said" ',
        "so. ",
    )
    start = hashlib.sha256(body).digest()[0]
    return tuple(stock[(start + i) % len(stock)] for i in range(count))


def _described(one: Seen) -> dict[str, object]:
    """A request for `/__seen`: no header value and no body, but for their names and size."""
    return {
        "number": one.number,
        "connection": one.connection,
        "method": one.method,
        "path": one.path,
        "headers": sorted(one.headers),
        "body_bytes": len(one.body),
        "tag": one.tag,
        "fault": one.fault,
        "events_sent": one.events_sent,
        "done": one.done,
    }


# --- by itself --------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    listed = {script: sorted(n for n, s in FAULTS.items() if s is script) for script in FAULTS.values()}
    epilog = "faults:\n" + "\n".join(
        f"  {', '.join(names)}: {script.__doc__}" for script, names in listed.items()
    )
    parser = argparse.ArgumentParser(
        description="A fake LLM provider that shows faults on demand and keeps a bill (GET /__bill).",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="0 (default): any free one; it is printed")
    parser.add_argument("--name", default="a", help="what `fault:NAME@whom` calls this provider")
    parser.add_argument("--api-key", default=None, help="refuse every other bearer key")
    parser.add_argument("--always", default=None, metavar="FAULT", help="show this fault to every request")
    parser.add_argument("--tokens", type=int, default=8, help="output tokens of an answer")
    parser.add_argument("--first-token-seconds", type=float, default=0.0)
    parser.add_argument("--gap-seconds", type=float, default=0.0)
    parser.add_argument(
        "--price",
        action="append",
        default=[],
        metavar="MODEL=INPUT,CACHED,OUTPUT",
        help="US dollars per million tokens; repeat for more models",
    )
    options = parser.parse_args(arguments)
    prices: dict[str, Prices] = {}
    for text in options.price:
        found = re.fullmatch(r"([^=]+)=([\d.]+),([\d.]+),([\d.]+)", text)
        if not found:
            parser.error(f"--price {text}: expected MODEL=INPUT,CACHED,OUTPUT")
        prices[found[1]] = Prices(input=found[2], input_cached=found[3], output=found[4])
    asyncio.run(_serve_alone(options, prices))
    return 0


async def _serve_alone(options: argparse.Namespace, prices: Mapping[str, Prices]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    provider = FakeProvider(
        name=options.name,
        prices=prices,
        api_key=options.api_key,
        answer_tokens=options.tokens,
        pace=Pace(first_token_seconds=options.first_token_seconds, gap_seconds=options.gap_seconds),
        port=options.port,
    )
    provider.always(options.always)
    async with provider:
        print(f"fake provider on {provider.base_url} (pid {os.getpid()})", flush=True)
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())

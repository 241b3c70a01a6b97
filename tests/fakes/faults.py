"""Every fault the fake provider can show, as scripts that take the place of a good answer.

A fault is known by its number in the list of faults ("U12") or by a word; the argument after its colon is
`asked.argument`. The docstrings are what `provider.py --help` prints.
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime
from typing import Any, cast

from tests.fakes.answers import (
    LAST_CHUNK,
    OMITTED,
    Asked,
    Counts,
    Discard,
    Drain,
    End,
    Event,
    Hold,
    Script,
    Send,
    Text,
    Wait,
    answer,
    answer_slower,
    chunk,
    data,
    dumps,
    finished,
    stream,
)
from tests.fakes.chat import Chat, completion, delta, event, finish_reason, usage_object
from tests.fakes.responses import Responses

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
    raw = asked.whole(200, asked.answer())
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
    """Reset a stream before its first content, after what opens it."""
    yield from _first_content_events(asked, 0)
    yield End("reset")


def _first_content_events(asked: Asked, count: int) -> Script:
    made = asked.events()
    yield from stream(asked, made[: _until(made, count)], end=b"")
    yield Drain()


def _until(made: list[Event], count: int) -> int:
    """Where that many content events have gone out; 0: just before the first of them."""
    places = [place for place, one in enumerate(made) if one.kind == "content"]
    if count == 0:
        return places[0] if places else len(made)
    return places[min(count, len(places)) - 1] + 1


def _chat_only(asked: Asked) -> None:
    if not isinstance(asked.wire, Chat):
        raise ValueError(f"this fault is for the chat wire, and was asked for at {asked.seen.endpoint}")


@fault("U14", "U17", "U18", "U20", "rate_limited")
def _rate_limited(asked: Asked) -> Script:
    """429 with `retry-after` as the argument says (2); `digits400`: 400 digits; `none`: no header."""
    value = "9" * 400 if asked.argument == "digits400" else asked.argument or "2"
    headers = [] if value == "none" else [f"retry-after: {value}"]
    yield Send(
        asked.error(429, "Rate limit reached for requests", "requests", "rate_limit_exceeded", *headers)
    )


@fault("U15", "rate_limited_date")
def _rate_limited_date(asked: Asked) -> Script:
    """429 with `retry-after` as an HTTP date N seconds ahead (3); negative: in the past."""
    when = asked.now + timedelta(seconds=float(asked.argument or 3))
    date = format_datetime(when, usegmt=True)
    yield Send(
        asked.error(429, "Rate limit reached", "requests", "rate_limit_exceeded", f"retry-after: {date}")
    )


@fault("U16", "rate_limited_ms")
def _rate_limited_ms(asked: Asked) -> Script:
    """429 with `retry-after-ms: N` (250) and a `retry-after` that differs."""
    headers = (f"retry-after-ms: {asked.argument or 250}", "retry-after: 9")
    yield Send(asked.error(429, "Rate limit reached", "requests", "rate_limit_exceeded", *headers))


@fault("U19", "quota_gone")
def _quota_gone(asked: Asked) -> Script:
    """429 that means the account has no money left."""
    message = "You exceeded your current quota, please check your plan and billing details."
    yield Send(asked.error(429, message, "insufficient_quota", "insufficient_quota"))


@fault("U21", "U22", "U23", "U24", "status")
def _status(asked: Asked) -> Script:
    """The HTTP status N (500), with account details and a piece of the key in the message."""
    status = int(asked.argument or 500)
    kind = "server_error" if status >= 500 else "invalid_request_error"
    key = asked.key
    message = (
        f"Fake failure {status} for organization org-canary1234567890 with key {key[:8]}...{key[-4:]}; "
        f"full key {key}. Please retry."
    )
    yield Send(asked.error(status, message, kind, f"fake_{status}"))


@fault("context_length")
def _context_length(asked: Asked) -> Script:
    """400 context_length_exceeded."""
    message = f"This model's maximum context length is 10 tokens. Your messages had {asked.counts.prompt}."
    yield Send(asked.error(400, message, "invalid_request_error", "context_length_exceeded"))


@fault("late_head")
def _late_head(asked: Asked) -> Script:
    """Nothing at all until released; then the good answer."""
    yield Hold()
    yield from answer(asked)


@fault("U28", "U29", "late_token")
def _late_token(asked: Asked) -> Script:
    """What opens a stream at once, its first content when released (a whole answer: nothing till then)."""
    if not asked.stream:
        yield from _late_head(asked)
        return
    made = asked.events()
    at = _until(made, 0)
    yield from stream(asked, made[:at], end=b"")
    yield Hold()
    yield from stream(asked, made[at:], start=b"")


@fault("U30", "stall")
def _stall(asked: Asked) -> Script:
    """Stop after N content events (5) until released; then go on to the good end."""
    made = asked.events()
    before = _until(made, int(asked.argument or 5))
    yield from stream(asked, made[:before], end=b"")
    yield Hold()
    yield from stream(asked, made[before:], start=b"")


@fault("U31", "drip")
def _drip(asked: Asked) -> Script:
    """One byte at a time for ever, at the pace's drip."""
    if asked.stream:
        _chat_only(asked)
        made = asked.events()
        yield from stream(asked, made[: _until(made, 0)], end=b"")
        line = data(event(asked, [delta(0, {"content": "drop "})]))
    else:
        yield Send(asked.head(200, "content-type: application/json", "transfer-encoding: chunked"))
        yield Send(chunk(b"{"))
        line = b" "
    while True:
        for byte in line:
            yield Wait("drip")
            yield Send(chunk(bytes((byte,))), event=byte == 10)
        yield Send(b"", 1 if asked.stream else 0)


@fault("U32", "no_finish")
def _no_finish(asked: Asked) -> Script:
    """A stream ending cleanly without what ends it; `close`: framed by the connection's end."""
    made = [one for one in asked.events() if one.kind in ("opening", "content", "frame")]
    if asked.argument != "close":
        yield from stream(asked, made)
        return
    yield Send(asked.head(200, "content-type: text/event-stream", "connection: close"))
    for one in made:
        yield one.send(one.raw)
    yield End("close")


@fault("connection_close")
def _connection_close(asked: Asked) -> Script:
    """A good stream or body framed by the connection's end."""
    if asked.stream:
        yield Send(asked.head(200, "content-type: text/event-stream", "connection: close"))
        for one in asked.events():
            yield one.send(one.raw)
    else:
        yield Send(asked.head(200, "content-type: application/json", "connection: close"))
        yield Send(asked.answer(), len(asked.words) * asked.choices, event=True, reports=True)
    yield End("close")


@fault("U33", "no_usage")
def _no_usage(asked: Asked) -> Script:
    """The good end, and no usage though it was asked for; whole: no `usage` at all."""
    if asked.stream:
        yield from stream(asked, asked.events(OMITTED))
        return
    raw = asked.whole(200, asked.answer(OMITTED))
    yield Send(raw, len(asked.words) * asked.choices, event=True)


@fault("U34", "usage_order")
def _usage_order(asked: Asked) -> Script:
    """Chat: the usage event `after_done` (default), `twice`, or a second time with `lower` counts."""
    _chat_only(asked)
    made = asked.events()
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
    yield from stream(asked, order[asked.argument or "after_done"])


@fault("growing_usage")
def _growing_usage(asked: Asked) -> Script:
    """Chat: usage on every event, growing, as vLLM's continuous_usage_stats."""
    _chat_only(asked)
    so_far = 0
    made: list[Event] = []
    for one in asked.events():
        so_far += one.tokens
        if one.kind in ("done", "usage"):
            made.append(one)
            continue
        value = json.loads(one.raw[6:])
        value["usage"] = usage_object(
            Counts(prompt=asked.counts.prompt, cached=asked.counts.cached, completion=so_far)
        )
        made.append(Event(data(value), one.tokens, "usage" if one.kind == "finish" else one.kind))
    yield from stream(asked, made)


@fault("empty_choices")
def _empty_choices(asked: Asked) -> Script:
    """Chat: a first event with empty `choices` and no usage, as Azure's content filter sends."""
    _chat_only(asked)
    first = event(asked, [], prompt_filter_results=[{"prompt_index": 0, "content_filter_results": {}}])
    first.pop("usage", None)
    yield from stream(asked, [Event(data(first), 0, "opening"), *asked.events()])


@fault("U36", "sse")
def _sse(asked: Asked) -> Script:
    """A good stream spelt unusually: no_space, crlf, cr, bom, comments, event_lines, ids, multi_line."""
    made = asked.events()

    def spelt(n: int, raw: bytes) -> bytes:
        line = raw[:-2]
        match asked.argument or "no_space":
            case "no_space":
                return line.replace(b"data: ", b"data:", 1) + b"\n\n"
            case "crlf":
                return raw.replace(b"\n", b"\r\n")
            case "cr":
                return raw.replace(b"\n", b"\r")
            case "bom":
                return (b"\xef\xbb\xbf" if n == 0 else b"") + raw
            case "comments":
                return b": keep-alive\n\n: another\n" + raw
            case "event_lines":
                return b"event: message\n" + raw
            case "ids":
                return b"id: %d\nretry: 10\n" % n + raw
            case "multi_line":
                return line.replace(b',"', b'\ndata: ,"', 1) + b"\n\n"
            case other:
                raise ValueError(f"unknown spelling {other!r}")

    spelt_so = [replace(one, raw=spelt(n, one.raw)) for n, one in enumerate(made)]
    yield from stream(asked, spelt_so)


@fault("U37", "cut")
def _cut(asked: Asked) -> Script:
    """The stream's bytes cut at byte N into two pieces of their own; `every`: each byte by itself."""
    raw = b"".join(one.raw for one in asked.events())
    reports = any(one.kind == "usage" for one in asked.events())
    at = asked.argument or "every"
    if at == "every":
        pieces = [raw[i : i + 1] for i in range(len(raw))]
    else:
        pieces = [raw[: int(at)], raw[int(at) :]]
    yield Send(asked.sse_head())
    yield Drain()
    for piece in pieces:
        if piece:
            yield Send(chunk(piece))
            yield Drain()
    yield Send(LAST_CHUNK, len(asked.words) * asked.choices, event=True, reports=reports, ends=True)


@fault("U38", "not_json")
def _not_json(asked: Asked) -> Script:
    """One event that is not JSON, after N content events (2); it holds canary text."""
    made = asked.events()
    at = _until(made, int(asked.argument or 2))
    yield from stream(asked, [*made[:at], Event(b"data: {canary-answer-text: broken\n\n", 0), *made[at:]])


@fault("U39", "truncated_json")
def _truncated_json(asked: Asked) -> Script:
    """200 with a JSON body cut short, and a content-length that agrees."""
    body = asked.answer()
    yield Send(asked.whole(200, body[: len(body) // 2]), len(asked.words), event=True)


@fault("U40", "html")
def _html(asked: Asked) -> Script:
    """200 with an HTML page."""
    page = b"<!doctype html><title>Sign in</title><p>canary-answer-text: accept the terms to go on</p>"
    yield Send(asked.whole(200, page, content_type="text/html; charset=utf-8"), event=True)


@fault("U41", "error_in_body")
def _error_in_body(asked: Asked) -> Script:
    """200 with an error object: as the body, or as the first event of a stream."""
    yield from _error_after(asked, 0)


@fault("error_in_stream")
def _error_in_stream(asked: Asked) -> Script:
    """A stream with an error event after N content events (2)."""
    yield from _error_after(asked, int(asked.argument or 2))


def _error_after(asked: Asked, count: int) -> Script:
    if not asked.stream:
        yield Send(asked.whole(200, asked.wire.error_body()), event=True)
        return
    if count:
        yield from _first_content_events(asked, count)
    else:
        yield Send(asked.sse_head())
    yield Send(chunk(asked.wire.error_event(asked)), event=True)
    yield Send(LAST_CHUNK)


@fault("response_failed")
def _response_failed(asked: Asked) -> Script:
    """Responses: a stream with `response.failed` and this code (server_error) after two content events."""
    if not isinstance(asked.wire, Responses):
        raise ValueError(f"this fault is for the responses wire, and was asked for at {asked.seen.endpoint}")
    code = asked.argument or "server_error"
    if not asked.stream:
        problem = {"code": code, "message": f"Fake failure: {code}"}
        body = asked.wire.state(asked, "failed", error=problem)
        yield Send(asked.whole(200, dumps(body)), event=True)
        return
    yield from _first_content_events(asked, 2)
    number = _until(asked.events(), 2)
    yield Send(chunk(asked.wire.failed_event(asked, number, code)), event=True)
    yield Send(LAST_CHUNK)


@fault("U42", "empty")
def _empty(asked: Asked) -> Script:
    """`body` (default): 200 with an empty body; `204`; `301`, or a URL: a redirect to it."""
    if asked.argument == "204":
        yield Send(asked.head(204))
    elif asked.argument and asked.argument != "body":
        target = f"http://other.invalid{asked.seen.endpoint}" if asked.argument == "301" else asked.argument
        yield Send(asked.head(301, f"location: {target}", "content-length: 0"))
    else:
        kind = "text/event-stream" if asked.stream else "application/json"
        yield Send(asked.whole(200, b"", content_type=kind))


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
    """Chat: a good stream of about N bytes (200 MiB) in events of 16 KiB, for slow readers."""
    _chat_only(asked)
    left = int(asked.argument or asked.max_bytes)
    made = asked.events()
    big = data(event(asked, [delta(0, {"content": "flood " * 2_700})]))
    at = _until(made, 0)
    yield from stream(asked, made[:at], end=b"")
    while left > 0:
        yield Send(chunk(big), event=True)
        left -= len(big)
    yield from stream(asked, made[at:], start=b"")


@fault("U44", "headers")
def _headers(asked: Asked) -> Script:
    """`big` (default): one header of 300 KB; `many`: 500 headers."""
    body = asked.answer()
    if asked.argument == "many":
        yield Send(asked.whole(200, body, *(f"x-filler-{i}: {i}" for i in range(500))))
    else:
        yield Send(asked.whole(200, body, "x-filler: " + "y" * 300_000))


@fault("U45", "gzip")
def _gzip(asked: Asked) -> Script:
    """`bomb` (default): 250 KB that unpack to 256 MiB; `nested`: gzip twice; `plain`: the good answer."""
    body = asked.answer()
    if asked.argument == "plain":
        packed = gzip.compress(body, mtime=0)
        yield Send(
            asked.whole(200, packed, "content-encoding: gzip"), len(asked.words), event=True, reports=True
        )
    elif asked.argument == "nested":
        packed = gzip.compress(gzip.compress(body, mtime=0), mtime=0)
        yield Send(asked.whole(200, packed, "content-encoding: gzip, gzip"), len(asked.words), event=True)
    else:
        bomb = gzip.compress(b" " * 2**20, mtime=0) * 256  # members after one another are one valid body
        kind = "text/event-stream" if asked.stream else "application/json"
        yield Send(
            asked.whole(200, bomb, "content-encoding: gzip", content_type=kind), len(asked.words), event=True
        )


@fault("U46", "length")
def _length(asked: Asked) -> Script:
    """A wrong content-length: `short` (default) or `long` by 10 bytes; `long` then closes."""
    body = asked.answer()
    stated = len(body) + (10 if asked.argument == "long" else -10)
    yield Send(asked.head(200, "content-type: application/json", f"content-length: {stated}"))
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
        start = asked.head(200, "content-type: text/event-stream", "transfer-encoding: chunked", *stray)
        yield from stream(asked, asked.events(), start=start)
    else:
        yield Send(asked.whole(200, asked.answer(), *stray), len(asked.words), event=True, reports=True)


@fault("U48", "usage")
def _usage(asked: Asked) -> Script:
    """An odd usage: negative (default), float, string, null, huge, cached_over, mismatch, bool, list."""
    true = asked.wire.usage(finished(asked))
    prompt, completed = asked.wire.prompt_name, asked.wire.completion_name
    p, c = cast("int", true[prompt]), cast("int", true[completed])
    total = {"total_tokens": c - 5} if "total_tokens" in true else {}
    report: object
    match asked.argument or "negative":
        case "negative":
            report = true | {prompt: -5} | total
        case "float":
            report = true | {prompt: float(p), completed: float(c)}
        case "string":
            report = true | {prompt: str(p), completed: str(c)}
        case "null":
            report = dict.fromkeys((prompt, completed, *total))
        case "huge":
            report = true | {completed: 10**30}
        case "cached_over" if f"{prompt}_details" in true:
            asked.counts.cached = p  # clamped: all of the prompt counts as cached
            report = true | {f"{prompt}_details": {"cached_tokens": p + 50}}
        case "mismatch" if total:
            report = true | {"total_tokens": p + c + 7}
        case "bool":
            report = true | {prompt: True}
        case "list":
            report = [1, 2, 3]
        case other:
            raise ValueError(f"no usage {other!r} at {asked.seen.endpoint}")
    if asked.stream:
        yield from stream(asked, asked.events(report))
    else:
        raw = asked.whole(200, asked.answer(report))
        yield Send(raw, len(asked.words) * asked.choices, event=True, reports=True)


@fault("reasoning")
def _reasoning(asked: Asked) -> Script:
    """A good answer that thought first: N reasoning tokens (7), counted inside the completion."""
    asked.hidden = int(asked.argument or 7)
    asked.counts.reasoning = asked.counts.completion = asked.hidden
    yield from answer(asked)


@fault("U49", "model")
def _model(asked: Asked) -> Script:
    """A good answer by another model (the argument), billed as that one."""
    asked.model = asked.argument or "another-model"
    yield from answer(asked)


@fault("U50", "shape")
def _shape(asked: Asked) -> Script:
    """Chat: good answers of other shapes: tool_calls (100 mixed deltas), refusal, logprobs, reasoning_text."""
    _chat_only(asked)
    kind = asked.argument or "tool_calls"
    pieces, message = _shape_pieces(asked, kind)
    asked.turn = (Text(tuple("x" for _ in pieces)),)  # one token a piece
    asked.choices = 1
    finish = "tool_calls" if kind == "tool_calls" else finish_reason(asked)
    if not asked.stream:
        body = completion(asked, message={"role": "assistant", "content": None} | message)
        body["choices"][0]["finish_reason"] = finish
        if kind == "logprobs":
            shown = [one for piece in pieces for one in piece["logprobs"]["content"]]
            body["choices"][0]["logprobs"] = {"content": shown, "refusal": None}
        yield Send(asked.whole(200, dumps(body)), len(pieces), event=True, reports=True)
        return
    frame = asked.events()
    made = [one for one in frame if one.kind == "opening"]
    made += [Event(data(event(asked, [piece])), 1) for piece in pieces]
    made.append(Event(data(event(asked, [delta(0, {}, finish)])), kind="finish"))
    made += [one for one in frame if one.kind in ("usage", "done")]
    yield from stream(asked, made)


def _shape_pieces(asked: Asked, kind: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The choices of each event of that shape, and the message of the whole answer."""
    words = asked.words
    if kind == "refusal":
        return [delta(0, {"refusal": word}) for word in words], {"refusal": "".join(asked.words)}
    if kind == "reasoning_text":
        thought = [delta(0, {"reasoning_content": word}) for word in words]
        said = [delta(0, {"content": word}) for word in words]
        return thought + said, {"reasoning_content": "".join(asked.words), "content": "".join(asked.words)}
    if kind == "logprobs":
        made: list[dict[str, Any]] = []
        for word in words:
            probability = {"token": word, "logprob": -0.25, "bytes": list(word.encode()), "top_logprobs": []}
            made.append(
                delta(0, {"content": word}) | {"logprobs": {"content": [probability], "refusal": None}}
            )
        return made, {"content": "".join(asked.words)}
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
    """413 before the body is read; then throw the body away until the caller goes, or `close`, `reset`."""
    message = "Request body too large"
    yield Send(asked.error(413, message, "invalid_request_error", "request_too_large", "connection: close"))
    yield Drain()
    if asked.argument in ("close", "reset"):
        yield End(asked.argument)
    yield Discard()
    yield Hold()


@fault("read_nothing", on_headers=True)
def _read_nothing(asked: Asked) -> Script:
    """Read the headers, no byte of the body, and answer nothing. That the caller left is not noticed."""
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


def split(fault: str) -> tuple[str, str]:
    name, _, argument = fault.partition(":")
    return name.lower(), argument


def known(fault: str) -> str:
    name = split(fault)[0]
    if name not in FAULTS:
        raise KeyError(f"no fault called {name!r}; there are: {', '.join(sorted(FAULTS))}")
    return name

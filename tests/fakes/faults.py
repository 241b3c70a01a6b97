"""Every fault the fake provider can show, as scripts that take the place of a good answer.

A fault is known by its number in the list of faults ("U12") or by a word; the argument after its colon is
`asked.argument`. The docstrings are what `provider.py --help` prints.
"""

import gzip
import json
from collections.abc import Callable
from datetime import timedelta
from email.utils import format_datetime
from typing import Any, cast

from tests.fakes.answers import (
    LAST_CHUNK,
    SSE_HEAD,
    Asked,
    Counts,
    Discard,
    Drain,
    End,
    Event,
    Hold,
    Script,
    Send,
    Wait,
    answer,
    answer_slower,
    chunk,
    completion,
    data,
    delta,
    dumps,
    error,
    event,
    events,
    finished,
    head,
    stream,
    usage_object,
    whole,
)

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
        body = completion(asked, message={"role": "assistant", "content": None} | message)
        if kind == "logprobs":
            shown = [one for piece in pieces for one in piece["logprobs"]["content"]]
            body["choices"][0]["logprobs"] = {"content": shown, "refusal": None}
        yield Send(whole(200, dumps(body)), len(pieces), event=True, reports=True)
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
    """413 before the body is read; then throw the body away until the caller goes, or `close`, `reset`."""
    message = "Request body too large"
    yield Send(error(413, message, "invalid_request_error", "request_too_large", "connection: close"))
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

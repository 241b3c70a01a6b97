"""What the fake provider says when nothing is wrong: scripts of steps, and the pieces they are made of.

A script is a generator of steps that touches nothing; the provider's connection carries them out.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, cast

ATTEMPT_HEADER = "x-faregate-attempt"
CREATED = 1_764_547_200  # the moment every answer says it was made


@dataclass(slots=True, kw_only=True)
class Counts:
    """True tokens of one answer so far: cached and written are in prompt, reasoning is in completion."""

    prompt: int = 0
    cached: int = 0
    written: int = 0
    completion: int = 0
    reasoning: int = 0


@dataclass(eq=False, slots=True, kw_only=True)
class Seen:
    """One request as it came in, and how far its answer got."""

    number: int  # 1 for the first
    at_seconds: float = 0.0  # when its headers were read, by the loop's clock
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


@dataclass(frozen=True, slots=True)
class Discard:
    """Read on, after an answer that came before its request was read, and throw away what comes."""


Step = Send | Hold | Wait | End | Drain | Discard
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


def words_for(body: bytes, count: int) -> tuple[str, ...]:
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

"""What the fake provider says, before any wire words it: scripts of steps, and the pieces they are made of.

A script is a generator of steps that touches nothing; the provider's connection carries them out. How an answer is
spelt is a `Wire`'s affair: one for each endpoint, in the modules beside this one.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    from tests.fakes.memory import Memory

ATTEMPT_HEADER = "x-faregate-attempt"
CREATED = 1_764_547_200  # the moment every answer says it was made


@dataclass(slots=True, kw_only=True)
class Counts:
    """True tokens of one answer so far: cached and written are in prompt, reasoning is in completion."""

    prompt: int = 0
    cached: int = 0
    written: int = 0
    written_1h: int = 0  # the part of `written` that is kept for an hour
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

    @property
    def endpoint(self) -> str:
        """The path without its query."""
        return self.path.partition("?")[0]

    @property
    def keys(self) -> dict[Literal["authorization", "x-api-key"], str]:
        """The credentials it came with, by the header each was in."""
        found: dict[Literal["authorization", "x-api-key"], str] = {}
        if "authorization" in self.headers:
            found["authorization"] = self.headers["authorization"].removeprefix("Bearer ")
        if "x-api-key" in self.headers:
            found["x-api-key"] = self.headers["x-api-key"]
        return found

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
    ends: bool = False  # nothing that the model says comes after it
    books: bool = False  # what was counted so far is billed from here on, though no token came yet


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


# --- what the model says ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """Words for the reader. Each piece is one token; a plain text is one piece."""

    words: str | tuple[str, ...]

    @property
    def pieces(self) -> tuple[str, ...]:
        return (self.words,) if isinstance(self.words, str) else self.words


@dataclass(frozen=True, slots=True)
class Thought(Text):
    """Words of its reasoning. They come before everything else of a turn."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """It asks the client to run a tool."""

    name: str
    arguments: Mapping[str, Any]

    @property
    def pieces(self) -> tuple[str, ...]:
        return _cut(dumps(self.arguments).decode())


@dataclass(frozen=True, slots=True)
class FreeToolCall:
    """It asks for a tool whose input is a text of no form (Responses' `custom` tools only)."""

    name: str
    input: str

    @property
    def pieces(self) -> tuple[str, ...]:
        return _cut(self.input)


Part = Text | ToolCall | FreeToolCall
Turn = tuple[Part, ...]


def _cut(text: str, size: int = 12) -> tuple[str, ...]:
    return tuple(text[at : at + size] for at in range(0, len(text), size)) or ("",)


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


# --- a request, understood --------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Asked:
    """A request for work, understood: what a script needs to answer it."""

    seen: Seen
    wire: "Wire"
    argument: str  # of the fault
    counts: Counts  # changed by the runner as tokens go out; a script may correct it
    model: str  # the one billed; a script may change it
    turn: Turn
    ended: bool = False  # its stream got to where the model has said all
    told: bool = False  # the turn is one that a test asked for
    hidden: int = 0  # reasoning tokens that nobody sees
    by: str = "a"  # the provider's name
    cut_short: bool = False  # the caller's own limit ended the answer
    stream: bool = False
    include_usage: bool = False
    choices: int = 1
    max_bytes: int = 200 * 2**20
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    @property
    def body(self) -> dict[str, Any]:
        return self.seen.json()

    @property
    def words(self) -> tuple[str, ...]:
        """Every piece of the turn: one token each."""
        return tuple(piece for part in self.turn for piece in part.pieces)

    @property
    def thoughts(self) -> int:
        """Tokens of the turn that are reasoning; the first ones."""
        return sum(len(part.pieces) for part in self.turn if isinstance(part, Thought))

    @property
    def calls_tools(self) -> bool:
        return any(not isinstance(part, Text) for part in self.turn)

    @property
    def key(self) -> str:
        """A credential it came with; "" for none."""
        return next(iter(self.seen.keys.values()), "")

    def id(self, prefix: str, *about: object) -> str:
        """An id that no other request of any provider gets."""
        text = f"{self.by} {self.seen.number} {about}".encode() + self.seen.body
        return prefix + hashlib.sha256(text).hexdigest()[:24]

    def head(self, status: int, *headers: str) -> bytes:
        return head(status, *self.wire.answer_headers(self.now), *headers)

    def sse_head(self) -> bytes:
        return self.head(*SSE_HEAD)

    def whole(self, status: int, body: bytes, *headers: str, content_type: str = "application/json") -> bytes:
        return whole(status, body, *self.wire.answer_headers(self.now), *headers, content_type=content_type)

    def answer(self, usage: object = None) -> bytes:
        """The good whole answer's body."""
        return self.wire.body(self, usage)

    def events(self, usage: object = None) -> "list[Event]":
        """The good stream."""
        return self.wire.events(self, usage)

    def error(self, status: int, message: str, type_: str, code: str | None, *headers: str) -> bytes:
        return self.wire.error(status, message, type_, code, *headers)


OMITTED = object()  # as a `usage`: leave it out


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream before it is framed."""

    raw: bytes
    tokens: int = 0
    kind: Literal["opening", "content", "frame", "finish", "usage", "done"] = "content"
    books: bool = False

    def send(self, raw: bytes) -> Send:
        """The step that sends it, framed so."""
        reports = self.kind == "usage"
        ends = self.kind in ("finish", "usage")
        return Send(raw, self.tokens, event=True, reports=reports, ends=ends, books=self.books)


class Wire:
    """How one endpoint is asked and how it answers. These are the ways of most of OpenAI's."""

    free = False  # costs nothing, whatever it says
    streams = True
    speaks = True  # what it makes is words, counted as output
    content_type = "application/json"
    prompt_name, completion_name = "prompt_tokens", "completion_tokens"

    # --- asking

    def refusal(self, seen: Seen, body: Mapping[str, Any], memory: "Memory") -> bytes | None:
        """The error for a request that cannot be served as it is."""
        return None

    def counts(self, body: Mapping[str, Any], memory: "Memory") -> Counts:
        """What the prompt comes to."""
        raise NotImplementedError

    def user(self, body: Mapping[str, Any]) -> object:
        """Whom the request is for, as it says."""
        return body.get("user")

    def limit(self, body: Mapping[str, Any]) -> object:
        """The most tokens the caller wants."""
        return body.get("max_tokens")

    # --- answering

    def answer_headers(self, now: datetime) -> tuple[str, ...]:
        """What comes with every answer."""
        return ("x-request-id: req_fake",)

    def usage(self, counts: Counts) -> dict[str, Any]:
        """The true usage."""
        raise NotImplementedError

    def body(self, asked: Asked, usage: object) -> bytes:
        """The good whole answer, with this usage instead of the true one unless it is None."""
        raise NotImplementedError

    def events(self, asked: Asked, usage: object) -> list[Event]:
        """The good stream, with this usage at its end instead of the true one unless it is None."""
        raise NotImplementedError

    def said(self, asked: Asked, memory: "Memory") -> None:
        """The answer is out, all of it."""

    def error(self, status: int, message: str, type_: str, code: str | None, *headers: str) -> bytes:
        problem = {"message": message, "type": type_, "param": None, "code": code}
        return whole(
            status,
            dumps({"error": problem}),
            *self.answer_headers(datetime(2026, 1, 1, tzinfo=UTC)),
            *headers,
        )

    def error_body(self) -> bytes:
        """An error as a whole answer that was promised to be a good one."""
        problem = {"message": "The model is overloaded", "type": "server_error", "param": None}
        return dumps({"error": problem | {"code": "overloaded"}})

    def error_event(self, asked: Asked) -> bytes:
        """An error inside a stream."""
        return b"data: " + self.error_body() + b"\n\n"


def finished(asked: Asked) -> Counts:
    """The counts once the whole answer is out."""
    c = asked.counts
    return Counts(
        prompt=c.prompt,
        cached=c.cached,
        written=c.written,
        written_1h=c.written_1h,
        completion=asked.hidden + len(asked.words) * asked.choices,
        reasoning=asked.hidden + asked.thoughts,
    )


# --- bytes ------------------------------------------------------------------------------------------------


def dumps(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def head(status: int, *headers: str, reason: str = "") -> bytes:
    lines = [f"HTTP/1.1 {status} {reason or REASONS.get(status, 'Unknown')}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def whole(status: int, body: bytes, *headers: str, content_type: str = "application/json") -> bytes:
    return head(status, f"content-type: {content_type}", f"content-length: {len(body)}", *headers) + body


def chunk(raw: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(raw), raw)


LAST_CHUNK = b"0\r\n\r\n"
SSE_HEAD = (
    200,
    "content-type: text/event-stream; charset=utf-8",
    "cache-control: no-cache",
    "transfer-encoding: chunked",
)
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
    426: "Upgrade Required",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    529: "Overloaded",
}


def data(value: object) -> bytes:
    """An event without a name."""
    return b"data: " + dumps(value) + b"\n\n"


def named(value: Mapping[str, Any]) -> bytes:
    """An event that is named for its type."""
    return b"event: " + str(value["type"]).encode() + b"\n" + data(value)


# --- good answers -----------------------------------------------------------------------------------------


def stream(
    asked: Asked,
    made: Iterable[Event],
    *,
    start: bytes | None = None,
    end: bytes = LAST_CHUNK,
    slow: float = 1.0,
) -> Script:
    """Send the events with the pace between them, after the head or another start."""
    yield Send(asked.sse_head() if start is None else start)
    begun = False
    for one in made:
        if one.kind not in ("opening", "frame"):
            yield Wait("gap" if begun else "first_token", slow)
            begun = True
        yield one.send(chunk(one.raw))
    yield Send(end)


def answer(asked: Asked) -> Script:
    """The good answer, whole or streamed."""
    yield from answer_slower(asked, 1.0)


def answer_slower(asked: Asked, times: float) -> Script:
    if asked.stream:
        yield from stream(asked, asked.events(), slow=times)
        return
    yield Wait("first_token", times)
    raw = asked.whole(200, asked.answer(), content_type=asked.wire.content_type)
    yield Send(raw, len(asked.words) * asked.choices, event=True, reports=True)

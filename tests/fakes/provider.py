"""A small provider that speaks OpenAI's and Anthropic's wires, shows every fault on demand and keeps its own bill.

It is a plain asyncio HTTP/1.1 server that writes each byte itself, because half of what it must do no HTTP
library would agree to. An answer is a *script*: a generator of steps (send, hold, reset, close, ...) that
touches nothing; one runner carries the steps out. A fault is another script.

    async with FakeProvider(prices={"m": Prices(input="1.25", input_cached="0.1", output="10")}) as provider:
        provider.next("U14:2")            # the next request only: 429 with `retry-after: 2`
        ...                               # provider.base_url is http://127.0.0.1:PORT/v1
        provider.seen[-1].headers, provider.bill()

What the model says can be told too, one turn for each request that offers tools; every other request gets words:

    provider.turns([ToolCall("look_up", {"q": "fares"}), Text("done")])

Who decides which fault a request gets, first match: the header `x-fake-fault: NAME`; a body whose `user`
(Anthropic's `metadata.user_id`) is `fault:NAME` (`fault:NAME@b` is for the provider called b alone; what follows
a blank is the tag); `next`; `always`. A name is a number of the list of faults ("U12") or a word
("reset_in_stream"), with an argument after a colon: "status:503".
`python tests/fakes/provider.py --help` lists them all.

The bill is arithmetic of its own: nothing of the product is imported here. An attempt is known by the header
`x-faregate-attempt`, else by the number of its request.
"""

import argparse
import asyncio
import os
import re
import signal
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, cast

if __name__ == "__main__":  # run as a file: the repository is not on the path yet
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fakes.answers import (
    ATTEMPT_HEADER,
    CREATED,
    Asked,
    Counts,
    Discard,
    Drain,
    End,
    Hold,
    Part,
    Script,
    Seen,
    Send,
    Text,
    Thought,
    Turn,
    Wait,
    Wire,
    answer,
    dumps,
    head,
    whole,
    words_for,
)
from tests.fakes.chat import Chat, TextCompletions
from tests.fakes.faults import FAULTS, ON_HEADERS, known, split
from tests.fakes.memory import Memory
from tests.fakes.messages import CountTokens, Messages
from tests.fakes.responses import Responses, later
from tests.fakes.whole_answers import Embeddings, Moderations, Speech

FAULT_HEADER = "x-fake-fault"

RESPONSES = Responses()
WIRES: dict[str, Wire] = {
    "/v1/chat/completions": Chat(),
    "/v1/completions": TextCompletions(),
    "/v1/messages": Messages(),
    "/v1/messages/count_tokens": CountTokens(),
    "/v1/responses": RESPONSES,
    "/v1/embeddings": Embeddings(),
    "/v1/moderations": Moderations(),
    "/v1/audio/speech": Speech(),
}
"""What a POST to each path speaks."""

TlsKind = Literal["good", "expired", "self_signed", "wrong_host", "stalls"]


# --- the bill ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """One model's prices: decimal texts, US dollars per million tokens."""

    input: str
    output: str
    input_cached: str | None = None  # None: as `input`
    cache_write: str | None = None  # None: as `input`
    cache_write_1h: str | None = None  # None: as `cache_write`
    output_reasoning: str | None = None  # None: as `output`

    def charge(self, counts: "Counts") -> int:
        """Pico-dollars, exact; a rest is rounded half to even."""
        pico_a_token = Fraction(10**12, 10**6)
        written = min(counts.written, counts.prompt - counts.cached)
        kept = min(counts.written_1h, written)
        total = (
            (counts.prompt - counts.cached - written) * Fraction(self.input)
            + counts.cached * Fraction(self.input_cached or self.input)
            + (written - kept) * Fraction(self.cache_write or self.input)
            + kept * Fraction(self.cache_write_1h or self.cache_write or self.input)
            + (counts.completion - counts.reasoning) * Fraction(self.output)
            + counts.reasoning * Fraction(self.output_reasoning or self.output)
        )
        return round(total * pico_a_token)


@dataclass(slots=True, kw_only=True)
class Charge:
    """What one attempt costs its caller, as the provider sees it."""

    attempt: str
    model: str
    counts: Counts
    pico_usd: int = 0
    reported: bool = False  # the usage went out to the caller, as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast it answers, in seconds. The default needs no waiting in tests."""

    first_token_seconds: float = 0.0
    gap_seconds: float = 0.0
    drip_seconds: float = 0.01  # between the bytes of a drip


# --- the server -------------------------------------------------------------------------------------------


class FakeProvider:
    """The server. An async context manager; everything on it may be used from the same event loop."""

    def __init__(
        self,
        *,
        name: str = "a",
        prices: Mapping[str, Prices] | None = None,
        default_prices: Prices = Prices(input="1", input_cached="0.1", output="4"),
        api_key: str | None = None,  # given: any other key gets 401, in whichever header it comes
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
        self.memory = Memory(name=name, block_bytes=cache_block_tokens * 4)
        self._kept: dict[str, bytes] = {}  # idempotency key -> the whole answer given for it
        self._queue: deque[str] = deque()
        self._turns: deque[Turn] = deque()
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
        known(fault)
        self._queue.extend([fault] * times)

    def always(self, fault: str | None) -> None:
        """Show this fault to every request that has none of its own. None: no more."""
        if fault is not None:
            known(fault)
        self._always = fault

    def turns(self, said: Sequence[Part | Sequence[Part]]) -> None:
        """What the model says next, to requests that offer tools: a part or a list of parts each.

        A turn that does not reach its caller whole is said again to the next one.
        """
        for one in said:
            turn = tuple(one) if isinstance(one, Sequence) else (one,)
            thoughts = [isinstance(part, Thought) for part in turn]
            if thoughts != sorted(thoughts, reverse=True):
                raise ValueError("thoughts come first in a turn")
            self._turns.append(turn)

    @property
    def turns_left(self) -> int:
        return len(self._turns)

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
            if split(name)[0] in ON_HEADERS:
                return self._queue.popleft()
        name = name or self._always
        return name if name and split(name)[0] in ON_HEADERS else None

    def fault_for(self, seen: Seen, user: object) -> str:
        """The fault of a request for this user whose body is read; sets its tag. `none` for none."""
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
        path = seen.endpoint
        if path == "/__bill":
            return iter([Send(whole(200, dumps(self.bill())))]), None
        if path == "/__seen":
            return iter([Send(whole(200, dumps([_described(one) for one in self.seen])))]), None
        body = seen.json()
        wire = WIRES.get(path) if seen.method == "POST" else None
        speaks = wire or _nearest(path)
        name = known_fault or self.fault_for(seen, speaks.user(body))
        seen.fault = "" if name == "none" else name
        if self.api_key is not None and self.api_key not in seen.keys.values():
            kind, code = "invalid_request_error", "invalid_api_key"
            return iter([Send(speaks.error(401, "Incorrect API key provided", kind, code))]), None
        if wire is None:
            return iter([Send(self._plain_answer(seen, speaks))]), None
        key = seen.headers.get("idempotency-key")
        if key is not None and key in self._kept:
            return iter([Send(self._kept[key], event=True)]), None
        if known_fault is None and (refused := wire.refusal(seen, body, self.memory)) is not None:
            return iter([Send(refused)]), None
        asked = self._understood(seen, wire, body, split(name)[1])
        if key is not None:
            self._kept[key] = b"".join(s.raw for s in answer(asked) if isinstance(s, Send))
        return FAULTS[known(name)](asked), asked

    def _plain_answer(self, seen: Seen, speaks: Wire) -> bytes:
        """What is no work for a model: lists of models, a response by its id, and paths that are none."""
        path = seen.endpoint
        if seen.method == "HEAD":
            return head(200, "content-length: 0")
        if path == "/v1/responses" and "upgrade" in seen.headers:
            return speaks.error(426, "Only POST here", "invalid_request_error", None)
        if path.startswith("/v1/responses/"):
            return later(seen, self.memory, RESPONSES)
        if seen.method == "GET" and path == "/v1/models":
            return _model_list(seen, self.models)
        return speaks.error(404, f"Invalid URL ({seen.method} {path})", "invalid_request_error", None)

    def _understood(self, seen: Seen, wire: Wire, body: Mapping[str, Any], argument: str) -> Asked:
        model = body.get("model")
        limit = wire.limit(body)
        count = self.answer_tokens
        short = isinstance(limit, int) and not isinstance(limit, bool) and 0 < limit < count
        if short:
            count = cast("int", limit)
        options = body.get("stream_options")
        asks = isinstance(options, dict) and cast("dict[str, Any]", options).get("include_usage") is True
        n = body.get("n")
        turn: Turn = (Text(words_for(seen.body, count)),) if wire.speaks else ()
        told = wire.speaks and bool(body.get("tools")) and bool(self._turns)
        if told:
            turn, short = self._turns.popleft(), False
        return Asked(
            seen=seen,
            wire=wire,
            argument=argument,
            counts=wire.counts(body, self.memory),
            model=model if isinstance(model, str) else "",
            turn=turn,
            told=told,
            by=self.name,
            cut_short=short,
            stream=wire.streams and body.get("stream") is True,
            include_usage=asks,
            choices=n if isinstance(n, int) and 0 < n <= 128 else 1,
            now=self.now(),
        )

    def ended(self, asked: Asked, *, whole: bool) -> None:
        """An answer came to its end, whole or not."""
        out = asked.ended if asked.stream else asked.counts.completion >= len(asked.words)
        if whole and out:
            asked.wire.said(asked, self.memory)
        elif asked.told:
            self._turns.appendleft(asked.turn)

    def charge(self, asked: Asked, *, new_tokens: int, reports: bool) -> None:
        """Book what has been produced so far."""
        name = asked.seen.attempt
        asked.counts.completion += new_tokens
        asked.counts.reasoning = asked.hidden + min(asked.thoughts, asked.counts.completion - asked.hidden)
        price = self.prices.get(asked.model, self.default_prices)
        known = self.charges.get(name)
        self.charges[name] = Charge(
            attempt=name,
            model=asked.model,
            counts=asked.counts,
            pico_usd=0 if asked.wire.free else price.charge(asked.counts),
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
        self._discards = False
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
        if self._discards:
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
            kept = False
            try:
                kept = await self._run(script, seen, asked)
            finally:
                if asked is not None:
                    self.provider.ended(asked, whole=kept)
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
                case Discard():
                    self._discards = True
                    self.transport.resume_reading()
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
        if asked is not None and (step.tokens or step.reports or step.books):
            self.provider.charge(asked, new_tokens=step.tokens, reports=step.reports)
        if asked is not None and step.ends:
            asked.ended = True
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
        while self.transport.get_write_buffer_size():
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
            at_seconds=asyncio.get_running_loop().time(),
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


def _nearest(path: str) -> Wire:
    """Whose errors a path has that is none of the endpoints."""
    return WIRES["/v1/messages" if path.startswith("/v1/messages") else "/v1/chat/completions"]


def _model_list(seen: Seen, models: Sequence[str]) -> bytes:
    """In Anthropic's form for who names a version of Anthropic's API, else in OpenAI's."""
    if "anthropic-version" not in seen.headers:
        listed = [{"id": m, "object": "model", "created": CREATED, "owned_by": "fake"} for m in models]
        return whole(200, dumps({"object": "list", "data": listed}), "x-request-id: req_fake")
    made = datetime.fromtimestamp(CREATED, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    listed = [{"type": "model", "id": m, "display_name": m, "created_at": made} for m in models]
    ends = {"first_id": models[0], "last_id": models[-1]} if models else {"first_id": None, "last_id": None}
    return whole(200, dumps({"data": listed, "has_more": False} | ends), "request-id: req_fake")


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

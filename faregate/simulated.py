"""The simulated provider of a first start without provider keys: OpenAI's chat wire, no model behind it.

It exists so that everything else can be tried: routing, streaming, budgets, costs, the dashboard. Every
answer begins with `[simulated answer]` and says that no model was asked. Its token counts are a quarter of
the bytes; a prefix that came before counts as cached. It keeps digests of prompts, so many at most, no text.
"""

import asyncio
import hashlib
import hmac
import json
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

MARK = "[simulated answer]"
MAX_BODY_BYTES = 64 * 2**20
MAX_HEAD_BYTES = 64 * 2**10
BLOCK_TOKENS = 32  # of the simulated prefix cache
CACHED_BLOCKS = 50_000  # remembered at most; the oldest go first


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How a simulated model feels."""

    first_token_seconds: float
    tokens_per_second: float


ANY_OTHER = Speed(first_token_seconds=0.3, tokens_per_second=100)
"""Of every other name: it stands in for any model of any provider."""

MODELS: Mapping[str, Speed] = {
    "sim-fast": Speed(first_token_seconds=0.15, tokens_per_second=150),
    "sim-standard": Speed(first_token_seconds=0.4, tokens_per_second=80),
    "sim-small": Speed(first_token_seconds=0.05, tokens_per_second=250),
}


class Simulated:
    """The running server. `close` ends it and every connection."""

    def __init__(self, server: asyncio.Server, connections: set["asyncio.Task[None]"], base_url: str) -> None:
        self._server = server
        self._connections = connections
        self.base_url = base_url

    async def close(self) -> None:
        self._server.close()
        waiting = list(self._connections)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def serve(host: str, port: int, *, api_key: str, time_scale: float = 1.0) -> Simulated:
    """Listen (port 0: any free one) and answer whoever has the key.

    `time_scale` stretches every wait; 0 answers at once. Raises OSError when the port is taken.
    """
    cache = PrefixCache()
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        connections.add(task)
        try:
            while await _one_request(reader, writer, cache, api_key, time_scale):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the caller left, or does not speak HTTP
        except asyncio.CancelledError:
            pass  # we are closing; nobody waits for this task's result but `close`
        finally:
            connections.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, host, port, limit=MAX_HEAD_BYTES, backlog=1024)
    bound = server.sockets[0].getsockname()[1]
    return Simulated(server, connections, f"http://{host}:{bound}/v1")


# --- what it says


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer, before it is put on the wire."""

    id: str
    model: str
    created: int
    text: str
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int

    @property
    def completion_tokens(self) -> int:
        return tokens_of(self.text)

    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }


class PrefixCache:
    """Which prompt prefixes came before, by digest, per model."""

    def __init__(self, capacity: int = CACHED_BLOCKS) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def cached_tokens(self, model: str, prompt: bytes) -> int:
        """How many leading tokens came before, in whole blocks; remembers the prompt."""
        digest, cached, unbroken = hashlib.sha256(model.encode()), 0, True
        size = BLOCK_TOKENS * 4
        for end in range(size, len(prompt) + 1, size):
            digest.update(prompt[end - size : end])
            block = digest.digest()[:16]
            unbroken = unbroken and block in self._blocks
            if unbroken:
                cached = end // 4
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return cached


def tokens_of(text: str | bytes) -> int:
    """A quarter of the bytes, rounded up."""
    size = len(text.encode()) if isinstance(text, str) else len(text)
    return -(-size // 4)


def reply_to(body: Mapping[str, Any], cache: PrefixCache, *, created: int) -> Reply:
    """The answer to one chat request, whose `model` is a text and whose `messages` is a list."""
    model = cast("str", body["model"])
    prompt = _dumps([body.get("tools"), body["messages"]])
    text = _text_for(model, body, prompt)
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    finish = "stop"
    if isinstance(limit, int) and 0 < limit < tokens_of(text):
        text, finish = text.encode()[: limit * 4].decode(errors="ignore"), "length"
    return Reply(
        id="chatcmpl-simulated-" + hashlib.sha256(prompt).hexdigest()[:12],
        model=model,
        created=created,
        text=text,
        finish_reason=finish,
        prompt_tokens=tokens_of(prompt),
        cached_tokens=cache.cached_tokens(model, prompt),
    )


def _text_for(model: str, body: Mapping[str, Any], prompt: bytes) -> str:
    told = (
        f"{MARK} No model was asked: Faregate runs without provider keys, and {model} is a stand-in for one.",
        f"{MARK} This text comes from Faregate's simulated provider ({model}), not from a language model.",
        f"{MARK} {model} does not think. Set a provider key, restart, and a real model answers here.",
    )[hashlib.sha256(prompt).digest()[0] % 3]
    wanted = body.get("response_format")
    kind = cast("dict[str, Any]", wanted).get("type") if isinstance(wanted, dict) else None
    if kind in ("json_object", "json_schema"):
        return json.dumps({"simulated": True, "answer": told})
    messages = len(cast("list[object]", body["messages"]))
    read = f"It was sent {messages} message{'' if messages == 1 else 's'}, about {tokens_of(prompt)} tokens."
    return f"{told} {read} The route, the tokens and the cost you see are computed as for a real answer."


def whole_answer(reply: Reply) -> bytes:
    """The answer as one JSON body."""
    message = {"role": "assistant", "content": reply.text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish_reason}
    return _dumps(_common(reply, "chat.completion") | {"choices": [choice], "usage": reply.usage()})


def stream_events(reply: Reply, *, include_usage: bool) -> Iterator[bytes]:
    """The answer as events: role, words, the reason it ended, the usage if it was asked for, [DONE]."""
    common = _common(reply, "chat.completion.chunk")

    def event(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return b"data: " + _dumps(common | {"choices": [choice]}) + b"\n\n"

    yield event({"role": "assistant", "content": ""})
    for n, word in enumerate(reply.text.split(" ")):
        yield event({"content": f" {word}" if n else word})
    yield event({}, reply.finish_reason)
    if include_usage:
        no_choices: list[object] = []
        yield b"data: " + _dumps(common | {"choices": no_choices, "usage": reply.usage()}) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _common(reply: Reply, kind: str) -> dict[str, Any]:
    return {
        "id": reply.id,
        "object": kind,
        "created": reply.created,
        "model": reply.model,
        "system_fingerprint": "simulated",
    }


# --- how it is put on the wire


async def _one_request(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    cache: PrefixCache,
    api_key: str,
    time_scale: float,
) -> bool:
    """Read one request and answer it. False: the connection is finished with."""
    first, headers = _head(await reader.readuntil(b"\r\n\r\n"))
    try:
        length = int(headers.get("content-length", "0"))
    except ValueError:
        length = -1
    if "transfer-encoding" in headers or not 0 <= length <= MAX_BODY_BYTES:
        await _send_error(
            writer, 413, "this request's body cannot be read: too large, or of no stated length"
        )
        return False
    raw = await reader.readexactly(length)
    method, path = first[0], first[1].partition("?")[0]
    if not hmac.compare_digest(headers.get("authorization", "").encode(), f"Bearer {api_key}".encode()):
        await _send_error(writer, 401, "this is not the simulated provider's key")
    elif (method, path) == ("GET", "/v1/models"):
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "simulated"} for name in MODELS]
        await _send(writer, 200, _dumps({"object": "list", "data": listed}))
    elif (method, path) != ("POST", "/v1/chat/completions"):
        await _send_error(writer, 404, f"the simulated provider has no {method} {path}")
    else:
        await _chat(raw, writer, cache, time_scale)
    return headers.get("connection", "").lower() != "close"


async def _chat(raw: bytes, writer: asyncio.StreamWriter, cache: PrefixCache, time_scale: float) -> None:
    try:
        body: Any = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or not isinstance(cast("dict[str, Any]", body).get("messages"), list):
        await _send_error(writer, 400, "a chat request is a JSON object with a list of messages")
        return
    request = cast("dict[str, Any]", body)
    model = request.get("model")
    if not isinstance(model, str) or not 0 < len(model) <= 200:
        await _send_error(writer, 400, "a chat request names a model")
        return
    reply = reply_to(request, cache, created=int(time.time()))
    speed = MODELS.get(model, ANY_OTHER)
    if request.get("stream") is not True:
        seconds = speed.first_token_seconds + reply.completion_tokens / speed.tokens_per_second
        await asyncio.sleep(seconds * time_scale)
        await _send(writer, 200, whole_answer(reply))
        return
    options = request.get("stream_options")
    asks = isinstance(options, dict) and cast("dict[str, Any]", options).get("include_usage") is True
    writer.write(_response_head(200, "text/event-stream; charset=utf-8", b"transfer-encoding: chunked"))
    pause = speed.first_token_seconds  # after the role, before the first word
    for event in stream_events(reply, include_usage=asks):
        writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        await writer.drain()
        await asyncio.sleep(pause * time_scale)
        pause = 1 / speed.tokens_per_second
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _head(raw: bytes) -> tuple[list[str], dict[str, str]]:
    """The words of the request line, at least two, and the headers by lower-case name."""
    first, *lines = raw.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return [*first.split(" "), "", ""], {name.strip().lower(): value.strip() for name, _, value in pairs}


def _response_head(status: int, content_type: str, framing: bytes) -> bytes:
    return (
        b"HTTP/1.1 %d %b\r\nx-simulated: true\r\ncontent-type: %b\r\n%b\r\n\r\n"
        % (status, b"OK" if status == 200 else b"Error", content_type.encode(), framing)
    )  # fmt: skip


async def _send(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    writer.write(_response_head(status, "application/json", b"content-length: %d" % len(body)) + body)
    await writer.drain()


async def _send_error(writer: asyncio.StreamWriter, status: int, message: str) -> None:
    kind = "invalid_request_error"
    codes = {401: "invalid_api_key", 404: "not_found", 413: "request_too_large", 400: "invalid_value"}
    body = {"error": {"message": f"simulated: {message}", "type": kind, "param": None, "code": codes[status]}}
    await _send(writer, status, _dumps(body))


def _dumps(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

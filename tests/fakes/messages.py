"""Anthropic's messages and their counting, as the fake provider words them.

Input, cache reads and cache writes are told beside one another, and only what the caller marked is cached. A
thinking block is signed; one that comes back changed is refused.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, cast

from tests.fakes.answers import (
    OMITTED,
    Asked,
    Counts,
    Event,
    FreeToolCall,
    Part,
    Seen,
    Text,
    Thought,
    ToolCall,
    Wire,
    dumps,
    finished,
    named,
    whole,
)
from tests.fakes.memory import Memory, PromptBlock

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""https://docs.anthropic.com/en/api/errors, read 2026-12-01; any other status is an `api_error`."""


class Messages(Wire):
    """`POST /v1/messages`."""

    prompt_name, completion_name = "input_tokens", "output_tokens"

    # --- asking

    def refusal(self, seen: Seen, body: Mapping[str, Any], memory: Memory) -> bytes | None:
        if "anthropic-version" not in seen.headers:
            return self._refused("anthropic-version: header is required")
        if not isinstance(body.get("max_tokens"), int):
            return self._refused("max_tokens: Field required")
        return self._wrong_thought(body)

    def _wrong_thought(self, body: Mapping[str, Any]) -> bytes | None:
        for i, message in enumerate(_list(body.get("messages"))):
            for j, block in enumerate(_list(message.get("content"))):
                if block.get("type") == "thinking" and block.get("signature") != signature(block["thinking"]):
                    return self._refused(f"messages.{i}.content.{j}: Invalid `signature` in `thinking` block")
        return None

    def _refused(self, message: str) -> bytes:
        return self.error(400, message, "", None)

    def counts(self, body: Mapping[str, Any], memory: Memory) -> Counts:
        return memory.marked_prompt(body.get("model"), list(_blocks(body)))

    def user(self, body: Mapping[str, Any]) -> object:
        metadata = body.get("metadata")
        return cast("Mapping[str, Any]", metadata).get("user_id") if isinstance(metadata, dict) else None

    # --- answering

    def answer_headers(self, now: datetime) -> tuple[str, ...]:
        reset = (now + timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return (
            "request-id: req_fake",
            "anthropic-organization-id: 00000000-0000-0000-0000-canary123456",
            "anthropic-ratelimit-requests-limit: 4000",
            "anthropic-ratelimit-requests-remaining: 3999",
            f"anthropic-ratelimit-requests-reset: {reset}",
            "anthropic-ratelimit-tokens-limit: 400000",
            "anthropic-ratelimit-tokens-remaining: 399000",
            f"anthropic-ratelimit-tokens-reset: {reset}",
        )

    def usage(self, counts: Counts) -> dict[str, Any]:
        return self._input(counts) | {
            "cache_creation": {
                "ephemeral_5m_input_tokens": counts.written - counts.written_1h,
                "ephemeral_1h_input_tokens": counts.written_1h,
            },
            "output_tokens": counts.completion,
            "service_tier": "standard",
        }

    def _input(self, counts: Counts) -> dict[str, Any]:
        return {
            "input_tokens": counts.prompt - counts.cached - counts.written,
            "cache_creation_input_tokens": counts.written,
            "cache_read_input_tokens": counts.cached,
        }

    def body(self, asked: Asked, usage: object) -> bytes:
        made = self._message(asked) | {
            "content": [_whole_block(asked, i, part) for i, part in enumerate(asked.turn)],
            "stop_reason": _stop_reason(asked),
        }
        if usage is not OMITTED:
            made["usage"] = usage if usage is not None else self.usage(finished(asked))
        return dumps(made)

    def _message(self, asked: Asked) -> dict[str, Any]:
        return {
            "id": asked.id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": asked.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }

    def events(self, asked: Asked, usage: object) -> list[Event]:
        """The usage comes twice: the input at the start with a first token, all of it at the end."""
        message = self._message(asked)
        last: dict[str, Any] = {
            "type": "message_delta",
            "delta": {"stop_reason": _stop_reason(asked), "stop_sequence": None},
        }
        if usage is not OMITTED:
            done = finished(asked)
            message["usage"] = self.usage(done) | {"output_tokens": 1}
            true = self._input(done) | {"output_tokens": done.completion}
            last["usage"] = usage if usage is not None else true
        made = [_event("opening", {"type": "message_start", "message": message}, books=True)]
        for i, part in enumerate(asked.turn):
            made.append(
                _event(
                    "frame",
                    {
                        "type": "content_block_start",
                        "index": i,
                        "content_block": _empty_block(asked, i, part),
                    },
                )
            )
            if i == 0:
                made.append(_event("frame", {"type": "ping"}))
            for change, billed in _deltas(part):
                one = {"type": "content_block_delta", "index": i, "delta": change}
                made.append(_event("content" if billed else "frame", one, tokens=billed))
            made.append(_event("frame", {"type": "content_block_stop", "index": i}))
        made.append(_event("finish" if usage is OMITTED else "usage", last))
        made.append(_event("done", {"type": "message_stop"}))
        return made

    def error(self, status: int, message: str, type_: str, code: str | None, *headers: str) -> bytes:
        problem = {"type": ERROR_TYPES.get(status, "api_error"), "message": message}
        body = {"type": "error", "error": problem, "request_id": "req_fake"}
        return whole(status, dumps(body), "request-id: req_fake", *headers)

    def error_body(self) -> bytes:
        return dumps({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})

    def error_event(self, asked: Asked) -> bytes:
        return b"event: error\ndata: " + self.error_body() + b"\n\n"


class CountTokens(Messages):
    """`POST /v1/messages/count_tokens`: free, and no model speaks."""

    free = True
    streams = False
    speaks = False

    def refusal(self, seen: Seen, body: Mapping[str, Any], memory: Memory) -> bytes | None:
        if "anthropic-version" not in seen.headers:
            return self._refused("anthropic-version: header is required")
        return self._wrong_thought(body)

    def counts(self, body: Mapping[str, Any], memory: Memory) -> Counts:
        return Memory(name="", block_bytes=1).marked_prompt("", list(_blocks(body)))

    def body(self, asked: Asked, usage: object) -> bytes:
        return dumps({"input_tokens": asked.counts.prompt})


def signature(thought: str) -> str:
    """What a thinking block is signed with. A real one also fits only its own text."""
    return base64.b64encode(b"signed:" + hashlib.sha256(thought.encode()).digest()).decode()


def _blocks(body: Mapping[str, Any]) -> Iterator[PromptBlock]:
    """The prompt in the order in which it is cached: tools, system, messages."""
    found = [(dumps(_unmarked(tool)), tool) for tool in _list(body.get("tools"))]
    system = body.get("system")
    for one in [{"text": system}] if isinstance(system, str) else _list(system):
        found.append((b"system" + dumps(_unmarked(one)), one))
    for message in _list(body.get("messages")):
        content = message.get("content")
        for one in [{"type": "text", "text": content}] if isinstance(content, str) else _list(content):
            found.append((str(message.get("role")).encode() + dumps(_unmarked(one)), one))
    everywhere = _ttl(body)  # marked as a whole: as if its last block were
    for i, (raw, block) in enumerate(found):
        yield PromptBlock(raw=raw, keep_for=_ttl(block) or (everywhere if i == len(found) - 1 else None))


def _list(value: object) -> list[dict[str, Any]]:
    many = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", one) for one in many if isinstance(one, dict)]


def _unmarked(block: Mapping[str, Any]) -> dict[str, Any]:
    """A mark may move from one request to the next; what it marks stays the same."""
    return {name: value for name, value in block.items() if name != "cache_control"}


def _ttl(block: Mapping[str, Any]) -> str | None:
    mark = block.get("cache_control")
    return cast("Mapping[str, str]", mark).get("ttl", "5m") if isinstance(mark, dict) else None


def _stop_reason(asked: Asked) -> str:
    if asked.calls_tools:
        return "tool_use"
    return "max_tokens" if asked.cut_short else "end_turn"


def _event(kind: Any, value: Mapping[str, Any], *, tokens: int = 0, books: bool = False) -> Event:
    return Event(named(value), tokens, kind, books)


def _empty_block(asked: Asked, index: int, part: Part) -> dict[str, Any]:
    match part:
        case Thought():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case Text():
            return {"type": "text", "text": ""}
        case ToolCall():
            return {"type": "tool_use", "id": asked.id("toolu_", index), "name": part.name, "input": {}}
        case FreeToolCall():
            raise ValueError("a tool with a free text as its input is for the responses wire")


def _whole_block(asked: Asked, index: int, part: Part) -> dict[str, Any]:
    empty = _empty_block(asked, index, part)
    if isinstance(part, ToolCall):
        return empty | {"input": dict(part.arguments)}
    text = "".join(part.pieces)
    if isinstance(part, Thought):
        return empty | {"thinking": text, "signature": signature(text)}
    return empty | {"text": text}


def _deltas(part: Part) -> Iterator[tuple[dict[str, Any], int]]:
    """What each event adds to its block, and its tokens."""
    if isinstance(part, Text):
        name = "thinking" if isinstance(part, Thought) else "text"
        for piece in part.pieces:
            yield {"type": f"{name}_delta", name: piece}, 1
        if isinstance(part, Thought):
            yield {"type": "signature_delta", "signature": signature("".join(part.pieces))}, 0
        return
    yield {"type": "input_json_delta", "partial_json": ""}, 0
    for piece in part.pieces:
        yield {"type": "input_json_delta", "partial_json": piece}, 1

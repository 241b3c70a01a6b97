"""OpenAI's chat completions, and the older text completions, as the fake provider words them."""

import hashlib
from collections.abc import Mapping
from typing import Any

from tests.fakes.answers import (
    CREATED,
    OMITTED,
    Asked,
    Counts,
    Event,
    FreeToolCall,
    Text,
    Thought,
    ToolCall,
    Wire,
    data,
    dumps,
    finished,
)
from tests.fakes.memory import Memory

DONE = b"data: [DONE]\n\n"


class Chat(Wire):
    """`POST /v1/chat/completions`."""

    def counts(self, body: Mapping[str, Any], memory: Memory) -> Counts:
        return memory.prompt(body.get("model"), [body.get("tools"), body.get("messages")])

    def limit(self, body: Mapping[str, Any]) -> object:
        return body.get("max_completion_tokens", body.get("max_tokens"))

    def usage(self, counts: Counts) -> dict[str, Any]:
        return usage_object(counts)

    def body(self, asked: Asked, usage: object) -> bytes:
        made = completion(asked, usage=usage)
        if usage is OMITTED:
            del made["usage"]
        return dumps(made)

    def events(self, asked: Asked, usage: object) -> list[Event]:
        """Asked for usage, every chunk has a `usage`, null but for the last."""
        opening = {"role": "assistant", "content": "", "refusal": None}
        made = [Event(data(event(asked, [delta(i, opening)])), kind="opening") for i in range(asked.choices)]
        for change, billed in _changes(asked):
            made += [
                Event(data(event(asked, [delta(i, change)])), billed, "content" if billed else "frame")
                for i in range(asked.choices)
            ]
        made += [
            Event(data(event(asked, [delta(i, {}, finish_reason(asked))])), kind="finish")
            for i in range(asked.choices)
        ]
        if asked.include_usage and usage is not OMITTED:
            report = usage if usage is not None else usage_object(finished(asked))
            made.append(Event(data(event(asked, [], usage=report)), kind="usage"))
        made.append(Event(DONE, kind="done"))
        return made


class TextCompletions(Wire):
    """`POST /v1/completions`."""

    def counts(self, body: Mapping[str, Any], memory: Memory) -> Counts:
        return memory.prompt(body.get("model"), body.get("prompt"))

    def usage(self, counts: Counts) -> dict[str, Any]:
        return usage_object(counts)

    def body(self, asked: Asked, usage: object) -> bytes:
        text = "".join(asked.words)
        made = self._object(
            asked, [self._choice(i, text, finish_reason(asked)) for i in range(asked.choices)]
        )
        if usage is not OMITTED:
            made["usage"] = usage if usage is not None else usage_object(finished(asked))
        return dumps(made)

    def events(self, asked: Asked, usage: object) -> list[Event]:
        null = {"usage": None} if asked.include_usage else {}
        made: list[Event] = []
        for word in asked.words:
            for i in range(asked.choices):
                made.append(Event(data(self._object(asked, [self._choice(i, word, None)]) | null), 1))
        for i in range(asked.choices):
            last = self._object(asked, [self._choice(i, "", finish_reason(asked))])
            made.append(Event(data(last | null), kind="finish"))
        if asked.include_usage and usage is not OMITTED:
            report = usage if usage is not None else usage_object(finished(asked))
            made.append(Event(data(self._object(asked, []) | {"usage": report}), kind="usage"))
        made.append(Event(DONE, kind="done"))
        return made

    def _object(self, asked: Asked, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": asked.id("cmpl-"),
            "object": "text_completion",
            "created": CREATED,
            "model": asked.model,
            "choices": choices,
        }

    def _choice(self, index: int, text: str, finish: str | None) -> dict[str, Any]:
        return {"text": text, "index": index, "logprobs": None, "finish_reason": finish}


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


def completion(
    asked: Asked, *, message: Mapping[str, Any] | None = None, usage: object = None
) -> dict[str, Any]:
    """A whole answer as JSON."""
    said: Mapping[str, Any] = message or _message(asked)
    return {
        "id": _id(asked),
        "object": "chat.completion",
        "created": CREATED,
        "model": asked.model,
        "choices": [
            {"index": i, "message": dict(said), "logprobs": None, "finish_reason": finish_reason(asked)}
            for i in range(asked.choices)
        ],
        "usage": usage if usage is not None else usage_object(finished(asked)),
        "service_tier": "default",
        "system_fingerprint": "fp_fake",
    }


def event(asked: Asked, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """One chunk of a stream as JSON."""
    made: dict[str, Any] = {
        "id": _id(asked),
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


def finish_reason(asked: Asked) -> str:
    if asked.calls_tools:
        return "tool_calls"
    return "length" if asked.cut_short else "stop"


def _id(asked: Asked) -> str:
    """The same for the same body, so that answers can be compared."""
    return "chatcmpl-" + hashlib.sha256(asked.seen.body).hexdigest()[:16]


def _tool_calls(asked: Asked) -> list[ToolCall]:
    if any(isinstance(part, FreeToolCall) for part in asked.turn):
        raise ValueError("a tool with a free text as its input is for the responses wire")
    return [part for part in asked.turn if isinstance(part, ToolCall)]


def _call(asked: Asked, index: int, call: ToolCall, arguments: str) -> dict[str, Any]:
    return {
        "id": asked.id("call_", index),
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _message(asked: Asked) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    texts = [p for part in asked.turn if type(part) is Text for p in part.pieces]
    thoughts = [p for part in asked.turn if isinstance(part, Thought) for p in part.pieces]
    calls = [_call(asked, i, c, "".join(c.pieces)) for i, c in enumerate(_tool_calls(asked))]
    if texts:
        said["content"] = "".join(texts)
    if thoughts:
        said["reasoning_content"] = "".join(thoughts)
    if calls:
        said["tool_calls"] = calls
    return said


def _changes(asked: Asked) -> list[tuple[dict[str, Any], int]]:
    """What each event of the stream adds, and its tokens."""
    made: list[tuple[dict[str, Any], int]] = []
    for part in asked.turn:
        if isinstance(part, Text):
            name = "reasoning_content" if isinstance(part, Thought) else "content"
            made += [({name: piece}, 1) for piece in part.pieces]
    for i, call in enumerate(_tool_calls(asked)):
        made.append(({"tool_calls": [{"index": i} | _call(asked, i, call, "")]}, 0))
        made += [
            ({"tool_calls": [{"index": i, "function": {"arguments": piece}}]}, 1) for piece in call.pieces
        ]
    return made

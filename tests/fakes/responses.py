"""OpenAI's responses, as the fake provider words them, and what can be asked of one later by its id.

A response that is not to be stored cannot be found again. Reasoning comes back encrypted and only the provider that
made it can read it: any other refuses it.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, cast

from tests.fakes.answers import (
    CREATED,
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
from tests.fakes.memory import KeptResponse, Memory


class Responses(Wire):
    """`POST /v1/responses`."""

    prompt_name, completion_name = "input_tokens", "output_tokens"

    # --- asking

    def refusal(self, seen: Seen, body: Mapping[str, Any], memory: Memory) -> bytes | None:
        before = body.get("previous_response_id")
        if before is not None and before not in memory.responses:
            return self.wrong(
                f"Previous response with id '{before}' not found.",
                "previous_response_id",
                "previous_response_not_found",
            )
        for item in _items(body):
            locked = item.get("encrypted_content") if item.get("type") == "reasoning" else None
            if locked is not None and not str(locked).startswith(_lock(memory.name)):
                return self.wrong(
                    "The encrypted content could not be verified.", None, "invalid_encrypted_content"
                )
        return None

    def wrong(self, message: str, param: str | None, code: str | None, status: int = 400) -> bytes:
        problem = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
        return whole(status, dumps({"error": problem}), "x-request-id: req_fake")

    def counts(self, body: Mapping[str, Any], memory: Memory) -> Counts:
        parts = [body.get("tools"), body.get("instructions"), input_items(body, memory)]
        return memory.prompt(body.get("model"), parts)

    def limit(self, body: Mapping[str, Any]) -> object:
        return body.get("max_output_tokens")

    # --- answering

    def usage(self, counts: Counts) -> dict[str, Any]:
        inside = {"cached_tokens": counts.cached, "cache_write_tokens": counts.written}
        return {
            "input_tokens": counts.prompt,
            "input_tokens_details": inside,
            "output_tokens": counts.completion,
            "output_tokens_details": {"reasoning_tokens": counts.reasoning},
            "total_tokens": counts.prompt + counts.completion,
        }

    def body(self, asked: Asked, usage: object) -> bytes:
        if asked.body.get("background") is True:
            return dumps(self.state(asked, "queued", output=[]))
        return dumps(self.done(asked, usage))

    def done(self, asked: Asked, usage: object = None) -> dict[str, Any]:
        """The response once it is all there."""
        made = self.state(
            asked,
            "incomplete" if asked.cut_short else "completed",
            output=[_item(asked, i, part) for i, part in enumerate(asked.turn)],
        )
        if usage is OMITTED:
            del made["usage"]
        else:
            made["usage"] = usage if usage is not None else self.usage(finished(asked))
        return made

    def state(self, asked: Asked, status: str, **more: Any) -> dict[str, Any]:
        body = asked.body
        short = status == "incomplete"
        made: dict[str, Any] = {
            "id": asked.id("resp_"),
            "object": "response",
            "created_at": CREATED,
            "status": status,
            "background": body.get("background") is True,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if short else None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "model": asked.model,
            "output": [],
            "parallel_tool_calls": True,
            "previous_response_id": body.get("previous_response_id"),
            "prompt_cache_key": body.get("prompt_cache_key"),
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": body.get("store") is not False,
            "temperature": 1.0,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": body.get("tools") or [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": None,
            "user": None,
            "metadata": body.get("metadata") or {},
        }
        return made | more

    def events(self, asked: Asked, usage: object) -> list[Event]:
        made: list[Event] = []

        def say(kind: Any, type_: str, tokens: int = 0, **more: Any) -> None:
            value = {"type": f"response.{type_}", "sequence_number": len(made), **more}
            if kind == "content" and _obfuscates(asked):
                value["obfuscation"] = _noise(len(made), more["delta"])
            made.append(Event(named(value), tokens, kind))

        say("opening", "created", response=self.state(asked, "in_progress"))
        say("opening", "in_progress", response=self.state(asked, "in_progress"))
        for i, part in enumerate(asked.turn):
            empty, whole_item = _item(asked, i, part, empty=True), _item(asked, i, part)
            say("frame", "output_item.added", output_index=i, item=empty)
            for kind, type_, tokens, more in _steps(part):
                say(kind, type_, tokens, item_id=empty["id"], output_index=i, **more)
            say("frame", "output_item.done", output_index=i, item=whole_item)
        last = self.done(asked, usage)
        say("finish" if usage is OMITTED else "usage", str(last["status"]), response=last)
        return made

    def said(self, asked: Asked, memory: Memory) -> None:
        if asked.body.get("store") is not False:
            made = self.done(asked)
            memory.responses[made["id"]] = KeptResponse(body=made, input=input_items(asked.body, memory))

    def failed_event(self, asked: Asked, number: int, code: str) -> bytes:
        """The end of a stream that went wrong."""
        problem = {"code": code, "message": f"Fake failure: {code}"}
        response = self.state(asked, "failed", error=problem)
        return named({"type": "response.failed", "sequence_number": number, "response": response})

    def error_event(self, asked: Asked) -> bytes:
        return named(
            {
                "type": "error",
                "sequence_number": 99,
                "code": "server_error",
                "message": "The model is overloaded",
                "param": None,
            }
        )


def later(seen: Seen, memory: Memory, wire: Responses) -> bytes:
    """The answer to what is asked of a response by its id: itself, its input, its end."""
    _, _, _, name, *rest = seen.endpoint.split("/")
    kept = memory.responses.get(name)
    if kept is None:
        return wire.wrong(f"Response with id '{name}' not found.", "id", None, 404)
    match (seen.method, rest):
        case ("GET", []):
            return _found(kept.body)
        case ("DELETE", []):
            del memory.responses[name]
            return _found({"id": name, "object": "response", "deleted": True})
        case ("POST", ["cancel"]):
            if not kept.body["background"]:
                return wire.wrong("Cannot cancel a synchronous response.", None, None)
            kept.body["status"] = "cancelled"
            return _found(kept.body)
        case ("GET", ["input_items"]):
            listed = [{"id": f"item_{i}"} | item for i, item in enumerate(kept.input)]
            ends = {"first_id": listed[0]["id"], "last_id": listed[-1]["id"]} if listed else {}
            return _found({"object": "list", "data": listed, "has_more": False} | ends)
        case _:
            return wire.wrong(f"Invalid URL ({seen.method} {seen.endpoint})", None, None, 404)


def input_items(body: Mapping[str, Any], memory: Memory) -> list[dict[str, Any]]:
    """All that the model reads: what came before, and what is new."""
    before = memory.responses.get(str(body.get("previous_response_id")))
    return [*before.input, *before.body["output"], *_items(body)] if before else _items(body)


def _items(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = body.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    many = cast("list[Any]", given) if isinstance(given, list) else []
    return [cast("dict[str, Any]", one) for one in many if isinstance(one, dict)]


def _found(value: Mapping[str, Any]) -> bytes:
    return whole(200, dumps(value), "x-request-id: req_fake")


def _lock(name: str) -> str:
    return "gAAAAA" + base64.urlsafe_b64encode(f"only {name} reads this:".encode()).decode().rstrip("=")


def _obfuscates(asked: Asked) -> bool:
    options = asked.body.get("stream_options")
    return not (
        isinstance(options, dict) and cast("dict[str, Any]", options).get("include_obfuscation") is False
    )


def _noise(number: int, delta: str) -> str:
    """What makes an event's size say less about its text."""
    return hashlib.sha256(f"{number} {delta}".encode()).hexdigest()[: 16 - len(delta) % 16]


def _item(asked: Asked, index: int, part: Part, *, empty: bool = False) -> dict[str, Any]:
    """An item of the output, before its first delta or once it is all there."""
    text = "" if empty else "".join(part.pieces)
    status = {"status": "in_progress" if empty else "completed"}
    match part:
        case Thought():
            locked = _lock(asked.by) + hashlib.sha256("".join(part.pieces).encode()).hexdigest()
            summary = [] if empty else [{"type": "summary_text", "text": text}]
            made: dict[str, Any] = {"id": asked.id("rs_", index), "type": "reasoning", "summary": summary}
            return made | {"encrypted_content": locked}
        case Text():
            content = [] if empty else [_content(text)]
            made = {"id": asked.id("msg_", index), "type": "message", "role": "assistant"}
            return made | status | {"content": content}
        case ToolCall():
            made = {"id": asked.id("fc_", index), "type": "function_call", "name": part.name}
            return made | status | {"call_id": asked.id("call_", index), "arguments": text}
        case FreeToolCall():
            made = {"id": asked.id("ctc_", index), "type": "custom_tool_call", "name": part.name}
            return made | status | {"call_id": asked.id("call_", index), "input": text}


def _content(text: str) -> dict[str, Any]:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _steps(part: Part) -> Iterator[tuple[str, str, int, dict[str, Any]]]:
    """The events between an item's first and last: kind, type, tokens and what they say beside the item's place."""
    text = "".join(part.pieces)
    match part:
        case Thought():
            at = {"summary_index": 0}
            summary = {"type": "summary_text", "text": ""}
            yield "frame", "reasoning_summary_part.added", 0, at | {"part": summary}
            for piece in part.pieces:
                yield "content", "reasoning_summary_text.delta", 1, at | {"delta": piece}
            yield "frame", "reasoning_summary_text.done", 0, at | {"text": text}
            yield "frame", "reasoning_summary_part.done", 0, at | {"part": summary | {"text": text}}
        case Text():
            at = {"content_index": 0}
            yield "frame", "content_part.added", 0, at | {"part": _content("")}
            for piece in part.pieces:
                yield "content", "output_text.delta", 1, at | {"delta": piece, "logprobs": []}
            yield "frame", "output_text.done", 0, at | {"text": text, "logprobs": []}
            yield "frame", "content_part.done", 0, at | {"part": _content(text)}
        case ToolCall():
            for piece in part.pieces:
                yield "content", "function_call_arguments.delta", 1, {"delta": piece}
            yield "frame", "function_call_arguments.done", 0, {"arguments": text, "name": part.name}
        case FreeToolCall():
            for piece in part.pieces:
                yield "content", "custom_tool_call_input.delta", 1, {"delta": piece}
            yield "frame", "custom_tool_call_input.done", 0, {"input": text}

"""The request side of OpenAI's Responses wire: what a body asks for.

The form is that of OpenAI's API reference, responses/create (read 2026-12-01). What Codex sends does not fit the
published schema in places (measured, 2026-11), so nothing is refused for not fitting it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gateway.errors import json_too_deep
from gateway.wire.fields import (
    NOTHING,
    absent_or_null,
    flag,
    is_filled,
    is_list,
    kinds_of,
    limit,
    member,
    model_named,
    not_readable,
    parts_of,
    text_of,
)
from gateway.wire.json_scan import MAX_DEPTH, check_text, look
from gateway.wire.request import Request
from routers.classify import Peek
from routers.session import clean_id, session_in_user_id

_LIMITS = ("max_output_tokens",)
_SYSTEM = ("system", "developer")


class _Item(msgspec.Struct, gc=False):
    """One item of the input: a message (also without a type), a call, its output, a piece of reasoning."""

    type: Any = None
    role: Any = None
    content: msgspec.Raw = NOTHING
    output: msgspec.Raw = NOTHING

    @property
    def is_output(self) -> bool:
        return isinstance(self.type, str) and self.type.endswith("_output")


class _Body(msgspec.Struct, gc=False):
    model: Any = None
    input: msgspec.Raw = NOTHING
    instructions: msgspec.Raw = NOTHING
    tools: msgspec.Raw = NOTHING
    stream: Any = None
    max_output_tokens: Any = None
    reasoning: Any = None
    text: Any = None
    metadata: Any = None
    user: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    previous_response_id: Any = None
    service_tier: Any = None


_read_body = msgspec.json.Decoder(_Body).decode
_read_items = msgspec.json.Decoder(list[_Item]).decode


def read_response_request(body: bytes) -> Request:
    """Read a body of `POST /v1/responses` once. Raises GatewayError as `openai_chat.read_request` does."""
    check_text(body)
    try:
        read = _read_body(body)
    except RecursionError:
        raise json_too_deep(MAX_DEPTH) from None
    except msgspec.DecodeError as error:
        raise not_readable(body, error, of="input") from None
    places = look(body)
    if "model" not in places.names:
        raise absent_or_null("model", places)
    items = _items(read.input)
    kinds = _kinds(items)
    users = [item for item in items if item.role == "user"]
    metadata = read.metadata
    user_id = member(metadata, "user_id")
    kind = member(member(read.text, "format"), "type")
    user, user_end = _last_user_text(read.input, users)
    return Request(
        endpoint="responses",
        body=body,
        places=places,
        model=model_named(read.model, places),
        stream=flag("stream", read.stream),
        limits=_LIMITS,
        max_output_tokens=limit("max_output_tokens", read.max_output_tokens),
        messages=len(items) if items else 1,
        turn=len(users) or 1,
        has_images="input_image" in kinds,
        has_audio="input_audio" in kinds,
        has_tools=is_filled(read.tools),
        json_output=kind in ("json_object", "json_schema"),
        json_schema=kind == "json_schema",
        reasoning_effort=clean_id(member(read.reasoning, "effort")),
        service_tier=clean_id(read.service_tier),
        user=clean_id(read.user) or clean_id(read.safety_identifier) or clean_id(user_id),
        feature=clean_id(member(metadata, "feature")),
        customer=clean_id(member(metadata, "customer")),
        task=clean_id(member(metadata, "task")),
        own_session=clean_id(read.prompt_cache_key)
        or clean_id(member(metadata, "session_id"))
        or session_in_user_id(user_id),
        continues=clean_id(read.previous_response_id),
        prefix=(read.tools, read.instructions, *_opening(read.input, items)),
        texts=Peek(
            system=_system_text(read.instructions, items),
            user=user,
            user_end=user_end,
            tool_results=any(item.is_output for item in items),
        ),
    )


def _items(raw: msgspec.Raw) -> list[_Item]:
    if not is_list(raw):
        return []
    try:
        return _read_items(raw)
    except msgspec.ValidationError:  # some item is no object; the others count all the same
        found: list[_Item] = []
        for one in msgspec.json.decode(raw, type=list[msgspec.Raw]):
            try:
                found.append(msgspec.json.decode(one, type=_Item))
            except msgspec.ValidationError:
                continue
        return found


def _kinds(items: Iterable[_Item]) -> set[str]:
    """What kinds of part are in messages and in the outputs of tools."""
    kinds: set[str] = set()
    for item in items:
        for raw in (item.content, item.output):
            if is_list(raw):
                kinds |= kinds_of(parts_of(raw))
    return kinds


def _last_user_text(raw: msgspec.Raw, users: Sequence[_Item]) -> tuple[bytes, bytes]:
    for item in reversed(users):
        text = text_of(item.content)
        if text[0]:
            return text
    return (b"", b"") if is_list(raw) else text_of(raw)


def _system_text(instructions: msgspec.Raw, items: Iterable[_Item]) -> bytes:
    text = text_of(instructions)[0]
    if text:
        return text
    return next((text_of(item.content)[0] for item in items if item.role in _SYSTEM), b"")


def _opening(raw: msgspec.Raw, items: Iterable[_Item]) -> list[msgspec.Raw]:
    """The input up to the first user message; of a plain text all of it."""
    if not is_list(raw):
        return [raw]
    opening: list[msgspec.Raw] = []
    for item in items:
        if item.role in _SYSTEM:
            opening.append(item.content)
        elif item.role == "user":
            opening.append(item.content)
            break
    return opening

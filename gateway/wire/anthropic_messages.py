"""The request side of Anthropic's messages wire: what a body asks for.

The form is that of docs.anthropic.com, api/messages (read 2026-12-01). Only what decisions need is read, and an
odd form of anything else is the provider's to judge.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from gateway.errors import json_too_deep
from gateway.wire.fields import (
    NOTHING,
    Part,
    absent_or_null,
    flag,
    is_filled,
    is_list,
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
from routers.session import clean_id, session_in_user_id, user_in_user_id

_LIMITS = ("max_tokens",)
_BILLING = b"x-anthropic-billing-header"  # what Claude Code's first system text begins with
_NO_THINKING = (None, "disabled")


class _Message(msgspec.Struct, gc=False):
    role: Any = None
    content: msgspec.Raw = NOTHING


class _Body(msgspec.Struct, gc=False):
    model: Any = None
    messages: list[_Message] | None = None
    system: msgspec.Raw = NOTHING
    tools: msgspec.Raw = NOTHING
    stream: Any = None
    max_tokens: Any = None
    metadata: Any = None
    thinking: Any = None
    output_config: Any = None
    output_format: Any = None
    service_tier: Any = None


_read_body = msgspec.json.Decoder(_Body).decode


class _Content(msgspec.Struct, gc=False):
    """One message's content, looked into."""

    role: Any
    raw: msgspec.Raw
    parts: Sequence[Part] = ()  # empty: it is one text

    @property
    def has_tool_result(self) -> bool:
        return any(part.type == "tool_result" for part in self.parts)

    @property
    def has_more_than_tool_results(self) -> bool:
        return not self.parts or any(part.type != "tool_result" for part in self.parts)

    @property
    def has_image(self) -> bool:
        return any(_is_image(part) for part in self.parts)

    @property
    def text(self) -> tuple[bytes, bytes]:
        """The beginning and the end of its text; of several parts of text the last."""
        for part in reversed(self.parts):
            if part.type == "text":
                return text_of(part.text)
        return (b"", b"") if self.parts else text_of(self.raw)


def read_messages(body: bytes) -> Request:
    """Read a body of `POST /v1/messages` once. Raises GatewayError as `openai_chat.read_request` does."""
    return _read(body, "messages")


def read_count_tokens(body: bytes) -> Request:
    """Read a body of `POST /v1/messages/count_tokens` once. It is never streamed and makes no output."""
    return _read(body, "count_tokens")


def _read(body: bytes, endpoint: Literal["messages", "count_tokens"]) -> Request:
    check_text(body)
    try:
        read = _read_body(body)
    except RecursionError:
        raise json_too_deep(MAX_DEPTH) from None
    except msgspec.DecodeError as error:
        raise not_readable(body, error) from None
    places = look(body)
    if read.messages is None:
        raise absent_or_null("messages", places)
    contents = [_looked_into(message) for message in read.messages]
    users = [content for content in contents if content.role == "user"]
    answers = endpoint == "messages"
    user_id = member(read.metadata, "user_id")
    kind = member(member(read.output_config, "format") or read.output_format, "type")
    user, user_end = _last_text(users)
    return Request(
        endpoint=endpoint,
        body=body,
        places=places,
        model=model_named(read.model, places),
        stream=answers and flag("stream", read.stream),
        limits=_LIMITS if answers else (),
        max_output_tokens=limit("max_tokens", read.max_tokens) if answers else 0,
        messages=len(contents),
        turn=sum(content.has_more_than_tool_results for content in users) or 1,
        has_images=any(content.has_image for content in contents),
        has_tools=is_filled(read.tools),
        json_output=kind == "json_schema",
        json_schema=kind == "json_schema",
        reasoning_effort=_effort(read),
        service_tier=clean_id(read.service_tier),
        user=user_in_user_id(user_id),
        feature=clean_id(member(read.metadata, "feature")),
        customer=clean_id(member(read.metadata, "customer")),
        task=clean_id(member(read.metadata, "task")),
        own_session=session_in_user_id(user_id),
        prefix=_prefix(read, users),
        texts=Peek(
            system=_system_text(read.system),
            user=user,
            user_end=user_end,
            tool_results=any(content.has_tool_result for content in users),
        ),
    )


def _looked_into(message: _Message) -> _Content:
    content = message.content
    return _Content(message.role, content, parts_of(content) if is_list(content) else ())


def _is_image(part: Part) -> bool:
    if part.type == "image":
        return True
    if part.type != "tool_result" or b'"image"' not in bytes(part.content) or not is_list(part.content):
        return False
    return any(inner.type == "image" for inner in parts_of(part.content))


def _effort(read: _Body) -> str | None:
    """How hard it asks to think, in its own words; "enabled" or "adaptive" where it names no effort."""
    effort = clean_id(member(read.output_config, "effort"))
    kind = member(read.thinking, "type")
    return effort if effort is not None or kind in _NO_THINKING else clean_id(kind)


def _last_text(users: Sequence[_Content]) -> tuple[bytes, bytes]:
    for content in reversed(users):
        text = content.text
        if text[0]:
            return text
    return b"", b""


def _system_text(system: msgspec.Raw) -> bytes:
    """The first system text that says something."""
    if not is_list(system):
        return text_of(system)[0]
    for part in parts_of(system):
        text = text_of(part.text)[0]
        if text and not text.startswith(_BILLING):
            return text
    return b""


def _prefix(read: _Body, users: Sequence[_Content]) -> tuple[msgspec.Raw, ...]:
    return (read.tools, read.system, *(content.raw for content in users[:1]))

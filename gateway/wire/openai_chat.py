"""The request side of OpenAI's chat wire: what a body asks for, and what is changed in it.

A body is parsed once, and its bytes are kept. What is sent on is those bytes with a few places replaced: the
model's name, the switch that makes a stream report its usage, a deployment's declared parameters and a cap on
the answer's length. Fields that the gateway does not know, or that steer other gateways, are data.
"""

from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.auth import Caller
from gateway.errors import json_too_deep
from gateway.wire.fields import (
    MAX_OUTPUT_TOKENS,
    NOTHING,
    absent_or_null,
    count,
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
from gateway.wire.json_scan import MAX_DEPTH, Places, check_text, look
from gateway.wire.labels import has_none, labels_in
from gateway.wire.splicing import Edits, Parameters, Prepared
from routers.classify import Peek
from routers.facts import RequestFacts
from routers.session import (
    PREFIX_BYTES,
    clean_id,
    session_from_opening,
    session_from_prefix,
    session_in_user_id,
)

MAX_CHOICES = 128
BYTES_PER_TOKEN = 4

_IMAGES = frozenset({"image_url", "input_image", "image"})
_AUDIO = frozenset({"input_audio", "audio"})
_LIMITS = ("max_tokens", "max_completion_tokens")
_SYSTEM = ("system", "developer")
_USER = ["user"]
_SYSTEM_AND_USER = tuple([role, "user"] for role in _SYSTEM)  # how most conversations begin
_SHORT_NAME = 64  # characters: never more than MAX_MODEL_BYTES
_SELDOM = frozenset(
    {
        "n",
        "functions",
        "response_format",
        "reasoning_effort",
        "reasoning",
        "service_tier",
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "previous_response_id",
        "metadata",
    }
)
"""Members whose facts are what `RequestFacts` says by itself where they are absent."""


class _Content(msgspec.Struct, gc=False):
    content: msgspec.Raw = NOTHING


class _UsualMessage(_Content, kw_only=True, gc=False):
    role: Literal["system", "user", "assistant", "tool", "developer", "function"]


class _Message(_Content, gc=False):
    role: Any = None


class _Body(msgspec.Struct, gc=False):
    """The members that are taken as they come."""

    stream_options: Any = None
    tools: msgspec.Raw = NOTHING
    functions: msgspec.Raw = NOTHING
    response_format: Any = None
    reasoning_effort: Any = None
    reasoning: Any = None
    service_tier: Any = None
    user: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    previous_response_id: Any = None
    metadata: Any = None


class _UsualBody(_Body, kw_only=True, gc=False):
    """A body as it should be: of its members only the model's name needs another look."""

    model: Annotated[str, Meta(min_length=1)]
    messages: list[_UsualMessage]
    stream: bool | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=MAX_OUTPUT_TOKENS)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1, le=MAX_OUTPUT_TOKENS)] | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None


class _AnyBody(_Body, kw_only=True, gc=False):
    """A body in which something is wrong, or unusual."""

    model: Any = None
    messages: list[_Message] | None = None
    stream: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    n: Any = None


_read_usual_body = msgspec.json.Decoder(_UsualBody).decode
_read_any_body = msgspec.json.Decoder(_AnyBody).decode
_role_of = attrgetter("role")


class ChatRequest(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A body that was read once. Its texts are kept as views of the bytes, not as copies."""

    body: bytes
    read: _Body
    places: Places
    messages: Sequence[_Content]
    roles: list[Any]  # of the messages
    model: str
    stream: bool
    max_output_tokens: int | None  # None: the client set nothing
    choices: int
    wants_usage: bool
    has_images: bool
    has_audio: bool

    @property
    def continues(self) -> None:
        """A chat request goes on from nothing: it holds its whole conversation."""
        return None

    @property
    def facts(self) -> RequestFacts:
        """What the body alone says: no caller, no headers."""
        return facts_for(self, None, ())

    def peek(self) -> Peek:
        """The bounded look at its texts that the classifier takes."""
        messages, roles = self.messages, self.roles
        if not roles:
            return Peek()
        system = b""
        if roles[0] in _SYSTEM:
            system = text_of(messages[0].content)[0]
        elif roles[1:] and roles[1] in _SYSTEM:
            system = text_of(messages[1].content)[0]
        if roles[-1] == "user":
            user, user_end = text_of(messages[-1].content)
        elif "user" in roles:
            last = len(roles) - 2
            while roles[last] != "user":
                last -= 1
            user, user_end = text_of(messages[last].content)
        else:
            user = user_end = b""
        return Peek(
            system=system,
            user=user,
            user_end=user_end,
            tool_results="tool" in roles or "function" in roles,
        )

    def prefix(self) -> Iterable[memoryview]:
        """How the prompt begins: tools, system texts, the first user message; as the client's own bytes."""
        read = self.read
        yield memoryview(read.tools)
        for role, message in zip(self.roles, self.messages, strict=True):
            if role in _SYSTEM:
                yield memoryview(message.content)
            elif role == "user":
                yield memoryview(message.content)
                return

    @property
    def json_output(self) -> tuple[bool, bool]:
        """Whether it asks for JSON, and whether by a schema."""
        kind = member(self.read.response_format, "type")
        return kind in ("json_object", "json_schema"), kind == "json_schema"

    @property
    def has_tools(self) -> bool:
        """True if it offers tools, or functions in the older form."""
        read = self.read
        if read.tools is NOTHING and read.functions is NOTHING:
            return False
        return is_filled(read.tools) or is_filled(read.functions)

    @property
    def reasoning_effort(self) -> str | None:
        """How hard it asks to think."""
        read = self.read
        effort = read.reasoning_effort
        if effort is None:
            if read.reasoning is None:
                return None
            effort = member(read.reasoning, "effort")
        return clean_id(effort)

    @property
    def service_tier(self) -> str | None:
        """The provider's own tier of service that it asks for."""
        return clean_id(self.read.service_tier)

    def named(self, name: str) -> str | None:
        """A member of `metadata` that is an id or a label."""
        metadata = self.read.metadata
        return None if metadata is None else clean_id(member(metadata, name))

    @property
    def user(self) -> str | None:
        """The end user as the client names them."""
        read = self.read
        if read.user is None and read.safety_identifier is None and read.metadata is None:
            return None
        return clean_id(read.user) or clean_id(read.safety_identifier) or self.named("user_id")

    @property
    def own_session(self) -> str | None:
        """The session as the client's own fields name it."""
        read = self.read
        if read.prompt_cache_key is None and read.metadata is None and read.previous_response_id is None:
            return None
        return (
            clean_id(read.prompt_cache_key)
            or self.named("session_id")
            or session_in_user_id(member(read.metadata, "user_id"))
            or clean_id(read.previous_response_id)
        )


def read_request(body: bytes) -> ChatRequest:
    """Read a body once.

    Raises GatewayError: `invalid_utf8`, `invalid_json`, `json_too_deep`, `duplicate_key`, `missing_field`,
    `invalid_value`, `model_not_found` (a name that nothing can have).
    """
    check_text(body)
    try:
        read = _read_usual_body(body)
    except msgspec.ValidationError:
        return _read_with_care(body)
    except RecursionError:
        raise json_too_deep(MAX_DEPTH) from None
    except msgspec.DecodeError as error:
        raise not_readable(body, error) from None
    places = look(body)
    model, messages = read.model, read.messages
    if not model.isprintable() or len(model) > _SHORT_NAME:
        model_named(model, places)
    images, audio = _seen_in_parts(messages) if places.lists_in_messages else (False, False)
    one, other = read.max_tokens, read.max_completion_tokens
    return ChatRequest(
        body,
        read,
        places,
        messages,
        list(map(_role_of, messages)),
        model,
        read.stream is True,
        one if other is None else other if one is None else max(one, other),
        read.n or 1,
        read.stream_options is not None and member(read.stream_options, "include_usage") is True,
        images,
        audio,
    )


def _read_with_care(body: bytes) -> ChatRequest:
    """As `read_request`, for every body: it has words for what is wrong, and takes roles that are unknown."""
    try:
        read = _read_any_body(body)
    except RecursionError:
        raise json_too_deep(MAX_DEPTH) from None
    except msgspec.DecodeError as error:
        raise not_readable(body, error) from None
    places = look(body)
    messages = read.messages
    if messages is None:
        raise absent_or_null("messages", places)
    images, audio = _seen_in_parts(messages) if places.lists_in_messages else (False, False)
    return ChatRequest(
        body=body,
        read=read,
        places=places,
        messages=messages,
        roles=[message.role for message in messages],
        model=model_named(read.model, places),
        stream=flag("stream", read.stream),
        max_output_tokens=_longest(read),
        choices=count("n", read.n, MAX_CHOICES),
        wants_usage=member(read.stream_options, "include_usage") is True,
        has_images=images,
        has_audio=audio,
    )


def facts_for(
    request: ChatRequest, caller: Caller | None, headers: Collection[tuple[bytes, bytes]]
) -> RequestFacts:
    """What the rules may ask about: the body, the caller's key, and headers (names in lower case).

    The team comes from the key alone, and so does the application where the key has one.
    """
    if not (_SELDOM.isdisjoint(request.places.names) and has_none(headers)):
        return _facts_with_labels(request, caller, headers)
    key_id, team, application = "", "", None
    if caller is not None:
        key_id, team, application = caller.key_id, caller.team, caller.application or None
    size, roles, tools = len(request.body), request.roles, request.read.tools
    return RequestFacts(
        model=request.model,
        stream=request.stream,
        input_bytes=size,
        input_tokens=-(-size // BYTES_PER_TOKEN),
        max_output_tokens=request.max_output_tokens,
        messages=len(roles),
        turn=roles.count("user") or 1,
        has_images=request.has_images,
        has_audio=request.has_audio,
        has_tools=tools is not NOTHING and is_filled(tools),
        key_id=key_id,
        team=team,
        application=application,
        session=_session_by_opening(request, key_id, size, roles),
    )


def _session_by_opening(request: ChatRequest, key_id: str, size: int, roles: list[Any]) -> str:
    if size <= PREFIX_BYTES:
        messages = request.messages
        if roles[:2] in _SYSTEM_AND_USER:
            return session_from_opening(key_id, request.read.tools, messages[0].content, messages[1].content)
        if roles[:1] == _USER:
            return session_from_opening(key_id, request.read.tools, None, messages[0].content)
    return session_from_prefix(key_id, request.prefix())


def _facts_with_labels(
    request: ChatRequest, caller: Caller | None, headers: Iterable[tuple[bytes, bytes]]
) -> RequestFacts:
    """As `facts_for`, for every request: also one with labels, ids or wishes of its own."""
    labels = labels_in(headers)
    application, feature, customer, task = labels.application, labels.feature, labels.customer, labels.task
    key_id, team = "", ""
    if caller is not None:
        key_id, team = caller.key_id, caller.team
        application = caller.application or application
    read = request.read
    metadata = read.metadata
    if metadata is not None:
        feature = feature or request.named("feature")
        customer = customer or request.named("customer")
        task = task or request.named("task")
    json_output = json_schema = False
    if read.response_format is not None:
        json_output, json_schema = request.json_output
    roles = request.roles
    size = len(request.body)
    session = (
        labels.session
        or request.own_session
        or labels.client_session
        or _session_by_opening(request, key_id, size, roles)
    )
    return RequestFacts(
        model=request.model,
        stream=request.stream,
        input_bytes=size,
        input_tokens=-(-size // BYTES_PER_TOKEN),
        max_output_tokens=request.max_output_tokens,
        choices=request.choices,
        messages=len(roles),
        turn=roles.count("user") or 1,
        has_images=request.has_images,
        has_audio=request.has_audio,
        has_tools=request.has_tools,
        json_output=json_output,
        json_schema=json_schema,
        reasoning_effort=request.reasoning_effort,
        service_tier=None if read.service_tier is None else request.service_tier,
        key_id=key_id,
        team=team,
        application=application,
        feature=feature,
        customer=customer,
        task=task,
        session=session,
        user=request.user,
    )


# ── what is sent on ──


def prepare(
    request: ChatRequest,
    *,
    model: str,
    parameters: Parameters | None = None,
    ask_usage: bool = True,
    max_output_tokens: int | None = None,
) -> Prepared:
    """The body for one deployment: the client's bytes with the places replaced that must be.

    `ask_usage`: a stream is to report its usage. `max_output_tokens`: the tier's cap on the answer; it lowers
    what the client set and stands in where the client set nothing.
    """
    body = request.body
    asks = ask_usage and request.stream and not request.wants_usage
    if model == request.model and parameters is None and max_output_tokens is None and not asks:
        return Prepared(body, ())
    edits = Edits(body, request.places)
    if model != request.model:
        edits.name_model(model)
    if asks:
        edits.ask_for_usage()
    if parameters is not None:
        edits.apply(parameters)
    if max_output_tokens is not None:
        edits.cap(max_output_tokens, _LIMITS, parameters)
    return edits.prepared()


# ── reading fields ──


def _longest(read: _AnyBody) -> int | None:
    a = limit("max_tokens", read.max_tokens)
    b = limit("max_completion_tokens", read.max_completion_tokens)
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)  # which one a provider obeys is not known: reserve for the dearer


def _seen_in_parts(messages: Iterable[_Content]) -> tuple[bool, bool]:
    """Whether some part of a message is an image, and whether one is sound."""
    images = audio = False
    for message in messages:
        if not is_list(message.content):
            continue
        kinds = kinds_of(parts_of(message.content))
        images = images or not _IMAGES.isdisjoint(kinds)
        audio = audio or not _AUDIO.isdisjoint(kinds)
    return images, audio

"""The request side of OpenAI's chat wire: what a body asks for, what is changed in it, how errors are worded.

A body is parsed once, and its bytes are kept. What is sent on is those bytes with a few places replaced: the
model's name, the switch that makes a stream report its usage, a deployment's declared parameters and a cap on
the answer's length. Fields that the gateway does not know, or that steer other gateways, are data.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from gateway.auth import Caller
from gateway.errors import (
    GatewayError,
    invalid_json,
    invalid_utf8,
    invalid_value,
    json_too_deep,
    missing_field,
    model_not_found,
    shown,
)
from gateway.wire.json_scan import (
    MAX_DEPTH,
    Places,
    check_text,
    has_broken_text,
    look,
    scan,
    value_start,
)
from routers.classify import FENCE_BYTES, TAIL_BYTES, Peek
from routers.facts import RequestFacts
from routers.session import (
    PREFIX_BYTES,
    clean_id,
    session_from_opening,
    session_from_prefix,
    session_in_user_id,
)

MAX_MODEL_BYTES = 256
MAX_CHOICES = 128
MAX_OUTPUT_TOKENS = 10**12
BYTES_PER_TOKEN = 4

_IMAGES = frozenset({"image_url", "input_image", "image"})
_AUDIO = frozenset({"input_audio", "audio"})
_LIMITS = ("max_tokens", "max_completion_tokens")
_SYSTEM = ("system", "developer")
_USER = ["user"]
_SYSTEM_AND_USER = tuple([role, "user"] for role in _SYSTEM)  # how most conversations begin
_FILLED = 64  # bytes: a longer list counts as one with something in it
_SHORT_NAME = 64  # characters: never more than MAX_MODEL_BYTES
_LABELS = frozenset(
    {
        b"x-faregate-session",
        b"x-claude-code-session-id",
        b"session_id",
        b"x-faregate-application",
        b"x-faregate-feature",
        b"x-faregate-customer",
        b"x-faregate-task",
    }
)
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
_KEPT = frozenset({"model", "messages", "stream", "stream_options"})  # never renamed or dropped
_NOTHING = msgspec.Raw(b"")
_QUOTE, _LIST = ord('"'), ord("[")


class Parameters(Protocol):
    """What is changed in a request for one deployment."""

    @property
    def rename(self) -> Mapping[str, str]: ...

    @property
    def drop(self) -> Collection[str]: ...


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """What is sent to a deployment."""

    body: bytes
    changed: tuple[str, ...]  # for `x-faregate-changed`: "max_tokens->max_completion_tokens", "-temperature"


class _Content(msgspec.Struct, gc=False):
    content: msgspec.Raw = _NOTHING


class _UsualMessage(_Content, kw_only=True, gc=False):
    role: Literal["system", "user", "assistant", "tool", "developer", "function"]


class _Message(_Content, gc=False):
    role: Any = None


class _Part(msgspec.Struct, gc=False):
    type: Any = None
    text: msgspec.Raw = _NOTHING


class _Body(msgspec.Struct, gc=False):
    """The members that are taken as they come."""

    stream_options: Any = None
    tools: msgspec.Raw = _NOTHING
    functions: msgspec.Raw = _NOTHING
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
_read_parts = msgspec.json.Decoder(list[_Part]).decode
_read_text = msgspec.json.Decoder(str).decode
_write = msgspec.json.encode
_role_of = attrgetter("role")
_name_of = itemgetter(0)


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
            system = _text(messages[0].content)[0]
        elif roles[1:] and roles[1] in _SYSTEM:
            system = _text(messages[1].content)[0]
        if roles[-1] == "user":
            user, user_end = _text(messages[-1].content)
        elif "user" in roles:
            last = len(roles) - 2
            while roles[last] != "user":
                last -= 1
            user, user_end = _text(messages[last].content)
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
        kind = _member(self.read.response_format, "type")
        return kind in ("json_object", "json_schema"), kind == "json_schema"

    @property
    def has_tools(self) -> bool:
        """True if it offers tools, or functions in the older form."""
        read = self.read
        if read.tools is _NOTHING and read.functions is _NOTHING:
            return False
        return _is_filled(read.tools) or _is_filled(read.functions)

    @property
    def reasoning_effort(self) -> str | None:
        """How hard it asks to think."""
        read = self.read
        effort = read.reasoning_effort
        if effort is None:
            if read.reasoning is None:
                return None
            effort = _member(read.reasoning, "effort")
        return clean_id(effort)

    @property
    def service_tier(self) -> str | None:
        """The provider's own tier of service that it asks for."""
        return clean_id(self.read.service_tier)

    def named(self, name: str) -> str | None:
        """A member of `metadata` that is an id or a label."""
        metadata = self.read.metadata
        return None if metadata is None else clean_id(_member(metadata, name))

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
            or session_in_user_id(_member(read.metadata, "user_id"))
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
        raise _not_readable(body, error) from None
    places = look(body)
    model, messages = read.model, read.messages
    if not model.isprintable() or len(model) > _SHORT_NAME:
        _model(model, places)
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
        read.stream_options is not None and _member(read.stream_options, "include_usage") is True,
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
        raise _not_readable(body, error) from None
    places = look(body)
    messages = read.messages
    if messages is None:
        raise _absent_or_null("messages", places)
    images, audio = _seen_in_parts(messages) if places.lists_in_messages else (False, False)
    return ChatRequest(
        body=body,
        read=read,
        places=places,
        messages=messages,
        roles=[message.role for message in messages],
        model=_model(read.model, places),
        stream=_flag("stream", read.stream),
        max_output_tokens=_longest(read),
        choices=_choices(read.n),
        wants_usage=_member(read.stream_options, "include_usage") is True,
        has_images=images,
        has_audio=audio,
    )


def facts_for(
    request: ChatRequest, caller: Caller | None, headers: Collection[tuple[bytes, bytes]]
) -> RequestFacts:
    """What the rules may ask about: the body, the caller's key, and headers (names in lower case).

    The team comes from the key alone, and so does the application where the key has one.
    """
    if not (_SELDOM.isdisjoint(request.places.names) and _LABELS.isdisjoint(map(_name_of, headers))):
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
        has_tools=tools is not _NOTHING and _is_filled(tools),
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
    application: str | None = None
    feature: str | None = None
    customer: str | None = None
    task: str | None = None
    session: str | None = None
    client_session: str | None = None
    for name, value in headers:
        if name not in _LABELS:
            continue
        if name == b"x-faregate-session":
            session = _label(value)
        elif name == b"x-claude-code-session-id" or name == b"session_id":
            client_session = _label(value)
        elif name == b"x-faregate-application":
            application = _label(value)
        elif name == b"x-faregate-feature":
            feature = _label(value)
        elif name == b"x-faregate-customer":
            customer = _label(value)
        elif name == b"x-faregate-task":
            task = _label(value)
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
    if session is None:
        session = request.own_session or client_session or _session_by_opening(request, key_id, size, roles)
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
    edits: list[tuple[int, int, bytes]] = []
    added: list[bytes] = []
    changed: list[str] = []
    if model != request.model:
        place = request.places.value("model")
        assert place is not None  # it was read
        edits.append((*place, _write(model)))
    if asks:
        _ask_for_usage(request, edits, added)
    rename: Mapping[str, str] = {}
    if parameters is not None:
        rename = parameters.rename
        _apply(request, parameters, edits, changed)
    if max_output_tokens is not None:
        _cap(request, max_output_tokens, rename, parameters, edits, added, changed)
    if added:
        end = request.places.end()
        edits.append((end, end, b"".join(b", " + member for member in added)))
    return Prepared(_spliced(body, edits), tuple(changed))


def _spliced(body: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    if not edits:
        return body
    if len(edits) > 1:
        edits.sort(key=lambda edit: edit[:2])
    pieces: list[bytes | memoryview] = []
    view = memoryview(body)  # a long body is copied once
    at = 0
    for start, end, instead in edits:
        pieces.append(view[at:start])
        pieces.append(instead)
        at = end
    pieces.append(view[at:])
    return b"".join(pieces)


def _ask_for_usage(request: ChatRequest, edits: list[tuple[int, int, bytes]], added: list[bytes]) -> None:
    place = request.places.value("stream_options")
    if place is None:
        added.append(b'"stream_options": {"include_usage": true}')
        return
    start, value_end = place
    options = request.body[start:value_end]
    if not options.startswith(b"{"):  # null: as if it were not there
        edits.append((start, value_end, b'{"include_usage": true}'))
        return
    inner = scan(options).members
    asked = inner.get("include_usage")
    if asked is not None:
        edits.append((start + value_start(options, asked), start + asked[2], b"true"))
    elif inner:
        end = start + next(reversed(inner.values()))[2]
        edits.append((end, end, b', "include_usage": true'))
    else:
        edits.append((start, value_end, b'{"include_usage": true}'))


def _apply(
    request: ChatRequest,
    parameters: Parameters,
    edits: list[tuple[int, int, bytes]],
    changed: list[str],
) -> None:
    places = request.places
    present = places.names
    gone = {name for name in parameters.drop if name in present and name not in _KEPT}
    taken: set[str] = set()
    for name, instead in parameters.rename.items():
        member = places.get(name)
        if member is None or name in gone or name in _KEPT:
            continue
        if instead in present or instead in taken:  # both were sent: what the deployment understands stays
            gone.add(name)
        else:
            taken.add(instead)
            edits.append((member[0], member[1], _write(instead)))
            changed.append(f"{name}->{instead}")
    if not gone:
        return
    members = places.all()
    names = list(members)
    kept_before = False
    for number, name in enumerate(names):
        if name not in gone:
            kept_before = True
            continue
        if kept_before:
            edits.append((members[names[number - 1]][2], members[name][2], b""))
        else:  # `model` is never dropped, so another member follows
            edits.append((members[name][0], members[names[number + 1]][0], b""))
        changed.append(f"-{name}")


def _cap(
    request: ChatRequest,
    cap: int,
    rename: Mapping[str, str],
    parameters: Parameters | None,
    edits: list[tuple[int, int, bytes]],
    added: list[bytes],
    changed: list[str],
) -> None:
    limited = False
    for name in _LIMITS:
        place = request.places.value(name)
        if place is None or f"-{name}" in changed:
            continue
        limited = True
        value = request.body[slice(*place)]
        if value == b"null" or int(value) > cap:
            edits.append((*place, b"%d" % cap))
            changed.append(f"{rename.get(name, name)}={cap}")
    if not limited:
        name = rename.get("max_tokens", "max_tokens")
        if parameters is not None and name in parameters.drop:
            return
        added.append(_write(name) + b": %d" % cap)
        changed.append(f"{name}={cap}")


# ── what is told to the client ──


def error_body(error: GatewayError) -> bytes:
    """The whole body of an error answer."""
    return _write(
        {
            "error": {
                "message": error.message,
                "type": error.type,
                "param": error.param,
                "code": error.code,
            }
        }
    )


def stream_error_event(error: GatewayError) -> bytes:
    """The last event of a stream that broke. No `[DONE]` follows it."""
    return b"data: " + error_body(error) + b"\n\n"


def model_object(name: str, *, created: int = 0, owned_by: str = "faregate") -> dict[str, object]:
    """One model of the list, in OpenAI's form."""
    return {"id": name, "object": "model", "created": created, "owned_by": owned_by}


def model_body(name: str, *, created: int = 0, owned_by: str = "faregate") -> bytes:
    """The body of `GET /v1/models/{id}`."""
    return _write(model_object(name, created=created, owned_by=owned_by))


def model_list(names: Iterable[str], *, created: int = 0, owned_by: str = "faregate") -> bytes:
    """The body of `GET /v1/models`."""
    data = [model_object(name, created=created, owned_by=owned_by) for name in names]
    return _write({"object": "list", "data": data})


# ── reading fields ──


def _not_readable(body: bytes, error: msgspec.DecodeError) -> GatewayError:
    text = str(error)
    if isinstance(error, msgspec.ValidationError) and "out of range" not in text:
        where = text.rpartition("`$")[2].rstrip("`")
        if where.startswith(".messages"):
            place = where[1:]
            what = "must be an object" if "[" in place else "must be a list of messages"
            return invalid_value("messages", f"{place} {what}")
        return invalid_json("the body must be one JSON object")
    if has_broken_text(body):
        return invalid_utf8("a text in the body has a NUL, or half of a surrogate pair (\\ud800 to \\udfff)")
    if not body.strip():
        return invalid_json("the body is empty; send one JSON object")
    return invalid_json(f"the body is not JSON: {text.removeprefix('JSON is malformed: ')}")


def _absent_or_null(param: str, seen: Places) -> GatewayError:
    if param in seen.names:
        return invalid_value(param, f"{param} must not be null")
    return missing_field(param)


def _model(value: object, seen: Places) -> str:
    if value is None:
        raise _absent_or_null("model", seen)
    if not isinstance(value, str):
        raise invalid_value("model", "model must be a string")
    if not value.isprintable() and any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in value):
        raise invalid_value("model", "model has a control character")
    if not value or len(value) > MAX_MODEL_BYTES or len(value.encode()) > MAX_MODEL_BYTES:
        raise model_not_found(
            f'no model is named "{shown(value)}": a name has 1 to {MAX_MODEL_BYTES} bytes; '
            "GET /v1/models lists them"
        )
    return value


def _flag(param: str, value: object) -> bool:
    if value is None or value is False:
        return False
    if value is True:
        return True
    raise invalid_value(param, f"{param} must be true or false")


def _longest(read: _AnyBody) -> int | None:
    a = _limit("max_tokens", read.max_tokens)
    b = _limit("max_completion_tokens", read.max_completion_tokens)
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)  # which one a provider obeys is not known: reserve for the dearer


def _limit(param: str, value: object) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= MAX_OUTPUT_TOKENS:
        raise invalid_value(param, f"{param} must be a whole number from 1 to {MAX_OUTPUT_TOKENS}")
    return value


def _choices(value: object) -> int:
    if value is None:
        return 1
    if type(value) is not int or not 1 <= value <= MAX_CHOICES:
        raise invalid_value("n", f"n must be a whole number from 1 to {MAX_CHOICES}")
    return value


def _member(value: Any, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType] - foreign JSON


def _label(value: bytes) -> str | None:
    return clean_id(value.decode("utf-8", "replace"))


def _is_filled(raw: msgspec.Raw) -> bool:
    """True if it is a list with something in it. What is neither a list nor null counts too."""
    if raw is _NOTHING:
        return False
    if len(raw) > _FILLED:
        return True
    value = bytes(raw)
    return value not in (b"", b"null") and value[1:-1].strip() != b""


def _seen_in_parts(messages: Iterable[_Content]) -> tuple[bool, bool]:
    """Whether some part of a message is an image, and whether one is sound."""
    images = audio = False
    for message in messages:
        content = memoryview(message.content)
        if not content or content[0] != _LIST:
            continue
        kinds = _kinds_of_parts(message.content)
        images = images or not _IMAGES.isdisjoint(kinds)
        audio = audio or not _AUDIO.isdisjoint(kinds)
    return images, audio


def _kinds_of_parts(content: msgspec.Raw) -> set[str]:
    try:
        return {part.type for part in _read_parts(content) if isinstance(part.type, str)}
    except msgspec.ValidationError:  # some part is no object; the others count all the same
        parts: list[Any] = msgspec.json.decode(content, type=list[Any])
        return {kind for kind in (_member(part, "type") for part in parts) if isinstance(kind, str)}


def _text(content: msgspec.Raw) -> tuple[bytes, bytes]:
    """The beginning of a text and, if it is longer, its end, in UTF-8."""
    if len(content) <= FENCE_BYTES:
        text = bytes(content)
        if text.startswith(b'"') and b"\\u" not in text:
            return text[1:-1], b""
    view = memoryview(content)
    if view and view[0] == _LIST:
        view = _last_text_part(content)
    if not view or view[0] != _QUOTE:
        return b"", b""
    size = len(view) - 2  # without its quotes
    if size <= FENCE_BYTES:
        return _readable(bytes(view[1:-1])), b""
    return _readable(bytes(view[1 : FENCE_BYTES + 1])), _readable(bytes(view[-TAIL_BYTES - 1 : -1]))


def _last_text_part(content: msgspec.Raw) -> memoryview:
    try:
        for part in reversed(_read_parts(content)):
            if part.type == "text":
                return memoryview(part.text)
    except msgspec.ValidationError:
        pass
    return memoryview(b"")


def _readable(piece: bytes) -> bytes:
    """A piece of a text as it stands in JSON; where it has escapes (`\\u7ffb`), without them."""
    if b"\\u" not in piece:
        return piece
    first = piece.find(b"\\u")
    for start in (0, first, first + 6) if first < 12 else (0,):  # it may begin inside an escape or a pair
        end = len(piece)
        for _ in range(3):  # and end inside one
            try:
                return _read_text(b'"' + piece[start:end] + b'"').encode()
            except (msgspec.DecodeError, UnicodeError):
                end = piece.rfind(b"\\", start, end)
                if end <= start:
                    break
    return piece

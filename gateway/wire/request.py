"""A request of any wire but chat, read once: what decisions need of it, and what is sent on.

Each wire reads its own body into a `Request`; from there on all are alike. (Chat has a form of its own, made for
speed: `openai_chat`.)
"""

from collections.abc import Collection, Sequence

import msgspec

from gateway.auth import Caller
from gateway.wire.json_scan import Places
from gateway.wire.labels import labels_in
from gateway.wire.splicing import Edits, Parameters, Prepared
from routers.classify import Peek
from routers.facts import EndpointName, RequestFacts
from routers.session import session_from_prefix

BYTES_PER_TOKEN = 4


class Request(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """A body that was read once. Its texts are kept as views of the bytes, not as copies."""

    endpoint: EndpointName
    body: bytes
    places: Places
    model: str
    stream: bool = False
    limits: Sequence[str] = ()  # the members that limit the answer's length; the first is the usual one
    max_output_tokens: int | None = None  # None: the client set nothing
    choices: int = 1
    wants_usage: bool = True  # False: a stream's usage is asked for by us, and kept back
    messages: int = 0
    turn: int = 1
    has_images: bool = False
    has_audio: bool = False
    has_tools: bool = False
    json_output: bool = False
    json_schema: bool = False
    reasoning_effort: str | None = None
    service_tier: str | None = None
    user: str | None = None
    feature: str | None = None
    customer: str | None = None
    task: str | None = None
    own_session: str | None = None  # as the body's own fields name it
    continues: str | None = None  # the answer that this request goes on from (`previous_response_id`)
    prefix: Sequence[msgspec.Raw] = ()  # how the prompt begins: tools, system texts, the first user message
    texts: Peek = Peek()

    def peek(self) -> Peek:
        """The bounded look at its texts that the classifier takes."""
        return self.texts


def facts_for(
    request: Request, caller: Caller | None, headers: Collection[tuple[bytes, bytes]]
) -> RequestFacts:
    """What the rules may ask about: the body, the caller's key, and headers (names in lower case).

    The team comes from the key alone, and so does the application where the key has one.
    """
    labels = labels_in(headers)
    key_id, team, application = "", "", labels.application
    if caller is not None:
        key_id, team = caller.key_id, caller.team
        application = caller.application or application
    session = (
        labels.session
        or request.own_session
        or labels.client_session
        or session_from_prefix(key_id, map(memoryview, request.prefix))
    )
    size = len(request.body)
    return RequestFacts(
        endpoint=request.endpoint,
        model=request.model,
        stream=request.stream,
        input_bytes=size,
        input_tokens=-(-size // BYTES_PER_TOKEN),
        max_output_tokens=request.max_output_tokens,
        choices=request.choices,
        messages=request.messages,
        turn=request.turn,
        has_images=request.has_images,
        has_audio=request.has_audio,
        has_tools=request.has_tools,
        json_output=request.json_output,
        json_schema=request.json_schema,
        reasoning_effort=request.reasoning_effort,
        service_tier=request.service_tier,
        key_id=key_id,
        team=team,
        application=application,
        feature=labels.feature or request.feature,
        customer=labels.customer or request.customer,
        task=labels.task or request.task,
        session=session,
        user=request.user,
    )


def prepare(
    request: Request,
    *,
    model: str,
    parameters: Parameters | None = None,
    max_output_tokens: int | None = None,
) -> Prepared:
    """The body for one deployment: the client's bytes with the places replaced that must be.

    `max_output_tokens`: the tier's cap on the answer; it lowers what the client set and stands in where the
    client set nothing, where the endpoint has such a limit.
    """
    body = request.body
    has_cap = max_output_tokens is not None and bool(request.limits)
    if model == request.model and parameters is None and not has_cap and request.wants_usage:
        return Prepared(body, ())
    edits = Edits(body, request.places)
    if model != request.model:
        edits.name_model(model)
    if request.stream and not request.wants_usage:
        edits.ask_for_usage()
    if parameters is not None:
        edits.apply(parameters)
    if has_cap and max_output_tokens is not None:
        edits.cap(max_output_tokens, request.limits, parameters)
    return edits.prepared()

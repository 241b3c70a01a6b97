"""What a rule may ask about a request. No text of the request is in here, so it may be written down."""

from collections.abc import Mapping
from typing import Literal

import msgspec

TaskKind = Literal[
    "chat", "agent", "code", "extraction", "summary", "translation", "reasoning", "long_context"
]
"""What the classifier says a request is. A closed set: it is a metric label."""


EndpointName = Literal[
    "chat", "messages", "count_tokens", "responses", "embeddings", "completions", "moderations", "other"
]
"""What of the API was called. A deployment serves some of them."""

PATHS: Mapping[EndpointName, str] = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "count_tokens": "/v1/messages/count_tokens",
    "responses": "/v1/responses",
    "embeddings": "/v1/embeddings",
    "completions": "/v1/completions",
    "moderations": "/v1/moderations",
    "other": "this path",
}
"""Where each is found."""


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request as the rules see it."""

    endpoint: EndpointName = "chat"
    model: str  # the name the client sent
    stream: bool = False
    input_bytes: int = 0  # of the whole body
    input_tokens: int = 0  # estimate (bytes / 4 of the body) until a better one is learned
    max_output_tokens: int | None = None  # what the client set; None: it set nothing
    choices: int = 1  # `n`
    messages: int = 0
    turn: int = 1  # user messages so far
    has_images: bool = False
    has_audio: bool = False
    has_tools: bool = False
    json_output: bool = False  # asks for a JSON object or a schema
    json_schema: bool = False  # asks for a schema
    reasoning_effort: str | None = None
    service_tier: str | None = None
    # who asks and what for: the team comes from the key alone
    key_id: str = ""
    team: str = ""
    application: str | None = None
    feature: str | None = None
    customer: str | None = None
    task: str | None = None
    session: str = ""  # from the client's own ids, else from the prefix; at most 128 characters
    user: str | None = None


class Classification(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What kind of work a request is, how sure that is, and why."""

    task_kind: TaskKind
    confidence: float  # 0 to 1
    because: tuple[str, ...]  # short reasons from a closed list of phrases; never text of the request

"""The endpoints that are served: for each how its requests are read and sent on, its meter, and its form of errors."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gateway.auth import Caller
from gateway.wire import openai_chat, request
from gateway.wire.anthropic_messages import read_count_tokens, read_messages
from gateway.wire.error_forms import ANTHROPIC, OPENAI, ErrorForm, form_at
from gateway.wire.meters import METERS, Meter
from gateway.wire.plain_requests import read_any
from gateway.wire.splicing import Parameters, Prepared
from routers.classify import Peek
from routers.facts import PATHS, EndpointName, RequestFacts


class AskedRequest(Protocol):
    """A body that was read once, of any endpoint."""

    @property
    def model(self) -> str:
        """The name the client sent."""
        ...

    @property
    def stream(self) -> bool:
        """A stream is asked for."""
        ...

    @property
    def wants_usage(self) -> bool:
        """The client reads the usage that a stream reports; False: it is asked for by us, and kept back."""
        ...

    @property
    def continues(self) -> str | None:
        """The answer that this request goes on from."""
        ...

    def peek(self) -> Peek:
        """The bounded look at its texts that the classifier takes."""
        ...


class FactsFor(Protocol):
    """Says what the rules may ask about."""

    def __call__(
        self, request: Any, caller: Caller | None, headers: Collection[tuple[bytes, bytes]]
    ) -> RequestFacts:
        """`request` is one that the same endpoint read."""
        ...


class Prepare(Protocol):
    """Makes the body for one deployment."""

    def __call__(
        self,
        request: Any,
        *,
        model: str,
        parameters: Parameters | None,
        max_output_tokens: int | None,
    ) -> Prepared:
        """`request` is one that the same endpoint read."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One path of the API."""

    name: EndpointName
    path: bytes
    read: Callable[[bytes], AskedRequest]  # raises GatewayError
    meter: Meter
    errors: ErrorForm = OPENAI
    facts_for: FactsFor = request.facts_for
    prepare: Prepare = request.prepare
    upstream_path: str  # below a provider's base URL
    has_chains: bool = False  # a request may go on from an earlier answer (`continues`)
    default_headers: tuple[tuple[bytes, bytes], ...] = ()  # sent where the client sends none of that name


_ANTHROPIC_VERSION = (b"anthropic-version", b"2023-06-01")
"""What a client without the header means (docs.anthropic.com, api/versioning, read 2026-12-01)."""


def _endpoint(name: EndpointName, read: Callable[[bytes], AskedRequest], wire: str, **more: Any) -> Endpoint:
    path = PATHS[name]
    return Endpoint(
        name=name,
        path=path.encode(),
        read=read,
        meter=METERS[wire],
        upstream_path=path.removeprefix("/v1"),
        **more,
    )


CHAT: Final = _endpoint(
    "chat",
    openai_chat.read_request,
    "openai-chat",
    facts_for=openai_chat.facts_for,
    prepare=openai_chat.prepare,
)
MESSAGES: Final = _endpoint(
    "messages",
    read_messages,
    "anthropic-messages",
    errors=ANTHROPIC,
    default_headers=(_ANTHROPIC_VERSION,),
)
COUNT_TOKENS: Final = _endpoint(
    "count_tokens",
    read_count_tokens,
    "anthropic-count-tokens",
    errors=ANTHROPIC,
    default_headers=(_ANTHROPIC_VERSION,),
)

_PATH_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/_.-"
_LONGEST_PATH: Final = 256


def other_at(path: bytes) -> Endpoint | None:
    """Whatever a provider has at a path below /v1 that is no endpoint of ours; None: no plain path below it."""
    if (
        not path.startswith(b"/v1/")
        or len(path) > _LONGEST_PATH
        or path.translate(None, _PATH_BYTES)
        or any(part in (b"", b".", b"..") for part in path[4:].split(b"/"))
    ):
        return None
    return Endpoint(
        name="other",
        path=path,
        read=read_any,
        meter=METERS["unmetered"],
        errors=form_at(path),
        upstream_path=path[3:].decode("ascii"),
    )


ENDPOINTS: Final[Mapping[bytes, Endpoint]] = {
    endpoint.path: endpoint for endpoint in (CHAT, MESSAGES, COUNT_TOKENS)
}
"""Path, as it was sent -> the endpoint there."""

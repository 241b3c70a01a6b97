"""Which headers pass between client and provider, and what is taken out of a provider's words.

Both ways by a list of what may pass, never of what may not. Towards the provider go what describes the
request, and nothing that says who asked us; towards the client goes what describes the answer, and nothing
that says who we are there. Header names are in lower case everywhere in here.
"""

import re
from collections.abc import Iterable, Sequence
from email.utils import parsedate_to_datetime

from gateway.errors import MAX_RETRY_AFTER_SECONDS, invalid_value

Headers = Sequence[tuple[bytes, bytes]]

TO_PROVIDER = frozenset(
    {
        b"accept",
        b"openai-beta",
        b"anthropic-beta",
        b"anthropic-version",
        b"idempotency-key",
        b"traceparent",
        b"tracestate",
        b"http-referer",  # OpenRouter: which application asks
        b"x-title",
        b"x-grok-conv-id",  # xAI: keeps a conversation on one cache
    }
)
"""Headers of the client that the provider sees."""

_OURS = ((b"content-type", b"application/json"),)
TO_CLIENT = frozenset(
    {
        b"content-type",
        b"retry-after",
        b"retry-after-ms",
        b"openai-processing-ms",
        b"openai-version",
        b"openai-model",
        b"x-envoy-upstream-service-time",
        b"deprecation",
        b"sunset",
        b"warning",
        b"cf-ray",
    }
)
"""Headers of the provider that the client sees, beside its rate limits."""

_RATE_LIMITS = (b"x-ratelimit-", b"anthropic-ratelimit-")

REQUEST_ID = b"x-request-id"
UPSTREAM_REQUEST_ID = b"x-upstream-request-id"
_IDS = frozenset({b"x-request-id", b"request-id", b"apim-request-id"})
_ID_CHARACTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_BAD_IN_VALUE = bytes(byte for byte in range(0x20) if byte != 0x09) + b"\x7f"
_LONGEST_ID = 128


def to_provider(headers: Iterable[tuple[bytes, bytes]], *, owner: str) -> list[tuple[bytes, bytes]]:
    """The headers to send with a request: ours, and of the client's those that may pass.

    Host, length, accepted encodings, our name and the provider's own credential are added by the upstream client.
    Raises GatewayError `invalid_value` if a header that would pass holds a control character.
    """
    passed = list(_OURS)
    for name, value in headers:
        if name in TO_PROVIDER:
            if value.translate(None, _BAD_IN_VALUE) != value:
                raise invalid_value(
                    name.decode("latin-1"), f"the header {name.decode()} has a control character"
                )
            if name == b"idempotency-key":  # two keys that use the same one must not share an answer
                value = owner.encode() + b"-" + value
            passed.append((name, value))
    return passed


def to_client(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Of a provider's headers those that the client may see; its request id under a name of its own."""
    passed: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        if name in TO_CLIENT or name.startswith(_RATE_LIMITS):
            passed.append((name, value))
        elif name in _IDS:
            passed.append((UPSTREAM_REQUEST_ID, value))
    return passed


def beside_an_error(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Of a provider's error answer the headers that go to the client beside our own: its limits and its id."""
    passed: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        if name.startswith(_RATE_LIMITS):
            passed.append((name, value))
        elif name in _IDS:
            passed.append((UPSTREAM_REQUEST_ID, value))
    return passed


def client_request_id(value: bytes | None) -> str | None:
    """A client's own request id if it may be kept beside ours: 1 to 128 of `[A-Za-z0-9._-]`. Else None."""
    if not value or len(value) > _LONGEST_ID or not _ID_CHARACTERS.issuperset(value):
        return None
    return value.decode("ascii")


# ── how long a provider asks to wait ──


def wait_seconds(headers: Iterable[tuple[bytes, bytes]], now: float) -> float | None:
    """What `retry-after-ms`, else `retry-after`, asks for, from 0 to 60 s. None: nothing that can be read.

    `now` is wall time in seconds. The finer header wins. A date in the past is 0, more than 60 s is 60 s.
    """
    coarse: float | None = None
    for name, value in headers:
        if name == b"retry-after-ms":
            fine = _seconds(value, 1000)
            if fine is not None:
                return fine
        elif name == b"retry-after" and coarse is None:
            coarse = _seconds(value, 1)
            if coarse is None:
                coarse = _until(value, now)
    return coarse


def _seconds(value: bytes, parts: int) -> float | None:
    text = value.strip()
    whole, _, fraction = text.partition(b".")
    if not whole.isdigit() or (fraction and not fraction.isdigit()):
        return None
    if len(whole) > 12:
        return MAX_RETRY_AFTER_SECONDS
    return min(float(text[:32]) / parts, MAX_RETRY_AFTER_SECONDS)


def _until(value: bytes, now: float) -> float | None:
    if len(value) > 64:
        return None
    try:
        at = parsedate_to_datetime(value.decode("ascii"))
        return min(max(0.0, at.timestamp() - now), MAX_RETRY_AFTER_SECONDS)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


# ── what a provider's words must not carry ──

_LONGEST_MESSAGE = 2_048
_TAKEN_OUT = "[removed]"
_SECRETS = re.compile(
    r"""(?ix)
      \b bearer \s+ \S+                                        # a credential as it was sent
    | \b (?:sk|pk|rk|fg|xai|gsk|hf|nvapi|pplx|tgp|fw|csk|ak) [-_] [\w*.\u2022\u2026-]{3,}  # keys, fragments
    | \b (?:org|organization|proj|project|acct|account|user|key|ws|wrkspc) [-_] (?=[\w*.-]*[\d*]) [\w*.-]{3,}
    | \b AIza [\w*-]{6,}
    | \b [\w.+-]+ @ [\w-]+ (?:\.[\w-]+)+                       # an e-mail address
    | \b [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12} \b
    | [\w-]{0,64} \*{3,} [\w*-]{0,64}                          # whatever a provider has starred out itself
    | \b (?=[a-z]*\d)(?=\d*[a-z]) [a-z\d]{32,} \b                # long enough to be a key
    | (?<=\?) [\w.%-]+ = [^\s"']+                              # a URL's query
    """
)


def scrub(message: str, secrets: Iterable[str] = ()) -> str:
    """A provider's error text without keys, parts of keys, account ids, addresses and control characters.

    `secrets` are the keys in use: of these also every piece of eight characters or more is taken out.
    """
    # First what has a form: a piece of a key taken out of the middle of an account's id would hide the id's form.
    message = _SECRETS.sub(_TAKEN_OUT, message[:_LONGEST_MESSAGE])
    for secret in secrets:
        message = _without(message, secret)
    return "".join(c if c.isprintable() else " " for c in message)


_PIECE = 8


def _without(message: str, secret: str) -> str:
    """The message without the secret and without any piece of it that is eight characters or longer."""
    if not secret:
        return message
    if len(secret) <= _PIECE:
        return message.replace(secret, _TAKEN_OUT)
    at = 0
    while at + _PIECE <= len(message):
        if message[at : at + _PIECE] in secret:
            end = at + _PIECE
            while end < len(message) and message[at : end + 1] in secret:
                end += 1
            message = message[:at] + _TAKEN_OUT + message[end:]
            at += len(_TAKEN_OUT)
        else:
            at += 1
    return message

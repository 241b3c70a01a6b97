"""The errors that a client can see: each knows its HTTP status, its words and whether asking again can help.

One class, and one function for every code. The body in the form of the endpoint is made by `gateway.wire`.
Nothing in here may carry a key, a prompt or an answer: messages are made of names, numbers and places, and
whatever a client sent goes through `shown` first.
"""

from math import ceil
from typing import Literal

ErrorType = Literal[
    "invalid_request_error",
    "permission_error",
    "rate_limit_error",
    "insufficient_quota",
    "upstream_error",
    "server_error",
]
"""Who can mend it: the client, the operator of the key, patience, money, the provider, the gateway."""

MAX_RETRY_AFTER_SECONDS = 60.0
_SHOWN = 64  # characters of a client's own text that a message repeats


class GatewayError(Exception):
    """A request that the gateway itself answers with an error."""

    def __init__(
        self,
        status: int,
        type: str,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after_seconds: float | None = None,
        should_retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type  # one of ErrorType; of a provider's own error what the provider said
        self.code = code
        self.message = message
        self.param = param  # the field of the request that is meant; None: no single one
        self.retry_after_seconds = retry_after_seconds  # None: waiting does not help, no header is sent
        self.should_retry = should_retry  # None: no header is sent


def shown(text: str) -> str:
    """A client's own text as a message may repeat it: one line, printable, cut after 64 characters."""
    cut = text[:_SHOWN]
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
    return f"{safe}..." if len(text) > _SHOWN else safe


def error_headers(error: GatewayError) -> list[tuple[bytes, bytes]]:
    """The headers that every answer with this error carries, in whatever form its body is."""
    headers = [(b"content-type", b"application/json"), (b"x-faregate-error", error.code.encode())]
    wait = error.retry_after_seconds
    if wait is not None:
        wait_ms = max(0, ceil(wait * 1000))
        headers.append((b"retry-after", b"%d" % ceil(wait_ms / 1000)))
        headers.append((b"retry-after-ms", b"%d" % wait_ms))
    if error.should_retry is not None:
        headers.append((b"x-should-retry", b"true" if error.should_retry else b"false"))
    return headers


# ── the client's request ──


def _invalid(status: int, code: str, message: str, param: str | None = None) -> GatewayError:
    return GatewayError(status, "invalid_request_error", code, message, param=param, should_retry=False)


def invalid_api_key(message: str | None = None) -> GatewayError:
    """The same words for a key that is unknown, revoked or expired: what a stranger may not learn."""
    return _invalid(
        401,
        "invalid_api_key",
        message or "this key is not valid here; send a Faregate key as `Authorization: Bearer fg-...`",
    )


def conflicting_credentials(message: str) -> GatewayError:
    """Two credentials in one request: which one counts must not be a guess."""
    return _invalid(400, "invalid_api_key", message)


def invalid_json(message: str) -> GatewayError:
    """The body is not one JSON object."""
    return _invalid(400, "invalid_json", message)


def duplicate_key(name: str, *, where: str | None = None) -> GatewayError:
    """A name stands twice in one object. `where`: the member of the body it was found in; None: the body."""
    place = "the body" if where is None else shown(where)
    return _invalid(
        400,
        "duplicate_key",
        f'"{shown(name)}" stands twice in one object of {place}; send it once',
        param=shown(name),
    )


def json_too_deep(limit: int) -> GatewayError:
    """The body nests deeper than `limit`."""
    return _invalid(400, "json_too_deep", f"the body nests deeper than {limit} objects and arrays")


def invalid_utf8(message: str) -> GatewayError:
    """The body is not UTF-8, or a text in it is no valid Unicode."""
    return _invalid(400, "invalid_utf8", message)


def request_too_large(limit_bytes: int) -> GatewayError:
    """The body is longer than the gateway takes."""
    return _invalid(413, "request_too_large", f"the body is larger than {limit_bytes} bytes (max_body_bytes)")


def headers_too_large(message: str) -> GatewayError:
    """The header block is too long, or has too many lines."""
    return _invalid(431, "headers_too_large", message)


def url_too_long(limit_bytes: int) -> GatewayError:
    """The request line is too long."""
    return _invalid(414, "headers_too_large", f"the URL is longer than {limit_bytes} bytes")


def unsupported_content_encoding(encoding: str) -> GatewayError:
    """The body is packed."""
    return _invalid(
        415,
        "unsupported_content_encoding",
        f'content-encoding "{shown(encoding)}" is not accepted; send the body as it is',
    )


def unsupported_media_type(media_type: str) -> GatewayError:
    """The body is something else than JSON in UTF-8."""
    return _invalid(
        415,
        "unsupported_media_type",
        f'content-type "{shown(media_type)}" is not accepted; send application/json in UTF-8',
    )


def missing_field(param: str) -> GatewayError:
    """A field that the endpoint cannot do without is not there."""
    return _invalid(400, "missing_field", f"{param} is missing; this endpoint needs it", param)


def invalid_value(param: str | None, message: str) -> GatewayError:
    """A field that a decision reads has a value that it cannot have."""
    return _invalid(400, "invalid_value", message, param)


def unknown_parameter(param: str) -> GatewayError:
    """A header or a field of the gateway's own that it does not know."""
    return _invalid(400, "unknown_parameter", f"{shown(param)} is not known here", shown(param))


def model_not_found(message: str) -> GatewayError:
    """No tier, deployment or model of this name."""
    return _invalid(404, "model_not_found", message, "model")


def endpoint_not_served(message: str) -> GatewayError:
    """The model exists, and its provider does not serve this path of the API."""
    return _invalid(404, "endpoint_not_served", message, "model")


def context_length_exceeded(message: str) -> GatewayError:
    """No deployment that may answer takes a prompt of this length."""
    return _invalid(400, "context_length_exceeded", message, "messages")


def not_found(path: str) -> GatewayError:
    """Nothing answers at this path."""
    return _invalid(404, "not_found", f"nothing is at {shown(path)}; the endpoints are under /v1")


def answer_not_found(answer_id: str, why: str | None = None) -> GatewayError:
    """No answer of this id that the caller's team may see."""
    said = why or "no answer of this team has it"
    return _invalid(404, "answer_not_found", f'there is nothing to be had under "{shown(answer_id)}": {said}')


def method_not_allowed(method: str, path: str) -> GatewayError:
    """The path is known, the method is not for it."""
    return _invalid(405, "method_not_allowed", f"{shown(method)} is not possible at {shown(path)}")


def request_timeout(message: str) -> GatewayError:
    """The client was too slow to send its request. Sending it again is fine."""
    return GatewayError(408, "invalid_request_error", "request_timeout", message)


def idempotency_conflict(message: str, *, running: bool) -> GatewayError:
    """The idempotency key is taken: by the same request that still runs (409), or by another body (400)."""
    if running:
        return GatewayError(
            409, "invalid_request_error", "idempotency_conflict", message, retry_after_seconds=1.0
        )
    return _invalid(400, "idempotency_conflict", message)


# ── what the key may not ──


def tier_not_allowed(message: str) -> GatewayError:
    """The key's tiers, or its team's, do not include what was asked for."""
    return GatewayError(
        403, "permission_error", "tier_not_allowed", message, param="model", should_retry=False
    )


def model_not_allowed(message: str) -> GatewayError:
    """The model exists, and this key may not reach it."""
    return GatewayError(
        403, "permission_error", "model_not_allowed", message, param="model", should_retry=False
    )


# ── rate limits and money ──


def rate_limit_exceeded(message: str, *, retry_after_seconds: float) -> GatewayError:
    """The key's or the team's own limit. Waiting mends it, so the client may."""
    return GatewayError(
        429, "rate_limit_error", "rate_limit_exceeded", message, retry_after_seconds=retry_after_seconds
    )


def upstream_rate_limited(message: str, *, retry_after_seconds: float | None) -> GatewayError:
    """Every deployment that could answer is at its provider's limit; the wait is the shortest of theirs."""
    wait = 1.0 if retry_after_seconds is None else min(retry_after_seconds, MAX_RETRY_AFTER_SECONDS)
    return GatewayError(
        429,
        "rate_limit_error",
        "upstream_rate_limited",
        message,
        retry_after_seconds=wait,
        should_retry=False,  # the gateway has spent its own attempts
    )


def budget_exceeded(message: str) -> GatewayError:
    """A budget is spent. No `retry-after`: clients that see one ask again, and waiting brings no money."""
    return GatewayError(429, "insufficient_quota", "budget_exceeded", message, should_retry=False)


def unpriced(message: str) -> GatewayError:
    """A budget touches the request, and a deployment that it could reach has no price and no ceiling."""
    return GatewayError(429, "insufficient_quota", "unpriced", message, should_retry=False)


# ── the provider ──


def _upstream(status: int, code: str, message: str) -> GatewayError:
    return GatewayError(status, "upstream_error", code, message, should_retry=False)


def upstream_unreachable(message: str) -> GatewayError:
    """No connection to any deployment."""
    return _upstream(502, "upstream_unreachable", message)


def upstream_timeout(message: str) -> GatewayError:
    """The provider did not answer, or did not go on, within its limit."""
    return _upstream(504, "upstream_timeout", message)


def upstream_invalid_response(message: str) -> GatewayError:
    """What the provider sent is no whole answer."""
    return _upstream(502, "upstream_invalid_response", message)


def upstream_error(message: str, *, status: int = 502, code: str = "upstream_error") -> GatewayError:
    """The provider answered with an error. `message` has gone through `gateway.wire.headers.scrub`."""
    return _upstream(status, code, message)


def provider_error(
    *,
    status: int,
    message: str,
    type: str | None,
    code: str | None,
    param: str | None,
    retry_after_seconds: float | None = None,
) -> GatewayError:
    """A provider's own refusal of the client's request (400, 404, 413, 422), its fields kept.

    All texts have gone through `gateway.wire.headers.scrub`.
    """
    return GatewayError(
        status,
        type or "invalid_request_error",
        code or "upstream_error",
        message,
        param=param,
        retry_after_seconds=retry_after_seconds,
        should_retry=False,
    )


def stream_interrupted(message: str) -> GatewayError:
    """The provider's stream broke after some of it had gone to the client."""
    return _upstream(502, "stream_interrupted", message)


# ── the gateway ──


def overloaded(message: str, *, retry_after_seconds: float = 1.0) -> GatewayError:
    """More than the gateway, or every deployment, can take just now."""
    return GatewayError(503, "server_error", "overloaded", message, retry_after_seconds=retry_after_seconds)


def draining() -> GatewayError:
    """This process is shutting down; another one answers."""
    return GatewayError(
        503, "server_error", "draining", "this gateway is shutting down; ask again", retry_after_seconds=1.0
    )


def dependency_unavailable(message: str, *, retry_after_seconds: float = 5.0) -> GatewayError:
    """Something the gateway cannot work without is away: a request could not be recorded."""
    return GatewayError(
        503, "server_error", "dependency_unavailable", message, retry_after_seconds=retry_after_seconds
    )


def internal_error(request_id: str) -> GatewayError:
    """A fault of our own. Its reason is in the log, under the request's id, and nowhere else."""
    return GatewayError(
        500,
        "server_error",
        "internal_error",
        f"the gateway failed; its log has the reason under {request_id}",
        should_retry=False,
    )

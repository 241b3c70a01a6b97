"""Errors in the form of the endpoint that was called: whole bodies, and the last event of a stream that broke.

OpenAI's form stands in its API reference; Anthropic's at docs.anthropic.com, api/errors (read 2026-12-01). On the
Responses endpoint Codex takes only `response.failed` for an end: after a bare error event or a cut it sends the
whole request again, five times more; a 400, and a 429 without `retry-after`, it takes for an end too, any other
status it does not (both measured with Codex 0.171, 2026-11).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from gateway.errors import GatewayError

_write = msgspec.json.encode


class Streamed(Protocol):
    """What a form needs to know of a stream that it ends."""

    @property
    def events(self) -> int:
        """How many events came so far."""
        ...

    @property
    def model(self) -> str | None:
        """The model that answered, as it names itself."""
        ...

    @property
    def answer_id(self) -> str | None:
        """The answer's own id."""
        ...


@dataclass(frozen=True, slots=True)
class ErrorForm:
    """How one family of endpoints says that something went wrong."""

    status: Callable[[GatewayError], int]
    body: Callable[[GatewayError, str], bytes]  # the error, the request's id
    last_event: Callable[[GatewayError, str, Streamed | None], bytes]
    """The last event of a stream that broke; None for the stream: nothing of it has come."""
    id_header: bytes | None = None  # under which the family's clients look for the request's id


# ── OpenAI ──


def _own_status(error: GatewayError) -> int:
    return error.status


def error_body(error: GatewayError) -> bytes:
    """The whole body of an error answer in OpenAI's form."""
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
    """The last event of a chat stream that broke. No `[DONE]` follows it."""
    return b"data: " + error_body(error) + b"\n\n"


OPENAI: Final = ErrorForm(
    status=_own_status,
    body=lambda error, _: error_body(error),
    last_event=lambda error, _, __: stream_error_event(error),
)


# ── Responses ──

_FINAL_AS_400 = frozenset({402, 403, 404, 413, 422})


def _responses_status(error: GatewayError) -> int:
    """What asking again cannot mend is a 400: after any other such status Codex asks five times more."""
    return 400 if error.status in _FINAL_AS_400 else error.status


def _failed_event(error: GatewayError, request_id: str, stream: Streamed | None) -> bytes:
    if error.type == "insufficient_quota":
        code = "insufficient_quota"
    elif error.code in ("context_length_exceeded", "rate_limit_exceeded"):
        code = error.code
    else:
        code = "server_error"
    answer_id = None if stream is None else stream.answer_id
    output: list[object] = []
    event = {
        "type": "response.failed",
        "sequence_number": 0 if stream is None else stream.events,
        "response": {
            "id": answer_id or f"resp_{request_id}",
            "object": "response",
            "created_at": 0,
            "status": "failed",
            "error": {"code": code, "message": error.message},
            "incomplete_details": None,
            "model": None if stream is None else stream.model,
            "output": output,
            "usage": None,
        },
    }
    return b"event: response.failed\ndata: " + _write(event) + b"\n\n"


RESPONSES: Final = ErrorForm(
    status=_responses_status,
    body=lambda error, _: error_body(error),
    last_event=_failed_event,
)


# ── Anthropic ──

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def _anthropic_status(error: GatewayError) -> int:
    return 529 if error.status == 503 else error.status


def _anthropic_type(error: GatewayError) -> str:
    status = _anthropic_status(error)
    return _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")


def _anthropic_body(error: GatewayError, request_id: str) -> bytes:
    return _write(
        {
            "type": "error",
            "error": {"type": _anthropic_type(error), "message": error.message},
            "request_id": request_id,
        }
    )


ANTHROPIC: Final = ErrorForm(
    status=_anthropic_status,
    body=_anthropic_body,
    last_event=lambda error, request_id, _: (
        b"event: error\ndata: " + _anthropic_body(error, request_id) + b"\n\n"
    ),
    id_header=b"request-id",
)


def form_at(path: bytes) -> ErrorForm:
    """The form at a path, also where nothing is found."""
    if path.startswith(b"/v1/messages"):
        return ANTHROPIC
    return RESPONSES if path.startswith(b"/v1/responses") else OPENAI

import json
from dataclasses import dataclass
from typing import Any

import pytest

from gateway import errors
from gateway.wire.error_forms import ANTHROPIC, OPENAI, RESPONSES, error_body, stream_error_event


@dataclass
class Stream:
    events: int = 7
    model: str | None = "gpt-5.6"
    answer_id: str | None = "resp_1"


def event_in(data: bytes) -> tuple[str, Any]:
    name, _, rest = data.decode().partition("\n")
    assert rest.startswith("data: ")
    assert rest.endswith("\n\n")
    return name.removeprefix("event: "), json.loads(rest[6:])


def test_an_error_has_the_four_members_that_clients_read():
    error = errors.invalid_value("n", "n must be small")
    assert json.loads(error_body(error)) == {
        "error": {
            "message": "n must be small",
            "type": "invalid_request_error",
            "param": "n",
            "code": "invalid_value",
        }
    }


def test_a_chat_stream_ends_in_an_error_event_and_no_done():
    event = stream_error_event(errors.upstream_timeout("too slow"))
    assert event.startswith(b"data: {")
    assert event.endswith(b"\n\n")
    assert b"[DONE]" not in event


def test_the_plain_form_keeps_every_status():
    assert OPENAI.status(errors.model_not_found("no")) == 404


@pytest.mark.parametrize(
    ("error", "status", "type_"),
    [
        (errors.invalid_api_key(), 401, "authentication_error"),
        (errors.tier_not_allowed("no"), 403, "permission_error"),
        (errors.model_not_found("no"), 404, "not_found_error"),
        (errors.request_too_large(5), 413, "request_too_large"),
        (errors.budget_exceeded("spent"), 429, "rate_limit_error"),
        (errors.overloaded("busy"), 529, "overloaded_error"),
        (errors.upstream_unreachable("away"), 502, "api_error"),
        (errors.upstream_timeout("late"), 504, "timeout_error"),
        (errors.invalid_json("no"), 400, "invalid_request_error"),
    ],
)
def test_on_the_messages_endpoint_an_error_has_anthropics_form(
    error: errors.GatewayError, status: int, type_: str
):
    assert ANTHROPIC.status(error) == status
    assert json.loads(ANTHROPIC.body(error, "req-1")) == {
        "type": "error",
        "error": {"type": type_, "message": error.message},
        "request_id": "req-1",
    }
    name, event = event_in(ANTHROPIC.last_event(error, "req-1", None))
    assert (name, event["type"], event["error"]["type"]) == ("error", "error", type_)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.model_not_found("no"), 400),
        (errors.request_too_large(5), 400),
        (errors.tier_not_allowed("no"), 400),
        (errors.budget_exceeded("spent"), 429),
        (errors.invalid_api_key(), 401),
        (errors.overloaded("busy"), 503),
    ],
)
def test_on_the_responses_endpoint_what_asking_again_cannot_mend_is_a_400(
    error: errors.GatewayError, status: int
):
    assert RESPONSES.status(error) == status
    assert json.loads(RESPONSES.body(error, "req-1"))["error"]["code"] == error.code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.stream_interrupted("broke"), "server_error"),
        (errors.budget_exceeded("spent"), "insufficient_quota"),
        (errors.context_length_exceeded("long"), "context_length_exceeded"),
    ],
)
def test_a_responses_stream_that_breaks_ends_in_response_failed(error: errors.GatewayError, code: str):
    name, event = event_in(RESPONSES.last_event(error, "req-1", Stream()))
    assert (name, event["type"], event["sequence_number"]) == ("response.failed", "response.failed", 7)
    assert event["response"]["id"] == "resp_1"
    assert event["response"]["status"] == "failed"
    assert event["response"]["error"] == {"code": code, "message": error.message}

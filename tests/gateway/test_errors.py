import pytest

from gateway import errors
from gateway.errors import GatewayError, error_headers, shown

# Every code of the table: status, type, what x-should-retry says, whether retry-after is sent.
TABLE: list[tuple[GatewayError, int, str, str, bool | None, bool]] = [
    (errors.invalid_api_key(), 401, "invalid_request_error", "invalid_api_key", False, False),
    (errors.conflicting_credentials("two"), 400, "invalid_request_error", "invalid_api_key", False, False),
    (errors.invalid_json("x"), 400, "invalid_request_error", "invalid_json", False, False),
    (errors.duplicate_key("n"), 400, "invalid_request_error", "duplicate_key", False, False),
    (errors.json_too_deep(64), 400, "invalid_request_error", "json_too_deep", False, False),
    (errors.invalid_utf8("x"), 400, "invalid_request_error", "invalid_utf8", False, False),
    (errors.request_too_large(9), 413, "invalid_request_error", "request_too_large", False, False),
    (errors.headers_too_large("x"), 431, "invalid_request_error", "headers_too_large", False, False),
    (errors.url_too_long(9), 414, "invalid_request_error", "headers_too_large", False, False),
    (
        errors.unsupported_content_encoding("gzip"), 415, "invalid_request_error",
        "unsupported_content_encoding", False, False,
    ),
    (
        errors.unsupported_media_type("text/plain"), 415, "invalid_request_error",
        "unsupported_media_type", False, False,
    ),
    (errors.missing_field("model"), 400, "invalid_request_error", "missing_field", False, False),
    (errors.invalid_value("n", "x"), 400, "invalid_request_error", "invalid_value", False, False),
    (errors.unknown_parameter("x"), 400, "invalid_request_error", "unknown_parameter", False, False),
    (errors.model_not_found("x"), 404, "invalid_request_error", "model_not_found", False, False),
    (errors.answer_not_found("x"), 404, "invalid_request_error", "answer_not_found", False, False),
    (
        errors.endpoint_not_served("x"), 404, "invalid_request_error", "endpoint_not_served", False, False,
    ),
    (
        errors.context_length_exceeded("x"), 400, "invalid_request_error",
        "context_length_exceeded", False, False,
    ),
    (errors.not_found("/x"), 404, "invalid_request_error", "not_found", False, False),
    (
        errors.method_not_allowed("GET", "/x"), 405, "invalid_request_error",
        "method_not_allowed", False, False,
    ),
    (errors.request_timeout("x"), 408, "invalid_request_error", "request_timeout", None, False),
    (
        errors.idempotency_conflict("x", running=True), 409, "invalid_request_error",
        "idempotency_conflict", None, True,
    ),
    (
        errors.idempotency_conflict("x", running=False), 400, "invalid_request_error",
        "idempotency_conflict", False, False,
    ),
    (errors.tier_not_allowed("x"), 403, "permission_error", "tier_not_allowed", False, False),
    (errors.model_not_allowed("x"), 403, "permission_error", "model_not_allowed", False, False),
    (
        errors.rate_limit_exceeded("x", retry_after_seconds=2), 429, "rate_limit_error",
        "rate_limit_exceeded", None, True,
    ),
    (
        errors.upstream_rate_limited("x", retry_after_seconds=2), 429, "rate_limit_error",
        "upstream_rate_limited", False, True,
    ),
    (errors.budget_exceeded("x"), 429, "insufficient_quota", "budget_exceeded", False, False),
    (errors.unpriced("x"), 429, "insufficient_quota", "unpriced", False, False),
    (errors.upstream_unreachable("x"), 502, "upstream_error", "upstream_unreachable", False, False),
    (errors.upstream_timeout("x"), 504, "upstream_error", "upstream_timeout", False, False),
    (errors.upstream_invalid_response("x"), 502, "upstream_error", "upstream_invalid_response", False, False),
    (errors.upstream_error("x"), 502, "upstream_error", "upstream_error", False, False),
    (errors.upstream_error("x", status=529), 529, "upstream_error", "upstream_error", False, False),
    (errors.stream_interrupted("x"), 502, "upstream_error", "stream_interrupted", False, False),
    (errors.overloaded("x"), 503, "server_error", "overloaded", None, True),
    (errors.draining(), 503, "server_error", "draining", None, True),
    (errors.dependency_unavailable("x"), 503, "server_error", "dependency_unavailable", None, True),
    (errors.internal_error("req_1"), 500, "server_error", "internal_error", False, False),
]  # fmt: skip


@pytest.mark.parametrize(("error", "status", "kind", "code", "again", "waits"), TABLE)
def test_every_error_has_its_status_its_words_and_its_headers(
    error: GatewayError, status: int, kind: str, code: str, again: bool | None, waits: bool
):
    headers = dict(error_headers(error))
    assert (error.status, error.type, error.code) == (status, kind, code)
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"x-faregate-error"] == code.encode()
    assert headers.get(b"x-should-retry") == (b"false" if again is False else None)
    assert (b"retry-after" in headers) is waits
    assert (b"retry-after-ms" in headers) is waits
    assert error.message
    assert str(error) == error.message


def test_every_429_and_503_that_waiting_mends_says_how_long():
    for error, status, kind, *_ in TABLE:
        if status in (429, 503):
            assert (error.retry_after_seconds is not None) is (kind != "insufficient_quota")


@pytest.mark.parametrize(
    ("wait", "seconds", "milliseconds"),
    [
        (0.0, b"0", b"0"),
        (0.25, b"1", b"250"),
        (1.0001, b"2", b"1001"),
        (-3.0, b"0", b"0"),
        (60.0, b"60", b"60000"),
    ],
)
def test_a_wait_is_rounded_up(wait: float, seconds: bytes, milliseconds: bytes):
    headers = dict(error_headers(errors.rate_limit_exceeded("x", retry_after_seconds=wait)))
    assert (headers[b"retry-after"], headers[b"retry-after-ms"]) == (seconds, milliseconds)


def test_a_providers_wait_is_capped_at_a_minute():
    assert errors.upstream_rate_limited("x", retry_after_seconds=1e9).retry_after_seconds == 60
    assert errors.upstream_rate_limited("x", retry_after_seconds=None).retry_after_seconds == 1


def test_a_providers_own_refusal_keeps_its_fields():
    error = errors.provider_error(status=422, message="no", type=None, code="bad", param="messages")
    assert (error.status, error.type, error.code, error.param) == (
        422,
        "invalid_request_error",
        "bad",
        "messages",
    )


def test_a_clients_text_is_shown_in_one_short_line():
    assert shown("a\r\nb\x1b\u2028") == "a\\r\\nb\\x1b\\u2028"
    assert shown("x" * 1000) == "x" * 64 + "..."
    assert "\n" not in errors.duplicate_key("a\nb").message

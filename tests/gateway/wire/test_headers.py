import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import GatewayError
from gateway.wire.headers import client_request_id, scrub, to_client, to_provider, wait_seconds

NOW = 1_795_971_200.0  # 2026-11-29T16:53:20Z


def test_nothing_that_says_who_asked_goes_to_the_provider():
    sent = to_provider(
        [
            (b"authorization", b"Bearer fg-secret"),
            (b"x-api-key", b"fg-secret"),
            (b"cookie", b"a=b"),
            (b"openai-organization", b"org-1"),
            (b"openai-project", b"proj-1"),
            (b"proxy-authorization", b"Basic x"),
            (b"connection", b"authorization"),
            (b"host", b"gateway"),
            (b"content-length", b"5"),
            (b"transfer-encoding", b"chunked"),
            (b"accept-encoding", b"gzip, br"),
            (b"content-encoding", b"gzip"),
            (b"user-agent", b"OpenAI/Python"),
            (b"x-stainless-os", b"Linux"),
            (b"x-forwarded-for", b"10.0.0.1"),
            (b"x-faregate-customer", b"acme"),
            (b"x-request-id", b"mine"),
            (b"content-type", b"application/json; charset=utf-8"),
            (b"accept", b"text/event-stream"),
            (b"openai-beta", b"a=v2"),
            (b"traceparent", b"00-0af7-b7ad-01"),
            (b"idempotency-key", b"k-1"),
        ],
        owner="key_1",
    )
    assert sent == [
        (b"content-type", b"application/json"),
        (b"accept", b"text/event-stream"),
        (b"openai-beta", b"a=v2"),
        (b"traceparent", b"00-0af7-b7ad-01"),
        (b"idempotency-key", b"key_1-k-1"),
    ]


@pytest.mark.parametrize("value", [b"a\r\nx-evil: 1", b"a\nb", b"a\x00b", b"a\x7f"])
def test_a_header_with_a_line_break_is_refused(value: bytes):
    with pytest.raises(GatewayError) as raised:
        to_provider([(b"openai-beta", value)], owner="key_1")
    assert (raised.value.code, raised.value.param) == ("invalid_value", "openai-beta")


def test_nothing_that_says_who_we_are_there_goes_to_the_client():
    passed = to_client(
        [
            (b"content-type", b"text/event-stream"),
            (b"set-cookie", b"__cf_bm=1"),
            (b"server", b"cloudflare"),
            (b"openai-organization", b"org-ours"),
            (b"openai-project", b"proj-ours"),
            (b"connection", b"keep-alive"),
            (b"transfer-encoding", b"chunked"),
            (b"content-length", b"5"),
            (b"content-encoding", b"gzip"),
            (b"date", b"x"),
            (b"location", b"http://internal"),
            (b"authorization", b"Bearer sk-ours"),
            (b"x-should-retry", b"true"),
            (b"x-faregate-tier", b"forged"),
            (b"retry-after", b"2"),
            (b"retry-after-ms", b"1500"),
            (b"x-ratelimit-remaining-tokens", b"5"),
            (b"openai-processing-ms", b"12"),
            (b"openai-version", b"2020-10-01"),
            (b"x-request-id", b"req_theirs"),
        ]
    )
    assert passed == [
        (b"content-type", b"text/event-stream"),
        (b"retry-after", b"2"),
        (b"retry-after-ms", b"1500"),
        (b"x-ratelimit-remaining-tokens", b"5"),
        (b"openai-processing-ms", b"12"),
        (b"openai-version", b"2020-10-01"),
        (b"x-upstream-request-id", b"req_theirs"),
    ]


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (b"a-B_9.z", "a-B_9.z"),
        (b"x" * 128, "x" * 128),
        (b"x" * 129, None),
        (b"", None),
        (None, None),
        (b"a b", None),
        (b"a\nb", None),
        ("é".encode(), None),
    ],
)
def test_a_clients_request_id_is_kept_only_if_it_is_plain(value: bytes | None, kept: str | None):
    assert client_request_id(value) == kept


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ([], None),
        ([(b"retry-after", b"2")], 2.0),
        ([(b"retry-after", b" 2.5 ")], 2.5),
        ([(b"retry-after", b"0")], 0.0),
        ([(b"retry-after", b"120")], 60.0),
        ([(b"retry-after-ms", b"250"), (b"retry-after", b"7")], 0.25),
        ([(b"retry-after", b"7"), (b"retry-after-ms", b"250")], 0.25),
        ([(b"retry-after", b"7"), (b"retry-after-ms", b"soon")], 7.0),
        ([(b"retry-after", b"Sun, 29 Nov 2026 16:53:23 GMT")], 3.0),
        ([(b"retry-after", b"Sun, 29 Nov 2026 16:53:10 GMT")], 0.0),
        ([(b"retry-after", b"Mon, 29 Nov 2027 16:53:10 GMT")], 60.0),
        ([(b"retry-after", b"-1")], None),
        ([(b"retry-after", b"abc")], None),
        ([(b"retry-after", b"1e9")], None),
        ([(b"retry-after", b"9" * 400)], 60.0),
        ([(b"retry-after", b"Sun, 99 Nov 2026 16:53:23 GMT")], None),
        ([(b"retry-after", b"\xff")], None),
        ([(b"retry-after", b"")], None),
    ],
)
def test_a_wait_is_read_in_every_form(headers: list[tuple[bytes, bytes]], seconds: float | None):
    assert wait_seconds(headers, NOW) == seconds


@given(st.binary(max_size=80), st.sampled_from([b"retry-after", b"retry-after-ms"]))
def test_no_wait_is_negative_or_longer_than_a_minute(value: bytes, name: bytes):
    wait = wait_seconds([(name, value)], NOW)
    assert wait is None or 0 <= wait <= 60


KEY = "sk-proj-Ab3dEf6hIjKl9nOpQrStUvWxYz012345"


@pytest.mark.parametrize(
    ("message", "gone"),
    [
        (f"Incorrect API key provided: {KEY}.", KEY),
        ("Incorrect API key provided: sk-abc***xyz. Find yours", "abc"),
        ("Incorrect API key provided: sk-Ab3dE****************2345.", "2345"),
        ("key ****wxyz is wrong", "wxyz"),
        ("your header was Authorization: Bearer abcdef", "abcdef"),
        ("Rate limit reached for gpt in organization org-Zz9 on tokens", "org-Zz9"),
        ("project proj_123abc has no access", "proj_123abc"),
        ("write to jane.doe+x@example.co.uk", "jane.doe"),
        ("account 1f0e2d3c-1111-2222-3333-444455556666", "1f0e2d3c"),
        ("gsk_abcdEFGH1234 or xai-abc123 or AIzaSyD-abc123", "gsk_"),
        ("AIzaSyD-abc123", "SyD"),
        ("Azure says 0123456789abcdef0123456789abcdef is wrong", "9abcdef"),
        ("piece hIjKl9nOpQ of it", "hIjKl9nOpQ"),
        ("see https://api.example.com/v1?api_key=abc&x=1 now", "abc"),
    ],
)
def test_a_providers_words_lose_keys_and_names_of_accounts(message: str, gone: str):
    scrubbed = scrub(message, [KEY])
    assert gone not in scrubbed
    assert "[removed]" in scrubbed


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
        "Invalid schema for response_format 'receipt': In context=('properties', 'a'), 'required' is needed",
        "The model `gpt-5.6-terra` does not exist",
        "account_deactivated: 'user_location' and project_name are not supported by key_type",
        "no access to claude-3-7-sonnet-20250219-thinking-preview-extended or meta-llama/llama-v3p1-405b",
        "Invalid 'messages[0].content': string too long. Expected a string with maximum length 1048576",
    ],
)
def test_a_providers_useful_words_stay(message: str):
    assert scrub(message, [KEY]) == message


@given(st.integers(0, len(KEY) - 8), st.integers(8, len(KEY)), st.text(max_size=20), st.text(max_size=20))
def test_no_piece_of_a_key_in_use_survives(start: int, length: int, before: str, after: str):
    piece = KEY[start : start + length]
    assert piece not in scrub(before + piece + after, [KEY])


def test_a_providers_words_become_one_line_of_bounded_length():
    scrubbed = scrub("a\r\nb\x1b[31m" + "x " * 10_000)
    assert scrubbed.startswith("a  b [31m")
    assert len(scrubbed) <= 2_048

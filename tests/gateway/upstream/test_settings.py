"""Base URLs and keys: which are taken, and what the others are told, without the secret in it."""

import pytest

from gateway.upstream.settings import Address, Settings, address_of, auth_of


@pytest.mark.parametrize(
    ("url", "address", "authority", "target"),
    [
        (
            "https://api.example.com/v1",
            Address(secure=True, host="api.example.com", port=443, path="/v1", query=""),
            "api.example.com",
            "/v1/x?y=1",
        ),
        (
            "http://Example.com:8000/",
            Address(secure=False, host="example.com", port=8000, path="", query=""),
            "example.com:8000",
            "/x?y=1",
        ),
        (
            "https://[2001:db8::1]:8443/openai?api-version=2",
            Address(secure=True, host="2001:db8::1", port=8443, path="/openai", query="api-version=2"),
            "[2001:db8::1]:8443",
            "/openai/x?y=1&api-version=2",
        ),
    ],
)
def test_a_base_url_is_taken_apart(url: str, address: Address, authority: str, target: str) -> None:
    assert address_of(url) == address
    assert address.authority == authority
    assert address.target("/x?y=1") == target


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://host/secret",
        "host/secret",
        "https://user:secret@host/",
        "https://secret@host/",
        "https://host/#secret",
        "https:///secret",
        "https://host:99999/secret",
        "https://host:secret/",
        "https://host/se cret",
        "https://host/secret\r\nx: y",
        "https://a..b/secret",
        "",
    ],
)
def test_a_url_that_no_client_may_use_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ValueError) as refusal:
        address_of(url)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "header"),
    [
        (Settings(base_url="", api_key=None), None),
        (Settings(base_url="", api_key="sk-1"), (b"authorization", b"Bearer sk-1")),
        (Settings(base_url="", api_key="k", auth_header="API-Key", auth_scheme=""), (b"api-key", b"k")),
    ],
)
def test_the_key_is_shown_in_the_providers_own_way(
    settings: Settings, header: tuple[bytes, bytes] | None
) -> None:
    assert auth_of(settings) == header


@pytest.mark.parametrize("key", ["", "secret\n", "secret\r\nx: y", "sécret", " secret", "secret\0"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_repeated(key: str) -> None:
    with pytest.raises(ValueError) as refusal:
        auth_of(Settings(base_url="", api_key=key))
    assert "cret" not in str(refusal.value)


def test_settings_do_not_show_their_secrets() -> None:  # S21
    settings = Settings(base_url="http://host", api_key="sk-secret", proxy="http://u:secret@p")
    assert "secret" not in repr(settings)

"""What an upstream must know of its provider: where it is, how to show the key, which limits hold."""

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

USER_AGENT = "faregate"
IDLE_CONNECTION_SECONDS = 30.0

OWN_HEADERS = frozenset(
    {
        b"accept-encoding",
        b"authorization",
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"user-agent",
    }
)
"""Headers that the clients write themselves. A call that brings one is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One provider, as its upstream needs it."""

    base_url: str  # "https://api.openai.com/v1"; a query in it is added to every request
    api_key: str | None = field(default=None, repr=False)  # None: no key is sent
    auth_header: str = "authorization"
    auth_scheme: str = "Bearer"  # "": the key alone
    client: Literal["own", "httpx"] = "own"
    max_connections: int = 1000  # being opened, idle and in use together
    http2: bool = False  # httpx only
    proxy: str | None = field(default=None, repr=False)  # httpx only; may hold a password
    ca_file: str | None = None  # trust these certificate authorities alone; None: the system's
    idle_connection_seconds: float = IDLE_CONNECTION_SECONDS  # an unused connection is closed after this


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A base URL, taken apart."""

    secure: bool
    host: str  # as DNS and certificates know it; IPv6 without brackets
    port: int
    path: str  # without a slash at its end
    query: str

    @property
    def authority(self) -> str:
        """What goes into the `host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    def target(self, path: str) -> str:
        """The request target of a call's path below the base URL."""
        if self.query:
            path += ("&" if "?" in path else "?") + self.query
        return self.path + path


def address_of(base_url: str) -> Address:
    """Take a base URL apart. Raises ValueError, without the URL in it, for one that no client may use."""
    if not is_plain(base_url) or " " in base_url:
        raise ValueError("base_url holds a character that no URL may hold")
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https"):
        raise ValueError("base_url must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("base_url must not hold a user or a password; use api_key")
    if parts.fragment or not parts.hostname:
        raise ValueError("base_url needs a host and no fragment")
    secure = parts.scheme == "https"
    try:
        host = parts.hostname if ":" in parts.hostname else parts.hostname.encode("idna").decode("ascii")
        port = parts.port
    except ValueError:
        raise ValueError("base_url has no usable host and port") from None
    return Address(
        secure=secure,
        host=host,
        port=port or (443 if secure else 80),
        path=parts.path.rstrip("/"),
        query=parts.query,
    )


def is_plain(text: str) -> bool:
    """True for printable ASCII, which is all that a header value or a target may hold here."""
    return text.isascii() and text.isprintable()


def auth_of(settings: Settings) -> tuple[bytes, bytes] | None:
    """The header that shows the key. Raises ValueError, without the key in it, if none can carry it."""
    if settings.api_key is None:
        return None
    if not settings.api_key or not is_plain(settings.api_key) or settings.api_key != settings.api_key.strip():
        raise ValueError("the API key is empty or holds a character that no header may hold")
    if not is_plain(settings.auth_header) or not is_plain(settings.auth_scheme):
        raise ValueError("auth_header and auth_scheme must be plain text")
    value = f"{settings.auth_scheme} {settings.api_key}" if settings.auth_scheme else settings.api_key
    return settings.auth_header.lower().encode(), value.encode()

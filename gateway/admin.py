"""The admin API, on a listener of its own: health, readiness, metrics, keys, the configuration in force.

`/health`, `/ready`, `/metrics` and the page about the API at `/schema` are open to whoever reaches the listener,
which is a loopback address unless somebody decides otherwise. Everything under `/admin` wants
`Authorization: Bearer <admin secret>`. Errors have OpenAI's form, as on the data listener. Health and readiness
say nothing about versions or addresses. No answer ever holds a key that exists, but for the one just made.
"""

import hmac
import json
import logging
import traceback
from asyncio import to_thread
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Annotated, Any

import msgspec
from litestar import Litestar, MediaType, Request, Response, Router, delete, get, post
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, ValidationException
from litestar.handlers.base import BaseRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, OpenAPIRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.params import FromPath, JSONBody, RawBody

from gateway import errors
from gateway.errors import GatewayError
from gateway.ids import RequestIds
from gateway.metrics import CONTENT_TYPE
from gateway.wire.error_forms import error_body
from ledger.store import LedgerAway

log = logging.getLogger("faregate.admin")

_MAX_BODY = 4 * 1024 * 1024
_MINUTES = 10_000_000  # the largest limit a minute that means anything

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=_MINUTES)]


class NewKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a new key may do. Absent or null: not limited in this."""

    team: Text
    application: Text | None = None
    tiers: tuple[Text, ...] | None = None
    regions: tuple[Text, ...] | None = None
    requests_per_minute: Limit | None = None
    tokens_per_minute: Limit | None = None
    expires_at_ms: int | None = None  # milliseconds since 1970-01-01 UTC


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A key as everybody may see it: its public id and what it may do."""

    key_id: str
    team: str
    application: str | None = None
    tiers: tuple[str, ...] | None = None
    regions: tuple[str, ...] | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    created_at_ms: int = 0
    expires_at_ms: int | None = None
    revoked_at_ms: int | None = None


class CreatedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that was just made. `key` is shown this once and kept nowhere."""

    key: str
    key_id: str


class KeyList(msgspec.Struct, frozen=True, kw_only=True):
    """All keys."""

    keys: tuple[KeyInfo, ...]


class Revoked(msgspec.Struct, frozen=True, kw_only=True):
    """A key that is not valid any more."""

    key_id: str


class ProblemInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a configuration, or that a careful person would look at."""

    line: int
    column: int
    field: str
    message: str


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration would be: no problems, and a running gateway takes it."""

    problems: tuple[ProblemInfo, ...] = ()
    warnings: tuple[ProblemInfo, ...] = ()


class ConfigInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration in force. Its text names secrets and holds none."""

    digest: str
    text: str
    problem: str | None = None  # why a later version of the file was not taken


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """`ok`, and nothing else."""

    status: str = "ok"


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether requests should be sent here, and if not, why not, in words from a closed list."""

    ready: bool
    because: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminServices:
    """What the admin API stands on. The key functions and `check` may block: they are called in a thread.

    Any of them may raise GatewayError, or LedgerAway, which is answered 503.
    """

    secret: str  # not empty
    version: str = ""
    not_ready: Callable[[], Sequence[str]]  # why not, in single words; empty: ready
    metrics: Callable[[], bytes]
    list_keys: Callable[[], Sequence[KeyInfo]]
    create_key: Callable[[NewKey], CreatedKey]
    revoke_key: Callable[[str], bool]  # False: no such key
    config: Callable[[], ConfigInfo]
    check: Callable[[str], Checked]  # the text of a faregate.toml
    explain: Callable[[bytes], Mapping[str, Any]]  # a request's body, as a client would send it


def build_admin(services: AdminServices) -> Litestar:
    """The admin application. Raises ValueError without a secret: there is no open mode."""
    if not services.secret:
        raise ValueError("the admin API needs a secret (admin_secret)")
    ids = RequestIds()
    expected = services.secret.encode()

    def needs_secret(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
        given = connection.headers.getall("authorization", [])
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        # Compared even when the scheme is wrong, so that every refusal takes as long.
        same = hmac.compare_digest(token.strip().encode("utf-8", "surrogateescape"), expected)
        if not same or scheme.lower() != "bearer":
            raise errors.invalid_api_key("the admin API needs `Authorization: Bearer <admin secret>`")

    @get("/health", summary="Is the process alive")
    async def health() -> Health:
        return Health()

    @get("/ready", summary="Should requests be sent here")
    async def ready() -> Response[Readiness]:
        because = tuple(services.not_ready())
        return Response(Readiness(ready=not because, because=because), status_code=503 if because else 200)

    @get("/metrics", summary="Metrics in Prometheus' text form", media_type=MediaType.TEXT)
    async def metrics() -> Response[bytes]:
        return Response(services.metrics(), headers={"content-type": CONTENT_TYPE})

    @get("/keys", summary="All keys, without the keys")
    async def list_keys() -> KeyList:
        return KeyList(keys=tuple(await to_thread(services.list_keys)))

    @post("/keys", summary="Make a key; it is shown this once")
    async def create_key(data: JSONBody[NewKey]) -> CreatedKey:
        return await to_thread(services.create_key, data)

    @delete("/keys/{key_id:str}", summary="Revoke a key", status_code=200)
    async def revoke_key(key_id: FromPath[str]) -> Revoked:
        if not await to_thread(services.revoke_key, key_id):
            raise GatewayError(
                404,
                "invalid_request_error",
                "not_found",
                f'no key "{errors.shown(key_id)}"',
                should_retry=False,
            )
        return Revoked(key_id=key_id)

    @get("/config", summary="The configuration in force, with its digest as ETag")
    async def config(request: Request[Any, Any, Any]) -> Response[ConfigInfo | None]:
        info = services.config()
        tag = f'"{info.digest}"'
        if request.headers.get("if-none-match") == tag:
            return Response(None, status_code=304, headers={"etag": tag})
        return Response(info, headers={"etag": tag})

    @post("/check", summary="What is wrong with this faregate.toml (the body)", status_code=200)
    async def check(body: RawBody) -> Checked:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise errors.invalid_utf8("the file is not UTF-8") from None
        return await to_thread(services.check, text)

    @post("/explain", summary="How this request (the body) would be decided, and why", status_code=200)
    async def explain(body: RawBody) -> dict[str, Any]:
        return dict(services.explain(body))

    admin = Router(
        "/admin",
        route_handlers=[list_keys, create_key, revoke_key, config, check, explain],
        guards=[needs_secret],
        security=[{"admin secret": []}],
    )

    def answered(request: Request[Any, Any, Any], problem: Exception) -> Response[bytes]:
        return _answer(problem, request, ids)

    return Litestar(
        [health, ready, metrics, admin],
        logging_config=None,
        request_max_body_size=_MAX_BODY,
        exception_handlers={Exception: answered},
        openapi_config=OpenAPIConfig(
            title="Faregate admin API",
            version=services.version or "0",
            path="/schema",
            render_plugins=[_Page(), JsonRenderPlugin()],
            components=Components(
                security_schemes={"admin secret": SecurityScheme(type="http", scheme="bearer")}
            ),
        ),
    )


# ── errors ──


def _answer(problem: Exception, request: Request[Any, Any, Any], ids: RequestIds) -> Response[bytes]:
    request_id = ids.next()
    error = _error_of(problem, request, request_id)
    headers = {name.decode(): value.decode() for name, value in errors.error_headers(error)}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(
        error_body(error),
        status_code=error.status,
        headers={**headers, "x-request-id": request_id},
        media_type=MediaType.JSON,
    )


def _error_of(problem: Exception, request: Request[Any, Any, Any], request_id: str) -> GatewayError:
    if isinstance(problem, GatewayError):
        return problem
    if isinstance(problem, LedgerAway):
        return errors.dependency_unavailable("the ledger cannot be reached; nothing was changed")
    if isinstance(problem, ValidationException):
        return errors.invalid_value("", _what_is_invalid(problem))
    if isinstance(problem, HTTPException):
        status = problem.status_code
        if status == 404:
            return GatewayError(
                404,
                "invalid_request_error",
                "not_found",
                f"nothing is at {errors.shown(request.url.path)}; /schema has the paths",
                should_retry=False,
            )
        if status == 405:
            return errors.method_not_allowed(request.method, request.url.path)
        if status == 413:
            return errors.request_too_large(_MAX_BODY)
        if 400 <= status < 500:
            return GatewayError(
                status,
                "invalid_request_error",
                "invalid_value",
                "the request is not understood",
                should_retry=False,
            )
    # Its text may hold anything: what it was and where is all that is written.
    where = traceback.extract_tb(problem.__traceback__)[-1:]
    place = f"{where[0].filename}:{where[0].lineno}" if where else "?"
    log.error("%s at %s, answered 500 as %s", type(problem).__name__, place, request_id)
    return errors.internal_error(request_id)


def _what_is_invalid(problem: ValidationException) -> str:
    """Names the fields, and repeats no value."""
    try:
        found = msgspec.convert(problem.extra, list[dict[str, Any]])
    except msgspec.ValidationError:
        found = []
    texts = [f"{item.get('key', '')}: {item.get('message', '')}".strip(": ") for item in found]
    return "; ".join(errors.shown(text) for text in texts[:10]) or "the body is not what this path takes"


# ── the page ──


class _Page(OpenAPIRenderPlugin):
    """The API on one page that loads nothing from anywhere."""

    def __init__(self) -> None:
        super().__init__(path="/")

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """See OpenAPIRenderPlugin."""
        parts = [_PAGE_HEAD]
        paths: Mapping[str, Mapping[str, Any]] = openapi_schema.get("paths", {})
        for path, methods in sorted(paths.items()):
            for method, operation in methods.items():
                secret = " <em>needs the admin secret</em>" if operation.get("security") else ""
                parts.append(
                    f"<h2><code>{escape(method.upper())} {escape(path)}</code>{secret}</h2>"
                    f"<p>{escape(operation.get('summary', ''))}</p>"
                )
        shapes = openapi_schema.get("components", {}).get("schemas", {})
        parts.append(f"<h2>Shapes</h2><pre>{escape(json.dumps(shapes, indent=2))}</pre>")
        return "".join(parts).encode()


_PAGE_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Faregate admin API</title>
<meta name="viewport" content="width=device-width">
<style>body{font:16px/1.5 system-ui;max-width:50rem;margin:2rem auto;padding:0 1rem}h2{font-size:1rem;margin:1.5rem 0 0}
p{margin:.25rem 0}em{font-weight:normal;color:#777}pre{overflow:auto;background:#8881;padding:1rem}</style>
<h1>Faregate admin API</h1><p>For programs: <a href="/schema/openapi.json">openapi.json</a>.</p>"""

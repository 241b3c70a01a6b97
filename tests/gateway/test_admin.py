"""The admin API: open paths say little, the others want the secret, errors have OpenAI's form."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from gateway.admin import (
    AdminServices,
    Checked,
    ConfigInfo,
    CreatedKey,
    KeyInfo,
    NewKey,
    ProblemInfo,
    build_admin,
)
from gateway.errors import invalid_json
from ledger.store import LedgerAway

SECRET = "the admin secret"
BEARER = {"authorization": f"Bearer {SECRET}"}


@dataclass
class Fake:
    """The parts behind the API, in memory."""

    keys: dict[str, KeyInfo] = field(default_factory=dict[str, KeyInfo])
    because: Sequence[str] = ()
    fails: Exception | None = None

    def create(self, new: NewKey) -> CreatedKey:
        if self.fails is not None:
            raise self.fails
        key_id = f"key_{len(self.keys)}"
        self.keys[key_id] = KeyInfo(key_id=key_id, team=new.team, tiers=new.tiers)
        return CreatedKey(key="fg-secret", key_id=key_id)

    def explain(self, body: bytes) -> Mapping[str, Any]:
        if body != b'{"model": "auto"}':
            raise invalid_json("not one JSON object")
        return {"rule": "default", "tier": "standard"}

    def check(self, text: str) -> Checked:
        if text == "schema = 1":
            return Checked()
        return Checked(problems=(ProblemInfo(line=1, column=1, field="schema", message="schema is missing"),))


PARTS = [Fake()]  # behind the one application of all tests, since it takes a while to build
APP: Any = build_admin(
    AdminServices(
        secret=SECRET,
        version="0.1.0",
        not_ready=lambda: PARTS[0].because,
        metrics=lambda: b"faregate_build_info 1\n",
        list_keys=lambda: list(PARTS[0].keys.values()),
        create_key=lambda new: PARTS[0].create(new),
        revoke_key=lambda key_id: PARTS[0].keys.pop(key_id, None) is not None,
        config=lambda: ConfigInfo(digest="abc", text="schema = 1"),
        check=lambda text: PARTS[0].check(text),
        explain=lambda body: PARTS[0].explain(body),
    )
)


def ask(fake: Fake, method: str, path: str, **rest: Any) -> httpx.Response:
    PARTS[0] = fake

    async def work() -> httpx.Response:
        transport = httpx.ASGITransport(APP, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://admin") as client:
            return await client.request(method, path, **rest)

    return asyncio.run(work())


def error(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert response.headers["content-type"].startswith("application/json")
    assert response.headers["x-request-id"].startswith("req_")
    return body["error"]


def test_it_does_not_start_without_a_secret() -> None:
    def nothing(*_: object) -> Any:
        raise AssertionError

    with pytest.raises(ValueError, match="admin_secret"):
        build_admin(
            AdminServices(
                secret="",
                not_ready=nothing,
                metrics=nothing,
                list_keys=nothing,
                create_key=nothing,
                revoke_key=nothing,
                config=nothing,
                check=nothing,
                explain=nothing,
            )
        )


def test_health_says_ok_and_nothing_else() -> None:
    response = ask(Fake(), "GET", "/health")

    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize(("because", "status"), [((), 200), (("draining",), 503)])
def test_readiness_says_why_not(because: tuple[str, ...], status: int) -> None:
    response = ask(Fake(because=because), "GET", "/ready")

    assert response.status_code == status
    assert response.json() == {"ready": not because, "because": list(because)}


def test_metrics_are_in_prometheus_form() -> None:
    response = ask(Fake(), "GET", "/metrics")

    assert response.content == b"faregate_build_info 1\n"
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


PROTECTED = [
    ("GET", "/admin/keys"),
    ("POST", "/admin/keys"),
    ("DELETE", "/admin/keys/key_0"),
    ("GET", "/admin/config"),
    ("POST", "/admin/check"),
    ("POST", "/admin/explain"),
]
OPEN = [("GET", "/health"), ("GET", "/ready"), ("GET", "/metrics")]


@pytest.mark.parametrize(("method", "path"), PROTECTED)
@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer ")],
        [("authorization", "Bearer wrong")],
        [("authorization", f"Basic {SECRET}")],
        [("authorization", SECRET)],
        [("x-api-key", SECRET)],
        [("authorization", f"Bearer {SECRET}"), ("authorization", f"Bearer {SECRET}")],
        [("authorization", f"Bearer {SECRET}x")],
        [("authorization", "Bearer \u00e9")],
    ],
)
def test_nothing_under_admin_answers_without_the_secret(
    method: str, path: str, headers: list[tuple[str, str]]
) -> None:
    fake = Fake(keys={"key_0": KeyInfo(key_id="key_0", team="search")})
    sent = [(name, value.encode("latin-1")) for name, value in headers]

    response = ask(fake, method, path, headers=sent, json={"team": "search"})

    assert response.status_code == 401
    assert error(response)["code"] == "invalid_api_key"
    assert SECRET not in response.text
    assert list(fake.keys) == ["key_0"]


def test_every_path_is_in_the_table_of_what_needs_the_secret() -> None:
    schema = ask(Fake(), "GET", "/schema/openapi.json").json()

    found = {
        (method.upper(), path.replace("{key_id}", "key_0"), bool(operation.get("security")))
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    }

    assert found == {(*entry, True) for entry in PROTECTED} | {(*entry, False) for entry in OPEN}


def test_a_key_is_made_listed_without_itself_and_revoked() -> None:
    fake = Fake()

    made = ask(fake, "POST", "/admin/keys", headers=BEARER, json={"team": "search", "tiers": ["fast"]})
    listed = ask(fake, "GET", "/admin/keys", headers=BEARER)
    revoked = ask(fake, "DELETE", "/admin/keys/key_0", headers=BEARER)
    again = ask(fake, "DELETE", "/admin/keys/key_0", headers=BEARER)

    assert (made.status_code, made.json()) == (201, {"key": "fg-secret", "key_id": "key_0"})
    assert listed.json()["keys"][0]["tiers"] == ["fast"]
    assert "fg-secret" not in listed.text
    assert (revoked.status_code, revoked.json()) == (200, {"key_id": "key_0"})
    assert again.status_code == 404
    assert error(again)["code"] == "not_found"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"team": 5}',
        b'{"team": ""}',
        b'{"team": "a", "teem": "b"}',
        b'{"team": "a", "requests_per_minute": 0}',
        b'{"team": "a", "tiers": "fast"}',
    ],
)
def test_a_key_that_makes_no_sense_is_refused(body: bytes) -> None:
    fake = Fake()

    response = ask(fake, "POST", "/admin/keys", headers=BEARER, content=body)

    assert response.status_code == 400
    assert error(response)["code"] == "invalid_value"
    assert fake.keys == {}


def test_the_configuration_has_its_digest_as_etag() -> None:
    first = ask(Fake(), "GET", "/admin/config", headers=BEARER)
    again = ask(Fake(), "GET", "/admin/config", headers={**BEARER, "if-none-match": first.headers["etag"]})

    assert first.headers["etag"] == '"abc"'
    assert first.json() == {"digest": "abc", "text": "schema = 1", "problem": None}
    assert (again.status_code, again.content) == (304, b"")


def test_a_file_is_checked_as_it_is() -> None:
    good = ask(Fake(), "POST", "/admin/check", headers=BEARER, content=b"schema = 1")
    bad = ask(Fake(), "POST", "/admin/check", headers=BEARER, content=b"schem = 1")
    unreadable = ask(Fake(), "POST", "/admin/check", headers=BEARER, content=b"\xff")

    assert (good.status_code, good.json()) == (200, {"problems": [], "warnings": []})
    assert bad.json()["problems"][0]["message"] == "schema is missing"
    assert (unreadable.status_code, error(unreadable)["code"]) == (400, "invalid_utf8")


def test_a_request_is_explained_as_it_is() -> None:
    good = ask(Fake(), "POST", "/admin/explain", headers=BEARER, content=b'{"model": "auto"}')
    bad = ask(Fake(), "POST", "/admin/explain", headers=BEARER, content=b"{")

    assert good.json() == {"rule": "default", "tier": "standard"}
    assert (bad.status_code, error(bad)["code"]) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/v1/models", 404, "not_found"),
        ("GET", "/admin/publish", 404, "not_found"),
        ("POST", "/health", 405, "method_not_allowed"),
    ],
)
def test_other_paths_have_an_error_in_the_same_form(method: str, path: str, status: int, code: str) -> None:
    response = ask(Fake(), method, path, headers=BEARER)

    assert (response.status_code, error(response)["code"]) == (status, code)


def test_a_ledger_that_is_away_is_said_to_be() -> None:
    response = ask(
        Fake(fails=LedgerAway("at db:5432")), "POST", "/admin/keys", headers=BEARER, json={"team": "a"}
    )

    assert (response.status_code, error(response)["code"]) == (503, "dependency_unavailable")
    assert "5432" not in response.text


def test_an_exception_is_answered_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    fake = Fake(fails=RuntimeError("a secret"))

    response = ask(fake, "POST", "/admin/keys", headers=BEARER, json={"team": "a"})

    assert (response.status_code, error(response)["code"]) == (500, "internal_error")
    assert "a secret" not in response.text + caplog.text
    assert "RuntimeError" in caplog.text


def test_the_page_about_the_api_loads_nothing_from_elsewhere() -> None:
    page = ask(Fake(), "GET", "/schema")

    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "POST /admin/keys" in page.text
    assert "://" not in page.text
    assert "<script" not in page.text


def test_a_body_over_the_limit_is_refused() -> None:
    response = ask(Fake(), "POST", "/admin/check", headers=BEARER, content=b"#" * (4 * 1024 * 1024 + 1))

    assert (response.status_code, error(response)["code"]) == (413, "request_too_large")
    assert json.loads(response.content)["error"]["type"] == "invalid_request_error"

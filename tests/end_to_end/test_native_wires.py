"""The other wires of the API, from outside: whole and streamed, through every fault, booked to the pico-dollar.

Every test ends as all tests of `setting` do: the books agree with the providers' bills, nothing is held, and no
secret and no prompt was written anywhere.
"""

import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.faulty import CANARY_PROMPT, Answer, Setting, run, setting, settled


@dataclass(frozen=True)
class Wire:
    """One endpoint as its clients call it."""

    path: str
    dialect: str
    body: Mapping[str, Any]
    end: bytes  # what the last event of a whole stream has in it
    streams: bool = True
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    def setting(self, folder: Path, **options: Any) -> AbstractAsyncContextManager[Setting]:
        return setting(folder, dialect=self.dialect, **options)

    async def ask(self, made: Setting, *, stream: bool = False, query: str = "", **more: Any) -> Answer:
        body = {"model": "standard", **self.body, **more}
        if stream:
            body["stream"] = True
        return await made.send(self.path + query, json.dumps(body).encode(), headers=self.headers)

    def error_code(self, answer: Answer) -> str:
        """The code of an error as the endpoint's own form has it."""
        body = answer.json()
        if self.dialect == "anthropic":
            assert body["type"] == "error"
            assert body["request_id"] == answer.headers["x-request-id"] == answer.headers["request-id"]
            return body["error"]["type"]
        return body["error"]["code"]


ASKED = [{"role": "user", "content": CANARY_PROMPT}]
WIRES = {
    "messages": Wire(
        path="/v1/messages",
        dialect="anthropic",
        body={"max_tokens": 64, "messages": ASKED},
        end=b'"message_stop"',
        headers={"anthropic-beta": "one,two", "anthropic-version": "2023-06-01"},
    ),
}
every_wire = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
every_stream = pytest.mark.parametrize(
    "wire",
    [wire for wire in WIRES.values() if wire.streams],
    ids=[name for name in WIRES if name != "embeddings"],
)


@every_wire
def test_a_whole_answer_is_relayed_byte_for_byte_and_booked(tmp_path: Path, wire: Wire) -> None:
    async def work() -> None:
        async with wire.setting(tmp_path) as made:
            answer = await wire.ask(made)
            assert answer.status == 200
            assert answer.headers["x-faregate-usage-source"] == "provider"
            assert answer.headers["x-faregate-tier"] == "standard"
            assert (await made.states()) == [settled("a")]
            (row,) = await made.attempts()
            assert row["input_uncached"] > 0
            request = await made.request_row()
            assert request["endpoint"] == wire.path.rpartition("/")[2]
            (seen,) = made.a.seen
            assert seen.json() == {"model": "model-a", **wire.body}
            for name, value in wire.headers.items():
                assert seen.headers[name] == value

    run(work())


@every_stream
def test_a_stream_is_relayed_whole_and_booked(tmp_path: Path, wire: Wire) -> None:
    async def work() -> None:
        async with wire.setting(tmp_path) as made:
            answer = await wire.ask(made, stream=True)
            assert (answer.status, answer.whole) == (200, True)
            assert wire.end in answer.body
            assert (await made.states()) == [settled("a")]

    run(work())


@every_wire
@pytest.mark.parametrize(
    "fault", ["status:500", "reset_before_head", "html", "error_in_body", "rate_limited:0"]
)
def test_a_failure_before_the_answer_moves_to_the_next_deployment(
    tmp_path: Path, wire: Wire, fault: str
) -> None:
    async def work() -> None:
        async with wire.setting(tmp_path) as made:
            made.a.next(fault)
            answer = await wire.ask(made)
            assert answer.status == 200
            assert answer.headers["x-faregate-deployment"] == "b"
            assert answer.attempts == 2

    run(work())


@every_stream
@pytest.mark.parametrize("fault", ["reset_after_role", "error_in_body", "status:503", "html"])
def test_a_stream_without_content_moves_to_the_next_deployment(
    tmp_path: Path, wire: Wire, fault: str
) -> None:
    async def work() -> None:
        async with wire.setting(tmp_path) as made:
            made.a.next(fault)
            answer = await wire.ask(made, stream=True)
            assert (answer.status, answer.whole) == (200, True)
            assert wire.end in answer.body
            assert (await made.states())[-1] == settled("b")

    run(work())


@every_stream
@pytest.mark.parametrize("fault", ["reset_in_stream", "close_in_stream", "error_in_stream", "no_finish"])
def test_a_stream_that_breaks_ends_in_an_error_of_its_own_form(
    tmp_path: Path, wire: Wire, fault: str
) -> None:
    async def work() -> None:
        async with wire.setting(tmp_path) as made:
            made.a.next(fault)
            answer = await wire.ask(made, stream=True)
            assert answer.status == 200
            assert wire.end not in answer.body
            last = answer.body.rstrip().rpartition(b"\n\n")[2]
            event = json.loads(last[last.index(b"data: ") + 6 :])
            if wire.path == "/v1/messages":
                assert last.startswith(b"event: error\n")
                assert (event["type"], event["error"]["type"]) == ("error", "api_error")
            elif wire.path == "/v1/responses":
                assert last.startswith(b"event: response.failed\n")
                assert event["response"]["status"] == "failed"
                assert event["response"]["error"]["code"]
            else:
                assert event["error"]["message"]
            (row,) = await made.attempts()
            assert row["deployment"] == "a"
            assert (await made.request_row())["state"] == "failed"
            assert len(made.b.seen) == 0

    run(work())


@every_wire
def test_usage_that_is_missing_is_estimated_and_never_nothing(tmp_path: Path, wire: Wire) -> None:
    async def work() -> None:
        async with wire.setting(tmp_path) as made:
            made.a.next("no_usage")
            answer = await wire.ask(made)
            assert answer.status == 200
            (row,) = await made.attempts()
            assert (row["state"], row["usage_source"]) == ("estimated", "estimated")
            assert row["cost_pico_usd"] > 0
            assert "estimated_input" in row["flags"]

    run(work())


@every_wire
def test_the_clients_own_errors_come_in_the_endpoints_form(tmp_path: Path, wire: Wire) -> None:
    async def work() -> None:
        async with wire.setting(tmp_path) as made:
            unknown = await made.send(wire.path, b'{"model": "nobody", "messages": []}', headers=wire.headers)
            assert unknown.headers["x-faregate-error"] == "model_not_found"
            broken = await made.send(wire.path, b"{", headers=wire.headers)
            assert broken.status == 400
            stranger = await made.send(
                wire.path, b"{}", headers={**wire.headers, "authorization": "Bearer fg-nobody"}
            )
            assert stranger.status == 401
            got = await made.send(wire.path, b"", headers=wire.headers, method="GET")
            assert got.status == 405
            by_form = {"anthropic": "not_found_error", "openai": "model_not_found"}
            assert wire.error_code(unknown) == by_form[wire.dialect]
            assert unknown.status == (400 if wire.path == "/v1/responses" else 404)
            for answer in (broken, stranger, got):
                assert wire.error_code(answer)
            assert await made.running.rows("request") == []
            assert made.a.seen == []

    run(work())


@every_wire
def test_a_spent_budget_refuses_without_a_call(tmp_path: Path, wire: Wire) -> None:
    budget = """
[teams.search]
[[budgets]]
name = "tiny"
team = "search"
limit_usd = 0.0000001
per = "day"
"""

    async def work() -> None:
        async with wire.setting(tmp_path, more=budget) as made:
            answer = await wire.ask(made)
            assert (answer.status, answer.headers["x-should-retry"]) == (429, "false")
            assert answer.headers["x-faregate-error"] == "budget_exceeded"
            assert "retry-after" not in answer.headers
            assert made.a.seen == []

    run(work())


@every_wire
def test_the_query_goes_on_without_what_may_be_a_key(tmp_path: Path, wire: Wire) -> None:
    async def work() -> None:
        async with wire.setting(tmp_path) as made:
            assert (await wire.ask(made, query="?beta=true&key=secret&x=1")).status == 200
            (seen,) = made.a.seen
            assert seen.path == f"{wire.path}?beta=true&x=1"

    run(work())


def test_messages_are_asked_with_the_providers_own_key_in_its_own_header(tmp_path: Path) -> None:
    wire = WIRES["messages"]

    async def work() -> None:
        async with wire.setting(tmp_path) as made:
            key = made.running.key
            answer = await made.send(
                wire.path,
                json.dumps({"model": "standard", **wire.body}).encode(),
                headers={"x-api-key": key, "authorization": f"Bearer {key}"},
            )
            assert answer.status == 200
            (seen,) = made.a.seen
            assert "authorization" not in seen.headers
            assert seen.headers["x-api-key"] != key
            assert seen.headers["anthropic-version"] == "2023-06-01"
            assert answer.headers["anthropic-ratelimit-requests-limit"] == "4000"
            assert "anthropic-organization-id" not in answer.headers
            assert answer.headers["request-id"] == answer.headers["x-request-id"]

    run(work())


def test_tokens_are_counted_free_of_charge(tmp_path: Path) -> None:
    wire = WIRES["messages"]

    async def work() -> None:
        async with wire.setting(tmp_path) as made:
            body = json.dumps({"model": "standard", "messages": ASKED}).encode()
            answer = await made.send("/v1/messages/count_tokens?beta=true", body)
            assert answer.status == 200
            assert answer.json()["input_tokens"] > 0
            (row,) = await made.attempts()
            assert (row["cost_pico_usd"], row["state"]) == (0, "unbilled")
            assert (await made.request_row())["endpoint"] == "count_tokens"

    run(work())


def test_models_are_listed_in_the_form_of_who_asks(tmp_path: Path) -> None:
    async def work() -> None:
        async with setting(tmp_path) as made:
            plain = (await made.send("/v1/models", b"", method="GET")).json()
            assert plain["object"] == "list"
            versioned = {"anthropic-version": "2023-06-01"}
            listed = await made.send("/v1/models?limit=1000", b"", method="GET", headers=versioned)
            assert [one["id"] for one in listed.json()["data"]] == [one["id"] for one in plain["data"]]
            assert {one["type"] for one in listed.json()["data"]} == {"model"}
            one = await made.send("/v1/models/standard", b"", method="GET", headers=versioned)
            assert one.json()["type"] == "model"
            wrong = await made.send("/v1/models?limit=x", b"", method="GET", headers=versioned)
            assert (wrong.status, wrong.json()["error"]["type"]) == (400, "invalid_request_error")

    run(work())


def test_what_only_one_wire_has_is_not_asked_of_another(tmp_path: Path) -> None:
    async def work() -> None:
        async with setting(tmp_path) as made:
            wire = WIRES["messages"]
            answer = await wire.ask(made)
            assert answer.status == 404
            assert answer.headers["x-faregate-error"] == "endpoint_not_served"
            assert "does not serve /v1/messages" in answer.json()["error"]["message"]
            assert made.a.seen == made.b.seen == []

    run(work())


def test_any_other_path_is_relayed_to_the_deployment_it_names(tmp_path: Path) -> None:
    async def work() -> None:
        async with setting(tmp_path) as made:
            body = json.dumps({"model": "model-a", "voice": "alto", "input": CANARY_PROMPT}).encode()
            answer = await made.send("/v1/audio/speech", body)
            assert answer.status == 200
            (row,) = await made.attempts()
            assert row["cost_pico_usd"] is None
            assert {"unmetered", "unpriced"} <= set(json.loads(row["flags"]))
            for model in ("standard", "auto", "nobody"):
                body = json.dumps({"model": model}).encode()
                assert (await made.send("/v1/audio/speech", body)).status == 404
            assert (await made.send("/v1/audio/speech", b"no json")).status == 404
            assert (await made.send("/v1/files", b"", method="GET")).status == 404

    run(work())

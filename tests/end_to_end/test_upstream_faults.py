"""Whatever a provider does wrong before the client has a byte: the next deployment answers, and the books are right.

U: the list of upstream faults. A fails, B is healthy; "alone" there is only A.
"""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.upstream.own import OwnUpstream
from gateway.upstream.resolve import Endpoint
from gateway.upstream.settings import Settings
from routers.health import Health
from tests.end_to_end.faulty import Client, both_clients, own_first, run, setting, settled
from tests.end_to_end.harness import PROVIDER_KEY
from tests.fakes.provider import HangingPort, Pace, RefusingPort, TlsKind

UNREACHABLE = (502, "upstream_error", "upstream_unreachable")
INVALID = (502, "upstream_error", "upstream_invalid_response")
TIMEOUT = (504, "upstream_error", "upstream_timeout")


# What A shows, whether for a stream, how its row ends, its failure's word, and what the client gets if A is alone.
MOVES: Sequence[Any] = [
    pytest.param("U8", False, "estimated", "reset", UNREACHABLE, id="U8: reset before any header"),
    pytest.param("U8", True, "estimated", "reset", UNREACHABLE, id="U8: the same, streaming"),
    pytest.param("U11", False, "estimated", "reset", INVALID, id="U11: reset within the body"),
    pytest.param("U13", True, "estimated", "reset", INVALID, id="U13: reset after the role"),
    pytest.param("U39", False, "estimated", "invalid_response", INVALID, id="U39: JSON cut short"),
    pytest.param("U40", False, "unbilled", "invalid_response", INVALID, id="U40: a page"),
    pytest.param("U40", True, "unbilled", "invalid_response", INVALID, id="U40: a page, streaming"),
    pytest.param(
        "U41", False, "unbilled", "upstream_error", (502, "upstream_error", "upstream_error"), id="U41: error"
    ),
    pytest.param(
        "U41", True, "unbilled", "upstream_error", (502, "upstream_error", "upstream_error"), id="U41: event"
    ),
    pytest.param("U42", False, "unbilled", "invalid_response", INVALID, id="U42: nothing"),
    pytest.param("U42", True, "unbilled", "invalid_response", INVALID, id="U42: nothing, streaming"),
    pytest.param("U42:204", False, "unbilled", "status_204", INVALID, id="U42: 204"),
    pytest.param("U42:301", False, "unbilled", "status_301", INVALID, id="U42: 301"),
    pytest.param("U44:big", False, "unbilled", "invalid_response", INVALID, id="U44: a header of 300 KB"),
    pytest.param("U44:many", False, "unbilled", "invalid_response", INVALID, id="U44: 500 headers"),
    pytest.param("U45:bomb", False, "estimated", "invalid_response", INVALID, id="U45: gzip bomb"),
    pytest.param("U45:nested", False, "estimated", "invalid_response", INVALID, id="U45: gzip in gzip"),
    pytest.param("U45:bomb", True, "estimated", "invalid_response", INVALID, id="U45: gzip bomb, streaming"),
    pytest.param("U46:long", False, "estimated", "reset", INVALID, id="U46: shorter than it says"),
    pytest.param("U46:short", False, "settled", "invalid_response", INVALID, id="U46: longer than it says"),
]


@own_first
@pytest.mark.parametrize(("fault", "stream", "state", "failure", "alone"), MOVES)
def test_an_answer_that_is_none_moves_to_the_next_deployment(
    tmp_path: Path,
    kind: Client,
    fault: str,
    stream: bool,
    state: str,
    failure: str,
    alone: tuple[int, str, str],
) -> None:
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            s.a.next(fault)
            answer = await s.ask(stream=stream)
            assert (answer.status, answer.attempts, answer.whole) == (200, 2, True)
            assert answer.headers["x-faregate-deployment"] == "b"
            assert answer.text()
            if stream:
                assert answer.events[-1] == "[DONE]"
                assert answer.roles() == 1
            assert await s.states() == [("a", state, failure), settled("b")]
            assert (await s.request_row())["state"] == "answered"
            first = (await s.attempts())[0]
            if fault not in ("U39", "U46:short"):  # of these some text came, or even the usage
                assert first["output_text"] == 0
            assert (first["cost_pico_usd"] > 0) == (state != "unbilled")
            assert await s.warnings() == [("a", failure)]
            assert [one.headers["authorization"] for one in s.a.seen] == [f"Bearer {PROVIDER_KEY}"]

            # And where nobody else could answer:
            services = s.running.process.services
            s.b.always("status:400")  # never asked below
            services.health = Health()
            before = len(s.a.seen)
            s.a.always(fault)
            only = await s.ask(stream=stream, model="a")
            assert only.error() == alone
            assert only.headers["x-should-retry"] == "false"
            assert "retry-after" not in only.headers
            assert only.attempts == len(s.a.seen) - before == 1
            assert "canary" not in only.body.decode()
            assert sorted(await s.states())[:2] == [("a", state, failure)] * 2
            if fault == "U41":
                assert only.json()["error"]["message"] == "The model is overloaded"

    run(trial())


@own_first
def test_a_refused_connection_moves_at_once_and_says_so_once(tmp_path: Path, kind: Client) -> None:  # U1
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            await s.a.refuse()
            answer = await s.ask()
            assert (answer.status, answer.attempts) == (200, 2)
            assert await s.states() == [("a", "unbilled", "connect_refused"), settled("b")]
            assert await s.warnings() == [("a", "connect_refused")]

    run(trial())


@own_first
def test_a_refused_connection_alone_is_tried_at_most_three_times(tmp_path: Path, kind: Client) -> None:  # U2
    async def trial() -> None:
        async with setting(tmp_path, kind=kind, alone=True) as s:
            await s.a.refuse()
            answer = await s.ask()
            assert answer.error() == UNREACHABLE
            assert answer.headers["x-should-retry"] == "false"
            assert answer.attempts == 3
            assert await s.states() == [("a", "unbilled", "connect_refused")] * 3
            row = await s.request_row()
            assert (row["state"], row["status"], row["error"]) == ("failed", 502, "upstream_unreachable")

    run(trial())


@both_clients
def test_a_connection_that_hangs_costs_its_time_limit_and_leaves_nothing(
    tmp_path: Path, kind: Client
) -> None:  # U3
    async def trial() -> None:
        with HangingPort() as port:
            async with setting(
                tmp_path, kind=kind, lines="connect_seconds = 0.3", urls={"a": port.base_url}
            ) as s:
                loop = asyncio.get_running_loop()
                began = loop.time()
                answer = await s.ask()
                assert (answer.status, answer.attempts) == (200, 2)
                assert loop.time() - began < 1.5
                assert await s.states() == [("a", "unbilled", "connect_timeout"), settled("b")]
                threads = {thread.name for thread in threading.enumerate()}
                assert "look-up" not in threads

    run(trial())


def test_a_name_that_did_not_resolve_is_soon_looked_up_again(tmp_path: Path) -> None:  # U4
    async def trial() -> None:
        async with setting(tmp_path) as s:
            known: list[Endpoint] = []

            def look_up(host: str, port: int) -> list[Endpoint]:
                if not known:
                    raise OSError(-2, "Name or service not known")
                return known

            settings = Settings(base_url="http://provider.invalid/v1", api_key=PROVIDER_KEY)
            upstream = OwnUpstream(settings, look_up=look_up, keep_failure_seconds=0.0)
            s.put_upstream("a", upstream)
            first = await s.ask()
            known.append(Endpoint(2, (s.a.host, s.a.port)))
            second = await s.ask()
            assert [one.headers["x-faregate-deployment"] for one in (first, second)] == ["b", "a"]
            assert await s.states() == [("a", "unbilled", "resolve"), settled("b"), settled("a")]
            await upstream.close()

    run(trial())


def test_a_name_server_that_hangs_holds_up_nobody_else(tmp_path: Path) -> None:  # U4
    async def trial() -> None:
        async with setting(tmp_path, lines="connect_seconds = 5") as s:
            release = threading.Event()
            asked = threading.Event()

            def look_up(host: str, port: int) -> list[Endpoint]:
                asked.set()
                release.wait(5)
                return [Endpoint(2, (s.a.host, s.a.port))]

            settings = Settings(base_url="http://provider.invalid/v1", api_key=PROVIDER_KEY)
            upstream = OwnUpstream(settings, look_up=look_up)
            s.put_upstream("a", upstream)
            slow = asyncio.ensure_future(s.ask())
            await asyncio.to_thread(asked.wait, 5)
            assert (await s.ask(model="b")).status == 200
            assert not slow.done()
            release.set()
            assert (await slow).headers["x-faregate-deployment"] == "a"
            await upstream.close()

    run(trial())


def test_the_second_address_of_a_name_is_tried_when_the_first_is_dead(tmp_path: Path) -> None:  # U5
    async def trial() -> None:
        with HangingPort() as dead:
            async with setting(tmp_path, lines="connect_seconds = 2") as s:
                endpoints = [Endpoint(2, (dead.host, dead.port)), Endpoint(2, (s.a.host, s.a.port))]
                settings = Settings(base_url="http://provider.invalid/v1", api_key=PROVIDER_KEY)
                upstream = OwnUpstream(settings, look_up=lambda host, port: endpoints)
                s.put_upstream("a", upstream)
                began = asyncio.get_running_loop().time()
                answer = await s.ask()
                assert (answer.status, answer.attempts) == (200, 1)
                assert asyncio.get_running_loop().time() - began < 1.0
                assert await s.states() == [settled("a")]
                await upstream.close()

    run(trial())


@both_clients
@pytest.mark.parametrize("tls", ["expired", "self_signed", "wrong_host"])
def test_a_certificate_that_is_not_good_is_not_taken(
    tmp_path: Path, kind: Client, tls: TlsKind
) -> None:  # U6
    async def trial() -> None:
        async with setting(tmp_path, kind=kind, tls=tls) as s:
            assert (await s.ask()).headers["x-faregate-deployment"] == "b"
            alone = await s.ask(model="a", headers={"x-verify": "false"})
            assert alone.error() == UNREACHABLE
            assert alone.headers["x-should-retry"] == "false"
            states = await s.states()
            assert states[:2] == [("a", "unbilled", "tls"), settled("b")]
            assert set(states[2:]) == {("a", "unbilled", "tls")}
            assert s.a.seen == []
            warned = [line for line in await s.log() if line["event"] == "attempt_failed"]
            assert "certificate" in warned[0]["detail"]
            assert "BEGIN" not in repr(warned)

    run(trial())


@both_clients
def test_a_good_certificate_of_an_own_authority_is_taken(tmp_path: Path, kind: Client) -> None:  # U6
    async def trial() -> None:
        async with setting(tmp_path, kind=kind, tls="good") as s:
            assert (await s.ask()).attempts == 1
            assert await s.states() == [settled("a")]

    run(trial())


@own_first
def test_a_handshake_that_stalls_is_given_up(tmp_path: Path, kind: Client) -> None:  # U7
    async def trial() -> None:
        async with setting(tmp_path, kind=kind, tls="stalls", lines="connect_seconds = 0.3") as s:
            assert (await s.ask()).headers["x-faregate-deployment"] == "b"
            assert await s.states() == [("a", "unbilled", "connect_timeout"), settled("b")]

    run(trial())


@both_clients
def test_an_idempotency_key_lets_the_same_deployment_finish_what_it_began(
    tmp_path: Path, kind: Client
) -> None:  # U9
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            s.a.next("U9")
            answer = await s.ask(headers={"idempotency-key": "once-only"})
            assert (answer.status, answer.attempts) == (200, 2)
            sent = {one.headers["idempotency-key"] for one in s.a.seen}
            assert len(s.a.seen) == 2
            assert len(sent) == 1
            assert sent.pop().endswith("-once-only")
            assert s.b.seen == []
            rows = await s.attempts()
            assert [row["state"] for row in rows] == ["unbilled", "settled"]
            # The provider booked the work under the first attempt, and gave the second for nothing.
            assert rows[1]["cost_pico_usd"] == sum(s.a.bill().values()) > 0
            s.a.charges[s.a.seen[1].attempt] = s.a.charges.pop(s.a.seen[0].attempt)

    run(trial())


@both_clients
def test_a_repeat_that_fails_too_leaves_the_first_attempts_cost_in_the_books(
    tmp_path: Path, kind: Client
) -> None:  # U9
    async def trial() -> None:
        async with setting(tmp_path, kind=kind, retry_base_seconds=0.05) as s:
            s.a.always("U8")
            asking = asyncio.ensure_future(s.ask(headers={"idempotency-key": "once-only"}))
            while not s.a.seen:
                await asyncio.sleep(0)
            s.a._kept.clear()  # pyright: ignore[reportPrivateUsage] - a provider that forgot the key
            assert (await asking).headers["x-faregate-deployment"] == "b"
            assert await s.states() == [("a", "unbilled", "reset"), ("a", "estimated", "reset"), settled("b")]

    run(trial())


@both_clients
@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_that_died_while_idle_is_no_attempt(
    tmp_path: Path, kind: Client, reset: bool
) -> None:  # U10
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            s.a.next("U10" if reset else "close_after_answer")
            await s.ask()
            s.a.close_idle(reset=reset)
            answer = await s.ask()
            assert (answer.headers["x-faregate-deployment"], answer.attempts) == ("a", 1)
            assert await s.states() == [settled("a"), settled("a")]

    run(trial())


@own_first
def test_a_first_token_that_comes_too_late_moves_to_the_next_deployment(
    tmp_path: Path, kind: Client
) -> None:  # U28
    async def trial() -> None:
        # The other one has the same limit, which has to last on a busy machine.
        async with setting(tmp_path, kind=kind, tier="first_token_seconds = 0.4") as s:
            s.a.next("U28")
            answer = await s.ask(stream=True)
            assert (answer.status, answer.whole, answer.roles()) == (200, True, 1)
            assert answer.headers["x-faregate-deployment"] == "b"
            assert await s.states() == [("a", "estimated", "first_token_timeout"), settled("b")]
            assert (await s.attempts())[0]["output_text"] == 0
            await s.a.closed(s.a.seen[0].tag)

    run(trial())


@own_first
def test_a_first_token_that_comes_too_late_alone_is_a_timeout(tmp_path: Path, kind: Client) -> None:  # U28
    async def trial() -> None:
        async with setting(tmp_path, kind=kind, alone=True, tier="first_token_seconds = 0.1") as s:
            s.a.next("U28")
            answer = await s.ask(stream=True)
            assert answer.error() == TIMEOUT
            assert answer.headers["x-should-retry"] == "false"
            assert await s.states() == [("a", "estimated", "first_token_timeout")]
            await s.a.closed(s.a.seen[0].tag)

    run(trial())


@own_first
@pytest.mark.parametrize("stream", [False, True])
def test_an_endless_drip_ends_at_the_total_limit(tmp_path: Path, kind: Client, stream: bool) -> None:  # U31
    async def trial() -> None:
        pace = Pace(drip_seconds=0.002)
        async with setting(tmp_path, kind=kind, tier="total_seconds = 0.3", pace=pace) as s:
            s.a.next("U31")
            answer = await s.ask(stream=stream)
            assert answer.error() == TIMEOUT
            assert await s.states() == [("a", "estimated", "total_timeout")]
            await s.a.closed(s.a.seen[0].tag)

    run(trial())


@both_clients
def test_a_redirect_is_never_followed(tmp_path: Path, kind: Client) -> None:  # U42, S19
    async def trial() -> None:
        async with setting(tmp_path, kind=kind, alone=True) as s:
            s.a.next(f"U42:{s.b.base_url}/chat/completions")
            assert (await s.ask()).error() == INVALID
            assert s.b.connections_made == 0

    run(trial())


@both_clients
def test_nothing_packed_is_asked_for(tmp_path: Path, kind: Client) -> None:  # U45
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            await s.ask(headers={"accept-encoding": "gzip, br"})
            assert s.a.seen[0].headers["accept-encoding"] == "identity"

    run(trial())


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("own", ""),
        ("own", ":close"),
        ("own", ":reset"),
        ("httpx", ""),
    ],  # httpx gives up at the write that fails
)
def test_a_refusal_that_comes_before_the_body_is_read_reaches_the_client(
    tmp_path: Path, kind: Client, end: str
) -> None:  # U51
    async def trial() -> None:
        async with setting(tmp_path, kind=kind) as s:
            s.a.next(f"U51{end}")
            answer = await s.ask(messages=[{"role": "user", "content": "x" * (8 << 20)}])
            assert answer.status == 413
            assert answer.json()["error"]["message"] == "Request body too large"
            assert await s.states() == [("a", "unbilled", "status_413")]

    run(trial())


def test_the_port_that_refuses_is_a_fault_of_the_connection(tmp_path: Path) -> None:  # U2
    async def trial() -> None:
        with RefusingPort() as port:
            async with setting(tmp_path, alone=True, urls={"a": port.base_url}) as s:
                assert (await s.ask(stream=True)).error() == UNREACHABLE

    run(trial())

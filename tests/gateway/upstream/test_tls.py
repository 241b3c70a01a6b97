"""Certificates: what is trusted, and what is said of one that is not."""

from pathlib import Path

import pytest

from gateway.upstream import ClientLeft
from gateway.upstream.tls import context_for
from tests.gateway.upstream.servers import (
    KEY,
    Authority,
    Client,
    Wire,
    always,
    ask,
    both_clients,
    both_loops,
    call,
    failure_of,
    run,
    serving,
    until,
    upstream,
    whole,
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@both_loops
@both_clients
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_certificate_of_the_named_authority_is_trusted(
    client: Client, loop: str, host: str, authority: Authority
) -> None:
    async def trial() -> None:
        async with serving(always(whole(bytes(200_000))), context=authority.context(host)) as server:
            url = f"https://{host}:{server.port}/v1"
            async with upstream(client, url, ca_file=authority.file) as provider:
                for _ in range(2):
                    assert await ask(provider, call(bytes(1_000_000))) == (200, bytes(200_000))
                assert len(server.wires) == 1
                assert server.bodies == [bytes(1_000_000)] * 2

    run(trial(), loop)


@both_loops
@both_clients
@pytest.mark.parametrize(
    ("host", "days", "self_signed", "known", "said"),
    [
        pytest.param("localhost", -1, False, True, "certificate has expired", id="expired"),
        pytest.param("localhost", 1, True, True, "self-signed certificate", id="self-signed"),
        pytest.param("elsewhere.test", 1, False, True, "Hostname mismatch", id="wrong host"),
        pytest.param(
            "localhost", 1, False, False, "unable to get local issuer certificate", id="unknown authority"
        ),
    ],
)
def test_a_certificate_that_proves_nothing_ends_the_attempt_before_anything_is_sent(
    client: Client,
    loop: str,
    host: str,
    days: int,
    self_signed: bool,
    known: bool,
    said: str,
    authority: Authority,
) -> None:  # U6
    context = authority.context(host, days=days, self_signed=self_signed)

    async def trial() -> None:
        async with serving(always(whole()), context=context) as server:
            url = f"https://localhost:{server.port}/v1"
            async with upstream(client, url, ca_file=authority.file if known else None) as provider:
                failure, _ = await failure_of(provider, call())
                assert (failure.kind, failure.sent) == ("tls", False)
                assert f"certificate problem: {said}" in failure.detail
                assert KEY not in str(failure)
                assert len(str(failure)) < 200
            assert server.heads == []

    run(trial(), loop)


@both_loops
@both_clients
def test_a_provider_that_speaks_no_tls_is_a_failed_handshake(client: Client, loop: str) -> None:
    async def speaks_first(wire: Wire) -> None:
        await wire.say(b"220 mail.test\r\n")
        await wire.gone()

    async def trial() -> None:
        async with (
            serving(speaks_first) as server,
            upstream(client, f"https://localhost:{server.port}/v1") as provider,
        ):
            failure, _ = await failure_of(provider, call())
            assert (failure.kind, failure.sent) == ("tls", False)
            assert "handshake failed: wrong version number" in failure.detail
            await until(lambda: server.open == 0)

    run(trial(), loop)


async def _stalls(wire: Wire) -> None:
    await wire.gone()


@both_loops
@both_clients
def test_a_handshake_that_stalls_ends_at_the_connect_limit(client: Client, loop: str) -> None:  # U7
    async def trial() -> None:
        async with (
            serving(_stalls) as server,
            upstream(client, f"https://localhost:{server.port}/v1") as provider,
        ):
            failure, _ = await failure_of(provider, call(connect=0.1))
            assert (failure.kind, failure.sent) == ("connect_timeout", False)
            await until(lambda: server.open == 0)

    run(trial(), loop)


@both_loops
@both_clients
def test_who_leaves_during_the_handshake_takes_the_connection_along(client: Client, loop: str) -> None:
    async def trial() -> None:
        async with (
            serving(_stalls) as server,
            upstream(client, f"https://localhost:{server.port}/v1") as provider,
        ):
            exchange = provider.open(call())
            await until(lambda: server.open == 1)
            exchange.cancel(ClientLeft())
            await until(lambda: server.open == 0)
            with pytest.raises(ClientLeft):
                await exchange.head()

    run(trial(), loop)


def test_a_file_without_a_certificate_is_no_trust(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        context_for(str(tmp_path / "none.pem"), protocols=("http/1.1",))
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(OSError):
        context_for(str(tmp_path / "empty.pem"), protocols=("http/1.1",))


def test_verification_is_on_for_the_systems_authorities_too() -> None:
    context = context_for(None, protocols=("http/1.1",))
    assert context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"

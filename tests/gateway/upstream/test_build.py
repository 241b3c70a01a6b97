"""Which client a provider gets."""

import pytest

from gateway.upstream.build import upstream_for
from gateway.upstream.httpx_client import HttpxUpstream
from gateway.upstream.own import OwnUpstream
from gateway.upstream.settings import Settings
from tests.gateway.upstream.servers import run


def test_a_provider_gets_the_client_it_names() -> None:
    async def trial() -> None:
        own = upstream_for(Settings(base_url="http://host/v1"))
        httpx = upstream_for(Settings(base_url="http://host/v1", client="httpx"))
        assert isinstance(own, OwnUpstream)
        assert isinstance(httpx, HttpxUpstream)
        for upstream in (own, httpx):  # before their first request
            upstream.retire()
            await upstream.close()

    run(trial())


@pytest.mark.parametrize("wish", [{"proxy": "http://127.0.0.1:9"}, {"http2": True}])
def test_what_our_own_client_cannot_do_is_refused_and_not_ignored(wish: dict[str, str | bool]) -> None:
    with pytest.raises(ValueError, match='client = "httpx"'):
        upstream_for(Settings(base_url="http://host/v1", **wish))  # pyright: ignore[reportArgumentType]

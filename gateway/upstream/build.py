"""One provider's settings to its upstream."""

from gateway.upstream import Upstream
from gateway.upstream.own import OwnUpstream
from gateway.upstream.resolve import LookUp, look_up
from gateway.upstream.settings import Settings


def upstream_for(settings: Settings, *, look_up: LookUp = look_up) -> Upstream:
    """Needs no running loop; the first `open` binds it to one.

    `look_up` replaces the system's name service for our own client. Raises ValueError for settings the client
    cannot use (never with a key or a URL in it) and OSError for a `ca_file` that cannot be read.
    """
    if settings.client == "httpx":
        from gateway.upstream.httpx_client import HttpxUpstream  # slow to import: only where it is wanted

        return HttpxUpstream(settings)
    return OwnUpstream(settings, look_up=look_up)

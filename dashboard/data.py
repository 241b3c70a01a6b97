"""Asks the ledger for a page. Small aggregates are kept for a few seconds; rows of requests never are."""

import os
from collections.abc import Callable
from datetime import date

import streamlit as st

from dashboard.place import LEDGER
from ledger import queries
from ledger.answers import Day, Extent, Names, RequestFilter, RequestLine, RequestSeen, Share
from ledger.store import Ledger, open_ledger

_KEPT_SECONDS = 15

BREAKDOWNS = {
    "team": queries.spend_by_team,
    "application": queries.spend_by_application,
    "tier": queries.spend_by_tier,
    "deployment": queries.spend_by_deployment,
}
"""What spend can be broken down by, from the totals."""


class NoLedger(Exception):
    """Nobody said which ledger to show."""


@st.cache_resource(show_spinner=False)
def _open(url: str) -> Ledger:
    return open_ledger(url)


def _ledger() -> Ledger:
    return _open(_url())


def _url() -> str:
    url = os.environ.get(LEDGER, "")
    if not url:
        raise NoLedger
    return url


# The URL is an argument of what is kept, so that two ledgers in one process never mix.


@st.cache_data(ttl=_KEPT_SECONDS, max_entries=32, show_spinner=False)
def _days(url: str, since: date, until: date) -> list[Day]:
    with _open(url).reading() as at:
        return queries.spend_by_day(at, since, until)


@st.cache_data(ttl=_KEPT_SECONDS, max_entries=64, show_spinner=False)
def _shares(url: str, by: str, since: date, until: date) -> list[Share]:
    ask: Callable[..., list[Share]] = BREAKDOWNS[by]
    with _open(url).reading() as at:
        return ask(at, since, until)


@st.cache_data(ttl=_KEPT_SECONDS, max_entries=32, show_spinner=False)
def _names(url: str, since: date, until: date) -> Names:
    with _open(url).reading() as at:
        return queries.names_in(at, since, until)


@st.cache_data(ttl=_KEPT_SECONDS, max_entries=4, show_spinner=False)
def _about(url: str) -> tuple[Extent, str | None, str | None]:
    with _open(url).reading() as at:
        return queries.extent(at), queries.mark_of(at), queries.newest_config(at)


@st.cache_data(ttl=_KEPT_SECONDS, max_entries=32, show_spinner=False)
def _baselines(url: str, since: date, until: date) -> tuple[str, ...]:
    with _open(url).reading() as at:
        return queries.baselines_seen(at, since, until)


def days(since: date, until: date) -> list[Day]:
    """Spend by day, the days without any left out."""
    return _days(_url(), since, until)


def shares(by: str, since: date, until: date) -> list[Share]:
    """Spend by one of BREAKDOWNS, the most expensive first."""
    return _shares(_url(), by, since, until)


def names(since: date, until: date) -> Names:
    """What requests can be filtered by."""
    return _names(_url(), since, until)


def extent() -> Extent:
    """From when to when there is anything."""
    return _about(_url())[0]


def mark() -> str | None:
    """What the ledger is marked as; None: it is real."""
    return _about(_url())[1]


def config() -> str | None:
    """The newest faregate.toml."""
    return _about(_url())[2]


def baselines(since: date, until: date) -> tuple[str, ...]:
    """What the requests of a period were compared with."""
    return _baselines(_url(), since, until)


def requests(since: date, until: date, wanted: RequestFilter, limit: int) -> list[RequestLine]:
    """The newest requests first."""
    with _ledger().reading() as at:
        return queries.find_requests(at, since, until, wanted, limit=limit)


def request(request_id: str) -> RequestSeen | None:
    """One request, or None."""
    with _ledger().reading() as at:
        return queries.request_by_id(at, request_id)

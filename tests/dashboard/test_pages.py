"""Every page, on an empty ledger and on a filled one, run by Streamlit without a browser."""

import os
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard import report
from dashboard.place import LEDGER
from faregate.made_up_week import entries
from ledger.answers import RequestFilter
from ledger.entry import Admitted, Attempt, Closed
from ledger.queries import find_requests, spend_by_day
from ledger.rows import Books
from ledger.store import Ledger, open_ledger
from pricing.money import usd_text

APP = Path(__file__).parents[2] / "dashboard" / "app.py"
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
WEEK = {"period": "Custom", "since": "2026-11-22", "until": "2026-11-28"}
SINCE, UNTIL = date(2026, 11, 22), date(2026, 11, 29)
PAGES = ("overview", "breakdown", "explorer")
SCRIPT = "<img src=x onerror=alert(1)> **bold** :red[x] $a$ [l](javascript:alert(1))"


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> Iterator[None]:
    st.cache_data.clear()
    st.cache_resource.clear()
    yield
    os.environ.pop(LEDGER, None)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    path = tmp_path_factory.mktemp("filled") / "ledger.db"
    ledger = open_ledger(f"sqlite:///{path}")
    ledger.append([Books(admitted, closed) for admitted, closed in entries(7, NOW, scale=0.05)])
    ledger.set_fact("marked", "made-up")
    ledger.set_fact("path", str(path))
    yield ledger
    ledger.close()


def open_page(path: str | Path, page: str, **query: str) -> AppTest:
    os.environ[LEDGER] = f"sqlite:///{path}"
    app = AppTest.from_string(
        f"from dashboard.app import shown\nfrom dashboard.views import {page}\nshown({page}.draw)\n",
        default_timeout=60,
    )
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def rows_of(app: AppTest) -> list[dict[str, Any]]:
    """The first table of a page."""
    table: Any = app.dataframe[0].value
    return table.to_dict("records")


def words(app: AppTest) -> str:
    """All that is drawn as text."""
    places = (
        app.title,
        app.subheader,
        app.caption,
        app.info,
        app.error,
        app.warning,
        app.text,
        app.code,
        app.markdown,
    )
    return "\n".join(str(one.value) for place in places for one in place).replace("\\", "")


def spent(ledger: Ledger) -> str:
    with ledger.reading() as at:
        return report.usd(sum(one.sums.cost.total for one in spend_by_day(at, SINCE, UNTIL)))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens_on_an_empty_ledger_and_says_what_will_be_there(tmp_path: Path, page: str) -> None:
    app = open_page(tmp_path / "new.db", page)
    assert "Nothing is written in this ledger yet." in words(app)
    assert not app.error


def test_the_headline_is_the_ledger_to_the_cent(filled: Ledger) -> None:
    app = open_page(filled.facts()["path"], "overview", **WEEK)
    tiles = {one.label: one.value.replace("\\", "") for one in app.metric}
    assert tiles["Spend"] == spent(filled)
    assert list(tiles) == ["Spend", "Requests", "Cache share", "Savings (upper bound)", "Estimated"]
    assert tiles["Estimated"].startswith("≈ ")
    said = words(app)
    assert "same tokens: an upper bound" in said
    assert "2026-11-22 to 2026-11-28, 7 UTC days" in said
    assert "at the baseline terra" in said
    *classes, everything = [row["Spend (USD)"] for row in rows_of(app)]
    assert sum(classes) == everything
    assert report.usd(int(everything * 10**12)) == spent(filled)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["Team", "Application", "Tier", "Deployment", "Token class"])
def test_a_breakdown_adds_up_to_the_same_spend(filled: Ledger, by: str) -> None:
    app = open_page(filled.facts()["path"], "breakdown", by=by, **WEEK)
    *parts, everything = [row["Spend (USD)"] for row in rows_of(app)]
    assert sum(parts) == everything
    assert report.usd(int(everything * 10**12)) == spent(filled)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_what_is_not_real_is_said_loudly_on_every_page(filled: Ledger, page: str) -> None:
    app = open_page(filled.facts()["path"], page, **WEEK)
    assert "Nothing on this page happened" in app.error[0].value


@pytest.mark.slow
def test_the_app_itself_opens_on_the_overview(filled: Ledger) -> None:
    os.environ[LEDGER] = f"sqlite:///{filled.facts()['path']}"
    app = AppTest.from_file(str(APP), default_timeout=60).run()
    assert not app.exception
    assert app.title[0].value == "Overview"


def test_a_ledger_that_is_away_is_said_in_a_sentence_without_its_address(tmp_path: Path) -> None:
    (tmp_path / "no-database").write_text("this is not a database, and long enough to be looked at" * 40)
    app = open_page(tmp_path / "no-database", "overview")
    assert app.error[0].value.startswith("The ledger cannot be read just now")
    assert "no-database" not in words(app)


def test_requests_are_listed_and_filtered(filled: Ledger) -> None:
    app = open_page(filled.facts()["path"], "explorer", **WEEK)
    assert len(rows_of(app)) == 100
    app.selectbox(key="state").set_value("cancelled").run()
    assert not app.exception
    assert {row["State"] for row in rows_of(app)} == {"cancelled"}


def test_one_request_shows_its_reason_its_calls_and_its_price_lines(filled: Ledger) -> None:
    with filled.reading() as at:
        line = find_requests(at, SINCE, UNTIL, RequestFilter(quality="estimated"), limit=1)[0]
    app = open_page(filled.facts()["path"], "explorer", id=line.id)
    said = words(app)
    assert line.id in said
    assert "because" in said
    assert f"1. {line.deployment}: {line.model}" in said
    tiles = {one.label: one.value.replace("\\", "") for one in app.metric}
    assert line.cost is not None
    assert tiles["Cost"] == f"≈ {report.usd(line.cost)}"
    assert rows_of(app)[-1]["Cost (USD)"] == f"≈ {usd_text(line.cost)}"


def test_an_unknown_request_is_said_to_be_unknown(filled: Ledger) -> None:
    app = open_page(filled.facts()["path"], "explorer", id=SCRIPT)
    assert "no request of that id" in words(app)
    assert SCRIPT in [one.value for one in app.code]


def test_a_negative_saving_is_red_and_names_are_never_markdown(tmp_path: Path) -> None:
    today = datetime.now(UTC)
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    moment = int((today - timedelta(minutes=1)).timestamp() * 1000)
    attempt = Attempt(
        n=1,
        deployment=SCRIPT,
        provider="p",
        model_called=SCRIPT,
        started_at_ms=moment,
        state="settled",
        input_uncached=5,
        cost_pico_usd=3 * 10**12,
        cost_input_uncached_pico_usd=3 * 10**12,
    )
    admitted = Admitted(
        id="r-1", admitted_at_ms=moment, key_id="k", team=SCRIPT, application=SCRIPT, rule=SCRIPT, user=SCRIPT
    )
    closed = Closed(
        id="r-1",
        closed_at_ms=moment,
        state="answered",
        status=200,
        attempts=(attempt,),
        cost_pico_usd=3 * 10**12,
        baseline_deployment=SCRIPT,
        baseline_pico_usd=10**12,
    )
    ledger.append([Books(admitted, closed)])
    ledger.close()
    app = open_page(f"{tmp_path}/ledger.db", "overview", period="Last 30 days")
    savings = next(one for one in app.metric if one.label == "Savings (upper bound)")
    assert savings.value == ":red[−\\$2\\.00]"
    pages = [app, *(open_page(f"{tmp_path}/ledger.db", page, period="Last 30 days") for page in PAGES[1:])]
    one_request = open_page(f"{tmp_path}/ledger.db", "explorer", id="r-1")
    assert any(SCRIPT in one.value for one in one_request.code)
    drawn = [
        str(one.value)
        for page in (*pages, one_request)
        for one in (*page.markdown, *page.caption, *page.metric, *page.title, *page.subheader)
    ]
    assert drawn
    for mark in ("<", r"\*\*", ":red", r"\]\("):
        assert not [one for one in drawn if re.search(rf"(?<!\\){mark}", one.removeprefix(":red["))]

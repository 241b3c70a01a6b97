"""The real dashboard in a real browser: nothing broken at either width, and the headline is the ledger's."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from dashboard.report import usd
from faregate.made_up_week import entries
from ledger.queries import spend_by_day
from ledger.rows import Books
from ledger.store import open_ledger
from tests.dashboard.browser import CHROMIUM, Page, browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here"),
]

SCRIPT = "<img src=x onerror='window.ran=1'><b>**team**</b>"
WIDTHS = (1280, 400)


@contextmanager
def dashboard(url: str, folder: Path) -> Generator[str]:
    """The pages as `faregate dashboard` starts them; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "dashboard.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "faregate", "dashboard", "--ledger", url, "--port", str(port)],
            stdout=out,
            stderr=out,
            env={name: value for name, value in os.environ.items() if name != "STREAMLIT_SERVER_ADDRESS"},
        )
    try:
        last = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < last, log.read_text()
                time.sleep(0.1)  # another process starts; nothing tells when
        yield f"http://127.0.0.1:{port}"
        assert "Traceback" not in log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)


def test_every_page_is_whole_at_both_widths_and_the_spend_is_the_ledgers(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    week = [Books(admitted, closed) for admitted, closed in entries(7, now, scale=0.05)]
    admitted, closed = week[-1]
    week[-1] = Books(msgspec.structs.replace(admitted, team=SCRIPT, application=SCRIPT, rule=SCRIPT), closed)
    ledger.append(week)
    ledger.set_fact("marked", "made-up")
    since, until = now.date() - timedelta(days=9), now.date() + timedelta(days=1)
    with ledger.reading() as at:
        spent = usd(sum(one.sums.cost.total for one in spend_by_day(at, since, until)))
    period = f"period=Custom&since={since}&until={until - timedelta(days=1)}"
    with dashboard(f"sqlite:///{tmp_path}/ledger.db", tmp_path) as address, browser(tmp_path) as page:
        for width in WIDTHS:
            page.resize(width)
            look(page, f"{address}/?{period}", "Overview", tmp_path / f"overview-{width}.png")
            headline = page.value("document.querySelector('[data-testid=stMetricValue]').innerText.trim()")
            assert headline == spent
            look(page, f"{address}/breakdown?{period}", "Breakdown", tmp_path / f"breakdown-{width}.png")
            look(page, f"{address}/requests?{period}", "Requests", tmp_path / f"requests-{width}.png")
            look(page, f"{address}/requests?id={admitted.id}", "Request", tmp_path / f"request-{width}.png")
            assert SCRIPT in page.text()
    ledger.close()


def look(page: Page, address: str, title: str, picture: Path) -> None:
    """Open a page, take its picture, and see that nothing on it is broken or wider than the window."""
    width = page.value("innerWidth")
    page.open("about:blank", until="location.href == 'about:blank'")
    page.open(address, until=f"document.querySelector('h1')?.innerText.trim() == '{title}'")
    page.shot(picture)
    assert page.value("document.querySelectorAll('[data-testid=stException]').length") == 0
    assert "MADE UP" in page.text()
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.value("window.ran === undefined")
    assert picture.stat().st_size > 10_000

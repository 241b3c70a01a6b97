"""The price that an attempt points at is in the ledger, with where it stood, and stays as it was."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from ledger.store import Ledger, LedgerAway, StoredPrice
from tests.end_to_end.faulty import Setting, run, setting
from tests.end_to_end.harness import body
from tests.end_to_end.raw import CHAT
from tests.end_to_end.test_crash import rows, scene

A, B = "file:a@2026-01-01", "file:b@2026-01-01"


def kept(ledger: Ledger) -> dict[str, dict[str, Any]]:
    with ledger.reading() as connection:
        found = connection.exec_driver_sql("select * from price").mappings()
        return {row["id"]: dict(row) for row in found}


async def until_logged(made: Setting, event: str) -> dict[str, Any]:
    """The line of the log, once it is there."""
    while True:
        for line in (made.folder / "log").read_text().splitlines():
            if f'"event":"{event}"' in line:
                return next(one for one in await made.log() if one["event"] == event)
        await asyncio.sleep(0.005)


async def until_kept(ledger: Ledger, *ids: str) -> dict[str, dict[str, Any]]:
    while not set(ids) <= set(found := kept(ledger)):
        await asyncio.sleep(0.005)
    return found


def save(made: Setting, text: str) -> None:
    """Another version of the file, and the looks that take it."""
    made.running.path.write_text(text)
    watch = made.running.process.watch
    for now in range(3):
        watch.look(float(now))


def test_every_attempt_of_a_served_gateway_points_at_a_price_with_its_source(tmp_path: Path) -> None:
    async def work() -> None:
        async with scene(tmp_path) as made:
            pid = await made.start()
            headers = {"authorization": f"Bearer {made.load.key}"}
            async with httpx.AsyncClient(base_url=made.load.url, headers=headers, trust_env=False) as http:
                assert (await http.post(CHAT, json=body(), timeout=20)).status_code == 200
                while not rows(tmp_path, "price"):
                    await asyncio.sleep(0.02)
            assert await made.starter.stop(pid) == 0
            prices = {price["id"]: price for price in rows(tmp_path, "price")}
            (attempt,) = rows(tmp_path, "attempt")
            price = prices[attempt["price_id"]]
            assert (price["id"], price["source"]) == ("file:a@2026-01-01", "a test")
            assert (price["provider"], price["deployment"], price["model"]) == ("a", "a", "model-a")

    run(work(), within_seconds=60)


def test_the_price_of_every_attempt_is_kept(tmp_path: Path) -> None:
    async def work() -> None:
        async with setting(tmp_path) as made:
            made.running.process.keep_prices()
            made.a.next("status:500")
            assert (await made.http.post(CHAT, json=body())).status_code == 200
            found = await until_kept(made.running.ledger, A, B)
            attempts = await made.attempts()
            assert len(attempts) >= 2
            for attempt in attempts:
                assert found[attempt["price_id"]]["source"] == "a test"

    run(work())


def test_a_price_that_is_edited_in_place_is_told_and_the_kept_one_stays(tmp_path: Path) -> None:
    async def work() -> None:
        async with setting(tmp_path) as made:
            made.running.process.keep_prices()
            before = await until_kept(made.running.ledger, A, B)
            text = made.running.path.read_text()
            save(made, text.replace('output = "10.00"', 'output = "10.01"', 1))
            line = await until_logged(made, "price_edited_in_place")
            assert line["prices"] == [A]
            assert "add a later row" in line["warning"]
            assert kept(made.running.ledger) == before

    run(work())


def test_a_later_price_is_kept_when_its_file_comes_into_force(tmp_path: Path) -> None:
    async def work() -> None:
        async with setting(tmp_path) as made:
            text = made.running.path.read_text()
            later = text[text.index("[[prices]]") : text.index("[providers.b]")].replace("2026-01", "2030-01")
            save(made, text + later)
            found = await until_kept(made.running.ledger, A, B, "file:a@2030-01-01")
            assert len(found) == 3

    run(work())


def test_a_ledger_that_is_away_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with setting(tmp_path) as made:
            ledger, save_rows = made.running.ledger, made.running.ledger.save_price_rows
            calls: list[int] = []

            def away_at_first(prices: Iterable[StoredPrice]) -> tuple[str, ...]:
                calls.append(1)
                if len(calls) < 3:
                    raise LedgerAway("gone")
                return save_rows(prices)

            monkeypatch.setattr(ledger, "save_price_rows", away_at_first)
            made.running.process.prices_again_seconds = 0.0
            made.running.process.keep_prices()
            await until_kept(ledger, A, B)
            assert len(calls) == 3
            events = [line["event"] for line in await made.log()]
            assert events.count("prices_not_kept") == 2

    run(work())

import asyncio

import pytest

from gateway.affinity import Makers
from ledger.answers import Maker
from ledger.store import LedgerAway

TERRA = Maker(deployment="terra", team="search")


def nobody(answer_id: str) -> Maker | None:
    return None


def test_an_answer_of_this_process_is_known_without_the_ledger():
    def away(answer_id: str) -> Maker | None:
        raise LedgerAway("away")

    makers = Makers(away)
    makers.remember("resp_1", TERRA)
    assert asyncio.run(makers.find("resp_1", team="search")) == TERRA
    with pytest.raises(LedgerAway):
        asyncio.run(makers.find("resp_2", team="search"))


def test_an_older_answer_is_looked_up():
    makers = Makers({"resp_1": TERRA}.get)
    assert asyncio.run(makers.find("resp_1", team="search")) == TERRA
    assert asyncio.run(makers.find("resp_2", team="search")) is None


def test_an_answer_is_its_teams_alone():
    makers = Makers(nobody)
    makers.remember("resp_1", TERRA)
    assert asyncio.run(makers.find("resp_1", team="sales")) is None


def test_only_so_many_are_remembered():
    makers = Makers(nobody, most_remembered=2)
    for number in range(5):
        makers.remember(f"resp_{number}", TERRA)
        makers.remember("resp_0", TERRA)  # the one that is asked for again and again stays
    assert len(makers) == 2
    assert asyncio.run(makers.find("resp_0", team="search")) == TERRA
    assert asyncio.run(makers.find("resp_3", team="search")) is None

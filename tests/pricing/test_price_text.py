"""What is written into a file of prices is read back the same."""

from datetime import date
from typing import Any

import pytest

from pricing.price_text import row_text
from pricing.published import load_book, price_file_of

FULL: dict[str, Any] = {
    "from": "2026-06-01T12:00:00Z",
    "rates": {"output": "10", "input": "2", "input_cached": "0.2", "extra": {"citation": "2"}},
    "clock": "response_end",
    "windows": [
        {"name": "night", "days": [1, 7], "from": "16:30", "to": "24:00", "rates": {"input": "1"}},
        {"name": "noon", "days": [3], "from": "12:00:30", "to": "13:00", "rates": {"input": "1.5"}},
    ],
    "batch": {
        "rates": {"input": "1"},
        "long_context": {"threshold": 9, "applies": "above", "rates": {"input": "2"}},
    },
    "service_tiers": {
        "flex 2": {"rates": {"input": "1"}},
        "fast": {"rates": {"input": "4", "input_cached": "0.4"}},
    },
    "long_context": [
        {"threshold": 9, "applies": "at_or_above", "rates": {"input": "3"}},
        {"threshold": 99, "applies": "above", "rates": {"input": "4"}},
    ],
    "multipliers": {"inference_geo": {"us": "1.1"}},
    "per_request": "0.001",
    "per_request_by": {"search_context_size": {"low": "0.005"}},
    "tools": {"web_search": "0.01"},
    "provider_cost": "record",
}


def read_back(text: str) -> Any:
    file = price_file_of('currency = "USD"\n' + text, origin="own")
    assert file.problems == ()
    (listed,) = file.rows
    return listed


def test_a_full_row_is_read_back_the_same() -> None:
    text = row_text(
        {**FULL, "confirmed": True},
        provider="house",
        model='a "model"',
        aliases=("b", "c"),
        source="a list",
        checked_on="2026-12-01",
    )
    listed = read_back(text)
    assert listed.row.as_table() == FULL
    assert (listed.provider, listed.model, listed.aliases) == ("house", 'a "model"', ("b", "c"))
    assert (listed.row.source, listed.row.checked_on) == ("a list", "2026-12-01")
    assert (listed.row.confirmed, listed.row.free) == (True, False)
    assert 'rates = { extra = { citation = "2" }, input = "2", input_cached = "0.2", output = "10" }' in text


@pytest.mark.parametrize("provider", sorted(load_book().providers))
def test_every_row_of_the_book_is_read_back_the_same(provider: str) -> None:
    for model, row in load_book().for_provider(provider).rows():
        table = row.as_table()
        text = row_text(
            {**table, "free": row.free, "confirmed": row.confirmed},
            provider=provider,
            model=model,
            source=row.source or "",
            checked_on=row.checked_on or str(date.min),
        )
        again = read_back(text).row
        assert again.as_table() == table
        assert (again.free, again.confirmed) == (row.free, row.confirmed)

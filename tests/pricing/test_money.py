"""Money in and out as decimals: exact, or refused."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.money import pico_from_usd, rate_from_usd_per_mtok, usd_text


@pytest.mark.parametrize(
    ("pico_usd", "text"),
    [
        (0, "0"),
        (1, "0.000000000001"),
        (10, "0.00000000001"),
        (732_032_000, "0.000732032"),
        (10**12 - 1, "0.999999999999"),
        (10**12, "1"),
        (10 * 10**12, "10"),
        (100_500_000_000_000, "100.5"),
        (-1, "-0.000000000001"),
        (-(10**12), "-1"),
        (-1_500_000_000_000, "-1.5"),
        (12_345_678_901_234_567_890_000_000_000_000, "12345678901234567890"),
    ],
)
def test_money_is_written_out_in_full(pico_usd: int, text: str) -> None:
    assert usd_text(pico_usd) == text


@given(st.integers())
def test_what_is_written_is_read_as_the_same_amount(pico_usd: int) -> None:
    text = usd_text(pico_usd)
    assert pico_from_usd(Decimal(text)) == pico_usd
    assert text == str(int(text)) if "." not in text else not text.endswith("0")


@pytest.mark.parametrize("amount", ["0.0000000000001", "NaN", "Infinity"])
def test_an_amount_that_cannot_be_kept_exactly_is_refused(amount: str) -> None:
    with pytest.raises(ValueError, match=amount.replace(".", r"\.") if amount[0] != "0" else "12 decimals"):
        pico_from_usd(Decimal(amount))


def test_a_price_is_kept_to_six_decimals() -> None:
    assert rate_from_usd_per_mtok(Decimal("0.000001")) == 1
    with pytest.raises(ValueError, match="more than six decimals"):
        rate_from_usd_per_mtok(Decimal("0.0000001"))

from datetime import UTC, datetime

from pricing.savings import same_tokens
from pricing.sheet import PriceBook
from pricing.usage import Usage

AT = datetime(2026, 11, 2, tzinfo=UTC)
BOOK = PriceBook.from_tables({"big": {"rates": {"input": "5", "input_cached": "0.5", "output": "30"}}})


def test_the_same_tokens_are_priced_elsewhere_without_tools() -> None:
    usage = Usage(
        input_uncached=10, input_cached=100, output_text=1, output_reasoning=1, tools={"web_search": 9}
    )
    assert same_tokens(usage, BOOK, model="big", at=AT) == (10 * 50 + 100 * 5 + 2 * 300) * 100_000


def test_a_baseline_without_a_price_is_unknown() -> None:
    assert same_tokens(Usage(input_uncached=1), BOOK, model="other", at=AT) is None

"""Which prices hold for which deployment: its own where the file gives some, else its provider's book."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time
from decimal import Decimal
from functools import lru_cache

from gateway.config.prices import LEAP, OwnPrice
from gateway.config.table import Table
from pricing.money import PicoUsd, usd_text
from pricing.price_row import Row
from pricing.price_tables import PriceProblem
from pricing.published import load_book
from pricing.sheet import PriceBook, Sheet
from routers.policy import Deployment


@lru_cache(maxsize=1)
def _published() -> PriceBook:
    return load_book()


def books_for(
    top: Table,
    deployments: Mapping[str, Deployment],
    own: Mapping[str, Sequence[OwnPrice]],
    ceilings: Mapping[str, PicoUsd | None],
) -> dict[str, PriceBook]:
    """For every deployment the book that its answers are priced by; it may lack the deployment's model."""
    books: dict[str, PriceBook] = {}
    try:
        whole = _published()
    except PriceProblem as wrong:  # a broken installation: never start with half the prices
        for problem in wrong.problems:
            top.report.problem((), f"the price book that comes with the program is broken: {problem}")
        return books
    for name, deployment in deployments.items():
        published = whole.for_provider(deployment.dialect)
        prices = own.get(name)
        books[name] = _own_book(top, deployment, prices, published) if prices else published
        if not is_priced(books[name], deployment.model):
            message = f'has no price for "{deployment.model}": its answers are flagged unpriced'
            if ceilings.get(name) is None:
                message += "; under a budget it is refused until it has ceiling_usd_per_mtok"
            top.report.warning(("deployments", name), message)
    return books


def is_priced(book: PriceBook, model: str) -> bool:
    """True if the book knows what this model costs."""
    return book.find(None, model) is not None


def _own_book(
    top: Table, deployment: Deployment, prices: Sequence[OwnPrice], published: PriceBook
) -> PriceBook:
    """Its own prices from the first of them on, and what was published before that day."""
    versions = [{"from": price.from_, "rates": dict(price.rates), "source": price.source} for price in prices]
    try:
        sheet = Sheet.from_table({"versions": versions}, name=deployment.name, origin="file")
    except PriceProblem as wrong:  # the reader of the file has looked at everything; so this is ours
        for problem in wrong.problems:
            top.report.problem(("prices", prices[0].number), problem)
        return published
    first = datetime.combine(prices[0].from_, time(), UTC)
    found = published.find(None, deployment.model)
    earlier = [row for row in found[1].rows if row.from_ is None or row.from_ < first] if found else []
    if earlier and not prices[0].confirmed:
        _check_leap_from_book(top, earlier[-1], prices[0])
    return PriceBook({deployment.model: Sheet(deployment.model, (*earlier, *sheet.rows))})


def _check_leap_from_book(top: Table, published: Row, price: OwnPrice) -> None:
    for name, rate in price.rates.items():
        former = published.base.rates.get(name)
        if not former or not rate:
            continue
        pico = rate * 1_000_000 * published.scale
        if pico >= former * LEAP or pico * LEAP <= former:
            was = Decimal(usd_text(former)) * 1_000_000 / published.scale
            message = (
                f"is {rate} where the book has {was.normalize():f}; add confirmed = true if that is meant"
            )
            top.report.problem(("prices", price.number, "rates", name), message, price.deployment)

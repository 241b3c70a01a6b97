"""Which prices hold for which deployment: its own where the file gives some, else its provider's book."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from functools import lru_cache
from pathlib import Path

from gateway.config.prices import OwnPrice
from gateway.config.table import Table
from pricing.money import PicoUsd, usd_text
from pricing.price_checks import LEAP, check_rows
from pricing.price_row import Row
from pricing.price_tables import PriceProblem
from pricing.published import OWN_ORIGIN, joined, load_book, price_file_of
from pricing.sheet import PriceBook, Sheet
from routers.policy import Deployment

MOST_BYTES = 8 * 1024 * 1024
"""A larger file of prices is refused unread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The published prices: the program's, and those of `price_file`."""

    book: PriceBook
    raw: bytes  # of `price_file`; empty: there is none


def read_published(top: Table, price_file: str | None) -> Published:
    """The published prices; what is wrong with them is noted."""
    try:
        book = _published()
    except PriceProblem as wrong:  # a broken installation: never start with half the prices
        for problem in wrong.problems:
            top.report.problem((), f"the price book that comes with the program is broken: {problem}")
        return Published(book=PriceBook({}), raw=b"")
    if price_file is None:
        return Published(book=book, raw=b"")
    place = ("gateway", "price_file")
    try:
        with Path(price_file).open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            top.report.problem(place, f"is larger than {MOST_BYTES // 2**20} MiB")
            return Published(book=book, raw=b"")
        own = price_file_of(raw.decode("utf-8"), origin=OWN_ORIGIN)
        joint = joined(book, own)
    except OSError as wrong:
        top.report.problem(place, f"cannot be read: {price_file}: {wrong.strerror or type(wrong).__name__}")
        return Published(book=book, raw=b"")
    except UnicodeDecodeError:
        top.report.problem(place, f"is not UTF-8: {price_file}")
        return Published(book=book, raw=b"")
    except PriceProblem as wrong:
        for problem in wrong.problems:
            top.report.problem(place, f"{Path(price_file).name}: {problem}")
        return Published(book=book, raw=b"")
    for finding in check_rows(own.rows, today=datetime.now(UTC).date(), known=book):
        say = top.report.problem if finding.level == "refused" else top.report.warning
        say(place, f"{Path(price_file).name}: {finding.text}")
    return Published(book=joint, raw=raw)


@lru_cache(maxsize=1)
def _published() -> PriceBook:
    return load_book()


def books_for(
    top: Table,
    deployments: Mapping[str, Deployment],
    own: Mapping[str, Sequence[OwnPrice]],
    ceilings: Mapping[str, PicoUsd | None],
    whole: PriceBook,
) -> dict[str, PriceBook]:
    """For every deployment the book that its answers are priced by; it may lack the deployment's model.

    `whole` is what is published.
    """
    books: dict[str, PriceBook] = {}
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

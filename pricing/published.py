"""Published prices: files of dated rows, and the book that is made of them.

A file of the book that comes with the program is about one provider. A file of your own may be about several: each
of its rows then names its provider. Its rows join those of the program's book, and where two of a model begin at
the same moment, yours holds.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, cast

from pricing.price_row import Row
from pricing.price_tables import PriceProblem, TableReader
from pricing.sheet import PriceBook, Sheet

BOOK = Path(__file__).parent / "book"
"""The files that come with the program."""

OWN_ORIGIN = "own"
"""How the ids of rows begin that stand in a file of your own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRow:
    """A row as it stands in a file."""

    provider: str
    model: str
    aliases: tuple[str, ...]
    row: Row
    place: str  # in the file: `prices[3] "gpt-5"`


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceFile:
    """What a file of prices says, and what is wrong with it."""

    rows: tuple[ListedRow, ...]  # those without a problem, in the order of the file
    providers: tuple[str, ...]
    problems: tuple[str, ...]


def load_book(directory: str | Path | None = None, *, own: str | Path | None = None) -> PriceBook:
    """The published prices: one TOML file a provider. None: those that come with the program.

    `own` is a file of your own whose rows join them. The book as a whole finds a name only where exactly one
    provider has it; `for_provider` finds them all.
    Raises PriceProblem with everything that is wrong in every file.
    """
    folder = BOOK if directory is None else Path(directory)
    paths = sorted(folder.glob("*.toml")) if folder.is_dir() else []
    if not paths:
        raise PriceProblem([f"{folder} holds no price files (*.toml)"])
    problems: list[str] = []
    rows: list[ListedRow] = []
    seen: set[str] = set()
    for path in paths:
        file = read_price_file(path)
        problems += [f"{path.name}: {problem}" for problem in file.problems]
        problems += [
            f'{path.name}: provider "{provider}" has a file already'
            for provider in file.providers
            if provider in seen
        ]
        seen.update(file.providers)
        rows += file.rows
    if problems:
        raise PriceProblem(problems)
    book = _whole(_by_provider(rows))
    if own is None:
        return book
    try:
        return joined(book, read_price_file(Path(own), origin=OWN_ORIGIN))
    except PriceProblem as wrong:
        raise PriceProblem([f"{Path(own).name}: {problem}" for problem in wrong.problems]) from None


def joined(book: PriceBook, own: PriceFile) -> PriceBook:
    """A book with the rows of a file of your own put in. Raises PriceProblem with all that is wrong with the file."""
    problems = [*own.problems]
    sheets: dict[str, dict[str, Sheet]] = {}
    aliases: dict[str, dict[str, str]] = {}
    for listed in own.rows:
        known = book.for_provider(listed.provider)
        model = known.model_of(listed.model) or listed.model  # it may be given by an alias
        mine = sheets.setdefault(listed.provider, dict(known.sheets))
        names = aliases.setdefault(listed.provider, dict(known.aliases))
        mine[model] = mine.get(model, Sheet(model, ())).superseded_by(Sheet(model, (listed.row,)))
        for alias in listed.aliases:
            other = known.model_of(alias)
            if other not in (None, model):
                problems.append(f'{listed.place}: aliases "{alias}" is "{other}" in the book')
            elif alias != model:
                names[alias] = model
    if problems:
        raise PriceProblem(problems)
    own_books = {
        provider: PriceBook(models, aliases=aliases[provider]) for provider, models in sheets.items()
    }
    return _whole({**book.providers, **own_books})


def read_price_file(path: Path, *, origin: str = "book") -> PriceFile:
    """One file; what is wrong with it is told and not raised. `origin` begins the ids of its rows."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        return PriceFile(rows=(), providers=(), problems=(f"cannot be read: {wrong}",))
    return price_file_of(text, origin=origin)


def price_file_of(text: str, *, origin: str) -> PriceFile:
    """As `read_price_file`, for a text that was read already."""
    reader = TableReader("")
    try:
        data = tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, InvalidOperation, RecursionError) as wrong:
        return PriceFile(rows=(), providers=(), problems=(f"cannot be read: {wrong}",))
    reader.unknown(data, ("provider", "currency", "prices"), "")
    provider = data.get("provider")
    if (provider is None and origin != OWN_ORIGIN) or (
        provider is not None and not (isinstance(provider, str) and provider)
    ):
        reader.problem("provider", "must name the provider")
    if data.get("currency") != "USD":
        reader.problem("currency", 'must be "USD"')
    rows: list[ListedRow] = []
    listed = data.get("prices", [])
    if not isinstance(listed, list) or (not listed and origin != OWN_ORIGIN):
        reader.problem("prices", "must be a list of [[prices]] tables")
        listed = []
    whose = provider if isinstance(provider, str) else None
    for number, table in enumerate(cast("list[object]", listed)):
        row = _row(reader, table, f"prices[{number}]", whose, origin)
        if row is not None:
            rows.append(row)
        reader.place = ""
    _check_names(reader, rows)
    providers = dict.fromkeys(row.provider for row in rows)
    return PriceFile(
        rows=tuple(rows),
        providers=tuple(providers) if whose is None else (whose,),
        problems=tuple(reader.problems),
    )


def _row(
    reader: TableReader, table: object, where: str, provider: str | None, origin: str
) -> ListedRow | None:
    """None: something is wrong with it, and was noted."""
    before = len(reader.problems)
    if not isinstance(table, dict):
        reader.problem(where, "must be a table")
        return None
    fields = dict(cast("dict[str, Any]", table))
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        reader.problem(where, "lacks a model")
        return None
    reader.place = f'{where} "{model}": '
    own = fields.pop("provider", provider)
    if not isinstance(own, str) or not own:
        reader.problem("provider", "is missing: whose model is this?")
        own = ""
    elif provider is not None and own != provider:
        reader.problem("provider", f'is "{own}" in a file of "{provider}"')
    names = fields.get("aliases", [])
    if not isinstance(names, list) or not all(
        isinstance(name, str) and name for name in cast("list[object]", names)
    ):
        reader.problem("aliases", "must be a list of names")
        names = []
    row = reader.book_row(fields, own, model, origin)
    if len(reader.problems) > before:
        return None
    aliases = tuple(cast("list[str]", names))
    return ListedRow(provider=own, model=model, aliases=aliases, row=row, place=f'{where} "{model}"')


def _check_names(reader: TableReader, rows: Iterable[ListedRow]) -> None:
    models: dict[tuple[str, str], list[ListedRow]] = {}
    aliases: dict[tuple[str, str], str] = {}
    for listed in rows:
        reader.place = f"{listed.place}: "
        before = models.setdefault((listed.provider, listed.model), [])
        if any(other.row.from_ == listed.row.from_ for other in before):
            reader.problem("from", "is that of another row of this model; a change is a later row")
        before.append(listed)
        for alias in listed.aliases:
            if aliases.setdefault((listed.provider, alias), listed.model) != listed.model:
                first = aliases[listed.provider, alias]
                reader.problem("aliases", f'"{alias}" is an alias of "{first}" already')
    reader.place = ""
    for (provider, alias), model in aliases.items():
        if (provider, alias) in models:
            reader.problem("aliases", f'"{alias}", an alias of "{model}", is a model of its own')


def _by_provider(rows: Iterable[ListedRow]) -> dict[str, PriceBook]:
    sheets: dict[str, dict[str, list[Row]]] = {}
    aliases: dict[str, dict[str, str]] = {}
    for listed in rows:
        sheets.setdefault(listed.provider, {}).setdefault(listed.model, []).append(listed.row)
        names = aliases.setdefault(listed.provider, {})
        for alias in listed.aliases:
            names.setdefault(alias, listed.model)
    return {
        provider: PriceBook(
            {model: Sheet(model, dated) for model, dated in models.items()}, aliases=aliases[provider]
        )
        for provider, models in sheets.items()
    }


def _whole(books: Mapping[str, PriceBook]) -> PriceBook:
    count: dict[str, int] = {}
    for book in books.values():
        for name in book.names:
            count[name] = count.get(name, 0) + 1
    sheets: dict[str, Sheet] = {}
    aliases: dict[str, str] = {}
    for book in books.values():
        for name in book.names:
            found = book.find(name, name)
            if count[name] == 1 and found is not None:
                sheets[found[0]] = found[1]
                aliases[name] = found[0]
    shared = {name for name in sheets if count.get(name, 0) > 1}
    return PriceBook(
        {name: sheet for name, sheet in sheets.items() if name not in shared},
        aliases={alias: name for alias, name in aliases.items() if name not in shared and alias != name},
        providers=books,
    )

"""Reads the keys of one table: each with its type, its bounds and its message, all problems collected.

Every reader asks for its keys by name; what nobody asked for is unknown. `Report.asked` is the list of all
keys there are, which the documentation is tested against.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeVar, cast

from gateway.config.locate import Places
from gateway.config.problems import Path, Problem, dotted, is_unknown, nearest, shown

T = TypeVar("T", bound=str)


class Report:
    """What was found while one file was read."""

    def __init__(self, file: str, text: str, environ: Mapping[str, str]) -> None:
        self.file = file
        self.environ = environ
        self.asked: set[str] = set()  # `gateway.listen`, `deployments.NAME.model`, `rules[].when.task_kind`
        self._text = text
        self._problems: list[tuple[Path, str, str]] = []
        self._warnings: list[tuple[Path, str, str]] = []

    def problem(self, path: Path, message: str, label: str = "") -> None:
        """Something for which the file is refused. `message` goes on after the name of the field."""
        self._problems.append((path, label, message))

    def warning(self, path: Path, message: str, label: str = "") -> None:
        """Something that a careful person would look at."""
        self._warnings.append((path, label, message))

    @property
    def is_bad(self) -> bool:
        """True if the file is refused."""
        return bool(self._problems)

    def problems(self) -> tuple[Problem, ...]:
        """All problems, in the order of the file."""
        return self._placed(self._problems)

    def warnings(self) -> tuple[Problem, ...]:
        """All warnings, in the order of the file."""
        return self._placed(self._warnings)

    def _placed(self, these: list[tuple[Path, str, str]]) -> tuple[Problem, ...]:
        if not these:
            return ()
        places = Places(self._text)
        placed: list[Problem] = []
        for path, label, message in these:
            line, column = places.of(path)
            placed.append(
                Problem(
                    file=self.file,
                    line=line,
                    column=column,
                    field=dotted(path),
                    message=f"{_named(path, label)} {message}".lstrip(),
                )
            )
        return tuple(sorted(placed, key=lambda problem: (problem.line, problem.column)))


def _named(path: Path, label: str) -> str:
    """`rules[2] "short extraction": when.confidance`; without a list entry, the dotted path."""
    for i, part in enumerate(path):
        if isinstance(part, int):
            head, rest = path[: i + 1], path[i + 1 :]
            name = f' "{shown(label)}"' if label else ""
            return f"{dotted(head)}{name}: {dotted(rest)}" if rest else f"{dotted(head)}{name}"
    return dotted(path)


def kind_of(value: object) -> str:
    """What a value of the file is, in a word."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, int | Decimal):
        return "a number"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a table"
    return "a date or time"


class Table:
    """One table of the file and the place it stands."""

    def __init__(
        self, report: Report, data: Mapping[str, Any], path: Path, kind: str, label: str = ""
    ) -> None:
        self.report = report
        self.data = data
        self.path = path
        self.label = label  # the name of the list entry that this is, or is in
        self._kind = kind  # the path with list entries as [] and free names as NAME
        self._known: set[str] = set()

    # what is wrong

    def problem(self, key: str | None, message: str) -> None:
        """A problem with a key, or with the table itself."""
        self.report.problem(self.path if key is None else (*self.path, key), message, self.label)

    def warning(self, key: str | None, message: str) -> None:
        """A warning about a key, or about the table itself."""
        self.report.warning(self.path if key is None else (*self.path, key), message, self.label)

    def done(self) -> None:
        """All keys were asked for: what is left is unknown."""
        for key in self.data:
            if key not in self._known:
                near = nearest(key, self._known)
                self.problem(key, "is unknown" + (f"; did you mean {near}?" if near else ""))

    def not_yet(self, keys: Mapping[str, str]) -> None:
        """Keys that a later version will enforce, each with what it is."""
        for key, what in keys.items():
            if key in self.data:
                self._known.add(key)
                self.problem(key, f"is not enforced yet: {what} come with a later version; take it out")

    # what is there

    def has(self, key: str) -> bool:
        """True if the key is there."""
        return key in self.data

    def get(self, key: str, *, required: bool = False) -> Any:
        """The bare value, None if there is none."""
        self._known.add(key)
        self.report.asked.add(f"{self._kind}.{key}".lstrip("."))
        value = self.data.get(key)
        if value is None and required:
            self.problem(key, "is missing")
        return value

    def _wrong(self, key: str, wanted: str, value: object) -> None:
        self.problem(key, f"must be {wanted}, not {kind_of(value)}")

    def text(self, key: str, *, required: bool = False) -> str | None:
        """A text of at least one character, without control characters, of at most 1,000 characters."""
        value = self.get(key, required=required)
        if value is None:
            return None
        if not isinstance(value, str):
            self._wrong(key, "a text", value)
            return None
        return value if self._is_fair(key, value) else None

    def _is_fair(self, key: str, value: str) -> bool:
        if not value:
            self.problem(key, "is empty")
        elif len(value) > 1000:
            self.problem(key, "is longer than 1,000 characters")
        elif not value.isprintable():
            self.problem(key, "holds a control character")
        else:
            return True
        return False

    def word(self, key: str, words: Collection[T], default: T) -> T:
        """One of these words."""
        value = self.text(key)
        if value is None:
            return default
        for word in words:
            if value == word:
                return word
        self.problem(key, is_unknown(value, words))
        return default

    def flag(self, key: str, *, default: bool) -> bool:
        """true or false."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._wrong(key, "true or false", value)
            return default
        return value

    def whole(self, key: str, *, least: int = 0, most: int = 2**53) -> int | None:
        """A whole number."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self._wrong(key, "a whole number", value)
            return None
        return value if self._within(key, value, least, most) else None

    def number(self, key: str, *, above: Decimal | int = 0, most: Decimal | int = 10**12) -> Decimal | None:
        """A number above a bound."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            self._wrong(key, "a number", value)
            return None
        exact = Decimal(value)
        if not exact.is_finite() or exact <= above:
            self.problem(key, f"is {value}; it must be more than {above}")
            return None
        return exact if self._within(key, exact, above, most) else None

    def seconds(self, key: str, default: float, *, most: int = 86_400) -> float:
        """A duration of more than nothing."""
        value = self.number(key, most=most)
        return default if value is None else float(value)

    def _within(self, key: str, value: int | Decimal, least: int | Decimal, most: int | Decimal) -> bool:
        if value < least:
            self.problem(key, f"is {value}; it must be at least {least}")
        elif value > most:
            self.problem(key, f"is {value}; it must be at most {most}")
        else:
            return True
        return False

    def day(self, key: str, *, required: bool = False) -> date | None:
        """A date without a time."""
        value = self.get(key, required=required)
        if value is None:
            return None
        if not isinstance(value, date) or isinstance(value, datetime):
            self.problem(key, f"must be a date like 2026-01-31, without quotes, not {kind_of(value)}")
            return None
        return value

    def texts(self, key: str, *, may_be_empty: bool = False) -> tuple[str, ...] | None:
        """A list of texts, each once."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            self._wrong(key, "a list of texts", value)
            return None
        found: list[str] = []
        items = cast("list[object]", value)
        for i, item in enumerate(items):
            path = (*self.path, key, i)
            if not isinstance(item, str):
                self.report.problem(path, f"must be a text, not {kind_of(item)}", self.label)
            elif item in found:
                self.report.problem(path, f'is "{shown(item)}", which is in the list already', self.label)
            else:
                found.append(item)
        if not items and not may_be_empty:
            self.problem(key, "is an empty list, which allows nothing")
        return tuple(found)

    def names_one_of(self, key: str, known: Collection[str], *, required: bool = False) -> str | None:
        """A text that must name one of these; given back even if it does not."""
        value = self.text(key, required=required)
        if value is not None and value not in known:
            self.problem(key, is_unknown(value, known))
        return value

    def words(self, key: str, words: Iterable[str]) -> frozenset[str] | None:
        """A list of these words."""
        found = self.texts(key, may_be_empty=True)
        if found is None:
            return None
        known = tuple(words)
        for i, word in enumerate(found):
            if word not in known:
                self.report.problem((*self.path, key, i), is_unknown(word, known), self.label)
        return frozenset(found)

    def secret(self, key: str, *, required: bool = False) -> tuple[str, str | None] | None:
        """`{ env = "NAME" }` -> the name and what the environment holds there, None if it is not set.

        A secret in plain text, or a variable that is set to nothing or to several lines, is a problem; no
        value is ever part of a message.
        """
        value = self.get(key, required=required)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.problem(key, 'must be { env = "NAME" }: a secret does not stand in this file')
            return None
        table = cast("dict[str, Any]", value)
        name = table.get("env")
        if not isinstance(name, str) or not name or len(table) != 1 or not name.isprintable() or "=" in name:
            self.problem(key, 'must be { env = "NAME" } with the name of an environment variable')
            return None
        held = self.report.environ.get(name)
        if held is not None:
            if not held.strip():
                self.problem(key, f"names {name}, which is set but empty; set it or unset it")
                return None
            if not held.isprintable():
                self.problem(key, f"names {name}, which holds a line break or another control character")
                return None
            if held != held.strip():
                self.problem(key, f"names {name}, which begins or ends with a space")
                return None
        return name, held

    # tables in it

    def table(self, key: str, *, required: bool = False) -> "Table | None":
        """A table below this one."""
        value = self.get(key, required=required)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._wrong(key, "a table", value)
            return None
        return self._below(cast("dict[str, Any]", value), (*self.path, key), key, self.label)

    def named_tables(self, key: str) -> "dict[str, Table]":
        """Tables with free names: `[key.NAME]`."""
        whole = self.table(key)
        tables: dict[str, Table] = {}
        if whole is None:
            return tables
        for name, value in whole.data.items():
            if not isinstance(value, dict):
                whole.problem(name, f"must be a table [{key}.{name}], not {kind_of(value)}")
            elif self.is_good_name(whole, name):
                tables[name] = self._below(
                    cast("dict[str, Any]", value), (*whole.path, name), f"{key}.NAME", ""
                )
        return tables

    def is_good_name(self, whole: "Table", name: str) -> bool:
        """Names of tables travel in headers, rows and labels: 1 to 100 printable characters."""
        if name and len(name) <= 100 and name.isprintable() and name == name.strip():
            return True
        whole.problem(name, "is not a name: it takes 1 to 100 printable characters, no space at its ends")
        return False

    def listed_tables(self, key: str, *, label: str, most: int) -> "list[Table]":
        """Tables with an order: `[[key]]`; `label` is the key that names one of them in messages."""
        value = self.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.problem(key, f"must be a list of tables: write [[{key}]], not [{key}]")
            return []
        items = cast("list[object]", value)
        if len(items) > most:
            self.problem(key, f"has {len(items):,} entries; at most {most:,} are taken")
            return []
        tables: list[Table] = []
        for i, item in enumerate(items):
            if not isinstance(item, dict):
                self.report.problem((*self.path, key, i), f"must be a table, not {kind_of(item)}")
                continue
            data = cast("dict[str, Any]", item)
            name = data.get(label)
            shown_label = name if isinstance(name, str) else ""
            tables.append(self._below(data, (*self.path, key, i), f"{key}[]", shown_label))
        return tables

    def _below(self, data: Mapping[str, Any], path: Path, kind: str, label: str) -> "Table":
        return Table(self.report, data, path, f"{self._kind}.{kind}".lstrip("."), label)

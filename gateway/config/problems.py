"""What can be wrong with a file, said so that a person finds the place and knows what to do."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

Path = tuple[str | int, ...]
"""Where in the file: names of tables and keys, and numbers of list entries counted from 0."""

_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong, or that a careful person would look at."""

    file: str
    line: int  # from 1
    column: int  # from 1
    field: str  # `rules[2].when.confidance`; empty: the file itself
    message: str  # a whole sentence that names the field

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class ConfigProblems(Exception):
    """A file that cannot be taken, with everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def dotted(path: Path) -> str:
    """A path as it is written: `deployments.luna.model`, `rules[2].when`, `names."gpt-4.1"`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if part and _BARE.issuperset(part) else f'"{shown(part)}"')
    return text


def shown(text: str) -> str:
    """A text of the file, fit for one line of a message: no control characters, not longer than 80."""
    safe = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:81])
    return safe if len(text) <= 80 else f"{safe[:80]}..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like this one; None: none looks like it."""
    if not name or len(name) > 80:
        return None
    near = get_close_matches(name, list(known)[:2000], n=1, cutoff=0.6)
    return near[0] if near else None


def is_unknown(value: str, known: Iterable[str]) -> str:
    """Says that a word is none of the known ones: `is "lunna", which is unknown; did you mean luna?`"""
    words = list(known)
    near = nearest(value, words)
    text = f'is "{shown(value)}", which is unknown'
    if near is not None:
        return f"{text}; did you mean {near}?"
    if 0 < len(words) <= 20:
        return f"{text}; there is {', '.join(words)}"
    return text

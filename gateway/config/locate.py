"""Finds the line and column of every key of a TOML text, which the standard library's parser does not give.

Only used when there is something to say, and only on text that the parser has accepted: so it need not judge
anything, only find its way through strings, lists and tables.
"""

from bisect import bisect_right

from gateway.config.problems import Path

Place = tuple[int, int]
"""Line and column, both from 1."""

_BLANK = " \t"
_STRINGS = ('"""', "'''", '"', "'")


def _is_bare(character: str) -> bool:
    return character.isalnum() or character in "-_"


class Places:
    """Where each key of one text stands."""

    def __init__(self, text: str) -> None:
        text = text.replace("\r\n", "\n")
        self._starts = [0]
        for i, character in enumerate(text):
            if character == "\n":
                self._starts.append(i + 1)
        self._at: dict[Path, int] = {}
        _Scanner(text, self._at).run()

    def of(self, path: Path) -> Place:
        """The place of this key; where it is not in the text, of the table that should hold it."""
        while path and path not in self._at:
            path = path[:-1]
        return self.at(self._at[path]) if path else (1, 1)

    def at(self, offset: int) -> Place:
        """The place of a character."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


class _Scanner:
    def __init__(self, text: str, at: dict[Path, int]) -> None:
        self._text = text
        self._i = 0
        self._at = at
        self._lists: dict[Path, int] = {}  # list of tables -> number of its last entry

    def run(self) -> None:
        table: Path = ()
        while True:
            self._skip_to_something()
            if self._i >= len(self._text):
                return
            if self._text[self._i] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Path:
        start = self._i
        is_list = self._text.startswith("[[", self._i)
        self._i += 2 if is_list else 1
        names = self._key()
        self._i = self._end_of_line()
        path: Path = ()
        for name, _ in names[:-1]:
            self._at.setdefault((*path, name), start)
            path = self._into_last((*path, name))
        path = (*path, names[-1][0])
        if is_list:
            number = self._lists.get(path, -1) + 1
            self._lists[path] = number
            self._at.setdefault(path, start)
            path = (*path, number)
        self._at.setdefault(path, start)
        return path

    def _into_last(self, path: Path) -> Path:
        return (*path, self._lists[path]) if path in self._lists else path

    def _pair(self, table: Path) -> None:
        path = table
        for name, start in self._key():
            path = (*path, name)
            self._at.setdefault(path, start)
        self._skip(_BLANK)
        self._i += 1  # the equals sign
        self._skip(_BLANK)
        self._value(path)

    def _key(self) -> list[tuple[str, int]]:
        names: list[tuple[str, int]] = []
        while True:
            self._skip(_BLANK)
            start = self._i
            if self._text[start : start + 1] in ('"', "'"):
                names.append((self._string(), start))
            else:
                while self._i < len(self._text) and _is_bare(self._text[self._i]):
                    self._i += 1
                if self._i == start:
                    self._i += 1  # never stand still
                names.append((self._text[start : self._i], start))
            self._skip(_BLANK)
            if not self._text.startswith(".", self._i):
                return names
            self._i += 1

    def _value(self, path: Path) -> None:
        self._at.setdefault(path, self._i)
        first = self._text[self._i : self._i + 1]
        if first in ('"', "'"):
            self._string()
        elif first == "[":
            self._list(path)
        elif first == "{":
            self._inline_table(path)
        else:
            self._i += 1  # never stand still
            while self._i < len(self._text) and self._text[self._i] not in ",]}#\n":
                self._i += 1

    def _list(self, path: Path) -> None:
        self._i += 1
        number = 0
        while True:
            self._skip_to_something()
            character = self._text[self._i : self._i + 1]
            if character in ("]", ""):
                self._i += 1
                return
            if character == ",":
                self._i += 1
                continue
            self._value((*path, number))
            number += 1

    def _inline_table(self, path: Path) -> None:
        self._i += 1
        while True:
            self._skip_to_something()
            character = self._text[self._i : self._i + 1]
            if character in ("}", ""):
                self._i += 1
                return
            if character == ",":
                self._i += 1
                continue
            self._pair(path)

    def _string(self) -> str:
        quote = next(q for q in _STRINGS if self._text.startswith(q, self._i))
        start = self._i = self._i + len(quote)
        while self._i < len(self._text) and not self._text.startswith(quote, self._i):
            self._i += 2 if self._text[self._i] == "\\" and quote[0] == '"' else 1
        inner = self._text[start : self._i]
        self._i += len(quote)
        while len(quote) == 3 and self._text.startswith(quote[0], self._i):
            self._i += 1  # quotes right before the closing ones
        return inner

    def _skip(self, characters: str) -> None:
        while self._i < len(self._text) and self._text[self._i] in characters:
            self._i += 1

    def _skip_to_something(self) -> None:
        while True:
            self._skip(" \t\n\r")
            if not self._text.startswith("#", self._i):
                return
            self._i = self._end_of_line()

    def _end_of_line(self) -> int:
        end = self._text.find("\n", self._i)
        return len(self._text) if end < 0 else end

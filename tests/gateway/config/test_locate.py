"""Lines and columns of keys, which the parser of the standard library does not give."""

import tomllib
from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.locate import Places
from gateway.config.problems import Path

TEXT = '''# a comment with [brackets] and "quotes
schema = 1
[gateway]   # another
listen = "a # not a comment ]"
"quoted key" . inner = 'x'
text = """
[not.a.table]
a = 1 \\""" still inside
"""
raw = \'\'\'
[[nor.this]]\'\'\'
when = 2026-11-29T10:00:00Z

[tiers."fast \\"one"]
deployments = [ # spread
  "luna", { luna = 3, "terra" = 1 },
  [1, 2],
]

[[rules]]
name = "a"
when = { hour = { at_least = 20 }, not = { team = "x" } }
[rules.deep]
key = 1

[[rules]]
name = "b"
[[rules.inner]]
x = 1
[[rules.inner]]
x = 2
'''


@pytest.mark.parametrize(
    ("path", "written"),
    [
        (("schema",), "schema = 1"),
        (("gateway",), "[gateway]"),
        (("gateway", "listen"), "listen ="),
        (("gateway", "quoted key"), '"quoted key"'),
        (("gateway", "quoted key", "inner"), "inner = 'x'"),
        (("gateway", "raw"), "raw ="),
        (("gateway", "when"), "when = 2026"),
        (("tiers", 'fast \\"one', "deployments"), "deployments = ["),
        (("tiers", 'fast \\"one', "deployments", 1), "{ luna"),
        (("tiers", 'fast \\"one', "deployments", 1, "terra"), '"terra" = 1'),
        (("tiers", 'fast \\"one', "deployments", 2, 1), "2],"),
        (("rules", 0), '[[rules]]\nname = "a"'),
        (("rules", 0, "when", "hour", "at_least"), "at_least"),
        (("rules", 0, "when", "not", "team"), 'team = "x"'),
        (("rules", 0, "deep", "key"), "key = 1"),
        (("rules", 1), '[[rules]]\nname = "b"'),
        (("rules", 1, "name"), 'name = "b"'),
        (("rules", 1, "inner", 1, "x"), "x = 2"),
    ],
)
def test_a_key_is_found_where_it_is_written(path: Path, written: str) -> None:
    offset = TEXT.index(written)
    line = TEXT.count("\n", 0, offset) + 1
    column = offset - TEXT.rfind("\n", 0, offset)
    assert Places(TEXT).of(path) == (line, column)


def test_a_key_that_is_not_there_is_told_by_its_table() -> None:
    assert Places(TEXT).of(("gateway", "admin_listen")) == (3, 1)
    assert Places(TEXT).of(("budgets", 3, "name")) == (1, 1)


def test_windows_line_ends_count_as_one() -> None:
    assert Places("a = 1\r\n\r\nb = 2\r\n").of(("b",)) == (3, 1)


def paths(value: object, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, below in cast("dict[str, object]", value).items():
            yield from paths(below, (*path, key))
    elif isinstance(value, list):
        for number, below in enumerate(cast("list[object]", value)):
            yield from paths(below, (*path, number))


def test_every_key_of_the_example_is_found_on_a_line_that_names_it() -> None:
    with open("faregate.example.toml", encoding="utf-8") as file:
        text = file.read()
    places, lines = Places(text), text.splitlines()
    for path in paths(tomllib.loads(text)):
        line, column = places.of(path)
        if isinstance(path[-1], str):
            rest = lines[line - 1][column - 1 :]
            assert (
                rest.lstrip('["').startswith(path[-1]) or f".{path[-1]}]" in rest or f"[{path[-1]}." in rest
            ), (path, rest)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab.=[]{}\"'#\\, \n\r\té1-", max_size=60))
def test_any_text_is_walked_to_its_end(text: str) -> None:
    line, column = Places(text).of(("a", 0, "b"))
    assert line >= 1
    assert column >= 1

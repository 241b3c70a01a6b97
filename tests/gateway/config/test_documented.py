"""docs/configuration.md names every key that is read, and no other."""

import re
from pathlib import Path
from typing import Any

import pytest

from gateway.config import read
from gateway.config.rules import NOT_YET
from gateway.config.table import Report, Table
from routers.conditions import FIELDS, RANGE_WORDS

DOCUMENT = Path("docs/configuration.md").read_text(encoding="utf-8")

ONE_OF_EACH: dict[str, Any] = {
    "gateway": {},
    "providers": {"a": {}},
    "deployments": {"a": {"parameters": {}}},
    "tiers": {"a": {}},
    "names": {},
    "rules": [{"when": {"hour": {"below": 3}, "not": {}}}],
    "teams": {"a": {}},
    "budgets": [{}],
    "baselines": [{}],
    "prices": [{}],
}


def keys_read() -> set[str]:
    """Every key that some reader asks for, as `section key`."""
    report = Report("", "", {})
    read(Table(report, ONE_OF_EACH, (), ""), "", b"", needs_secrets=True)
    keys: set[str] = set()
    for asked in report.asked:
        section, _, rest = asked.partition(".")
        keys.add(f"{section.removesuffix('[]')} {rest.rpartition('.')[2]}" if rest else f"top {section}")
    return keys


def section_of(name: str) -> str:
    heading = {"top": "## Top level"}.get(name) or next(
        line for line in DOCUMENT.splitlines() if re.match(rf"## `\[+{name}[.\]]", line)
    )
    return DOCUMENT.partition(heading + "\n")[2].partition("\n## ")[0]


def documented() -> set[str]:
    """Every key that stands in the first column of a table."""
    keys: set[str] = set()
    for name in ("top", *ONE_OF_EACH):
        for cell in re.findall(r"^\| (`.*?) \|", section_of(name), re.MULTILINE):
            keys.update(f"{name} {key}" for key in re.findall(r"`(\w+)`", cell))
    return keys


def test_every_key_that_is_read_is_documented() -> None:
    sections = {f"top {name}" for name in ONE_OF_EACH}
    free_names = {"names NAME", "providers NAME", "deployments NAME", "tiers NAME", "teams NAME"}
    missing = {
        key
        for key in keys_read() - documented() - sections - free_names
        if f"`{key.partition(' ')[2]}`" not in section_of(key.partition(" ")[0])
    }
    assert missing == set()


def test_no_key_is_documented_that_nobody_reads() -> None:
    assert documented() - keys_read() == set()


@pytest.mark.parametrize("key", [*NOT_YET, "canaries", "fixed_costs", "rules_from", "discount"])
def test_every_key_that_is_not_enforced_yet_is_listed(key: str) -> None:
    assert f"`{key}`" in DOCUMENT.partition("## Not yet")[2]


@pytest.mark.parametrize("field", [*FIELDS, *RANGE_WORDS])
def test_every_condition_is_documented(field: str) -> None:
    assert f"`{field}`" in section_of("rules")

"""Turns the lines of a run into medians, ratios to the passthrough unit U, and a verdict on the goals.

python benchmarks/table.py benchmarks/results/FILE.jsonl
"""

import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UNIT = "passthrough"
SLACK = 0.15  # a goal is missed when a ratio is over it by more than this share

RATIO_GOALS: Mapping[str, float] = {
    "json-1k-c32": 1.7,
    "json-20k-c32": 1.7,
    "json-400k-c32": 1.9,
    "sse-16-c32": 1.2,
    "sse-256-c32": 1.1,
}
HELD_MB_GOAL = 35.0  # 1,000 open streams add
RULES_GOAL = 1.10  # 1,000 rules to 10
START_SECONDS_GOAL = 2.0

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One target in one cell, over all rounds. `None`: it cannot be told."""

    target: str
    cpu_us: float  # a good request, median
    ratio: float | None  # to the unit: the median of the rounds' own ratios
    p50_ms: float
    p99_ms: float
    per_second: float
    good: int
    all: int
    held_mb: float | None  # what the load added to its memory; of the hold cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One goal and how it stands."""

    what: str
    value: float | None  # None: not measured
    goal: float
    met: bool  # within the slack


def rows_of(lines: Iterable[Line], cell: str, unit: str = UNIT) -> list[Row]:
    """The targets of a cell, the cheapest first."""
    by_target: dict[str, dict[int, Line]] = {}
    for line in lines:
        if line.get("cell") == cell and line.get("ok"):
            by_target.setdefault(line["target"], {})[line["round"]] = line
    units = by_target.get(unit, {})
    rows = [_row(target, rounds, units) for target, rounds in by_target.items()]
    return sorted(rows, key=lambda row: row.cpu_us)


def _row(target: str, rounds: Mapping[int, Line], units: Mapping[int, Line]) -> Row:
    def median(key: str) -> float:
        return statistics.median(float(line.get(key, 0)) for line in rounds.values())

    ratios = [line["us_cpu_ns"] / units[n]["us_cpu_ns"] for n, line in rounds.items() if n in units]
    held = [line["pss_peak_kb"] - line["pss_base_kb"] for line in rounds.values() if "pss_base_kb" in line]
    return Row(
        target=target,
        cpu_us=median("us_cpu_ns"),
        ratio=statistics.median(ratios) if ratios else None,
        p50_ms=median("p50") / 1e3,
        p99_ms=median("p99") / 1e3,
        per_second=median("rps"),
        good=sum(line["ok"] for line in rounds.values()),
        all=sum(line["asked"] for line in rounds.values()),
        held_mb=statistics.median(held) / 1024 if held else None,
    )


def findings(lines: Sequence[Line], target: str = "faregate") -> list[Finding]:
    """Every goal, with what was measured. What was not measured is not met."""
    found: list[Finding] = []
    for cell, goal in RATIO_GOALS.items():
        ratio = next((row.ratio for row in rows_of(lines, cell) if row.target == target), None)
        found.append(_finding(f"{cell}, x U", ratio, goal))
    held = next((row.held_mb for row in rows_of(lines, "hold-1000") if row.target == target), None)
    found.append(_finding("1,000 open streams add, MB", held, HELD_MB_GOAL))
    many = next((r.ratio for r in rows_of(lines, "rules", "rules-10") if r.target == "rules-1000"), None)
    found.append(_finding("1,000 rules to 10, x", many, RULES_GOAL))
    starts = [float(line["seconds"]) for line in lines if line.get("cell") == "start"]
    found.append(
        _finding(
            "start to first answer, s", statistics.median(starts) if starts else None, START_SECONDS_GOAL
        )
    )
    return found


def _finding(what: str, value: float | None, goal: float) -> Finding:
    return Finding(what=what, value=value, goal=goal, met=value is not None and value <= goal * (1 + SLACK))


def text_of(lines: Sequence[Line]) -> str:
    """The whole report as Markdown."""
    parts: list[str] = []
    for line in lines:
        if line.get("kind") == "conditions":
            parts += [f"{key}: {value}" for key, value in line.items() if key != "kind"]
    cells = dict.fromkeys(line["cell"] for line in lines if line.get("ok"))
    for cell in cells:
        held = cell == "hold-1000"
        unit = "rules-10" if cell == "rules" else UNIT
        parts += [
            "",
            f"{cell} ({'1,000 open streams' if held else f'ratio to {unit}'})",
            f"| target | CPU us | ratio | p50 ms | p99 ms | req/s | good |{' adds MB |' if held else ''}",
            "|---|---:|---:|---:|---:|---:|---:|" + ("---:|" if held else ""),
        ]
        for row in rows_of(lines, cell, unit):
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
            text = f"| {row.target} | {row.cpu_us:.0f} | {ratio} | {row.p50_ms:.1f} | {row.p99_ms:.1f} "
            text += f"| {row.per_second:.0f} | {row.good}/{row.all} |"
            parts.append(text + (f" {row.held_mb:.1f} |" if row.held_mb is not None else ""))
    return "\n".join(parts)


def verdict_of(found: Iterable[Finding]) -> str:
    """The goals as Markdown."""
    parts = ["| goal | at most | measured | |", "|---|---:|---:|---|"]
    for one in found:
        value = "not measured" if one.value is None else f"{one.value:.2f}"
        word = (
            "met"
            if one.value is not None and one.value <= one.goal
            else "within 15 %"
            if one.met
            else "missed"
        )
        parts.append(f"| {one.what} | {one.goal:g} | {value} | {word} |")
    return "\n".join(parts)


def lines_of(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


if __name__ == "__main__":
    read = [line for name in sys.argv[1:] for line in lines_of(Path(name))]
    print(text_of(read))
    print()
    print(verdict_of(findings(read)))

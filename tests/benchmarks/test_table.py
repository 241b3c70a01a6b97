"""The benchmark's arithmetic: what is a ratio, what is a goal met."""

from typing import Any

from benchmarks.table import findings, rows_of, text_of, verdict_of


def line(target: str, number: int, us: float, **more: Any) -> dict[str, Any]:
    return {
        "cell": "json-1k-c32",
        "target": target,
        "round": number,
        "us_cpu_ns": us,
        "ok": 10,
        "asked": 10,
        "p50": 1_000,
        "p99": 2_000,
        "rps": 100,
    } | more


def test_a_ratio_is_the_median_of_the_ratios_within_each_round() -> None:
    unit = [line("passthrough", n, us) for n, us in enumerate((100, 200, 300))]
    ours = [line("faregate", n, us) for n, us in enumerate((150, 200, 600))]
    rows = {row.target: row for row in rows_of(unit + ours, "json-1k-c32")}
    assert rows["faregate"].ratio == 1.5
    assert rows["passthrough"].ratio == 1.0
    assert rows["faregate"].cpu_us == 200


def test_a_round_without_the_unit_gives_no_ratio() -> None:
    lines = [line("passthrough", 0, 100), line("faregate", 0, 170), line("faregate", 1, 900)]
    assert {row.target: row.ratio for row in rows_of(lines, "json-1k-c32")}["faregate"] == 1.7
    assert rows_of([line("faregate", 0, 1)], "json-1k-c32")[0].ratio is None


def test_a_goal_is_missed_beyond_its_slack_or_when_it_was_not_measured() -> None:
    def one(us: float) -> tuple[float | None, bool]:
        found = findings([line("passthrough", 0, 100), line("faregate", 0, us)])[0]
        return found.value, found.met

    assert one(170) == (1.7, True)
    assert one(195) == (1.95, True)
    assert one(196) == (1.96, False)
    nothing = findings([])
    assert {(found.value, found.met) for found in nothing} == {(None, False)}
    assert verdict_of(nothing).count("not measured") == len(nothing) == 8


def test_held_memory_rules_and_start_have_goals_of_their_own() -> None:
    lines = [
        line("faregate", 0, 5, cell="hold-1000", pss_base_kb=10_240, pss_peak_kb=40_960),
        line("rules-10", 0, 100, cell="rules"),
        line("rules-1000", 0, 130, cell="rules"),
        {"cell": "start", "target": "faregate", "round": 0, "seconds": 1.5},
    ]
    found = {one.what: (one.value, one.met) for one in findings(lines)}
    assert found["1,000 open streams add, MB"] == (30.0, True)
    assert found["1,000 rules to 10, x"] == (1.3, False)
    assert found["start to first answer, s"] == (1.5, True)


def test_requests_that_failed_are_told_in_the_table() -> None:
    lines = [
        {"kind": "conditions", "CPU": "two cores"},
        line("passthrough", 0, 100),
        line("faregate", 0, 150, ok=7),
    ]
    text = text_of(lines)
    assert "CPU: two cores" in text
    assert "| faregate | 150 | 1.50 | 1.0 | 2.0 | 100 | 7/10 |" in text

"""Reads `[[rules]]` and their `when`, and looks for rules that cannot do what their author meant."""

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import cast

from gateway.config.problems import is_unknown, shown
from gateway.config.table import Table, kind_of
from routers.conditions import (
    CLOSED_SETS,
    FIELDS,
    FLAG_FIELDS,
    LIMITS,
    NUMBER_FIELDS,
    RANGE_WORDS,
    AnyOf,
    Condition,
    Range,
    RuleIndex,
    Value,
    contradict,
    first_of,
    shadows,
    witness,
)
from routers.policy import Rule

MOST_RULES = 10_000
MOST_COMPARED = 50  # earlier rules that one rule is compared with

NOT_YET = {
    "check": "checks of answers",
    "escalate_to": "escalations",
    "best_value": "decisions by evidence",
    "service_tier": "service tiers chosen by rules",
    "pin": "rules that pin a deployment",
    "refuse": "rules that refuse",
    "set": "rules that set parameters",
    "drop": "rules that drop parameters",
    "cap": "rules that cap parameters",
}


def read_rules(top: Table, tiers: Collection[str]) -> tuple[Rule, ...]:
    """The rules, in their order."""
    rules: list[Rule] = []
    where: list[Table] = []
    seen: dict[str, int] = {}
    for number, table in enumerate(top.listed_tables("rules", label="name", most=MOST_RULES)):
        table.not_yet(NOT_YET)
        name = table.text("name", required=True)
        tier = table.names_one_of("tier", tiers, required=True)
        when = _read_when(table)
        table.done()
        if name is not None and seen.setdefault(name, number) != number:
            table.problem(
                "name", f'is "{shown(name)}", as is that of rules[{seen[name]}]; each needs its own'
            )
        if name is None or tier is None:
            continue
        rules.append(Rule(name=name, when=when, tier=tier))
        where.append(table)
        if contradict(when):
            table.warning(None, "can never match: no request meets all of its conditions")
    if not top.report.is_bad:
        _warn_of_shadows(rules, where)
    return tuple(rules)


def _read_when(rule: Table) -> tuple[Condition, ...]:
    table = rule.table("when")
    if table is None:
        return ()
    conditions = _conditions(table, negated=False)
    turned = table.table("not")
    if turned is not None:
        conditions += _conditions(turned, negated=True)
        turned.done()
    table.done()
    return tuple(conditions)


def _conditions(table: Table, *, negated: bool) -> list[Condition]:
    found: list[Condition] = []
    for field in FIELDS:
        value = table.get(field)
        if value is None:
            continue
        test = _range(table, field) if isinstance(value, dict) else _any_of(table, field, value)
        if test is None:
            continue
        found.append(Condition(field=field, test=test, negated=negated))
    return found


def _any_of(table: Table, field: str, value: object) -> AnyOf | None:
    is_list = isinstance(value, list)
    items = cast("list[object]", value) if is_list else [value]
    if not items:
        table.problem(field, "is an empty list: it could never match")
        return None
    values: list[Value] = []
    for item in items:
        checked = _value(table, field, item)
        if checked is None:
            return None
        values.append(checked)
    return AnyOf(values=tuple(values))


def _value(table: Table, field: str, item: object) -> Value | None:
    if field in FLAG_FIELDS:
        if isinstance(item, bool):
            return item
        table.problem(field, f"must be true or false, not {kind_of(item)}")
        return None
    if field in NUMBER_FIELDS:
        if isinstance(item, bool) or not isinstance(item, int | Decimal):
            table.problem(field, f"must be a number or a range like {{ below = 8 }}, not {kind_of(item)}")
            return None
        return _number(table, field, item)
    if not isinstance(item, str):
        table.problem(field, f"must be a text or a list of texts, not {kind_of(item)}")
        return None
    closed = CLOSED_SETS.get(field)
    if closed is not None and item not in closed:
        table.problem(field, is_unknown(item, closed))
        return None
    return item


def _number(table: Table, field: str, item: int | Decimal) -> float | None:
    least, most = LIMITS[field]
    if isinstance(item, Decimal) and not item.is_finite():
        table.problem(field, f"is {item}, which is not a number")
        return None
    if item < least or (most is not None and item > most):
        bounds = f"from {least:g} to {most:g}" if most is not None else f"of at least {least:g}"
        table.problem(field, f"is {item}; it is always a number {bounds}")
        return None
    return int(item) if item == int(item) else float(item)


def _range(table: Table, field: str) -> Range | None:
    if field not in NUMBER_FIELDS:
        table.problem(field, "must be a text or a list of texts, not a table: a range is for numbers")
        return None
    below = table.table(field)
    assert below is not None
    bounds: dict[str, float] = {}
    for word in RANGE_WORDS:
        value = below.get(word)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            below.problem(word, f"must be a number, not {kind_of(value)}")
            return None
        number = _bound(below, word, value)
        if number is None:
            return None
        bounds[word] = number
    below.done()
    if not bounds:
        below.problem(None, f"is a range without a bound; it takes {', '.join(RANGE_WORDS)}")
        return None
    for a, b in (("at_least", "above"), ("below", "at_most")):
        if a in bounds and b in bounds:
            below.problem(b, f"contradicts {a}: a range has one bound on a side")
            return None
    return Range(
        low=bounds.get("at_least", bounds.get("above")),
        low_is_in="above" not in bounds,
        high=bounds.get("at_most", bounds.get("below")),
        high_is_in="below" not in bounds,
    )


def _bound(table: Table, word: str, item: int | Decimal) -> float | None:
    if isinstance(item, Decimal) and not item.is_finite():
        table.problem(word, f"is {item}, which is not a number")
        return None
    return int(item) if item == int(item) else float(item)


def _warn_of_shadows(rules: list[Rule], where: list[Table]) -> None:
    """Rules that an earlier one always gets ahead of. Never refused: their order may be on its way.

    Whatever always gets ahead of a rule matches a request made for that rule: so only those are compared.
    """
    index = RuleIndex([rule.when for rule in rules])
    for number, after in enumerate(rules):
        values = witness(after.when)
        if values is None:
            continue
        earlier = index.matching_values(values) & ((1 << number) - 1)
        for _ in range(MOST_COMPARED):
            if not earlier:
                break
            other = first_of(earlier)
            earlier &= earlier - 1
            before = rules[other]
            if shadows(before.when, after.when):
                same = "leads to the same tier" if before.tier == after.tier else "contradicts it"
                where[number].warning(
                    None,
                    f'can never match: rules[{other}] "{shown(before.name)}" stands before it, takes every '
                    f"request that it would, and {same}",
                )
                break


def warn_of_strange_names(
    rules: tuple[Rule, ...], top: Table, *, teams: Collection[str], names_to_rules: Collection[str]
) -> None:
    """Conditions on names that nothing else in the file knows."""
    tables = {table.label: table for table in top.listed_tables("rules", label="name", most=MOST_RULES)}
    known: Mapping[str, Collection[str]] = {"team": teams, "model": names_to_rules}
    for rule in rules:
        for condition in rule.when:
            names = known.get(condition.field)
            if not names or not isinstance(condition.test, AnyOf):
                continue
            for value in condition.test.values:
                if value in names:
                    continue
                message = is_unknown(str(value), names)
                if condition.field == "model":
                    message = (
                        f'is "{shown(str(value))}", which the rules never see: [names] must give it to "auto"'
                    )
                table = tables[rule.name]
                inner = ("when", "not", condition.field) if condition.negated else ("when", condition.field)
                table.report.warning((*table.path, *inner), message, table.label)

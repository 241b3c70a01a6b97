"""Looks for a tier that is meant to be cheap and is dearer than the default one: a saving that costs money."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from gateway.config.problems import shown
from gateway.config.table import Table
from pricing.money import usd_text
from pricing.sheet import PriceBook
from routers.conditions import AnyOf, Condition, Range
from routers.policy import Policy, Rule

_CHEAP_BY_NAME = "small"  # of the tiers that applications know, the one for routine work in bulk
_SIZES = frozenset({"input_tokens", "max_output_tokens", "messages", "turn", "budget_left_share"})
_EASY_KINDS = frozenset({"chat", "extraction", "summary", "translation"})
_DEMANDS = frozenset({"has_images", "has_tools"})  # what asks for more than a cheap model may have


class Price(NamedTuple):
    """Dollars per million tokens."""

    input: Decimal
    output: Decimal

    def is_above(self, other: "Price") -> bool:
        """True if it is dearer whatever the mix of input and output."""
        return self != other and self.input >= other.input and self.output >= other.output

    @property
    def text(self) -> str:
        """As a sentence says it."""
        return f"${self.input:f} in and ${self.output:f} out"


def warn_of_dear_tiers(top: Table, policy: Policy, books: Mapping[str, PriceBook], now: datetime) -> None:
    """Warn once of each tier that gets cheap work and whose first deployment is dearer than the default tier's."""
    standard = policy.tiers[policy.default].deployments[0]
    usual = price_of(policy, books, standard, now)
    if usual is None:
        return

    def why(tier: str) -> str | None:
        first = policy.tiers[tier].deployments[0]
        price = price_of(policy, books, first, now)
        if price is None or not price.is_above(usual):
            return None
        return (
            f'is dearer than the default tier "{policy.default}": its first deployment "{first}" costs {price.text} '
            f'per million tokens, and "{standard}" {usual.text}'
        )

    told: set[str] = {policy.default}
    for number, rule in enumerate(policy.rules):
        if rule.tier not in told and (rule.tier == _CHEAP_BY_NAME or is_cheap_work(rule)):
            told.add(rule.tier)
            reason = why(rule.tier)
            if reason is not None:
                message = f'sends cheap work to "{shown(rule.tier)}", which {reason}'
                top.report.warning(("rules", number), message, rule.name)
    if _CHEAP_BY_NAME in policy.tiers and _CHEAP_BY_NAME not in told:
        reason = why(_CHEAP_BY_NAME)
        if reason is not None:
            top.report.warning(("tiers", _CHEAP_BY_NAME), reason)


def is_cheap_work(rule: Rule) -> bool:
    """True if the conditions keep a rule to short or routine work, so that its tier is meant to save."""
    if any(_demands(condition) for condition in rule.when):
        return False
    return any(_keeps_it_small(condition) for condition in rule.when)


def _demands(condition: Condition) -> bool:
    test = condition.test
    if condition.negated or not isinstance(test, AnyOf):
        return False
    if condition.field in _DEMANDS:
        return True in test.values
    if condition.field == "task_kind":
        return not _EASY_KINDS.issuperset(test.values)
    return condition.field == "reasoning_effort"


def _keeps_it_small(condition: Condition) -> bool:
    test = condition.test
    if condition.negated:
        return False
    if isinstance(test, Range):
        return condition.field in _SIZES and test.high is not None and test.low is None
    return condition.field == "task_kind"  # the easy ones: `_demands` has seen to the others


def price_of(policy: Policy, books: Mapping[str, PriceBook], deployment: str, now: datetime) -> Price | None:
    """The plain price of a deployment's uncached input and its output; None: it has none now."""
    found = books[deployment].find(None, policy.deployments[deployment].model)
    row = None if found is None else found[1].row_at(now)
    if row is None or not {"input", "output"} <= row.base.rates.keys():
        return None
    per_pico = Decimal(1_000_000) / row.scale
    into, out = (Decimal(usd_text(row.base.rates[name])) * per_pico for name in ("input", "output"))
    return Price(input=into.normalize(), output=out.normalize())

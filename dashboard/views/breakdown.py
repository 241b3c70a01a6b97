"""Breakdown: the period's spend by team, application, tier, deployment or token class. Parts add up to the whole."""

from collections.abc import Mapping, Sequence
from typing import Literal

import streamlit as st

from dashboard import charts, data, report, show
from dashboard.report import percent, usd
from ledger.answers import Share, Sums
from pricing.money import PICO_PER_USD

By = Literal["team", "application", "tier", "deployment", "class"]

_LABELS: Mapping[By, str] = {
    "team": "Team",
    "application": "Application",
    "tier": "Tier",
    "deployment": "Deployment",
    "class": "Token class",
}
_NAMELESS: Mapping[By, str] = {
    "team": "(no team)",
    "application": "(no application)",
    "tier": "(pinned to a deployment)",
    "deployment": "(reached no deployment)",
}
_MOST_BARS = 12

_EMPTY = (
    "Nothing is written in this ledger yet. After the first request through the gateway this page shows who spent how "
    "much: by team, application, tier, deployment and token class."
)


def draw() -> None:
    """The page."""
    frame = show.frame("Breakdown")
    period = frame.period
    by: By = (
        st.segmented_control(
            "By",
            list(_LABELS),
            default="team",
            required=True,
            format_func=lambda one: _LABELS[one],
            key="by",
            bind="query-params",
        )
        or "team"
    )
    if frame.extent.first_day is None:
        show.nothing_yet(_EMPTY)
        return
    source = "team" if by == "class" else by
    shares = data.shares(source, period.since, period.until)
    total = report.added(share.sums for share in shares)
    if not total.requests:
        show.nothing_yet(
            f"No request was admitted in this period; the ledger begins {frame.extent.first_day}."
        )
        return
    was_shares = data.shares(source, period.before_since, period.before_until)
    was = report.added(share.sums for share in was_shares)
    st.subheader(f"Spend by {_LABELS[by].lower()}", anchor=False)
    st.caption(
        show.escaped(
            f"{usd(total.cost.total)} together, "
            f"{report.comparison(total.cost.total, was.cost.total, period, frame.extent.first_day)}"
        )
    )
    if by == "class":
        _classes(total)
    else:
        before = (
            {share.name: share.sums for share in was_shares}
            if report.is_comparable(period, frame.extent.first_day)
            else None
        )
        _names(shares, total, before, by)


def _names(shares: Sequence[Share], total: Sums, before: Mapping[str, Sums] | None, by: By) -> None:
    def was(name: str) -> Sums | None:
        return None if before is None else before.get(name, report.added(()))

    first, rest, others = report.largest(shares, _MOST_BARS)
    bars = [
        (_label(share.name, by), share.sums.cost.total / PICO_PER_USD, usd(share.sums.cost.total))
        for share in first
    ]
    if rest is not None:
        bars.append((f"({others} others)", rest.sums.cost.total / PICO_PER_USD, usd(rest.sums.cost.total)))
    st.altair_chart(
        charts.bars(bars), alt=f"Spend by {_LABELS[by].lower()}; the numbers are in the table below"
    )
    show.table(
        [_row(_label(share.name, by), share.sums, total, was(share.name), by) for share in shares]
        + [_row("all", total, total, None if before is None else report.added(before.values()), by)],
        key=f"by-{by}",
        red_below_zero="Savings, upper bound (USD)",
        formats={
            "Spend (USD)": report.DOLLARS,
            "Days before (USD)": report.DOLLARS,
            "≈ estimated (USD)": report.DOLLARS,
            "Savings, upper bound (USD)": report.DOLLARS,
            "Requests": "localized",
            "Failed": "localized",
            "Cancelled": "localized",
            "Calls": "localized",
            "Unpriced calls": "localized",
        },
    )
    st.caption(
        "Savings: the same tokens at the dated baseline's price, less what was paid; an upper bound, negative where "
        "routing cost more. Estimated spend is part of the spend; unpriced calls are in no sum. A request stands in "
        "the row of its last call, each call and its cost in the row of its own deployment."
    )


def _label(name: str, by: By) -> str:
    return report.plain(name) if name else _NAMELESS[by]


def _row(label: str, sums: Sums, total: Sums, before: Sums | None, by: By) -> dict[str, object]:
    saved = report.savings_of(sums)
    was = {} if before is None else {"Days before (USD)": report.usd_decimal(before.cost.total)}
    return {
        _LABELS[by]: label,
        "Spend (USD)": report.usd_decimal(sums.cost.total),
        "Share": percent(report.share_of(sums.cost.total, total.cost.total)),
        **was,
        "Requests": sums.requests,
        "Failed": sums.failed,
        "Cancelled": sums.cancelled,
        "Calls": sums.attempts,
        "Cache share": percent(report.cache_share(sums.usage)),
        "Savings, upper bound (USD)": None if saved is None else report.usd_decimal(saved.amount),
        "≈ estimated (USD)": report.usd_decimal(sums.cost_estimated),
        "Unpriced calls": sums.unpriced,
    }


def _classes(total: Sums) -> None:
    lines = report.class_lines(total.usage, total.cost)
    st.altair_chart(
        charts.bars([(line.label, line.cost / PICO_PER_USD, usd(line.cost)) for line in lines]),
        alt="Spend by token class; the numbers are in the table below",
    )
    show.class_table(lines, total.cost.total, key="by-class")

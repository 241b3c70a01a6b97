"""Overview: what was spent, on what, what caches and routing did for it, and how sure that is.

It rests on the day totals alone, so it opens as fast on ten million requests as on ten.
"""

import streamlit as st

from dashboard import charts, data, report, show
from dashboard.report import Period, count, percent, short_count, usd
from ledger.answers import Day, Sums

_EMPTY = (
    "Nothing is written in this ledger yet. After the first request through the gateway this page shows the spend "
    "by day and token class, how much of the input came from caches, the savings against the baseline, and how much "
    "of it all is estimated or has no price."
)


def draw() -> None:
    """The page."""
    frame = show.frame("Overview")
    period = frame.period
    if frame.extent.first_day is None:
        show.nothing_yet(_EMPTY)
    # Both periods are one question, so that they are of one moment.
    days = data.days(min(period.since, period.before_since), period.until)
    here = report.whole_period(days, period.since, period.until)
    total = report.added(one.sums for one in here)
    before = report.added(
        one.sums for one in report.whole_period(days, period.before_since, period.before_until)
    )
    _tiles(total, before, period, frame)
    if not total.requests:
        if frame.extent.first_day is not None:
            show.nothing_yet(
                f"No request was admitted in this period; the ledger begins {frame.extent.first_day}."
            )
        return
    st.subheader("Spend by day", anchor=False)
    st.altair_chart(
        charts.spend_by_day(report.bar_parts(here), period.since, period.until),
        alt="Spend by day, stacked by token class; the numbers are in the tables below",
    )
    left, right = st.columns(2, gap="medium")
    with left:
        _classes(total)
    with right:
        _days(here)


def _tiles(total: Sums, before: Sums, period: Period, frame: show.Frame) -> None:
    first_day = frame.extent.first_day
    spend, requests, cache, savings, sure = st.columns(5, border=True)
    with spend:
        lines = [report.comparison(total.cost.total, before.cost.total, period, first_day)]
        if total.unpriced:
            lines.append(f"at least: {count(total.unpriced)} calls have no price and are not in it")
        show.tile(
            "Spend",
            usd(total.cost.total),
            lines,
            how="Sum of the cost of every upstream call of the requests admitted in the period, failed and "
            "cancelled ones too, at the price in force when the call began. Exact to a millionth of a millionth of "
            "a dollar; rounded for reading only.",
        )
    with requests:
        answered = total.requests - total.failed - total.cancelled
        show.tile(
            "Requests",
            count(total.requests),
            [
                report.comparison(total.requests, before.requests, period, first_day),
                f"{count(answered)} answered, {count(total.failed)} failed, {count(total.cancelled)} cancelled",
            ],
            how="Requests the gateway let in during the period. Cancelled: the caller left.",
        )
    with cache:
        share, was = report.cache_share(total.usage), report.cache_share(before.usage)
        lines = [f"of {short_count(total.usage.input_total)} input tokens, read from caches"]
        if was is not None and report.is_comparable(period, first_day):
            lines.append(f"{percent(was)} in {period.before_text()}")
        show.tile(
            "Cache share",
            percent(share),
            lines,
            how="Input tokens that a provider's cache served, divided by all input tokens of the period.",
        )
    with savings:
        _savings(total, period)
    estimated = report.share_of(total.cost_estimated, total.cost.total)
    with sure:
        show.tile(
            "Estimated",
            f"≈ {percent(estimated)}" if estimated is not None else "—",
            [
                f"of the spend: ≈ {usd(total.cost_estimated)} in {count(total.estimated)} calls",
                f"unpriced: {percent(report.share_of(total.unpriced, total.attempts))} of {count(total.attempts)} "
                "calls",
            ],
            how="Estimated: the provider did not report usage, or the answer was cut off, so tokens were counted by "
            "the gateway. Unpriced: no price is known for the model; the cost is unknown, not zero.",
        )


def _savings(total: Sums, period: Period) -> None:
    how = (
        "What the same tokens would have cost at the baseline's prices, less what was paid for the same requests, "
        "failed calls included. An upper bound: another model would have used other tokens. Negative: routing "
        "cost more than the baseline."
    )
    saved = report.savings_of(total)
    if saved is None:
        show.tile(
            show.SAVINGS, "—", ["no request was compared with a baseline; set one in [[baselines]]"], how=how
        )
        return
    seen = data.baselines(period.since, period.until)
    baseline = report.baseline_text(seen, report.baselines_in(data.config()), period.until)
    show.tile(
        show.SAVINGS,
        usd(saved.amount),
        [
            show.UPPER_BOUND,
            f"{percent(saved.share)} of {usd(total.baseline)} at the baseline {baseline}".rstrip(),
            f"{count(saved.compared)} of {count(saved.requests)} requests compared",
        ],
        how=how,
        is_bad=saved.amount < 0,
    )


def _classes(total: Sums) -> None:
    st.subheader("Spend by token class", anchor=False)
    lines = report.class_lines(total.usage, total.cost)
    show.class_table(lines, total.cost.total, key="classes")


def _days(days: list[Day]) -> None:
    st.subheader("Day by day", anchor=False)
    show.table(
        [
            {
                "UTC day": f"{one.day:%a} {one.day}",
                "Requests": one.sums.requests,
                "Spend (USD)": report.usd_decimal(one.sums.cost.total),
                "≈ estimated (USD)": report.usd_decimal(one.sums.cost_estimated),
                "Unpriced calls": one.sums.unpriced,
            }
            for one in sorted(days, key=lambda one: one.day, reverse=True)
        ],
        key="days",
        formats={
            "Requests": "localized",
            "Spend (USD)": report.DOLLARS,
            "≈ estimated (USD)": report.DOLLARS,
            "Unpriced calls": "localized",
        },
    )
    st.caption("Estimated spend is part of the spend. Unpriced calls are in no sum.")

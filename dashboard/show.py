"""What every page is put together from: the frame with its banner and period, tiles, tables, facts.

Nothing that came from outside is ever read as Markdown or HTML: names go into tables, code blocks and `st.text`,
and where a name must stand in a sentence it goes through `escaped`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas
import streamlit as st

from dashboard import data
from dashboard.report import (
    CHOICES,
    DOLLARS,
    Choice,
    ClassLine,
    Period,
    ago,
    dollar_format,
    percent,
    period_of,
    plain,
    share_of,
    usd_decimal,
)
from ledger.answers import Extent
from pricing.money import PicoUsd

SAVINGS = "Savings (upper bound)"
UPPER_BOUND = "same tokens: an upper bound"
"""How savings are named wherever they stand alone."""

_MARKS: Mapping[str, tuple[str, str]] = {
    "made-up": (
        "MADE UP",
        "Nothing on this page happened. It is a demonstration on a made-up week of traffic.",
    ),
    "simulated": (
        "SIMULATED",
        "A simulated provider answered these requests. No model was asked and nobody was billed.",
    ),
}
# Its type speaks of pandas, which has none of its own here.
_dataframe: Any = st.dataframe  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&^=@])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What a page is about."""

    period: Period
    now: datetime
    extent: Extent

    @property
    def today(self) -> date:
        """The UTC day that is not over."""
        return self.now.date()


def escaped(text: str) -> str:
    """A text as it is, in a place that reads Markdown."""
    return _SPECIAL.sub(r"\\\1", plain(text))


def banner() -> None:
    """Say loudly when what stands here is not real."""
    mark = data.mark()
    if mark is None:
        return
    title, words = _MARKS.get(mark, (mark.upper(), "This ledger is marked: its numbers are not real spend."))
    st.error(words, title=escaped(title), icon=":material/warning:")


def frame(title: str) -> Frame:
    """Head of a page: its title, the period to choose, and what the numbers are about."""
    now = datetime.now(UTC)
    st.title(title, anchor=False)
    period = _chosen(now.date())
    seen = Frame(period=period, now=now, extent=data.extent())
    newest = seen.extent.newest_at
    fresh = "no request yet" if newest is None else f"newest request {ago(newest, now)}"
    st.caption(escaped(f"{period.text(now.date())} · US dollars · {fresh}"))
    return seen


def _chosen(today: date) -> Period:
    choice: Choice | None = st.segmented_control(
        "Period",
        list(CHOICES),
        default="7d",
        required=True,
        format_func=lambda one: CHOICES[one],
        key="period",
        bind="query-params",
        label_visibility="collapsed",
    )
    if choice != "custom":
        return period_of(choice or "7d", today)
    first, last = st.columns(2)
    with first:
        since: Any = st.date_input(
            "First day", today - timedelta(days=13), format="YYYY-MM-DD", key="since", bind="query-params"
        )
    with last:
        until: Any = st.date_input("Last day", today, format="YYYY-MM-DD", key="until", bind="query-params")
    return period_of("custom", today, (since or today, until or today))


def tile(label: str, value: str, lines: Sequence[str], *, how: str, is_bad: bool = False) -> None:
    """One number: what it is, how it is computed, and what it is compared with; `is_bad` is red."""
    shown = escaped(value)
    st.metric(label, f":red[{shown}]" if is_bad else shown, help=how)
    st.caption("  \n".join(escaped(line) for line in lines))


def nothing_yet(what: str) -> None:
    """A page or a part of one without anything to show says what will be there."""
    st.info(what, icon=":material/hourglass_empty:")


def table(
    rows: Sequence[Mapping[str, Any]],
    *,
    key: str,
    formats: Mapping[str, str] | None = None,
    red_below_zero: str | None = None,
) -> None:
    """Rows as a table that reads nothing as Markdown; `formats` gives the form of columns of numbers."""
    cells: Any = _cells(rows)
    columns = _columns(formats or {}, rows)
    if red_below_zero is not None:
        cells = pandas.DataFrame(cells).style.map(_red_below_zero, subset=[red_below_zero])  # pyright: ignore
    _dataframe(cells, hide_index=True, key=key, column_config=columns, placeholder="—")


def _red_below_zero(value: Decimal | None) -> str:
    return "color: #d33f3f" if value is not None and value < 0 else ""


def choosing_table(
    rows: Sequence[Mapping[str, Any]], *, key: str, formats: Mapping[str, str] | None = None
) -> int | None:
    """The same, to choose a row of: its number, or None."""
    event = _dataframe(
        _cells(rows),
        hide_index=True,
        key=key,
        column_config=_columns(formats or {}, rows),
        placeholder="—",
        on_select="rerun",
        selection_mode="single-row",
    )
    chosen: list[int] = list(event.selection.rows)
    return chosen[0] if chosen and chosen[0] < len(rows) else None


def _cells(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Names from outside in one visible line each."""
    return [
        {name: plain(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in rows
    ]


def _columns(formats: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, form in formats.items():
        if form == DOLLARS:
            form = dollar_format(row.get(name) for row in rows)
        columns[name] = st.column_config.NumberColumn(format=form)
    return columns


def class_table(lines: Sequence[ClassLine], total: PicoUsd, *, key: str) -> None:
    """A cost by token class, and all of it in the last row."""
    rows: list[dict[str, Any]] = [
        {
            "Token class": line.label,
            "Tokens": line.tokens,
            "Spend (USD)": usd_decimal(line.cost),
            "Share": percent(share_of(line.cost, total)),
            "USD per million": line.usd_per_mtok,
        }
        for line in lines
    ]
    rows.append(
        {
            "Token class": "all",
            "Tokens": sum(line.tokens or 0 for line in lines),
            "Spend (USD)": usd_decimal(total),
            "Share": percent(share_of(total, total)),
            "USD per million": None,
        }
    )
    table(
        rows,
        key=key,
        formats={"Tokens": "localized", "Spend (USD)": DOLLARS, "USD per million": "$%.3f"},
    )
    st.caption("Average dollars per million tokens, over all models. Fees are not counted in tokens.")


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, one a line, as plain text that can be copied."""
    width = max((len(name) for name, _ in pairs), default=0)
    st.code(
        "\n".join(f"{name:{width}}  {plain(value)}" for name, value in pairs), language=None, wrap_lines=True
    )

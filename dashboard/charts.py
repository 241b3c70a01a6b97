"""Draws. Names only ever are values in the data, never names of fields, so no name can mean anything."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import altair as alt

# Streamlit loads pandas in a thread of its own, and Altair looks into whatever is there of it: without this the
# first page after a start can find half a module.
import pandas as _  # noqa: F401 - loaded whole from here on

from dashboard.report import TOKEN_CLASSES, BarPart

_COLOURS = ("#4C78A8", "#5FB3B3", "#E0B040", "#9B7FD4", "#8A8F98")
"""One a token class; each can be told from its neighbour and from a dark and a light page."""


def _dollars() -> Any:
    """Ticks in three significant digits, so that millionths of a dollar do not all read $0."""
    return alt.Axis(format="$,.3~r", tickCount=5)


def spend_by_day(parts: Sequence[BarPart], since: date, until: date) -> Any:
    """Stacked bars: a day's dollars by token class."""
    days = [f"{since + timedelta(days=n)}" for n in range((until - since).days)]
    values = [
        {
            "day": f"{part.day}",
            "class": part.token_class,
            "order": part.order,
            "usd": part.usd,
            "text": part.text,
        }
        for part in parts
    ]
    return (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar(cornerRadius=1)
        .encode(
            x=alt.X(
                "day:O",
                title=None,
                scale=alt.Scale(domain=days),
                axis=alt.Axis(labelExpr="slice(datum.label, 5)", labelAngle=0, labelOverlap="greedy"),
            ),
            y=alt.Y("usd:Q", title="US dollars a UTC day", axis=_dollars()),
            color=alt.Color(
                "class:N",
                title=None,
                scale=alt.Scale(domain=list(TOKEN_CLASSES.values()), range=list(_COLOURS)),
                legend=alt.Legend(orient="top", columns=2, direction="horizontal", labelLimit=120),
            ),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("day:O", title="UTC day"),
                alt.Tooltip("class:N", title="token class"),
                alt.Tooltip("text:N", title="spend"),
            ],
        )
        .properties(height=300)
    )


def bars(rows: Sequence[tuple[str, float, str]]) -> Any:
    """Horizontal bars in the given order: a label, a length in dollars, and the dollars as text."""
    # The number keeps two rows apart whose labels look the same.
    values = [{"row": n, "name": name, "usd": usd, "text": text} for n, (name, usd, text) in enumerate(rows)]
    row = alt.Y("row:O", title=None, axis=None)
    base = alt.Chart(alt.InlineData(values=values))
    names = base.mark_text(align="left", dx=2, dy=-13, limit=330, color="#7a8089", fontSize=13).encode(
        y=row, x=alt.value(0), text="name:N"
    )
    lengths = base.mark_bar(height=10, color=_COLOURS[0], cornerRadius=1, yOffset=3).encode(
        y=row,
        x=alt.X("usd:Q", title="US dollars in the period", axis=_dollars()),
        tooltip=[alt.Tooltip("name:N", title="name"), alt.Tooltip("text:N", title="spend")],
    )
    return (names + lengths).properties(height=70 + 44 * len(values))

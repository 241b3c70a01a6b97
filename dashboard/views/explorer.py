"""Requests: find some, open one. `?id=...` in the address is one request: why it went where, and what it cost.

Everything here may have been named by a client, so all of it is drawn as plain text.
"""

from collections.abc import Sequence
from typing import cast

import streamlit as st

from dashboard import data, report, show
from dashboard.report import count, duration, percent, usd
from ledger.answers import AttemptSeen, PriceSeen, Quality, RequestFilter, RequestLine, RequestSeen
from pricing.money import usd_text
from pricing.usage import BUCKETS

_EMPTY = (
    "Nothing is written in this ledger yet. Every request that the gateway lets in will be a line here: who asked, "
    "which deployment answered and why, the tokens and the price of each call. Prompts and answers are never stored."
)
_STATES = ("answered", "failed", "cancelled")
_QUALITIES: dict[str, str] = {"estimated": "with estimated usage", "unpriced": "with an unpriced call"}
_LIMITS = (100, 500, 2_000)


def draw() -> None:
    """The page."""
    request_id = st.query_params.get("id")
    if request_id:
        _one(request_id)
    else:
        _list()


# Many


def _list() -> None:
    frame = show.frame("Requests")
    if frame.extent.first_day is None:
        show.nothing_yet(_EMPTY)
        return
    period = frame.period
    names = data.names(period.since, period.until)
    first, second, third = st.columns(3)
    with first:
        team = _pick("Team", names.teams)
        deployment = _pick("Deployment", names.deployments)
    with second:
        application = _pick("Application", names.applications)
        state = _pick("State", _STATES)
    with third:
        tier = _pick("Tier", names.tiers)
        quality = _pick("Only", tuple(_QUALITIES), _QUALITIES)
    limit = st.selectbox("Show at most", _LIMITS, key="limit", bind="query-params", width=140)
    wanted = RequestFilter(
        team=team,
        application=application,
        tier=tier,
        deployment=deployment,
        state=state,
        quality=cast("Quality | None", quality),
    )
    found = data.requests(period.since, period.until, wanted, limit)
    if not found:
        show.nothing_yet("No request of this period fits.")
    else:
        _table(found, limit)
    with st.form("open", border=False, enter_to_submit=True):
        typed = st.text_input("Open a request by its id (the answer's x-request-id)", max_chars=200)
        if st.form_submit_button("Open") and typed.strip():
            _open(typed.strip())


def _pick(label: str, options: Sequence[str], words: dict[str, str] | None = None) -> str | None:
    return st.selectbox(
        label,
        options,
        index=None,
        placeholder="any",
        format_func=lambda one: (words or {}).get(one, report.plain(one)),
        key=label.lower(),
        bind="query-params",
    )


def _table(found: Sequence[RequestLine], limit: int) -> None:
    is_cut = len(found) == limit
    st.caption(
        f"The newest {count(len(found))} that fit; there may be more."
        if is_cut
        else f"{count(len(found))} fit, newest first."
    )
    chosen = show.choosing_table(
        [
            {
                "Admitted (UTC)": f"{line.admitted_at:%Y-%m-%d %H:%M:%S}",
                "Team": line.team,
                "Application": line.application or "",
                "Tier": line.tier or "(pinned)",
                "Deployment": line.deployment or "(none)",
                "State": line.state,
                "Cost (USD)": _cost(line),
                "Input tokens": line.usage.input_total,
                "of it cached": percent(report.cache_share(line.usage)),
                "Output tokens": line.usage.output_total,
                "Calls": line.attempts,
                "Took": duration(line.duration_ms),
                "Id": line.id,
            }
            for line in found
        ],
        key="requests",
        formats={"Input tokens": "localized", "Output tokens": "localized"},
    )
    st.caption(
        "Choose a line to open it. ≈: part of the usage is estimated. Unpriced: the cost is unknown, not zero."
    )
    if chosen is not None:
        _open(found[chosen].id)


def _cost(line: RequestLine) -> str:
    if line.cost is None:
        return "unpriced"
    return f"{'≈ ' if line.is_estimated else ''}{usd(line.cost)}"


def _open(request_id: str) -> None:
    st.query_params["id"] = request_id
    st.rerun()


# One


def _one(request_id: str) -> None:
    if st.button("All requests", icon=":material/arrow_back:", type="tertiary"):
        del st.query_params["id"]
        st.rerun()
    st.title("Request", anchor=False)
    st.code(report.plain(request_id), language=None, wrap_lines=True)
    seen = data.request(request_id)
    if seen is None:
        show.nothing_yet(
            "This ledger has no request of that id. One that is still running is written when its books close."
        )
        return
    _numbers(seen)
    st.subheader("Why it went there", anchor=False)
    show.facts(_reasons(seen))
    st.subheader("Calls and their price lines", anchor=False)
    if not seen.attempts:
        show.nothing_yet("No provider was called for it.")
    prices = {price.id: price for price in seen.prices}
    for attempt in seen.attempts:
        _attempt(attempt, prices.get(attempt.price_id or ""))
    st.subheader("Who asked", anchor=False)
    show.facts(_caller(seen))


def _numbers(seen: RequestSeen) -> None:
    line = seen.line
    cost, baseline, state, took = st.columns(4, border=True)
    about = "≈ " if line.is_estimated else ""
    with cost:
        exact = (
            "a call has no price: unknown, not zero"
            if line.cost is None
            else f"exactly {usd_text(line.cost)} USD"
        )
        show.tile(
            "Cost",
            "unpriced" if line.cost is None else f"{about}{usd(line.cost)}",
            [exact, f"{count(line.attempts)} {'call' if line.attempts == 1 else 'calls'}"]
            + (["part of the usage is estimated"] if about else []),
            how="All upstream calls of this request together, failed ones too.",
        )
    with baseline:
        _baseline(seen)
    with state:
        show.tile(
            "State",
            line.state,
            [f"the client got HTTP {line.status}" if line.status else "nobody knows what the client got"]
            + ([f"error: {seen.error}"] if seen.error else []),
            how="499: the caller left before it got an answer.",
            is_bad=line.state == "failed",
        )
    with took:
        show.tile(
            "Took",
            duration(line.duration_ms),
            [
                f"first byte after {duration(seen.first_byte_ms)}",
                f"admitted {line.admitted_at:%Y-%m-%d %H:%M:%S} UTC",
            ],
            how="From the moment it was let in until its books closed.",
        )


def _baseline(seen: RequestSeen) -> None:
    how = "The same tokens at the baseline's price: an upper bound of a saving, since it would have used others."
    if seen.baseline is None or seen.line.cost is None:
        why = "no baseline held" if seen.baseline is None else "the cost is unknown"
        show.tile(show.SAVINGS, "—", [why], how=how)
        return
    saved = seen.baseline - seen.line.cost
    show.tile(
        show.SAVINGS,
        usd(saved),
        [show.UPPER_BOUND, f"{usd(seen.baseline)} at the baseline {seen.baseline_deployment or ''}".rstrip()],
        how=how,
        is_bad=saved < 0,
    )


def _reasons(seen: RequestSeen) -> list[tuple[str, str]]:
    return [
        ("model asked for", seen.model_asked or "(none)"),
        ("rule", seen.rule or "(none)"),
        ("because", "; ".join(seen.decided_because) or "(nothing is written)"),
        ("classified as", f"{seen.task_kind or '(not classified)'}, confidence {seen.confidence:.2f}"),
        ("because", "; ".join(seen.classified_because) or "(nothing is written)"),
        ("tier", seen.line.tier or "(pinned to a deployment)"),
        ("order to try", ", then ".join(seen.planned) or "(none)"),
        ("answered by", f"{seen.line.deployment} ({seen.line.model})" if seen.line.deployment else "(none)"),
        ("version of the file", seen.config_digest or "(none)"),
    ]


def _caller(seen: RequestSeen) -> list[tuple[str, str]]:
    line = seen.line
    pairs = [
        ("team", line.team),
        ("application", line.application),
        ("key", seen.key_id),
        ("feature", seen.feature),
        ("customer", seen.customer),
        ("user", seen.user),
        ("session", f"{seen.session} (turn {seen.turn})" if seen.session else None),
        ("task", seen.task),
        ("endpoint", f"{seen.endpoint}, {'streamed' if seen.stream else 'whole'}"),
    ]
    return [(name, value) for name, value in pairs if value]


def _attempt(attempt: AttemptSeen, price: PriceSeen | None) -> None:
    with st.container(border=True):
        st.text(
            report.plain(f"{attempt.n}. {attempt.deployment}: {attempt.model_called} at {attempt.provider}"),
        )
        show.facts(_ending(attempt))
        is_estimated = attempt.state == "estimated"
        lines = report.class_lines(attempt.usage, attempt.cost) if attempt.cost is not None else []
        if attempt.cost is None:
            st.warning("No price is known for this call: its cost is unknown, not zero.")
        else:
            show.table(
                [
                    {
                        "Price line": line.label,
                        "Tokens": _tokens(line.tokens, is_estimated),
                        "Average USD per million": _per_million(line),
                        "Cost (USD)": f"{'≈ ' if is_estimated else ''}{usd_text(line.cost)}",
                    }
                    for line in lines
                    if line.tokens or line.cost
                ]
                + [
                    {
                        "Price line": "all",
                        "Tokens": _tokens(sum(line.tokens or 0 for line in lines), is_estimated),
                        "Average USD per million": "",
                        "Cost (USD)": f"{'≈ ' if is_estimated else ''}{usd_text(attempt.cost.total)}",
                    }
                ],
                key=f"lines-{attempt.n}",
            )
        show.facts(_tokens_by_bucket(attempt))
        show.facts(_price(attempt, price))
        if price is not None:
            with st.expander("The price as it was kept"):
                st.code(price.sheet, language="json", wrap_lines=True)


def _tokens(number: int | None, is_estimated: bool) -> str:
    return "" if number is None else f"{'≈ ' if is_estimated else ''}{count(number)}"


def _per_million(line: report.ClassLine) -> str:
    rate = line.usd_per_mtok
    return "" if rate is None else f"{rate:.6f}".rstrip("0").rstrip(".")


def _ending(attempt: AttemptSeen) -> list[tuple[str, str]]:
    status = "no HTTP status" if attempt.status is None else f"HTTP {attempt.status}"
    pairs = [
        ("ended", f"{attempt.state}, {status}" + (f", {attempt.failure}" if attempt.failure else "")),
        ("took", f"{duration(attempt.duration_ms)}, first byte after {duration(attempt.first_byte_ms)}"),
        ("usage from", attempt.usage_source),
    ]
    if attempt.model_answered not in (None, attempt.model_called):
        pairs.append(("model answered", attempt.model_answered or ""))
    if attempt.output_low is not None and attempt.output_high is not None:
        pairs.append(
            ("output range", f"≈ {count(attempt.output_low)} to {count(attempt.output_high)} tokens")
        )
    if attempt.flags:
        pairs.append(("flags", ", ".join(attempt.flags)))
    return pairs


def _tokens_by_bucket(attempt: AttemptSeen) -> list[tuple[str, str]]:
    about = attempt.state == "estimated"
    pairs = [(name, _tokens(number, about)) for name in BUCKETS if (number := getattr(attempt.usage, name))]
    pairs += [(f"tool {name}", count(units)) for name, units in sorted(attempt.usage.tools.items())]
    pairs += [(f"further {name}", count(number)) for name, number in sorted(attempt.usage.extra.items())]
    return pairs or [("tokens", "none")]


def _price(attempt: AttemptSeen, price: PriceSeen | None) -> list[tuple[str, str]]:
    pairs = [("price", attempt.price_id or "(none)")]
    if attempt.priced_as:
        pairs.append(("priced as", attempt.priced_as))
    if attempt.rate_set:
        pairs.append(("rates", attempt.rate_set))
    if attempt.service_tier:
        pairs.append(("service tier", attempt.service_tier))
    if price is not None:
        pairs.append(("in force from", price.from_date))
        pairs.append(("source", price.source or "(not said)"))
        pairs.append(("checked on", price.checked_on or "(not said)"))
    if attempt.provider_cost_usd is not None:
        pairs.append(("provider says", f"{attempt.provider_cost_usd} USD"))
    return pairs

"""Entries -> rows and totals. Pure: what a request and its attempts add to the tables, to the last unit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import add, attrgetter
from typing import Any, NamedTuple

import msgspec

from ledger.entry import Admitted, Attempt, Closed
from ledger.sums import parted
from ledger.tables import ATTEMPT, COST_CLASSES, COUNTS, MONEY_SUMS, MS_PER_DAY, MS_PER_HOUR, REQUEST
from pricing.usage import BUCKETS

INTERRUPTED = "interrupted"
"""Flag, failure and error of a request whose process died."""

MOST_TOKENS = 10**15
"""More than this in one bucket of one answer is not a count; a few of them would overflow the totals."""


class Books(NamedTuple):
    """One request, whole."""

    admitted: Admitted
    closed: Closed


class NotAnEntry(ValueError):
    """The entry holds a number that no table can keep."""


_FROM_CLOSED = (
    "closed_at_ms",
    "state",
    "status",
    "error",
    "cost_pico_usd",
    "baseline_deployment",
    "baseline_pico_usd",
    "first_byte_ms",
    "duration_ms",
)
_OF_ATTEMPTS = ("attempts", "deployment", "provider", "model")
_LISTS = ("classified_because", "deployments", "decided_because")
_FROM_ADMITTED = tuple(
    column.name for column in REQUEST.columns if column.name not in (*_FROM_CLOSED, *_OF_ATTEMPTS, *_LISTS)
)
REQUEST_COLUMNS = (*_FROM_ADMITTED, *_LISTS, *_FROM_CLOSED, *_OF_ATTEMPTS)

_JSON = ("tools", "extra", "flags")
_PLAIN = tuple(
    column.name for column in ATTEMPT.columns if column.name != "request_id" and column.name not in _JSON
)
ATTEMPT_COLUMNS = ("request_id", *_PLAIN, *_JSON)

_Getter = Callable[[Any], tuple[Any, ...]]
_admitted_part: _Getter = attrgetter(*_FROM_ADMITTED)
_closed_part: _Getter = attrgetter(*_FROM_CLOSED)
_attempt_part: _Getter = attrgetter(*_PLAIN)
_tokens: _Getter = attrgetter(*BUCKETS)
_costs: _Getter = attrgetter("cost_pico_usd", *(f"cost_{name}_pico_usd" for name in COST_CLASSES))
_to_json = msgspec.json.Encoder().encode


def _text(value: Sequence[str] | Mapping[str, int]) -> str:
    return _to_json(value).decode()


def request_row(books: Books) -> tuple[Any, ...]:
    """The row of `request`, in the order of REQUEST_COLUMNS."""
    admitted, closed = books
    if closed.attempts:
        last = closed.attempts[-1]
        ends = (len(closed.attempts), last.deployment, last.provider, last.model_called)
    else:
        ends = (0, "", "", "")
    return (
        *_admitted_part(admitted),
        _text(admitted.classified_because),
        _text(admitted.deployments),
        _text(admitted.decided_because),
        *_closed_part(closed),
        *ends,
    )


def attempt_row(request_id: str, attempt: Attempt) -> tuple[Any, ...]:
    """A row of `attempt`, in the order of ATTEMPT_COLUMNS."""
    return (
        request_id,
        *_attempt_part(attempt),
        _text(attempt.tools) if attempt.tools else "{}",
        _text(attempt.extra) if attempt.extra else "{}",
        _text(attempt.flags) if attempt.flags else "[]",
    )


TotalKey = tuple[int, str, str, str, str, str, str]
"""Hour or day, team, application, tier, deployment, provider, model."""

Totals = dict[TotalKey, list[int]]
"""By key: COUNTS, then MONEY_SUMS, each one integer (as many bits as it needs)."""

_NO_TOKENS = (0,) * len(BUCKETS)
_NO_COST = (0,) * (1 + len(COST_CLASSES))


def hour_totals(all_books: Iterable[Books]) -> Totals:
    """What these requests add to `hour_total`.

    Raises NotAnEntry for an impossible token count.
    """
    totals: Totals = {}
    for admitted, closed in all_books:
        head = (
            admitted.admitted_at_ms // MS_PER_HOUR,
            admitted.team,
            admitted.application or "",
            admitted.tier,
        )
        attempts = closed.attempts
        for attempt in attempts[:-1]:
            key = (*head, attempt.deployment, attempt.provider, attempt.model_called)
            _add(totals, key, (0, 0, 0, 0), attempt, (0, 0))
        cost, baseline = closed.cost_pico_usd, closed.baseline_pico_usd
        compared = cost is not None and baseline is not None
        counts = (1, closed.state == "failed", closed.state == "cancelled", compared)
        comparison = (cost, baseline) if cost is not None and baseline is not None else (0, 0)
        if attempts:
            last = attempts[-1]
            _add(totals, (*head, last.deployment, last.provider, last.model_called), counts, last, comparison)
        else:
            _add(totals, (*head, "", "", ""), counts, None, comparison)
    return totals


def _add(
    totals: Totals,
    key: TotalKey,
    counts: tuple[int, int, int, int],
    attempt: Attempt | None,
    comparison: tuple[int, int],
) -> None:
    if attempt is None:
        more = (*counts, 0, 0, 0, *_NO_TOKENS, *_NO_COST, 0, *comparison)
    else:
        tokens = _tokens(attempt)
        if max(tokens) > MOST_TOKENS or min(tokens) < 0:
            raise NotAnEntry(f"attempt {attempt.n} has an impossible number of tokens")
        estimated = attempt.state == "estimated"
        cost = attempt.cost_pico_usd
        if cost is None:
            # Its parts count for nothing either: the cost by class must add up to the cost.
            more = (*counts, 1, estimated, 1, *tokens, *_NO_COST, 0, *comparison)
        else:
            more = (
                *counts,
                1,
                estimated,
                0,
                *tokens,
                *_costs(attempt),
                cost if estimated else 0,
                *comparison,
            )
    so_far = totals.get(key)
    totals[key] = list(more) if so_far is None else list(map(add, so_far, more))


def day_totals(hours: Totals) -> Totals:
    """The same sums by day."""
    hours_a_day = MS_PER_DAY // MS_PER_HOUR
    totals: Totals = {}
    for (hour, *rest), sums in hours.items():
        key: TotalKey = (hour // hours_a_day, *rest)  # pyright: ignore[reportAssignmentType] - six texts follow
        so_far = totals.get(key)
        totals[key] = list(sums) if so_far is None else list(map(add, so_far, sums))
    return totals


SUM_COLUMNS = (
    *COUNTS,
    *(half for name in MONEY_SUMS for half in (f"{name}_whole_usd", f"{name}_rest_pico_usd")),
)


def total_rows(totals: Totals) -> list[tuple[Any, ...]]:
    """Rows for a table of totals: the key, then SUM_COLUMNS. Sorted: all writers lock in one order."""
    rows: list[tuple[Any, ...]] = []
    for key in sorted(totals):
        sums = totals[key]
        counts, money = sums[: len(COUNTS)], sums[len(COUNTS) :]
        rows.append((*key, *map(int, counts), *(half for amount in money for half in parted(amount))))
    return rows


def interrupted(admitted: Admitted, *, now_ms: int) -> Closed:
    """How the books of a request are closed whose process died before it closed them.

    It may have been sent: the input counts at the price of the deployment that was to be asked first, the
    output as unknown, between nothing and what the client allowed.
    """
    cost = admitted.interrupted_pico_usd
    deployment = admitted.interrupted_deployment or (admitted.deployments[0] if admitted.deployments else "")
    attempt = Attempt(
        n=1,
        deployment=deployment,
        provider=admitted.interrupted_provider,
        model_called=admitted.interrupted_model,
        started_at_ms=admitted.admitted_at_ms,
        state="estimated",
        failure=INTERRUPTED,
        input_uncached=admitted.input_tokens_estimate,
        usage_source="estimated",
        price_id=admitted.interrupted_price_id,
        cost_pico_usd=cost,
        cost_input_uncached_pico_usd=cost or 0,
        output_low=0,
        output_high=admitted.max_output_tokens,
        flags=(INTERRUPTED,) if cost is not None else (INTERRUPTED, "unpriced"),
    )
    return Closed(
        id=admitted.id,
        closed_at_ms=now_ms,
        state="failed",
        status=0,
        error=INTERRUPTED,
        attempts=(attempt,),
        cost_pico_usd=cost,
    )


def unattributed(closed: Closed) -> Admitted:
    """Stands in for the admission of a request whose own record was damaged: its cost must not be lost."""
    started = closed.attempts[0].started_at_ms if closed.attempts else closed.closed_at_ms
    return Admitted(
        id=closed.id, admitted_at_ms=started, key_id="", team="", rule="its admission was damaged"
    )

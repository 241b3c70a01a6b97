"""One line a request for a person at a terminal: what answered, what it used, what it cost, and why there.

Beside them, sentences for what else the gateway tells: above all that a saved file was taken, or why not.
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import cast

from ledger.entry import Admitted, Closed

_CENT = Decimal("0.01")


def dollars(pico_usd: int) -> str:
    """An amount for reading: below a cent with six significant digits, never rounded to nothing."""
    amount = Decimal(pico_usd).scaleb(-12)
    if pico_usd and abs(amount) < _CENT:
        decimals = min(12, 5 - amount.adjusted())
        return f"${amount:.{decimals}f}".rstrip("0")
    return f"${amount:,.4f}"


def receipt(admitted: Admitted, closed: Closed) -> str:
    """The line, without its end."""
    if not closed.attempts:
        return f"{closed.status}  {closed.error or closed.state}  {admitted.tier or admitted.model_asked}"
    last = closed.attempts[-1]
    written = last.cache_write_5m + last.cache_write_1h
    uncached = last.input_uncached + last.input_audio + last.input_image
    output = last.output_text + last.output_reasoning + last.output_audio + last.output_image
    tokens = [f"{uncached:,} in"]
    cached = last.input_cached + last.input_audio_cached
    if cached:
        tokens.append(f"{cached:,} cached")
    if written:
        tokens.append(f"{written:,} written")
    tokens.append(f"{output:,} out")
    if closed.cost_pico_usd is None:
        cost = "unpriced"
    else:
        cost = dollars(closed.cost_pico_usd)
        if any(attempt.state == "estimated" for attempt in closed.attempts):
            cost = f"about {cost} (estimated)"
    where = f"{admitted.tier or 'pinned'} -> {last.deployment}"
    parts = [f"{closed.status}", where, " + ".join(tokens), cost, f'rule "{admitted.rule}"']
    if closed.baseline_pico_usd is not None:
        parts.append(f"{closed.baseline_deployment} would be {dollars(closed.baseline_pico_usd)}")
    if len(closed.attempts) > 1:
        parts.append(f"{len(closed.attempts)} attempts")
    if closed.state != "answered":
        parts.append(closed.error or closed.state)
    return "  ".join(parts)


def sentence(event: str, facts: Mapping[str, object]) -> str:
    """What the gateway tells of itself, as one or several lines."""
    if event == "config_taken":
        return f"the saved file is in force (version {facts['digest']})"
    if event == "config_needs_restart":
        names = ", ".join(cast("tuple[str, ...]", facts["settings"]))
        return f"start again for {names}: until then the former values hold"
    if event == "config_refused":
        problems = cast("list[str]", facts["problems"])
        return "\n".join(["the saved file is not taken; the version in force stays:", *problems])
    if event == "budget_warning":
        return f'budget "{facts["budget"]}": {cast("float", facts["share"]):.0%} of it is spent'
    return f"{event}: {json.dumps(dict(facts), ensure_ascii=False)}"

"""Answers that nothing is billed for, whatever they hold: counts of tokens.

Anthropic's count_tokens is free of charge (docs.anthropic.com, build-with-claude/token-counting, read 2026-12-01).
"""

from pricing.tokens import Counter, quarter_of_bytes
from pricing.usage import End, Reading, Usage


def read_free(
    body: bytes,
    *,
    status: int,
    dialect: str,
    input_tokens_estimate: int | None,
    content_encoding: str | None = None,
    end: End = "complete",
    counter: Counter = quarter_of_bytes,
) -> Reading:
    """The reading of a whole answer: nothing was used. One that is no JSON object is no answer."""
    del dialect, input_tokens_estimate, content_encoding, counter
    flags: set[str] = set() if end == "complete" else {end}
    if status >= 400:
        flags.add("http_error")
    elif not body.lstrip().startswith(b"{"):
        flags.add("upstream_error")
    return Reading(usage=Usage(), source="none", flags=frozenset(flags))

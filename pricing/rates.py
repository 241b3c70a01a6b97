"""What one token costs at one moment: the rates of a price sheet after its dates, windows, tiers and steps.

A sheet need not name every rate. A missing one falls back to the nearest that is named, and where that changes
what somebody may have agreed to pay, the fall is flagged.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from pricing.usage import BUCKETS, SIMPLE_BUCKETS, Usage

_OTHER_NAME: Mapping[str, str] = MappingProxyType({"input_uncached": "input", "output_text": "output"})
RATE_NAMES = tuple(_OTHER_NAME.get(bucket, bucket) for bucket in BUCKETS)
"""What a price sheet calls the rate of each bucket of `Usage`, in the order of `BUCKETS`."""

_FALLS_TO: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "input_cached": ("input",),
        "cache_write_5m": ("input",),
        "cache_write_1h": ("input",),
        "input_audio": ("input",),
        "input_audio_cached": ("input_audio", "input"),
        "input_image": ("input",),
        "output_reasoning": ("output",),
        "output_audio": ("output",),
        "output_image": ("output",),
    }
)
_SILENT = frozenset({"output_reasoning", "output_image", "input_image"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The rates that held for one answer.

    They are whole numbers of pico-dollars per token times `scale`; `scale` is 1 unless a published rate has more
    than six decimals.
    """

    named: Mapping[str, int]  # what the sheet names
    per_bucket: tuple[int, ...]  # in the order of BUCKETS, fallbacks filled in; 0 for those in `lacking`
    lacking: frozenset[int]  # places in BUCKETS that have no rate at all
    flags: tuple[str | None, ...]  # in the order of BUCKETS: the flag to raise if such tokens were used
    extra: Mapping[str, int]  # one provider's further counts
    scale: int
    rate_set: str  # the blocks that applied, joined by "+", or "base"
    is_complete: bool  # every bucket has a rate, and none of them by a flagged fallback
    doubtful: Callable[[Usage], Any]  # the counts of the buckets for which that does not hold, at least one
    simple: tuple[int, ...] | None
    """The rates of `SIMPLE_BUCKETS`; None: one is missing or raises a flag, or `scale` is not 1."""

    @classmethod
    def of(cls, named: Mapping[str, int], *, extra: Mapping[str, int], scale: int, rate_set: str) -> "Rates":
        """Fill in what the sheet does not name."""
        per_bucket: list[int] = []
        lacking: set[int] = set()
        flags: list[str | None] = []
        for index, name in enumerate(RATE_NAMES):
            rate, flag = named.get(name), None
            if rate is None:
                rate = next((named[other] for other in _FALLS_TO.get(name, ()) if other in named), None)
                if rate is not None and name not in _SILENT:
                    flag = f"rate_fallback:{name}"
            if rate is None:
                lacking.add(index)
            per_bucket.append(rate or 0)
            flags.append(flag)
        doubtful = [bucket for index, bucket in enumerate(BUCKETS) if index in lacking or flags[index]]
        return cls(
            named=MappingProxyType(dict(named)),
            per_bucket=tuple(per_bucket),
            lacking=frozenset(lacking),
            flags=tuple(flags),
            extra=MappingProxyType(dict(extra)),
            scale=scale,
            rate_set=rate_set,
            is_complete=not doubtful,
            # always two names or more, so that it always gives a tuple
            doubtful=attrgetter(*(doubtful or BUCKETS[:1]), *(doubtful or BUCKETS)[:1]),
            simple=tuple(per_bucket[BUCKETS.index(bucket)] for bucket in SIMPLE_BUCKETS)
            if scale == 1 and not set(doubtful).intersection(SIMPLE_BUCKETS)
            else None,
        )


_INPUT = tuple(index for index, name in enumerate(RATE_NAMES) if not name.startswith("output"))
_OUTPUT = tuple(index for index, name in enumerate(RATE_NAMES) if name.startswith("output"))
_AUDIO = frozenset({"input_audio", "input_audio_cached", "output_audio"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Dearest:
    """The dearest kind of input and of output, in each of the sets of rates that an answer may turn out to have."""

    pairs: tuple[tuple[int, int], ...]  # input, output; 0 for what has no rate at all; no pair twice
    lacks_input: bool  # one of the sets has no rate for input
    lacks_output: bool

    @classmethod
    def of(cls, sets: Iterable[Rates], *, has_audio: bool) -> "Dearest":
        """`has_audio` False: neither side can have audio tokens, so their rates do not count."""
        found = [(_dearest(rates, _INPUT, has_audio), _dearest(rates, _OUTPUT, has_audio)) for rates in sets]
        return cls(
            pairs=tuple(
                dict.fromkeys((dear_input or 0, dear_output or 0) for dear_input, dear_output in found)
            ),
            lacks_input=any(dear_input is None for dear_input, _ in found),
            lacks_output=any(dear_output is None for _, dear_output in found),
        )


def _dearest(rates: Rates, buckets: tuple[int, ...], has_audio: bool) -> int | None:
    per_bucket = [
        rates.per_bucket[index]
        for index in buckets
        if index not in rates.lacking and (has_audio or RATE_NAMES[index] not in _AUDIO)
    ]
    return max(per_bucket, default=None)

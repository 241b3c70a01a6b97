"""What one token costs at one moment: the rates of a price sheet after its dates, windows, tiers and steps.

A sheet need not name every rate. A missing one falls back to the nearest that is named, and where that changes
what somebody may have agreed to pay, the fall is flagged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from pricing.usage import BUCKETS, Usage

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
        )

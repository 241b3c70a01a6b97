from pricing.rates import RATE_NAMES, Rates
from pricing.usage import BUCKETS


def rates(**named: int) -> Rates:
    return Rates.of(named, extra={}, scale=1, rate_set="base")


def test_every_bucket_has_a_rate_name() -> None:
    assert len(RATE_NAMES) == len(BUCKETS)
    assert dict(zip(BUCKETS, RATE_NAMES, strict=True))["output_text"] == "output"


def test_a_sheet_that_names_all_needs_no_care() -> None:
    assert rates(**dict.fromkeys(RATE_NAMES, 1)).is_complete
    assert not rates(input=1, output=2).is_complete


def test_what_has_no_rate_at_all_is_known() -> None:
    assert [BUCKETS[index] for index in sorted(rates(input=1).lacking)] == [
        "output_text",
        "output_reasoning",
        "output_audio",
        "output_image",
    ]

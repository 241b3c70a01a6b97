"""A tier that is meant to be cheap and is not."""

import pytest

from gateway.config import parse

ENVIRON = {"KEY": "k" * 32, "ADMIN": "a" * 32}

FILE = """schema = 1
[gateway]
key_secret = {{ env = "KEY" }}
admin_secret = {{ env = "ADMIN" }}
default = "standard"
[providers.house]
dialect = "vllm"
base_url = "http://127.0.0.1:8000/v1"
[deployments.usual]
provider = "house"
model = "usual"
[deployments.other]
provider = "house"
model = "other"
[tiers.standard]
deployments = ["usual"]
[tiers.{tier}]
deployments = ["other", "usual"]
[[rules]]
name = "short extraction"
when = {when}
tier = "{goes_to}"
[[prices]]
deployment = "usual"
from = 2026-01-01
source = "contract"
rates = {{ input = "1", output = "4" }}
"""

SHORT = "{ input_tokens = { below = 8_000 } }"
DEARER = 'rates = { input = "2.50", output = "4" }'


def warnings(when: str, *, price: str = DEARER, tier: str = "quick", goes_to: str | None = None) -> list[str]:
    text = FILE.format(when=when, tier=tier, goes_to=goes_to or tier)
    if price:
        text += f'[[prices]]\ndeployment = "other"\nfrom = 2026-01-01\nsource = "contract"\n{price}\n'
    found = parse("faregate.toml", text.encode(), ENVIRON).warnings
    return [warning.message for warning in found if "dearer" in warning.message]


def test_cheap_work_that_a_rule_sends_to_a_dearer_tier_is_a_warning_with_both_prices() -> None:
    assert warnings(SHORT) == [
        'rules[0] "short extraction" sends cheap work to "quick", which is dearer than the default tier "standard": '
        'its first deployment "other" costs $2.5 in and $4 out per million tokens, and "usual" $1 in and $4 out'
    ]


@pytest.mark.parametrize(
    "when",
    [
        '{ task_kind = "chat" }',
        '{ task_kind = ["extraction", "summary"], input_tokens = { at_most = 100 } }',
        "{ max_output_tokens = { below = 100 }, has_images = false }",
        "{ budget_left_share = { below = 0.2 } }",
    ],
)
def test_short_and_routine_work_and_what_spares_a_budget_is_cheap_work(when: str) -> None:
    assert len(warnings(when)) == 1


@pytest.mark.parametrize(
    "when",
    [
        '{ task_kind = "code" }',
        '{ task_kind = ["chat", "reasoning"] }',
        "{ input_tokens = { at_least = 8_000 } }",
        "{ input_tokens = { below = 8_000 }, has_images = true }",
        '{ input_tokens = { below = 8_000 }, reasoning_effort = "high" }',
        '{ application = "receipts" }',
        '{ not = { task_kind = "chat" } }',
    ],
)
def test_work_that_asks_for_a_better_model_may_be_dearer(when: str) -> None:
    assert warnings(when) == []


@pytest.mark.parametrize(
    "price",
    [
        'rates = { input = "1", output = "4" }',
        'rates = { input = "0.5", output = "2" }',
        'rates = { input = "2", output = "3" }',  # depends on the mix
        "",  # unpriced: has a warning of its own
    ],
)
def test_a_tier_that_is_not_surely_dearer_is_no_warning(price: str) -> None:
    assert warnings(SHORT, price=price) == []


def test_the_tier_called_small_is_meant_to_be_cheap_whatever_leads_to_it() -> None:
    assert warnings('{ application = "receipts" }', tier="small")[0].startswith(
        'rules[0] "short extraction" sends cheap work to "small", which is dearer'
    )
    assert warnings(SHORT, tier="small", goes_to="standard") == [
        'tiers.small is dearer than the default tier "standard": its first deployment "other" costs $2.5 in and '
        '$4 out per million tokens, and "usual" $1 in and $4 out'
    ]

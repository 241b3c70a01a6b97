"""faregate.toml: what a good one becomes, and every way of breaking one with its exact message."""

# ruff: noqa: E501 - tables of whole messages

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from gateway.config import Config, ConfigProblems, load, parse
from routers.conditions import AnyOf, Condition, Range

ENVIRON = {
    "KEY_SECRET": "k" * 32,
    "ADMIN_SECRET": "canary-admin-secret-value",
    "OPENAI_API_KEY": "sk-canary",
}

GOOD = """schema = 1
[gateway]
key_secret = { env = "KEY_SECRET" }
admin_secret = { env = "ADMIN_SECRET" }
ledger = { env = "LEDGER_URL" }
default = "standard"
[providers.openai]
dialect = "openai"
base_url = "https://api.openai.com/v1/"
api_key = { env = "OPENAI_API_KEY" }
[providers.house]
dialect = "vllm"
base_url = "http://127.0.0.1:8000/v1"
on_disconnect = "drain"
[deployments.terra]
provider = "openai"
model = "gpt-5.6-terra"
accepts = ["images", "tools"]
context_tokens = 400_000
parameters = { rename = { max_tokens = "max_completion_tokens" }, drop = ["temperature"] }
[deployments.house-8b]
provider = "house"
model = "llama"
region = "eu"
ceiling_usd_per_mtok = 20.00
[tiers.standard]
deployments = ["terra", { house-8b = 3 }]
first_token_seconds = 4
[tiers.small]
deployments = ["house-8b"]
max_output_tokens = 1000
[names]
"gpt-4o" = "auto"
"gpt-4" = "gpt-4o"
[[rules]]
name = "first"
when = { application = "receipts" }
tier = "standard"
[[rules]]
name = "second"
when = { task_kind = ["chat", "code"] }
tier = "small"
[[rules]]
name = "short extraction"
when = { confidence = { at_least = 0.5 }, hour = { above = 19, at_most = 23 }, not = { team = "search" } }
tier = "small"
[teams.search]
tiers = ["small"]
regions = ["eu"]
requests_per_minute = 60
[[budgets]]
name = "search, monthly"
team = "search"
limit_usd = 2_500.01
per = "month"
warn_at = [0.80, 0.50]
[[baselines]]
deployment = "terra"
from = 2026-01-01
approved_by = "finance"
"""


def good(*changes: tuple[str, str], environ: Mapping[str, str] = ENVIRON) -> Config:
    return parse("faregate.toml", broken(*changes).encode(), environ)


def broken(*changes: tuple[str, str]) -> str:
    text = GOOD
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in the file"
        text = text.replace(old, new)
    return text


def problems(text: str | bytes, environ: Mapping[str, str] = ENVIRON) -> list[str]:
    with pytest.raises(ConfigProblems) as caught:
        parse("faregate.toml", text if isinstance(text, bytes) else text.encode(), environ)
    return [str(problem) for problem in caught.value.problems]


def line_of(text: str, written: str) -> int:
    return text[: text.index(written)].count("\n") + 1


def test_a_good_file_becomes_values() -> None:
    config = good()
    assert config.gateway.listen == "127.0.0.1:8080"
    assert config.gateway.key_secret == "k" * 32
    assert config.gateway.ledger_url is None
    openai, house = config.providers["openai"], config.providers["house"]
    assert (openai.base_url, openai.api_key, openai.live) == ("https://api.openai.com/v1", "sk-canary", True)
    assert (house.api_key, house.live, house.on_disconnect) == (None, True, "drain")
    terra = config.policy.deployments["terra"]
    assert (terra.accepts, terra.context_tokens, terra.region) == ({"images", "tools"}, 400_000, None)
    assert config.parameters["terra"].rename == {"max_tokens": "max_completion_tokens"}
    assert config.parameters["terra"].drop == ("temperature",)
    assert "house-8b" not in config.parameters
    assert config.ceilings == {"terra": None, "house-8b": 20_000_000}
    assert config.policy.tiers["standard"].choices == ((("terra", 1),), (("house-8b", 3),))
    assert config.policy.tiers["standard"].first_token_seconds == 4.0
    assert config.policy.tiers["small"].first_token_seconds == 30.0
    assert config.policy.tiers["small"].max_output_tokens == 1000
    assert config.policy.names == {"gpt-4o": "auto", "gpt-4": "auto"}
    assert config.policy.default == "standard"
    assert config.teams["search"].limits.tiers == {"small"}
    assert config.budgets[0].limit == 2_500_010_000_000_000
    assert config.budgets[0].warn_at == (0.5, 0.8)
    assert config.budgets[0].when_spent == "refuse"
    assert (config.baselines[0].deployment, config.baselines[0].from_) == ("terra", date(2026, 1, 1))
    assert config.digest == config.policy.digest


def test_conditions_are_read_with_their_bounds() -> None:
    assert good().policy.rules[2].when == (
        Condition(field="confidence", test=Range(low=0.5)),
        Condition(field="hour", test=Range(low=19, low_is_in=False, high=23)),
        Condition(field="team", test=AnyOf(values=("search",)), negated=True),
    )


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        (
            "when = { confidence",
            "when = { confidance",
            "when = { confidance",
            'rules[2] "short extraction": when.confidance is unknown; did you mean confidence?',
        ),
        ('default = "standard"', 'default = "standart"', 'default = "', 'gateway.default is "standart", which is unknown; did you mean standard?'),
        ('provider = "openai"', 'provider = "opnai"', 'provider = "opnai"', 'deployments.terra.provider is "opnai", which is unknown; did you mean openai?'),
        ('deployments = ["house-8b"]', 'deployments = ["house8b"]', 'deployments = ["house8b"]', 'tiers.small.deployments[0] is "house8b", which is unknown; did you mean house-8b?'),
        ('deployments = ["house-8b"]', "deployments = []", "deployments = []", "tiers.small.deployments is empty: a tier needs a deployment that answers"),
        ('deployments = ["house-8b"]', 'deployments = ["house-8b", "house-8b"]', 'deployments = ["house-8b"', 'tiers.small.deployments[1] names "house-8b" a second time; a tier tries each deployment once'),
        ("{ house-8b = 3 }", "{ house-8b = 0 }", "deployments = [\"terra\"", 'tiers.standard.deployments[1] gives "house-8b" a weight that is not a whole number from 1 to 1,000,000'),
        ('dialect = "vllm"', 'dialect = "vlm"', 'dialect = "vlm"', 'providers.house.dialect is "vlm", which is unknown; did you mean vllm?'),
        ('model = "llama"\n', "", "[deployments.house-8b]", "deployments.house-8b.model is missing"),
        ("context_tokens = 400_000", 'context_tokens = "400k"', "context_tokens", "deployments.terra.context_tokens must be a whole number, not a text"),
        ("first_token_seconds = 4", "first_token_seconds = 601", "first_token_seconds", "tiers.standard.first_token_seconds is 601, more than the 600 of total_seconds"),
        ("limit_usd = 2_500.01", "limit_usd = -1", "limit_usd", 'budgets[0] "search, monthly": limit_usd is -1; it must be more than 0'),
        ("limit_usd = 2_500.01", "limit_usd = 1.0000000000001", "limit_usd", 'budgets[0] "search, monthly": limit_usd cannot be kept exactly: 1.0000000000001 dollars is not a whole number of pico-dollars (at most 12 decimals)'),
        ('per = "month"', 'per = "mouth"', "per =", 'budgets[0] "search, monthly": per is "mouth", which is unknown; did you mean month?'),
        ('per = "month"', 'per = "month"\nwhen_spent = "smal"', "when_spent", 'budgets[0] "search, monthly": when_spent is "smal", which is unknown; did you mean small?'),
        ("warn_at = [0.80, 0.50]", "warn_at = [80]", "warn_at", 'budgets[0] "search, monthly": warn_at must be a list of shares of the limit, each above 0 and at most 1'),
        ("from = 2026-01-01", 'from = "2026-01-01"', "from =", 'baselines[0] "terra": from must be a date like 2026-01-31, without quotes, not a text'),
        ('tiers = ["small"]', 'tiers = ["smal"]', 'tiers = ["smal"]', 'teams.search.tiers[0] is "smal", which is unknown; did you mean small?'),
        ('"gpt-4" = "gpt-4o"', '"gpt-4" = "gpt-4"', '"gpt-4" =', 'names.gpt-4 goes round in a circle: gpt-4 -> gpt-4'),
        ('"gpt-4" = "gpt-4o"', '"gpt-4.1" = "atuo"', '"gpt-4.1" =', 'names."gpt-4.1" is "atuo", which is unknown; did you mean auto?'),
        ('"gpt-4" = "gpt-4o"', '"terra" = "auto"', '"terra" =', "names.terra is a deployment already; it cannot mean something else"),
        ('name = "second"', 'name = "first"', 'name = "first"\nwhen = { task_kind', 'rules[1] "first": name is "first", as is that of rules[0]; each needs its own'),
        ('["chat", "code"]', '["chatt"]', 'when = { task_kind', 'rules[1] "second": when.task_kind is "chatt", which is unknown; did you mean chat?'),
        ('["chat", "code"]', "[]", 'when = { task_kind', 'rules[1] "second": when.task_kind is an empty list: it could never match'),
        ('application = "receipts"', 'application = { below = 3 }', "when = { application", 'rules[0] "first": when.application must be a text or a list of texts, not a table: a range is for numbers'),
        ("{ at_least = 0.5 }", "{ at_leest = 0.5, at_most = 1 }", "when = { confidence", 'rules[2] "short extraction": when.confidence.at_leest is unknown; did you mean at_least?'),
        ("{ at_least = 0.5 }", "{}", "when = { confidence", 'rules[2] "short extraction": when.confidence is a range without a bound; it takes at_least, above, below, at_most'),
        ("{ at_least = 0.5 }", "1.5", "when = { confidence", 'rules[2] "short extraction": when.confidence is 1.5; it is always a number from 0 to 1'),
        ('tier = "standard"\n', "", "[[rules]]", 'rules[0] "first": tier is missing'),
        ('key_secret = { env = "KEY_SECRET" }', 'key_secret = "plain"', "key_secret", 'gateway.key_secret must be { env = "NAME" }: a secret does not stand in this file'),
        ('key_secret = { env = "KEY_SECRET" }\n', "", "[gateway]", "gateway.key_secret is missing"),
        ('admin_secret = { env = "ADMIN_SECRET" }\n', "", "[gateway]", "gateway.admin_secret is missing"),
        ('default = "standard"', 'default = "standard"\nlisten = "8080"', 'listen = "8080"', 'gateway.listen is "8080"; it must be a host and a port, like "127.0.0.1:8080"'),
        ("http://127.0.0.1:8000/v1", "ftp://127.0.0.1/v1", "base_url = \"ftp", "providers.house.base_url must be a web address that begins with https:// or http://"),
        ("http://127.0.0.1:8000/v1", "http://me:pw@127.0.0.1/v1", "base_url = \"http:", 'providers.house.base_url holds a user name or a password; a secret comes by { env = "NAME" }'),
        ('on_disconnect = "drain"', "http2 = true", "http2", 'providers.house.http2 needs client = "httpx": the own client does not do HTTP/2'),
        ('drop = ["temperature"]', 'drop = ["model"]', "parameters", 'deployments.terra.parameters.drop holds "model", which every request needs'),
        ("schema = 1", "schema = 2", "schema = 2", "schema must be 1: this version knows no other"),
        ("[tiers.small]", "[tiers.auto]", "[tiers.auto]", 'tiers.auto cannot be the name of a tier: "auto" has a meaning of its own'),
    ],
)  # fmt: skip
def test_a_broken_file_says_what_and_where(old: str, new: str, place: str, message: str) -> None:
    text = broken((old, new))
    found = problems(text)
    matching = [line for line in found if line.endswith(f": {message}")]
    assert matching, found
    assert matching[0].startswith(f"faregate.toml:{line_of(text, place)}:")


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ('[[canaries]]\nname = "x"\n', "canaries is not enforced yet: canaries come with a later version; take it out"),
        ('[[fixed_costs]]\ndeployment = "x"\n', "fixed_costs is not enforced yet: fixed costs come with a later version; take it out"),
        ('[[rules]]\nname = "x"\ntier = "small"\nbest_value = { among = ["small"] }\n', 'rules[3] "x": best_value is not enforced yet: decisions by evidence come with a later version; take it out'),
        ('[[rules]]\nname = "x"\ntier = "small"\nescalate_to = "standard"\n', 'rules[3] "x": escalate_to is not enforced yet: escalations come with a later version; take it out'),
        ('[[rules]]\nname = "x"\ntier = "small"\nservice_tier = "flex"\n', 'rules[3] "x": service_tier is not enforced yet: service tiers chosen by rules come with a later version; take it out'),
    ],
)  # fmt: skip
def test_a_key_that_is_not_enforced_yet_is_an_error_that_says_so(added: str, message: str) -> None:
    assert [line.partition(": ")[2] for line in problems(GOOD + added)] == [message]


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    text = broken(
        ('provider = "openai"', 'provider = "opnai"'),
        ("limit_usd = 2_500.01", "limit = 3"),
        ("when = { confidence", "when = { confidance"),
    )
    found = problems(text)
    assert [re.sub(r"^[^:]*:(\d+):.*", r"\1", line) for line in found] == [
        str(line_of(text, written)) for written in ('provider = "opnai"', "when = { confidance", "[[budgets]]", "limit = 3")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "faregate.toml:1:1: is empty"),
        (b"\n \n", "faregate.toml:1:1: is empty"),
        (
            b"schema = 1\n[gateway\n",
            "faregate.toml:2:9: is not TOML: expected ']' at the end of a table declaration",
        ),
        (b"schema = 1\nb = [1,\n", "faregate.toml:2:8: is not TOML: invalid value"),
        (
            b"schema = 1\nschema = 1\n",
            "faregate.toml:2:11: a key or a table is there twice; the second ends here",
        ),
        (
            b"[a]\n[b]\n[a]\n",
            "faregate.toml:3:3: a key or a table is there twice; the second ends here",
        ),
        (b"schema = 1\nx = '\xff'\n", "faregate.toml:2:6: is not UTF-8 here"),
        (
            b"\xef\xbb\xbfschema = 1\n",
            "faregate.toml:1:1: begins with a byte order mark, which TOML does not know; save it as UTF-8 without one",
        ),
        (b"a = " + b"[" * 100_000, "faregate.toml:1:1: is nested too deeply"),
    ],
)
def test_a_file_that_is_not_toml_says_where(text: bytes, message: str) -> None:
    assert problems(text) == [message]


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigProblems, match="cannot be read: No such file"):
        load(tmp_path / "none.toml", ENVIRON)
    with pytest.raises(ConfigProblems, match="cannot be read: Is a directory"):
        load(tmp_path, ENVIRON)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "faregate.toml"
    with path.open("wb") as file:
        file.truncate(100 * 2**20)
    with pytest.raises(ConfigProblems, match="is larger than 2 MiB"):
        load(path, ENVIRON)


def test_more_rules_than_can_be_taken_are_refused() -> None:
    text = GOOD + "[[rules]]\n" * 10_000
    assert any("rules has 10,003 entries; at most 10,000 are taken" in line for line in problems(text))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "which is set but empty; set it or unset it"),
        ("   ", "which is set but empty; set it or unset it"),
        ("canary\nvalue", "which holds a line break or another control character"),
        ("canary-value ", "which begins or ends with a space"),
    ],
)
@pytest.mark.parametrize("name", ["KEY_SECRET", "ADMIN_SECRET", "OPENAI_API_KEY", "LEDGER_URL"])
def test_a_secret_that_is_no_secret_is_named_and_never_shown(name: str, value: str, message: str) -> None:
    found = problems(GOOD, {**ENVIRON, name: value})
    assert any(f"names {name}, {message}" in line for line in found)
    assert not any("canary" in line for line in found)


def test_a_secret_of_the_gateway_must_be_set_to_serve_and_need_not_be_to_check() -> None:
    environ = {name: value for name, value in ENVIRON.items() if name != "KEY_SECRET"}
    message = "names KEY_SECRET, which is not set; the gateway does not start without it"
    assert any(line.endswith(message) for line in problems(GOOD, environ))
    config = parse("faregate.toml", GOOD.encode(), environ, needs_secrets=False)
    assert any(warning.message.endswith(message) for warning in config.warnings)


def test_a_short_secret_is_refused() -> None:
    found = problems(GOOD, {**ENVIRON, "KEY_SECRET": "canary"})
    assert any("fewer than 16 characters" in line for line in found)
    assert not any("canary" in line for line in found)


def test_a_provider_without_its_key_is_off_and_said_to_be() -> None:
    config = good(environ={"KEY_SECRET": "k" * 32, "ADMIN_SECRET": "a" * 32})
    openai = config.providers["openai"]
    assert (openai.live, openai.off_because) == (False, "OPENAI_API_KEY is not set")
    off = config.policy.deployments["terra"].off_because
    assert off == 'provider "openai" is off: OPENAI_API_KEY is not set'


def test_a_provider_serves_what_its_dialect_does_unless_the_file_says_otherwise() -> None:
    claude = '[providers.claude]\ndialect = "anthropic"\nbase_url = "https://api.anthropic.com"\n'
    local = (
        '[providers.local]\ndialect = "vllm"\nbase_url = "http://127.0.0.1:9/v1"\nendpoints = ["messages"]\n'
    )
    config = parse("faregate.toml", (GOOD + claude + local).encode(), ENVIRON)
    assert config.providers["claude"].live
    assert config.providers["claude"].endpoints == {"messages", "count_tokens", "other"}
    assert config.providers["claude"].base_url == "https://api.anthropic.com/v1"
    assert config.providers["local"].endpoints == {"messages"}
    assert "responses" in config.policy.deployments["terra"].endpoints


def test_an_endpoint_that_nobody_knows_is_named() -> None:
    wrong = '[providers.local]\ndialect = "vllm"\nbase_url = "http://127.0.0.1:9/v1"\nendpoints = ["chats"]\n'
    with pytest.raises(ConfigProblems, match="did you mean chat"):
        parse("faregate.toml", (GOOD + wrong).encode(), ENVIRON)


def test_money_is_read_exactly() -> None:
    config = good(("limit_usd = 2_500.01", "limit_usd = 0.1"), ("= 20.00", "= 0.000001"))
    assert config.budgets[0].limit == 10**11
    assert config.ceilings["house-8b"] == 1
    assert Decimal("0.1") * 10**12 == config.budgets[0].limit


def test_the_example_is_good_without_any_key() -> None:
    environ = {"FAREGATE_KEY_SECRET": "k" * 32, "FAREGATE_ADMIN_SECRET": "a" * 32}
    config = load("faregate.example.toml", environ)
    assert not any(provider.live for provider in config.providers.values())
    assert [w.field for w in config.warnings if "price" not in w.message] == []

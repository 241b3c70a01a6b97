"""Turns faregate.toml into a `Config`, or says everything that is wrong with it at once."""

import re
import tomllib
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from typing import Any

from gateway.config.books import books_for, read_published
from gateway.config.dearness import warn_of_dear_tiers
from gateway.config.model import (
    Baseline,
    Budget,
    Config,
    GatewaySettings,
    Parameters,
    Provider,
    Team,
)
from gateway.config.prices import read_prices
from gateway.config.problems import ConfigProblems, Problem
from gateway.config.rules import read_rules, warn_of_strange_names
from gateway.config.sections import (
    is_loopback,
    read_baselines,
    read_budgets,
    read_deployments,
    read_gateway,
    read_names,
    read_providers,
    read_teams,
    read_tiers,
)
from gateway.config.table import Report, Table
from routers.policy import AUTO, Policy

__all__ = [
    "Baseline",
    "Budget",
    "Config",
    "ConfigProblems",
    "GatewaySettings",
    "Parameters",
    "Problem",
    "Provider",
    "Team",
    "load",
    "parse",
    "switched_on",
]

MOST_BYTES = 2 * 1024 * 1024
"""A larger file is refused unread: its parser would hold everything else up."""

_NOT_YET = {
    "canaries": "canaries",
    "fixed_costs": "fixed costs",
    "rules_from": "files that are published into the ledger",
}


def load(path: str | Path, environ: Mapping[str, str], *, needs_secrets: bool = True) -> Config:
    """Read the file whole.

    `needs_secrets`: the gateway's own secrets must be set, as they must to serve; else their absence is a
    warning. Raises ConfigProblems with everything that is wrong, also when the file cannot be read.
    """
    name = str(path)
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as wrong:
        raise ConfigProblems(
            [_whole(name, f"cannot be read: {wrong.strerror or type(wrong).__name__}")]
        ) from None
    if len(raw) > MOST_BYTES:
        raise ConfigProblems([_whole(name, f"is larger than {MOST_BYTES // 2**20} MiB")])
    return parse(name, raw, environ, needs_secrets=needs_secrets)


def parse(name: str, raw: bytes, environ: Mapping[str, str], *, needs_secrets: bool = True) -> Config:
    """As `load`, for bytes that were read already; `name` is the file's name in messages."""
    text, data = _parsed(name, raw)
    report = Report(name, text, environ)
    top = Table(report, data, (), "")
    config = read(top, name, raw, needs_secrets=needs_secrets)
    if report.is_bad or config is None:
        raise ConfigProblems(report.problems())
    return replace(config, warnings=report.warnings())


def read(top: Table, name: str, raw: bytes, *, needs_secrets: bool) -> Config | None:
    schema = top.get("schema", required=True)
    if schema is not None and (isinstance(schema, bool) or schema != 1):
        top.problem("schema", "must be 1: this version knows no other")
    top.not_yet(_NOT_YET)
    providers = read_providers(top)
    read = read_deployments(top, providers)
    tiers = read_tiers(top, read.deployments)
    gateway = read_gateway(top, tiers, needs_secrets=needs_secrets)
    names = read_names(top, read.deployments, tiers)
    rules = read_rules(top, tiers)
    teams = read_teams(top, tiers, read.deployments)
    budgets = read_budgets(top, tiers, teams)
    baselines = read_baselines(top, read.deployments)
    own_prices = read_prices(top, read.deployments)
    published = read_published(top, None if gateway is None else gateway.price_file)
    books = (
        {}
        if top.report.is_bad
        else books_for(top, read.deployments, own_prices, read.ceilings, published.book)
    )
    top.done()
    if not top.report.is_bad and not tiers:
        top.problem("tiers", "is missing: there must be a tier that answers")
    if gateway is None or top.report.is_bad:
        return None
    digest = blake2b(raw + published.raw, digest_size=12).hexdigest()
    policy = Policy(
        deployments=read.deployments,
        tiers=tiers,
        names=names,
        rules=rules,
        default=gateway.default,
        digest=digest,
    )
    _warn(top, policy, gateway, teams)
    warn_of_dear_tiers(top, policy, books, datetime.now(UTC))
    return Config(
        path=name,
        gateway=gateway,
        providers=providers,
        policy=policy,
        teams=teams,
        budgets=budgets,
        baselines=baselines,
        parameters=read.parameters,
        books=books,
        ceilings=read.ceilings,
        digest=digest,
    )


def _warn(top: Table, policy: Policy, gateway: GatewaySettings, teams: Mapping[str, Team]) -> None:
    report = top.report
    to_rules = [name for name, fate in policy.fates.items() if fate.kind == "rules"]
    warn_of_strange_names(policy.rules, top, teams=teams, names_to_rules=to_rules)
    by_model: dict[str, str] = {}
    for deployment in policy.deployments.values():
        if not policy.tiers_of[deployment.name] and not deployment.off_because:
            report.warning(("deployments", deployment.name), "is in no tier: it is reached by its name only")
        model = deployment.model
        if model in policy.names or model in policy.deployments or model == AUTO:
            continue
        if model in policy.tiers:
            message = f'is "{model}", which is also a tier: who asks for it gets the tier'
            report.warning(("deployments", deployment.name, "model"), message)
            continue
        first = by_model.setdefault(model, deployment.name)
        if first != deployment.name:
            message = f'is "{model}", as is that of "{first}": who asks for it gets "{first}"'
            report.warning(("deployments", deployment.name, "model"), message)
    if not is_loopback(gateway.listen):
        message = f"is {gateway.listen}, beyond this machine and without TLS: put a TLS proxy before it"
        report.warning(("gateway", "listen"), message)
    if not is_loopback(gateway.admin_listen):
        message = f"is {gateway.admin_listen}, beyond this machine and without TLS: put a TLS proxy before it"
        report.warning(("gateway", "admin_listen"), message)


def switched_on(config: Config, *, base_url: str, api_key: str, because: str) -> Config:
    """The same with every provider that is off turned on, at this address: for a provider that is simulated.

    `because` is kept in `off_because` of those providers, so that everybody can be told.
    """
    providers = {
        name: provider
        if provider.live
        else replace(provider, live=True, base_url=base_url, api_key=api_key, off_because=because)
        for name, provider in config.providers.items()
    }
    deployments = {
        name: replace(deployment, off_because=None) for name, deployment in config.policy.deployments.items()
    }
    old = config.policy
    policy = Policy(
        deployments=deployments,
        tiers=old.tiers,
        names=old.names,
        rules=old.rules,
        default=old.default,
        digest=old.digest,
    )
    return replace(config, providers=providers, policy=policy)


def _whole(name: str, message: str, line: int = 1, column: int = 1) -> Problem:
    return Problem(file=name, line=line, column=column, field="", message=message)


_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TWICE = re.compile(
    r"^(?:Cannot overwrite a value|Cannot mutate immutable|Cannot declare|Duplicate inline table key)"
)


def _parsed(name: str, raw: bytes) -> tuple[str, dict[str, Any]]:
    if not raw.strip():
        raise ConfigProblems([_whole(name, "is empty")])
    if raw.startswith(BOM_UTF8):
        message = "begins with a byte order mark, which TOML does not know; save it as UTF-8 without one"
        raise ConfigProblems([_whole(name, message)])
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as wrong:
        before = raw[: wrong.start]
        line = before.count(b"\n") + 1
        column = len(before.rpartition(b"\n")[2].decode("utf-8")) + 1
        raise ConfigProblems([_whole(name, "is not UTF-8 here", line, column)]) from None
    try:
        return text, tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as wrong:
        raise ConfigProblems([_syntax(name, text, str(wrong))]) from None
    except RecursionError:
        raise ConfigProblems([_whole(name, "is nested too deeply")]) from None
    except ValueError as wrong:  # a number of too many digits, a date that does not exist
        raise ConfigProblems([_whole(name, f"holds a value that cannot be read: {wrong}")]) from None


def _syntax(name: str, text: str, said: str) -> Problem:
    found = _POSITION.search(said)
    what = said[: found.start()] if found else said
    if found and found[1]:
        line, column = int(found[1]), int(found[2])
    else:
        lines = text.splitlines() or [""]
        line, column = len(lines), len(lines[-1]) + 1
    if _TWICE.match(what):
        return _whole(name, "a key or a table is there twice; the second ends here", line, column)
    return _whole(name, f"is not TOML: {what[:1].lower()}{what[1:]}", line, column)

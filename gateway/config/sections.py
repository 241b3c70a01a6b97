"""Reads every section of the file but rules and prices."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import ip_address
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from gateway.config.dialects import DIALECTS, ENDPOINTS, SERVED_BY
from gateway.config.model import Baseline, Budget, Client, GatewaySettings, Parameters, Per, Provider, Team
from gateway.config.problems import is_unknown, shown
from gateway.config.table import Table, kind_of
from pricing.money import PicoUsd, pico_from_usd, rate_from_usd_per_mtok
from routers.facts import EndpointName
from routers.policy import ACCEPTS, AUTO, Choice, Deployment, TierSpec

MOST_BUDGETS = 10_000
_OWN_FIELDS = frozenset(
    ("model", "messages", "input", "stream", "stream_options")
)  # the gateway's own to change


def read_gateway(top: Table, tiers: Collection[str], *, needs_secrets: bool) -> GatewaySettings | None:
    """`[gateway]`."""
    table = top.table("gateway", required=True)
    if table is None:
        return None
    listen = _address(table, "listen", "127.0.0.1:8080")
    admin_listen = _address(table, "admin_listen", "127.0.0.1:8081")
    if listen == admin_listen:
        table.problem("admin_listen", f"is {listen}, as is listen; each needs an address of its own")
    key_secret = _own_secret(table, "key_secret", needs_secrets=needs_secrets)
    admin_secret = _own_secret(table, "admin_secret", needs_secrets=needs_secrets)
    if key_secret and key_secret == admin_secret:
        table.problem("admin_secret", "has the same value as key_secret; each needs its own")
    ledger = table.secret("ledger")
    redis = table.secret("redis")
    default = table.names_one_of("default", tiers, required=True)
    ledger_url = _url_of(table, "ledger", ledger, ("sqlite", "postgresql", "postgres", "postgresql+psycopg"))
    redis_url = _url_of(table, "redis", redis, ("redis", "rediss", "unix"))
    settings = GatewaySettings(
        listen=listen,
        admin_listen=admin_listen,
        key_secret=key_secret,
        admin_secret=admin_secret,
        ledger_url=ledger_url,
        redis_url=redis_url,
        default=default or "",
        data_dir=table.text("data_dir") or ".faregate",
        max_body_bytes=table.whole("max_body_bytes", least=1024, most=2**30) or 32 * 1024 * 1024,
        max_connections=table.whole("max_connections", least=1, most=1_000_000) or 10_000,
        drain_seconds=table.seconds("drain_seconds", 30.0, most=3600),
        key_cache_seconds=table.seconds("key_cache_seconds", 900.0),
        price_file=_beside(table, "price_file"),
    )
    table.not_yet({"rules_from": "files that are published into the ledger"})
    table.done()
    return settings


def _beside(table: Table, key: str) -> str | None:
    """A path, which counts from the folder of the file."""
    value = table.text(key)
    return None if value is None else str(Path(table.report.file).parent / value)


def _address(table: Table, key: str, default: str) -> str:
    value = table.text(key)
    if value is None:
        return default
    host, colon, port = value.rpartition(":")
    bare = host.strip("[]")
    try:
        is_address = bool(colon) and bool(bare) and 0 <= int(port) <= 65535 and port.isdecimal()
        if ":" in bare:
            ip_address(bare)
            is_address = is_address and host.startswith("[") and host.endswith("]")
    except ValueError:
        is_address = False
    if not is_address:
        table.problem(key, f'is "{shown(value)}"; it must be a host and a port, like "127.0.0.1:8080"')
    return value


def is_loopback(address: str) -> bool:
    """True if only this machine can reach `host:port`."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _own_secret(table: Table, key: str, *, needs_secrets: bool) -> str:
    """A secret without which the gateway does not start."""
    secret = table.secret(key, required=True)
    if secret is None:
        return ""
    name, value = secret
    if value is None:
        message = f"names {name}, which is not set; the gateway does not start without it"
        if needs_secrets:
            table.problem(key, message)
        else:
            table.warning(key, message)
        return ""
    if len(value) < 16:
        table.problem(
            key, f"names {name}, which holds fewer than 16 characters; make it with: openssl rand -hex 32"
        )
    return value


def _url_of(
    table: Table, key: str, secret: tuple[str, str | None] | None, schemes: tuple[str, ...]
) -> str | None:
    if secret is None or secret[1] is None:
        return None
    if secret[1].partition(":")[0] not in schemes:
        table.problem(key, f"names {secret[0]}, which holds no address that begins with {schemes[0]}://")
    return secret[1]


def read_providers(top: Table) -> dict[str, Provider]:
    """`[providers.NAME]`."""
    return {name: _provider(name, table) for name, table in top.named_tables("providers").items()}


def _provider(name: str, table: Table) -> Provider:
    dialect = table.text("dialect", required=True) or ""
    if dialect and dialect not in DIALECTS:
        table.problem("dialect", is_unknown(dialect, DIALECTS))
    clients: tuple[Client, ...] = ("own", "httpx")
    client: Client = table.word("client", clients, "own")
    http2 = table.flag("http2", default=False)
    proxy = _proxy(table)
    if client == "own":
        if http2:
            table.problem("http2", 'needs client = "httpx": the own client does not do HTTP/2')
        if proxy is not None:
            table.problem("proxy", 'needs client = "httpx": the own client does not do proxies')
    secret = table.secret("api_key")
    off_because: str | None = None
    if secret is not None and secret[1] is None:
        off_because = f"{secret[0]} is not set"
    provider = Provider(
        name=name,
        dialect=dialect,
        endpoints=_endpoints(table, dialect),
        base_url=_base_url(table, dialect),
        api_key=secret[1] if secret else None,
        api_key_env=secret[0] if secret else None,
        client=client,
        on_disconnect=table.word("on_disconnect", ("cancel", "drain"), "cancel"),
        connect_seconds=table.seconds("connect_seconds", 2.0, most=300),
        idle_seconds=table.seconds("idle_seconds", 60.0, most=3600),
        max_connections=table.whole("max_connections", least=1, most=100_000) or 8_192,
        proxy=proxy,
        http2=http2,
        ca_file=_ca_file(table),
        live=off_because is None and not (table.has("api_key") and secret is None),
        off_because=off_because,
    )
    table.done()
    return provider


def _endpoints(table: Table, dialect: str) -> frozenset[EndpointName]:
    named = table.words("endpoints", ENDPOINTS)
    if named is None:
        return SERVED_BY.get(dialect, frozenset())
    return frozenset(name for name in ENDPOINTS if name in named)


def _base_url(table: Table, dialect: str) -> str:
    value = table.text("base_url", required=True)
    if value is None or not _is_web_address(table, "base_url", value):
        return ""
    value = value.rstrip("/")
    # Anthropic's own clients add the version themselves, so its address is mostly given without.
    return f"{value}/v1" if dialect == "anthropic" and not urlsplit(value).path else value


def _is_web_address(table: Table, key: str, value: str) -> bool:
    try:
        parts = urlsplit(value)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError:
        table.problem(key, "is not a web address")
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_fine or not value.isascii():
        table.problem(key, "must be a web address that begins with https:// or http://")
    elif parts.username is not None or parts.password is not None:
        table.problem(key, 'holds a user name or a password; a secret comes by { env = "NAME" }')
    elif parts.query or parts.fragment or "?" in value or "#" in value or " " in value or "\\" in value:
        table.problem(key, "must end with its path: no ? and no #")
    else:
        return True
    return False


def _proxy(table: Table) -> str | None:
    if isinstance(table.data.get("proxy"), dict):  # it may carry a password
        secret = table.secret("proxy")
        return secret[1] if secret else None
    value = table.text("proxy")
    return value if value is not None and _is_web_address(table, "proxy", value) else None


def _ca_file(table: Table) -> str | None:
    value = table.text("ca_file")
    if value is not None and not Path(value).is_file():
        table.problem("ca_file", f'is "{shown(value)}", which is not a file')
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployments:
    """`[deployments.NAME]`, read."""

    deployments: Mapping[str, Deployment]
    parameters: Mapping[str, Parameters]
    ceilings: Mapping[str, PicoUsd | None]


def read_deployments(top: Table, providers: Mapping[str, Provider]) -> Deployments:
    """`[deployments.NAME]`."""
    deployments: dict[str, Deployment] = {}
    parameters: dict[str, Parameters] = {}
    ceilings: dict[str, PicoUsd | None] = {}
    for name, table in top.named_tables("deployments").items():
        provider = table.names_one_of("provider", providers, required=True) or ""
        known = providers.get(provider)
        off_because = None
        if known is not None and known.off_because is not None:
            off_because = f'provider "{provider}" is off: {known.off_because}'
        deployments[name] = Deployment(
            name=name,
            provider=provider,
            model=table.text("model", required=True) or "",
            dialect=known.dialect if known else "",
            endpoints=known.endpoints if known else frozenset(),
            accepts=table.words("accepts", ACCEPTS),
            context_tokens=table.whole("context_tokens", least=1),
            max_output_tokens=table.whole("max_output_tokens", least=1),
            region=table.text("region"),
            off_because=off_because,
        )
        changes = _parameters(table)
        if changes is not None:
            parameters[name] = changes
        ceilings[name] = _ceiling(table)
        table.done()
    return Deployments(deployments=deployments, parameters=parameters, ceilings=ceilings)


def _ceiling(table: Table) -> PicoUsd | None:
    value = table.number("ceiling_usd_per_mtok", most=1_000_000)
    if value is None:
        return None
    try:
        return rate_from_usd_per_mtok(value)
    except ValueError as wrong:
        table.problem("ceiling_usd_per_mtok", f"cannot be kept exactly: {wrong}")
        return None


def _parameters(deployment: Table) -> Parameters | None:
    table = deployment.table("parameters")
    if table is None:
        return None
    rename: dict[str, str] = {}
    names = table.get("rename")
    if names is not None and not isinstance(names, dict):
        table.problem("rename", 'must be a table like { max_tokens = "max_completion_tokens" }')
    elif names is not None:
        for old, new in cast("dict[str, object]", names).items():
            path = (*table.path, "rename", old)
            if not isinstance(new, str) or not new:
                deployment.report.problem(path, f"must be the new name, a text, not {kind_of(new)}")
            elif old == new:
                deployment.report.problem(path, "is renamed to itself")
            elif old in _OWN_FIELDS or new in _OWN_FIELDS:
                own = ", ".join(sorted(_OWN_FIELDS))
                deployment.report.problem(
                    path, f"cannot be part of a renaming: the gateway itself sets {own}"
                )
            elif new in rename.values():
                deployment.report.problem(path, f'is renamed to "{shown(new)}", as is another one')
            else:
                rename[old] = new
    drop = table.texts("drop", may_be_empty=True) or ()
    for name in drop:
        if name in _OWN_FIELDS:
            table.problem("drop", f'holds "{name}", which every request needs')
        elif name in rename:
            table.problem("drop", f'holds "{shown(name)}", which rename turns into "{shown(rename[name])}"')
    table.not_yet({"set": "parameters set for a deployment"})
    table.done()
    return Parameters(rename=rename, drop=drop) if rename or drop else None


def read_tiers(top: Table, deployments: Mapping[str, Deployment]) -> dict[str, TierSpec]:
    """`[tiers.NAME]`."""
    tiers: dict[str, TierSpec] = {}
    for name, table in top.named_tables("tiers").items():
        if name in (AUTO, "refuse"):
            top.report.problem(table.path, f'cannot be the name of a tier: "{name}" has a meaning of its own')
        if name in deployments:
            top.report.problem(table.path, f'has the name of a deployment; "{name}" would have two meanings')
        first = table.seconds("first_token_seconds", 30.0, most=3600)
        total = table.seconds("total_seconds", 600.0)
        if table.has("first_token_seconds") and first > total:
            table.problem("first_token_seconds", f"is {first:g}, more than the {total:g} of total_seconds")
        tiers[name] = TierSpec(
            name=name,
            purpose=table.text("purpose") or "",
            choices=_choices(table, deployments),
            first_token_seconds=min(first, total),
            total_seconds=total,
            max_output_tokens=table.whole("max_output_tokens", least=1),
        )
        table.done()
    return tiers


def _choices(table: Table, deployments: Mapping[str, Deployment]) -> tuple[Choice, ...]:
    value = table.get("deployments", required=True)
    if value is None:
        return ()
    if not isinstance(value, list):
        table.problem("deployments", f"must be a list of deployments, not {kind_of(value)}")
        return ()
    items = cast("list[object]", value)
    if not items:
        table.problem("deployments", "is empty: a tier needs a deployment that answers")
    choices: list[Choice] = []
    used: set[str] = set()
    for number, item in enumerate(items):
        path = (*table.path, "deployments", number)
        shares: dict[str, object]
        if isinstance(item, str):
            shares = {item: 1}
        elif isinstance(item, dict) and item:
            shares = cast("dict[str, object]", item)
        else:
            kind = kind_of(cast("object", item))
            table.report.problem(path, f"must be a deployment's name or a table of weights, not {kind}")
            continue
        choice: list[tuple[str, int]] = []
        for name, weight in shares.items():
            if name not in deployments:
                table.report.problem(path, is_unknown(name, deployments))
            elif name in used:
                table.report.problem(path, f'names "{name}" a second time; a tier tries each deployment once')
            elif isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= 1_000_000:
                message = f'gives "{name}" a weight that is not a whole number from 1 to 1,000,000'
                table.report.problem(path, message)
            else:
                choice.append((name, weight))
            used.add(name)
        if choice:
            choices.append(tuple(choice))
    return tuple(choices)


def read_names(top: Table, deployments: Collection[str], tiers: Collection[str]) -> dict[str, str]:
    """`[names]`: what a client's model name becomes, each led to its end."""
    table = top.table("names")
    if table is None:
        return {}
    top.report.asked.add("names.NAME")
    names: dict[str, str] = {}
    for name, target in table.data.items():
        if not isinstance(target, str):
            table.problem(
                name, f'must be "auto", a tier, a deployment or another name, not {kind_of(target)}'
            )
        elif name in deployments or name in tiers or name == AUTO:
            what = "a deployment" if name in deployments else "a tier"
            what = "what leaves it to the rules" if name == AUTO else what
            table.problem(name, f"is {what} already; it cannot mean something else")
        else:
            names[name] = target
    ends = {AUTO, *deployments, *tiers}
    led: dict[str, str] = {}
    for name in names:
        passed = [name]
        target = names[name]
        while target in names and target not in ends and target not in passed:
            passed.append(target)
            target = names[target]
        if target in ends:
            led[name] = target
        elif target in passed:
            table.problem(name, f"goes round in a circle: {' -> '.join(shown(n) for n in (*passed, target))}")
        elif len(passed) == 1:
            table.problem(name, is_unknown(target, sorted({*ends, *names})))
    return led


def read_teams(top: Table, tiers: Collection[str], deployments: Mapping[str, Deployment]) -> dict[str, Team]:
    """`[teams.NAME]`."""
    regions = {deployment.region for deployment in deployments.values() if deployment.region is not None}
    teams: dict[str, Team] = {}
    for name, table in top.named_tables("teams").items():
        allowed = table.texts("tiers")
        for i, tier in enumerate(allowed or ()):
            if tier not in tiers:
                table.report.problem((*table.path, "tiers", i), is_unknown(tier, tiers))
        places = table.texts("regions")
        if places and not any(place in regions for place in places):
            table.warning("regions", "allows only regions that no deployment is in: this team gets no answer")
        teams[name] = Team(
            name=name,
            cost_center=table.text("cost_center"),
            tiers=None if allowed is None else frozenset(allowed),
            regions=None if places is None else frozenset(places),
            requests_per_minute=table.whole("requests_per_minute", least=1),
            tokens_per_minute=table.whole("tokens_per_minute", least=1),
        )
        table.done()
    return teams


def read_budgets(top: Table, tiers: Collection[str], teams: Collection[str]) -> tuple[Budget, ...]:
    """`[[budgets]]`."""
    budgets: list[Budget] = []
    seen: dict[str, int] = {}
    words: tuple[Per, ...] = ("day", "week", "month")
    for number, table in enumerate(top.listed_tables("budgets", label="name", most=MOST_BUDGETS)):
        name = table.text("name", required=True)
        if name is not None and seen.setdefault(name, number) != number:
            table.problem(
                "name", f'is "{shown(name)}", as is that of budgets[{seen[name]}]; each needs its own'
            )
        team = table.text("team")
        if team is not None and team not in teams:
            table.warning("team", is_unknown(team, teams) + " (teams have tables [teams.NAME])")
        table.get("limit_usd", required=True)
        table.get("per", required=True)
        limit = _limit(table)
        when_spent = table.text("when_spent") or "refuse"
        if when_spent != "refuse" and when_spent not in tiers:
            table.problem("when_spent", is_unknown(when_spent, ("refuse", *tiers)))
        budgets.append(
            Budget(
                name=name or "",
                team=team,
                application=table.text("application"),
                key=table.text("key"),
                limit=limit,
                per=table.word("per", words, "month"),
                warn_at=_warn_at(table),
                when_spent=when_spent,
            )
        )
        table.done()
    return tuple(budgets)


def _limit(table: Table) -> PicoUsd:
    value = table.number("limit_usd", most=1_000_000_000)
    if value is None:
        return PicoUsd(0)
    try:
        return pico_from_usd(value)
    except ValueError as wrong:
        table.problem("limit_usd", f"cannot be kept exactly: {wrong}")
        return PicoUsd(0)


def _warn_at(table: Table) -> tuple[float, ...]:
    value = table.get("warn_at")
    if value is None:
        return ()
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    shares: list[float] = []
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int | Decimal) or not 0 < item <= 1:
            table.problem("warn_at", "must be a list of shares of the limit, each above 0 and at most 1")
            return ()
        shares.append(float(item))
    return tuple(sorted(set(shares)))


def read_baselines(top: Table, deployments: Collection[str]) -> tuple[Baseline, ...]:
    """`[[baselines]]`, oldest first."""
    baselines: list[Baseline] = []
    for table in top.listed_tables("baselines", label="deployment", most=1_000):
        deployment = table.names_one_of("deployment", deployments, required=True)
        day = table.day("from", required=True)
        approved_by = table.text("approved_by", required=True)
        if day is not None and any(other.from_ == day for other in baselines):
            table.problem("from", f"is {day}, as is that of another baseline; a change is a later row")
        if deployment is not None and day is not None and approved_by is not None:
            baselines.append(Baseline(deployment=deployment, from_=day, approved_by=approved_by))
        table.done()
    return tuple(sorted(baselines, key=lambda baseline: baseline.from_))

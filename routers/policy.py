"""The rules of the house, checked and ready: deployments, tiers, names, rules.

A policy is made whole from one version of the file and never changes. What can be worked out once
(where each name leads, which rules lead to which tier) is worked out when it is made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from math import inf, log
from typing import Literal

from routers.conditions import Condition, RuleIndex
from routers.facts import EndpointName

AUTO = "auto"
"""The model name by which a client leaves the choice to the rules."""

ACCEPTS = ("images", "audio", "tools", "json_schema", "reasoning")
"""What a deployment may say it can take."""

CHAT_ONLY: frozenset[EndpointName] = frozenset({"chat"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One model at one provider at one price."""

    name: str
    provider: str
    model: str
    dialect: str
    accepts: frozenset[str] | None = None  # of ACCEPTS; None: everything
    context_tokens: int | None = None  # input and output together; None: unknown, never too small
    max_output_tokens: int | None = None  # the most it gives; None: unknown
    region: str | None = None  # None: unknown, fails a region limit
    endpoints: frozenset[EndpointName] = CHAT_ONLY  # what of the API its provider serves
    off_because: str | None = None  # why it cannot be called at all; None: it can


Choice = tuple[tuple[str, int], ...]
"""One place in a tier's list: a deployment, or several that share by weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSpec:
    """What applications get when they ask for a tier."""

    name: str
    purpose: str = ""
    choices: tuple[Choice, ...]
    first_token_seconds: float = 30.0
    total_seconds: float = 600.0
    max_output_tokens: int | None = None  # the cap on what one answer may have; None: none

    @property
    def deployments(self) -> tuple[str, ...]:
        """Every deployment of the tier, once, in the order of the file."""
        return tuple(dict.fromkeys(name for choice in self.choices for name, _ in choice))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Conditions and the tier they lead to."""

    name: str
    when: tuple[Condition, ...]
    tier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """Where a name that a client sends in `model` leads."""

    kind: Literal["rules", "tier", "deployment"]
    target: str  # the tier or deployment; empty: the rules decide
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What every deployment of one tier can take: a request within it need not be held against each."""

    names: frozenset[str]  # of the deployments; none of them is off
    in_order: tuple[str, ...]  # the order of the file; empty: some share by weight
    share_texts: Mapping[str, str]  # deployment that shares -> why a session got it
    regions: frozenset[str | None]
    endpoints: frozenset[str]  # what all of them serve
    refused: frozenset[str]  # of ACCEPTS: what some deployment does not take
    context_tokens: float  # the smallest; infinite: no limit is known
    max_output_tokens: float  # likewise


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Everything `decide` needs to know that does not change from request to request."""

    deployments: Mapping[str, Deployment]
    tiers: Mapping[str, TierSpec]
    names: Mapping[str, str] = field(default_factory=dict[str, str])  # name -> auto, a tier or a deployment
    rules: tuple[Rule, ...] = ()
    default: str  # the tier when no rule matches
    digest: str = ""
    # worked out
    fates: Mapping[str, Fate] = field(init=False, compare=False)  # every name a client may send
    index: RuleIndex = field(init=False, compare=False, repr=False)
    rule_texts: tuple[str, ...] = field(init=False, compare=False, repr=False)
    rules_to: Mapping[str, int] = field(init=False, compare=False, repr=False)  # tier -> set of rules
    tiers_of: Mapping[str, frozenset[str]] = field(
        init=False, compare=False
    )  # deployment -> tiers that hold it
    tiers_with_rules: frozenset[str] = field(init=False, compare=False, repr=False)
    rooms: Mapping[str, Room] = field(init=False, compare=False, repr=False)  # tier -> what all of it takes

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "fates", _fates(self))
        put(self, "index", RuleIndex([rule.when for rule in self.rules]))
        put(self, "rule_texts", tuple(_rule_text(rule) for rule in self.rules))
        rules_to: dict[str, int] = {}
        for number, rule in enumerate(self.rules):
            rules_to[rule.tier] = rules_to.get(rule.tier, 0) | (1 << number)
        put(self, "rules_to", rules_to)
        put(self, "tiers_with_rules", frozenset(rules_to))
        tiers_of: dict[str, set[str]] = {name: set() for name in self.deployments}
        for tier in self.tiers.values():
            for name in tier.deployments:
                tiers_of[name].add(tier.name)
        put(self, "tiers_of", {name: frozenset(tiers) for name, tiers in tiers_of.items()})
        rooms = {name: _room_of(self, tier) for name, tier in self.tiers.items()}
        put(self, "rooms", {name: room for name, room in rooms.items() if room is not None})


def _room_of(policy: Policy, tier: TierSpec) -> Room | None:
    these = [policy.deployments[name] for name in tier.deployments]
    if not these or any(one.off_because is not None for one in these):
        return None
    taken = [one.accepts for one in these if one.accepts is not None]
    shares = [name for choice in tier.choices if len(choice) > 1 for name, _ in choice]
    return Room(
        names=frozenset(tier.deployments),
        in_order=() if shares else tuple(name for choice in tier.choices for name, _ in choice),
        share_texts={name: f'this session\'s share of tier "{tier.name}" is "{name}"' for name in shares},
        regions=frozenset(one.region for one in these),
        endpoints=frozenset[str].intersection(*[one.endpoints for one in these]),
        refused=frozenset(need for need in ACCEPTS for takes in taken if need not in takes),
        context_tokens=min(inf if one.context_tokens is None else one.context_tokens for one in these),
        max_output_tokens=min(
            inf if one.max_output_tokens is None else one.max_output_tokens for one in these
        ),
    )


def _rule_text(rule: Rule) -> str:
    if not rule.when:
        return f'rule "{rule.name}" asks for nothing'
    return f'rule "{rule.name}": ' + ", ".join(condition.text for condition in rule.when)


def _fates(policy: Policy) -> dict[str, Fate]:
    # Later lines win, so they stand in the order of least say: what the file itself names comes first.
    fates: dict[str, Fate] = {}
    for deployment in policy.deployments.values():
        if deployment.model in fates:
            continue  # the first declared one has it
        because = f'model "{deployment.model}" is deployment "{deployment.name}"'
        fates[deployment.model] = Fate(kind="deployment", target=deployment.name, because=because)
    for name in policy.names:
        fates[name] = _mapped(policy, name)
    fates[AUTO] = Fate(kind="rules", target="", because="")
    for tier in policy.tiers:
        fates[tier] = Fate(kind="tier", target=tier, because=f'tier "{tier}" was asked for by name')
    for name in policy.deployments:
        because = f'deployment "{name}" was asked for by name'
        fates[name] = Fate(kind="deployment", target=name, because=because)
    return fates


def _mapped(policy: Policy, name: str) -> Fate:
    target = policy.names[name]
    for _ in range(len(policy.names)):  # a chain is at most as long as the table
        if target not in policy.names or target in policy.deployments:
            break
        target = policy.names[target]
    if target == AUTO:
        return Fate(kind="rules", target="", because=f'[names] gives "{name}" to the rules')
    kind = "tier" if target in policy.tiers else "deployment"
    return Fate(kind=kind, target=target, because=f'[names] turns "{name}" into {kind} "{target}"')


_NOTHING_DRAWN = blake2b(digest_size=7)  # copied, since a copy is made in half the time


def shared_order(tier: str, choice: Choice, session: str) -> list[str]:
    """The order in which one session tries the deployments of a weighted choice.

    Each deployment draws a lot for this session, and the lots are scaled by the weights, so that each comes
    first for exactly its share of all sessions, a session keeps its order, and taking one deployment away
    moves only the sessions that were on it, shared among the others by weight.
    """
    if len(choice) == 1:
        return [choice[0][0]]
    lots: list[tuple[float, str]] = []
    seed = _NOTHING_DRAWN.copy()
    seed.update(f"{tier}\0{session}\0".encode("utf-8", "surrogatepass"))
    for name, weight in choice:
        drawn = seed.copy()
        drawn.update(name.encode())
        draw = int.from_bytes(drawn.digest())
        lots.append((-log((draw + 0.5) / 2**56) / weight if weight else inf, name))
    lots.sort()
    return [name for _, name in lots]


@lru_cache(maxsize=4096)
def order_for_session(tier: str, choice: Choice, session: str) -> tuple[str, ...]:
    """As `shared_order`, kept for the sessions seen last: a session's requests come one after another."""
    return tuple(shared_order(tier, choice, session))

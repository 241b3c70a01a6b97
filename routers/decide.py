"""Decides which deployments answer a request, in which order, and says why.

In this order: a deployment asked for by name is pinned; `[names]` may turn a model name into something else;
a model name is pinned to its deployment; a tier asked for by name is honoured; `auto` leaves it to the rules,
the first that matches decides, and where none does the default tier. Then every deployment of the tier that
cannot take the request, or may not, is passed over; those that rest come last.

Nothing here has a clock, and what is remembered only saves work: the same inputs give the same decision.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from math import inf
from operator import attrgetter
from typing import Literal, Protocol

import msgspec
from msgspec import structs

from routers.conditions import first_of, why_not
from routers.facts import PATHS, Classification, RequestFacts
from routers.policy import ACCEPTS, AUTO, Deployment, Fate, Policy, Room, TierSpec, order_for_session

ASKED_BY_NAME = "asked for by name"
DEFAULT = "default"
PINNED = "pinned"
_NO_RULE = "no rule matches"

RefusalCode = Literal[
    "model_not_found",
    "tier_not_allowed",
    "model_not_allowed",
    "context_length_exceeded",
    "endpoint_not_served",
    "no_deployment",
    "budget_exceeded",
]


class Standing(Protocol):
    """What is known of the deployments' health."""

    def all_in_use(self, deployments: frozenset[str]) -> bool:
        """True if none of them rests or waits to be tried again: then `is_open` is false for each."""
        ...

    def is_open(self, deployment: str, now: float) -> bool:
        """True if it should not be called now."""
        ...

    def rests_for(self, deployment: str, now: float) -> float:
        """Seconds until it may be called."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerLimits:
    """What a caller may reach. None: anything."""

    tiers: frozenset[str] | None = None
    regions: frozenset[str] | None = None

    def within(self, other: "CallerLimits") -> "CallerLimits":
        """What both allow: a key's limits within its team's."""
        return CallerLimits(tiers=_both(self.tiers, other.tiers), regions=_both(self.regions, other.regions))


def _both(a: frozenset[str] | None, b: frozenset[str] | None) -> frozenset[str] | None:
    if a is None:
        return b
    return a if b is None else a & b


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A deployment that was not planned, and why."""

    deployment: str
    reason: str
    kind: Literal["off", "endpoint", "region", "accepts", "context"] = "accepts"


class Decision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a request goes. A struct, since making one is part of every request."""

    rule: str  # its name; or `asked for by name`, `default`, `pinned`
    tier: str  # empty: pinned
    deployments: tuple[str, ...]  # in the order to try, those that rest last; never empty
    all_rest: bool  # every one of them rests: an attempt is a last resort
    because: tuple[str, ...]
    passed_over: tuple[PassedOver, ...] = ()
    arm: str | None = None
    propensity: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why a request goes nowhere."""

    code: RefusalCode
    message: str
    passed_over: tuple[PassedOver, ...] = ()


def decide(
    policy: Policy,
    facts: RequestFacts,
    classification: Classification,
    *,
    limits: CallerLimits,
    allowed_tiers: frozenset[str] | None,
    budget_left_share: float | None,
    health: Standing,
    now: float,
    clock: float | None = None,
) -> Decision | Refused:
    """The plan for one request, or why there is none.

    `allowed_tiers`: what spent budgets leave; None: they leave everything.
    `budget_left_share`: of the tightest budget, None without one.
    `now` is wall time in seconds (UTC) for rules that ask for it, `clock` the clock that `health` is kept by;
    None: the same one.
    """
    if allowed_tiers is None:
        known = _LAST[0]
        if known.policy is not policy:
            known = _LAST[0] = _Known(policy)
        asked = known.asked.get(facts.model) or known.ask(facts.model)
        if asked is not None and (limits.tiers is None or limits.tiers >= asked.tiers):
            first = 0  # as a set of rules; empty: no rule decides
            if asked.by_rules:
                index = policy.index
                rules = index.matching(facts, classification, budget_left_share, now, index.every)
                first = rules & -rules
            way = asked.ways.get(first) or known.lay(asked, first)
            found = way.decision(facts, limits.regions, health)
            if found is not None:
                return found
    return decide_in_full(
        policy,
        facts,
        classification,
        limits=limits,
        allowed_tiers=allowed_tiers,
        budget_left_share=budget_left_share,
        health=health,
        now=now,
        clock=clock,
    )


def stay_with(
    deployment: str,
    decided: Decision | Refused,
    policy: Policy,
    facts: RequestFacts,
    *,
    limits: CallerLimits,
    allowed_tiers: frozenset[str] | None,
    health: Standing,
    clock: float,
) -> Decision | Refused:
    """What was decided, for a request that goes on from an answer of this deployment: it can go nowhere else.

    Where the decision leads there among others, rule and tier stay; else the deployment is pinned, if it may be had.
    """
    because = f'it goes on from an answer of "{deployment}"'
    if deployment not in policy.deployments:
        return Refused(code="no_deployment", message=f"{because}, which is not in the file any more")
    if isinstance(decided, Decision) and deployment in decided.deployments:
        return structs.replace(
            decided,
            deployments=(deployment,),
            all_rest=health.is_open(deployment, clock),
            because=(*decided.because, because),
        )
    fate = Fate(kind="deployment", target=deployment, because=because)
    return _pinned(policy, fate, facts, limits, allowed_tiers, health, clock)


def decide_in_full(
    policy: Policy,
    facts: RequestFacts,
    classification: Classification,
    *,
    limits: CallerLimits,
    allowed_tiers: frozenset[str] | None,
    budget_left_share: float | None,
    health: Standing,
    now: float,
    clock: float | None = None,
) -> Decision | Refused:
    """As `decide`, without anything that was worked out ahead: each deployment is looked at for itself."""
    at = now if clock is None else clock
    fate = policy.fates.get(facts.model)
    if fate is None:
        return _unknown_model(policy, facts.model, limits)
    if fate.kind == "deployment":
        return _pinned(policy, fate, facts, limits, allowed_tiers, health, at)
    if fate.kind == "tier":
        if limits.tiers is not None and fate.target not in limits.tiers:
            return _tier_not_allowed(fate.target, limits.tiers)
        if allowed_tiers is None or fate.target in allowed_tiers:
            plan = _plan(policy.tiers[fate.target], policy, facts, limits, health, at)
            if plan.deployments:
                return plan.decision(ASKED_BY_NAME, (fate.because,))
            return _nobody(f'tier "{fate.target}"', plan.passed_over)
        because = (fate.because, "a budget is spent: only what it leaves may be used")
        return _first_that_can(policy, facts, limits, allowed_tiers, health, at, because)
    return _by_rules(
        policy, fate, facts, classification, limits, allowed_tiers, budget_left_share, health, now, at
    )


# ── worked out ahead ──
#
# Most requests go where their name or their first rule leads: every deployment there can take them and none
# rests. What is decided for those is the same each time, but for the order that a session has. It is made once;
# a request that is not surely one of them is left to `decide_in_full`.

_MOST_KEPT = 4096  # sessions whose decision is kept
_TOLD_BY = {
    "images": ("has_images", False),
    "audio": ("has_audio", False),
    "tools": ("has_tools", False),
    "json_schema": ("json_schema", False),
    "reasoning": ("reasoning_effort", None),
}  # what a deployment may refuse -> the field that tells of it, and what that is where nothing is needed


class _Way:
    """Where one name or rule leads, and what a request must keep within to go there without a closer look."""

    __slots__ = (
        "_because",
        "_context_tokens",
        "_decided",
        "_endpoints",
        "_kept",
        "_most_output",
        "_names",
        "_needs",
        "_no_needs",
        "_output",
        "_regions",
        "_room",
        "_rule",
        "_tier",
    )

    def __init__(
        self, rule: str, tier: TierSpec, room: Room, because: tuple[str, ...], kept: "_Kept"
    ) -> None:
        self._rule = rule
        self._tier = tier
        self._room = room
        self._because = because
        self._kept = kept
        self._decided = self._to(room.in_order, because) if room.in_order else None  # None: by session
        told_by = [_TOLD_BY[need] for need in sorted(room.refused)]
        self._needs = attrgetter(*[field for field, _ in told_by]) if told_by else None
        self._no_needs = told_by[0][1] if len(told_by) == 1 else tuple(value for _, value in told_by)
        cap = tier.max_output_tokens
        self._output = 0 if cap is None else cap  # counted where the client sets none
        most = room.max_output_tokens
        self._most_output = inf if cap is not None and cap <= most else most
        self._context_tokens = room.context_tokens
        self._names = room.names
        self._regions = room.regions
        self._endpoints = room.endpoints

    def decision(
        self, facts: RequestFacts, regions: frozenset[str] | None, health: Standing
    ) -> Decision | None:
        """What is decided for this request; None: it has to be looked at closely."""
        if facts.endpoint not in self._endpoints:
            return None
        output = facts.max_output_tokens
        if output is None:
            output = self._output
        elif output > self._most_output:
            return None
        if facts.input_tokens + output > self._context_tokens:
            return None
        if self._needs is not None and self._needs(facts) != self._no_needs:
            return None
        if regions is not None and not self._regions <= regions:
            return None
        if not health.all_in_use(self._names):
            return None
        if self._decided is not None:
            return self._decided
        return self._kept.get((self, facts.session)) or self._decided_for(facts.session)

    def _decided_for(self, session: str) -> Decision:
        plan = _shared_plan(self._room, self._tier, session)
        decided = self._to(plan.deployments, self._because + plan.because)
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[self, session] = decided
        return decided

    def _to(self, deployments: tuple[str, ...], because: tuple[str, ...]) -> Decision:
        return Decision(
            rule=self._rule, tier=self._tier.name, deployments=deployments, all_rest=False, because=because
        )


_Kept = dict[tuple[_Way, str], Decision]
_NO_ROOM = Room(
    names=frozenset(),
    in_order=("",),
    share_texts={},
    regions=frozenset(),
    endpoints=frozenset(),
    refused=frozenset(),
    context_tokens=-1,  # no request fits
    max_output_tokens=-1,
)


class _Asked:
    """One name that a client may send."""

    __slots__ = ("by_rules", "fate", "tiers", "ways")

    def __init__(self, fate: Fate, tiers: frozenset[str]) -> None:
        self.fate = fate
        self.by_rules = fate.kind == "rules"
        self.tiers = tiers  # who may use all of these goes wherever the name leads
        self.ways: dict[int, _Way] = {}  # the first rule that matches, as a set -> where it leads


class _Known:
    """What was worked out for one policy so far."""

    __slots__ = ("asked", "kept", "policy")

    def __init__(self, policy: Policy | None) -> None:
        self.policy = policy
        self.asked: dict[str, _Asked] = {}
        self.kept: _Kept = {}

    def ask(self, model: str) -> _Asked | None:
        """What is known of a name from now on; None: it leads nowhere, or nobody may have it by a tier."""
        policy = self.policy
        fate = None if policy is None else policy.fates.get(model)
        if policy is None or fate is None:
            return None
        if fate.kind == "rules":
            tiers = policy.tiers_with_rules | {policy.default}
        elif fate.kind == "tier":
            tiers = frozenset((fate.target,))
        else:
            tiers = policy.tiers_of[fate.target]
        if not tiers:
            return None
        asked = self.asked[model] = _Asked(fate, tiers)
        return asked

    def lay(self, asked: _Asked, first: int) -> _Way:
        """The way of those for whom this rule is the first that matches."""
        policy, fate = self.policy, asked.fate
        assert policy is not None
        because = (fate.because,) if fate.because else ()
        if fate.kind == "deployment":
            rule, tier = PINNED, TierSpec(name="", choices=(((fate.target, 1),),))
            room = _room_of_one(policy.deployments[fate.target])
        else:
            if fate.kind == "tier":
                rule, name = ASKED_BY_NAME, fate.target
            elif first:
                number = first_of(first)
                rule, name = policy.rules[number].name, policy.rules[number].tier
                because += (policy.rule_texts[number],)
            else:
                rule, name = DEFAULT, policy.default
                because += (_NO_RULE,)
            tier, room = policy.tiers[name], policy.rooms.get(name)
        way = asked.ways[first] = _Way(rule, tier, room or _NO_ROOM, because, self.kept)
        return way


def _room_of_one(deployment: Deployment) -> Room | None:
    if deployment.off_because is not None:
        return None
    accepts, window, most = deployment.accepts, deployment.context_tokens, deployment.max_output_tokens
    return Room(
        names=frozenset((deployment.name,)),
        in_order=(deployment.name,),
        share_texts={},
        regions=frozenset((deployment.region,)),
        endpoints=deployment.endpoints,
        refused=frozenset() if accepts is None else frozenset(ACCEPTS) - accepts,
        context_tokens=inf if window is None else window,
        max_output_tokens=inf if most is None else most,
    )


_LAST = [_Known(None)]  # of the policy asked last: a process has one at a time


# ── looked at closely ──


def _by_rules(
    policy: Policy,
    fate: Fate,
    facts: RequestFacts,
    seen: Classification,
    limits: CallerLimits,
    allowed_tiers: frozenset[str] | None,
    left: float | None,
    health: Standing,
    now: float,
    at: float,
) -> Decision | Refused:
    may_use = _both(limits.tiers, allowed_tiers)
    index = policy.index
    among = index.every
    if may_use is not None and not may_use >= policy.tiers_with_rules:
        among = 0
        for tier in may_use:
            among |= policy.rules_to.get(tier, 0)
    because: tuple[str, ...] = (fate.because,) if fate.because else ()
    passed_over: tuple[PassedOver, ...] = ()
    tried: set[str] = set()
    rules = index.matching(facts, seen, left, now, among)
    while rules:
        number = first_of(rules)
        rule = policy.rules[number]
        tier = rule.tier
        plan = _plan(policy.tiers[tier], policy, facts, limits, health, at)
        because = (*because, policy.rule_texts[number])
        if plan.deployments:
            return plan.decision(rule.name, because, passed_over)
        passed_over += plan.passed_over
        because = (*because, f'no deployment of tier "{tier}" can take this request')
        tried.add(tier)
        rules &= ~policy.rules_to[tier]
    because = (*because, _NO_RULE if not tried else "no other rule matches")
    if may_use is None or policy.default in may_use:
        plan = _plan(policy.tiers[policy.default], policy, facts, limits, health, at)
        if plan.deployments:
            return plan.decision(DEFAULT, because, passed_over)
        passed_over += plan.passed_over if policy.default not in tried else ()
        if tried <= {policy.default}:
            return _nobody(f'tier "{policy.default}"', passed_over)
        return _nobody(f"the tiers {_listed(sorted(tried | {policy.default}))}", passed_over)
    because = (*because, f'the default tier "{policy.default}" may not be used here')
    return _first_that_can(policy, facts, limits, allowed_tiers, health, at, because)


def _first_that_can(
    policy: Policy,
    facts: RequestFacts,
    limits: CallerLimits,
    allowed_tiers: frozenset[str] | None,
    health: Standing,
    at: float,
    because: tuple[str, ...],
) -> Decision | Refused:
    """The first tier of the file that the caller may use and that can take the request."""
    may_use = _both(limits.tiers, allowed_tiers) or frozenset[str]()
    passed_over: tuple[PassedOver, ...] = ()
    for tier in policy.tiers.values():
        if tier.name in may_use:
            plan = _plan(tier, policy, facts, limits, health, at)
            if plan.deployments:
                return plan.decision(
                    DEFAULT, (*because, f'tier "{tier.name}" is the first that may'), passed_over
                )
            passed_over += plan.passed_over
    if passed_over:
        return _nobody("the tiers that may be used", passed_over)
    if allowed_tiers is not None:
        return Refused(
            code="budget_exceeded", message="a budget is spent, and this key may not use the tiers it leaves"
        )
    return _tier_not_allowed(policy.default, limits.tiers or frozenset())


def _pinned(
    policy: Policy,
    fate: Fate,
    facts: RequestFacts,
    limits: CallerLimits,
    allowed_tiers: frozenset[str] | None,
    health: Standing,
    at: float,
) -> Decision | Refused:
    deployment = policy.deployments[fate.target]
    homes = policy.tiers_of[deployment.name]
    # Limits name tiers, so a deployment may be had by those who may have a tier that holds it.
    if limits.tiers is not None and not homes & limits.tiers:
        message = f'this key may not use "{facts.model}"; it may ask for {_listed(sorted(limits.tiers))}'
        return Refused(code="model_not_allowed", message=message)
    if allowed_tiers is not None and not homes & (_both(limits.tiers, allowed_tiers) or frozenset()):
        message = f"a budget is spent; until it opens again only {_listed(sorted(allowed_tiers))} may be used"
        return Refused(code="budget_exceeded", message=message)
    passed = _cannot(deployment, facts, _needs(facts), limits.regions, None)
    if passed is not None:
        if passed.kind == "region":
            message = f'this key may not use "{facts.model}": {passed.reason}'
            return Refused(code="model_not_allowed", message=message, passed_over=(passed,))
        return _nobody(f'deployment "{deployment.name}"', (passed,))
    rests = health.is_open(deployment.name, at)
    return Decision(
        rule=PINNED, tier="", deployments=(deployment.name,), all_rest=rests, because=(fate.because,)
    )


class _Plan(msgspec.Struct, frozen=True, gc=False):
    tier: str
    deployments: tuple[str, ...]
    all_rest: bool
    passed_over: tuple[PassedOver, ...]
    because: tuple[str, ...]

    def decision(
        self, rule: str, because: tuple[str, ...], passed_over: tuple[PassedOver, ...] = ()
    ) -> Decision:
        return Decision(
            rule=rule,
            tier=self.tier,
            deployments=self.deployments,
            all_rest=self.all_rest,
            because=because + self.because,
            passed_over=passed_over + self.passed_over,
        )


def _plan(
    tier: TierSpec, policy: Policy, facts: RequestFacts, limits: CallerLimits, health: Standing, at: float
) -> _Plan:
    room = policy.rooms.get(tier.name)
    if room is not None and _all_can(room, tier, facts, limits) and health.all_in_use(room.names):
        if room.in_order:
            return _Plan(tier.name, room.in_order, False, (), ())
        return _shared_plan(room, tier, facts.session)
    ready: list[str] = []
    resting: list[str] = []
    passed_over: list[PassedOver] = []
    because: tuple[str, ...] = ()
    deployments, regions, cap = policy.deployments, limits.regions, tier.max_output_tokens
    needs = _needs(facts)
    for choice in tier.choices:
        shared = len(choice) > 1
        names = (
            order_for_session(tier.name, choice, facts.session) if shared else [name for name, _ in choice]
        )
        for name in names:
            passed = _cannot(deployments[name], facts, needs, regions, cap)
            if passed is not None:
                passed_over.append(passed)
            elif health.is_open(name, at):
                resting.append(name)
            else:
                if shared and not ready:
                    because = (f'this session\'s share of tier "{tier.name}" is "{name}"',)
                ready.append(name)
    if resting:
        resting.sort(key=lambda name: health.rests_for(name, at))
        because = (*because, f"resting after failures, so last: {_listed(resting)}")
    return _Plan(tier.name, (*ready, *resting), not ready, tuple(passed_over), because)


def _all_can(room: Room, tier: TierSpec, facts: RequestFacts, limits: CallerLimits) -> bool:
    """True if `_cannot` has nothing to say of any deployment of the tier; most requests need no more."""
    if facts.endpoint not in room.endpoints:
        return False
    if limits.regions is not None and not room.regions <= limits.regions:
        return False
    if room.refused and not room.refused.isdisjoint(_needs(facts)):
        return False
    asked, cap = facts.max_output_tokens, tier.max_output_tokens
    if cap is not None and (asked is None or asked > cap):
        asked = cap
    if asked is None:
        asked = 0
    elif asked > room.max_output_tokens and facts.max_output_tokens is not None:
        return False
    return facts.input_tokens + asked <= room.context_tokens or facts.has_images or facts.has_audio


def _shared_plan(room: Room, tier: TierSpec, session: str) -> _Plan:
    """The plan where all can take the request, none rests and some share by weight."""
    names: list[str] = []
    because: tuple[str, ...] = ()
    for choice in tier.choices:
        if len(choice) == 1:
            names.append(choice[0][0])
            continue
        order = order_for_session(tier.name, choice, session)
        if not names:
            because = (room.share_texts[order[0]],)
        names += order
    return _Plan(tier.name, (*names,), False, (), because)


def _needs(facts: RequestFacts) -> tuple[str, ...]:
    """What a deployment must accept to take this request."""
    needs: tuple[str, ...] = ()
    if facts.has_images:
        needs += ("images",)
    if facts.has_audio:
        needs += ("audio",)
    if facts.has_tools:
        needs += ("tools",)
    if facts.json_schema:
        needs += ("json_schema",)
    if facts.reasoning_effort is not None and facts.reasoning_effort != "none":
        needs += ("reasoning",)
    return needs


def _cannot(
    deployment: Deployment,
    facts: RequestFacts,
    needs: tuple[str, ...],
    regions: frozenset[str] | None,
    cap: int | None,
) -> PassedOver | None:
    """Why this deployment cannot or may not take the request; None: it can."""
    name = deployment.name
    if deployment.off_because is not None:
        return PassedOver(deployment=name, reason=deployment.off_because, kind="off")
    if facts.endpoint not in deployment.endpoints:
        return PassedOver(
            deployment=name, reason=f"it does not serve {PATHS[facts.endpoint]}", kind="endpoint"
        )
    if regions is not None and deployment.region not in regions:
        where = (
            "its region is not known" if deployment.region is None else f"it is in region {deployment.region}"
        )
        return PassedOver(
            deployment=name, reason=f"{where}, and only {_listed(sorted(regions))} may be used", kind="region"
        )
    accepts = deployment.accepts
    if accepts is not None:
        for need in needs:
            if need not in accepts:
                return PassedOver(deployment=name, reason=f"it does not accept {need}")
    asked = facts.max_output_tokens
    if cap is not None and (asked is None or asked > cap):
        asked = cap
    most = deployment.max_output_tokens
    if most is not None and facts.max_output_tokens is not None and asked is not None and asked > most:
        return PassedOver(
            deployment=name, reason=f"it gives at most {most} output tokens, and {asked} are asked for"
        )
    window = deployment.context_tokens
    # Pictures and sound are far fewer tokens than their bytes suggest: there the provider is the one to say.
    if window is not None and not facts.has_images and not facts.has_audio:
        needed = facts.input_tokens + (asked or 0)
        if needed > window:
            reason = f"its context is {window} tokens, and this request needs about {needed}"
            return PassedOver(deployment=name, reason=reason, kind="context")
    return None


def _listed(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names) or "nothing"


def _nobody(where: str, passed_over: tuple[PassedOver, ...]) -> Refused:
    once = tuple({passed.deployment: passed for passed in passed_over}.values())
    reasons = "; ".join(f'"{passed.deployment}": {passed.reason}' for passed in once)
    live = [passed for passed in once if passed.kind != "off"]
    if live and all(passed.kind == "context" for passed in live):
        return Refused(
            code="context_length_exceeded",
            message=f"this request is too long for {where}: {reasons}",
            passed_over=once,
        )
    if live and all(passed.kind == "endpoint" for passed in live):
        return Refused(
            code="endpoint_not_served",
            message=f"nothing in {where} serves this endpoint: {reasons}",
            passed_over=once,
        )
    if live and all(passed.kind == "region" for passed in live):
        return Refused(
            code="model_not_allowed",
            message=f"this key may not be answered by {where}: {reasons}",
            passed_over=once,
        )
    return Refused(
        code="no_deployment", message=f"nothing in {where} can take this request: {reasons}", passed_over=once
    )


def _tier_not_allowed(tier: str, allowed: frozenset[str]) -> Refused:
    message = f'this key may not use tier "{tier}"; it may ask for {_listed(sorted(allowed))}'
    return Refused(code="tier_not_allowed", message=message)


def _unknown_model(policy: Policy, model: str, limits: CallerLimits) -> Refused:
    shown = model if len(model) <= 64 else f"{model[:64]}..."
    hint = ""
    if model and len(model) <= 64:
        known = [name for name, fate in policy.fates.items() if _may_see(policy, fate, limits)]
        near = get_close_matches(model, known[:1000], n=3, cutoff=0.6)
        hint = f"; did you mean {_listed(near)}?" if near else ""
    return Refused(code="model_not_found", message=f'no tier, deployment or model is called "{shown}"{hint}')


def _may_see(policy: Policy, fate: Fate, limits: CallerLimits) -> bool:
    if limits.tiers is None or fate.kind == "rules":
        return True
    if fate.kind == "tier":
        return fate.target in limits.tiers
    return bool(policy.tiers_of[fate.target] & limits.tiers)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleOutcome:
    """What one rule said of one request."""

    rule: str
    tier: str
    matches: bool
    why_not: tuple[str, ...]  # every condition that does not hold, with what was found
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A decision with everything that was weighed."""

    decision: Decision | Refused
    asked: str  # the name the client sent, and what it means
    rules: tuple[RuleOutcome, ...]


def explain(
    policy: Policy,
    facts: RequestFacts,
    classification: Classification,
    *,
    limits: CallerLimits,
    allowed_tiers: frozenset[str] | None,
    budget_left_share: float | None,
    health: Standing,
    now: float,
    clock: float | None = None,
) -> Explanation:
    """As `decide`, and for every rule whether it matches and why not, in the order of the file."""
    decision = decide(
        policy,
        facts,
        classification,
        limits=limits,
        allowed_tiers=allowed_tiers,
        budget_left_share=budget_left_share,
        health=health,
        now=now,
        clock=clock,
    )
    fate = policy.fates.get(facts.model)
    may_use = _both(limits.tiers, allowed_tiers)
    asked_for_rules = fate is not None and fate.kind == "rules"
    outcomes: list[RuleOutcome] = []
    decided = False
    for rule in policy.rules:
        reasons = why_not(rule.when, facts, classification, budget_left_share, now)
        note = ""
        if not reasons:
            if not asked_for_rules:
                note = "the rules were not asked: the model was named"
            elif may_use is not None and rule.tier not in may_use:
                note = f'its tier "{rule.tier}" may not be used here'
            elif decided:
                note = "an earlier rule decided"
            elif isinstance(decision, Decision) and decision.rule == rule.name:
                note = "this rule decides"
                decided = True
            else:
                note = f'no deployment of tier "{rule.tier}" can take this request'
        outcomes.append(
            RuleOutcome(rule=rule.name, tier=rule.tier, matches=not reasons, why_not=reasons, note=note)
        )
    if fate is None:
        asked = f'"{facts.model}" is not known'
    else:
        asked = fate.because or f'"{AUTO}": the rules decide'
    return Explanation(decision=decision, asked=asked, rules=tuple(outcomes))

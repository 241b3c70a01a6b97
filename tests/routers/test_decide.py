"""One request in, one plan out: by name, by rule, by default, and what is passed over."""

from collections.abc import Sequence
from dataclasses import replace as replace_dataclass
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from routers.conditions import AnyOf, Condition, Range
from routers.decide import (
    CallerLimits,
    Decision,
    PassedOver,
    Refused,
    decide,
    decide_in_full,
    explain,
    stay_with,
)
from routers.facts import Classification, EndpointName, RequestFacts
from routers.health import Health
from routers.policy import Choice, Deployment, Policy, Rule, TierSpec, order_for_session, shared_order

CHAT = Classification(task_kind="chat", confidence=0.9, because=("short",))
EU = frozenset({"eu"})


def is_(field: str, *values: str | bool) -> Condition:
    return Condition(field=field, test=AnyOf(values=values))


def deployment(
    name: str,
    *,
    model: str = "",
    accepts: Sequence[str] | None = None,
    context_tokens: int | None = None,
    max_output_tokens: int | None = None,
    region: str | None = None,
    off_because: str | None = None,
    endpoints: Sequence[EndpointName] = ("chat",),
) -> Deployment:
    return Deployment(
        name=name,
        provider="house",
        dialect="openai",
        model=model or f"model-{name}",
        accepts=None if accepts is None else frozenset(accepts),
        context_tokens=context_tokens,
        max_output_tokens=max_output_tokens,
        region=region,
        off_because=off_because,
        endpoints=frozenset(endpoints),
    )


def policy(
    *deployments: Deployment,
    rules: Sequence[Rule] = (),
    names: dict[str, str] | None = None,
    tiers: Sequence[TierSpec] | None = None,
) -> Policy:
    these = deployments or (
        deployment("terra", model="gpt-terra", region="us"),
        deployment("luna", model="gpt-luna", accepts=["tools"], region="eu"),
        deployment("tiny", model="llama", accepts=[], context_tokens=1000),
    )
    given = tiers or (
        TierSpec(name="standard", choices=((("terra", 1),), (("luna", 1),))),
        TierSpec(name="fast", choices=((("luna", 1),),)),
        TierSpec(name="small", choices=((("tiny", 1),), (("luna", 1),))),
    )
    return Policy(
        deployments={one.name: one for one in these},
        tiers={tier.name: tier for tier in given},
        names=names or {},
        rules=tuple(rules),
        default=given[0].name,
    )


def ask(
    rules_of_the_house: Policy,
    facts: RequestFacts | str = "auto",
    *,
    limits: CallerLimits | None = None,
    allowed_tiers: frozenset[str] | None = None,
    health: Health | None = None,
    now: float = 0.0,
) -> Decision | Refused:
    return decide(
        rules_of_the_house,
        RequestFacts(model=facts, session="s") if isinstance(facts, str) else facts,
        CHAT,
        limits=limits or CallerLimits(),
        allowed_tiers=allowed_tiers,
        budget_left_share=None,
        health=health or Health(),
        now=now,
    )


def planned(found: Decision | Refused) -> tuple[str, str, tuple[str, ...]]:
    assert isinstance(found, Decision), found
    return found.rule, found.tier, found.deployments


def refused(found: Decision | Refused) -> tuple[str, str]:
    assert isinstance(found, Refused), found
    return found.code, found.message


FAST_CHAT = Rule(name="chat", when=(is_("task_kind", "chat"),), tier="fast")
SMALL_TESTS = Rule(name="tests", when=(is_("application", "tests"),), tier="small")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("terra", ("pinned", "", ("terra",))),
        ("gpt-luna", ("pinned", "", ("luna",))),
        ("gpt-4o", ("chat", "fast", ("luna",))),
        ("gpt-mini", ("asked for by name", "small", ("tiny", "luna"))),
        ("gpt-terra", ("pinned", "", ("luna",))),
        ("small", ("asked for by name", "small", ("tiny", "luna"))),
        ("auto", ("chat", "fast", ("luna",))),
    ],
)
def test_a_name_leads_where_the_file_says(model: str, expected: tuple[str, str, tuple[str, ...]]) -> None:
    house = policy(rules=[FAST_CHAT], names={"gpt-4o": "auto", "gpt-mini": "small", "gpt-terra": "luna"})
    assert planned(ask(house, model)) == expected


def test_the_first_rule_that_matches_decides_and_says_so() -> None:
    house = policy(rules=[SMALL_TESTS, FAST_CHAT])
    found = ask(house, RequestFacts(model="auto", application="tests"))
    assert planned(found) == ("tests", "small", ("tiny", "luna"))
    assert isinstance(found, Decision)
    assert found.because == ('rule "tests": application is tests',)


def test_without_a_matching_rule_the_default_tier_answers() -> None:
    found = ask(policy(rules=[SMALL_TESTS]))
    assert planned(found) == ("default", "standard", ("terra", "luna"))
    assert isinstance(found, Decision)
    assert found.because == ("no rule matches",)


def test_an_unknown_name_is_refused_with_the_nearest_ones() -> None:
    assert refused(ask(policy(), "gpt-lune")) == (
        "model_not_found",
        'no tier, deployment or model is called "gpt-lune"; did you mean "gpt-luna"?',
    )


@pytest.mark.parametrize(
    "model", ["", "TERRA", "terra ", "terra\u200b", "ter\u0155a", "../terra", "x" * 10_000]
)
def test_names_are_compared_byte_for_byte(model: str) -> None:
    code, message = refused(ask(policy(), model))
    assert code == "model_not_found"
    assert len(message) < 250


def test_a_key_does_not_learn_names_that_it_may_not_use() -> None:
    limits = CallerLimits(tiers=frozenset({"fast"}))
    _, message = refused(ask(policy(), "gpt-terr", limits=limits))
    assert "gpt-terra" not in message


def test_a_tier_that_the_key_may_not_have_is_refused() -> None:
    assert refused(ask(policy(), "standard", limits=CallerLimits(tiers=frozenset({"fast", "small"})))) == (
        "tier_not_allowed",
        'this key may not use tier "standard"; it may ask for "fast", "small"',
    )


def test_a_deployment_may_be_pinned_only_by_those_who_may_have_its_tier() -> None:
    limits = CallerLimits(tiers=frozenset({"small"}))
    assert refused(ask(policy(), "gpt-terra", limits=limits))[0] == "model_not_allowed"
    assert planned(ask(policy(), "luna", limits=limits)) == ("pinned", "", ("luna",))


def test_rules_never_lead_to_a_tier_that_the_key_may_not_have() -> None:
    house = policy(rules=[FAST_CHAT, Rule(name="rest", when=(), tier="small")])
    limits = CallerLimits(tiers=frozenset({"small"}))
    assert planned(ask(house, limits=limits)) == ("rest", "small", ("tiny", "luna"))


def test_where_the_default_is_not_allowed_the_first_allowed_tier_answers() -> None:
    limits = CallerLimits(tiers=frozenset({"small", "fast"}))
    assert planned(ask(policy(), limits=limits)) == ("default", "fast", ("luna",))


def test_a_spent_budget_leaves_only_its_own_tiers() -> None:
    left = frozenset({"small"})
    assert planned(ask(policy(rules=[FAST_CHAT]), allowed_tiers=left))[1] == "small"
    assert planned(ask(policy(), "standard", allowed_tiers=left))[1] == "small"
    assert refused(ask(policy(), "gpt-terra", allowed_tiers=left))[0] == "budget_exceeded"
    limits = CallerLimits(tiers=frozenset({"fast"}))
    assert refused(ask(policy(), limits=limits, allowed_tiers=left))[0] == "budget_exceeded"


def test_only_allowed_regions_are_planned_and_an_unknown_region_is_not_one() -> None:
    found = ask(policy(), "small", limits=CallerLimits(regions=EU))
    assert planned(found)[2] == ("luna",)
    assert isinstance(found, Decision)
    reason = 'its region is not known, and only "eu" may be used'
    assert found.passed_over == (PassedOver(deployment="tiny", reason=reason, kind="region"),)
    assert refused(ask(policy(), "terra", limits=CallerLimits(regions=EU)))[0] == "model_not_allowed"


def test_limits_of_a_key_count_within_those_of_its_team() -> None:
    team = CallerLimits(tiers=frozenset({"fast", "small"}), regions=None)
    key = CallerLimits(tiers=frozenset({"small", "standard"}), regions=EU)
    assert key.within(team) == CallerLimits(tiers=frozenset({"small"}), regions=EU)


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        (RequestFacts(model="small", has_images=True), "images"),
        (RequestFacts(model="small", has_tools=True), "tools"),
        (RequestFacts(model="small", json_schema=True), "json_schema"),
        (RequestFacts(model="small", has_audio=True), "audio"),
        (RequestFacts(model="small", reasoning_effort="high"), "reasoning"),
    ],
)
def test_a_deployment_that_cannot_take_the_request_is_passed_over(asked: RequestFacts, what: str) -> None:
    house = policy(deployment("tiny", accepts=[]), deployment("luna", model="gpt-luna"), tiers=[
        TierSpec(name="small", choices=((("tiny", 1),), (("luna", 1),)))
    ])  # fmt: skip
    found = ask(house, asked)
    assert planned(found)[2] == ("luna",)
    assert isinstance(found, Decision)
    assert [(one.deployment, one.reason) for one in found.passed_over] == [
        ("tiny", f"it does not accept {what}")
    ]


def test_input_and_wanted_output_must_fit_the_context() -> None:
    house = policy()
    assert planned(ask(house, RequestFacts(model="small", input_tokens=1000)))[2] == ("tiny", "luna")
    assert planned(ask(house, RequestFacts(model="small", input_tokens=900, max_output_tokens=101)))[2] == (
        "luna",
    )


def test_the_tiers_cap_limits_what_output_is_counted() -> None:
    capped = TierSpec(name="small", choices=((("tiny", 1),),), max_output_tokens=50)
    house = policy(deployment("tiny", context_tokens=1000), tiers=[capped])
    assert planned(ask(house, RequestFacts(model="small", input_tokens=900, max_output_tokens=9999)))[2] == (
        "tiny",
    )


def test_pictures_are_not_measured_by_their_bytes() -> None:
    house = policy(
        deployment("tiny", context_tokens=1000), tiers=[TierSpec(name="small", choices=((("tiny", 1),),))]
    )
    assert planned(ask(house, RequestFacts(model="small", input_tokens=10**6, has_images=True)))[2] == (
        "tiny",
    )


def test_a_request_too_long_for_all_is_told_so() -> None:
    house = policy(
        deployment("tiny", context_tokens=1000), tiers=[TierSpec(name="small", choices=((("tiny", 1),),))]
    )
    assert refused(ask(house, RequestFacts(model="small", input_tokens=1001))) == (
        "context_length_exceeded",
        'this request is too long for tier "small": "tiny": its context is 1000 tokens, '
        "and this request needs about 1001",
    )


def test_a_provider_that_is_off_is_never_planned() -> None:
    house = policy(
        deployment("terra", off_because='provider "openai" is off: OPENAI_API_KEY is not set'),
        deployment("luna"),
        tiers=[TierSpec(name="standard", choices=((("terra", 1),), (("luna", 1),)))],
    )
    assert planned(ask(house, "standard"))[2] == ("luna",)
    code, message = refused(ask(house, "terra"))
    assert code == "no_deployment"
    assert "OPENAI_API_KEY is not set" in message


def test_a_rule_whose_tier_cannot_take_the_request_leaves_it_to_the_next() -> None:
    house = policy(rules=[FAST_CHAT])
    found = ask(house, RequestFacts(model="auto", has_images=True))
    assert planned(found) == ("default", "standard", ("terra",))
    assert isinstance(found, Decision)
    assert 'no deployment of tier "fast" can take this request' in found.because


def test_every_tier_that_was_tried_is_named_when_nobody_can_take_the_request() -> None:
    off = 'provider "openai" is off: OPENAI_API_KEY is not set'
    house = policy(
        deployment("terra", off_because=off),
        deployment("luna", off_because=off),
        tiers=[
            TierSpec(name="standard", choices=((("terra", 1),),)),
            TierSpec(name="fast", choices=((("luna", 1),),)),
        ],
        rules=[FAST_CHAT],
    )
    chat = RequestFacts(model="auto")
    assert refused(ask(house, chat)) == (
        "no_deployment",
        f'nothing in the tiers "fast", "standard" can take this request: "luna": {off}; "terra": {off}',
    )
    assert refused(ask(house, "fast")) == (
        "no_deployment",
        f'nothing in tier "fast" can take this request: "luna": {off}',
    )


def test_deployments_that_rest_come_last_and_the_one_that_rests_shortest_first_of_them() -> None:
    house = policy(
        deployment("a"), deployment("b"), deployment("c"),
        tiers=[TierSpec(name="standard", choices=((("a", 1),), (("b", 1),), (("c", 1),)))],
    )  # fmt: skip
    health = Health()
    health.note("a", "rests", 0.0, 30.0)
    found = ask(house, health=health, now=1.0)
    assert planned(found)[2] == ("b", "c", "a")
    assert isinstance(found, Decision)
    assert not found.all_rest
    health.note("b", "rests", 0.0, 20.0)
    health.note("c", "rests", 0.0, 40.0)
    found = ask(house, health=health, now=1.0)
    assert planned(found)[2] == ("b", "a", "c")
    assert isinstance(found, Decision)
    assert found.all_rest


def test_a_pinned_deployment_that_rests_is_a_last_resort() -> None:
    health = Health()
    health.note("terra", "rests", 0.0, 30.0)
    found = ask(policy(), "terra", health=health, now=1.0)
    assert isinstance(found, Decision)
    assert (found.deployments, found.all_rest) == (("terra",), True)


@pytest.mark.parametrize("weights", [(3, 1), (1, 1), (19, 1), (5, 3, 2)])
def test_sessions_are_shared_out_by_weight(weights: tuple[int, ...]) -> None:
    choice = tuple((f"d{i}", weight) for i, weight in enumerate(weights))
    sessions = 100_000
    counts = dict.fromkeys((name for name, _ in choice), 0)
    for number in range(sessions):
        counts[shared_order("fast", choice, f"session-{number}")[0]] += 1
    for name, weight in choice:
        assert abs(counts[name] / sessions - weight / sum(weights)) < 0.003


def test_a_session_stays_on_its_side() -> None:
    both = (("luna", 3), ("terra", 1))
    house = policy(tiers=[TierSpec(name="standard", choices=(both,))])
    for number in range(50):
        asked = RequestFacts(model="standard", session=f"s{number}")
        first = planned(ask(house, asked))[2]
        assert sorted(first) == ["luna", "terra"]
        assert planned(ask(house, replace(asked, turn=7, input_tokens=500)))[2] == first


def test_taking_one_deployment_away_moves_only_its_own_sessions() -> None:
    three, two = (("a", 2), ("b", 1), ("c", 1)), (("a", 2), ("b", 1))
    for number in range(1000):
        before = shared_order("fast", three, f"s{number}")
        assert shared_order("fast", two, f"s{number}") == [name for name in before if name != "c"]


def test_the_same_inputs_give_the_same_decision() -> None:
    assert ask(policy(rules=[FAST_CHAT])) == ask(policy(rules=[FAST_CHAT]))


def test_every_rule_says_why_it_did_not_match() -> None:
    house = policy(rules=[SMALL_TESTS, FAST_CHAT, Rule(name="rest", when=(), tier="small")])
    found = explain(
        house,
        RequestFacts(model="auto", application="mail", session="s"),
        CHAT,
        limits=CallerLimits(),
        allowed_tiers=None,
        budget_left_share=None,
        health=Health(),
        now=0.0,
    )
    assert [(one.rule, one.matches, one.why_not, one.note) for one in found.rules] == [
        ("tests", False, ("application is mail, not tests",), ""),
        ("chat", True, (), "this rule decides"),
        ("rest", True, (), "an earlier rule decided"),
    ]
    assert found.asked == '"auto": the rules decide'


def many_rules(number: int) -> Policy:
    rules = [
        Rule(name=f"r{i}", when=(is_("application", f"app-{i}"), is_("team", f"team-{i % 7}")), tier="small")
        for i in range(number)
    ]
    return policy(rules=rules)


def test_a_thousand_rules_cost_what_ten_do() -> None:
    few, many = many_rules(10), many_rules(1000)
    asked = RequestFacts(model="auto", application="none of them", team="search")
    best = {10: float("inf"), 1000: float("inf")}
    for _ in range(7):
        for house in (few, many):
            start = process_time()
            for _ in range(300):
                ask(house, asked)
            best[len(house.rules)] = min(best[len(house.rules)], process_time() - start)
    assert best[1000] < 1.5 * best[10]  # a walk over the rules would be some fifty times as much


def test_after_a_tier_that_cannot_the_next_matching_rule_of_another_tier_decides() -> None:
    again = Rule(name="again", when=(), tier="fast")
    rest = Rule(name="rest", when=(), tier="standard")
    found = ask(policy(rules=[FAST_CHAT, again, rest]), RequestFacts(model="auto", has_images=True))
    assert planned(found) == ("rest", "standard", ("terra",))


def test_an_order_that_is_kept_is_the_order_that_was_drawn() -> None:
    choice = (("a", 2), ("b", 1), ("c", 0))
    for number in (*range(50), *range(50)):
        drawn = shared_order("fast", choice, f"s{number}")
        assert order_for_session("fast", choice, f"s{number}") == tuple(drawn)


TOKENS = st.sampled_from([0, 1, 99, 100, 101, 200])
LIMIT = st.none() | st.sampled_from([100, 200])
SHAPES: list[tuple[Choice, ...]] = [
    ((("a", 1),), (("b", 1),)),
    ((("a", 3), ("b", 1)),),
    ((("a", 1),), (("b", 1), ("c", 1))),
    ((("a", 1), ("c", 2)), (("b", 1), ("c", 1))),
]


LIMITED = st.builds(
    deployment,
    st.just("a"),
    accepts=st.sampled_from([None, ["tools", "images"], ["tools"]]),
    context_tokens=LIMIT,
    max_output_tokens=LIMIT,
    region=st.sampled_from(["eu", "eu", "us", None]),
)


@settings(max_examples=300, deadline=None)
@given(
    limited=LIMITED,
    choices=st.sampled_from(SHAPES),
    cap=LIMIT,
    asked=st.builds(
        RequestFacts,
        model=st.just("standard"),
        input_tokens=TOKENS,
        max_output_tokens=st.none() | TOKENS,
        has_tools=st.booleans(),
        has_images=st.booleans(),
        session=st.sampled_from(["s1", "s2", "s3", "s4"]),
    ),
    regions=st.sampled_from([None, None, EU, frozenset({"eu", "us"})]),
    rests=st.sampled_from([None, None, "a", "b"]),
)
def test_a_tier_planned_at_once_is_planned_as_one_deployment_after_the_other(
    limited: Deployment,
    choices: tuple[Choice, ...],
    cap: int | None,
    asked: RequestFacts,
    regions: frozenset[str] | None,
    rests: str | None,
) -> None:
    health = Health()
    if rests is not None:
        health.note(rests, "rests", 0.0, 30.0)
    off = deployment("off", off_because="it has no key")  # with it each is looked at for itself
    found: list[Decision | Refused] = []
    for more, last in (((), ()), ((off,), ((("off", 1),),))):
        tier = TierSpec(name="standard", choices=(*choices, *last), max_output_tokens=cap)
        these = (limited, deployment("b", region="eu"), deployment("c", region="eu"), *more)
        house = policy(*these, tiers=[tier])
        found.append(ask(house, asked, limits=CallerLimits(regions=regions), health=health, now=1.0))
    at_once, one_by_one = found
    if isinstance(at_once, Refused) or isinstance(one_by_one, Refused):
        assert isinstance(at_once, Refused)
        assert isinstance(one_by_one, Refused)
        assert at_once.code == one_by_one.code
    else:
        passed_over = tuple(passed for passed in one_by_one.passed_over if passed.kind != "off")
        assert at_once == replace(one_by_one, passed_over=passed_over)


TEAMS = st.none() | st.sets(st.sampled_from(["one", "two", "three"])).map(frozenset[str])
RULES = st.lists(
    st.builds(
        Rule,
        name=st.sampled_from(["r1", "r2", "r3"]),
        when=st.sampled_from(
            [
                (),
                (is_("application", "chat"),),
                (is_("has_tools", True),),
                (Condition(field="input_tokens", test=Range(low=100)),),
                (Condition(field="budget_left_share", test=Range(high=0.5)),),
                (is_("task_kind", "chat"), Condition(field="hour", test=Range(low=12))),
            ]
        ),
        tier=st.sampled_from(["one", "two", "three"]),
    ),
    max_size=4,
)


def house_of(
    a: Deployment,
    b: Deployment,
    one: tuple[Choice, ...],
    two: tuple[Choice, ...],
    cap: int | None,
    rules: list[Rule],
) -> Policy:
    return policy(
        a,
        replace_dataclass(b, name="b"),
        deployment("c", region="eu"),
        tiers=[
            TierSpec(name="one", choices=one, max_output_tokens=cap),
            TierSpec(name="two", choices=two),
            TierSpec(name="three", choices=((("a", 1),),), max_output_tokens=150),
        ],
        rules=rules,
        names={"mapped": "auto", "renamed": "two"},
    )


HOUSES = st.builds(
    house_of,
    LIMITED | st.just(deployment("a", off_because="it has no key")),
    LIMITED,
    st.sampled_from(SHAPES),
    st.sampled_from(SHAPES),
    LIMIT,
    RULES,
)
ASKS = st.builds(
    RequestFacts,
    model=st.sampled_from(
        ["auto", "mapped", "renamed", "one", "two", "three", "a", "c", "model-a", "nobody"]
    ),
    application=st.sampled_from([None, "chat"]),
    input_tokens=TOKENS,
    max_output_tokens=st.none() | TOKENS,
    has_tools=st.booleans(),
    has_images=st.booleans(),
    has_audio=st.booleans(),
    json_schema=st.booleans(),
    reasoning_effort=st.sampled_from([None, None, "none", "high"]),
    session=st.sampled_from(["s1", "s2", "s3", "s4"]),
)


@settings(max_examples=500, deadline=None)
@given(
    house=HOUSES,
    asks=st.lists(ASKS, min_size=1, max_size=6),
    tiers=TEAMS,
    regions=st.sampled_from([None, None, EU, frozenset({"eu", "us"})]),
    allowed_tiers=st.none() | TEAMS,
    left=st.sampled_from([None, 0.25, 0.75]),
    rests=st.sampled_from([None, None, "a", "b"]),
    now=st.sampled_from([0.0, 43_200.0]),
)
def test_what_is_worked_out_ahead_is_what_a_close_look_finds(
    house: Policy,
    asks: list[RequestFacts],
    tiers: frozenset[str] | None,
    regions: frozenset[str] | None,
    allowed_tiers: frozenset[str] | None,
    left: float | None,
    rests: str | None,
    now: float,
) -> None:
    health = Health()
    if rests is not None:
        health.note(rests, "rests", now, 30.0)
    for asked in (*asks, *asks):
        at_once, closely = (
            look(
                house,
                asked,
                CHAT,
                limits=CallerLimits(tiers=tiers, regions=regions),
                allowed_tiers=allowed_tiers,
                budget_left_share=left,
                health=health,
                now=now,
            )
            for look in (decide, decide_in_full)
        )
        assert at_once == closely


def test_a_request_of_the_common_shape_is_decided_once() -> None:
    house = policy(rules=[FAST_CHAT])
    assert ask(house) is ask(house)
    assert ask(house, "terra") is ask(house, "terra")


def test_decisions_are_kept_for_so_many_sessions() -> None:
    house = policy(tiers=[TierSpec(name="standard", choices=((("terra", 1), ("luna", 1)),))])
    first = ask(house, RequestFacts(model="auto", session="s"))
    assert ask(house, RequestFacts(model="auto", session="s")) is first
    for number in range(4096):
        ask(house, RequestFacts(model="auto", session=f"s{number}"))
    again = ask(house, RequestFacts(model="auto", session="s"))
    assert again is not first
    assert again == first


def test_who_may_use_what_the_rules_lead_to_but_not_the_default_is_sent_elsewhere() -> None:
    house = policy(rules=[SMALL_TESTS])
    found = ask(house, limits=CallerLimits(tiers=frozenset({"small"})))
    assert planned(found) == ("default", "small", ("tiny", "luna"))


# ── endpoints ──

MIXED = policy(
    deployment("terra", endpoints=("chat", "responses")),
    deployment("claude", endpoints=("messages",)),
    tiers=(
        TierSpec(name="standard", choices=((("terra", 1),), (("claude", 1),))),
        TierSpec(name="openai", choices=((("terra", 1),),)),
    ),
)


def at(endpoint: EndpointName, model: str = "standard") -> RequestFacts:
    return RequestFacts(endpoint=endpoint, model=model, session="s")


@pytest.mark.parametrize(
    ("endpoint", "deployments"), [("chat", ("terra",)), ("responses", ("terra",)), ("messages", ("claude",))]
)
def test_a_tier_answers_on_an_endpoint_with_those_that_serve_it(
    endpoint: EndpointName, deployments: tuple[str, ...]
) -> None:
    assert planned(ask(MIXED, at(endpoint)))[2] == deployments


def test_what_serves_another_endpoint_is_passed_over_with_the_reason() -> None:
    found = ask(MIXED, at("messages"))
    assert isinstance(found, Decision)
    assert found.passed_over == (
        PassedOver(deployment="terra", reason="it does not serve /v1/messages", kind="endpoint"),
    )


@pytest.mark.parametrize("model", ["openai", "terra", "model-terra"])
def test_where_nobody_serves_an_endpoint_the_refusal_says_so(model: str) -> None:
    code, message = refused(ask(MIXED, at("messages", model)))
    assert code == "endpoint_not_served"
    assert "it does not serve /v1/messages" in message


def stayed(
    name: str, facts: RequestFacts, limits: CallerLimits | None = None, allowed: frozenset[str] | None = None
) -> Decision | Refused:
    limits = limits or CallerLimits()
    return stay_with(
        name,
        ask(policy(), facts, limits=limits),
        policy(),
        facts,
        limits=limits,
        allowed_tiers=allowed,
        health=Health(),
        clock=0.0,
    )


def test_what_goes_on_from_an_answer_stays_where_that_was_made() -> None:
    facts = RequestFacts(model="standard", session="s")
    assert planned(stayed("luna", facts)) == ("asked for by name", "standard", ("luna",))
    assert planned(stayed("tiny", facts)) == ("pinned", "", ("tiny",))
    found = stayed("luna", facts)
    assert isinstance(found, Decision)
    assert found.because[-1] == 'it goes on from an answer of "luna"'


def test_staying_gives_nobody_what_their_key_does_not() -> None:
    facts = RequestFacts(model="standard", session="s")
    assert (
        refused(stayed("tiny", facts, CallerLimits(tiers=frozenset({"standard"}))))[0] == "model_not_allowed"
    )
    assert refused(stayed("terra", facts, CallerLimits(regions=EU)))[0] == "model_not_allowed"
    assert refused(stayed("tiny", facts, allowed=frozenset({"fast"})))[0] == "budget_exceeded"
    assert refused(stayed("gone", facts))[0] == "no_deployment"

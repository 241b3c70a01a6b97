"""Conditions of rules: what holds, why not, and the index that must agree with asking every rule."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from routers.conditions import (
    FIELDS,
    NUMBER_FIELDS,
    TASK_KINDS,
    WEEKDAYS,
    AnyOf,
    Condition,
    Range,
    RuleIndex,
    Value,
    contradict,
    first_of,
    shadows,
    why_not,
    witness,
)
from routers.facts import Classification, RequestFacts, TaskKind

NOON_ON_A_SUNDAY = 1_795_953_600.0  # 2026-11-29 12:00 UTC


def facts(
    *,
    application: str | None = None,
    team: str = "search",
    stream: bool = False,
    has_tools: bool = False,
    input_tokens: int = 100,
    max_output_tokens: int | None = None,
    turn: int = 1,
) -> RequestFacts:
    return RequestFacts(
        model="auto",
        application=application,
        team=team,
        stream=stream,
        has_tools=has_tools,
        input_tokens=input_tokens,
        max_output_tokens=max_output_tokens,
        turn=turn,
    )


def seen(task_kind: TaskKind = "chat", confidence: float = 0.9) -> Classification:
    return Classification(task_kind=task_kind, confidence=confidence, because=())


def is_(field: str, *values: Value, negated: bool = False) -> Condition:
    return Condition(field=field, test=AnyOf(values=values), negated=negated)


def within(
    field: str,
    low: float | None = None,
    high: float | None = None,
    *,
    low_is_in: bool = True,
    high_is_in: bool = True,
    negated: bool = False,
) -> Condition:
    test = Range(low=low, low_is_in=low_is_in, high=high, high_is_in=high_is_in)
    return Condition(field=field, test=test, negated=negated)


def test_a_condition_says_why_it_does_not_hold() -> None:
    when = (
        is_("task_kind", "chat", "code"),
        within("input_tokens", high=8000, high_is_in=False),
        is_("has_tools", False),
        is_("application", "receipts"),
        is_("team", "search", negated=True),
        within("budget_left_share", low=0.2),
    )
    assert why_not(
        when, facts(input_tokens=8000, has_tools=True), seen("summary"), None, NOON_ON_A_SUNDAY
    ) == (
        "task_kind is summary, not chat or code",
        "input_tokens is 8000, not below 8000",
        "has_tools is true, not false",
        "application is unknown, not receipts",
        "team is search, which `not` excludes",
        "budget_left_share is unknown, not at least 0.2",
    )


def test_a_condition_that_holds_has_nothing_to_say() -> None:
    when = (is_("hour", 12), is_("weekday", "sunday"), within("confidence", low=0.9), is_("turn", 1, 2))
    assert why_not(when, facts(), seen(), 0.5, NOON_ON_A_SUNDAY) == ()


def test_the_weekday_and_hour_are_those_of_utc() -> None:
    before_midnight = NOON_ON_A_SUNDAY + 12 * 3600 - 1
    assert why_not((is_("weekday", "sunday"), is_("hour", 23)), facts(), seen(), None, before_midnight) == ()
    assert (
        why_not((is_("weekday", "monday"), is_("hour", 0)), facts(), seen(), None, before_midnight + 1) == ()
    )


def test_an_unknown_value_meets_no_condition_and_passes_every_not() -> None:
    assert not is_("customer", "acme").holds(None)
    assert is_("customer", "acme", negated=True).holds(None)
    assert within("max_output_tokens", low=1, negated=True).holds(None)


def test_conditions_that_exclude_each_other_are_found() -> None:
    assert contradict((within("hour", low=20, high=4),))
    assert contradict((is_("team", "a"), is_("team", "a", "b", negated=True)))
    assert contradict((within("confidence", low=1, low_is_in=False),))
    assert contradict((is_("stream", True, False, negated=True),))
    assert not contradict((is_("team", "a", "b"), is_("team", "a", negated=True)))
    assert not contradict((within("hour", low=20), is_("stream", True)))
    assert not contradict((within("max_output_tokens", low=1, negated=True),))


def test_a_rule_that_asks_for_less_shadows_one_that_asks_for_more() -> None:
    chat = is_("task_kind", "chat", "code")
    short = within("input_tokens", high=8000, high_is_in=False)
    assert shadows((), (chat,))
    assert shadows((chat,), (is_("task_kind", "chat"), short))
    assert shadows((short,), (within("input_tokens", high=7999),))
    assert not shadows((short,), (within("input_tokens", high=8000),))
    assert not shadows((chat, short), (chat,))
    assert not shadows((is_("task_kind", "chat"),), (chat,))
    assert shadows((is_("team", "a", negated=True),), (is_("team", "b"),))
    assert not shadows((is_("team", "a"),), (is_("team", "b", negated=True),))


TEXTS = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(0, 5)


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    field = draw(
        st.sampled_from(["application", "team", "stream", "input_tokens", "max_output_tokens", "turn"])
    )
    negated = draw(st.booleans())
    if field == "stream":
        return is_(field, draw(st.booleans()), negated=negated)
    if field in NUMBER_FIELDS:
        if draw(st.booleans()):
            return is_(field, *draw(st.lists(NUMBERS, min_size=1, max_size=3)), negated=negated)
        low, high = draw(st.none() | NUMBERS), draw(st.none() | NUMBERS)
        return within(
            field, low, high, low_is_in=draw(st.booleans()), high_is_in=draw(st.booleans()), negated=negated
        )
    return is_(field, *draw(st.lists(TEXTS, min_size=1, max_size=3)), negated=negated)


@st.composite
def rules(draw: st.DrawFn) -> list[Condition]:
    found = draw(st.lists(conditions(), max_size=4))
    return list({(condition.field, condition.negated): condition for condition in found}.values())


REQUESTS = st.builds(
    facts,
    application=st.none() | TEXTS,
    team=TEXTS,
    stream=st.booleans(),
    input_tokens=NUMBERS,
    max_output_tokens=st.none() | NUMBERS,
    turn=NUMBERS,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(rules(), max_size=8), REQUESTS)
def test_the_index_finds_exactly_the_rules_whose_conditions_all_hold(
    some: list[list[Condition]], request: RequestFacts
) -> None:
    index = RuleIndex(some)
    matching = index.matching(request, seen(), None, 0.0, index.every)
    one_by_one = [not why_not(when, request, seen(), None, 0.0) for when in some]
    assert [bool(matching >> i & 1) for i in range(len(some))] == one_by_one
    if matching:
        assert first_of(matching) == one_by_one.index(True)


CLOCKS = st.sampled_from([0.0, 3599.9, 3600.0, 86_399.0, 86_400.0, NOON_ON_A_SUNDAY])
OF_ALL_KINDS = st.lists(
    st.lists(
        st.one_of(
            conditions(),
            st.builds(is_, st.just("weekday"), st.sampled_from(WEEKDAYS), negated=st.booleans()),
            st.builds(within, st.just("hour"), st.sampled_from([1, 12, 23]), negated=st.booleans()),
            st.builds(within, st.just("confidence"), st.sampled_from([0.5, 0.9, 1]), negated=st.booleans()),
            st.builds(within, st.just("budget_left_share"), st.sampled_from([0.25, 0.5])),
            st.builds(is_, st.just("task_kind"), st.sampled_from(TASK_KINDS), negated=st.booleans()),
            st.builds(is_, st.just("key"), TEXTS),
            st.builds(is_, st.just("has_tools"), st.booleans()),
        ),
        max_size=4,
    ).map(lambda found: list({(one.field, one.negated): one for one in found}.values())),
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(
    OF_ALL_KINDS,
    st.lists(
        st.tuples(
            REQUESTS,
            st.builds(seen, st.sampled_from(TASK_KINDS), st.sampled_from([0.4, 0.5, 0.9, 1.0])),
            st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0]),
            CLOCKS,
        ),
        min_size=2,
        max_size=12,
    ),
)
def test_what_an_index_found_before_changes_nothing_of_what_it_finds(
    some: list[list[Condition]],
    requests: list[tuple[RequestFacts, Classification, float | None, float]],
) -> None:
    index = RuleIndex(some)
    for request, kind, left, now in (*requests, *requests):
        matching = index.matching(request, kind, left, now, index.every)
        one_by_one = [not why_not(when, request, kind, left, now) for when in some]
        assert [bool(matching >> i & 1) for i in range(len(some))] == one_by_one


def test_an_index_remembers_only_so_much_of_what_clients_invent() -> None:
    index = RuleIndex([[is_("user", "me"), is_("reasoning_effort", "high")]])
    for number in range(5000):
        index.matching(replace(facts(), user=f"invented {number}"), seen(), None, 0.0, index.every)
        assert index.remembered <= 1024
    before = index.remembered
    index.matching(replace(facts(), reasoning_effort="x" * 5000), seen(), None, 0.0, index.every)
    assert index.remembered == before


@settings(max_examples=300, deadline=None)
@given(rules(), rules(), REQUESTS)
def test_what_is_called_shadowed_or_impossible_never_comes_first(
    earlier: list[Condition], later: list[Condition], request: RequestFacts
) -> None:
    later_matches = not why_not(later, request, seen(), None, 0.0)
    if shadows(earlier, later) and later_matches:
        assert not why_not(earlier, request, seen(), None, 0.0)
    if contradict(later) and all(condition.field != "turn" for condition in later):
        impossible_number = request.max_output_tokens == 0  # no client can set it
        assert not later_matches or impossible_number


def test_every_field_can_be_asked_for() -> None:
    for field, get in FIELDS.items():
        value = get(facts(application="a"), seen(), 0.5, NOON_ON_A_SUNDAY)
        assert value is None or is_(field, value).holds(value)


@settings(max_examples=300, deadline=None)
@given(rules(), rules())
def test_a_rule_that_shadows_another_matches_whatever_was_made_for_that_one(
    earlier: list[Condition], later: list[Condition]
) -> None:
    values = witness(later)
    if values is None:
        return
    index = RuleIndex([earlier, later])
    assert index.matching_values(values) & 2
    if shadows(earlier, later):
        assert index.matching_values(values) & 1

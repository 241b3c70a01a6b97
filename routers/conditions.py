"""What a rule asks of a request: conditions that can say why they do not hold, and an index that finds
the first rule whose conditions all hold without asking every rule.

The index works on sets of rules written as bits of one whole number, the first rule being the lowest bit.
For every field that some rule asks about there is a column: a value of the field -> the rules that this
value does not rule out. A request takes one set from each column; what is left of their intersection are the
rules that match, and its lowest bit is the first of them. So a thousand rules cost what ten do. What names,
flags and the clock leave of the rules is remembered for the kinds of requests seen last, together with the columns
of numbers that still decide among those.

An unknown value (no customer named, no budget) never meets a condition; in `not` it therefore always passes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter

from routers.facts import Classification, RequestFacts

Value = str | bool | int | float
Getter = Callable[[RequestFacts, Classification, float | None, float], Value | None]

TASK_KINDS = ("chat", "agent", "code", "extraction", "summary", "translation", "reasoning", "long_context")
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _hour(facts: RequestFacts, seen: Classification, left: float | None, now: float) -> int:
    return int(now // 3600) % 24


def _weekday(facts: RequestFacts, seen: Classification, left: float | None, now: float) -> str:
    return WEEKDAYS[int(now // 86400 + 3) % 7]  # 1970-01-01 was a Thursday


TEXT_FIELDS: Mapping[str, Getter] = {
    "application": lambda facts, seen, left, now: facts.application,
    "team": lambda facts, seen, left, now: facts.team or None,
    "key": lambda facts, seen, left, now: facts.key_id or None,
    "model": lambda facts, seen, left, now: facts.model,
    "task_kind": lambda facts, seen, left, now: seen.task_kind,
    "customer": lambda facts, seen, left, now: facts.customer,
    "feature": lambda facts, seen, left, now: facts.feature,
    "user": lambda facts, seen, left, now: facts.user,
    "reasoning_effort": lambda facts, seen, left, now: facts.reasoning_effort,
    "weekday": _weekday,
}
FLAG_FIELDS: Mapping[str, Getter] = {
    "stream": lambda facts, seen, left, now: facts.stream,
    "json_output": lambda facts, seen, left, now: facts.json_output,
    "has_tools": lambda facts, seen, left, now: facts.has_tools,
    "has_images": lambda facts, seen, left, now: facts.has_images,
}
NUMBER_FIELDS: Mapping[str, Getter] = {
    "confidence": lambda facts, seen, left, now: seen.confidence,
    "input_tokens": lambda facts, seen, left, now: facts.input_tokens,
    "max_output_tokens": lambda facts, seen, left, now: facts.max_output_tokens,
    "messages": lambda facts, seen, left, now: facts.messages,
    "turn": lambda facts, seen, left, now: facts.turn,
    "hour": _hour,
    "budget_left_share": lambda facts, seen, left, now: left,
}
_ATTRIBUTES = {"key": "key_id"}  # fields that the facts call by another name
FIELDS: Mapping[str, Getter] = {**TEXT_FIELDS, **FLAG_FIELDS, **NUMBER_FIELDS}
CLOSED_SETS: Mapping[str, tuple[str, ...]] = {"task_kind": TASK_KINDS, "weekday": WEEKDAYS}
LIMITS: Mapping[str, tuple[float, float | None]] = {
    "confidence": (0, 1),
    "input_tokens": (0, None),
    "max_output_tokens": (1, None),
    "messages": (0, None),
    "turn": (1, None),
    "hour": (0, 23),
    "budget_left_share": (0, 1),
}
"""The smallest and the largest value that a number can have; None: no largest."""

RANGE_WORDS = ("at_least", "above", "below", "at_most")


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf:
    """Holds for each of these values."""

    values: tuple[Value, ...]

    def holds(self, value: Value) -> bool:
        """True if `value` is one of them."""
        return value in self.values

    @property
    def text(self) -> str:
        """As a sentence says it: `chat or code`."""
        return " or ".join(_shown(value) for value in self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Holds between two bounds; None: no bound on that side."""

    low: float | None = None
    low_is_in: bool = True  # `at_least`, not `above`
    high: float | None = None
    high_is_in: bool = True  # `at_most`, not `below`

    def holds(self, value: Value) -> bool:
        """True if the number `value` lies within the bounds."""
        if isinstance(value, str):
            return False
        if self.low is not None and (value < self.low or (value == self.low and not self.low_is_in)):
            return False
        return not (
            self.high is not None and (value > self.high or (value == self.high and not self.high_is_in))
        )

    @property
    def text(self) -> str:
        """As a sentence says it: `at least 10 and below 20`."""
        parts: list[str] = []
        if self.low is not None:
            parts.append(f"{'at least' if self.low_is_in else 'above'} {_shown(self.low)}")
        if self.high is not None:
            parts.append(f"{'at most' if self.high_is_in else 'below'} {_shown(self.high)}")
        return " and ".join(parts)

    def lies_within(self, other: "Range") -> bool:
        """True if every value that meets this range meets the other one."""
        if other.low is not None:
            if self.low is None or self.low < other.low:
                return False
            if self.low == other.low and self.low_is_in and not other.low_is_in:
                return False
        if other.high is not None:
            if self.high is None or self.high > other.high:
                return False
            if self.high == other.high and self.high_is_in and not other.high_is_in:
                return False
        return True

    def meets(self, other: "Range") -> bool:
        """True if some number could lie in both."""
        lows = [r for r in (self, other) if r.low is not None]
        highs = [r for r in (self, other) if r.high is not None]
        for a in lows:
            for b in highs:
                assert a.low is not None
                assert b.high is not None
                if a.low > b.high or (a.low == b.high and not (a.low_is_in and b.high_is_in)):
                    return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One thing a rule asks of a request."""

    field: str
    test: AnyOf | Range
    negated: bool = False  # stood in `not`

    def holds(self, value: Value | None) -> bool:
        """True if a request with this value of the field passes; None: the value is unknown."""
        return (value is not None and self.test.holds(value)) is not self.negated

    @property
    def text(self) -> str:
        """As a sentence: `task_kind is chat or code`, `input_tokens is not below 8000`."""
        return f"{self.field} is {'not ' if self.negated else ''}{self.test.text}"

    def why_not(self, value: Value | None) -> str:
        """Why a request with this value does not pass: `task_kind is code, not chat`."""
        shown = "unknown" if value is None else _shown(value)
        if self.negated:
            return f"{self.field} is {shown}, which `not` excludes"
        return f"{self.field} is {shown}, not {self.test.text}"

    @property
    def can_hold(self) -> bool:
        """False if no request could ever pass."""
        least, most = LIMITS.get(self.field, (None, None))
        possible = Range(low=least, high=most)
        if isinstance(self.test, AnyOf):
            if self.negated:
                every: set[Value] = {*CLOSED_SETS.get(self.field, ())}
                if self.field in FLAG_FIELDS:
                    every = {True, False}
                return not every or bool(every - {*self.test.values})
            return any(possible.holds(v) for v in self.test.values) if self.field in NUMBER_FIELDS else True
        if self.negated:
            return not possible.lies_within(self.test) or self.field in (
                "max_output_tokens",
                "budget_left_share",
            )
        return self.test.meets(self.test) and self.test.meets(possible)

    def implies(self, other: "Condition") -> bool:
        """True if certainly every request that passes this condition passes the other, on the same field."""
        mine, theirs = self.test, other.test
        if self.negated:
            if not other.negated:
                return False
            return _covers(mine, theirs)
        if other.negated:
            return isinstance(mine, AnyOf) and not any(theirs.holds(value) for value in mine.values)
        return _covers(theirs, mine)


def _covers(wide: AnyOf | Range, narrow: AnyOf | Range) -> bool:
    if isinstance(narrow, AnyOf):
        return all(wide.holds(value) for value in narrow.values)
    return isinstance(wide, Range) and narrow.lies_within(wide)


def contradict(conditions: Sequence[Condition]) -> bool:
    """True if certainly no request can pass all of these."""
    for condition in conditions:
        if not condition.can_hold:
            return True
        for other in conditions:
            if (
                other is not condition
                and other.field == condition.field
                and other.negated
                and not condition.negated
                and _covers(other.test, condition.test)
            ):
                return True
    return False


def shadows(earlier: Sequence[Condition], later: Sequence[Condition]) -> bool:
    """True if every request that the later conditions let pass, the earlier ones let pass too."""
    return all(
        any(mine.field == theirs.field and mine.implies(theirs) for mine in later) for theirs in earlier
    )


class _TextColumn:
    """One field with closed values: value -> the rules that it does not rule out."""

    __slots__ = ("masks", "other")

    def __init__(self, every: int, asked: Sequence[tuple[int, Condition]], *, negated: bool) -> None:
        asking = 0
        named: dict[Value | None, int] = {}
        for rule, condition in asked:
            asking |= 1 << rule
            assert isinstance(condition.test, AnyOf)
            for value in condition.test.values:
                named[value] = named.get(value, 0) | (1 << rule)
        free = every & ~asking
        if negated:
            self.other = every
            self.masks: dict[Value | None, int] = {value: every & ~rules for value, rules in named.items()}
        else:
            self.other = free
            self.masks = {value: free | rules for value, rules in named.items()}

    def rules(self, value: Value | None) -> int:
        """The rules that this value does not rule out. `None` is in no table."""
        return self.masks.get(value, self.other)


class _NumberColumn:
    """One field of numbers, cut at every bound that a rule names: piece -> the rules it does not rule out.

    Piece 2i+1 is the i-th bound itself, piece 2i what lies between it and the bound before.
    """

    __slots__ = ("asking", "bounds", "masks", "unknown")

    def __init__(self, every: int, asked: Sequence[tuple[int, Condition]], *, negated: bool) -> None:
        bounds: set[float] = set()
        for _, condition in asked:
            bounds.update(_bounds_of(condition.test))
        self.bounds = sorted(bounds)
        at = {bound: 2 * i + 1 for i, bound in enumerate(self.bounds)}
        pieces = 2 * len(self.bounds) + 1
        turns = [0] * (pieces + 1)  # rules whose test begins or ends to hold at this piece
        asking = 0
        for rule, condition in asked:
            bit = 1 << rule
            asking |= bit
            test = condition.test
            if isinstance(test, AnyOf):
                for value in {*test.values}:
                    assert not isinstance(value, str)
                    turns[at[value]] ^= bit
                    turns[at[value] + 1] ^= bit
                continue
            first = 0 if test.low is None else at[test.low] + (not test.low_is_in)
            after = pieces if test.high is None else at[test.high] + test.high_is_in
            if first < after:
                turns[first] ^= bit
                turns[after] ^= bit
        self.asking = asking  # rules that ask about the field
        free = every & ~asking
        self.unknown = every if negated else free
        self.masks: list[int] = []
        holding = 0
        for piece in range(pieces):
            holding ^= turns[piece]
            self.masks.append(every & ~holding if negated else free | holding)

    def rules(self, value: Value | None) -> int:
        """The rules that this value does not rule out."""
        if value is None or isinstance(value, str):
            return self.unknown
        return self.masks[bisect_left(self.bounds, value) + bisect_right(self.bounds, value)]


def _bounds_of(test: AnyOf | Range) -> list[float]:
    if isinstance(test, AnyOf):
        return [value for value in test.values if not isinstance(value, str)]
    return [bound for bound in (test.low, test.high) if bound is not None]


_CLOCK_FIELDS = ("hour", "weekday")
_HOUR_SECONDS = 3600.0
_MOST_KEPT = 1024  # kinds of requests that an index keeps its findings for
_LONGEST_KEPT = 1024  # characters of all names together: longer ones are looked up anew


class _Remaining:
    """The rules that names, flags and the clock leave of one kind of request, and what decides among them."""

    __slots__ = ("numbers", "others", "rules")

    def __init__(self, rules: int, columns: Sequence[tuple[str, _NumberColumn]]) -> None:
        self.rules = rules
        # Columns of numbers that some remaining rule asks about: field, bounds, rules of each piece, rules of
        # an unknown value; apart for those that are found in the request itself.
        self.numbers: list[tuple[Callable[[RequestFacts], float | None], list[float], list[int], int]] = []
        self.others: list[tuple[Getter, _NumberColumn]] = []
        for field, column in columns:
            if not column.asking & rules:
                continue
            if field in RequestFacts.__struct_fields__:
                self.numbers.append((attrgetter(field), column.bounds, column.masks, column.unknown))
            else:
                self.others.append((FIELDS[field], column))


class _Span:
    """A time in which the clock rules out the same rules, with what was found for requests of that time."""

    __slots__ = ("kept", "since", "until")

    def __init__(self, since: float, until: float) -> None:
        self.since = since  # wall time in seconds, in it
        self.until = until  # not in it
        self.kept: dict[tuple[str, object], _Remaining] = {}


class RuleIndex:
    """Finds the rules whose conditions all hold."""

    __slots__ = ("_columns", "_follows_clock", "_named", "_numbers", "_span", "_values", "every")

    def __init__(self, rules: Sequence[Sequence[Condition]]) -> None:
        self.every = (1 << len(rules)) - 1  # all rules, as a set
        asked: dict[tuple[str, bool], list[tuple[int, Condition]]] = {}
        for number, conditions in enumerate(rules):
            for condition in conditions:
                asked.setdefault((condition.field, condition.negated), []).append((number, condition))
        self._columns: list[tuple[str, _TextColumn | _NumberColumn]] = []
        for (field, negated), these in asked.items():
            column = _NumberColumn if field in NUMBER_FIELDS else _TextColumn
            self._columns.append((field, column(self.every, these, negated=negated)))
        # Names, flags and the clock have few values that come again and again; numbers are looked at each time.
        self._named = [
            (FIELDS[field], column)
            for field, column in self._columns
            if isinstance(column, _TextColumn) or field in _CLOCK_FIELDS
        ]
        self._numbers = [
            (field, column)
            for field, column in self._columns
            if isinstance(column, _NumberColumn) and field not in _CLOCK_FIELDS
        ]
        fields = {field for field, _ in self._columns}
        self._follows_clock = not fields.isdisjoint(_CLOCK_FIELDS)
        attributes = {_ATTRIBUTES.get(field, field) for field in fields - NUMBER_FIELDS.keys()}
        kept = sorted(attributes.intersection(RequestFacts.__struct_fields__))
        self._values: Callable[[RequestFacts], object] = attrgetter(*(kept or ["stream"]))
        self._span = _Span(inf, -inf)

    def matching(
        self, facts: RequestFacts, seen: Classification, left: float | None, now: float, among: int
    ) -> int:
        """The rules of the set `among` that match. Its lowest bit is the first of them.

        `left` is the share (0 to 1) left of the tightest budget, None without one; `now` is wall time in
        seconds.
        """
        span = self._span
        if not span.since <= now < span.until:
            span = self._span = self._span_of(now)
        remaining = span.kept.get((seen.task_kind, self._values(facts)))
        if remaining is None:
            remaining = self._narrowed(span, facts, seen, now)
        matching = among & remaining.rules
        for get, bounds, masks, unknown in remaining.numbers:
            value = get(facts)
            if value is None:
                matching &= unknown
            else:
                matching &= masks[bisect_left(bounds, value) + bisect_right(bounds, value)]
        for other, column in remaining.others:
            matching &= column.rules(other(facts, seen, left, now))
        return matching

    def _span_of(self, now: float) -> _Span:
        if not self._follows_clock:
            return _Span(-inf, inf)
        hour = now // _HOUR_SECONDS * _HOUR_SECONDS
        return _Span(hour, hour + _HOUR_SECONDS)

    def _narrowed(self, span: _Span, facts: RequestFacts, seen: Classification, now: float) -> _Remaining:
        rules = self.every
        for get, column in self._named:
            rules &= column.rules(get(facts, seen, None, now))
        remaining = _Remaining(rules, self._numbers)
        values = self._values(facts)
        if len(str(values)) <= _LONGEST_KEPT:
            if len(span.kept) >= _MOST_KEPT:
                span.kept.clear()
            span.kept[seen.task_kind, values] = remaining
        return remaining

    @property
    def remembered(self) -> int:
        """Kinds of requests that it keeps its findings for."""
        return len(self._span.kept)

    def matching_values(self, values: Mapping[str, Value]) -> int:
        """The rules that match where these fields have these values and all others are unknown."""
        matching = self.every
        for field, column in self._columns:
            matching &= column.rules(values.get(field))
        return matching


def witness(conditions: Sequence[Condition]) -> dict[str, Value] | None:
    """Values that pass all of these, fields that none of them needs left out; None: none was found."""
    values: dict[str, Value] = {}
    for condition in conditions:
        if condition.negated:
            continue
        others = [other for other in conditions if other.field == condition.field]
        for value in _candidates(condition.test):
            if all(other.holds(value) for other in others):
                values[condition.field] = value
                break
        else:
            return None
    return values


def _candidates(test: AnyOf | Range) -> Sequence[Value]:
    if isinstance(test, AnyOf):
        return test.values
    low, high = test.low, test.high
    if low is None:
        return (high, high - 1) if high is not None else ()
    if high is None:
        return (low, low + 1)
    return (low, high, (low + high) / 2)


def first_of(rules: int) -> int:
    """The number of the first rule of a set that is not empty."""
    return (rules & -rules).bit_length() - 1


def why_not(
    conditions: Sequence[Condition], facts: RequestFacts, seen: Classification, left: float | None, now: float
) -> tuple[str, ...]:
    """Every condition that does not hold, each with what was found instead; empty: the rule matches."""
    reasons: list[str] = []
    for condition in conditions:
        value = FIELDS[condition.field](facts, seen, left, now)
        if not condition.holds(value):
            reasons.append(condition.why_not(value))
    return tuple(reasons)

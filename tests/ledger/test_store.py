"""What is appended is there once, adds up, and can be looked up; on SQLite and on PostgreSQL alike."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from ledger.rows import Books
from ledger.store import Ledger, LedgerAway, Mark, NotALedgerUrl, StoredKey, StoredPrice, open_ledger
from ledger.tables import ATTEMPT, DAY_TOTAL, HOUR_TOTAL, MS_PER_HOUR, REQUEST
from ledger.verify import rebuild_totals, verify
from pricing.money import PICO_PER_USD
from tests.ledger.builders import NOON_MS, admitted, attempt, books, closed, unbilled, unpriced

NOON = datetime.fromtimestamp(NOON_MS / 1000, UTC)
MIDNIGHT = NOON.replace(hour=0)


def count(ledger: Ledger) -> tuple[int, int]:
    """Requests and attempts."""
    with ledger.reading() as connection:
        return (
            connection.execute(select(func.count()).select_from(REQUEST)).scalar_one(),
            connection.execute(select(func.count()).select_from(ATTEMPT)).scalar_one(),
        )


def test_an_empty_ledger_is_clean(ledger: Ledger) -> None:
    assert verify(ledger) == []
    assert count(ledger) == (0, 0)
    assert ledger.spent_in_window(since=MIDNIGHT, team="search") == 0
    assert list(ledger.attempts(since=MIDNIGHT)) == []


def test_a_request_is_kept_with_all_that_was_said_of_it(ledger: Ledger) -> None:
    given_ = books(
        "req_1",
        unbilled(1, deployment="terra"),
        attempt(2, tools={"search": 2}, extra={"x": 1}, flags=("a", "b"), provider_cost_usd="0.0001"),
        stream=True,
        decided_because=("because", "é\n"),
        confidence=0.25,
        user="someone",
    )

    done = ledger.append([given_])

    assert (done.written, done.refused) == (1, ())
    with ledger.reading() as connection:
        row = connection.execute(select(REQUEST)).mappings().one()
    for name in ("id", "team", "application", "confidence", "user", "stream", "admitted_at_ms", "feature"):
        assert row[name] == getattr(given_.admitted, name)
    for name in ("state", "status", "cost_pico_usd", "duration_ms", "baseline_pico_usd", "closed_at_ms"):
        assert row[name] == getattr(given_.closed, name)
    assert row["decided_because"] == '["because","é\\n"]'
    assert (row["attempts"], row["deployment"], row["provider"], row["model"]) == (
        2,
        "luna",
        "openai",
        "gpt-5.6-luna",
    )
    first, second = list(ledger.attempts(since=MIDNIGHT))
    assert (first["n"], first["state"], first["failure"], first["status"], first["cost_pico_usd"]) == (
        1,
        "unbilled",
        "connect_refused",
        None,
        0,
    )
    assert (second["tools"], second["extra"], second["flags"]) == ({"search": 2}, {"x": 1}, ["a", "b"])
    assert (second["request_id"], second["team"], second["key_id"]) == ("req_1", "search", "key_1")
    assert verify(ledger) == []


def test_a_batch_whose_commit_got_lost_is_written_once(ledger: Ledger) -> None:
    batch = [books(f"req_{n}") for n in range(10)]
    mark = Mark(directory="d", segment=1, position=100)
    ledger.append(batch, mark)

    again = ledger.append(batch, mark)

    assert (again.written, again.refused) == (0, ())
    assert count(ledger) == (10, 10)
    assert ledger.spent_in_window(since=MIDNIGHT) == 10 * 45_000_000
    assert verify(ledger) == []


def test_a_batch_that_is_known_in_part_adds_the_rest_only(ledger: Ledger) -> None:
    ledger.append([books(f"req_{n}") for n in range(0, 10, 2)])

    done = ledger.append([books(f"req_{n}") for n in range(10)])

    assert (done.written, done.refused) == (5, ())
    assert ledger.spent_in_window(since=MIDNIGHT) == 10 * 45_000_000
    assert verify(ledger) == []


def test_the_first_of_two_equal_ids_in_a_batch_counts(ledger: Ledger) -> None:
    done = ledger.append([books("req_1", team="a"), books("req_1", team="b"), books("req_2")])

    assert done.written == 2
    assert ledger.spent_in_window(since=MIDNIGHT, team="a") == 45_000_000
    assert ledger.spent_in_window(since=MIDNIGHT, team="b") == 0
    assert verify(ledger) == []


def test_two_writers_of_the_same_requests_write_them_once(ledger: Ledger, ledger_url: str) -> None:
    batches = [[books(f"req_{n}_{k}") for k in range(20)] for n in range(10)]
    written: list[int] = []
    start = threading.Barrier(2)

    def write(batches: list[list[Books]]) -> None:
        own = open_ledger(ledger_url)
        start.wait(10)
        for batch in batches:
            written.append(own.append(batch, Mark(directory="d", segment=1, position=1)).written)
        own.close()

    threads = [threading.Thread(target=write, args=(some,)) for some in (batches, batches)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sum(written) == 200
    assert count(ledger) == (200, 200)
    assert verify(ledger) == []


@pytest.mark.parametrize(
    "bad",
    [
        attempt(input_uncached=2**63),
        attempt(input_uncached=10**16),
        attempt(output_text=-1),
        attempt(cost_pico_usd=2**63),
    ],
    ids=["beyond 64 bits", "too many to be a count", "negative", "too dear for 64 bits"],
)
def test_what_no_table_can_keep_is_refused_alone(ledger: Ledger, bad: object) -> None:
    batch = [books(f"req_{n}") for n in range(5)]
    worse = Books(admitted("req_bad"), closed("req_bad", bad))  # pyright: ignore[reportArgumentType]
    batch.insert(3, worse)

    done = ledger.append(batch, Mark(directory="d", segment=2, position=7))

    assert (done.written, done.refused) == (5, (worse,))
    assert count(ledger) == (5, 5)
    assert ledger.mark_of("d") == Mark(directory="d", segment=2, position=7)
    assert verify(ledger) == []


def test_a_mark_never_goes_back(ledger: Ledger) -> None:
    assert ledger.mark_of("d") is None
    for segment, position in ((1, 50), (2, 10), (1, 90), (2, 5)):
        ledger.append([], Mark(directory="d", segment=segment, position=position))
    assert ledger.mark_of("d") == Mark(directory="d", segment=2, position=10)
    ledger.forget_mark("d")
    assert ledger.mark_of("d") is None


def test_a_fallback_counts_one_request_and_two_attempts(ledger: Ledger) -> None:
    ledger.append(
        [
            books(
                "req_1",
                attempt(1, deployment="terra", state="estimated"),
                attempt(2),
                baseline_deployment="terra",
                baseline_pico_usd=100_000_000,
            )
        ]
    )

    with ledger.reading() as connection:
        rows = {row["deployment"]: row for row in connection.execute(select(DAY_TOTAL)).mappings()}
    terra, luna = rows["terra"], rows["luna"]
    assert (terra["requests"], terra["attempts"], terra["estimated"], terra["compared"]) == (0, 1, 1, 0)
    assert (luna["requests"], luna["attempts"], luna["estimated"], luna["compared"]) == (1, 1, 0, 1)
    assert (terra["cost_rest_pico_usd"], terra["cost_estimated_rest_pico_usd"]) == (45_000_000, 45_000_000)
    assert (luna["cost_rest_pico_usd"], luna["cost_estimated_rest_pico_usd"]) == (45_000_000, 0)
    assert (luna["compared_cost_rest_pico_usd"], luna["baseline_rest_pico_usd"]) == (90_000_000, 100_000_000)
    assert terra["compared_cost_rest_pico_usd"] == 0
    assert verify(ledger) == []


def test_unpriced_is_counted_and_costs_nothing(ledger: Ledger) -> None:
    ledger.append([books("req_1", attempt(1), unpriced(2, deployment="house"), baseline_pico_usd=1)])

    with ledger.reading() as connection:
        rows = {row["deployment"]: row for row in connection.execute(select(HOUR_TOTAL)).mappings()}
        cost = connection.execute(select(REQUEST.c.cost_pico_usd)).scalar_one()
    assert cost is None
    assert (rows["house"]["unpriced"], rows["house"]["cost_rest_pico_usd"], rows["house"]["compared"]) == (
        1,
        0,
        0,
    )
    assert rows["house"]["baseline_rest_pico_usd"] == 0
    assert ledger.spent_in_window(since=MIDNIGHT) == 45_000_000
    assert verify(ledger) == []


def test_sums_beyond_64_bits_stay_exact(ledger: Ledger) -> None:
    dear = 9_000_000 * PICO_PER_USD + 999_999_999_999
    one = attempt(cost_pico_usd=dear, cost_input_uncached_pico_usd=dear, cost_output_pico_usd=0)
    ledger.append([books(f"req_{n}", one) for n in range(3)])
    ledger.append([books(f"req_{n}", one) for n in range(3, 5)])

    assert ledger.spent_in_window(since=MIDNIGHT, team="search") == 5 * dear
    assert ledger.spent_in_window(since=MIDNIGHT, key_id="key_1") == 5 * dear
    with ledger.reading() as connection:
        row = connection.execute(select(DAY_TOTAL)).mappings().one()
    assert (row["cost_whole_usd"], row["cost_rest_pico_usd"]) == divmod(5 * dear, PICO_PER_USD)
    assert verify(ledger) == []
    rebuild_totals(ledger)
    assert verify(ledger) == []


def test_a_window_holds_what_was_admitted_in_it(ledger: Ledger) -> None:
    moments = [-MS_PER_HOUR * 13, -1, 0, 20 * 60_000, MS_PER_HOUR, 3 * MS_PER_HOUR]
    ledger.append(
        [
            books(f"req_{n}", admitted_at_ms=NOON_MS + moment, closed_at_ms=NOON_MS + 10**9)
            for n, moment in enumerate(moments)
        ]
    )

    def spent(since: datetime, **whose: str) -> int:
        return ledger.spent_in_window(since=since, **whose) // 45_000_000

    assert spent(MIDNIGHT - timedelta(days=1)) == 6
    assert spent(MIDNIGHT) == 5
    assert spent(NOON) == 4
    assert spent(NOON + timedelta(minutes=10)) == 3
    assert spent(NOON + timedelta(minutes=20)) == 3
    assert spent(NOON + timedelta(minutes=21)) == 2
    for whose in ({"team": "search"}, {"application": "site"}, {"key_id": "key_1"}):
        assert spent(NOON, **whose) == 4
        assert spent(NOON + timedelta(minutes=10), **whose) == 3
    for whose in (
        {"team": "x"},
        {"application": "x"},
        {"key_id": "x"},
        {"team": "search", "application": "x"},
    ):
        assert spent(NOON + timedelta(minutes=10), **whose) == 0


def test_attempts_are_listed_by_when_they_began(ledger: Ledger) -> None:
    ledger.append([books(f"req_{n}", attempt(started_at_ms=NOON_MS - n * 1000)) for n in range(5)])

    def listed(since: int, until: int | None = None, limit: int | None = None) -> list[str]:
        def at(seconds: int) -> datetime:
            return NOON + timedelta(seconds=seconds)

        rows = ledger.attempts(since=at(since), until=None if until is None else at(until), limit=limit)
        return [row["request_id"] for row in rows]

    assert listed(-4) == ["req_4", "req_3", "req_2", "req_1", "req_0"]
    assert listed(-3, -1) == ["req_3", "req_2"]
    assert listed(-4, limit=1) == ["req_4"]


def test_a_reader_sees_whole_requests_and_one_moment(ledger: Ledger, ledger_url: str) -> None:
    ledger.append([books("req_1")])
    with ledger.reading() as connection:
        before = connection.execute(select(func.sum(HOUR_TOTAL.c.requests))).scalar_one()
        other = open_ledger(ledger_url)
        other.append([books("req_2")])
        other.close()
        after = connection.execute(select(func.count()).select_from(REQUEST)).scalar_one()
    assert (before, after) == (1, 1)
    assert count(ledger) == (2, 2)


KEY = StoredKey(
    key_id="key_1",
    key_hash="ab" * 32,
    team="search",
    tiers=frozenset({"small", "fast"}),
    requests_per_minute=60,
    created_at_ms=1,
)


def test_a_key_comes_back_as_it_was_kept(ledger: Ledger) -> None:
    other = StoredKey(key_id="key_0", key_hash="cd" * 32, team="shop", regions=frozenset(), created_at_ms=2)
    ledger.add_key(KEY)
    ledger.add_key(other)
    assert ledger.list_keys() == [KEY, other]


def test_a_key_can_not_be_kept_twice(ledger: Ledger) -> None:
    ledger.add_key(KEY)
    with pytest.raises(ValueError, match="there is a key key_1 already"):
        ledger.add_key(KEY)
    assert ledger.list_keys() == [KEY]


def test_a_revoked_key_is_listed_and_holds_no_more(ledger: Ledger) -> None:
    ledger.add_key(KEY)
    assert ledger.key_rows() == [KEY]
    assert ledger.revoke_key("key_1", 77)
    assert not ledger.revoke_key("key_1", 99)
    assert not ledger.revoke_key("key_2", 99)
    assert ledger.key_rows() == []
    assert [key.revoked_at_ms for key in ledger.list_keys()] == [77]


def test_a_price_is_kept_once_and_an_edited_one_is_named(ledger: Ledger) -> None:
    first = StoredPrice(
        id="book:luna@2026-06-01", model="luna", from_date="2026-06-01", sheet='{"input":"1"}'
    )
    edited = StoredPrice(
        id="book:luna@2026-06-01", model="luna", from_date="2026-06-01", sheet='{"input":"2"}'
    )
    assert ledger.save_price_rows([first], now_ms=1) == ()
    assert ledger.save_price_rows([first, first], now_ms=2) == ()
    assert ledger.save_price_rows([edited], now_ms=3) == ("book:luna@2026-06-01",)
    assert ledger.save_price_rows([first]) == ()


def test_a_version_of_the_file_and_a_fact_are_kept(ledger: Ledger) -> None:
    ledger.save_config_version("d1", path="faregate.toml", text="schema = 1", taken_at_ms=1)
    ledger.save_config_version("d1", path="other.toml", text="schema = 1", taken_at_ms=2)
    assert dict(ledger.facts()) == {}
    ledger.set_fact("made_up", "1")
    ledger.set_fact("made_up", "2")
    assert dict(ledger.facts()) == {"made_up": "2"}


def test_an_url_of_another_database_is_refused_without_repeating_it() -> None:
    for url in ("mysql://root:hunter2@host/db", "nonsense:hunter2", "sqlite://", "oracle://u:hunter2@h"):
        with pytest.raises(NotALedgerUrl) as told:
            open_ledger(url)
        assert "hunter2" not in str(told.value)


def test_a_database_that_is_away_is_said_without_its_password(tmp_path: object) -> None:
    url = f"postgresql://someone:hunter2@/x?host={tmp_path}"
    with pytest.raises(LedgerAway) as told:
        open_ledger(url)
    assert "hunter2" not in str(told.value)
    later = open_ledger(url, wait=False)
    assert not later.is_prepared
    with pytest.raises(LedgerAway):
        later.append([books()])
    later.close()


def test_why_a_database_cannot_be_used_is_said_in_words(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.write_bytes(b"these are not pages of a database " * 100)
    for url, reason in (
        ("postgresql://someone:hunter2@127.0.0.1:1/x", "nobody listens at its address"),
        ("postgresql://someone:hunter2@nowhere.invalid/x", "the name of its machine is not known"),
        (f"sqlite:///{file}", "its file is no ledger"),
        (f"sqlite:///{file}/ledger.db", "its file cannot be opened"),
    ):
        with pytest.raises(LedgerAway, match=f"^the database cannot be used: {reason}$"):
            open_ledger(url)


small = st.integers(0, 10**12)


@st.composite
def any_books(draw: st.DrawFn) -> Books:
    id_ = f"req_{draw(st.integers(0, 30))}"
    made = tuple(
        attempt(
            n + 1,
            deployment=draw(st.sampled_from(["a", "b"])),
            state=draw(st.sampled_from(["settled", "estimated", "unbilled"])),
            input_cached=draw(small),
            output_reasoning=draw(small),
            **_costs(draw),
        )
        for n in range(draw(st.integers(0, 3)))
    )
    costs = [one.cost_pico_usd for one in made]
    end = closed(
        id_,
        state=draw(st.sampled_from(["answered", "failed", "cancelled"])),
        attempts=made,
        cost_pico_usd=None if None in costs else sum(cost or 0 for cost in costs),
        baseline_pico_usd=draw(st.none() | small),
    )
    start = admitted(
        id_,
        admitted_at_ms=NOON_MS + draw(st.integers(-5, 20)) * MS_PER_HOUR // 2,
        team=draw(st.sampled_from(["x", "y"])),
        application=draw(st.none() | st.just("site")),
    )
    return Books(start, end)


def _costs(draw: st.DrawFn) -> dict[str, int | None]:
    names = ("input_uncached", "input_cached", "cache_write", "output", "fees")
    costs: dict[str, int | None] = {
        f"cost_{name}_pico_usd": draw(st.integers(0, 3 * 10**12)) for name in names
    }
    costs["cost_pico_usd"] = draw(st.none() | st.just(sum(cost or 0 for cost in costs.values())))
    return costs


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.lists(any_books(), max_size=8), max_size=6), again=st.randoms(use_true_random=False)
)
def test_totals_are_the_rows_however_they_came(
    ledger: Ledger, batches: list[list[Books]], again: Random
) -> None:
    for batch in batches:
        ledger.append(batch)
    if batches:
        ledger.append(again.choice(batches))
    assert verify(ledger) == []


def test_what_does_not_add_up_is_listed_and_totals_are_mended(ledger: Ledger) -> None:
    ledger.append([books("req_1"), books("req_2", attempt(1), attempt(2)), books("req_3", team="shop")])
    with ledger.writing() as connection:
        connection.exec_driver_sql(
            "UPDATE hour_total SET output_text = 11, cost_whole_usd = 1 WHERE team = 'shop'"
        )
        connection.exec_driver_sql("DELETE FROM day_total WHERE team = 'shop'")
        connection.exec_driver_sql("DELETE FROM attempt WHERE request_id = 'req_2' AND n = 1")
        connection.exec_driver_sql("UPDATE attempt SET cost_output_pico_usd = 1 WHERE request_id = 'req_1'")
        connection.exec_driver_sql("DELETE FROM request WHERE id = 'req_3'")

    found = verify(ledger)

    text = "\n".join(found)
    assert "request req_2: it says 2 attempts, and there are 1, the last of them number 2" in found
    assert "request req_2: its cost is 0.00009 USD, its attempts cost 0.000045 USD" in found
    assert "attempt 1 of req_3: there is no such request" in found
    assert "attempt 1 of req_1: its cost is 0.000019999999 USD more than its parts add up to" in found
    assert "hour 2026-11-30 12:00, team shop" in text
    assert "there are no rows for this total" in text

    assert rebuild_totals(ledger) == 2
    assert not [line for line in verify(ledger) if line.startswith(("hour", "day"))]

"""The recorder makes nobody wait, and everything it was told gets into the ledger once."""

import resource
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import select

from gateway.recorder import CannotRecord, Recorder
from ledger.spool import Place, Reader, Spool
from ledger.store import Ledger, LedgerAway, open_ledger
from ledger.tables import REQUEST
from ledger.verify import verify
from tests.ledger.builders import admitted, attempt, closed

DAY = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.fixture
def ledger(tmp_path: Path) -> Generator[Ledger]:
    opened = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    yield opened
    opened.close()


@pytest.fixture
def make(ledger: Ledger, tmp_path: Path) -> Generator[Callable[..., Recorder]]:
    """Makes recorders and closes them."""
    made: list[Recorder] = []

    def make(**more: Any) -> Recorder:
        spool = Spool(tmp_path / "spool", segment_bytes=more.pop("segment_bytes", 1_000_000))
        recorder = Recorder(ledger, spool, pause_seconds=0.001, random=Random(1), **more)
        made.append(recorder)
        return recorder

    yield make
    for recorder in made:
        recorder.close(5)


class Database:
    """The database, from the side that can take it away."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @contextmanager
    def is_broken(self) -> Generator[None]:
        """While it lasts every write fails at once."""
        with self._ledger.writing() as connection:
            connection.exec_driver_sql("ALTER TABLE request RENAME TO away")
        yield
        with self._ledger.writing() as connection:
            connection.exec_driver_sql("ALTER TABLE away RENAME TO request")


def take(recorder: Recorder, first: int, count: int) -> None:
    for n in range(first, first + count):
        recorder.admitted(admitted(f"req_{n}"))
        recorder.closed(closed(f"req_{n}"))


def ids(ledger: Ledger) -> set[str]:
    with ledger.reading() as connection:
        return set(connection.execute(select(REQUEST.c.id)).scalars())


def until(condition: Callable[[], object]) -> None:
    """Wait for another thread; fails after 10 s."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        threading.Event().wait(0.002)


def test_what_was_closed_is_in_the_ledger_and_nothing_stays_behind(
    ledger: Ledger, make: Callable[..., Recorder], tmp_path: Path
) -> None:
    recorder = make()
    recorder.start()
    take(recorder, 0, 1200)
    assert recorder.close(10)

    assert len(ids(ledger)) == 1200
    assert ledger.spent_in_window(since=DAY) == 1200 * 45_000_000
    assert verify(ledger) == []
    assert list((tmp_path / "spool").iterdir()) == []
    stats = recorder.stats()
    assert (stats.waiting, stats.lag_seconds, stats.recorded, stats.open) == (0, 0.0, 1200, 0)


def test_both_calls_have_written_before_they_return(make: Callable[..., Recorder], tmp_path: Path) -> None:
    recorder = make()  # not started: nothing but the calls themselves can write
    recorder.admitted(admitted("req_1"))
    recorder.closed(closed("req_1"))
    (segment,) = (tmp_path / "spool").glob("*/*.spool")
    first, second = segment.read_bytes().splitlines()
    assert first[14:15] == b"a"
    assert second[14:15] == b"c"


def test_a_second_closing_changes_nothing(ledger: Ledger, make: Callable[..., Recorder]) -> None:
    recorder = make()
    recorder.start()
    recorder.admitted(admitted("req_1"))
    recorder.closed(closed("req_1"))
    recorder.closed(closed("req_1", attempt(1), attempt(2)))
    recorder.closed(closed("req_never_admitted"))
    recorder.close(10)
    assert recorder.stats().strays == 2
    assert ids(ledger) == {"req_1"}
    assert ledger.spent_in_window(since=DAY) == 45_000_000


def test_what_is_open_at_the_end_is_interrupted(ledger: Ledger, make: Callable[..., Recorder]) -> None:
    recorder = make()
    recorder.start()
    recorder.admitted(admitted("req_1"))
    assert recorder.stats().open == 1
    assert recorder.close(10)
    row = next(iter(ledger.attempts(since=DAY)))
    assert (row["request_state"], row["flags"]) == ("failed", ["interrupted"])


def test_while_the_database_is_away_memory_is_bounded_and_nothing_is_lost(
    ledger: Ledger, make: Callable[..., Recorder]
) -> None:
    recorder = make(queue_limit=50, batch=20, segment_bytes=20_000)
    with Database(ledger).is_broken():
        recorder.start()
        take(recorder, 0, 400)
        until(lambda: recorder.stats().write_failures)
        stats = recorder.stats()
        assert stats.is_behind
        assert stats.waiting == 400
        assert stats.lag_seconds > 0
        assert len(recorder._queue) <= 50  # pyright: ignore[reportPrivateUsage] - the bound is the point
        take(recorder, 400, 100)
    take(recorder, 500, 30)
    until(lambda: not recorder.stats().is_behind)
    take(recorder, 530, 30)
    assert recorder.close(10)
    assert ids(ledger) == {f"req_{n}" for n in range(560)}
    assert verify(ledger) == []


@pytest.mark.parametrize("limit", [1, 7, 40])
def test_it_catches_up_while_more_comes(ledger: Ledger, make: Callable[..., Recorder], limit: int) -> None:
    recorder = make(queue_limit=limit, batch=5, segment_bytes=5_000)
    recorder.start()
    take(recorder, 0, 400)
    assert recorder.close(20)
    assert ids(ledger) == {f"req_{n}" for n in range(400)}
    assert ledger.spent_in_window(since=DAY) == 400 * 45_000_000
    assert verify(ledger) == []


def test_a_stream_that_outlives_many_segments_is_closed_as_it_ended(
    ledger: Ledger, make: Callable[..., Recorder], tmp_path: Path
) -> None:
    recorder = make(segment_bytes=5_000, batch=10)
    recorder.start()
    recorder.admitted(admitted("long"))
    for n in range(20):
        take(recorder, n * 10, 10)
        until(lambda: not recorder.stats().waiting)
    assert len(list((tmp_path / "spool").glob("*/*.spool"))) <= 3  # the consumed ones are gone
    (path,) = (path for path in (tmp_path / "spool").iterdir() if path.name != "bad")
    reader = Reader(path)
    assert len(list(reader.more())) < 200
    assert "long" in reader.open  # so that a crash now would not lose it
    recorder.closed(closed("long"))
    assert recorder.close(10)
    assert ids(ledger) == {"long"} | {f"req_{n}" for n in range(200)}
    assert verify(ledger) == []


def test_what_stays_when_time_is_up_is_taken_by_the_next(
    ledger: Ledger, make: Callable[..., Recorder]
) -> None:
    recorder = make()
    with Database(ledger).is_broken():
        recorder.start()
        take(recorder, 0, 10)
        assert not recorder.close(0.05)
    following = make()
    following.start()
    assert following.wait_recovered(10)
    assert ids(ledger) == {f"req_{n}" for n in range(10)}
    assert following.stats().recovered == 10
    assert following.close(10)
    assert verify(ledger) == []


@contextmanager
def full_disk(size: int) -> Generator[None]:
    """No file grows beyond so many bytes; the write that meets the limit is cut."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_refuses_requests_and_keeps_what_is_under_way(
    ledger: Ledger, make: Callable[..., Recorder]
) -> None:
    recorder = make()
    recorder.admitted(admitted("req_1"))
    recorder.admitted(admitted("req_2"))
    recorder.closed(closed("req_1"))
    place = recorder._spool.place  # pyright: ignore[reportPrivateUsage]
    with full_disk(place.position + 300):
        with pytest.raises(CannotRecord):
            recorder.admitted(admitted("req_3"))
        assert not recorder.can_accept()
        assert recorder.stats().spool_full
        recorder.closed(closed("req_2"))  # what it cost is kept all the same
    until(recorder.can_accept)
    recorder.admitted(admitted("req_4"))
    recorder.closed(closed("req_4"))
    reader = Reader(recorder._spool.path)  # pyright: ignore[reportPrivateUsage]
    assert [spooled.books.closed.id for spooled in reader.more()] == ["req_1", "req_4"]
    assert reader.damaged == []
    recorder.start()
    assert recorder.close(10)
    assert ids(ledger) == {"req_1", "req_2", "req_4"}
    assert recorder.stats().damaged == 0
    assert verify(ledger) == []


@pytest.mark.parametrize("text", ["a\0b", "half \ud800 of a pair", "x" * 10_000_000])
def test_a_text_that_no_database_takes_is_mended(
    ledger: Ledger, make: Callable[..., Recorder], text: str
) -> None:
    recorder = make()
    recorder.start()
    recorder.admitted(admitted("req_1", user=text, team="search"))
    recorder.closed(closed("req_1", attempt(model_answered=text, tools={"a": 1})))
    assert recorder.close(10)
    with ledger.reading() as connection:
        user = connection.execute(select(REQUEST.c.user)).scalar_one()
    assert user in ("a\ufffdb", "half ? of a pair", "x" * 512)
    assert recorder.stats().refused == 0
    assert verify(ledger) == []


def test_what_no_table_can_keep_does_not_hold_up_the_rest(
    ledger: Ledger, make: Callable[..., Recorder], tmp_path: Path
) -> None:
    recorder = make()
    recorder.start()
    recorder.admitted(admitted("req_bad"))
    recorder.closed(closed("req_bad", attempt(output_text=2**63)))
    take(recorder, 0, 10)
    assert recorder.close(10)
    assert ids(ledger) == {f"req_{n}" for n in range(10)}
    assert recorder.stats().refused == 1
    assert [path.name for path in (tmp_path / "spool" / "bad").iterdir()] == ["refused-req_bad.bad"]


def test_a_database_that_is_away_at_the_start_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "not yet"
    folder.write_text("in the way")
    url = f"sqlite:///{folder}/ledger.db"
    with pytest.raises(LedgerAway):
        open_ledger(url)
    ledger = open_ledger(url, wait=False)
    recorder = Recorder(ledger, Spool(tmp_path / "spool"), pause_seconds=0.001)
    recorder.start()
    take(recorder, 0, 3)
    until(lambda: recorder.stats().write_failures)
    folder.unlink()
    assert recorder.close(10)
    assert ids(ledger) == {"req_0", "req_1", "req_2"}
    ledger.close()


def test_a_place_is_ordered_by_segment_then_bytes() -> None:
    assert Place(1, 900) < Place(2, 0) < Place(2, 1)


def test_it_costs_little(make: Callable[..., Recorder]) -> None:
    recorder = make()
    entries = [(admitted(f"req_{n}"), closed(f"req_{n}")) for n in range(2000)]
    best = 1.0
    for part in range(10):
        begun = time.thread_time()
        for start, end in entries[part * 200 : part * 200 + 200]:
            recorder.admitted(start)
            recorder.closed(end)
        best = min(best, (time.thread_time() - begun) / 200)
    assert best < 100e-6  # some 12 us on a quiet machine; this only catches a blunder

"""What a dead process left in its spool gets into the ledger: all of it, once."""

import os
import shutil
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import func, select

from ledger.recovery import recover, replay
from ledger.rows import interrupted
from ledger.spool import Reader, Spool, record_of
from ledger.store import Ledger, Mark, open_ledger
from ledger.tables import REQUEST, SPOOL_MARK
from ledger.verify import verify
from tests.ledger.builders import NOON_MS, admitted, attempt, books, closed

REPOSITORY = Path(__file__).parents[2]
LATER_MS = NOON_MS + 60_000


def states(ledger: Ledger) -> dict[str, str]:
    """State of every request."""
    with ledger.reading() as connection:
        return {row[0]: row[1] for row in connection.execute(select(REQUEST.c.id, REQUEST.c.state))}


def dead_spool(root: Path, *, closings: int = 5, open_: int = 2) -> Path:
    """A directory whose process lives no more."""
    spool = Spool(root)
    for n in range(closings + open_):
        spool.append(record_of(admitted(f"req_{n}")))
    for n in range(closings):
        spool.append(record_of(closed(f"req_{n}")))
    spool.close()
    return spool.path


def test_what_was_closed_is_written_and_what_was_open_is_interrupted(ledger: Ledger, tmp_path: Path) -> None:
    dead_spool(tmp_path / "spool", closings=5, open_=2)

    found = recover(ledger, tmp_path / "spool", now_ms=LATER_MS)

    assert (found.directories, found.requests, found.interrupted, found.damaged) == (1, 5, 2, ())
    assert sorted(states(ledger).values()) == ["answered"] * 5 + ["failed"] * 2
    assert verify(ledger) == []
    assert list((tmp_path / "spool").iterdir()) == []
    with ledger.reading() as connection:
        assert connection.execute(select(func.count()).select_from(SPOOL_MARK)).scalar_one() == 0


def test_an_interrupted_request_counts_its_input_and_says_what_is_not_known(ledger: Ledger) -> None:
    entry = admitted("req_1")
    ledger.append([(books("req_1"))._replace(closed=interrupted(entry, now_ms=LATER_MS))])

    row = next(iter(ledger.attempts(since=_day())))

    assert (row["state"], row["failure"], row["flags"]) == ("estimated", "interrupted", ["interrupted"])
    assert (row["input_uncached"], row["cost_pico_usd"]) == (250, 62_500_000)
    assert (row["output_low"], row["output_high"], row["output_text"]) == (0, 100, 0)
    assert (row["deployment"], row["price_id"]) == ("luna", "book:gpt-5.6-luna@2026-06-01")
    assert (row["request_state"], row["request_status"], row["status"]) == ("failed", 0, None)
    assert verify(ledger) == []


def test_an_interrupted_request_without_a_price_is_unpriced() -> None:
    end = interrupted(admitted(interrupted_pico_usd=None, interrupted_price_id=None), now_ms=LATER_MS)
    assert (end.cost_pico_usd, end.attempts[0].cost_pico_usd) == (None, None)
    assert end.attempts[0].flags == ("interrupted", "unpriced")


def test_a_directory_of_a_living_process_is_left_alone(ledger: Ledger, tmp_path: Path) -> None:
    alive = Spool(tmp_path)
    alive.append(record_of(admitted()))
    assert recover(ledger, tmp_path, now_ms=LATER_MS).directories == 0
    assert states(ledger) == {}
    alive.close()
    assert recover(ledger, tmp_path, now_ms=LATER_MS).interrupted == 1


def test_other_folders_are_left_alone(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("kept")
    assert recover(ledger, tmp_path, now_ms=LATER_MS).directories == 0
    assert (tmp_path / "mine" / "file").read_text() == "kept"
    assert recover(ledger, tmp_path / "not there", now_ms=LATER_MS).directories == 0


def test_what_the_mark_says_is_taken_is_not_taken_again(ledger: Ledger, tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append(record_of(admitted("req_1")))
    spool.append(record_of(admitted("req_2")))
    spool.append(record_of(closed("req_1")))
    taken = spool.place
    spool.append(record_of(closed("req_2")))
    spool.close()
    ledger.append([], Mark(directory=spool.directory, segment=taken.segment, position=taken.position))

    recover(ledger, tmp_path, now_ms=LATER_MS)

    assert states(ledger) == {"req_2": "answered"}  # its admission stands before the mark


def test_replayed_three_times_by_two_at_once_it_is_the_same_ledger(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    path = dead_spool(tmp_path / "spool", closings=300, open_=20)
    start = threading.Barrier(2)

    def again() -> None:
        own = open_ledger(ledger_url)
        start.wait(10)
        for _ in range(3):
            replay(own, path, now_ms=LATER_MS)
        own.close()

    threads = [threading.Thread(target=again) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len(states(ledger)) == 320
    assert ledger.spent_in_window(since=_day()) == 300 * 45_000_000 + 20 * 62_500_000
    assert verify(ledger) == []


def test_a_closing_whose_admission_is_damaged_keeps_its_cost(ledger: Ledger, tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append(record_of(admitted("req_1")).replace(b"search", b"SEARCH"))
    spool.append(record_of(closed("req_1")))
    spool.close()

    found = recover(ledger, tmp_path, now_ms=LATER_MS)

    assert [(damage.place, damage.torn) for damage in found.damaged] == [((1, 0), False)]
    assert ledger.spent_in_window(since=_day(), team="") == 45_000_000
    assert verify(ledger) == []
    assert [path.name for path in (tmp_path / "bad").iterdir()] == [f"{spool.directory}-00000001-0.bad"]


def test_a_request_that_no_table_can_keep_is_set_aside(ledger: Ledger, tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append(record_of(admitted("req_1")))
    spool.append(record_of(closed("req_1", attempt(input_uncached=10**17))))
    spool.close()
    found = recover(ledger, tmp_path, now_ms=LATER_MS)
    assert (found.requests, found.refused) == (0, 1)
    assert (tmp_path / "bad" / "refused-req_1.bad").stat().st_mode & 0o777 == 0o600


def test_a_spool_torn_at_any_byte_gives_what_is_whole(tmp_path: Path) -> None:
    first = record_of(admitted("req_1")) + record_of(admitted("req_2")) + record_of(closed("req_1"))
    whole = first + record_of(closed("req_2"))
    spool = Spool(tmp_path / "spool")
    spool.append(first)
    segment = spool.path / "00000001.spool"
    for size in range(len(first), len(whole)):
        segment.write_bytes(whole[:size])
        reader = Reader(spool.path)
        assert [spooled.books.closed.id for spooled in reader.more()] == ["req_1"]
        reader.finish()
        assert list(reader.open) == ["req_2"]
        assert [damage.torn for damage in reader.damaged] == [True] * (size > len(first)), size
    spool.close()

    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    found = recover(ledger, tmp_path / "spool", now_ms=LATER_MS)
    assert (found.requests, found.interrupted, len(found.damaged)) == (1, 1, 1)
    assert recover(ledger, tmp_path / "spool", now_ms=LATER_MS).damaged == ()  # said once
    assert states(ledger) == {"req_1": "answered", "req_2": "failed"}
    assert list((tmp_path / "spool").iterdir()) == []
    assert verify(ledger) == []
    ledger.close()


def test_killed_at_random_moments_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    _kill_again_and_again(tmp_path, rounds=6)


@pytest.mark.slow
def test_killed_a_hundred_times_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    _kill_again_and_again(tmp_path, rounds=100)


def _kill_again_and_again(tmp_path: Path, rounds: int) -> None:
    url, root, said = f"sqlite:///{tmp_path}/ledger.db", tmp_path / "spool", tmp_path / "said"
    said.mkdir()
    open_ledger(url).close()
    _run_crasher(url, str(root), str(said), str(rounds))

    ledger = open_ledger(url)
    recover(ledger, root, now_ms=LATER_MS)

    lines = [line.split() for file in said.iterdir() for line in file.read_text().splitlines()]
    closings = {id_ for what, id_ in lines if what == "c"}
    admissions = {id_ for what, id_ in lines if what == "a"}
    found = states(ledger)
    assert len(closings) > rounds
    assert {id_ for id_ in closings if found.get(id_) != "answered"} == set()
    assert admissions - found.keys() == set()
    # What was under way when each was killed, and no more.
    assert sum(state == "failed" for state in found.values()) <= rounds * 13
    assert verify(ledger) == []
    with ledger.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalars().all() == ["ok"]
    assert list(root.iterdir()) == []
    ledger.close()


def _run_crasher(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.ledger.crasher", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=True,
    )


def test_killed_while_it_replays_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    url, root = f"sqlite:///{tmp_path}/ledger.db", tmp_path / "spool"
    original = dead_spool(tmp_path / "first", closings=3000, open_=50)
    shutil.copytree(original, root / original.name)
    ledger = open_ledger(url)
    _run_crasher("replay", url, str(root), "5")

    recover(ledger, root, now_ms=LATER_MS)

    assert len(states(ledger)) == 3050
    assert ledger.spent_in_window(since=_day()) == 3000 * 45_000_000 + 50 * 62_500_000
    assert verify(ledger) == []
    ledger.close()


def _day() -> datetime:
    return datetime(2026, 11, 30, tzinfo=UTC)

"""A spool gives back what was put in, whatever happened to its files."""

import os
from pathlib import Path

import pytest

from ledger.entry import Admitted, Closed
from ledger.spool import Place, Reader, Spool, dead_directories, record_of
from tests.ledger.builders import admitted, closed


def closings(reader: Reader) -> list[str]:
    return [spooled.books.closed.id for spooled in reader.more()]


def spooled(root: Path, *entries: Admitted | Closed) -> Spool:
    spool = Spool(root)
    for entry in entries:
        spool.append(record_of(entry))
    return spool


def test_a_closing_comes_back_with_its_admission_and_its_place(tmp_path: Path) -> None:
    spool = spooled(tmp_path, admitted("1", customer="é\n"), admitted("2"), closed("1"))
    reader = Reader(spool.path)
    (found,) = list(reader.more())
    assert found.books == (admitted("1", customer="é\n"), closed("1"))
    assert found.behind == spool.place
    assert list(reader.open) == ["2"]
    spool.close()


def test_a_reader_goes_on_where_it_was_when_more_has_come(tmp_path: Path) -> None:
    spool = spooled(tmp_path, admitted("1"))
    reader = Reader(spool.path)
    assert closings(reader) == []
    spool.append(record_of(closed("1")))
    assert closings(reader) == ["1"]
    assert closings(reader) == []
    spool.begin_segment()
    spool.append(record_of(admitted("2")) + record_of(closed("2")))
    assert closings(reader) == ["2"]
    spool.close()


@pytest.mark.parametrize("cut", [1, 2, 30, len(record_of(closed("1"))) - 1])
def test_a_record_that_is_half_there_is_waited_for(tmp_path: Path, cut: int) -> None:
    record = record_of(closed("1"))
    spool = spooled(tmp_path, admitted("1"))
    spool.append(record[:-cut])
    reader = Reader(spool.path)
    assert closings(reader) == []
    spool.append(record[-cut:])
    assert closings(reader) == ["1"]
    assert reader.damaged == []
    assert reader.place == spool.place
    spool.close()


def test_only_what_is_behind_the_mark_is_given(tmp_path: Path) -> None:
    spool = spooled(tmp_path, admitted("1"), admitted("2"), closed("1"))
    mark = spool.place
    spool.append(record_of(closed("2")))
    reader = Reader(spool.path, mark)
    assert closings(reader) == ["2"]
    assert reader.open == {}
    spool.close()


def test_a_damaged_byte_anywhere_costs_one_record_and_names_it(tmp_path: Path) -> None:
    first, bad, last = (record_of(closed(name)) for name in ("1", "2", "3"))
    start = b"".join(record_of(admitted(name)) for name in ("1", "2", "3")) + first
    for at in (*range(24), *range(24, len(bad) - 1, 5), len(bad) - 1):
        root = tmp_path / str(at)
        spool = Spool(root)
        spool.append(start + bad[:at] + bytes([bad[at] ^ 0x55]) + bad[at + 1 :] + last)
        reader = Reader(spool.path)
        found = closings(reader)
        spool.close()
        if at == len(bad) - 1:
            assert found == ["1", "2", "3"]  # its line feed only: its length tells where it ends
            continue
        assert found == ["1", "3"], at
        assert list(reader.open) == ["2"]
        assert reader.damaged[0].place == Place(1, len(start))
        assert sum(damage.length for damage in reader.damaged) == len(bad)
        assert not any(damage.torn for damage in reader.damaged)
        kept = (root / "bad" / f"{spool.directory}-00000001-{len(start)}.bad").read_bytes()
        assert bad[: at // 2] in kept


def test_what_a_lost_power_leaves_at_the_end_is_nothing(tmp_path: Path) -> None:
    spool = spooled(tmp_path, admitted("1"), closed("1"))
    spool.append(b"\0" * 5000)
    reader = Reader(spool.path)
    assert closings(reader) == ["1"]
    reader.finish()
    assert reader.damaged == []
    spool.close()


def test_what_was_open_when_a_segment_began_is_known_without_those_before(tmp_path: Path) -> None:
    spool = spooled(tmp_path, admitted("1"), admitted("2"))
    number = spool.begin_segment()
    spool.write_open(number, [admitted("1"), admitted("2")])
    spool.forget_before(number)
    spool.append(record_of(closed("1")))
    reader = Reader(spool.path)
    assert closings(reader) == ["1"]
    assert list(reader.open) == ["2"]
    assert sorted(path.name for path in spool.path.iterdir()) == ["00000002.open", "00000002.spool", "lock"]
    spool.close()


def test_files_and_folders_are_private(tmp_path: Path) -> None:
    spool = spooled(tmp_path / "spool", admitted("1"))
    spool.write_open(1, [admitted("1")])
    for path in spool.path.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
    for path in (tmp_path / "spool", spool.path):
        assert path.stat().st_mode & 0o777 == 0o700
    spool.close()


def test_a_spool_is_dead_when_its_process_let_go(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    assert dead_directories(tmp_path) == []
    spool.close()
    ((path, lock),) = dead_directories(tmp_path)
    assert path == spool.path
    assert dead_directories(tmp_path) == []  # it is ours now
    os.close(lock)


def test_a_spool_that_is_not_needed_leaves_nothing(tmp_path: Path) -> None:
    spool = spooled(tmp_path, admitted("1"))
    assert spool.sync()
    assert not spool.sync()
    spool.close(remove=True)
    assert list(tmp_path.iterdir()) == []

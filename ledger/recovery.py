"""Takes the spools of dead processes into the ledger: what they closed, and as interrupted what was open."""

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ledger.rows import Books, interrupted
from ledger.spool import (
    BEGINNING,
    Damage,
    Place,
    Reader,
    dead_directories,
    record_of,
    remove_directory,
    set_aside,
)
from ledger.store import Ledger, Mark

_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What was found."""

    directories: int = 0
    requests: int = 0  # written now; they were closed and not yet in the database
    interrupted: int = 0  # written now; they were open when their process died
    refused: int = 0  # that no table can keep; set aside
    damaged: tuple[Damage, ...] = ()

    def __add__(self, other: "Recovered") -> "Recovered":
        return Recovered(
            directories=self.directories + other.directories,
            requests=self.requests + other.requests,
            interrupted=self.interrupted + other.interrupted,
            refused=self.refused + other.refused,
            damaged=self.damaged + other.damaged,
        )


def recover(ledger: Ledger, root: Path, *, now_ms: int) -> Recovered:
    """Replay all directories that no living process holds, and remove them.

    Raises LedgerAway: what is left stays for the next call. Safe to be killed in, and to be run by two.
    """
    found = Recovered()
    directories = dead_directories(root)
    try:
        for path, _ in directories:
            found += replay(ledger, path, now_ms=now_ms)
            remove_directory(path)
            ledger.forget_mark(path.name)
    finally:
        for _, lock in directories:
            os.close(lock)
    return found


def replay(ledger: Ledger, path: Path, *, now_ms: int) -> Recovered:
    """Take one directory, whose process is dead, into the ledger from its mark on. It is left as it is.

    Raises LedgerAway.
    """
    mark = ledger.mark_of(path.name)
    reader = Reader(path, BEGINNING if mark is None else Place(mark.segment, mark.position))
    written = refused = 0
    closings = reader.more()
    while batch := list(islice(closings, _AT_ONCE)):
        behind = batch[-1].behind
        done = ledger.append(
            [spooled.books for spooled in batch],
            Mark(directory=path.name, segment=behind.segment, position=behind.position),
        )
        written += done.written
        refused += keep_refused(path.parent, done.refused)
    reader.finish()
    cut_off = 0
    left = iter([Books(admitted, interrupted(admitted, now_ms=now_ms)) for admitted in reader.open.values()])
    while some := list(islice(left, _AT_ONCE)):
        done = ledger.append(some)
        cut_off += done.written
        refused += keep_refused(path.parent, done.refused)
    return Recovered(
        directories=1,
        requests=written,
        interrupted=cut_off,
        refused=refused,
        damaged=tuple(reader.damaged),
    )


def keep_refused(root: Path, refused: tuple[Books, ...]) -> int:
    """Set requests aside that no table can keep; how many."""
    for admitted, closed in refused:
        set_aside(root, f"refused-{closed.id}", record_of(admitted) + record_of(closed))
    return len(refused)

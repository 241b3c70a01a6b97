"""Writes down what happened, without making anybody wait.

`admitted` and `closed` are plain calls: each is one `write` to the spool, so that a killed process loses
nothing, and nothing in them can be cancelled. Everything slow is done by two threads: one brings the spool to
disk every 50 ms, the other brings closed requests into the ledger, every 200 ms or 500 at a time: a commit
costs as much as many rows, and what is in the spool is safe without it.

- The database is away: the writer tries again after a pause (0.1 to 5 s, with jitter). Up to `queue_limit`
  closed requests wait in memory; from then on the recorder is *behind*: new ones stay in the spool alone,
  and are read back from there. Memory does not grow, requests go on, nothing is lost.
- The disk is full: `can_accept` says no, and `admitted` raises `CannotRecord`, until there is room again
  (tried once a second). Closings of requests that are under way go straight to the queue.
- Other processes died: their spools are taken over, at the start and every few seconds.

A request that was admitted must be closed exactly once; a second closing changes nothing and is counted.
`admitted`, `closed` and `can_accept` are called from one thread.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import NamedTuple, TypeVar, cast

from msgspec.structs import replace

from ledger.entry import Admitted, Attempt, Closed
from ledger.recovery import Recovered, keep_refused, recover
from ledger.rows import Books, interrupted
from ledger.spool import Place, Reader, Spool, Spooled, record_of
from ledger.store import Ledger, LedgerAway, LedgerTooNew, Mark

log = logging.getLogger(__name__)

_PAUSES_A_BATCH = 4
_LONGEST_RECORD = 256 * 1024
_LONGEST_TEXT = 512
_MOST_PARTS = 64
_TRY_DISK_SECONDS = 1.0
_LEAST_PAUSE, _MOST_PAUSE = 0.1, 5.0


class CannotRecord(Exception):
    """The admission could not be written down, so the request must not be served (dependency_unavailable)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """How the recorder is doing, for metrics and readiness."""

    open: int  # requests that are admitted and not closed
    waiting: int  # closed requests that are not in the ledger yet, in memory or in the spool; nearly exact
    lag_seconds: float  # how long the ledger has not been up to date; 0: it is
    is_behind: bool  # more wait than memory holds
    spool_full: bool
    write_failures: int  # tries to write to the database that failed
    sync_failures: int
    recorded: int  # requests written by this process
    refused: int  # requests that no table can keep; they are in the spool's `bad` folder
    strays: int  # closings of requests that were not open
    recovered: int  # requests of dead processes, written by this one
    interrupted: int  # of those, the ones that were open when their process died
    damaged: int  # pieces of spools that were no records
    torn: int  # last records of dead processes that were half written


class _Waiting(NamedTuple):
    books: Books
    behind: Place  # of its closing in the spool


_NOWHERE = Place(0, 0)  # it is not in the spool


class Recorder:
    """Takes entries at once, and writes them to spool and ledger."""

    def __init__(
        self,
        ledger: Ledger,
        spool: Spool,
        *,
        queue_limit: int = 10_000,
        batch: int = 500,
        pause_seconds: float = 0.05,
        adopt_seconds: float = 10.0,
        random: Random | None = None,
    ) -> None:
        self._ledger = ledger
        self._spool = spool
        self._queue_limit = queue_limit
        self._batch_size = batch
        self._pause_seconds = pause_seconds
        self._adopt_seconds = adopt_seconds
        self._random = random or Random()  # spreads pauses
        self._open: dict[str, Admitted] = {}
        self._queue: deque[_Waiting] = deque()
        self._is_behind = False
        self._left_in_spool = 0
        self._begun: deque[tuple[int, list[Admitted]]] = (
            deque()
        )  # segments, and what was open when they began
        self._is_full = False
        self._try_disk_at = 0.0
        self._strays = 0
        # the writer's own
        self._batch: list[Books] = []
        self._batch_behind = Place(0, 0)
        self._reached = Place(0, 0)  # everything before it is in the ledger
        self._reader: Reader | None = None  # while catching up
        self._closings: Iterator[Spooled] = iter(())
        self._adopt_at = 0.0
        self._away_seconds = _LEAST_PAUSE
        self._up_to_date_at = time.monotonic()
        self._recorded = self._refused = self._damaged = 0
        self._write_failures = self._sync_failures = 0
        self._taken = Recovered()
        self._is_drained = False
        self._recovered = threading.Event()
        self._stopping = threading.Event()  # write what waits, then end
        self._stop_now = threading.Event()
        self._threads = (
            threading.Thread(target=self._sync_on, name="spool sync", daemon=True),
            threading.Thread(target=self._write_on, name="ledger writer", daemon=True),
        )

    def start(self) -> None:
        """Begin to write. The spools of dead processes come first."""
        for thread in self._threads:
            thread.start()

    def wait_recovered(self, seconds: float) -> bool:
        """Wait until the spools of dead processes are in the ledger; False: that takes longer."""
        return self._recovered.wait(seconds)

    # What a request calls

    def can_accept(self) -> bool:
        """Whether a new request could be written down."""
        return not self._is_full or self._disk_has_room()

    def admitted(self, entry: Admitted) -> None:
        """Write down that a request was let in, before anything of it is sent.

        Raises CannotRecord when that is not possible.
        """
        entry, record = _record_of(entry)
        try:
            self._spool.append(record)
        except OSError as wrong:
            self._disk_failed()
            raise CannotRecord(f"the spool cannot take a record: {wrong.strerror}") from None
        self._open[entry.id] = entry
        if self._spool.is_long:
            self._begin_segment()

    def closed(self, entry: Closed) -> None:
        """Write down how a request ended. Never raises."""
        admitted = self._open.pop(entry.id, None)
        if admitted is None:
            self._strays += 1
            return
        entry, record = _record_of(entry)
        is_spooled = not self._is_full
        if is_spooled:
            try:
                self._spool.append(record)
            except OSError:
                self._disk_failed()
                is_spooled = False
        # First written, then asked: the writer looks into the spool once more after it has said that it is
        # behind no longer, so each closing is seen there or comes here.
        if is_spooled and self._is_behind:
            self._left_in_spool += 1
            return
        queue = self._queue
        queue.append(_Waiting(Books(admitted, entry), self._spool.place if is_spooled else _NOWHERE))
        if len(queue) >= self._queue_limit:
            self._is_behind = True

    def _begin_segment(self) -> None:
        try:
            number = self._spool.begin_segment()
        except OSError:
            return  # the old one grows on
        self._begun.append((number, list(self._open.values())))

    def _disk_failed(self) -> None:
        if not self._is_full:
            self._is_full = True
            log.error("the spool's disk takes no more: new requests are refused until it does")
        self._try_disk_at = time.monotonic() + _TRY_DISK_SECONDS

    def _disk_has_room(self) -> bool:
        now = time.monotonic()
        if now < self._try_disk_at:
            return False
        if not self._spool.has_room():
            self._try_disk_at = now + _TRY_DISK_SECONDS
            return False
        self._is_full = False
        log.warning("the spool's disk has room again")
        return True

    # What others ask

    def stats(self) -> Stats:
        """Where it stands. Any thread may ask."""
        waiting = len(self._queue) + len(self._batch) + max(0, self._left_in_spool)
        taken = self._taken
        return Stats(
            open=len(self._open),
            waiting=waiting,
            lag_seconds=max(0.0, time.monotonic() - self._up_to_date_at) if waiting else 0.0,
            is_behind=self._is_behind or self._reader is not None,
            spool_full=self._is_full,
            write_failures=self._write_failures,
            sync_failures=self._sync_failures,
            recorded=self._recorded,
            refused=self._refused + taken.refused,
            strays=self._strays,
            recovered=taken.requests + taken.interrupted,
            interrupted=taken.interrupted,
            damaged=self._damaged + sum(not damage.torn for damage in taken.damaged),
            torn=sum(damage.torn for damage in taken.damaged),
        )

    def close(self, seconds: float = 10.0) -> bool:
        """Write what waits, for at most so long, and stop; False: something is left, and stands in the spool.

        Requests that are still open are closed as interrupted: the process is about to end.
        """
        for admitted in list(self._open.values()):
            self.closed(interrupted(admitted, now_ms=time.time_ns() // 1_000_000))
        deadline = time.monotonic() + seconds
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        self._stop_now.set()
        try:
            self._spool.close(remove=self._is_drained)
        except OSError:
            self._sync_failures += 1
            return False
        if self._is_drained:
            with suppress(LedgerAway):
                self._ledger.forget_mark(self._spool.directory)
        return self._is_drained

    # The thread that syncs

    def _sync_on(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._stopping.wait(self._pause_seconds)
            try:
                self._spool.sync()
            except OSError:
                self._sync_failures += 1

    # The thread that writes

    def _write_on(self) -> None:
        while not self._stop_now.is_set():
            # Asked first: whatever was closed before it was said is seen by this step.
            is_stopping = self._stopping.is_set()
            try:
                wrote = self._step()
            except (LedgerAway, LedgerTooNew) as wrong:
                self._failed(str(wrong))
            except Exception as wrong:  # the outermost loop of this thread, which must not end
                self._failed(f"unexpected {type(wrong).__name__}")
            else:
                self._away_seconds = _LEAST_PAUSE
                if wrote == 0 and is_stopping and not self._left():
                    self._is_drained = True
                    return
                if wrote < self._batch_size and self._reader is None:
                    self._stopping.wait(self._pause_seconds * _PAUSES_A_BATCH)

    def _failed(self, why: str) -> None:
        if self._away_seconds == _LEAST_PAUSE:
            log.error("the ledger cannot be written, entries stay in the spool: %s", why)
        self._write_failures += 1
        self._stop_now.wait(self._away_seconds * self._random.uniform(0.5, 1.0))
        self._away_seconds = min(_MOST_PAUSE, self._away_seconds * 2)

    def _left(self) -> bool:
        return bool(self._batch or self._queue or self._is_behind or self._reader is not None)

    def _step(self) -> int:
        """Write one batch; how many requests it held."""
        if time.monotonic() >= self._adopt_at:
            self._taken += recover(self._ledger, self._spool.root, now_ms=time.time_ns() // 1_000_000)
            self._recovered.set()
            self._adopt_at = time.monotonic() + self._adopt_seconds
        if not self._batch:
            self._fill_batch()
        count = len(self._batch)
        if count:
            place = self._batch_behind
            done = self._ledger.append(
                self._batch,
                Mark(directory=self._spool.directory, segment=place.segment, position=place.position),
            )
            self._reached = place
            self._recorded += done.written
            self._batch = []
            self._keep(done.refused)
            self._let_go()
        if not self._left():
            self._up_to_date_at = time.monotonic()
        return count

    def _keep(self, refused: tuple[Books, ...]) -> None:
        if refused:
            self._refused += len(refused)
            log.error("the ledger cannot take %d requests; they are set aside beside the spool", len(refused))
            try:
                keep_refused(self._spool.root, refused)
            except OSError as wrong:
                log.error("and cannot be set aside (%s): %s", wrong.strerror, [b.closed.id for b in refused])

    def _fill_batch(self) -> None:
        if self._reader is None:
            if self._fill_from_queue():
                return
            if not self._is_behind:
                return
            self._reader = Reader(self._spool.path, self._reached)
            self._closings = self._reader.more()
        some = list(islice(self._closings, self._batch_size))
        if some:
            self._batch = [spooled.books for spooled in some]
            self._batch_behind = some[-1].behind
            self._left_in_spool -= len(some)
        elif self._is_behind:
            self._is_behind = False
            self._closings = self._reader.more()
        else:
            self._damaged += len(self._reader.damaged)
            self._reader = None
            self._left_in_spool = 0

    def _fill_from_queue(self) -> bool:
        queue, reached = self._queue, self._reached
        batch: list[Books] = []
        self._batch_behind = reached
        while queue and len(batch) < self._batch_size:
            waiting = queue.popleft()
            if waiting.behind <= reached and waiting.behind != _NOWHERE:
                continue  # it was read back from the spool
            batch.append(waiting.books)
            self._batch_behind = max(self._batch_behind, waiting.behind)
        self._batch = batch
        return bool(batch)

    def _let_go(self) -> None:
        """Remove the segments that are taken; what was open when the next began is kept beside that one."""
        last: tuple[int, list[Admitted]] | None = None
        while self._begun and self._begun[0][0] <= self._reached.segment:
            last = self._begun.popleft()
        if last is None:
            return
        number, were_open = last
        try:
            self._spool.write_open(number, were_open)
            self._spool.forget_before(number)
        except OSError:
            self._sync_failures += 1  # the files stay until the next segment is taken


_Entry = TypeVar("_Entry", Admitted, Closed)
_Values = TypeVar("_Values", Admitted, Closed, Attempt)


def _record_of(entry: _Entry) -> tuple[_Entry, bytes]:
    """The entry and its record; texts that no database takes, and endless ones, are mended in both."""
    try:
        record = record_of(entry)
        if len(record) <= _LONGEST_RECORD and b"\\u0000" not in record:
            return entry, record
    except UnicodeEncodeError:
        pass
    entry = _mended(entry)
    return entry, record_of(entry)


def _mended(values: _Values) -> _Values:
    return replace(
        values, **{name: _mended_value(getattr(values, name)) for name in values.__struct_fields__}
    )


def _mended_value(value: object) -> object:
    if isinstance(value, str):
        return value[:_LONGEST_TEXT].encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    if isinstance(value, Attempt):
        return _mended(value)
    if isinstance(value, tuple):
        return tuple(_mended_value(part) for part in cast("tuple[object, ...]", value)[:_MOST_PARTS])
    if isinstance(value, dict):
        parts = islice(cast("dict[str, int]", value).items(), _MOST_PARTS)
        return {str(_mended_value(name)): count for name, count in parts}
    return value

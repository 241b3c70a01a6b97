"""What was admitted and closed and is not in the database yet: files that are only ever appended to.

Each process has a directory of its own, `<root>/<id>/`, held by a lock as long as it lives:

- `NNNNNNNN.spool`, the segments: one record for each admission and each closing, in order;
- `NNNNNNNN.open`, beside each segment but the first: the admissions that were open when it began. With it the
  segments before are needed no more, once they are taken.

A record is written by a single `write`, so a process that is killed loses none that was written; a machine
that loses power loses at most what came after the last `sync`. It is one line: a checksum of 8 hex digits,
the length of what follows in 6, a letter (`a` admitted, `c` closed), JSON, a line feed. The length lets a
reader go on behind a record whose line feed is damaged; where more is, it goes on behind the next line feed.

What cannot be read is set aside in `<root>/bad/`, named by its place, and reported; the rest is read.
"""

import errno
import fcntl
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from ledger.entry import Admitted, Closed
from ledger.rows import Books, unattributed

SEGMENT_BYTES = 16 * 1024 * 1024
_HEAD = 14  # checksum and length
_READ_BYTES = 1024 * 1024
_LONGEST_RECORD = 16 * 1024 * 1024 - 1
_LOCK = "lock"
_BAD = "bad"
_UNBORN = ".new-"
_NAME = re.compile(r"[0-9a-f]{12}-[0-9a-f]{8}")

_encode = msgspec.json.Encoder().encode
_decode_admitted = msgspec.json.Decoder(Admitted).decode
_decode_closed = msgspec.json.Decoder(Closed).decode


class Place(NamedTuple):
    """A place in a spool directory. Places are ordered."""

    segment: int
    position: int  # bytes from the segment's start


BEGINNING = Place(0, 0)


class Spooled(NamedTuple):
    """A request that was closed, and the place behind its closing."""

    books: Books
    behind: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A piece of a spool that is no record."""

    directory: str
    place: Place
    length: int
    torn: bool  # True: the end of the last write of a process that died, nothing to worry about


def record_of(entry: Admitted | Closed) -> bytes:
    """One line of a spool.

    Raises UnicodeEncodeError for a text that is not Unicode (half a surrogate pair).
    """
    body = (b"a" if type(entry) is Admitted else b"c") + _encode(entry)
    return b"%08x%06x%b\n" % (crc32(body), len(body), body)


class Spool:
    """The spool of this process. One thread appends; another may `sync` and `forget_before`."""

    def __init__(self, root: str | Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Make a directory of its own under `root`. Raises OSError where that cannot be."""
        self.root = Path(root)
        self._segment_bytes = segment_bytes
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory = f"{time.time_ns() // 1_000_000:012x}-{secrets.token_hex(4)}"
        self._path = self.root / self.directory
        # It gets its name only when it is locked: nobody must take it for that of a dead process.
        unborn = self.root / f"{_UNBORN}{self.directory}"
        unborn.mkdir(mode=0o700)
        self._lock = _locked(unborn)
        unborn.rename(self._path)
        self._retired: deque[int] = deque()  # segments that are full, to be synced and closed
        self._segment = 0
        self._fd = -1
        self._position = 0
        self._synced = Place(0, 0)
        self._is_ragged = False
        self._open_segment(1)

    def __repr__(self) -> str:
        return f"Spool({self.directory}, {self.place})"

    @property
    def place(self) -> Place:
        """Behind the last record."""
        return Place(self._segment, self._position)

    @property
    def path(self) -> Path:
        """Its directory."""
        return self._path

    def append(self, record: bytes) -> None:
        """Write one record, whole or not at all. Raises OSError when it could not be written."""
        if self._is_ragged:
            self._mend()
        written = os.write(self._fd, record)
        if written != len(record):
            self._is_ragged = True
            self._mend()
            raise OSError(errno.ENOSPC, "the disk took a part of a record only")
        self._position += written

    def _mend(self) -> None:
        # A full disk took the beginning of a record.
        os.ftruncate(self._fd, self._position)
        self._is_ragged = False

    def has_room(self, length: int = 64 * 1024) -> bool:
        """Try whether the disk takes this many bytes, and give them back."""
        try:
            if self._is_ragged:
                self._mend()
            written = os.write(self._fd, b"\n" * length)
            os.ftruncate(self._fd, self._position)
        except OSError:
            self._is_ragged = True
            return False
        return written == length

    @property
    def is_long(self) -> bool:
        """Whether it is time for the next segment."""
        return self._position >= self._segment_bytes

    def begin_segment(self) -> int:
        """Go on in a new file; its number. `write_open` belongs to it. On OSError it goes on as before."""
        self._open_segment(self._segment + 1)
        return self._segment

    def _open_segment(self, number: int) -> None:
        path = self._path / f"{number:08d}.spool"
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if self._fd >= 0:
            self._retired.append(self._fd)
        self._fd, self._segment, self._position = fd, number, 0

    def write_open(self, segment: int, admissions: Iterable[Admitted]) -> None:
        """Keep the admissions that were open when a segment began, so that earlier segments may go."""
        path = self._path / f"{segment:08d}.open"
        partial = path.with_suffix(".part")
        with open(partial, "wb", opener=_private) as file:
            for admitted in admissions:
                file.write(record_of(admitted))
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        _sync_folder(self._path)

    def forget_before(self, segment: int) -> None:
        """Remove the segments before this one: all in them is taken, and what was open stands in `.open`."""
        for path in list(self._path.iterdir()):
            number = _number_of(path)
            if number is not None and number < segment:
                path.unlink(missing_ok=True)

    def sync(self) -> bool:
        """Bring to disk what was appended; False: there was nothing."""
        place = self.place
        if place == self._synced and not self._retired:
            return False
        while self._retired:
            fd = self._retired.popleft()
            os.fdatasync(fd)
            os.close(fd)
        os.fdatasync(self._fd)
        if place.segment != self._synced.segment:
            _sync_folder(self._path)
        self._synced = place
        return True

    def close(self, *, remove: bool = False) -> None:
        """Sync and let go; with `remove`, which needs that all of it is taken, leave nothing behind."""
        if self._fd < 0:
            return
        self.sync()
        os.close(self._fd)
        self._fd = -1
        if remove:
            remove_directory(self._path)
        os.close(self._lock)


class Reader:
    """Reads one directory from a place on, in order, and pairs closings with their admissions.

    Segments before that place are read for their admissions only. It may be used while the directory is
    appended to: `more` gives what is complete so far and can be called again.
    """

    def __init__(self, path: Path, after: Place = BEGINNING) -> None:
        self._path = path
        self._after = after
        self.open: dict[str, Admitted] = {}  # admitted and not closed, as far as was read
        self.damaged: list[Damage] = []
        self._segment = 0
        self._position = 0
        self._rest = b""

    @property
    def place(self) -> Place:
        """Behind the last record that was read, or set aside."""
        return Place(self._segment, self._position)

    def more(self) -> Generator[Spooled]:
        """What was closed behind the place it was made with and is not given yet."""
        if self._segment == 0 and not self._next_segment():
            return
        while True:
            is_last = self._following() is None  # asked first: a segment that has a successor grows no more
            yield from self._rest_of_segment()
            if is_last:
                return
            if self._rest:
                self._set_aside(self._rest, torn=False)
                self._rest = b""
            self._next_segment()

    def finish(self) -> None:
        """Nobody will append any more: what is left at the end was torn."""
        if self._rest.strip(b"\n\0"):
            self._set_aside(self._rest, torn=True)
        self._position += len(self._rest)
        self._rest = b""

    def _following(self) -> int | None:
        numbers = (_number_of(path) for path in self._path.glob("*.spool"))
        return min(
            (number for number in numbers if number is not None and number > self._segment), default=None
        )

    def _next_segment(self) -> bool:
        number = self._following()
        if number is None:
            return False
        self._segment, self._position, self._rest = number, 0, b""
        beside = self._path / f"{number:08d}.open"
        if beside.exists():
            for body, _ in _bodies(beside.read_bytes()):
                entry = None if body is None else _entry_of(body)
                if isinstance(entry, Admitted):
                    self.open.setdefault(entry.id, entry)
        return True

    def _rest_of_segment(self) -> Generator[Spooled]:
        with (self._path / f"{self._segment:08d}.spool").open("rb") as file:
            file.seek(self._position + len(self._rest))
            while piece := file.read(_READ_BYTES):
                data = self._rest + piece
                taken = 0
                for body, end in _bodies(data):
                    start, taken = taken, end
                    entry = None if body is None else _entry_of(body)
                    before = self._position
                    self._position += end - start
                    if entry is None:
                        self._set_aside(data[start:end], torn=False, at=before)
                    elif isinstance(entry, Admitted):
                        self.open[entry.id] = entry
                    else:
                        admitted = self.open.pop(entry.id, None)
                        if self.place > self._after:
                            yield Spooled(Books(admitted or unattributed(entry), entry), self.place)
                self._rest = data[taken:]
                if len(self._rest) > _LONGEST_RECORD + _HEAD:
                    self._set_aside(self._rest, torn=False)
                    self._position += len(self._rest)
                    self._rest = b""

    def _set_aside(self, data: bytes, *, torn: bool, at: int | None = None) -> None:
        if not data.strip(b"\n\0"):
            return
        place = Place(self._segment, self._position if at is None else at)
        if place < self._after:
            return  # reported when it was read for the first time
        damage = Damage(directory=self._path.name, place=place, length=len(data), torn=torn)
        self.damaged.append(damage)
        if not torn:
            name = f"{self._path.name}-{place.segment:08d}-{place.position}"
            set_aside(self._path.parent, name, data)


def set_aside(root: Path, name: str, data: bytes) -> None:
    """Keep bytes that cannot be taken, for a person to look at."""
    folder = root / _BAD
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(folder / f"{re.sub('[^A-Za-z0-9._-]', '_', name)}.bad", "wb", opener=_private) as file:
        file.write(data)


def dead_directories(root: Path) -> list[tuple[Path, int]]:
    """Directories whose process lives no more, oldest first, each with its lock, now ours: close it."""
    found: list[tuple[Path, int]] = []
    if not root.is_dir():
        return found
    for path in sorted(root.iterdir()):
        unborn, name = path.name.startswith(_UNBORN), path.name.removeprefix(_UNBORN)
        if not _NAME.fullmatch(name):
            continue
        try:
            if unborn and time.time() - path.stat().st_mtime < 3600:
                continue  # it may be about to live
            lock = _locked(path)
        except OSError:
            continue  # it lives, or another takes it
        if not _is_still(path, lock):
            os.close(lock)  # another has taken and removed it
            continue
        found.append((path, lock))
    return found


def remove_directory(path: Path) -> None:
    """Remove a spool directory, its lock last. Only for who holds its lock."""
    for file in sorted(path.iterdir(), key=lambda file: file.name == _LOCK):
        file.unlink(missing_ok=True)
    path.rmdir()


def _bodies(data: bytes) -> Generator[tuple[bytes | None, int]]:
    """Bodies of records and where each ends; None: bytes that are no record. Stops at an incomplete end."""
    at, size = 0, len(data)
    while at < size:
        if data[at] in b"\n\0":  # what a lost power or a full disk left
            while at < size and data[at] in b"\n\0":
                at += 1
            yield None, at
            continue
        body = _body_at(data, at)
        if body is not None:
            at += _HEAD + len(body) + 1
            yield body, at
            continue
        line_end = data.find(b"\n", at)
        if line_end < 0:
            return
        at = line_end + 1
        yield None, at


def _body_at(data: bytes, at: int) -> bytes | None:
    head = data[at : at + _HEAD]
    try:
        checksum, length = int(head[:8], 16), int(head[8:], 16)
    except ValueError:
        return None
    end = at + _HEAD + length
    if not length or end >= len(data):
        return None  # its line feed must be there too
    body = data[at + _HEAD : end]
    return body if crc32(body) == checksum else None


def _entry_of(body: bytes) -> Admitted | Closed | None:
    try:
        return _decode_admitted(body[1:]) if body[:1] == b"a" else _decode_closed(body[1:])
    except msgspec.MsgspecError:
        return None


def _number_of(path: Path) -> int | None:
    return int(path.stem) if path.stem.isdigit() else None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _locked(folder: Path) -> int:
    fd = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _is_still(folder: Path, lock: int) -> bool:
    try:
        return (folder / _LOCK).stat().st_ino == os.fstat(lock).st_ino
    except OSError:
        return False


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

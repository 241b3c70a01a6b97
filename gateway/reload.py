"""Takes a saved file into force whole, or keeps the old one and says once what is wrong with the new.

The file is looked at twice a second. A change is read only when two looks in a row saw the same file, so that
a file that is being written is not taken for a finished one; what changed again while it was read is read
again. A file that is gone, empty or unreadable never means "no rules": the version in force stays. Saving the
version in force again clears an error.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.config import Config, ConfigProblems, Problem, load

LOOK_SECONDS = 0.5
MOST_UNSETTLED_LOOKS = 6  # a file that changes at every look is read all the same after these
SMALL_BYTES = 100_000  # a larger file is read on another thread

Looked = tuple[int, int, int, int] | str
"""What tells one state of a file from another: device, inode, size, time; or why it cannot be seen."""

Seen = tuple[Looked, ...]
"""The state of the file, and of the file of prices that the version in force names."""

ONLY_AT_START = {
    "listen": "listen",
    "admin_listen": "admin_listen",
    "key_secret": "key_secret",
    "admin_secret": "admin_secret",
    "ledger_url": "ledger",
    "redis_url": "redis",
    "data_dir": "data_dir",
    "max_body_bytes": "max_body_bytes",
    "max_connections": "max_connections",
    "drain_seconds": "drain_seconds",
}
"""Settings of `[gateway]` that a running process cannot change, and what they are called in the file."""


def needs_restart(started_with: Config, new: Config) -> tuple[str, ...]:
    """Settings that come into force only when the process starts again, by their names in the file.

    The file is compared with the one that the process started with, not with the one before it.
    """
    return tuple(
        f"gateway.{key}"
        for name, key in ONLY_AT_START.items()
        if getattr(started_with.gateway, name) != getattr(new.gateway, name)
    )


class Watch:
    """Watches one file for as long as `run` runs."""

    def __init__(
        self,
        path: str | Path,
        environ: Mapping[str, str],
        current: Config,
        *,
        swap: Callable[[Config], None],
        refused: Callable[[tuple[Problem, ...]], None],
    ) -> None:
        """`swap` takes a new version into force at once; `refused` is told of each bad one, once."""
        self.current = current
        self.problems: tuple[Problem, ...] = ()  # of the file as it is now; empty: it is in force
        self.refused_at: float | None = None  # when the file was last refused, on the clock of `look`
        self.taken_at: float | None = None  # when the version in force was taken; None: at the start
        self._path = Path(path)
        self._environ = environ
        self._swap = swap
        self._refused = refused
        self._read: Seen = self._see()  # the state that was dealt with last
        self._last: Seen = self._read
        self._unsettled = 0
        self._is_first = True

    async def run(self, clock: Callable[[], float]) -> None:
        """Look, again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            seen = self.news()
            if seen is None:
                continue
            if any(isinstance(one, tuple) and one[2] > SMALL_BYTES for one in seen):
                self.take(seen, await asyncio.to_thread(self.read, seen), clock())
            else:
                self.take(seen, self.read(seen), clock())

    def look(self, now: float) -> None:
        """One look, and all that follows from it."""
        seen = self.news()
        if seen is not None:
            self.take(seen, self.read(seen), now)

    def news(self) -> Seen | None:
        """The state of the file if it is another than the one dealt with, and has settled; else None."""
        seen = self._see()
        before, self._last = self._last, seen
        if seen == self._read and not self._is_first:
            self._unsettled = 0
            return None
        # At the first look the file may have changed between its loading and this object's making.
        self._is_first = False
        if seen != before:
            self._unsettled += 1
            if self._unsettled < MOST_UNSETTLED_LOOKS:
                return None
        self._unsettled = 0
        return seen

    def read(self, seen: Seen) -> Config | tuple[Problem, ...] | None:
        """What the file says now, or what is wrong with it; None: it changed meanwhile."""
        try:
            found: Config | tuple[Problem, ...] = load(self._path, self._environ)
        except ConfigProblems as wrong:
            found = wrong.problems
        return found if self._see() == seen else None

    def take(self, seen: Seen, found: Config | tuple[Problem, ...] | None, now: float) -> None:
        """Put what was read into force, or say what is wrong with it."""
        if found is None:
            return
        self._read = seen
        if isinstance(found, Config):
            self.problems = ()
            if found.digest != self.current.digest:
                self._swap(found)
                self.current = found
                self.taken_at = now
        else:
            self.refused_at = now
            if found != self.problems:
                self.problems = found
                self._refused(found)

    def _see(self) -> Seen:
        prices = self.current.gateway.price_file
        return (_look_at(self._path),) if prices is None else (_look_at(self._path), _look_at(Path(prices)))


def _look_at(path: Path) -> Looked:
    try:
        found = path.stat()
    except OSError as wrong:
        return wrong.strerror or type(wrong).__name__
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

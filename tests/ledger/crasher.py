"""Processes that take requests as fast as they can and are killed at random moments; run by the crash tests.

Each writes down which requests it recorded, a line after each call has come back, so what stands there was
recorded before. They are forked, as importing takes longer than they live; the next begins, and takes over
the spools of the dead, before the one before it is killed.
"""

import os
import signal
import sys
import time
from pathlib import Path
from random import Random

from gateway.recorder import Recorder
from ledger.entry import Admitted
from ledger.recovery import recover
from ledger.spool import Spool
from ledger.store import open_ledger
from tests.ledger.builders import admitted, attempt, closed


def main(url: str, root: str, said: str, rounds: int) -> None:
    """Start and kill them."""
    random = Random(rounds)
    alive: list[int] = []
    for n in range(rounds):
        pid = os.fork()
        if pid == 0:
            take_requests(url, root, Path(said) / f"{n}", f"run{n}")
        alive.append(pid)
        time.sleep(random.uniform(0.05, 0.3))
        if len(alive) == 2 or n == rounds - 1:
            for pid in alive if n == rounds - 1 else [alive.pop(0)]:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def kill_replays(url: str, root: str, rounds: int) -> None:
    """Start to take over what is there, and kill that."""
    for n in range(rounds):
        pid = os.fork()
        if pid == 0:
            recover(open_ledger(url), Path(root), now_ms=1)
            os._exit(0)
        time.sleep(0.03 + 0.04 * n)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def take_requests(url: str, root: str, said: Path, prefix: str) -> None:
    """Until it is killed."""
    random = Random(prefix)
    recorder = Recorder(
        open_ledger(url), Spool(root, segment_bytes=20_000), batch=20, pause_seconds=0.002, adopt_seconds=0.05
    )
    recorder.start()
    fd = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    under_way: list[Admitted] = []
    count = 0
    while True:
        count += 1
        entry = admitted(f"{prefix}_{count}")
        recorder.admitted(entry)
        os.write(fd, b"a %b\n" % entry.id.encode())
        under_way.append(entry)
        if len(under_way) > 12:
            done = under_way.pop(random.randrange(len(under_way)))
            recorder.closed(closed(done.id, *(attempt(n + 1) for n in range(random.randint(1, 2)))))
            os.write(fd, b"c %b\n" % done.id.encode())
            time.sleep(0.0005)  # so that the writer gets to write, and what is checked later stays small


if __name__ == "__main__":
    if sys.argv[1] == "replay":
        kill_replays(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

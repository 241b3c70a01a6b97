"""Remembers which deployment made an answer, for requests that go on from it or ask for it by its id.

Nobody else has it: a deployment elsewhere answers that there is no such thing. The last answers of this process are
in memory; older ones, and those of other processes, are looked up in the ledger. An answer is its team's alone.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from ledger.answers import Maker

MOST_REMEMBERED = 20_000  # answers of this process, some 200 bytes each


class Makers:
    """Answer -> who made it."""

    def __init__(
        self, look_up: Callable[[str], Maker | None], *, most_remembered: int = MOST_REMEMBERED
    ) -> None:
        """`look_up` asks the ledger; it is called in a thread and may raise LedgerAway."""
        self._look_up = look_up
        self._most = most_remembered
        self._known: OrderedDict[str, Maker] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def remember(self, answer_id: str, maker: Maker) -> None:
        """This answer was made there; the oldest of too many is left to the ledger."""
        known = self._known
        known[answer_id] = maker
        known.move_to_end(answer_id)
        if len(known) > self._most:
            known.popitem(last=False)

    async def find(self, answer_id: str, *, team: str) -> Maker | None:
        """Who made an answer of this team; None: nobody knows of one. Raises LedgerAway."""
        maker = self._known.get(answer_id)
        if maker is None:
            maker = await asyncio.to_thread(self._look_up, answer_id)
        return maker if maker is not None and maker.team == team else None

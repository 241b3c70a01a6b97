"""Which deployments rest: a circuit breaker for each, as a state machine over (outcome, now).

Rules, for a person:

- *In use.* Failures are counted over the last ten seconds. With at least five requests in that window, and
  half of them or more failed, the deployment rests. A provider that says how long to wait (429, or a quota
  that is gone, or a key it refuses) makes it rest at once, for that long.
- *Resting.* Nobody is sent there. Of two rests that overlap the later end counts. Rests after failures grow
  from 1 s, doubling, to 10 s, so that a healed deployment is found within 15 s.
- *Probing.* When the rest is over, one request at a time may try. If it works the deployment is in use again
  with a clean slate; if it fails the next, longer rest begins. An outcome that says nothing (the client's own
  fault, a client that left) lets the next request try. A probe that never reports is forgotten after ten
  seconds.
- *Never a dead end.* Where every deployment rests, one request a second may still try each of them.

Late results of requests sent before the rest began change nothing while it lasts.
Time is any clock in seconds that does not jump; it is always given.
"""

from typing import Literal

Outcome = Literal["ok", "failed", "rests", "ignored"]
"""What an attempt says about its deployment. `ignored`: nothing."""

WINDOW_SECONDS = 10
LEAST_REQUESTS = 5
FAILED_SHARE = 0.5
FIRST_REST_SECONDS = 1.0
LONGEST_REST_SECONDS = 10.0  # after failures
LONGEST_WAIT_SECONDS = 60.0  # that a provider may ask for
LONGEST_TOLD_REST_SECONDS = 300.0  # that the gateway itself may order: a quota that is gone
PROBE_SECONDS = 10.0
LAST_RESORT_SECONDS = 1.0


def wait_seconds(asked: float) -> float:
    """What a provider asks to wait, within reason: 0 to 60 seconds; not a number counts as 60."""
    return min(max(asked, 0.0), LONGEST_WAIT_SECONDS) if asked == asked else LONGEST_WAIT_SECONDS


class _Circuit:
    """One deployment's state."""

    __slots__ = (
        "failed",
        "last_try",
        "ok",
        "probe_since",
        "resting",
        "rests",
        "second",
        "slot",
        "turns_at",
        "until",
    )

    def __init__(self, now: float) -> None:
        self.second = int(now)
        self.slot = self.second % WINDOW_SECONDS  # of the present second
        self.turns_at = self.second + 1.0  # when it is over
        self.ok = [0] * WINDOW_SECONDS
        self.failed = [0] * WINDOW_SECONDS
        self.resting = False  # resting or probing; False: in use
        self.until = 0.0  # end of the rest
        self.rests = 0  # in a row, after failures
        self.probe_since: float | None = None
        self.last_try = float("-inf")

    def turn(self, now: float) -> None:
        second = int(now)
        behind = second - self.second
        if behind > 0:
            for step in range(min(behind, WINDOW_SECONDS)):
                self.ok[(second - step) % WINDOW_SECONDS] = self.failed[(second - step) % WINDOW_SECONDS] = 0
            self.second = second
            self.slot = second % WINDOW_SECONDS
            self.turns_at = second + 1.0

    def clear(self) -> None:
        self.ok = [0] * WINDOW_SECONDS
        self.failed = [0] * WINDOW_SECONDS

    def rest(self, until: float) -> None:
        self.until = max(self.until, until) if self.resting else until
        self.resting = True
        self.probe_since = None

    def rest_longer(self, now: float, asked: float | None) -> None:
        self.rests += 1
        grown = min(FIRST_REST_SECONDS * 2 ** min(self.rests - 1, 10), LONGEST_REST_SECONDS)
        self.rest(now + max(grown, asked or 0.0))


class Health:
    """The circuits of all deployments of one process."""

    def __init__(self) -> None:
        self._circuits: dict[str, _Circuit] = {}
        self._resting: set[str] = set()  # those whose circuit is resting or probing

    def all_in_use(self, deployments: frozenset[str]) -> bool:
        """True if none of them rests or waits for its probe. What is true of most requests, in one step."""
        return self._resting.isdisjoint(deployments)

    def is_open(self, deployment: str, now: float) -> bool:
        """True while it rests, or while another request is probing it."""
        circuit = self._circuits.get(deployment)
        if circuit is None or not circuit.resting:
            return False
        return now < circuit.until or (
            circuit.probe_since is not None and now < circuit.probe_since + PROBE_SECONDS
        )

    def rests_for(self, deployment: str, now: float) -> float:
        """Seconds until it may be tried again; 0 when it may be now."""
        circuit = self._circuits.get(deployment)
        if circuit is None or not circuit.resting:
            return 0.0
        return max(circuit.until - now, 0.0)

    def may_try(self, deployment: str, now: float, *, last_resort: bool = False) -> bool:
        """Ask right before an attempt. True: go, and `note` must follow. Whoever is let through to a resting
        deployment is its probe.

        `last_resort`: every deployment that could take this request rests.
        """
        if deployment not in self._resting:
            return True
        circuit = self._circuits[deployment]
        if self.is_open(deployment, now) and not (
            last_resort and now >= circuit.last_try + LAST_RESORT_SECONDS
        ):
            return False
        circuit.probe_since = circuit.last_try = now
        return True

    def note(self, deployment: str, outcome: Outcome, now: float, rest_seconds: float | None = None) -> None:
        """How an attempt ended; for a stream, as soon as its first content came or failed to.

        `rest_seconds`: how long the deployment is to rest, at most 300; what a provider asks for goes
        through `wait_seconds` first.
        """
        circuit = self._circuits.get(deployment)
        if circuit is None:
            circuit = self._circuits[deployment] = _Circuit(now)
        if outcome == "ok" and not circuit.resting:
            if now >= circuit.turns_at:
                circuit.turn(now)
            circuit.ok[circuit.slot] += 1
            return
        self._move(circuit, outcome, now, rest_seconds)
        if circuit.resting:
            self._resting.add(deployment)
        else:
            self._resting.discard(deployment)

    def _move(self, circuit: _Circuit, outcome: Outcome, now: float, rest_seconds: float | None) -> None:
        asked = None
        if rest_seconds is not None:
            asked = (
                min(max(rest_seconds, 0.0), LONGEST_TOLD_REST_SECONDS)
                if rest_seconds == rest_seconds
                else None
            )
        if outcome == "ignored":
            circuit.probe_since = None
        elif outcome == "rests":
            if asked is None:
                circuit.rest_longer(now, None)
            elif asked > 0:
                circuit.rest(now + asked)
            elif circuit.resting:
                circuit.probe_since = None
        elif circuit.resting:
            self._probed(circuit, outcome, now, asked)
        else:
            self._failed(circuit, now, asked)

    def _probed(
        self, circuit: _Circuit, outcome: Literal["ok", "failed"], now: float, asked: float | None
    ) -> None:
        if circuit.probe_since is None:
            return  # late news of a request that was sent before the rest
        if outcome == "ok":
            circuit.resting = False
            circuit.probe_since = None
            circuit.rests = 0
            circuit.clear()
        else:
            circuit.rest_longer(now, asked)

    def _failed(self, circuit: _Circuit, now: float, asked: float | None) -> None:
        circuit.turn(now)
        circuit.failed[circuit.slot] += 1
        failed = sum(circuit.failed)
        requests = failed + sum(circuit.ok)
        if asked:
            circuit.rest(now + asked)
        elif requests >= LEAST_REQUESTS and failed >= FAILED_SHARE * requests:
            circuit.rest_longer(now, None)

    def keep_only(self, deployments: frozenset[str]) -> None:
        """Forget deployments that are no longer in the file."""
        for name in [name for name in self._circuits if name not in deployments]:
            del self._circuits[name]
        self._resting &= deployments

"""Puts the process together from a Config: ledger, spool, keys, limits, connections, both applications; and runs it.

Nothing else happens here: each part is made, handed to those that need it, and closed in the other order.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, cast

from gateway.affinity import Makers
from gateway.attempts import RetryBudget
from gateway.auth import KeyRing
from gateway.config import Config, Problem, Provider, load
from gateway.config.dialects import KEY_IN_X_API_KEY
from gateway.flow import DataApp
from gateway.ids import RequestIds
from gateway.journal import Journal
from gateway.keys import LOOK_SECONDS, KeyWatch
from gateway.limits import budget_specs, load_spent, spent_in, team_limits
from gateway.live import Live, Services, metric_names, open_upstreams
from gateway.metrics import Metrics, Sources
from gateway.prices_kept import prices_of
from gateway.recorder import Recorder
from gateway.reload import Watch, needs_restart
from gateway.serving import App, ServingHooks, ServingLimits, ServingSettings
from gateway.serving import run as run_listeners
from gateway.shared_state.limits import BudgetSpec, Window
from gateway.shared_state.memory import MemoryState
from gateway.upstream import Upstream
from gateway.upstream.build import upstream_for
from gateway.upstream.settings import Settings
from ledger.answers import Maker
from ledger.entry import Admitted, Closed
from ledger.queries import maker_of
from ledger.spool import Spool
from ledger.store import Ledger, LedgerAway, LedgerTooNew, NotALedgerUrl, open_ledger
from pricing.money import PicoUsd
from routers.health import Health

if TYPE_CHECKING:
    from gateway.shared_state.redis_state import RedisState

VERSION = version("faregate")
_WAIT_FOR_LEDGER_SECONDS = 2.0
_PRICES_AGAIN_SECONDS = 60.0
_EDITED_IN_PLACE = (
    "the ledger has other numbers under these ids and keeps them, so what is billed by the new ones cannot be"
    " recomputed; put the old numbers back and add a later row"
)


class StartFailed(Exception):
    """The process cannot start; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What is known once both listeners take connections."""

    config: Config
    address: str  # of the data listener, "host:port"
    admin_address: str
    ledger: Ledger


def _take_as_it_is(config: Config) -> Config:
    return config


def _nothing(started: Started) -> None:
    """Nobody is to be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a first start and a demonstration differ from `faregate serve`."""

    transform: Callable[[Config], Config] = _take_as_it_is  # applied to each version of the file
    ledger_url: str | None = None  # instead of the file's
    spool_dir: Path | None = None  # instead of the one in data_dir
    mark: str | None = None  # written into the ledger: "simulated", "made-up"
    simulated: bool = False
    receipt: Callable[[Admitted, Closed], None] | None = None  # called on the loop when books close
    event: Callable[[str, Mapping[str, object]], None] | None = (
        None  # called on the loop with each event logged
    )
    log_fd: int | None = 1
    listening: Callable[[Started], None] = _nothing
    prepare: Callable[[Ledger, Config], None] | None = None  # before the listeners open


def serve(path: str, environ: Mapping[str, str], options: Options | None = None) -> int:
    """Run the gateway until a signal; gives the exit code.

    Raises ConfigProblems for a file that is not good, StartFailed when something else is missing.
    """
    import uvloop

    return uvloop.run(run_gateway(path, environ, options or Options()))


def data_dir_of(config: Config) -> Path:
    """The private folder of this process, made if it is not there, for its owner alone."""
    folder = Path(config.gateway.data_dir)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise StartFailed(
            f"cannot make {folder} (gateway.data_dir): {problem.strerror}; name a folder that can be written"
        ) from problem
    return folder


def ledger_url_of(config: Config) -> str:
    """The ledger's URL: the file's, else SQLite in the data folder."""
    return config.gateway.ledger_url or f"sqlite:///{data_dir_of(config) / 'ledger.db'}"


@contextmanager
def open_ledger_of(config: Config, url: str | None = None) -> Generator[Ledger]:
    """The ledger of a configuration, for a command."""
    ledger = open_ledger(url or ledger_url_of(config))
    try:
        yield ledger
    finally:
        ledger.close()


def connect(provider: Provider) -> Upstream:
    """Connections to a provider as the file describes it."""
    in_x_api_key = provider.dialect in KEY_IN_X_API_KEY
    return upstream_for(
        Settings(
            base_url=provider.base_url,
            api_key=provider.api_key,
            auth_header="x-api-key" if in_x_api_key else "authorization",
            auth_scheme="" if in_x_api_key else "Bearer",
            client=provider.client,
            max_connections=provider.max_connections,
            http2=provider.http2,
            proxy=provider.proxy,
            ca_file=provider.ca_file,
        )
    )


async def run_gateway(path: str, environ: Mapping[str, str], options: Options) -> int:
    """See `serve`."""
    config = options.transform(load(path, environ))
    folder = data_dir_of(config)
    url = options.ledger_url or ledger_url_of(config)
    try:
        # A server may come back while we run; a file that cannot be opened now will not be there later either.
        ledger = open_ledger(url, wait=url.startswith("sqlite"))
        if options.mark is not None:
            ledger.set_fact("marked", options.mark)
        if options.prepare is not None:
            options.prepare(ledger, config)
    except (LedgerAway, LedgerTooNew, NotALedgerUrl) as problem:
        raise StartFailed(f"cannot open the ledger: {problem}") from problem
    spool = Spool(options.spool_dir or folder / "spool")
    recorder = Recorder(ledger, spool)
    recorder.start()
    process = Process(path, environ, config, ledger, recorder, options)
    try:
        return await process.run()
    finally:
        await process.close()
        recorder.close()
        ledger.close()


def settle_memory() -> None:
    """Keep the collector away from what the start left behind: it would look through all of it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


class Process:
    """The parts of one running gateway, and its small background tasks."""

    def __init__(
        self,
        path: str,
        environ: Mapping[str, str],
        config: Config,
        ledger: Ledger,
        recorder: Recorder,
        options: Options,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.path = path
        self.environ = environ
        self.ledger = ledger
        self.options = options
        self.recorder = recorder
        self.started_with = config
        self.journal = Journal(options.log_fd)
        self.metrics = Metrics(
            metric_names(config, VERSION),
            Sources(
                budgets_left=self._budgets_left,
                ledger_lag_seconds=lambda: recorder.stats().lag_seconds,
                ledger_write_failures=lambda: recorder.stats().write_failures,
                degraded=self._degraded,
            ),
        )
        self.ledger_away = False
        self.state: MemoryState | RedisState
        if config.gateway.redis_url is None:
            self.state = MemoryState(budget_specs(config), team_limits(config), warned=self._budget_warned)
        else:
            # Its library takes a third of a second to import.
            from gateway.shared_state import redis_state

            self.state = redis_state.RedisState(
                redis_state.RedisSettings(url=config.gateway.redis_url),
                budget_specs(config),
                team_limits(config),
                spent_from_ledger=self._spent_from_ledger,
            )
        self.ring = KeyRing(config.gateway.key_secret)
        self.key_watch = KeyWatch(
            ledger,
            self.ring,
            cache_seconds=lambda: self.services.live.config.gateway.key_cache_seconds,
            clock=loop.time,
        )
        self.services = Services(
            live=Live(config, open_upstreams(config, None, connect)),
            keys=self.ring,
            state=self.state,
            health=Health(),
            recorder=recorder,
            retries=RetryBudget(),
            ids=RequestIds(),
            random=Random(),
            metrics=self.metrics,
            makers=Makers(self._maker_of),
            clock=loop.time,
            closed=self._closed,
            warn=self._tell,
            simulated=options.simulated,
            names_attempts=environ.get("FAREGATE_NAME_ATTEMPTS") == "1",
        )
        self.watch = Watch(path, environ, config, swap=self._swap, refused=self._refused)
        self.tasks: list[asyncio.Task[None]] = []
        self.prices_again_seconds = _PRICES_AGAIN_SECONDS
        self._price_task: asyncio.Task[None] | None = None
        self.is_ready = False
        self.has_begun = False  # the ledger was there once

    def _maker_of(self, answer_id: str) -> Maker | None:
        with self.ledger.reading() as connection:
            return maker_of(connection, answer_id)

    async def run(self) -> int:
        """Serve until a signal."""
        # Imported here: commands that only open the ledger do without Litestar.
        from gateway.admin import build_admin
        from gateway.operating import operating

        config = self.services.live.config
        loop = asyncio.get_running_loop()
        if not isinstance(self.state, MemoryState):
            await self.state.start()
        await self._look_at_ledger()
        settings = ServingSettings(
            listen=config.gateway.listen,
            admin_listen=config.gateway.admin_listen,
            limits=ServingLimits(
                max_body=config.gateway.max_body_bytes, max_connections=config.gateway.max_connections
            ),
            drain_seconds=config.gateway.drain_seconds,
        )
        hooks = ServingHooks(
            listening=self._listening,
            draining=self._draining,
            reload=lambda: self.watch.look(loop.time()),
            refused=self.metrics.protocol_refused,
        )
        self.tasks = [
            loop.create_task(self.watch.run(loop.time)),
            loop.create_task(self._watch_keys()),
        ]
        admin = build_admin(
            operating(
                self.services,
                self.ledger,
                self.watch,
                environ=self.environ,
                version=VERSION,
                not_ready=self._not_ready,
            )
        )
        try:
            return await run_listeners(DataApp(self.services), cast("App", admin), settings, hooks)
        except OSError as problem:
            raise StartFailed(f"{problem}; is another gateway running here?") from problem

    async def load_limits(self) -> None:
        """What the ledger says of the budgets' present windows. Raises LedgerAway."""
        if isinstance(self.state, MemoryState):  # the other one asks by itself
            specs = budget_specs(self.services.live.config)
            await asyncio.to_thread(load_spent, self.state, self.ledger, specs, time.time())

    async def _begin_with_ledger(self) -> None:
        """What is done once, as soon as the ledger is there; before any key is known. Raises LedgerAway."""
        with suppress(OSError):  # the file is gone by now; it was good when we read it
            await asyncio.to_thread(self._keep_config, self.services.live.config)
        await self.load_limits()

    def _keep_config(self, config: Config) -> None:
        text = Path(self.path).read_text(encoding="utf-8")
        self.ledger.save_config_version(config.digest, path=self.path, text=text)

    async def _spent_from_ledger(self, spec: BudgetSpec, window: Window) -> PicoUsd | None:
        """What was spent, once what is recorded by now has reached the ledger. None: the ledger does not say."""
        stats = self.recorder.stats()
        wanted = stats.recorded + stats.waiting
        until = time.monotonic() + _WAIT_FOR_LEDGER_SECONDS
        while self.recorder.stats().recorded < wanted:
            if time.monotonic() > until:
                return None
            await asyncio.sleep(0.01)
        try:
            return await asyncio.to_thread(spent_in, self.ledger, spec, window)
        except (LedgerAway, LedgerTooNew):
            return None

    async def close(self) -> None:
        """End the tasks and the connections."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if not isinstance(self.state, MemoryState):
            await self.state.close()
        for upstream in self.services.live.upstreams.values():
            await upstream.close()
        self.journal.close()

    # ── what the parts tell each other ──

    def _closed(self, admitted: Admitted, closed: Closed) -> None:
        self.metrics.observe(admitted, closed)
        self.journal.closed(admitted, closed)
        if self.options.receipt is not None:
            self.options.receipt(admitted, closed)

    def _tell(self, event: str, facts: Mapping[str, object]) -> None:
        """To the log, and to whoever started this process."""
        self.journal.event(event, facts)
        if self.options.event is not None:
            self.options.event(event, facts)

    def _listening(self, data: str, admin: str) -> None:
        settle_memory()
        self.is_ready = True
        self.keep_prices()
        self.options.listening(
            Started(config=self.services.live.config, address=data, admin_address=admin, ledger=self.ledger)
        )

    def _draining(self) -> None:
        self.is_ready = False

    def _swap(self, config: Config) -> None:
        """A new version of the file comes into force, whole."""
        config = self.options.transform(config)
        services, old = self.services, self.services.live
        upstreams = open_upstreams(config, old, connect)
        services.live = Live(config, upstreams)
        services.health.keep_only(frozenset(config.policy.deployments))
        fresh = self.state.configure(budget_specs(config), team_limits(config))
        specs = [spec for spec in budget_specs(config) if spec.name in fresh]
        self.metrics.configure(metric_names(config, VERSION))
        loop = asyncio.get_running_loop()
        for name, upstream in old.upstreams.items():
            if upstreams.get(name) is not upstream:  # its running answers may end first
                loop.call_later(config.gateway.drain_seconds, lambda u=upstream: loop.create_task(u.close()))
        self.tasks.append(loop.create_task(self._after_swap(config, specs)))
        self.keep_prices()
        self.tasks = [task for task in self.tasks if not task.done()]
        self._tell("config_taken", {"digest": config.digest})
        waiting = needs_restart(self.started_with, config)
        if waiting:
            self._tell("config_needs_restart", {"digest": config.digest, "settings": waiting})

    async def _after_swap(self, config: Config, specs: list[BudgetSpec]) -> None:
        """Keep the version, and tell budgets that begin anew what was spent; the ledger may be away."""
        try:
            await asyncio.to_thread(self._keep_config, config)
            if isinstance(self.state, MemoryState):
                await asyncio.to_thread(load_spent, self.state, self.ledger, specs, time.time())
        except (LedgerAway, OSError) as problem:
            self._tell("config_not_kept", {"digest": config.digest, "error": type(problem).__name__})

    def keep_prices(self) -> None:
        """Begin to write the prices in force into the ledger; nobody waits for it."""
        if self._price_task is not None:
            self._price_task.cancel()
        self._price_task = asyncio.get_running_loop().create_task(
            self._keep_prices(self.services.live.config)
        )
        self.tasks.append(self._price_task)

    async def _keep_prices(self, config: Config) -> None:
        """Try until the ledger has them; another version of the file ends this and begins anew."""
        while True:
            try:
                edited = await asyncio.to_thread(lambda: self.ledger.save_price_rows(prices_of(config)))
                break
            except LedgerAway as problem:
                self._tell("prices_not_kept", {"digest": config.digest, "error": type(problem).__name__})
            await asyncio.sleep(self.prices_again_seconds)
        if edited:
            self._tell("price_edited_in_place", {"prices": edited, "warning": _EDITED_IN_PLACE})

    def _degraded(self) -> Mapping[str, bool]:
        """By dependency: it is away, and the process does without it."""
        found = {"ledger": self.ledger_away or self.recorder.stats().is_behind}
        if not isinstance(self.state, MemoryState):
            found["redis"] = self.state.degraded
        return found

    def _budget_warned(self, budget: str, share: float) -> None:
        self._tell("budget_warning", {"budget": budget, "share": share})

    def _budgets_left(self) -> Mapping[str, float]:
        return {standing.spec.name: standing.left_share for standing in self.state.standings(time.time())}

    def _refused(self, problems: tuple[Problem, ...]) -> None:
        self._tell("config_refused", {"problems": [str(problem) for problem in problems]})

    async def _watch_keys(self) -> None:
        """Keep the key ring fresh; the ledger may be away for a while."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._look_at_ledger()

    async def _look_at_ledger(self) -> None:
        try:
            if not self.has_begun:
                await self._begin_with_ledger()
                self.has_begun = True
            await asyncio.to_thread(self.key_watch.look)
        except (LedgerAway, LedgerTooNew) as problem:
            self.key_watch.away()
            if not self.ledger_away:
                self._tell("ledger_away", {"error": type(problem).__name__})
            self.ledger_away = True
        else:
            self.ledger_away = False

    def _not_ready(self) -> Sequence[str]:
        """Why no requests should be sent here, in single words; empty: they may."""
        why: list[str] = []
        if not self.is_ready:
            why.append("draining")
        if not self.recorder.can_accept():
            why.append("disk")
        if not self.key_watch.knows_keys:
            why.append("ledger")
        return why

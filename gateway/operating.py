"""What the admin API asks of the running process: keys, the file in force, a trial of another one, an explanation."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gateway.admin import AdminServices, Checked, ConfigInfo, CreatedKey, KeyInfo, NewKey, ProblemInfo
from gateway.config import Config, ConfigProblems, Problem, parse
from gateway.keys import create_key
from gateway.live import Services
from gateway.reload import Watch
from gateway.wire.openai_chat import facts_for, read_request
from ledger.store import Ledger, StoredKey
from routers.classify import classify
from routers.decide import CallerLimits, explain


def operating(
    services: Services,
    ledger: Ledger,
    watch: Watch,
    *,
    environ: Mapping[str, str],
    version: str,
    not_ready: Callable[[], Sequence[str]],
) -> AdminServices:
    """The functions behind the admin API. What it writes reaches every process through the ledger."""

    def config() -> Config:
        return services.live.config

    def make_key(wanted: NewKey) -> CreatedKey:
        made = create_key(
            ledger,
            config().gateway.key_secret,
            team=wanted.team,
            application=wanted.application,
            tiers=wanted.tiers,
            regions=wanted.regions,
            requests_per_minute=wanted.requests_per_minute,
            tokens_per_minute=wanted.tokens_per_minute,
            expires_at_ms=wanted.expires_at_ms,
        )
        return CreatedKey(key=made.key, key_id=made.key_id)

    def config_info() -> ConfigInfo:
        text = Path(config().path).read_text(encoding="utf-8")
        problem = "\n".join(str(problem) for problem in watch.problems) or None
        return ConfigInfo(digest=config().digest, text=text, problem=problem)

    def check(text: str) -> Checked:
        try:
            trial = parse("faregate.toml", text.encode(), environ)
        except ConfigProblems as wrong:
            return Checked(problems=tuple(map(_problem, wrong.problems)))
        return Checked(warnings=tuple(map(_problem, trial.warnings)))

    def explained(body: bytes) -> Mapping[str, Any]:
        request = read_request(body)
        facts = facts_for(request, None, ())
        seen = classify(facts, request.peek())
        found = explain(
            services.live.policy,
            facts,
            seen,
            limits=CallerLimits(),
            allowed_tiers=None,
            budget_left_share=None,
            health=services.health,
            now=time.time(),
            clock=services.clock(),
        )
        return msgspec.to_builtins({"request": facts, "classification": seen, "explanation": found})

    return AdminServices(
        secret=config().gateway.admin_secret,
        version=version,
        not_ready=not_ready,
        metrics=services.metrics.render,
        list_keys=lambda: [_key(row) for row in ledger.list_keys()],
        create_key=make_key,
        revoke_key=lambda key_id: ledger.revoke_key(key_id, time.time_ns() // 1_000_000),
        config=config_info,
        check=check,
        explain=explained,
    )


def _problem(problem: Problem) -> ProblemInfo:
    return ProblemInfo(line=problem.line, column=problem.column, field=problem.field, message=problem.message)


def _key(row: StoredKey) -> KeyInfo:
    return KeyInfo(
        key_id=row.key_id,
        team=row.team,
        application=row.application,
        tiers=None if row.tiers is None else tuple(sorted(row.tiers)),
        regions=None if row.regions is None else tuple(sorted(row.regions)),
        requests_per_minute=row.requests_per_minute,
        tokens_per_minute=row.tokens_per_minute,
        created_at_ms=row.created_at_ms,
        expires_at_ms=row.expires_at_ms,
        revoked_at_ms=row.revoked_at_ms,
    )

"""One request from its first byte to the ledger: the steps in order, and none of the work.

    who asks -> what is asked -> what kind of work it is -> where it may go -> what it may cost at most
    -> written down -> attempts (`answering`) -> the books are closed

Whatever goes wrong is a GatewayError, worded once, here. Before a request is admitted it leaves no row.
"""

import asyncio
from urllib.parse import parse_qsl, unquote

from msgspec.structs import replace

from gateway import errors
from gateway.answering import Answering
from gateway.asking import asking, limits_of, returned_headers
from gateway.auth import Caller
from gateway.books import Books
from gateway.by_id import RESPONSES, answer_by_id
from gateway.errors import GatewayError
from gateway.holding import hold
from gateway.live import Live, Services
from gateway.recorder import CannotRecord
from gateway.shared_state import Admission
from gateway.sink import AsgiSink, Receive, Scope, Send, Sink
from gateway.wire.endpoints import ENDPOINTS, Endpoint, other_at
from gateway.wire.error_forms import ANTHROPIC, OPENAI, ErrorForm, form_at
from gateway.wire.error_forms import RESPONSES as RESPONSES_FORM
from gateway.wire.model_lists import anthropic_model_body, anthropic_model_list, model_body, model_list
from ledger.entry import Admitted
from ledger.store import LedgerAway
from pricing.cost import cost_of_input_at_ms
from pricing.money import PicoUsd
from routers.classify import classify
from routers.decide import CallerLimits, Decision, Refused, decide, stay_with
from routers.facts import Classification, RequestFacts
from routers.policy import AUTO

MODELS = b"/v1/models"
LARGE_BODY = 512 * 1024
"""Bytes. From here on a body is read beside the loop: one that is made to be slow takes seconds."""

NOT_WRITTEN = "this request could not be written down, so it is not sent"

Headers = list[tuple[bytes, bytes]]

_NO_MODEL = frozenset({"missing_field", "invalid_json", "unsupported_media_type"})
"""What is wrong with the body of a request that is not of this API: it names no model in JSON."""

_CREDENTIALS = frozenset({"key", "api_key", "api-key", "apikey", "token", "access_token"})  # in a query


class DataApp:
    """The bare ASGI application of the data listener."""

    def __init__(self, services: Services) -> None:
        self.services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request_id = scope["request_id"] = self.services.ids.next()
        sink: Sink = scope.get("sink") or AsgiSink(send)
        path = scope["raw_path"]  # as it was sent: no other spelling is the same path
        endpoint = ENDPOINTS.get(path)
        try:
            if endpoint is not None:
                if scope["method"] != "POST":
                    raise errors.method_not_allowed(scope["method"], path.decode("latin-1"))
                await self._ask(endpoint, scope, receive, sink, request_id)
            elif path == MODELS or path.startswith(MODELS + b"/"):
                await self._models(scope, sink, request_id)
            elif path.startswith(RESPONSES):
                await self._by_id(scope, sink, request_id)
            elif path == b"/" and scope["method"] in ("HEAD", "GET"):
                await sink.whole(200, answer_headers(scope, request_id, OPENAI), b"")
            else:
                endpoint = other_at(path) if scope["method"] == "POST" else None
                if endpoint is None:
                    raise errors.not_found(path.decode("latin-1"))
                try:
                    await self._ask(endpoint, scope, receive, sink, request_id)
                except GatewayError as error:
                    if error.code in _NO_MODEL:
                        raise errors.not_found(path.decode("latin-1")) from None
                    raise
        except GatewayError as error:
            self.services.metrics.refused(error.code)
            form = form_of(scope) if endpoint is None else endpoint.errors
            await answer_error(sink, error, form, answer_headers(scope, request_id, form), request_id)

    # ── one request for an answer ──

    async def _ask(
        self, endpoint: Endpoint, scope: Scope, receive: Receive, sink: Sink, request_id: str
    ) -> None:
        services = self.services
        live = services.live
        started = services.clock()
        now_ms = services.wall_ms()
        asked = asking(scope, services.keys, live, now_ms / 1000)
        caller = asked.caller
        body = sink.body()
        if body is None:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body = message["body"]
        request = (
            endpoint.read(body) if len(body) < LARGE_BODY else await asyncio.to_thread(endpoint.read, body)
        )
        if endpoint.name == "other" and not names_a_deployment(live, request.model):
            raise errors.not_found(scope["path"])
        facts = endpoint.facts_for(request, caller, asked.headers)
        seen = classify(facts, request.peek())
        goes_on_from = None
        if endpoint.has_chains and request.continues is not None:
            goes_on_from = await self._maker_of(request.continues, caller)
        decision, admission, most_output = await self._admit(
            live, facts, seen, caller, asked.limits, goes_on_from, request_id, started, now_ms
        )
        services.metrics.decided(
            task_kind=seen.task_kind, rule=decision.rule, seconds=services.clock() - started
        )
        try:
            if not services.recorder.can_accept():
                raise errors.dependency_unavailable(NOT_WRITTEN)
            books = Books(
                services,
                live,
                admitted_entry(
                    services, live, request_id, now_ms, facts, seen, decision, admission, most_output
                ),
                facts,
                started=started,
            )
        except BaseException as problem:
            services.state.settle(admission, cost=PicoUsd(0), tokens=0)
            if isinstance(problem, CannotRecord):
                raise errors.dependency_unavailable(NOT_WRITTEN) from None
            raise
        await Answering(
            services,
            live,
            endpoint,
            upstream_path(endpoint, scope["query_string"]),
            request,
            facts,
            asked,
            decision,
            admission,
            books,
            sink,
            request_id,
            started,
        ).run()

    async def _admit(
        self,
        live: Live,
        facts: RequestFacts,
        seen: Classification,
        caller: Caller,
        limits: CallerLimits,
        goes_on_from: str | None,
        request_id: str,
        started: float,
        now_ms: int,
    ) -> tuple[Decision, Admission, int]:
        """Where the request goes, with what it may cost there held against every limit that touches it.

        Where a spent budget leaves only some tiers, the decision is made again among them.
        """
        services = self.services
        now = now_ms / 1000
        allowed: frozenset[str] | None = None
        left = services.state.budget_left_share(caller.team, facts.application)
        while True:
            decision = decide(
                live.policy,
                facts,
                seen,
                limits=limits,
                allowed_tiers=allowed,
                budget_left_share=left,
                health=services.health,
                now=now,
                clock=started,
            )
            if goes_on_from is not None:
                decision = stay_with(
                    goes_on_from,
                    decision,
                    live.policy,
                    facts,
                    limits=limits,
                    allowed_tiers=allowed,
                    health=services.health,
                    clock=started,
                )
            if isinstance(decision, Refused):
                raise refusal_error(decision)
            tier = live.policy.tiers.get(decision.tier)
            target = live.targets[decision.deployments[0]]
            most_output = target.most_output(facts, tier)
            granted = await hold(services, target, facts, caller, request_id, now_ms, most_output)
            if granted.allowed_tiers is None or decision.tier in granted.allowed_tiers or allowed is not None:
                return decision, granted, most_output
            services.state.settle(granted, cost=PicoUsd(0), tokens=0)
            allowed = granted.allowed_tiers

    async def _maker_of(self, answer_id: str, caller: Caller) -> str | None:
        """The deployment that made an answer; None: it is not known here, so the provider is the one to say."""
        try:
            maker = await self.services.makers.find(answer_id, team=caller.team)
        except LedgerAway:
            raise errors.dependency_unavailable("the ledger that knows older answers is away") from None
        return None if maker is None else maker.deployment

    # ── what was answered before, by its id ──

    async def _by_id(self, scope: Scope, sink: Sink, request_id: str) -> None:
        services = self.services
        live = services.live
        asked = asking(scope, services.keys, live, services.wall_ms() / 1000)
        await answer_by_id(
            services,
            live,
            asked,
            scope["method"],
            scope["raw_path"].removeprefix(RESPONSES).decode("ascii"),
            without_credentials(scope["query_string"]),
            sink,
            answer_headers(scope, request_id, RESPONSES_FORM),
        )

    # ── the list of models ──

    async def _models(self, scope: Scope, sink: Sink, request_id: str) -> None:
        services = self.services
        if scope["method"] not in ("GET", "HEAD"):
            raise errors.method_not_allowed(scope["method"], scope["path"])
        now = services.wall_ms() / 1000
        caller = services.keys.caller_of(scope["headers"], address=scope["client"][0], now=now)
        names = names_for(services.live, limits_of(services.live, caller))
        wanted = unquote(scope["raw_path"].removeprefix(MODELS).removeprefix(b"/").decode("latin-1"))
        form = form_of(scope)
        if wanted and wanted not in names:
            raise errors.model_not_found(f'there is no model "{errors.shown(wanted)}" for this key')
        if wanted:
            body = anthropic_model_body(wanted) if form is ANTHROPIC else model_body(wanted)
        elif form is ANTHROPIC:
            body = anthropic_model_page(names, scope["query_string"])
        else:
            body = model_list(names)
        headers = [(b"content-type", b"application/json"), *answer_headers(scope, request_id, form)]
        await sink.whole(200, headers, body)


# ── the steps ──


def form_of(scope: Scope) -> ErrorForm:
    """The form of what is answered at a path that no endpoint has: that of the client's family."""
    if any(name == b"anthropic-version" for name, _ in scope["headers"]):
        return ANTHROPIC
    return form_at(scope["raw_path"])


def answer_headers(scope: Scope, request_id: str, form: ErrorForm) -> Headers:
    """The headers that every answer carries."""
    headers: Headers = scope["headers"]
    ids = [(b"x-request-id", request_id.encode()), *returned_headers(headers, dict(headers))]
    if form.id_header is not None:
        ids.append((form.id_header, request_id.encode()))
    return ids


async def answer_error(
    sink: Sink, error: GatewayError, form: ErrorForm, headers: Headers, request_id: str
) -> None:
    """An error of the gateway, before any attempt, as a whole answer in the form of the endpoint."""
    await sink.whole(
        form.status(error),
        [*errors.error_headers(error), (b"x-faregate-attempts", b"0"), *headers],
        form.body(error, request_id),
    )


def upstream_path(endpoint: Endpoint, query: bytes) -> str:
    """Where a deployment is asked: the endpoint's path below its provider's address, with the client's query.

    A query may hold what is new to us; a credential in it is not for the provider.
    """
    kept = without_credentials(query) if query else ""
    return f"{endpoint.upstream_path}?{kept}" if kept else endpoint.upstream_path


def without_credentials(query: bytes) -> str:
    """A query without what may be a key."""
    return "&".join(
        part for part in query.decode("ascii").split("&") if part.partition("=")[0] not in _CREDENTIALS
    )


def anthropic_model_page(names: list[str], query: bytes) -> bytes:
    """One page of the list of models. Raises GatewayError for a limit that is none."""
    asked = dict(parse_qsl(query.decode("ascii")))
    limit = asked.get("limit", "20")
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit) <= 1000):
        raise errors.invalid_value("limit", "limit must be a whole number from 1 to 1000")
    return anthropic_model_list(
        names, limit=int(limit), after=asked.get("after_id"), before=asked.get("before_id")
    )


def names_a_deployment(live: Live, model: str) -> bool:
    """True if a name leads to one deployment and nowhere else."""
    fate = live.policy.fates.get(model)
    return fate is not None and fate.kind == "deployment"


def refusal_error(refused: Refused) -> GatewayError:
    """A decision that leads nowhere, as the client sees it."""
    match refused.code:
        case "model_not_found":
            return errors.model_not_found(refused.message)
        case "tier_not_allowed":
            return errors.tier_not_allowed(refused.message)
        case "model_not_allowed":
            return errors.model_not_allowed(refused.message)
        case "context_length_exceeded":
            return errors.context_length_exceeded(refused.message)
        case "budget_exceeded":
            return errors.budget_exceeded(refused.message)
        case "endpoint_not_served":
            return errors.endpoint_not_served(refused.message)
        case "no_deployment":
            return errors.overloaded(refused.message)


def names_for(live: Live, limits: CallerLimits) -> list[str]:
    """The names a caller may send as `model`: `auto`, its tiers, mapped names, deployments in its tiers."""
    policy = live.policy
    tiers = [name for name in policy.tiers if limits.tiers is None or name in limits.tiers]
    deployments = [
        name
        for name in live.targets
        if limits.tiers is None or not policy.tiers_of[name].isdisjoint(limits.tiers)
    ]
    return list(dict.fromkeys([AUTO, *tiers, *policy.names, *deployments]))


def admitted_entry(
    services: Services,
    live: Live,
    request_id: str,
    now_ms: int,
    facts: RequestFacts,
    seen: Classification,
    decision: Decision,
    admission: Admission,
    most_output: int,
) -> Admitted:
    """What is written down before anything is sent, with what a crash would leave unknown."""
    target = live.targets[decision.deployments[0]]
    guess = cost_of_input_at_ms(facts.input_tokens, target.book, model=target.model, at_ms=now_ms)
    # In three parts, since Python is three times slower with more than fifteen keywords in one call.
    entry = Admitted(
        id=request_id,
        admitted_at_ms=now_ms,
        key_id=facts.key_id,
        team=facts.team,
        application=facts.application,
        feature=facts.feature,
        customer=facts.customer,
        session=facts.session,
        task=facts.task,
        user=facts.user,
        endpoint=facts.endpoint,
        config_digest=live.config.digest,
        held_pico_usd=admission.demand.worst_case or 0,
    )
    entry = replace(
        entry,
        model_asked=facts.model,
        stream=facts.stream,
        input_bytes=facts.input_bytes,
        input_tokens_estimate=facts.input_tokens,
        max_output_tokens=most_output,
        choices=facts.choices,
        messages=facts.messages,
        turn=facts.turn,
        has_tools=facts.has_tools,
        has_images=facts.has_images,
        json_output=facts.json_output,
        task_kind=seen.task_kind,
        confidence=seen.confidence,
        classified_because=seen.because,
    )
    return replace(
        entry,
        rule=decision.rule,
        tier=decision.tier,
        deployments=decision.deployments,
        decided_because=decision.because,
        arm=decision.arm,
        propensity=decision.propensity,
        interrupted_deployment=target.name,
        interrupted_provider=target.provider,
        interrupted_model=target.model,
        interrupted_price_id=guess.price_id,
        interrupted_pico_usd=guess.total,
    )

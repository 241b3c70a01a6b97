"""The attempts of one admitted request, until the client has its answer or there is none to be had.

States: *looking* for a deployment, *asking* one, *answering* the client. Asking may lead back to looking, as
`attempts` says; answering never does. Every way out closes the books, the cancelled ones too.
"""

import asyncio
from urllib.parse import quote

import msgspec

from gateway import attempts, errors
from gateway.attempts import Verdict
from gateway.auth import Caller
from gateway.books import Books, Try, input_guessed, nothing_billed
from gateway.errors import GatewayError
from gateway.holding import hold
from gateway.live import Live, Services, Target
from gateway.relay import COMMENT, read_all, until_content
from gateway.shared_state import Admission
from gateway.sink import Scope, Sink
from gateway.upstream import Call, ClientLeft, Exchange, Limits, UpstreamFailure
from gateway.wire import headers as wire_headers
from gateway.wire.openai_chat import ChatRequest, error_body, prepare, stream_error_event
from gateway.wire.openai_chat_answer import ChatStream, provider_words, read_whole
from pricing.money import usd_text
from pricing.usage import Reading
from routers.decide import Decision
from routers.facts import RequestFacts
from routers.policy import TierSpec

Headers = list[tuple[bytes, bytes]]

PATH = "/chat/completions"
FIRST_TOKEN_SECONDS = 30.0  # where no tier says
TOTAL_SECONDS = 600.0
PATIENT_FROM_SECONDS = 30.0  # a first-token limit above this keeps the client alive with comments


class Draining(Exception):
    """The drain time is over while this stream still runs."""


class Failed(Exception):
    """An attempt gave the client nothing; what that means."""

    def __init__(
        self, verdict: Verdict, error: GatewayError, *, failure: str, reading: Reading, status: int | None
    ) -> None:
        super().__init__(failure)
        self.verdict = verdict
        self.error = error  # what the client gets if this was the last word
        self.failure = failure
        self.reading = reading
        self.status = status


class Answering:
    """One request's attempts."""

    def __init__(
        self,
        *,
        services: Services,
        live: Live,
        request: ChatRequest,
        facts: RequestFacts,
        caller: Caller,
        decision: Decision,
        admission: Admission,
        books: Books,
        sink: Sink,
        outgoing: Headers,
        answer_headers: Headers,
        request_id: str,
        started: float,
        scope: Scope,
    ) -> None:
        self.services = services
        self.live = live
        self.request = request
        self.facts = facts
        self.caller = caller
        self.decision = decision
        self.admission: Admission | None = admission
        self.books = books
        self.sink = sink
        self.outgoing = outgoing
        self.answer_headers = answer_headers
        self.request_id = request_id
        self.started = started
        self.scope = scope
        self.tier: TierSpec | None = live.policy.tiers.get(decision.tier)
        self.total_seconds = self.tier.total_seconds if self.tier else TOTAL_SECONDS
        self.first_token_seconds = self.tier.first_token_seconds if self.tier else FIRST_TOKEN_SECONDS
        self.exchange: Exchange | None = None
        self.left = False
        self.drains = False  # the client left, and this attempt is read on to its usage
        self.waiting: asyncio.Future[None] | None = None  # a pause before one more attempt
        self.attempt = 0
        books.hold(admission)

    # ── the request ──

    async def run(self) -> None:
        """Until the books are closed."""
        self.sink.on_left(self._client_left)
        self.scope["on_drain"] = self._drain_over
        self.services.retries.request(self.started)
        try:
            await self._attempts()
        except ClientLeft:
            self.books.close(state="cancelled", status=499, error="client_left")
        except GatewayError as error:
            self.books.close(state="failed", status=error.status, error=error.code)
            await self._answer_error(error)
        except BaseException:
            self.books.close(state="failed", status=500, error="internal_error")
            raise
        finally:
            self.sink.on_left(None)
            self.scope["on_drain"] = None
            if self.exchange is not None:
                self.exchange.cancel(ClientLeft())

    async def _attempts(self) -> None:
        """Ask one deployment after the other, as long as the rules allow."""
        services = self.services
        asked: list[tuple[Target, Failed]] = []
        waits: list[float] = []
        left_to_ask = list(self.decision.deployments)
        while True:
            target = self._next(left_to_ask, asked)
            if target is None:
                target = await self._again(asked)
            if target is None:
                raise self._last_word(asked, waits)
            if self.attempt and not services.retries.may_retry(services.clock()):
                raise self._last_word(asked, waits)
            try:
                await self._ask(target)
            except Failed as failed:
                verdict = failed.verdict
                services.health.note(
                    target.name, verdict.health, services.clock(), rest_seconds=verdict.rest_seconds
                )
                services.warn(
                    "attempt_failed",
                    {
                        "id": self.request_id,
                        "deployment": target.name,
                        "failure": failed.failure,
                        "status": failed.status,
                    },
                )
                if verdict.rest_seconds is not None:
                    waits.append(verdict.rest_seconds)
                asked.append((target, failed))
                if self.left:
                    raise ClientLeft from None
                if verdict.again == "no" or self.attempt >= attempts.MAX_ATTEMPTS:
                    raise self._last_word(asked, waits) from None
                if verdict.again == "larger_window":
                    left_to_ask = self._larger(target, left_to_ask)
                continue
            return

    def _next(self, left_to_ask: list[str], asked: list[tuple[Target, Failed]]) -> Target | None:
        """The next deployment of the plan that may be asked now."""
        clock = self.services.clock()
        while left_to_ask:
            name = left_to_ask.pop(0)
            last_resort = self.decision.all_rest and not asked
            if self.services.health.may_try(name, clock, last_resort=last_resort):
                return self.live.targets[name]
        return None

    async def _again(self, asked: list[tuple[Target, Failed]]) -> Target | None:
        """A deployment that was asked already, after a pause; None: there is none, or no time for it."""
        services = self.services
        hopeful = [(target, failed) for target, failed in asked if failed.verdict.again == "anywhere"]
        if not hopeful or any(failed.verdict.again in ("no", "larger_window") for _, failed in asked):
            return None
        target, failed = (
            hopeful[0] if len(hopeful) > 1 and hopeful[0][0] is not hopeful[-1][0] else hopeful[-1]
        )
        pause = attempts.pause_seconds(
            self.attempt, services.random, base_seconds=services.retry_base_seconds
        )
        pause = max(pause, services.health.rests_for(target.name, services.clock()))
        if (
            pause > services.retry_wait_seconds
            or services.clock() + pause > self.started + self.total_seconds
        ):
            return None
        await self._pause(pause)
        if not services.health.may_try(target.name, services.clock(), last_resort=True):
            return None
        return target

    async def _pause(self, seconds: float) -> None:
        """Wait, unless the client leaves."""
        loop = asyncio.get_running_loop()
        self.waiting = loop.create_future()
        timer = loop.call_later(seconds, _let_go, self.waiting)
        try:
            await self.waiting
        finally:
            timer.cancel()
            self.waiting = None
        if self.left:
            raise ClientLeft

    def _larger(self, target: Target, left_to_ask: list[str]) -> list[str]:
        """After a prompt too long for `target`: one other deployment with a larger window, if the plan has one."""
        if target.context_tokens is None:
            return []
        for name in left_to_ask:
            window = self.live.targets[name].context_tokens
            if window is not None and window > target.context_tokens:
                return [name]
        return []

    def _last_word(self, asked: list[tuple[Target, Failed]], waits: list[float]) -> GatewayError:
        """The error the client gets when nobody could answer."""
        if not asked:
            clock = self.services.clock()
            rests = [self.services.health.rests_for(name, clock) for name in self.decision.deployments]
            return errors.overloaded(
                "every deployment that could answer rests after failures",
                retry_after_seconds=max(min(rests, default=1.0), 1.0),
            )
        limited = [failed for _, failed in asked if failed.status == 429]
        if len(limited) == len(asked) and not any(f.error.code == "insufficient_quota" for f in limited):
            return errors.upstream_rate_limited(
                "every deployment that could answer is at its provider's rate limit",
                retry_after_seconds=min(waits) if waits else None,
            )
        return asked[-1][1].error

    # ── one attempt ──

    async def _ask(self, target: Target) -> None:
        """One attempt; returns when the client was answered. Raises Failed, ClientLeft."""
        services, facts, request = self.services, self.facts, self.request
        self.attempt += 1
        most_output = target.most_output(facts, self.tier)
        admission = self.admission
        if admission is None:
            admission = await self._hold_again(target, most_output)
        self.admission = None
        tried = Try(self.attempt, target, admission, services.clock(), services.wall_ms())
        cap = self.tier.max_output_tokens if self.tier else None
        prepared = prepare(
            request, model=target.model, parameters=target.parameters, ask_usage=True, max_output_tokens=cap
        )
        outgoing = self.outgoing
        if services.names_attempts:
            outgoing = [*outgoing, (b"x-faregate-attempt", f"{self.request_id}.{self.attempt}".encode())]
        if self.left:
            raise ClientLeft
        self.drains = False
        exchange = self.exchange = target.upstream.open(
            Call(
                method="POST",
                path=PATH,
                headers=outgoing,
                body=prepared.body,
                limits=Limits(
                    connect_seconds=target.connect_seconds,
                    first_token_seconds=self.first_token_seconds if request.stream else None,
                    idle_seconds=target.idle_seconds,
                    total_seconds=max(0.001, self.started + self.total_seconds - services.clock()),
                ),
            )
        )
        stream = (
            ChatStream(dialect=target.dialect, drop_usage=not request.wants_usage) if request.stream else None
        )
        try:
            await self._head(exchange, target, tried)
            if stream is None:
                await self._whole(exchange, target, tried, prepared.changed)
            else:
                await self._stream(exchange, target, tried, stream, prepared.changed, most_output)
        except Failed as failed:
            self.books.book(
                tried, failed.reading, status=failed.status, failure=failed.failure, output_high=most_output
            )
            exchange.cancel(failed)
            raise
        except UpstreamFailure as failure:
            failed = self._failed(failure, exchange, stream)
            self.books.book(
                tried, failed.reading, status=failed.status, failure=failed.failure, output_high=most_output
            )
            raise failed from None
        except (
            BaseException
        ):  # the client left, the process ends, a fault of ours: the attempt is booked all the same
            self._book_cut(tried, exchange, stream, most_output)
            raise
        finally:
            self.exchange = None
            exchange.cancel(ClientLeft())

    async def _hold_again(self, target: Target, most_output: int) -> Admission:
        """Hold a further attempt's worst case; it may be dearer than the first one's."""
        admission = await hold(
            self.services,
            target,
            self.facts,
            self.caller,
            self.request_id,
            self.services.wall_ms(),
            most_output,
            counts_as_request=False,
        )
        self.books.hold(admission)
        return admission

    async def _head(self, exchange: Exchange, target: Target, tried: Try) -> None:
        """Wait for the status; an error status is a failed attempt."""
        services = self.services
        await exchange.head()
        status = exchange.status
        if status == 200:
            return
        if status < 400:
            raise Failed(
                attempts.NONSENSE,
                errors.upstream_invalid_response(f'"{target.name}" answered with status {status}'),
                failure=f"status_{status}",
                reading=nothing_billed("upstream_error"),
                status=status,
            )
        body = await read_all(exchange, services.max_answer_bytes)
        words = provider_words(body)
        wait = wire_headers.wait_seconds(exchange.headers, services.wall_ms() / 1000)
        verdict = attempts.verdict_on_status(status, code=words.code, wait_seconds=wait)
        raise Failed(
            verdict,
            self._provider_error(status, words.message, words.type, words.code, words.param, target, wait),
            failure=f"status_{status}",
            reading=nothing_billed("http_error"),
            status=status,
        )

    def _provider_error(
        self,
        status: int,
        message: str | None,
        type: str | None,
        code: str | None,
        param: str | None,
        target: Target,
        wait: float | None,
    ) -> GatewayError:
        """A provider's error in the words the client may see."""
        secrets = (target.api_key,) if target.api_key else ()

        def clean(text: str | None) -> str | None:
            return None if text is None else wire_headers.scrub(text, secrets)

        said = clean(message) or f"the provider answered with status {status}"
        if status in (401, 403):
            return errors.upstream_error(
                f'"{target.name}" refuses the gateway\'s own key; the operator has to mend it'
            )
        if status == 429:
            if code == "insufficient_quota":
                return GatewayError(429, "rate_limit_error", "insufficient_quota", said, should_retry=False)
            return errors.upstream_rate_limited(said, retry_after_seconds=wait)
        if status >= 500:
            return errors.upstream_error(said, status=status, code=clean(code) or "upstream_error")
        return errors.provider_error(
            status=status, message=said, type=clean(type), code=clean(code), param=clean(param)
        )

    def _failed(self, failure: UpstreamFailure, exchange: Exchange, stream: ChatStream | None) -> Failed:
        """What an exchange that broke before anything went to the client means."""
        kind = failure.kind
        verdict = attempts.verdict_on_failure(kind, sent=failure.sent)
        billed = verdict.cost == "estimated" and not (kind == "invalid_response" and exchange.status == 0)
        if kind in ("first_token_timeout", "idle_timeout", "total_timeout"):
            error = errors.upstream_timeout("the provider did not answer within its time limit")
        elif kind == "invalid_response" or (kind == "reset" and exchange.status):
            error = errors.upstream_invalid_response("the provider's answer was not whole")
        elif kind == "pool_exhausted":
            error = errors.overloaded("all connections to the provider are in use")
        else:
            error = errors.upstream_unreachable("the provider could not be reached")
        reading = nothing_billed()
        if billed:
            reading = input_guessed(self.facts, "upstream_cut")
        return Failed(verdict, error, failure=kind, reading=reading, status=exchange.status or None)

    def _book_cut(self, tried: Try, exchange: Exchange, stream: ChatStream | None, most_output: int) -> None:
        """Book an attempt that we ended ourselves."""
        if self.books.closed or tried.admission is not self.books.held:
            return
        if not exchange.sent:
            reading = nothing_billed("client_abort")
        elif stream is not None:
            reading = stream.reading(
                status=exchange.status or 200,
                end="client_abort",
                input_tokens_estimate=self.facts.input_tokens,
            )
        else:
            reading = input_guessed(self.facts, "client_abort")
        self.books.book(
            tried, reading, status=exchange.status or None, failure="client_left", output_high=most_output
        )

    # ── a whole answer ──

    async def _whole(self, exchange: Exchange, target: Target, tried: Try, changed: tuple[str, ...]) -> None:
        services = self.services
        body = await read_all(exchange, services.max_answer_bytes)
        tried.first_byte_ms = round((services.clock() - tried.started) * 1000)
        reading = read_whole(
            body,
            status=200,
            dialect=target.dialect,
            content_encoding=None,
            end="complete",
            input_tokens_estimate=self.facts.input_tokens,
        )
        if "upstream_error" in reading.flags and not (reading.text_bytes and _is_json(body)):
            raise self._no_answer(body, target, reading)
        services.health.note(target.name, "ok", services.clock())
        cost = self.books.book(tried, reading, status=200)
        headers = self._headers(exchange, target, reading.model, changed)
        headers.append((b"content-length", b"%d" % len(body)))
        headers.append((b"x-faregate-usage-source", reading.source.encode()))
        if cost.total is not None:
            headers.append((b"x-faregate-cost-usd", usd_text(self.books.cost or 0).encode()))
        self.books.close(state="answered", status=200, first_byte_ms=self._since_start_ms())
        await self.sink.whole(200, headers, body)

    def _no_answer(self, body: bytes, target: Target, reading: Reading) -> Failed:
        """A 200 that holds no answer: the provider's own error, a page, or JSON that stops in the middle."""
        words = provider_words(body)
        if words.message is not None:
            error = self._provider_error(
                502, words.message, words.type, words.code, words.param, target, None
            )
            return Failed(attempts.NONSENSE, error, failure="upstream_error", reading=reading, status=200)
        error = errors.upstream_invalid_response(f'"{target.name}" sent no answer of this form')
        if body.lstrip()[:1] == b"{" and not _is_json(body):
            if reading.source == "none":
                reading = input_guessed(self.facts, "upstream_cut")
            return Failed(attempts.BROKEN, error, failure="invalid_response", reading=reading, status=200)
        return Failed(attempts.NONSENSE, error, failure="invalid_response", reading=reading, status=200)

    # ── a stream ──

    async def _stream(
        self,
        exchange: Exchange,
        target: Target,
        tried: Try,
        stream: ChatStream,
        changed: tuple[str, ...],
        most_output: int,
    ) -> None:
        services = self.services
        if not _is_event_stream(exchange):
            raise self._not_a_stream(await read_all(exchange, services.max_answer_bytes), target)
        if self.first_token_seconds > PATIENT_FROM_SECONDS:
            held = await self._patiently(exchange, stream, target, changed)
        else:
            held = await until_content(exchange, stream)
        if not stream.content_seen and not self.sink.begun:
            if stream.error is not None or not stream.finished:
                raise self._no_content(stream, target)
        exchange.first_token()
        tried.first_byte_ms = round((services.clock() - tried.started) * 1000)
        first_byte_ms = self._since_start_ms()
        services.health.note(target.name, "ok", services.clock())
        self.drains = target.drains
        if not self.sink.begun:
            await self.sink.begin(200, self._headers(exchange, target, stream.model, changed))
        last = b""
        try:
            last = await self._pass_on(exchange, stream, held)
        except UpstreamFailure as failure:
            error = _broken(failure)
        except Draining:
            error = errors.draining()
        else:
            error = self._stream_problem(stream)
            if error is None:
                reading = stream.reading(
                    status=200, end="complete", input_tokens_estimate=self.facts.input_tokens
                )
                self.books.book(tried, reading, status=200, output_high=most_output)
                if self.left:
                    raise ClientLeft
                self.books.close(state="answered", status=200, first_byte_ms=first_byte_ms)
                await self.sink.end(last)
                return
        reading = stream.reading(
            status=200,
            end="complete"
            if stream.error is not None and stream.error.kind == "error_event"
            else "upstream_cut",
            input_tokens_estimate=self.facts.input_tokens,
        )
        self.books.book(tried, reading, status=200, failure=error.code, output_high=most_output)
        self.books.close(state="failed", status=200, error=error.code, first_byte_ms=first_byte_ms)
        await self.sink.cut(last + stream_error_event(error))

    async def _pass_on(self, exchange: Exchange, stream: ChatStream, held: bytes) -> bytes:
        """Every piece as it comes; returns the last one, which must wait until the books are closed."""
        out = held
        while not exchange.ended and stream.error is None:
            if out and not self.left:
                await self.sink.send(out)
            piece = await exchange.more()
            if not piece:
                out = b""
                break
            out = stream.feed(piece)
        rest = stream.rest() if stream.error is None else b""
        return out + rest if rest else out

    async def _patiently(
        self, exchange: Exchange, stream: ChatStream, target: Target, changed: tuple[str, ...]
    ) -> bytes:
        """Wait for a slow first token, with a comment to the client now and then, which commits the status."""
        waiting = asyncio.ensure_future(until_content(exchange, stream))
        try:
            while True:
                done, _ = await asyncio.wait({waiting}, timeout=self.services.keep_alive_seconds)
                if done:
                    return waiting.result()
                if self.left:
                    continue
                if not self.sink.begun:
                    await self.sink.begin(200, self._headers(exchange, target, None, changed))
                await self.sink.send(COMMENT)
        finally:
            waiting.cancel()

    def _not_a_stream(self, body: bytes, target: Target) -> Failed:
        """A streamed request that was answered by something else."""
        words = provider_words(body)
        if words.message is not None:
            error = self._provider_error(
                502, words.message, words.type, words.code, words.param, target, None
            )
            return Failed(
                attempts.NONSENSE,
                error,
                failure="upstream_error",
                reading=nothing_billed("upstream_error"),
                status=200,
            )
        reading = read_whole(
            body,
            status=200,
            dialect=target.dialect,
            content_encoding=None,
            end="complete",
            input_tokens_estimate=self.facts.input_tokens,
        )
        error = errors.upstream_invalid_response(f'"{target.name}" did not stream its answer')
        return Failed(attempts.NONSENSE, error, failure="invalid_response", reading=reading, status=200)

    def _no_content(self, stream: ChatStream, target: Target) -> Failed:
        """A stream that ended before its first content."""
        problem = stream.error
        if problem is not None and problem.kind == "error_event":
            error = self._provider_error(502, problem.message, problem.type, problem.code, None, target, None)
            reading = stream.reading(
                status=200, end="complete", input_tokens_estimate=self.facts.input_tokens
            )
            return Failed(attempts.NONSENSE, error, failure="upstream_error", reading=reading, status=200)
        error = errors.upstream_invalid_response(f'"{target.name}" sent no stream of this form')
        if problem is None and stream.events == 0:
            reading = nothing_billed("upstream_error")
            return Failed(attempts.NONSENSE, error, failure="invalid_response", reading=reading, status=200)
        reading = input_guessed(self.facts, "upstream_cut")
        return Failed(attempts.BROKEN, error, failure="invalid_response", reading=reading, status=200)

    def _stream_problem(self, stream: ChatStream) -> GatewayError | None:
        """Why a stream that ended is not whole; None: it is."""
        problem = stream.error
        if problem is None:
            if stream.finished:
                return None
            return errors.stream_interrupted("the provider's stream ended before its answer did")
        if problem.kind == "error_event":
            said = wire_headers.scrub(problem.message or "the provider reported an error")
            return errors.upstream_error(said, code=wire_headers.scrub(problem.code or "upstream_error"))
        return errors.upstream_invalid_response("the provider's stream is not of this form")

    # ── the client ──

    def _client_left(self) -> None:
        """Called the moment the client is gone."""
        self.left = True
        if self.waiting is not None:
            _let_go(self.waiting)
        if self.exchange is not None and not self.drains:
            self.exchange.cancel(ClientLeft())

    def _drain_over(self) -> None:
        """Called when the process has to end."""
        if self.exchange is not None:
            self.exchange.cancel(Draining())

    def _since_start_ms(self) -> int:
        return round((self.services.clock() - self.started) * 1000)

    def _headers(
        self, exchange: Exchange, target: Target, model: str | None, changed: tuple[str, ...]
    ) -> Headers:
        """The headers of an answer: what of the provider's may pass, and ours."""
        headers = wire_headers.to_client(exchange.headers)
        headers += self.answer_headers
        decision = self.decision
        headers.append((b"x-faregate-tier", decision.tier.encode() or b"-"))
        headers.append((b"x-faregate-deployment", _header_text(target.name)))
        headers.append((b"x-faregate-model", _header_text(model or target.model)))
        headers.append((b"x-faregate-rule", _header_text(decision.rule)))
        headers.append((b"x-faregate-attempts", b"%d" % self.attempt))
        if changed:
            headers.append((b"x-faregate-changed", _header_text(", ".join(changed))))
        if self.services.simulated:
            headers.append((b"x-faregate-simulated", b"true"))
        return headers

    async def _answer_error(self, error: GatewayError) -> None:
        """The error, or nothing to nobody."""
        if self.left:
            return
        if self.sink.begun:  # a comment to a waiting client has committed the status
            await self.sink.cut(stream_error_event(error))
            return
        body = error_body(error)
        await self.sink.whole(
            error.status,
            [
                *errors.error_headers(error),
                (b"content-length", b"%d" % len(body)),
                (b"x-faregate-attempts", b"%d" % self.attempt),
                *self.answer_headers,
            ],
            body,
        )


def _header_text(text: str) -> bytes:
    """A name as a header may carry it: percent-encoded where it is not plain ASCII."""
    return text.encode() if text.isascii() and text.isprintable() else quote(text, safe=" ,:;/()'\"").encode()


def _let_go(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _is_event_stream(exchange: Exchange) -> bool:
    for name, value in exchange.headers:
        if name == b"content-type":
            return value.lower().startswith(b"text/event-stream")
    return True  # a stream that says nothing of its type is looked at as one


def _broken(failure: UpstreamFailure) -> GatewayError:
    """What ends a stream that broke after its first content."""
    if failure.kind in ("idle_timeout", "total_timeout", "first_token_timeout"):
        return errors.upstream_timeout("the provider's stream did not go on within its time limit")
    if failure.kind == "invalid_response":
        return errors.upstream_invalid_response("the provider's stream is not of this form")
    return errors.stream_interrupted("the provider's stream broke")

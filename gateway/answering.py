"""The attempts of one admitted request, until the client has its answer or there is none to be had.

States: *looking* for a deployment (`plan`), *asking* one, *answering* the client. Asking may lead back to looking,
as `attempts` says; answering never does. What a failed attempt means is `outcome`'s to say. Every way out closes
the books, the cancelled ones too.
"""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import NoReturn
from urllib.parse import quote

from gateway import errors, outcome
from gateway.asking import Asking
from gateway.books import Books, Try, input_guessed, nothing_billed
from gateway.errors import GatewayError
from gateway.holding import hold_again
from gateway.live import Live, Services, Target
from gateway.outcome import Draining, Failed
from gateway.plan import Plan
from gateway.relay import COMMENT, read_all, until_content
from gateway.shared_state import Admission
from gateway.sink import Sink
from gateway.upstream import Call, ClientLeft, Exchange, Limits, UpstreamFailure
from gateway.wire import headers as wire_headers
from gateway.wire.endpoints import AskedRequest, Endpoint
from gateway.wire.meters import StreamMeter
from gateway.wire.provider_words import ProviderWords, provider_words
from ledger.answers import Maker
from ledger.entry import RequestState
from pricing.money import usd_text
from routers.decide import Decision
from routers.facts import RequestFacts

Headers = list[tuple[bytes, bytes]]

FIRST_TOKEN_SECONDS = 30.0  # where no tier says
TOTAL_SECONDS = 600.0
PATIENT_FROM_SECONDS = 30.0  # a first-token limit above this keeps the client alive with comments
MOST_ERROR_BYTES = 1 << 20  # of a provider's error body that are read for its words


class Answering:
    """One request's attempts."""

    # What every request begins with.
    exchange: Exchange | None = None
    left = False
    drains = False  # the client left, and this attempt is read on to its usage
    waiting: asyncio.Future[None] | None = None  # a pause before one more attempt
    told = False  # health knows how the attempt under way went
    unbooked: tuple[Try, Failed, int] | None = None  # an attempt about to be repeated with the same key
    repeats = False  # the attempt under way is that repeat
    total_seconds = TOTAL_SECONDS
    first_token_seconds = FIRST_TOKEN_SECONDS

    def __init__(
        self,
        services: Services,
        live: Live,
        endpoint: Endpoint,
        path: str,
        request: AskedRequest,
        facts: RequestFacts,
        asked: Asking,
        decision: Decision,
        admission: Admission,
        books: Books,
        sink: Sink,
        request_id: str,
        started: float,
    ) -> None:
        self.services = services
        self.live = live
        self.endpoint = endpoint
        self.path = path  # below the provider's base URL, with its query
        self.request = request
        self.facts = facts
        self.asked = asked
        self.decision = decision
        self.admission: Admission | None = admission
        self.books = books
        self.sink = sink
        self.request_id = request_id
        self.started = started
        tier = self.tier = live.policy.tiers.get(decision.tier)
        if tier is not None:
            self.total_seconds = tier.total_seconds
            self.first_token_seconds = tier.first_token_seconds
        self.plan = Plan(services, live, decision, due=started + self.total_seconds)
        books.hold(admission)

    # ── the request ──

    async def run(self) -> None:
        """Until the books are closed."""
        self.sink.on_left(self._client_left)
        self.sink.on_drain(self._drain_over)
        self.services.retries.request(self.started)
        try:
            await self._attempts()
        except ClientLeft:
            self._close("cancelled", 499, "client_left")
        except Draining:
            await self._fail(errors.draining())
        except GatewayError as error:
            await self._fail(error)
        except BaseException:
            self._close("failed", 500, "internal_error")
            raise
        finally:
            self.sink.on_left(None)
            self.sink.on_drain(None)
            if self.exchange is not None:
                self.exchange.cancel(ClientLeft())

    def _close(self, state: RequestState, status: int, error: str) -> None:
        """Close the books of a request that was not answered; what the client has seen stays true."""
        if self.left:
            state = "cancelled"
        self.books.close(state=state, status=200 if self.sink.begun else status, error=error)

    async def _fail(self, error: GatewayError) -> None:
        self._close("failed", self.endpoint.errors.status(error), outcome.word_of(error))
        await self._answer_error(error)

    async def _attempts(self) -> None:
        """Ask one deployment after the other, as long as the rules allow."""
        plan = self.plan
        try:
            while True:
                step = plan.next()
                if step is None:
                    raise plan.last_word()
                if step.pause_seconds:
                    await self._pause(step.pause_seconds)
                    if not plan.may_go(step):
                        raise plan.last_word()
                self.told = False
                try:
                    await self._ask(step.target)
                except Failed as failed:
                    self.told = True
                    plan.failed(step.target, failed)
                    self._warn(step.target, failed)
                    if self.left:
                        raise ClientLeft from None
                    if self.sink.begun:  # a comment to a waiting client has committed the status
                        raise failed.error from None
                    continue
                finally:
                    if not self.told:
                        plan.says_nothing(step.target)
                return
        finally:
            if self.unbooked is not None:
                self._book_unrepeated(*self.unbooked)

    def _warn(self, target: Target, failed: Failed) -> None:
        self.services.warn(
            "attempt_failed",
            {
                "id": self.request_id,
                "deployment": target.name,
                "failure": failed.failure,
                "status": failed.status,
                "detail": failed.detail,
            },
        )

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

    # ── one attempt ──

    async def _ask(self, target: Target) -> None:
        """One attempt; returns when the client was answered. Raises Failed, ClientLeft, Draining, GatewayError."""
        services, facts, request = self.services, self.facts, self.request
        most_output = target.most_output(facts, self.tier)
        admission = self.admission
        if admission is None:
            admission = await self._hold_again(target, most_output)
        self.admission = None
        if self.left:
            raise ClientLeft
        self.plan.made += 1
        tried = Try(self.plan.made, target, admission, services.clock(), services.wall_ms())
        cap = self.tier.max_output_tokens if self.tier else None
        endpoint = self.endpoint
        prepared = endpoint.prepare(
            request, model=target.model, parameters=target.parameters, max_output_tokens=cap
        )
        outgoing = self.asked.outgoing
        if endpoint.default_headers:
            outgoing = with_defaults(outgoing, endpoint.default_headers)
        if services.names_attempts:
            outgoing = [*outgoing, (b"x-faregate-attempt", f"{self.request_id}.{tried.n}".encode())]
        self.drains = target.drains and not request.stream
        exchange = self.exchange = target.upstream.open(
            Call(
                method="POST",
                path=self.path,
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
        if self.unbooked is not None:
            self._book_repeated(*self.unbooked)
        stream = (
            endpoint.meter.stream(dialect=target.dialect, drop_usage=not request.wants_usage)
            if request.stream
            else None
        )
        try:
            await exchange.head()
            if exchange.status != 200:
                await self._not_answered(exchange, target)
            if stream is None:
                await self._whole(exchange, target, tried, prepared.changed)
            else:
                await self._stream(exchange, target, tried, stream, prepared.changed, most_output)
        except Failed as failed:
            self._book_failed(tried, failed, most_output)
            raise
        except UpstreamFailure as failure:
            failed = outcome.broken(
                failure, status=exchange.status, facts=facts, repeatable=self._is_repeatable()
            )
            if failed.verdict.again == "here":
                self.unbooked = (tried, failed, most_output)
            else:
                self._book_failed(tried, failed, most_output)
            raise failed from None
        except (
            BaseException
        ) as why:  # the client left, the process ends, a fault of ours: the attempt is booked all the same
            self._book_cut(tried, exchange, stream, most_output, why)
            raise
        finally:
            self.exchange = None
            if not exchange.ended:
                exchange.cancel(ClientLeft())

    def _is_repeatable(self) -> bool:
        """True if the client named its request, so that a provider can tell a repeat, and it was not repeated yet."""
        return not self.repeats and any(name == b"idempotency-key" for name, _ in self.asked.outgoing)

    # ── its books ──

    def _book_failed(self, tried: Try, failed: Failed, most_output: int) -> None:
        reading = failed.reading
        if self.repeats and reading.source == "none":  # then the first one's work is not in this one's bill
            reading = input_guessed(self.facts, "upstream_cut")
        self.books.book(tried, reading, status=failed.status, failure=failed.failure, output_high=most_output)

    def _book_repeated(self, tried: Try, failed: Failed, most_output: int) -> None:
        """The same request is on its way to the same provider once more: it is billed there, and once."""
        self.unbooked = None
        self.repeats = True
        self.books.book(tried, nothing_billed("upstream_cut"), status=failed.status, failure=failed.failure)

    def _book_unrepeated(self, tried: Try, failed: Failed, most_output: int) -> None:
        self.unbooked = None
        self._book_failed(tried, failed, most_output)

    def _book_cut(
        self,
        tried: Try,
        exchange: Exchange,
        stream: StreamMeter | None,
        most_output: int,
        why: BaseException,
    ) -> None:
        """Book an attempt that we ended ourselves."""
        if self.books.closed or tried.admission is not self.books.held:
            return
        status = exchange.status
        if not exchange.sent:
            reading = nothing_billed("client_abort")
        elif status >= 400:
            reading = nothing_billed("http_error")
        elif stream is not None:
            reading = stream.reading(
                status=status or 200, end="client_abort", input_tokens_estimate=self.facts.input_tokens
            )
        else:
            reading = input_guessed(self.facts, "client_abort")
        self.books.book(
            tried,
            reading,
            status=status or None,
            failure="draining" if isinstance(why, Draining) else "client_left",
            output_high=most_output,
        )

    async def _hold_again(self, target: Target, most_output: int) -> Admission:
        """Hold a further attempt's worst case; it may be dearer than the first one's."""
        admission = await hold_again(
            self.services,
            self.live,
            target,
            self.decision.tier,
            self.facts,
            self.asked.caller,
            self.request_id,
            self.services.wall_ms(),
            most_output,
        )
        self.books.hold(admission)
        return admission

    async def _not_answered(self, exchange: Exchange, target: Target) -> NoReturn:
        """Any other status than 200 is a failed attempt. Raises Failed."""
        status = exchange.status
        if status < 400:
            raise outcome.odd_status(target, status)
        try:
            words = provider_words(await read_all(exchange, MOST_ERROR_BYTES))
        except UpstreamFailure:  # the status alone says enough
            words = ProviderWords()
        wait = wire_headers.wait_seconds(exchange.headers, self.services.wall_ms() / 1000)
        failed = outcome.error_status(target, status, words, wait)
        failed.headers = wire_headers.beside_an_error(exchange.headers)
        raise failed

    # ── a whole answer ──

    async def _whole(self, exchange: Exchange, target: Target, tried: Try, changed: tuple[str, ...]) -> None:
        services = self.services
        body = await read_all(exchange, services.max_answer_bytes)
        tried.first_byte_ms = round((services.clock() - tried.started) * 1000)
        reading = self.endpoint.meter.read_whole(
            body,
            status=200,
            dialect=target.dialect,
            input_tokens_estimate=self.facts.input_tokens,
        )
        if outcome.is_no_answer(body, reading):
            raise outcome.no_answer(body, target, reading, self.facts)
        self._answers(target)
        if reading.answer_id is not None and self.endpoint.has_chains:
            self._remember(reading.answer_id, target)
        cost = self.books.book(tried, reading, status=200)
        if self.left:
            raise ClientLeft
        headers = self._headers(exchange, target, reading.model, changed)
        headers.append((b"x-faregate-usage-source", reading.source.encode()))
        if cost.total is not None:
            headers.append((b"x-faregate-cost-usd", usd_text(self.books.cost or 0).encode()))
        self.books.close(state="answered", status=200, first_byte_ms=self._since_start_ms())
        await self.sink.whole(200, headers, body)

    # ── a stream ──

    async def _stream(
        self,
        exchange: Exchange,
        target: Target,
        tried: Try,
        stream: StreamMeter,
        changed: tuple[str, ...],
        most_output: int,
    ) -> None:
        services = self.services
        if not _is_event_stream(exchange):
            body = await read_all(exchange, services.max_answer_bytes)
            raise outcome.no_stream(body, target, self.facts, self.endpoint.meter)
        if self.first_token_seconds > PATIENT_FROM_SECONDS:
            held = await self._patiently(exchange, stream, target, changed)
        else:
            held = await until_content(exchange, stream)
        if not stream.content_seen and (stream.error is not None or not stream.finished):
            raise outcome.no_content(stream, target, self.facts)
        exchange.first_token()
        tried.first_byte_ms = round((services.clock() - tried.started) * 1000)
        first_byte_ms = self._since_start_ms()
        self._answers(target)
        if stream.answer_id is not None and self.endpoint.has_chains:
            self._remember(stream.answer_id, target)
        self.drains = target.drains
        if not self.sink.begun:
            await self.sink.begin(200, self._headers(exchange, target, stream.model, changed))
        last = b""
        try:
            last = await self._pass_on(exchange, stream, held)
        except UpstreamFailure as failure:
            error = outcome.stream_broke(failure)
        except Draining:
            error = errors.draining()
        else:
            error = outcome.stream_problem(stream, target)
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
        if self.left:
            raise ClientLeft
        self.books.close(state="failed", status=200, error=error.code, first_byte_ms=first_byte_ms)
        if last and not last.endswith((b"\n\n", b"\r\r", b"\r\n\r\n")):
            last += b"\n\n"  # the stream's last event lacks its end: ours must not become a part of it
        await self.sink.cut(last + self.endpoint.errors.last_event(error, self.request_id, stream))

    async def _pass_on(self, exchange: Exchange, stream: StreamMeter, held: bytes) -> bytes:
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
        self, exchange: Exchange, stream: StreamMeter, target: Target, changed: tuple[str, ...]
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
            if not waiting.cancel() and not waiting.cancelled():
                waiting.exception()  # seen, if we leave for another reason

    def _remember(self, answer_id: str, target: Target) -> None:
        self.services.makers.remember(answer_id, Maker(deployment=target.name, team=self.facts.team))

    def _answers(self, target: Target) -> None:
        self.told = True
        self.plan.answers(target)

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
        decision = self.decision
        headers = wire_headers.to_client(exchange.headers)
        headers += self._ids()
        headers += _route_headers(decision.tier, target.name, model or target.model, decision.rule)
        headers.append((b"x-faregate-attempts", b"%d" % self.plan.made))
        if changed:
            headers.append((b"x-faregate-changed", _header_text(", ".join(changed))))
        if self.services.simulated:
            headers.append((b"x-faregate-simulated", b"true"))
        return headers

    def _ids(self) -> Headers:
        """The request's id, also under the name that this endpoint's clients look for, and the client's own."""
        request_id = self.request_id.encode()
        ids = [(b"x-request-id", request_id), *self.asked.returned]
        header = self.endpoint.errors.id_header
        if header is not None:
            ids.append((header, request_id))
        return ids

    async def _answer_error(self, error: GatewayError) -> None:
        """The error, or nothing to nobody."""
        if self.left:
            return
        if self.sink.begun:  # a comment to a waiting client has committed the status
            await self.sink.cut(self.endpoint.errors.last_event(error, self.request_id, None))
            return
        form = self.endpoint.errors
        await self.sink.whole(
            form.status(error),
            [
                *errors.error_headers(error),
                (b"x-faregate-attempts", b"%d" % self.plan.made),
                *self.plan.headers(),
                *self._ids(),
            ],
            form.body(error, self.request_id),
        )


def with_defaults(headers: Headers, defaults: Sequence[tuple[bytes, bytes]]) -> Headers:
    """These headers, and of the defaults those whose names are not among them."""
    names = {name for name, _ in headers}
    return [*headers, *(default for default in defaults if default[0] not in names)]


@lru_cache(maxsize=256)  # routes are few; a provider may answer with any model's name
def _route_headers(tier: str, deployment: str, model: str, rule: str) -> tuple[tuple[bytes, bytes], ...]:
    """The way that a request took, as its answer tells it."""
    return (
        (b"x-faregate-tier", tier.encode() or b"-"),
        (b"x-faregate-deployment", _header_text(deployment)),
        (b"x-faregate-model", _header_text(model)),
        (b"x-faregate-rule", _header_text(rule)),
    )


def _header_text(text: str) -> bytes:
    """A name as a header may carry it: percent-encoded where it is not plain ASCII."""
    return text.encode() if text.isascii() and text.isprintable() else quote(text, safe=" ,:;/()'\"").encode()


def _let_go(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _is_event_stream(exchange: Exchange) -> bool:
    for name, value in exchange.headers:
        if name == b"content-type":
            return value.lower().startswith(b"text/event-stream")
    return True  # a stream that says nothing of its type is looked at as one

"""Stored answers, asked for by their id: read, deleted, cancelled, their input listed.

The question goes to the deployment that made the answer, and to no other. It is not billed and leaves no row.
"""

from typing import Final

from gateway import errors, outcome
from gateway.affinity import Makers
from gateway.asking import Asking
from gateway.errors import GatewayError
from gateway.live import Live, Services, Target
from gateway.relay import read_all
from gateway.sink import Sink
from gateway.upstream import Call, ClientLeft, Exchange, Limits, UpstreamFailure
from gateway.wire import headers as wire_headers
from gateway.wire.provider_words import provider_words
from ledger.store import LedgerAway

RESPONSES: Final = b"/v1/responses/"
_QUESTIONS: Final = frozenset({("GET", ""), ("DELETE", ""), ("POST", "cancel"), ("GET", "input_items")})
_ID_CHARACTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.")
_MOST_ERROR_BYTES: Final = 1 << 20
_TOTAL_SECONDS: Final = 600.0

Headers = list[tuple[bytes, bytes]]


async def answer_by_id(
    services: Services,
    live: Live,
    asked: Asking,
    method: str,
    path: str,
    query: str,
    sink: Sink,
    ids: Headers,
) -> None:
    """Answer one such question. `path` is what stands behind `/v1/responses/`. Raises GatewayError."""
    answer_id, _, rest = path.partition("/")
    if not answer_id or not _ID_CHARACTERS.issuperset(answer_id):
        raise errors.not_found(f"/v1/responses/{path}")
    if (method, rest) not in _QUESTIONS:
        if any(rest == known for _, known in _QUESTIONS):
            raise errors.method_not_allowed(method, f"/v1/responses/{path}")
        raise errors.not_found(f"/v1/responses/{path}")
    target = await _made_by(services.makers, live, asked, answer_id)
    exchange = target.upstream.open(
        Call(
            method=method,
            path=f"/responses/{path}" + (f"?{query}" if query else ""),
            headers=asked.outgoing,
            body=b"",
            limits=Limits(
                connect_seconds=target.connect_seconds,
                first_token_seconds=None,
                idle_seconds=target.idle_seconds,
                total_seconds=_TOTAL_SECONDS,
            ),
        )
    )
    sink.on_left(lambda: exchange.cancel(ClientLeft()))
    try:
        await exchange.head()
        if exchange.status != 200:
            raise await _refusal(exchange, target)
        await _pass_on(exchange, target, services.max_answer_bytes, sink, ids)
    except UpstreamFailure as failure:
        if sink.begun:
            await sink.cut(b"")
        else:
            raise outcome.unreachable(failure) from None
    except ClientLeft:
        return
    finally:
        sink.on_left(None)
        if not exchange.ended:
            exchange.cancel(ClientLeft())


async def _made_by(makers: Makers, live: Live, asked: Asking, answer_id: str) -> Target:
    try:
        maker = await makers.find(answer_id, team=asked.caller.team)
    except LedgerAway:
        raise errors.dependency_unavailable("the ledger that knows older answers is away") from None
    if maker is None:
        raise errors.answer_not_found(answer_id)
    target = live.targets.get(maker.deployment)
    if target is None:
        raise errors.answer_not_found(
            answer_id, f'"{maker.deployment}", which made it, is not in use any more'
        )
    return target


async def _refusal(exchange: Exchange, target: Target) -> GatewayError:
    words = provider_words(await read_all(exchange, _MOST_ERROR_BYTES))
    return outcome.error_status(target, exchange.status, words, None).error


async def _pass_on(exchange: Exchange, target: Target, limit: int, sink: Sink, ids: Headers) -> None:
    headers = [
        *wire_headers.to_client(exchange.headers),
        *ids,
        (b"x-faregate-deployment", target.name.encode("ascii", "replace")),
    ]
    if (b"content-type", b"text/event-stream") not in {
        (name, value.lower().partition(b";")[0]) for name, value in exchange.headers
    }:
        await sink.whole(200, headers, await read_all(exchange, limit))
        return
    await sink.begin(200, headers)
    while not exchange.ended:
        piece = await exchange.more()
        if not piece:
            break
        await sink.send(piece)
    await sink.end(b"")

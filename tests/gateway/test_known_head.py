"""A head that is known by its bytes: whatever comes, what the application sees and answers is the parser's."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gateway.serving as serving
from gateway.asking import asking
from gateway.auth import KeyRing, KeyRow, key_hash
from gateway.errors import GatewayError
from gateway.known_head import LONGEST_KEPT, KnownHead, head_around_length
from gateway.sink import Receive, Scope, Send
from tests.gateway.test_framing import FAULTS

SCOPE: Scope = {"headers": [(b"content-length", b"3")]}
HEAD = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\n"


def post(body: bytes, *, head: str = HEAD, after: str = "") -> bytes:
    return f"{head}Content-Length: {len(body)}\r\n{after}\r\n".encode() + body


# ── what stands around the length ──


def test_a_head_is_known_again_with_another_length() -> None:
    first = post(b"abc", after="X-B: 1\r\n")
    around = head_around_length(first)
    assert around is not None
    known = KnownHead(*around, SCOPE)
    for body in (b"", b"x", b"y" * 123_456):
        assert known.find(post(body, after="X-B: 1\r\n")) == (
            len(body),
            len(post(body, after="X-B: 1\r\n")) - len(body),
        )


@pytest.mark.parametrize(
    "other",
    [
        post(b"abc", after="X-B: 2\r\n"),
        post(b"abc"),
        post(b"abc", after="X-B: 1\r\nX-C: 1\r\n"),
        post(b"abc", head=HEAD.replace("Bearer a", "Bearer b"), after="X-B: 1\r\n"),
        post(b"abc", after="X-B: 1\r\n")[:60],
        post(b"abc", after="X-B: 1\r\n").replace(b": 3\r\n", b": \r\n"),
        post(b"abc", after="X-B: 1\r\n").replace(b": 3\r\n", b": +3\r\n"),
        post(b"abc", after="X-B: 1\r\n").replace(b": 3\r\n", b": 3 \r\n"),
        post(b"abc", after="X-B: 1\r\n").replace(b": 3\r\n", b": 3\n"),
        post(b"abc", after="X-B: 1\r\n").replace(b": 3\r\n", b": 1000000000\r\n"),
    ],
)
def test_another_head_is_not_taken_for_it(other: bytes) -> None:
    around = head_around_length(post(b"abc", after="X-B: 1\r\n"))
    assert around is not None
    assert KnownHead(*around, SCOPE).find(other) is None


def test_a_head_that_is_long_or_not_whole_is_not_kept() -> None:
    assert head_around_length(post(b"", after=f"X-B: {'b' * LONGEST_KEPT}\r\n")) is None
    assert head_around_length(post(b"")[:-2]) is None
    assert head_around_length(post(b"").replace(b": 0\r\n", b": 0000000000\r\n")) is None


# ── the connection ──


class FakeTransport(asyncio.Transport):
    """Takes everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 6)}.get(name, default)

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.written += b"<end>"

    def get_write_buffer_size(self) -> int:
        return 0


@dataclass
class Seen:
    """What came out of a connection."""

    requests: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    known: int = 0  # requests whose head was not parsed
    written: bytes = b""
    held: int = 0


def heard(pieces: list[bytes], most_unknown: int) -> Seen:
    """All that a connection does when it is given these pieces; `most_unknown` 0: the parser does it all."""
    seen = Seen()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.known += scope["head"] is not None
        body = (await receive())["body"]
        seen.requests.append((scope["method"], scope["raw_path"], scope["headers"], scope["client"], body))
        head = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"ok"})

    async def work() -> None:
        bound = serving.bind("127.0.0.1:0")
        limits = serving.ServingLimits(max_body=2_000)
        listener = serving.Listener(
            app,
            bound,
            settings=serving.ServingSettings(limits=limits, cut_seconds=0.1),
            hooks=serving.ServingHooks(),
            lifespan=False,
        )
        await listener.start()
        listener.date_line = b"date: today\r\n"
        listener.ids.next = lambda: "req"  # type: ignore[method-assign]
        wire = serving.Wire(listener._config, listener._state, listener)  # pyright: ignore[reportPrivateUsage]
        transport = FakeTransport()
        wire.connection_made(transport)
        for piece in pieces:
            if transport.closing:
                break
            wire.data_received(piece)
            for _ in range(6):  # the application has its turns
                await asyncio.sleep(0)
        seen.written = bytes(transport.written)
        seen.held = listener.held - sum(turn.size for turn in [wire.running] if turn and not turn.complete)
        wire.connection_lost(None)
        await listener.stop(0.0)
        assert listener.held == 0

    was = serving._MOST_UNKNOWN  # pyright: ignore[reportPrivateUsage]
    serving._MOST_UNKNOWN = most_unknown  # pyright: ignore[reportPrivateUsage]
    try:
        asyncio.run(work())
    finally:
        serving._MOST_UNKNOWN = was  # pyright: ignore[reportPrivateUsage]
    return seen


OTHER = HEAD.replace("Bearer a", "Bearer b")
REQUESTS = st.one_of(
    st.integers(0, 40).map(lambda size: post(b"x" * size)),
    st.integers(0, 40).map(lambda size: post(b"x" * size)),
    st.integers(0, 40).map(lambda size: post(b"x" * size)),
    st.integers(0, 40).map(lambda size: post(b"y" * size, head=OTHER)),
    st.sampled_from([1_999, 2_000, 2_001]).map(lambda size: post(b"z" * size)),
    st.just(post(b"ab", after="Connection: close\r\n")),
    st.just(post(b"ab", after="Expect: 100-continue\r\n")),
    st.just(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"),
    st.just(HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"),
    st.sampled_from([fault.encode("latin-1") for fault, _ in FAULTS.values() if len(fault) < 2_000]),
)


@given(st.lists(REQUESTS, min_size=2, max_size=7), st.data())
@settings(max_examples=150, deadline=None)
def test_whatever_comes_in_whatever_pieces_it_is_taken_as_by_the_parser(
    requests: list[bytes], data: st.DataObject
) -> None:
    pieces: list[bytes] = []
    for one in requests:  # each by itself, in pieces, or together with the next
        cuts = sorted(data.draw(st.lists(st.integers(0, len(one)), max_size=2)))
        parts = [one[start:end] for start, end in zip([0, *cuts], [*cuts, len(one)], strict=True)]
        if pieces and data.draw(st.integers(0, 4)) == 0:
            pieces[-1] += parts.pop(0)
        pieces += [part for part in parts if part]
    known, parsed = heard(pieces, 3), heard(pieces, 0)
    assert parsed.known == 0
    assert (known.requests, known.written, known.held) == (parsed.requests, parsed.written, parsed.held)


def test_a_head_that_comes_again_is_not_parsed_again() -> None:
    seen = heard([post(b"x" * size) for size in (3, 5, 0, 700)], 3)
    assert seen.known == 3
    assert [body for *_, body in seen.requests] == [b"x" * size for size in (3, 5, 0, 700)]


def test_of_two_requests_in_one_read_no_head_is_taken_for_the_other() -> None:
    pieces = [post(b"", head=OTHER) + post(b""), post(b"", head=OTHER), post(b"")]
    known, parsed = heard(pieces, 3), heard(pieces, 0)
    assert known.requests == parsed.requests
    assert [headers[1][1] for _, _, headers, *_ in known.requests] == [
        b"Bearer b",
        b"Bearer a",
        b"Bearer b",
        b"Bearer a",
    ]


def test_a_client_whose_heads_all_differ_is_soon_left_to_the_parser() -> None:
    heads = [post(b"x", head=f"{HEAD}X-N: {n}\r\n") for n in range(3)]
    seen = heard([*heads, post(b"x"), post(b"x")], 3)
    assert seen.known == 0


def test_the_body_of_a_known_head_counts_against_every_limit() -> None:
    whole = post(b"x" * 30)
    seen = heard([whole, whole[:-10], whole[-10:], post(b"z" * 2_001)], 3)
    assert seen.known == 1
    assert b" 413 " in seen.written


# ── what follows from it ──


def _scope(known: KnownHead | None, key: str) -> Scope:
    headers = [(b"host", b"x"), (b"authorization", b"Bearer " + key.encode())]
    return {"head": known, "headers": headers, "client": ("127.0.0.1", 5)}


def _row(key: str, team: str, **more: Any) -> KeyRow:
    return KeyRow(key_id=team, key_hash=key_hash("secret", key), team=team, **more)


class AnyLive:
    """A configuration with no teams."""

    def __init__(self) -> None:
        self.team_limits: dict[str, Any] = {}


def test_who_asks_is_looked_up_again_when_keys_or_configuration_change() -> None:
    keys = KeyRing("secret", [_row("k", "first")])
    live: Any = AnyLive()
    known = KnownHead(b"", b"", SCOPE)
    one = asking(_scope(known, "k"), keys, live, 1.0)
    assert asking(_scope(known, "k"), keys, live, 2.0) is one
    other: Any = AnyLive()
    assert asking(_scope(known, "k"), keys, other, 2.0) is not one
    keys.replace([_row("k", "second")])
    assert asking(_scope(known, "k"), keys, other, 2.0).caller.team == "second"
    keys.replace([])
    with pytest.raises(GatewayError):
        asking(_scope(known, "k"), keys, other, 2.0)


def test_a_key_that_expires_or_is_revoked_later_opens_nothing_from_then_on() -> None:
    live: Any = AnyLive()
    for more in ({"expires_at": 5.0}, {"revoked_at": 5.0}):
        keys = KeyRing("secret", [_row("k", "first", **more)])
        known = KnownHead(b"", b"", SCOPE)
        asking(_scope(known, "k"), keys, live, 4.9)
        with pytest.raises(GatewayError):
            asking(_scope(known, "k"), keys, live, 5.0)

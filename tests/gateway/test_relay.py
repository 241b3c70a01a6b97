"""Reading an answer: whole, or up to a stream's first content."""

import asyncio
from collections.abc import Sequence

import pytest

from gateway.relay import HELD_BYTES, read_all, until_content
from gateway.upstream import UpstreamFailure
from gateway.wire.openai_chat_answer import ChatStream

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
CONTENT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'


class Given:
    """An exchange whose body is given."""

    def __init__(self, *pieces: bytes, ends_late: bool = False) -> None:
        self.status = 200
        self.headers: Sequence[tuple[bytes, bytes]] = ()
        self.sent = True
        self.ended = False
        self.why: BaseException | None = None
        self._pieces = list(pieces)
        self._ends_late = ends_late  # the end is known only once the last piece was read

    async def head(self) -> None:
        """There at once."""

    async def more(self) -> bytes:
        """The next piece."""
        piece = self._pieces.pop(0) if self._pieces else b""
        self.ended = not self._pieces and (not self._ends_late or not piece)
        return piece

    def first_token(self) -> None:
        """Nothing waits for it."""

    def cancel(self, why: BaseException) -> None:
        """Remember why."""
        self.why = why


@pytest.mark.parametrize("ends_late", [False, True])
@pytest.mark.parametrize("pieces", [(), (b"one",), (b"one", b"two", b"three")])
def test_a_whole_body_is_all_of_its_pieces(pieces: tuple[bytes, ...], ends_late: bool) -> None:
    assert asyncio.run(read_all(Given(*pieces, ends_late=ends_late), 1000)) == b"".join(pieces)


@pytest.mark.parametrize("pieces", [(b"x" * 11, b"y"), (b"x" * 6, b"y" * 6), (b"x" * 11,)])
def test_a_body_over_the_limit_is_no_answer(pieces: tuple[bytes, ...]) -> None:
    exchange = Given(*pieces, ends_late=True)
    with pytest.raises(UpstreamFailure) as failed:
        asyncio.run(read_all(exchange, 10))
    assert failed.value.kind == "invalid_response"
    assert exchange.why is failed.value or isinstance(exchange.why, UpstreamFailure)


def _stream() -> ChatStream:
    return ChatStream(dialect="openai", drop_usage=True)


def test_a_stream_is_held_until_its_first_content_and_no_longer() -> None:
    exchange = Given(ROLE, CONTENT, CONTENT)
    assert asyncio.run(until_content(exchange, _stream())) == ROLE + CONTENT
    assert not exchange.ended


def test_a_stream_without_content_is_read_to_its_end() -> None:
    exchange = Given(ROLE)
    stream = _stream()
    assert asyncio.run(until_content(exchange, stream)) == ROLE
    assert not stream.content_seen


def test_a_stream_that_says_nothing_for_too_long_is_no_answer() -> None:
    comment = b": " + b"x" * 1000 + b"\n\n"
    exchange = Given(*[comment] * (HELD_BYTES // 1000 + 10))
    with pytest.raises(UpstreamFailure) as failed:
        asyncio.run(until_content(exchange, _stream()))
    assert failed.value.kind == "invalid_response"

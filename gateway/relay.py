"""Passes an answer on while the meter reads it.

Two ways of answering. A *whole* answer is read to its end before a byte goes out, so that a broken one can still
move to another deployment and its cost can stand in a header. A *stream* is held back until its first content:
until then nothing has gone to the client and another attempt is possible; after it, never. From there on every
piece goes out as it came, less the one usage event that the client did not ask for.

`Piece`s of memory: a whole answer is bounded by `max_answer_bytes`, what is held of a stream by 1 MiB.
"""

from gateway.upstream import Exchange, UpstreamFailure
from gateway.wire.meters import StreamMeter

HELD_BYTES = 1 << 20  # of a stream before its first content
COMMENT = b": still waiting for the first token\n\n"


class TooLarge(UpstreamFailure):
    """An answer that is longer than the gateway keeps."""

    def __init__(self, limit: int) -> None:
        super().__init__("invalid_response", f"the answer is longer than {limit} bytes", sent=True)


async def read_all(exchange: Exchange, limit: int) -> bytes:
    """A whole body. Raises what `Exchange.more` raises, and TooLarge."""
    first = await exchange.more()
    if exchange.ended or not first:
        return first
    pieces, size = [first], len(first)
    while size <= limit:
        piece = await exchange.more()
        pieces.append(piece)
        size += len(piece)
        if exchange.ended or not piece:
            break
    if size > limit:
        exchange.cancel(TooLarge(limit))
        raise TooLarge(limit)
    return b"".join(pieces)


async def until_content(exchange: Exchange, stream: StreamMeter) -> bytes:
    """Read a stream up to its first content, or to its end if it has none; what may go out so far.

    Raises what `Exchange.more` raises.
    """
    held: list[bytes] = []
    size = 0
    while not stream.content_seen and stream.error is None:
        piece = await exchange.more()
        if piece:
            out = stream.feed(piece)
            if out:
                held.append(out)
                size += len(out)
        if exchange.ended or not piece:
            break
        if size > HELD_BYTES:
            raise UpstreamFailure("invalid_response", "a stream of 1 MiB without content", sent=True)
    return held[0] if len(held) == 1 else b"".join(held)

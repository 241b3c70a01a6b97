"""Answers that are known by their bytes: the same as the parser's, however they are written and cut."""

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream import Limits, UpstreamFailure
from gateway.upstream.connection import Connection, OwnExchange
from gateway.upstream.deadlines import Alarm, Wheel
from gateway.upstream.known_answer import MOST_VARYING, Headers, KnownAnswers
from tests.gateway.upstream.servers import CHUNKED, chunk, whole

Told = tuple[int, list[tuple[bytes, bytes]], bytes, str, bool]
"""Status, headers, body, what went wrong, and whether the connection was kept."""


class NothingKnown(KnownAnswers):
    """Leaves everything to the parser."""

    def find(self, data: bytes) -> tuple[Headers, bytes] | None:
        return None


class Counting(KnownAnswers):
    """Counts what was known."""

    hits = 0

    def find(self, data: bytes) -> tuple[Headers, bytes] | None:
        found = super().find(data)
        self.hits += found is not None
        return found


class FakeTransport:
    """Takes everything at once."""

    closed = False

    def write(self, data: bytes) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True


class FakeHome:
    """One connection, and whether it came back."""

    def __init__(self, known: KnownAnswers) -> None:
        self.known = known
        self.kept = False

    def give(self, connection: Connection) -> None:
        self.kept = True

    def lost(self, connection: Connection) -> None:
        self.kept = False

    def send_again(self, exchange: OwnExchange) -> None:
        raise AssertionError

    def leave(self, exchange: OwnExchange) -> None:
        raise AssertionError


def told(known: KnownAnswers, *answers: tuple[bytes, ...]) -> list[Told]:
    """What comes of these answers, each in its pieces, one after the other on a connection until one is lost."""

    async def trial() -> list[Told]:
        loop = asyncio.get_running_loop()
        home, wheel, heard = FakeHome(known), Wheel(loop), list[Told]()
        connection = Connection(home, wheel)
        connection.connection_made(cast("asyncio.Transport", FakeTransport()))
        for pieces in answers:
            home.kept = False
            exchange = OwnExchange(
                loop,
                Alarm(wheel),
                Limits(),
                loop.time() + 600,
                float("inf"),
                loop.time(),
                home=home,
                request_head=b"",
                body=b"",
            )
            connection.send(exchange, loop.time())
            for piece in pieces:
                connection.data_received(piece)
            if not exchange.over:
                connection.eof_received()
            body, problem = b"", ""
            try:
                await exchange.head()
                while not exchange.ended:
                    body += await exchange.more()
            except UpstreamFailure as failure:
                problem = str(failure)
            heard.append((exchange.status, list(exchange.headers), body, problem, home.kept))
            if not home.kept:
                break
        connection.drop()
        wheel.stop()
        return heard

    return asyncio.run(trial())


def answer(body: bytes, *lines: bytes) -> bytes:
    """An answer with these header lines and its length, in the middle."""
    half = len(lines) // 2
    length = b"Content-Length: %d" % len(body)
    return b"\r\n".join((b"HTTP/1.1 200 OK", *lines[:half], length, *lines[half:], b"", body))


FIRST = answer(b'{"n":1}', b"Date: Mon, 30 Nov 2026 10:00:00 GMT", b"X-Request-ID: req_1", b"Server: x")
SECOND = answer(b'{"n":22}', b"Date: Mon, 30 Nov 2026 10:00:01 GMT", b"X-Request-ID: req_22", b"Server: x")
THIRD = answer(b'{"n":333}', b"Date: Mon, 30 Nov 2026 10:00:02 GMT", b"X-Request-ID: r", b"Server: x")


def test_an_answer_like_the_one_before_is_known_and_one_like_two_before_although_values_differ() -> None:
    known = Counting()
    heard = told(known, (FIRST,), (FIRST,), (SECOND,), (THIRD,), (FIRST,))
    assert known.hits == 3  # not the first, not the one that shows what differs
    assert heard == told(NothingKnown(), (FIRST,), (FIRST,), (SECOND,), (THIRD,), (FIRST,))
    assert [body for _, _, body, _, _ in heard][2:4] == [b'{"n":22}', b'{"n":333}']


@pytest.mark.parametrize("cut", range(1, len(THIRD)))
def test_a_known_answer_cut_anywhere_is_the_same_to_its_reader(cut: int) -> None:
    pieces = (THIRD[:cut], THIRD[cut:])
    heard = told(KnownAnswers(), (FIRST,), (SECOND,), pieces, (THIRD,))
    assert heard == told(NothingKnown(), (FIRST,), (SECOND,), pieces, (THIRD,))
    assert heard[-1][2:] == (b'{"n":333}', "", True)


@pytest.mark.parametrize("size", range(1, len(THIRD)))
def test_a_known_answer_that_breaks_off_anywhere_fails_as_an_unknown_one(size: int) -> None:
    heard = told(KnownAnswers(), (FIRST,), (SECOND,), (THIRD[:size],))
    assert heard == told(NothingKnown(), (FIRST,), (SECOND,), (THIRD[:size],))
    assert heard[-1][3].startswith("reset")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Length: 9", b"Length: 8"),
        (b"Length: 9", b"Length: 10"),
        (b"Length: 9", b"Length: 0"),
        (b"Length: 9", b"Length: 09"),
        (b"Length: 9", b"Length: +9"),
        (b"Length: 9", b"Length: 9 "),
        (b"Length: 9", b"Length:  9"),
        (b"Length: 9", b"Length: "),
        (b"Length: 9", b"Length: 9, 9"),
        (b"Length: 9", b"Length: 9\r\nContent-Length: 9"),
        (b"Length: 9", b"Length: 9\r\nContent-Length: 3"),
        (b"Length: 9", b"Length: 9\r\nTransfer-Encoding: chunked"),
        (b"Length: 9", b"Length: 99999999999999999999"),
        (b"Length: 9", b"Length: 9\nX: y"),
        (b"Length: 9", b"Length: 9\rX: y"),
        (b"ID: r", b"ID: r\r\nContent-Length: 3"),
        (b"ID: r", b"ID: r\r\nConnection: close"),
        (b"ID: r", b"ID: r\r\nContent-Encoding: gzip"),
        (b"ID: r", b"ID: r\nContent-Length: 3"),
        (b"ID: r", b"ID: r\n"),
        (b"ID: r", b"ID: r\r"),
        (b"ID: r", b"ID: r\0"),
        (b"ID: r", b"ID: r\x7f"),
        (b"ID: r", b"ID: \xc3\xa4"),
        (b"ID: r", b"ID: a\tb"),
        (b"ID: r", b"ID:  r "),
        (b"ID: r", b"ID: "),
        (b"ID: r", b"ID:"),
        (b"ID: r", b"ID: r\r\n folded"),
        (b"ID: r", b"ID: " + b"r" * 300),
        (b"ID: r", b"ID : r"),
        (b"Server: x", b"Server: y"),
        (b"Server: x", b"server: x"),
        (b"Server: x\r\n", b""),
        (b"Server: x", b"Connection: close"),
        (b"HTTP/1.1 200 OK", b"HTTP/1.1 201 OK"),
        (b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK"),
        (b"HTTP/1.1", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1"),
        (b'{"n":333}', b'{"n":333}\r\n'),
        (b'{"n":333}', b'{"n":333}' + THIRD),
        (b'{"n":333}', b'{"n":33}'),
    ],
)
def test_a_head_that_is_not_quite_the_known_one_is_the_parsers(old: bytes, new: bytes) -> None:
    assert THIRD.count(old) == 1
    odd = THIRD.replace(old, new)
    answers = (FIRST,), (SECOND,), (odd,), (THIRD,), (odd,)
    assert told(KnownAnswers(), *answers) == told(NothingKnown(), *answers)


@pytest.mark.parametrize(
    ("line", "harmless", "decides"),
    [
        (b"Connection: %s", (b"keep-alive", b"Keep-Alive"), b"close"),
        (b"Content-Encoding: %s", (b"identity", b"Identity"), b"gzip"),
        (b"Transfer-Encoding: %s", (b"identity", b"Identity"), b"chunked"),
        (b"Keep-Alive: %s", (b"timeout=1", b"timeout=2"), b"timeout=0"),
    ],
)
def test_what_the_framing_hangs_on_is_never_taken_as_a_value_that_differs(
    line: bytes, harmless: tuple[bytes, bytes], decides: bytes
) -> None:
    answers = [(answer(b"{}", line % value),) for value in (*harmless, *harmless, decides)]
    assert told(KnownAnswers(), *answers) == told(NothingKnown(), *answers)


def test_an_answer_in_chunks_is_the_parsers() -> None:
    answers = [(CHUNKED + chunk(b"one") + chunk(b""),)] * 3 + [(whole(),)]
    heard = told(KnownAnswers(), *answers)
    assert heard == told(NothingKnown(), *answers)
    assert [body for _, _, body, _, _ in heard] == [b"one"] * 3 + [b'{"ok":true}']


def test_an_informational_answer_before_it_is_not_taken_for_its_head() -> None:
    line = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
    poison = b"HTTP/1.1 103 Early Hints\r\n" + line % 200
    answers = [(poison + b"HTTP/1.1 200 OK\r\n" + line % 200 + b"x" * 200,), (poison + b"y" * 200,)]
    assert told(KnownAnswers(), *answers) == told(NothingKnown(), *answers)


def test_a_head_with_more_that_differs_than_is_kept_is_the_parsers() -> None:
    known = Counting()

    def with_values(value: int) -> bytes:
        return answer(b"{}", *[b"x-%d: %d" % (n, value) for n in range(MOST_VARYING + 1)])

    told(known, *[(with_values(n),) for n in range(10)])
    assert known.hits == 0


def test_a_provider_that_always_answers_otherwise_is_not_studied_for_ever() -> None:
    known = Counting()
    told(known, *[(answer(b"{}", b"x-%d: y" % n),) for n in range(40)], (answer(b"{}", b"x-39: y"),))
    assert known.hits == 0


def test_a_long_head_is_not_kept() -> None:
    known = Counting()
    told(known, *[(answer(b"{}", b"x: " + b"y" * 4096),)] * 3)
    assert known.hits == 0


NAMES = st.sampled_from(
    [b"Date", b"x-request-id", b"Content-Length", b"connection", b"Transfer-Encoding", b"Set-Cookie", b"X"]
)
VALUES = st.sampled_from(
    [b"a", b"b c", b" ", b"", b"3", b"close", b"chunked", b"keep-alive", b"\xe4", b"a\nb"]
)
LINES = st.lists(st.tuples(NAMES, VALUES).map(b": ".join), max_size=4)


@given(
    st.lists(
        st.tuples(
            LINES, st.binary(max_size=4), st.integers(0, 120), st.sampled_from([b"", b"\r\n", b"HTTP"])
        ),
        min_size=2,
        max_size=5,
    )
)
def test_whatever_comes_is_told_as_the_parser_tells_it(
    answers: list[tuple[list[bytes], bytes, int, bytes]],
) -> None:
    wires: list[tuple[bytes, ...]] = []
    for lines, body, cut, after in answers:
        wire = answer(body, *lines) + after
        wires.append((wire[:cut], wire[cut:]) if 0 < cut < len(wire) and cut % 2 else (wire,))
        wires.append((answer(body + b"x", *lines),))
    assert told(KnownAnswers(), *wires) == told(NothingKnown(), *wires)


def test_answers_that_differ_in_their_length_alone_are_known_from_the_second_on() -> None:
    known = Counting()
    told(known, *[(whole(b"x" * size),) for size in (1, 10, 100, 1000)])
    assert known.hits == 3

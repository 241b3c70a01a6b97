"""The log's line of a request: all that leads to its rows, and nothing of its texts."""

import json
import os
import threading
import time

from msgspec.structs import replace

from gateway.journal import MOST_LINES, Journal
from ledger.entry import Admitted, Attempt, Closed

WHO = Admitted(
    id="r1",
    admitted_at_ms=1,
    key_id="k1",
    team="search",
    tier="fast",
    rule="interactive chat",
    task_kind="chat",
)


def written(closed: Closed) -> bytes:
    reader, writer = os.pipe()
    journal = Journal(writer)
    journal.closed(WHO, closed)
    journal.close()
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read()


def test_an_answered_request_is_one_line() -> None:
    attempt = Attempt(
        n=1,
        deployment="luna",
        provider="openai",
        model_called="m",
        started_at_ms=1,
        state="settled",
        usage_source="provider",
    )
    closed = Closed(
        id="r1",
        closed_at_ms=7,
        state="answered",
        status=200,
        attempts=(attempt,),
        cost_pico_usd=732_032_000,
        duration_ms=6,
    )
    assert written(closed) == (
        b'{"at_ms":7,"event":"request","id":"r1","state":"answered","status":200,"error":null,"key":"k1",'
        b'"team":"search","tier":"fast","rule":"interactive chat","task_kind":"chat","deployment":"luna",'
        b'"attempts":1,"cost_usd":"0.000732032","usage_source":"provider","duration_ms":6}\n'
    )


def test_what_is_unknown_is_null() -> None:
    closed = Closed(id="r1", closed_at_ms=7, state="failed", status=503, error="overloaded", duration_ms=6)
    assert written(closed) == (
        b'{"at_ms":7,"event":"request","id":"r1","state":"failed","status":503,"error":"overloaded","key":"k1",'
        b'"team":"search","tier":"fast","rule":"interactive chat","task_kind":"chat","deployment":null,'
        b'"attempts":0,"cost_usd":null,"usage_source":null,"duration_ms":6}\n'
    )


def test_an_event_says_when_it_was() -> None:
    reader, writer = os.pipe()
    journal = Journal(writer)
    before = time.time_ns() // 1_000_000
    journal.event("config_taken", {"digest": "d1"})
    journal.close()
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        line = json.loads(pipe.read())
    at_ms = line.pop("at_ms")
    assert before <= at_ms <= time.time_ns() // 1_000_000
    assert line == {"event": "config_taken", "digest": "d1"}


def test_lines_come_in_the_order_of_what_happened() -> None:
    # given
    reader, writer = os.pipe()
    journal = Journal(writer)
    closed = Closed(id="r1", closed_at_ms=7, state="failed", status=503)
    # when
    with os.fdopen(reader, "rb") as pipe:
        for number in range(700):
            journal.closed(WHO, replace(closed, id=f"r{number}"))
            if number % 100 == 0:
                journal.event("config_taken", {"after": number})
        closing = threading.Thread(target=journal.close)
        closing.start()
        lines = [json.loads(pipe.readline()) for _ in range(707)]
        closing.join()
        os.close(writer)
        # then
        assert pipe.read() == b""
    expected: list[object] = []
    for number in range(700):
        expected += [f"r{number}"] if number % 100 else [f"r{number}", number]
    assert [line.get("id", line.get("after")) for line in lines] == expected
    assert journal.dropped == 0


def test_what_finds_the_queue_full_is_left_out_and_counted() -> None:
    # given a reader that reads nothing, and an event that fills the pipe
    reader, writer = os.pipe()
    journal = Journal(writer)
    journal.event("large", {"text": "x" * 200_000})
    os.read(reader, 1)  # from here its thread is busy with the event
    closed = Closed(id="r1", closed_at_ms=7, state="failed", status=503)
    # when
    for _ in range(MOST_LINES + 5):
        journal.closed(WHO, closed)
    journal.event("one more", {})
    # then
    assert journal.dropped == 6
    os.close(reader)
    journal.close()
    os.close(writer)
    assert journal.dropped == 6 + 1 + MOST_LINES


def test_without_a_file_nothing_is_written_or_counted() -> None:
    journal = Journal(None)
    journal.closed(WHO, Closed(id="r1", closed_at_ms=7, state="failed", status=503))
    journal.event("config_taken", {})
    journal.close()
    assert journal.dropped == 0

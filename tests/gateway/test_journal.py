"""The log's line of a request: all that leads to its rows, and nothing of its texts."""

import json
import os
import time

from gateway.journal import Journal
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

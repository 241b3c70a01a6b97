"""The fake provider's smaller endpoints do what the other tests rely on."""

import base64
import json
import struct
from typing import Any

from tests.fakes.caller import Caller, payloads, with_provider
from tests.fakes.provider import FakeProvider


async def ask(caller: Caller, path: str, **body: Any) -> Any:
    caller.ask({"model": "m"} | body, path=path)
    status, _, answer = await caller.answer()
    assert status == 200
    return json.loads(answer)


def test_vectors_come_as_numbers_or_packed_as_asked_and_only_the_input_is_billed() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        path = "/v1/embeddings"
        plain = await ask(caller, path, input=["one text", "another"], dimensions=3)
        packed = await ask(
            caller, path, input=["one text", "another"], dimensions=3, encoding_format="base64"
        )
        numbers = [one["embedding"] for one in plain["data"]]
        assert [len(one) for one in numbers] == [3, 3]
        for one, raw in zip(numbers, packed["data"], strict=True):
            assert list(struct.unpack("<3f", base64.b64decode(raw["embedding"]))) == one
        assert plain["usage"] == {"prompt_tokens": 4, "total_tokens": 4}
        assert provider.bill() == {"#1": 4 * 1_250_000, "#2": 4 * 1_250_000}
        tokens = await ask(caller, path, input=[[1, 2, 3], [4]])
        assert (len(tokens["data"]), tokens["usage"]["prompt_tokens"]) == (2, 4)

    with_provider(play)


def test_text_completions_are_whole_or_streamed() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        whole = await ask(caller, "/v1/completions", prompt="Say", max_tokens=3)
        assert (whole["choices"][0]["finish_reason"], whole["usage"]["completion_tokens"]) == ("length", 3)
        asks = {"stream": True, "stream_options": {"include_usage": True}}
        caller.ask({"model": "m", "prompt": "Say", "n": 2} | asks, path="/v1/completions")
        _, _, body = await caller.answer()
        events = payloads(body)
        assert {c["index"] for one in events for c in one["choices"]} == {0, 1}
        assert events[-1]["usage"]["completion_tokens"] == 16 == provider.charges["#2"].counts.completion
        assert body.endswith(b"[DONE]\n\n")
        caller.ask({"model": "m", "prompt": "Say", "user": "fault:status:500"}, path="/v1/completions")
        assert (await caller.answer())[0] == 500

    with_provider(play)


def test_moderations_cost_nothing() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        made = await ask(caller, "/v1/moderations", input=["a", "b"])
        assert [one["flagged"] for one in made["results"]] == [False, False]
        assert provider.bill() == {"#1": 0}

    with_provider(play)


def test_speech_is_bytes() -> None:
    async def play(provider: FakeProvider, caller: Caller) -> None:
        caller.ask({"model": "m", "input": "Say it", "voice": "alloy"}, path="/v1/audio/speech")
        status, headers, body = await caller.answer()
        assert (status, headers["content-type"], body[:3]) == (200, "audio/mpeg", b"ID3")
        assert provider.bill() == {"#1": 2 * 1_250_000}

    with_provider(play)

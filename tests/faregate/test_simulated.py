"""The simulated provider is believable on the wire and unmistakable to a person."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from faregate.simulated import MARK, MODELS, PrefixCache, reply_to, serve, tokens_of

KEY = "sim-key"


def with_server(play: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    async def run() -> None:
        server = await serve("127.0.0.1", 0, api_key=KEY, time_scale=0)
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(base_url=server.base_url, headers=headers, trust_env=False) as client:
            await play(client)
        await server.close()

    asyncio.run(run())


def chat(**more: Any) -> dict[str, Any]:
    return {
        "model": "sim-fast",
        "messages": [{"role": "user", "content": "why is the sky blue? " * 20}],
    } | more


def test_every_answer_says_first_that_it_is_simulated() -> None:
    for model in (*MODELS, "gpt-6-luna"):
        for question in ("a", "b", "c", "d", "e"):
            messages = [{"role": "user", "content": question}]
            reply = reply_to({"model": model, "messages": messages}, PrefixCache(), created=0)
            assert reply.text.startswith(MARK)
            assert model in reply.text


def test_a_whole_answer_has_consistent_counts() -> None:
    async def play(client: httpx.AsyncClient) -> None:
        answer = await client.post("/chat/completions", json=chat())
        body = answer.json()
        usage = body["usage"]
        assert answer.headers["x-simulated"] == "true"
        assert body["model"] == "sim-fast"
        assert usage["completion_tokens"] == tokens_of(body["choices"][0]["message"]["content"])
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0

    with_server(play)


def test_a_stream_says_the_same_as_the_whole_answer_and_tells_usage_only_when_asked() -> None:
    async def play(client: httpx.AsyncClient) -> None:
        whole = (await client.post("/chat/completions", json=chat())).json()
        for asks in (False, True):
            options = {"stream_options": {"include_usage": True}} if asks else {}
            answer = await client.post("/chat/completions", json=chat(stream=True, **options))
            *events, done = answer.text.strip().split("\n\n")
            assert done == "data: [DONE]"
            parsed = [json.loads(one.removeprefix("data: ")) for one in events]
            text = "".join(c["delta"].get("content", "") for one in parsed for c in one["choices"])
            assert text == whole["choices"][0]["message"]["content"]
            assert [one["usage"]["completion_tokens"] for one in parsed if "usage" in one] == (
                [whole["usage"]["completion_tokens"]] if asks else []
            )

    with_server(play)


def test_a_repeated_prefix_is_cached_for_its_model_alone() -> None:
    cache = PrefixCache()
    first = reply_to(chat(), cache, created=0)
    more = [*chat()["messages"], {"role": "user", "content": "and at night?"}]
    second = reply_to(chat(messages=more), cache, created=0)
    other = reply_to(chat(messages=more, model="sim-small"), cache, created=0)
    assert first.cached_tokens == 0
    assert second.cached_tokens == first.prompt_tokens // 32 * 32
    assert other.cached_tokens == 0


def test_the_prefix_cache_stays_bounded() -> None:
    cache = PrefixCache(capacity=10)
    for n in range(50):
        cache.cached_tokens("sim-fast", b"%d" % n * 2_000)
    assert len(cache) == 10


def test_a_prefix_whose_beginning_was_forgotten_is_not_cached() -> None:
    cache = PrefixCache(capacity=3)
    prompt = b"x" * 4 * 32 * 4
    assert cache.cached_tokens("sim-fast", prompt) == 0
    assert cache.cached_tokens("sim-fast", prompt) == 0  # of its four blocks the first is gone


def test_a_limit_cuts_the_answer_and_says_so() -> None:
    reply = reply_to(chat(max_tokens=5), PrefixCache(), created=0)
    assert (reply.completion_tokens, reply.finish_reason) == (5, "length")


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_an_answer_that_must_be_json_is_json_and_still_says_it(kind: str) -> None:
    reply = reply_to(chat(response_format={"type": kind}), PrefixCache(), created=0)
    body = json.loads(reply.text)
    assert body["simulated"] is True
    assert body["answer"].startswith(MARK)


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b'{"model": "sim-fast"}', 400),
        (b'{"model": "gpt-9", "messages": []}', 200),
        (b'{"model": "", "messages": []}', 400),
        (b'{"model": ["x"], "messages": []}', 400),
        (b'{"model": "sim-fast", "messages": ["\\ud800"]}', 200),
    ],
)
def test_a_request_it_cannot_answer_gets_an_error_in_openais_form(content: bytes, status: int) -> None:
    async def play(client: httpx.AsyncClient) -> None:
        answer = await client.post("/chat/completions", content=content)
        assert answer.status_code == status
        if status != 200:
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}

    with_server(play)


def test_other_keys_and_paths_are_refused_and_the_models_listed() -> None:
    async def play(client: httpx.AsyncClient) -> None:
        wrong = await client.post("/chat/completions", json=chat(), headers={"authorization": "Bearer x"})
        assert wrong.status_code == 401
        assert (await client.get("/embeddings")).status_code == 404
        listed = (await client.get("/models")).json()["data"]
        assert [one["id"] for one in listed] == list(MODELS)

    with_server(play)


def test_closing_ends_a_stream_that_is_under_way() -> None:
    async def run() -> None:
        server = await serve("127.0.0.1", 0, api_key=KEY, time_scale=1_000)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.base_url.split(":")[2][:-3]))
        body = json.dumps(chat(stream=True)).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nauthorization: Bearer {KEY}\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        assert b"text/event-stream" in await reader.readuntil(b"\r\n\r\n")
        await server.close()
        assert b"[DONE]" not in await reader.read()
        writer.close()

    asyncio.run(run())

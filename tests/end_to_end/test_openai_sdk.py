"""The openai Python SDK against the gateway: an application that changes nothing but its base URL."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.end_to_end.faulty import Setting, run, setting

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]
TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
        },
    }
]


@asynccontextmanager
async def sdk(
    folder: Path, *, key: str | None = None, **options: Any
) -> AsyncGenerator[tuple[Setting, openai.AsyncOpenAI]]:
    """A gateway and the SDK with its own defaults, retries included."""
    async with setting(folder, **options) as made:
        client = openai.AsyncOpenAI(base_url=f"{made.running.base_url}/v1", api_key=key or made.running.key)
        async with client:
            yield made, client


async def assert_the_row_says(made: Setting, usage: CompletionUsage | None) -> None:
    """The last attempt's tokens are those that the SDK was told."""
    assert usage is not None
    row = (await made.attempts())[-1]
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0
    assert row["state"] == "settled"
    assert row["input_cached"] == cached
    assert row["input_uncached"] + row["input_cached"] == usage.prompt_tokens
    assert row["output_text"] + row["output_reasoning"] == usage.completion_tokens


def test_a_whole_answer_with_its_usage(tmp_path: Path) -> None:
    async def work() -> None:
        async with sdk(tmp_path) as (made, client):
            answer = await client.chat.completions.with_raw_response.create(
                model="standard", messages=MESSAGES, max_tokens=64
            )
            completion = answer.parse()
            assert completion.choices[0].message.content
            assert completion.choices[0].finish_reason == "stop"
            assert completion.model == "model-a"
            assert answer.headers["x-faregate-tier"] == "standard"
            await assert_the_row_says(made, completion.usage)
            again = await client.chat.completions.create(model="standard", messages=MESSAGES * 20)
            again = await client.chat.completions.create(model="standard", messages=MESSAGES * 20)
            assert again.usage is not None
            assert again.usage.prompt_tokens_details is not None
            assert again.usage.prompt_tokens_details.cached_tokens  # by the provider: counted once
            await assert_the_row_says(made, again.usage)

    run(work())


def test_a_stream_with_the_usage_that_was_asked_for(tmp_path: Path) -> None:
    async def work() -> None:
        async with sdk(tmp_path) as (made, client):
            stream = await client.chat.completions.create(
                model="standard", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in stream]
            assert chunks[-1].choices == []
            assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1])
            await assert_the_row_says(made, chunks[-1].usage)

    run(work())


def test_a_stream_without_usage_is_metered_all_the_same(tmp_path: Path) -> None:
    async def work() -> None:
        async with sdk(tmp_path) as (made, client):
            whole = await client.chat.completions.create(model="standard", messages=MESSAGES)
            stream = await client.chat.completions.create(model="standard", messages=MESSAGES, stream=True)
            chunks = [chunk async for chunk in stream]
            assert all(chunk.choices and chunk.usage is None for chunk in chunks)
            assert made.a.seen[-1].json()["stream_options"] == {"include_usage": True}
            await assert_the_row_says(made, whole.usage)

    run(work())


@pytest.mark.parametrize("streamed", [False, True])
def test_tools(tmp_path: Path, streamed: bool) -> None:
    async def work() -> None:
        async with sdk(tmp_path) as (made, client):
            made.a.next("shape:tool_calls")
            if streamed:
                async with client.chat.completions.stream(
                    model="standard",
                    messages=MESSAGES,
                    tools=TOOLS,
                    stream_options={"include_usage": True},
                ) as stream:
                    answer = await stream.get_final_completion()
            else:
                answer = await client.chat.completions.create(
                    model="standard", messages=MESSAGES, tools=TOOLS
                )
            calls = answer.choices[0].message.tool_calls
            assert calls
            assert all(call.type == "function" for call in calls)
            assert made.a.seen[-1].json()["tools"] == TOOLS
            await assert_the_row_says(made, answer.usage)
            (row,) = await made.running.rows("request")
            assert row["has_tools"]

    run(work())


def test_the_models_that_a_key_may_name(tmp_path: Path) -> None:
    async def work() -> None:
        more = '[names]\n"meta/llama-4" = "auto"\n'
        async with sdk(tmp_path, more=more) as (_, client):
            names = [model.id async for model in client.models.list()]
            assert names == ["auto", "standard", "meta/llama-4", "a", "b"]
            for name in names:
                assert (await client.models.retrieve(name)).id == name
            with pytest.raises(openai.NotFoundError) as wrong:
                await client.models.retrieve("meta/other")
            assert wrong.value.code == "model_not_found"

    run(work())


def test_errors_have_the_sdks_own_classes(tmp_path: Path) -> None:
    async def work() -> None:
        async with sdk(tmp_path) as (made, client):
            ask = client.chat.completions.create
            with pytest.raises(openai.AuthenticationError) as wrong:
                await client.with_options(api_key="fg-wrong").chat.completions.create(
                    model="standard", messages=MESSAGES
                )
            assert wrong.value.code == "invalid_api_key"
            with pytest.raises(openai.NotFoundError) as wrong:
                await ask(model="nothing", messages=MESSAGES)
            assert (wrong.value.code, wrong.value.param) == ("model_not_found", "model")
            with pytest.raises(openai.BadRequestError) as wrong:
                await ask(model="standard", messages=MESSAGES, max_tokens=0)
            assert (wrong.value.code, wrong.value.param) == ("invalid_value", "max_tokens")
            assert made.a.seen == made.b.seen == []

    run(work())


def test_a_failing_provider_is_asked_no_more_often_because_of_the_sdk(tmp_path: Path) -> None:  # limit 9
    async def work() -> None:
        async with sdk(tmp_path, alone=True) as (made, client):
            made.a.always("status:500")
            with pytest.raises(openai.InternalServerError):
                await client.chat.completions.create(model="standard", messages=MESSAGES)
            assert len(made.a.seen) == 3
            assert len(await made.running.rows("request")) == 1

    run(work())


def test_a_broken_stream_raises_in_the_sdk(tmp_path: Path) -> None:
    async def work() -> None:
        async with sdk(tmp_path) as (made, client):
            made.a.next("reset_in_stream")
            stream = await client.chat.completions.create(model="standard", messages=MESSAGES, stream=True)
            with pytest.raises(openai.APIError) as wrong:
                async for _ in stream:
                    pass
            assert wrong.value.code == "stream_interrupted"
            assert made.b.seen == []

    run(work())


def test_a_spent_budget_is_asked_once(tmp_path: Path) -> None:
    async def work() -> None:
        more = '[[budgets]]\nname = "all"\nlimit_usd = 0.000001\nper = "month"\n'
        async with sdk(tmp_path, more=more) as (made, client):
            sent = 0

            async def count(_: object) -> None:
                nonlocal sent
                sent += 1

            client._client.event_hooks["request"].append(count)  # pyright: ignore[reportPrivateUsage] - its HTTP client
            with pytest.raises(openai.RateLimitError) as wrong:
                await client.chat.completions.create(model="standard", messages=MESSAGES)
            assert (wrong.value.code, wrong.value.type) == ("budget_exceeded", "insufficient_quota")
            assert sent == 1
            assert made.a.seen == made.b.seen == []

    run(work())

"""A real model, a real client, a real ledger: what the server counted is what the ledger has, to the token."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.end_to_end.harness import gateway, toml

pytestmark = pytest.mark.real

STORY = "Tell me a short story about a fox and a hen that live in a small village near a river. " * 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a server with a small real model."""
    weights = tmp_path_factory.mktemp("weights") / "model.gguf"
    program = Path(__file__).with_name("real_server.py")
    process = subprocess.Popen(
        [sys.executable, str(program), str(weights)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:")
    yield f"{address}/v1"
    process.stdin.close()
    process.kill()
    process.wait()
    process.stdout.close()


def file_for(base_url: str) -> str:
    """The model as the deployment of tier `small`."""
    return toml({"local": base_url}, dialect="llamacpp", tiers={"standard": ["local"], "small": ["local"]})


def rows_match(row: dict[str, Any], usage: Any) -> None:
    """The row's tokens are the ones the server told its client."""
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0
    assert row["input_cached"] == cached
    assert row["input_uncached"] + row["input_cached"] == usage.prompt_tokens
    assert row["output_text"] == usage.completion_tokens
    assert row["usage_source"] == "provider"
    assert row["state"] == "settled"
    input_rate, cached_rate, output_rate = 2_500_000, 250_000, 10_000_000
    assert row["cost_pico_usd"] == (
        row["input_uncached"] * input_rate + cached * cached_rate + row["output_text"] * output_rate
    )


async def test_the_ledger_has_what_the_model_server_counted(server: str, tmp_path: Path) -> None:
    async with gateway(tmp_path, file_for(server)) as running:
        client = AsyncOpenAI(
            base_url=f"{running.base_url}/v1", api_key=running.key, max_retries=0, timeout=120
        )
        messages: Any = [{"role": "user", "content": STORY}]

        whole = await client.chat.completions.create(model="small", messages=messages, max_tokens=12)
        again = await client.chat.completions.create(model="small", messages=messages, max_tokens=12)
        stream = await client.chat.completions.create(
            model="small",
            messages=messages,
            max_tokens=12,
            stream=True,
            stream_options={"include_usage": True},
        )
        told = [chunk.usage async for chunk in stream if chunk.usage is not None]
        silent = await client.chat.completions.create(
            model="small", messages=messages, max_tokens=12, stream=True
        )
        chunks = [chunk async for chunk in silent]
        await client.close()
        rows = await running.rows()
        requests = await running.rows("request")

    assert len(rows) == 4
    rows_match(rows[0], whole.usage)
    rows_match(rows[1], again.usage)
    rows_match(rows[2], told[-1])
    assert rows[1]["input_cached"] > 0  # the second prompt came from the server's own cache
    assert rows[2]["input_cached"] > 0
    # A client that did not ask for usage sees none; the ledger has it all the same.
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    assert rows[3]["usage_source"] == "provider"
    assert rows[3]["output_text"] > 0
    assert [request["tier"] for request in requests] == ["small"] * 4
    assert json.loads(rows[0]["flags"]) == []

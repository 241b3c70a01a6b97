"""Writes the request bodies of the benchmarks: chats of about 1 KB, 20 KB and 400 KB, whole and streamed.

python benchmarks/bodies.py FOLDER
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

SIZES = {"1k": 1_000, "20k": 20_000, "400k": 400_000}
WORDS = (
    *(
        "the",
        "order",
        "route",
        "of",
        "a",
        "token",
        "cost",
        "agent",
        "file",
        "return",
        "error",
        "select",
        "from",
    ),
    *(
        "table",
        "price",
        "cached",
        "value",
        "model",
        "plan",
        "step",
        "test",
        "user",
        "code",
        "line",
        "function",
    ),
    *("data", "result"),
)


def chat(size: int, *, stream: bool, rng: random.Random) -> dict[str, Any]:
    """One chat whose JSON has about `size` characters; the larger ones carry tools."""
    messages: list[dict[str, str]] = [{"role": "system", "content": "You are a careful agent."}]
    body: dict[str, Any] = {"model": "mock-model", "messages": messages}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    body["max_tokens"] = 256
    if size > 5_000:
        schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
        functions = [{"name": f"tool_{i}", "description": "A tool", "parameters": schema} for i in range(8)]
        body["tools"] = [{"type": "function", "function": one} for one in functions]
    while (left := size - len(json.dumps(body)) - 40) > -40:
        wanted = min(1_500, max(20, left))
        text = ""
        while len(text) < wanted:
            text += rng.choice(WORDS) + rng.choice([" ", " ", " ", "\n", ", ", " é "])
        role = "assistant" if len(messages) % 2 == 0 else "user"
        messages.append({"role": role, "content": text[:wanted]})
    return body


def write_bodies(folder: Path) -> None:
    """Write NAME.json and NAME-s.json (streamed) for every size; the same bytes each time."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(7)
    for name, size in SIZES.items():
        for stream in (False, True):
            text = json.dumps(chat(size, stream=stream, rng=rng), ensure_ascii=False)
            (folder / f"{name}{'-s' if stream else ''}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_bodies(Path(sys.argv[1]))

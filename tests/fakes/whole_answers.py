"""Endpoints that answer once and whole, as the fake provider words them: embeddings, moderations, speech."""

import base64
import hashlib
import struct
from collections.abc import Mapping
from typing import Any, cast

from tests.fakes.answers import OMITTED, Asked, Counts, Wire, dumps
from tests.fakes.memory import Memory, tokens

DIMENSIONS = 8
CATEGORIES = (
    "harassment",
    "harassment/threatening",
    "hate",
    "hate/threatening",
    "illicit",
    "illicit/violent",
    "self-harm",
    "self-harm/instructions",
    "self-harm/intent",
    "sexual",
    "sexual/minors",
    "violence",
    "violence/graphic",
)


class _Whole(Wire):
    streams = False
    speaks = False


class Embeddings(_Whole):
    """`POST /v1/embeddings`: vectors as lists of numbers or as base64, as asked."""

    def counts(self, body: Mapping[str, Any], memory: Memory) -> Counts:
        return Counts(prompt=sum(_size(one) for one in _inputs(body)))

    def usage(self, counts: Counts) -> dict[str, Any]:
        return {"prompt_tokens": counts.prompt, "total_tokens": counts.prompt}

    def body(self, asked: Asked, usage: object) -> bytes:
        body = asked.body
        packed = body.get("encoding_format") == "base64"
        count = body.get("dimensions")
        vectors = [vector(one, count if isinstance(count, int) else DIMENSIONS) for one in _inputs(body)]
        made: dict[str, Any] = {
            "object": "list",
            "data": [
                {"object": "embedding", "index": i, "embedding": _pack(one) if packed else one}
                for i, one in enumerate(vectors)
            ],
            "model": asked.model,
        }
        if usage is not OMITTED:
            made["usage"] = usage if usage is not None else self.usage(asked.counts)
        return dumps(made)


class Moderations(_Whole):
    """`POST /v1/moderations`: free, and nothing is ever wrong."""

    free = True

    def counts(self, body: Mapping[str, Any], memory: Memory) -> Counts:
        return Counts()

    def body(self, asked: Asked, usage: object) -> bytes:
        result = {
            "flagged": False,
            "categories": dict.fromkeys(CATEGORIES, False),
            "category_scores": dict.fromkeys(CATEGORIES, 0.0001),
            "category_applied_input_types": {name: ["text"] for name in CATEGORIES},
        }
        results = [result for _ in _inputs(asked.body)]
        return dumps({"id": asked.id("modr-"), "model": asked.model, "results": results})


class Speech(_Whole):
    """`POST /v1/audio/speech`: JSON in, bytes of a sound out, and no usage."""

    content_type = "audio/mpeg"

    def counts(self, body: Mapping[str, Any], memory: Memory) -> Counts:
        return Counts(prompt=sum(_size(one) for one in _inputs(body)))

    def body(self, asked: Asked, usage: object) -> bytes:
        return b"ID3\x04\x00\x00\x00\x00\x00\x00\xff\xfb" + hashlib.sha256(asked.seen.body).digest() * 64


def vector(text: object, dimensions: int) -> list[float]:
    """A text's vector: numbers that four bytes hold exactly."""
    digest = hashlib.shake_128(dumps(text)).digest(dimensions)
    return [(byte - 128) / 256 for byte in digest]


def _pack(numbers: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def _inputs(body: Mapping[str, Any]) -> list[Any]:
    """The texts or lists of tokens that were given: one, or a list of them."""
    given = body.get("input")
    if isinstance(given, list) and given and not isinstance(given[0], int):
        return cast("list[Any]", given)
    return [given]


def _size(one: object) -> int:
    if isinstance(one, str):
        return tokens(one.encode())
    return len(cast("list[Any]", one)) if isinstance(one, list) else 0

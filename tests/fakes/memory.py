"""What the fake provider remembers between requests: prefixes of prompts, and the responses it keeps by their id."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.answers import Counts, dumps

CACHE_ENTRIES = 20_000  # prefixes remembered; the oldest go first


@dataclass(slots=True, kw_only=True)
class KeptResponse:
    """A response that can be asked for again."""

    body: dict[str, Any]
    input: list[Any]  # its input items, those of the responses before it first


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBlock:
    """A piece of a prompt after which the caller may have asked to cache."""

    raw: bytes
    keep_for: str | None = None  # "5m" or "1h": the prefix that ends here is to be cached


@dataclass(slots=True, kw_only=True)
class Memory:
    """One provider's."""

    name: str
    block_bytes: int
    responses: dict[str, KeptResponse] = field(default_factory=dict[str, KeptResponse])
    _prefixes: OrderedDict[bytes, None] = field(default_factory=OrderedDict[bytes, None])

    def prompt(self, model: object, parts: object) -> Counts:
        """Tokens of a prompt (bytes / 4, rounded up), and how many of them a former prefix serves."""
        text = dumps(parts)
        digest, cached, still = hashlib.sha256(str(model).encode() + b"\0"), 0, True
        for end in range(self.block_bytes, len(text) + 1, self.block_bytes):
            digest.update(text[end - self.block_bytes : end])
            still = self._knows(digest.digest()) and still
            if still:
                cached = end // 4
        self._forget()
        return Counts(prompt=tokens(text), cached=cached)

    def marked_prompt(self, model: object, blocks: Sequence[PromptBlock]) -> Counts:
        """The same where only what the caller marked is cached, up to the mark."""
        digest = hashlib.sha256(str(model).encode() + b"\1")
        counts = Counts(prompt=tokens(b"".join(block.raw for block in blocks)))
        last = max((i for i, block in enumerate(blocks) if block.keep_for is not None), default=-1)
        length = 0
        marks: list[tuple[bytes, int, str]] = []
        for block in blocks[: last + 1]:
            digest.update(block.raw + b"\0")
            length += len(block.raw)
            if digest.digest() in self._prefixes:
                counts.cached = length // 4
            if block.keep_for is not None:
                marks.append((digest.digest(), length // 4, block.keep_for))
        for prefix, end, keep_for in marks:
            self._knows(prefix)
            new = max(0, end - counts.cached - counts.written)
            counts.written += new
            counts.written_1h += new if keep_for == "1h" else 0
        self._forget()
        return counts

    def _knows(self, prefix: bytes) -> bool:
        """Whether this prefix was here before; it is from now on."""
        known = prefix in self._prefixes
        self._prefixes[prefix] = None
        self._prefixes.move_to_end(prefix)
        return known

    def _forget(self) -> None:
        while len(self._prefixes) > CACHE_ENTRIES:
            self._prefixes.popitem(last=False)


def tokens(text: bytes) -> int:
    """How many tokens a text is: four bytes each."""
    return -(-len(text) // 4)

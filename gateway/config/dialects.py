"""The dialects that providers speak, and what of the API each of them serves.

Read in the providers' own documentation on 2026-12-01. What a provider serves moves: `endpoints` in the file says
otherwise for one provider.
"""

from collections.abc import Mapping
from typing import Final, get_args

from routers.facts import EndpointName

ENDPOINTS: Final[tuple[EndpointName, ...]] = get_args(EndpointName)

_CHAT: frozenset[EndpointName] = frozenset({"chat", "other"})
_COMPLETIONS: frozenset[EndpointName] = frozenset({"completions"})
_EMBEDDINGS: frozenset[EndpointName] = frozenset({"embeddings"})
_MODERATIONS: frozenset[EndpointName] = frozenset({"moderations"})
_RESPONSES: frozenset[EndpointName] = frozenset({"responses"})
_SERVERS = _CHAT | _RESPONSES | _EMBEDDINGS | _COMPLETIONS  # that people run themselves

SERVED_BY: Final[Mapping[str, frozenset[EndpointName]]] = {
    "openai": _CHAT | _RESPONSES | _EMBEDDINGS | _COMPLETIONS | _MODERATIONS,
    "anthropic": frozenset({"messages", "count_tokens", "other"}),
    "mistral": _CHAT | _EMBEDDINGS | _MODERATIONS,
    "deepseek": _CHAT,
    "groq": _CHAT | _RESPONSES,
    "xai": _CHAT | _RESPONSES,
    "gemini": _CHAT | _EMBEDDINGS,
    "azure": _CHAT | _RESPONSES | _EMBEDDINGS | _COMPLETIONS,
    "moonshot": _CHAT,
    "qwen": _CHAT | _RESPONSES | _EMBEDDINGS,
    "qianfan": _CHAT | _EMBEDDINGS,
    "together": _CHAT | _EMBEDDINGS | _COMPLETIONS,
    "fireworks": _CHAT | _RESPONSES | _EMBEDDINGS | _COMPLETIONS,
    "openrouter": _CHAT | _RESPONSES | _EMBEDDINGS | _COMPLETIONS,
    "perplexity": _CHAT,
    "vllm": _SERVERS,
    "sglang": _SERVERS,
    "llamacpp": _SERVERS,
    "ollama": _SERVERS,
}
"""Dialect -> what a provider of it serves where the file does not say."""

DIALECTS: Final = tuple(SERVED_BY)

KEY_IN_X_API_KEY: Final = frozenset({"anthropic"})
"""Dialects whose key goes into `x-api-key`; of all others into `authorization: Bearer`."""

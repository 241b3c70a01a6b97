"""The request side of the endpoints that have no conversation: embeddings, completions, moderations, and any other.

The forms are those of OpenAI's API reference (read 2026-12-01).
"""

from typing import Any

import msgspec

from gateway.errors import json_too_deep
from gateway.wire.fields import (
    NOTHING,
    count,
    flag,
    is_list,
    limit,
    member,
    model_named,
    not_readable,
    text_of,
)
from gateway.wire.json_scan import MAX_DEPTH, Places, check_text, look
from gateway.wire.request import Request
from routers.classify import Peek
from routers.facts import EndpointName
from routers.session import clean_id

MAX_CHOICES = 128
MAX_PROMPTS = 100_000  # of one completions request: more are counted as so many
COMPLETION_TOKENS = 16
"""What a completion has at most where the client sets nothing (OpenAI's API reference, read 2026-12-01)."""


class _Body(msgspec.Struct, gc=False):
    model: Any = None
    input: msgspec.Raw = NOTHING
    prompt: msgspec.Raw = NOTHING
    stream: Any = None
    stream_options: Any = None
    max_tokens: Any = None
    n: Any = None
    best_of: Any = None
    user: Any = None
    metadata: Any = None
    service_tier: Any = None


_read_body = msgspec.json.Decoder(_Body).decode
_read_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def read_embeddings(body: bytes) -> Request:
    """Read a body of `POST /v1/embeddings` once. Raises GatewayError as `openai_chat.read_request` does."""
    return _plain("embeddings", *_read(body))


def read_moderations(body: bytes) -> Request:
    """Read a body of `POST /v1/moderations` once. Raises GatewayError as `openai_chat.read_request` does."""
    return _plain("moderations", *_read(body))


def read_any(body: bytes) -> Request:
    """Read a body of any other POST once: nothing but the model's name and whether a stream is asked for.

    Raises GatewayError as `openai_chat.read_request` does.
    """
    read, body, places = _read(body)
    return Request(
        endpoint="other",
        body=body,
        places=places,
        model=model_named(read.model, places),
        stream=read.stream is True,
        user=clean_id(read.user),
    )


def read_completions(body: bytes) -> Request:
    """Read a body of `POST /v1/completions` once. Raises GatewayError as `openai_chat.read_request` does."""
    read, body, places = _read(body)
    stream = flag("stream", read.stream)
    choices = max(count("n", read.n, MAX_CHOICES), count("best_of", read.best_of, MAX_CHOICES))
    most = limit("max_tokens", read.max_tokens)
    text, end = text_of(read.prompt)
    return Request(
        endpoint="completions",
        body=body,
        places=places,
        model=model_named(read.model, places),
        stream=stream,
        limits=("max_tokens",),
        max_output_tokens=COMPLETION_TOKENS if most is None else most,
        choices=choices * _prompts(read.prompt),
        wants_usage=not stream or member(read.stream_options, "include_usage") is True,
        messages=1,
        service_tier=clean_id(read.service_tier),
        user=clean_id(read.user),
        prefix=(read.prompt,),
        texts=Peek(user=text, user_end=end),
    )


def _read(body: bytes) -> tuple[_Body, bytes, Places]:
    check_text(body)
    try:
        read = _read_body(body)
    except RecursionError:
        raise json_too_deep(MAX_DEPTH) from None
    except msgspec.DecodeError as error:
        raise not_readable(body, error) from None
    return read, body, look(body)


def _plain(endpoint: EndpointName, read: _Body, body: bytes, places: Places) -> Request:
    return Request(
        endpoint=endpoint,
        body=body,
        places=places,
        model=model_named(read.model, places),
        max_output_tokens=0,
        messages=1,
        service_tier=clean_id(read.service_tier),
        user=clean_id(read.user),
        prefix=(read.input,),
    )


def _prompts(prompt: msgspec.Raw) -> int:
    """How many prompts one request holds: a list of texts, or of lists of tokens."""
    if not is_list(prompt):
        return 1
    several = _read_list(prompt)
    if not several or bytes(several[0])[:1] not in (b'"', b"["):  # one prompt of tokens
        return 1
    return min(len(several), MAX_PROMPTS)

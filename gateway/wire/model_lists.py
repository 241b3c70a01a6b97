"""The lists of models, in OpenAI's form and in Anthropic's."""

from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

_write = msgspec.json.encode
_LONG_AGO = "1970-01-01T00:00:00Z"  # when a model was made is not known here


def model_object(name: str, *, created: int = 0, owned_by: str = "faregate") -> dict[str, object]:
    """One model of the list, in OpenAI's form."""
    return {"id": name, "object": "model", "created": created, "owned_by": owned_by}


def model_body(name: str, *, created: int = 0, owned_by: str = "faregate") -> bytes:
    """The body of `GET /v1/models/{id}` in OpenAI's form."""
    return _write(model_object(name, created=created, owned_by=owned_by))


def model_list(names: Iterable[str], *, created: int = 0, owned_by: str = "faregate") -> bytes:
    """The body of `GET /v1/models` in OpenAI's form."""
    data = [model_object(name, created=created, owned_by=owned_by) for name in names]
    return _write({"object": "list", "data": data})


def anthropic_model_object(name: str) -> dict[str, object]:
    """One model of the list, in Anthropic's form."""
    return {"type": "model", "id": name, "display_name": name, "created_at": _LONG_AGO}


def anthropic_model_body(name: str) -> bytes:
    """The body of `GET /v1/models/{id}` in Anthropic's form."""
    return _write(anthropic_model_object(name))


def anthropic_model_list(
    names: Sequence[str], *, limit: int = 1000, after: str | None = None, before: str | None = None
) -> bytes:
    """The body of `GET /v1/models` in Anthropic's form: at most `limit` names, behind `after` or before `before`.

    A name that is not in the list is no border.
    """
    page = list(names)
    if after in page:
        page = page[page.index(after) + 1 :]
    if before in page:
        page = page[: page.index(before)]
        shown, has_more = page[-limit:], len(page) > limit
    else:
        shown, has_more = list(islice(page, limit)), len(page) > limit
    return _write(
        {
            "data": [anthropic_model_object(name) for name in shown],
            "has_more": has_more,
            "first_id": shown[0] if shown else None,
            "last_id": shown[-1] if shown else None,
        }
    )

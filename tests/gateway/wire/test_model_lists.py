import json
from typing import Any

from gateway.wire.model_lists import anthropic_model_body, anthropic_model_list, model_body, model_list

NAMES = ["auto", "fast", "claude-sonnet-5"]


def page(**options: Any) -> tuple[list[str], bool]:
    listed = json.loads(anthropic_model_list(NAMES, **options))
    shown = [model["id"] for model in listed["data"]]
    assert (listed["first_id"], listed["last_id"]) == ((shown[0], shown[-1]) if shown else (None, None))
    return shown, listed["has_more"]


def test_the_list_and_one_model_agree():
    listed = json.loads(model_list(["fast", "gpt-5.6"]))
    assert [model["id"] for model in listed["data"]] == ["fast", "gpt-5.6"]
    assert json.loads(model_body("fast")) == listed["data"][0]


def test_anthropics_list_has_pages():
    assert page() == (NAMES, False)
    assert page(limit=2) == (["auto", "fast"], True)
    assert page(limit=2, after="fast") == (["claude-sonnet-5"], False)
    assert page(limit=1, before="claude-sonnet-5") == (["fast"], True)
    assert page(after="claude-sonnet-5") == ([], False)
    assert page(after="unheard-of") == (NAMES, False)


def test_anthropics_list_and_one_model_agree():
    assert json.loads(anthropic_model_body("fast")) == json.loads(anthropic_model_list(["fast"]))["data"][0]

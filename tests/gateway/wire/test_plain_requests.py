import json
from typing import Any

import pytest

from gateway.errors import GatewayError
from gateway.wire.plain_requests import read_any, read_completions, read_embeddings, read_moderations
from gateway.wire.request import facts_for, prepare


def body(**members: Any) -> bytes:
    return json.dumps({"model": "m", **members}).encode()


def test_embeddings_and_moderations_make_no_output():
    for read, endpoint in ((read_embeddings, "embeddings"), (read_moderations, "moderations")):
        found = facts_for(read(body(input=["a", "b"])), None, ())
        assert (found.endpoint, found.stream, found.max_output_tokens, found.choices) == (
            endpoint, False, 0, 1,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("members", "choices"),
    [
        ({"prompt": "a"}, 1),
        ({"prompt": "a", "n": 3}, 3),
        ({"prompt": "a", "n": 2, "best_of": 5}, 5),
        ({"prompt": ["a", "b"], "n": 2}, 4),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1, 2], [3]]}, 2),
        ({"prompt": []}, 1),
        ({}, 1),
    ],
)
def test_every_completion_that_is_billed_is_counted(members: dict[str, Any], choices: int):
    assert facts_for(read_completions(body(**members)), None, ()).choices == choices


def test_a_completion_has_a_limit_of_its_own():
    assert facts_for(read_completions(body(prompt="a")), None, ()).max_output_tokens == 16
    assert facts_for(read_completions(body(prompt="a", max_tokens=5)), None, ()).max_output_tokens == 5


def test_a_stream_of_completions_is_asked_for_its_usage():
    request = read_completions(body(prompt="a", stream=True))
    assert not request.wants_usage
    assert json.loads(prepare(request, model="m").body)["stream_options"] == {"include_usage": True}
    own = read_completions(body(prompt="a", stream=True, stream_options={"include_usage": True}))
    assert own.wants_usage
    assert prepare(own, model="m").body is own.body


def test_of_any_other_body_only_the_model_is_read():
    request = read_any(body(voice="alto", stream="no matter what"))
    found = facts_for(request, None, ())
    assert (found.endpoint, found.model, found.stream) == ("other", "m", False)
    assert json.loads(prepare(request, model="tts-1", max_output_tokens=5).body) == {
        "model": "tts-1",
        "voice": "alto",
        "stream": "no matter what",
    }


@pytest.mark.parametrize("read", [read_any, read_completions, read_embeddings, read_moderations])
def test_a_body_without_a_model_is_refused(read: Any):
    with pytest.raises(GatewayError) as raised:
        read(b'{"input": "a"}')
    assert raised.value.code == "missing_field"

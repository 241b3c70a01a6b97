from typing import Any

import pytest

from gateway.wire.provider_words import untyped
from gateway.wire.text_length import json_length, utf8_length


@pytest.mark.parametrize(
    ("value", "length"), [("", 0), ("abc", 3), ("Zoë", 4), ("\ud83d", 3), (None, 0), (7, 0), (["a"], 0)]
)
def test_a_text_is_measured_in_bytes_of_utf8(value: object, length: int) -> None:
    assert utf8_length(value) == length


@pytest.mark.parametrize(
    "text",
    ['{"a":1}', '{"a":1.5,"b":[true,null]}', '{"city":"Zürich"}', '"words"', "12", '{"a":{"b":[0.10]}}'],
)
def test_arguments_are_measured_as_they_are_written_without_spaces(text: str) -> None:
    spaced = text.replace(":", " : ").replace(",", " , ").encode()
    assert json_length(untyped(spaced)) == len(text.encode())


@pytest.mark.parametrize("value", [None, {}, [], ""])
def test_nothing_has_no_length(value: object) -> None:
    assert json_length(value) == 0


def test_what_cannot_be_written_as_utf8_or_as_a_number_is_measured_all_the_same() -> None:
    assert json_length({"a": "\ud83d"}) == len('{"a":"\\ud83d"}')
    assert json_length({"a": 10**40}) == len('{"a":}') + 41
    assert json_length(untyped(b'{"a":1e99999999999999999999}')) > 0


def test_arguments_of_any_depth_are_measured_or_left_out() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert json_length(deep) == 0

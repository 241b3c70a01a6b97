import pytest

from pricing.tokens import quarter_of_bytes


@pytest.mark.parametrize(("size", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (4000, 1000)])
def test_four_bytes_are_a_token(size: int, tokens: int) -> None:
    assert quarter_of_bytes(size) == tokens

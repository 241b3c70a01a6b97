"""Request ids: their form, and that none comes twice."""

import re
from itertools import pairwise

from gateway.ids import RequestIds


def test_an_id_has_its_start_and_a_count_that_goes_up() -> None:
    ids = RequestIds()
    made = [ids.next() for _ in range(1_000)]
    assert all(re.fullmatch(r"req_[0-9a-f]{20}[0-9a-f]{6}", id_) for id_ in made)
    assert len({id_[:24] for id_ in made}) == 1
    assert [int(id_[24:], 16) for id_ in made] == [*range(1, 1_001)]
    assert all(one < following for one, following in pairwise(made))


def test_two_starts_in_a_millisecond_share_no_id() -> None:
    starts = [RequestIds() for _ in range(100)]
    assert len({ids.next() for ids in starts for _ in range(10)}) == 1_000

"""A saved file comes into force whole, or the old one stays and the fault is told once."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.config import Config, Problem, load
from gateway.reload import LOOK_SECONDS, Watch, needs_restart

ENVIRON = {"KEY": "k" * 32, "ADMIN": "a" * 32}

GOOD = """schema = 1
[gateway]
key_secret = { env = "KEY" }
admin_secret = { env = "ADMIN" }
default = "standard"
[providers.house]
dialect = "vllm"
base_url = "http://127.0.0.1:8000/v1"
[deployments.house-8b]
provider = "house"
model = "llama"
[tiers.standard]
deployments = ["house-8b"]
purpose = "PURPOSE"
"""


class Watched:
    """A file under watch, with a clock that moves by one look at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.write_text(GOOD)
        self.now = 1000.0
        self.swapped: list[Config] = []
        self.refused: list[tuple[Problem, ...]] = []
        self.watch = Watch(
            path, ENVIRON, load(path, ENVIRON), swap=self.swapped.append, refused=self.refused.append
        )

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.now += LOOK_SECONDS
            self.watch.look(self.now)

    def save(self, text: str) -> None:
        """As an editor does: a new file takes the old one's place."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        os.replace(new, self.path)

    @property
    def purpose(self) -> str:
        return self.watch.current.policy.tiers["standard"].purpose


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "faregate.toml")


def good(purpose: str) -> str:
    return GOOD.replace("PURPOSE", purpose)


def test_a_file_that_nobody_touched_is_left_alone(watched: Watched) -> None:
    watched.look(10)
    assert (watched.swapped, watched.refused) == ([], [])


def test_a_good_file_is_in_force_within_two_seconds(watched: Watched) -> None:
    watched.look()
    watched.save(good("new"))
    saved_at = watched.now
    watched.look(2)
    assert watched.purpose == "new"
    assert len(watched.swapped) == 1
    assert watched.watch.taken_at is not None
    assert watched.watch.taken_at - saved_at <= 2.0 - LOOK_SECONDS


def test_a_bad_file_changes_nothing_and_is_told_once(watched: Watched) -> None:
    watched.look()
    watched.save(good("new").replace("deployments =", "deployment ="))
    watched.look(20)
    assert watched.purpose == "PURPOSE"
    assert [[problem.field for problem in problems] for problems in watched.refused] == [
        ["tiers.standard.deployments", "tiers.standard.deployment"]
    ]
    assert watched.watch.problems == watched.refused[0]


def test_a_good_file_after_a_bad_one_clears_the_error(watched: Watched) -> None:
    watched.look()
    watched.save("[")
    watched.look(3)
    watched.save(good("new"))
    watched.look(3)
    assert watched.purpose == "new"
    assert watched.watch.problems == ()


def test_saving_the_version_in_force_again_clears_the_error_without_a_swap(watched: Watched) -> None:
    watched.look()
    watched.save("[")
    watched.look(3)
    watched.save(GOOD)
    watched.look(3)
    assert watched.watch.problems == ()
    assert watched.swapped == []


@pytest.mark.parametrize("fault", ["deleted", "empty", "a folder", "bytes"])
def test_a_file_that_is_no_file_of_rules_never_means_no_rules(watched: Watched, fault: str) -> None:
    watched.look()
    if fault == "empty":
        watched.path.write_text("")
    elif fault == "bytes":
        watched.path.write_bytes(b"\xff\xfe\x00")
    else:
        watched.path.unlink()
        if fault == "a folder":
            watched.path.mkdir()
    watched.look(20)
    assert watched.purpose == "PURPOSE"
    assert len(watched.refused) == 1
    assert watched.watch.refused_at is not None


def test_a_file_that_is_back_is_taken_again(watched: Watched) -> None:
    watched.look()
    watched.path.unlink()
    watched.look(3)
    watched.path.write_text(good("back"))
    watched.look(3)
    assert watched.purpose == "back"
    assert watched.watch.problems == ()


def test_a_file_that_is_being_written_is_not_taken_for_a_finished_one(watched: Watched) -> None:
    watched.look()
    whole = good("new") + "[names]\n" + "".join(f'"name-{i}" = "auto"\n' for i in range(5))
    with watched.path.open("w") as file:
        for start in range(0, len(whole), len(whole) // 4):
            file.write(whole[start : start + len(whole) // 4])
            file.flush()
            watched.look()
            assert (watched.swapped, watched.refused) == ([], [])
    watched.look(2)
    assert [len(config.policy.names) for config in watched.swapped] == [5]


def test_a_link_that_leads_elsewhere_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "now").symlink_to("a")
    watched = Watched(tmp_path / "now" / "faregate.toml")
    (tmp_path / "b" / "faregate.toml").write_text(good("other"))
    watched.look()
    (tmp_path / "next").symlink_to("b")
    os.replace(tmp_path / "next", tmp_path / "now")
    watched.look(2)
    assert watched.purpose == "other"


def test_of_many_saves_the_last_one_is_in_force(watched: Watched) -> None:
    watched.look()
    for number in range(25):
        watched.save(good(f"{number}"))
        if number % 5 == 4:
            watched.look()
    watched.look(2)
    assert watched.purpose == "24"


def test_a_file_that_never_settles_is_read_all_the_same(watched: Watched) -> None:
    watched.look()
    for number in range(20):
        watched.save(good(f"{number}"))
        watched.look()
    assert watched.swapped


def test_a_change_between_loading_and_watching_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "faregate.toml"
    path.write_text(GOOD)
    config = load(path, ENVIRON)
    path.write_text(good("changed"))
    swapped: list[Config] = []
    watch = Watch(path, ENVIRON, config, swap=swapped.append, refused=lambda problems: None)
    watch.look(1.0)
    assert watch.current.policy.tiers["standard"].purpose == "changed"


def test_settings_that_need_a_new_start_are_named(watched: Watched) -> None:
    old = watched.watch.current
    new = replace(
        old,
        gateway=replace(
            old.gateway, listen="127.0.0.1:9", redis_url="redis://x", drain_seconds=1.0, default="x"
        ),
    )
    assert needs_restart(old, new) == ("gateway.listen", "gateway.redis", "gateway.drain_seconds")
    assert needs_restart(old, old) == ()


# ── a file of prices beside it ──

PRICES = """currency = "USD"
[[prices]]
provider = "vllm"
model = "llama"
from = 2026-06-01
rates = { input = "RATE", output = "10" }
source = "a list"
checked_on = 2026-11-30
"""


@pytest.fixture
def priced(tmp_path: Path) -> Watched:
    (tmp_path / "own.toml").write_text(PRICES.replace("RATE", "2"))
    watched = Watched(tmp_path / "faregate.toml")
    watched.save(good("new").replace("default =", 'price_file = "own.toml"\ndefault ='))
    watched.look(3)
    return watched


def rate(watched: Watched) -> int:
    found = watched.watch.current.books["house-8b"].find(None, "llama")
    assert found is not None
    return found[1].rows[-1].base.rates["input"] // 1_000_000


def test_a_saved_file_of_prices_is_in_force_like_the_file_that_names_it(
    priced: Watched, tmp_path: Path
) -> None:
    assert rate(priced) == 2
    swaps = len(priced.swapped)
    (tmp_path / "own.toml").write_text(PRICES.replace("RATE", "3"))
    priced.look(3)
    assert rate(priced) == 3
    priced.look(5)
    assert len(priced.swapped) == swaps + 1


def test_a_broken_file_of_prices_leaves_the_old_ones_in_force_and_is_told_once(
    priced: Watched, tmp_path: Path
) -> None:
    own = tmp_path / "own.toml"
    own.write_text(PRICES.replace("RATE", "-3"))
    priced.look(5)
    assert rate(priced) == 2
    assert [problem.field for problem in priced.refused[0]] == ["gateway.price_file"]
    assert len(priced.refused) == 1
    own.unlink()
    priced.look(3)
    assert rate(priced) == 2
    assert len(priced.refused) == 2
    own.write_text(PRICES.replace("RATE", "4"))
    priced.look(3)
    assert rate(priced) == 4

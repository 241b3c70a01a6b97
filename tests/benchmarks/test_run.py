"""The benchmark measures the configuration that it says it does."""

import json
import tomllib
from pathlib import Path

from benchmarks.bodies import SIZES, write_bodies
from benchmarks.measure import read_targets
from benchmarks.run import HERE, with_rules

BENCH = (HERE / "bench.toml").read_text()


def test_the_benchmark_runs_with_a_hundred_rules_a_budget_and_prices() -> None:
    config = tomllib.loads(BENCH)
    assert len(config["rules"]) == 100
    assert config["rules"][-1]["when"] == {"input_tokens": {"below": 1_000_000}}
    assert len(config["budgets"]) == 1
    assert {one["deployment"] for one in config["prices"]} == set(config["deployments"])
    assert config["names"] == {"mock-model": "auto"}


def test_another_number_of_rules_changes_the_rules_and_the_addresses_only() -> None:
    ten, thousand = (tomllib.loads(with_rules(BENCH, n, 9410)) for n in (10, 1_000))
    assert (len(ten["rules"]), len(thousand["rules"])) == (10, 1_000)
    last = tomllib.loads(BENCH)["rules"][-1]
    assert ten["rules"][-1] == thousand["rules"][-1] == last
    assert ten["gateway"]["listen"] == "127.0.0.1:9410"
    assert ten["gateway"]["admin_listen"] == "127.0.0.1:9411"
    assert ten["gateway"]["data_dir"] != thousand["gateway"]["data_dir"]
    assert {**ten, "rules": 0, "gateway": 0} == {**tomllib.loads(BENCH), "rules": 0, "gateway": 0}


def test_the_bodies_have_their_size_and_are_the_same_each_time(tmp_path: Path) -> None:
    write_bodies(tmp_path / "one")
    write_bodies(tmp_path / "two")
    for name, size in SIZES.items():
        for suffix in ("", "-s"):
            made = (tmp_path / "one" / f"{name}{suffix}.json").read_bytes()
            assert made == (tmp_path / "two" / f"{name}{suffix}.json").read_bytes()
            assert 0.8 * size < len(made) < 1.2 * size
            assert json.loads(made).get("stream", False) is (suffix == "-s")


def test_a_targets_words_are_filled_in() -> None:
    words = {"py": "/bin", "repo": "/repo", "key": "fg-1", "bench": "/repo/benchmarks", "tools": "/t"}
    target = read_targets(HERE / "targets.json", words)["faregate"]
    assert target.command == ("/bin/faregate", "serve", "--config", "/repo/benchmarks/bench.toml")
    assert target.headers == ("authorization: Bearer fg-1",)
    assert target.port == int(tomllib.loads(BENCH)["gateway"]["listen"].rpartition(":")[2])
    assert set(read_targets(HERE / "refs.json", words)) == {"direct", "nginx", "floor", "passthrough"}

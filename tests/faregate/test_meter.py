import argparse
import copy
import json
from pathlib import Path
from typing import Any

import pytest

from faregate import meter
from gateway.wire.meters import METERS

COPIES = Path(__file__).parents[1] / "recorded" / "usage-cases"
ORIGINALS = Path(__file__).parents[3] / "shared" / "usage-cases"
CASES: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text("utf-8")) for path in sorted(COPIES.glob("*.json"))
}
READ = [name for name, case in CASES.items() if case.get("wire") in METERS]
NOT_READ_YET = [name for name, case in CASES.items() if "wire" in case and case["wire"] not in METERS]
OF_SEVERAL_ATTEMPTS = [name for name, case in CASES.items() if "attempts" in case]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[dict[str, Any]], str]:
    parser = argparse.ArgumentParser()
    meter.register(parser.add_subparsers())
    args = parser.parse_args(["meter", *words, "--json"])
    code = args.run(args)
    printed = capsys.readouterr()
    return code, [json.loads(line) for line in printed.out.splitlines()], printed.err


def differences(expected: dict[str, Any], got: dict[str, Any]) -> list[str]:
    return [
        f"{key}: {value!r}, not {got.get(key)!r}" for key, value in expected.items() if got.get(key) != value
    ]


def case(name: str = "oai-001-basic") -> dict[str, Any]:
    return copy.deepcopy(CASES[name])


def test_there_are_as_many_cases_as_there_were() -> None:
    assert (len(CASES), len(READ), len(OF_SEVERAL_ATTEMPTS)) == (135, 125, 2)


@pytest.mark.skipif(not ORIGINALS.is_dir(), reason="the originals are not on this machine")
def test_the_copies_are_the_originals() -> None:
    names = {path.name for path in ORIGINALS.iterdir()}
    assert {path.name for path in COPIES.iterdir()} == names
    assert [
        name for name in sorted(names) if (COPIES / name).read_bytes() != (ORIGINALS / name).read_bytes()
    ] == []


@pytest.mark.parametrize("name", READ)
def test_a_case_is_read_and_priced_as_expected(name: str) -> None:
    got = meter.metered(CASES[name])
    assert differences(CASES[name]["expected"], got) == []
    assert set(got) == {"id", *CASES[name]["expected"]}


@pytest.mark.parametrize("name", OF_SEVERAL_ATTEMPTS)
def test_attempts_are_read_one_by_one_and_added_up(name: str) -> None:
    attempts = CASES[name]["attempts"]
    got = meter.metered(CASES[name])
    assert got["attempts"] == len(got["each"]) == len(attempts)
    for attempt, line in zip(attempts, got["each"], strict=True):
        assert differences(attempt["expected"], line) == []
    assert differences(CASES[name]["expected"], got) == []


@pytest.mark.parametrize("name", NOT_READ_YET)
def test_a_wire_that_is_not_read_yet_says_so(name: str) -> None:
    assert meter.metered(CASES[name]) == {"id": name, "unsupported": CASES[name]["wire"]}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("expected", "cost_usd"), "0.0060000000001"),
        (("expected", "usage", "input_uncached"), 1201),
        (("expected", "usage", "tools"), {"web_search": 1}),
        (("expected", "flags"), ["coerced"]),
        (("expected", "priced_as"), None),
        (("expected", "reasoning_on_wire"), "inside"),
    ],
)
def test_the_comparison_sees_a_wrong_expectation(path: tuple[str, ...], value: object) -> None:
    wrong = case()
    place = wrong
    for key in path[:-1]:
        place = place[key]
    assert place[path[-1]] != value
    place[path[-1]] = value
    assert len(differences(wrong["expected"], meter.metered(wrong))) == 1


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("oai-001-basic", '"prompt_tokens":1200', '"prompt_tokens":1201'),
        ("oai-003-reasoning-inside", '"reasoning_tokens":1664', '"reasoning_tokens":1665'),
        ("oai-002-cached-inside", '"cached_tokens":17817', '"cached_tokens":17816'),
    ],
)
def test_the_comparison_sees_another_answer(name: str, old: str, new: str) -> None:
    other = case(name)
    assert old in other["response"]["body_text"]
    other["response"]["body_text"] = other["response"]["body_text"].replace(old, new)
    assert differences(other["expected"], meter.metered(other)) != []


def test_a_folder_is_printed_sorted_by_id(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, errors = run(capsys, str(COPIES))
    assert (code, errors) == (0, "")
    assert [line["id"] for line in lines] == sorted(CASES)


def test_one_file_is_printed_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = run(capsys, str(COPIES / "oai-001-basic.json"))
    assert code == 0
    assert [(line["id"], line["cost_usd"]) for line in lines] == [("oai-001-basic", "0.006")]


def test_without_json_a_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    meter.register(parser.add_subparsers())
    args = parser.parse_args(["meter", str(COPIES)])
    assert args.run(args) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["case", "input"]
    assert len(lines) == 1 + len(CASES) + 5  # a heading, and a line for each of the five attempts
    basic = next(line for line in lines if line.startswith("oai-001-basic"))
    assert basic.split() == [
        "oai-001-basic",
        "1200",
        "0",
        "0",
        "300",
        "0.006",
        "provider",
        "gpt-4o",
        "(base)",
    ]
    assert any("not read yet: openai-responses" in line for line in lines)
    assert any("unpriced" in line for line in lines)


def broken(**changes: Any) -> str:
    return json.dumps({**case(), **changes})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "a JSON object is wanted"),
        ("[" * 200_000, "is not JSON"),
        (broken(schema=2), "schema is 2"),
        (broken(id=None), "id is missing"),
        (broken(wire=7), "wire is missing"),
        (broken(response={"status": 200, "headers": {}}), "body_text, body_base64"),
        (broken(response={"status": "200", "headers": {}, "body_text": ""}), "response.status"),
        (broken(response={"status": 200, "headers": {}, "body_base64": "?"}), "body_base64 is not base64"),
        (broken(response={"status": 200, "headers": {}, "chunks": [1]}), "chunks must be a text"),
        (broken(response={"status": 200, "headers": {}, "chunks": {}}), "chunks must be a list"),
        (broken(response={**case()["response"], "end": "later"}), "response.end is 'later'"),
        (broken(request={"model": "m", "started_at": "yesterday"}), "started_at is 'yesterday'"),
        (broken(request={"model": "m", "started_at": "2026-11-02T09:30:00"}), "with its offset"),
        (broken(request={**case()["request"], "service_tier": []}), "service_tier is missing or no text"),
        (
            broken(request={**case()["request"], "input_tokens_estimate": "7"}),
            "input_tokens_estimate must be",
        ),
        (broken(prices={"m": {"rates": {"imput": "1"}}}), 'prices: "m": rates.imput is unknown'),
        (broken(attempts=[]), "attempts must be a list"),
        (broken(attempts=[1]), "attempts[0] must be an object"),
    ],
)
def test_a_bad_file_is_named_and_the_others_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    (tmp_path / "bad.json").write_text(text)
    (tmp_path / "good.json").write_text(json.dumps(case()))
    code, lines, errors = run(capsys, str(tmp_path))
    assert code == 1
    assert [line["id"] for line in lines] == ["oai-001-basic"]
    assert "bad.json: " in errors
    assert words in errors


def test_bytes_that_are_no_text_are_a_bad_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.json").write_bytes(b"\xff\xfe{}")
    assert run(capsys, str(tmp_path))[0] == 1


def test_no_file_and_no_cases_are_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, errors = run(capsys, str(tmp_path / "nowhere"))
    assert (code, lines) == (2, [])
    assert "no such file" in errors
    code, lines, errors = run(capsys, str(tmp_path))
    assert (code, lines) == (2, [])
    assert "holds no cases" in errors


def test_the_sum_is_null_if_one_attempt_is_unpriced() -> None:
    several = case("multi-002-invalid-then-retry")
    several["attempts"][2]["prices"] = {}
    got = meter.metered(several)
    assert got["cost_usd"] is None
    assert got["each"][1]["cost_usd"] == "0.000175"
    assert got["flags"] == ["http_error", "unpriced"]

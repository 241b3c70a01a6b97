"""`faregate check` and `faregate explain`, as a person runs them."""

import argparse
import json
from pathlib import Path

import pytest

from faregate import check, explain, secrets_file

EXAMPLE = "faregate.example.toml"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "FAREGATE_KEY_SECRET",
        "FAREGATE_ADMIN_SECRET",
        "LEDGER_URL",
        "REDIS_URL",
        "MISTRAL_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")


def command(*words: str) -> int:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    check.register(subparsers)
    explain.register(subparsers)
    args = parser.parse_args(words)
    code = args.run(args)
    assert isinstance(code, int)
    return code


def saved(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_a_good_file_is_ok_with_every_names_fate(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("check", "--config", EXAMPLE) == 0
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0].startswith(f"{EXAMPLE}: ok (version ")
    assert "gpt-4o the rules decide (2), else tier standard" in lines
    assert "gpt-5.6-luna pinned to luna (gpt-5.6-luna at openai)" in lines
    assert "mistral-small pinned to mistral-small (mistral-small-latest at mistral), off" in lines
    assert "mistral off: MISTRAL_API_KEY is not set" in lines
    assert "openai live" in lines
    assert "canary" not in out


def test_a_good_files_facts_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("check", "--config", EXAMPLE, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"] is True
    assert facts["names"]["gpt-4o-mini"] == {
        "leads_to": "tier",
        "target": "small",
        "because": '[names] turns "gpt-4o-mini" into tier "small"',
    }
    assert facts["providers"]["anthropic"]["live"] is False
    assert facts["unpriced"] == []


def test_a_bad_file_is_told_whole_with_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path / "bad.toml", "schema = 2\n[gatewya]\n")
    assert command("check", "--config", path) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{path}:1:1: schema must be 1: this version knows no other",
        f"{path}:1:1: gateway is missing",
        f"{path}:2:1: gatewya is unknown; did you mean gateway?",
        "",
        f"{path}: 3 problems; nothing of it is taken",
    ]
    assert command("check", "--config", path, "--json") == 1
    facts = json.loads(capsys.readouterr().out)
    assert [problem["line"] for problem in facts["problems"]] == [1, 1, 2]


REQUEST = '{"model": "auto", "messages": [{"role": "user", "content": "canary prompt"}]}'


def test_a_decision_is_explained_with_every_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = saved(tmp_path / "request.json", REQUEST)
    assert command("explain", request, "--config", EXAMPLE) == 0
    out = capsys.readouterr().out
    assert "Decided:   tier fast, luna (interactive chat)" in out
    assert '  no       "short extraction" -> small: task_kind is chat, not extraction or translation' in out
    assert '  matches  "interactive chat" -> fast: this rule decides' in out
    assert 'groq: provider "groq" is off: GROQ_API_KEY is not set' in out
    assert "canary" not in out


def test_without_any_key_it_says_how_to_explain_the_simulated_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    request = saved(tmp_path / "request.json", '{"model": "small", "messages": []}')
    config = saved(tmp_path / "faregate.toml", Path(EXAMPLE).read_text(encoding="utf-8"))

    assert command("explain", request, "--config", config) == 1
    assert "--simulated explains what `make run` does without one" in capsys.readouterr().out

    assert command("explain", request, "--config", config, "--simulated") == 0
    out = capsys.readouterr().out
    assert "tier small, luna then" in out
    assert "--simulated" not in out


def test_secrets_that_a_first_start_made_are_not_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = saved(tmp_path / "faregate.toml", Path(EXAMPLE).read_text(encoding="utf-8"))
    assert command("check", "--config", config) == 0
    assert "FAREGATE_KEY_SECRET, which is not set" in capsys.readouterr().out

    secrets_file.make(tmp_path / secrets_file.FOLDER)

    assert command("check", "--config", config) == 0
    assert "which is not set" not in capsys.readouterr().out


def test_a_refusal_is_explained_with_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = saved(tmp_path / "request.json", REQUEST.replace("auto", "standard"))
    assert command("explain", request, "--config", EXAMPLE, "--tiers", "small", "--json") == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["refused"]["code"] == "tier_not_allowed"


@pytest.mark.parametrize("body", ["", "{", "[]", '{"model": 1}'])
def test_a_request_that_cannot_be_read_is_wrong_use(
    body: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("explain", saved(tmp_path / "request.json", body), "--config", EXAMPLE) == 2
    assert "would be refused" in capsys.readouterr().err
    assert command("explain", str(tmp_path / "none.json"), "--config", EXAMPLE) == 2

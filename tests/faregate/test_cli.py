"""The command line as a whole: what each command says of itself, and what wrong use gives."""

import argparse
import re
from pathlib import Path
from typing import cast

import pytest

from faregate import __version__
from faregate.cli import COMMANDS, main, parser

EXAMPLE = Path(__file__).parents[2] / "faregate.example.toml"


def commands_of(top: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command and every verb of one, as the words a person types."""
    found: list[tuple[str, ...]] = []
    for action in top._actions:  # pyright: ignore[reportPrivateUsage] - argparse has no other way to ask
        verbs = cast("object", action.choices)
        if isinstance(verbs, dict):
            for name, below in cast("dict[str, argparse.ArgumentParser]", verbs).items():
                found += [(*words, name), *commands_of(below, (*words, name))]
    return found


def exit_code(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("words", commands_of(parser()), ids=" ".join)
def test_the_help_of_every_command_and_verb_has_an_example_of_it(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    command = " ".join(words)
    assert exit_code(*words, "--help") == 0

    said = capsys.readouterr().out
    assert re.search(r"^examples?:$", said, re.MULTILINE)
    example = re.split(r"^examples?:$", said, maxsplit=1, flags=re.MULTILINE)[1]
    assert f"faregate {command}" in example


@pytest.mark.parametrize("words", commands_of(parser()), ids=" ".join)
def test_every_command_and_verb_explains_itself(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*words, "--help") == 0
    assert capsys.readouterr().out.startswith(f"usage: faregate {' '.join(words)} ")


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--help") == 0

    said = capsys.readouterr().out
    for command in COMMANDS:
        assert re.search(rf"^    {command}\b", said, re.MULTILINE)


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--version") == 0
    assert capsys.readouterr().out == f"faregate {__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("chek",),
        ("check", "--no-such-option"),
        ("keys",),
        ("keys", "make"),
        ("keys", "create"),
        ("keys", "create", "--team", "search", "--tokens-per-minute", "0"),
        ("run", "--dashboard-port", "many"),
    ],
    ids=" ".join,
)
def test_wrong_use_exits_2_and_says_what_is_wrong(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*words) == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert "error: " in said.err


def test_the_example_of_the_file_is_good() -> None:
    assert main(["check", "--config", str(EXAMPLE)]) == 0


def test_a_file_that_is_not_there_is_a_finding(tmp_path: Path) -> None:
    assert main(["check", "--config", str(tmp_path / "faregate.toml")]) == 1


def test_a_reader_that_has_seen_enough_is_no_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Gone:
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            """Nothing is left to be written."""

    with (tmp_path / "stderr").open("w") as stderr:
        monkeypatch.setattr("sys.stdout", Gone())
        monkeypatch.setattr("sys.stderr", stderr)
        assert main(["check", "--config", str(EXAMPLE)]) == 0


def test_health_says_that_nothing_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--address", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1 does not answer" in capsys.readouterr().err

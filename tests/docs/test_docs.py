"""What README and docs say is so: commands, targets, links, files, and the table of errors."""

import argparse
import ast
import re
import shlex
import subprocess
from pathlib import Path
from typing import cast

import pytest

from faregate.cli import parser
from gateway import errors
from gateway.errors import GatewayError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

Case = tuple[str, str]  # page, what stands there


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    """The code blocks of a page in one of these languages ("" for none)."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


def commands() -> list[Case]:
    """Every line that a person may type, and every command in running text."""
    found: list[Case] = []
    for page in PAGES:
        for block in blocks(page, "sh"):
            found += [(named(page), line) for line in block.splitlines() if line.strip()]
        prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        found += [(named(page), text) for text in re.findall(r"`((?:faregate|make) [^`]+)`", prose)]
    return found


def words_of(line: str) -> list[str]:
    """The words of a line without variables set before it and without its comment."""
    words = shlex.split(line, comments=True)
    while words and re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    return words


def targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))


def verbs_of(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in top._actions:  # pyright: ignore[reportPrivateUsage] - argparse has no other way to ask
        choices = cast("object", action.choices)
        if isinstance(choices, dict):
            return cast("dict[str, argparse.ArgumentParser]", choices)
    return {}


def wrong_in(words: list[str]) -> str | None:
    """What of a `faregate` line the parser does not know. A mention may leave required words out."""
    below = parser()
    rest = words
    while rest and (verbs := verbs_of(below)):
        if rest[0].startswith("-"):
            break
        if rest[0] not in verbs:
            return f"no {rest[0]} in {sorted(verbs)}"
        below, rest = verbs[rest[0]], rest[1:]
    known = below._option_string_actions  # pyright: ignore[reportPrivateUsage]
    unknown = [word for word in rest if word.startswith("-") and word not in known]
    return f"unknown: {unknown}" if unknown else None


@pytest.mark.parametrize(("page", "line"), commands())
def test_every_command_on_a_page_is_there(page: str, line: str) -> None:
    words = words_of(line)
    if not words or words[0] in {"export", "cp", "openssl", "docker", "curl", "pip"}:
        return
    assert words[0] in {"make", "faregate"}, f"{page}: {line}: a command this test does not know"
    if words[0] == "make":
        assert set(words[1:]) <= targets(), f"{page}: {line}"
    else:
        assert wrong_in(words[1:]) is None, f"{page}: {line}: {wrong_in(words[1:])}"


@pytest.mark.parametrize(
    "line", ["faregate chek", "faregate keys make", "faregate check --jsn", "faregate ledger list --before 1"]
)
def test_a_command_that_is_not_there_is_found(line: str) -> None:
    assert wrong_in(words_of(line)[1:]) is not None


def test_every_typed_command_is_whole() -> None:
    typed = [
        words_of(line)[1:]
        for page in PAGES
        for block in blocks(page, "sh")
        for line in block.splitlines()
        if words_of(line)[:1] == ["faregate"]
    ]
    assert typed
    for words in typed:
        parser(words[0]).parse_args(words)  # exits where it is wrong


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{named(page)}: {target}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors_of(found), f"{named(page)}: {target}"


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def files_of_the_tree() -> list[str]:
    """The paths in the tree of docs/architecture.md; the folder of a line is given by its indent."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tree = page.split("## The tree", 1)[1].split("```")[1]
    found: list[str] = []
    folders: list[tuple[int, str]] = []
    for line in tree.strip("\n").splitlines():
        indent = len(line) - len(line.lstrip())
        names = re.split(r"  +", line.strip())[0]
        folders = [folder for folder in folders if folder[0] < indent]
        place = "".join(name for _, name in folders)
        for name in re.findall(r"[\w./]+", names):
            found.append(place + name)
            if name.endswith("/") and "," not in names:
                folders.append((indent, name))
    return found


def test_every_file_in_the_tree_is_there() -> None:
    listed = files_of_the_tree()
    assert "gateway/wire/sse.py" in listed
    missing = [path for path in listed if not (ROOT / path).exists()]
    assert not missing


@pytest.mark.parametrize("package", ["faregate", "gateway", "routers", "pricing", "ledger"])
def test_every_module_stands_in_the_tree(package: str) -> None:
    listed = set(files_of_the_tree())
    modules = {
        f"{package}/{path.name}" for path in (ROOT / package).glob("*.py") if path.name != "__init__.py"
    }
    assert modules - listed == set()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_python_on_a_page_compiles(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, named(page), "exec")


def codes_in_the_program() -> dict[str, set[int]]:
    """Code -> the statuses it comes with, read from the constructors in gateway/errors.py."""
    made: list[GatewayError] = [
        errors.invalid_api_key(),
        errors.conflicting_credentials(""),
        errors.invalid_json(""),
        errors.duplicate_key("a"),
        errors.json_too_deep(1),
        errors.invalid_utf8(""),
        errors.request_too_large(1),
        errors.headers_too_large(""),
        errors.url_too_long(1),
        errors.unsupported_content_encoding(""),
        errors.unsupported_media_type(""),
        errors.missing_field("a"),
        errors.invalid_value("a", ""),
        errors.unknown_parameter("a"),
        errors.model_not_found(""),
        errors.context_length_exceeded(""),
        errors.endpoint_not_served(""),
        errors.answer_not_found(""),
        errors.not_found("/"),
        errors.method_not_allowed("GET", "/"),
        errors.request_timeout(""),
        errors.idempotency_conflict("", running=True),
        errors.idempotency_conflict("", running=False),
        errors.tier_not_allowed(""),
        errors.model_not_allowed(""),
        errors.rate_limit_exceeded("", retry_after_seconds=1),
        errors.upstream_rate_limited("", retry_after_seconds=1),
        errors.budget_exceeded(""),
        errors.unpriced(""),
        errors.upstream_unreachable(""),
        errors.upstream_timeout(""),
        errors.upstream_invalid_response(""),
        errors.upstream_error(""),
        errors.stream_interrupted(""),
        errors.overloaded(""),
        errors.draining(),
        errors.dependency_unavailable(""),
        errors.internal_error("r"),
    ]
    found: dict[str, set[int]] = {}
    for error in made:
        found.setdefault(error.code, set()).add(error.status)
    return found


def test_the_list_of_errors_above_is_whole() -> None:
    """A new constructor must be added to it, and so to the page."""
    tree = ast.parse((ROOT / "gateway" / "errors.py").read_text(encoding="utf-8"))
    public = {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and isinstance(node.returns, ast.Name)
        and node.returns.id == "GatewayError"
    }
    used = set(re.findall(r"\berrors\.(\w+)\(", Path(__file__).read_text(encoding="utf-8")))
    assert public - {"provider_error"} == used


def test_the_table_of_errors_is_the_programs() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d, ]+) \|", page, re.MULTILINE)
    assert {code: set(map(int, statuses.split(", "))) for code, statuses in rows} == codes_in_the_program()
    assert len(rows) == len({code for code, _ in rows})


def grep(pattern: str) -> list[str]:
    done = subprocess.run(
        ["git", "grep", "-nIE", "-e", pattern, "--", ".", ":!tests/docs", ":!tests/recorded"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "pattern",
    [r"/work/", r"/home/[a-z]", r"/root/", r"pypi\.org/simple", r"files\.pythonhosted\.org", r"--index-url"],
)
def test_the_repository_names_no_place_of_one_machine_and_no_registry(pattern: str) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    assert grep(pattern) == []


def test_no_link_is_kept_since_a_link_leads_to_a_place_of_one_machine() -> None:
    """A tracked `.venv` would also replace the environment of whoever merges it."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(
        ["git", "ls-files", "--stage"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    links = [line.split("\t", 1)[1] for line in listed if line.startswith("120000 ")]
    assert links == [], f"take them out: git rm --cached {' '.join(links)}"

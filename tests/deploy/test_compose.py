"""There is no container engine in the tests: the files are linted, and read for what must hold in them."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest
import yaml  # pyright: ignore[reportMissingModuleSource] - has no types of its own
from yamllint import linter  # pyright: ignore[reportMissingTypeStubs]
from yamllint.config import YamlLintConfig  # pyright: ignore[reportMissingTypeStubs]

REPO = Path(__file__).parents[2]
COMPOSE = cast("dict[str, Any]", yaml.safe_load((REPO / "docker-compose.yml").read_text()))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (REPO / "Dockerfile").read_text()
RULES = "{extends: default, rules: {line-length: {max: 120}, comments: {min-spaces-from-content: 1}}}"

each_service = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)


def instructions(stage: str = "") -> list[str]:
    """The Dockerfile's instructions, each on one line; of one stage if it is named."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    lines = [line for line in joined.splitlines() if line.strip()]
    if not stage:
        return lines
    start = next(
        n for n, line in enumerate(lines) if line.startswith("FROM") and line.endswith(f" AS {stage}")
    )
    rest = lines[start + 1 :]
    return rest[: next((n for n, line in enumerate(rest) if line.startswith("FROM")), len(rest))]


@pytest.mark.parametrize("path", ["docker-compose.yml", "deploy/prometheus.yml"])
def test_the_yaml_is_clean(path: str) -> None:
    lint = cast("Callable[[str, object], Iterable[object]]", getattr(linter, "run"))  # noqa: B009 - untyped
    assert [str(problem) for problem in lint((REPO / path).read_text(), YamlLintConfig(RULES))] == []


def test_the_five_parts_are_there() -> None:
    assert set(SERVICES) == {"gateway", "dashboard", "postgres", "redis", "prometheus"}


@each_service
def test_every_service_runs_as_somebody_without_rights_on_a_root_it_cannot_write(
    service: dict[str, Any],
) -> None:
    user, _, group = service["user"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert not any("docker.sock" in str(volume) for volume in service.get("volumes", []))


@each_service
def test_every_service_tells_its_health_without_a_shell(service: dict[str, Any]) -> None:
    check = service["healthcheck"]
    assert check["test"][0] == "CMD"
    assert not {"sh", "bash", "curl", "wget"} & set(check["test"])
    assert {"interval", "timeout", "retries"} <= set(check)


@each_service
def test_every_image_has_a_version(service: dict[str, Any]) -> None:
    assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.?[\w.-]*", service["image"])
    assert "latest" not in service["image"]


@each_service
def test_ports_are_open_on_loopback_only(service: dict[str, Any]) -> None:
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_the_databases_are_not_published_and_have_no_way_out() -> None:
    for name in ("postgres", "redis"):
        assert "ports" not in SERVICES[name]
        assert SERVICES[name]["networks"] == ["back"]
    assert COMPOSE["networks"]["back"]["internal"] is True


def test_no_secret_has_a_value_or_a_default_in_the_file() -> None:
    text = (REPO / "docker-compose.yml").read_text()
    for name in ("FAREGATE_KEY_SECRET", "FAREGATE_ADMIN_SECRET", "POSTGRES_PASSWORD"):
        assert re.search(rf"\$\{{{name}:\?", text)
        assert not re.search(rf"\$\{{{name}(:?-|\}})", text)
    values = [
        line.split("=", 1)[1]
        for line in (REPO / "deploy/env.example").read_text().splitlines()
        if "=" in line
    ]
    assert set(values) == {""}


def test_the_dashboard_holds_no_secret_but_the_ledgers() -> None:
    environment = SERVICES["dashboard"]["environment"]
    assert set(environment) == {"LEDGER_URL", "STREAMLIT_SERVER_ADDRESS"}
    assert environment["LEDGER_URL"] == SERVICES["gateway"]["environment"]["LEDGER_URL"]


def test_the_dashboards_command_finds_its_ledger_without_the_gateways_secrets() -> None:
    from gateway.app import ledger_url_of
    from gateway.config import load

    environment = {"LEDGER_URL": "postgresql://nobody@nowhere/faregate"}
    config = load(REPO / "deploy/faregate.toml", environment, needs_secrets=False)
    assert ledger_url_of(config) == environment["LEDGER_URL"]


def test_no_secret_is_copied_into_a_root_that_cannot_be_written() -> None:
    # Compose refuses `secrets: environment:` with `read_only` (docker/compose#12531, read 2026-11-30).
    copied = {name for name, secret in COMPOSE.get("secrets", {}).items() if "file" not in secret}
    for service in SERVICES.values():
        assert not copied & set(service.get("secrets", []))


def test_the_commands_of_the_file_are_ours() -> None:
    from faregate.cli import parser

    for command in (
        json.loads(instructions("gateway")[-1].split(" ", 1)[1]),
        SERVICES["dashboard"]["command"],
        SERVICES["gateway"]["healthcheck"]["test"][2:],
    ):
        parser().parse_args(command)


def test_every_secret_of_the_configuration_is_passed_to_the_gateway() -> None:
    named = set(re.findall(r'env = "(\w+)"', (REPO / "deploy/faregate.toml").read_text()))
    assert named <= set(SERVICES["gateway"]["environment"])


def test_what_is_named_is_there() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (REPO / source).is_file()
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        assert set(service.get("secrets", [])) <= set(COMPOSE.get("secrets", {}))
        if "build" in service:
            assert instructions(service["build"]["target"])
    for line in instructions():
        if line.startswith("COPY") and "--from" not in line:
            assert all((REPO / source).exists() for source in line.split()[1:-1])


def test_the_listeners_of_the_configuration_are_the_published_and_the_scraped_ports() -> None:
    gateway = tomllib.loads((REPO / "deploy/faregate.toml").read_text())["gateway"]
    ports = {port.rpartition(":")[2] for port in SERVICES["gateway"]["ports"]}
    assert ports == {gateway["listen"].rpartition(":")[2], gateway["admin_listen"].rpartition(":")[2]}
    scrape = cast("dict[str, Any]", yaml.safe_load((REPO / "deploy/prometheus.yml").read_text()))
    assert scrape["scrape_configs"][0]["static_configs"][0]["targets"] == [
        f"gateway:{gateway['admin_listen'].rpartition(':')[2]}"
    ]


def test_the_configuration_is_a_good_one() -> None:
    from gateway.config import load

    environment = {"FAREGATE_KEY_SECRET": "k" * 32, "FAREGATE_ADMIN_SECRET": "a" * 32, "OPENAI_API_KEY": "o"}
    config = load(REPO / "deploy/faregate.toml", environment)
    assert config.providers["openai"].live
    assert not config.providers["mistral"].live
    assert {problem.field.partition(".")[0] for problem in config.warnings} <= {"gateway"}


def test_the_images_run_without_root_and_stop_by_the_signal_that_drains() -> None:
    base = instructions("base")
    assert base.index("USER 10001:10001") > max(n for n, line in enumerate(base) if line.startswith("RUN"))
    assert "STOPSIGNAL SIGTERM" in base
    for stage in ("gateway", "dashboard"):
        assert not any(line.startswith(("USER", "RUN")) for line in instructions(stage))
    for line in instructions():
        if line.startswith(("CMD", "ENTRYPOINT")):
            assert isinstance(json.loads(line.split(" ", 1)[1]), list)  # no shell between it and the signal


def test_every_package_is_installed_with_its_hash_or_from_the_repository() -> None:
    installs = [
        part
        for line in instructions()
        for part in line.split("&&")
        if re.search(r"pip (install|wheel)", part)
    ]
    assert len(installs) == 5
    assert all(
        "--require-hashes -r requirements/" in one or "--no-index --no-deps" in one for one in installs
    )


def test_the_base_image_has_a_version_and_the_gateway_is_what_a_plain_build_makes() -> None:
    froms = [line for line in instructions() if line.startswith("FROM")]
    assert "ARG PYTHON_IMAGE=python:3.11-slim-bookworm" in instructions()
    assert {line.split()[1] for line in froms} == {"${PYTHON_IMAGE}", "build", "base"}
    assert froms[-1].endswith(" AS gateway")


def test_nothing_local_reaches_the_image() -> None:
    first, *others = [
        line
        for line in (REPO / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert first == "*"
    let_in = {line[1:] for line in others if line.startswith("!")}
    assert not let_in & {".env", ".git", ".faregate", "faregate.toml", "tests", "."}
    copied = {
        source.rstrip("/")
        for line in instructions()
        if line.startswith("COPY") and "--from" not in line
        for source in line.split()[1:-1]
    }
    assert {source if "/" not in source else "requirements/*.lock" for source in copied} == let_in

"""What a first start keeps in the data folder, for its owner alone: above all the gateway's own secrets."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

NAMES = ("FAREGATE_KEY_SECRET", "FAREGATE_ADMIN_SECRET")
FOLDER = ".faregate"
FILE = "secrets.env"
SIMULATED_LEDGER = "simulated.db"  # of `faregate run` without a provider key
DEMO_LEDGER = "demo/ledger.db"  # of `faregate demo`, made anew at each start
STAND_IN_LEDGERS = (SIMULATED_LEDGER, DEMO_LEDGER)


def environment(config: str | Path, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment, with the secrets of the folder beside `config` where it does not set them itself."""
    found = dict(os.environ if environ is None else environ)
    for name, value in _read(Path(config).parent / FOLDER / FILE).items():
        if not found.get(name):
            found[name] = value
    return found


def make(folder: Path) -> None:
    """Make the folder and the secrets that are not there yet."""
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    path = folder / FILE
    known = _read(path)
    missing = [name for name in NAMES if name not in known]
    if missing:
        lines = [f"{name}={value}" for name, value in known.items()]
        lines += [f"{name}={secrets.token_urlsafe(32)}" for name in missing]
        write_private(path, "\n".join(lines) + "\n")


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    half = path.with_name(path.name + ".new")
    handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    half.replace(path)


def _read(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line.strip() and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}

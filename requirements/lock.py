"""Makes the lock files, or checks that they are fresh: pinned, hashed, and naming no registry.

The locks build on one another (gateway < dashboard < dev < real), so that adding an extra to a running
environment never changes a package that is in it. Needs nothing but the standard library and uv.

    python3 requirements/lock.py --uv .venv/bin/uv           make them
    python3 requirements/lock.py --uv .venv/bin/uv --check   exit 1 if one is not what it should be
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
# name -> arguments for `uv pip compile`; in this order, widest first, since it is a constraint for the rest
LOCKS: dict[str, list[str]] = {
    "bootstrap": ["requirements/bootstrap.in"],
    "build": ["requirements/build.in"],
    "real": ["pyproject.toml", "--extra", "dashboard", "--extra", "dev", "--extra", "real"],
    "dev": [
        "pyproject.toml",
        "--extra",
        "dashboard",
        "--extra",
        "dev",
        "--constraint",
        "requirements/real.lock",
    ],
    "dashboard": ["pyproject.toml", "--extra", "dashboard", "--constraint", "requirements/real.lock"],
    "gateway": ["pyproject.toml", "--constraint", "requirements/real.lock"],
}
FORM = [
    "--universal",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-annotate",
    "--python-version",
    "3.11",
]
HEADER = ["--custom-compile-command", "make lock"]


def compile_lock(uv: str, root: Path, name: str) -> None:
    """Write requirements/NAME.lock below `root`; pins that are in the file already stay if they still fit."""
    out = f"requirements/{name}.lock"
    command = [uv, "pip", "compile", "--quiet", *FORM, *HEADER, *LOCKS[name], "--output-file", out]
    subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)


def problems_of(text: str, name: str) -> list[str]:
    """What a lock must not have: a pin without a hash, an address."""
    found: list[str] = []
    for entry in re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.M)):
        if entry.strip() and "--hash=sha256:" not in entry:
            found.append(f"{name}.lock: {entry.split()[0]} has no hash")
    if re.search(r"(https?|file)://|index-url|find-links", text):
        found.append(f"{name}.lock names an address")
    return found


def check(uv: str) -> list[str]:
    """Every lock is complete, and resolving again from it changes nothing."""
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(HERE, copy / "requirements")
        for file in ("pyproject.toml", "README.md", "LICENSE"):
            if (ROOT / file).exists():
                shutil.copy(ROOT / file, copy / file)
        for name in LOCKS:
            path = HERE / f"{name}.lock"
            before = path.read_text() if path.exists() else ""
            found += problems_of(before, name)
            compile_lock(uv, copy, name)
            if (copy / "requirements" / f"{name}.lock").read_text() != before:
                found.append(f"{name}.lock is stale: run `make lock` and commit the result")
    return found


def main() -> int:
    """The command line; see the module's text."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--uv", default="uv", help="the uv program to use")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a lock is not fresh")
    args = parser.parse_args()
    uv = shutil.which(args.uv)
    if uv is None:
        parser.error("no such program as --uv names; run `make lock-check` instead, which brings its own")
    uv = str(Path(uv).absolute())
    if args.check:
        found = check(uv)
        print("\n".join(found) or "lock files: fresh, hashed, no addresses")
        return 1 if found else 0
    for name in LOCKS:
        compile_lock(uv, ROOT, name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

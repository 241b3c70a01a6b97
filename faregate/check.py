"""`faregate check`: tests faregate.toml, and prints what each name that a client may send leads to."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.config import Config, Problem

_EXAMPLE = """\
example:
  faregate check
  faregate check --config faregate.example.toml --json

exit codes: 0 the file is good (there may be warnings), 1 it is not
"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "check",
        help="test faregate.toml",
        description="Tests a configuration file: all its problems at once, with file, line and field. "
        "Of a good one it prints what each model name leads to and which providers are live.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", default="faregate.toml", help="default: ./faregate.toml")
    parser.add_argument("--json", action="store_true", help="print facts as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check, print, and give the exit code."""
    import json

    from faregate.secrets_file import environment
    from gateway.config import ConfigProblems, load

    try:
        config = load(args.config, environment(args.config), needs_secrets=False)
    except ConfigProblems as wrong:
        if args.json:
            print(json.dumps({"ok": False, "problems": [as_json(problem) for problem in wrong.problems]}))
        else:
            for problem in wrong.problems:
                print(problem)
            count = len(wrong.problems)
            print(f"\n{args.config}: {count} problem{'' if count == 1 else 's'}; nothing of it is taken")
        return 1
    if args.json:
        print(json.dumps(facts(config)))
    else:
        print("\n".join(lines(config)))
    return 0


def as_json(problem: "Problem") -> dict[str, Any]:
    """One problem or warning as plain values."""
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "field": problem.field,
        "message": problem.message,
    }


def facts(config: "Config") -> dict[str, Any]:
    """What a good file says, as plain values."""
    from gateway.config.books import is_priced

    return {
        "ok": True,
        "digest": config.digest,
        "names": {
            name: {"leads_to": fate.kind, "target": fate.target or None, "because": fate.because or None}
            for name, fate in sorted(config.policy.fates.items())
        },
        "providers": {
            name: {"live": provider.live, "dialect": provider.dialect, "off_because": provider.off_because}
            for name, provider in config.providers.items()
        },
        "unpriced": [
            name
            for name, deployment in config.policy.deployments.items()
            if not is_priced(config.books[name], deployment.model)
        ],
        "rules": len(config.policy.rules),
        "warnings": [as_json(warning) for warning in config.warnings],
    }


def lines(config: "Config") -> list[str]:
    """What a good file says, for a person."""
    policy = config.policy
    text = [f"{config.path}: ok (version {config.digest})", "", "What a client may ask for as `model`:"]
    names = sorted(policy.fates)
    width = max(len(name) for name in names)
    for name in names:
        fate = policy.fates[name]
        if fate.kind == "rules":
            what = f"the rules decide ({len(policy.rules)}), else tier {policy.default}"
        elif fate.kind == "tier":
            tier = policy.tiers[fate.target]
            what = f"tier {fate.target}: {', '.join(tier.deployments)}"
        else:
            deployment = policy.deployments[fate.target]
            what = f"pinned to {fate.target} ({deployment.model} at {deployment.provider})"
            if deployment.off_because is not None:
                what += ", off"
        text.append(f"  {name:{width}}  {what}")
    text += ["", "Providers:"]
    width = max((len(name) for name in config.providers), default=0)
    for name, provider in config.providers.items():
        state = "live" if provider.live else f"off: {provider.off_because}"
        text.append(f"  {name:{width}}  {state}")
    if config.warnings:
        text += ["", "Warnings:"]
        text += [f"  {warning}" for warning in config.warnings]
    return text

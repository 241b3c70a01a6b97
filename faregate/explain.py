"""`faregate explain`: what would be decided for a request, and why; nothing is sent anywhere."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from routers.decide import Explanation
    from routers.facts import Classification, RequestFacts

_EXAMPLE = """\
example:
  faregate explain request.json --team search --application receipts
  echo '{"model": "auto", "messages": [{"role": "user", "content": "hi"}]}' | faregate explain -

exit codes: 0 it would be sent, 1 it would be refused, 2 it cannot be read
"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "explain",
        help="say what would be decided for a request, and why",
        description="Reads the body of a chat request and prints what kind of work it is taken for, which "
        "deployments would be tried, and for every rule whether it matches and why not. Sends nothing.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "request", metavar="REQUEST.JSON", help="the body of the request; - reads standard input"
    )
    parser.add_argument("--config", metavar="FILE", default="faregate.toml", help="default: ./faregate.toml")
    parser.add_argument("--team", metavar="NAME", default="", help="the team of the key that would ask")
    parser.add_argument("--application", metavar="NAME", help="as the key or x-faregate-application says")
    parser.add_argument("--customer", metavar="NAME", help="as x-faregate-customer says")
    parser.add_argument("--feature", metavar="NAME", help="as x-faregate-feature says")
    parser.add_argument("--session", metavar="ID", help="as x-faregate-session says; else from the prompt")
    parser.add_argument("--key", metavar="ID", default="", help="the public id of the key that would ask")
    parser.add_argument("--tiers", metavar="TIER", nargs="+", help="the tiers that this key may have")
    parser.add_argument("--regions", metavar="REGION", nargs="+", help="the regions that this key may have")
    parser.add_argument(
        "--budget-left", metavar="SHARE", type=_share, help="what is left of its budget, 0 to 1"
    )
    parser.add_argument(
        "--at", metavar="TIME", type=_moment, help="when, like 2026-11-29T20:00; default: now"
    )
    parser.add_argument(
        "--simulated",
        action="store_true",
        help="as if every provider had its key: what `make run` does without any",
    )
    parser.add_argument("--json", action="store_true", help="print facts as JSON")
    parser.set_defaults(run=run)


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError("a share is a number from 0 to 1")
    return share


def _moment(text: str) -> float:
    from datetime import UTC, datetime

    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def run(args: argparse.Namespace) -> int:
    """Explain, print, and give the exit code."""
    import json
    import sys
    import time
    from pathlib import Path

    from msgspec.structs import replace

    from faregate.secrets_file import environment
    from gateway.config import ConfigProblems, load, switched_on
    from gateway.errors import GatewayError
    from gateway.wire.openai_chat import facts_for, read_request
    from routers.classify import classify
    from routers.decide import CallerLimits, Decision, explain
    from routers.health import Health

    try:
        config = load(args.config, environment(args.config), needs_secrets=False)
        body = sys.stdin.buffer.read() if args.request == "-" else Path(args.request).read_bytes()
        request = read_request(body)
    except ConfigProblems as wrong:
        print(wrong, file=sys.stderr)
        return 2
    except OSError as wrong:
        print(f"{args.request} cannot be read: {wrong.strerror}", file=sys.stderr)
        return 2
    except GatewayError as wrong:
        print(f"{args.request} would be refused: {wrong.message}", file=sys.stderr)
        return 2
    has_no_key = not any(provider.live for provider in config.providers.values())
    if args.simulated:
        config = switched_on(config, base_url="http://127.0.0.1", api_key="", because="simulated")
    facts = replace(
        facts_for(request, None, ()),
        key_id=args.key,
        team=args.team,
        application=args.application,
        customer=args.customer,
        feature=args.feature,
    )
    if args.session:
        facts = replace(facts, session=args.session)
    seen = classify(facts, request.peek())
    limits = CallerLimits(
        tiers=None if args.tiers is None else frozenset(args.tiers),
        regions=None if args.regions is None else frozenset(args.regions),
    )
    team = config.teams.get(args.team)
    found = explain(
        config.policy,
        facts,
        seen,
        limits=limits if team is None else limits.within(team.limits),
        allowed_tiers=None,
        budget_left_share=args.budget_left,
        health=Health(),
        now=time.time() if args.at is None else args.at,
    )
    if args.json:
        print(json.dumps(as_facts(facts, seen, found)))
    else:
        print("\n".join(lines(facts, seen, found)))
        if has_no_key and not args.simulated:
            print("\nNo provider has its key here; --simulated explains what `make run` does without one.")
    return 0 if isinstance(found.decision, Decision) else 1


def as_facts(facts: "RequestFacts", seen: "Classification", found: "Explanation") -> dict[str, Any]:
    """Everything that was weighed, as plain values."""
    from msgspec import to_builtins

    from routers.decide import Decision

    decision = found.decision
    weighed: dict[str, Any] = {
        "request": to_builtins(facts),
        "classification": to_builtins(seen),
        "asked": found.asked,
        "passed_over": to_builtins(decision.passed_over),
        "rules": to_builtins(found.rules),
    }
    if isinstance(decision, Decision):
        weighed["decision"] = {
            "rule": decision.rule,
            "tier": decision.tier or None,
            "deployments": list(decision.deployments),
            "because": list(decision.because),
        }
    else:
        weighed["refused"] = {"code": decision.code, "message": decision.message}
    return weighed


def lines(facts: "RequestFacts", seen: "Classification", found: "Explanation") -> list[str]:
    """Everything that was weighed, for a person."""
    from routers.decide import Decision

    decision = found.decision
    text = [
        f"Request:   model {facts.model!r}, about {facts.input_tokens} input tokens, turn {facts.turn}"
        + (", streamed" if facts.stream else ""),
        f"Taken for: {seen.task_kind} (confidence {seen.confidence:g}): {', '.join(seen.because)}",
        f"Asked:     {found.asked}",
    ]
    if isinstance(decision, Decision):
        where = f"tier {decision.tier}" if decision.tier else "pinned"
        text.append(f"Decided:   {where}, {' then '.join(decision.deployments)} ({decision.rule})")
        text += [f"  because  {reason}" for reason in decision.because]
    else:
        # The reasons in it follow, one a line.
        message = decision.message.partition(": ")[0] if decision.passed_over else decision.message
        text.append(f"Refused:   {decision.code}: {message}")
    if decision.passed_over:
        text += ["", "Passed over:"]
        text += [f"  {passed.deployment}: {passed.reason}" for passed in decision.passed_over]
    if found.rules:
        text += ["", "Rules:"]
    for rule in found.rules:
        if rule.matches:
            text.append(f'  matches  "{rule.rule}" -> {rule.tier}: {rule.note}')
        else:
            text.append(f'  no       "{rule.rule}" -> {rule.tier}: {"; ".join(rule.why_not)}')
    return text

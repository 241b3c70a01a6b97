"""`faregate meter`: reads usage cases (an upstream's answer and prices) and prints what they used and cost.

The form of a case is that of `tests/recorded/usage-cases/README.md`. Nothing is called and no catalogue is
asked: a case brings its own prices. Text is counted as a quarter of its bytes, so that no tokenizer matters.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from datetime import datetime
    from decimal import Decimal
    from pathlib import Path

    from gateway.wire.meters import Meter
    from pricing.usage import Reading

_EXAMPLE = """\
example:
  faregate meter tests/recorded/usage-cases --json
  faregate meter tests/recorded/usage-cases/oai-001-basic.json

exit codes: 0 every case was read, 1 some could not be (they are named on standard error), 2 wrong use
"""


class BadCase(ValueError):
    """A case that does not have the form of one: what is wrong and where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priced:
    line: dict[str, Any]
    cost: int | None  # pico-dollars
    flags: frozenset[str]


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "meter",
        help="count and price recorded answers",
        description="Reads a usage case, or every case (*.json) of a folder, and prints tokens by kind, where the "
        "counts came from, and the exact cost at the case's own prices.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", metavar="PATH", help="a case, or a folder of cases")
    parser.add_argument("--json", action="store_true", help="one JSON line a case, sorted by id")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read, print, and give the exit code."""
    import json
    import sys
    from pathlib import Path

    path = Path(args.path)
    if path.is_dir():
        files = sorted(file for file in path.glob("*.json") if file.is_file())
        if not files:
            print(f"{path}: this folder holds no cases (*.json)", file=sys.stderr)
            return 2
    elif path.exists():
        files = [path]
    else:
        print(f"{path}: there is no such file or folder", file=sys.stderr)
        return 2
    lines: list[dict[str, Any]] = []
    bad = 0
    for file in files:
        try:
            lines.append(metered(case_in(file)))
        except BadCase as wrong:
            bad += 1
            print(f"{file}: {wrong}", file=sys.stderr)
    lines.sort(key=lambda line: line["id"])
    if args.json:
        for line in lines:
            print(json.dumps(line, ensure_ascii=False))
    elif lines:
        print("\n".join(table_of(lines)))
    return 1 if bad else 0


def case_in(file: "Path") -> Mapping[str, Any]:
    """The case in a file. Raises BadCase."""
    import json

    try:
        case = json.loads(file.read_text("utf-8"))
    except OSError as wrong:
        raise BadCase(f"cannot be read: {wrong.strerror or type(wrong).__name__}") from None
    except UnicodeDecodeError:
        raise BadCase("is not UTF-8") from None
    except (ValueError, RecursionError) as wrong:
        raise BadCase(f"is not JSON: {wrong}") from None
    if not isinstance(case, dict):
        raise BadCase("is not a case: a JSON object is wanted")
    return cast("dict[str, Any]", case)


def metered(case: Mapping[str, Any]) -> dict[str, Any]:
    """What a case used and cost: the fields of its `expected`. Raises BadCase."""
    name = _text(case, "id", "")
    if case.get("schema") != 1:
        raise BadCase(f"schema is {case.get('schema')!r}; this version knows 1")
    attempts = case.get("attempts")
    if attempts is None:
        priced = _attempt(case, "")
        return {"id": name, **priced.line}
    if not isinstance(attempts, list) or not attempts:
        raise BadCase("attempts must be a list of at least one")
    each: list[_Priced] = []
    for number, attempt in enumerate(cast("list[object]", attempts)):
        if not isinstance(attempt, dict):
            raise BadCase(f"attempts[{number}] must be an object")
        each.append(_attempt(cast("dict[str, Any]", attempt), f"attempts[{number}]."))
    costs = [priced.cost for priced in each if priced.cost is not None]
    whole = len(costs) == len(each)
    line: dict[str, Any] = {"id": name}
    unread = [priced.line["unsupported"] for priced in each if "unsupported" in priced.line]
    if unread:
        line["unsupported"] = unread[0]
    return {
        **line,
        "attempts": len(each),
        "cost_usd": _usd(sum(costs)) if whole else None,
        "flags": sorted(frozenset[str]().union(*(priced.flags for priced in each))),
        "each": [priced.line for priced in each],
    }


def _attempt(attempt: Mapping[str, Any], where: str) -> _Priced:
    from gateway.wire.meters import METERS
    from pricing.cost import cost_of
    from pricing.price_tables import PriceProblem
    from pricing.sheet import PriceBook

    wire = _text(attempt, "wire", where)
    if wire not in METERS:
        return _Priced(line={"unsupported": wire}, cost=None, flags=frozenset())
    request = _object(attempt, "request", where)
    response = _object(attempt, "response", where)
    started_at = _moment(request, "started_at", f"{where}request.")
    completed_at = started_at
    if response.get("completed_at") is not None:
        completed_at = _moment(response, "completed_at", f"{where}response.")
    try:
        book = PriceBook.from_tables(_object(attempt, "prices", where))
    except PriceProblem as wrong:
        raise BadCase(f"{where}prices: {'; '.join(wrong.problems)}") from None
    reading = _read(METERS[wire], attempt, request, response, where)
    cost = cost_of(
        reading,
        book,
        requested_model=_text(request, "model", f"{where}request."),
        started_at=started_at,
        completed_at=completed_at,
        requested_service_tier=_maybe_text(request, "service_tier", f"{where}request."),
        batch=request.get("processing") == "batch",
    )
    flags = reading.flags | cost.flags
    line = {
        "usage": _usage(reading),
        "cached_on_wire": reading.cached_on_wire,
        "reasoning_on_wire": reading.reasoning_on_wire,
        "usage_source": reading.source,
        "priced_as": cost.priced_as,
        "price_version": cost.price_version,
        "rate_set": cost.rate_set,
        "cost_usd": None if cost.total is None else _usd(cost.total),
        "provider_cost_usd": None if cost.provider_cost_usd is None else _plain(cost.provider_cost_usd),
        "flags": sorted(flags),
    }
    return _Priced(line=line, cost=cost.total, flags=flags)


def _read(
    meter: "Meter",
    attempt: Mapping[str, Any],
    request: Mapping[str, Any],
    response: Mapping[str, Any],
    where: str,
) -> "Reading":
    """Feed the answer to the product's own meter, as the network would."""
    from gateway.wire.packing import Unpacker

    status = response.get("status")
    if not isinstance(status, int) or isinstance(status, bool):
        raise BadCase(f"{where}response.status must be a number")
    end = response.get("end", "complete")
    if end not in ("complete", "client_abort", "upstream_cut"):
        raise BadCase(f"{where}response.end is {end!r}; known are complete, client_abort, upstream_cut")
    dialect = _text(attempt, "dialect", where)
    estimate = request.get("input_tokens_estimate")
    if estimate is not None and (isinstance(estimate, bool) or not isinstance(estimate, int) or estimate < 0):
        raise BadCase(f"{where}request.input_tokens_estimate must be a number of tokens")
    packing: str | None = None
    for name, value in _object(response, "headers", f"{where}response.").items():
        if name.lower() == "content-encoding" and isinstance(value, str):
            packing = value
    chunks, is_stream = _chunks(response, f"{where}response.")
    if not is_stream:
        return meter.read_whole(
            b"".join(chunks),
            status=status,
            dialect=dialect,
            content_encoding=packing,
            end=end,
            input_tokens_estimate=estimate,
            counter=_stub,
        )
    stream = meter.stream(dialect=dialect, drop_usage=True, counter=_stub)
    if response.get("events") is not None:
        for payload in chunks:
            stream.take_payload(payload)
        return stream.reading(status=status, end=end, input_tokens_estimate=estimate)
    unpacker = None if packing is None or packing.lower() == "identity" else Unpacker(packing)
    for chunk in chunks:
        stream.feed(chunk if unpacker is None else unpacker.feed(chunk))
    stream.rest()
    return stream.reading(status=status, end=end, input_tokens_estimate=estimate)


def _chunks(response: Mapping[str, Any], where: str) -> tuple[list[bytes], bool]:
    """The body in pieces as they came, and whether it is a stream."""
    import base64
    import binascii

    def packed(value: object, name: str) -> bytes:
        if not isinstance(value, str):
            raise BadCase(f"{where}{name} must be base64 text")
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise BadCase(f"{where}{name} is not base64") from None

    def plain(value: object, name: str) -> bytes:
        if not isinstance(value, str):
            raise BadCase(f"{where}{name} must be a text")
        return value.encode("utf-8", "surrogatepass")

    for name, read, is_stream in (
        ("body_text", plain, False),
        ("body_base64", packed, False),
        ("chunks", plain, True),
        ("chunks_base64", packed, True),
        ("events", plain, True),
    ):
        value = response.get(name)
        if value is None:
            continue
        if not is_stream:
            return [read(value, name)], False
        if not isinstance(value, list):
            raise BadCase(f"{where}{name} must be a list")
        return [read(chunk, name) for chunk in cast("list[object]", value)], True
    raise BadCase(f"{where}body_text, body_base64, chunks, chunks_base64 or events is missing")


def _stub(text_bytes: int, /) -> int:
    """The counter that the cases prescribe."""
    return -(-text_bytes // 4)


def _usage(reading: "Reading") -> dict[str, Any]:
    from pricing.usage import BUCKETS

    usage = reading.usage
    return {
        **{bucket: getattr(usage, bucket) for bucket in BUCKETS},
        "input_total": usage.input_total,
        "output_total": usage.output_total,
        "tools": dict(usage.tools),
        "extra": dict(usage.extra),
    }


def _usd(pico_usd: int) -> str:
    from pricing.money import usd_text

    return usd_text(pico_usd)


def _plain(amount: "Decimal") -> str:
    """A decimal without exponent or trailing zeros."""
    text = format(amount, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise BadCase(f"{where}{key} is missing or no text")
    return value


def _maybe_text(table: Mapping[str, Any], key: str, where: str) -> str | None:
    return None if table.get(key) is None else _text(table, key, where)


def _object(table: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    value = table.get(key)
    if not isinstance(value, dict):
        raise BadCase(f"{where}{key} is missing or no object")
    return cast("dict[str, Any]", value)


def _moment(table: Mapping[str, Any], key: str, where: str) -> "datetime":
    from datetime import datetime

    text = _text(table, key, where)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadCase(f"{where}{key} is {text!r}; a moment with its offset is wanted")
    return moment


def table_of(lines: list[dict[str, Any]]) -> list[str]:
    """The lines for a person."""
    rows = [("case", "input", "cached", "written", "output", "USD", "counted by", "rates", "flags")]
    for line in lines:
        if "each" in line:
            cost = line["cost_usd"] or "-"
            rows.append(
                (
                    line["id"],
                    "",
                    "",
                    "",
                    "",
                    cost,
                    f"{line['attempts']} attempts",
                    "",
                    ", ".join(line["flags"]),
                )
            )
            for number, attempt in enumerate(line["each"], start=1):
                rows.append(_row(f"  attempt {number}", attempt))
        else:
            rows.append(_row(line["id"], line))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    right = {1, 2, 3, 4, 5}
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _row(name: str, line: Mapping[str, Any]) -> tuple[str, str, str, str, str, str, str, str, str]:
    if "unsupported" in line:
        return (name, "", "", "", "", "-", f"not read yet: {line['unsupported']}", "", "")
    usage = line["usage"]
    return (
        name,
        str(usage["input_total"]),
        str(usage["input_cached"] + usage["input_audio_cached"]),
        str(usage["cache_write_5m"] + usage["cache_write_1h"]),
        str(usage["output_total"]),
        line["cost_usd"] or "unpriced",
        line["usage_source"],
        f"{line['priced_as'] or '-'} ({line['rate_set'] or '-'})",
        ", ".join(line["flags"]),
    )

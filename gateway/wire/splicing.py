"""What is sent on: the client's own bytes with a few places replaced.

The model's name, a deployment's declared parameters (renamed or dropped) and a tier's cap on the answer's length.
Nothing is serialised again: a prompt cache sees the same bytes in the same order.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from gateway.wire.json_scan import Places, scan, value_start

KEPT = frozenset({"model", "messages", "input", "stream", "stream_options"})  # never renamed or dropped

Edit = tuple[int, int, bytes]
"""Where a piece of the body begins and ends, and what stands there instead."""

_write = msgspec.json.encode


class Parameters(Protocol):
    """What is changed in a request for one deployment."""

    @property
    def rename(self) -> Mapping[str, str]: ...

    @property
    def drop(self) -> Collection[str]: ...


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """What is sent to a deployment."""

    body: bytes
    changed: tuple[str, ...]  # for `x-faregate-changed`: "max_tokens->max_completion_tokens", "-temperature"


class Edits:
    """The changes to one body, collected and then made at once."""

    __slots__ = ("_added", "_body", "_edits", "_places", "changed")

    def __init__(self, body: bytes, places: Places) -> None:
        self._body = body
        self._places = places
        self._edits: list[Edit] = []
        self._added: list[bytes] = []
        self.changed: list[str] = []

    def put(self, start: int, end: int, instead: bytes) -> None:
        """Replace these bytes."""
        self._edits.append((start, end, instead))

    def add(self, member: bytes) -> None:
        """One more member, behind the last one."""
        self._added.append(member)

    def name_model(self, model: str) -> None:
        """Another model's name."""
        place = self._places.value("model")
        assert place is not None  # it was read
        self.put(*place, _write(model))

    def ask_for_usage(self) -> None:
        """A stream is to report its usage (`stream_options.include_usage`)."""
        place = self._places.value("stream_options")
        if place is None:
            self.add(b'"stream_options": {"include_usage": true}')
            return
        start, value_end = place
        options = self._body[start:value_end]
        if not options.startswith(b"{"):  # null: as if it were not there
            self.put(start, value_end, b'{"include_usage": true}')
            return
        inner = scan(options).members
        asked = inner.get("include_usage")
        if asked is not None:
            self.put(start + value_start(options, asked), start + asked[2], b"true")
        elif inner:
            end = start + next(reversed(inner.values()))[2]
            self.put(end, end, b', "include_usage": true')
        else:
            self.put(start, value_end, b'{"include_usage": true}')

    def apply(self, parameters: Parameters) -> None:
        """Rename and drop what a deployment does not understand."""
        places = self._places
        present = places.names
        gone = {name for name in parameters.drop if name in present and name not in KEPT}
        taken: set[str] = set()
        for name, instead in parameters.rename.items():
            member = places.get(name)
            if member is None or name in gone or name in KEPT:
                continue
            if (
                instead in present or instead in taken
            ):  # both were sent: what the deployment understands stays
                gone.add(name)
            else:
                taken.add(instead)
                self.put(member[0], member[1], _write(instead))
                self.changed.append(f"{name}->{instead}")
        if gone:
            self._drop(gone)

    def _drop(self, gone: Collection[str]) -> None:
        members = self._places.all()
        names = list(members)
        kept_before = False
        for number, name in enumerate(names):
            if name not in gone:
                kept_before = True
                continue
            if kept_before:
                self.put(members[names[number - 1]][2], members[name][2], b"")
            else:  # `model` is never dropped, so another member follows
                self.put(members[name][0], members[names[number + 1]][0], b"")
            self.changed.append(f"-{name}")

    def cap(self, cap: int, limits: Sequence[str], parameters: Parameters | None) -> None:
        """Lower what the client set in one of `limits`; where it set none, the first of them is added."""
        rename: Mapping[str, str] = {} if parameters is None else parameters.rename
        limited = False
        for name in limits:
            place = self._places.value(name)
            if place is None or f"-{name}" in self.changed:
                continue
            limited = True
            value = self._body[slice(*place)]
            if value == b"null" or int(value) > cap:
                self.put(*place, b"%d" % cap)
                self.changed.append(f"{rename.get(name, name)}={cap}")
        if limited:
            return
        name = rename.get(limits[0], limits[0])
        if parameters is not None and name in parameters.drop:
            return
        self.add(_write(name) + b": %d" % cap)
        self.changed.append(f"{name}={cap}")

    def prepared(self) -> Prepared:
        """The body with all changes made."""
        if self._added:
            end = self._places.end()
            self.put(end, end, b"".join(b", " + member for member in self._added))
        return Prepared(_spliced(self._body, self._edits), tuple(self.changed))


def _spliced(body: bytes, edits: list[Edit]) -> bytes:
    if not edits:
        return body
    if len(edits) > 1:
        edits.sort(key=lambda edit: edit[:2])
    pieces: list[bytes | memoryview] = []
    view = memoryview(body)  # a long body is copied once
    at = 0
    for start, end, instead in edits:
        pieces.append(view[at:start])
        pieces.append(instead)
        at = end
    pieces.append(view[at:])
    return b"".join(pieces)

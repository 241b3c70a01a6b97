"""Our own strict look at a JSON object's structure: depth, names that stand twice, where the members are.

It completes one parse by msgspec, which is exact about the grammar and keeps the last of two equal names in
silence, does not look at UTF-8 in what it skips, takes numbers of any size and recurses. The rules together:

- the body is UTF-8 without NUL and without lone surrogates, written out or as escapes;
- it is one JSON object, by the letter of the grammar;
- every number is a finite double and has at most 308 digits in a row;
- objects and arrays nest at most 64 deep, and the body itself has at most 1,024 members;
- no name stands twice at the top, nor anywhere inside a member that a decision reads (`DECIDED`), however it
  is spelt. Elsewhere a doubled name is data, as everything there.

How it stays cheap: quotes cut the body into structure and texts in turn, texts are never looked into, and
the few shapes of structure between them (`": "`, `", "`, `"}, {"`) are remembered. A long body is cut window
by window, so that memory stays small beside it. Work is linear in the body's length, whatever it holds.

Most bodies have the form of an earlier one: the same structure (but for digits) and the same names at the places
where `scan` reads names. As it looks at nothing else, it would find nothing else: `look` asks for that first.
"""

import re
from codecs import utf_8_decode
from collections.abc import Callable, Iterator, Mapping
from math import isinf
from operator import itemgetter
from typing import NamedTuple

from msgspec import Struct
from msgspec.json import decode

from gateway.errors import duplicate_key, invalid_json, invalid_utf8, invalid_value, json_too_deep

MAX_DEPTH = 64
MAX_MEMBERS = 1_024  # of the body itself; the API has a few dozen
MAX_DIGITS = 308  # of one number, in a row: whatever has no more and no exponent is a finite double
DECIDED = frozenset(
    {
        b"messages",
        b"input",
        b"system",
        b"tools",
        b"functions",
        b"response_format",
        b"output_format",
        b"output_config",
        b"text",
        b"reasoning",
        b"thinking",
        b"metadata",
        b"stream_options",
    }
)
"""The members at the top that decisions look into."""

_WINDOW = 16_384
_DECODED_AT_ONCE = 32_768  # the text of a longer body is not made in one piece
_LONG_BODY = 65_536  # a longer one is always cut in windows
_SHAPES_KEPT = 4_096
_SHAPE_LENGTH = 48  # a longer one is not remembered
_DIGITS_KEPT = 3  # nor one with more digits
_FORMS_KEPT = 512
_FORM_BYTES = 4_096  # structure and names of a form; a larger one is not remembered
_WHITE = b" \t\r\n"
_DIGITS = b"0123456789"
_NOT_STRUCTURE = _WHITE + _DIGITS + b"+-.eEtrufalsn"
_DIGITS_AS_0 = bytes.maketrans(b"123456789E", b"000000000e")
_TO_WHITE = bytes.maketrans(b"{}[],:", b"      ")
_LONG = b"0" * (MAX_DIGITS + 1)

_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST, _COMMA, _BACKSLASH = b"{}[],\\"
_LIST_IN_MESSAGE = 4  # how deep: body, messages, one message, the list


Member = tuple[int, int, int]
"""Where a member of the object stands: start of its name's opening quote, end behind its closing quote, end
of its value. `body[start:end]` is `"name": value`."""


class Scan(NamedTuple):
    """What was seen."""

    members: dict[str, Member]  # in the order of the body, names without escapes
    lists_in_messages: bool  # some message has a list in it: content in parts, tool calls


class _Form(NamedTuple):
    """What `scan` read of a body that it approved of."""

    names_in: Callable[[list[bytes]], object]  # pieces -> the texts that were read as names
    names: object  # and what they were
    numbers: Mapping[str, int]  # members of the body -> which piece is the name
    lists_in_messages: bool


class Places(Struct, eq=False, gc=False):
    """Where the members of an approved body stand. A place is looked for when it is asked for."""

    body: bytes
    names: Mapping[str, int]  # of the members -> which piece of the body that is; 0 where members are known
    lists_in_messages: bool  # some message has a list in it: content in parts, tool calls
    members: Mapping[str, Member] | None = None  # None: not looked for yet

    def get(self, name: str) -> Member | None:
        """One member's place; None: there is no such member."""
        if self.members is None:
            number = self.names.get(name)
            if number is None:
                return None
            value = _scalar(self.body, name.encode(), number)
            if value is not None:
                name_end = value.start()
                return name_end - len(name.encode()) - 2, name_end, value.end(1)
        return self.all().get(name)

    def value(self, name: str) -> tuple[int, int] | None:
        """Where one member's value begins and ends; None: there is no such member."""
        if self.members is None:
            number = self.names.get(name)
            if number is None:
                return None
            value = _scalar(self.body, name.encode(), number)
            if value is not None:
                return value.span(1)
        member = self.all().get(name)
        return None if member is None else (value_start(self.body, member), member[2])

    def all(self) -> Mapping[str, Member]:
        """Every member's place, in the order of the body."""
        if self.members is None:
            self.members = scan(self.body).members
        return self.members

    def end(self) -> int:
        """Where the last member's value ends."""
        end = self.body.rindex(b"}")
        while self.body[end - 1] in _WHITE:
            end -= 1
        return end


def check_text(body: bytes) -> None:
    """Raises GatewayError `invalid_utf8` where the body is not UTF-8 or a text in it has an escaped NUL.

    A NUL as it is, and lone surrogates as escapes, are the parser's to find, and then told apart from other
    broken bodies by `has_broken_text`.
    """
    if not body.isascii():
        try:
            if len(body) <= _DECODED_AT_ONCE:
                body.decode()
            else:
                _decode_in_windows(body)
        except UnicodeDecodeError as error:
            raise invalid_utf8(f"the body is not UTF-8: byte {error.start} cannot be decoded") from None
    if b"u0000" in body:
        _check_for_escaped_nul(body)


def _check_for_escaped_nul(body: bytes) -> None:
    at = body.find(b"u0000")
    while at >= 0:
        before = at
        while before and body[before - 1] == _BACKSLASH:
            before -= 1
        if (at - before) % 2:
            raise invalid_utf8(f"a text in the body has a NUL (\\u0000) at byte {at - 1}")
        at = body.find(b"u0000", at + 5)


def _decode_in_windows(body: bytes) -> None:
    """Raises UnicodeDecodeError. A text as long as a long body would be slow to get."""
    at = 0
    try:
        while at < len(body):
            end = at + _WINDOW
            at += utf_8_decode(body[at:end], "strict", end >= len(body))[1]
    except UnicodeDecodeError:
        body.decode()  # says which byte of the whole


def has_broken_text(body: bytes) -> bool:
    """True if there is a NUL, or half a surrogate pair as an escape. For bodies that the parser refused."""
    return b"\x00" in body or has_lone_surrogate(body)


def has_lone_surrogate(body: bytes) -> bool:
    """True if some `\\ud800` to `\\udfff` is not one half of a pair."""
    low = body.replace(b"\\\\", b"..").lower()
    at = low.find(b"\\ud")
    while at >= 0:
        half = low[at + 3 : at + 4]
        if half in (b"c", b"d", b"e", b"f"):
            return True
        if half in (b"8", b"9", b"a", b"b"):
            if low[at + 6 : at + 9] != b"\\ud" or low[at + 9 : at + 10] not in (b"c", b"d", b"e", b"f"):
                return True
            at += 6
        at = low.find(b"\\ud", at + 6)
    return False


class _Shapes(dict[bytes, "bytes | None"]):
    """Structure between two texts -> what it does.

    None: nothing, a value follows. Else its brackets in order (none: it is a comma); a comma behind the last
    of them if the structure ends in `{` or `,`: where the container is an object, a name follows.
    """

    def __missing__(self, structure: bytes) -> bytes | None:
        effect: bytes | None
        bare = structure.translate(None, _DIGITS)
        digits = len(structure) - len(bare)
        if digits:
            # Long numbers are without end: remembered is what it is without its digits.
            if digits > 200 or b"e" in bare or b"E" in bare:
                _check_numbers(structure)
            effect = self[bare]
            if digits <= _DIGITS_KEPT:
                self._remember(structure, effect)
            return effect
        shape = structure.translate(None, _NOT_STRUCTURE)
        brackets = shape.translate(None, b",:")
        name_follows = shape[-1:] in (b",", b"{")
        if brackets:
            effect = brackets + b"," if name_follows else brackets
        else:
            effect = b"" if name_follows else None
        self._remember(structure, effect)
        return effect

    def _remember(self, structure: bytes, effect: bytes | None) -> None:
        if len(structure) <= _SHAPE_LENGTH:
            if len(self) >= _SHAPES_KEPT:
                self.clear()
            self[structure] = effect


def _check_numbers(structure: bytes) -> None:
    """For structure with digits that may make a number too large."""
    zeros = structure.translate(_DIGITS_AS_0, b"+")
    if _LONG in zeros:
        raise invalid_json(f"a number in the body has more than {MAX_DIGITS} digits")
    if b"e000" not in zeros and b"0" * 200 not in zeros:
        return  # at most 200 digits and an exponent of two
    at = 0
    while at < len(structure):
        cut = structure.find(b",", at + 4_096)
        cut = len(structure) if cut < 0 else cut
        for word in structure[at:cut].translate(_TO_WHITE).split():
            if word not in (b"true", b"false", b"null") and isinf(float(word)):
                raise invalid_json("a number in the body is larger than a double can be")
        at = cut


_shapes = _Shapes()
_forms: dict[bytes, _Form] = {}  # by the structure
_last = itemgetter(-1)
_STRUCTURES, _TEXTS = slice(0, None, 2), slice(1, None, 2)  # of the pieces between quotes


def look(body: bytes) -> Places:
    """As `scan`, and quick where the body has the form of an earlier one."""
    if len(body) > _LONG_BODY:
        return _found(body, scan(body))
    pieces = body.split(b'"')
    if _BACKSLASH in map(_last, filter(None, pieces[_TEXTS])):  # not every quote begins or ends a text
        return _found(body, scan(body))
    structure = b'"'.join(pieces[_STRUCTURES]).translate(_DIGITS_AS_0)
    form = _forms.get(structure)
    if form is not None and form.names_in(pieces) == form.names:
        return Places(body, form.numbers, form.lists_in_messages)
    read: list[int] = []
    top: list[int] = []
    seen = _scan(body, _LONG_BODY, read, top)
    # Whether a number with an exponent is too large is for its digits to say.
    if b"0e" not in structure and read:
        names_in = itemgetter(*read)
        size = len(structure) + sum([len(pieces[number]) for number in read])
        if size <= _FORM_BYTES:
            if len(_forms) >= _FORMS_KEPT:
                _forms.clear()
            numbers = dict(zip(seen.members, top, strict=True))
            _forms[structure] = _Form(names_in, names_in(pieces), numbers, seen.lists_in_messages)
    return _found(body, seen)


def _found(body: bytes, seen: Scan) -> Places:
    return Places(body, dict.fromkeys(seen.members, 0), seen.lists_in_messages, seen.members)


# The value of a member if it is no object and no list, in a body without escaped quotes.
_SCALAR_VALUE = re.compile(rb"""[ \t\r\n]*+:[ \t\r\n]*+("[^"]*+"|[-+.\w]++)""")


def _scalar(body: bytes, name: bytes, number: int) -> re.Match[bytes] | None:
    """What follows the name that is that piece of the body; None: it must be looked for with more care."""
    written = b'"' + name + b'"'
    start = body.find(written)
    if start < 0 or body.count(b'"', 0, start) != number - 1:  # a text of the same letters came before
        return None
    return _SCALAR_VALUE.match(body, start + len(written))


def scan(body: bytes, *, window: int = _WINDOW) -> Scan:
    """Depth, doubled names and places of one JSON object whose grammar a parser has approved.

    `window`: how many bytes are cut up at a time. Raises GatewayError: `json_too_deep`, `duplicate_key`,
    `invalid_json` for a number that is too large, `invalid_value` for too many members at the top.
    """
    return _scan(body, window, [], [])


def _scan(body: bytes, window: int, read: list[int], read_at_top: list[int]) -> Scan:
    """As `scan`. `read` is told which pieces of a window were read as names, `read_at_top` of the body's own."""
    shapes = _shapes
    opens, opens_list, comma = _OPEN, _OPEN_LIST, _COMMA
    top: set[bytes] = set()  # the names of the body itself
    stack: list[set[bytes] | None] = []
    names: set[bytes] | None = None  # of the open object; None: a list, or an object whose names are data
    member = b""  # the member of the body that is open
    compared = False  # whether names inside it are
    lists_in_messages = False
    found: list[bytes] = []  # members of the body: name, where the name begins and ends, where the value ends
    starts: list[int] = []
    name_ends: list[int] = []
    ends: list[int] = []
    bracket = 0
    end = 0

    for start, pieces, masked in _windows(body, window):
        counted, offset = 0, start  # the offset of pieces[counted]
        for number, structure in enumerate(pieces[::2]):
            effect = shapes[structure]
            if effect is None:
                continue
            if effect:
                for bracket in effect:
                    if bracket == opens:
                        stack.append(names)
                        names = set() if compared else None if len(stack) > 1 else top
                        if len(stack) > MAX_DEPTH:
                            raise json_too_deep(MAX_DEPTH)
                    elif bracket == opens_list:
                        stack.append(names)
                        names = None
                        if len(stack) == _LIST_IN_MESSAGE and member == b"messages":
                            lists_in_messages = True
                        elif len(stack) > MAX_DEPTH:
                            raise json_too_deep(MAX_DEPTH)
                    elif bracket != comma:
                        names = stack.pop()
                if bracket != comma:
                    continue
            if names is None:
                continue
            at = 2 * number
            raw = text = pieces[at + 1]
            read.append(at + 1)
            if _BACKSLASH in text:
                text = _spelt_out(text, masked=masked)
            if text in names:
                raise duplicate_key(text.decode(), where=None if names is top else member.decode())
            names.add(text)
            if names is top:
                member = text
                compared = text in DECIDED
                offset += sum(map(len, pieces[counted:at])) + at - counted
                counted = at
                name_start = offset + len(structure)
                found.append(text)
                read_at_top.append(at + 1)
                if len(found) > MAX_MEMBERS:
                    raise invalid_value(None, f"the body has more than {MAX_MEMBERS} members at its top")
                starts.append(name_start)
                name_ends.append(name_start + len(raw) + 2)
                ends.append(offset + len(structure.rstrip()[:-1].rstrip()))
        last = pieces[-1]
        end = len(body) - len(last) + len(last.rstrip()[:-1].rstrip())
    ends.append(
        end
    )  # the last window ends in structure; ends[0] is the end of what stands before all members
    names_read = map(bytes.decode, found)
    return Scan(
        dict(zip(names_read, zip(starts, name_ends, ends[1:], strict=True), strict=True)), lists_in_messages
    )


def value_start(body: bytes, member: Member) -> int:
    """Where a member's value begins."""
    at = body.index(b":", member[1]) + 1
    while True:
        white = body[at : at + 64]
        rest = white.lstrip()
        at += len(white) - len(rest)
        if rest or not white:
            return at


def _spelt_out(name: bytes, *, masked: bool) -> bytes:
    """A name as it stands between its quotes -> without its escapes."""
    if masked:
        name = name.replace(b"\\q", b'\\"').replace(b"\\s", b"\\\\")
    return decode(b'"' + name + b'"', type=str).encode()


def _mask(chunk: bytes) -> bytes:
    """The same length, no quote and no backslash behind a backslash: `\\s` and `\\q` are no JSON escapes."""
    return chunk.replace(b"\\\\", b"\\s").replace(b'\\"', b"\\q")


def _windows(body: bytes, window: int) -> Iterator[tuple[int, list[bytes], bool]]:
    """Pieces of the body with the offset of the first: structure, text, structure, text, ...

    Every window but the last ends in a whole text, the last in structure. True: its pieces are masked.
    """
    start = 0
    while True:
        end = body.find(b'"', start + window) if len(body) - start > window else -1
        chunk = body[start:] if end < 0 else body[start:end]
        pieces = chunk.split(b'"')
        masked = b"\\" in chunk and _BACKSLASH in map(_last, filter(None, pieces[1::2]))
        if masked:
            pieces = _mask(chunk).split(b'"')
        if end < 0:
            yield start, pieces, masked
            return
        close = end
        if len(pieces) % 2:  # that quote opens a text
            close = _closing_quote(body, end + 1, window)
            text = body[end + 1 : close]
            pieces.append(_mask(text) if masked else text)
        elif (len(pieces[-1]) - len(pieces[-1].rstrip(b"\\"))) % 2:  # that quote is escaped
            close = _closing_quote(body, end + 1, window)
            text = chunk[-1:] + body[end:close]
            pieces[-1] = pieces[-1][:-1] + (_mask(text) if masked else text)
        yield start, pieces, masked
        start = close + 1


def _closing_quote(body: bytes, start: int, window: int) -> int:
    """The quote that ends the text whose inside has `start`, no escape being open there."""
    quote = body.index(b'"', start)
    if body[quote - 1] != _BACKSLASH:
        return quote
    while True:
        end = start + window
        chunk = body[start:end]
        if (len(chunk) - len(chunk.rstrip(b"\\"))) % 2:
            end += 1
            chunk = body[start:end]
        quote = _mask(chunk).find(b'"')
        if quote >= 0:
            return start + quote
        start = end

"""Unpacks answers that came packed, in pieces and within bounds."""

import zlib

MAX_UNPACKED_BYTES = 64 * 1024 * 1024


def unpacked(body: bytes, content_encoding: str) -> bytes:
    """A packed body as far as it can be unpacked, MAX_UNPACKED_BYTES at most; of an unknown packing nothing."""
    encoding = content_encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    unpacker = Unpacker(encoding)
    return unpacker.feed(body)


class Unpacker:
    """Unpacks gzip or deflate in pieces. What cannot be unpacked is left out: a broken packing ends the body."""

    __slots__ = ("_left", "_unpack")

    def __init__(self, content_encoding: str) -> None:
        self._left = MAX_UNPACKED_BYTES
        known = content_encoding.strip().lower() in ("gzip", "x-gzip", "deflate")
        self._unpack = zlib.decompressobj(wbits=47) if known else None

    def feed(self, data: bytes) -> bytes:
        """What these bytes unpack to."""
        out: list[bytes] = []
        while data and self._unpack is not None and self._left > 0:
            try:
                out.append(self._unpack.decompress(data, self._left))
            except zlib.error:
                self._unpack = None
                break
            self._left -= len(out[-1])
            data = b""
            if self._unpack.eof:  # a gzip body may have several members
                data = self._unpack.unused_data
                self._unpack = zlib.decompressobj(wbits=47)
        return b"".join(out)

"""The meter of each wire: how a whole answer is read, and what reads a stream."""

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from gateway.wire.answer import StreamProblem
from gateway.wire.anthropic_answer import MessagesAnswer, read_whole_message
from gateway.wire.converse_answer import ConverseAnswer, read_whole_converse
from gateway.wire.free_answer import read_free
from gateway.wire.gemini_answer import GenerateAnswer, read_whole_generated
from gateway.wire.openai_chat_answer import ChatStream, read_whole
from gateway.wire.unmetered_answer import UnmeteredAnswer, read_unmetered
from pricing.tokens import Counter, quarter_of_bytes
from pricing.usage import End, Reading


class StreamMeter(Protocol):
    """Reads one stream."""

    @property
    def events(self) -> int:
        """How many of this wire's form came so far."""
        ...

    @property
    def content_seen(self) -> bool:
        """Something of the answer itself came."""
        ...

    @property
    def finished(self) -> bool:
        """The answer said that it is at its end."""
        ...

    @property
    def error(self) -> StreamProblem | None:
        """Why it cannot be passed on any further."""
        ...

    @property
    def model(self) -> str | None:
        """The last name the answer gave."""
        ...

    @property
    def answer_id(self) -> str | None:
        """The answer's own id, where it may be asked for later by it."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Count these bytes; what of them may go to the client."""
        ...

    def take_payload(self, payload: bytes) -> None:
        """Count one event whose framing was taken off."""
        ...

    def rest(self) -> bytes:
        """At the end of the body: what is still held and counts."""
        ...

    def reading(self, *, status: int, end: End, input_tokens_estimate: int | None) -> Reading:
        """The counts so far, as of an answer that ended so."""
        ...


class OpenStream(Protocol):
    """Begins to read a stream."""

    def __call__(self, *, dialect: str, drop_usage: bool, counter: Counter = quarter_of_bytes) -> StreamMeter:
        """`drop_usage`: keep back events that are nothing but usage."""
        ...


class ReadWhole(Protocol):
    """Reads a whole answer."""

    def __call__(
        self,
        body: bytes,
        *,
        status: int,
        dialect: str,
        input_tokens_estimate: int | None,
        content_encoding: str | None = None,
        end: End = "complete",
        counter: Counter = quarter_of_bytes,
    ) -> Reading:
        """Never raises: what cannot be read is said in the reading."""
        ...


class Meter(NamedTuple):
    """Both ways of one wire."""

    read_whole: ReadWhole
    stream: OpenStream


METERS: Final[Mapping[str, Meter]] = {
    "openai-chat": Meter(read_whole, ChatStream),
    "anthropic-messages": Meter(read_whole_message, MessagesAnswer),
    "gemini-generate": Meter(read_whole_generated, GenerateAnswer),
    "bedrock-converse": Meter(read_whole_converse, ConverseAnswer),
    "anthropic-count-tokens": Meter(read_free, UnmeteredAnswer),
    "unmetered": Meter(read_unmetered, UnmeteredAnswer),
}
"""Wire -> its meter."""

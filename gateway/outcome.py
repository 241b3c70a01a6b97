"""What an attempt that gave the client nothing means, and in which words the client hears of it.

Nothing here touches the world: an exchange's end, a status, a body or a stream comes in; a `Failed` goes out,
with what may follow (`attempts`), what it may have cost, and the error for the client if it was the last word.
What a provider says reaches the client without keys, accounts and addresses, and the books not at all.
"""

import msgspec

from gateway import attempts, errors
from gateway.attempts import Verdict
from gateway.books import input_guessed, nothing_billed
from gateway.errors import GatewayError
from gateway.live import Target
from gateway.upstream import UpstreamFailure
from gateway.wire import headers as wire_headers
from gateway.wire.meters import Meter, StreamMeter
from gateway.wire.provider_words import ProviderWords, provider_words
from pricing.usage import Reading
from routers.facts import RequestFacts

Headers = list[tuple[bytes, bytes]]

QUOTA_GONE = "insufficient_quota"
_LONGEST_WORD = 128  # of a provider's type, code or param


class ProviderError(GatewayError):
    """An error in a provider's own words; its code is no word of ours, so the books call it `upstream_error`."""


class Draining(Exception):
    """The drain time is over while this answer still runs."""


class Failed(Exception):
    """An attempt gave the client nothing; what that means."""

    def __init__(
        self,
        verdict: Verdict,
        error: GatewayError,
        *,
        failure: str,
        reading: Reading,
        status: int | None,
        detail: str | None = None,
    ) -> None:
        super().__init__(failure)
        self.verdict = verdict
        self.error = error  # what the client gets if this was the last word
        self.failure = failure  # a word for the books and the log
        self.reading = reading
        self.status = status  # the provider's; None: it sent none
        self.detail = detail  # for the log
        self.headers: Headers = []  # of the provider's error that the client may see beside ours


def word_of(error: GatewayError) -> str:
    """The error as the books and the metrics know it: one of the codes of `gateway.errors`."""
    return "upstream_error" if isinstance(error, ProviderError) else error.code


# ── before a whole answer, or before a stream's first content ──


def error_status(target: Target, status: int, words: ProviderWords, wait_seconds: float | None) -> Failed:
    """The provider answered with an error status; `wait_seconds` is how long it asks to wait."""
    code = QUOTA_GONE if QUOTA_GONE in (words.code, words.type) else words.code
    verdict = attempts.verdict_on_status(status, code=code, wait_seconds=wait_seconds)
    return Failed(
        verdict,
        _provider_error(target, status, words, wait_seconds, quota_gone=status == 429 and code == QUOTA_GONE),
        failure=f"status_{status}",
        reading=nothing_billed("http_error"),
        status=status,
    )


def odd_status(target: Target, status: int) -> Failed:
    """The provider answered with a status that is neither 200 nor an error, such as a redirect."""
    return Failed(
        attempts.NONSENSE,
        errors.upstream_invalid_response(f'"{target.name}" answered with status {status}'),
        failure=f"status_{status}",
        reading=nothing_billed("upstream_error"),
        status=status,
    )


def broken(failure: UpstreamFailure, *, status: int, facts: RequestFacts, repeatable: bool) -> Failed:
    """The exchange ended without a whole answer. `status` 0: not even a head came; `repeatable`: its request may
    be sent to the same deployment once more, because the provider can tell that it is the same."""
    kind = failure.kind
    verdict = attempts.verdict_on_failure(kind, sent=failure.sent)
    if kind == "reset" and repeatable and not status and failure.sent:
        verdict = attempts.REPEATED
    # An answer that was refused for its head held nothing; one that was packed may have been a whole one.
    billed = verdict.cost == "estimated" and not (kind == "invalid_response" and not status)
    if kind == "reset" and status:
        error = errors.upstream_invalid_response("the provider's answer was not whole")
    else:
        error = unreachable(failure)
    reading = input_guessed(facts, "upstream_cut") if billed else nothing_billed()
    return Failed(verdict, error, failure=kind, reading=reading, status=status or None, detail=failure.detail)


def unreachable(failure: UpstreamFailure) -> GatewayError:
    """The exchange ended without an answer, and nothing is tried again."""
    if failure.kind in ("first_token_timeout", "idle_timeout", "total_timeout"):
        return errors.upstream_timeout("the provider did not answer within its time limit")
    if failure.kind == "invalid_response":
        return errors.upstream_invalid_response("the provider's answer was not whole")
    if failure.kind == "pool_exhausted":
        return errors.overloaded("all connections to the provider are in use")
    return errors.upstream_unreachable("the provider could not be reached")


def is_no_answer(body: bytes, reading: Reading) -> bool:
    """True if a 200 holds nothing that a client could take for an answer."""
    return "upstream_error" in reading.flags and not (reading.text_bytes and _is_json(body))


def no_answer(body: bytes, target: Target, reading: Reading, facts: RequestFacts) -> Failed:
    """A 200 that holds no answer: the provider's own error, a page, or JSON that stops in the middle."""
    words = provider_words(body)
    if words.message is not None:
        return Failed(
            attempts.NONSENSE,
            error_in_answer(target, words.message),
            failure="upstream_error",
            reading=reading,
            status=200,
        )
    error = errors.upstream_invalid_response(f'"{target.name}" sent no answer of this form')
    if body.lstrip()[:1] == b"{" and not _is_json(body):
        if reading.source == "none":
            reading = input_guessed(facts, "upstream_cut")
        return Failed(attempts.BROKEN, error, failure="invalid_response", reading=reading, status=200)
    return Failed(attempts.NONSENSE, error, failure="invalid_response", reading=reading, status=200)


def no_stream(body: bytes, target: Target, facts: RequestFacts, meter: Meter) -> Failed:
    """A streamed request that was answered by something else than a stream."""
    reading = meter.read_whole(
        body, status=200, dialect=target.dialect, input_tokens_estimate=facts.input_tokens
    )
    if is_no_answer(body, reading):
        return no_answer(body, target, reading, facts)
    error = errors.upstream_invalid_response(f'"{target.name}" did not stream its answer')
    return Failed(attempts.NONSENSE, error, failure="invalid_response", reading=reading, status=200)


def no_content(stream: StreamMeter, target: Target, facts: RequestFacts) -> Failed:
    """A stream that ended before its first content."""
    problem = stream.error
    if problem is not None and problem.kind == "error_event":
        reading = stream.reading(status=200, end="complete", input_tokens_estimate=facts.input_tokens)
        error = error_in_answer(target, problem.message)
        return Failed(attempts.NONSENSE, error, failure="upstream_error", reading=reading, status=200)
    error = errors.upstream_invalid_response(f'"{target.name}" sent no stream of this form')
    if problem is None and stream.events == 0:
        reading = nothing_billed("upstream_error")
        return Failed(attempts.NONSENSE, error, failure="invalid_response", reading=reading, status=200)
    reading = input_guessed(facts, "upstream_cut")
    return Failed(attempts.BROKEN, error, failure="invalid_response", reading=reading, status=200)


# ── after a stream's first content ──


def stream_broke(failure: UpstreamFailure) -> GatewayError:
    """What ends a stream whose connection did not last."""
    if failure.kind in ("idle_timeout", "total_timeout", "first_token_timeout"):
        return errors.upstream_timeout("the provider's stream did not go on within its time limit")
    if failure.kind == "invalid_response":
        return errors.upstream_invalid_response("the provider's stream is not of this form")
    return errors.stream_interrupted("the provider's stream broke")


def stream_problem(stream: StreamMeter, target: Target) -> GatewayError | None:
    """Why a stream whose bytes all came is not whole; None: it is."""
    problem = stream.error
    if problem is None:
        if stream.finished:
            return None
        return errors.stream_interrupted("the provider's stream ended before its answer did")
    if problem.kind == "error_event":
        return error_in_answer(target, problem.message)
    return errors.upstream_invalid_response("the provider's stream is not of this form")


# ── a provider's words ──


def error_in_answer(target: Target, message: str | None) -> GatewayError:
    """An error that a provider reported under the status 200."""
    return errors.upstream_error(_clean(target, message) or "the provider reported an error")


def _provider_error(
    target: Target, status: int, words: ProviderWords, wait_seconds: float | None, *, quota_gone: bool
) -> GatewayError:
    said = _clean(target, words.message) or f"the provider answered with status {status}"
    if status in (401, 403):
        return errors.upstream_error(
            f'"{target.name}" refuses the gateway\'s own key; the operator has to mend it'
        )
    if status == 429 and not quota_gone:
        return errors.upstream_rate_limited(said, retry_after_seconds=wait_seconds)
    code = _short(target, words.code)
    if status >= 500:
        return ProviderError(
            status,
            "upstream_error",
            code or "upstream_error",
            said,
            retry_after_seconds=wait_seconds if status == 503 else None,
            should_retry=False,
        )
    return ProviderError(
        status,
        _short(target, words.type) or (QUOTA_GONE if quota_gone else "invalid_request_error"),
        QUOTA_GONE if quota_gone else code or "upstream_error",
        said,
        param=_short(target, words.param),
        should_retry=False,
    )


def _clean(target: Target, text: str | None) -> str | None:
    """A provider's text without secrets, the target's own key above all."""
    return None if text is None else wire_headers.scrub(text, (target.api_key,) if target.api_key else ())


def _short(target: Target, text: str | None) -> str | None:
    cleaned = _clean(target, text)
    return None if cleaned is None else cleaned[:_LONGEST_WORD]


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True

"""Token counts where there is no answer to count: an estimate from the length of a text.

What a provider reports is always better. This is for reservations before a request, and for answers that broke
off before their usage came.
"""

from typing import Protocol

BYTES_PER_TOKEN = 4


class Counter(Protocol):
    """Tells how many tokens a text of so many bytes of UTF-8 has, about."""

    def __call__(self, text_bytes: int, /) -> int:
        """0 for no text, else at least 1."""
        ...


def quarter_of_bytes(text_bytes: int, /) -> int:
    """One token for every four bytes of UTF-8, rounded up."""
    return -(-text_bytes // BYTES_PER_TOKEN)

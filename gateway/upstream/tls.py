"""Trust: certificates are always verified, against the system's authorities or a file of the operator's."""

import os
import ssl
from functools import lru_cache
from pathlib import Path


def context_for(ca_file: str | None, *, protocols: tuple[str, ...]) -> ssl.SSLContext:
    """A verifying client context. Raises OSError when the file is not there or holds no certificate."""
    if ca_file is None:
        return _system(protocols)
    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols(list(protocols))
    return context


@lru_cache(maxsize=4)
def _system(protocols: tuple[str, ...]) -> ssl.SSLContext:
    # Reading all the system's authorities takes tens of milliseconds: once is enough for all providers.
    context = ssl.create_default_context(cafile=None if _system_has_authorities() else _bundled())
    context.set_alpn_protocols(list(protocols))
    return context


def _system_has_authorities() -> bool:
    paths = ssl.get_default_verify_paths()
    file = os.environ.get(paths.openssl_cafile_env) or paths.openssl_cafile
    folder = Path(os.environ.get(paths.openssl_capath_env) or paths.openssl_capath)
    return Path(file).is_file() or (folder.is_dir() and next(folder.iterdir(), None) is not None)


def _bundled() -> str:
    import certifi  # comes with httpx; for machines without ca-certificates

    return certifi.where()


def problem_of(error: BaseException) -> str:
    """What was wrong with a handshake, in words without a certificate in them."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate problem: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"handshake failed: {error.reason.lower().replace('_', ' ')}"
    return "the connection broke during the handshake"

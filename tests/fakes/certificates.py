"""Certificates for tests, made when they are needed: an authority, and servers it vouches for or not."""

import datetime
import ipaddress
import ssl
import tempfile
from functools import cache
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CertificateKind = Literal["good", "expired", "self_signed", "wrong_host"]


def server_context(kind: CertificateKind) -> tuple[ssl.SSLContext, str]:
    """What a server on 127.0.0.1 needs to speak TLS, and the path of the authority's certificate."""
    certificate, ca_file = _files(kind)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context, str(ca_file)


@cache
def _files(kind: CertificateKind) -> tuple[Path, Path]:
    folder = Path(tempfile.mkdtemp(prefix="fake-certificates-"))
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _signed(_name("fake authority"), ca_key, _name("fake authority"), ca_key, authority=True)
    key = ec.generate_private_key(ec.SECP256R1())
    host = "other.invalid" if kind == "wrong_host" else "127.0.0.1"
    issuer, signer = (_name(host), key) if kind == "self_signed" else (_name("fake authority"), ca_key)
    own = _signed(_name(host), key, issuer, signer, host=host, expired=kind == "expired")
    certificate, ca_file = folder / "server.pem", folder / "ca.pem"
    certificate.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + own.public_bytes(serialization.Encoding.PEM)
    )
    ca_file.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    return certificate, ca_file


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _signed(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    *,
    host: str | None = None,
    authority: bool = False,
    expired: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 30 * day)
        .not_valid_after(now - day if expired else now + 30 * day)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if authority:
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
    if host is not None:
        try:
            alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            alternative = x509.DNSName(host)
        builder = builder.add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
    return builder.sign(signer, hashes.SHA256())

"""Certificates and requests that differ from genuine ones in their signature alone.

The signature is a good one of another key over the same content, so that only who checks it by the
right key notices.
"""

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding


def certificate(genuine: str) -> str:
    """In PEM, as what is given."""
    found = x509.load_pem_x509_certificate(genuine.encode())
    content = found.tbs_certificate_bytes
    der = _forged(found.public_bytes(Encoding.DER), content, found.signature)
    forged = x509.load_der_x509_certificate(der)
    assert forged.tbs_certificate_bytes == content
    return forged.public_bytes(Encoding.PEM).decode()


def request(genuine: str) -> str:
    """In PEM, as what is given."""
    found = x509.load_pem_x509_csr(genuine.encode())
    content = found.tbs_certrequest_bytes
    der = _forged(found.public_bytes(Encoding.DER), content, found.signature)
    forged = x509.load_der_x509_csr(der)
    assert forged.tbs_certrequest_bytes == content
    return forged.public_bytes(Encoding.PEM).decode()


def _forged(whole: bytes, content: bytes, signature: bytes) -> bytes:
    """The lengths before a signature, which stands at the end, say how long it is."""
    assert whole.endswith(signature)
    key = ec.generate_private_key(ec.SECP256R1())
    while True:
        other = key.sign(content, ec.ECDSA(hashes.SHA256()))
        if len(other) == len(signature):
            return whole.removesuffix(signature) + other

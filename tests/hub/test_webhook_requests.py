"""Requests to webhooks: connections, TLS, and the event loop of a server."""

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from segue.hub.webhooks import post
from segue.hub.webhooks.post import PostClient, PostFailed
from segue.server.serve import run
from tests.webhook_receiver import Receiver, open_receiver


def test_requests_are_sent_on_the_event_loop_of_a_server() -> None:
    async def send() -> None:
        async with open_receiver() as receiver:
            client = PostClient(private=True)
            for _ in range(3):
                assert await client.post(receiver.url, {"a": "b"}, b"{}") == 204
            assert receiver.connections == 1
            await client.close()

    run(send())  # with uvloop, whose connections are not those of asyncio


async def test_closed_connection_is_replaced() -> None:
    async with open_receiver() as receiver:
        client = PostClient(private=True)
        assert await client.post(receiver.url, {}, b"{}") == 204
        for server_side in receiver.writers:
            server_side.close()
        assert await client.post(receiver.url, {}, b"{}") == 204
        assert receiver.connections == 2
        await client.close()


async def test_certificates_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = tmp_path / "certificate.pem"
    certificate.write_bytes(self_signed("127.0.0.1"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    receiver = Receiver()
    async with await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        client = PostClient(private=True)
        with pytest.raises(PostFailed, match="TLS: CERTIFICATE_VERIFY_FAILED"):
            await client.post(f"https://127.0.0.1:{port}/", {}, b"{}")
        trusting = ssl.create_default_context(cafile=str(certificate))
        monkeypatch.setattr(post, "_tls_context", lambda: trusting)
        assert await client.post(f"https://127.0.0.1:{port}/", {}, b"{}") == 204
        with pytest.raises(PostFailed, match="TLS: "):  # another name than the certificate's
            await client.post(f"https://localhost:{port}/", {}, b"{}")
        await client.close()
    assert len(receiver.requests) == 1


def self_signed(address: str) -> bytes:
    """Return a key and a certificate for an address."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    return key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(encoding)

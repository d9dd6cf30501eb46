"""Being let in: users, tokens, nkeys, TLS; and what is told when one is not, or not to everything."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import nkeys
import pytest

from adsum.events import subjects
from adsum.events.broker import Broker, BrokerSettings
from adsum.events.errors import BrokerRefused, BrokerUnavailable
from adsum.events.streams import EVENTS, ensure_streams, read_epoch
from tests.servers import Server
from tests.unit.test_fold import KEY
from tests.waiting import until

Starter = Callable[..., Awaitable[Server]]


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Starter]:
    """Start a nats-server with this configuration."""
    servers: list[Server] = []

    async def start(config: str) -> Server:
        servers.append(Server(tmp_path / f"server-{len(servers)}", config))
        return await servers[-1].start()

    yield start
    for server in servers:
        await server.stop()


async def let_in(settings: BrokerSettings, seconds: float = 10.0) -> None:
    broker = Broker.open(settings, "test")
    try:
        await broker.ready(seconds)
        await broker.flush()
    finally:
        await broker.close()


async def told(settings: BrokerSettings) -> str:
    """What is said when one is not let in."""
    with pytest.raises(BrokerUnavailable) as caught:
        await let_in(settings, 2.0)
    return str(caught.value)


async def test_by_user_and_password(started: Starter) -> None:
    server = await started('authorization { user: ann, password: "se:cr@t" }')
    await let_in(BrokerSettings(url=server.url, user="ann", password="se:cr@t"))
    wrong = await told(BrokerSettings(url=server.url, user="ann", password="wrong"))
    assert "authorization violation" in wrong.lower()
    assert "wrong" not in wrong
    assert "authorization violation" in (await told(BrokerSettings(url=server.url))).lower()


async def test_by_user_and_password_in_the_url(started: Starter) -> None:
    server = await started("authorization { user: ann, password: secret }")
    await let_in(BrokerSettings(url=server.url.replace("//", "//ann:secret@")))
    wrong = await told(BrokerSettings(url=server.url.replace("//", "//ann:hidden@")))
    assert "authorization violation" in wrong.lower()
    assert "hidden" not in wrong


async def test_by_token(started: Starter) -> None:
    server = await started("authorization { token: s3cr3t }")
    await let_in(BrokerSettings(url=server.url, token="s3cr3t"))
    assert "authorization violation" in (await told(BrokerSettings(url=server.url, token="other"))).lower()


async def test_by_nkey(started: Starter, tmp_path: Path) -> None:
    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    (tmp_path / "seed").write_bytes(seed)
    server = await started(f"authorization {{ users: [ {{ nkey: {public} }} ] }}")
    await let_in(BrokerSettings(url=server.url, nkey=str(tmp_path / "seed")))


@pytest.mark.parametrize("field", ["nkey", "credentials"])
async def test_a_seed_that_is_none_is_told_at_once(started: Starter, tmp_path: Path, field: str) -> None:
    server = await started("")
    (tmp_path / "seed").write_text("junk\n")
    settings = BrokerSettings(url=server.url, **{field: str(tmp_path / "seed")})
    if field == "nkey":
        with pytest.raises(BrokerRefused, match="cannot connect to"):
            await let_in(settings)
    else:
        await let_in(settings)  # the server asks for none, so it is never read


# ---- TLS


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Authority:
    """A certificate authority in a folder, and one certificate of it for the server and one for a client."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.certificate, self.key = folder / "ca.pem", folder / "ca.key"
        request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=adsum test"]
        openssl(*request, "-keyout", self.key, "-out", self.certificate)
        self.folder = folder
        self.server, self.client = self._issue("server", "IP:127.0.0.1"), self._issue("client", "DNS:client")

    def _issue(self, name: str, alternative: str) -> tuple[Path, Path]:
        key, request, certificate = (self.folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\n")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        signed_by = ["-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", "2"]
        openssl("x509", "-req", "-in", request, *signed_by, "-extfile", extensions, "-out", certificate)
        return certificate, key


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority made with openssl."""
    return Authority(tmp_path_factory.mktemp("tls") / "one")


def tls(authority: Authority, more: str = "") -> str:
    certificate, key = authority.server
    return f'tls {{ cert_file: "{certificate}", key_file: "{key}", ca_file: "{authority.certificate}", {more} }}'


async def test_by_tls_of_ones_own_authority(started: Starter, authority: Authority, tmp_path: Path) -> None:
    server = await started(tls(authority))
    secure = server.url.replace("nats://", "tls://")
    await let_in(BrokerSettings(url=secure, tls_ca=str(authority.certificate)))
    await let_in(BrokerSettings(url=server.url, tls_ca=str(authority.certificate)))
    assert "certificate verify failed" in (await told(BrokerSettings(url=secure))).lower()
    other = Authority(tmp_path / "other")
    assert (
        "certificate verify failed" in (await told(BrokerSettings(url=secure, tls_ca=str(other.certificate)))).lower()
    )


async def test_by_a_certificate_of_the_client(started: Starter, authority: Authority) -> None:
    server = await started(tls(authority, "verify: true"))
    certificate, key = authority.client
    settings = BrokerSettings(url=server.url, tls_ca=str(authority.certificate))
    await let_in(
        BrokerSettings(url=server.url, tls_ca=str(authority.certificate), tls_cert=str(certificate), tls_key=str(key))
    )
    await told(settings)


async def test_a_name_of_the_server_that_its_certificate_does_not_have(started: Starter, authority: Authority) -> None:
    server = await started(tls(authority))
    settings = BrokerSettings(url=server.url, tls_ca=str(authority.certificate), tls_hostname="elsewhere")
    assert "certificate verify failed" in (await told(settings)).lower()


# ---- not to everything

TWO_USERS = """
authorization { users: [
  { user: root, password: root }
  { user: limited, password: limited, permissions: {
      publish: ["adsum.v1.default.event.orders.>", "$JS.API.STREAM.INFO.ADSUM_EVENTS", "_INBOX.>"]
      subscribe: ["_INBOX.>"] } }
] }
"""


async def test_a_refused_publish_and_a_refused_request_are_no_timeouts(started: Starter) -> None:
    server = await started(TWO_USERS)
    root = Broker.open(BrokerSettings(url=server.url, user="root", password="root"), "root")
    limited = Broker.open(BrokerSettings(url=server.url, user="limited", password="limited"), "limited")
    await root.ready(10)
    await limited.ready(10)
    await ensure_streams(root)
    assert await read_epoch(limited) == await read_epoch(root)
    assert await limited.store(EVENTS, subjects.event(KEY), b"{}", {}) == 1

    foreign = KEY._replace(service="Payments".lower())
    with pytest.raises(BrokerRefused, match=r"publish to adsum.v1.default.event.payments.a1: .*permissions violation"):
        await limited.store(EVENTS, subjects.event(foreign), b"{}", {}, timeout=0.5)
    with pytest.raises(BrokerRefused, match=r"read stream ADSUM_EVENTS: .*permissions violation"):
        await limited.last_message(EVENTS, subjects.event(KEY))
    assert limited.connected
    assert limited.connects == 1
    assert await limited.store(EVENTS, subjects.event(KEY), b"{}", {}) == 2
    await asyncio.gather(root.close(), limited.close())


async def test_it_comes_back_when_its_access_does(started: Starter) -> None:
    """The driver alone closes for good at the first error of the server."""
    server = await started("authorization { user: ann, password: secret }")
    broker = Broker.open(BrokerSettings(url=server.url, user="ann", password="secret"), "test")
    await broker.ready(10)
    await server.reload("authorization { user: bob, password: other }")
    await until(lambda: not broker.connected)
    await until(lambda: "authorization violation" in broker.last_error.lower())
    await server.reload("authorization { user: ann, password: secret }")
    await broker.ready(15)
    await broker.flush()
    assert broker.connects == 2
    await broker.close()


@pytest.mark.parametrize("junk", [b"junk\n", b"", b"\xff" * 60, b"-----BEGIN NATS USER JWT-----\n", b"SU" + b"A" * 56])
@pytest.mark.parametrize("field", ["nkey", "credentials"])
async def test_a_file_that_is_garbage_while_it_reconnects(
    started: Starter, tmp_path: Path, field: str, junk: bytes
) -> None:
    """The driver alone ends its reconnecting without a word: whoever renews the file is never let in again."""
    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    by_nkey = f"authorization {{ users: [ {{ nkey: {public} }} ] }}"
    file = tmp_path / "file"
    file.write_bytes(seed)
    server = await started(by_nkey if field == "nkey" else "")
    broker = Broker.open(BrokerSettings(url=server.url, **{field: str(file)}), "test")
    await broker.ready(10)

    await server.kill()
    await until(lambda: "onnect" in broker.last_error)
    await broker.publish("greeting", b"unsent until it is let in again")
    file.write_bytes(junk)
    server.config = by_nkey
    await server.start()
    await until(lambda: bool(broker.last_error) and not re.search("onnect|EOF", broker.last_error))
    assert not broker.connected
    assert broker._client.pending_data_size > 0

    await server.kill()
    file.write_bytes(seed)
    server.config = by_nkey if field == "nkey" else ""
    await server.start()
    await broker.ready(10)
    await broker.flush()
    assert broker.connects == 2
    await broker.close()


async def test_closing_while_the_file_is_garbage(started: Starter, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("junk\n")
    server = await started("")
    broker = Broker.open(BrokerSettings(url=server.url, credentials=str(tmp_path / "file")), "test")
    await broker.ready(10)
    await server.kill()
    server.config = "authorization { users: [ { nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4 } ] }"
    await server.start()
    await until(lambda: bool(broker.last_error) and not re.search("onnect|EOF", broker.last_error))
    task = broker._client._reconnection_task
    assert task is not None
    assert not task.done()
    await broker.close()
    await until(task.done)

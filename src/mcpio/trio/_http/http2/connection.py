"""One HTTP/2 connection of a server: who reads and who writes, and how it begins and ends."""

from __future__ import annotations

import contextlib
from math import inf
from typing import TYPE_CHECKING

import attrs
import trio

from mcpio._drivers import report
from mcpio.app.http_host import HttpHost
from mcpio.trio._http.config import LINGER, FindPrincipal, HttpTimeouts, principal_of
from mcpio.trio._http.http2.frames import PREFACE
from mcpio.trio._http.http2.streams import Http2Streams
from mcpio.trio._net.listening import BROKEN, SocketPeer
from mcpio.trio._stdio.fd_streams import RECEIVE_SIZE
from mcpio.trio._timekeeper import Signal, Timekeeper

if TYPE_CHECKING:
    from collections.abc import Hashable

    from mcpio.http.model import RequestHead

__all__ = ["Http2Connection"]


class Http2Connection:
    """Serves the requests of one connection, all at once.

    One task reads, another writes. Deadlines are for the timekeeper, because both of them may wait for the client.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        host: HttpHost,
        *,
        head_bytes: int,
        peer: SocketPeer,
        timeouts: HttpTimeouts,
        timekeeper: Timekeeper,
        find_principal: FindPrincipal | None = None,
    ) -> None:
        """Without ``find_principal``, the identity in the client's certificate is the principal."""
        self.peer = peer
        self._stream = stream
        self._timeouts = timeouts
        self._timekeeper = timekeeper
        self._find_principal = find_principal
        self._streams = Http2Streams(
            host,
            self,
            head_bytes=head_bytes,
            timeouts=timeouts,
            principal=peer.identity,
            on_request=None if find_principal is None else self._ask_whose,
        )
        self._scope = trio.CancelScope()
        self._work, self._room = Signal(), Signal()
        self._has_left = trio.Event()

    # From the site

    @staticmethod
    async def recognise(stream: trio.abc.Stream, timeout: float | None) -> tuple[bool, bytes]:
        """Return whether a client speaks HTTP/2, and what was read to find out; nothing from one that is gone.

        TLS has settled it before. Without TLS, a client may begin with it (RFC 9113 section 3.3). Raises
        ``trio.TooSlowError`` when it has said next to nothing in so many seconds.
        """
        if isinstance(stream, trio.SSLStream):
            return stream.selected_alpn_protocol() == "h2", b""
        data = b""
        with trio.fail_after(inf if timeout is None else timeout), contextlib.suppress(*BROKEN):
            while len(data) < len(PREFACE) and PREFACE.startswith(data):
                more = bytes(await stream.receive_some(RECEIVE_SIZE))
                if not more:
                    break
                data += more
        return data.startswith(PREFACE), data

    @property
    def is_idle(self) -> bool:
        """Whether it has served a request, and no other has begun."""
        return self._streams.requests > 0 and self._streams.is_idle

    def wake(self, exchange: Hashable) -> None:
        """Take note that a response has something to send."""
        self._streams.wake(exchange)
        self._work.set()

    def close(self) -> None:
        """Serve what is being served, and nothing after it."""
        self._streams.close()
        self._go_on()

    def abort(self) -> None:
        """End the connection."""
        self._scope.cancel()

    def handle_timeout(self) -> None:
        """Act on deadlines that have come."""
        try:
            self._streams.handle_timeout()
        except Exception as error:
            report("a deadline of a connection could not be acted on", error)
            self.abort()
        self._go_on()

    async def run(self, data: bytes = b"") -> None:
        """Serve until the connection ends; nothing that the client does raises here. ``data`` was read before."""
        try:
            async with trio.open_nursery() as self._nursery:
                with self._scope:
                    if data:
                        self._streams.receive(data)
                    self._nursery.start_soon(self._read)
                    await self._write()
                    await self._linger()
                self._nursery.cancel_scope.cancel()
        finally:
            self._timekeeper.arm(self, None)
            self._streams.lose()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + LINGER), contextlib.suppress(*BROKEN):
                await self._stream.aclose()

    # The tasks

    async def _read(self) -> None:
        """Read to the end, also when nothing more is heeded: so that the client can read what was said last."""
        try:
            while data := bytes(await self._stream.receive_some(RECEIVE_SIZE)):
                self._streams.receive(data)
                self._go_on()
                while self._streams.is_congested:
                    await self._room.wait()
        except BROKEN:
            pass
        self._streams.receive(b"")
        self._has_left.set()
        self._go_on()

    async def _write(self) -> None:
        """Write whatever there is, until there will be no more. A client that takes too long to read it is cut off."""
        with contextlib.suppress(*BROKEN):
            while True:
                data = self._streams.data_to_send()
                self._arm()
                self._room.set()
                if data:
                    with trio.move_on_after(self._timeouts.to_read(len(data))) as scope:
                        await self._stream.send_all(data)
                    if scope.cancelled_caught:
                        return
                elif self._streams.is_over:
                    return
                else:
                    await self._work.wait()

    async def _linger(self) -> None:
        """Let a client that is sent away read why."""
        if self._streams.has_failed:
            with trio.move_on_after(LINGER), contextlib.suppress(*BROKEN):
                if isinstance(self._stream, trio.SocketStream):
                    await self._stream.send_eof()
                await self._has_left.wait()

    def _go_on(self) -> None:
        """Have what was done take effect."""
        self._work.set()
        self._arm()

    def _arm(self) -> None:
        self._timekeeper.arm(self, self._streams.deadline)

    # Principals

    def _ask_whose(self, head: RequestHead) -> None:
        self._nursery.start_soon(self._find_out, head)

    async def _find_out(self, head: RequestHead) -> None:
        if self._find_principal is not None:
            principal = await principal_of(self._find_principal, head, self.peer)
            self._streams.admit(attrs.evolve(head, principal=principal))
            self._go_on()

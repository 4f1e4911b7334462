"""One HTTP/2 connection of a server: its tasks, how it begins and how it ends."""

from __future__ import annotations

import contextlib
from math import inf
from typing import TYPE_CHECKING

import attrs
import trio
from h2.errors import ErrorCodes

from mcpio._drivers import report
from mcpio.app.http_host import HttpHost
from mcpio.http.server.lifecycle import LINGER
from mcpio.trio._event_loop import BROKEN
from mcpio.trio._fd_streams import RECEIVE_SIZE
from mcpio.trio._http.config import FindPrincipal, HttpTimeouts, principal_of
from mcpio.trio._http.http2.frames import PREFACE
from mcpio.trio._http.http2.streams import Http2Streams
from mcpio.trio._net.listening import SocketPeer
from mcpio.trio._timekeeper import Signal, Timekeeper

if TYPE_CHECKING:
    from collections.abc import Hashable

    from mcpio.http.model import RequestHead

__all__ = ["Http2Connection"]


class Http2Connection:
    """Serves the requests of one connection concurrently.

    One task reads and another writes. The timekeeper watches the deadlines, since both tasks may wait for the client.
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
        """Without ``find_principal`` the identity in the client's certificate is the principal."""
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
            on_request=None if find_principal is None else self._start_lookup,
        )
        self._scope = trio.CancelScope()
        # The writer waits for work, the reader for room.
        self._work, self._room = Signal(), Signal()
        self._input_ended = trio.Event()

    # From the connection handler

    @staticmethod
    async def recognise(stream: trio.abc.Stream, timeout: float | None) -> tuple[bool, bytes]:
        """Return whether a client speaks HTTP/2, and the bytes read to find out; ``b""`` if it has disconnected.

        TLS has negotiated the version before. Without TLS a client may begin with HTTP/2 (RFC 9113 section 3.3).
        Raises ``trio.TooSlowError`` if the first bytes take longer than ``timeout``.
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
        """Whether it has served a request, and none is open."""
        return self._streams.is_idle

    def wake(self, exchange: Hashable) -> None:
        """Wake the writer for a response that has something to send."""
        self._streams.wake(exchange)
        self._work.set()

    def retire(self) -> None:
        """Announce with GOAWAY that no more streams are accepted, and which requests are still served."""
        self.close()

    def close(self) -> None:
        """Serve the requests that are open, and no others."""
        self._streams.close()
        self._apply()

    def abort(self) -> None:
        """End the connection."""
        self._scope.cancel()

    def handle_timeout(self) -> None:
        """Handle the expired deadlines."""
        try:
            self._streams.handle_timeout()
        except Exception as error:
            report("a deadline of a connection could not be acted on", error)
            self.abort()
        self._apply()

    async def run(self, data: bytes = b"") -> None:
        """Serve until the connection ends; never raises for the client's input. ``data`` was read earlier."""
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
        """Read to the end of input, even when it is ignored: a client whose bytes are read can read our last ones."""
        try:
            while data := bytes(await self._stream.receive_some(RECEIVE_SIZE)):
                self._streams.receive(data)
                self._apply()
                while self._streams.is_congested:
                    await self._room.wait()
        except BROKEN:
            pass
        self._streams.receive(b"")
        self._input_ended.set()
        self._apply()

    async def _write(self) -> None:
        """Write until no more output can follow. A client that reads too slowly is disconnected."""
        with contextlib.suppress(*BROKEN):
            while True:
                data = self._streams.data_to_send()
                self._arm()
                self._room.set()  # the output was taken, whether or not the client has read it
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
        """Wait for a client at fault to read the reason before the connection closes."""
        if self._streams.end not in (None, ErrorCodes.NO_ERROR):
            with trio.move_on_after(LINGER), contextlib.suppress(*BROKEN):
                if isinstance(self._stream, trio.SocketStream):
                    await self._stream.send_eof()
                await self._input_ended.wait()

    def _apply(self) -> None:
        """Wake the writer and re-arm the deadline."""
        self._work.set()
        self._arm()

    def _arm(self) -> None:
        self._timekeeper.arm(self, self._streams.deadline)

    # Principals

    def _start_lookup(self, head: RequestHead) -> None:
        self._nursery.start_soon(self._look_up, head)

    async def _look_up(self, head: RequestHead) -> None:
        if self._find_principal is not None:
            principal = await principal_of(self._find_principal, head, self.peer)
            self._streams.admit(attrs.evolve(head, principal=principal))
            self._apply()

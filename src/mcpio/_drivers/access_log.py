"""The access log of ``serve_http``: one line for each request, under the name ``mcpio.access``."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Any

import attrs

from mcpio.app.http_host import HttpHost
from mcpio.http.model import Answer, Body, End, RequestHead, RequestItem, Reset, ResponseHead, ResponseItem

__all__ = ["LoggedHost"]

_LOG = logging.getLogger("mcpio.access")


@attrs.define
class _Entry:
    """A request that is not answered yet."""

    head: RequestHead
    began: float
    status: int | None = None
    size: int = 0


class LoggedHost(HttpHost):
    """A host that logs each request when its response has ended, or its client has disconnected."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._entries: dict[Hashable, _Entry] = {}

    def receive(self, *items: RequestItem) -> None:
        """Process items of a request."""
        for item in items:
            if isinstance(item, RequestHead):
                self._entries[item.exchange] = _Entry(item, self.now())
        super().receive(*items)
        for item in items:
            if isinstance(item, Reset):
                self._log(item.exchange)

    def serve(self, head: RequestHead, body: bytes, now: float | None = None) -> Answer | None:
        """Process a whole request."""
        entry = self._entries[head.exchange] = _Entry(head, self.now())
        answer = super().serve(head, body, now)
        if answer is not None:
            entry.status, entry.size = answer.status, len(answer.body)
            self._log(head.exchange)
        return answer

    def responses_to_send(self, exchange: Hashable, max_bytes: int = 65536) -> list[ResponseItem]:
        """Return what to send of a response."""
        items = super().responses_to_send(exchange, max_bytes)
        entry = self._entries.get(exchange)
        if entry is not None:
            for item in items:
                if isinstance(item, ResponseHead):
                    entry.status = item.status
                elif isinstance(item, Body):
                    entry.size += len(item.data)
                elif isinstance(item, End | Reset):
                    self._log(exchange)
        return items

    def _log(self, exchange: Hashable) -> None:
        entry = self._entries.pop(exchange, None)
        if entry is None:
            return
        connection: Any = exchange[0]  # type: ignore[index]  # connections name their exchanges by pairs
        address = connection.peer.address
        client = address[0] if isinstance(address, tuple) else address or "-"
        method = ascii(entry.head.method)[1:-1]
        # Without the query, which may hold secrets.
        path = ascii(entry.head.target.partition("?")[0])[1:-1]
        took = (self.now() - entry.began) * 1000
        status = "-" if entry.status is None else entry.status
        _LOG.info("%s %s %s %.0f ms %d bytes %s", method, path, status, took, entry.size, client)

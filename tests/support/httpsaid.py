"""What handlers say on their streams, in tests of the HTTP machine."""

from __future__ import annotations

from typing import Any

from httpsite import Site, tool_call

from mcpio.events import RequestReceived
from mcpio.types import LoggingMessageNotification

ROOTS: dict[str, Any] = {"roots": {}}
"""The capabilities of a client that may be asked for its roots."""


def asked(site: Site, session: str, **headers: Any) -> tuple[Any, RequestReceived]:
    """Call a tool whose progress is wanted."""
    exchange = site.post(tool_call(1, progressToken="p"), session, **headers)
    return exchange, site.requests()[-1]


def progress(site: Site, event: RequestReceived, *values: float) -> None:
    for value in values:
        site.session().connection.send_progress(event.id, value)
        site.touch(site.session())


def log(site: Site, data: Any, event: RequestReceived | None = None) -> None:
    message = LoggingMessageNotification("info", data)
    site.session().connection.send_notification(message, related_to=None if event is None else event.id)
    site.touch(site.session())


def said(messages: list[Any]) -> list[Any]:
    """Return what messages say, in short."""
    found: list[Any] = []
    for message in messages:
        params = message.get("params", {})
        found.append(params.get("progress", params.get("data", message.get("method", "answer"))))
    return found

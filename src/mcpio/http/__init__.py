"""Streamable HTTP as machines: HTTP by meaning goes in and comes out, and no HTTP library is in the rules.

``HttpServer`` owns the engines of a server's sessions, ``HttpClient`` that of one client. An adapter of a few dozen
lines joins either to whatever speaks HTTP; ``mcpio.trio`` and ``mcpio.asgi`` are such adapters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import names_by_use

if TYPE_CHECKING:
    from mcpio.http.client.client import HttpClient
    from mcpio.http.client.events import ListeningEnded, MessageRefused, SessionLost
    from mcpio.http.location import Location
    from mcpio.http.model import Body, End, RequestItem, Reset, ResponseHead, ResponseItem
    from mcpio.http.server.server import HttpServer
    from mcpio.http.server.sessions import HttpSession, SessionClosed, SessionOpened

__all__ = [
    "Body",
    "End",
    "HttpClient",
    "HttpServer",
    "HttpSession",
    "ListeningEnded",
    "Location",
    "MessageRefused",
    "RequestItem",
    "Reset",
    "ResponseHead",
    "ResponseItem",
    "SessionClosed",
    "SessionLost",
    "SessionOpened",
]

_HOME = {
    "client.client": "HttpClient",
    "client.events": "ListeningEnded MessageRefused SessionLost",
    "location": "Location",
    "model": "Body End RequestItem Reset ResponseHead ResponseItem",
    "server.server": "HttpServer",
    "server.sessions": "HttpSession SessionClosed SessionOpened",
}
"""The module of each name."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = names_by_use(__name__, _HOME)

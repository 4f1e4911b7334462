"""Streamable HTTP as machines: HTTP by meaning goes in and comes out, and no HTTP library is in the rules.

``HttpServer`` owns the engines of a server's sessions, ``HttpClient`` that of one client. An adapter of a few dozen
lines joins either to whatever speaks HTTP; ``mcpio.trio`` and ``mcpio.asgi`` are such adapters.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpio.http.client import HttpClient
    from mcpio.http.client_events import ListeningEnded, MessageRefused, SessionLost
    from mcpio.http.location import Location
    from mcpio.http.model import Body, End, Reset, ResponseHead
    from mcpio.http.server import HttpServer
    from mcpio.http.sessions import HttpSession, SessionClosed, SessionOpened

else:

    def __getattr__(name: str) -> Any:
        # Hidden from type checkers, or to them every misspelt name would be there.
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{module}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Body",
    "End",
    "HttpClient",
    "HttpServer",
    "HttpSession",
    "ListeningEnded",
    "Location",
    "MessageRefused",
    "Reset",
    "ResponseHead",
    "SessionClosed",
    "SessionLost",
    "SessionOpened",
]

_HOME = {
    "client": "HttpClient",
    "client_events": "ListeningEnded MessageRefused SessionLost",
    "location": "Location",
    "model": "Body End Reset ResponseHead",
    "server": "HttpServer",
    "sessions": "HttpSession SessionClosed SessionOpened",
}
"""The module of each name."""

_MODULES = {name: module for module, names in _HOME.items() for name in names.split()}

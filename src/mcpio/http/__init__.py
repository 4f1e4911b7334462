"""Streamable HTTP as state machines, without I/O and without an HTTP library.

``HttpServer`` owns the engines of a server's sessions, ``HttpClient`` the engine of one client. An adapter of a few
dozen lines connects either to an HTTP library; ``mcpio.trio`` and ``mcpio.asgi`` are such adapters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio.http.client.client import HttpClient as HttpClient
    from mcpio.http.client.events import ListeningEnded as ListeningEnded
    from mcpio.http.client.events import MessageRefused as MessageRefused
    from mcpio.http.client.events import SessionLost as SessionLost
    from mcpio.http.client.options import HttpClientOptions as HttpClientOptions
    from mcpio.http.location import Location as Location
    from mcpio.http.model import Body as Body
    from mcpio.http.model import Denied as Denied
    from mcpio.http.model import End as End
    from mcpio.http.model import RequestHead as RequestHead
    from mcpio.http.model import RequestItem as RequestItem
    from mcpio.http.model import Reset as Reset
    from mcpio.http.model import ResponseHead as ResponseHead
    from mcpio.http.model import ResponseItem as ResponseItem
    from mcpio.http.options import Cors as Cors
    from mcpio.http.options import HostPolicy as HostPolicy
    from mcpio.http.options import HttpOptions as HttpOptions
    from mcpio.http.server.calls import Calls as Calls
    from mcpio.http.server.server import HttpServer as HttpServer
    from mcpio.http.server.sessions import HttpSession as HttpSession
    from mcpio.http.server.sessions import SessionClosed as SessionClosed
    from mcpio.http.server.sessions import SessionOpened as SessionOpened
    from mcpio.http.session_records import SessionDelete as SessionDelete
    from mcpio.http.session_records import SessionLoad as SessionLoad
    from mcpio.http.session_records import SessionSave as SessionSave
    from mcpio.http.session_records import SessionSweep as SessionSweep
    from mcpio.http.session_records import StoredEvent as StoredEvent
    from mcpio.http.session_records import StoredSession as StoredSession

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "session_records": "SessionDelete SessionLoad SessionSave SessionSweep StoredEvent StoredSession",
            "options": "Cors HostPolicy HttpOptions",
            "client.options": "HttpClientOptions",
            "client.client": "HttpClient",
            "client.events": "ListeningEnded MessageRefused SessionLost",
            "location": "Location",
            "model": "Denied RequestHead Body End RequestItem Reset ResponseHead ResponseItem",
            "server.calls": "Calls",
            "server.server": "HttpServer",
            "server.sessions": "HttpSession SessionClosed SessionOpened",
        },
    )

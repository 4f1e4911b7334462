"""Streamable HTTP as state machines, without I/O and without an HTTP library.

``HttpServer`` owns the engines of a server's sessions, ``HttpClient`` the engine of one client. An adapter of a few
dozen lines connects either to an HTTP library; ``mcpio.trio`` and ``mcpio.asgi`` are such adapters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio.http.calls import Calls as Calls
    from mcpio.http.client import HttpClient as HttpClient
    from mcpio.http.client import HttpClientOptions as HttpClientOptions
    from mcpio.http.client import ListeningEnded as ListeningEnded
    from mcpio.http.client import ListeningResumed as ListeningResumed
    from mcpio.http.client import Location as Location
    from mcpio.http.client import MessageRefused as MessageRefused
    from mcpio.http.client import SessionLost as SessionLost
    from mcpio.http.model import Body as Body
    from mcpio.http.model import Cors as Cors
    from mcpio.http.model import Denied as Denied
    from mcpio.http.model import End as End
    from mcpio.http.model import HostPolicy as HostPolicy
    from mcpio.http.model import HttpOptions as HttpOptions
    from mcpio.http.model import Page as Page
    from mcpio.http.model import RequestHead as RequestHead
    from mcpio.http.model import RequestItem as RequestItem
    from mcpio.http.model import Reset as Reset
    from mcpio.http.model import ResponseHead as ResponseHead
    from mcpio.http.model import ResponseItem as ResponseItem
    from mcpio.http.server import HttpServer as HttpServer
    from mcpio.http.sessions import HttpSession as HttpSession
    from mcpio.http.sessions import SessionClosed as SessionClosed
    from mcpio.http.sessions import SessionDelete as SessionDelete
    from mcpio.http.sessions import SessionLoad as SessionLoad
    from mcpio.http.sessions import SessionOpened as SessionOpened
    from mcpio.http.sessions import SessionSave as SessionSave
    from mcpio.http.sessions import SessionSweep as SessionSweep
    from mcpio.http.sessions import StoredEvent as StoredEvent
    from mcpio.http.sessions import StoredSession as StoredSession

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "sessions": (
                "HttpSession SessionClosed SessionDelete SessionLoad SessionOpened SessionSave SessionSweep "
                "StoredEvent StoredSession"
            ),
            "model": (
                "Body Cors Denied End HostPolicy HttpOptions Page RequestHead RequestItem Reset ResponseHead "
                "ResponseItem"
            ),
            "client": (
                "HttpClient HttpClientOptions ListeningEnded ListeningResumed Location MessageRefused SessionLost"
            ),
            "calls": "Calls",
            "server": "HttpServer",
        },
    )

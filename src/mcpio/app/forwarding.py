# ruff: noqa: SLF001 - the library uses sessions from inside
"""A server that has another server answer: requests, progress, cancellation and questions pass in both directions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from mcpio import types  # what belongs to one feature is loaded when a request needs it
from mcpio.app.server import Lifespan, Server
from mcpio.engine.options import Options
from mcpio.errors import (
    ConnectFailed,
    ConnectionLost,
    ErrorCode,
    LocalProtocolError,
    McpError,
    MessageTooLarge,
    OutputFull,
    RequestError,
)
from mcpio.revisions import HANDSHAKE_REVISIONS, Era
from mcpio.types.features import ClientCapabilities, ServerCapabilities

if TYPE_CHECKING:
    from mcpio.app.client import Client, ClientOptions
    from mcpio.app.context import Context
    from mcpio.app.registry.base import RegisteredFunction
    from mcpio.app.server_session import ServerSession
    from mcpio.app.skills import Skills
    from mcpio.events import IncomingId, Peer

__all__ = ["HANDSHAKE_ERA", "ForwardingServer", "Upstreams"]

HANDSHAKE_ERA: Final = Options(revisions=HANDSHAKE_REVISIONS)
"""The options of a proxy, and of its clients at servers that have sessions."""


class Upstreams(Protocol):
    """The clients of the server behind a proxy: one for each session, opened on first use. Implemented by a driver."""

    async def client(self, session: ServerSession) -> Client:
        """Return the client for a session. Raises ConnectFailed."""

    def was_replaced(self, client: Client) -> bool:
        """Whether a client was closed because its server was replaced by a newer one."""

    def forget(self, session: ServerSession) -> None:
        """Close the client of a session that has ended."""


class ForwardingServer(Server):
    """A server whose sessions each have a session of their own with another server. Made by ``mcpio.trio.proxy``.

    Its clients make a handshake, since subscriptions, questions and a replacement of the server belong to a session. To
    a server that has no sessions, what they say once is said with each request. Tasks are not passed on. A client's
    capabilities are declared to the server behind it, and that server's to the client.
    """

    _WHY_NOT_MOUNTED = "a proxy answers nothing by itself: use open_servers, or mount servers of this process"

    def __init__(self, lifespan: Lifespan, *, may_change: bool) -> None:
        """``lifespan`` yields the ``Upstreams``. ``may_change`` declares every feature, since the server may get it."""
        super().__init__("proxy", lifespan=lifespan, options=HANDSHAKE_ERA)
        self._may_change = may_change
        self._in_flight: dict[ServerSession, list[IncomingId]] = {}
        self.handlers = {method: partial(self._forward, method) for method in (*self.handlers, *_OF_SKILLS)}
        self.notification_handlers["notifications/roots/list_changed"] = self._tell_roots

    def _adopt(self, endpoint: RegisteredFunction) -> None:
        raise TypeError(f"it would never be served: {self._WHY_NOT_MOUNTED}")

    def mount(self, server: Server, prefix: str | None = None) -> None:
        """Raise TypeError: a proxy offers nothing of its own."""
        raise TypeError(f"it would never be served: {self._WHY_NOT_MOUNTED}")

    @property
    def skills(self) -> Skills:
        """Raise TypeError: a proxy offers nothing of its own."""
        raise TypeError(f"it would never be served: {self._WHY_NOT_MOUNTED}")

    def adopt(self, peer: Peer) -> None:
        """Present this server as the one that the client found: its name, instructions and capabilities."""
        self.info, self.instructions = peer.info, peer.instructions
        offered = peer.capabilities if isinstance(peer.capabilities, ServerCapabilities) else ServerCapabilities()
        every = ServerCapabilities(
            tools=types.ToolsCapability(list_changed=True),
            resources=types.ResourcesCapability(subscribe=True, list_changed=True),
            prompts=types.PromptsCapability(list_changed=True),
            logging={},
            completions={},
        )
        self._edition.number += 1  # the capabilities were those of the server it was adopted from before
        self._declared = attrs.evolve(every if self._may_change else offered, tasks=None, extensions=offered.extensions)

    def options_for(self, session: ServerSession) -> ClientOptions:
        """Return the options of the client that represents a session's client to the server behind."""
        peer = session.connection.peer

        def tell(notification: Any) -> None:
            session.tell(notification)

        options: ClientOptions = {"on_notification": tell}
        if peer is None or not isinstance(peer.capabilities, ClientCapabilities):
            return options
        capabilities = attrs.evolve(peer.capabilities, tasks=None)
        options |= {"info": peer.info, "capabilities": capabilities}

        async def ask(scope: Any, request: Any) -> Any:
            return await self._ask(session, request)

        async def roots() -> Any:
            return (await self._ask(session, types.ListRootsRequest())).roots

        if capabilities.sampling is not None:
            options["sampling"] = ask
        if capabilities.elicitation is not None:
            options["elicitation"] = ask
        if capabilities.roots is not None:
            options["roots"] = roots
        return options

    def forget(self, session: ServerSession) -> None:
        """Close the client of a session that has ended."""
        super().forget(session)
        self._in_flight.pop(session, None)
        session.state.forget(session)

    async def _forward(self, method: str, scope: Context, request: Any) -> Any:
        """Forward a request to the server behind this one. Raises RequestError with that server's error."""
        session = scope.session
        upstreams: Upstreams = scope.state
        try:
            client = await upstreams.client(session)
        except ConnectFailed as error:
            raise RequestError(
                ErrorCode.INTERNAL_ERROR, f"the server behind this proxy does not start: {error}"
            ) from error
        meta = {name: value for name, value in request.meta.items() if name != "progressToken"}
        in_flight = self._in_flight.setdefault(session, [])
        in_flight.append(scope.id)
        try:
            if client.era is Era.STATELESS and method in _OF_SESSIONS:
                result = await _OF_SESSIONS[method](client, request)
            else:
                result = await client.request(
                    attrs.evolve(request, meta=meta),
                    timeout=None,  # the client here knows how long to wait
                    on_progress=scope.progress if "progressToken" in request.meta else None,
                )
        except RequestError:
            raise
        except (MessageTooLarge, OutputFull) as error:
            text = f"the request cannot be passed on to the server behind this proxy: {error}"
            raise RequestError(ErrorCode.INTERNAL_ERROR, text) from error
        except LocalProtocolError as error:
            # A newer or older server may lack what is declared here.
            if method in _EMPTY:
                return getattr(types, _EMPTY[method])(())
            raise RequestError(ErrorCode.METHOD_NOT_FOUND, f"the server behind this proxy has no {method}") from error
        except McpError as error:
            if upstreams.was_replaced(client):
                text = "the server was replaced by a newer one while it handled this request: send it again"
                raise RequestError(ErrorCode.INTERNAL_ERROR, text, {"reason": "reloaded"}) from error
            fault = "is gone" if isinstance(error, ConnectionLost) else "gives no answer"
            raise RequestError(ErrorCode.INTERNAL_ERROR, f"the server behind this proxy {fault}: {error}") from error
        finally:
            in_flight.remove(scope.id)
        self._record(session, method, request)
        return result

    def _record(self, session: ServerSession, method: str, request: Any) -> None:
        """Record the state that a replacement of the server has to be given."""
        match method:
            case "resources/subscribe":
                session._subscribe(request.uri)
            case "resources/unsubscribe":
                session._unsubscribe(request.uri)
            case "logging/setLevel":
                session.log_level = request.level

    async def _ask(self, session: ServerSession, request: Any) -> Any:
        """Ask the client here on behalf of the server; on the stream of the newest request in flight."""
        in_flight = self._in_flight.get(session)
        meta = {name: value for name, value in request.meta.items() if name != "progressToken"}
        question = attrs.evolve(request, meta=meta)
        return await session.request(question, timeout=None, related_to=in_flight[-1] if in_flight else None)

    def _tell_roots(self, session: ServerSession, notification: Any) -> None:
        session.state.tell_roots(session)


_OF_SKILLS: Final = ("skills/list", "skills/get", "resources/directory/read")
"""The methods of the skills extension, which a server answers only if it has skills."""

_EMPTY: Final = {
    "tools/list": "ListToolsResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "prompts/list": "ListPromptsResult",
}
"""The lists to answer with an empty page if the server behind lacks the feature."""


async def _subscribe(client: Client, request: Any) -> Any:
    await client.subscribe_resource(request.uri)
    return types.EmptyResult()


async def _unsubscribe(client: Client, request: Any) -> Any:
    await client.unsubscribe_resource(request.uri)
    return types.EmptyResult()


async def _set_level(client: Client, request: Any) -> Any:
    await client.set_log_level(request.level)
    return types.EmptyResult()


_OF_SESSIONS: Final = {
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
    "logging/setLevel": _set_level,
}
"""The requests that have no counterpart in the stateless era; a client does otherwise what they are for."""

"""A client that calls a server without a session: rounds of questions on any event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from mcpio.app.runtime import OneShot, Runtime
from mcpio.app.server import Server
from mcpio.codec import codec
from mcpio.engine.server import ServerConnection
from mcpio.errors import NoBackChannel, RequestError
from mcpio.events import CancelReceived, IncomingId, RequestContext, RequestReceived
from mcpio.methods import METHODS
from mcpio.revisions import REV_2026_07_28, Era
from mcpio.types import (
    ClientCapabilities,
    CustomRequest,
    ElicitationCapability,
    Implementation,
    RootsCapability,
    SamplingCapability,
)

__all__ = ["EVERYTHING", "StatelessClient", "accept"]

EVERYTHING = ClientCapabilities(
    elicitation=ElicitationCapability(form={}, url={}),
    roots=RootsCapability(),
    sampling=SamplingCapability(tools={}, context={}),
)


def accept(**content: Any) -> dict[str, Any]:
    """Return the answer of a user who filled in a form."""
    return {"action": "accept", "content": content}


class StatelessClient:
    """Calls a server, each time by a request that stands for itself. ``reports`` are what the operator got to know."""

    def __init__(
        self,
        server: Server,
        runtime: Runtime,
        *,
        capabilities: ClientCapabilities = EVERYTHING,
        principal: Any = None,
        via: Any = None,
        log_level: str | None = None,
    ) -> None:
        self.server = server
        self.runtime = runtime
        self.reports: list[str] = []
        self.rounds: list[dict[str, Any]] = []
        self.capabilities = capabilities
        self.principal = principal
        self.via = via
        self.log_level = log_level
        self._ids = count(1)

    async def request(
        self, method: str, params: Mapping[str, Any], answers: Any = None, state: str | None = None
    ) -> dict[str, Any]:
        """Send one request and return its result as it goes on the wire. Raises the error that it is answered with."""
        params = {**params, **({} if answers is None else {"inputResponses": answers})}
        if state is not None:
            params["requestState"] = state
        return await self.begin(method, params).result()

    def begin(self, method: str, params: Mapping[str, Any]) -> Exchange:
        """Send one request."""
        number = next(self._ids)
        context = RequestContext(
            Era.STATELESS,
            REV_2026_07_28,
            self.capabilities,
            Implementation("client", "1"),
            self.log_level,
            self.principal,
            self.via,
        )
        raw = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        row = METHODS.get(method)
        if row is not None and row.exists_in(REV_2026_07_28):
            typed = codec(REV_2026_07_28).decode(params, row.params_type)
        else:
            typed = CustomRequest(method, params)
        event = RequestReceived(IncomingId(number), typed, context, raw, reused_id=False)
        return Exchange(self, event)

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, answers: Any = None, state: str | None = None
    ) -> dict[str, Any]:
        """Call a tool once."""
        return await self.request("tools/call", {"name": name, "arguments": arguments or {}}, answers, state)

    async def talk(
        self,
        name: str,
        answer: Callable[[str, dict[str, Any]], Any],
        arguments: Mapping[str, Any] | None = None,
        *,
        method: str = "tools/call",
        params: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Call until the result is complete; ``answer`` takes a key and its question. ``rounds`` has all results."""
        params = params or {"name": name, "arguments": arguments or {}}
        result = await self.request(method, params)
        while result.get("resultType") == "input_required":
            asked = result.get("inputRequests", {})
            answers = {key: answer(key, question) for key, question in asked.items()}
            result = await self.request(method, params, answers or None, result.get("requestState"))
        return result


class Exchange:
    """One request that runs. ``said`` are the notifications that belong to it, and what was acknowledged."""

    def __init__(self, client: StatelessClient, event: RequestReceived) -> None:
        self.said: list[Any] = []
        self._client = client
        self._event = event
        self._answer = client.runtime.one_shot()
        self.connection = _Connection(client.server, self._answer, self.said)
        self.session = client.server.session(self.connection, _Driver(client))
        self.session.driving.handle(event)

    async def result(self) -> dict[str, Any]:
        """Wait for the result and return it as it goes on the wire. Raises the error that is sent in its place."""
        found = await self._answer.wait()
        if isinstance(found, RequestError):
            raise found
        # Results of extensions are objects already.
        result = {"resultType": "complete", **found} if isinstance(found, dict) else codec(REV_2026_07_28).encode(found)
        self._client.rounds.append(result)
        return result

    def cancel(self) -> None:
        """Cancel the request."""
        self.session.driving.handle(CancelReceived(self._event.id, None, {}))


class _Connection(ServerConnection):
    """Keeps the one answer of an exchange, in place of the wire."""

    def __init__(self, server: Server, answer: OneShot, said: list[Any]) -> None:
        super().__init__(server.info, server.capabilities)
        self._given = answer
        self._said = said
        self.is_broken = False

    def send_result(self, id: IncomingId, result: Any, **_: Any) -> None:
        self._given.set(result)

    def send_error(self, id: IncomingId, error: RequestError) -> None:
        self._given.set(error)

    def acknowledge(self, id: IncomingId, honoured: Any) -> None:
        self._said.append(honoured)

    def send_notification(self, notification: Any, **_: Any) -> None:
        if self.is_broken:
            raise NoBackChannel("the connection is closed")
        self._said.append(notification)

    def is_pending(self, id: Any) -> bool:
        return True


class _Driver:
    def __init__(self, client: StatelessClient) -> None:
        self._client = client
        self.runtime = client.runtime

    def now(self) -> float:
        return 0.0

    def wake(self) -> None:
        pass

    def close(self, grace: float) -> None:
        raise AssertionError("nothing closes an exchange here")

    async def wait_closed(self) -> None:
        raise AssertionError("nothing waits for the end here")

    def report(self, message: str, error: BaseException | None) -> None:
        self._client.reports.append(message if error is None else f"{message}: {error!r}")

"""A client that calls a server without a session: rounds of questions on any event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import attrs

from mcpio.app.runtime import Runtime
from mcpio.app.server import Server
from mcpio.engine.envelope import write_envelope
from mcpio.errors import RequestError
from mcpio.framing import json
from mcpio.revisions import REV_2026_07_28, REVISIONS
from mcpio.types import (
    ClientCapabilities,
    ElicitationCapability,
    Implementation,
    RootsCapability,
    SamplingCapability,
)
from mcpio.types.features import LoggingLevel

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
        log_level: LoggingLevel | None = None,
    ) -> None:
        server.options = attrs.evolve(server.options, revisions=REVISIONS, identify=False)
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
        envelope = write_envelope(REV_2026_07_28, self.capabilities, Implementation("client", "1"), self.log_level)
        number = next(self._ids)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": envelope}}
        return Exchange(self, number, message)

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
    """One request on a connection of its own. ``said`` are the notifications that belong to it.

    The client ``reads`` what is sent, or does not.
    """

    def __init__(self, client: StatelessClient, number: int, message: Mapping[str, Any]) -> None:
        self.said: list[Any] = []
        self.reads = True
        self._client = client
        self._number = number
        self._answer = client.runtime.one_shot()
        self.connection = client.server.connection(principal=client.principal)
        self.session = client.server.session(self.connection, _Driver(self))
        self._feed(message)

    async def result(self) -> dict[str, Any]:
        """Wait for the result and return it as it goes on the wire. Raises the error that is sent in its place."""
        found = await self._answer.wait()
        if "error" in found:
            error = found["error"]
            raise RequestError(error["code"], error["message"], error.get("data"))
        result: dict[str, Any] = found["result"]
        self._client.rounds.append(result)
        return result

    def cancel(self) -> None:
        """Cancel the request."""
        params = {"requestId": self._number}
        self._feed({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def close(self) -> None:
        """Have the server close the connection."""
        self.connection.close(0.0)
        self.session._process()
        self.write()

    def write(self) -> None:
        """Take what the server has sent, unless the client does not read."""
        while self.reads and (sent := self.connection.next_message()) is not None:
            message = json.loads(sent.text)
            if "method" in message:
                self.said.append(message)
            else:
                self._answer.set(message)
        self.session._settle()

    @property
    def client(self) -> StatelessClient:
        """Whose request it is."""
        return self._client

    def _feed(self, message: Mapping[str, Any]) -> None:
        self.connection.receive_message(json.dumps(message), 0.0, via=self._client.via)
        self.session._process()
        self.write()


class _Driver:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.runtime = exchange.client.runtime

    def now(self) -> float:
        return 0.0

    def wake(self) -> None:
        self._exchange.write()

    def close(self, grace: float) -> None:
        raise AssertionError("nothing closes an exchange here")

    async def wait_closed(self) -> None:
        raise AssertionError("nothing waits for the end here")

    def report(self, message: str, error: BaseException | None) -> None:
        if "held up everything else" not in message:  # a busy machine holds up any handler
            self._exchange.client.reports.append(message if error is None else f"{message}: {error!r}")

"""The pump: joins a view to the client of its server, on any event loop that the client runs in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from mcpio.app.runtime import BroadcastEvent, check_nothing_waits, checked_callback, settled
from mcpio.apps.machine import (
    REFUSED,
    TeardownRequested,
    ViewCancelled,
    ViewConnection,
    ViewEvent,
    ViewInitialized,
    ViewPhase,
    ViewRequested,
)
from mcpio.codec import codec
from mcpio.errors import LocalProtocolError, McpError, RequestError
from mcpio.events import IncomingId
from mcpio.revisions import REV_2025_11_25

if TYPE_CHECKING:
    from mcpio.app.client import Client
    from mcpio.app.runtime import Spawned
    from mcpio.types.features import CallToolResult


class ViewChannel(Protocol):
    """Carries the messages of one view, as a ``trio.abc.Channel[str]`` does."""

    async def receive(self) -> str | None:
        """Wait for a message; ``None``, or any exception, once the view is gone."""

    async def send(self, value: str, /) -> None:
        """Send a message. Any exception says that the view is gone."""


ViewHandler: TypeAlias = "Callable[[ViewRequested], Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None]"
"""Takes what a view asks of the host, and returns the result, which is empty for most requests. ``None`` refuses, and
so does a ``RequestError``, with a reason. It may be async."""


async def pump(
    view: ViewConnection,
    client: Client,
    channel: ViewChannel,
    arguments: Mapping[str, Any] | None = None,
    result: CallToolResult | None = None,
    *,
    answer: ViewHandler | None = None,
    on_event: Callable[[ViewEvent], None] | None = None,
) -> CallToolResult | None:
    """Carry messages between a view and its host until the view ends, and make the calls that it asks for.

    Once the view is ready it gets ``arguments`` and ``result``; without arguments nothing, and ``on_event`` may send
    them. With arguments and no result, the tool is called: its result is returned, ``None`` if the view ended before.
    What the view calls goes to ``client``; what else it asks for, ``answer`` answers, and all is refused without it.
    ``on_event`` is a plain function, called with each other event. A view that asks to be removed is torn down.
    Cancelling the pump ends the view at once, ``view.tear_down`` gracefully; to the pump, its end is no error.

    Raises what the call of the tool raises, at the end of the view, which is told that there is no result, and
    NoBackChannel if the connection of ``client`` is closed before.
    """
    on_event = checked_callback("on_event", on_event, "(event)")
    return await _Pump(view, client, channel, arguments, result, answer, on_event).run()


class _Pump:
    def __init__(
        self,
        view: ViewConnection,
        client: Client,
        channel: ViewChannel,
        arguments: Mapping[str, Any] | None,
        result: CallToolResult | None,
        answer: ViewHandler | None,
        on_event: Callable[[ViewEvent], None] | None,
    ) -> None:
        self._view = view
        self._client = client
        self._channel = channel
        self._arguments = arguments
        self._result = result
        self._answer = answer
        self._on_event = on_event
        self._runtime = client.driver.runtime
        self._now = client.driver.now
        self._woken = BroadcastEvent(self._runtime)
        self._is_dirty = True
        self._tasks: dict[object, Spawned] = {}
        self._failure: BaseException | None = None

    async def run(self) -> CallToolResult | None:
        self._client.check_open()
        view = self._view
        view.on_output = self._wake
        try:
            self._spawn("reader", self._receive())
            self._spawn("writer", self._send())
            while not view.closed:
                self._is_dirty = False
                for event in view.events():
                    self._handle(event)
                self._woken.notify_all()  # reading makes answers too, and room for more input
                deadline = view.next_deadline()
                if not self._is_dirty and not view.closed:
                    await self._woken.wait(None if deadline is None else max(0, deadline - self._now()))
                view.handle_timeout(self._now())
        finally:
            view.on_output = None
            view.connection_lost()
            for task in tuple(self._tasks.values()):
                task.cancel()
        if self._failure is not None:
            raise self._failure
        return self._result

    def _wake(self) -> None:
        self._is_dirty = True
        self._woken.notify_all()

    def _spawn(self, key: object, coroutine: Any) -> None:
        async def run() -> None:
            try:
                await coroutine
            finally:
                self._tasks.pop(key, None)

        self._tasks[key] = self._runtime.spawn(run())

    async def _receive(self) -> None:
        view = self._view
        with suppress(Exception):  # whatever a channel raises, the view is gone
            while (text := await self._channel.receive()) is not None:
                view.receive_message(text, self._now())
                self._wake()
                while not view.wants_read:
                    await self._woken.wait(None)
        view.connection_lost()

    async def _send(self) -> None:
        view = self._view
        try:
            while True:
                text = view.next_message()
                if text is None:
                    await self._woken.wait(None)
                else:
                    await self._channel.send(text)
                    self._wake()  # there may be room for input again
        except Exception:
            view.connection_lost()

    def _handle(self, event: ViewEvent) -> None:
        match event:
            case ViewRequested(method="tools/call" | "resources/read"):
                self._spawn(event.id, self._serve(event.id, self._of_server(event)))
            case ViewRequested():
                self._spawn(event.id, self._serve(event.id, self._of_program(event)))
            case ViewCancelled(id=id):
                self._tasks[id].cancel()  # it runs as long as the request waits
            case _:
                self._tell(event)
                if (
                    isinstance(event, ViewInitialized)
                    and self._arguments is not None
                    and self._view.phase is ViewPhase.INITIALIZED
                ):
                    self._view.send_tool_input(self._arguments)
                    if self._result is None:
                        self._spawn("tool", self._call(self._arguments))
                    else:
                        self._view.send_tool_result(self._result)
                elif isinstance(event, TeardownRequested):
                    self._view.tear_down(self._now())

    def _tell(self, event: ViewEvent) -> None:
        try:
            if self._on_event is not None:
                check_nothing_waits(self._on_event(event))
        except Exception as error:
            self._client.driver.report(f"on_event failed for {type(event).__name__}", error)

    async def _call(self, arguments: Mapping[str, Any]) -> None:
        view = self._view
        try:
            self._result = await self._client.call_tool(view.tool.name, arguments)
        except McpError as error:
            self._failure = error
        if view.phase is ViewPhase.INPUT_GIVEN:  # not torn down meanwhile
            if self._result is None:
                view.send_tool_cancelled(str(self._failure))
            else:
                view.send_tool_result(self._result)

    async def _serve(self, id: IncomingId, work: Coroutine[Any, Any, Mapping[str, Any]]) -> None:
        try:
            self._view.send_result(id, await work)
        except RequestError as error:
            self._refuse(id, error.message, error.code)
        except McpError as error:
            self._refuse(id, str(error))
        except Exception as error:
            self._client.driver.report("answer= failed for a request of a view", error)
            self._refuse(id, "the host failed")

    def _refuse(self, id: IncomingId, message: str, code: int = REFUSED) -> None:
        with suppress(LocalProtocolError):  # the view does not wait any more
            self._view.send_error(id, message, code)

    async def _of_server(self, event: ViewRequested) -> Mapping[str, Any]:
        params = event.params
        if event.method == "tools/call":
            result: Any = await self._client.call_tool(params["name"], params.get("arguments"))
        else:
            result = await self._client.read_resource(params["uri"])
        encoded: dict[str, Any] = codec(REV_2025_11_25).encode(result)
        return encoded

    async def _of_program(self, event: ViewRequested) -> Mapping[str, Any]:
        settled_answer = None if self._answer is None else await settled(self._answer(event))
        if settled_answer is None:
            raise RequestError(REFUSED, "the host refused")
        answer: Mapping[str, Any] = settled_answer
        return answer

"""``open_http``, ``connect_http`` and ``finish_login``: clients of servers over Streamable HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Unpack

import trio

from mcpio._drivers.http_client import HttpActor, HttpClientTimeouts, HttpConnectOptions, HttpSetup
from mcpio.app.client import Client
from mcpio.trio._drivers import TrioClientContext, shake_hands
from mcpio.trio._event_loop import TrioEventLoop
from mcpio.trio._runtime import Timekeeper, TrioRuntime, ungrouped, uninterruptible

if TYPE_CHECKING:
    from mcpio._drivers.login import CredentialStore
    from mcpio.auth.grants import OAuth
    from mcpio.auth.payloads import PendingAuthorization

__all__ = ["HttpClientTimeouts", "connect_http", "open_http"]

uninterruptible(HttpActor)


async def connect_http(url: str, *, nursery: trio.Nursery, **options: Unpack[HttpConnectOptions]) -> Client:
    """Return a client that has completed the handshake with the server at a URL.

    Its tasks live in ``nursery`` and never raise. ``http+unix://%2Frun%2Fserver.sock/mcp`` is a server on a Unix
    socket: the path, percent-encoded, stands in place of the host.

    Raises ConnectFailed with the reason as its cause, and ValueError for a malformed URL or option.
    """
    setup = HttpSetup.check(url, options, trio.current_time())
    client: Client = await nursery.start(_carry, setup)
    return client if setup.session.is_resumed else await shake_hands(client)


def open_http(url: str, **options: Unpack[HttpConnectOptions]) -> TrioClientContext[Client]:
    """Return an async context manager that yields a client: ``async with open_http("http://…/mcp") as client``.

    See ``connect_http`` for the arguments.
    """
    return TrioClientContext(lambda nursery: connect_http(url, nursery=nursery, **options))


# Protected, so that no KeyboardInterrupt can come between the start of the session and the ``try`` of ``run``.
@trio.lowlevel.enable_ki_protection
async def _carry(setup: HttpSetup, *, task_status: trio.TaskStatus[Client] = trio.TASK_STATUS_IGNORED) -> None:
    """Run one client until it has ended."""
    with ungrouped():
        async with trio.open_nursery() as nursery:
            # The tasks that carry messages outlive the cancellation of the block, to end the session on the server.
            carriers = await nursery.start(_shielded)
            try:
                actor = TrioHttpActor(setup, carriers, TrioRuntime(nursery))
                task_status.started(setup.client(actor))
                await actor.run()
            finally:
                carriers.cancel_scope.cancel()
                nursery.cancel_scope.cancel()


async def _shielded(*, task_status: trio.TaskStatus[trio.Nursery]) -> None:
    async with trio.open_nursery() as nursery:
        # A caller that is cancelled already never receives this nursery, so nothing could end it once it is shielded.
        await trio.lowlevel.checkpoint_if_cancelled()
        nursery.cancel_scope.shield = True
        task_status.started(nursery)
        await trio.sleep_forever()


@uninterruptible
class TrioHttpActor(HttpActor):
    """Runs one client until its connection has ended and the server was notified."""

    def __init__(self, setup: HttpSetup, carriers: trio.Nursery, runtime: TrioRuntime) -> None:
        timekeeper = Timekeeper()
        self._carriers = carriers
        super().__init__(setup, TrioEventLoop(), timekeeper, runtime)
        self._start(timekeeper.run)

    def _start(self, task: Callable[[], Awaitable[None]]) -> None:
        self._carriers.start_soon(self._guard, task)


async def finish_login(
    url: str,
    auth: OAuth,
    pending: PendingAuthorization,
    callback_url: str,
    *,
    credentials: CredentialStore | None = None,
    **transport: Any,
) -> None:
    """Finish a login and store its tokens, where ``open_http`` finds them.

    For web applications: ``open_http(url, auth=OAuth(redirect_uri=…), interaction="never")`` fails with a
    `LoginRequired`, whose ``pending`` another process may finish when the browser comes back.

    Args:
        url: The URL of the MCP server.
        auth: The options with which the login began.
        pending: The login; ``to_text`` and ``from_text`` carry it between processes.
        callback_url: The URL that the browser was sent to.
        credentials: Where the tokens are stored; by default a ``FileCredentials()``.
        transport: ``ssl_context``, ``proxy`` and ``trust_env``, as for ``open_http``.

    Raises AuthorizationError for a URL of another login, and where the authorization server refuses.

    """
    from mcpio._drivers.login import LoginSetup, SingleFlow  # only clients that log in pay for it

    setup = LoginSetup.check(url, {"auth": auth, "credentials": credentials}, **transport)
    await SingleFlow(setup, TrioEventLoop(), TrioRuntime(None)).finish(pending, callback_url)

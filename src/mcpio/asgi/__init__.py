"""A server as an ASGI application: mounted in a web framework, or run by any ASGI server, on asyncio or Trio.

It needs no lifespan and no task that runs all the time: whatever is under way lives in the calls that brought it.
"""

from mcpio.asgi._app import AsgiApp, Identify, app

__all__ = ["AsgiApp", "Identify", "app"]

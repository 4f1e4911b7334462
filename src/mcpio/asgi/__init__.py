"""A server as an ASGI application: mounted in a web framework, or run by any ASGI server, on asyncio or Trio.

It needs no lifespan and no background task: handlers and timers live in the calls that brought their requests.
"""

from mcpio.asgi._app import AsgiApp, Identify, app

__all__ = ["AsgiApp", "Identify", "app"]

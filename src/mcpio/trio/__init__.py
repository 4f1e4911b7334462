"""The Trio drivers: the only part of mcpio that waits.

``open_stdio``, ``connect_stdio`` and ``serve_stdio`` are for standard input and output; ``open_transport``, ``connect``
and ``serve`` take any ``trio.abc.Stream`` or ``trio.abc.Channel``; ``memory_client`` joins a client to a server in the
same process.
"""

from mcpio.trio._drivers import connect, open_transport, serve
from mcpio.trio._memory import memory_client
from mcpio.trio._stdio_drivers import connect_stdio, open_stdio, serve_stdio

__all__ = ["connect", "connect_stdio", "memory_client", "open_stdio", "open_transport", "serve", "serve_stdio"]

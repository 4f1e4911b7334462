"""The Trio drivers: the only part of mcpio that waits.

``open_stdio``, ``connect_stdio`` and ``serve_stdio`` are for standard input and output; ``open_transport``, ``connect``
and ``serve`` take any ``trio.abc.Stream`` or ``trio.abc.Channel``; ``memory_client`` joins a client to a server in the
same process.

The parts of the stdio drivers are for programs that want something between them: ``open_process_stream`` and
``start_process`` give a child process and the stream to it, ``stdio_stream`` is this process's own standard input and
output, and ``terminate_on_signals`` and ``run_until_signalled`` end a program at SIGINT or SIGTERM.
"""

from mcpio.trio._drivers import connect, open_transport, serve
from mcpio.trio._memory import memory_client
from mcpio.trio._process import ChildProcess, default_environment, open_process_stream, start_process
from mcpio.trio._signals import Terminated, run_until_signalled, terminate_on_signals
from mcpio.trio._stdio import stdio_stream
from mcpio.trio._stdio_drivers import StdioClient, connect_stdio, open_stdio, serve_stdio

__all__ = [
    "ChildProcess",
    "StdioClient",
    "Terminated",
    "connect",
    "connect_stdio",
    "default_environment",
    "memory_client",
    "open_process_stream",
    "open_stdio",
    "open_transport",
    "run_until_signalled",
    "serve",
    "serve_stdio",
    "start_process",
    "stdio_stream",
    "terminate_on_signals",
]

"""Addresses on a command line: ``[HOST:]PORT``, ``unix:PATH``, ``tcp://HOST:PORT``."""

from __future__ import annotations

import argparse

import attrs

from mcpio.cli.exit_status import Exit, Failure

__all__ = ["SOCKET_SCHEMES", "TCP", "UNIX", "Address", "parse_address", "parse_place", "parse_socket_url"]

TCP = "tcp://"
UNIX = "unix:"
SOCKET_SCHEMES = (TCP, UNIX)
"""The prefixes of a server that listens on a plain socket."""

DEFAULT_HOST = "127.0.0.1"
"""Reachable from this machine only: a server is not exposed to the network unless the user names a host."""

LAST_PORT = 65535


@attrs.frozen
class Address:
    """A host and a port."""

    host: str
    port: int


def parse_address(text: str) -> Address:
    """Parse ``[HOST:]PORT``; an IPv6 host may be in brackets. For ``argparse``."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port or HOST:PORT, such as 8000 or 0.0.0.0:8000")
    return Address(host.removeprefix("[").removesuffix("]") or DEFAULT_HOST, int(port))


def parse_place(text: str) -> Address | str:
    """Parse ``[HOST:]PORT``, or ``unix:PATH`` and return the path of the Unix socket. For ``argparse``."""
    path = text.removeprefix(UNIX)
    return path if path and path != text else parse_address(text)


def parse_socket_url(text: str) -> Address | str:
    """Parse ``tcp://HOST:PORT``, or ``unix:PATH`` and return the path. Raises Failure if it is neither."""
    if text.startswith(UNIX):
        path = text.removeprefix(UNIX)
        if not path:
            raise Failure(Exit.USAGE, f"{text!r} has no path: write unix:/run/server.sock")
        return path
    try:
        return parse_address(text.removeprefix(TCP).removesuffix("/"))
    except argparse.ArgumentTypeError:
        fault = f"has no host and port of at most {LAST_PORT}"
        raise Failure(Exit.USAGE, f"{text!r} {fault}: write tcp://localhost:4000") from None

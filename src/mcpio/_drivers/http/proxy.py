"""HTTP proxies between a client and its server."""

from __future__ import annotations

import base64
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment

import attrs
import h11

from mcpio._drivers.event_loop import ByteStream
from mcpio.http.location import Location

__all__ = ["Proxy", "find_proxy", "open_tunnel"]

RECEIVE: Final = 4096
"""Bytes to request from one read."""


@attrs.frozen
class Proxy:
    """The address of a proxy, and the client's credentials for it."""

    host: str
    port: int
    authorization: bytes | None = attrs.field(default=None, repr=False)
    """The value of the ``Proxy-Authorization`` header."""

    @classmethod
    def parse(cls, url: str) -> Proxy:
        """Return the proxy of a URL: ``http://host:port``, optionally with a name and a password before the host.

        Raises ValueError, whose message does not show the password.
        """
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http":
            raise ValueError(f"a proxy's URL begins with http://, not {parts.scheme}://")
        place = Location.parse(f"http://{parts.netloc.rpartition('@')[2]}/")
        authorization = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = b"Basic " + base64.b64encode(pair.encode())
        return cls(place.host, place.port, authorization)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The header fields for the proxy."""
        return [] if self.authorization is None else [(b"proxy-authorization", self.authorization)]


def find_proxy(location: Location, given: str | None, *, trust_env: bool) -> Proxy | None:
    """Return the proxy to use, if any: the given one, or that of the environment if it is trusted."""
    if location.unix is not None and given is not None:
        raise ValueError("no proxy leads to a Unix socket")
    if given is not None:
        return Proxy.parse(given)
    if not trust_env or location.unix is not None:
        return None
    proxies = getproxies_environment()
    found = proxies.get(location.scheme) or proxies.get("all")
    return Proxy.parse(found) if found and not _goes_direct(location, proxies.get("no", "")) else None


def _goes_direct(location: Location, exceptions: str) -> bool:
    """Whether ``NO_PROXY`` names the host or a domain above it, with or without the port; ``*`` names all hosts."""
    for each in exceptions.split(","):
        name = each.strip().lower().lstrip(".").removesuffix(f":{location.port}")
        if name and (name == "*" or location.host == name.strip("[]") or location.host.endswith(f".{name}")):
            return True
    return False


async def open_tunnel(stream: ByteStream, location: Location, proxy: Proxy) -> None:
    """Ask a proxy to connect the stream to a server. Raises OSError if it refuses."""
    http = h11.Connection(h11.CLIENT)
    authority = f"[{location.host}]" if ":" in location.host else location.host
    target = f"{authority}:{location.port}".encode()
    head = h11.Request(method="CONNECT", target=target, headers=[(b"host", target), *proxy.headers])
    await stream.send_all((http.send(head) or b"") + (http.send(h11.EndOfMessage()) or b""))
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some(RECEIVE)))
        elif isinstance(event, h11.Response):
            if not 200 <= event.status_code < 300:
                raise OSError(f"the proxy answered with status {event.status_code}")
            return
        elif not isinstance(event, h11.InformationalResponse):
            raise OSError("the proxy closed the connection")

"""Fetching documents over HTTP, through proxies too."""

from __future__ import annotations

import base64
import ssl
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment

import attrs
import h11

from mcpio._drivers.event_loop import ByteStream, EventLoop, reason_of
from mcpio.auth.effects import Fetch, Response
from mcpio.auth.urls import EffectFailed, Reach, is_loopback_host
from mcpio.http.client import Location

# ---------------------------------------------------------------------------------------------------------------- proxy
# HTTP proxies between a client and its server.

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
            raise ValueError(f"a proxy's URL must begin with http://, not {parts.scheme}://")
        location = Location.parse(f"http://{parts.netloc.rpartition('@')[2]}/")
        authorization = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = b"Basic " + base64.b64encode(pair.encode())
        return cls(location.host, location.port, authorization)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The header fields for the proxy."""
        return [] if self.authorization is None else [(b"proxy-authorization", self.authorization)]


def find_proxy(location: Location, proxy: str | None, *, trust_env: bool) -> Proxy | None:
    """Return the proxy to use, if any: the given one, or that of the environment if it is trusted."""
    if location.unix is not None and proxy is not None:
        raise ValueError("proxy must be None for a Unix socket")  # without the value, which may contain a password
    if proxy is not None:
        return Proxy.parse(proxy)
    if not trust_env or location.unix is not None:
        return None
    proxies = getproxies_environment()
    url = proxies.get(location.scheme) or proxies.get("all")
    return Proxy.parse(url) if url and not _goes_direct(location, proxies.get("no", "")) else None


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


# ---------------------------------------------------------------------------------------------------------------- fetch
# One-shot HTTP requests to authorization servers and for keys, whose addresses are judged before use (SEC-03).

_REDIRECTS: Final = (301, 302, 303, 307, 308)

_RECEIVE_SIZE: Final = 65536
"""Bytes requested by one read."""

_ONE_ADDRESS: Final = 3.0
"""Seconds for connecting to one of several addresses."""

_OWN_FIELDS: Final = (
    ("accept-encoding", "identity"),
    ("connection", "close"),
    # Some providers reject requests that do not name their client.
    ("user-agent", "mcpio"),
)


async def fetch(
    effect: Fetch,
    loop: EventLoop,
    *,
    ssl_context: ssl.SSLContext | None = None,
    proxy: str | None = None,
    trust_env: bool = False,
    reach: Reach | None = None,
) -> Response:
    """Perform the request of a `Fetch` and return the response, of any status, with header names in lower case.

    Nothing is sent to an address that ``effect.reach`` does not allow: the host is resolved once, and the connection
    goes to the addresses that were judged. Through a proxy only a host that is an address can be judged.

    Args:
        effect: The request. It is bounded by its ``timeout``, ``max_bytes`` and ``redirects``.
        loop: The running event loop.
        ssl_context: Settings for HTTPS; ``None`` trusts the authorities of the system.
        proxy: The URL of an HTTP proxy.
        trust_env: Whether to use the proxy of the environment without ``proxy``.
        reach: The reach to enforce in place of ``effect.reach``.

    Raises:
        EffectFailed: There is no response: no connection, an address out of reach, malformed HTTP, too long a body,
            or no end within ``timeout``.

    """
    reach = effect.reach if reach is None else reach
    failures: tuple[type[Exception], ...] = (*loop.broken, OSError, h11.ProtocolError, ValueError)
    try:
        with loop.scope(effect.timeout):
            location = Location.parse(effect.url)
            left = effect.redirects if effect.method == "GET" else 0
            while True:
                through = find_proxy(location, proxy, trust_env=trust_env)
                response = await _exchange(loop, effect, location, through, ssl_context, reach)
                target = _redirect(response, location)
                if target is None or not left:
                    return response
                location, left = target, left - 1
    except failures as error:
        raise EffectFailed(f"no answer from {_origin(effect.url)}: {reason_of(error)}") from error
    # Only a scope that has expired leads here.
    raise EffectFailed(f"{_origin(effect.url)} does not answer within {effect.timeout:g} s")


async def _exchange(
    loop: EventLoop,
    effect: Fetch,
    location: Location,
    proxy: Proxy | None,
    context: ssl.SSLContext | None,
    reach: Reach,
) -> Response:
    """Send one request on a new connection, and return the response. Raises OSError, and h11's errors."""
    stream = await _connect(loop, location, proxy, context, reach)
    try:
        http = h11.Connection(h11.CLIENT)
        target, headers = location.target, [("host", location.authority), *_OWN_FIELDS, *effect.headers]
        fields = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]
        if proxy is not None and location.scheme == "http":
            target, fields = location.url, [*fields, *proxy.headers]
        body = effect.body or b""
        if effect.method == "POST":
            fields.append((b"content-length", b"%d" % len(body)))
        parts = [http.send(h11.Request(method=effect.method, target=target, headers=fields))]
        if body:
            parts.append(http.send(h11.Data(data=body)))
        parts.append(http.send(h11.EndOfMessage()))
        await stream.send_all(b"".join(part or b"" for part in parts))
        return await _read(stream, http, effect.max_bytes)
    finally:
        # There is one request to a connection, so a graceful end would only wait for the peer.
        await loop.abort(stream)


async def _read(stream: ByteStream, http: h11.Connection, most: int) -> Response:
    """Read a response. Raises OSError for a body over ``most`` bytes, and a connection that ends early."""
    head: h11.Response | None = None
    body = bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some(_RECEIVE_SIZE)))
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > most:
                raise OSError(f"the body is longer than {most} bytes")
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
            return Response(head.status_code, headers, bytes(body))
        elif not isinstance(event, h11.InformationalResponse):
            raise OSError("the connection was closed before the response")


async def _connect(
    loop: EventLoop, location: Location, proxy: Proxy | None, context: ssl.SSLContext | None, reach: Reach
) -> ByteStream:
    """Connect to a location, through the proxy if there is one, and start TLS for ``https``. Raises OSError."""
    if location.unix is not None:
        raise OSError("a peer cannot name a Unix socket")
    if proxy is None:
        stream = await _connect_directly(loop, location, reach)
    else:
        _judge_host(location.host, reach)
        stream = await loop.open_stream(proxy.host, proxy.port, None)
    try:
        if location.scheme == "http":
            return stream
        if proxy is not None:
            await open_tunnel(stream, location, proxy)
        return await loop.start_tls(stream, context or ssl.create_default_context(), location.host)
    except BaseException:
        await loop.abort(stream)
        raise


async def _connect_directly(loop: EventLoop, location: Location, reach: Reach) -> ByteStream:
    """Connect to the first address of the host that answers.

    The addresses are resolved here and connected to as they are: a second look-up might give others (DNS rebinding).
    """
    addresses = await loop.resolve(location.host, location.port)
    allowed = [address for address in addresses if reach.allows(address)]
    if not allowed:
        raise OSError(_out_of_reach(location.host, ", ".join(addresses), reach))
    for address in allowed[:-1]:
        with loop.scope(_ONE_ADDRESS):
            try:
                return await loop.open_stream(address, location.port, None)
            except OSError:
                continue
    return await loop.open_stream(allowed[-1], location.port, None)


def _judge_host(host: str, reach: Reach) -> None:
    """Raise OSError if a host is an address out of reach. A proxy resolves names, so they cannot be judged here."""
    is_address = ":" in host or host.replace(".", "").isdigit() or host.lower().startswith("0x")
    if (is_loopback_host(host) and reach is not Reach.LOOPBACK) or (is_address and not reach.allows(host)):
        raise OSError(_out_of_reach(host, host, reach))


def _out_of_reach(host: str, address: str, reach: Reach) -> str:
    named = host if host == address else f"{host} ({address})"
    return f"{named} is not an address that a server at a {reach.value} address may lead to"


def _redirect(response: Response, location: Location) -> Location | None:
    """Return where a redirect within the origin leads, or ``None``."""
    if response.status not in _REDIRECTS:
        return None
    return next((location.join(value) for name, value in response.headers if name == "location"), None)


def _origin(url: str) -> str:
    """Return the origin of a URL, for messages: queries may hold secrets."""
    return "/".join(url.split("/", 3)[:3])

"""The URL of a server, parsed, and how redirects and references resolve against it."""

from __future__ import annotations

import re
from urllib.parse import unquote, urljoin, urlsplit

import attrs

from mcpio._checks import required

__all__ = ["Location"]

_PORTS = {"http": 80, "https": 443}
_UNIX = re.compile(r"(?P<scheme>https?)\+unix://(?P<path>[^/?#]*)")
_HOST = re.compile(r"[A-Za-z0-9._~%:-]+")


@attrs.frozen
class Location:
    """An ``http://`` or ``https://`` URL.

    In ``http+unix://`` and ``https+unix://`` URLs the percent-encoded path of a Unix socket takes the place of the
    host; the ``Host`` field is then ``localhost``.
    """

    scheme: str
    host: str
    """The host, in ASCII and without the brackets of an IPv6 address."""
    port: int
    target: str
    """The path with its query, as in the request line."""
    unix: str | None = None
    """The path of the Unix socket to connect to, in place of host and port; ``None`` for TCP."""

    @classmethod
    def parse(cls, url: str) -> Location:
        """Parse a URL. Raises ValueError if it is not one of a server, and TypeError if it is no string."""
        if (found := _UNIX.match(required("url", url, str))) is not None:
            path = unquote(found["path"])
            if not path or "\0" in path:
                raise ValueError(f"the URL {url!r:.100} names no socket: http+unix://%2Frun%2Fserver.sock/mcp")
            return attrs.evolve(cls.parse(f"{found['scheme']}://localhost{url[found.end() :]}"), unix=path)
        parts = urlsplit(url)
        if parts.scheme not in _PORTS:
            raise ValueError(f"a server's URL begins with http:// or https://, not {url!r:.100}")
        if not parts.hostname:
            raise ValueError(f"the URL {url!r:.100} names no host")
        if parts.username is not None or parts.password is not None:
            raise ValueError("a URL must not contain credentials: give them as headers")
        # A UnicodeError of this is a ValueError too.
        host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
        if _HOST.fullmatch(host) is None:
            raise ValueError(f"the URL {url!r:.100} names a host that cannot be")
        if parts.port == 0:
            raise ValueError(f"the URL {url!r:.100} has port 0, which cannot be connected to")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if not target.isascii() or any(character <= " " or character == "\x7f" for character in target):
            raise ValueError(f"the URL {url!r:.100} is not encoded: percent-encode other characters than ASCII")
        return cls(parts.scheme, host, parts.port or _PORTS[parts.scheme], target)

    @property
    def place(self) -> str:
        """The address to connect to, for messages."""
        return self.authority if self.unix is None else self.unix

    @property
    def authority(self) -> str:
        """The host, with the port unless it is the default: the value of the ``Host`` field."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole URL."""
        return f"{self.scheme}://{self.authority}{self.target}"

    def at(self, target: str) -> Location:
        """Return the location of another target of this origin."""
        return attrs.evolve(self, target=target)

    def join(self, reference: str) -> Location | None:
        """Resolve a reference against this URL; return ``None`` if it is invalid or of another origin (HTTP-38).

        Credentials must not be sent to another origin.
        """
        try:
            found = Location.parse(urljoin(self.url, reference))
        except ValueError:
            return None
        same = (found.scheme, found.host, found.port) == (self.scheme, self.host, self.port)
        same = same and found.unix in (None, self.unix)
        return attrs.evolve(found, unix=self.unix) if same else None

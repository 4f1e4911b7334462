"""The fields of HTTP/2, as the HTTP machine has them: what begins with a colon there is not among its fields."""

from __future__ import annotations

from collections.abc import Hashable

from mcpio.http.model import Headers, RequestHead
from mcpio.trio._http.responses import LINE_END, http_date

__all__ = ["request_head", "response_fields"]


def request_head(exchange: Hashable, fields: Headers, principal: Hashable) -> RequestHead | None:
    """Return a head as HTTP/1.1 would have it; ``None`` for one that is none. h2 has checked all but the path."""
    pseudo = {name: value for name, value in fields if name.startswith(b":")}
    host = pseudo.get(b":authority")
    headers = [(b"host", host)] if host is not None else []
    headers += [
        (bytes(name), bytes(value))
        for name, value in fields
        if not name.startswith(b":") and (name != b"host" or host is None)
    ]
    target = pseudo.get(b":path")
    if target is None:
        # Of CONNECT.
        target = host or b""
    elif not target.startswith(b"/") and target != b"*":
        return None
    return RequestHead(exchange, pseudo[b":method"].decode("latin-1"), target.decode("latin-1"), headers, principal)


def response_fields(status: int, headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the fields of a response. ``ValueError`` for what would be more fields than that where it is passed on."""
    fields = [(b":status", b"%d" % status), *headers, (b"date", http_date())]
    text = b"".join([part for field in fields for part in field])
    if b"\r" in text or b"\n" in text or b"\0" in text:
        raise ValueError(LINE_END)
    return fields

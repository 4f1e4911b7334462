"""A login as a ladder: a client's authorizer and the authorization server of ``mcpio.testing``, and what passes."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs, urlsplit

from sequence_svg import Arrow, Note, Row, draw_sequence

from mcpio.auth import Authorizer, Challenge, MemoryCredentials, OAuth
from mcpio.auth.effects import AskUser, BindRedirect, Fetch, LoadCredentials, SaveCredentials
from mcpio.testing import AuthorizationServer

__all__ = ["draw_login"]

_CLIENT: Final = "client"
_SERVER: Final = "MCP\nserver"
_ISSUER: Final = "authorization\nserver"
_TITLE: Final = (
    "A login: the 401 of the server leads to its metadata, to its authorization server, "
    "to a browser, to a token, and to the same call again"
)
_NOW: Final = 1_000_000.0
_PURPOSES: Final = {
    "/.well-known/oauth-protected-resource": (_SERVER, "metadata", "the issuer"),
    "/.well-known/oauth-authorization-server": (_ISSUER, "metadata", "where to register and log in"),
    "/register": (_ISSUER, "/register", "an id for this client"),
    "/token": (_ISSUER, "/token · the code, the verifier", "access and refresh token"),
}
"""By the beginning of the path: whom a request asks, what for, and what the answer has."""


def draw_login() -> str:
    """Return an ``<svg>`` element."""
    return draw_sequence((_CLIENT, _SERVER, _ISSUER), _login(), _TITLE)


def _login() -> list[Row]:
    url = "https://mcp.example.com/mcp"
    server = AuthorizationServer("https://as.example.com", url)
    authorizer = Authorizer(url, OAuth(client_name="docs"), entropy=bytes, epoch=_NOW)
    store = MemoryCredentials()
    rows: list[Row] = [Arrow(_CLIENT, _SERVER, ("POST /mcp",))]

    def perform() -> None:
        while (effect := authorizer.next_effect()) is not None:
            match effect:
                case Fetch(token=token):
                    response = server.respond(effect, _NOW)
                    rows.extend(_fetched(effect, response.status))
                    authorizer.answer(token, response, now=0.0)
                case LoadCredentials(key=key, token=token):
                    authorizer.answer(token, store.load(key), now=0.0)
                case SaveCredentials(key=key, record=record, version=version, token=token):
                    authorizer.answer(token, store.swap(key, record, version), now=0.0)
                case BindRedirect(path=path, token=token):
                    authorizer.answer(token, f"http://127.0.0.1:3118{path}", now=0.0)
                case AskUser(url=asked, token=token):
                    callback = server.approve(asked, _NOW)
                    rows.append(Arrow(_CLIENT, _ISSUER, (f"a browser opens {urlsplit(asked).path}",)))
                    rows.append(Note("the person logs in"))
                    (code,) = (name for name in parse_qs(urlsplit(callback).query) if name == "code")
                    rows.append(
                        Arrow(_ISSUER, _CLIENT, (f"{urlsplit(callback).hostname}{urlsplit(callback).path} · {code}",))
                    )
                    authorizer.answer(token, callback, now=0.0)

    authorizer.authorize("call", "tools/call", now=0.0)
    perform()
    assert authorizer.authorize("call", "tools/call", now=0.0) == (), "nothing is stored"
    challenge = server.accepts([], _NOW)
    assert isinstance(challenge, Challenge)
    rows.append(Arrow(_SERVER, _CLIENT, ("401", challenge.scheme)))
    authorizer.refused("call", 401, [str(challenge)], now=0.0)
    perform()
    headers = authorizer.authorize("call", "tools/call", now=0.0)
    assert headers is not None
    assert not isinstance(server.accepts(list(headers), _NOW), Challenge), "the token is good"
    rows.append(Arrow(_CLIENT, _SERVER, ("POST /mcp", "with the token")))
    rows.append(Arrow(_SERVER, _CLIENT, ("200",)))
    return rows


def _fetched(request: Fetch, status: int) -> list[Row]:
    path = urlsplit(request.url).path
    (purpose,) = (purpose for start, purpose in _PURPOSES.items() if path.startswith(start))
    asked, what, answer = purpose
    return [Arrow(_CLIENT, asked, (f"{request.method} {what}",)), Arrow(asked, _CLIENT, (f"{status} · {answer}",))]

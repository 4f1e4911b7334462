"""An authorization server, documents at URLs, a store and a person: what performs the effects of a flow in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from mcpio.auth import (
    AskUser,
    BindRedirect,
    Challenge,
    CloseRedirect,
    Credentials,
    Effect,
    EffectFailed,
    Fetch,
    Flow,
    FlowContext,
    LoadCredentials,
    LockCredentials,
    MemoryCredentials,
    NeedAssertion,
    OAuth,
    Pause,
    Reach,
    Response,
    RestoreCredentials,
    SaveCredentials,
    Secret,
    ShowCode,
    UnlockCredentials,
    bearer_challenge,
    restore_credentials,
    run,
)
from mcpio.framing.json import dumps
from mcpio.testing import AuthorizationServer

T = TypeVar("T")

MCP = "https://mcp.example.com/mcp"
AS = "https://as.example.com"
PRM = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
CHALLENGE = bearer_challenge(resource_metadata=PRM)
REDIRECT = "http://127.0.0.1:3118/callback"


def counted() -> Callable[[int], bytes]:
    """Return entropy that is the same in every run, and never twice."""
    counter = iter(range(1, 1 << 60))
    return lambda size: next(counter).to_bytes(size, "big")


class World:
    """Performs effects. ``answers`` has what is at a URL in place of the authorization server's answer."""

    def __init__(self, server: AuthorizationServer | None = None, url: str = MCP) -> None:
        self.server = server or AuthorizationServer()
        self.servers = [self.server]
        self.url = url
        self.now = 1_000_000.0
        self.answers: dict[str, Response | EffectFailed | Any] = {}
        self.store = MemoryCredentials()
        self.effects: list[Effect] = []
        self.jwt = "a.b.c"
        self.entropy = counted()
        self.on_code: Callable[[ShowCode], object] = lambda shown: self.server.approve_device(shown.user_code)

    def perform(self, effect: Effect) -> Any:
        self.effects.append(effect)
        match effect:
            case Fetch():
                return self.fetch(effect)
            case BindRedirect(host=host, port=port, path=path):
                return f"http://{host}:{port or 3118}{path}"
            case LoadCredentials(key=key):
                return self.store.load(key)
            case SaveCredentials(key=key, record=record, version=version):
                return self.store.swap(key, record, version)
            case RestoreCredentials():
                restore_credentials(self.store, effect)
            case NeedAssertion():
                return Secret(self.jwt)
            case Pause(seconds=seconds):
                self.now += seconds
            case ShowCode():
                self.on_code(effect)
            case AskUser(url=url):
                return self.server.approve(url, self.now)
            case LockCredentials() | UnlockCredentials() | CloseRedirect():
                pass
        return None

    def fetch(self, fetch: Fetch) -> Response:
        found = self.answers.get(fetch.url)
        if isinstance(found, EffectFailed):
            raise found
        if isinstance(found, Response):
            return found
        if found is not None:
            return Response(200, (), dumps(found), self.now)
        for server in self.servers:
            response = server.respond(fetch, self.now)
            if response.status != 404:
                return response
        return Response(404, (), b"Cannot GET", self.now)

    @property
    def fetched(self) -> list[str]:
        return [effect.url for effect in self.effects if isinstance(effect, Fetch)]

    @property
    def context(self) -> FlowContext:
        return FlowContext(server_url=self.url, entropy=self.entropy, now=self.now, reach=Reach.of_url(self.url))

    def run(self, flow: Flow[T]) -> T:
        return run(flow, self.perform)

    def log_in(
        self, options: OAuth | None = None, known: Credentials | None = None, challenge: Challenge | None = CHALLENGE
    ) -> Credentials:
        """Return the credentials after a whole login."""
        options = options or OAuth()
        pending = self.run(options.begin(self.context, known, challenge))
        callback = next(server for server in self.servers if pending.url.startswith(server.issuer + "/")).approve(
            pending.url, self.now
        )
        return self.run(options.finish(self.context, pending, callback, known))

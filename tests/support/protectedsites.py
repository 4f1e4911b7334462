"""A protected server, and the tokens that its clients have."""

from __future__ import annotations

import time
from typing import Any

from authkeys import ED25519

from mcpio import Context, Server
from mcpio.auth import ApiKeys, JwtVerifier, ResourceServer, api_key_digest, load_signer, signed_jwt

__all__ = ["AS", "JWKS", "MCP", "SIGNER", "bearer", "notes", "protected", "token"]

AS = "https://id.example.com"
MCP = "https://mcp.example.com/mcp"
SIGNER: Any = load_signer(ED25519, key_id="k1")
JWKS = {"keys": [{**SIGNER.public_jwk, "kid": "k1"}]}


def protected(jwks: Any = None, **options: Any) -> ResourceServer:
    """Return what a server is protected by: JWTs, and one API key in a field of its own."""
    keys = ApiKeys({api_key_digest("mcp_key"): "robot"}, header="x-api-key")
    verify: list[Any] = [JwtVerifier(AS, jwks=JWKS if jwks is None else jwks), keys]
    return ResourceServer(resource=MCP, authorization_servers=[AS], verify=verify, **options)


def token(scope: str = "", *, lasts: float = 3600.0, **claims: Any) -> str:
    """Return a token that is valid for some seconds from now."""
    said = {"iss": AS, "sub": "ada", "client_id": "app", "aud": MCP, "exp": time.time() + lasts, "scope": scope}
    return signed_jwt(SIGNER, {**said, **claims}, "at+jwt")


def bearer(*args: Any, **claims: Any) -> dict[str, str]:
    """Return the header field with a token."""
    return {"authorization": f"Bearer {token(*args, **claims)}"}


def notes() -> Server:
    """Return a server with a tool for everyone, and one that needs a scope."""
    server = Server("notes", "1")

    @server.tool
    def who(ctx: Context) -> str:
        assert ctx.grant is not None
        return f"{ctx.grant.subject} by {ctx.grant.client_id}: {' '.join(sorted(ctx.grant.scopes))}"

    @server.tool(scopes="notes:write")
    def erase() -> str:
        return "erased"

    return server

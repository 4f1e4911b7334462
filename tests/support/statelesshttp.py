"""Stateless requests over HTTP: what their tests share."""

from __future__ import annotations

from typing import Any

from httpsite import Site
from httpwire import Exchange, RawClient
from stateless import meta

from mcpio import Context, Server
from mcpio.engine.options import Options
from mcpio.engine.stateless_engine import StatelessEngine
from mcpio.errors import RequestError
from mcpio.http.calls import Calls
from mcpio.revisions import REV_2026_07_28, REVISIONS

TWO_ERAS = Options(revisions=REVISIONS)
ONE_ERA = Options(revisions=(REV_2026_07_28,))
SCHEMA = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "code": {"type": "integer"}},
}


def server_of(options: Options = TWO_ERAS) -> Server:
    """Return a server whose tools answer in each way."""
    server = Server("stateless", "1", options=options)

    @server.tool(input_schema=SCHEMA)
    def relay(region: str = "", code: int = 0) -> str:
        """Fail with a code, or answer."""
        if code:
            raise RequestError(code, "relayed", {"requiredCapabilities": {"sampling": {}}})
        return f"in {region}"

    @server.tool
    async def wait(ctx: Context, seconds: float, code: int = 0) -> str:
        """Answer after a while."""
        try:
            await ctx.session.driver.runtime.sleep(seconds)
        finally:
            ended.append(ctx.session.driver.now())
        return relay(code=code)

    @server.tool
    async def tell(ctx: Context) -> str:
        """Log, then answer."""
        ctx.log("warning", "look")
        return "told"

    ended: list[float] = []
    server.ended = ended  # type: ignore[attr-defined]  # for the test
    return server


class Post:
    """A request that is right, for a test to change."""

    def __init__(self, method: str = "tools/call", id: Any = 7, /, **params: Any) -> None:
        self.body: Any = {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": meta(), **params}}
        self.fields = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
        if "name" in params:
            self.fields["mcp-name"] = params["name"]

    @property
    def meta(self) -> dict[str, Any]:
        found: dict[str, Any] = self.body["params"]["_meta"]
        return found

    async def to(self, client: RawClient) -> Exchange:
        return await client.post(self.body, **self.fields)


def calls_of(site: Site) -> Calls:
    assert site.machine.calls is not None
    return site.machine.calls


def engine_of(site: Site) -> StatelessEngine:
    return calls_of(site).connection


def post_to(site: Site, post: Post, **headers: str) -> Exchange:
    fields = {name.replace("-", "_"): value for name, value in post.fields.items()}
    return site.post(post.body, **fields, **headers)

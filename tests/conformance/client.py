"""Does what each scenario of the official conformance suite asks of a client: ``python client.py [--asyncio] URL``.

The suite names the scenario in the environment variable ``MCP_CONFORMANCE_SCENARIO``, and in
``MCP_CONFORMANCE_PROTOCOL_VERSION`` the revision, from which the era follows. The client runs on Trio, or on asyncio.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import trio

import mcpio.asyncio
import mcpio.trio
from mcpio import Client
from mcpio.app import RequestScope
from mcpio.auth import (
    AskUser,
    ClientCredentials,
    EnterpriseManaged,
    MemoryCredentials,
    OAuth,
    ShowCode,
    WorkloadIdentity,
    load_signer,
)
from mcpio.errors import ConnectFailed, ErrorCode, McpError, RequestError, SkillChanged
from mcpio.revisions import REV_2026_07_28
from mcpio.types import (
    CreateMessageRequest,
    CreateMessageResult,
    ElicitFormRequest,
    ElicitResult,
    ElicitURLRequest,
)

DEADLINE = 50.0
"""Seconds for a whole scenario: nobody else ends a client that hangs."""

CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
"""What the suite tells about a scenario, such as the client that is registered."""

ERA: Final = "stateless" if os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION") == REV_2026_07_28.name else "handshake"
"""The era that the scenario's server speaks."""


async def main(open_http: Callable[..., Any], url: str) -> None:
    """Hold the conversation of one scenario."""
    name = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    options: dict[str, Any] = {"era": ERA, "elicitation": accept_defaults}
    if name == "request-metadata":
        options |= {"sampling": refuse_sampling, "roots": []}
    if name.startswith("auth/"):
        options = {"era": ERA, "auth": authorization(name), "credentials": MemoryCredentials(), "ask_user": visit}
    scenario = SCENARIOS.get(name, use_protected if name.startswith("auth/") else list_tools)
    try:
        async with open_http(url, **options) as client:
            await scenario(client)
    except (ConnectFailed, McpError):
        # A server that is to be mistrusted, or never content: giving up is what is asked for.
        if name not in GIVE_UP:
            raise


async def on_trio(url: str) -> None:
    """Hold the conversation on Trio."""
    with trio.fail_after(DEADLINE):
        await main(mcpio.trio.open_http, url)


async def on_asyncio(url: str) -> None:
    """Hold the conversation on asyncio."""
    async with asyncio.timeout(DEADLINE):
        await main(mcpio.asyncio.open_http, url)


async def accept_defaults(scope: RequestScope, request: ElicitFormRequest | ElicitURLRequest) -> ElicitResult:
    """Accept a form as it stands, filled in with its defaults, or confirm where it asks for that."""
    assert isinstance(request, ElicitFormRequest)
    confirms = "confirmed" in request.requested_schema.properties
    return ElicitResult("accept", {"confirmed": True} if confirms else {})


def refuse_sampling(scope: RequestScope, request: CreateMessageRequest) -> CreateMessageResult:
    """Refuse to sample: these servers only look whether the client can be asked."""
    raise RequestError(ErrorCode.INVALID_REQUEST, "Nobody samples here")


def authorization(name: str) -> Any:
    """Return how to be authorized in a scenario."""
    client_id: str = CONTEXT.get("client_id", "")
    secret: str | None = CONTEXT.get("client_secret")
    match name:
        case "auth/client-credentials-basic":
            return ClientCredentials(client_id, secret=secret)
        case "auth/client-credentials-jwt":
            return ClientCredentials(client_id, signer=load_signer(CONTEXT["private_key_pem"]))
        case "auth/enterprise-managed-authorization":
            return EnterpriseManaged(
                client_id=client_id,
                client_secret=secret,
                idp_issuer=CONTEXT["idp_issuer"],
                idp_token_endpoint=CONTEXT["idp_token_endpoint"],
                idp_client_id=CONTEXT["idp_client_id"],
                assertion=CONTEXT["idp_id_token"],
            )
        case "auth/wif-jwt-bearer":
            return WorkloadIdentity(client_id, assertion=CONTEXT["valid_jwt"])
        case _ if client_id:
            return OAuth(client_id=client_id, client_secret=secret)
        case _:
            return OAuth(client_metadata_url="https://conformance-test.local/client-metadata.json")


def visit(effect: AskUser | ShowCode) -> str | None:
    """Log in as a person does, whom these servers ask nothing: return where the browser is sent."""
    assert isinstance(effect, AskUser)
    parts = urlsplit(effect.url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    connection.request("GET", f"{parts.path}?{parts.query}")
    return connection.getresponse().headers["location"]


async def use_protected(client: Client) -> None:
    """List the tools, and call the first."""
    tools = await client.list_tools()
    await client.call_tool(tools.tools[0].name, {})


async def list_skills(client: Client) -> None:
    """List the skills, of which no file may be read before one is opened."""
    async for _ in client.skills():
        pass


async def open_skills(client: Client) -> None:
    """Open each skill, none of which is what its entry says."""
    async for skill in client.skills():
        try:
            await skill.open()
        except SkillChanged:
            continue
        raise AssertionError(f"{skill.uri} was opened")


async def do_nothing(client: Client) -> None:
    """Leave it at the handshake: this server offers nothing."""


async def list_tools(client: Client) -> None:
    """Ask for the tools."""
    await client.list_tools()


async def call_tool(client: Client) -> None:
    """Add two numbers."""
    await client.list_tools()
    await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def be_asked(client: Client) -> None:
    """Call the tool that asks for a form."""
    await client.list_tools()
    await client.call_tool("test_client_elicitation_defaults", {})


async def come_back(client: Client) -> None:
    """Call the tool whose answer has to be fetched."""
    await client.list_tools()
    await client.call_tool("test_reconnection", {})


async def echo_schema(client: Client) -> None:
    """Send a tool's schema back just as it came."""
    tools = {tool.name: tool async for tool in client.tools()}
    schema = tools["json_schema_2020_12_tool"].input_schema
    await client.call_tool("json_schema_echo", {"schema": schema})


async def ask_again(client: Client) -> None:
    """Ask once more what the server offers: this one declares nothing else to be asked for."""
    await client.discover()


async def use_everything(client: Client) -> None:
    """Make a request of each method that the server has."""
    async for tool in client.tools():
        await client.call_tool(tool.name, {})
    async for resource in client.resources():
        await client.read_resource(resource.uri)
    async for prompt in client.prompts():
        await client.get_prompt(prompt.name, {})


async def make_calls(client: Client) -> None:
    """Make the calls that the suite lists."""
    await client.list_tools()
    for call in CONTEXT["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def call_usable(client: Client) -> None:
    """Call each tool that the client lets its user see, with a text for each argument. It warns of those left out."""
    logging.getLogger("mcpio").addHandler(logging.NullHandler())
    async for tool in client.tools():
        await client.call_tool(tool.name, dict.fromkeys(tool.input_schema.get("properties", {}), "text"))


async def answer_rounds(client: Client) -> None:
    """Call the tools that ask before they answer, and between them one that does not."""
    await client.list_tools()
    for name in ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"):
        await client.call_tool(name, {})


SCENARIOS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "initialize": do_nothing,
    "tools_call": call_tool,
    "elicitation-sep1034-client-defaults": be_asked,
    "sse-retry": come_back,
    "json-schema-2020-12-preservation": echo_schema,
    "request-metadata": ask_again,
    "http-standard-headers": use_everything,
    "http-custom-headers": make_calls,
    "http-invalid-tool-headers": call_usable,
    "sep-2322-client-request-state": answer_rounds,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": open_skills,
    "sep-2640-client-verify-size": open_skills,
    "sep-2640-client-verify-frontmatter": open_skills,
}
"""What to do, by the name of the scenario; else, list the tools."""

GIVE_UP = {
    "auth/scope-retry-limit",
    "auth/resource-mismatch",
    "auth/metadata-issuer-mismatch",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
}
"""The scenarios in which the client has to give up."""

if __name__ == "__main__":
    if "--asyncio" in sys.argv:
        asyncio.run(on_asyncio(sys.argv[-1]))
    else:
        trio.run(on_trio, sys.argv[-1])

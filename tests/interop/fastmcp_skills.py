"""Skills with ``fastmcp``: ``python fastmcp_skills.py server FOLDER`` serves them, ``client COMMAND ...`` uses them.

The client prints what it got as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.skills import SkillsClientExtension
from fastmcp.skills.provider import SkillsDirectoryProvider


async def use(command: list[str]) -> dict[str, Any]:
    transport = StdioTransport(command[0], command[1:])
    async with Client(transport, extensions=[SkillsClientExtension()]) as client:
        found: dict[str, Any] = {}
        for entry in await client.list_skills():
            again = (await client.get_skill_mcp(entry.uri)).skill
            skill = await client.read_skill(entry.uri)
            found[entry.uri] = {
                "same": again == entry,
                "frontmatter": entry.frontmatter.root,
                "files": sorted(file.uri for file in entry.resources),
                "read": skill.frontmatter.name if hasattr(skill, "frontmatter") else skill.name,
            }
        return found


if sys.argv[1] == "server":
    server = FastMCP("skills of fastmcp")
    server.add_provider(SkillsDirectoryProvider(sys.argv[2]))
    server.run(show_banner=False)
else:
    print(json.dumps(anyio.run(use, sys.argv[2:])))

"""Skills between ``fastmcp`` and mcpio, both ways, over processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from skilled import head, skill

import mcpio.asyncio
import mcpio.trio
from mcpio import Client

PEER = [sys.executable, str(Path(__file__).with_name("fastmcp_skills.py"))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    skill(tmp_path, "refunds", head("refunds", license="MIT") + "# Refunds\n", mail_md="Dear", logo_png=b"\x89\0\xff")
    skill(tmp_path, "billing", notes_txt="é")
    return tmp_path


@pytest.mark.req("SKILL-21", "SKILL-22")
@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_their_skills_are_read_and_checked(folder: Path, loop: str) -> None:
    async def use(client: Client) -> None:
        skills = {each.name: each async for each in client.skills()}
        assert set(skills) == {"refunds", "billing"}
        refunds = skills["refunds"]
        assert (await refunds.open()).endswith("# Refunds\n")
        assert await refunds.read("logo.png") == b"\x89\0\xff"
        assert (await client.skill(refunds.uri)).fingerprint == refunds.fingerprint
        assert await refunds.read("mail.md") == b"Dear"

    command = [*PEER, "server", str(folder)]

    async def on_trio() -> None:
        async with mcpio.trio.open_stdio(command, era="stateless") as client:
            await use(client)

    async def on_asyncio() -> None:
        async with mcpio.asyncio.open_stdio(command, era="stateless") as client:
            await use(client)

    if loop == "trio":
        import trio

        trio.run(on_trio)
    else:
        import asyncio

        asyncio.run(on_asyncio())


@pytest.mark.req("SKILL-05", "SKILL-07", "SKILL-08")
def test_their_client_reads_and_checks_our_skills(folder: Path) -> None:
    serve = [sys.executable, "-m", "mcpio", "serve", "--skills", str(folder)]
    ran = subprocess.run([*PEER, "client", *serve], capture_output=True, text=True, timeout=50)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert {uri: each["read"] for uri, each in found.items()} == {
        "skill://refunds/SKILL.md": "refunds",
        "skill://billing/SKILL.md": "billing",
    }
    assert all(each["same"] for each in found.values())
    assert found["skill://refunds/SKILL.md"]["frontmatter"]["license"] == "MIT"
    assert len(found["skill://refunds/SKILL.md"]["files"]) == 3

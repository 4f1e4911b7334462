"""Skills over the drivers of both event loops: through a proxy, and of many servers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from skilled import head, skill

import mcpio.asyncio
import mcpio.trio
from mcpio import Client, Server
from mcpio.errors import LocalProtocolError, RequestError, SkillChanged


def served(folder: Path, prefix: str | None = None) -> Server:
    server = Server("s")
    server.skills.add_folder(folder, prefix)
    return server


@pytest.fixture(params=["trio", "asyncio"])
def run(request: pytest.FixtureRequest) -> Any:
    """Return what runs a function of a loop's drivers."""

    def with_trio(function: Any) -> None:
        trio.run(function, mcpio.trio)

    def with_asyncio(function: Any) -> None:
        import asyncio

        asyncio.run(function(mcpio.asyncio))

    return with_trio if request.param == "trio" else with_asyncio


@pytest.mark.req("SKILL-21", "SKILL-22")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_skill_is_read_in_threads(tmp_path: Path, run: Any, era: Any) -> None:
    directory = skill(tmp_path, "a", more_md="one")

    async def use(drivers: Any) -> None:
        async with drivers.memory_client(served(tmp_path), era=era) as client:
            (found,) = [each async for each in client.skills()]
            assert await found.open() == (directory / "SKILL.md").read_text()
            (directory / "more.md").write_text("two")
            with pytest.raises(SkillChanged):
                await found.read("more.md")
            assert await (await client.skill(found.uri)).read("more.md") == b"two"

    run(use)


def test_skills_pass_a_proxy(tmp_path: Path, run: Any) -> None:
    skill(tmp_path, "a", more_md="one")

    async def use(drivers: Any) -> None:
        proxy = drivers.proxy(partial(drivers.memory_client, served(tmp_path)))
        async with drivers.memory_client(proxy) as client:
            (found,) = [each async for each in client.skills()]
            assert await found.read("more.md") == b"one"
            names = [each.name async for each in client.directory("skill://a")]
            assert names == ["a", "more.md"]
            with pytest.raises(RequestError):
                await client.skill("skill://b/SKILL.md")

    run(use)


def test_server_without_skills_behind_a_proxy_is_not_asked(run: Any) -> None:
    server = Server("s")
    server.tool(lambda: "x", name="x")

    async def use(drivers: Any) -> None:
        async with drivers.memory_client(drivers.proxy(partial(drivers.memory_client, server))) as client:
            with pytest.raises(LocalProtocolError, match="did not declare"):
                await client.skill("skill://a/SKILL.md")

    run(use)


@pytest.mark.req("SKILL-25")
def test_skills_of_one_name_are_told_apart_and_none_is_dropped(tmp_path: Path, run: Any) -> None:
    for path in ("one/x", "one/g/x", "two/x", "two/y"):
        skill(tmp_path, path)
    plain = Server("plain")

    async def use(drivers: Any) -> None:
        config = {
            "first": partial(drivers.memory_client, served(tmp_path / "one")),
            "second": partial(drivers.memory_client, served(tmp_path / "two")),
            "third": partial(drivers.memory_client, served(tmp_path / "two")),
            "plain": partial(drivers.memory_client, plain),
        }
        async with drivers.open_servers(config) as servers:
            found = await servers.skills()
            assert [(each.server, each.item.uri) for each in found] == [
                ("first", "skill://g/x/SKILL.md"),
                ("first", "skill://x/SKILL.md"),
                ("second", "skill://x/SKILL.md"),
                ("second", "skill://y/SKILL.md"),
                ("third", "skill://x/SKILL.md"),
                ("third", "skill://y/SKILL.md"),
            ]
            assert len({each.name for each in found}) == 6
            assert [each.name for each in found[2:]] == ["second__x", "second__y", "third__x", "third__y"]
            assert (await found[0].item.open()).startswith("---")

    run(use)


def test_cancelled_reads_leave_skills_usable(tmp_path: Path) -> None:
    skill(tmp_path, "a", head("a"), more_md="one")

    async def use() -> None:
        async with mcpio.trio.memory_client(served(tmp_path)) as client:
            found = await client.skill("skill://a/SKILL.md")
            for steps in range(12):
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(_read_all, client)
                        nursery.start_soon(found.read, "more.md")
                        for _ in range(steps):
                            await trio.lowlevel.checkpoint()
                        scope.cancel()
            assert await found.read("more.md") == b"one"

    trio.run(use)


async def _read_all(client: Client) -> None:
    async for each in client.skills():
        await each.open()

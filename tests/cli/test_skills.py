"""``mcpio skills``, of servers and of folders, and ``mcpio serve --skills``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from skilled import head, skill

from mcpio import Server
from mcpio.cli import main
from mcpio.cli.exit_status import Exit
from mcpio.cli.reloading import Sources
from mcpio.types import GetSkillResult, ListSkillsResult, ReadResourceResult, SkillEntry, TextResourceContents

if TYPE_CHECKING:
    from tests.cli.conftest import Command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    skill(tmp_path, "refunds", head("refunds", license="MIT") + "# Refunds\n", logo_png=b"\x89\0")
    skill(tmp_path, "group/billing")
    skill(tmp_path, "other/billing")
    return tmp_path


@pytest.fixture
def skilled(folder: Path) -> Server:
    server = Server("s")
    server.skills.add_folder(folder)
    server.skills.dynamic("skill://daily/SKILL.md", description="Today")(lambda: "now")
    return server


def test_skills_of_a_server_are_listed(command: Command, skilled: Server) -> None:
    ran = command("skills", "list", server=skilled)
    assert ran.status == Exit.DONE
    assert ran.out.splitlines()[-4:] == [
        "refunds  skill://refunds/SKILL.md",
        "    About refunds",
        "daily  skill://daily/SKILL.md",
        "    Today",
    ]
    found = json.loads(command("skills", "list", "--json", server=skilled).out)["skills"]
    assert [len(each["resources"]) for each in found[:3]] == [1, 1, 2]
    assert found[3]["resources"] == "dynamic"


def test_server_without_skills_lists_none(command: Command) -> None:
    assert command("skills", "list", server=Server("s")).out == "It lists no skills.\n"
    ran = command("skills", "show", "x", server=Server("s"))
    assert (ran.status, ran.err) == (Exit.NOT_FOUND, "mcpio: no skill 'x': the server has no skills\n")
    assert command("skills", "check", server=Server("s")).out == "0 skills can be served\n"


def test_skill_is_shown_by_name_or_uri(command: Command, skilled: Server) -> None:
    ran = command("skills", "show", "refunds", server=skilled)
    assert ran == command("skills", "show", "skill://refunds/SKILL.md", server=skilled)
    assert "  license: MIT\n" in ran.out
    assert "  logo.png  (2 bytes, sha256:" in ran.out
    assert "made on demand" in command("skills", "show", "daily", server=skilled).out
    assert json.loads(command("skills", "show", "--json", "refunds", server=skilled).out)["fingerprint"]


def test_file_of_a_skill_is_printed(command: Command, skilled: Server) -> None:
    assert command("skills", "get", "refunds", server=skilled).out.endswith("# Refunds\n")
    assert command("skills", "get", "daily", server=skilled).out.endswith("now")
    ran = command("skills", "get", "refunds", "logo.pgn", server=skilled)
    assert (ran.status, ran.err) == (
        Exit.NOT_FOUND,
        "mcpio: the skill 'refunds' has no file 'logo.pgn'. Did you mean 'logo.png'?\n",
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [("refund", "Did you mean 'refunds'?"), ("billing", "several skills"), ("skill://x/SKILL.md", "Unknown skill")],
)
def test_skill_that_is_not_found_is_explained(command: Command, skilled: Server, name: str, said: str) -> None:
    ran = command("skills", "show", name, server=skilled)
    assert ran.status in (Exit.NOT_FOUND, Exit.REFUSED)
    assert said in ran.err


def test_check_of_a_server_reads_every_file(command: Command, skilled: Server) -> None:
    ran = command("skills", "check", server=skilled)
    assert (ran.status, ran.out) == (Exit.DONE, "4 skills can be served\n")
    lying = Server("s", capabilities=skilled.capabilities)
    file = {"uri": "skill://a/SKILL.md", "digest": f"sha256:{'0' * 64}", "size": 1}
    entry = SkillEntry("skill://a/SKILL.md", {"name": "a", "description": "b"}, [file])
    lying.handlers |= {
        "skills/list": lambda scope, request: ListSkillsResult((entry, SkillEntry("x:y", {}, None))),
        "skills/get": lambda scope, request: GetSkillResult(entry),
        "resources/read": lambda scope, request: ReadResourceResult((TextResourceContents(request.uri, "x"),)),
    }
    ran = command("skills", "check", server=lying)
    assert ran.status == Exit.TOOL_FAILED
    assert "skill number 1: " in ran.out
    assert "its digest is sha256:2d711642" in ran.out
    assert "malformed" in command("skills", "list", server=lying).err


def test_folder_takes_the_place_of_a_server(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skills", "list", str(folder)]) == Exit.DONE
    assert "refunds  skill://refunds/SKILL.md" in capsys.readouterr().out
    assert main(["skills", "get", str(folder), "refunds"]) == Exit.DONE
    assert capsys.readouterr().out.endswith("# Refunds\n")
    assert main(["skills", "show", str(folder), "skill://x/SKILL.md"]) == Exit.REFUSED


def test_check_of_a_folder_prints_each_fault_with_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skills", "check", str(folder)]) == Exit.DONE
    assert capsys.readouterr().out.splitlines() == [
        f"{folder}/other/billing/SKILL.md:2: the name 'billing' is that of skill://group/billing/SKILL.md too (note)",
        "3 skills can be served",
    ]
    (folder / "refunds" / ".hidden").write_text("x")
    skill(folder, "bad", "---\nname: worse\ndescription: x\n---\n")
    assert main(["skills", "check", str(folder)]) == Exit.TOOL_FAILED
    printed = capsys.readouterr()
    assert f"{folder}/bad/SKILL.md:2: name 'worse'" in printed.out
    assert f"{folder}/refunds/.hidden: hidden, and so left out (note)" in printed.out
    assert printed.err == ""
    assert main(["skills", "check", "--json", str(folder)]) == Exit.TOOL_FAILED
    assert [fault["line"] for fault in json.loads(capsys.readouterr().out)["faults"]] == [2, None, 2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["skills"], "no action given"),
        (["skills", "look"], "no action 'look'"),
        (["skills", "show", "."], "no SKILL given"),
        (["skills", "list", ".", "more"], "unexpected argument"),
        (["serve"], "nothing to serve"),
    ],
)
def test_wrong_words_are_explained(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == Exit.USAGE
    assert said in capsys.readouterr().err


def test_folder_that_cannot_be_served_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--skills", str(tmp_path / "none")]) == Exit.NOT_LOADED
    assert "is not a directory" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("reload", [[], ["--reload"]])
@pytest.mark.parametrize("program", [[], ["app.py"]])
def test_folder_is_served_with_a_program_and_without(
    folder: Path, program: list[str], reload: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "app.py").write_text("from mcpio import Server\nserver = Server('app')\n")
    words = [str(folder / each) for each in program]
    serve = [sys.executable, "-m", "mcpio", "serve", *words, *reload, "--skills", str(folder)]
    assert main(["skills", "check", "--", *serve]) == Exit.DONE
    assert capfd.readouterr().out == "3 skills can be served\n"


def test_reload_watches_the_files_of_skills(folder: Path) -> None:
    sources = Sources(None, [str(folder)])
    before = sources._look()
    assert any(path.endswith("SKILL.md") for path in before)
    skill(folder, "new")
    changed = sources._look()
    assert changed != before
    assert "SKILL.md" in sources._difference(changed)

"""``mcpio skills``: list, show, get and check the skills of a server, or of a folder."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterable
from typing import Final

import attrs

from mcpio.app.client import Client
from mcpio.app.client_skills import Skill
from mcpio.app.server import Server
from mcpio.app.skills import SkillFault
from mcpio.cli import connect
from mcpio.cli.arguments import encodable
from mcpio.cli.exit_status import Exit, Failure, did_you_mean, failure_of
from mcpio.cli.output import Console
from mcpio.errors import McpError, SkillChanged
from mcpio.framing import json
from mcpio.methods import declares
from mcpio.trio import memory_client, run_until_signalled
from mcpio.types.base import SKILLS_EXTENSION


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    connect.add_options(parser)
    connect.add_words(parser)
    parser.usage = (
        "%(prog)s list SERVER|FOLDER [options]\n"
        "       %(prog)s show SERVER|FOLDER SKILL [options]\n"
        "       %(prog)s get SERVER|FOLDER SKILL [PATH] [options]\n"
        "       %(prog)s check SERVER|FOLDER [options]"
    )
    parser.epilog = f"SKILL is the name of a skill or its URI; PATH a file of it, by default SKILL.md. {parser.epilog}"


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    action = connect.next_word(options, "action")
    if action not in ACTIONS:
        raise Failure(Exit.USAGE, f"no action {action!r}; the actions are {', '.join(ACTIONS)}")
    folder = None
    if options.after is None and options.words and os.path.isdir(options.words[0]):
        folder = connect.next_word(options, "folder")
    else:
        connect.choose_server(options)
    options.skill = encodable(connect.next_word(options, "SKILL")) if action in ("show", "get") else None
    options.path = encodable(options.words.pop(0)) if action == "get" and options.words else "SKILL.md"
    connect.no_more_words(options)
    if folder is None:
        return connect.run(ACTIONS[action], options)
    return _run_in_folder(action, folder, options)


def _run_in_folder(action: str, folder: str, options: argparse.Namespace) -> int:
    """Serve the folder to the command itself."""
    server = Server(os.path.basename(os.path.abspath(folder)))
    console = Console(quiet=options.quiet)
    log = logging.getLogger("mcpio")
    level = log.level
    if action == "check":
        log.setLevel(logging.ERROR)  # what it would warn of is printed
    try:
        server.skills.add_folder(folder)
    except (OSError, ImportError) as error:
        raise Failure(Exit.USAGE, f"{folder}: {error}") from error
    finally:
        log.setLevel(level)
    if action == "check":
        return _say_faults(server.skills.faults, len(server.skills.registry), options, console)

    async def work() -> int:
        try:
            async with memory_client(server) as client:
                return await ACTIONS[action](client, options, console)
        except McpError as error:
            raise failure_of(error) from error

    return run_until_signalled(work, timeout=None)


def _say_faults(faults: Iterable[SkillFault], count: int, options: argparse.Namespace, console: Console) -> int:
    """Print the faults, one line each, and return the status."""
    all_faults = list(faults)
    if options.json:
        console.result(json.dumps({"skills": count, "faults": [attrs.asdict(fault) for fault in all_faults]}).decode())
    else:
        for fault in all_faults:
            console.result(str(fault) if fault.is_fatal else f"{fault} (note)")
        console.result(f"{count} {'skill' if count == 1 else 'skills'} can be served")
    return Exit.TOOL_FAILED if any(fault.is_fatal for fault in all_faults) else Exit.DONE


async def list_skills(client: Client, options: argparse.Namespace, console: Console) -> int:
    """Print the skills that the server lists."""
    listing = client.skills() if _has_skills(client) else None
    skills = [] if listing is None else [skill async for skill in listing]
    if options.json:
        console.result(json.dumps({"skills": [_describe(skill) for skill in skills]}).decode())
    else:
        for skill in skills:
            console.result(f"{skill.name}  {skill.uri}\n    {' '.join(skill.description.split())}")
        if not skills:
            console.result("It lists no skills.")
    for item in () if listing is None else listing.malformed:
        console.note(f"note: skill number {item.index} is malformed: {item.reason}")
    return Exit.DONE


async def show(client: Client, options: argparse.Namespace, console: Console) -> int:
    """Print the entry of a skill."""
    skill = await _find(client, options.skill)
    if options.json:
        console.result(json.dumps(_describe(skill)).decode())
        return Exit.DONE
    console.result(f"{skill.name}  {skill.uri}")
    for name, value in skill.frontmatter.items():
        console.result(f"  {name}: {value if isinstance(value, str) else json.dumps(value).decode()}")
    if skill.files is None:
        console.result("Its content is made on demand, and cannot be checked.")
        return Exit.DONE
    console.result(f"Fingerprint  {skill.fingerprint}\nFiles")
    for path, file in skill.files.items():
        console.result(f"  {path}  ({file.size} bytes, {file.digest})")
    return Exit.DONE


async def get(client: Client, options: argparse.Namespace, console: Console) -> int:
    """Print a file of a skill, checked."""
    skill = await _find(client, options.skill)
    files = skill.files
    if files is not None and options.path not in files:
        hint = did_you_mean(options.path, files)
        raise Failure(Exit.NOT_FOUND, f"the skill {skill.name!r} has no file {options.path!r}.{hint}")
    if options.path == "SKILL.md":
        console.exact(await skill.open())
    else:
        console.data(await skill.read(options.path))
    return Exit.DONE


async def check(client: Client, options: argparse.Namespace, console: Console) -> int:
    """Read every file of every skill that the server lists, and print what differs from the entries."""
    listing = client.skills() if _has_skills(client) else None
    skills = [] if listing is None else [skill async for skill in listing]
    faults = [SkillFault(f"skill number {item.index}", item.reason) for item in (listing.malformed if listing else ())]
    for skill in skills:
        try:
            await skill.open()
            for path in skill.files or ():
                await skill.read(path)
        except SkillChanged as error:
            faults.append(SkillFault(error.uri, str(error)))
    return _say_faults(faults, len(skills), options, console)


ACTIONS: Final = {"list": list_skills, "show": show, "get": get, "check": check}
"""The actions, by name."""


def _has_skills(client: Client) -> bool:
    return declares(client.server.capabilities, ("extensions", SKILLS_EXTENSION))


async def _find(client: Client, wanted: str) -> Skill:
    """Return the skill of a URI or a name. Raises Failure without one, and for a name that several have."""
    if not _has_skills(client):
        raise Failure(Exit.NOT_FOUND, f"no skill {wanted!r}: the server has no skills")
    if "://" in wanted:
        return await client.skill(wanted)
    skills = [skill async for skill in client.skills()]
    matches = [skill for skill in skills if skill.name == wanted]
    if len(matches) == 1:
        return matches[0]
    if matches:
        uris = " or ".join(skill.uri for skill in matches)
        raise Failure(Exit.NOT_FOUND, f"several skills are called {wanted!r}: write {uris}")
    hint = did_you_mean(wanted, [skill.name for skill in skills])
    raise Failure(Exit.NOT_FOUND, f"no skill {wanted!r}.{hint}")


def _describe(skill: Skill) -> dict[str, object]:
    files = skill.files
    return {
        "uri": skill.uri,
        "frontmatter": dict(skill.frontmatter),
        "resources": "dynamic" if files is None else [attrs.asdict(file) for file in files.values()],
        "fingerprint": skill.fingerprint,
    }

"""``mcpio lock``: write down what a server defines, so that ``mcpio check --locked`` finds every change of it."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json  # indented, for people
import os
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import zip_longest
from typing import Any, Final

from mcpio.app.client import Client
from mcpio.cli import connect
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.output import Console, codec_of, is_device
from mcpio.cli.use import all_pages
from mcpio.framing.json import dumps_sorted

FILE: Final = "mcpio.lock"

FORMAT: Final = 1
"""The version of the file's form."""

MAX_PAIRS: Final = 1_000_000
"""Pairs of an old and a new line that are compared in all. difflib takes about 0.2 s for so many."""

_KEYS: Final = {"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}
"""The member that identifies a definition, by the list it is in."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    connect.add_options(parser)
    connect.add_words(parser)
    parser.add_argument("-o", "--output", metavar="FILE", default=FILE, help=f"the file to write (default: {FILE})")


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    connect.choose_server(options)
    connect.no_more_words(options)
    return connect.run(lock, options)


async def lock(client: Client, options: argparse.Namespace, console: Console) -> int:
    """Write the file, and print the number of its definitions."""
    defined = await definitions(client)
    text = json.dumps(defined, indent=2, ensure_ascii=False, sort_keys=True)
    write(options.output, f"{text}\n")
    counts = {name: len(defined[name]) for name in _KEYS}
    if options.json:
        console.result(json.dumps({"file": options.output, **counts}))
    else:
        summary = ", ".join(f"{name} {count}" for name, count in counts.items())
        console.result(f"{options.output}: {summary}")
    return Exit.DONE


async def definitions(client: Client) -> dict[str, Any]:
    """Return everything that the server defines: instructions, tools, prompts, resources, and their digests."""
    pages = await all_pages(client)
    codec = codec_of(client)
    defined: dict[str, Any] = {"format": FORMAT, "server": {"name": client.server.info.name}}
    if client.server.instructions is not None:
        defined["server"]["instructions"] = client.server.instructions
    for name, key in _KEYS.items():
        items = [item for page in pages[name] for item in codec.encode(page)[name]]
        defined[name] = _by_key((str(item.get(key) if isinstance(item, dict) else item), item) for item in items)
    return defined


def _by_key(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return definitions by key, in a form for the file.

    A client uses the first definition of a name, so that one has the plain key. The others stay too, with numbers.
    """
    entries: dict[str, Any] = {}
    counts = Counter[str]()
    for key, item in items:
        free = key
        while free in entries:
            counts[key] += 1
            free = f"{key} (number {counts[key] + 1})"
        entries[free] = {"digest": _digest(item), "definition": item}
    return entries


def differences(locked: Mapping[str, Any], defined: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield the name of each definition, old or new, and how it changed; ``None`` if it did not."""
    pairs = MAX_PAIRS
    for name, old, new in compared(locked, defined):
        if old is None or new is None:
            yield name, None if old == new else "it is new" if old is None else "it is gone"
        elif old == new:
            yield name, None
        else:
            before, after = old.split("\n"), new.split("\n")
            needed = len(before) * len(after)
            yield name, _change(before, after) if needed <= pairs else _first_change(before, after)
            pairs -= needed if needed <= pairs else 0


def compared(locked: Mapping[str, Any], defined: Mapping[str, Any]) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield the name of each definition, its old and its new JSON text; ``None`` where it is missing.

    Texts tell apart what Python takes for equal, such as ``false`` and 0.
    """
    yield "the server's instructions", _text(locked, "server"), _text(defined, "server")
    for kind in _KEYS:
        old, new = _mapping(locked.get(kind)), defined[kind]
        for name in sorted({*old, *new}):
            yield f"{kind}: {name}", _text(old.get(name), "definition"), _text(new.get(name), "definition")


def _text(entry: Any, member: str) -> str | None:
    """Return a member of an entry as text to compare; ``None`` without an entry that has it."""
    if not isinstance(entry, Mapping) or member not in entry:
        return None
    return json.dumps(entry[member], indent=1, ensure_ascii=False, sort_keys=True)


def _change(before: Sequence[str], after: Sequence[str]) -> str:
    lines = unified_diff(before, after, "locked", "now", lineterm="", n=1)
    return "it changed\n" + "\n".join(lines)


def _first_change(before: Sequence[str], after: Sequence[str]) -> str:
    """Return the first line that changed, of definitions with too many lines for ``unified_diff``."""
    both = enumerate(zip_longest(before, after, fillvalue=""), 1)
    line, (old, new) = next((line, pair) for line, pair in both if pair[0] != pair[1])
    size = f"{len(before)} lines, now {len(after)}"
    return f"it changed, with too much to compare: {size}; from line {line}:\n-{old}\n+{new}"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _digest(definition: Any) -> str:
    return f"sha256:{hashlib.sha256(dumps_sorted(definition)).hexdigest()}"


def read(path: str) -> dict[str, Any]:
    """Return the definitions in a lock file. Raises Failure if it cannot be used, or was edited by hand."""
    try:
        with open(path, encoding="utf-8") as file:
            locked = json.load(file)
    except OSError as error:
        raise Failure(Exit.USAGE, f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise Failure(Exit.USAGE, f"--locked must be a file that mcpio lock wrote, not {path}: {error}") from error
    if not isinstance(locked, dict) or locked.get("format") != FORMAT:
        raise Failure(Exit.USAGE, f"--locked must be a file that mcpio lock of this version wrote, not {path}")
    for kind in _KEYS:
        for name, entry in _mapping(locked.get(kind)).items():
            if not isinstance(entry, dict) or entry.get("digest") != _digest(entry.get("definition")):
                raise Failure(
                    Exit.USAGE,
                    f"{path}: the digest of {name} in {kind} does not match its definition: lock the server again",
                )
    return locked


def write(path: str, text: str | bytes) -> None:
    """Write a file, whole or not at all; a device is written to in place. Raises Failure if that fails."""
    data = text.encode(errors="backslashreplace") if isinstance(text, str) else text
    try:
        if is_device(path):
            # Replacing it, as root can, would take the device from every program of the machine.
            with open(path, "wb") as file:
                file.write(data)
        else:
            _replace(path, data)
    except OSError as error:
        raise Failure(Exit.UNWRITABLE, f"cannot write {path}: {error.strerror or error}") from error


def _replace(path: str, data: bytes) -> None:
    # A new name each time, created by this call: a project may contain a link of a name that can be guessed.
    partial = f"{path}.{secrets.token_hex(8)}.partial"
    file = open(partial, "xb")  # noqa: SIM115  closed below, and removed only if it was created here
    try:
        with file:
            file.write(data)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise

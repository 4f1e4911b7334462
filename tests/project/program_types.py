"""Ask pyright what it would tell someone who copies a program from README or the docs into an editor.

Each page is a folder with its programs, beside the examples. Programs with an annotation for each parameter are held to
the mode ``strict``, but for ``NOT_STRICT``, and the others to ``basic``.
"""

from __future__ import annotations

import ast
import inspect
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from blocks import joined
from pages import EXAMPLES, PAGES
from tree import ROOT

RULES = {
    "typeCheckingMode": "basic",
    "reportUntypedFunctionDecorator": "error",
    "reportPrivateUsage": "error",
    "reportRedeclaration": "none",  # a page shows two versions of a function
}
NOT_STRICT = (
    "reportDeprecated",  # of typeshed
    "reportIncompatibleMethodOverride",  # the log of http.server, silenced
    "reportMatchNotExhaustive",  # programs take the events that they want
    "reportMissingTypeStubs",
    "reportRedeclaration",
    # Lambdas and empty collections of the programs themselves; public_types.py asks about the library.
    *(f"reportUnknown{what}Type" for what in ("Argument", "Lambda", "Member", "Parameter", "Variable")),
    "reportUntypedClassDecorator",  # of Twisted
)

IMPLEMENTATIONS = """
from mcpio.app import Changes, HmacSealer, LocalChanges, MemorySessionStore, MemoryTaskStore
from mcpio.app import Runtime, Sealer, SessionStore, TaskStore
from mcpio.asyncio import AsyncioRuntime
from mcpio.auth import ApiKeys, Introspection, JwtVerifier, MemoryCredentials, Signer, Verifier, load_signer
from mcpio.seals import AeadSealer
from mcpio.stores import CredentialStore, FileCredentials, KeyringCredentials, SqliteStore
from mcpio.stores.redis import RedisChanges, RedisStore
from mcpio.testing import ManualRuntime

changes: tuple[type[Changes], ...] = (LocalChanges, RedisChanges)
credentials: tuple[type[CredentialStore], ...] = (FileCredentials, KeyringCredentials, MemoryCredentials)
runtimes: tuple[type[Runtime], ...] = (AsyncioRuntime, ManualRuntime)
sealers: tuple[type[Sealer], ...] = (AeadSealer, HmacSealer)
sessions: tuple[type[SessionStore], ...] = (MemorySessionStore, SqliteStore)
tasks: tuple[type[TaskStore], ...] = (MemoryTaskStore, SqliteStore, RedisStore)
verifiers: tuple[type[Verifier], ...] = (ApiKeys, Introspection, JwtVerifier)
signer: Signer = load_signer("")
"""
"""The public classes that stand for a protocol of the library, each where that is asked for."""


def write_programs(folder: Path) -> None:
    """Write every program of the pages and examples below a folder."""
    shutil.copytree(EXAMPLES, folder / "examples")
    for file in (folder / "examples").rglob("*.py"):
        file.write_text(strictly(file.read_text(encoding="utf-8")), encoding="utf-8")
    (folder / "implementations").mkdir()
    (folder / "implementations" / "all.py").write_text(strictly(IMPLEMENTATIONS), encoding="utf-8")
    for page, blocks in PAGES.items():
        # What a page shows of an example is not a program by itself.
        programs = [block for block in blocks if block.is_program and "examples/" not in block.notes.get("not run", "")]
        texts = joined(programs)
        place = folder / page.removesuffix(".md").replace("/", "_")
        place.mkdir()
        for block in programs:
            (place / block.file_name).write_text(strictly(in_a_function(texts[block.line])), encoding="utf-8")


def in_a_function(program: str) -> str:
    """Return a program, with what it does from its first ``await`` at the top level on in an ``async def``."""
    lines, names = program.splitlines(keepends=True), list[str]()
    for node in compile(program, "", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT).body:
        code = compile(ast.Module([node], []), "", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            before, after = lines[: node.lineno - 1], lines[node.lineno - 1 :]
            head = ["async def program() -> None:\n", f"    global {', '.join(names)}\n" if names else ""]
            return "".join([*before, *head, *(f"    {line}" for line in after)])
        names += [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    return program


def strictly(program: str) -> str:
    """Return a program, with a comment that asks for ``strict`` if all of its parameters have annotations."""
    strict = f"# pyright: strict, {', '.join(f'{rule}=false' for rule in NOT_STRICT)}\n"
    functions = [
        node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    given = [arg for node in functions for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return program + strict if all(arg.annotation or arg.arg in ("self", "cls") for arg in given) else program


def complaints(folder: Path) -> Iterator[str]:
    """Yield what pyright has against the programs below a folder."""
    places = [{"root": place.name, "extraPaths": ["examples"]} for place in folder.iterdir() if place.is_dir()]
    settings: dict[str, Any] = {**RULES, "executionEnvironments": places, "pythonVersion": "3.11"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--pythonpath",
        sys.executable,
        "--project",
        str(folder),
        "--outputjson",
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    for found in json.loads(run.stdout)["generalDiagnostics"]:
        if found.get("rule") == "reportMissingImports" and '"mcpio' not in found["message"]:
            continue  # a package that is not here
        place = Path(found["file"]).relative_to(folder.resolve())
        yield f"{place}:{found['range']['start']['line'] + 1}: {found['message']} [{found.get('rule')}]"


def main() -> int:
    """Print the complaints. Return how many there are."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_programs(folder)
        found = sorted(complaints(folder))
    print(*found, sep="\n")
    print(f"{len(found)} complaints about the programs of the docs")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

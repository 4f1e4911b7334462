"""Ask pyright whether a type checker knows the type of every public name and of all that hangs on it.

Public is what the modules listed in ``pyproject.toml`` (``tool.mcpio.public-modules``) have in ``__all__``, however
deep it is defined. pyright itself would count every module without an underscore, and so annotations inside that no
user ever sees.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tree import ROOT, settings


def public_names() -> list[str]:
    """Return every public name, dotted, by the module that users import it from."""
    modules = map(importlib.import_module, settings()["tool"]["mcpio"]["public-modules"])
    return [f"{module.__name__}.{name}" for module in modules for name in module.__all__]


def complaints(names: Iterable[str], symbols: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what pyright does not know about the names, or about members of theirs that are public too."""
    by_name = {name: symbol for symbol in symbols for name in (symbol["name"], *symbol.get("alternateNames", ()))}
    homes = set()
    for name in names:
        if name in by_name:
            homes.add(by_name[name]["name"])
        else:
            yield f"{name}: a type checker does not find it there"
    for symbol in {symbol["name"]: symbol for symbol in by_name.values()}.values():
        if not symbol["isTypeKnown"] and _belongs(symbol["name"], homes):
            yield f"{symbol['name']}: {_said(symbol) or 'what it refers to is not known'}"


def causes(symbols: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield where a declaration is missing, public or not: a public name may depend on it."""
    for symbol in symbols:
        said = _said(symbol)
        if said and not symbol["isTypeKnown"] and "partially unknown" not in said:
            place = max(symbol["diagnostics"], key=lambda fault: len(fault.get("file", "")))
            line = place.get("range", {}).get("start", {}).get("line", -1) + 1
            yield f"{place.get('file', '').removeprefix(f'{ROOT}/')}:{line}: {symbol['name']}: {said}"


def _said(symbol: Mapping[str, Any]) -> str:
    return "; ".join(" ".join(fault["message"].split()) for fault in symbol["diagnostics"])


def _belongs(name: str, homes: set[str]) -> bool:
    owner, _, member = name.rpartition(".")
    is_private = member.startswith("_") and not member.endswith("__")
    return name in homes or (not is_private and bool(owner) and _belongs(owner, homes))


def main() -> int:
    """Print what is not known, and return 1 when there is anything."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--ignoreexternal", "--verifytypes", "mcpio"]
    # With --verifytypes, pyright looks in the first interpreter on PATH, whatever --pythonpath says.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    try:
        report = json.loads(run.stdout)["typeCompleteness"]
    except (ValueError, KeyError):
        report = {"symbols": []}
    symbols = report["symbols"]
    if not symbols:
        print("pyright did not read mcpio:", run.stdout, run.stderr, sep="\n")
        return 1
    names = public_names()
    found = sorted(complaints(names, symbols))
    if found:
        print("Declarations that are missing, on which a public name may depend:", *causes(symbols), "", sep="\n")
    print(*found, f"{len(names)} public names, {len(found)} complaints", sep="\n")
    return 1 if found or not names else 0


if __name__ == "__main__":
    sys.exit(main())

"""What each JSON library costs, and where it differs from the rules of ``mcpio.framing.json``.

    python benchmarks/json_libraries.py            all sections
    python benchmarks/json_libraries.py time       one of: time, values, import, corners, agreement
    python benchmarks/json_libraries.py --texts 1000000 agreement

Runs whatever is importable of the standard library, orjson and msgspec, and mcpio's own backends in the same run. Times
are microseconds a call, the best of several rounds, the libraries taking turns within a round.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import importlib.util
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import attrs
import cattrs

from mcpio.framing.json import backend

SECTIONS = ("time", "values", "import", "corners", "agreement")
ROUNDS = 7
ROUND_SECONDS = 0.05
NEEDS_CPYTHON = [name for name in ("orjson", "msgspec") if importlib.util.find_spec(name)]

CALL = {
    "jsonrpc": "2.0",
    "id": 12345,
    "method": "tools/call",
    "params": {"name": "echo", "arguments": {"text": "hello"}, "_meta": {"progressToken": "tok-12345"}},
}
RESULT = {"jsonrpc": "2.0", "id": 12345, "result": {"content": [{"type": "text", "text": "hello"}], "isError": False}}
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOL = {"name": "echo", "description": "Echo the text back to the caller", "inputSchema": SCHEMA}
TOOLS = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [TOOL | {"name": f"tool_{n:03}"} for n in range(100)]}}
CHANCE = random.Random(1)
IMAGE = {
    "jsonrpc": "2.0",
    "id": 1,
    "result": {"content": [{"type": "image", "data": base64.b64encode(CHANCE.randbytes(750_000)).decode()}]},
}
NUMBERS = {"jsonrpc": "2.0", "id": 1, "result": {"vector": [CHANCE.random() for _ in range(1000)]}}
EXTREMES = {"jsonrpc": "2.0", "id": 1, "result": {"vector": [CHANCE.random() * 1e300 for _ in range(1000)]}}
MESSAGES = {
    "call": CALL,
    "result": RESULT,
    "100 tools": TOOLS,
    "1 MB image": IMAGE,
    "1000 floats": NUMBERS,
    "1000 extreme floats": EXTREMES,
}

CORNERS: dict[str, bytes] = {
    "2**64": b"18446744073709551616",
    "-2**63-1": b"-9223372036854775809",
    "4301 digits": b"9" * 4301,
    "1e400": b"1e400",
    "NaN": b"NaN",
    "lone surrogate": rb'"\ud800"',
    "surrogate as UTF-8": b'"\xed\xa0\x80"',
    "byte-order mark": b"\xef\xbb\xbf1",
    "UTF-16": "1".encode("utf-16"),
    "nested 129 deep": b"[" * 129 + b"]" * 129,
    "nested 100,000 deep": b"[" * 100_000,
    "twice the same key": b'{"a":1,"a":2}',
}
VALUES: dict[str, Any] = {
    "NaN": float("nan"),
    "key 1": {1: 2},
    "bytes": b"x",
    "set": {1},
    "lone surrogate": "\ud800",
    "2**64": 2**64,
    "attrs object": attrs.make_class("A", {"a": attrs.field(default=1)})(),
}


def main() -> None:
    """Print the sections that the command line names."""
    parser = argparse.ArgumentParser(description="Compare JSON libraries.")
    parser.add_argument("--texts", type=int, default=300_000, help="how many texts to read both ways for agreement")
    parser.add_argument("section", nargs="*", choices=[[], *SECTIONS], help="which sections; all, if none is named")
    arguments = parser.parse_args()
    sections: dict[str, Callable[[], None]] = {
        "time": show_times,
        "values": show_typed_times,
        "import": show_imports,
        "corners": show_corners,
        "agreement": partial(show_agreement, arguments.texts),
    }
    names = arguments.section or list(sections)
    libraries = ", ".join(f"{name} {version(name)}" for name in NEEDS_CPYTHON)
    print(f"{sys.implementation.name} {sys.version.split()[0]}, {libraries or 'no library but the standard one'}")
    for name in names:
        print()
        sections[name]()


def readers() -> dict[str, Callable[[bytes], Any]]:
    """Return what turns a text into a value, by name."""
    found: dict[str, Callable[[bytes], Any]] = {"json": json.loads}
    if "orjson" in NEEDS_CPYTHON:
        found["orjson"] = importlib.import_module("orjson").loads
    if "msgspec" in NEEDS_CPYTHON:
        found["msgspec"] = importlib.import_module("msgspec.json").Decoder().decode
    return found


def writers() -> dict[str, Callable[[Any], bytes]]:
    """Return what turns a value into a text, by name."""
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    found: dict[str, Callable[[Any], bytes]] = {"json": lambda value: encode(value).encode()}
    if "orjson" in NEEDS_CPYTHON:
        found["orjson"] = importlib.import_module("orjson").dumps
    if "msgspec" in NEEDS_CPYTHON:
        found["msgspec"] = importlib.import_module("msgspec.json").Encoder().encode
    return found


def show_times() -> None:
    """Compare reading and writing of whole messages, without types."""
    ours = [backend("stdlib")] + [backend("compiled")] * (len(NEEDS_CPYTHON) == 2)
    print("microseconds, untyped")
    for title, message in MESSAGES.items():
        text = backend("stdlib").dumps(message)
        loads = readers() | {f"mcpio, {own.name}": own.loads for own in ours}
        dumps = writers() | {f"mcpio, {own.name}": own.dumps for own in ours}
        show(f"read {title} ({len(text):,} bytes)", best(loads, text))
        show(f"write {title}", best(dumps, message))


def show_typed_times() -> None:
    """Compare ways from text to an attrs object: cattrs after the JSON library, and msgspec in one step."""
    params = attrs.make_class(
        "Params", {"name": attrs.field(type=str), "arguments": attrs.field(type=dict[str, Any])}, frozen=True
    )
    call = attrs.make_class("Call", {"id": attrs.field(type=int), "params": attrs.field(type=params)}, frozen=True)
    structure = cattrs.Converter().get_structure_hook(call)
    text = backend("stdlib").dumps(CALL)
    ways = {f"{name} + cattrs": then(loads, structure, call) for name, loads in readers().items()}
    if "msgspec" in NEEDS_CPYTHON:
        ways["msgspec to attrs"] = importlib.import_module("msgspec.json").Decoder(call).decode
    print("microseconds, call to attrs objects (no check of the envelope, unknown members lost)")
    show("read call", best(ways, text))


def then(loads: Callable[[bytes], Any], structure: Callable[[Any, type], Any], cls: type) -> Callable[[bytes], Any]:
    """Return what reads a text and makes an object of the value."""
    return lambda text: structure(loads(text), cls)


def show_imports() -> None:
    """Compare what the first use costs: alone, and where attrs and cattrs are loaded already."""
    print("milliseconds to import, median of 9 fresh processes")
    for title, before in (("alone", "sys"), ("after attrs and cattrs", "attrs, cattrs")):
        show(title, {name: import_time(name, before) for name in ("json", *NEEDS_CPYTHON)})


def import_time(name: str, before: str) -> float:
    """Return the milliseconds that an import takes in a fresh process."""
    program = f"import sys, time, {before}\nt = time.perf_counter()\nimport {name}\nprint(time.perf_counter() - t)"
    run = [sys.executable, "-I", "-c", program]
    times = [float(subprocess.run(run, capture_output=True, check=True, text=True).stdout) for _ in range(9)]
    return statistics.median(times) * 1000


def show_corners() -> None:
    """Show each library's answer beside the one that mcpio gives with every backend."""
    rule = backend("stdlib")
    for title, cases, functions in (
        ("read", CORNERS, {**readers(), "mcpio": rule.loads}),
        ("write", VALUES, {**writers(), "mcpio": rule.dumps}),
    ):
        for name, case in cases.items():
            answers = {library: answer(function, case) for library, function in functions.items()}
            print(f"{title} {name:<20}", "  ".join(f"{library}: {text:<22}" for library, text in answers.items()))


# Pieces of JSON, well-formed and not, that texts are put together from.
PIECES = [
    *b'[ ] { } : , "a" "a": \\ \\u \\ud83d\\ude00 \\ud800 \\udc00 \\" \\\\ 0 1 -1 -0 - . e E5 +'.split(),
    *b"true null 1.5 -0.0 1e308 1e309 1e-400 18446744073709551616 -9223372036854775809 NaN Infinity -Infinity".split(),
    *(b" ", b"\n", b"\x00", b"\x1f", b"\x7f", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", "\u00e9\U0001f600".encode()),
    *(b"9" * 19, b"9" * 4300, b"9" * 4301, b"[" * 128, b"]" * 128, b'"' + b"[" * 130 + b'"', b'"' + b"x" * 300 + b'"'),
]


def show_agreement(texts: int) -> None:
    """Read random texts with both backends: damaged messages, and pieces of JSON in any order."""
    if len(NEEDS_CPYTHON) < 2:
        print("agreement: a library is missing")
        return
    strict, fast = backend("stdlib"), backend("compiled")
    chance = random.Random(7)
    messages: tuple[Any, ...] = (CALL, RESULT, SCHEMA, TOOL, [1.5, -0.0, 2**70, None, {"a": []}])
    whole = [strict.dumps(message) for message in messages]
    read = differ = 0
    for _ in range(texts):
        if chance.random() < 0.5:
            text = b"".join(chance.choices(PIECES, k=chance.randrange(1, 12)))
        else:
            text = chance.choice(whole)
            for _ in range(chance.randrange(1, 4)):
                start = chance.randrange(len(text))
                text = text[:start] + chance.choice(PIECES) + text[start + chance.choice((0, 0, 1, 2, 5)) :]
        if chance.random() < 0.3:
            text = chance.choice((b"[%b]", b'{"a":%b}', b'["%b"]')) % text
        expected, found = (outcome(each.loads, text) for each in (strict, fast))
        read += expected[0]
        if expected != found:
            differ += 1
            print("differs:", text[:80], expected, found)
    print(f"{texts:,} texts, {read:,} of them accepted: {differ} values or reasons differ")


def outcome(loads: Callable[[bytes], Any], text: bytes) -> tuple[bool, str]:
    """Return whether a text is accepted, and the value or the reason; hexadecimal, for the longest integers."""
    try:
        return True, exact(loads(text))
    except ValueError as error:
        return False, str(error)


def exact(value: Any) -> str:
    """Return a text that tells 1, 1.0 and True apart."""
    if type(value) is int:
        return hex(value)
    if isinstance(value, list):
        return f"[{','.join(map(exact, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key!r}:{exact(item)}' for key, item in value.items())}}}"
    return repr(value)


def answer(function: Callable[[Any], Any], argument: Any) -> str:
    """Return the value or the name of the exception, in short."""
    try:
        value = function(argument)
    except (ValueError, TypeError, RecursionError) as error:
        return type(error).__name__
    depth = 0
    while isinstance(value, list) and value:
        value, depth = value[0], depth + 1
    return f"{depth + 1} lists" if depth > 3 else repr(value)


def best(functions: dict[str, Callable[[Any], Any]], argument: Any) -> dict[str, float]:
    """Return the microseconds that each function takes."""
    loops = {name: loops_for(function, argument) for name, function in functions.items()}
    rounds = [
        {name: timed(function, argument, loops[name]) for name, function in functions.items()} for _ in range(ROUNDS)
    ]
    return {name: min(times[name] for times in rounds) for name in functions}


def loops_for(function: Callable[[Any], Any], argument: Any) -> int:
    """Return how many calls fill a round."""
    loops = 1
    while (seconds := timed(function, argument, loops) * loops / 1e6) < ROUND_SECONDS / 4:
        loops *= 4
    return max(1, int(loops * ROUND_SECONDS / seconds))


def timed(function: Callable[[Any], Any], argument: Any, loops: int) -> float:
    """Return the microseconds of a call, over so many."""
    start = time.perf_counter()
    for _ in range(loops):
        function(argument)
    return (time.perf_counter() - start) / loops * 1e6


def show(title: str, figures: dict[str, float]) -> None:
    """Print one line of figures."""
    print(f"{title:<34}", "  ".join(f"{name} {figure:9.2f}" for name, figure in figures.items()))


if __name__ == "__main__":
    main()

"""The grammar of error messages: what is wrong with an argument is said as "X must be …, not …"."""

from __future__ import annotations

import ast
import re
from operator import itemgetter

import pytest
from tree import SRC

ERRORS = {
    **dict.fromkeys(("TypeError", "ValueError", "RuntimeError", "LocalProtocolError", "ArgumentTypeError"), 0),
    **dict.fromkeys(("Failure", "RequestError", "InvalidMessage"), 1),
}
"""The errors whose texts are read here, and which argument of each is its text."""
RULE_AS_A_FACT = re.compile(
    # "ttl must be a number"
    r"[\w}\]]= (?:must|takes|returns|is (?:a|an|one of|'|\")) ?"
    # "a ttl is a number, not 'x'"
    r"|^(?!.*\bmust )[^,]*\b(?:is|are|has|takes|begins|returns|lies) (?!\{)[^:;]*, (?:not|unlike) (?:an? )?\{"
    # "{value!r} is not a number", "ge={value!r} is not a length"
    r"|^(?:\w[\w ]*[ =:] ?)?\{\} is (?:not a|no|neither)\b"
    # "era is one of auto, {}", "Invalid params: ttl is more than 0"
    r"|^(?:Invalid params: )?(?!there )[\w.]+ (?:is|are) (?:an?|one of|more than) "
    # "--arguments is a JSON object", "--sampling takes ask"
    r"|^--[\w-]+ (?:is (?:an?|not an?|not [A-Z]\w+)|takes|needs an?)\b"
)


def messages() -> list[tuple[str, str]]:
    """Return where an error of ``ERRORS`` is made with a text, and that text, with its expressions in braces."""
    found = []
    for path in sorted(SRC.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        # A long text has a name of its own first, such as ``reason``.
        named = [
            (node.targets[0].id, node.lineno, node.value)
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        ]
        for node in nodes:
            if not isinstance(node, ast.Call):
                continue
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if len(node.args) <= (at := ERRORS.get(function, 9)):
                continue
            text = node.args[at]
            if isinstance(text, ast.Name):
                before = [(line, value) for name, line, value in named if name == text.id and line < node.lineno]
                text = max(before, key=itemgetter(0))[1] if before else text
            if written := _text(text):
                found.append((f"{path.relative_to(SRC)}:{node.lineno}", written))
    return found


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return ""


def test_message_about_a_wrong_argument_says_what_it_must_be() -> None:
    all_messages = messages()
    assert len(all_messages) > 650
    assert [(place, text) for place, text in all_messages if RULE_AS_A_FACT.search(text)] == []


@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [
        ("ttl= takes a number, not {}", True),
        ("{}= is 'keep' or 'raise', not {}", True),
        ("roots are Root objects, not {}", True),
        ("a digest has 64 digits, unlike {}", True),
        ("ge={} is not a finite number", True),
        ("the parameter {} is neither a nor b", True),
        ("--arguments is a JSON object, such as {}", True),
        ("--sampling takes ask or a file", True),
        ("--tool needs a name", True),
        ("era is one of auto, {}", True),
        ("there is a tool {} already", False),
        ("{} is not a file of mcpio lock", True),
        ("--arguments must be a JSON object, not {}", False),
        ("--env is for servers that are started, not for {}", False),
        ("--revision cannot be combined with --locked: it is for the rules", False),
        ("ttl must be a number, not {}", False),
        ("the bytes are {}, not {}", False),
        ("listeners= is empty: give at least one", False),
    ],
)
def test_grammar_tells_rules_from_what_was_found(text: str, is_wrong: bool) -> None:
    assert bool(RULE_AS_A_FACT.search(text)) == is_wrong

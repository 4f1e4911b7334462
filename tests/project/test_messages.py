"""The grammar of error messages: what is wrong with an argument is said as "X must be …, not …"."""

from __future__ import annotations

import ast
import re

import pytest
from tree import SRC

ERRORS = {"TypeError", "ValueError", "LocalProtocolError"}
RULE_AS_A_FACT = re.compile(
    # "ttl must be a number"
    r"[\w}\]]= (?:must|takes|returns|is (?:a|an|one of|'|\")) ?"
    # "a ttl is a number, not 'x'"
    r"|^(?!.*\bmust )[^,]*\b(?:is|are|has|takes|begins|returns|lies) (?!\{)[^:;]*, (?:not|unlike) (?:an? )?\{"
    # "{value!r} is not a number", "ge={value!r} is not a length"
    r"|^(?:\w[\w ]*[ =:] ?)?\{\} is (?:not a|no|neither)\b"
)


def messages() -> list[tuple[str, str]]:
    """Return where an error of ``ERRORS`` is raised with a text, and that text, with its expressions in braces."""
    found = []
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                name, text = ast.unparse(node.exc.func), _text(node.exc.args[0])
                if name in ERRORS and text:
                    found.append((f"{path.relative_to(SRC)}:{node.lineno}", text))
    return found


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return ""


def test_message_about_a_wrong_argument_says_what_it_must_be() -> None:
    all_messages = messages()
    assert len(all_messages) > 500
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
        ("ttl must be a number, not {}", False),
        ("the bytes are {}, not {}", False),
        ("listeners= is empty: give at least one", False),
    ],
)
def test_grammar_tells_rules_from_what_was_found(text: str, is_wrong: bool) -> None:
    assert bool(RULE_AS_A_FACT.search(text)) == is_wrong

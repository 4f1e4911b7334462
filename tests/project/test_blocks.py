"""The runner of the pages' blocks finds what is wrong with a page. What it makes of each block, blocks.py tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from blocks import Block, blocks, fault, is_server, joined, run_commands, run_program, run_script

PAGE = """
# Title

```python
>>> 1 + 1
2
```

<!-- not run: it needs a second machine -->
```python
# client.py
connect()
```

````{note}
```console
$ true
```
````

- in a list:

  <!-- continues -->
  ```python
  print(x)
  ```
"""


def test_blocks_are_found_with_their_lines_and_notes() -> None:
    session, program, console, continued = blocks(PAGE)
    assert session == Block(5, "python", ">>> 1 + 1\n2\n", {})
    assert session.is_session
    assert not session.is_program
    assert program == Block(11, "python", "# client.py\nconnect()\n", {"not run": "it needs a second machine"})
    assert (program.is_program, program.file_name) == (True, "client.py")
    assert console == Block(17, "console", "$ true\n", {})
    assert continued == Block(25, "python", "print(x)\n", {"continues": ""})
    assert continued.file_name == "block_25.py"


def test_a_block_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2 has no end"):
        list(blocks("\n```python\nx = 1\n"))


def test_continued_program_includes_the_earlier_block() -> None:
    programs = [Block(1, "python", "a = 1\n", {}), Block(2, "python", "b\n", {"continues": ""})]
    assert joined([*programs, Block(3, "python", "c\n", {})]) == {1: "a = 1\n", 2: "a = 1\nb\n", 3: "c\n"}


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (Block(1, "", "x", {}), "language"),
        (Block(1, "ruby", "x", {}), "language"),
        (Block(1, "python", "x", {"not run": "because"}), "why"),
        (Block(1, "js", "x", {}), "why"),
        (Block(1, "json", '{"a": ', {}), "JSON"),
        (Block(1, "python", 'server = Server("s")\ntrio.run(serve_stdio, server)\n', {}), "guard"),
    ],
)
def test_a_fault_in_writing_is_found(block: Block, said: str) -> None:
    assert said in (fault(block) or "")


@pytest.mark.parametrize("text", ['{"a":\n 1}\n', '{"a": 1}\n{"b": 2}\n'])
def test_json_is_one_value_or_one_a_line(text: str) -> None:
    assert fault(Block(1, "json", text, {})) is None


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("print('hello')", "hello\n"),
        ("import trio\nawait trio.sleep(0)\nprint('waited')", "waited\n"),
        ("import asyncio\nawait asyncio.sleep(0)\nprint('waited')", "waited\n"),
    ],
)
def test_a_program_runs(source: str, printed: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(source)
    assert run_program(tmp_path / "program.py") == printed


@pytest.mark.parametrize(
    "source",
    ["1 / 0", "import sys\nprint('oops', file=sys.stderr)", "import warnings\nwarnings.warn('old')"],
)
def test_a_program_that_fails_or_complains_is_found(source: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(source)
    with pytest.raises(AssertionError):
        run_program(tmp_path / "program.py")


SERVER = """
import json, sys
def serve_stdio():
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {}}
        else:
            result = TOOLS if message.get("method") == "tools/list" else {}
        if "id" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))
serve_stdio()
"""


def test_server_block_is_run_with_a_conversation(tmp_path: Path) -> None:
    assert is_server(SERVER)
    (tmp_path / "good.py").write_text('TOOLS = {"tools": []}\n' + SERVER)
    assert run_program(tmp_path / "good.py").count("\n") == 5
    (tmp_path / "bad.py").write_text('TOOLS = {"tool": []}\n' + SERVER)
    with pytest.raises(KeyError):
        run_program(tmp_path / "bad.py")


def test_console_commands_run_and_their_output_is_compared(tmp_path: Path) -> None:
    run_commands("$ echo one\none\n$ echo a b c\na ... c\n$ python -c 'print(1)'\n1\n", tmp_path)
    with pytest.raises(AssertionError, match="echo two"):
        run_commands("$ echo one\none\n$ echo two\none\n", tmp_path)
    with pytest.raises(AssertionError, match="exits with 1"):
        run_commands("$ false\n", tmp_path)


def test_every_command_of_a_script_must_succeed(tmp_path: Path) -> None:
    run_script("true\ntrue\n", tmp_path)
    with pytest.raises(AssertionError):
        run_script("false\ntrue\n", tmp_path)

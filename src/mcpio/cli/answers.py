"""Answers on the terminal to a server's requests during a command: forms, sampling, and roots.

Questions go to standard error and answers come from standard input, both terminals. Where they are not, the server is
told that this client cannot be asked.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import trio

from mcpio._drivers import login as terminal
from mcpio._printable import printable
from mcpio.cli.exit_status import Exit, Failure
from mcpio.cli.output import Console, block_text, is_terminal
from mcpio.types.content import TextContent
from mcpio.types.features import ClientCapabilities, ElicitationCapability

if TYPE_CHECKING:
    from mcpio.app.client import ClientOptions
    from mcpio.app.context import RequestScope
    from mcpio.types.asking import (
        CreateMessageRequest,
        CreateMessageResult,
        ElicitFormRequest,
        ElicitResult,
        ElicitURLRequest,
        ElicitValue,
        PrimitiveSchema,
        Root,
    )

DECLINE: Final = "!"
"""The input that declines a form."""

YES: Final = ("y", "yes", "true", "1")
NO: Final = ("n", "no", "false", "0")

ReadLine: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Shows a prompt and returns the line that the user types, without its end; ``None`` at the end of the input."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that answer requests of the server."""
    parser.add_argument(
        "--sampling",
        metavar="ask|refuse|FILE",
        help="answers a server that wants a message of a model: you type it, it is refused, or it is the text of a "
        "file; without this, mcpio inspect asks on its page, and other commands tell the server that there is no model",
    )
    parser.add_argument(
        "--root",
        action="append",
        default=[],
        metavar="DIRECTORY",
        help="a directory that the server is told to work in; may be repeated",
    )


def client_options(options: argparse.Namespace, console: Console) -> ClientOptions:
    """Return the callbacks that answer the server, for the command line's options. Raises Failure for invalid ones."""
    callbacks = without_terminal(options)
    asks = is_terminal(sys.stdin) and is_terminal(sys.stderr)
    terminal = Terminal(console, read_line)
    if asks:
        callbacks["elicitation"] = terminal.elicit
        callbacks["capabilities"] = ClientCapabilities(elicitation=ElicitationCapability(form={}, url={}))
    if options.sampling == "ask":
        if not asks:
            raise Failure(
                Exit.USAGE, "--sampling ask needs a terminal: the answer can come from a file, --sampling FILE"
            )
        callbacks["sampling"] = terminal.sample
    return callbacks


def without_terminal(options: argparse.Namespace) -> ClientOptions:
    """Return the callbacks that need no terminal: roots, and sampling that is refused or answered with a file.

    Raises Failure for invalid ones.
    """
    callbacks: ClientOptions = {}
    if options.sampling == "refuse":
        callbacks["sampling"] = refuse
    elif options.sampling not in (None, "ask"):
        callbacks["sampling"] = from_text(_text_of(options.sampling))
    if options.root:
        callbacks["roots"] = [root(directory) for directory in options.root]
    return callbacks


class Terminal:
    """Asks the user, one question at a time."""

    def __init__(self, console: Console, read: ReadLine) -> None:
        self._console = console
        self._read = read
        self._turn = trio.Lock()  # the server may ask for several things at once

    async def elicit(self, scope: RequestScope, request: ElicitFormRequest | ElicitURLRequest) -> ElicitResult:
        """Ask for the fields of a form one by one, or whether the user visited a URL."""
        async with self._turn:
            try:
                return await self._ask(request)
            except _Dismissed:
                return _elicit_result("cancel")

    async def _ask(self, request: ElicitFormRequest | ElicitURLRequest) -> ElicitResult:
        self._console.question(f"The server asks: {request.message}")
        if request.mode == "url":
            self._console.question(f"It wants you to visit this address:\n  {request.url}")
            agreed = await self._line("Did you, or will you? [y/N] ")
            return _elicit_result("accept" if agreed.lower() in YES else "decline")
        schema = request.requested_schema
        self._console.question(f"({DECLINE} declines, Ctrl-D dismisses, an empty line leaves out what is optional)")
        content: dict[str, ElicitValue] = {}
        for name, field in schema.properties.items():
            question = Question(name, field, required=name in schema.required)
            value = await self._answer(question)
            if value is DECLINE:
                return _elicit_result("decline")
            if value is not None:
                content[name] = value
        return _elicit_result("accept", content)

    async def _answer(self, question: Question) -> Any:
        """Ask until the answer fits. Returns ``None`` for a field that is left out, and ``DECLINE``."""
        for line in question.explanation():
            self._console.question(line)
        while True:
            text = (await self._line(question.prompt())).strip()
            if text == DECLINE:
                return DECLINE
            if not text and (question.default is not None or not question.required):
                return question.default
            try:
                return question.value(text)
            except ValueError as error:
                self._console.question(f"  {error}")

    async def sample(self, scope: RequestScope, request: CreateMessageRequest) -> CreateMessageResult:
        """Show the request for a message of the model, and have the user type it; an empty line ends it."""
        async with self._turn:
            self._console.question("The server asks for a message of the model:")
            if request.system_prompt:
                self._console.question(f"  system: {request.system_prompt}")
            for message in request.messages:
                for block in message.blocks:
                    self._console.question(f"  {message.role}: {block_text(block)}")
            self._console.question(f"(an empty line ends your answer, {DECLINE} or Ctrl-D refuses)")
            lines: list[str] = []
            while True:
                try:
                    line = await self._line("assistant> ")
                except _Dismissed:
                    return refuse(scope, request)
                if not lines and line.strip() == DECLINE:
                    return refuse(scope, request)
                if not line:
                    break
                lines.append(line)
        return _message("\n".join(lines))

    async def _line(self, prompt: str) -> str:
        line = await self._read(prompt)
        if line is None:
            self._console.question("")
            raise _Dismissed
        return line


class Question:
    """One field of a form: how it is asked, and what an answer means."""

    def __init__(self, name: str, field: PrimitiveSchema, *, required: bool) -> None:
        self.name = name
        self.required = required
        self.default: Any = getattr(field, "default", None)
        self._field: Any = field
        self._choices = list(_choices(field))
        self._several = getattr(field, "type", None) == "array"

    def explanation(self) -> Iterator[str]:
        """Yield the lines above the prompt: the description, and the choices by number."""
        title, description = getattr(self._field, "title", None), getattr(self._field, "description", None)
        heading = ": ".join(part for part in (title, description) if part)
        if heading:
            yield f"  {heading}"
        for number, (value, label) in enumerate(self._choices, 1):
            yield f"  {number}. {label if label == value else f'{label} ({value})'}"

    def prompt(self) -> str:
        """Return the prompt: the name, the kind of answer, the default."""
        kind = "numbers, with commas" if self._several else "number" if self._choices else self._kind()
        default = "" if self.default is None else f", default {self._shown(self.default)}"
        return f"{self.name} ({kind}{default}){'*' if self.required else ''}: "

    def value(self, text: str) -> Any:
        """Return the value that the user typed. Raises ValueError with the expected format."""
        if self._choices:
            values = [self._choice(part.strip()) for part in (text.split(",") if self._several else [text])]
            value: Any = tuple(values) if self._several else values[0]
        else:
            value = self._scalar(text)
        self._check(value)
        return value

    def _check(self, value: Any) -> None:
        from mcpio.app.asking import check_content
        from mcpio.errors import InvalidMessage
        from mcpio.types.asking import ElicitSchema

        try:
            check_content(ElicitSchema({self.name: self._field}), {self.name: value})
        except InvalidMessage as error:
            raise ValueError(str(error)) from None

    def _kind(self) -> str:
        kind = getattr(self._field, "type", "text")
        return {"string": getattr(self._field, "format", None) or "text", "boolean": "y/n"}.get(kind, kind)

    def _scalar(self, text: str) -> Any:
        match getattr(self._field, "type", "string"):
            case "boolean":
                if text.lower() not in YES + NO:
                    raise ValueError(f"must be y or n, not {text!r:.100}")
                return text.lower() in YES
            case "integer":
                return _number(int, text, "a whole number")
            case "number":
                return _number(float, text, "a number")
        return text

    def _choice(self, text: str) -> str:
        values = [value for value, _ in self._choices]
        if text.isascii() and text.isdigit() and 0 < int(text) <= len(values):
            return values[int(text) - 1]
        if text in values:
            return text
        raise ValueError(f"must be one of the numbers 1 to {len(values)}, not {text!r:.100}")

    def _shown(self, value: Any) -> str:
        if isinstance(value, bool):
            return "y" if value else "n"
        return ", ".join(value) if isinstance(value, tuple) else str(value)


def _choices(field: Any) -> Iterator[tuple[str, str]]:
    """Yield the value and the label of each choice."""
    items = getattr(field, "items", field)
    titled = getattr(items, "one_of", None) or getattr(items, "any_of", None)
    if titled:
        yield from ((choice.const, choice.title) for choice in titled)
        return
    values = getattr(items, "enum", ())
    yield from zip(values, getattr(items, "enum_names", None) or values, strict=False)


def _number(kind: Callable[[str], Any], text: str, what: str) -> Any:
    try:
        number = kind(text)
    except ValueError:
        raise ValueError(f"must be {what}, not {text!r:.100}") from None
    if isinstance(number, float) and not math.isfinite(number):
        raise ValueError(f"must be a finite number, not {text!r:.100}: JSON has no other")
    return number


class _Dismissed(Exception):
    """The user ended the input instead of answering."""


def _elicit_result(action: Any, content: dict[str, ElicitValue] | None = None) -> ElicitResult:
    from mcpio.types.asking import ElicitResult

    return ElicitResult(action, content)


# Messages of a model


def refuse(scope: RequestScope, request: CreateMessageRequest) -> CreateMessageResult:
    """Refuse to produce a message."""
    from mcpio.errors import SamplingRejected

    raise SamplingRejected("the user refuses")


def from_text(text: str) -> Any:
    """Return the callback that answers every request for a message with a text."""
    return lambda scope, request: _message(text)


def _message(text: str) -> CreateMessageResult:
    from mcpio.types.asking import CreateMessageResult

    return CreateMessageResult("assistant", TextContent(text), "human", stop_reason="endTurn")


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        reason = f"--sampling must be ask, refuse or a readable file, not {path!r}: {error.strerror or error}"
        raise Failure(Exit.USAGE, reason) from error
    except UnicodeDecodeError as error:
        raise Failure(Exit.USAGE, f"--sampling must be a file of UTF-8 text, not {path!r}") from error


def root(directory: str) -> Root:
    """Return the root of a directory. Raises Failure if it is none."""
    from mcpio.types.asking import Root

    if not os.path.isdir(directory):
        raise Failure(Exit.USAGE, f"--root must be a directory, not {directory!r:.200}")
    path = Path(directory).resolve()
    # Bytes that are not text, which Python has as surrogates, have no form in JSON. The URI escapes them.
    name = os.fsencode(path.name).decode(errors="replace")
    return Root(path.as_uri(), name or None)


async def read_line(prompt: str) -> str | None:
    """Read a line from standard input. A question that is cancelled takes none."""
    print(printable(prompt), end="", file=sys.stderr, flush=True)
    line = await terminal.read_line(partial(trio.to_thread.run_sync, abandon_on_cancel=True))
    return line.rstrip("\r\n") if line else None

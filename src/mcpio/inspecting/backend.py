"""The backend of the inspector's page: an mcpio server whose methods look at a ladder, and at a target."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs
import trio

import mcpio
from mcpio.app.asking import check_content
from mcpio.app.client import Client, ClientOptions
from mcpio.app.context import Context, RequestScope
from mcpio.app.runtime import BroadcastEvent, OneShot
from mcpio.app.server import Server
from mcpio.apps import EXTENSIONS
from mcpio.codec import codec
from mcpio.engine.client import ClientConnection
from mcpio.engine.limits import Limits, Timeout
from mcpio.engine.options import Options
from mcpio.engine.server import ServerConnection
from mcpio.errors import ErrorCode, InvalidMessage, McpError, RequestError, RequestTimeout, SamplingRejected
from mcpio.framing.json import JsonError, dumps, loads
from mcpio.inspecting.ladder import Ladder, LadderTap
from mcpio.methods import METHODS, Kind
from mcpio.revisions import LATEST_HANDSHAKE, REV_2026_07_28, Era, Revision
from mcpio.testing.engine_pair import pair
from mcpio.types.asking import CreateMessageResult, ElicitResult, Root
from mcpio.types.base import CustomRequest
from mcpio.types.features import (
    ClientCapabilities,
    DiscoverResult,
    ElicitationCapability,
    Implementation,
    ServerCapabilities,
)

if TYPE_CHECKING:
    from mcpio.view_pages import ViewPages

SHOWN: Final = 4 << 20
"""Bytes of a result that the page gets; longer texts in it are cut."""
TEXT_SHOWN: Final = 64 << 10
"""Characters that are kept of a text in a result that is too long."""
LIST_SHOWN: Final = 8 << 20
"""Bytes of one answer to a list that the page gets."""
NAME_SHOWN: Final = 1_000
"""Characters that are kept of a member's name in a result that is too long."""
PAUSE: Final = 1_000
"""Items of a list that are prepared before others run."""
ITEMS_SHOWN: Final = 1_000

Handler: TypeAlias = Callable[[Context, dict[str, Any]], Any]
Opener: TypeAlias = "Callable[[ClientOptions, LadderTap], AbstractAsyncContextManager[Client]]"


class Viewer:
    """A server for a page that looks at a ladder. ``server`` is what ``serve_page`` serves.

    Its methods: ``inspect/about`` says what is looked at; ``inspect/watch`` waits for entries after a number, or for
    another state than the one that the page knows; ``inspect/now`` tells what waits; ``inspect/text`` and
    ``inspect/find`` are about the texts of entries; ``inspect/save`` returns the recording.
    """

    server: Server
    """What the page talks to."""

    def __init__(self, ladder: Ladder, about: Mapping[str, Any], *, recording: Callable[[], str] | None = None) -> None:
        """``about`` has ``target``, what the page is about, and ``mode``: ``inspect`` or ``relay``."""
        self.ladder = ladder
        self._about = dict(about)
        self._recording = recording
        self._state_number = 1
        self._changed: BroadcastEvent | None = None
        ladder.changed = self.wake
        # A recording is one message.
        options = Options(limits=Limits(sent_message_bytes=128 << 20, queued_bytes=512 << 20))
        self.server = Server("mcpio inspect", mcpio.__version__, log_level=None, changes=False, options=options)
        handlers: dict[str, Handler] = {
            "about": self._tell_about,
            "watch": self._watch,
            "now": lambda ctx, params: self.now(),
            "text": self._text,
            "find": lambda ctx, params: {"found": list(ladder.find(_string(params, "text")))},
            "save": self._save,
            **self._handlers(),
        }
        for name, handler in handlers.items():
            self.server.handlers[f"inspect/{name}"] = _served(handler)

    def _handlers(self) -> dict[str, Handler]:
        """Return further methods."""
        return {}

    def wake(self) -> None:
        """Have the pages look for entries."""
        if self._changed is not None:
            self._changed.notify_all()

    def change(self) -> None:
        """Have the pages get the state."""
        self._state_number += 1
        self.wake()

    def state(self) -> dict[str, Any]:
        """Return what the page shows beside the ladder."""
        return {}

    def now(self) -> dict[str, Any]:
        """Return what waits, and what was given up last."""
        ladder = self.ladder
        return {
            "now": ladder.now(),
            "open": list(ladder.open.values())[:ITEMS_SHOWN],
            "given_up": list(ladder.given_up),
            "heard": ladder.heard,
            "ladder": {"entries": ladder.last - ladder.dropped, "dropped": ladder.dropped, "bytes": ladder.held_bytes},
        }

    def _tell_about(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {**self._about, "version": mcpio.__version__, "saves": self._recording is not None}

    async def _watch(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        after, state_seen = _count(params, "after"), params.get("state")
        if self._changed is None:
            self._changed = BroadcastEvent(ctx.session.driver.runtime)
        while self.ladder.last <= after and state_seen == self._state_number:
            await self._changed.wait(None)
        update: dict[str, Any] = {"now": self.ladder.now(), "dropped": self.ladder.dropped, "last": self.ladder.last}
        update["entries"] = self.ladder.after(after)
        if state_seen != self._state_number:
            update |= {"state": self.state(), "number": self._state_number}
        return update

    def _text(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        try:
            number = _count(params, "n")
            return {"text": self.ladder.text(number), "entry": self.ladder.entry(number)}
        except LookupError as error:
            raise RequestError(ErrorCode.INVALID_PARAMS, str(error)) from error

    async def _save(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        if self._recording is None:
            raise RequestError(ErrorCode.INVALID_REQUEST, "there is no recording")
        try:
            return {"text": await trio.to_thread.run_sync(self._recording)}
        except ValueError as error:
            raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from error


@attrs.define(eq=False)
class Question:
    """A question of the server that waits for a person."""

    method: str
    params: dict[str, Any]
    at: float
    answer: OneShot


class Inspector(Viewer):
    """A viewer of a target that it is the client of, which the page calls.

    ``run`` keeps a client open, and opens another one when the page asks for that. Further methods: ``inspect/list``
    returns a page of a list; ``inspect/send`` sends a request, and returns its result or error; ``inspect/answer``
    answers a question of the server; ``inspect/roots`` sets the roots; ``inspect/copy`` returns a call as text;
    ``inspect/lens`` shows a request in both eras; ``inspect/drift`` compares definitions with locked ones;
    ``inspect/view`` opens the view of a tool; ``inspect/restart`` opens the target anew, in one era or either.
    """

    def __init__(
        self,
        open_client: Opener,
        ladder: Ladder,
        about: Mapping[str, Any],
        *,
        also: Callable[[Any, float], object] = lambda *_: None,
        words: Callable[[str, Mapping[str, Any]], str] = lambda name, arguments: "",
        opener: tuple[Sequence[str], str] = ((), ""),
        drift: Callable[[Client], Awaitable[list[dict[str, Any]]]] | None = None,
        views: Callable[[], ViewPages] | None = None,
        roots: tuple[Root, ...] = (),
        sampling: Callable[[RequestScope, Any], Any] | None = None,
        recording: Callable[[], str] | None = None,
        explained: Callable[[Any], str] = str,
    ) -> None:
        """Describe the target.

        Args:
            open_client: Returns the context manager of a client, for options and a tap.
            ladder: What the conversation is shown in.
            about: Facts that the page shows beside those of the server, such as ``target``.
            also: Called with each connection, to add further taps.
            words: Returns a call of a tool as a command line.
            opener: Python that opens such a client: imports, and an expression.
            drift: Compares what a server defines with what was locked.
            views: Called once to get the pages of views.
            roots: What the server is told to work in.
            sampling: Answers requests for a message of a model. Without it a person does, in the page.
            recording: Returns the recording.
            explained: Returns the text for an error of the client.

        """
        self._open = open_client
        self._tap = LadderTap(ladder, also=also)
        self._words, self._opener, self._drift, self._views, self._roots = words, opener, drift, views, roots
        self._sampling = sampling or self._ask
        self._explained = explained
        self._era: Literal["auto", "handshake", "stateless"] = "auto"
        self._view_pages: ViewPages | None = None
        self._client: Client | None = None
        self._ended: str | None = None
        self._questions: dict[int, Question] = {}
        self._lists_changed = 0
        self._restart = trio.Event()
        super().__init__(ladder, {"mode": "inspect", **about}, recording=recording)

    def _handlers(self) -> dict[str, Handler]:
        return {
            "list": self._list,
            "send": self._send,
            "answer": self._answer,
            "roots": self._set_roots,
            "copy": self._copy,
            "lens": self._lens,
            "drift": self._find_drift,
            "view": self._view,
            "restart": self._begin_again,
        }

    async def run(self) -> None:
        """Keep a client of the target, until cancelled; the page sees why it ended."""
        while True:
            self._restart = trio.Event()
            self._ended = None
            try:
                async with self._open(self._client_options(), self._tap) as client:
                    self._client = client
                    self.change()
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._cancel_when_over, client, nursery.cancel_scope)
                        await self._restart.wait()
                        nursery.cancel_scope.cancel()
            except McpError as error:
                self._ended = self._explained(error)
            except BaseExceptionGroup as group:
                matched, rest = group.split(McpError)
                if rest is not None or matched is None:
                    raise
                self._ended = self._explained(matched.exceptions[0])
            self._finish()
            await self._restart.wait()

    async def _cancel_when_over(self, client: Client, scope: trio.CancelScope) -> None:
        await client.driver.wait_closed()
        end = client.connection.end
        self._ended = "the connection ended" if end is None else f"the connection ended: {end.reason.value}"
        if end is not None and end.cause is not None:
            self._ended = f"{self._ended}: {end.cause}"
        scope.cancel()

    def _finish(self) -> None:
        self._client = None
        self._ended = self._ended or ("it was closed" if self._restart.is_set() else "the connection ended")
        self.ladder.forget_open()
        self._questions.clear()
        self.ladder.note(self._ended)
        self.change()

    def _client_options(self) -> ClientOptions:
        return {
            "era": self._era,
            "elicitation": self._ask,
            "sampling": self._sampling,
            "roots": lambda: self._roots,
            "on_notification": self._hear,
            "on_log": lambda message: None,  # the ladder shows it; without this a stateless server would send none
            "capabilities": ClientCapabilities(
                elicitation=ElicitationCapability(form={}, url={}), extensions=dict(EXTENSIONS)
            ),
        }

    # State

    def state(self) -> dict[str, Any]:
        """Return the server as it described itself, the questions, and how the connection is."""
        client = self._client
        state: dict[str, Any] = {
            "connected": client is not None,
            "ended": self._ended,
            "lists": self._lists_changed,
            "questions": [
                {"id": id, "method": each.method, "params": _shorten(each.params), "at": each.at}
                for id, each in list(self._questions.items())[:ITEMS_SHOWN]
            ],
            "roots": [{"uri": root.uri, "name": root.name} for root in self._roots],
            "locked": self._drift is not None,
        }
        if client is not None:
            peer, revision = client.server, self._revision
            state |= {
                "phase": client.connection.phase.value,
                "revision": revision.name,
                "era": revision.era.value,
                "why": _why(client),
                "server": _shorten(codec(revision).encode(peer.info)),
                "capabilities": _shorten(codec(revision).encode(peer.capabilities)),
                "instructions": _shorten(peer.instructions),
            }
        return state

    def now(self) -> dict[str, Any]:
        """Return what waits, and what memory is held, with the limits."""
        state = super().now()
        if self._client is not None:
            connection = self._client.connection
            limits = connection.options.limits
            held = connection.held
            kinds = ("input", "requests", "output", "unwritten", "own", "bodies", "replay", "subscriptions")
            state |= {
                "phase": connection.phase.value,
                "held": {kind: {"bytes": getattr(held, kind), "limit": _limit_of(kind, limits)} for kind in kinds}
                | {"all": {"bytes": held.total, "limit": limits.peer_bytes}},
                "counts": {
                    "our requests": {"count": len(connection.pending.outgoing), "limit": limits.outgoing_requests},
                    "its requests": {"count": len(connection.pending.incoming), "limit": limits.incoming_requests},
                },
                "longest": {
                    "bytes": max((entry["bytes"] for entry in self.ladder.after(0, self.ladder.last)), default=0),
                    "limit": limits.message_bytes,
                },
                "stats": attrs.asdict(connection.stats),
            }
        return state

    @property
    def _revision(self) -> Revision:
        revision = None if self._client is None else self._client.connection.revision
        return revision or LATEST_HANDSHAKE

    def _open_client(self) -> Client:
        if self._client is None:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"there is no connection: {self._ended or 'it is opening'}")
        return self._client

    def _hear(self, notification: Any) -> None:
        if type(notification).__name__.endswith("ListChangedNotification"):
            self._lists_changed += 1
            self.change()

    # Questions of the server

    async def _ask(self, scope: RequestScope, request: Any) -> Any:
        id = max(self._questions, default=0) + 1
        params = scope.raw.get("params")
        shot = scope.session.driver.runtime.one_shot()
        question = Question(scope.method, dict(params) if isinstance(params, Mapping) else {}, self.ladder.now(), shot)
        self._questions[id] = question
        self.change()
        try:
            answer = await shot.wait()
        finally:
            self._questions.pop(id, None)
            self.change()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _answer(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        question = self._questions.get(_count(params, "id"))
        if question is None:
            raise RequestError(ErrorCode.INVALID_PARAMS, "the server does not wait for this answer any more")
        if "result" not in params:
            return self._settle(params["id"], SamplingRejected("the user refuses"))
        kind: type[Any] = CreateMessageResult if question.method == "sampling/createMessage" else ElicitResult
        try:
            result = codec(self._revision).decode(params["result"], kind)
            if isinstance(result, ElicitResult) and result.action == "accept" and question.params.get("mode") != "url":
                method = METHODS["elicitation/create"].params_type
                form = codec(self._revision).decode(question.params, method)
                check_content(form.requested_schema, result.content or {})
        except InvalidMessage as error:
            raise RequestError(ErrorCode.INVALID_PARAMS, str(error)) from error
        return self._settle(params["id"], result)

    def _settle(self, id: int, answer: Any) -> dict[str, Any]:
        # Out of the list at once: a second answer may come before the first one's waiter runs.
        self._questions.pop(id).answer.set(answer)
        return {}

    def _set_roots(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        roots = params.get("roots")
        if not isinstance(roots, list) or not all(isinstance(each, dict) and _string(each, "uri") for each in roots):
            raise RequestError(ErrorCode.INVALID_PARAMS, "roots must be a list of objects with a uri")
        self._roots = tuple(Root(each["uri"], each.get("name") or None) for each in roots)
        if self._client is not None:
            self._client.set_roots(lambda: self._roots)
        self.change()
        return {}

    # Requests to the server

    async def _list(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        what = _string(params, "what")
        if what not in LISTS:
            raise RequestError(ErrorCode.INVALID_PARAMS, f"what must be one of {', '.join(LISTS)}")
        method, member = LISTS[what]
        cursor = params.get("cursor")
        answer = await self._request(method, {} if cursor is None else {"cursor": cursor}, None)
        items = answer.get("result", {}).get(member)
        if not isinstance(items, list):
            return answer
        shown, room = [], LIST_SHOWN
        for item in items:
            shown.append(_shorten(item, TEXT_SHOWN))
            room -= len(dumps(shown[-1]))
            if room < 0:
                break
            if len(shown) % PAUSE == 0:
                await ctx.sleep(0)  # the ladder goes on
        more = answer["result"].get("nextCursor")
        return {"items": shown, "more": more, "left_out": len(items) - len(shown)}

    async def _send(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        seconds = params.get("timeout")
        if seconds is not None and not (isinstance(seconds, int | float) and seconds >= 0):
            raise RequestError(ErrorCode.INVALID_PARAMS, "timeout must be a number of seconds, 0 for no limit")
        members = params.get("params")
        timeout = None if seconds is None else Timeout(seconds or None)
        method, began, last = _string(params, "method"), self.ladder.now(), self.ladder.last
        answer = await self._request(method, members if isinstance(members, dict) else {}, timeout)
        if "result" in answer:
            answer["result"] = _shorten(answer["result"])
        sent = (each["n"] for each in self.ladder.after(last) if each["kind"] == "request" and each["method"] == method)
        return answer | {"took": self.ladder.now() - began, "n": next(sent, None)}

    async def _request(self, method: str, params: dict[str, Any], timeout: Timeout | None) -> dict[str, Any]:
        client = self._open_client()
        revision = self._revision
        call_options: dict[str, Any] = {"on_progress": lambda *_: None, "fresh": True}
        if timeout is not None:
            call_options["timeout"] = timeout
        try:
            result = await client.request(_decode_request(method, params, revision), **call_options)
            return {"result": result if isinstance(result, Mapping) else codec(revision).encode(result)}
        except RequestError as error:
            return {"error": {"code": error.code, "message": error.message, "data": _shorten(error.data)}}
        except McpError as error:
            kind, text = (
                "timeout" if isinstance(error, RequestTimeout) else type(error).__name__,
                self._explained(error),
            )
            if f"than {client.connection.options.limits.message_bytes} bytes" in text:
                text = f"{text}; to read longer ones, give mcpio inspect --max-message MIB"
            return {"error": {"kind": kind, "message": text}}

    async def _view(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        client = self._open_client()
        name, arguments = _string(params, "name"), params.get("arguments")
        if self._views is None:
            raise RequestError(ErrorCode.INVALID_REQUEST, "this inspector shows no views")
        if self._view_pages is None:
            self._view_pages = self._views()
        pages = self._view_pages
        opened = client.driver.runtime.one_shot()

        async def show() -> None:
            try:
                await pages.show(client, name, arguments, browse=opened.set)
            except (LookupError, McpError) as error:
                opened.set(error)

        client.driver.runtime.spawn(show())
        outcome = await opened.wait()
        if isinstance(outcome, Exception):
            raise RequestError(ErrorCode.INVALID_PARAMS, str(outcome))
        return {"url": outcome}

    # Calls as text

    def _copy(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        name, arguments = _string(params, "name"), params.get("arguments")
        arguments = arguments if isinstance(arguments, dict) else {}
        match params.get("as"):
            case "command":
                try:
                    return {"text": self._words(name, arguments)}
                except ValueError as error:
                    raise RequestError(ErrorCode.INVALID_PARAMS, str(error)) from error
            case "test":
                return {"text": as_test(*self._opener, name, arguments)}
        try:
            messages = self.ladder.call(_count(params, "n"))
            return {"text": as_conversation(messages, self._revision)}
        except (LookupError, JsonError) as error:
            reason = "the ladder has only a part of this call"
            raise RequestError(ErrorCode.INVALID_PARAMS, reason) from error

    def _lens(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        members = params.get("params")
        members = members if isinstance(members, dict) else {}
        return {"eras": [in_era(era, _string(params, "method"), members) for era in ERAS]}

    async def _find_drift(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        if self._drift is None:
            raise RequestError(ErrorCode.INVALID_REQUEST, "nothing is locked: see mcpio lock, and give --locked FILE")
        return {"changed": [_shorten(each) for each in await self._drift(self._open_client())]}

    def _begin_again(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        if (era := params.get("era", "auto")) not in ("auto", *ERAS):
            raise RequestError(ErrorCode.INVALID_PARAMS, f"era must be one of auto, {', '.join(ERAS)}")
        self._era = era
        self._restart.set()
        return {}


ERAS: Final[tuple[Literal["handshake", "stateless"], ...]] = ("handshake", "stateless")
LISTS: Final = {
    "tools": ("tools/list", "tools"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
    "prompts": ("prompts/list", "prompts"),
    "tasks": ("tasks/list", "tasks"),
    "skills": ("skills/list", "skills"),
}
"""The method of each list, and the member of its result that has the items."""


def _served(handler: Handler) -> Callable[[Context, CustomRequest], Any]:
    return lambda ctx, request: handler(ctx, dict(request.params))


def _string(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise RequestError(ErrorCode.INVALID_PARAMS, f"{name} must be a string")
    return value


def _count(params: Mapping[str, Any], name: str) -> int:
    value = params.get(name, 0)
    if not isinstance(value, int) or value < 0:
        raise RequestError(ErrorCode.INVALID_PARAMS, f"{name} must be a whole number")
    return value


def _decode_request(method: str, params: dict[str, Any], revision: Revision) -> Any:
    definition = METHODS.get(method)
    if definition is None or definition.kind is not Kind.REQUEST:
        return CustomRequest(method, params)
    try:
        return codec(revision).decode(params, definition.params_type)
    except InvalidMessage as error:
        raise RequestError(ErrorCode.INVALID_PARAMS, str(error)) from error


def _why(client: Client) -> str:
    options, revision = client.connection.options, client.connection.revision
    offered = ", ".join(each.name for each in options.revisions)
    if options.era != "auto":
        return f"This client was to speak the {options.era} era only."
    reason = (
        "the server answered server/discover with what it speaks, and the newest common one was taken"
        if revision is not None and revision.era is Era.STATELESS
        else "the server does not know server/discover, so it was opened with initialize, and named this one"
    )
    return f"This client speaks {offered}; {reason}."


def _limit_of(kind: str, limits: Limits) -> int:
    named = {"output": limits.queued_bytes, "replay": limits.replay_bytes, "subscriptions": limits.subscription_bytes}
    return named.get(kind, limits.peer_bytes)


def _shorten(value: Any, most: int = SHOWN) -> Any:
    """Return a value whose JSON the page can take: what is too long has its texts cut, and its lists."""
    if value is None or len(dumps(value)) <= most:
        return value
    return _Shortener(most // 2).cut(value)


class _Shortener:
    """Copies a value as far as there is room for it."""

    def __init__(self, room: int) -> None:
        self._room = room

    def cut(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            members: dict[str, Any] = {}
            for name, each in value.items():
                if not self._has_room():
                    members["…"] = f"{len(value) - len(members):,} more members"
                    break
                self._room -= min(len(name), NAME_SHOWN)
                members[name[:NAME_SHOWN]] = self.cut(each)
            return members
        if isinstance(value, list | tuple):
            items: list[Any] = []
            for each in value:
                if not self._has_room():
                    items.append(f"… {len(value) - len(items):,} more items")
                    break
                items.append(self.cut(each))
            return items
        return value

    def _has_room(self) -> bool:
        self._room -= 8  # what each value takes at least
        return self._room > 0

    def _text(self, text: str) -> str:
        most = max(0, min(TEXT_SHOWN, self._room))
        self._room -= min(len(text), most)
        return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


# -------------------------------------------------------------------------------------------------------- calls as text


_EVERYTHING: Final[dict[str, Any]] = {
    "tools": {},
    "resources": {"subscribe": True},
    "prompts": {},
    "logging": {},
    "completions": {},
    "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
}
_ASKED: Final[dict[str, Any]] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


def as_test(imports: Iterable[str], opener: str, name: str, arguments: Mapping[str, Any]) -> str:
    """Return a test that makes a call of a tool, with a client that ``opener`` opens, which is Python."""
    called = "".join(each if each.isalnum() and each.isascii() else "_" for each in name)[:60].strip("_").lower()
    first = "\n".join(imports)
    return f"""{first}


def test_{called or "tool"}_answers() -> None:
    async def main() -> None:
        async with {opener} as client:
            result = await client.call_tool({name!r}, {dict(arguments)!r})
        assert not result.is_error, result.text

    trio.run(main)
"""


def as_conversation(texts: Iterable[tuple[str, str]], revision: Revision) -> str:
    """Return a conversation script of a call: its messages with their senders, a request of the client first.

    ``mcpio.testing.play`` plays it with a client, whose request must be the same and whose reading is checked.
    """
    is_stateless = revision.era is Era.STATELESS
    lines = [
        "# A call that was made with mcpio inspect.",
        "run: client",
        f"revision: {revision.name}",
        f"client: {_text(_ASKED)}",
        f"server: {_text(_EVERYTHING)}",
        "",
        f"client adopt {_text({'supportedVersions': [revision.name], 'capabilities': _EVERYTHING})}"
        if is_stateless
        else "handshake",
    ]
    own, new = None, 0 if is_stateless else 1
    for sender, text in texts:
        message = loads(text)
        method, is_answer = message.get("method"), "method" not in message
        if sender == "client" and "id" in message and not is_answer:
            own, new = message["id"], new + 1
            params = _without_envelope(message.get("params", {}))
            token = params.get("_meta", {}).pop("progressToken", None)
            if not params.get("_meta", True):
                del params["_meta"]
            progress = "" if token is None else " progress=true"
            lines.append(f"client request {method} {_text(params)} cookie=c{new}{progress}")
            if token is not None:
                params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": new}}
            lines.append(f"{'C=>' if is_stateless else 'C>'} {_text({**message, 'id': new, 'params': params})}")
        elif sender == "client":
            lines += _of_client(message, new)
        else:
            is_last = is_answer and message.get("id") == own
            if is_last:
                message["id"] = new
            if method == "notifications/progress":
                message["params"] = {**message["params"], "progressToken": new}
            lines.append(f"S> {_text(message)}")
            if is_last:
                outcome = "ResponseReceived" if "result" in message else "RequestFailed"
                lines.append(f"event client {outcome} cookie=c{new}")
    return "\n".join(line.replace('"jsonrpc":"2.0",', "", 1) for line in lines) + "\n"


def _of_client(message: dict[str, Any], id: int) -> Iterator[str]:
    """Yield the lines of the client's answer, and of the cancellation of its own request."""
    if "result" in message:
        yield f"client answer {_text(message['id'])} {_text(message['result'])}"
    elif "error" in message:
        error = message["error"]
        yield f"client error {_text(message['id'])} {error['code']} {_text(error['message'])}"
    elif message["method"] == "notifications/cancelled":
        message["params"] = {**message["params"], "requestId": id}
        yield f"client cancel c{id} {_text(message['params'].get('reason', ''))}"
    yield f"C> {_text(message)}"
    if message.get("method") == "notifications/cancelled":
        yield f"event client RequestFailed cookie=c{id}"


def in_era(era: Literal["handshake", "stateless"], method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return what a client sends for a request in one era, as an engine makes it: the opening, and the request.

    ``why`` says why the era cannot express it.
    """
    revision = LATEST_HANDSHAKE if era == "handshake" else REV_2026_07_28
    view: dict[str, Any] = {"era": era, "revision": revision.name, "opening": [], "request": None, "why": None}
    declared = codec(revision).decode(_EVERYTHING, ServerCapabilities)
    capabilities = codec(revision).decode(_ASKED, ClientCapabilities)
    client = ClientConnection(Implementation("mcpio", "1"), capabilities, options=Options(era=era))
    link = pair(client, ServerConnection(Implementation("server", "1"), declared))
    if era == "handshake":
        link.handshake()
    else:
        client.adopt(REV_2026_07_28, DiscoverResult((revision.name,), declared))
    view["opening"] = [text for each in link.tap for text in _lines(each.data)]
    definition = METHODS.get(method)
    try:
        clean = _without_envelope(params)
        request = (
            CustomRequest(method, clean)
            if definition is None
            else codec(revision).decode(clean, definition.params_type)
        )
        client.send_request(request, now=0.0)
        view["request"] = "".join(text for chunk in client.data_to_send() for text in _lines(chunk))
    except McpError as error:
        view["why"] = str(error)
    return view


def _lines(data: bytes | None) -> list[str]:
    return [] if data is None else data.decode().removesuffix("\n").split("\n")


def _without_envelope(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return params without what each request of the stateless era carries."""
    meta = params.get("_meta")
    if not isinstance(meta, Mapping):
        return dict(params)
    own = {key: each for key, each in meta.items() if not key.startswith("io.modelcontextprotocol/")}
    return {**{key: each for key, each in params.items() if key != "_meta"}, **({"_meta": own} if own else {})}


def _text(value: Any) -> str:
    return dumps(value).decode()

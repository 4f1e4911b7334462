"""One end of a WebSocket is compared with a model of RFC 6455, for every input in every state.

The model knows facts and no states: who ended the conversation, what is written, and whether the connection is lost.
"""

from __future__ import annotations

import codecs
import struct
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import attrs
import pytest
from examples import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from rawframes import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Frame, close, rest, text
from searching import search

from mcpio.engine.table import Role
from mcpio.errors import LocalProtocolError, RemoteProtocolError, RequestTimeout, WebSocketClosed
from mcpio.websocket import (
    FragmentReceived,
    MessageReceived,
    PingReceived,
    PongReceived,
    WebSocket,
    WebSocketEnded,
    WebSocketOptions,
    frames,
    machine,
)
from mcpio.websocket.machine import TABLE, Input, State

MAX_BYTES: Final = 10
PING_INTERVAL, PONG_TIMEOUT, CLOSE_TIMEOUT, FIRST_MESSAGE = 8.0, 4.0, 2.0, 16.0
MASK: Final = b"\x11\x22\x33\x44"
CODES: Final = {*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)}
"""The codes that a close frame may have (RFC 6455, 7.4, and the registry of codes)."""

Heard = tuple[Frame, bool]
"""A frame that came, and whether it is masked as its sender has to mask it."""
Plant = Callable[[pytest.MonkeyPatch], None]
Event = tuple[Any, ...]
"""An event as its class and its parts. The end has a class of errors in place of an error."""


@attrs.define
class Model:
    """What RFC 6455 and the options ask of one end."""

    role: Role
    now: float = 0.0
    unread: deque[Heard] = attrs.field(factory=deque)
    message: bytes | None = None
    """The part of a message that has come."""
    messages: list[bytes] = attrs.field(factory=list)
    """The messages to write."""
    pongs: deque[bytes] = attrs.field(factory=lambda: deque(maxlen=16))
    has_ping: bool = False
    ended_by: str = ""
    """Who ended it first: ``us``, the ``peer``, a ``fault`` of the peer, or its ``silence``."""
    answer: str = ""
    """How the peer answered this side's close frame: ``close`` or ``fault``."""
    is_lost: bool = False
    close: tuple[int, str] | None = None
    """The close frame to write."""
    is_closed: bool = False
    """Whether the close frame is written."""
    end: Event | None = None
    quiet_since: float = 0.0
    gone_at: float | None = None
    speak_by: float | None = None
    close_by: float = 0.0

    @property
    def hears(self) -> bool:
        return not (self.is_lost or self.answer) and self.ended_by in ("", "us")

    @property
    def may_send(self) -> bool:
        """After a fault, answers to earlier messages may still be sent."""
        is_leaving = self.ended_by in ("fault", "silence") and not self.is_closed
        return not self.is_lost and (not self.ended_by or is_leaving)

    @property
    def wants_write(self) -> bool:
        return bool(self.messages or self.pongs or self.has_ping or self.close)

    @property
    def is_done(self) -> bool:
        """Whether no input is waited for. Only a server closes the connection first (7.1.1)."""
        both_closed = self.ended_by == "peer" or self.answer == "close"
        return self.is_lost or self.ended_by == "silence" or (both_closed and self.role is Role.SERVER)

    @property
    def is_over(self) -> bool:
        return self.is_done and not self.wants_write and (self.is_lost or self.is_closed)

    @property
    def deadline(self) -> float | None:
        if self.is_done or self.ended_by:
            return None if self.is_done else self.close_by
        alive = self.quiet_since + PING_INTERVAL if self.gone_at is None else self.gone_at
        return alive if self.speak_by is None else min(alive, self.speak_by)

    def stop(self, by: str, code: int, reason: str, error: type | None) -> None:
        if not self.ended_by and not self.is_lost:
            self.close, self.end = (code, "" if by == "peer" else reason), (WebSocketEnded, code, reason, error)
            self.close_by, self.has_ping, self.ended_by = self.now + CLOSE_TIMEOUT, False, by
        elif by in ("peer", "fault"):
            self.answer = "close" if by == "peer" else "fault"

    def lose(self, is_broken: bool) -> None:
        """The peer writes no more, and reads no more either if the connection is broken."""
        self.pongs.clear()
        self.has_ping = False
        if is_broken:
            self.messages, self.close = [], None
        if not self.ended_by and not self.is_lost:
            self.end = WebSocketEnded, 1006, "", WebSocketClosed
        self.is_lost = True

    def next_event(self) -> Event | None:
        while self.end is None and self.hears and self.unread:
            event = self.read(*self.unread.popleft())
            if event is not None and not self.ended_by:
                return event
        end, self.end = self.end, None
        return end

    def read(self, frame: Frame, is_well_masked: bool) -> Event | None:
        code = 1002 if not is_well_masked else fault_of(frame)
        # After its own close frame an end looks for the peer's, and for frames that cannot be read.
        is_read = not self.ended_by and frame.opcode < CLOSE
        if code is None and is_read:
            code = self.fault_of_message(frame)
        if code is not None:
            self.stop("fault", code, "", RemoteProtocolError)
        elif frame.opcode == CLOSE:
            code = int.from_bytes(frame.payload[:2], "big") if frame.payload else 1005
            is_graceful = code in (1000, 1001, 1005)
            self.stop("peer", code, frame.payload[2:].decode(), None if is_graceful else WebSocketClosed)
        elif is_read:
            whole = (self.message or b"") + frame.payload
            self.message = None if frame.fin else whole
            self.speak_by = None if frame.fin else self.speak_by
            return (MessageReceived, whole.decode()) if frame.fin else (FragmentReceived, len(whole))
        elif frame.opcode == PONG:
            return PongReceived, frame.payload
        elif not self.ended_by:
            self.pongs.append(frame.payload)
            return PingReceived, frame.payload
        return None

    def fault_of_message(self, frame: Frame) -> int | None:
        """Return the code for a message that is too long, binary, out of order, or no UTF-8 so far."""
        whole = (self.message or b"") + frame.payload
        if len(whole) > MAX_BYTES:
            return 1009
        if frame.opcode == BINARY:
            return 1003
        if (frame.opcode == TEXT) is (self.message is not None):
            return 1002
        return None if is_utf8(whole, frame.fin) else 1007


def fault_of(frame: Frame) -> int | None:
    """Return the code for a frame that neither side may send (5.2, 5.5, 7.4.2)."""
    if frame.opcode not in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG) or frame.rsv:
        return 1002
    if frame.opcode >= CLOSE and (not frame.fin or len(frame.payload) > 125):
        return 1002
    if frame.opcode == CLOSE and frame.payload:
        if len(frame.payload) < 2 or frame.code not in CODES:
            return 1002
        return None if is_utf8(frame.payload[2:], True) else 1007
    return None


def is_utf8(data: bytes, is_whole: bool) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data, is_whole)
    except UnicodeDecodeError:
        return False
    return True


# Both side by side


def frames_of(data: bytes, role: Role) -> Iterator[Event]:
    """Yield the opcode and the payload of each frame that an end of a role wrote, all of them whole and short."""
    while data:
        is_masked, size = data[1] >> 7, data[1] & 0x7F
        assert (data[0] >> 4, bool(is_masked), size < 126) == (8, role is Role.CLIENT, True)
        start = 2 + 4 * is_masked
        mask = data[2:start] or bytes(4)
        yield data[0] & 15, bytes(byte ^ mask[at % 4] for at, byte in enumerate(data[start : start + size]))
        data = data[start + size :]


class Pair:
    """A machine and its model, and the pairs of state and input that all of them have visited."""

    def __init__(self, role: Role) -> None:
        options = WebSocketOptions(
            ping_interval=PING_INTERVAL,
            pong_timeout=PONG_TIMEOUT,
            close_timeout=CLOSE_TIMEOUT,
            first_message_timeout=FIRST_MESSAGE,
        )
        self.role = role
        self.socket = WebSocket(role, options, max_bytes=MAX_BYTES, now=0.0, entropy=lambda size: MASK[:size])
        self.model = Model(role, speak_by=FIRST_MESSAGE if role is Role.SERVER else None)
        self.reason: str | None = None
        """The words of a fault, which the model does not know: those of the event are those of the close frame."""

    @property
    def now(self) -> float:
        return self.model.now

    # Inputs

    def hear(self, frame: Frame, *, is_well_masked: bool = True, cut: bool = False) -> None:
        data = frame.wire(masked=(self.role is Role.SERVER) is is_well_masked)
        for piece in (data[:1], data[1:]) if cut else (data,):
            self.socket.receive_data(piece, self.now)
        if self.model.hears:
            self.model.unread.append((frame, is_well_masked))
            self.extend(only_model=True)

    def extend(self, *, only_model: bool = False) -> None:
        if not only_model:
            self.socket.extend(self.now)
        self.model.quiet_since, self.model.gone_at, self.model.has_ping = self.now, None, False

    def lose(self, *, is_broken: bool) -> None:
        self.read()  # as the machine asks: what was not read before it hears of the end is lost
        if is_broken:
            self.socket.connection_lost(self.now)
        else:
            self.socket.receive_data(None, self.now)
        self.model.lose(is_broken)

    def close(self, code: int = 4000, reason: str = "enough") -> None:
        if code not in CODES:
            with pytest.raises(LocalProtocolError):
                self.socket.close(code, reason, self.now)
            return
        self.socket.close(code, reason, self.now)
        if not self.model.ended_by:
            self.model.stop("us", code, reason, None)

    def send(self, payload: bytes = b"[1]") -> None:
        if self.model.may_send:
            self.socket.send_message(payload)
            self.model.messages.append(payload)
        else:
            with pytest.raises(LocalProtocolError):
                self.socket.send_message(payload)

    def write(self) -> None:
        model = self.model
        expected: list[Event] = [(PONG, payload) for payload in model.pongs]
        expected += [(TEXT, payload) for payload in model.messages]
        expected += [(PING, b"")] * model.has_ping
        written = list(frames_of(self.socket.data_to_send(self.now), self.role))
        if model.close is not None:
            code, reason = model.close
            (_, payload) = written[-1]
            if model.ended_by in ("fault", "silence"):
                reason = payload[2:].decode()
                assert reason
                assert self.reason in (None, reason)
                self.reason = reason
            expected.append((CLOSE, b"" if code == 1005 else struct.pack("!H", code) + reason.encode()))
            model.is_closed = True
        assert written == expected
        model.pongs.clear()
        model.messages, model.has_ping, model.close = [], False, None

    def pass_time(self, seconds: float | None = None) -> None:
        """Pass some time, or wait for the deadline if there is one."""
        model, due = self.model, self.model.deadline
        model.now += (0.0 if due is None else max(0.0, due - model.now)) if seconds is None else seconds
        self.socket.handle_timeout(self.now)
        if due is None or model.now < due:
            return
        if model.ended_by:
            model.lose(is_broken=False)
        elif model.speak_by is not None and model.speak_by <= model.now:
            model.stop("fault", 1008, "", RemoteProtocolError)
        elif model.gone_at is not None:
            model.stop("silence", 1011, "", RequestTimeout)
        else:
            model.has_ping, model.gone_at = True, model.now + PONG_TIMEOUT

    def read(self, most: int = 1000) -> None:
        for _ in range(most):
            event, expected = self.socket.next_event(), self.model.next_event()
            if expected is None:
                assert event is None
                return
            assert event is not None
            parts = [getattr(event, field.name) for field in attrs.fields(type(event))]
            if isinstance(event, WebSocketEnded):
                error = None if event.error is None else type(event.error)
                if error in (RemoteProtocolError, RequestTimeout):
                    assert event.reason
                    assert self.reason in (None, event.reason)
                    self.reason, parts[1] = event.reason, ""
                parts[2] = error
            assert (type(event), *parts) == expected

    # For every step

    def step(self, name: str, act: Callable[[Pair], None], *, reads: bool = True) -> None:
        """Take a step on both sides and compare them."""
        VISITED.add((self.role, self.socket._state, name))
        act(self)
        if reads:
            self.read()
        self.check()

    def check(self) -> None:
        socket, model = self.socket, self.model
        assert socket.is_open is model.may_send
        assert socket.is_deaf is not model.hears
        assert socket.wants_write is model.wants_write
        assert socket.over is model.is_over
        assert socket.next_deadline() == model.deadline
        assert socket.has_more or model.end is None

    def moves(self) -> Iterator[tuple[str, Callable[[Pair], None]]]:
        for name, act in INPUTS.items():
            yield name, partial(Pair.step, name=name, act=act)

    def key(self) -> Any:
        model = self.model
        has_output = bool(model.messages), bool(model.pongs), model.has_ping, model.close is not None
        timers = model.gone_at is not None, model.speak_by is not None
        return self.socket._state, model.ended_by, model.answer, model.is_closed, model.message, has_output, timers


VISITED: Final[set[tuple[Role, State, str]]] = set()
ACCENT: Final = "é".encode()
HEARD: Final[dict[str, Frame]] = {
    "a message": text("{}"),
    "the first fragment of a message": text(ACCENT[:1], fin=False),
    "another fragment": rest(fin=False),
    "the last fragment": rest(ACCENT[1:]),
    "a ping": Frame(PING, b"there?"),
    "a pong": Frame(PONG),
    "a close frame": close(1000, "done"),
    "a close frame with the code of an error": close(1011, "broken"),
    "a close frame without a code": close(None),
    "a close frame with half a code": Frame(CLOSE, b"\x03"),
    "a close frame with a code that is never sent": close(1006),
    "a close frame with a reason that is no UTF-8": close(1000, b"\xff"),
    "a binary message": Frame(BINARY, b"{}"),
    "a message that is no UTF-8": text(b"\xff"),
    "a message that is too long": text("x" * (MAX_BYTES + 1)),
    "a reserved bit": text("{}", rsv=2),
    "a reserved opcode": Frame(3, b"{}"),
    "a fragment of a ping": Frame(PING, fin=False),
    "a ping that is too long": Frame(PING, bytes(126)),
}
INPUTS: Final[dict[str, Callable[[Pair], None]]] = {
    **{f"hear {name}": partial(Pair.hear, frame=frame) for name, frame in HEARD.items()},
    "hear a frame with the wrong mask": partial(Pair.hear, frame=text("{}"), is_well_masked=False),
    "hear the end of the input": partial(Pair.lose, is_broken=False),
    "lose the connection": partial(Pair.lose, is_broken=True),
    "close": Pair.close,
    "close with a code that is never sent": partial(Pair.close, code=1006),
    "send a message": Pair.send,
    "write": Pair.write,
    "pass the deadline": Pair.pass_time,
    "pass too little time": partial(Pair.pass_time, seconds=0.25),
    "restart the idle timer": Pair.extend,
}


def play(role: Role, way: tuple[tuple[str, Callable[[Pair], None]], ...]) -> Pair:
    pair = Pair(role)
    for _, move in way:
        move(pair)
    return pair


roles = pytest.mark.parametrize("role", list(Role), ids=lambda role: role.value)


@roles
def test_every_input_in_every_state_does_what_the_model_says(
    role: Role, record_property: Callable[[str, object], None]
) -> None:
    VISITED.clear()
    search(partial(play, role), (), depth=4)
    assert {(role, state, name) for state in State for name in INPUTS} == VISITED
    record_property("pairs", len(VISITED))


@pytest.mark.long
@roles
def test_every_order_of_inputs_does_what_the_model_says(role: Role) -> None:
    states = search(partial(play, role), (), depth=9)
    assert states == search(partial(play, role), (), depth=10) > 150


class Ends(RuleBasedStateMachine):
    """Any frames and inputs in any order, where events may be read late and frames come in two pieces."""

    role = Role.SERVER

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(self.role)

    def step(self, act: Callable[[Pair], None], *, reads: bool = True) -> None:
        self.pair.step("drawn", act, reads=reads)

    drawn = st.one_of(
        st.sampled_from(list(HEARD.values())),
        st.builds(
            Frame,
            st.sampled_from([TEXT, TEXT, CONTINUATION, CONTINUATION, PING, BINARY, CLOSE]),
            st.text(max_size=4).map(str.encode) | st.binary(max_size=6),
            st.booleans(),
        ),
    )

    @rule(frame=drawn, cut=st.booleans(), reads=st.booleans())
    def hear(self, frame: Frame, cut: bool, reads: bool) -> None:
        self.step(partial(Pair.hear, frame=frame, cut=cut), reads=reads)

    @rule(name=st.sampled_from([name for name in INPUTS if not name.startswith("hear a")]), reads=st.booleans())
    def act(self, name: str, reads: bool) -> None:
        self.step(INPUTS[name], reads=reads)

    @rule(payload=st.text(max_size=9))
    def send(self, payload: str) -> None:
        self.step(partial(Pair.send, payload=payload.encode()))

    @rule(seconds=st.sampled_from([0.0, 1.0, 3.0, 5.0, 20.0]))
    def pass_time(self, seconds: float) -> None:
        self.step(partial(Pair.pass_time, seconds=seconds))

    @rule()
    def read_one(self) -> None:
        self.step(partial(Pair.read, most=1), reads=False)


class ClientEnds(Ends):
    role = Role.CLIENT


TestServer = Ends.TestCase
TestServer.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestClient = ClientEnds.TestCase
TestClient.settings = TestServer.settings


def without_row(role: Role, state: State, event: Input) -> Plant:
    return lambda patch: patch.delitem(TABLE[role], (state, event))


def with_row(role: Role, state: State, event: Input, after: State) -> Plant:
    return lambda patch: patch.setitem(TABLE[role], (state, event), after)


PLANTS: Final[dict[str, tuple[Role, Plant]]] = {
    "a server waits for the client to close the connection": (
        Role.SERVER,
        with_row(Role.SERVER, State.OPEN, Input.RECV_CLOSE, State.ENDING),
    ),
    "a client closes the connection first": (
        Role.CLIENT,
        with_row(Role.CLIENT, State.CLOSING, Input.RECV_CLOSE, State.OVER),
    ),
    "a peer that broke a rule has no time to read why": (
        Role.SERVER,
        with_row(Role.SERVER, State.FAILING, Input.CLOSE_PULLED, State.OVER),
    ),
    "a silent peer is waited for": (
        Role.CLIENT,
        with_row(Role.CLIENT, State.LEAVING, Input.CLOSE_PULLED, State.ENDING),
    ),
    "a fault after the own close frame is not noticed": (
        Role.SERVER,
        without_row(Role.SERVER, State.CLOSING, Input.RECV_FAULT),
    ),
    "the close frame of the peer is not looked for after the own one": (
        Role.CLIENT,
        lambda patch: patch.setattr(machine, "_HEARING", frozenset({State.OPEN})),
    ),
    "nothing is sent to a peer that broke a rule": (
        Role.SERVER,
        lambda patch: patch.setattr(machine, "_SPEAKING", frozenset({State.OPEN, State.LEAVING})),
    ),
    "a close frame has any code": (
        Role.SERVER,
        lambda patch: patch.setattr(frames, "is_valid", lambda code: True),
    ),
    "only a pong is a sign of life": (
        Role.CLIENT,
        lambda patch: patch.setattr(WebSocket, "extend", lambda self, now: None),
    ),
    "a ping is answered by the pong of another": (
        Role.SERVER,
        lambda patch: patch.setattr(machine, "PingReceived", lambda payload: PingReceived(b"")),
    ),
    "a message that is too long is accepted": (
        Role.CLIENT,
        lambda patch: patch.setattr(WebSocket, "_check_announced", lambda self, piece: None),
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_model_finds_planted_fault(monkeypatch: pytest.MonkeyPatch, plant: str) -> None:
    role, change = PLANTS[plant]
    change(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        search(partial(play, role), (), depth=4)

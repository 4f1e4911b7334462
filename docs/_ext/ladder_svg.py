"""Drawing a conversation script as a ladder: two lifelines, the messages between them, and what each side does.

A script in ``docs/conversations`` has the format of ``mcpio.testing.script``, and tests play it against the engines. On
the left and right stand the verbs that a side calls and the events that it gets, as the script lists them.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
from picture import picture, text

from mcpio.engine.table import Role
from mcpio.testing.script import Act, At, DeadlineIs, EventIs, Handshake, Lost, Script, Step, Wire

__all__ = ["draw_ladder"]

WIDTH: Final = 800
LIFELINES: Final = {Role.CLIENT: 220, Role.SERVER: 580}
"""Where the sides stand. All lengths are in SVG's user units, which a browser takes for pixels."""
ROW: Final = 46
LINE: Final = 16
_VERBS: Final = {
    "initialize": "send_initialize",
    "request": "send_request",
    "cancel": "cancel_request",
    "notify": "send_notification",
    "answer": "send_result",
    "error": "send_error",
    "progress": "send_progress",
}


@attrs.define
class _Row:
    """One step of a ladder: at most one message, and what either side does or hears then."""

    message: Wire | None = None
    note: str = ""
    said: dict[Role, list[str]] = attrs.field(factory=lambda: {role: [] for role in LIFELINES})


def draw_ladder(script: Script, title: str) -> str:
    """Return an ``<svg>`` element."""
    body, y = _heads(), 40
    for row in _rows(script.steps):
        lines = max(1, *map(len, row.said.values()))
        body += _row(row, y + 28)
        y += ROW + LINE * (lines - 1)
    height = y + 14
    lifelines = "".join(f'<path stroke-dasharray="3 4" d="M{x} 36 V{height}"/>' for x in LIFELINES.values())
    return picture(title, WIDTH, height, [lifelines, *body])


def _rows(steps: tuple[Step, ...]) -> list[_Row]:
    """Put steps that belong together into one row: a verb, the message that it sends, the event that it causes."""
    rows = [_Row()]
    for step in steps:
        last = rows[-1]
        match step:
            case Act(role=role) if last.message or last.note or last.said[role]:
                rows.append(_Row())
                rows[-1].said[role].append(_verb(step))
            case Act(role=role):
                last.said[role].append(_verb(step))
            case Wire(sender=sender) if last.message or last.note or not _is_silent(last, _other(sender)):
                rows.append(_Row(message=step))
            case Wire():
                last.message = step
            case EventIs(role=role, name=name):
                last.said[role].append(name)
            case DeadlineIs(role=role, time=time) if time is not None:
                last.said[role].append(f"next deadline: {time:g} s")
            case At(time=time):
                rows.append(_Row(note=f"at {time:g} s"))
            case Handshake():
                rows.append(_Row(note="handshake"))
            case Lost():
                rows.append(_Row(note="the channel breaks"))
            case _:
                pass
    return [row for row in rows if row.message or row.note or any(row.said.values())]


def _other(role: Role) -> Role:
    return Role.SERVER if role is Role.CLIENT else Role.CLIENT


def _is_silent(row: _Row, role: Role) -> bool:
    return not row.said[role]


def _verb(act: Act) -> str:
    return f"{_VERBS.get(act.verb, act.verb)}()"


def _heads() -> list[str]:
    return [
        f'<rect x="{x - 60}" y="6" width="120" height="30" rx="7"/>' + text(role.value, x, 26, "middle", bold=True)
        for role, x in LIFELINES.items()
    ]


def _row(row: _Row, y: int) -> list[str]:
    body = []
    if row.note:
        middle = sum(LIFELINES.values()) // 2
        left, right = LIFELINES.values()
        body.append(f'<path stroke-width="0.6" d="M{left} {y} H{middle - 60} M{middle + 60} {y} H{right}"/>')
        body.append(text(row.note, middle, y + 4, "middle"))
    if row.message is not None:
        body += _arrow(row.message, y)
    for role, lines in row.said.items():
        x, anchor = (LIFELINES[role] - 12, "end") if role is Role.CLIENT else (LIFELINES[role] + 12, "start")
        body += [text(line, x, y + 4 + LINE * number, anchor) for number, line in enumerate(lines)]
    return body


def _arrow(wire: Wire, y: int) -> list[str]:
    start, end = LIFELINES[wire.sender], LIFELINES[_other(wire.sender)]
    back = 8 if start > end else -8
    return [
        f'<path d="M{start} {y} H{end} M{end + back} {y - 5} L{end} {y} L{end + back} {y + 5}"/>',
        text(_label(wire), (start + end) // 2, y - 7, "middle"),
    ]


def _label(wire: Wire) -> str:
    """Return what a message is: its method or outcome, what it is about, and its id."""
    message = wire.message
    if not isinstance(message, dict):
        return "end of the stream" if wire.text is None else wire.text.decode()
    named = f" (id {message['id']})" if "id" in message else ""
    if "method" in message:
        about = _about(message.get("params"))
        return f"{message['method']}{': ' + about if about else ''}{named}"
    if "result" not in message:
        return f"error {message['error']['code']}{named}"
    result = message["result"]
    kind = result.get("status", result.get("resultType", "complete")) if isinstance(result, dict) else "complete"
    return f"result{'' if kind == 'complete' else f': {kind}'}{named}"


def _about(params: Any) -> str:
    if not isinstance(params, dict):
        return ""
    answers = "".join(f", with {key}" for key in params.get("inputResponses", ()))
    for key in ("name", "uri", "taskId", "reason"):
        if key in params:
            return f"{params[key]}{answers}"
    if "requestId" in params:
        return f"id {params['requestId']}"
    return f"{params['progress']:g} of {params['total']:g}" if {"progress", "total"} <= params.keys() else ""

"""What the engines say in the conversations of the stateless era, held to the official schema of each message's era."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from scripts import newest_cases

from mcpio.engine.table import Role
from mcpio.methods import TASK_EXTENSION_METHODS
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28, Revision
from mcpio.testing import Script, whole
from mcpio.testing.script_player import Player, Side
from mcpio.types.base import META_PROTOCOL_VERSION

ROOT = Path(os.environ["MCPIO_SCHEMA_DIR"])
SCHEMAS: dict[Revision, dict[str, Any]] = {
    revision: json.loads((ROOT / revision.name / "schema.json").read_text())
    for revision in (REV_2025_11_25, REV_2026_07_28)
}
CASES = [case for case in newest_cases() if getattr(case.values[0], "name", "").startswith("stateless-")]


class Checking(Player):
    """Holds every message that an engine sends to the schema."""

    def __init__(self, script: Script, revision: Revision) -> None:
        super().__init__(script, revision, whole, None)
        self.asked: dict[Any, dict[str, Any]] = {}
        self.checked = 0

    def _feed(self, side: Side, data: bytes | None) -> None:
        if data is not None:
            self._note(data)
        super()._feed(side, data)

    def _carry(self, side: Side, chunk: bytes | None) -> None:
        if chunk is not None:
            self._note(chunk)
            self._check(json.loads(chunk), "Client" if side.role is Role.CLIENT else "Server")
        super()._carry(side, chunk)

    def _note(self, data: bytes) -> None:
        message = json.loads(data)
        if "id" in message and "method" in message:
            self.asked[message["id"]] = message

    def _check(self, message: dict[str, Any], role: str) -> None:
        self.checked += 1
        if "method" in message:
            kind = "Request" if "id" in message else "Notification"
            names = [f"JSONRPC{kind}", f"{role}{kind}"]
            names = names[:1] if message["method"] in TASK_EXTENSION_METHODS else names
        elif "error" in message:
            names = ["JSONRPCErrorResponse"]
        else:
            names = ["JSONRPCResultResponse"]
        revision = self._revision_of(message)
        for name in names:
            _validate(message, name, revision)
        if "result" in message and not self._is_of_tasks(message):
            _validate(message["result"], f"{role}Result", revision)

    def _revision_of(self, message: dict[str, Any]) -> Revision:
        """Return the revision of a message: that of its request, or of the client."""
        if "method" in message and "id" not in message:
            has_session = message["method"] == "notifications/initialized"
            return REV_2025_11_25 if has_session or self._revision is REV_2025_11_25 else REV_2026_07_28
        asked = message if "method" in message else self.asked[message["id"]]
        meta = (asked.get("params") or {}).get("_meta")
        # Without an envelope its sender does not know the stateless era, or is told in the words of that era.
        has_envelope = isinstance(meta, dict) and META_PROTOCOL_VERSION in meta
        return REV_2026_07_28 if has_envelope else REV_2025_11_25

    def _is_of_tasks(self, message: dict[str, Any]) -> bool:
        asked = self.asked[message["id"]]["method"]
        return asked in TASK_EXTENSION_METHODS or message["result"].get("resultType") == "task"


def _validate(value: Any, name: str, revision: Revision) -> None:
    _validator(name, revision).validate(value)


@cache
def _validator(name: str, revision: Revision) -> jsonschema.Draft202012Validator:
    schema = SCHEMAS[revision]
    return jsonschema.Draft202012Validator({"$defs": schema["$defs"], "$ref": f"#/$defs/{name}"})


@pytest.mark.parametrize(("script", "engines", "revision"), CASES)
def test_every_message_of_a_conversation_follows_the_official_schema(
    script: Script, engines: frozenset[Role], revision: Revision
) -> None:
    Checking(script, revision).play(engines)


def test_conversations_are_checked() -> None:
    case = next(case for case in CASES if case.id == "stateless-input-client-server-2026-07-28")
    script, engines, revision = case.values
    player = Checking(script, revision)  # type: ignore[arg-type]  # as they are made
    player.play(engines)  # type: ignore[arg-type]  # likewise
    assert player.checked == 6

"""Messages are completed for their revision, and reports show no secrets."""

from __future__ import annotations

import json

from mcpio.cli.rules.rows import Conversation, request
from mcpio.revisions import REV_2025_11_25, REV_2026_07_28


def test_stateless_request_carries_its_context() -> None:
    sent = Conversation(REV_2026_07_28, "http").dress(request("prompts/get", {"name": "ü"}, meta={"clientInfo": None}))
    assert json.loads(sent.data)["params"]["_meta"] == {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    assert sent.headers["mcp-name"] == "=?base64?w7w=?="


def test_headers_of_the_user_and_the_session_are_not_shown() -> None:
    talk = Conversation(REV_2025_11_25, "http", {"capabilities": {}}, "secret", {"authorization": "Bearer secret"})
    sent = talk.dress(request("ping", headers={"origin": "http://elsewhere.example"}))
    assert sent.headers["authorization"] == "Bearer secret"
    assert sent.headers["mcp-session-id"] == "secret"
    assert "secret" not in str(sent)
    assert "origin: http://elsewhere.example" in str(sent)

"""Configuration files of hosts: what people write into them, well-formed and not."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpio.app import ServerEntry, ServersConfig
from mcpio.app.servers_config import NoServers


def _entry(raw: Any, **variables: str) -> ServerEntry:
    return ServersConfig({"kitchen": raw}, variables=variables, source="mcp.json")["kitchen"]


def _fault(raw: Any, **variables: str) -> str:
    with pytest.raises(ValueError, match=r"^mcp\.json: the server") as caught:
        _entry(raw, **variables)
    prefix = "mcp.json: the server 'kitchen': "
    assert str(caught.value).startswith(prefix)
    return str(caught.value).removeprefix(prefix)


def test_program_and_url_read() -> None:
    text = """
    // for the team
    {"mcpServers": {
        "kitchen": {"command": "bake", "args": ["--hot", "http://x//y"], "env": {"A": "1"}, "cwd": "/srv"}, /* two
        lines */
        "town": {"url": "https://town/mcp", "headers": {"X-Key": "k, }"}, "disabled": true,},
    },}
    """
    config = ServersConfig.parse("\ufeff" + text, source="mcp.json")
    assert list(config) == ["kitchen", "town"]
    assert len(config) == 2
    assert config["kitchen"] == ServerEntry(command=("bake", "--hot", "http://x//y"), env={"A": "1"}, cwd="/srv")
    assert config["town"] == ServerEntry(url="https://town/mcp", headers={"X-Key": "k, }"}, disabled=True)
    assert repr(config) == "<ServersConfig mcp.json: kitchen, town>"
    with pytest.raises(KeyError):
        config["village"]


@pytest.mark.parametrize("key", ["mcpServers", "servers", "context_servers", "mcp_servers"])
def test_members_of_all_hosts_known(key: str) -> None:
    config = ServersConfig.parse(json.dumps({"theme": "dark", key: {"a": {"command": ["b", "c"], "args": ["d"]}}}))
    assert config["a"].command == ("b", "c", "d")
    assert config.source == "the configuration"


def test_toml_of_codex_read() -> None:
    text = """
    [mcp_servers.kitchen]
    command = "bake"
    enabled = false
    [mcp_servers.town]
    url = "https://town/mcp"
    bearer_token_env_var = "TOKEN"
    http_headers = { "X-A" = "b" }
    """
    config = ServersConfig.parse(text, variables={"TOKEN": "t"}, syntax="toml")
    assert config["kitchen"] == ServerEntry(command=("bake",), disabled=True)
    assert config["town"].headers == {"X-A": "b", "Authorization": "Bearer t"}
    with pytest.raises(ValueError, match=r"config\.toml is not TOML: "):
        ServersConfig.parse("[", source="config.toml", syntax="toml")
    with pytest.raises(ValueError, match=r"config\.toml is nested too deeply"):
        ServersConfig.parse("a=" + "[" * 100_000, source="config.toml", syntax="toml")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{\n  oops}", "mcp.json is not JSON: line 2, column 3: "),
        ('{"a": 1 /* open', "mcp.json is not JSON: line 1, column 9: "),
        ("", "mcp.json is not JSON: line 1, column 1: "),
        ("[" * 100_000, "mcp.json is nested too deeply"),
        ("[]", "mcp.json must hold an object with the member mcpServers, not an array"),
        ("null", "mcp.json must hold an object with the member mcpServers, not null"),
        ("3", "mcp.json must hold an object with the member mcpServers, not a number"),
        (
            "{}",
            "mcp.json has no servers: none of mcpServers, servers, context_servers, mcp_servers is there; it is empty",
        ),
        (
            '{"kitchen": {}}',
            "mcp.json has no servers: none of mcpServers, servers, context_servers, mcp_servers is there; it has k",
        ),
        ('{"servers": {}, "mcpServers": {}}', "mcp.json has both mcpServers and servers: keep the one "),
        ('{"servers": []}', "mcp.json: servers must be an object of servers by name, not an array"),
    ],
)
def test_malformed_file_rejected(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=r"^mcp\.json") as caught:
        ServersConfig.parse(text, source="mcp.json")
    assert str(caught.value).startswith(fault)
    assert isinstance(caught.value, NoServers) is ("has no servers" in fault)


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        ("bake", "is a string, not an object"),
        ({}, "has neither command nor url; it has nothing"),
        ({"cmd": "x", "args": []}, "has neither command nor url; it has cmd, args"),
        ({"command": "x", "url": "http://y"}, "has both command and url: a server is a program or a URL"),
        ({"command": 3}, "command is a number, not a string"),
        ({"command": ""}, "command is empty"),
        ({"command": []}, "command is empty"),
        ({"command": "x", "args": "y"}, "args is a string, not an array of strings"),
        ({"command": ["x"], "args": "y"}, "args is a string, not an array of strings"),
        ({"command": ["x"], "args": None}, "args is null, not an array of strings"),
        ({"command": "x", "args": ["a", 1]}, "args[1] is a number, not a string"),
        ({"command": "x", "env": ["A=1"]}, "env is an array, not an object of strings"),
        ({"command": "x", "env": {"A": True}}, "env.A is true or false, not a string"),
        ({"command": "x", "disabled": "no"}, "disabled is a string, not true or false"),
        ({"url": {}}, "url is an object, not a string"),
    ],
)
def test_malformed_entry_rejected(raw: Any, fault: str) -> None:
    assert _fault(raw) == fault


def test_malformed_entry_affects_no_other() -> None:
    config = ServersConfig({"bad": {}, "good": {"command": "x"}})
    assert config["good"].command == ("x",)
    assert "bad" in config
    with pytest.raises(ValueError, match="the configuration: the server 'bad': has neither"):
        config["bad"]


def test_variables_replaced_everywhere() -> None:
    raw = {"command": "${HOME}/x", "args": ["${env:A}-${A}"], "env": {"K": "${B:-two}", "L": "${A:-}"}, "cwd": "${A:-}"}
    assert _entry(raw, HOME="/h", A="1", B="") == ServerEntry(
        command=("/h/x", "1-1"), env={"K": "two", "L": "1"}, cwd="1"
    )
    entry = _entry({"httpUrl": "https://${A}", "headers": {"X": "${A}"}}, A="${A}")
    assert (entry.url, entry.headers) == ("https://${A}", {"X": "${A}"})  # replaced once


def test_missing_variable_named() -> None:
    fault = _fault({"command": "x", "env": {"KEY": "${TOKEN}"}})
    assert fault == "env.KEY needs the variable TOKEN, which is not set; ${TOKEN:-} would be empty text"
    assert _fault({"url": "x", "bearer_token_env_var": "T"}).startswith("bearer_token_env_var needs the variable T,")
    fault = _fault({"command": "x", "args": ["${input:key}"]})
    assert fault == "args[0] asks its host for 'input:key', which only VS Code does: write ${env:NAME}"


_text = st.text(max_size=20).filter(lambda text: "${" not in text)


@given(st.lists(_text, min_size=1), st.dictionaries(_text, _text), st.booleans())
def test_written_entry_read_unchanged(words: list[str], env: dict[str, str], decorated: bool) -> None:
    words[0] = words[0] or "x"
    text = json.dumps({"mcpServers": {"a": {"command": words[0], "args": words[1:], "env": env}}}, indent=2)
    if decorated:
        text = re.sub(r"([^\s{\[,])(\n\s*[}\]])", r"\1,\2", text)  # trailing commas
        text = text.replace("\n", ' /* ] */ // [,"\n')
    entry = ServersConfig.parse(text)["a"]
    assert (entry.command, entry.env) == (tuple(words), env)

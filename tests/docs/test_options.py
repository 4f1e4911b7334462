"""Each option that a program can pass is named by a guide: what stands in the reference alone is not found."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, is_typeddict

import pytest
from tree import ROOT

import mcpio
import mcpio.app
import mcpio.asgi
import mcpio.auth
import mcpio.backoff
import mcpio.files
import mcpio.http
import mcpio.observe
import mcpio.restarts
import mcpio.stores
import mcpio.telemetry
import mcpio.trio
from mcpio.app.client import Client
from mcpio.engine.options import KeepAlive

GUIDES = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md")))
CODE = {word for code in re.findall(r"```.*?```|`[^`\n]+`", GUIDES, re.DOTALL) for word in re.findall(r"\w+", code)}

FUNCTIONS = [
    *(getattr(mcpio.trio, name) for name in mcpio.trio.__all__ if re.match(r"open_|connect|serve|proxy|memory", name)),
    *(getattr(Client, name) for name in ("call_tool", "complete", "listen", "start_task")),
    mcpio.asgi.app,
    mcpio.files.share_directory,
]
CLASSES = [
    *(mcpio.Server, mcpio.Limits, mcpio.Options, mcpio.Timeout, KeepAlive),
    *(mcpio.app.Constraints, mcpio.app.CacheHint, mcpio.app.TaskOptions, mcpio.app.RequestStates, mcpio.app.Cache),
    *(mcpio.app.RateLimit, mcpio.app.ConcurrencyLimit, mcpio.app.SizeLimit, mcpio.app.Retry),
    *(mcpio.auth.ApiKeys, mcpio.auth.JwtVerifier, mcpio.auth.Introspection, mcpio.auth.ResourceServer),
    *(mcpio.auth.OAuth, mcpio.auth.Device, mcpio.auth.ClientCredentials, mcpio.auth.WorkloadIdentity),
    *(mcpio.auth.EnterpriseManaged, mcpio.auth.BearerToken, mcpio.auth.ApiKey),
    *(mcpio.backoff.Backoff, mcpio.restarts.RestartPolicy, mcpio.observe.Redactor, mcpio.telemetry.Telemetry),
    *(mcpio.http.HttpOptions, mcpio.http.HttpClientOptions, mcpio.http.Cors, mcpio.trio.HttpTimeouts),
]
TABLES = [
    *(mcpio.app.ToolOptions, mcpio.app.ResourceOptions, mcpio.app.PromptOptions, mcpio.app.CallOptions),
    *(value for value in vars(mcpio.trio).values() if is_typeddict(value)),
]
ELSEWHERE = {"alone", "to_read"}  # what drivers pass


def parameters(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the names that a caller passes; those of an option table are tested by themselves."""
    named = inspect.signature(function).parameters.values()
    return (each.name for each in named if each.kind is not each.VAR_KEYWORD and not each.name.startswith("_"))


@pytest.mark.parametrize("function", [*FUNCTIONS, *CLASSES], ids=lambda function: function.__qualname__)
def test_guide_names_every_parameter(function: Callable[..., Any]) -> None:
    assert set(parameters(function)) - CODE - ELSEWHERE - {"self"} == set()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_guide_names_every_option(table: type) -> None:
    assert set(table.__annotations__) - CODE - ELSEWHERE == set()

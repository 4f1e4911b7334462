"""Where secrets must not be: all that a login and a protected session leave behind is searched for them (T11)."""

from __future__ import annotations

import gc
import io
import logging
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

import pytest
import trio
from authsite import AuthSite, run
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from protectedsites import notes, protected, token

from mcpio import Context
from mcpio.auth import AuthorizationError, OAuth
from mcpio.cli import main as command
from mcpio.errors import ConnectFailed, McpError
from mcpio.http.client import HttpClientOptions
from mcpio.observe.recording import Recorder
from mcpio.stores import FileCredentials, SqliteStore
from mcpio.telemetry import Telemetry
from mcpio.trio import open_http, serve_http

SECRET_FIELDS = {"code", "code_verifier", "refresh_token", "client_secret", "client_assertion", "token"}


def secrets_of(site: AuthSite) -> set[str]:
    """Return every secret that passed between the client and both servers."""
    found = {"the client's secret"}
    for name, value in [each for headers in site.headers for each in headers.items()]:
        if name == "authorization":
            found.add(value.split(" ", 1)[1])
    for request in site.server.requests:
        found |= {value for name, value in parse_qsl((request.body or b"").decode()) if name in SECRET_FIELDS}
        found |= {value.split(" ", 1)[1] for name, value in request.headers if name == "authorization"}
    return found | {*site.server._tokens, *site.server._refresh_tokens, *site.server._codes}


def representations() -> Iterator[tuple[str, str]]:
    """Yield the representation of each object of the library that is alive, with the name of its class."""
    for each in gc.get_objects():
        if str(type(each).__module__).startswith("mcpio."):  # that of a class may be any object
            yield type(each).__qualname__, repr(each)


def test_secrets_are_in_no_log_recording_snapshot_traceback_representation_or_output(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MCPIO_HOME", str(tmp_path))
    recording = io.StringIO()
    texts: dict[str, str] = {}
    shown: list[tuple[str, str]] = []

    async def play(site: AuthSite) -> None:
        store = FileCredentials()
        auth = OAuth(client_id="given", client_secret="the client's secret")
        how: Any = {"auth": auth, "ask_user": site.browse, "tap": Recorder(recording.write)}
        site.needed["tools/call"] = frozenset({"mcp:write"})
        async with open_http(site.url, credentials=store, **how) as client:
            await client.call_tool("x")
            site.server.expire_tokens()
            await client.call_tool("x")
            texts["snapshot"] = repr(client.snapshot())
            shown.extend(representations())
        # What fails: a token that is refused for ever, and an authorization server that says something of it.
        site.server.faults.status = 400
        site.server.expire_tokens()
        with pytest.raises(ConnectFailed) as caught:
            async with open_http(site.url, credentials=store, interaction="never", **{**how, "tap": None}):
                pass
        shown.extend(representations())
        texts["traceback"] = "".join(traceback.format_exception(caught.value))
        error: Any = caught.value.__cause__
        assert isinstance(error, AuthorizationError)
        texts["error"] = repr((vars(error), error.args, error.__notes__ if hasattr(error, "__notes__") else ()))
        for words in (["list"], ["show", site.url]):
            assert await trio.to_thread.run_sync(command, ["auth", *words]) == 0
        texts["secrets"] = "\n".join(secrets_of(site))

    run(play, clients={"given": "the client's secret"})
    written = capsys.readouterr()
    texts |= {"log": caplog.text, "output": written.out + written.err, "recording": recording.getvalue()}
    secrets = {each for each in texts.pop("secrets").split("\n") if len(each) > 7}
    assert len(secrets) > 8
    assert len(texts["recording"]) > 1000
    assert "mcp:write" in texts["output"]
    wanted = {form for each in secrets for form in (each, quote(each, safe=""))}
    found = [(name, each) for name, text in [*texts.items(), *shown] for each in wanted if each in text]
    assert not found, sorted(set(found))
    files = list(tmp_path.rglob("*.json"))
    assert files
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.parent.stat().st_mode & 0o777 for path in files} == {0o700}


def test_protected_server_neither_stores_nor_shows_secrets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    spans, recording = InMemorySpanExporter(), io.StringIO()
    shown: list[tuple[str, str]] = []
    said: list[Any] = []
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    telemetry = Telemetry(tracer_provider=provider)
    server = notes()
    server.middleware(telemetry)
    good, bad = token(jti="canary-good"), token(aud="other", jti="canary-bad")

    @server.tool
    async def fails(ctx: Context) -> str:
        ctx.log("info", {"grant": repr(ctx.grant), "peer": repr(ctx.peer), "claims": dict(ctx.grant.claims)})  # type: ignore[union-attr]  # protected
        shown.extend(representations())
        raise RuntimeError(f"a fault of the handler for {ctx.grant!r}")

    async def main(store: SqliteStore) -> None:
        async with trio.open_nursery() as nursery:
            how: Any = {"auth": protected(), "store": store, "tap": partial(Recorder, recording.write)}
            site = await nursery.start(partial(serve_http, server, port=0, **how))
            for headers in ({"authorization": f"Bearer {good}"}, {"x-api-key": "mcp_key"}):
                options = HttpClientOptions(headers=headers)
                async with open_http(site.url, http=options, era="handshake", on_log=said.append) as client:
                    await client.call_tool("who")
                    with pytest.raises(McpError):
                        await client.call_tool("erase")
                    result = await client.call_tool("fails") if "authorization" in headers else None
                    texts["result"] = texts.get("result", "") + repr(result)
            with pytest.raises(ConnectFailed) as caught:
                async with open_http(site.url, http=HttpClientOptions(headers={"authorization": f"Bearer {bad}"})):
                    pass
            texts["refusal"] = "".join(traceback.format_exception(caught.value))
            nursery.cancel_scope.cancel()

    texts: dict[str, str] = {}
    with SqliteStore(tmp_path / "sessions.db") as store:
        trio.run(main, store)
        # Closing clears the journal.
        texts["sessions"] = b"".join(path.read_bytes() for path in tmp_path.iterdir()).decode("latin-1")
    texts |= {"log": caplog.text, "recording": recording.getvalue(), "said": repr(said)}
    texts["spans"] = "\n".join(span.to_json() for span in spans.get_finished_spans())
    assert "a fault of the handler" in texts["log"]
    assert len(texts["recording"]) > 1000
    assert "tools/call" in texts["spans"]
    assert "ada" in texts["sessions"]
    found = {(name, each) for name, text in [*texts.items(), *shown] for each in (good, bad, "mcp_key") if each in text}
    assert not found, sorted(found)

"""Clients over sockets on each loop, where there is no server, or none that answers."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import pytest
from eachloop import EachLoop, Here, on_each_loop

from mcpio import ConnectFailed
from mcpio.trio import HttpClientTimeouts


@pytest.mark.parametrize(
    ("kind", "where", "said", "cause"),
    [
        ("tcp", ("127.0.0.1", 1), r"no connection to 127\.0\.0\.1:1: .*Connection refused", OSError),
        ("websocket", ("ws://127.0.0.1:1/",), r"127\.0\.0\.1:1: .*Connection refused", OSError),
        ("unix", ("/nowhere/s",), "no connection to /nowhere/s: .*No such file", OSError),
        ("http", ("http+unix://%2Fnowhere%2Fs/mcp",), "No such file", ConnectFailed),
        ("tcp", ("a..b", 1), r"no connection to a\.\.b:1: ", UnicodeError),
        ("tcp", ("x" * 64, 1), "label", UnicodeError),
    ],
)
@on_each_loop
async def test_missing_server_is_connect_failed_with_the_address_and_the_reason(
    here: Here, kind: str, where: Any, said: str, cause: type[Exception]
) -> None:
    with pytest.raises(ConnectFailed, match=said) as caught:
        async with getattr(here.drivers, f"open_{kind}")(*where):
            pass
    assert isinstance(caught.value.__cause__, cause)


@pytest.mark.parametrize("kind", ["tcp", "websocket", "https"])
@on_each_loop
async def test_server_that_does_not_answer_is_connect_failed_in_time(here: Here, kind: str) -> None:
    context = ssl.create_default_context()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        port = silent.getsockname()[1]
        if kind == "tcp":
            opened = here.drivers.open_tcp("127.0.0.1", port, ssl_context=context, connect_timeout=0.1)
        elif kind == "websocket":
            opened = here.drivers.open_websocket(f"ws://127.0.0.1:{port}/", connect_timeout=0.1)
        else:
            timeouts = HttpClientTimeouts(connect=0.1)
            url = f"https://127.0.0.1:{port}/mcp"
            opened = here.open_http(url, ssl_context=context, timeouts=timeouts, trust_env=False)
        with pytest.raises(ConnectFailed, match=r"within 0\.1 s"):
            async with opened:
                pass


@pytest.mark.parametrize(
    ("kind", "url", "said"),
    [("websocket", "http://localhost/", "ws://"), ("http", "ftp://example.com", "must begin with http")],
)
def test_url_of_another_scheme_is_refused(kind: str, url: str, said: str, each_loop: EachLoop) -> None:
    async def main(here: Here) -> None:
        with pytest.raises(ValueError, match=said):
            async with getattr(here.drivers, f"open_{kind}")(url):
                pass

    each_loop.run(main)

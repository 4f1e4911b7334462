"""Tokens that are bound to the certificate of a client (RFC 8705), over TLS."""

from __future__ import annotations

import ssl
from functools import partial
from hashlib import sha256
from typing import Any

import pytest
import trio
from certificates import authority, serving_as, trusting
from protectedsites import bearer, notes, protected

from mcpio import AuthorizationRequired, ConnectFailed
from mcpio.auth.keys import base64url
from mcpio.http.client import HttpClientOptions
from mcpio.trio import open_http, open_websocket, serve_http
from mcpio.websocket import WebSocketOptions


def showing_certificate() -> tuple[ssl.SSLContext, str]:
    """Return the context of a client with a new certificate, and the thumbprint of that."""
    certificate = authority().issue_cert("ada@example.org", common_name="ada")
    context = trusting()
    certificate.configure_cert(context)
    encoded = ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode())
    return context, base64url(sha256(encoded).digest())


@pytest.mark.req("AUTH-56")
def test_token_is_taken_only_from_the_certificate_that_it_is_bound_to() -> None:
    mine, thumbprint = showing_certificate()
    other, _ = showing_certificate()
    headers = bearer(cnf={"x5t#S256": thumbprint})

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            how: Any = {
                "ssl_context": serving_as("localhost", asks=ssl.CERT_OPTIONAL),
                "websocket": WebSocketOptions(),
                "auth": protected(mtls=True),
            }
            site = await nursery.start(partial(serve_http, notes(), port=0, **how))
            url = f"https://localhost:{site.port}/mcp"
            over_http: Any = partial(open_http, url, http=HttpClientOptions(headers=headers))
            over_websocket: Any = partial(open_websocket, "wss" + url.removeprefix("https"), headers=headers)
            for open_ in (over_http, over_websocket):
                async with open_(ssl_context=mine) as client:
                    assert (await client.call_tool("who")).text == "ada by app: "
                for context in (other, trusting()):
                    with pytest.raises(ConnectFailed) as caught:
                        async with open_(ssl_context=context):
                            pass
                    assert isinstance(caught.value.__cause__, AuthorizationRequired)
                    assert caught.value.__cause__.status == 401
            nursery.cancel_scope.cancel()

    trio.run(main)

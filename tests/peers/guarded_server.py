"""The server of ``common_server.py`` behind authorization, and the authorization server, which approves at once.

It prints its URL.
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import time

import trio
from common_server import server
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from mcpio.auth import Fetch, JwtVerifier, ResourceServer, load_signer
from mcpio.testing import AuthorizationServer
from mcpio.trio import serve_http

KEY = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


class Tokens(BaseHTTPRequestHandler):
    """The authorization server, for browsers and for programs."""

    tokens: AuthorizationServer

    def do_GET(self) -> None:
        if self.path.startswith("/authorize?"):
            self.send_response(302)
            self.send_header("location", self.tokens.approve(self.tokens.issuer + self.path, time()))
            self.send_header("content-length", "0")
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = [(name.lower(), value) for name, value in self.headers.items()]
        url = self.tokens.issuer + self.path
        request = Fetch(method="GET" if self.command == "GET" else "POST", url=url, headers=headers, body=body)
        answer = self.tokens.respond(request, time())
        self.send_response(answer.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *args: object) -> None:
        """Be silent."""


async def main() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
    with ThreadingHTTPServer(("127.0.0.1", 0), Tokens) as site:
        issuer = f"http://127.0.0.1:{site.server_port}"
        Tokens.tokens = AuthorizationServer(issuer, url, scopes=("tools",), signer=load_signer(KEY, key_id="k"))
        Thread(target=site.serve_forever, daemon=True).start()
        verify = JwtVerifier(issuer, jwks=f"{issuer}/jwks")
        auth = ResourceServer(resource=url, authorization_servers=[issuer], verify=verify)
        print(url, flush=True)
        await serve_http(server, listeners=[listener], auth=auth)


if __name__ == "__main__":
    trio.run(main)

"""HTTP for Trio: servers and clients of Streamable HTTP over HTTP/1.1, and servers over HTTP/2."""

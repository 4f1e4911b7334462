"""The server's half of Streamable HTTP: sessions, streams and exchanges."""

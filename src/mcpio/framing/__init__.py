"""Layer 1: bytes to JSON-RPC messages and back. Independent of MCP, I/O and time."""

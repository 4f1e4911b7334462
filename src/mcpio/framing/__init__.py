"""Layer 1: bytes to JSON-RPC messages and back. Nothing here knows MCP, waits, or keeps time."""

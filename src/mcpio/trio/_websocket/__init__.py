"""The drivers for WebSocket."""

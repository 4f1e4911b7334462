"""WebSocket, as the drivers of all event loops share it."""

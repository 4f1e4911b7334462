"""TCP and Unix sockets, as the drivers of all event loops share them."""

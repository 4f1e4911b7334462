"""The inspector: a page that shows a conversation, and its backend, which is itself an mcpio server."""

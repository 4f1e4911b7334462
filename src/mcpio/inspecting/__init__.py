"""The inspector: a page that shows a conversation, and its backend, which is itself an mcpio server."""

from mcpio.inspecting.backend import Inspector, Viewer
from mcpio.inspecting.ladder import Ladder, LadderTap, Sender
from mcpio.inspecting.pages import page_of, serve_page

__all__ = ["Inspector", "Ladder", "LadderTap", "Sender", "Viewer", "page_of", "serve_page"]

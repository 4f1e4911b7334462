"""The inspector: a page that shows a conversation, and its backend, which is itself an mcpio server."""

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio.inspecting.backend import Inspector as Inspector
    from mcpio.inspecting.backend import Viewer as Viewer
    from mcpio.inspecting.ladder import Ladder as Ladder
    from mcpio.inspecting.ladder import LadderTap as LadderTap
    from mcpio.inspecting.ladder import Sender as Sender
    from mcpio.inspecting.pages import page_of as page_of
    from mcpio.inspecting.pages import serve_page as serve_page

    __all__: list[str]
else:
    # A relay needs the ladder at once, and the page with its HTTP server seldom.
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "backend": "Inspector Viewer",
            "ladder": "Ladder LadderTap Sender",
            "pages": "page_of serve_page",
        },
    )

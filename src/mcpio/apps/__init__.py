"""MCP Apps for hosts: the machine of a view, its policy, and the pump that joins it to a client.

A host shows a *view*, an HTML page of a server, beside the call of a tool. ``ViewConnection`` talks with it,
without I/O; ``open_view_pages`` of ``mcpio.trio`` and ``mcpio.asyncio`` show it in a browser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio.apps.machine import LEGAL as LEGAL
    from mcpio.apps.machine import TeardownRequested as TeardownRequested
    from mcpio.apps.machine import ViewCancelled as ViewCancelled
    from mcpio.apps.machine import ViewConnection as ViewConnection
    from mcpio.apps.machine import ViewEnded as ViewEnded
    from mcpio.apps.machine import ViewEvent as ViewEvent
    from mcpio.apps.machine import ViewFaulted as ViewFaulted
    from mcpio.apps.machine import ViewInitialized as ViewInitialized
    from mcpio.apps.machine import ViewInput as ViewInput
    from mcpio.apps.machine import ViewLogged as ViewLogged
    from mcpio.apps.machine import ViewPhase as ViewPhase
    from mcpio.apps.machine import ViewRequested as ViewRequested
    from mcpio.apps.machine import ViewResized as ViewResized
    from mcpio.apps.policy import EXTENSIONS as EXTENSIONS
    from mcpio.apps.policy import allow_of as allow_of
    from mcpio.apps.policy import csp_of as csp_of
    from mcpio.apps.policy import html_of as html_of
    from mcpio.apps.policy import tools_for_model as tools_for_model
    from mcpio.apps.policy import view_uri_of as view_uri_of
    from mcpio.apps.policy import visibility_of as visibility_of
    from mcpio.apps.pumping import ViewChannel as ViewChannel
    from mcpio.apps.pumping import ViewHandler as ViewHandler
    from mcpio.apps.pumping import pump as pump

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "machine": (
                "LEGAL TeardownRequested ViewCancelled ViewConnection ViewEnded ViewEvent ViewFaulted ViewInitialized "
                "ViewInput ViewLogged ViewPhase ViewRequested ViewResized"
            ),
            "policy": ("EXTENSIONS allow_of csp_of html_of tools_for_model view_uri_of visibility_of"),
            "pumping": ("ViewChannel ViewHandler pump"),
        },
    )

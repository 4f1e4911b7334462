"""Where the states of each machine stand in its drawing. ``state_svg.py`` says what the numbers are."""

from __future__ import annotations

from typing import Final

from state_svg import Edge, Layout

__all__ = ["LAYOUTS"]

_LIFE: Final = Layout(
    420,
    {"OPEN": (10, 10, 250), "CLOSING": (10, 100, 250), "CLOSED": (10, 246, 250)},
    (
        Edge(
            ("OPEN", "CLOSING"),
            "CLOSED",
            (((260, 27), (285, 27), (285, 263), (260, 263)), ((260, 150), (285, 150))),
            (293, 140),
            18,
        ),
        Edge(("OPEN",), "CLOSING", (((40, 44), (40, 100)),), (50, 76), 34),
        Edge(("CLOSING",), "CLOSED", (((40, 190), (40, 246)),), (50, 222), 34),
    ),
)

_CLIENT: Final = Layout(
    560,
    {
        "NEW": (190, 10, 180),
        "DISCOVERING": (14, 170, 180),
        "INITIALIZING": (366, 170, 180),
        "OPERATING": (130, 346, 300),
    },
    (
        Edge(
            ("DISCOVERING", "INITIALIZING", "OPERATING"),
            "NEW",
            (((530, 156), (530, 24), (370, 24)),),
            (388, 18),
            20,
        ),
        Edge(
            ("DISCOVERING", "INITIALIZING"),
            "NEW",
            (((260, 110), (260, 44)), ((130, 170), (130, 110), (420, 110), (420, 170))),
            (140, 128),
            24,
        ),
        Edge(("NEW",), "DISCOVERING", (((215, 44), (215, 84), (60, 84), (60, 170)),), (64, 62), 21),
        Edge(("NEW",), "INITIALIZING", (((355, 44), (355, 84), (480, 84), (480, 170)),), (366, 78), 20),
        Edge(("NEW",), "OPERATING", (((330, 44), (330, 346)),), (338, 248), 18),
        Edge(("DISCOVERING",), "OPERATING", (((60, 204), (60, 363), (130, 363)),), (68, 280), 20),
        Edge(("INITIALIZING",), "OPERATING", (((500, 225), (500, 363), (430, 363)),), (372, 304), 18),
    ),
    frames=((4, 156, 552, 314),),
)

_SERVER: Final = Layout(
    420,
    {"NEW": (10, 10, 270), "INITIALIZING": (10, 100, 270), "OPERATING": (10, 246, 270)},
    (
        Edge(("NEW",), "INITIALIZING", (((40, 44), (40, 100)),), (50, 76), 34),
        Edge(("INITIALIZING",), "OPERATING", (((40, 172), (40, 246)),), (50, 203), 34),
        Edge(("NEW",), "OPERATING", (((280, 27), (300, 27), (300, 263), (280, 263)),), (306, 140), 14),
    ),
)

_TASK: Final = Layout(
    496,
    {
        "WORKING": (20, 22, 168),
        "INPUT_REQUIRED": (20, 136, 168),
        "COMPLETED": (350, 22, 136),
        "FAILED": (350, 79, 136),
        "CANCELLED": (350, 136, 136),
    },
    (
        Edge(("WORKING", "INPUT_REQUIRED"), "COMPLETED", (((200, 39), (350, 39)),), (210, 33), 30),
        Edge(("WORKING", "INPUT_REQUIRED"), "FAILED", (((200, 96), (350, 96)),), (210, 90), 30),
        Edge(("WORKING", "INPUT_REQUIRED"), "CANCELLED", (((200, 153), (350, 153)),), (210, 147), 30),
        Edge(("WORKING",), "INPUT_REQUIRED", (((36, 56), (36, 136)),), (42, 92), 10),
        Edge(("INPUT_REQUIRED",), "WORKING", (((124, 136), (124, 56)),), (130, 92), 9),
    ),
    frames=((8, 10, 192, 172),),
)

LAYOUTS: Final = {
    ("LIFE_TABLE", "BOTH"): _LIFE,
    ("TABLE", "CLIENT"): _CLIENT,
    ("TABLE", "SERVER"): _SERVER,
    ("TASK_TABLE", "INCOMING"): _TASK,
}
"""By table and member of its first column; the others are stars."""

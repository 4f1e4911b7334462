"""The protocol engine: a pure state machine, with bytes in and events and bytes out.

``ClientConnection`` and ``ServerConnection`` are the two ends of a conversation; ``TaskMachine`` keeps the tasks of a
server. Nothing here reads a clock, draws random numbers or waits.
"""

from typing import TYPE_CHECKING

from mcpio._lazy import names_by_use

if TYPE_CHECKING:
    from mcpio.engine.batches import BatchItem
    from mcpio.engine.client import ClientConnection
    from mcpio.engine.connection import Connection
    from mcpio.engine.keep_alive import KeepAlive
    from mcpio.engine.ledger import Held, Ledger
    from mcpio.engine.limits import DEFAULT, Limits, Timeout
    from mcpio.engine.options import Options
    from mcpio.engine.outbox import Outgoing
    from mcpio.engine.pending import Pending, Unanswered
    from mcpio.engine.server import ServerConnection
    from mcpio.engine.table import Phase, Role
    from mcpio.engine.task_machine import TaskMachine
    from mcpio.engine.task_records import (
        StoreDelete,
        StoreLoad,
        StorePut,
        TaskChanged,
        TaskLimits,
        TaskOrphaned,
        TaskOutcome,
        TaskReplied,
        TaskStoreFailed,
    )

__all__ = [
    "DEFAULT",
    "BatchItem",
    "ClientConnection",
    "Connection",
    "Held",
    "KeepAlive",
    "Ledger",
    "Limits",
    "Options",
    "Outgoing",
    "Pending",
    "Phase",
    "Role",
    "ServerConnection",
    "StoreDelete",
    "StoreLoad",
    "StorePut",
    "TaskChanged",
    "TaskLimits",
    "TaskMachine",
    "TaskOrphaned",
    "TaskOutcome",
    "TaskReplied",
    "TaskStoreFailed",
    "Timeout",
    "Unanswered",
]

_HOME = {
    "batches": "BatchItem",
    "client": "ClientConnection",
    "connection": "Connection",
    "keep_alive": "KeepAlive",
    "ledger": "Held Ledger",
    "limits": "DEFAULT Limits Timeout",
    "options": "Options",
    "outbox": "Outgoing",
    "pending": "Pending Unanswered",
    "server": "ServerConnection",
    "table": "Phase Role",
    "task_machine": "TaskMachine",
    "task_records": (
        "StoreDelete StoreLoad StorePut TaskChanged TaskLimits TaskOrphaned TaskOutcome TaskReplied TaskStoreFailed"
    ),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = names_by_use(__name__, _HOME)

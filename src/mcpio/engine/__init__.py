"""The protocol engine: a pure state machine, with bytes in and events and bytes out.

``ClientConnection`` and ``ServerConnection`` are the two ends of a conversation; ``TaskMachine`` keeps the tasks of a
server. Nothing here reads a clock, draws random numbers or waits.
"""

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio.engine.batches import BatchItem as BatchItem
    from mcpio.engine.client import ClientConnection as ClientConnection
    from mcpio.engine.connection import Connection as Connection
    from mcpio.engine.keep_alive import KeepAlive as KeepAlive
    from mcpio.engine.ledger import Held as Held
    from mcpio.engine.ledger import Ledger as Ledger
    from mcpio.engine.limits import DEFAULT as DEFAULT
    from mcpio.engine.limits import Limits as Limits
    from mcpio.engine.limits import Timeout as Timeout
    from mcpio.engine.options import Options as Options
    from mcpio.engine.outbox import Outgoing as Outgoing
    from mcpio.engine.pending import Pending as Pending
    from mcpio.engine.pending import Unanswered as Unanswered
    from mcpio.engine.server import ServerConnection as ServerConnection
    from mcpio.engine.stateless_engine import StatelessEngine as StatelessEngine
    from mcpio.engine.table import Phase as Phase
    from mcpio.engine.task_machine import TaskMachine as TaskMachine
    from mcpio.engine.task_records import Renewal as Renewal
    from mcpio.engine.task_records import StoreDelete as StoreDelete
    from mcpio.engine.task_records import StoredTask as StoredTask
    from mcpio.engine.task_records import StoreFetch as StoreFetch
    from mcpio.engine.task_records import StoreLoad as StoreLoad
    from mcpio.engine.task_records import StorePut as StorePut
    from mcpio.engine.task_records import StoreRenew as StoreRenew
    from mcpio.engine.task_records import TaskAnswered as TaskAnswered
    from mcpio.engine.task_records import TaskChanged as TaskChanged
    from mcpio.engine.task_records import TaskLeased as TaskLeased
    from mcpio.engine.task_records import TaskLimits as TaskLimits
    from mcpio.engine.task_records import TaskOrphaned as TaskOrphaned
    from mcpio.engine.task_records import TaskOutcome as TaskOutcome
    from mcpio.engine.task_records import TaskReplied as TaskReplied
    from mcpio.engine.task_records import TasksLapsed as TasksLapsed
    from mcpio.engine.task_records import TaskStoreFailed as TaskStoreFailed
    from mcpio.engine.task_records import TaskTaken as TaskTaken

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
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
            "stateless_engine": "StatelessEngine",
            "table": "Phase",
            "task_machine": "TaskMachine",
            "task_records": (
                "Renewal StoreDelete StoredTask StoreFetch StoreLoad StorePut StoreRenew TaskAnswered TaskChanged "
                "TaskLeased TaskLimits TaskOrphaned TaskOutcome TaskReplied TasksLapsed TaskStoreFailed TaskTaken"
            ),
        },
    )

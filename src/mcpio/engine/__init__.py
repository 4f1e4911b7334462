"""The protocol engine: a pure state machine, with bytes in and events and bytes out.

``ClientConnection`` and ``ServerConnection`` are the two ends of a conversation; ``TaskMachine`` keeps the tasks of a
server. Nothing here reads a clock, draws random numbers or waits.
"""

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio.engine.channel import Outgoing as Outgoing
    from mcpio.engine.client import ClientConnection as ClientConnection
    from mcpio.engine.connection import Connection as Connection
    from mcpio.engine.dialect import BatchItem as BatchItem
    from mcpio.engine.limits import DEFAULT as DEFAULT
    from mcpio.engine.limits import Held as Held
    from mcpio.engine.limits import Ledger as Ledger
    from mcpio.engine.limits import Limits as Limits
    from mcpio.engine.limits import Timeout as Timeout
    from mcpio.engine.options import KeepAlive as KeepAlive
    from mcpio.engine.options import Options as Options
    from mcpio.engine.pending import Pending as Pending
    from mcpio.engine.pending import Unanswered as Unanswered
    from mcpio.engine.server import ServerConnection as ServerConnection
    from mcpio.engine.stateless_engine import StatelessEngine as StatelessEngine
    from mcpio.engine.table import Phase as Phase
    from mcpio.engine.tasks import StoreAdopt as StoreAdopt
    from mcpio.engine.tasks import StoreDelete as StoreDelete
    from mcpio.engine.tasks import StoredTask as StoredTask
    from mcpio.engine.tasks import StoreFetch as StoreFetch
    from mcpio.engine.tasks import StorePut as StorePut
    from mcpio.engine.tasks import StoreRenew as StoreRenew
    from mcpio.engine.tasks import TaskAnswered as TaskAnswered
    from mcpio.engine.tasks import TaskChanged as TaskChanged
    from mcpio.engine.tasks import TaskEnded as TaskEnded
    from mcpio.engine.tasks import TaskLeased as TaskLeased
    from mcpio.engine.tasks import TaskLimits as TaskLimits
    from mcpio.engine.tasks import TaskMachine as TaskMachine
    from mcpio.engine.tasks import TaskOrphaned as TaskOrphaned
    from mcpio.engine.tasks import TaskOutcome as TaskOutcome
    from mcpio.engine.tasks import TaskReplied as TaskReplied
    from mcpio.engine.tasks import TasksLapsed as TasksLapsed
    from mcpio.engine.tasks import TaskStoreFailed as TaskStoreFailed
    from mcpio.engine.tasks import TaskTaken as TaskTaken

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "dialect": "BatchItem",
            "client": "ClientConnection",
            "connection": "Connection",
            "options": "KeepAlive Options",
            "limits": "DEFAULT Held Ledger Limits Timeout",
            "channel": "Outgoing",
            "pending": "Pending Unanswered",
            "server": "ServerConnection",
            "stateless_engine": "StatelessEngine",
            "table": "Phase",
            "tasks": (
                "StoreAdopt StoreDelete StoreFetch StorePut StoreRenew StoredTask TaskAnswered TaskChanged TaskEnded "
                "TaskLeased TaskLimits TaskMachine TaskOrphaned TaskOutcome TaskReplied TaskStoreFailed TaskTaken "
                "TasksLapsed"
            ),
        },
    )

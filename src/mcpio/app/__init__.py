"""The application layer: servers from plain functions, and clients with one call per method. Tied to no event loop.

``mcpio`` itself has what most programs need. Here is the rest too: what a server's decorators and a client's calls
take, the sessions, the seam to an event loop, and how values of one's own become JSON. A name is looked up, and its
module imported, when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import names_by_use

if TYPE_CHECKING:
    from mcpio.app.client import CallOptions, Client, ClientOptions, OutgoingCall, client_connection
    from mcpio.app.client_handlers import Elicitor, RootsProvider, Sampler
    from mcpio.app.client_tools import CheckResults
    from mcpio.app.context import AskOptions, Context, RequestScope
    from mcpio.app.contracts import CallNext, Handler, Middleware, ProgressCallback, RunningTask
    from mcpio.app.elicitation import (
        Accepted,
        Cancelled,
        Declined,
        ElicitAnswer,
        WebAddress,
        check_content,
        defaults_of,
        web_address,
    )
    from mcpio.app.forms import Form
    from mcpio.app.health import SessionHealth
    from mcpio.app.icons import icon_fault, icon_redirect_fault, icon_type_of
    from mcpio.app.logs import redact_secrets
    from mcpio.app.middleware.limiting import (
        ConcurrencyLimit,
        LimitKey,
        RateLimit,
        allow,
        for_all,
        per_method,
        per_name,
        per_principal,
        per_session,
    )
    from mcpio.app.middleware.retrying import Retry
    from mcpio.app.pagination import Items, PageGuard
    from mcpio.app.registry.base import Registry
    from mcpio.app.registry.completion import best_matches
    from mcpio.app.registry.paths import PathClimbs, UnsafePath, path_segments
    from mcpio.app.registry.prompts import Prompts
    from mcpio.app.registry.registration import PromptOptions, RegistrationOptions, ResourceOptions, ToolOptions
    from mcpio.app.registry.resources import Resources
    from mcpio.app.registry.tools import Tools
    from mcpio.app.registry.uri_template import UriTemplate, UriTemplateError
    from mcpio.app.roots import root_of
    from mcpio.app.runtime import Driver, OneShot, Runtime, Spawned
    from mcpio.app.sampling import choose_model
    from mcpio.app.schema.constraints import Constraints
    from mcpio.app.schema.foreign import ForeignType, register_type
    from mcpio.app.schema.validation import SchemaError, Validator, ValidatorMissing
    from mcpio.app.server import Lifespan, Server
    from mcpio.app.server_session import LogFilter, NotificationHandler, ServerSession
    from mcpio.app.session import Session
    from mcpio.app.session_snapshot import SavedSession, UnansweredPolicy
    from mcpio.app.session_store import MemorySessionStore, SessionStore
    from mcpio.app.tasks.receiver import TaskOptions, TaskReceiver, ToolTasks
    from mcpio.app.tasks.requester import StatusCallback, TaskHandle
    from mcpio.app.tasks.running import TaskHost
    from mcpio.app.tasks.store import MemoryTaskStore, TaskStore

__all__ = [
    "Accepted",
    "AskOptions",
    "CallNext",
    "CallOptions",
    "Cancelled",
    "CheckResults",
    "Client",
    "ClientOptions",
    "ConcurrencyLimit",
    "Constraints",
    "Context",
    "Declined",
    "Driver",
    "ElicitAnswer",
    "Elicitor",
    "ForeignType",
    "Form",
    "Handler",
    "Items",
    "Lifespan",
    "LimitKey",
    "LogFilter",
    "MemorySessionStore",
    "MemoryTaskStore",
    "Middleware",
    "NotificationHandler",
    "OneShot",
    "OutgoingCall",
    "PageGuard",
    "PathClimbs",
    "ProgressCallback",
    "PromptOptions",
    "Prompts",
    "RateLimit",
    "RegistrationOptions",
    "Registry",
    "RequestScope",
    "ResourceOptions",
    "Resources",
    "Retry",
    "RootsProvider",
    "RunningTask",
    "Runtime",
    "Sampler",
    "SavedSession",
    "SchemaError",
    "Server",
    "ServerSession",
    "Session",
    "SessionHealth",
    "SessionStore",
    "Spawned",
    "StatusCallback",
    "TaskHandle",
    "TaskHost",
    "TaskOptions",
    "TaskReceiver",
    "TaskStore",
    "ToolOptions",
    "ToolTasks",
    "Tools",
    "UnansweredPolicy",
    "UnsafePath",
    "UriTemplate",
    "UriTemplateError",
    "Validator",
    "ValidatorMissing",
    "WebAddress",
    "allow",
    "best_matches",
    "check_content",
    "choose_model",
    "client_connection",
    "defaults_of",
    "for_all",
    "icon_fault",
    "icon_redirect_fault",
    "icon_type_of",
    "path_segments",
    "per_method",
    "per_name",
    "per_principal",
    "per_session",
    "redact_secrets",
    "register_type",
    "root_of",
    "web_address",
]

_HOME = {
    "client": "CallOptions Client ClientOptions OutgoingCall client_connection",
    "client_handlers": "Elicitor RootsProvider Sampler",
    "client_tools": "CheckResults",
    "context": "AskOptions Context RequestScope",
    "contracts": "CallNext Handler Middleware ProgressCallback RunningTask",
    "elicitation": "Accepted Cancelled Declined ElicitAnswer WebAddress check_content defaults_of web_address",
    "forms": "Form",
    "health": "SessionHealth",
    "icons": "icon_fault icon_redirect_fault icon_type_of",
    "logs": "redact_secrets",
    "middleware.limiting": (
        "ConcurrencyLimit LimitKey RateLimit allow for_all per_method per_name per_principal per_session"
    ),
    "middleware.retrying": "Retry",
    "pagination": "Items PageGuard",
    "registry.base": "Registry",
    "registry.completion": "best_matches",
    "registry.paths": "PathClimbs UnsafePath path_segments",
    "registry.prompts": "Prompts",
    "registry.registration": "PromptOptions RegistrationOptions ResourceOptions ToolOptions",
    "registry.resources": "Resources",
    "registry.tools": "Tools",
    "registry.uri_template": "UriTemplate UriTemplateError",
    "roots": "root_of",
    "runtime": "Driver OneShot Runtime Spawned",
    "sampling": "choose_model",
    "schema.constraints": "Constraints",
    "schema.foreign": "ForeignType register_type",
    "schema.validation": "SchemaError Validator ValidatorMissing",
    "server": "Lifespan Server",
    "server_session": "LogFilter NotificationHandler ServerSession",
    "session": "Session",
    "session_snapshot": "SavedSession UnansweredPolicy",
    "session_store": "MemorySessionStore SessionStore",
    "tasks.receiver": "TaskOptions TaskReceiver ToolTasks",
    "tasks.requester": "StatusCallback TaskHandle",
    "tasks.running": "TaskHost",
    "tasks.store": "MemoryTaskStore TaskStore",
}
"""The module of each name."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = names_by_use(__name__, _HOME)

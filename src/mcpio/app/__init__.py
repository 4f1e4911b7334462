"""The application layer: servers from plain functions, and clients with one call per method. Tied to no event loop.

``mcpio`` itself has what most programs need. Here is the rest too: what a server's decorators and a client's calls
take, the sessions, the seam to an event loop, and how values of one's own become JSON. A name is looked up, and its
module imported, when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import names_by_use

if TYPE_CHECKING:
    from mcpio.app.answering import Elicitor, Rooter, Sampler
    from mcpio.app.asking.elicited import Accepted, Declined, Dismissed, ElicitAnswer
    from mcpio.app.asking.form_content import check_content, defaults_of
    from mcpio.app.asking.forms import Form
    from mcpio.app.asking.models import choose_model
    from mcpio.app.asking.roots import root_of
    from mcpio.app.asking.web_address import WebAddress, web_address
    from mcpio.app.client import CallOptions, Client, ClientOptions, client_connection
    from mcpio.app.context import AskOptions, Context, RequestScope
    from mcpio.app.health import SessionHealth
    from mcpio.app.icons import icon_fault, icon_redirect_fault, icon_type_of
    from mcpio.app.limiting import (
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
    from mcpio.app.logs import LogFilter, redact_secrets
    from mcpio.app.middleware import Call, CallNext, Middleware
    from mcpio.app.offering.completion import best_matches
    from mcpio.app.offering.paths import PathClimbs, UnsafePath, path_segments
    from mcpio.app.offering.prompts import Prompts
    from mcpio.app.offering.registration import PromptOptions, RegistrationOptions, ResourceOptions, ToolOptions
    from mcpio.app.offering.registry import Registry
    from mcpio.app.offering.resources import Resources
    from mcpio.app.offering.tools import Tools
    from mcpio.app.offering.uri_template import UriTemplate, UriTemplateError
    from mcpio.app.pages import Items
    from mcpio.app.pagination import PageGuard
    from mcpio.app.peer_tasks.calls import StatusCallback
    from mcpio.app.peer_tasks.handle import TaskHandle
    from mcpio.app.result_checks import CheckResults
    from mcpio.app.retrying import Retry
    from mcpio.app.runtime import Driver, OneShot, Runtime, Spawned
    from mcpio.app.server import Lifespan, NotificationHandler, Server
    from mcpio.app.serving import ServerSession
    from mcpio.app.session import Handler, ProgressCallback, Session
    from mcpio.app.session_snapshot import SavedSession, UnansweredPolicy
    from mcpio.app.session_store import MemorySessionStore, SessionStore
    from mcpio.app.tasks.keeping import MemoryTaskStore, TaskStore
    from mcpio.app.tasks.receiver import TaskOptions, TaskReceiver
    from mcpio.app.tasks.runs import RunningTask, TaskPlace
    from mcpio.app.tasks.tools import ToolTasks
    from mcpio.app.values.constraints import Constraints
    from mcpio.app.values.foreign import ForeignType, register_type
    from mcpio.app.values.validation import SchemaError, Validator, ValidatorMissing

__all__ = [
    "Accepted",
    "AskOptions",
    "Call",
    "CallNext",
    "CallOptions",
    "CheckResults",
    "Client",
    "ClientOptions",
    "ConcurrencyLimit",
    "Constraints",
    "Context",
    "Declined",
    "Dismissed",
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
    "Rooter",
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
    "TaskOptions",
    "TaskPlace",
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
    "answering": "Elicitor Rooter Sampler",
    "client": "CallOptions Client ClientOptions client_connection",
    "offering.completion": "best_matches",
    "values.constraints": "Constraints",
    "context": "AskOptions Context RequestScope",
    "asking.elicited": "Accepted Declined Dismissed ElicitAnswer",
    "values.foreign": "ForeignType register_type",
    "asking.form_content": "check_content defaults_of",
    "asking.forms": "Form",
    "icons": "icon_fault icon_redirect_fault icon_type_of",
    "limiting": ("ConcurrencyLimit LimitKey RateLimit allow for_all per_method per_name per_principal per_session"),
    "logs": "LogFilter redact_secrets",
    "health": "SessionHealth",
    "middleware": "Call CallNext Middleware",
    "asking.models": "choose_model",
    "pages": "Items",
    "pagination": "PageGuard",
    "offering.paths": "PathClimbs UnsafePath path_segments",
    "offering.prompts": "Prompts",
    "offering.registration": "PromptOptions RegistrationOptions ResourceOptions ToolOptions",
    "offering.registry": "Registry",
    "offering.resources": "Resources",
    "result_checks": "CheckResults",
    "retrying": "Retry",
    "asking.roots": "root_of",
    "runtime": "Driver OneShot Runtime Spawned",
    "session_snapshot": "SavedSession UnansweredPolicy",
    "server": "Lifespan NotificationHandler Server",
    "serving": "ServerSession",
    "session": "Handler ProgressCallback Session",
    "session_store": "MemorySessionStore SessionStore",
    "peer_tasks.calls": "StatusCallback",
    "peer_tasks.handle": "TaskHandle",
    "offering.tools": "Tools",
    "offering.uri_template": "UriTemplate UriTemplateError",
    "values.validation": "SchemaError Validator ValidatorMissing",
    "asking.web_address": "WebAddress web_address",
    "tasks.keeping": "MemoryTaskStore TaskStore",
    "tasks.runs": "RunningTask TaskPlace",
    "tasks.receiver": "TaskOptions TaskReceiver",
    "tasks.tools": "ToolTasks",
}
"""The module of each name."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = names_by_use(__name__, _HOME)

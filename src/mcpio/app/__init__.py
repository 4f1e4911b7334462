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
    from mcpio.app.client import CallOptions, Client, ClientOptions, client_connection
    from mcpio.app.completion import best_matches
    from mcpio.app.constraints import Constraints
    from mcpio.app.context import AskOptions, Context, RequestScope
    from mcpio.app.elicited import Accepted, Declined, Dismissed, ElicitAnswer
    from mcpio.app.foreign import ForeignType, register_type
    from mcpio.app.form_content import check_content, defaults_of
    from mcpio.app.forms import Form
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
    from mcpio.app.models import choose_model
    from mcpio.app.pages import Items
    from mcpio.app.pagination import PageGuard
    from mcpio.app.paths import PathClimbs, UnsafePath, path_segments
    from mcpio.app.prompts import Prompts
    from mcpio.app.registration import PromptOptions, RegistrationOptions, ResourceOptions, ToolOptions
    from mcpio.app.registry import Registry
    from mcpio.app.resources import Resources
    from mcpio.app.result_checks import CheckResults
    from mcpio.app.retrying import Retry
    from mcpio.app.root_list import root_of
    from mcpio.app.runtime import Driver, OneShot, Runtime, Spawned
    from mcpio.app.saving import SavedSession, UnansweredPolicy
    from mcpio.app.server import Lifespan, NotificationHandler, Server
    from mcpio.app.serving import ServerSession
    from mcpio.app.session import Handler, ProgressCallback, Session
    from mcpio.app.session_keeping import MemorySessionStore, SessionStore
    from mcpio.app.task_calls import StatusCallback
    from mcpio.app.task_handle import TaskHandle
    from mcpio.app.task_keeping import MemoryTaskStore, TaskStore
    from mcpio.app.task_runs import RunningTask, TaskPlace
    from mcpio.app.tasks import TaskOptions, TaskReceiver
    from mcpio.app.tool_tasks import ToolTasks
    from mcpio.app.tools import Tools
    from mcpio.app.uri_template import UriTemplate, UriTemplateError
    from mcpio.app.validation import SchemaError, Validator, ValidatorMissing
    from mcpio.app.web_address import WebAddress, web_address

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
    "completion": "best_matches",
    "constraints": "Constraints",
    "context": "AskOptions Context RequestScope",
    "elicited": "Accepted Declined Dismissed ElicitAnswer",
    "foreign": "ForeignType register_type",
    "form_content": "check_content defaults_of",
    "forms": "Form",
    "icons": "icon_fault icon_redirect_fault icon_type_of",
    "limiting": ("ConcurrencyLimit LimitKey RateLimit allow for_all per_method per_name per_principal per_session"),
    "logs": "LogFilter redact_secrets",
    "health": "SessionHealth",
    "middleware": "Call CallNext Middleware",
    "models": "choose_model",
    "pages": "Items",
    "pagination": "PageGuard",
    "paths": "PathClimbs UnsafePath path_segments",
    "prompts": "Prompts",
    "registration": "PromptOptions RegistrationOptions ResourceOptions ToolOptions",
    "registry": "Registry",
    "resources": "Resources",
    "result_checks": "CheckResults",
    "retrying": "Retry",
    "root_list": "root_of",
    "runtime": "Driver OneShot Runtime Spawned",
    "saving": "SavedSession UnansweredPolicy",
    "server": "Lifespan NotificationHandler Server",
    "serving": "ServerSession",
    "session": "Handler ProgressCallback Session",
    "session_keeping": "MemorySessionStore SessionStore",
    "task_calls": "StatusCallback",
    "task_handle": "TaskHandle",
    "tools": "Tools",
    "uri_template": "UriTemplate UriTemplateError",
    "validation": "SchemaError Validator ValidatorMissing",
    "web_address": "WebAddress web_address",
    "task_keeping": "MemoryTaskStore TaskStore",
    "task_runs": "RunningTask TaskPlace",
    "tasks": "TaskOptions TaskReceiver",
    "tool_tasks": "ToolTasks",
}
"""The module of each name."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = names_by_use(__name__, _HOME)

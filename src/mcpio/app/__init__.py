"""The application layer: servers from plain functions, and clients with one call per method. Tied to no event loop.

``mcpio`` itself has what most programs need. Here is the rest too: what a server's decorators and a client's calls
take, the sessions, the seam to an event loop, and how values of one's own become JSON. A name is looked up, and its
module imported, when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio.app.asking import Accepted as Accepted
    from mcpio.app.asking import Cancelled as Cancelled
    from mcpio.app.asking import Declined as Declined
    from mcpio.app.asking import ElicitAnswer as ElicitAnswer
    from mcpio.app.asking import Form as Form
    from mcpio.app.asking import WebAddress as WebAddress
    from mcpio.app.asking import check_content as check_content
    from mcpio.app.asking import choose_model as choose_model
    from mcpio.app.asking import defaults_of as defaults_of
    from mcpio.app.asking import root_of as root_of
    from mcpio.app.asking import web_address as web_address
    from mcpio.app.caching import ResultCache as ResultCache
    from mcpio.app.changes import Changed as Changed
    from mcpio.app.changes import Changes as Changes
    from mcpio.app.changes import LocalChanges as LocalChanges
    from mcpio.app.client import CallOptions as CallOptions
    from mcpio.app.client import Client as Client
    from mcpio.app.client import ClientOptions as ClientOptions
    from mcpio.app.client import Elicitor as Elicitor
    from mcpio.app.client import OutgoingCall as OutgoingCall
    from mcpio.app.client import RootsProvider as RootsProvider
    from mcpio.app.client import Sampler as Sampler
    from mcpio.app.client import client_connection as client_connection
    from mcpio.app.client_skills import MemorySkillCache as MemorySkillCache
    from mcpio.app.client_skills import Skill as Skill
    from mcpio.app.client_skills import SkillCache as SkillCache
    from mcpio.app.client_skills import SkillFile as SkillFile
    from mcpio.app.client_tools import CheckResults as CheckResults
    from mcpio.app.context import AskOptions as AskOptions
    from mcpio.app.context import Context as Context
    from mcpio.app.context import RequestScope as RequestScope
    from mcpio.app.contracts import CacheHint as CacheHint
    from mcpio.app.contracts import CallNext as CallNext
    from mcpio.app.contracts import Handler as Handler
    from mcpio.app.contracts import InputRequired as InputRequired
    from mcpio.app.contracts import Middleware as Middleware
    from mcpio.app.contracts import ProgressCallback as ProgressCallback
    from mcpio.app.contracts import RunningTask as RunningTask
    from mcpio.app.icons import icon_fault as icon_fault
    from mcpio.app.icons import icon_redirect_fault as icon_redirect_fault
    from mcpio.app.icons import icon_type_of as icon_type_of
    from mcpio.app.listening import Change as Change
    from mcpio.app.listening import Listening as Listening
    from mcpio.app.listening import Missed as Missed
    from mcpio.app.middleware.policies import Cache as Cache
    from mcpio.app.middleware.policies import ConcurrencyLimit as ConcurrencyLimit
    from mcpio.app.middleware.policies import LimitKey as LimitKey
    from mcpio.app.middleware.policies import RateLimit as RateLimit
    from mcpio.app.middleware.policies import Retry as Retry
    from mcpio.app.middleware.policies import SizeLimit as SizeLimit
    from mcpio.app.middleware.policies import allow as allow
    from mcpio.app.middleware.policies import for_all as for_all
    from mcpio.app.middleware.policies import per_method as per_method
    from mcpio.app.middleware.policies import per_name as per_name
    from mcpio.app.middleware.policies import per_principal as per_principal
    from mcpio.app.middleware.policies import per_session as per_session
    from mcpio.app.mounting import Gathered as Gathered
    from mcpio.app.mounting import PublicNames as PublicNames
    from mcpio.app.pagination import Items as Items
    from mcpio.app.pagination import PageGuard as PageGuard
    from mcpio.app.registry.base import PathClimbs as PathClimbs
    from mcpio.app.registry.base import Registry as Registry
    from mcpio.app.registry.base import UnsafePath as UnsafePath
    from mcpio.app.registry.base import path_segments as path_segments
    from mcpio.app.registry.prompts import Prompts as Prompts
    from mcpio.app.registry.prompts import best_matches as best_matches
    from mcpio.app.registry.registration import PromptOptions as PromptOptions
    from mcpio.app.registry.registration import RegistrationOptions as RegistrationOptions
    from mcpio.app.registry.registration import ResourceOptions as ResourceOptions
    from mcpio.app.registry.registration import ToolOptions as ToolOptions
    from mcpio.app.registry.resources import Resources as Resources
    from mcpio.app.registry.resources import UriTemplate as UriTemplate
    from mcpio.app.registry.resources import UriTemplateError as UriTemplateError
    from mcpio.app.registry.tools import Tools as Tools
    from mcpio.app.reporting import redact_secrets as redact_secrets
    from mcpio.app.rounds import HmacSealer as HmacSealer
    from mcpio.app.rounds import RequestStates as RequestStates
    from mcpio.app.rounds import Sealer as Sealer
    from mcpio.app.runtime import Driver as Driver
    from mcpio.app.runtime import OneShot as OneShot
    from mcpio.app.runtime import Runtime as Runtime
    from mcpio.app.runtime import Spawned as Spawned
    from mcpio.app.schema.constraints import Constraints as Constraints
    from mcpio.app.schema.signature import Depends as Depends
    from mcpio.app.schema.validation import SchemaError as SchemaError
    from mcpio.app.schema.validation import Validator as Validator
    from mcpio.app.schema.validation import ValidatorMissing as ValidatorMissing
    from mcpio.app.schema.values import ForeignType as ForeignType
    from mcpio.app.schema.values import register_type as register_type
    from mcpio.app.server import Lifespan as Lifespan
    from mcpio.app.server import Server as Server
    from mcpio.app.server_session import LogFilter as LogFilter
    from mcpio.app.server_session import NotificationHandler as NotificationHandler
    from mcpio.app.server_session import ServerSession as ServerSession
    from mcpio.app.servers_config import ServerEntry as ServerEntry
    from mcpio.app.servers_config import ServersConfig as ServersConfig
    from mcpio.app.session import SavedSession as SavedSession
    from mcpio.app.session import Session as Session
    from mcpio.app.session import SessionHealth as SessionHealth
    from mcpio.app.session import UnansweredPolicy as UnansweredPolicy
    from mcpio.app.session_store import MemorySessionStore as MemorySessionStore
    from mcpio.app.session_store import SessionStore as SessionStore
    from mcpio.app.skills import SkillFault as SkillFault
    from mcpio.app.skills import Skills as Skills
    from mcpio.app.tasks.receiver import TaskOptions as TaskOptions
    from mcpio.app.tasks.receiver import TaskReceiver as TaskReceiver
    from mcpio.app.tasks.receiver import ToolTasks as ToolTasks
    from mcpio.app.tasks.requester import StatusCallback as StatusCallback
    from mcpio.app.tasks.requester import TaskHandle as TaskHandle
    from mcpio.app.tasks.store import MemoryTaskStore as MemoryTaskStore
    from mcpio.app.tasks.store import TaskHost as TaskHost
    from mcpio.app.tasks.store import TaskStore as TaskStore

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "caching": "ResultCache",
            "contracts": "CacheHint CallNext Handler InputRequired Middleware ProgressCallback RunningTask",
            "changes": "Changed Changes LocalChanges",
            "client": (
                "CallOptions Client ClientOptions Elicitor OutgoingCall RootsProvider Sampler client_connection"
            ),
            "client_skills": "MemorySkillCache Skill SkillCache SkillFile",
            "client_tools": "CheckResults",
            "context": "AskOptions Context RequestScope",
            "schema.signature": "Depends",
            "asking": (
                "Accepted Cancelled Declined ElicitAnswer Form WebAddress check_content choose_model defaults_of "
                "root_of web_address"
            ),
            "mounting": "Gathered PublicNames",
            "session": "SavedSession Session SessionHealth UnansweredPolicy",
            "icons": "icon_fault icon_redirect_fault icon_type_of",
            "listening": "Change Listening Missed",
            "reporting": "redact_secrets",
            "middleware.policies": (
                "Cache ConcurrencyLimit LimitKey RateLimit Retry SizeLimit allow for_all per_method per_name "
                "per_principal per_session"
            ),
            "pagination": "Items PageGuard",
            "registry.base": "PathClimbs Registry UnsafePath path_segments",
            "registry.prompts": "Prompts best_matches",
            "registry.registration": "PromptOptions RegistrationOptions ResourceOptions ToolOptions",
            "registry.resources": "Resources UriTemplate UriTemplateError",
            "registry.tools": "Tools",
            "rounds": "HmacSealer RequestStates Sealer",
            "runtime": "Driver OneShot Runtime Spawned",
            "schema.constraints": "Constraints",
            "schema.values": "ForeignType register_type",
            "schema.validation": "SchemaError Validator ValidatorMissing",
            "server": "Lifespan Server",
            "server_session": "LogFilter NotificationHandler ServerSession",
            "servers_config": "ServerEntry ServersConfig",
            "session_store": "MemorySessionStore SessionStore",
            "skills": "SkillFault Skills",
            "tasks.receiver": "TaskOptions TaskReceiver ToolTasks",
            "tasks.requester": "StatusCallback TaskHandle",
            "tasks.store": "MemoryTaskStore TaskHost TaskStore",
        },
    )

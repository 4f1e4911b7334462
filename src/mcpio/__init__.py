"""The Model Context Protocol as a pure state machine, and an application layer on top of it.

These are the names that most programs need, each imported when it is first used. The rest is in modules named after
what they hold:

- ``mcpio.types``: every payload of every revision
- ``mcpio.errors``, ``mcpio.events``, ``mcpio.revisions``, ``mcpio.methods``, ``mcpio.codec``: the other vocabulary
- ``mcpio.engine``: connections and tasks as machines; ``mcpio.observe``: taps, recordings, replay
- ``mcpio.app``: servers and clients; ``mcpio.refusals``, ``mcpio.profiles``: error codes and dialects
- ``mcpio.http``, ``mcpio.websocket``: the transports as machines
- ``mcpio.trio``, ``mcpio.asyncio``, ``mcpio.asgi``: the drivers, so that a program pays for an event loop only if it
  uses one; ``mcpio.stores``: what outlives a process
- ``mcpio.testing``: pairs of connections, scripts, virtual time
"""

from mcpio._lazy import lazy_names

TYPE_CHECKING = False
"""As in ``typing``, whose import would take longer than everything else here."""

if TYPE_CHECKING:
    from mcpio.app.client import Client as Client
    from mcpio.app.context import Context as Context
    from mcpio.app.server import Server as Server
    from mcpio.engine.channel import Outgoing as Outgoing
    from mcpio.engine.client import ClientConnection as ClientConnection
    from mcpio.engine.limits import Limits as Limits
    from mcpio.engine.limits import Timeout as Timeout
    from mcpio.engine.options import Options as Options
    from mcpio.engine.server import ServerConnection as ServerConnection
    from mcpio.engine.table import Phase as Phase
    from mcpio.errors import AuthorizationRequired as AuthorizationRequired
    from mcpio.errors import ConnectFailed as ConnectFailed
    from mcpio.errors import ConnectionLost as ConnectionLost
    from mcpio.errors import InvalidMessage as InvalidMessage
    from mcpio.errors import LocalProtocolError as LocalProtocolError
    from mcpio.errors import McpError as McpError
    from mcpio.errors import NoBackChannel as NoBackChannel
    from mcpio.errors import ProtocolError as ProtocolError
    from mcpio.errors import Refusal as Refusal
    from mcpio.errors import RemoteProtocolError as RemoteProtocolError
    from mcpio.errors import RequestCancelled as RequestCancelled
    from mcpio.errors import RequestError as RequestError
    from mcpio.errors import RequestTimeout as RequestTimeout
    from mcpio.errors import ToolError as ToolError
    from mcpio.events import Answered as Answered
    from mcpio.events import CancelReceived as CancelReceived
    from mcpio.events import CloseReason as CloseReason
    from mcpio.events import ConnectionClosed as ConnectionClosed
    from mcpio.events import Event as Event
    from mcpio.events import IgnoreReason as IgnoreReason
    from mcpio.events import IncomingId as IncomingId
    from mcpio.events import Initialized as Initialized
    from mcpio.events import MessageIgnored as MessageIgnored
    from mcpio.events import Negotiated as Negotiated
    from mcpio.events import NoiseReceived as NoiseReceived
    from mcpio.events import NotificationReceived as NotificationReceived
    from mcpio.events import OutgoingId as OutgoingId
    from mcpio.events import Peer as Peer
    from mcpio.events import ProgressReceived as ProgressReceived
    from mcpio.events import ProtocolViolated as ProtocolViolated
    from mcpio.events import RequestContext as RequestContext
    from mcpio.events import RequestFailed as RequestFailed
    from mcpio.events import RequestReceived as RequestReceived
    from mcpio.events import ResponseReceived as ResponseReceived
    from mcpio.events import SubscriptionAcknowledged as SubscriptionAcknowledged
    from mcpio.events import SubscriptionNotified as SubscriptionNotified
    from mcpio.events import VersionMismatched as VersionMismatched
    from mcpio.revisions import LATEST_HANDSHAKE as LATEST_HANDSHAKE
    from mcpio.revisions import Revision as Revision
    from mcpio.types.content import TextContent as TextContent
    from mcpio.types.features import CallToolRequest as CallToolRequest
    from mcpio.types.features import CallToolResult as CallToolResult
    from mcpio.types.features import ClientCapabilities as ClientCapabilities
    from mcpio.types.features import Implementation as Implementation
    from mcpio.types.features import ListToolsRequest as ListToolsRequest
    from mcpio.types.features import ListToolsResult as ListToolsResult
    from mcpio.types.features import ServerCapabilities as ServerCapabilities
    from mcpio.types.features import Tool as Tool
    from mcpio.types.features import ToolsCapability as ToolsCapability

    __all__: list[str]
    __version__: str
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "app.client": "Client",
            "app.context": "Context",
            "app.server": "Server",
            "engine.client": "ClientConnection",
            "engine.limits": "Limits Timeout",
            "engine.options": "Options",
            "engine.channel": "Outgoing",
            "engine.server": "ServerConnection",
            "engine.table": "Phase",
            "errors": (
                "AuthorizationRequired ConnectFailed ConnectionLost InvalidMessage LocalProtocolError McpError "
                "NoBackChannel ProtocolError Refusal RemoteProtocolError RequestCancelled RequestError "
                "RequestTimeout ToolError"
            ),
            "events": (
                "Answered CancelReceived CloseReason ConnectionClosed Event IgnoreReason IncomingId Initialized "
                "MessageIgnored Negotiated NoiseReceived NotificationReceived OutgoingId Peer ProgressReceived "
                "ProtocolViolated RequestContext RequestFailed RequestReceived ResponseReceived "
                "SubscriptionAcknowledged SubscriptionNotified VersionMismatched"
            ),
            "revisions": "LATEST_HANDSHAKE Revision",
            "types.content": "TextContent",
            "types.features": (
                "CallToolRequest CallToolResult ClientCapabilities Implementation ListToolsRequest ListToolsResult "
                "ServerCapabilities Tool ToolsCapability"
            ),
            "_version": "__version__",
        },
        elsewhere={
            "mcpio.trio and mcpio.asyncio": (
                "memory_client open_http open_servers open_stdio open_tcp open_unix open_websocket proxy serve "
                "serve_stdio serve_tcp serve_unix"
            ),
            "mcpio.trio, and mcpio.asgi serves it on asyncio": "serve_http serve_websocket",
            "mcpio.app": "Accepted Cancelled Declined Depends InputRequired Middleware RateLimit Retry SizeLimit",
            "mcpio.auth": "BearerToken ClientCredentials JwtVerifier OAuth ResourceServer",
            "mcpio.types": "AudioContent EmbeddedResource ImageContent PromptMessage ResourceLink ToolAnnotations",
        },
    )

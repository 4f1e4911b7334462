"""OAuth as machines: what a client does to be authorized, and what a protected server checks. Nothing here waits.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from mcpio._lazy import names_by_use

if TYPE_CHECKING:
    from mcpio.auth.authorization_code import OAuth, PendingAuthorization
    from mcpio.auth.challenges import Challenge, bearer_challenge, parse_challenges
    from mcpio.auth.credentials import Credentials, MemoryCredentials, Registration, from_text, to_text
    from mcpio.auth.discovery import discover
    from mcpio.auth.effects import (
        AskUser,
        BindRedirect,
        CloseRedirect,
        Effect,
        Fetch,
        Flow,
        FlowContext,
        Headers,
        LoadCredentials,
        LockCredentials,
        NeedAssertion,
        Pause,
        Response,
        SaveCredentials,
        ShowCode,
        Stored,
        UnlockCredentials,
        run,
    )
    from mcpio.auth.errors import AuthorizationError, EffectFailed
    from mcpio.auth.grant import Grant
    from mcpio.auth.grants import ClientCredentials, Device, EnterpriseManaged, WorkloadIdentity
    from mcpio.auth.metadata import AuthorizationServerMetadata, ProtectedResourceMetadata, client_metadata
    from mcpio.auth.options import AuthorizationOptions
    from mcpio.auth.pkce import Entropy
    from mcpio.auth.reach import Reach
    from mcpio.auth.scopes import missing_scopes
    from mcpio.auth.secret import Secret
    from mcpio.auth.signing import Signer, load_signer, signed_jwt
    from mcpio.auth.token_requests import refresh, revoke
    from mcpio.auth.tokens import TokenSet
    from mcpio.auth.urls import (
        canonical_resource,
        check_authorization_url,
        issuer_metadata_urls,
        resource_metadata_urls,
    )

_HOME = {
    "authorization_code": "OAuth PendingAuthorization",
    "challenges": "Challenge bearer_challenge parse_challenges",
    "credentials": "Credentials MemoryCredentials Registration from_text to_text",
    "discovery": "discover",
    "effects": (
        "AskUser BindRedirect CloseRedirect Effect Fetch Flow FlowContext Headers LoadCredentials "
        "LockCredentials NeedAssertion Pause Response SaveCredentials ShowCode Stored "
        "UnlockCredentials run"
    ),
    "errors": "AuthorizationError EffectFailed",
    "grant": "Grant",
    "grants": "ClientCredentials Device EnterpriseManaged WorkloadIdentity",
    "metadata": "AuthorizationServerMetadata ProtectedResourceMetadata client_metadata",
    "options": "AuthorizationOptions",
    "pkce": "Entropy",
    "reach": "Reach",
    "scopes": "missing_scopes",
    "secret": "Secret",
    "signing": "Signer load_signer signed_jwt",
    "token_requests": "refresh revoke",
    "tokens": "TokenSet",
    "urls": "canonical_resource check_authorization_url issuer_metadata_urls resource_metadata_urls",
}
"""The names of each module."""

__all__ = [
    "AskUser",
    "AuthorizationError",
    "AuthorizationOptions",
    "AuthorizationServerMetadata",
    "BindRedirect",
    "Challenge",
    "ClientCredentials",
    "CloseRedirect",
    "Credentials",
    "Device",
    "Effect",
    "EffectFailed",
    "EnterpriseManaged",
    "Entropy",
    "Fetch",
    "Flow",
    "FlowContext",
    "Grant",
    "Headers",
    "LoadCredentials",
    "LockCredentials",
    "MemoryCredentials",
    "NeedAssertion",
    "OAuth",
    "Pause",
    "PendingAuthorization",
    "ProtectedResourceMetadata",
    "Reach",
    "Registration",
    "Response",
    "SaveCredentials",
    "Secret",
    "ShowCode",
    "Signer",
    "Stored",
    "TokenSet",
    "UnlockCredentials",
    "WorkloadIdentity",
    "bearer_challenge",
    "canonical_resource",
    "check_authorization_url",
    "client_metadata",
    "discover",
    "from_text",
    "issuer_metadata_urls",
    "load_signer",
    "missing_scopes",
    "parse_challenges",
    "refresh",
    "resource_metadata_urls",
    "revoke",
    "run",
    "signed_jwt",
    "to_text",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = names_by_use(__name__, _HOME)

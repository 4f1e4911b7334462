"""OAuth as state machines: authorization of a client, and protection of a server. No I/O.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio.auth.authorization_code import OAuth as OAuth
    from mcpio.auth.authorizer import AuthorizationEvent as AuthorizationEvent
    from mcpio.auth.authorizer import AuthorizationFailed as AuthorizationFailed
    from mcpio.auth.authorizer import Authorized as Authorized
    from mcpio.auth.authorizer import Authorizer as Authorizer
    from mcpio.auth.authorizer import CredentialsNotSaved as CredentialsNotSaved
    from mcpio.auth.authorizer import Ready as Ready
    from mcpio.auth.authorizer import Verdict as Verdict
    from mcpio.auth.challenges import Challenge as Challenge
    from mcpio.auth.challenges import bearer_challenge as bearer_challenge
    from mcpio.auth.challenges import parse_challenges as parse_challenges
    from mcpio.auth.credentials import Credentials as Credentials
    from mcpio.auth.credentials import MemoryCredentials as MemoryCredentials
    from mcpio.auth.credentials import from_text as from_text
    from mcpio.auth.credentials import to_text as to_text
    from mcpio.auth.discovery import discover as discover
    from mcpio.auth.effects import AskUser as AskUser
    from mcpio.auth.effects import BindRedirect as BindRedirect
    from mcpio.auth.effects import CloseRedirect as CloseRedirect
    from mcpio.auth.effects import Effect as Effect
    from mcpio.auth.effects import Fetch as Fetch
    from mcpio.auth.effects import Flow as Flow
    from mcpio.auth.effects import FlowContext as FlowContext
    from mcpio.auth.effects import Headers as Headers
    from mcpio.auth.effects import LoadCredentials as LoadCredentials
    from mcpio.auth.effects import LockCredentials as LockCredentials
    from mcpio.auth.effects import NeedAssertion as NeedAssertion
    from mcpio.auth.effects import Pause as Pause
    from mcpio.auth.effects import Response as Response
    from mcpio.auth.effects import RestoreCredentials as RestoreCredentials
    from mcpio.auth.effects import SaveCredentials as SaveCredentials
    from mcpio.auth.effects import ShowCode as ShowCode
    from mcpio.auth.effects import Stored as Stored
    from mcpio.auth.effects import UnlockCredentials as UnlockCredentials
    from mcpio.auth.effects import run as run
    from mcpio.auth.errors import AuthorizationError as AuthorizationError
    from mcpio.auth.errors import EffectFailed as EffectFailed
    from mcpio.auth.given import ApiKey as ApiKey
    from mcpio.auth.given import AssertionSource as AssertionSource
    from mcpio.auth.given import BearerToken as BearerToken
    from mcpio.auth.grant import Grant as Grant
    from mcpio.auth.grant_types import ClientCredentials as ClientCredentials
    from mcpio.auth.grant_types import Device as Device
    from mcpio.auth.grant_types import EnterpriseManaged as EnterpriseManaged
    from mcpio.auth.grant_types import WorkloadIdentity as WorkloadIdentity
    from mcpio.auth.introspection import Introspection as Introspection
    from mcpio.auth.jwt import JwtVerifier as JwtVerifier
    from mcpio.auth.metadata import AuthorizationServerMetadata as AuthorizationServerMetadata
    from mcpio.auth.metadata import ProtectedResourceMetadata as ProtectedResourceMetadata
    from mcpio.auth.metadata import client_metadata as client_metadata
    from mcpio.auth.options import AuthorizationOptions as AuthorizationOptions
    from mcpio.auth.pending import LoginRequired as LoginRequired
    from mcpio.auth.pending import PendingAuthorization as PendingAuthorization
    from mcpio.auth.pkce import Entropy as Entropy
    from mcpio.auth.reach import Reach as Reach
    from mcpio.auth.registration import Registration as Registration
    from mcpio.auth.resource_server import Admission as Admission
    from mcpio.auth.resource_server import Guard as Guard
    from mcpio.auth.resource_server import Refused as Refused
    from mcpio.auth.resource_server import ResourceServer as ResourceServer
    from mcpio.auth.scopes import missing_scopes as missing_scopes
    from mcpio.auth.secret import Secret as Secret
    from mcpio.auth.signing import Signer as Signer
    from mcpio.auth.signing import load_signer as load_signer
    from mcpio.auth.signing import signed_jwt as signed_jwt
    from mcpio.auth.storage import restore_credentials as restore_credentials
    from mcpio.auth.table import AuthorizationState as AuthorizationState
    from mcpio.auth.token_requests import refresh as refresh
    from mcpio.auth.token_requests import revoke as revoke
    from mcpio.auth.tokens import TokenSet as TokenSet
    from mcpio.auth.urls import canonical_resource as canonical_resource
    from mcpio.auth.urls import check_authorization_url as check_authorization_url
    from mcpio.auth.urls import issuer_metadata_urls as issuer_metadata_urls
    from mcpio.auth.urls import resource_metadata_urls as resource_metadata_urls
    from mcpio.auth.verifiers import ApiKeys as ApiKeys
    from mcpio.auth.verifiers import InvalidToken as InvalidToken
    from mcpio.auth.verifiers import NeedKeys as NeedKeys
    from mcpio.auth.verifiers import Verifier as Verifier
    from mcpio.auth.verifiers import api_key_digest as api_key_digest
    from mcpio.auth.verifiers import new_api_key as new_api_key

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "authorization_code": "OAuth",
            "authorizer": (
                "AuthorizationEvent AuthorizationFailed Authorized Authorizer CredentialsNotSaved Ready Verdict"
            ),
            "challenges": "Challenge bearer_challenge parse_challenges",
            "credentials": "Credentials MemoryCredentials from_text to_text",
            "discovery": "discover",
            "effects": (
                "AskUser BindRedirect CloseRedirect Effect Fetch Flow FlowContext Headers LoadCredentials "
                "LockCredentials NeedAssertion Pause Response RestoreCredentials SaveCredentials ShowCode Stored "
                "UnlockCredentials run"
            ),
            "errors": "AuthorizationError EffectFailed",
            "given": "ApiKey AssertionSource BearerToken",
            "grant": "Grant",
            "grant_types": "ClientCredentials Device EnterpriseManaged WorkloadIdentity",
            "introspection": "Introspection",
            "jwt": "JwtVerifier",
            "metadata": "AuthorizationServerMetadata ProtectedResourceMetadata client_metadata",
            "options": "AuthorizationOptions",
            "pending": "LoginRequired PendingAuthorization",
            "pkce": "Entropy",
            "reach": "Reach",
            "registration": "Registration",
            "resource_server": "Admission Guard Refused ResourceServer",
            "scopes": "missing_scopes",
            "secret": "Secret",
            "signing": "Signer load_signer signed_jwt",
            "storage": "restore_credentials",
            "table": "AuthorizationState",
            "token_requests": "refresh revoke",
            "tokens": "TokenSet",
            "urls": "canonical_resource check_authorization_url issuer_metadata_urls resource_metadata_urls",
            "verifiers": "ApiKeys InvalidToken NeedKeys Verifier api_key_digest new_api_key",
        },
    )

"""OAuth as state machines: authorization of a client, and protection of a server. No I/O.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from mcpio._lazy import lazy_names

if TYPE_CHECKING:
    from mcpio.auth.authorizer import AuthorizationEvent as AuthorizationEvent
    from mcpio.auth.authorizer import AuthorizationFailed as AuthorizationFailed
    from mcpio.auth.authorizer import AuthorizationState as AuthorizationState
    from mcpio.auth.authorizer import Authorized as Authorized
    from mcpio.auth.authorizer import Authorizer as Authorizer
    from mcpio.auth.authorizer import CredentialsNotSaved as CredentialsNotSaved
    from mcpio.auth.authorizer import Ready as Ready
    from mcpio.auth.authorizer import Verdict as Verdict
    from mcpio.auth.effects import ApiKey as ApiKey
    from mcpio.auth.effects import AskUser as AskUser
    from mcpio.auth.effects import AssertionSource as AssertionSource
    from mcpio.auth.effects import BearerToken as BearerToken
    from mcpio.auth.effects import BindRedirect as BindRedirect
    from mcpio.auth.effects import CloseRedirect as CloseRedirect
    from mcpio.auth.effects import Credentials as Credentials
    from mcpio.auth.effects import Effect as Effect
    from mcpio.auth.effects import Fetch as Fetch
    from mcpio.auth.effects import Flow as Flow
    from mcpio.auth.effects import FlowContext as FlowContext
    from mcpio.auth.effects import Headers as Headers
    from mcpio.auth.effects import LoadCredentials as LoadCredentials
    from mcpio.auth.effects import LockCredentials as LockCredentials
    from mcpio.auth.effects import MemoryCredentials as MemoryCredentials
    from mcpio.auth.effects import NeedAssertion as NeedAssertion
    from mcpio.auth.effects import Pause as Pause
    from mcpio.auth.effects import Response as Response
    from mcpio.auth.effects import RestoreCredentials as RestoreCredentials
    from mcpio.auth.effects import SaveCredentials as SaveCredentials
    from mcpio.auth.effects import ShowCode as ShowCode
    from mcpio.auth.effects import Stored as Stored
    from mcpio.auth.effects import UnlockCredentials as UnlockCredentials
    from mcpio.auth.effects import from_text as from_text
    from mcpio.auth.effects import run as run
    from mcpio.auth.effects import to_text as to_text
    from mcpio.auth.grant import Grant as Grant
    from mcpio.auth.grant import missing_scopes as missing_scopes
    from mcpio.auth.grants import ClientCredentials as ClientCredentials
    from mcpio.auth.grants import Device as Device
    from mcpio.auth.grants import EnterpriseManaged as EnterpriseManaged
    from mcpio.auth.grants import OAuth as OAuth
    from mcpio.auth.grants import WorkloadIdentity as WorkloadIdentity
    from mcpio.auth.grants import discover as discover
    from mcpio.auth.grants import refresh as refresh
    from mcpio.auth.grants import restore_credentials as restore_credentials
    from mcpio.auth.grants import revoke as revoke
    from mcpio.auth.keys import Entropy as Entropy
    from mcpio.auth.keys import Secret as Secret
    from mcpio.auth.keys import Signer as Signer
    from mcpio.auth.keys import load_signer as load_signer
    from mcpio.auth.keys import signed_jwt as signed_jwt
    from mcpio.auth.payloads import AuthorizationOptions as AuthorizationOptions
    from mcpio.auth.payloads import AuthorizationServerMetadata as AuthorizationServerMetadata
    from mcpio.auth.payloads import Challenge as Challenge
    from mcpio.auth.payloads import LoginRequired as LoginRequired
    from mcpio.auth.payloads import PendingAuthorization as PendingAuthorization
    from mcpio.auth.payloads import ProtectedResourceMetadata as ProtectedResourceMetadata
    from mcpio.auth.payloads import Registration as Registration
    from mcpio.auth.payloads import TokenSet as TokenSet
    from mcpio.auth.payloads import bearer_challenge as bearer_challenge
    from mcpio.auth.payloads import client_metadata as client_metadata
    from mcpio.auth.payloads import parse_challenges as parse_challenges
    from mcpio.auth.resource_server import Admission as Admission
    from mcpio.auth.resource_server import Guard as Guard
    from mcpio.auth.resource_server import Refused as Refused
    from mcpio.auth.resource_server import ResourceServer as ResourceServer
    from mcpio.auth.urls import AuthorizationError as AuthorizationError
    from mcpio.auth.urls import EffectFailed as EffectFailed
    from mcpio.auth.urls import Reach as Reach
    from mcpio.auth.urls import canonical_resource as canonical_resource
    from mcpio.auth.urls import check_authorization_url as check_authorization_url
    from mcpio.auth.urls import issuer_metadata_urls as issuer_metadata_urls
    from mcpio.auth.urls import resource_metadata_urls as resource_metadata_urls
    from mcpio.auth.verifiers import ApiKeys as ApiKeys
    from mcpio.auth.verifiers import Introspection as Introspection
    from mcpio.auth.verifiers import InvalidToken as InvalidToken
    from mcpio.auth.verifiers import JwtVerifier as JwtVerifier
    from mcpio.auth.verifiers import NeedKeys as NeedKeys
    from mcpio.auth.verifiers import Verifier as Verifier
    from mcpio.auth.verifiers import api_key_digest as api_key_digest
    from mcpio.auth.verifiers import new_api_key as new_api_key

    __all__: list[str]
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "grants": (
                "ClientCredentials Device EnterpriseManaged OAuth WorkloadIdentity discover refresh "
                "restore_credentials revoke"
            ),
            "authorizer": (
                "AuthorizationEvent AuthorizationFailed AuthorizationState Authorized Authorizer "
                "CredentialsNotSaved Ready Verdict"
            ),
            "payloads": (
                "AuthorizationOptions AuthorizationServerMetadata Challenge LoginRequired PendingAuthorization "
                "ProtectedResourceMetadata Registration TokenSet bearer_challenge client_metadata parse_challenges"
            ),
            "effects": (
                "ApiKey AskUser AssertionSource BearerToken BindRedirect CloseRedirect Credentials Effect Fetch "
                "Flow FlowContext Headers LoadCredentials LockCredentials MemoryCredentials NeedAssertion Pause "
                "Response RestoreCredentials SaveCredentials ShowCode Stored UnlockCredentials from_text run "
                "to_text"
            ),
            "urls": (
                "AuthorizationError EffectFailed Reach canonical_resource check_authorization_url "
                "issuer_metadata_urls resource_metadata_urls"
            ),
            "grant": "Grant missing_scopes",
            "verifiers": (
                "ApiKeys Introspection InvalidToken JwtVerifier NeedKeys Verifier api_key_digest new_api_key"
            ),
            "keys": "Entropy Secret Signer load_signer signed_jwt",
            "resource_server": "Admission Guard Refused ResourceServer",
        },
    )

"""OAuth as machines: what a client does to be authorized, and what a protected server checks. Nothing here waits.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from mcpio._lazy import names_by_use

if TYPE_CHECKING:
    from mcpio.auth.challenges import Challenge, bearer_challenge, parse_challenges
    from mcpio.auth.errors import AuthorizationError, EffectFailed
    from mcpio.auth.grant import Grant
    from mcpio.auth.metadata import AuthorizationServerMetadata, ProtectedResourceMetadata, client_metadata
    from mcpio.auth.pkce import Entropy
    from mcpio.auth.reach import Reach
    from mcpio.auth.scopes import missing_scopes
    from mcpio.auth.secret import Secret
    from mcpio.auth.tokens import TokenSet
    from mcpio.auth.urls import (
        canonical_resource,
        check_authorization_url,
        issuer_metadata_urls,
        resource_metadata_urls,
    )

_HOME = {
    "challenges": "Challenge bearer_challenge parse_challenges",
    "errors": "AuthorizationError EffectFailed",
    "grant": "Grant",
    "metadata": "AuthorizationServerMetadata ProtectedResourceMetadata client_metadata",
    "pkce": "Entropy",
    "reach": "Reach",
    "scopes": "missing_scopes",
    "secret": "Secret",
    "tokens": "TokenSet",
    "urls": "canonical_resource check_authorization_url issuer_metadata_urls resource_metadata_urls",
}

__all__ = [
    "AuthorizationError",
    "AuthorizationServerMetadata",
    "Challenge",
    "EffectFailed",
    "Entropy",
    "Grant",
    "ProtectedResourceMetadata",
    "Reach",
    "Secret",
    "TokenSet",
    "bearer_challenge",
    "canonical_resource",
    "check_authorization_url",
    "client_metadata",
    "issuer_metadata_urls",
    "missing_scopes",
    "parse_challenges",
    "resource_metadata_urls",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = names_by_use(__name__, _HOME)

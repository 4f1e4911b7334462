"""The states of a client's authorization at one MCP server, as a table, which alone decides the next state.

An input named ``SEND_…`` is something the program does, one named ``RECV_…`` something that it learns: from a server,
a store, a person or the clock. A missing row is therefore a ``LocalProtocolError`` for ``SEND_…``; the machine makes no
``RECV_…`` without a row.
"""

import enum

__all__ = ["AUTHORIZATION_TABLE", "AuthorizationInput", "AuthorizationState"]


class AuthorizationState(enum.Enum):
    """State of the authorization."""

    COLD = "cold"
    """The stored credentials have not been read."""
    LOADING = "loading"
    """The stored credentials are being read."""
    OPEN = "open"
    """No token, and the server has not asked for one. A server that needs no token is never probed."""
    READY = "ready"
    """A token is available."""
    RENEWING = "renewing"
    """A token is being obtained by the refresh token."""
    OBTAINING = "obtaining"
    """A token is being obtained by a whole flow: discovery, registration, authorization."""
    ASKING = "asking"
    """A person is asked to log in. Only this state may last for minutes; timeouts of requests are paused in it."""
    FAILED = "failed"
    """The last flow failed. All calls fail with its error for a while: otherwise each of them would open a browser."""
    CLOSED = "closed"
    """The program closed the machine."""


class AuthorizationInput(enum.Enum):
    """An event that can change the state."""

    SEND_AUTHORIZE = "authorize a call"
    SEND_INTERRUPT = "end a flow that the driver does no effects for"
    SEND_CLOSE = "close"
    RECV_TOKEN = "have a token"
    RECV_NOTHING = "have no token"
    RECV_DUE = "need another token, with a refresh token"
    RECV_UNAUTHORIZED = "need another token, without a refresh token"
    RECV_INSUFFICIENT_SCOPE = "need more scopes"
    RECV_KEPT = "keep the old token for now"
    RECV_INVALID_GRANT = "lose the refresh token"
    RECV_INVALID_CLIENT = "lose the registration"
    RECV_PENDING = "need a person"
    RECV_ANSWER = "have the person's answer"
    RECV_FAILURE = "fail"
    RECV_COOLED = "let some time pass"


def _table() -> dict[tuple[AuthorizationState, AuthorizationInput], AuthorizationState]:
    S, I = AuthorizationState, AuthorizationInput  # noqa: E741, N806  short names keep the rows readable
    table = {
        (S.COLD, I.SEND_AUTHORIZE): S.LOADING,
        (S.LOADING, I.RECV_TOKEN): S.READY,
        (S.LOADING, I.RECV_DUE): S.RENEWING,
        (S.LOADING, I.RECV_NOTHING): S.OPEN,
        # A token that the program has is sent at once; all others only to servers that ask for one.
        (S.LOADING, I.RECV_UNAUTHORIZED): S.OBTAINING,
        (S.OPEN, I.RECV_UNAUTHORIZED): S.OBTAINING,
        (S.READY, I.RECV_DUE): S.RENEWING,
        (S.READY, I.RECV_UNAUTHORIZED): S.OBTAINING,
        # A refresh never gets more scopes (RFC 6749 §6), so a step-up is a whole flow (AUTH-35).
        (S.READY, I.RECV_INSUFFICIENT_SCOPE): S.OBTAINING,
        (S.READY, I.RECV_FAILURE): S.FAILED,
        (S.RENEWING, I.RECV_TOKEN): S.READY,
        (S.RENEWING, I.RECV_KEPT): S.READY,
        (S.RENEWING, I.RECV_INVALID_GRANT): S.OBTAINING,
        (S.RENEWING, I.RECV_INVALID_CLIENT): S.OBTAINING,
        (S.RENEWING, I.RECV_FAILURE): S.FAILED,
        (S.OBTAINING, I.RECV_TOKEN): S.READY,
        (S.OBTAINING, I.RECV_PENDING): S.ASKING,
        (S.OBTAINING, I.RECV_INVALID_CLIENT): S.OBTAINING,
        (S.OBTAINING, I.RECV_FAILURE): S.FAILED,
        (S.ASKING, I.RECV_ANSWER): S.OBTAINING,
        (S.ASKING, I.RECV_FAILURE): S.FAILED,
        (S.FAILED, I.RECV_COOLED): S.COLD,
    }
    for state in (S.LOADING, S.RENEWING, S.OBTAINING, S.ASKING):
        table[state, I.SEND_INTERRUPT] = S.COLD
    for state in S:
        table[state, I.SEND_CLOSE] = S.CLOSED
        if state not in (S.COLD, S.CLOSED):
            table[state, I.SEND_AUTHORIZE] = state
    return table


AUTHORIZATION_TABLE = _table()
"""(state, input) -> the next state."""

"""The refusal codes 1001 to 1089, with which an application may refuse a request (E7).

They lie outside the range that JSON-RPC reserves, so they are allowed in every revision. The library sends one only
when middleware of ``mcpio.app`` refuses, or a handler raises ``Refusal``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Literal, Self, TypeAlias

from mcpio._checks import is_count

__all__ = [
    "FIRST_REFUSAL",
    "LAST_REFUSAL",
    "RefusalCategory",
    "RefusalCode",
    "RefusalSeverity",
    "category_of",
    "find_refusal",
]

RefusalCategory: TypeAlias = Literal[
    "queue", "auth", "validation", "path", "entity", "rate-limit", "transport", "server-state", "health"
]
"""The subject of a refusal. Each has a range of codes, unassigned ones included."""
RefusalSeverity: TypeAlias = Literal["warn", "error", "critical"]
"""How serious a refusal is to the operator."""

FIRST_REFUSAL: Final = 1001
"""The lowest refusal code."""
LAST_REFUSAL: Final = 1089
"""The highest refusal code."""


class RefusalCode(IntEnum):
    """Every assigned code. ``find_refusal`` finds one by its number."""

    meaning: str
    """The default message."""
    http_status: int
    """The HTTP status with the nearest meaning."""
    severity: RefusalSeverity
    retryable: bool
    """Whether the same request may succeed later."""

    def __new__(
        cls, code: int, meaning: str, http_status: int, severity: RefusalSeverity, retryable: bool = False
    ) -> Self:
        """Build a row of the table."""
        row = int.__new__(cls, code)
        row._value_ = code
        row.meaning = meaning
        row.http_status = http_status
        row.severity = severity
        row.retryable = retryable
        return row

    @property
    def category(self) -> RefusalCategory:
        """The subject of the refusal."""
        return category_of(self)

    QUEUE_CAP_EXCEEDED = 1001, "Message count exceeded", 429, "error", True
    QUEUE_BYTE_CAP_EXCEEDED = 1002, "Byte size limit exceeded", 429, "error", True
    QUEUE_TENANT_CAP_EXCEEDED = 1003, "Tenant aggregate limit exceeded", 429, "critical"
    BUFFER_OVERFLOW = 1004, "Internal buffer overflow", 503, "critical", True
    BACKPRESSURE_ACTIVE = 1005, "Backpressure signal active", 503, "warn", True

    AUTH_FAILED = 1011, "Authentication failed", 401, "error"
    AUTH_EXPIRED = 1012, "Auth token expired", 401, "error"
    AUTH_INVALID_CREDENTIALS = 1013, "Invalid credentials", 401, "error"
    AUTHZ_FORBIDDEN = 1014, "Authorization denied", 403, "error"
    AUTH_MISSING = 1015, "Missing authentication", 401, "error"
    SESSION_INVALID = 1016, "Session ID invalid/missing", 401, "error"

    INVALID_PARAMS = 1021, "Invalid request parameters", 400, "error"
    INVALID_JSON_SCHEMA = 1022, "JSON schema validation failed", 400, "error"
    INVALID_URI = 1023, "URI format invalid", 400, "error"
    INVALID_CONTENT_TYPE = 1024, "Content-Type not supported", 415, "error"
    INVALID_HEADER = 1025, "Required header missing/invalid", 400, "error"
    INVALID_SESSION_ID = 1026, "Session ID format invalid", 400, "error"
    INVALID_PROTOCOL_VERSION = 1027, "Protocol version not supported", 400, "error"
    MISSING_REQUIRED_FIELD = 1028, "Required field missing", 400, "error"
    FIELD_TYPE_MISMATCH = 1029, "Field type doesn't match schema", 400, "error"

    PATH_TRAVERSAL_DETECTED = 1036, "Path traversal attack", 400, "critical"
    PATH_INVALID = 1037, "Path format invalid", 400, "error"
    SYMLINK_TRAVERSAL_DETECTED = 1038, "Symlink traversal attack", 400, "critical"
    URI_OUT_OF_BOUNDS = 1039, "URI outside allowed roots", 400, "error"
    CANONICAL_PATH_VIOLATION = 1040, "Canonical path validation failed", 400, "error"

    RESOURCE_NOT_FOUND = 1046, "Resource does not exist", 404, "warn"
    RESOURCE_DUPLICATE = 1047, "Resource already exists", 409, "warn"
    TOOL_NOT_FOUND = 1048, "Tool does not exist", 404, "warn"
    TOOL_DUPLICATE = 1049, "Tool already registered", 409, "warn"
    PROMPT_NOT_FOUND = 1050, "Prompt does not exist", 404, "warn"
    PROMPT_DUPLICATE = 1051, "Prompt already exists", 409, "warn"
    ENTITY_DUPLICATE = 1052, "Generic entity duplicate", 409, "warn"

    RATE_LIMIT_EXCEEDED = 1056, "Rate limit exceeded", 429, "error", True
    RATE_LIMIT_PER_SECOND = 1057, "Per-second rate limit hit", 429, "error", True
    RATE_LIMIT_PER_MINUTE = 1058, "Per-minute rate limit hit", 429, "error", True
    QUOTA_EXCEEDED = 1059, "Quota limit exceeded", 429, "error"
    CONCURRENT_LIMIT_EXCEEDED = 1060, "Concurrent connection limit", 429, "error", True

    PROTOCOL_ERROR = 1066, "Protocol-level error", 400, "error"
    TRANSPORT_ERROR = 1067, "Transport I/O error", 503, "error", True
    MESSAGE_TOO_LARGE = 1068, "Message size exceeds limit", 413, "error"
    TIMEOUT = 1069, "Operation timeout", 503, "warn", True
    UNSUPPORTED_ENCODING = 1070, "Encoding not supported", 415, "error"

    SERVER_UNINITIALIZED = 1076, "Server not initialized", 503, "error"
    SERVER_SHUTTING_DOWN = 1077, "Server shutting down", 503, "warn", True
    SERVICE_UNAVAILABLE = 1078, "Service temporarily unavailable", 503, "warn", True
    INTERNAL_ERROR = 1079, "Internal server error", 503, "critical"
    DEPENDENCY_UNAVAILABLE = 1080, "External dependency unavailable", 503, "warn", True

    CIRCUIT_BREAKER_OPEN = 1086, "Circuit breaker open", 503, "warn", True
    HEALTH_CHECK_FAILED = 1087, "Health check failed", 503, "warn", True
    DEGRADED_SERVICE = 1088, "Service degraded", 503, "warn", True
    RESOURCE_EXHAUSTED = 1089, "Resource exhausted", 503, "critical", True


def find_refusal(code: int) -> RefusalCode | None:
    """Return the meaning of a code, or ``None`` for an unassigned code."""
    return _BY_CODE.get(code)


def category_of(code: int) -> RefusalCategory:
    """Return the subject of a code, assigned or not. Raises ValueError if it is not a refusal code."""
    if is_count(code, FIRST_REFUSAL):
        for last, category in _LAST_OF_CATEGORY:
            if code <= last:
                return category
    raise ValueError(f"a refusal code must lie between {FIRST_REFUSAL} and {LAST_REFUSAL}, not {code!r:.100}")


_BY_CODE: Final = {int(row): row for row in RefusalCode}
_LAST_OF_CATEGORY: Final[tuple[tuple[int, RefusalCategory], ...]] = (
    (1010, "queue"),
    (1020, "auth"),
    (1035, "validation"),
    (1045, "path"),
    (1055, "entity"),
    (1065, "rate-limit"),
    (1075, "transport"),
    (1085, "server-state"),
    (LAST_REFUSAL, "health"),
)

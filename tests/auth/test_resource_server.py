from __future__ import annotations

from typing import Any

import attrs
import pytest
from authkeys import ED25519
from authworld import counted
from hypothesis import given
from hypothesis import strategies as st

from mcpio.auth import (
    Admission,
    ApiKeys,
    Fetch,
    Grant,
    Guard,
    JwtVerifier,
    NeedKeys,
    Pause,
    Refused,
    ResourceServer,
    Response,
    Secret,
    api_key_digest,
    load_signer,
    parse_challenges,
)
from mcpio.framing.json import loads
from mcpio.testing import AuthorizationServer

AS = "https://as.example.com"
MCP = "https://mcp.example.com/mcp"
PRM = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
KEYS = ApiKeys({api_key_digest("mcp_key"): "ada"}, scopes={"ada": frozenset({"admin"})})
SIGNER: Any = load_signer(ED25519, key_id="k1")


def jwt_server(**options: Any) -> ResourceServer:
    return ResourceServer(
        resource=MCP, authorization_servers=[AS], verify=JwtVerifier(AS, jwks=AS + "/jwks"), **options
    )


def guard(**options: Any) -> Guard:
    return Guard(ResourceServer(verify=options.pop("verify", KEYS), **options))


def bearer(token: str) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {token}")]


def refused(verdict: Any) -> tuple[int, dict[str, str]]:
    assert isinstance(verdict, Refused)
    [challenge] = parse_challenges(value for name, value in verdict.headers if name == "www-authenticate")
    return verdict.status, dict(challenge.params)


@pytest.mark.req("AUTH-02", "AUTH-07", "AUTH-40")
def test_the_metadata_names_the_resource_and_its_authorization_servers() -> None:
    server = jwt_server(scopes=["a"], scopes_supported=["b", "offline_access"], name="Files")
    assert server.document() == {
        "resource": MCP,
        "authorization_servers": [AS],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["a", "b"],
        "resource_name": "Files",
    }
    assert "scopes_supported" not in jwt_server().document()
    with pytest.raises(ValueError, match="without resource="):
        ResourceServer(verify=KEYS).document()


@pytest.mark.req("AUTH-07", "AUTH-09")
def test_the_metadata_is_at_both_well_known_paths_and_below_the_endpoint() -> None:
    assert jwt_server().metadata_paths() == (
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-protected-resource",
        "/mcp/.well-known/oauth-protected-resource",
    )
    without_resource = ResourceServer(verify=KEYS)
    assert (without_resource.metadata_paths(), without_resource.metadata_url_below) == ((), None)


@pytest.mark.req("AUTH-09")
def test_metadata_of_a_resource_with_a_query_is_served_and_named_with_it() -> None:
    server = attrs.evolve(jwt_server(), resource=MCP + "?tenant=7")
    assert server.metadata_paths("/mcp") == jwt_server().metadata_paths("/mcp")
    assert server.metadata_url_below == MCP + "/.well-known/oauth-protected-resource?tenant=7"
    challenge = dict(server.refusal(401, "Authorization is required").headers)["www-authenticate"]
    url = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp?tenant=7"
    assert f'resource_metadata="{url}"' in challenge


@pytest.mark.parametrize("url", ["https://x\r\ny", "https://é", "a\x00"])
def test_metadata_url_that_no_challenge_can_have_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="metadata_url must be printable ASCII"):
        ResourceServer(verify=KEYS, metadata_url=url)


def test_tokens_need_an_audience_and_metadata() -> None:
    by = JwtVerifier(AS, jwks=AS + "/jwks")
    for options in ({}, {"resource": MCP}, {"authorization_servers": [AS]}):
        with pytest.raises(ValueError, match="resource and authorization_servers must be given"):
            ResourceServer(verify=[KEYS, by], **options)
    assert ResourceServer(verify=by, resource=MCP, authorization_servers=AS).authorization_servers == (AS,)


@pytest.mark.req("AUTH-03", "AUTH-08", "AUTH-09", "AUTH-32", "AUTH-47")
def test_without_a_token_the_challenge_names_metadata_and_scopes_and_no_error() -> None:
    verdict = Guard(jwt_server(scopes=["a", "offline_access"])).admit(1, [], "/mcp", 0.0)
    assert refused(verdict) == (401, {"scope": "a", "resource_metadata": PRM})
    assert refused(guard().admit(1, [("authorization", "Basic eDp5")], "/mcp", 0.0)) == (401, {"realm": "mcp"})


@pytest.mark.req("AUTH-04", "AUTH-05")
@pytest.mark.parametrize(
    ("headers", "target"),
    [
        ([*bearer("mcp_key"), *bearer("mcp_key")], "/mcp"),
        (bearer("mcp_key"), "/mcp?access_token=mcp_key"),
        ([], "/mcp?x=1&access_token="),
    ],
)
def test_a_token_in_two_places_or_in_the_url_is_malformed(headers: list[tuple[str, str]], target: str) -> None:
    status, params = refused(guard().admit(1, headers, target, 0.0))
    assert (status, params["error"]) == (400, "invalid_request")


@pytest.mark.req("AUTH-03", "AUTH-47", "AUTH-57")
@pytest.mark.parametrize("token", ["unknown", "", "a b", "ä", "x" * 17000, "\ud800"])
def test_every_invalid_token_has_the_same_answer(token: str) -> None:
    machine = guard()
    verdict = machine.admit(1, bearer(token), "/mcp", 0.0)
    assert verdict == machine.admit(2, bearer("other"), "/mcp", 0.0)
    assert refused(verdict) == (401, {"realm": "mcp", "error": "invalid_token"})


@pytest.mark.req("AUTH-57", "AUTH-43")
def test_a_key_is_admitted_from_its_field() -> None:
    assert guard().admit(1, [("authorization", "bEARER  mcp_key ")], "/mcp", 0.0) == Grant(None, "ada")
    machine = guard(verify=ApiKeys(KEYS.principals, header="x-api-key"))
    assert machine.admit(1, [("X-API-Key", "mcp_key")], "/mcp", 0.0) == Grant(None, "ada")
    assert refused(machine.admit(1, bearer("mcp_key"), "/mcp", 0.0))[0] == 401


@pytest.mark.req("AUTH-04", "AUTH-34", "AUTH-36")
def test_a_token_with_too_few_scopes_is_refused_with_all_that_are_needed() -> None:
    verdict = guard(scopes=["files:read"]).admit(1, bearer("mcp_key"), "/mcp", 0.0)
    assert refused(verdict) == (403, {"realm": "mcp", "error": "insufficient_scope", "scope": "files:read"})
    hierarchy = {"admin": ["files:read"]}
    assert guard(scopes=["files:read"], hierarchy=hierarchy).admit(1, bearer("mcp_key"), "/mcp", 0.0) == Grant(
        None, "ada"
    )
    status, params = refused(jwt_server(scopes=["a"]).insufficient(["b", "c"]))
    assert (status, params["scope"], params["resource_metadata"]) == (403, "a b c", PRM)


def issued(resource: str = MCP) -> tuple[AuthorizationServer, str]:
    """Return an authorization server and a token of it, issued at the time 0."""
    server = AuthorizationServer(AS, resource, clients={"c": "s"}, signer=SIGNER, lifetime=600.0, entropy=counted())
    body = f"grant_type=client_credentials&client_id=c&client_secret=s&scope=a&resource={resource}".encode()
    return server, loads(server.respond(Fetch(method="POST", url=AS + "/token", body=body), 0.0).body)["access_token"]


def answer(machine: Guard, server: AuthorizationServer, now: float) -> list[Fetch]:
    done = []
    while (effect := machine.next_effect()) is not None:
        assert isinstance(effect, Fetch)
        response = server.respond(effect, now)
        machine.answer(effect.token, response, now)
        done.append(effect)
    return done


def admissions(machine: Guard) -> list[Admission]:
    return list(iter(machine.next_admission, None))


@pytest.mark.req("AUTH-37", "AUTH-58")
def test_requests_that_need_keys_share_one_fetch() -> None:
    server, token = issued()
    machine = Guard(jwt_server())
    assert machine.next_deadline() is None
    assert [machine.admit(name, bearer(token), "/mcp", 1.0) for name in (1, 2)] == [None, None]
    assert machine.next_deadline() == 6.0
    [fetch] = answer(machine, server, 1.0)
    assert (fetch.url, fetch.timeout) == (AS + "/jwks", 5.0)
    grant = Grant(AS, "client", "c")
    assert admissions(machine) == [Admission(1, grant), Admission(2, grant)]
    assert machine.admit(3, bearer(token), "/mcp", 2.0) == grant
    assert refused(machine.admit(4, bearer(token), "/mcp", 700.0))[0] == 401


@pytest.mark.req("AUTH-58")
def test_keys_from_before_are_used_where_new_ones_cannot_be_fetched_and_the_failure_is_reported() -> None:
    server, token = issued()
    machine = Guard(jwt_server())
    assert machine.admit(1, bearer(token), "/mcp", 1.0) is None
    fetch = machine.next_effect()
    assert fetch is not None
    keys = server.respond(fetch, 1.0)
    machine.answer(fetch.token, Response(200, (("cache-control", "max-age=60"),), keys.body), 1.0)
    assert len(admissions(machine)) == 1
    assert machine.admit(2, bearer(token), "/mcp", 62.0) is None
    fetch = machine.next_effect()
    assert fetch is not None
    machine.failed(fetch.token, "no route", 62.0)
    assert admissions(machine) == [Admission(2, Grant(AS, "client", "c"))]
    assert "no route" in str(machine.next_failure())
    # The next try is made after a while.
    assert machine.admit(3, bearer(token), "/mcp", 63.0) == Grant(AS, "client", "c")
    assert machine.next_effect() is None


@pytest.mark.req("AUTH-37", "SEC-02")
def test_a_token_for_another_server_is_refused() -> None:
    _, token = issued("https://mcp.example.com/other")
    machine = Guard(jwt_server())
    verdict = machine.admit(1, bearer(token), "/mcp", 1.0)
    assert refused(verdict) == (401, {"error": "invalid_token", "resource_metadata": PRM})
    assert machine.next_effect() is None


@pytest.mark.parametrize("how", ["status", "failure", "timeout"])
def test_without_keys_requests_are_refused_for_now_and_no_token_is_blamed(how: str) -> None:
    server, token = issued()
    machine = Guard(jwt_server())
    assert machine.admit(1, bearer(token), "/mcp", 1.0) is None
    fetch = machine.next_effect()
    assert fetch is not None
    machine.answer(fetch.token + 1, Response(200, (), b"{}"), 1.0)
    if how == "status":
        machine.answer(fetch.token, Response(500, (), b""), 1.0)
    elif how == "failure":
        machine.failed(fetch.token, "no route", 1.0)
    else:
        machine.handle_timeout(5.9)
        assert admissions(machine) == []
        machine.handle_timeout(6.0)
    [admission] = admissions(machine)
    assert isinstance(admission.verdict, Refused)
    assert (admission.verdict.status, admission.verdict.headers) == (503, (("retry-after", "30"),))
    failure = machine.next_failure()
    assert failure is not None
    assert {"status": "status 500", "failure": "no route", "timeout": "did not come in time"}[how] in str(failure)
    assert machine.next_failure() is None
    machine.answer(fetch.token, Response(200, (), b"{}"), 6.0)
    assert machine.admit(2, bearer(token), "/mcp", 7.0) is None
    answer(machine, server, 7.0)
    assert [each.request for each in admissions(machine) if isinstance(each.verdict, Grant)] == [2]


def test_several_verifiers_are_asked_in_order() -> None:
    server, token = issued()
    both = ResourceServer(resource=MCP, authorization_servers=[AS], verify=[KEYS, JwtVerifier(AS, jwks=AS + "/jwks")])
    machine = Guard(both)
    assert machine.admit(1, bearer("mcp_key"), "/mcp", 1.0) == Grant(None, "ada")
    assert machine.admit(2, bearer(token), "/mcp", 1.0) is None
    answer(machine, server, 1.0)
    assert admissions(machine) == [Admission(2, Grant(AS, "client", "c"))]


@given(
    headers=st.lists(st.tuples(st.sampled_from(["authorization", "x"]), st.text(max_size=40))),
    target=st.text(max_size=40),
)
def test_any_request_has_a_verdict(headers: list[tuple[str, str]], target: str) -> None:
    assert isinstance(guard().admit(1, headers, target, 0.0), Refused)


@pytest.mark.req("AUTH-38", "AUTH-47")
def test_no_verdict_holds_the_token() -> None:
    server, token = issued()
    machine = Guard(jwt_server())
    assert machine.admit(1, bearer(token), "/mcp", 1.0) is None
    answer(machine, server, 1.0)
    [admission] = admissions(machine)
    assert isinstance(admission.verdict, Grant)
    assert token not in f"{admission.verdict!r} {attrs.asdict(admission.verdict)!r} {vars(machine)!r}"
    assert token not in repr(machine.admit(2, bearer(token), "/mcp", 1000.0))


class Broken:
    """A verifier with a mistake: a function in place of ``load_keys``, and what ``verify`` raises after a fetch."""

    challenges_with_metadata = False
    header = "authorization"

    def __init__(self, flow: Any, fault: Exception | None = None) -> None:
        self.flow = flow
        self.fault = fault
        self.is_loaded = False

    def verify(self, token: Secret, resource: str | None, at: float) -> NeedKeys:
        if self.is_loaded and self.fault is not None:
            raise self.fault
        return NeedKeys.NEED_KEYS

    def load_key(self, token: Secret) -> None:
        return None

    def load_keys(self, context: Any, token: Secret) -> Any:
        response = yield Fetch(method="GET", url=AS)
        self.is_loaded = True
        yield from self.flow(response)


def read_member(response: Any) -> Any:
    yield from response.headers["keys"]


def pause(response: Any) -> Any:
    yield Pause(seconds=1)


def nothing(response: Any) -> Any:
    yield from ()


@pytest.mark.parametrize(
    ("flow", "fault", "reason"),
    [
        (read_member, None, "a verifier raised TypeError: tuple indices must be integers or slices, not str"),
        (pause, None, "a verifier raised TypeError: load_keys may yield Fetch, not Pause"),
        (nothing, ValueError("odd"), "a verifier raised ValueError: odd"),
    ],
)
def test_mistake_in_a_verifier_refuses_all_requests_that_wait_for_it(flow: Any, fault: Any, reason: str) -> None:
    machine = guard(verify=Broken(flow, fault))
    assert [machine.admit(name, bearer("a"), "/mcp", 0.0) for name in ("1", "2")] == [None, None]
    effect = machine.next_effect()
    assert effect is not None
    machine.answer(effect.token, Response(200, (), b""), 0.0)
    assert [(each.request, getattr(each.verdict, "status", None)) for each in admissions(machine)] == [
        ("1", 503),
        ("2", 503),
    ]
    failure = machine.next_failure()
    assert (str(failure), machine.next_deadline()) == (reason, None)
    assert failure is not None
    assert failure.__cause__ is not None

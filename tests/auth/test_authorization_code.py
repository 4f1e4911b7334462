from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import attrs
import pytest
from authkeys import ED25519, parts
from authworld import AS, CHALLENGE, MCP, PRM, REDIRECT, World
from hypothesis import given
from hypothesis import strategies as st

from mcpio.auth import (
    AuthorizationError,
    BindRedirect,
    Credentials,
    Effect,
    EffectFailed,
    Fetch,
    OAuth,
    PendingAuthorization,
    Registration,
    Secret,
    bearer_challenge,
    from_text,
    load_signer,
    run,
    to_text,
)
from mcpio.testing import AuthorizationServer

CIMD = "https://app.example.com/client.json"


def begun(world: World, options: OAuth | None = None, known: Credentials | None = None) -> PendingAuthorization:
    return world.run((options or OAuth()).begin(world.context, known, CHALLENGE))


def query(url: str) -> dict[str, str]:
    return {name: value for name, [value] in parse_qs(urlsplit(url).query).items()}


@pytest.mark.req("AUTH-25", "AUTH-27", "AUTH-29")
def test_a_login_gives_a_token_for_the_resource() -> None:
    world = World()
    credentials = world.log_in()
    token = credentials.token
    assert token is not None
    assert (token.issuer, token.resource, token.expires_at) == (AS, MCP, world.now + 3600)
    accepted = world.server.accepts([("authorization", "Bearer " + token.access_token.reveal())], world.now)
    assert not isinstance(accepted, type(CHALLENGE))
    [sent] = world.server.authorizations
    assert (sent["resource"], sent["code_challenge_method"], sent["response_type"]) == (MCP, "S256", "code")
    assert len(sent["code_challenge"]) == 43


@pytest.mark.req("AUTH-18", "AUTH-22")
def test_a_client_registers_with_the_redirect_that_is_bound() -> None:
    world = World()
    world.log_in()
    [document] = world.server.registered
    assert document["redirect_uris"] == [REDIRECT]
    assert document["application_type"] == "native"
    assert document["grant_types"] == ["authorization_code", "refresh_token"]
    binding = next(place for place, effect in enumerate(world.effects) if isinstance(effect, BindRedirect))
    registering = next(
        place for place, effect in enumerate(world.effects) if isinstance(effect, Fetch) and "register" in effect.url
    )
    assert binding < registering


@pytest.mark.req("AUTH-22")
def test_a_hosted_client_registers_for_the_web() -> None:
    world = World()
    pending = begun(world, OAuth(redirect_uri="https://app.example.com/cb", client_name="App"))
    assert pending.redirect_uri == "https://app.example.com/cb"
    [document] = world.server.registered
    assert (document["application_type"], document["client_name"]) == ("web", "App")
    assert not any(isinstance(effect, BindRedirect) for effect in world.effects)


@pytest.mark.req("AUTH-28")
@pytest.mark.parametrize(
    ("uri", "host", "port", "path"),
    [
        ("http://localhost:8123/callback", "localhost", 8123, "/callback"),
        ("http://[::1]:8123/a/b?from=here", "::1", 8123, "/a/b?from=here"),
        ("http://127.0.0.1:8123", "127.0.0.1", 8123, ""),
    ],
)
@pytest.mark.parametrize("is_taken", [False, True])
def test_given_redirect_uri_on_this_machine_is_bound_unless_the_program_has_its_port(
    uri: str, host: str, port: int, path: str, is_taken: bool
) -> None:
    world = World()
    asked = []

    def perform(effect: Effect) -> Any:
        if isinstance(effect, BindRedirect):
            asked.append(effect)
            if is_taken:
                raise EffectFailed("the port is taken")
        return world.perform(effect)

    pending = run(OAuth(client_id="given", redirect_uri=uri).begin(world.context, None, CHALLENGE), perform)
    assert asked == [BindRedirect(host=host, port=port, is_fixed=True, path=path)]
    assert pending.redirect_uri == query(pending.url)["redirect_uri"] == uri


def test_given_redirect_uri_without_a_port_is_bound_to_any() -> None:
    world = World()
    options = OAuth(redirect_uri="http://localhost/done?from=here")
    pending = begun(world, options)
    assert pending.redirect_uri == "http://localhost:3118/done?from=here"
    again = Credentials(registrations={AS: attrs.evolve(pending.client, redirect_uri="http://localhost:7/done")})
    assert begun(world, options, again).redirect_uri == "http://localhost:7/done?from=here"


@pytest.mark.parametrize("port", [None, 8123])
def test_port_is_fixed_if_it_is_given(port: int | None) -> None:
    world = World()
    begun(world, OAuth(port=port))
    [bound] = [effect for effect in world.effects if isinstance(effect, BindRedirect)]
    assert (bound.host, bound.port, bound.is_fixed) == ("127.0.0.1", port, port is not None)


@pytest.mark.req("AUTH-18", "AUTH-48", "AUTH-19")
def test_client_metadata_document_is_preferred_to_registration_if_supported() -> None:
    document = {"client_id": CIMD, "client_name": "App", "redirect_uris": ["http://127.0.0.1/callback"]}
    world = World(AuthorizationServer(client_documents={CIMD: document}))
    credentials = world.log_in(OAuth(client_metadata_url=CIMD))
    assert credentials.registrations[AS].client_id == CIMD
    assert world.server.registered == []
    world = World()
    assert begun(world, OAuth(client_metadata_url=CIMD)).client.is_dynamic


@pytest.mark.req("AUTH-18", "AUTH-21", "AUTH-24")
@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_a_client_that_is_given_comes_first_and_authenticates_as_the_server_lists(method: str) -> None:
    server = AuthorizationServer(auth_methods=(method,), clients={"pre:registered": "s e+cret"}, registers=False)
    world = World(server)
    credentials = world.log_in(OAuth(client_id="pre:registered", client_secret="s e+cret"))
    assert credentials.registrations[AS].auth_method == method
    assert credentials.token is not None
    fetch = next(effect for effect in world.effects if isinstance(effect, Fetch) and effect.url == AS + "/token")
    form = query("?" + (fetch.body or b"").decode())
    assert form["client_id"] == "pre:registered"
    assert ("client_secret" in form) is (method == "client_secret_post")


@pytest.mark.req("AUTH-24")
def test_a_public_client_authenticates_with_nothing() -> None:
    world = World(AuthorizationServer(auth_methods=("none",)))
    world.log_in()
    fetch = next(effect for effect in world.effects if isinstance(effect, Fetch) and effect.url == AS + "/token")
    assert "authorization" not in dict(fetch.headers)
    assert "client_secret" not in query("?" + (fetch.body or b"").decode())


@pytest.mark.req("AUTH-24")
def test_a_server_that_takes_no_method_of_the_client_is_refused() -> None:
    world = World(AuthorizationServer(auth_methods=("tls_client_auth",), clients={"c": "s"}))
    with pytest.raises(AuthorizationError, match="tls_client_auth") as caught:
        begun(world, OAuth(client_id="c", client_secret="s"))
    assert caught.value.option == "auth_method="
    assert begun(world, OAuth(client_id="c")).client.auth_method == "none"
    chosen = OAuth(client_id="c", client_secret=Secret("s"), auth_method="client_secret_post")
    assert begun(world, chosen).client.auth_method == "client_secret_post"


def test_server_without_registration_requires_a_client_id() -> None:
    world = World(AuthorizationServer(registers=False))
    with pytest.raises(AuthorizationError, match="registers no clients") as caught:
        begun(world)
    assert caught.value.option == "client_id="


@pytest.mark.req("AUTH-22")
def test_registration_is_tried_with_the_other_type_once() -> None:
    world = World()
    begun(world, OAuth(redirect_uri="https://app.example.com/cb"))
    routes = AuthorizationServer._routes
    seen: list[str] = []

    def refuse(request: Fetch, now: float) -> tuple[int, Any]:
        body = (request.body or b"").decode()
        seen.append("native" if '"native"' in body else "web")
        return 400, {"error": "invalid_redirect_uri"}

    world.server._routes = lambda: {**routes(world.server), ("POST", AS + "/register"): refuse}  # type: ignore[method-assign]  # a stricter server
    with pytest.raises(AuthorizationError) as caught:
        begun(world)
    assert caught.value.code == "invalid_redirect_uri"
    assert seen == ["native", "web"]


@pytest.mark.parametrize(
    ("status", "answer", "reason"),
    [
        (201, {}, "has no client_id"),
        (201, {"client_id": "c", "token_endpoint_auth_method": "private_key_jwt"}, "cannot do"),
        (201, {"client_id": "c", "token_endpoint_auth_method": "client_secret_basic"}, "cannot do"),
        (400, {"error": "access_denied"}, "access_denied"),
        (503, {}, "status 503"),
    ],
)
def test_unusable_registration_fails_before_the_browser_opens(status: int, answer: Any, reason: str) -> None:
    world = World()
    routes = AuthorizationServer._routes
    world.server._routes = lambda: {**routes(world.server), ("POST", AS + "/register"): lambda *_: (status, answer)}  # type: ignore[method-assign]  # another server
    with pytest.raises(AuthorizationError, match=reason):
        begun(world)


@pytest.mark.parametrize("member", ["client_secret", "token_endpoint_auth_method"])
@pytest.mark.parametrize("value", [None, ""])
def test_null_or_empty_member_of_a_registration_is_absent(member: str, value: str | None) -> None:
    world = World()
    world.answers[AS + "/register"] = {"client_id": "c", member: value}
    client = begun(world).client
    assert (client.client_id, client.auth_method, client.client_secret) == ("c", "none", None)


@pytest.mark.req("AUTH-23")
def test_a_registration_is_used_again_with_its_port_until_its_secret_expires() -> None:
    world = World()
    known = world.log_in()
    assert begun(world, known=known).client == known.registrations[AS]
    assert len(world.server.registered) == 1
    expired = attrs.evolve(known.registrations[AS], secret_expires_at=world.now)
    begun(world, known=attrs.evolve(known, registrations={AS: expired}))
    assert len(world.server.registered) == 2
    moved = attrs.evolve(known.registrations[AS], redirect_uri="http://127.0.0.1:9999/callback")
    pending = begun(world, known=attrs.evolve(known, registrations={AS: moved}))
    assert (pending.redirect_uri, pending.client) == ("http://127.0.0.1:9999/callback", moved)
    assert begun(world, OAuth(port=4000), known).redirect_uri == "http://127.0.0.1:4000/callback"


@pytest.mark.req("AUTH-06", "AUTH-23")
def test_each_authorization_server_gets_a_separate_registration() -> None:
    world = World()
    known = world.log_in()
    second = AuthorizationServer("https://second.example.com")
    world.servers = [second]
    world.server = second
    credentials = world.log_in(known=known)
    assert credentials.registrations.keys() == {AS, "https://second.example.com"}
    old = known.registrations[AS].client_id
    assert not any(old in f"{request.url}{request.body!r}{request.headers}" for request in second.requests)


@pytest.mark.req("AUTH-23")
def test_a_client_that_is_given_does_not_follow_to_another_issuer() -> None:
    world = World(AuthorizationServer("https://second.example.com", clients={"c": None}))
    known = Credentials(registrations={AS: Registration(AS, "c")})
    with pytest.raises(AuthorizationError, match="may not be registered") as caught:
        begun(world, OAuth(client_id="c"), known)
    assert caught.value.option == "issuer="
    assert begun(world, OAuth(client_id="c", issuer="https://second.example.com"), known).client.client_id == "c"


@pytest.mark.req("AUTH-26")
def test_a_server_without_s256_is_refused_before_anything_is_registered() -> None:
    for methods in (None, ["plain"]):
        world = World()
        world.server.faults.code_challenge_methods = methods
        with pytest.raises(AuthorizationError, match="S256"):
            begun(world)
        assert world.server.registered == []


@pytest.mark.req("SEC-07")
@pytest.mark.parametrize("url", ["javascript:alert(1)", "http://as.example.com/authorize", "https://a@as.example.com/"])
def test_an_authorization_endpoint_that_must_not_be_opened_is_refused(url: str) -> None:
    world = World()
    document = {**world.server._metadata(), "authorization_endpoint": url}
    world.answers[AS + "/.well-known/oauth-authorization-server"] = document
    with pytest.raises(AuthorizationError, match="cannot be"):
        begun(world)


def test_parameters_are_added_to_an_existing_query() -> None:
    world = World()
    document = {**world.server._metadata(), "authorization_endpoint": AS + "/authorize?tenant=1"}
    world.answers[AS + "/.well-known/oauth-authorization-server"] = document
    assert begun(world).url.startswith(AS + "/authorize?tenant=1&response_type=code&")


@pytest.mark.req("AUTH-33")
@pytest.mark.parametrize(
    ("challenged", "listed", "requested"),
    [("mcp:basic", ("mcp:read",), "mcp:basic"), (None, ("b", "a"), "a b"), (None, (), None)],
)
def test_scopes_come_from_the_challenge_or_else_the_metadata(
    challenged: str | None, listed: tuple[str, ...], requested: str | None
) -> None:
    world = World(AuthorizationServer(resource_scopes=listed))
    challenge = bearer_challenge(resource_metadata=PRM, scope=challenged)
    pending = world.run(OAuth().begin(world.context, None, challenge))
    assert query(pending.url).get("scope") == requested


@pytest.mark.req("AUTH-35")
def test_a_step_up_asks_for_the_union() -> None:
    world = World()
    known = world.log_in(OAuth(scopes=["basic"]))
    challenge = bearer_challenge(resource_metadata=PRM, scope="write", error="insufficient_scope")
    for options in (OAuth(scopes=["basic"]), OAuth()):
        pending = world.run(options.begin(world.context, known, challenge))
        assert pending.scopes == {"basic", "write"}
    # Scopes of another resource say nothing about this one.
    pending = world.run(OAuth(resource="https://other.example").begin(world.context, known, challenge))
    assert pending.scopes == {"write"}


@pytest.mark.req("AUTH-40")
def test_offline_access_goes_with_a_prompt_for_consent() -> None:
    world = World(AuthorizationServer(scopes=("a", "offline_access"), resource_scopes=("a",)))
    credentials = world.log_in()
    sent = world.server.authorizations[0]
    assert (sent["scope"], sent["prompt"]) == ("a offline_access", "consent")
    assert credentials.refresh_token is not None
    world = World(AuthorizationServer(scopes=("a",), resource_scopes=("a",)))
    world.log_in()
    assert "prompt" not in world.server.authorizations[0]
    assert world.server.authorizations[0]["scope"] == "a"


@pytest.mark.req("AUTH-31")
@pytest.mark.parametrize(
    ("supported", "iss", "passes"),
    [
        (True, AS, True),
        (True, None, False),
        (True, "https://other.example", False),
        (True, AS + "/", False),
        (False, AS, True),
        (False, None, True),
        (False, "https://other.example", False),
    ],
)
def test_the_issuer_of_the_answer_is_compared_as_a_text(supported: bool, iss: str | None, passes: bool) -> None:
    world = World()
    pending = begun(world)
    pending = attrs.evolve(pending, server=attrs.evolve(pending.server, iss_supported=supported))
    answer = {"state": pending.state, "code": "c", "error_description": "CANARY", **({"iss": iss} if iss else {})}
    callback = f"{REDIRECT}?{urlencode(answer)}"
    if passes:
        assert pending.code(callback) == Secret("c")
    else:
        with pytest.raises(AuthorizationError, match="does not come from") as caught:
            pending.code(callback + "&error=access_denied")
        assert caught.value.code is None
        assert "CANARY" not in str(caught.value)


@pytest.mark.req("AUTH-31")
def test_the_answers_of_two_authorizations_cannot_be_swapped() -> None:
    world = World()
    first = begun(world)
    other = World(AuthorizationServer("https://second.example.com"))
    other.entropy = world.entropy
    second = begun(other)
    callback = other.server.approve(second.url, 0.0)
    with pytest.raises(AuthorizationError, match="another state"):
        first.code(callback)
    with pytest.raises(AuthorizationError, match="does not come from"):
        first.code(callback.replace(second.state, first.state))


@pytest.mark.req("AUTH-27")
@pytest.mark.parametrize(
    "callback",
    [
        REDIRECT,
        REDIRECT + "?code=c&state=wrong",
        REDIRECT + "?code=c",
        REDIRECT + "?code=c&state=STATE&state=STATE",
        REDIRECT + "?state=%ff%fe",
        REDIRECT + "?" + "&".join(f"x{n}=1" for n in range(200)) + "&state=STATE",
        "http://[",
        "\ud800?state=\ud800",
        "",
    ],
)
def test_a_callback_with_another_state_does_not_match(callback: str) -> None:
    pending = begun(World())
    callback = callback.replace("STATE", pending.state)
    assert not pending.matches(callback)
    with pytest.raises(AuthorizationError, match="another state"):
        pending.code(callback)


@given(st.text())
def test_any_callback_is_judged_without_another_error(text: str) -> None:
    assert not PENDING.matches(text)
    with pytest.raises(AuthorizationError):
        PENDING.code(text)


PENDING = begun(World())


def test_the_error_of_the_authorization_server_is_quoted() -> None:
    world = World()
    pending = begun(world)
    callback = world.server.approve(pending.url, world.now, deny=True)
    assert pending.matches(callback)
    with pytest.raises(AuthorizationError, match=r"access_denied.*'<script>") as caught:
        world.run(OAuth().finish(world.context, pending, callback))
    assert caught.value.code == "access_denied"
    with pytest.raises(AuthorizationError, match="has no code"):
        pending.code(f"{REDIRECT}?{urlencode({'state': pending.state, 'iss': AS})}")


@pytest.mark.req("AUTH-25")
def test_a_code_is_of_no_use_with_another_verifier() -> None:
    world = World()
    pending = begun(world)
    callback = world.server.approve(pending.url, world.now)
    swapped = attrs.evolve(pending, verifier=Secret("x" * 43))
    with pytest.raises(AuthorizationError) as caught:
        world.run(OAuth().finish(world.context, swapped, callback))
    assert caught.value.code == "invalid_grant"


def test_a_pending_authorization_is_finished_in_another_process() -> None:
    world = World()
    pending = begun(world)
    text = to_text(pending)
    restored = from_text(PendingAuthorization, text)
    assert restored == pending
    assert restored.expires_at == world.now + 600
    assert pending.verifier.reveal() in text.reveal()
    for shown in (repr(pending), str(text), repr(restored)):
        assert pending.verifier.reveal() not in shown
        assert pending.state not in shown
    callback = world.server.approve(restored.url, world.now)
    assert world.run(OAuth().finish(world.context, restored, callback)).token is not None


@pytest.mark.req("AUTH-17", "AUTH-26")
def test_a_server_of_2025_03_26_is_logged_in_to_with_pkce_and_resource() -> None:
    world = World(AuthorizationServer("https://mcp.example.com"))
    world.server.faults.without_resource_metadata = world.server.faults.without_metadata = True
    assert world.log_in(challenge=None).token is not None
    sent = world.server.authorizations[0]
    assert (sent["resource"], sent["code_challenge_method"]) == (MCP, "S256")


@pytest.mark.req("AUTH-24")
def test_a_key_signs_the_assertion_of_a_client() -> None:
    claims: list[dict[str, Any]] = []

    def verified(jwt: str) -> dict[str, Any]:
        claims.append(parts(jwt)[1])
        return claims[-1]

    server = AuthorizationServer(auth_methods=("private_key_jwt",), clients={"c": None}, assertions=verified)
    world = World(server)
    world.log_in(OAuth(client_id="c", signer=load_signer(ED25519, key_id="k1")))
    now = int(world.now)
    assert claims == [{"iss": "c", "sub": "c", "aud": AS, "jti": claims[0]["jti"], "iat": now, "exp": now + 300}]


@pytest.mark.parametrize(
    "options",
    [
        {"client_secret": "s"},
        {"signer": object()},
        {"redirect_uri": "https://a.example/cb", "port": 1},
        {"redirect_uri": "http://a.example/cb"},
    ],
)
def test_options_that_contradict_each_other_raise(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"client_id=|port=|redirect URI"):
        OAuth(**options)


def test_representations_hide_the_secrets_of_options() -> None:
    assert "canary" not in repr(OAuth(client_id="c", client_secret="canary"))


@pytest.mark.parametrize("value", [-1, "60", float("nan"), None])
def test_login_timeout_must_be_a_number_of_seconds(value: Any) -> None:
    with pytest.raises(ValueError, match="login_timeout must be a number of seconds"):
        OAuth(login_timeout=value)


@pytest.mark.parametrize("port", [0, 65536, "8080", True])
def test_port_that_is_none_raises(port: Any) -> None:
    with pytest.raises(ValueError, match=r"port must be a number from 1 to 65535"):
        OAuth(port=port)

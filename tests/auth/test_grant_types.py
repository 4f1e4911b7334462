from __future__ import annotations

from typing import Any

import pytest
from authkeys import ED25519, parts
from authworld import AS, CHALLENGE, PRM, World

from mcpio.auth import (
    AuthorizationError,
    ClientCredentials,
    Device,
    EnterpriseManaged,
    Fetch,
    NeedAssertion,
    Pause,
    Response,
    Secret,
    ShowCode,
    WorkloadIdentity,
    bearer_challenge,
    load_signer,
    run,
)
from mcpio.testing import AuthorizationServer

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


def token_requests(world: World) -> list[str]:
    return [
        (effect.body or b"").decode()
        for effect in world.effects
        if isinstance(effect, Fetch) and effect.url.endswith("/token")
    ]


@pytest.mark.req("AUTH-42", "AUTH-24")
@pytest.mark.parametrize("methods", [("client_secret_basic",), ("client_secret_post",)])
def test_a_client_is_authorized_by_its_secret(methods: tuple[str, ...]) -> None:
    world = World(AuthorizationServer(auth_methods=methods, clients={"c": "s"}, resource_scopes=("a",)))
    credentials = world.run(ClientCredentials("c", secret="s").obtain(world.context, None, CHALLENGE))
    assert credentials.token is not None
    assert credentials.token.scopes == credentials.requested == {"a"}
    assert credentials.token.refresh_token is None


@pytest.mark.req("AUTH-42")
def test_a_client_is_authorized_by_its_key_and_the_audience_is_the_issuer() -> None:
    server = AuthorizationServer(
        auth_methods=("private_key_jwt",), clients={"c": None}, assertions=lambda jwt: parts(jwt)[1]
    )
    world = World(server)
    options = ClientCredentials("c", signer=load_signer(ED25519))
    assert world.run(options.obtain(world.context, None, CHALLENGE)).token is not None


@pytest.mark.req("AUTH-42")
def test_a_client_is_authorized_by_an_assertion_from_elsewhere() -> None:
    server = AuthorizationServer(
        auth_methods=("private_key_jwt",), clients={"c": None}, assertions=lambda jwt: {"sub": "c", "aud": AS}
    )
    world = World(server)
    assert world.run(ClientCredentials("c").obtain(world.context)).token is not None
    assert NeedAssertion(kind="client", audience=AS, client_id="c") in world.effects


@pytest.mark.req("AUTH-42", "AUTH-35")
def test_a_step_up_of_a_client_asks_for_the_union() -> None:
    world = World(AuthorizationServer(clients={"c": "s"}))
    options = ClientCredentials("c", secret="s", scopes=["a"])
    known = world.run(options.obtain(world.context, None, CHALLENGE))
    challenge = bearer_challenge(resource_metadata=PRM, scope="b", error="insufficient_scope")
    assert world.run(options.obtain(world.context, known, challenge)).requested == {"a", "b"}


@pytest.mark.req("AUTH-52")
@pytest.mark.parametrize("client_id", [None, "c"])
def test_a_workload_presents_its_jwt_once(client_id: str | None) -> None:
    claims = {"sub": "w", "aud": AS}
    world = World(AuthorizationServer(clients={"c": None}, assertions=lambda jwt: claims if jwt == "good" else None))
    world.jwt = "good"
    options = WorkloadIdentity(client_id, scopes=["a"])
    credentials = world.run(options.obtain(world.context, None, CHALLENGE))
    assert credentials.token is not None
    assert credentials.token.scopes == {"a"}
    [request] = token_requests(world)
    assert "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=good" in request
    assert ("client_id=c" in request) is (client_id == "c")
    world = World(world.server)
    with pytest.raises(AuthorizationError, match="invalid_grant"):
        world.run(options.obtain(world.context, None, CHALLENGE))
    assert len(token_requests(world)) == 1


MANAGED = EnterpriseManaged(
    client_id="c",
    client_secret="s",
    idp_issuer="https://idp.example.com",
    idp_token_endpoint="https://idp.example.com/token",
    idp_client_id="at-idp",
    scopes=["a"],
)


@pytest.mark.req("AUTH-42")
def test_an_id_token_is_exchanged_twice() -> None:
    claims = {"sub": "ada", "aud": AS}
    world = World(AuthorizationServer(clients={"c": "s"}, assertions=lambda jwt: claims if jwt == "jag" else None))
    world.answers["https://idp.example.com/token"] = {"access_token": "jag", "token_type": "N_A"}
    world.jwt = "the-id-token"
    assert world.run(MANAGED.obtain(world.context, None, CHALLENGE)).token is not None
    exchange, grant = token_requests(world)
    assert "subject_token=the-id-token" in exchange
    assert "audience=https%3A%2F%2Fas.example.com&resource=https%3A%2F%2Fmcp.example.com%2Fmcp" in exchange
    assert "requested_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aid-jag" in exchange
    assert "client_id=at-idp" in exchange
    assert "assertion=jag" in grant


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"error": "invalid_grant"}, "invalid_grant"),
        ({}, "no identity assertion"),
        ({"error": None, "issued_token_type": ""}, "no identity assertion"),  # as if the members were absent
        ({"access_token": "x", "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}, "no identity"),
        (Response(400, (), b'{"error": "access_denied"}'), "access_denied"),
    ],
)
def test_an_exchange_without_an_assertion_is_a_failure(answer: Any, reason: str) -> None:
    world = World()
    world.answers["https://idp.example.com/token"] = answer
    with pytest.raises(AuthorizationError, match=reason):
        world.run(
            EnterpriseManaged(
                client_id="c",
                idp_issuer="https://idp.example.com",
                idp_token_endpoint="https://idp.example.com/token",
                idp_client_id="i",
            ).obtain(world.context, None, CHALLENGE)
        )


@pytest.mark.req("AUTH-53")
def test_a_code_is_shown_and_polled_for() -> None:
    world = World(AuthorizationServer(auth_methods=("none",), resource_scopes=("a",)))
    world.on_code = lambda shown: None
    polls = 0

    def perform(effect: Any) -> Any:
        nonlocal polls
        if isinstance(effect, Pause):
            polls += 1
            if polls == 3:
                shown = next(each for each in world.effects if isinstance(each, ShowCode))
                world.server.approve_device(shown.user_code)
        return World.perform(world, effect)

    credentials = run(Device().obtain(world.context, None, CHALLENGE), perform)
    assert credentials.refresh_token is not None
    assert [effect.seconds for effect in world.effects if isinstance(effect, Pause)] == [5, 5, 5]
    [document] = world.server.registered
    assert document["grant_types"] == [DEVICE, "refresh_token"]
    shown = next(each for each in world.effects if isinstance(each, ShowCode))
    assert shown.verification_uri_complete == f"{AS}/activate?user_code={shown.user_code}"
    again = run(Device().obtain(world.context, credentials, CHALLENGE), World(world.server).perform)
    assert again.registrations == credentials.registrations


def code_answer(**changed: Any) -> dict[str, Any]:
    return {"device_code": "d", "user_code": "U", "verification_uri": AS + "/d", "expires_in": 60, **changed}


@pytest.mark.req("AUTH-53")
def test_polling_slows_down_as_asked_and_where_the_server_is_busy() -> None:
    world = World(AuthorizationServer(clients={"c": "s"}))
    world.answers[AS + "/device"] = code_answer(expires_in=100, interval=True)
    world.on_code = lambda shown: None
    answers = [b'{"error": "slow_down"}', b"", b'{"error": "authorization_pending"}']
    statuses = [400, 503, 400]

    def perform(effect: Any) -> Any:
        if isinstance(effect, Fetch) and effect.url.endswith("/token") and answers:
            world.effects.append(effect)
            return Response(statuses.pop(0), (), answers.pop(0), world.now)
        return World.perform(world, effect)

    with pytest.raises(AuthorizationError, match="invalid_grant"):
        run(Device(client_id="c", client_secret="s").obtain(world.context, None, CHALLENGE), perform)
    assert [effect.seconds for effect in world.effects if isinstance(effect, Pause)] == [5, 10, 20, 20]


@pytest.mark.req("AUTH-53")
def test_polling_ends_with_the_code() -> None:
    world = World(AuthorizationServer(auth_methods=("none",)))
    world.on_code = lambda shown: None
    with pytest.raises(AuthorizationError) as caught:
        world.run(Device().obtain(world.context, None, CHALLENGE))
    assert caught.value.code == "expired_token"
    world.on_code = lambda shown: world.server.approve_device(shown.user_code, deny=True)
    with pytest.raises(AuthorizationError) as caught:
        world.run(Device().obtain(world.context, None, CHALLENGE))
    assert caught.value.code == "access_denied"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (code_answer(user_code=None), "no code to show"),
        (code_answer(verification_uri="javascript:x"), "cannot be opened"),
        (code_answer(verification_uri_complete="file:///x"), "cannot be opened"),
        (Response(400, (), b'{"error": "unauthorized_client"}'), "unauthorized_client"),
    ],
)
def test_a_code_that_cannot_be_shown_is_a_failure(answer: Any, reason: str) -> None:
    world = World(AuthorizationServer(clients={"c": "s"}))
    world.answers[AS + "/device"] = answer
    with pytest.raises(AuthorizationError, match=reason):
        world.run(Device(client_id="c", client_secret="s").obtain(world.context, None, CHALLENGE))


def test_a_code_from_a_server_is_shown_without_invisible_characters() -> None:
    world = World(AuthorizationServer(clients={"c": "s"}))
    world.answers[AS + "/device"] = code_answer(user_code="A\u202e\x1b" + "B" * 100)
    world.on_code = lambda shown: None
    with pytest.raises(AuthorizationError, match="invalid_grant"):
        world.run(Device(client_id="c", client_secret="s").obtain(world.context, None, CHALLENGE))
    shown = next(each for each in world.effects if isinstance(each, ShowCode))
    assert shown.user_code.isprintable()
    assert len(shown.user_code) < 100
    assert shown.verification_uri_complete is None
    assert shown.expires_at == 1_000_060


def test_representations_hide_the_secrets() -> None:
    options = [
        ClientCredentials("c", secret="canary"),
        Device(client_id="c", client_secret=Secret("canary")),
        MANAGED,
    ]
    assert "canary" not in repr(options)

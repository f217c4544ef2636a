"""Hub and spokes keep to the conformance kit, over real sockets."""

import weakref
from contextlib import asynccontextmanager

import pytest

from operad import Identity
from operad_testing import TransportConformance
from operad_websocket import Hub, WebSocketTransport, bearer_tokens

TOKENS = {"alice": Identity("alice", ["kit"]), "bob": Identity("bob")}
hubs: "weakref.WeakKeyDictionary[object, Hub]" = weakref.WeakKeyDictionary()


class TestOpenHub(TransportConformance):
    """A hub without authentication: everybody is anonymous."""

    @asynccontextmanager
    async def transport(self):
        async with Hub(port=0, max_payload=256 * 1024) as hub:
            transport = WebSocketTransport(hub.url, max_payload=256 * 1024)
            hubs[transport] = hub
            yield transport
            assert hub.pending == 0

    async def sever(self, transport):
        for connection in tuple(hubs[transport]._connections):
            connection.abort()

    def authenticated(self, transport, identity):
        pytest.skip("this hub has no authenticator")


class TestGuardedHub(TestOpenHub):
    """A hub with bearer tokens; those who serve have one, too."""

    @asynccontextmanager
    async def transport(self):
        def authenticate(request):
            return bearer_tokens(TOKENS)(request) or Identity("nobody")

        async with Hub(authenticate, port=0, max_payload=256 * 1024) as hub:
            transport = WebSocketTransport(hub.url, max_payload=256 * 1024)
            hubs[transport] = hub
            yield transport

    def authenticated(self, transport, identity):
        return WebSocketTransport(transport.url, token=identity.id)

    def test_a_claimed_identity_is_not_believed(self):
        pytest.skip("callers of this hub are never anonymous; see test_the_authenticated_identity_counts")


class TestFromTheHubsOwnProcess(TransportConformance):
    """The hub's own process calls and serves without a socket."""

    @asynccontextmanager
    async def transport(self):
        hub = Hub(port=0)
        yield hub.transport
        assert hub.pending == 0

    def authenticated(self, transport, identity):
        pytest.skip("the hub trusts its own process")

    def test_a_claimed_identity_is_not_believed(self):
        pytest.skip("the hub trusts its own process")

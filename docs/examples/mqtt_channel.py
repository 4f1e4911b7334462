"""MCP over MQTT: each end publishes to one topic of a broker, and listens to the other."""

from contextlib import suppress

import trio
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

END, TAKEN = b"", b"+"  # No JSON text is one of these.
WINDOW = 8  # Messages under way: a broker drops what it has no room for, and tells nobody.


class MqttChannel(trio.abc.Channel[bytes]):
    """One end of a conversation. Get it from ``connect_mqtt``."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client, self._topic = client, topic
        self._put, self._came = trio.open_memory_channel[bytes](WINDOW)
        self._under_way, self._taken = trio.open_memory_channel[bytes](WINDOW)

    async def send(self, value: bytes) -> None:
        await self._under_way.send(value)  # Waits until the other end has room for it.
        self._client.publish(self._topic, value, qos=1)

    async def receive(self) -> bytes:
        message = await self._came.receive()
        self._client.publish(self._topic, TAKEN, qos=1)
        return message

    async def aclose(self) -> None:
        with self._came, self._under_way, trio.CancelScope(shield=True), suppress(RuntimeError):
            end = self._client.publish(self._topic, END, qos=1)
            await trio.to_thread.run_sync(end.wait_for_publish, 5)  # RuntimeError: it is lost.
            self._client.disconnect()
            await trio.to_thread.run_sync(self._client.loop_stop)

    def take_in(self, payload: bytes) -> None:
        """Handle messages of the other end, and the loss of the broker."""
        if payload == END:
            self._put.close()
            self._taken.close()
        with suppress(trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            self._taken.receive_nowait() if payload == TAKEN else self._put.send_nowait(payload)


async def connect_mqtt(host: str, port: int, to: str, back: str) -> MqttChannel:
    """Connect to a broker, and return one end. The other publishes to ``back``."""
    client = Client(CallbackAPIVersion.VERSION2, reconnect_on_failure=False)
    channel, listening = MqttChannel(client, to), trio.Event()
    soon = trio.lowlevel.current_trio_token().run_sync_soon
    client.on_subscribe = lambda *_: soon(listening.set)
    client.on_message = lambda _, __, message: soon(channel.take_in, bytes(message.payload))
    client.on_disconnect = lambda *_: soon(channel.take_in, END)
    client.will_set(to, END, qos=1)  # What the broker says for us when we are lost.
    await trio.to_thread.run_sync(client.connect, host, port)
    client.subscribe(back, qos=1)
    client.loop_start()
    with trio.move_on_after(10, shield=True):
        await listening.wait()
    return channel

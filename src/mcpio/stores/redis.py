"""A store in Redis or Valkey, which the processes of one server share. Needs the extra ``mcpio[redis]``."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import anyio

from mcpio._checks import is_amount
from mcpio._drivers import report
from mcpio._extras import extra
from mcpio.app.changes import Changed
from mcpio.engine.tasks import Owner, StoreDelete, StoredTask, StorePut
from mcpio.errors import ConnectFailed, InvalidMessage
from mcpio.framing import json

with extra("redis", "mcpio.stores.redis"):
    import coredis
    import coredis.exceptions

# The reference documents these names.
__all__ = ["RedisChanges", "RedisStore"]

# Every script takes the prefix of all keys. A task is a hash:
#   record, payload   as the task machine gave them
#   owner             the key of its owner's index, empty without an owner
#   holder            the process that has it on lease, empty when it is over
#   version           how often it was written
#   answer:<key>      the answer to a question
# ``leases`` orders the ids of those that run by the end of their lease, which is 0 for those that were given up, an
# owner's index the owner's by their expiry. ``heard`` is when a process renewed its leases last, ``grace`` until when
# no lease counts as expired. Times are milliseconds of the server's clock, since those of the processes may differ.
_COMMON: Final = """
local prefix = ARGV[1]
local leases = prefix .. 'leases'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function task(id) return prefix .. 'task:' .. id end
local function tell(id) redis.call('PUBLISH', prefix .. 'tasks', id) end
local function stored(id)
  return {id, redis.call('HGETALL', task(id))}
end
local function summary(id)
  return {id, {'record', redis.call('HGET', task(id), 'record'), 'version', redis.call('HGET', task(id), 'version')}}
end
-- Whatever else writes to the server may damage one task: that is then not there, and costs no other.
local function whole(id)
  if redis.call('TYPE', task(id)).ok ~= 'hash' then return false end
  local found = redis.call('HMGET', task(id), 'record', 'version')
  return found[1] and found[2] and string.match(found[2], '^%d+$') ~= nil
end
local function hold(id, holder, lease)
  if lease == '' then
    redis.call('HSET', task(id), 'holder', '')
    redis.call('ZREM', leases, id)
  else
    redis.call('HSET', task(id), 'holder', holder)
    redis.call('ZADD', leases, lease == '0' and 0 or now + lease, id)
  end
end
-- Each process renews three times for each lease. If none did for longer than half a lease, none of them could, or this
-- clock has jumped: the leases that expired then say nothing about their holders, who have one lease to renew them.
local function hear(lease)
  local heard = redis.call('GET', prefix .. 'heard')
  if heard and now - heard > lease / 2 then redis.call('SET', prefix .. 'grace', now + lease) end
  redis.call('SET', prefix .. 'heard', now)
end
"""
# prefix, id, holder, lease or '', record, 1 with a payload, payload, owner's index or '', expiry or ''
_PUT: Final = """
local id, key, holder = ARGV[2], task(ARGV[2]), redis.call('HGET', task(ARGV[2]), 'holder')
-- A task that has ended may be put again as it is: the answer to the first time may have got lost.
local again = holder == '' and ARGV[4] == '' and redis.call('HGET', key, 'record') == ARGV[5]
if holder and holder ~= ARGV[3] and not again then return 0 end
redis.call('HSET', key, 'record', ARGV[5], 'owner', ARGV[8])
if ARGV[6] == '1' then redis.call('HSET', key, 'payload', ARGV[7]) end
redis.call('HINCRBY', key, 'version', 1)
hold(id, ARGV[3], ARGV[4])
if ARGV[9] ~= '' then redis.call('PEXPIREAT', key, ARGV[9]) end
if ARGV[8] ~= '' then
  local expiry = ARGV[9] ~= '' and ARGV[9] or '+inf'
  redis.call('ZADD', ARGV[8], expiry, id)
  local last = redis.call('ZRANGE', ARGV[8], -1, -1, 'WITHSCORES')[2]
  if last == 'inf' then redis.call('PERSIST', ARGV[8])
  else redis.call('PEXPIREAT', ARGV[8], string.format('%.0f', last)) end
end
tell(id)
return 1
"""
# prefix, id, holder
_DELETE: Final = """
local id, key = ARGV[2], task(ARGV[2])
local found = redis.call('HMGET', key, 'holder', 'owner')
if found[1] ~= ARGV[3] and found[1] ~= '' then return 0 end
redis.call('DEL', key)
redis.call('ZREM', leases, id)
if found[2] ~= '' then redis.call('ZREM', found[2], id) end
tell(id)
return 1
"""
# prefix, id
_FETCH: Final = """
return whole(ARGV[2]) and stored(ARGV[2]) or {ARGV[2], {}}
"""
# prefix, id
_SUMMARY: Final = """
local id, members = ARGV[2], {}
if not whole(id) then return {id, members} end
for _, name in ipairs(redis.call('HKEYS', task(id))) do
  if name ~= 'payload' then
    table.insert(members, name)
    table.insert(members, redis.call('HGET', task(id), name))
  end
end
return {id, members}
"""
# prefix, id, version, record
_END: Final = """
local id, key = ARGV[2], task(ARGV[2])
if redis.call('HGET', key, 'version') ~= ARGV[3] then return 0 end
redis.call('HSET', key, 'record', ARGV[4])
redis.call('HINCRBY', key, 'version', 1)
hold(id, '', '')
tell(id)
return 1
"""
# prefix, id, key, answer...
_ANSWER: Final = """
local id = ARGV[2]
if redis.call('EXISTS', task(id)) == 0 then return 0 end
for i = 3, #ARGV, 2 do redis.call('HSETNX', task(id), 'answer:' .. ARGV[i], ARGV[i + 1]) end
tell(id)
return 1
"""
# prefix, holder, lease, id...
_RENEW: Final = """
hear(ARGV[3])
local lost = {}
for i = 4, #ARGV do
  if redis.call('HGET', task(ARGV[i]), 'holder') == ARGV[2] then hold(ARGV[i], ARGV[2], ARGV[3])
  else table.insert(lost, ARGV[i]) end
end
return lost
"""
# prefix, holder, lease, how many
_ADOPT: Final = """
hear(ARGV[3])
local adopted, damaged = {}, {}
local expired = tonumber(redis.call('GET', prefix .. 'grace') or 0) > now and 0 or now
for _, id in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', expired, 'LIMIT', 0, ARGV[4])) do
  if whole(id) then
    hold(id, ARGV[2], ARGV[3])
    table.insert(adopted, stored(id))
  else
    redis.call('ZREM', leases, id)
    if redis.call('EXISTS', task(id)) == 1 then table.insert(damaged, id) end
  end
end
return {adopted, damaged}
"""
# prefix, owner's index
_OWNED: Final = """
redis.call('ZREMRANGEBYSCORE', ARGV[2], '-inf', now)
local found = {}
for _, id in ipairs(redis.call('ZRANGE', ARGV[2], 0, -1)) do
  if whole(id) then table.insert(found, summary(id))
  elseif redis.call('EXISTS', task(id)) == 0 then redis.call('ZREM', ARGV[2], id) end
end
return found
"""

C = TypeVar("C")

_AT_ONCE: Final = 64
"""How many tasks a process takes over at once, so that others have their share."""
_RETRY: Final = 1.0
"""Seconds before the way to the server is tried again, where coredis has given up."""
_SAME: Final = 1.0
"""How many seconds two clocks may differ without a report."""


_MOST_WAITING: Final = 4096
"""How many changes wait while the server cannot be reached. Beyond, the oldest are lost."""


class RedisChanges:
    """The bus of changes between processes, for ``Server(changes=…)``: ``RedisStore.changes``.

    Changes reach all processes whose store is open, this one included. One that waits already is not sent twice. A
    process that could not hear the others for a while takes it that anything has changed.
    """

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Changed], None]] = []
        self._waiting: dict[str, None] = {}
        self._wake: anyio.Event | None = None

    def publish(self, change: Changed) -> None:
        """Publish a change to all subscribers, in this process and in others, once the store is open."""
        self._waiting[json.dumps(change.to_json()).decode()] = None
        if len(self._waiting) > _MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        if self._wake is not None:
            self._wake.set()

    def subscribe(self, callback: Callable[[Changed], None]) -> Callable[[], None]:
        """Call a function with each change, in the event loop's thread. Returns what ends that."""
        return _add(self._callbacks, callback)

    def hear(self, text: str) -> None:
        """Process a message of the channel."""
        with suppress(InvalidMessage, ValueError):  # something else writes to the channel
            self._tell(Changed.from_json(json.loads(text.encode())))

    def lose(self) -> None:
        """Record that messages of the channel may have been lost."""
        self._tell(Changed("anything"))

    def _tell(self, change: Changed) -> None:
        for callback in tuple(self._callbacks):
            callback(change)

    async def send(self, publish: Callable[[str], Awaitable[Any]]) -> None:
        """Send published changes, until cancelled."""
        while True:
            self._wake = anyio.Event()
            while self._waiting:
                text = next(iter(self._waiting))
                del self._waiting[text]  # first: the same change may come again while this one is sent
                try:
                    await publish(text)
                except (coredis.exceptions.RedisError, OSError):
                    self._waiting[text] = None
                    await anyio.sleep(_RETRY)
            await self._wake.wait()


class RedisStore:
    """Keeps tasks in Redis or Valkey, for any number of processes: a ``TaskStore``, and a bus for changes.

    Each process makes its own object, and opens it around serving, with ``async with``, on Trio or asyncio. Processes
    with the same server and ``prefix`` share their tasks. Methods raise what coredis raises, ``coredis.exceptions``,
    and TimeoutError. Opening it raises ConnectFailed if the server cannot be used.

    How much Redis keeps after a power failure is up to its settings (``appendonly``, ``appendfsync``). All keys are
    in one slot only if ``prefix`` has a hash tag, so a cluster needs one, such as ``"{mcpio}:"``.
    """

    blocking = False
    lease: float
    """For how long a process keeps a task without a sign of life, in seconds."""
    clock_offset: float
    """By how many seconds the server's clock is ahead of this process's, measured when the store is opened."""
    changes: RedisChanges
    """The bus, for ``Server(changes=…)``."""

    def __init__(
        self,
        url: str = "redis://127.0.0.1:6379",
        *,
        prefix: str = "mcpio:",
        lease: float = 30.0,
        timeout: float | None = None,
        wait: float = 0.0,
        **options: Any,
    ) -> None:
        """Prepare a client for ``url`` (``redis://``, ``rediss://`` or ``unix://``).

        Args:
            url: where the server is.
            prefix: all keys begin with it.
            lease: for how long a process keeps a task without a sign of life, in seconds.
            timeout: how long a command, or a connection attempt, may take, in seconds. By default 5, or a third of the
                lease if that is less.
            wait: how long opening waits for a server that cannot be reached, in seconds.
            options: go to ``coredis.Redis.from_url``.

        Raises:
            ValueError: ``lease`` or ``timeout`` is not more than 0, or ``wait`` is less.

        """
        _check_seconds("lease", lease)
        self._timeout = min(5.0, lease / 3) if timeout is None else timeout
        _check_seconds("timeout", self._timeout)
        if not is_amount(wait):
            raise ValueError(f"wait must be a number of seconds, 0 or more, not {wait!r:.100}")
        self.lease = lease
        self.clock_offset = 0.0
        self._wait = wait
        self._where = _without_password(url)
        self._prefix = prefix
        self._holder = secrets.token_hex(8)
        # Also the wait for the answer to a ping, by which coredis finds out that a connection is silently dead.
        options = {"stream_timeout": self._timeout, "connect_timeout": self._timeout, **options}
        self._client: coredis.Redis[bytes] = coredis.Redis.from_url(url, **options)
        self._callbacks: list[Callable[[str | None], None]] = []
        self.changes = RedisChanges()
        self._open: AsyncExitStack | None = None

    async def __aenter__(self) -> Self:
        stack = AsyncExitStack()
        try:
            await stack.enter_async_context(self._client)
            await self._connect()
            group = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(group.cancel_scope.cancel)
            await group.start(self._listen)
            group.start_soon(self.changes.send, self._publish_change)
        except BaseException:
            await stack.aclose()
            raise
        self._open = stack
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        stack, self._open = self._open, None
        if stack is not None:
            # Not told of the body's error, the task groups inside cannot wrap it in groups.
            await stack.aclose()

    async def _connect(self) -> None:
        """Connect, and compare the clocks. Raises ConnectFailed."""
        deadline = anyio.current_time() + self._wait
        ask = self._client.register_script("return redis.call('TIME')")
        while True:
            before = time.time()
            try:
                # coredis.Redis.time() takes microseconds for milliseconds.
                seconds, microseconds = await self._bounded(ask(args=[]))
            except (coredis.exceptions.RedisError, OSError) as error:
                if anyio.current_time() >= deadline:
                    cause = f"{type(error).__name__}: {error}"
                    raise ConnectFailed(f"Redis at {self._where} cannot be used: {cause}") from error
                await anyio.sleep(_RETRY)
            else:
                self.clock_offset = int(seconds) + int(microseconds) / 1e6 - (before + time.time()) / 2
                break
        if abs(self.clock_offset) > _SAME:
            side = "ahead of" if self.clock_offset > 0 else "behind"
            difference = f"{abs(self.clock_offset):.1f} s {side}"
            report(f"the clock of Redis at {self._where} is {difference} this one; tasks use the clock of Redis", None)

    # Tasks

    async def write(self, changes: Sequence[StorePut | StoreDelete]) -> list[bool]:
        """Make the changes in order, and return which were made.

        A task is put if its key is new or leased by this object, and deleted if it is leased by this object or over.
        """
        return [bool(await self._change(change)) for change in changes]

    async def _change(self, change: StorePut | StoreDelete) -> Any:
        if isinstance(change, StoreDelete):
            return await self._run(_DELETE, change.key, self._holder)
        payload, expires = change.payload, change.expires
        return await self._run(
            _PUT,
            change.key,
            self._holder,
            _milliseconds(change.lease),
            bytes(change.record),
            0 if payload is None else 1,
            b"" if payload is None else bytes(payload),
            self._index(change.owner),
            _milliseconds(expires),
        )

    async def fetch(self, key: str) -> StoredTask | None:
        """Return a task, or ``None``."""
        rows = await self._run(_FETCH, key)
        return _task_of(rows) if rows[1] else None

    async def summary(self, key: str) -> StoredTask | None:
        """Return a task without its result, or ``None``."""
        rows = await self._run(_SUMMARY, key)
        return _task_of(rows) if rows[1] else None

    async def end(self, key: str, version: int, record: bytes) -> bool:
        """Replace the record of a task and end its lease, if it still has that version; return whether it had."""
        return bool(await self._run(_END, key, version, bytes(record)))

    async def answer(self, key: str, answers: Mapping[str, bytes]) -> None:
        """Keep answers to a task's questions, by key. The first answer for a key is kept."""
        await self._run(_ANSWER, key, *(part for name, answer in answers.items() for part in (name, bytes(answer))))

    async def renew(self, keys: Sequence[str], lease: float) -> list[str]:
        """Renew the leases of this object's tasks, for seconds from now; return the keys that it no longer leases."""
        lost = await self._run(_RENEW, self._holder, _milliseconds(lease), *keys)
        return [key.decode() for key in lost]

    async def adopt(self, lease: float) -> list[StoredTask]:
        """Lease tasks whose leases have expired, for seconds from now, and return them: at most 64."""
        adopted, damaged = await self._run(_ADOPT, self._holder, _milliseconds(lease), _AT_ONCE)
        for id in damaged:
            key = id.decode(errors="replace")
            report(f"the task {key} in Redis at {self._where} is damaged: it was given up", None)
        return [_task_of(each) for each in adopted]

    async def owned(self, owner: Owner) -> list[StoredTask]:
        """Return the tasks of an owner, without results and answers; none for ``None``, which identifies no owner."""
        index = self._index(owner)
        return [_task_of(each) for each in await self._run(_OWNED, index)] if index else []

    def subscribe(self, callback: Callable[[str | None], None]) -> Callable[[], None]:
        """Call back with the key of each task that any process changed, while the store is open.

        With ``None`` after a break, in which any may have changed.
        """
        return _add(self._callbacks, callback)

    # Inside

    def _index(self, owner: Owner) -> str:
        return "" if owner is None else f"{self._prefix}owner:{type(owner).__name__}:{owner}"

    async def _run(self, script: str, *arguments: str | bytes | int) -> Any:
        if self._open is None:
            raise RuntimeError("the store is not open: serve within 'async with store'")
        return await self._bounded(self._client.register_script(_COMMON + script)(args=[self._prefix, *arguments]))

    async def _publish_change(self, text: str) -> None:
        await self._bounded(self._client.publish(f"{self._prefix}changes", text))

    async def _bounded(self, command: Awaitable[Any]) -> Any:
        try:
            with anyio.fail_after(self._timeout):  # retries included
                return await command
        except TimeoutError:
            self._distrust()
            raise

    def _distrust(self) -> None:
        """Use no connection again that there is: coredis keeps those on which nothing is answered."""
        self._client.connection_pool.disconnect()

    def _tell(self, key: str | None) -> None:
        for callback in tuple(self._callbacks):
            callback(key)

    async def _listen(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Pass on the messages of all processes while the store is open."""
        channels = {f"{self._prefix}tasks": self._tell, f"{self._prefix}changes": self.changes.hear}
        is_first = True
        while True:
            try:
                # Without retries inside of coredis, which would conceal that messages may have been lost.
                async with self._client.pubsub(
                    channels=list(channels),
                    ignore_subscribe_messages=True,
                    retry_policy=None,
                    subscription_timeout=self._timeout,
                    max_idle_seconds=self.lease / 3,
                ) as messages:
                    if is_first:
                        task_status.started()
                        is_first = False
                    else:
                        self.changes.lose()
                        self._tell(None)
                    async for message in messages:
                        published: Any = message  # bytes, since the client does not decode
                        channels[published["channel"].decode()](published["data"].decode())
            except Exception:
                if is_first:
                    raise
                self._distrust()
            await anyio.sleep(_RETRY)


def _add(callbacks: list[C], callback: C) -> Callable[[], None]:
    """Add a callback, and return a function that removes it, any number of times."""
    callbacks.append(callback)

    def remove() -> None:
        if callback in callbacks:
            callbacks.remove(callback)

    return remove


def _check_seconds(name: str, value: Any) -> None:
    if not (is_amount(value) and value > 0):
        raise ValueError(f"{name} must be a number of seconds, more than 0, not {value!r:.100}")


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else str(int(seconds * 1000))


def _task_of(row: Any) -> StoredTask:
    key, members = row
    each = dict(zip(members[::2], members[1::2], strict=True))
    answers = {name[7:].decode(): value for name, value in each.items() if name.startswith(b"answer:")}
    return StoredTask(key.decode(), each[b"record"], each.get(b"payload"), int(each[b"version"]), answers)

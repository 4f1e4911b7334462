"""What comes several at a time: batches, and messages in the words of other dialects."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from mcpio.engine.inbound import Inbound
from mcpio.engine.inbox import head
from mcpio.engine.outbox import ANSWERS, Kind
from mcpio.engine.table import Input, Phase, Role
from mcpio.errors import ErrorCode
from mcpio.events import CloseReason
from mcpio.framing import jsonrpc

if TYPE_CHECKING:
    from mcpio.engine.batches import JoinedAnswers
    from mcpio.engine.dialect import DialectDecoder, Step
    from mcpio.engine.options import Options

__all__ = ["Groups"]


class Groups(Inbound):
    """Takes groups of messages apart, and puts the answers to a batch together."""

    __slots__ = ()

    # Batches

    def _receive_batch(self, batch: jsonrpc.Batch, text: bytes | str, via: Hashable) -> None:
        revision = self.revision
        if revision is None or not (revision.has_batches or self._takes_batches):
            fault = "a JSON array is no message in this revision"
        elif not batch.items:
            fault = "the batch is empty"
        elif len(batch.items) > self._limits.batch_items:
            fault = f"the batch has more than {self._limits.batch_items} items"
        elif self._options.join_batch_answers or via is not None:
            # An exchange has one answer (BATCH-06).
            self._receive_joined(batch, text, via)
            return
        else:
            self._receive_items(batch, text, via)
            return
        self._rebuke(ErrorCode.INVALID_REQUEST, fault, head(text), via)

    @property
    def _takes_batches(self) -> bool:
        return self._options.accept_batches or (self._translator is not None and self._translator.takes_batches)

    def _receive_items(self, batch: jsonrpc.Batch, text: bytes | str, via: Hashable) -> None:
        # Each item counts as a share of the whole.
        text = text[: len(text) // len(batch.items)]
        messages = [step for item in batch.items for step in self._understood(jsonrpc.classify(item))]
        has_calls = any(isinstance(message, jsonrpc.Request | jsonrpc.Notification) for message in messages)
        for message in messages:
            before = self._incoming.next_id
            if isinstance(message, jsonrpc.Batch):
                self._rebuke(ErrorCode.INVALID_REQUEST, "a batch within a batch", list(message.items), via)
            elif has_calls and isinstance(message, jsonrpc.Result | jsonrpc.Error):
                # One batch holds calls or responses (BATCH-04). The request that this one answers waits on.
                self._rebuke(ErrorCode.INVALID_REQUEST, "a response in a batch of requests", message.raw, via)
            else:
                self._take(message, text, via)
            if self._phase is Phase.CLOSED:
                return
            if self._batches is not None:
                self._batches.admit(range(before, self._incoming.next_id))

    # Answers that wait for each other

    def _receive_joined(self, batch: jsonrpc.Batch, text: bytes | str, via: Hashable) -> None:
        from mcpio.engine.batches import Batches

        batches = self._batches = self._batches or Batches()
        batches.begin(via)
        self._receive_items(batch, text, via)
        self._release(batches.end())

    def _release(self, answers: JoinedAnswers | None) -> None:
        """Send the answers to a batch if they are all there. This may be the end."""
        held = 0 if self._batches is None else self._batches.size
        if not self._batches:
            self._batches = None
        if answers is not None:
            # Behind what the requests had to say on the way: a response never overtakes that (P14).
            lane = answers.ids[0] if answers.ids else ANSWERS
            self._outbox.join_lanes(answers.ids, lane)
            self._outbox.put(answers.text, Kind.RESPONSE, via=answers.via, last=True, lane=lane)
            self._check_outbox()
        elif self._outbox.size + held > self._limits.queued_bytes:
            self._finish(Input.SEND_ABORT, CloseReason.SLOW_CONSUMER, None)

    # Dialects

    def _set_dialects(self, options: Options) -> None:
        from mcpio.engine import dialect

        if options.profiles:
            self._translator = dialect.DialectDecoder(
                options.profiles, self.role is Role.SERVER, options.on_tasks_create, options.limits.batch_items
            )
        if options.emit_profile is not None:
            self._accent = dialect.DialectEncoder(options.emit_profile)

    def _receive_translated(self, translator: DialectDecoder, text: bytes | str, via: Hashable) -> None:
        for step in translator.read(text, self._name_of):
            if self._phase is not Phase.CLOSED:
                self._take(step, text, via)

    def _understood(self, message: jsonrpc.Message) -> list[Step]:
        return [message] if self._translator is None else self._translator.translate(message, self._name_of)

    def _name_of(self, id: object) -> str | None:
        request = self._outgoing.get(id) if id.__class__ is int else None
        return None if request is None else request.name

    def _take(self, step: Step, text: bytes | str, via: Hashable) -> None:
        if step is None:
            self._begin_closing(Input.SEND_CLOSE, CloseReason.CLOSED, grace=5.0)
        elif isinstance(step, tuple):
            self._refuse(*step, via)
        else:
            self._receive(step, text, via)

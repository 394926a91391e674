"""Requests batches from a loader and receives them in order, whatever happens to the loader."""
from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import time
import weakref
from collections import deque
from typing import Any, Callable, Optional

import numpy as np
import numpy.typing as npt
import zmq

from . import wire
from .checksum import Buffer, crc32c
from .connection import Connection
from .endpoint import parse_endpoints, read_keys
from .errors import DatasetChanged, LoaderError

_log = logging.getLogger("millrace_loader")
_LOG_FIRST, _LOG_EVERY = 2.0, 5.0  # seconds without data
_RETRY_MAX = 10.0
_UNREACHABLE, _UNREACHABLE_MAX = 0.05, 1.0  # seconds until the next endpoint is tried
_ATTEMPT, _ATTEMPT_MAX = 0.005, 0.1  # seconds between attempts to connect to the same endpoint: twice as many each time


def check_sizes(sequence_tokens: int, max_rows: int, window: int, id_bytes: int = 2) -> int:
    """The bytes of the largest batch, of ids of so many bytes."""
    wire.check_range("T", sequence_tokens, 1, wire.TOKENS_MAX)
    wire.check_range("batch", max_rows, 1, wire.ROWS_MAX)
    wire.check_range("window", window, 1, wire.WINDOW_MAX)
    batch_bytes = max_rows * (sequence_tokens + 1) * id_bytes
    if batch_bytes > wire.PAYLOAD_MAX:
        raise ValueError(f"batch {max_rows} of T {sequence_tokens} is more than the protocol allows (64 MiB): "
                         "take fewer sequences at once")
    return batch_bytes


def client_name(name: Optional[str]) -> bytes:
    """The bytes of a name for the loader's operators."""
    if name is None:
        return f"{socket.gethostname().split('.')[0]:.32}:{os.getpid()}".encode("utf-8", "replace")
    raw = name.encode("utf-8", "replace")
    if len(raw) > wire.NAME_MAX or not name.isprintable():
        raise ValueError(f"name {name!r} is not printable text of up to {wire.NAME_MAX} bytes")
    return raw


class _Pending:
    """A request whose rows `next` has not returned."""

    def __init__(self, what: wire.Request) -> None:
        self.what, self.req_id, self.slot, self.generation = what, 0, -1, 0
        self.received = 0  # bytes of an inline answer in the slot
        self.batch: Optional[wire.Batch] = None  # when complete


class Feed:
    """A connection to a loader. `request` at most `window` batches ahead, then take them in order with `next`.

    endpoint         "ipc://DIR", a directory, "tcp://HOST:PORT", or None for the default directory of this user;
                     several with commas between them are used in turn, when one does not answer
    sequence_tokens  T: a row is T+1 ids
    max_rows         of the largest batch
    vocab_size       the most ids that a dataset may have; None: any number
    timeout          seconds without requested data after which `next` raises LoaderError
    key_file, loader_key  the client's key file and the loader's public key, for a loader with keys (`millrace keygen`)
    ring             share memory with a loader on this machine (ipc)
    dataset_fp       fingerprint of the dataset whose samples have been used: sets `same_samples`
    name             of this client in `millrace serve-status` and in the loader's metrics; None: HOST:PID
    """

    def __init__(self, endpoint: Optional[str], sequence_tokens: int, max_rows: int, window: int = 4,
                 vocab_size: Optional[int] = None, timeout: float = 300.0, key_file: Optional[str] = None,
                 loader_key: Optional[str] = None, ring: bool = True, dataset_fp: bytes = bytes(32),
                 name: Optional[str] = None) -> None:
        batch_bytes = check_sizes(sequence_tokens, max_rows, window)
        self._endpoints, self._place, self._dataset_place = parse_endpoints(endpoint, bool(key_file)), 0, 0
        self._T, self._max_rows, self._window = sequence_tokens, max_rows, window
        self._vocab_size = wire.IDS_MAX if vocab_size is None else vocab_size
        self._id_bytes = 2  # of the dataset
        self._timeout, self._ring, self._dataset_fp = timeout, ring, dataset_fp
        self._name = client_name(name)
        self._session = secrets.randbits(64) | 1
        self._last_req = self._hello_req = self._instance = 0
        self._hello_sent = self._ready = self._changed = self._resent = self._passed_over = False
        self._requests: deque[_Pending] = deque()
        self._lent = -1
        self._patience, self._deadline, self._arrived = 0, 0.0, 0.0
        self._attempt, self._attempt_pause = math.inf, _ATTEMPT  # when to connect again
        self._generation = [0] * (window + 1)  # one slot more than the window: `next` lends one to the caller
        self._dataset: Optional[wire.Welcome] = None
        self.same_samples = 0  # train samples before this number are those of the dataset before, or of `dataset_fp`
        self.reconnects = self.dropped = 0
        self._connection = Connection(self._session, read_keys(key_file, loader_key), batch_bytes, window + 1)
        self._finalizer = weakref.finalize(self, self._connection.close)
        try:
            self._open()
            self._wait(lambda: self._ready)
        except BaseException:
            self.close()
            raise

    @property
    def dataset(self) -> wire.Welcome:
        """What the loader serves."""
        assert self._dataset
        return self._dataset

    # --- the connection

    def _open(self) -> None:
        """Opens a new socket; HELLO is sent when it is connected."""
        self._connect()
        self._ready = self._resent = False
        self._set_deadline()

    def _connect(self) -> None:
        self._connection.open(self._endpoints[self._place])
        self._hello_sent, self._attempt = False, math.inf
        self._last_req += 1
        self._hello_req = self._last_req

    def _reopen(self) -> None:
        self.reconnects += 1
        self._open()

    def _open_next(self) -> None:
        """The loader does not answer: tries the next one."""
        self._place = (self._place + 1) % len(self._endpoints)
        self._patience += self._place == 0
        if len(self._endpoints) > 1:
            self._connection.detach()
        self._reopen()

    def _set_deadline(self) -> None:
        """When to retry if nothing arrives."""
        first = 0.1 if self._endpoints[self._place].directory else 0.5
        self._deadline = time.monotonic() + min(first * 2.0 ** min(self._patience, 10), _RETRY_MAX)

    def _send_hello(self) -> None:
        vocab_fp, dataset_fp = bytes(32), self._dataset_fp
        if self._dataset:
            vocab_fp, dataset_fp = self._dataset.vocab_fp, self._dataset.fingerprint
        self._hello_sent = self._connection.send(
            wire.hello(self._session, self._hello_req, self._vocab_size, self._T, self._max_rows, self._window,
                       vocab_fp, dataset_fp, self._name))

    def _number(self, request: _Pending, slot: int) -> None:
        """Makes a new request of it: the loader would answer the old one without writing to the slot again."""
        self._last_req += 1
        self._generation[slot] += 1
        request.req_id, request.slot, request.generation = self._last_req, slot, self._generation[slot]
        request.received, request.batch = 0, None

    def _send(self, request: _Pending) -> None:
        if self._connection.attach_id:
            request.received = 0
        self._connection.send(wire.get(self._session, request.req_id, self._connection.attach_id,
                                       self.dataset.fingerprint, request.what, request.slot, request.generation))

    def _send_unanswered(self) -> None:
        for request in self._requests:
            if not request.batch:
                self._send(request)

    # --- messages

    def _on_welcome(self, header: wire.Header, welcome: wire.Welcome) -> None:
        if header.req_id != self._hello_req or self._ready:
            return
        if welcome.vocab_size > self._vocab_size:
            raise LoaderError(f"the loader's dataset '{welcome.name}' has {welcome.vocab_size} ids, the model only "
                              f"{self._vocab_size}: raise vocab_size, or serve another dataset")
        self._id_bytes = wire.id_bytes(welcome.vocab_size)
        try:
            self._connection.fit_slots(check_sizes(self._T, self._max_rows, self._window, self._id_bytes))
        except ValueError as error:
            raise LoaderError(f"{error}; the ids of dataset '{welcome.name}' have {self._id_bytes} bytes") from None
        if not self._dataset:
            self.same_samples = welcome.same_samples
        elif self._place != self._dataset_place and not welcome.same_samples:
            self._pass_over(welcome)
            return
        elif welcome.fingerprint != self._dataset.fingerprint:
            self.cancel()
            self.same_samples = min(welcome.same_samples, self.same_samples if self._changed else welcome.same_samples)
            self._changed = True
        self._dataset, self._instance, self._dataset_place = welcome, header.instance, self._place
        self._use_ring(bool(welcome.ring))
        self._ready, self._passed_over, self._attempt_pause = True, False, _ATTEMPT
        self._send_unanswered()

    def _pass_over(self, welcome: wire.Welcome) -> None:
        """In a list of endpoints, a loader that replaces one that does not answer must serve the same samples."""
        if not self._passed_over:
            _log.warning("the loader at %s serves dataset '%s', not '%s': waiting for another loader",
                         self._endpoints[self._place].name, welcome.name, self.dataset.name)
        self._passed_over = True
        self._deadline = time.monotonic() + self._pause()

    def _pause(self) -> float:
        """Seconds until the next endpoint is tried."""
        return min(_UNREACHABLE * 2.0 ** min(self._patience, 10), _UNREACHABLE_MAX)

    def _use_ring(self, offered: bool) -> None:
        connection, endpoint = self._connection, self._endpoints[self._place]
        before = connection.slots
        if not connection.attach_id:
            connection.use_private_slots()
            if offered and self._ring and endpoint.directory:
                connection.attach(endpoint, self._instance)
        if connection.slots is before:
            return
        self._lent = -1  # the lent batch keeps the old slots; batches that `next` has not returned are requested again
        for slot, request in enumerate(self._requests):
            self._number(request, slot)

    def _is_expected(self, request: _Pending, header: wire.Header, batch: wire.Batch, payload: Buffer) -> bool:
        """Whether the message answers the request, with a part of the rows that has not been received yet."""
        what, inline = request.what, not self._connection.attach_id
        total = batch.rows * (self._T + 1) * self._id_bytes
        return (header.instance == self._instance and header.attach_id == self._connection.attach_id
                and (batch.slot, batch.generation) == (request.slot, request.generation)
                and (batch.first_sample, batch.sequence_tokens) == (what.first_sample, self._T)
                and batch.rows <= what.rows and batch.offset == request.received
                and batch.offset + batch.length <= total and len(payload) == (batch.length if inline else 0)
                and (batch.length == total or (inline and batch.length > 0)))

    def _on_batch(self, header: wire.Header, batch: wire.Batch, payload: Buffer) -> None:
        request = next((r for r in self._requests if r.req_id == header.req_id and not r.batch), None)
        if not request or not self._is_expected(request, header, batch, payload):
            self.dropped += 1
            return
        part = self._connection.slots.part(request.slot, batch.offset, batch.length)
        if len(payload):
            part[:] = payload
        if crc32c(part) != batch.payload_crc:
            self.dropped += 1
            self._number(request, request.slot)
            self._send(request)
            return
        request.received += batch.length
        self._patience, self._arrived = 0, time.monotonic()
        if request.received == batch.rows * (self._T + 1) * self._id_bytes:
            request.batch = batch
        if batch.flags & wire.BATCH_REPLACED:
            self._reopen()

    def _on_error(self, header: wire.Header, error: wire.Error) -> None:
        known = header.req_id == self._hello_req or any(r.req_id == header.req_id for r in self._requests)
        if error.code != "AUTH" and (not known or error.code == "BUSY"):
            return  # BUSY: the request is sent again at the deadline
        if error.code not in ("DATASET", "SLOT"):
            raise LoaderError(f"the loader at {self._endpoints[self._place].name} refuses: {error.text} ({error.code})")
        if error.code == "SLOT":
            self._connection.detach()
        self._reopen()

    def _on_message(self, parts: list[bytes]) -> None:
        message = wire.decode(parts[0], *parts[1:2])
        if not message or message[0].session != self._session:
            self.dropped += 1
            return
        header, body = message
        self._set_deadline()
        self._resent = False
        if isinstance(body, wire.Welcome):
            self._on_welcome(header, body)
        elif isinstance(body, wire.Batch):
            self._on_batch(header, body, parts[1] if len(parts) > 1 else b"")
        elif header.type == wire.ERROR:
            self._on_error(header, body)
        elif body.code == "DATASET":
            self._reopen()

    def _receive(self) -> None:
        """Handles all messages that have arrived."""
        while parts := self._connection.receive():
            self._on_message(parts)

    # --- waiting

    def _on_event(self, event: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            raise LoaderError(f"the loader at {self._endpoints[self._place].name} does not allow the key of this client: add it "
                              "to its --allow file")
        if self._ready:
            self._open_next()
        elif len(self._endpoints) > 1:
            self._deadline = min(self._deadline, time.monotonic() + self._pause())
        else:
            self._attempt = time.monotonic() + self._attempt_pause
            self._attempt_pause = min(2 * self._attempt_pause, _ATTEMPT_MAX)

    def _retry(self) -> None:
        if self._ready and not self._resent:
            self._set_deadline()
            self._resent = True
            self._send_unanswered()
        else:
            self._open_next()

    def _step(self) -> None:
        """Waits for one event and handles it."""
        if not self._hello_sent:
            self._send_hello()
        self._connection.wait(min(self._deadline, self._attempt) - time.monotonic(), writable=not self._hello_sent)
        self._receive()
        while event := self._connection.event():
            self._on_event(event)
        if self._connection.ring_ended():
            self._connection.detach()
            if self._ready:
                self._open_next()
        if time.monotonic() >= self._deadline:
            self._retry()
        elif time.monotonic() >= self._attempt:
            self._connect()

    def _wait(self, done: Callable[[], object]) -> None:
        self._receive()
        self._arrived, next_line = time.monotonic(), _LOG_FIRST
        while not done():
            quiet = time.monotonic() - self._arrived
            if quiet >= self._timeout:
                raise LoaderError(f"no data from the loader at {self._names()} for {self._timeout:g} s{self._hint()}")
            if quiet < _LOG_FIRST:
                next_line = _LOG_FIRST
            if quiet >= next_line:
                _log.warning("waiting for the loader at %s (%.0f s)%s", self._names(), quiet, self._hint())
                next_line += _LOG_EVERY
            self._step()

    def _hint(self) -> str:
        endpoint = self._endpoints[self._place]
        if self._ready:
            return f": `millrace serve-status --endpoint {endpoint.name}` shows what it does"
        if not endpoint.directory:
            return ": check its address, and the keys on both sides"
        return f": is one running? `millrace serve DATASET --endpoint {endpoint.name}` starts it"

    def _names(self) -> str:
        return ", ".join(endpoint.name for endpoint in self._endpoints)

    # --- requests

    @property
    def capacity(self) -> int:
        """The number of requests that are possible now."""
        return self._window - len(self._requests)

    def request(self, split: int, mode: str, rows: int, seed: int, first_sample: int, source: int = 0) -> None:
        """Requests samples [first_sample, first_sample + rows). `split`: 0 train, 1 val; `mode`: a word of wire.MODES;
        `source`: 0 all, i only source i of the dataset, the first being 1."""
        self._check_usable()
        wire.check_range("rows", rows, 1, self._max_rows)
        if not self.capacity:
            raise ValueError(f"the window of {self._window} requests is full: take a batch with next first")
        used = {request.slot for request in self._requests} | {self._lent}
        pending = _Pending(wire.Request(split, wire.MODES[mode], source, rows, self._T, seed, first_sample))
        self._number(pending, next(slot for slot in range(self._window + 1) if slot not in used))
        self._requests.append(pending)
        if self._ready and not self._changed:
            self._send(pending)
        if len(self._requests) == 1:
            self._set_deadline()
            self._resent = False

    def next(self) -> npt.NDArray[np.unsignedinteger[Any]]:
        """The rows of the oldest request, (rows, T+1), valid until the next call: uint16, and uint32 where the dataset has
        more than 65,536 ids."""
        self._check_usable()
        if not self._requests and not self._changed:
            raise ValueError("next without a request: call request first")
        self._lent = -1
        self._wait(lambda: self._changed or self._requests[0].batch)
        if self._changed:
            self._changed = False
            self.cancel()
            raise DatasetChanged(f"the loader serves dataset '{self.dataset.name}' now, with other samples: iterate, or "
                                 "request, again to read them")
        request = self._requests.popleft()
        self._lent = request.slot
        return self._connection.slots.rows(request.slot, request.batch.rows if request.batch else 0, self._T + 1,
                                           self._id_bytes)

    def cancel(self) -> None:
        """Cancels all requests whose rows `next` has not returned."""
        self._requests.clear()

    @property
    def usable(self) -> bool:
        """Not closed, and not the copy of a forked process."""
        return self._connection.usable

    def _check_usable(self) -> None:
        if not self.usable:
            raise LoaderError("this feed is closed, or belongs to another process: open one here")

    def close(self) -> None:
        self._finalizer()

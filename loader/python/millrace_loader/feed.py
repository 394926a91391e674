"""Requests batches from a loader and receives them in order, whatever happens to the loader."""
import fcntl
import mmap
import os
import secrets
import socket
import struct
import time
from collections import deque

import numpy as np
import zmq

from . import wire

_SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
_F_ADD_SEALS = 1033
_PAGE = 4096


class LoaderError(Exception):
    """The loader refused a request, or no data arrived in time."""


class DatasetChanged(LoaderError):
    """The loader serves another dataset now. All requests are cancelled; `Feed.dataset` describes the new one."""


class _Request:
    def __init__(self, what, req_id, slot, generation):
        self.what, self.req_id, self.slot, self.generation = what, req_id, slot, generation
        self.received, self.batch = 0, None  # bytes of an inline answer in the slot; its WireBatch when complete


def _default_directory():
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return os.path.join(runtime, "millrace") if runtime else f"/tmp/millrace-{os.geteuid()}"


class Feed:
    """A connection to a loader. `request` at most `window` batches ahead, then take them in order with `next`.

    endpoint         "ipc://DIR", a directory, "tcp://HOST:PORT", or None for the default directory of this user
    sequence_tokens  T: a row is T+1 ids
    max_rows         of the largest batch
    timeout          seconds without requested data after which `next` raises LoaderError
    key_file, loader_key  the client's key file and the loader's public key, for a loader with keys (`loader keygen`)
    ring             share memory with a loader on this machine (ipc)
    """

    def __init__(self, endpoint, sequence_tokens, max_rows, window=4, vocab_size=65536, timeout=300.0, key_file=None,
                 loader_key=None, ring=True):
        if max_rows * (sequence_tokens + 1) * 2 > wire.PAYLOAD_MAX:
            raise ValueError("a batch of more than 64 MiB")
        if bool(key_file) != bool(loader_key):
            raise ValueError("key_file and loader_key must be given together")
        self._tcp = bool(endpoint) and endpoint.startswith("tcp://")
        directory = (endpoint or _default_directory()).removeprefix("ipc://").rstrip("/")
        self._address = endpoint if self._tcp else f"ipc://{directory}/data.sock"
        self._ctl_path = None if self._tcp or not ring else f"{directory}/ctl.sock"
        self._T, self._max_rows, self._window, self._vocab_size = sequence_tokens, max_rows, window, vocab_size
        self._timeout, self._loader_key, self._keys = timeout, loader_key, None
        if key_file:
            with open(key_file) as file:
                self._keys = file.read().split()[:2]
        self._session = secrets.randbits(64) | 1
        self._context, self._socket, self._ctl, self._poller = zmq.Context(), None, None, None
        self._last_req = self._instance = self._attach_id = 0
        self._ready = self._changed = False
        self._requests, self._lent = deque(), None
        self._patience, self._resent = 0, False
        self.dataset = None
        self.reconnects = self.dropped = 0
        # One slot more than the window: `next` lends one to the caller.
        self._slot_bytes = -(-max_rows * (sequence_tokens + 1) * 2 // _PAGE) * _PAGE
        self._generation = [0] * (window + 1)
        self._allocate(shared=False)
        self._open()
        self._wait(lambda: self._ready)

    # --- slots

    def _allocate(self, shared):
        size = self._slot_bytes * (self._window + 1)
        if not shared:
            self._memfd, self._memory = -1, mmap.mmap(-1, size)
            return
        self._memfd = os.memfd_create("millrace-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._memfd, size)
        self._memory = mmap.mmap(self._memfd, size)
        fcntl.fcntl(self._memfd, _F_ADD_SEALS, _SEALS)

    def _rows(self, slot, rows):
        ids = np.frombuffer(self._memory, dtype="<u2", count=rows * (self._T + 1), offset=slot * self._slot_bytes)
        return ids.reshape(rows, self._T + 1)

    # --- the connection

    def _open(self):
        """Opens a new socket and sends HELLO when it is connected."""
        self._close_socket()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.routing_id = b"\1" + secrets.token_bytes(15)
        self._socket.linger, self._socket.immediate = 0, 1
        self._socket.rcvhwm = self._socket.sndhwm = 4096
        self._socket.reconnect_ivl, self._socket.reconnect_ivl_max = 5, 100
        if self._keys:
            self._socket.curve_serverkey = self._loader_key.encode()
            self._socket.curve_publickey, self._socket.curve_secretkey = (key.encode() for key in self._keys)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH,
                                                         f"inproc://monitor-{self._last_req}")
        self._socket.connect(self._address)
        self._ready = self._hello_sent = self._resent = False
        self._last_req += 1
        self._hello_req = self._last_req
        self._deadline = time.monotonic() + self._retry_seconds()

    def _close_socket(self):
        if self._socket:
            self._socket.disable_monitor()  # first: ZeroMQ's thread would wait for ever to send to a closed monitor
            self._monitor.close()
            self._socket.close()
        self._socket = None

    def _close_ctl(self):
        if self._ctl:
            self._ctl.close()
        self._ctl, self._attach_id = None, 0

    def _reopen(self):
        self.reconnects += 1
        self._open()

    def _retry_seconds(self):
        return min((0.5 if self._tcp else 0.1) * 2**self._patience, 10.0)

    def _attach(self):
        """Shares a new ring with the loader. The rows arrive over the socket when that is not possible."""
        self._close_ctl()
        ctl = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ctl.settimeout(2)
        try:
            ctl.connect(self._ctl_path)
            # An earlier loader may still write to the old ring, so each loader gets a new one.
            self._renew_slots(shared=True)
            attach = wire.CTL_ATTACH.pack(wire.MAGIC, wire.MAJOR, 0, self._session, self._slot_bytes, self._window + 1, 0)
            socket.send_fds(ctl, [attach], [self._memfd])
            reply = ctl.recv(64)
            magic, major, _, attach_id, instance, _ = wire.CTL_REPLY.unpack(reply)
            if (magic, major, instance) != (wire.MAGIC, wire.MAJOR, self._instance):
                raise OSError("another loader replied")
        except (OSError, struct.error):
            ctl.close()
            return
        self._ctl, self._attach_id = ctl, attach_id

    def _renew_slots(self, shared):
        """A new ring. Batches that `next` has not returned are requested again; the lent one keeps the old ring."""
        if self._memfd >= 0:
            os.close(self._memfd)
        self._allocate(shared)
        self._lent = None
        for slot, request in enumerate(self._requests):
            self._last_req += 1
            self._generation[slot] += 1
            request.slot, request.generation, request.req_id = slot, self._generation[slot], self._last_req
            request.received, request.batch = 0, None

    def _send(self, request):
        what = request.what
        if self._attach_id:
            request.received = 0
        frame = wire.get(self._session, request.req_id, self._attach_id, self.dataset.fingerprint, what["seed"],
                         what["first_sample"], what["rows"], self._T, what["split"], what["mode"], request.slot,
                         request.generation)
        try:
            self._socket.send(frame, zmq.DONTWAIT)
        except zmq.Again:
            pass  # it is sent again at the deadline

    def _send_unanswered(self):
        for request in self._requests:
            if not request.batch:
                self._send(request)

    # --- messages

    def _on_welcome(self, header, welcome):
        if header.req_id != self._hello_req or self._ready:
            return
        if welcome.vocab_size > self._vocab_size:
            raise LoaderError(f"dataset '{welcome.name}' has {welcome.vocab_size} ids, the model only {self._vocab_size}")
        if self.dataset and welcome.fingerprint != self.dataset.fingerprint:
            self.cancel()
            self._changed = True
        self.dataset, self._instance = welcome, header.instance
        if self._ctl_path and not self._ctl:
            if welcome.ring:
                self._attach()
            else:
                self._renew_slots(shared=False)
        self._ready = True
        self._send_unanswered()

    def _on_batch(self, header, batch, payload):
        request = next((r for r in self._requests if r.req_id == header.req_id and not r.batch), None)
        total = batch.rows * (self._T + 1) * 2
        if (not request or header.instance != self._instance or header.attach_id != self._attach_id
                or (batch.slot, batch.generation) != (request.slot, request.generation)
                or (batch.first_sample, batch.sequence_tokens) != (request.what["first_sample"], self._T)
                or batch.rows > request.what["rows"] or batch.offset != request.received
                or batch.offset + batch.length > total
                or len(payload) != (0 if self._attach_id else batch.length)):
            self.dropped += 1
            return
        at = request.slot * self._slot_bytes + batch.offset
        if len(payload):
            self._memory[at : at + batch.length] = payload
        request.received += batch.length
        self._patience, self._arrived = 0, time.monotonic()
        if request.received == total:
            request.batch = batch
        if batch.flags & wire.BATCH_REPLACED:
            self._reopen()

    def _on_error(self, header, error):
        if header.req_id != self._hello_req and all(r.req_id != header.req_id for r in self._requests):
            return
        if error.code in ("DATASET", "SLOT"):
            if error.code == "SLOT":
                self._close_ctl()
            self._reopen()
        elif error.code != "BUSY":
            raise LoaderError(f"{error.code}: {error.text}")

    def _receive(self):
        """Handles all messages that have arrived."""
        connection = self._socket
        while self._socket is connection:
            try:
                parts = connection.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            message = wire.decode(parts[0])
            if not message or message[0].session != self._session:
                self.dropped += 1
                continue
            header, body = message
            self._deadline, self._resent = time.monotonic() + self._retry_seconds(), False
            if header.type == wire.WELCOME:
                self._on_welcome(header, body)
            elif header.type == wire.BATCH:
                self._on_batch(header, body, parts[1] if len(parts) > 1 else b"")
            elif header.type == wire.ERROR:
                self._on_error(header, body)
            elif header.type == wire.NOTICE and body.code == "DATASET":
                self._reopen()

    def _on_monitor(self):
        event = struct.unpack("<HI", self._monitor.recv_multipart(zmq.DONTWAIT)[0])[0]
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            raise LoaderError("the loader does not allow the key of this client")
        if self._ready:
            self._reopen()
        else:
            self._hello_sent = False

    def _retry(self):
        if self._ready and not self._resent:
            self._resent, self._deadline = True, time.monotonic() + self._retry_seconds()
            self._send_unanswered()
            return
        self._patience += self._hello_sent
        self._reopen()

    def _step(self):
        """Waits for one event and handles it."""
        if not self._hello_sent and self._socket.poll(0, zmq.POLLOUT):
            vocab_fp = self.dataset.vocab_fp if self.dataset else bytes(32)
            self._socket.send(wire.hello(self._session, self._hello_req, self._vocab_size, self._T, self._max_rows,
                                         self._window, vocab_fp), zmq.DONTWAIT)
            self._hello_sent = True
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN | (0 if self._hello_sent else zmq.POLLOUT))
        poller.register(self._monitor, zmq.POLLIN)
        if self._ctl:
            poller.register(self._ctl, zmq.POLLIN)
        wait_ms = max(0, min(100, (self._deadline - time.monotonic()) * 1000))
        events = dict(poller.poll(wait_ms))
        self._receive()
        if self._monitor in events:  # not when _receive has opened another socket
            self._on_monitor()
        if self._ctl and self._ctl.fileno() in events:  # the loader closed the connection: it has ended
            self._close_ctl()
            self._reopen()
        if time.monotonic() >= self._deadline:
            self._retry()

    def _wait(self, done):
        self._receive()
        self._arrived = time.monotonic()
        while not done():
            if time.monotonic() - self._arrived >= self._timeout:
                raise LoaderError(f"no data from the loader at {self._address} for {self._timeout:g} s")
            self._step()

    # --- requests

    @property
    def capacity(self):
        """The number of requests that are possible now."""
        return self._window - len(self._requests)

    def request(self, split, mode, rows, seed, first_sample):
        """Requests samples [first_sample, first_sample + rows). `mode` is "epoch", "crop" or "sequential"."""
        if not self.capacity or not 0 < rows <= self._max_rows:
            raise ValueError("more requests than the window, or rows out of range")
        used = {request.slot for request in self._requests} | {self._lent}
        slot = next(slot for slot in range(self._window + 1) if slot not in used)
        self._last_req += 1
        self._generation[slot] += 1
        what = {"split": split, "mode": wire.MODES[mode], "rows": rows, "seed": seed, "first_sample": first_sample}
        self._requests.append(_Request(what, self._last_req, slot, self._generation[slot]))
        if self._ready and not self._changed:
            self._send(self._requests[-1])
        if len(self._requests) == 1:
            self._deadline, self._resent = time.monotonic() + self._retry_seconds(), False

    def next(self):
        """The rows of the oldest request: uint16 (rows, T+1), valid until the next call."""
        self._lent = None
        self._wait(lambda: self._changed or self._requests[0].batch)
        if self._changed:
            self._changed = False
            self.cancel()
            raise DatasetChanged(f"the loader serves dataset '{self.dataset.name}' now")
        request = self._requests.popleft()
        self._lent = request.slot
        return self._rows(request.slot, request.batch.rows)

    def cancel(self):
        """Cancels all requests whose rows `next` has not returned."""
        self._requests.clear()

    def close(self):
        if self._socket and self._ready:
            self._socket.linger = 50
            try:
                self._socket.send(wire.bye(self._session), zmq.DONTWAIT)
            except zmq.Again:
                pass
        self._close_socket()
        self._close_ctl()
        if self._memfd >= 0:
            os.close(self._memfd)
            self._memfd = -1
        self._context.term()

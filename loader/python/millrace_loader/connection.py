"""A connection to a loader: a ZeroMQ socket with its monitor, and the slots for batches, which the loader may share."""
from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import socket
import struct
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
import zmq
import zmq.utils.monitor

from . import wire
from .endpoint import Endpoint, Keys

_SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
_F_ADD_SEALS = 1033
_PAGE = 4096
# None of them repeats while nobody reads them: ZeroMQ's thread waits for room in their queue.
_EVENTS = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_HANDSHAKE_FAILED_AUTH


class Slots:
    """Memory for `count` batches; shared slots have a descriptor for the loader."""

    def __init__(self, batch_bytes: int, count: int, shared: bool) -> None:
        self.slot_bytes, self.count, self.memfd = -(-batch_bytes // _PAGE) * _PAGE, count, -1
        if shared:
            self.memfd = os.memfd_create("millrace-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.memfd, self.slot_bytes * count)
        self._memory = mmap.mmap(self.memfd, self.slot_bytes * count)
        if shared:
            fcntl.fcntl(self.memfd, _F_ADD_SEALS, _SEALS)

    def part(self, slot: int, offset: int, length: int) -> memoryview:
        begin = slot * self.slot_bytes + offset
        return memoryview(self._memory)[begin : begin + length]

    def rows(self, slot: int, rows: int, ids: int, id_bytes: int) -> npt.NDArray[np.unsignedinteger[Any]]:
        part = self.part(slot, 0, id_bytes * rows * ids)
        return np.frombuffer(part, dtype=f"<u{id_bytes}").reshape(rows, ids)

    def close(self) -> None:
        """The memory itself lives as long as the rows that were lent."""
        if self.memfd >= 0:
            os.close(self.memfd)
        self.memfd = -1


class Connection:
    """`open` replaces the socket, which connects once, as often as needed; `attach` replaces the slots by some that the
    loader shares."""

    def __init__(self, session: int, keys: Optional[Keys], batch_bytes: int, slot_count: int) -> None:
        self._session, self._keys, self._pid, self._opened = session, keys, os.getpid(), 0
        self._batch_bytes, self._slot_count = batch_bytes, slot_count
        self._context = zmq.Context()
        self._socket: Optional[zmq.Socket[bytes]] = None
        self._monitor: Optional[zmq.Socket[bytes]] = None
        self._ctl: Optional[socket.socket] = None
        self.attach_id = 0  # 0: rows arrive over the socket
        self.slots = Slots(batch_bytes, slot_count, False)

    def open(self, endpoint: Endpoint) -> None:
        endpoint.check()
        self._close_socket()
        self._socket = new = self._context.socket(zmq.DEALER)
        new.routing_id = b"\1" + secrets.token_bytes(15)
        new.linger, new.immediate = 0, 1
        new.rcvhwm = new.sndhwm = 4096
        new.reconnect_ivl = -1
        new.maxmsgsize = wire.MESSAGE_MAX
        new.ipv6 = "[" in endpoint.address
        if self._keys:
            new.curve_serverkey, new.curve_publickey, new.curve_secretkey = self._keys
        self._opened += 1
        self._monitor = new.get_monitor_socket(_EVENTS, f"inproc://monitor-{self._opened}")
        try:
            new.connect(endpoint.address)
        except zmq.ZMQError as error:
            raise ValueError(f"ZeroMQ cannot connect to '{endpoint.address}': {zmq.strerror(error.errno or 0)}") from None

    def _close_socket(self) -> None:
        if self._socket and self._monitor:
            self._socket.disable_monitor()  # first: ZeroMQ's thread would wait for ever to send to a closed monitor
            self._monitor.close()
        if self._socket:
            self._socket.close()
        self._socket = self._monitor = None

    def send(self, frame: bytes) -> bool:
        """False when no loader is connected."""
        try:
            assert self._socket
            self._socket.send(frame, zmq.DONTWAIT)
        except zmq.Again:
            return False
        return True

    def receive(self) -> Optional[list[bytes]]:
        try:
            return self._socket.recv_multipart(zmq.DONTWAIT) if self._socket else None
        except zmq.Again:
            return None

    def wait(self, seconds: float, writable: bool) -> None:
        """Waits for a message, an event, the end of the loader's side of the ring, or until HELLO can be sent."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN | (zmq.POLLOUT if writable else 0))
        poller.register(self._monitor, zmq.POLLIN)
        if self._ctl:
            poller.register(self._ctl, zmq.POLLIN)
        poller.poll(int(max(0, min(100, seconds * 1000 + 1))))

    def event(self) -> int:
        """An event of the socket since the last call, or 0."""
        try:
            assert self._monitor
            return int(zmq.utils.monitor.recv_monitor_message(self._monitor, zmq.DONTWAIT)["event"])
        except zmq.Again:
            return 0

    # --- the ring

    def attach(self, endpoint: Endpoint, instance: int) -> None:
        """Shares new slots with the loader. When that is not possible, rows arrive over the socket."""
        self.detach()
        ctl = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ctl.settimeout(2)
        try:
            ctl.connect(f"{endpoint.directory}/ctl.sock")
            self._renew_slots(shared=True)
            request = wire.CTL_ATTACH.pack(wire.MAGIC, wire.MAJOR, 0, self._session, self.slots.slot_bytes,
                                           self.slots.count, 0)
            socket.send_fds(ctl, [request], [self.slots.memfd])
            magic, major, _, attach_id, sender, _ = wire.CTL_REPLY.unpack(ctl.recv(64))
            if (magic, major, sender) != (wire.MAGIC, wire.MAJOR, instance):
                raise OSError("another loader replied")
        except (OSError, struct.error):
            ctl.close()
            self.use_private_slots()
            return
        ctl.setblocking(False)
        self._ctl, self.attach_id = ctl, attach_id

    def ring_ended(self) -> bool:
        """Whether the loader has closed its side of the ring."""
        try:
            return self._ctl is not None and self._ctl.recv(1) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def detach(self) -> None:
        """Ends the attachment. The slots keep the rows that have arrived."""
        if self._ctl:
            self._ctl.close()
        self._ctl, self.attach_id = None, 0

    def fit_slots(self, batch_bytes: int) -> None:
        """Replaces slots that are too small for such batches."""
        if batch_bytes <= self._batch_bytes:
            return
        self._batch_bytes = batch_bytes
        self.detach()
        self._renew_slots(shared=False)

    def use_private_slots(self) -> None:
        """Replaces slots to which an earlier loader could still write."""
        if self.slots.memfd >= 0:
            self._renew_slots(shared=False)

    def _renew_slots(self, shared: bool) -> None:
        self.slots.close()
        self.slots = Slots(self._batch_bytes, self._slot_count, shared)

    @property
    def usable(self) -> bool:
        return self._socket is not None and self._pid == os.getpid()

    def close(self) -> None:
        """Says BYE; a forked process only closes its copies of the descriptors."""
        self.detach()
        self.slots.close()
        if os.getpid() != self._pid:
            return
        if self._socket:
            self._socket.linger = 50
            self.send(wire.bye(self._session))
        self._close_socket()
        self._context.term()

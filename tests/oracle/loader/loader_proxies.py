"""Proxies between a client and a loader for tests: one delays every byte, one flips bits of payloads."""
import contextlib
import queue
import socket
import threading
import time

import zmq


class DelayProxy:
    """Forwards TCP connections; bytes arrive `seconds` later in each direction."""

    def __init__(self, port, seconds):
        self.to, self.seconds = port, seconds
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.server.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:  # no loader yet
                near.close()
                continue
            for source, sink in ((near, far), (far, near)):
                line = queue.Queue()
                threading.Thread(target=self.read, args=(source, line), daemon=True).start()
                threading.Thread(target=self.write, args=(line, sink), daemon=True).start()

    def read(self, source, line):
        data = True
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            line.put((time.monotonic() + self.seconds, data))

    @staticmethod
    def write(line, sink):
        with contextlib.suppress(OSError):
            while True:
                at, data = line.get()
                time.sleep(max(0, at - time.monotonic()))
                if not data:
                    sink.shutdown(socket.SHUT_RDWR)
                    sink.close()
                    return
                sink.sendall(data)


class FlipProxy:
    """Forwards ZeroMQ messages; flips a bit in the second part of every `every`-th message that has one. `sent` has the messages of
    clients."""

    def __init__(self, endpoint, every):
        self.endpoint, self.every, self.flips, self.parts, self.sent = endpoint, every, 0, 0, []
        self.context, self.stopped = zmq.Context(), False
        self.front = self.context.socket(zmq.ROUTER)
        self.port = self.front.bind_to_random_port("tcp://127.0.0.1")
        self.thread = threading.Thread(target=self.forward)
        self.thread.start()

    def forward(self):
        backs = {}  # a socket to the loader for each socket of a client
        while not self.stopped:
            poller = zmq.Poller()
            for each in (self.front, *backs.values()):
                poller.register(each, zmq.POLLIN)
            ready = dict(poller.poll(50))
            if self.front in ready:
                route, *parts = self.front.recv_multipart()
                if route not in backs:
                    backs[route] = self.context.socket(zmq.DEALER)
                    backs[route].connect(self.endpoint)
                self.sent.append(parts)
                backs[route].send_multipart(parts)
            for route, back in backs.items():
                if back in ready:
                    self.front.send_multipart([route, *self.flip(back.recv_multipart())])
        self.context.destroy(linger=0)

    def flip(self, parts):
        if len(parts) < 2:
            return parts
        self.parts += 1
        if self.parts % self.every:
            return parts
        self.flips += 1
        damaged = bytearray(parts[1])
        damaged[self.flips * 7919 % len(damaged)] ^= 1 << self.flips % 8
        return [parts[0], bytes(damaged)]

    def stop(self):
        self.stopped = True
        self.thread.join()

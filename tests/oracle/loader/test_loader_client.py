"""The Python client (loader/python) with a real loader, against the ids that zstd unpacks and the sampling modes as
test_loader_sampling.py computes them."""
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess

import numpy as np
import test_loader_sampling as sampling
from millrace_loader import Feed, LoaderError, TokenBatches, wire

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ["BIN"]).resolve()
PACKAGE = str(ROOT / "loader/python")

T, SEED = 64, 1337


class Loader:
    """A loader process on dataset `data`; `kill` ends it and `start` starts it again."""

    def __init__(self, endpoint, data="data", options=()):
        self.command = [BIN / "loader", "serve", data, "--endpoint", endpoint, "--quiet", f"--die-with-parent={os.getpid()}",
                        *options]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def make_data(name="data", lines=20000):
    if not os.path.exists(name):
        os.mkdir(name + ".txt")
        for number in range(0, lines, 100):  # a document each
            pathlib.Path(name + ".txt", f"{number:06}").write_text(
                "".join(f"the mill grinds {i} sacks of {i * 7919 % 1000} grains\n" for i in range(number, number + 100)))
        subprocess.run([BIN / "shardtool", "tokenize", "--quiet", "--val", "0.1", "-o", name, name + ".txt"], check=True)
    shards = sorted(pathlib.Path(name, "train").glob("*/*.zst"))
    return np.frombuffer(b"".join(subprocess.run(["zstd", "-dcq", p], check=True, capture_output=True).stdout
                                  for p in shards), dtype="<u2")


def wanted(ids, mode, sample, seed=SEED, place=0, eot=50256):
    return sampling.row(mode, ids, seed, 0, T, sample, eot, c=place)


def check(rows, ids, mode, first, **more):
    """place=...: that of the source in its mixture."""
    for i, row in enumerate(rows):
        assert np.array_equal(row, wanted(ids, mode, first + i, **more)), (mode, first + i)


def check_every_mode(data, ids, count, **more):
    """The rows of a dataset over the ring, ipc and tcp, `count` at a time."""
    tcp = f"tcp://127.0.0.1:{port()}"
    with Loader("ipc://place", data), Loader(tcp, data, options=["--insecure"]):
        for endpoint, ring in (("ipc://place", True), ("ipc://place", False), (tcp, False)):
            feed = Feed(endpoint, T, count, ring=ring, timeout=60)
            assert bool(feed._connection.attach_id) == ring
            for mode in wire.MODES:
                ends = mode in ("permuted", "sequential")
                firsts = [0, 24, 1000, (len(ids) - 1) // T - 5] + ([10**9, 2**62] if not ends else [])
                for first in firsts:
                    feed.request(0, mode, count, SEED, first)
                    rows = feed.next()
                    assert rows.dtype == ids.dtype and len(rows) == (count if not ends else min(count, (len(ids) - 1) // T - first))
                    check(rows, ids, mode, first, **more)
            feed.close()


def port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def keygen(name):
    """The public key of a new key file."""
    return subprocess.run([BIN / "loader", "keygen", name], check=True, capture_output=True, text=True).stdout.strip()


def status_of(endpoint):
    done = subprocess.run([BIN / "loader", "serve-status", "--json", "--endpoint", endpoint], check=True, capture_output=True)
    return json.loads(done.stdout)


def test_sampling_modes_have_the_numbers_of_the_table():
    table = (ROOT / "loader/protocol/sampling_mode.h").read_text()
    rows = re.findall(r"MODE\([A-Z]+, ([a-z]+), (\d+),", table)
    orders = {name: int(number) for name, number in rows if name != "rest"}  # no order of training samples
    assert len(orders) >= 3 and wire.MODES == orders, (rows, wire.MODES)


def test_client_rows_equal_zstd_in_every_mode_over_ring_ipc_and_tcp():
    check_every_mode("data", make_data(), 24)


def test_client_stream_is_the_same_when_loaders_are_killed():
    ids = make_data()
    tcp = f"tcp://127.0.0.1:{port()}"
    for endpoint, ring, mode in (("ipc://killed", True, "documents"), ("ipc://killed", False, "epoch"), (tcp, False, "shifted")):
        with Loader(endpoint, options=["--insecure"]) as loader:
            feed = Feed(endpoint, T, 16, ring=ring, timeout=60)
            requested = received = 0
            for kills in range(6):
                for _ in range(10):
                    while feed.capacity:
                        feed.request(0, mode, 16, SEED, requested)
                        requested += 16
                    check(feed.next(), ids, mode, received)
                    received += 16
                loader.kill()
                loader.start()
            assert feed.reconnects >= 5
            feed.close()


def digest(batches, steps, ranks):
    sha = hashlib.sha256()
    streams = [iter(b) for b in batches]
    for _ in range(steps):
        for stream in streams:
            x, y = next(stream)
            assert np.array_equal(np.asarray(x)[:, 1:], np.asarray(y)[:, :-1])
            sha.update(np.ascontiguousarray(np.asarray(x).astype("<u2")).tobytes())
    return sha.hexdigest()


def test_dataset_gives_the_same_stream_for_any_world_and_continues_from_its_state():
    make_data()
    with Loader("ipc://place"):
        for mode in ("epoch", "documents"):
            whole = TokenBatches("ipc://place", T, 48, seed=SEED, mode=mode)
            one = digest([whole], 10, 1)
            for world in (2, 4):
                ranks = [TokenBatches("ipc://place", T, 48 // world, rank=rank, world=world, seed=SEED, mode=mode)
                         for rank in range(world)]
                assert digest(ranks, 10, world) == one
                [rank.close() for rank in ranks]
            state = json.dumps(whole.state_dict())
            assert len(state) <= 200, len(state)
            rest = digest([whole], 5, 1)
            resumed = TokenBatches("ipc://place", T, 16)  # another batch size
            resumed.load_state_dict(json.loads(state))
            assert digest([resumed], 15, 1) == rest
            assert resumed.state_dict() == whole.state_dict()
            resumed.close()
            whole.close()


def test_client_that_computes_does_not_let_events_of_its_socket_pile_up():
    """ZeroMQ's thread, and with it the client, would wait for ever when the queue of 2,000 events is full."""
    import zmq
    import zmq.utils.monitor
    ids, here = make_data(), os.getcwd()
    with Loader(f"ipc://{here}/away") as loader:
        feed = Feed(f"{here}/away", T, 4)
        loader.kill()
        context = zmq.Context()
        other = context.socket(zmq.DEALER)  # connects again by itself, 5 to 100 ms after each attempt
        other.reconnect_ivl, other.reconnect_ivl_max, other.linger = 5, 100, 0
        monitor = other.get_monitor_socket(zmq.EVENT_CONNECT_RETRIED, "inproc://attempts")
        other.connect(f"ipc://{here}/nobody")
        for _ in range(20):
            zmq.utils.monitor.recv_monitor_message(monitor)
        other.disable_monitor()
        monitor.close()
        context.destroy()
        events = 0
        while feed._connection.event():
            events += 1
        assert events <= 3, f"{events} events"
        loader.start()
        feed.request(0, "sequential", 4, SEED, 0)
        check(feed.next(), ids, "sequential", 0)
        feed.close()


def test_client_needs_an_allowed_key():
    ids = make_data()
    keys = {name: keygen(name) for name in ("loader.key", "client.key", "other.key")}
    pathlib.Path("allowed").write_text(keys["client.key"] + "\n")
    endpoint = f"tcp://127.0.0.1:{port()}"
    with Loader(endpoint, options=["--key", "loader.key", "--allow", "allowed"]):
        feed = Feed(endpoint, T, 8, key_file="client.key", loader_key=keys["loader.key"], timeout=60)
        feed.request(0, "epoch", 8, SEED, 0)
        check(feed.next(), ids, "epoch", 0)
        feed.close()
        try:
            Feed(endpoint, T, 8, key_file="other.key", loader_key=keys["loader.key"], timeout=60)
            assert False, "an unlisted key was accepted"
        except LoaderError as error:
            assert "does not allow the key" in str(error)

"""make soak: a loader under a fault a minute. After a warm-up its anonymous memory must stay within 1 MiB and its number of
descriptors constant, and each client must read what the first pass over the data gave.

    soak_loader.py BIN_FOLDER MINUTES [SECONDS_BETWEEN_FAULTS]"""
import hashlib
import multiprocessing
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, __file__.rsplit("/", 3)[0] + "/oracle")
import rooms
from millrace_loader import Feed

T, ROWS, CLIENTS, BATCHES = 128, 32, 3, 200  # batches of a pass over the same samples
WARM_UP = 6  # rounds of all faults


def read_passes(seed, failed):
    """Reads the same batches again and again; every pass must have one hash."""
    feed, first = Feed("ipc://place", T, ROWS, window=2), None
    while True:
        digest = hashlib.sha256()
        for batch in range(BATCHES):
            feed.request(0, "epoch", ROWS, seed, batch * ROWS)
            digest.update(feed.next().tobytes())
            time.sleep(0.002)
        first = first or digest.digest()
        if digest.digest() != first:
            failed.set()


def start_client(seed, failed):
    client = multiprocessing.Process(target=read_passes, args=(seed, failed), daemon=True)
    client.start()
    return client


def anonymous(pid):
    return int(re.search(r"RssAnon:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def settled_descriptors(pid, wanted, seconds=30):
    """Those after at most so many seconds: a client that connects again, because the machine is busy, has two sockets for a moment."""
    until = time.monotonic() + seconds
    while descriptors(pid) != wanted and time.monotonic() < until:
        time.sleep(0.2)
    return descriptors(pid)


def stop_for_a_second(loader, clients, failed):
    loader.send_signal(signal.SIGSTOP)
    time.sleep(1)
    loader.send_signal(signal.SIGCONT)


def kill_a_client(loader, clients, failed):
    clients[0].kill()
    clients[0].join()
    clients.append(start_client(len(clients), failed))
    del clients[0]


def reload_the_data(loader, clients, failed):
    loader.send_signal(signal.SIGHUP)


def send_garbage(loader, clients, failed):
    """One connection after the other: each that is open at the same time has buffers, whose heap glibc keeps."""
    for size in range(200):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect("place/data.sock")
            try:
                peer.send(os.urandom(size + 1))
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(4096):
                    pass
            except ConnectionError:
                pass


FAULTS = (stop_for_a_second, kill_a_client, reload_the_data, send_garbage)


def main(folder, minutes, between="60"):
    folder, end = os.path.abspath(folder), time.monotonic() + 60 * float(minutes)
    os.chdir(tempfile.mkdtemp(prefix="millrace-soak-"))
    pathlib.Path("text").write_text("".join(f"line {i} of {i * 7919 % 9973}\n" for i in range(200000)))
    subprocess.run([f"{folder}/shardtool", "tokenize", "--quiet", "--val", "0", "-o", "set", "text"], check=True)
    loader = subprocess.Popen([f"{folder}/loader", "serve", "set", "--endpoint", "ipc://place", "--cache", "16M",
                               f"--die-with-parent={os.getpid()}"], stderr=open("log", "w"))
    failed = multiprocessing.Event()
    clients = [start_client(seed, failed) for seed in range(CLIENTS)]
    time.sleep(min(20, float(between)))
    # Connections fragment the heap of ZeroMQ's thread: its size moves by half a MiB in the first of them and then stays.
    for _ in range(WARM_UP):
        for fault in FAULTS:
            fault(loader, clients, failed)
            time.sleep(0.5)
    time.sleep(3)
    memory, files, number, worst = anonymous(loader.pid), descriptors(loader.pid), 0, 0.0
    print(f"after the warm-up: {memory:.1f} MiB anonymous, {files} descriptors", flush=True)
    while time.monotonic() < end:
        fault = FAULTS[number % len(FAULTS)]
        fault(loader, clients, failed)
        time.sleep(float(between))
        number += 1
        if loader.poll() is not None:
            sys.exit(f"failed: the loader ended with {loader.poll()}")
        now, open_files = anonymous(loader.pid), settled_descriptors(loader.pid, files)
        worst = max(worst, abs(now - memory))
        print(f"{number:4} {fault.__name__:20} {now:7.1f} MiB {open_files:4} descriptors", flush=True)
        if failed.is_set() or open_files != files:
            sys.exit(f"failed: samples differ {failed.is_set()}, descriptors {open_files}")
    loader.send_signal(signal.SIGTERM)
    code = loader.wait()
    print(f"{number} faults, memory within {worst:.2f} MiB, exit {code}")
    sys.exit(worst > 1 or code != 0)


if __name__ == "__main__":
    main(*sys.argv[1:])

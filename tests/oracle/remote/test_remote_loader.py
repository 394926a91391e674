"""loader serve of a dataset by URL: its rows are those of the files, whatever the server, the disk of the cache and kills do."""
import os, random, shutil, signal, subprocess, sys, time
import numpy as np
import remote_runs, runner
import test_remote_datasets as datasets
from hostile_server import Session
from millrace_loader import Feed
from remote_runs import environment


LOADER = os.path.join(os.environ["BIN"], "loader")
T, BATCH, SEED = 128, 16, 7
web = None
files = {}
want = []


def setup():
    global web
    web = datasets.web = remote_runs.start()
    files.update(datasets.make_dataset("set", documents=6000))
    with Serving("set", "ipc://local") as loader:
        want.extend(loader.rows(0, 40))


class Serving:
    def __init__(self, data, endpoint="ipc://place", *options, limit=None):
        self.command = [LOADER, "serve", data, "--endpoint", endpoint, f"--die-with-parent={os.getpid()}", "--cache", "2M", *options]
        self.endpoint, self.limit = endpoint, limit
        self.start()

    def start(self):
        self.log = open("loader.log", "ab")
        self.process = subprocess.Popen(self.command, stderr=self.log, env=environment())

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        return self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()

    def rows(self, first, batches, between=lambda number: None):
        """Rows of batches spread over an epoch."""
        feed = Feed(self.endpoint, T, BATCH, ring=False, timeout=100)
        found = []
        for number in range(first, first + batches):
            feed.request(0, "epoch", BATCH, SEED, number * 1009 % 5000)
            found.append(feed.next().copy())
            between(number)
        feed.close()
        return found


def same(rows, first=0):
    return all(np.array_equal(row, want[first + i]) for i, row in enumerate(rows)) and bool(rows)


def cache_bytes(folder):
    return sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in os.listdir(folder))


def url(session):
    return web.url("origin", session + "/sets/set")


def test_rows_by_url_are_those_of_the_files_and_stay_for_the_next_start():
    session = web.add("plain", Session(files))
    with Serving(url("plain"), "ipc://place", "--disk-cache", "cache") as loader:
        assert same(loader.rows(0, 40))
        assert loader.kill(signal.SIGTERM) == 0
        before = sum(path.endswith("zst") and headers.get("Range") != "bytes=0-1" for _, path, headers in session.seen)
        loader.start()
        assert same(loader.rows(0, 40))
        loader.kill()
    after = sum(path.endswith("zst") and headers.get("Range") != "bytes=0-1" for _, path, headers in session.seen)
    assert after == before > 0, (before, after)  # no frame is requested again
    done = subprocess.run([LOADER, "serve", url("plain"), "--endpoint", "ipc://none"], capture_output=True, env=environment())
    assert done.returncode == 2 and b"--disk-cache" in done.stderr, done.stderr


# fault 119
@runner.ci
def test_a_trainer_only_waits_for_a_server_that_cuts_stalls_and_is_away():
    for seed in range(2):
        session = web.add("rough", Session(files, seed, ["cut", "503", "500", "429", "cut header", "short", "redirect"], share=0.4))

        def between(number):
            if number % 10 == 5:
                session.away = 4  # requests

        with Serving(url("rough"), "ipc://at-rough", "--disk-cache", f"rough{seed}") as loader:
            assert same(loader.rows(0, 40, between))


# fault 120
def test_the_cache_keeps_to_its_size_and_serves_the_same_rows():
    web.add("plain", Session(files))
    with Serving(url("plain"), "ipc://at-small", "--disk-cache", "small", "--disk-cache-size", "1900000") as loader:
        assert same(loader.rows(0, 40))
        assert cache_bytes("small") <= 1900000, cache_bytes("small")


def test_a_cache_on_a_file_system_without_shared_maps_serves_the_same_rows():
    """FUSE with direct I/O, also of a cache that a loader before has left, with another byte in each page."""
    if os.getuid() or not shutil.which("bindfs") or not os.access("/dev/fuse", os.W_OK):
        raise runner.Skip("needs bindfs, root and /dev/fuse")
    os.makedirs("real"), os.makedirs("mnt")
    mount = subprocess.Popen(["bindfs", "-f", "-o", "direct_io", "real", "mnt"])
    try:
        while not os.path.ismount("mnt"):
            if mount.poll() is not None:
                raise runner.Skip("cannot mount with FUSE")
            time.sleep(0.02)
        web.add("private", Session(files))
        for _ in range(2):
            with Serving(url("private"), "ipc://place", "--disk-cache", "mnt", "--disk-cache-size", "1900000") as loader:
                assert same(loader.rows(0, 40))
            for name in os.listdir("real"):
                with open(os.path.join("real", name), "r+b") as file:
                    for at in range(2000, os.path.getsize(file.name), 4096):
                        file.seek(at), file.write(b"?")
    finally:
        subprocess.run(["umount", "mnt"])
        mount.wait(60)


# fault 121
def test_a_loader_that_is_killed_and_a_cache_that_is_damaged_serve_the_same_rows():
    web.add("plain", Session(files))
    rng = random.Random(2)
    loader = Serving(url("plain"), "ipc://at-killed", "--disk-cache", "killed")

    def between(number):
        if number % 8 != 7:
            return
        loader.kill()
        for name in os.listdir("killed"):
            if name.endswith(".part"):
                path = os.path.join("killed", name)
                with open(path, "r+b") as part:
                    for _ in range(3):
                        part.seek(rng.randrange(os.path.getsize(path)))
                        part.write(rng.randbytes(9))
        loader.start()

    with loader:
        assert same(loader.rows(0, 40, between))


# fault 122
def test_a_full_disk_of_the_cache_is_noticed_by_nobody_but_the_log():
    if os.getuid() or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        raise runner.Skip("needs root and mounts of its own")
    web.add("plain", Session(files))
    os.mkdir("full")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1900k", "none", "full"], capture_output=True).returncode:
        raise runner.Skip("cannot mount a tmpfs")
    try:
        with Serving(url("plain"), "ipc://at-full", "--disk-cache", "full", "--disk-cache-size", "1G") as loader:
            assert same(loader.rows(0, 40))
        assert b"the disk of 'full' is full" in open("loader.log", "rb").read()
    finally:
        subprocess.run(["umount", "-l", "full"], check=True)

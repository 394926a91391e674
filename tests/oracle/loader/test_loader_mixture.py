"""Mixtures of datasets: the rule of loader/protocol/mixture.h written again, against a loader that is killed, and whose
weights change while a client reads."""
import functools
import hashlib
import json
import pathlib
import re
import subprocess

import numpy as np
import test_loader_client as client
import test_loader_sampling as sampling

HEADER = client.ROOT / "loader/protocol/mixture.h"
SUM = 65536


@functools.lru_cache
def scaled(weights):
    total = sum(weights)
    w = [SUM * x // total for x in weights]
    by_remainder = sorted(range(len(w)), key=lambda i: (-(SUM * weights[i] % total), i))
    for i in by_remainder[: SUM - sum(w)]:
        w[i] += 1
    return w


def source_of(weights, p):
    """Source and number in it of sample p of an entry, by the header's rule."""
    left = SUM
    for i, w in enumerate(scaled(weights)):
        r = p * w // left
        if (p + 1) * w // left > r:
            return i, r
        p, left = p - r, left - w


def at(schedule, sample):
    """The same for a schedule [(from, weights), ...]."""
    base = [0] * len(schedule[0][1])
    for number, (begin, weights) in enumerate(schedule):
        last = number + 1 == len(schedule)
        if last or sample < schedule[number + 1][0]:
            i, r = source_of(weights, sample - begin)
            return i, base[i] + r
        p, left = schedule[number + 1][0] - begin, SUM
        for i, w in enumerate(scaled(weights)):
            r = p * w // left if left else 0
            base[i], p, left = base[i] + r, p - r, left - w


def fingerprints(sources, schedule):
    text = "mixture of streams\n" + "".join(f"{f.hex()} {w}\n" for f, w in zip(sources, scaled(schedule[0][1])))
    chain = [hashlib.sha256(text.encode()).digest()]
    for begin, weights in schedule[1:]:
        chain.append(hashlib.sha256(
            f"{chain[-1].hex()} {begin} {' '.join(map(str, scaled(weights)))}\n".encode()).digest())
    return chain


VECTORS = [([(0, (3, 1))], 0), ([(0, (3, 1))], 3), ([(0, (3, 1))], 10**12), ([(0, (5, 2, 1))], 1234567),
           ([(0, (1, 1, 1))], 65535), ([(0, (3, 1)), (100000, (1, 1))], 99999),
           ([(0, (3, 1)), (100000, (1, 1))], 100001), ([(0, (1, 0)), (70000, (2, 3)), (200000, (0, 1))], 2**40)]


def test_the_header_contains_these_vectors():
    lines = re.findall(r"^//   (\S+ \d+ -> \d+ \d+)$", HEADER.read_text(), re.M)
    wanted = [" ".join((";".join(f"{b}:{','.join(map(str, w))}" for b, w in schedule), str(sample), "->",
                        *map(str, at(schedule, sample)))) for schedule, sample in VECTORS]
    assert lines == wanted, "\n".join(wanted)


class Mixture:
    def __init__(self):
        self.ids = [client.make_data("mix-a", 20000), client.make_data("mix-b", 7000)]

    def row(self, schedule, sample, mode="epoch"):
        i, number = at(schedule, sample)
        ids = self.ids[i]
        return sampling.row(mode, ids, client.SEED, 0, client.T, number, c=i)

    def check(self, feed, schedule, first, rows, mode="epoch"):
        feed.request(0, mode, rows, client.SEED, first)
        got = feed.next().copy()
        for i, row in enumerate(got):
            assert np.array_equal(row, self.row(schedule, first + i, mode)), first + i
        return got


def open_feed():
    return client.Feed("ipc://mix", client.T, 64, window=2)


def test_the_loader_serves_a_mixture_by_the_rule():
    mixture, schedule = Mixture(), [(0, (3, 1))]
    with client.Loader("ipc://mix", "mix-a:3", ["mix-b:1"]) as loader:
        hashes = set()
        for rows in (64, 16, 7):  # any batch size, and killed loaders: one hash
            feed, digest = open_feed(), hashlib.sha256()
            for first in range(0, 64 * 7 * 4, rows):
                if first % (64 * 7) == 0:
                    loader.kill()
                    loader.start()
                digest.update(mixture.check(feed, schedule, first, rows).tobytes())
            hashes.add(digest.hexdigest())
            far = 10**9 + 12345
            for mode in ("epoch", "documents"):
                mixture.check(feed, schedule, far, rows, mode)
            feed.close()
        assert len(hashes) == 1
        sources = [client.Feed("ipc://mix", client.T, 64)]
        parts = [bytes.fromhex(subprocess.run(["head", "-1", f"{name}/dataset.jsonl"], capture_output=True, text=True)
                               .stdout.split('"fingerprint":"')[1][:64]) for name in ("mix-a", "mix-b")]
        assert sources[0].dataset.fingerprint == fingerprints(parts, schedule)[0]
        sources[0].close()


def test_equal_sources_have_orders_of_their_own():
    client.make_data("mix-b", 7000)
    with client.Loader("ipc://twins", "mix-b", ["mix-b"]):
        feed = client.Feed("ipc://twins", client.T, 256)
        for mode in ("epoch", "shifted", "documents", "crop"):
            feed.request(0, mode, 256, client.SEED, 0)
            rows = feed.next()
            equal = sum(np.array_equal(a, b) for a, b in zip(rows[::2], rows[1::2]))
            assert equal <= 4, f"{mode}: {equal} of 128 samples of the second source are those of the first"
        feed.close()


def test_a_run_of_the_order_before_is_refused_by_name():
    client.make_data("mix-b", 7000)
    part = bytes.fromhex(re.search('"fingerprint":"(\\w+)"', pathlib.Path("mix-b/dataset.jsonl").read_text())[1])
    shared = hashlib.sha256(f"mixture\n{part.hex()} 49152\n{part.hex()} 16384\n".encode()).digest()
    changed = hashlib.sha256(f"{shared.hex()} 70000 32768 32768\n".encode()).digest()
    pathlib.Path("changes").write_text("70000 1 1\n")
    with client.Loader("ipc://twins", "mix-b:3", ["mix-b", "--schedule", "changes"]):
        for fingerprint in (shared, changed):
            try:
                client.Feed("ipc://twins", client.T, 8, dataset_fp=fingerprint, timeout=60)
                assert False, "not refused"
            except client.LoaderError as error:
                assert "in the order of protocol version 3" in str(error), error


def run_loader(*arguments):
    done = subprocess.run([client.BIN / "loader", *arguments, "--endpoint", "ipc://mix"], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def read_hash(loader, ranges, world, rows):
    """SHA-256 of the samples of `ranges` as `world` trainers read them, while the loader is killed at every fifth batch."""
    feeds, digest, number = [open_feed() for _ in range(world)], hashlib.sha256(), 0
    for first, end in ranges:
        while first < end:
            sizes = [min(rows, max(0, end - first - rank * rows)) for rank in range(world)]
            for rank, feed in enumerate(feeds):
                if sizes[rank]:
                    feed.request(0, "epoch", sizes[rank], client.SEED, first + rank * rows)
            number += 1
            if number % 5 == 0:
                loader.kill()
                loader.start()
            for rank, feed in enumerate(feeds):
                if sizes[rank]:
                    digest.update(feed.next().tobytes())
            first += sum(sizes)
    for feed in feeds:
        feed.close()
    return digest.hexdigest()


def test_reweight_keeps_one_stream_over_kills_worlds_and_batch_sizes():
    mixture = Mixture()
    pathlib.Path("weights").write_text("# none yet")  # without a newline at the end
    with client.Loader("ipc://mix", "mix-a:3", ["mix-b", "--schedule", "weights"]) as loader:
        feed = open_feed()
        code, text = run_loader("swap", ":1", ":1")
        assert code == 2 and "give --from SAMPLE" in text, text
        mixture.check(feed, [(0, (3, 1))], 0, 64)
        for weights, code, reason in (((":1",), 2, "swap needs a :WEIGHT"), ((":1", ":2", ":3"), 2, "3 weights for 2 datasets"),
                                      ((":1", ":x"), 2, "whole number"), ((":0", ":0"), 2, "all 0"),
                                      ((":1", ":1", "--from", "65599"), 2, "come too late, the first possible sample is 65600")):
            got, text = run_loader("swap", *weights)
            assert got == code and reason in text, (weights, got, text)
            assert pathlib.Path("weights").read_text() == "# none yet", weights
        code, text = run_loader("swap", ":1", ":1")
        assert code == 0 and "with the new weights from sample 131136 on" in text, text
        code, text = run_loader("swap", ":1", ":2")  # replaces the weights that are not in use yet
        assert code == 0 and "with the new weights from sample 131137 on" in text, text
        code, text = run_loader("swap", ":0", ":0")
        assert code == 2 and "all 0" in text, text
        code, text = run_loader("swap", ":0", ":5", "--from", "131137")
        assert code == 2 and "the weights from sample 131137 do not come after those from sample 131137" in text, text
        code, text = run_loader("swap", ":0", ":5", "--from", "200000")
        assert code == 0, text
        assert pathlib.Path("weights").read_text() == "# none yet\n131136 1 1\n131137 1 2\n200000 0 5\n"
        schedule = [(0, (3, 1)), (131136, (1, 1)), (131137, (1, 2)), (200000, (0, 5))]
        feed.close()
        ranges = [(0, 300), (131136 - 150, 131136 + 150), (200000 - 150, 200000 + 150)]
        digest = hashlib.sha256()
        for first, end in ranges:
            for sample in range(first, end):
                digest.update(mixture.row(schedule, sample).tobytes())
        for world, rows in ((1, 64), (1, 7), (2, 16), (4, 5)):
            assert read_hash(loader, ranges, world, rows) == digest.hexdigest(), (world, rows)
        feed = open_feed()
        mixture.check(feed, schedule, 200100, 64)  # tokens of each source since the last start
        feed.close()
        _, text = run_loader("serve-status", "--json")
        tokens = {source["name"]: source["tokens"] for source in json.loads(text)["sources"]}
        assert tokens["mix-b"] >= 64 * client.T, tokens

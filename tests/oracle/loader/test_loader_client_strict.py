"""What the Python client (loader/python) refuses, and what it survives, in the words of the C client where it has them."""
import logging
import multiprocessing
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import runner
import loader_proxies
import numpy as np
import test_loader_client as client
import test_loader_mixture as mixture
from millrace_loader import DatasetChanged, Feed, LoaderError, TokenBatches

BIN, SEED, T = client.BIN, client.SEED, client.T
logging.basicConfig(level=logging.ERROR)


def refusal(action, *kinds):
    """The sentence of the error that `action` raises."""
    try:
        action()
    except kinds or (ValueError, OSError, LoaderError) as error:
        return str(error)
    raise AssertionError("nothing was refused")


def first_ids(batch):
    return np.asarray(batch[0])[:, 0]


def full_rows(batch):
    return np.concatenate([np.asarray(batch[0]), np.asarray(batch[1])[:, -1:]], axis=1)


def test_endpoints_are_refused_in_the_words_of_the_loader():
    os.mkdir("open")
    os.chmod("open", 0o777)
    pathlib.Path("file").touch()
    for endpoint in ("foo", "bogus://x", "ipc://", "/" + "x" * 120, "tcp://10.0.0.1:5555", "tcp://other:5555", "tcp://x:0",
                     "tcp://localhost:99999", "tcp://:5555", "ipc://open", "./file"):
        status = subprocess.run([BIN / "loader", "serve-status", "--endpoint", endpoint], capture_output=True, text=True)
        assert status.returncode in (2, 73, 77), (endpoint, status.stderr)
        words = status.stderr.removeprefix("loader serve-status: ").strip()
        for action in (lambda: TokenBatches(endpoint, T, 4, timeout=1).feed, lambda: Feed(endpoint, T, 4, timeout=1)):
            assert refusal(action) == words, (endpoint, words)
    if os.geteuid() == 0:
        os.mkdir("of-another", 0o700)
        os.chown("of-another", 65534, 65534)
        assert "belongs to user 65534, this process runs as 0" in refusal(lambda: Feed("ipc://of-another", T, 4, timeout=1))


def test_arguments_are_checked_at_once():
    for arguments, words in (({"seed": 2**64}, "seed 18446744073709551616 is not from 0 to"), ({"seed": -1}, "seed -1"),
                             ({"start": -5}, "start -5 is not from 0"), ({"start": 2**63}, "start"),
                             ({"split": "test"}, "split 'test' is not one of train, val"),
                             ({"mode": "random"}, "mode 'random' is not one of crop,"), ({"window": 65}, "window 65 is not from 1 to 64"),
                             ({"window": 0}, "window 0"), ({"batch": 0}, "batch 0"), ({"T": 0}, "T 0"),
                             ({"T": 2**20, "batch": 2**10}, "more than the protocol allows (64 MiB): take fewer"),
                             ({"rank": 2, "world": 2}, "rank 2 is not from 0 to 1: world, the number of processes, is 2"), ({"world": 0}, "world 0"),
                             ({"loader_key": "x" * 40}, "a key file and the loader's public key must be given together")):
        assert words in refusal(lambda: TokenBatches("ipc://nobody", **{"T": T, "batch": 4, **arguments}), ValueError), words
    assert refusal(lambda: TokenBatches("ipc://nobody", T, 4.5), TypeError) == "batch 4.5 is not a whole number"
    assert refusal(lambda: TokenBatches("ipc://nobody", "64", 4), TypeError) == "T '64' is not a whole number"
    for arguments in ({"T": True}, {"batch": np.True_}, {"seed": True}, {"start": False}, {"window": True}, {"rank": False}):
        words = refusal(lambda: TokenBatches("ipc://nobody", **{"T": T, "batch": 4, **arguments}), TypeError)
        assert words == f"{[*arguments][0]} is a number, not True or False", words


def test_each_message_of_the_client_names_the_place_and_the_next_step():
    client.make_data()
    words = refusal(lambda: Feed("./data", T, 4, timeout=1))
    assert words == "'./data' is a dataset, not the endpoint of a loader: start one by `millrace serve ./data`, which prints it", words
    assert "for 1 s: is one running? `millrace serve DATASET --endpoint ipc://nobody` starts it" in refusal(
        lambda: Feed("ipc://nobody", T, 4, timeout=1))
    with client.Loader("ipc://place") as loader:
        assert "the loader at ipc://place refuses: " in refusal(lambda: Feed("ipc://place", T, 4, vocab_size=100, timeout=60))
        feed = Feed("ipc://place", T, 4, window=1, timeout=60)
        assert "call request first" in refusal(feed.next)
        assert refusal(lambda: feed.request(0, "epoch", 5, SEED, 0)) == "rows 5 is not from 1 to 4"
        feed.request(0, "epoch", 4, SEED, 0)
        assert "the window of 1 requests is full: take a batch with next first" in refusal(
            lambda: feed.request(0, "epoch", 4, SEED, 4))
        feed.next()
        batches = TokenBatches("ipc://place", T, 4, source="web")
        assert refusal(lambda: next(iter(batches))) == "source 'web' is not one of: 1 'data'"
        batches.close()
        os.kill(loader.process.pid, signal.SIGSTOP)
        try:
            feed._timeout = 0.05
            feed.request(0, "epoch", 4, SEED, 4)
            assert "`millrace serve-status --endpoint ipc://place` shows what it does" in refusal(feed.next)
        finally:
            os.kill(loader.process.pid, signal.SIGCONT)
        feed.close()
    for name in "numpy", "zmq":
        code = f"import sys; sys.path.insert(0, sys.argv[1]); sys.modules['{name}'] = None; import millrace_loader"
        done = subprocess.run([sys.executable, "-c", code, client.PACKAGE], capture_output=True, text=True)
        assert f"millrace_loader needs {name}, which is not installed: pip install numpy pyzmq" in done.stderr, done.stderr


def test_key_files_are_refused_as_the_loader_does():
    key = client.keygen("mine.key")
    public, secret = pathlib.Path("mine.key").read_text().split()
    client.keygen("other.key")
    other = pathlib.Path("other.key").read_text().split()[1]
    for name, text, mode in (("readable.key", f"{public}\n{secret}\n", 0o644), ("half.key", public + "\n", 0o600),
                             ("mixed.key", f"{public}\n{other}\n", 0o600), ("swapped.key", f"{secret}\n{public}\n", 0o600),
                             ("short.key", f"{public[:39]}\n{secret}\n", 0o600), ("odd.key", f"{public[:39]}~\n{secret}\n", 0o600)):
        pathlib.Path(name).write_text(text)
        os.chmod(name, mode)
        command = [BIN / "loader", "serve-status", "--endpoint", "tcp://127.0.0.1:9", "--key", name, "--loader-key", key]
        words = subprocess.run(command, capture_output=True, text=True).stderr.removeprefix("loader serve-status: ").strip()
        assert refusal(lambda: TokenBatches("tcp://127.0.0.1:9", T, 4, key_file=name, loader_key=key)) == words, words
    assert "the loader's public key is not a key" in refusal(
        lambda: TokenBatches("tcp://127.0.0.1:9", T, 4, key_file="mine.key", loader_key="short"))
    assert refusal(lambda: Feed("tcp://a b:1", T, 4, key_file="mine.key", loader_key=key)) == (
        "ZeroMQ cannot connect to 'tcp://a b:1': Invalid argument")


def test_the_keys_are_named_when_a_loader_does_not_answer_over_tcp():
    client.make_data()
    keys = [client.keygen(name) for name in ("before.key", "after.key", "client.key")]
    pathlib.Path("allow").write_text(keys[2] + "\n")
    endpoint = f"tcp://127.0.0.1:{client.port()}"
    with client.Loader(endpoint, options=["--key", "before.key", "--allow", "allow"]) as loader:
        feed = Feed(endpoint, T, 4, key_file="client.key", loader_key=keys[0], timeout=60)
        feed.request(0, "epoch", 4, SEED, 0)
        feed.next()
        loader.kill()
        loader.command[loader.command.index("before.key")] = "after.key"
        loader.start()
        feed._timeout = 2
        feed.request(0, "epoch", 4, SEED, 4)
        hint = "s: check its address, and the keys on both sides"
        assert hint in refusal(feed.next)
        assert hint in refusal(lambda: Feed(endpoint, T, 4, timeout=1))
    feed.close()


def test_x_and_y_are_arrays_of_their_own():
    client.make_data()
    with client.Loader("ipc://place"):
        batches = TokenBatches("ipc://place", T, 4)
        x, y = map(np.asarray, next(iter(batches)))
        before = x.copy()
        assert x.flags.c_contiguous and y.flags.c_contiguous and y.dtype == np.int64
        y[:] = -1
        assert np.array_equal(x, before)
        batches.close()


def test_a_state_of_another_dataset_is_refused_every_time():
    client.make_data()
    client.make_data("other", 9000)
    with client.Loader("ipc://of-other", "other"), client.Loader("ipc://place"):
        trained = TokenBatches("ipc://of-other", T, 4)
        next(iter(trained))
        state = trained.state_dict()
        fresh, used = TokenBatches("ipc://place", T, 4), TokenBatches("ipc://place", T, 4)
        next(iter(used))
        for batches in (fresh, used):
            batches.load_state_dict(state)
            for _ in range(3):
                assert "the state is of" in refusal(lambda: next(iter(batches)), ValueError)
            batches.close()
        trained.close()


def test_a_state_of_another_split_mode_or_seed_than_those_given_is_refused():
    client.make_data()
    with client.Loader("ipc://place"):
        trained = TokenBatches("ipc://place", T, 4)
        next(iter(trained))
        state = trained.state_dict()
        for field, value, words in (("split", "val", "split 'train', this object was given split 'val'"),
                                    ("mode", "crop", "mode 'epoch', this object was given mode 'crop'"),
                                    ("seed", 7, f"seed {SEED}, this object was given seed 7")):
            batches = TokenBatches("ipc://place", T, 4, **{field: value})
            assert words in refusal(lambda: batches.load_state_dict(state), ValueError)
            assert (batches.consumed, getattr(batches, field)) == (0, value)  # nothing of the state was taken
            same = TokenBatches("ipc://place", T, 4, **{field: state[field]})
            same.load_state_dict(state)
            assert same.state_dict() == state
            taken = TokenBatches("ipc://place", T, 4)
            taken.load_state_dict({**batches.state_dict(), "dataset": state["dataset"]})  # not given: the state's
            assert getattr(taken, field) == value
        trained.close()


def test_after_a_change_the_state_is_of_the_old_dataset_until_rows_of_the_new_one_were_read():
    ids = client.make_data()
    client.make_data("other", 9000)
    with client.Loader("ipc://swapped") as loader:

        def swap(name):
            subprocess.run([BIN / "loader", "swap", name, "--endpoint", "ipc://swapped"], check=True, capture_output=True)

        batches = TokenBatches("ipc://swapped", T, 4)
        stream = iter(batches)
        next(stream)
        before = batches.state_dict()
        swap("other")
        refusal(lambda: [next(stream) for _ in range(100)], DatasetChanged)
        state = batches.state_dict()
        assert state["dataset"] == before["dataset"] and state["consumed"] >= 4
        fresh = iter(batches)
        assert batches.state_dict() == state  # connected, but no rows yet
        next(fresh)
        assert batches.state_dict()["dataset"] != before["dataset"]
        swap("data")
        resumed = TokenBatches("ipc://swapped", T, 4)
        resumed.load_state_dict(state)
        client.check(full_rows(next(iter(resumed))), ids, "epoch", state["consumed"])
        resumed.close()
        batches.close()


def test_a_state_keeps_T_and_the_number_of_its_order():
    client.make_data()
    with client.Loader("ipc://place"):
        batches = TokenBatches("ipc://place", T, 4)
        next(iter(batches))
        state = batches.state_dict()
        batches.close()
    assert (state["T"], state["mode_number"]) == (T, client.wire.MODES["epoch"])
    assert "the state counts samples of T 64" in refusal(lambda: TokenBatches("ipc://place", 2 * T, 4).load_state_dict(state))
    for number in (1, None):  # the epochs of version 0.1
        old = {key: value for key, value in {**state, "mode_number": number}.items() if value is not None}
        assert "another one now" in refusal(lambda: TokenBatches("ipc://place", T, 4).load_state_dict(old))
    old = {key: state[key] for key in ("consumed", "seed", "split", "dataset")}
    TokenBatches("ipc://place", T, 4).load_state_dict({**old, "mode": "crop"})  # as it was


def test_damaged_rows_are_counted_and_asked_for_again():
    ids = client.make_data()
    tcp = f"tcp://127.0.0.1:{client.port()}"
    with client.Loader(tcp, options=["--insecure"]):
        proxy = loader_proxies.FlipProxy(tcp, every=3)
        feed = Feed(f"tcp://127.0.0.1:{proxy.port}", T, 16, timeout=60)
        for first in range(0, 160, 16):
            feed.request(0, "epoch", 16, SEED, first)
            client.check(feed.next(), ids, "epoch", first)
        feed.close()
        proxy.stop()
        assert feed.dropped >= proxy.flips >= 4, (feed.dropped, proxy.flips)


@runner.ci
def test_keys_work_at_a_round_trip_of_600_ms():
    ids = client.make_data()
    keys = {name: client.keygen(name) for name in ("far-loader.key", "far.key")}
    pathlib.Path("far-allowed").write_text(keys["far.key"] + "\n")
    port = client.port()
    with client.Loader(f"tcp://127.0.0.1:{port}", options=["--key", "far-loader.key", "--allow", "far-allowed"]):
        proxy = loader_proxies.DelayProxy(port, 0.3)
        batches = TokenBatches(f"tcp://127.0.0.1:{proxy.port}", T, 4, seed=SEED, key_file="far.key",
                               loader_key=keys["far-loader.key"], timeout=60)
        client.check(full_rows(next(iter(batches))), ids, "epoch", 0)
        batches.close()


def test_the_client_connects_over_ipv6():
    ids = client.make_data()
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            port = probe.getsockname()[1]
    except OSError as error:
        raise runner.Skip(f"no IPv6: {error}")
    with client.Loader(f"tcp://[::1]:{port}", options=["--insecure"]):
        batches = TokenBatches(f"tcp://[::1]:{port}", T, 4, seed=SEED, timeout=20)
        client.check(full_rows(next(iter(batches))), ids, "epoch", 0)
        batches.close()


def send_firsts(batches, count, pipe):
    stream = iter(batches)
    pipe.send([first_ids(next(stream)).tolist() for _ in range(count)])


def test_a_used_object_goes_on_in_forked_and_spawned_processes():
    ids = client.make_data()
    with client.Loader("ipc://place"):
        batches = TokenBatches("ipc://place", T, 4, seed=SEED, timeout=20)
        stream = iter(batches)
        next(stream)
        wanted = [[client.wanted(ids, "epoch", 4 * step + row)[0] for row in range(4)] for step in range(1, 6)]
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            near, far = context.Pipe()
            child = context.Process(target=send_firsts, args=(batches, 3, far), daemon=True)
            child.start()
            assert near.poll(60), f"no batch in a {method}ed process"
            assert near.recv() == wanted[:3], method
            child.join()
            assert child.exitcode == 0
        assert [first_ids(next(stream)).tolist() for _ in range(5)] == wanted, "the parent's own stream"
        feed = batches.feed
        child = os.fork()
        if child == 0:  # the connection itself is the parent's
            os._exit("another process" not in refusal(lambda: feed.request(0, "epoch", 4, SEED, 0), LoaderError))
        assert os.waitpid(child, 0)[1] == 0
        batches.close()


def test_a_client_that_closes_with_requests_on_their_way_causes_no_errors():
    client.make_data()
    with client.Loader("ipc://place"):
        for _ in range(30):
            feed = Feed("ipc://place", T, 8, window=16)
            for first in range(16):
                feed.request(0, "epoch", 8, SEED, first * 8)
            feed.close()
        status = client.status_of("ipc://place")
        assert status["errors"] == 0, status


def test_objects_without_close_leave_nothing_behind():
    client.make_data()

    def memory_files():
        links = (pathlib.Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
        return sum("millrace-ring" in os.readlink(link) for link in links if link.is_symlink())

    with client.Loader("ipc://place"):
        before = memory_files()
        for _ in range(30):
            next(iter(TokenBatches("ipc://place", T, 4)))
        assert memory_files() == before
        end = time.monotonic() + 30
        while clients := client.status_of("ipc://place")["clients"]:
            assert time.monotonic() < end, clients
            time.sleep(0.05)


def test_only_the_newest_iterator_of_an_object_reads():
    client.make_data()
    with client.Loader("ipc://place"):
        batches = TokenBatches("ipc://place", T, 4)
        older = iter(batches)
        next(older)
        newer = iter(batches)
        next(newer)
        assert "a newer iterator" in refusal(lambda: next(older), RuntimeError)
        next(newer)
        assert batches.consumed == 12
        batches.close()
        assert "closed" in refusal(lambda: next(newer), LoaderError)
        next(iter(batches))
        assert batches.consumed == 16
        batches.close()


@runner.ci
def test_waiting_for_a_loader_prints_lines():
    code = ("import sys; sys.path.insert(0, sys.argv[1])\nfrom millrace_loader import Feed\n"
            "Feed('ipc://nobody', 64, 4, timeout=2.5)")
    done = subprocess.run([sys.executable, "-c", code, client.PACKAGE], capture_output=True, text=True)
    assert "waiting for the loader at ipc://nobody (2 s)" in done.stderr, done.stderr
    assert "no data from the loader at ipc://nobody for 2.5 s" in done.stderr, done.stderr
    assert "keys" not in done.stderr, done.stderr
    nobody = f"tcp://127.0.0.1:{client.port()}"
    done = subprocess.run([sys.executable, "-c", code.replace("ipc://nobody", nobody), client.PACKAGE], capture_output=True, text=True)
    assert f"waiting for the loader at {nobody} (2 s): check its address, and the keys on both sides" in done.stderr, done.stderr


def test_status_shows_the_name_and_the_address_of_a_client():
    client.make_data()
    here = f"{socket.gethostname().split('.')[0]}:{os.getpid()}"
    with client.Loader("ipc://place"):
        for name, shown in ((None, here), ("müller's \"run\" 1", "müller's \"run\" 1"), ("x" * 63, "x" * 63)):
            batches = TokenBatches("ipc://place", T, 4, start=8, name=name)
            next(iter(batches))
            row, = [row for row in client.status_of("ipc://place")["clients"] if row["name"] == shown]
            assert row["address"] == f"pid {os.getpid()}" and row["next_sample"] >= 12, row
            batches.close()
        for name in ("x" * 64, "ü" * 32, "a\nb", "a\0b"):
            assert "is not printable text of up to 63 bytes" in refusal(lambda: TokenBatches("ipc://place", T, 4, name=name))


def test_ranks_have_the_same_number_of_steps_and_lose_nothing_but_a_remainder_below_one_each():
    client.make_data()
    with client.Loader("ipc://place"):
        total = (Feed("ipc://place", T, 1).dataset.val_tokens - 1) // T
        for mode in ("sequential", "permuted"):
            passes = {}
            for world, batch in ((1, 7), (2, 4), (3, 5), (8, 12)):
                ranks = [TokenBatches("ipc://place", T, batch, rank, world, split="val", mode=mode, seed=SEED) for rank in range(world)]
                steps = [[full_rows(pair) for pair in rank] for rank in ranks]
                assert len({len(of_rank) for of_rank in steps}) == 1, (mode, world, [len(s) for s in steps])
                rows = np.concatenate([of_rank[n] for n in range(len(steps[0])) for of_rank in steps])
                assert total - world < len(rows) <= total, (total, world, len(rows))
                assert all(rank.state_dict()["consumed"] == 0 for rank in ranks)  # the next pass begins again
                passes[world] = rows
                [rank.close() for rank in ranks]
            assert len(passes[1]) == total
            assert all(np.array_equal(rows, passes[1][: len(rows)]) for rows in passes.values()), mode


def test_an_endpoint_list_goes_on_with_another_loader():
    ids = client.make_data()
    tcp = [f"tcp://127.0.0.1:{client.port()}" for _ in range(2)]
    for places in (tcp, ["ipc://first", "ipc://second"]):
        loaders = [client.Loader(place, options=["--insecure"]) for place in places]
        batches = TokenBatches(",".join(["tcp://127.0.0.1:9", *places]), T, 4, seed=SEED, timeout=60)  # nobody is at port 9
        stream, position = iter(batches), 0
        for change in (loaders[0].kill, loaders[0].start, loaders[1].kill, loaders[1].start, loaders[0].kill, None):
            for _ in range(20):
                client.check(full_rows(next(stream)), ids, "epoch", position)
                position += 4
            if change:
                change()
        batches.close()
        [loader.kill() for loader in loaders]


# fault 104
@runner.ci
def test_an_endpoint_list_passes_over_a_loader_of_another_dataset():
    ids, other = client.make_data(), client.make_data("other", 9000)
    loader = client.Loader("ipc://of-data")
    feed = Feed("ipc://of-data,ipc://of-other", T, 4, timeout=60)
    feed.request(0, "epoch", 4, SEED, 0)
    client.check(feed.next(), ids, "epoch", 0)  # before there is another, which a first connection would take
    with loader, client.Loader("ipc://of-other", "other"):
        for position in range(0, 400, 4):
            feed.request(0, "epoch", 4, SEED, position)
            client.check(feed.next(), ids, "epoch", position)
            if position % 100 == 96:
                loader.kill()
                feed.request(0, "epoch", 4, SEED, 0)
                feed._timeout = 1
                assert "no data from the loader" in refusal(feed.next)
                feed._timeout = 60
                feed.cancel()
                loader.start()
        # A change at the endpoint in use is one that was meant.
        loader.kill()
        loader.command[2] = "other"
        loader.start()
        feed.request(0, "epoch", 4, SEED, 0)
        assert "serves dataset 'other' now" in refusal(feed.next, DatasetChanged)
        feed.request(0, "epoch", 4, SEED, 0)
        client.check(feed.next(), other, "epoch", 0)
        feed.close()


def test_a_stream_goes_on_over_a_reweight_and_its_states_too():
    wanted = mixture.Mixture()
    schedule = [(0, (3, 1)), (70000, (1, 1))]
    pathlib.Path("changes").write_text("# none yet\n")

    def check(pair, first):
        for i, row in enumerate(full_rows(pair)):
            assert np.array_equal(row, wanted.row(schedule, first + i)), first + i

    with client.Loader("ipc://mix", "mix-a:3", ["mix-b", "--schedule", "changes"]):
        batches = TokenBatches("ipc://mix", T, 16, seed=SEED)
        stream = iter(batches)
        check(next(stream), 0)
        state = batches.state_dict()
        code, text = mixture.run_loader("swap", ":1", ":1", "--from", "70000")
        assert code == 0, text
        for step in range(1, 20):
            check(next(stream), 16 * step)
        assert batches.state_dict()["dataset"] != state["dataset"]
        resumed = TokenBatches("ipc://mix", T, 16)
        resumed.load_state_dict({**state, "consumed": 69984})
        stream = iter(resumed)
        for first in (69984, 70000, 70016):
            check(next(stream), first)
        resumed.load_state_dict({**state, "consumed": 70016})  # samples that have changed
        assert "the state is of" in refusal(lambda: next(iter(resumed)), ValueError)
        resumed.close()
        batches.close()


def test_one_source_of_a_mixture_is_read_alone():
    wanted = mixture.Mixture()
    with client.Loader("ipc://mix", "mix-a:3", ["mix-b:1"]):
        batches = TokenBatches("ipc://mix", T, 16, seed=SEED, source="mix-b")
        assert [source.name for source in batches.sources] == ["mix-a", "mix-b"]
        assert batches.sources[1].train_tokens == len(wanted.ids[1])
        assert batches.feed.dataset.schedule == ((0, (49152, 16384)),)
        client.check(full_rows(next(iter(batches))), wanted.ids[1], "epoch", 0, place=1)
        by_number = TokenBatches("ipc://mix", T, 16)
        by_number.load_state_dict({**batches.state_dict(), "source": 2})
        client.check(full_rows(next(iter(by_number))), wanted.ids[1], "epoch", 16, place=1)
        one_pass = TokenBatches("ipc://mix", T, 16, mode="sequential", source=1)
        rows = np.concatenate([full_rows(pair) for pair in one_pass])
        assert len(rows) == (len(wanted.ids[0]) - 1) // T
        client.check(rows, wanted.ids[0], "sequential", 0)
        assert "source 'mix' is not one of: 1 'mix-a', 2 'mix-b'" in refusal(
            lambda: next(iter(TokenBatches("ipc://mix", T, 4, source="mix"))), ValueError)
        [each.close() for each in (batches, by_number, one_pass)]

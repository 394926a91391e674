"""make soak-train: a run of two processes under a fault a minute, supervised by scripts/supervise.sh, and at the same time an
undisturbed run of as many steps by one process. Prints what each kind of fault cost, the share of computed steps that were
kept, and fails when a bit of the last weights differs.

    soak_train.py BIN_FOLDER HOURS [SECONDS_BETWEEN_FAULTS] [SEED]"""
import collections
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
SUPERVISE = str(ROOT / "scripts/supervise.sh")
CONFIG = """
n_layer = 2
n_head = 2
n_embd = 64
block_size = 64
batch_size = 4
gradient_accumulation_steps = 2
warmup_iters = 100
eval_interval = 20000
eval_iters = 4
sample_tokens = 0
log_interval = 1000
threads = 1
dtype = 'float32'
on_dataset_change = 'stop'
"""
# Writes and fsyncs take a second while the file "slow" exists.
SLOW_DISK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
int fsync(int fd) {
    if (!access(SLOW, F_OK)) sleep(1);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
"""


class Relay:
    """Forwards connections to a port while `open`; else it has none and accepts none."""

    def __init__(self, port):
        self.to, self.open, self.pairs = port, True, []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.server.accept()
            try:
                if not self.open:
                    raise OSError
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            self.pairs.append((near, far))
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.copy, args=(source, sink), daemon=True).start()

    @staticmethod
    def copy(source, sink):
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            end.close()

    def cut(self):
        self.open = False
        for pair in self.pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.pairs.clear()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Run:
    def __init__(self, folder, steps, name, ranks):
        port = free_port()
        self.bin, self.name, self.loader_endpoint = folder, name, f"tcp://127.0.0.1:{port}"
        self.relay = Relay(port)
        self.relayed = f"tcp://127.0.0.1:{self.relay.port}"
        log = open(f"{name}.log", "w")
        environment = {**os.environ, "LD_PRELOAD": os.path.abspath("slow.so") if ranks == 2 else "", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.loader = subprocess.Popen([SUPERVISE, f"{folder}/loader", "serve", "data", "--insecure", "--endpoint",
                                        self.loader_endpoint], stderr=log)
        self.trainer = subprocess.Popen(
            [SUPERVISE, "mpirun", "-q", "--bind-to", "none", "--oversubscribe", "-n", f"{ranks}", f"{folder}/trainer", "train",
             "run.conf", "--vocabulary=characters", f"--out_dir={name}", f"--loader={self.relayed}", f"--max_iters={steps}"],
            stdout=log, stderr=log, env=environment)

    def pids(self, *words):
        """Of the programs of this run."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except (OSError, ValueError):
                continue
            if entry.name.isdigit() and line[0].endswith(words) and any(
                    word in (self.loader_endpoint, f"--loader={self.relayed}") for word in line):
                found.append(int(entry.name))
        return sorted(found)

    def step(self):
        """The last whole step in metrics.jsonl."""
        try:
            with open(f"{self.name}/metrics.jsonl", "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
                steps = re.findall(rb'^\{"step": (\d+), "loss".*\}\n', file.read(), flags=re.M)
            return int(steps[-1]) if steps else 0
        except OSError:
            return 0

    def log(self):
        return pathlib.Path(f"{self.name}.log").read_text(errors="replace")

    def wait_for(self, step, limit=600):
        end = time.monotonic() + limit
        while self.step() < step and self.trainer.poll() is None:
            if time.monotonic() > end:
                sys.exit(f"no step after {step} in {limit} s: see {os.getcwd()}/{self.name}.log")
            time.sleep(0.02)

    def signal(self, number, *words):
        for pid in self.pids(*words):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def close(self):
        code = self.trainer.wait()
        self.loader.terminate()
        self.loader.wait()
        return code


# ---- faults: each returns when the fault itself is over


def kill_the_trainer(run, rng):
    run.signal(signal.SIGKILL, "/trainer", "mpirun")


def kill_a_rank(run, rng):
    ranks = run.pids("/trainer")
    if ranks:
        os.kill(rng.choice(ranks), signal.SIGKILL)


def kill_the_loader(run, rng):
    run.signal(signal.SIGKILL, "/loader")


def stop_the_trainer(run, rng):
    run.signal(signal.SIGSTOP, "/trainer")
    time.sleep(3)
    run.signal(signal.SIGCONT, "/trainer")


def stop_the_loader(run, rng):
    run.signal(signal.SIGSTOP, "/loader")
    time.sleep(3)
    run.signal(signal.SIGCONT, "/loader")


def pause_the_machine(run, rng):
    run.signal(signal.SIGSTOP, "/trainer", "/loader", "mpirun")
    time.sleep(3)
    run.signal(signal.SIGCONT, "/trainer", "/loader", "mpirun")


def fill_the_disk(run, rng):  # a write past the limit fails with EFBIG, as one on a full disk with ENOSPC
    for limit in ("1000:unlimited", "unlimited"):
        for pid in run.pids("/trainer"):
            subprocess.run(["prlimit", "--pid", str(pid), f"--fsize={limit}"], stderr=subprocess.DEVNULL)
        time.sleep(3 if limit != "unlimited" else 0)


def slow_the_disk(run, rng):
    pathlib.Path("slow").touch()
    time.sleep(5)
    os.unlink("slow")


def cut_the_connection(run, rng):
    run.relay.cut()
    time.sleep(2)
    run.relay.open = True


def swap_the_dataset(run, rng):
    for dataset in ("other", "data"):
        subprocess.run([f"{run.bin}/loader", "swap", dataset, "--insecure", "--endpoint", run.loader_endpoint],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60)
        time.sleep(2 if dataset == "other" else 0)


def damage_the_newest_checkpoint(run, rng):
    run.signal(signal.SIGKILL, "/trainer", "mpirun")
    time.sleep(0.2)
    newest = max(pathlib.Path(run.name).glob("ckpt-*[0-9]"), default=None)
    if newest and len(list(pathlib.Path(run.name).glob("ckpt-*[0-9]"))) > 1:
        with open(newest / rng.choice(["model.safetensors", "optimizer.safetensors", "state.json"]), "r+b") as file:
            at = rng.randrange(os.fstat(file.fileno()).st_size)
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))


FAULTS = (kill_the_trainer, kill_a_rank, kill_the_loader, stop_the_trainer, stop_the_loader, pause_the_machine, fill_the_disk,
          slow_the_disk, cut_the_connection, swap_the_dataset, damage_the_newest_checkpoint)


def disturb(run, steps, between, rng):
    """Injects all kinds in shuffled order, again and again. Returns for each kind the list of (seconds until the run was a step
    further than before the fault, steps that were made again)."""
    lost, kinds = collections.defaultdict(list), []
    while True:
        end = time.monotonic() + rng.expovariate(1 / between)
        while time.monotonic() < end and run.trainer.poll() is None:
            time.sleep(0.1)
        kinds = kinds or rng.sample(FAULTS, len(FAULTS))
        fault, before, log, clock = kinds.pop(), run.step(), run.log(), time.monotonic()
        if run.trainer.poll() is not None or before >= steps - 1:
            return lost
        fault(run, rng)
        killed = fault in (kill_the_trainer, kill_a_rank, damage_the_newest_checkpoint)
        while killed and run.trainer.poll() is None and "trainer: resuming at step" not in run.log()[len(log):]:
            time.sleep(0.02)
        time.sleep(0.5 if killed else 0)  # it removes the lines of the lost steps from metrics.jsonl
        run.wait_for(before + 1)
        seconds, again = time.monotonic() - clock, sum(steps_again(run.log()[len(log):]))
        lost[fault.__name__].append((seconds, again))
        print(f"{time.strftime('%T')} step {before}: {fault.__name__}: {seconds:.1f} s, {again} steps made again", flush=True)


def steps_again(log):
    """The lost steps that a log names, one number for each resume."""
    return [int(number) for number in re.findall(r"(\d+) steps? after step \d+ w\w+ not saved", log)]


def same_weights(steps):
    return all((pathlib.Path("whole") / f"ckpt-{steps:08}" / f"{name}.safetensors").read_bytes() ==
               (pathlib.Path("run") / f"ckpt-{steps:08}" / f"{name}.safetensors").read_bytes()
               for name in ("model", "optimizer"))


def prepare(folder):
    pathlib.Path("slow.c").write_text(SLOW_DISK)
    subprocess.run(["cc", "-shared", "-fPIC", f'-DSLOW="{os.getcwd()}/slow"', "-o", "slow.so", "slow.c", "-ldl"], check=True)
    pathlib.Path("run.conf").write_text(CONFIG)
    words = {"data": "mill", "other": "race"}
    for name, word in words.items():
        pathlib.Path(f"{name}.txt").write_text("\n\n".join(f"{word} {i} grinds {i * 7919 % 9973}" for i in range(100000)))
    with open("characters", "wb") as characters:  # few ids, so that a step takes milliseconds
        subprocess.run([f"{folder}/shardtool", "train-vocabulary", "--characters", *(f"{name}.txt" for name in words)], stdout=characters, check=True)
    for name in words:
        subprocess.run([f"{folder}/shardtool", "tokenize", "--quiet", "--vocabulary", "characters", "--docs", "paragraphs",
                        "--val", "0.05", "-o", name, f"{name}.txt"], check=True)


def main(folder, hours, between="60", seed="1"):
    folder, seconds, rng = os.path.abspath(folder), 3600 * float(hours), random.Random(int(seed))
    place = tempfile.mkdtemp(prefix="millrace-soak-")
    os.chdir(place)
    prepare(folder)
    trials = Run(folder, 600, "trial", 2), Run(folder, 600, "trial-whole", 1)  # how many steps are the hours?
    trials[0].wait_for(100)
    clock = time.monotonic()
    for trial in trials:
        if trial.close():
            sys.exit(f"the trial run failed: {place}/{trial.name}.log")
    steps = max(2000, int(seconds * 500 / (time.monotonic() - clock)))
    print(f"{steps} steps, a fault every {float(between):g} s, seed {seed}", flush=True)
    whole, run, clock = Run(folder, steps, "whole", 1), Run(folder, steps, "run", 2), time.monotonic()
    lost = disturb(run, steps, float(between), rng)
    code, took = run.close(), time.monotonic() - clock
    if whole.close():
        sys.exit(f"the undisturbed run failed: {place}/whole.log")
    again = sum(steps_again(run.log()))
    for name, kind in sorted(lost.items()):
        print(f"{name.replace('_', ' '):30} {len(kind):4} times, {sum(s for s, _ in kind) / len(kind):6.1f} s and "
              f"{sum(n for _, n in kind) / len(kind):6.1f} steps each")
    print(f"{steps} steps in {took:.0f} s; {again} steps were made again: "
          f"{100 * steps / (steps + again):.2f} % of the computed steps were kept")
    if code or not same_weights(steps):
        sys.exit(f"failed: exit {code}, or other weights than the undisturbed run: {place}")
    print("the weights equal those of the undisturbed run bit for bit")
    shutil.rmtree(place)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A torch IterableDataset of batches from a loader."""
from __future__ import annotations

import logging
import mmap
import multiprocessing.context
from typing import TYPE_CHECKING, Any, Iterator, Optional, Union

import numpy as np
import numpy.typing as npt

from . import wire
from .endpoint import parse_endpoints, read_keys
from .errors import DatasetChanged, LoaderError
from .feed import Feed, check_sizes, client_name

if TYPE_CHECKING:
    import torch
    from torch.utils.data import IterableDataset

    _Base = IterableDataset[tuple[Any, Any]]
else:
    try:
        import torch
        from torch.utils.data import IterableDataset as _Base
    except ImportError:  # batches are numpy arrays then
        torch, _Base = None, object

_log = logging.getLogger("millrace_loader")
_SAMPLE_MAX = 2**63 - 1


class TokenBatches(_Base):
    """Pairs (x, y) of int64 tensors (batch, T); y is x shifted by one token.

    Step n yields samples start + n*batch*world + rank*batch and following, so the samples of a step are the same for
    any split of it over ranks. Modes sequential and permuted end after one pass, with the same number of steps on all
    ranks: the last step divides its samples evenly; fewer than one for each rank are left out. The next iteration
    begins at `start` again. In the other modes an iteration goes on after the last one, but in workers of a DataLoader,
    whose position is not known here, each begins where the object was when they were made: keep one iterator.

    The batches are complete: use the object directly, or with DataLoader(dataset, batch_size=None), also with workers,
    whose batches together are the same stream. `state_dict` is the position and what gives it its meaning; a run that
    loads it continues with the next sample, also with another batch size or world.

    split       train or val; None: that of a loaded state, else train. Likewise mode, else epoch, and seed, else 1337
    mode        order of the samples: a word of wire.MODES (loader/protocol/sampling.h)
    source      0: the mixture, or the dataset; a name or a number from 1 on: only this source of `sources`
    device      the tensors are there; to a GPU, ids are copied from page-locked memory without waiting
    pin_memory  the tensors are in page-locked memory, for a copy of your own (without `device`)

    Further arguments are those of Feed. When the loader changes to a dataset with other samples, DatasetChanged is
    raised; the next iteration takes those.
    """

    def __init__(self, endpoint: Optional[str], T: int, batch: int, rank: int = 0, world: int = 1, start: int = 0,
                 split: Optional[str] = None, mode: Optional[str] = None, seed: Optional[int] = None, window: int = 4,
                 source: Union[int, str] = 0, device: Any = None, pin_memory: bool = False,
                 vocab_size: Optional[int] = None, timeout: float = 300.0, key_file: Optional[str] = None, loader_key: Optional[str] = None,
                 ring: bool = True, name: Optional[str] = None) -> None:
        self._given = {"split": split, "mode": mode, "seed": seed}
        split, mode = "train" if split is None else split, "epoch" if mode is None else mode
        seed = 1337 if seed is None else seed
        check_sizes(T, batch, window)
        wire.check_range("world", world, 1, _SAMPLE_MAX)
        wire.check_range("rank", rank, 0, world - 1, f": world, the number of processes, is {world}")
        wire.check_range("start", start, 0, _SAMPLE_MAX)
        wire.check_range("seed", seed, 0, 2**64 - 1)
        wire.check_word("split", split, wire.SPLITS)
        wire.check_word("mode", mode, wire.MODES)
        if (device is not None or pin_memory) and torch is None:
            raise ValueError("device and pin_memory need torch, which is not installed: install it, or leave both out and "
                             "take numpy arrays")
        parse_endpoints(endpoint, bool(key_file))
        read_keys(key_file, loader_key)
        client_name(name)
        self.T, self.batch, self.rank, self.world, self.window = T, batch, rank, world, window
        self.split, self.mode, self.seed, self.source, self.consumed = split, mode, seed, source, start
        self._device, self._pin_memory, self._start = device, pin_memory, start
        self._feed_arguments = (endpoint, T, batch, window, vocab_size, timeout, key_file, loader_key, ring)
        self._name = name
        self._feed: Optional[Feed] = None
        self._fingerprint: Optional[str] = None
        self._iteration = 0
        self._worker_begin: Optional[int] = None  # where iterations begin in a worker of a DataLoader
        # shared with forked workers: 1 when they iterate, then the seed of the first iteration of a DataLoader
        self._read_by_workers = mmap.mmap(-1, 9)
        self._spawned = False  # into a worker, which shares nothing

    def __getstate__(self) -> dict[str, Any]:
        """For a spawned worker of a DataLoader, which connects by itself."""
        if multiprocessing.context.get_spawning_popen() is not None:
            self._read_by_workers[0] = 1
        return {**self.__dict__, "_feed": None, "_read_by_workers": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _read_by_workers=mmap.mmap(-1, 9), _spawned=True)

    # --- the dataset

    @property
    def feed(self) -> Feed:
        if self._feed is None or not self._feed.usable:  # a forked process cannot use the connection of its parent
            feed = Feed(*self._feed_arguments, dataset_fp=bytes.fromhex(self._fingerprint or "00" * 32),
                        name=self._name)
            served = feed.dataset.fingerprint.hex()
            if self._fingerprint not in (None, served) and not self._keeps_samples(feed.same_samples):
                feed.close()
                raise ValueError(f"the loader serves dataset '{feed.dataset.name}' ({served[:16]}), the state is of "
                                 f"{(self._fingerprint or '')[:16]}: serve that one, or begin without the state")
            self._feed, self._fingerprint = feed, self._fingerprint or served
        return self._feed

    @property
    def sources(self) -> tuple[wire.Source, ...]:
        """The datasets of the mixture that is served, with their names and sizes."""
        return self.feed.dataset.sources

    def _keeps_samples(self, same_samples: int) -> bool:
        """Whether another dataset has the samples of the old one: a mixture whose weights change after this position,
        or at any position when they do not matter."""
        weighed = self.split == "train" and self.mode not in wire.MODES_THAT_END and not self.source
        return same_samples >= max(1, self.consumed if weighed else 1)

    def _source_number(self, sources: tuple[wire.Source, ...]) -> int:
        numbers = [number for number, source in enumerate(sources, 1) if self.source in (number, source.name)]
        if self.source and len(numbers) != 1:
            names = ", ".join(f"{number} '{source.name}'" for number, source in enumerate(sources, 1))
            raise ValueError(f"source {self.source!r} is not one of: {names}")
        return numbers[0] if self.source else 0

    def _end(self, dataset: wire.Welcome, source: int) -> int:
        """The number of samples."""
        if self.mode not in wire.MODES_THAT_END:
            return _SAMPLE_MAX
        tokens = getattr(dataset.sources[source - 1] if source else dataset, f"{self.split}_tokens")
        if tokens <= self.T:
            raise LoaderError(f"the {self.split} split has {tokens} tokens, a sample of T {self.T} needs {self.T + 1}: "
                              "take a smaller T, or serve a larger dataset")
        return int((tokens - 1) // self.T)

    # --- iteration

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        worker = torch.utils.data.get_worker_info() if torch is not None else None
        self._read_by_workers[0] = worker is not None
        self._iteration += 1
        if worker is None:
            return self._steps(self._iteration, 0, 1)
        if self._device is not None or self._pin_memory:
            raise ValueError("device and pin_memory are for the training process: give pin_memory to the DataLoader")
        again = self._worker_begin is not None or not self._is_first_iteration(worker.seed - worker.id)
        ends = self.mode in wire.MODES_THAT_END
        if self._worker_begin is None:
            self._worker_begin = self._start if ends and again else self.consumed
        self.consumed = self._worker_begin
        if worker.id == 0 and again and not ends:
            _log.warning("another iteration of a DataLoader with workers begins at sample %d again and reads the same "
                         "samples: keep one iterator, or use num_workers=0", self.consumed)
        if worker.id == 0 and ends and self._spawned and self.consumed != self._start:
            _log.warning("this pass of a DataLoader begins at sample %d, and so does each other that spawns workers: use "
                         "forked ones, persistent_workers=True or num_workers=0", self.consumed)
        return self._steps(self._iteration, worker.id, worker.num_workers)

    def _is_first_iteration(self, seed: int) -> bool:
        """Of this position. `seed` is another one in each iteration of a DataLoader that starts workers."""
        iteration = (seed % 2**64).to_bytes(8, "little")
        if self._read_by_workers[1:] == bytes(8):
            self._read_by_workers[1:] = iteration
        return bool(self._read_by_workers[1:] == iteration)

    def _steps(self, iteration: int, worker: int, workers: int) -> Iterator[tuple[Any, Any]]:
        """Every `workers`-th step, from step `worker` after the position on."""
        feed, step = self.feed, self.batch * self.world
        feed.cancel()  # requests of an earlier iterator
        source = self._source_number(feed.dataset.sources)
        end, position = self._end(feed.dataset, source), self.consumed + worker * step
        requested = position
        while True:
            if iteration != self._iteration:
                raise RuntimeError("a newer iterator or state has replaced this one: each needs its own TokenBatches")
            while feed.capacity and self._samples(requested, end)[1]:
                first, rows = self._samples(requested, end)
                feed.request(wire.SPLITS[self.split], self.mode, rows, self.seed, first, source)
                requested += step * workers
            if requested == position:
                break
            try:
                ids = feed.next()
            except DatasetChanged:
                if not self._keeps_samples(feed.same_samples):
                    raise
                requested = position
                continue
            position += step * workers
            self.consumed, self._fingerprint = min(position - worker * step, end), feed.dataset.fingerprint.hex()
            yield self._pair(ids)
        self.consumed, self._worker_begin = self._start, None

    def _samples(self, position: int, end: int) -> tuple[int, int]:
        """First sample and number of samples of this rank in the step at `position`; 0 after the last step."""
        left = end - position
        if left >= self.batch * self.world:
            return position + self.rank * self.batch, self.batch
        if left < self.world:
            return end, 0
        first = left * self.rank // self.world
        return position + first, left * (self.rank + 1) // self.world - first

    def _pair(self, ids: npt.NDArray[np.unsignedinteger[Any]]) -> tuple[Any, Any]:
        """Two arrays that own their memory, because training loops write to y."""
        if self._device is None:
            pair = ids[:, :-1].astype(np.int64), ids[:, 1:].astype(np.int64)
            if torch is None:
                return pair
            x, y = (torch.from_numpy(half) for half in pair)
            return (x.pin_memory(), y.pin_memory()) if self._pin_memory else (x, y)
        bits: Any = ids.view(f"<i{ids.itemsize}")
        device, narrow = torch.device(self._device), torch.from_numpy(bits)
        narrow = narrow.pin_memory() if device.type == "cuda" else narrow.clone()
        wide = narrow.to(device, non_blocking=True).long() & ((1 << 8 * ids.itemsize) - 1)
        return wide[:, :-1].contiguous(), wide[:, 1:].contiguous()

    # --- state

    def state_dict(self) -> dict[str, Any]:
        if self._read_by_workers[0] and torch.utils.data.get_worker_info() is None:
            raise RuntimeError("workers of a DataLoader read these batches, this object does not have their position: "
                               "use torchdata's StatefulDataLoader and its state_dict, or num_workers=0")
        state = {"consumed": self.consumed, "seed": self.seed, "mode": self.mode, "mode_number": wire.MODES[self.mode],
                 "split": self.split, "T": self.T, "source": self.source, "dataset": self._fingerprint}
        if self._read_by_workers[0]:  # each worker has a position of its own, counted in these steps
            state["step"] = self.batch * self.world
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not isinstance(state, dict) or "mode" not in state:
            raise ValueError(f"this {type(state).__name__} is not a state: load what state_dict of TokenBatches has returned")
        if state.get("step", self.batch * self.world) != self.batch * self.world:
            raise ValueError(f"the state is one of workers, which go on only with steps of {state['step']} samples (batch * world), "
                             f"not {self.batch * self.world}: to change them, use num_workers=0")
        wire.check_word("mode", state["mode"], wire.MODES)
        wire.check_word("split", state["split"], wire.SPLITS)
        number = state.get("mode_number")  # states of version 0.1 have neither the number nor T
        if number is None and state["mode"] in ("crop", "sequential"):
            number = wire.MODES[state["mode"]]
        if number != wire.MODES[state["mode"]]:
            raise ValueError(f"the order of samples '{state['mode']}' of the state's version is another one now: "
                             "finish the run with that version")
        if state.get("T", self.T) != self.T:
            raise ValueError(f"the state counts samples of T {state['T']}, this object has T {self.T}: make it with that T, "
                             "or begin without the state")
        for field, value in self._given.items():
            if value not in (None, state[field]):
                raise ValueError(f"the state has {field} {state[field]!r}, this object was given {field} {value!r}: "
                                 "leave it out to go on with the state's")
        self.close()
        self.consumed, self.seed, self.mode, self.split = (state[key] for key in ("consumed", "seed", "mode", "split"))
        self.source, self._fingerprint = state.get("source", 0), state["dataset"]
        self._worker_begin, self._read_by_workers[:] = None, bytes(9)
        self._iteration += 1

    def close(self) -> None:
        """Ends the connection; the next iteration opens another."""
        if self._feed:
            self._feed.close()
        self._feed = None

"""A torch IterableDataset of batches from a loader."""
import numpy as np

from . import wire
from .feed import Feed

try:
    import torch
    from torch.utils.data import IterableDataset
except ImportError:  # batches are numpy arrays then
    torch, IterableDataset = None, object


class TokenBatches(IterableDataset):
    """Endless pairs (x, y) of int64 tensors (batch, T); y is x shifted by one token.

    Step n yields samples start + n*batch*world + rank*batch and following, so the samples of a step are the same for
    any split of it over ranks. `state_dict` is the position and its parameters; a run that loads it continues with the
    next sample, also with another batch size or world. The batches are complete: use it directly, or with
    DataLoader(dataset, batch_size=None).

    `mode` is a sampling mode of loader/protocol/sampling.h. When the loader changes its dataset, the iterator raises DatasetChanged. Further arguments are those of Feed.
    """

    def __init__(self, endpoint, T, batch, rank=0, world=1, start=0, split="train", mode="epoch", seed=1337, window=4,
                 **feed):
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} is not one of {world} (0 to {world - 1})")
        if T < 1 or batch < 1 or seed < 0:
            raise ValueError("T and batch are at least 1, seed at least 0")
        if mode not in wire.MODES:
            raise ValueError(f"mode {mode!r} is not one of {', '.join(wire.MODES)}")
        self.T, self.batch, self.rank, self.world, self.window = T, batch, rank, world, window
        self.split, self.mode, self.seed, self.consumed = split, mode, seed, start
        self._endpoint, self._options, self._feed, self._fingerprint = endpoint, feed, None, None

    @property
    def feed(self):
        if self._feed is None:
            self._feed = Feed(self._endpoint, self.T, self.batch, window=self.window, **self._options)
            fingerprint = self._feed.dataset.fingerprint.hex()
            if self._fingerprint not in (None, fingerprint):
                raise ValueError(f"the loader serves dataset {fingerprint[:16]}, the state is of {self._fingerprint[:16]}")
            self._fingerprint = fingerprint
        return self._feed

    def __iter__(self):
        feed, step = self.feed, self.batch * self.world
        feed.cancel()  # requests of an earlier iterator
        requested = self.consumed
        split = {"train": wire.TRAIN, "val": wire.VAL}[self.split]
        while True:
            while feed.capacity:
                feed.request(split, self.mode, self.batch, self.seed, requested + self.rank * self.batch)
                requested += step
            rows = feed.next()
            if len(rows) == 0:
                return  # the end of a sequential split
            ids = rows.astype(np.int64)
            self.consumed += step
            if torch is not None:
                ids = torch.from_numpy(ids)
            yield ids[:, :-1], ids[:, 1:]

    def state_dict(self):
        return {"consumed": self.consumed, "seed": self.seed, "mode": self.mode, "split": self.split,
                "dataset": self._fingerprint}

    def load_state_dict(self, state):
        self.consumed, self.seed, self.mode = state["consumed"], state["seed"], state["mode"]
        self.split, self._fingerprint = state["split"], state["dataset"]

    def close(self):
        if self._feed:
            self._feed.close()
        self._feed = None

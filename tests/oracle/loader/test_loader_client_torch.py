# peers: torch, torchdata
"""The Python client (loader/python) under PyTorch: DataLoader and its workers, nanoGPT's training code, the README's examples."""
import json
import logging
import os

import numpy as np
import test_loader_client as client
import torch
from millrace_loader import TokenBatches
from test_loader_client_package import readme_blocks
from test_loader_client_strict import first_ids, full_rows, refusal
from torch.utils.data import DataLoader

SEED, T = client.SEED, client.T


def batches_at(**options):
    return TokenBatches("ipc://place", T, 4, seed=SEED, timeout=60, **options)


def wanted_firsts(ids, steps, batch=4, mode="epoch"):
    return [[client.wanted(ids, mode, batch * step + row)[0] for row in range(batch)] for step in steps]


def firsts(stream, count):
    return [first_ids(pair).tolist() for _, pair in zip(range(count), stream)]


def test_a_second_iteration_of_workers_warns_of_the_same_samples():
    client.make_data()
    log = logging.FileHandler("warnings.log")
    logging.getLogger("millrace_loader").addHandler(log)  # forked workers have it too

    def warnings():
        with open("warnings.log", encoding="utf-8") as file:
            return file.read().count("begins at sample 0 again")

    try:
        with client.Loader("ipc://place"):
            for persistent in (False, True):
                before = warnings()
                loader = DataLoader(batches_at(), batch_size=None, num_workers=2, persistent_workers=persistent)
                first = firsts(loader, 5)
                assert warnings() == before, persistent
                assert firsts(loader, 5) == first and warnings() == before + 1, persistent
            before = warnings()
            loader = DataLoader(batches_at(split="val", mode="permuted"), batch_size=None, num_workers=2)
            assert len(list(loader)) == len(list(loader)) and warnings() == before  # each is a pass over the split
    finally:
        logging.getLogger("millrace_loader").removeHandler(log)
        log.close()


def test_workers_and_ranks_read_a_pass_once():
    client.make_data()
    with client.Loader("ipc://place"):
        for mode in ("sequential", "permuted"):
            whole = [full_rows(pair) for pair in batches_at(split="val", mode=mode)]
            loader = DataLoader(batches_at(split="val", mode=mode), batch_size=None, num_workers=3, persistent_workers=True)
            for _ in range(2):
                assert np.array_equal(np.concatenate(whole), np.concatenate([full_rows(pair) for pair in loader])), mode


def test_passes_after_that_of_a_loaded_state_are_whole():
    client.make_data()
    with client.Loader("ipc://place"):
        for mode in ("sequential", "permuted"):
            begun = batches_at(split="val", mode=mode)
            rows = sum(len(x) for x, _ in begun)
            stream = iter(begun)
            firsts(stream, 3)
            left, state = rows - 3 * 4, begun.state_dict()
            for context, workers, persistent, wanted in (
                ("fork", 0, False, [left, rows, rows]),
                ("fork", 2, False, [left, rows, rows]),
                ("fork", 2, True, [left, rows, rows]),
                ("spawn", 2, True, [left, rows, rows]),
            ):
                resumed = batches_at(split="val", mode=mode)
                resumed.load_state_dict(state)
                loader = DataLoader(resumed, batch_size=None, num_workers=workers, persistent_workers=persistent,
                                    multiprocessing_context=context if workers else None)
                assert [sum(len(x) for x, _ in loader) for _ in range(3)] == wanted, (mode, context, workers, persistent)


def test_the_state_of_an_object_that_workers_read_is_refused():
    client.make_data()
    with client.Loader("ipc://place"):
        for context in ("fork", "spawn"):
            batches = batches_at()
            firsts(DataLoader(batches, batch_size=None, num_workers=1, multiprocessing_context=context), 3)
            assert "use torchdata's StatefulDataLoader" in refusal(batches.state_dict, RuntimeError), context
            firsts(DataLoader(batches, batch_size=None), 3)
            assert batches.state_dict()["consumed"] == 12
            batches.close()


def test_a_stateful_data_loader_continues_exactly():
    from torchdata.stateful_dataloader import StatefulDataLoader
    ids = client.make_data()
    with client.Loader("ipc://place"):
        for workers in range(4):
            for yielded in (1, 5, 6):
                loader = StatefulDataLoader(batches_at(), batch_size=None, num_workers=workers)
                stream = iter(loader)
                assert firsts(stream, yielded) == wanted_firsts(ids, range(yielded))
                state = json.loads(json.dumps(loader.state_dict()))
                resumed = StatefulDataLoader(batches_at(), batch_size=None, num_workers=workers)
                resumed.load_state_dict(state)
                assert firsts(resumed, 6) == wanted_firsts(ids, range(yielded, yielded + 6)), (workers, yielded)
                if workers and yielded % workers:  # workers at different places cannot go on in other steps
                    other = StatefulDataLoader(batches_at(world=2, rank=0), batch_size=None, num_workers=workers)
                    other.load_state_dict(state)
                    assert "only with steps of 4 samples" in refusal(lambda: next(iter(other)), ValueError)
        assert "is not a state" in refusal(lambda: batches_at().load_state_dict({}), ValueError)
        total = len([0 for _ in batches_at(split="val", mode="permuted")])
        for workers in (0, 2):  # a pass to its end, and one more
            loader = StatefulDataLoader(batches_at(split="val", mode="permuted"), batch_size=None, num_workers=workers)
            stream = iter(loader)
            firsts(stream, total - 1)
            resumed = StatefulDataLoader(batches_at(split="val", mode="permuted"), batch_size=None, num_workers=workers)
            resumed.load_state_dict(loader.state_dict())
            assert [len(list(resumed)), len(list(resumed))] == [1, total], workers


def test_tensors_are_as_training_loops_need_them():
    ids = client.make_data()
    with client.Loader("ipc://place"):
        on_gpu = [{"device": "cuda"}, {"pin_memory": True}] if torch.cuda.is_available() else []
        for options in ({}, {"device": "cpu"}, *on_gpu):
            batches = batches_at(**options)
            x, y = (half.cpu() for half in next(iter(batches)))
            assert x.dtype == y.dtype == torch.int64 and x.shape == y.shape == (4, T)
            client.check(full_rows((x, y)), ids, "epoch", 0)
            before = x.clone()
            y.view(-1)[:] = -1
            assert torch.equal(x, before)
            batches.close()
        loader = DataLoader(batches_at(device="cpu"), batch_size=None, num_workers=1)
        assert "for the training process" in refusal(lambda: next(iter(loader)), ValueError)


class TwoLayers(torch.nn.Module if torch else object):
    """Has the forward signature and the loss of nanoGPT's GPT."""

    def __init__(self, vocab_size):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(vocab_size, 16), torch.nn.Linear(16, vocab_size)

    def forward(self, idx, targets=None):
        logits = self.head(self.embed(idx))
        return logits, torch.nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


def test_the_readme_example_for_nanogpt_trains_on_a_cpu():
    ids = client.make_data()
    example, resume = readme_blocks("python")[-2:]
    assert len(example.splitlines()) == 5 and len(resume.splitlines()) == 1
    os.environ["XDG_RUNTIME_DIR"] = os.getcwd()
    with client.Loader("ipc://millrace"):
        names = {"block_size": T, "batch_size": 4, "seed_offset": 1, "ddp_world_size": 2, "device": "cpu",
                 "iter_num": 5, "gradient_accumulation_steps": 3}
        exec(example, names)
        torch.manual_seed(1)
        model, losses = TwoLayers(50304), []
        names["model"] = model
        optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
        for step in range(8):
            model.eval()  # as estimate_loss: its batches are not taken from those of training
            assert all(names["get_batch"](split)[0].shape == (4, T) for split in ("train", "val"))
            model.train()
            x, y = names["get_batch"]("train")
            client.check(full_rows((x, y)), ids, "epoch", 8 * step + 4)
            _, loss = model(x, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
        assert losses[-1] < losses[0] - 1, losses
        exec(resume, names)
        client.check(full_rows(names["get_batch"]("train")), ids, "epoch", 5 * 3 * 8 + 4)
        names["streams"].clear()


def test_the_other_readme_examples_run():
    client.make_data()
    os.environ["XDG_RUNTIME_DIR"] = os.getcwd()
    with client.Loader("ipc://millrace"):
        for block in readme_blocks("python")[:-2]:
            seen = []
            exec(block, {"steps": 3, "train": lambda x, y: seen.append((x, y))})
            assert len(seen) >= 3, block

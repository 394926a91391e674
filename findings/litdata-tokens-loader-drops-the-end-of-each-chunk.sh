#!/usr/bin/env bash
# Behaviour: TokensLoader of litdata gives the tokens of pretraining in blocks. The tokens of a chunk that fill no block are never read:
#   neither with the tokens of the next chunk nor in a later epoch. There is no error and no warning. A chunk of the default size loses
#   less than a block of its 64 MB, a chunk of a small chunk_size or of a worker's last documents a larger part.
# Guess: the chunks are one stream of tokens, as a flat file is: less than one block is left out, at the end of the dataset.
# Versions: litdata 0.2.76, torch 2.15.0, numpy 2.4.6
# Date: 2026-11-28
# Output seen:
#   written: 300 tokens in chunks of [100, 100, 100]
#   epoch 1: 288 tokens read in 18 blocks of 16; never read: 96 97 98 99 196 197 198 199 296 297 298 299
#   epoch 2: 288 tokens read in 18 blocks of 16; never read: 96 97 98 99 196 197 198 199 296 297 298 299
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check litdata==0.2.76 torch==2.15.0 numpy==2.4.6
cat >read.py <<'END'
import json
import torch
from litdata import StreamingDataset, TokensLoader, optimize

BLOCK, DOCUMENTS, LENGTH, CHUNK = 16, 12, 25, 100


def tokens(number):
    yield torch.arange(number * LENGTH, (number + 1) * LENGTH)


if __name__ == "__main__":
    optimize(fn=tokens, inputs=list(range(DOCUMENTS)), output_dir="data", chunk_size=CHUNK, item_loader=TokensLoader(), num_workers=1,
             keep_data_ordered=True)
    with open("data/index.json") as file:
        print(f"written: {DOCUMENTS * LENGTH} tokens in chunks of", [chunk["dim"] for chunk in json.load(file)["chunks"]])
    dataset, missing = StreamingDataset("data", item_loader=TokensLoader(block_size=BLOCK), shuffle=False), []
    for epoch in 1, 2:
        seen = {int(token) for block in dataset for token in block}
        missing.append(sorted(set(range(DOCUMENTS * LENGTH)) - seen))
        print(f"epoch {epoch}: {len(seen)} tokens read in {len(dataset)} blocks of {BLOCK}; never read:", *missing[-1])
    ends = [chunk + place for chunk in range(0, DOCUMENTS * LENGTH, CHUNK) for place in range(CHUNK - CHUNK % BLOCK, CHUNK)]
    raise SystemExit(missing != [ends, ends])
END
HOME=$dir venv/bin/python read.py >out 2>err && changed=0 || changed=1
grep -E '^(written|epoch)' out || { tail -5 err && exit 1; }
exit $changed

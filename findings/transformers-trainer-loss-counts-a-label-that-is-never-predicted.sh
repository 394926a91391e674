#!/usr/bin/env bash
# Behaviour: with labels equal to input_ids, as of DataCollatorForLanguageModeling(mlm=False), a row of n ids has n - 1 targets. Trainer
#   divides the sum of their losses by n: eval_loss is too small by 1/n, the training loss and gradient as well. Besides, eval_loss
#   is a mean over the batches by their rows, not by their tokens, so it depends on per_device_eval_batch_size where rows differ in length.
#   TRL's labels of answers alone are not affected: their first label does not count.
# Guess: since Trainer counts the items of a batch, its loss is the mean over the targets, for every batch size.
# Versions: transformers 5.24.0, torch 2.15.0, accelerate 1.15.0
# Date: 2026-11-28
# Output seen (6 rows of 60 ids and 6 of 4: 372 targets of 384 labels):
#   mean over the targets: 2.7293
#   eval_loss by per_device_eval_batch_size: 1: 2.8392, 2: 2.6440, 12: 2.6440 = the mean x 0.9688
#   training loss of one step on all rows: the mean x 0.9687
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-cache-dir torch==2.15.0 transformers==5.24.0 accelerate==1.15.0 numpy==2.4.6
CUDA_VISIBLE_DEVICES='' HF_HUB_OFFLINE=1 venv/bin/python - 2>err <<'END' || { tail -5 err && exit 1; }
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0,
                                   resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)).eval()  # fmt: skip
draws = torch.Generator().manual_seed(1)
with torch.no_grad():
    for parameter in model.parameters():
        parameter.mul_(8 if parameter.dim() == 2 else 1)
rows = [torch.randint(0, 50, (4,), generator=draws) if i % 2 else torch.full((60,), 7) for i in range(12)]


def collate(batch):
    """As the collator of language models: padding has label -100."""
    pad = lambda value, fill: torch.nn.utils.rnn.pad_sequence(value, batch_first=True, padding_value=fill)
    ids = [row["input_ids"] for row in batch]
    return {"input_ids": pad(ids, 0), "labels": pad(ids, -100), "attention_mask": pad([torch.ones_like(row) for row in ids], 0)}


def trainer(batch, **options):
    arguments = TrainingArguments(output_dir="out", report_to=[], use_cpu=True, per_device_eval_batch_size=batch, per_device_train_batch_size=12, **options)
    data = [{"input_ids": row} for row in rows]
    return Trainer(model=model, args=arguments, data_collator=collate, train_dataset=data, eval_dataset=data)


with torch.no_grad():
    sums = [torch.nn.functional.cross_entropy(model(row[None]).logits[0, :-1], row[1:], reduction="sum").item() for row in rows]
mean, labels = sum(sums) / sum(len(row) - 1 for row in rows), sum(map(len, rows))
print(f"mean over the targets: {mean:.4f}")
found = {batch: trainer(batch).evaluate()["eval_loss"] for batch in (1, 2, 12)}
trained = trainer(12, max_steps=1, learning_rate=0.0, save_strategy="no").train().training_loss
print(f"eval_loss by per_device_eval_batch_size: {', '.join(f'{batch}: {loss:.4f}' for batch, loss in found.items())} = the mean x {found[12] / mean:.4f}")
print(f"training loss of one step on all rows: the mean x {trained / mean:.4f}")
wrong = sum(sums) / labels
raise SystemExit(abs(found[12] - wrong) > 1e-3 or abs(trained - wrong) > 1e-3 or abs(found[1] - found[12]) < 0.1)
END

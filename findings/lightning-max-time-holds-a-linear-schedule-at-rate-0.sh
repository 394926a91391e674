#!/usr/bin/env bash
# Behaviour: with Trainer(max_time=...) and no max_steps, trainer.estimated_stepping_batches, which the documentation of Lightning gives to
#   schedulers as the number of steps, is infinite. The linear schedule of transformers then has a rate of 0 from the end of the
#   warmup on: the run goes on to its time and trains nothing. The cosine, polynomial and warmup-stable-decay schedules stay at the highest
#   rate and never fall. No line says so.
# Guess: the steps are estimated from the time, or an infinite number is refused; at worst the rate is constant.
# Versions: lightning 2.6.6, transformers 5.24.0, torch 2.15.0
# Date: 2026-11-30
# Output seen (a warmup of 5 steps to 0.01; the model learns a factor of 3; weights differ a little from run to run):
#   linear, 200 steps: rate 0.00995 after the warmup, at last 5.13e-05, weight 2.67
#   linear, 3 s: rate 0 after the warmup, at last 0, weight 0.08
#   polynomial, 3 s: rate 0.01 after the warmup, at last 0.01, weight 3.00
#   cosine, 3 s: rate 0.01 after the warmup, at last 0.01, weight 3.00
#   warmup_stable_decay, 3 s: rate 0.01 after the warmup, at last 0.01, weight 3.00
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-cache-dir torch==2.15.0 transformers==5.24.0 lightning==2.6.6 numpy==2.4.6
CUDA_VISIBLE_DEVICES='' venv/bin/python - 2>err <<'END' || { tail -5 err && exit 1; }
import lightning, torch
from transformers import get_scheduler

RATE, WARMUP = 0.01, 5


class Line(lightning.LightningModule):
    """Learns y = 3 x."""

    def __init__(self, schedule, options):
        super().__init__()
        self.schedule, self.options, self.weight, self.rates = schedule, options, torch.nn.Parameter(torch.zeros(1)), []

    def training_step(self, batch, index):
        self.rates.append(self.optimizers().param_groups[0]["lr"])
        return ((self.weight * batch - 3 * batch) ** 2).mean()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=RATE)
        scheduler = get_scheduler(self.schedule, optimizer, WARMUP, self.trainer.estimated_stepping_batches, self.options)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def run(schedule, options=None, **limit):
    torch.manual_seed(0)
    model = Line(schedule, options)
    data = torch.utils.data.DataLoader(torch.randn(64, 1), batch_size=8)
    trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, **limit)
    trainer.fit(model, data)
    return model, trainer.estimated_stepping_batches


changed = False
for schedule, last in (("linear", 0), ("polynomial", RATE), ("cosine", RATE), ("warmup_stable_decay", RATE)):
    options = {"num_decay_steps": 50} if schedule == "warmup_stable_decay" else None
    for limit in ({"max_steps": 200}, {"max_time": "00:00:00:03"})[schedule != "linear":]:
        model, steps = run(schedule, options, **limit)
        timed, rates = "max_time" in limit, model.rates[WARMUP + 1 :]
        print(f"{schedule}, {'3 s' if timed else '200 steps'}: rate {rates[0]:.3g} after the warmup, at last {rates[-1]:.3g}, weight {model.weight.item():.2f}")
        changed |= timed and (steps != float("inf") or set(rates) != {last} or (model.weight.item() > 2) != (last > 0))
raise SystemExit(changed)
END

#!/usr/bin/env bash
# Behaviour: torch.optim.swa_utils.AveragedModel keeps the average of bfloat16 weights in bfloat16. With get_ema_multi_avg_fn(0.999), the
#   default decay, it stays where it began, and with a smaller decay it stops before the weights, without a word; get_ema_avg_fn and torch-ema are
#   alike. timm rounds such averages at random and arrives. Lightning's EMAWeightAveraging with precision="bf16-true" makes its copy
#   of the model before the weights become bfloat16, so it averages in float32 and arrives, too.
# Guess: the average is float32, as the sums of matrix products are; or a line says that it is not.
# Versions: torch 2.15.0, torch-ema 0.3, timm 1.0.31
# Date: 2026-11-30
# Output seen (weights of 1 that are 1.5 from then on, 20,000 updates):
#   torch, float32, decay 0.9: 1.5000; 0.99: 1.5000; 0.999: 1.4999
#   torch, bfloat16, decay 0.9: 1.4688; 0.99: 1.1094; 0.999: 1.0000
#   torch, bfloat16, avg_fn, decay 0.9: 1.4453; 0.99: 1.0000; 0.999: 1.0000
#   torch-ema, bfloat16, decay 0.9: 1.4688; 0.99: 1.1094; 0.999: 1.0000
#   timm, bfloat16, decay 0.9: 1.5000; 0.99: 1.5000; 0.999: 1.5000
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --no-cache-dir torch==2.15.0 torchvision torch-ema==0.3 timm==1.0.31 numpy==2.4.6
CUDA_VISIBLE_DEVICES='' venv/bin/python - <<'END'
import timm.utils, torch, torch_ema
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

UPDATES, DECAYS = 20000, (0.9, 0.99, 0.999)


def averaged(**options):
    def begin(model):
        average = AveragedModel(model, **options)
        average.update_parameters(model)
        return average.update_parameters, average.module.weight

    return begin


def by_torch_ema(decay):
    def begin(model):
        average = torch_ema.ExponentialMovingAverage(model.parameters(), decay, use_num_updates=False)
        return lambda model: average.update(model.parameters()), average.shadow_params[0]

    return begin


def by_timm(decay):
    def begin(model):
        average = timm.utils.ModelEmaV3(model, decay)
        return average.update, average.module.weight

    return begin


def follow(begin, dtype):
    """Where the average of weights ends that are 1 at first and 1.5 in each update."""
    model = torch.nn.Linear(8, 8, bias=False).to(dtype)
    torch.nn.init.constant_(model.weight, 1)
    update, average = begin(model)
    torch.nn.init.constant_(model.weight, 1.5)
    for _ in range(UPDATES):
        update(model)
    return average.float().mean().item()


cases = {"torch, float32": (lambda decay: averaged(multi_avg_fn=get_ema_multi_avg_fn(decay)), torch.float32),
         "torch, bfloat16": (lambda decay: averaged(multi_avg_fn=get_ema_multi_avg_fn(decay)), torch.bfloat16),
         "torch, bfloat16, avg_fn": (lambda decay: averaged(avg_fn=get_ema_avg_fn(decay)), torch.bfloat16),
         "torch-ema, bfloat16": (by_torch_ema, torch.bfloat16),
         "timm, bfloat16": (by_timm, torch.bfloat16)}  # fmt: skip
changed = False
for name, (begin, dtype) in cases.items():
    ends = {decay: follow(begin(decay), dtype) for decay in DECAYS}
    print(f"{name}, decay {'; '.join(f'{decay}: {end:.4f}' for decay, end in ends.items())}")
    stands = dtype == torch.bfloat16 and "timm" not in name
    changed |= (ends[0.999] == 1) != stands or (ends[0.9] < 1.49) != stands
raise SystemExit(changed)
END

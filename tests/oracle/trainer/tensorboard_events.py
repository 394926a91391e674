"""Compares the event file of a run with its metrics.jsonl, read by TensorBoard: tensorboard_events.py DIR."""
import collections
import glob
import json
import math
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

if sys.argv[1] == "--files":  # each point of a tag is in one file, as readers of all files need it
    points = collections.Counter()
    for path in glob.glob(f"{sys.argv[2]}/events.out.tfevents.*"):
        for event in EventFileLoader(path).Load():
            points.update((value.tag, event.step) for value in event.summary.value)
    assert points and set(points.values()) == {1}, [point for point, count in points.items() if count > 1]
    sys.exit()
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0}).Reload()
wanted = {}
with open(f"{sys.argv[1]}/metrics.jsonl", encoding="utf-8") as lines:
    for line in map(json.loads, lines):
        for tag, value in line.items():
            if tag != "step" and isinstance(value, (int, float)) and not isinstance(value, bool):
                wanted.setdefault(tag, []).append((line["step"], value))
assert {"loss", "val_loss", "lr", "norm", "tok_s"} <= set(wanted), set(wanted)
assert sorted(events.Tags()["scalars"]) == sorted(wanted), (events.Tags(), set(wanted))
for tag, points in wanted.items():
    found = events.Scalars(tag)
    assert [event.step for event in found] == [step for step, _ in points], tag
    assert all(math.isclose(event.value, value, rel_tol=1e-7) for event, (_, value) in zip(found, points)), tag
    assert all(a.wall_time <= b.wall_time for a, b in zip(found, found[1:])), tag
print(sum(map(len, wanted.values())), "points")

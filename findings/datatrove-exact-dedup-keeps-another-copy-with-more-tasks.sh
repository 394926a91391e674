#!/usr/bin/env bash
# Behaviour: datatrove's exact deduplication orders the copies of a text by their number in the files of their own task. With one task
#   the first copy in the order of the files stays. With two tasks, of a text that is third in a.jsonl and first in b.jsonl the one in
#   b.jsonl stays. How many go is the same, but urls, scores and dates of what stays depend on the number of tasks, and the list of
#   removed documents names no partner. A document_priority decides between copies only if theirs differ.
# Guess: the first in the order of the files stays, whatever the number of tasks.
# Versions: datatrove 0.10.1, tokenizers 0.23.3
# Date: 2026-11-29
# Output seen:
#   1 task: removed b.jsonl/0, kept a.jsonl/2
#   2 tasks: removed a.jsonl/2, kept b.jsonl/0
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check datatrove==0.10.1 xxhash==3.6.0 orjson==3.13.0 numpy==2.4.6 regex==2026.11.19 tokenizers==0.23.3
mkdir in && printf '{"text": "%s"}\n' one two same >in/a.jsonl && printf '{"text": "%s"}\n' same three >in/b.jsonl
venv/bin/python - 2>err <<'END' || { tail -5 err && exit 1; }
import glob, json
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import ExactDedupFilter, ExactDedupSignature, ExactFindDedups
from datatrove.pipeline.dedup.exact_dedup import ExactDedupConfig
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter


def text(document) -> str:
    return document.text


def ids(folder):
    return [json.loads(line)["id"] for name in sorted(glob.glob(f"{folder}/*")) for line in open(name) if '"same"' in line]


seen = []
for tasks in 1, 2:
    config, out = ExactDedupConfig(content_getter=text), f"tasks{tasks}"
    removed, kept = (JsonlWriter(f"{out}/{name}", compression=None) for name in ("removed", "kept"))
    for number, stage in enumerate((
        [JsonlReader("in"), ExactDedupSignature(f"{out}/hashes", config, finder_workers=tasks)],
        [ExactFindDedups(f"{out}/hashes", f"{out}/numbers", config=config)],
        [JsonlReader("in"), ExactDedupFilter(f"{out}/numbers", config=config, exclusion_writer=removed), kept],
    )):
        LocalPipelineExecutor(stage, tasks=tasks, workers=1, logging_dir=f"{out}/logs{number}").run()
    seen += [(ids(f"{out}/removed"), ids(f"{out}/kept"))]
    print(f"{tasks} task{'s' * (tasks > 1)}: removed {' '.join(seen[-1][0])}, kept {' '.join(seen[-1][1])}")
raise SystemExit(seen != [(["b.jsonl/0"], ["a.jsonl/2"]), (["a.jsonl/2"], ["b.jsonl/0"])])
END

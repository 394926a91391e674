"""Seeds of the manifest fuzzer: the manifests of real datasets, with the shard sizes of fuzz_manifest.c: seeds_manifest.py FOLDER MANIFEST..."""
import json
import os
import sys

for number, path in enumerate(sys.argv[2:]):
    with open(path) as file:
        lines = file.read().splitlines()
    shards = [json.loads(line) | {"bytes": 100} for line in lines[1:]]
    with open(os.path.join(sys.argv[1], f"manifest{number}"), "w") as file:
        file.write(lines[0] + "\n" + "".join(json.dumps(s, separators=(",", ":")) + "\n" for s in shards))

# peers: mlcroissant
"""shardtool info --croissant: valid for mlcroissant, the implementation of MLCommons, with the numbers and hashes of the files."""
import hashlib
import json
import os
import pathlib
import subprocess

import runner

try:
    import mlcroissant
except ImportError as missing:
    mlcroissant, why = None, missing

SHARDTOOL = os.path.join(os.environ["BIN"], "shardtool")


def make(folder, *options):
    (folder / "docs.jsonl").write_text("".join(json.dumps({"text": f"document {i} " + "of words " * i}) + "\n" for i in range(300)))
    runner.call(SHARDTOOL, "tokenize", "-q", "--shard-tokens", "16k", "--frame-tokens", "4k", *options, "-o", folder / "my data", folder / "docs.jsonl")
    return folder / "my data"


def describe(dataset):
    return json.loads(runner.call(SHARDTOOL, "info", "--croissant", dataset).stdout)


def test_hashes_and_sizes_are_those_of_the_files(folder):
    dataset = make(pathlib.Path(folder), "--val", "0.2")
    described = describe(dataset)
    assert described["conformsTo"] == "http://mlcommons.org/croissant/1.1" and described["name"] == "my data"
    manifest = (dataset / "dataset.jsonl").read_bytes()
    own = described["distribution"][0]
    assert own["sha256"] == hashlib.sha256(manifest).hexdigest() and own["contentSize"] == f"{len(manifest)} B"
    splits, shards = (records["data"] for records in described["recordSet"])
    files = {"train": sorted(dataset.glob("train/*/*.zst")), "val": sorted(dataset.glob("val/*/*.zst"))}
    assert [shard["shards/file"] for shard in shards] == [str(file.relative_to(dataset)) for split in files.values() for file in split]
    assert len(shards) > 3
    for shard in shards:
        file = dataset / shard["shards/file"]
        ids = subprocess.run(["zstd", "-dcq", file], capture_output=True, check=True).stdout
        assert shard["shards/ids_sha256"] == hashlib.sha256(ids).hexdigest()
        assert (shard["shards/bytes"], 2 * shard["shards/tokens"]) == (file.stat().st_size, len(ids))
    for split in splits:
        own = [shard for shard in shards if shard["shards/split"] == split["splits/name"]]
        assert split["splits/tokens"] == sum(shard["shards/tokens"] for shard in own) and split["splits/shards"] == len(own)
    assert sum(split["splits/documents"] for split in splits) == 300
    runner.call(SHARDTOOL, "info", "--croissant", dataset / "train/000/000000.zst", code=2)


def test_mlcroissant_finds_no_error_and_reads_the_records(folder):
    if not mlcroissant:
        raise runner.Skip(f"needs mlcroissant ({why})")
    for i, options in enumerate([("--val", "0.2"), ("--val", "0")]):
        place = pathlib.Path(folder) / str(i)
        place.mkdir()
        described = describe(make(place, *options))
        read = mlcroissant.Dataset(jsonld=described)
        assert not read.metadata.issues.errors, read.metadata.issues.errors
        # what only the owner of a dataset can say
        missing = {warning.split('"')[1].split("/")[-1] for warning in read.metadata.issues.warnings}
        assert missing == {"license", "datePublished", "version", "citeAs"}, read.metadata.issues.warnings
        for records in described["recordSet"]:
            got = [{key: value.decode() if isinstance(value, bytes) else value for key, value in record.items()} for record in read.records(records["@id"])]
            assert got == records["data"], got
        del described["distribution"][0]["sha256"], described["recordSet"][0]["field"][0]["@id"]
        try:
            assert mlcroissant.Dataset(jsonld=described).metadata.issues.errors
        except mlcroissant.ValidationError:
            pass


if __name__ == "__main__":
    runner.main(globals())

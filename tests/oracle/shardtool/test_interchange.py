# peers: datatrove, megatron-core
"""export and import against NumPy, nanoGPT's way of reading, and readers written here from the public layouts of llm.c and
Megatron-LM. The readers of datatrove and of Megatron-LM themselves are used where they are installed."""
import glob, json, os, random, struct, subprocess
import numpy as np
import runner

BIN = os.environ["BIN"]
TOOL = os.path.join(BIN, "shardtool")
EOT = 50256
FORMATS = ["nanogpt", "llmc", "megatron", "datatrove", "npy"]


def run(*arguments, **more):
    return runner.call(TOOL, *arguments, **more).stdout


def ids_of(path, split):
    return np.frombuffer(run("cat", "--split", split, path), "<u2")


def documents_of(ids):
    """The documents with their end-of-text ids."""
    return np.split(ids, np.flatnonzero(ids == EOT) + 1)[:-1]


def dataset():
    """In train and val, documents of 0 to 5,000 words in several shards."""
    if os.path.exists("d"):
        return "d"
    random.seed(11)
    with open("in.jsonl", "w") as out:
        for i in range(400):
            words = [str(random.randrange(100000)) for _ in range(random.choice([0, 1, 5, 50, 5000 if i % 50 == 0 else 20]))]
            out.write(json.dumps({"text": " ".join(words)}) + "\n")
    run("tokenize", "-q", "--val", "0.1", "--frame-tokens", "1000", "--shard-tokens", "10000", "-o", "d", "in.jsonl")
    return "d"


def export(name, *options):
    folder = f"{name}{len(options)}"
    if not os.path.exists(folder):
        run("export-tokens", "-q", "--format", name, "-o", folder, *options, dataset())
    return folder


def read_llmc(path):
    header = np.fromfile(path, "<i4", 256)
    assert header[0] == 20240520 and header[1] == 1 and not header[3:].any()
    ids = np.fromfile(path, "<u2", offset=1024)
    assert len(ids) == header[2]
    return ids


def read_megatron(prefix):
    """Documents, from the layout of MMapIndexedDataset."""
    with open(prefix + ".idx", "rb") as file:
        assert file.read(9) == b"MMIDIDX\x00\x00"
        version, code = struct.unpack("<QB", file.read(9))
        sequences, boundaries = struct.unpack("<QQ", file.read(16))
        lengths = np.frombuffer(file.read(4 * sequences), "<i4")
        offsets = np.frombuffer(file.read(8 * sequences), "<i8")
        bounds = np.frombuffer(file.read(8 * boundaries), "<i8")
        assert (version, code, file.read()) == (1, 8, b"")
    ids = np.fromfile(prefix + ".bin", "<u2")
    assert bounds[0] == 0 and bounds[-1] == sequences
    return [np.concatenate([ids[offsets[s] // 2 :][: lengths[s]] for s in range(a, b)]) for a, b in zip(bounds, bounds[1:])]


def same_documents(got, split):
    want = documents_of(ids_of(dataset(), split))
    assert len(got) == len(want) and all(np.array_equal(a, b) for a, b in zip(got, want))


def test_nanogpt_reads_the_same_ids():
    for split in "train", "val":
        got = np.memmap(f"{export('nanogpt')}/{split}.bin", dtype=np.uint16, mode="r")
        assert np.array_equal(got, ids_of(dataset(), split))


def test_numpy_reads_the_same_ids():
    for split in "train", "val":
        got = np.load(f"{export('npy')}/{split}.npy", mmap_mode="r", allow_pickle=False)
        assert got.dtype == np.uint16 and np.array_equal(got, ids_of(dataset(), split))


def test_llmc_has_the_end_of_text_before_each_document():
    folder = export("llmc", "--shard-tokens", "7000")
    for split in "train", "val":
        files = [read_llmc(path) for path in sorted(glob.glob(f"{folder}/{split}_*.bin"))]
        assert all(len(ids) == 7000 for ids in files[:-1])
        want = [np.concatenate([[EOT], document[:-1]]) for document in documents_of(ids_of(dataset(), split))]
        assert np.array_equal(np.concatenate(files), np.concatenate(want))
    assert len(glob.glob(f"{folder}/train_*.bin")) > 3


def test_megatron_layout_has_the_same_documents():
    for split in "train", "val":
        same_documents(read_megatron(f"{export('megatron')}/{split}"), split)


def test_datatrove_layout_has_the_same_documents():
    for split in "train", "val":
        path = f"{export('datatrove')}/{split}.ds"
        ids, ends = np.fromfile(path, "<u2"), np.fromfile(path + ".index", "<u8")
        same_documents(np.split(ids, ends)[:-1], split)
        name, count = open(path + ".metadata").read().splitlines()[:2]
        assert name == "gpt2|2" and int(count) == len(ids)


def test_megatron_itself_reads_the_same_documents():
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    for split in "train", "val":
        indexed = IndexedDataset(f"{export('megatron')}/{split}")
        same_documents([indexed[i] for i in range(len(indexed))], split)


def test_datatrove_itself_reads_the_same_ids():
    from datatrove.utils.dataset import DatatroveFileDataset
    for split in "train", "val":
        rows = DatatroveFileDataset(f"{export('datatrove')}/{split}.ds", seq_len=99, return_positions=False)
        want = ids_of(dataset(), split)
        assert len(rows) == len(want) // 100
        for i in range(len(rows)):
            assert np.array_equal(rows[i]["input_ids"], want[i * 100 : i * 100 + 100])


def test_import_of_each_export_is_the_same_dataset():
    for name in FORMATS:
        run("import-tokens", "-q", "--format", name, "-o", "back-" + name, export(name))
        run("verify", "-q", "back-" + name)
        run("diff", "--ids", dataset(), "back-" + name)
        facts = [json.loads(run("info", "--json", path)) for path in (dataset(), "back-" + name)]
        for key in "train_tokens", "val_tokens", "train_documents", "val_documents", "source_bytes", "vocab_fp":
            assert facts[0][key] == facts[1][key], (name, key)
    for workers in "1", "7":  # the bytes depend on the ids only
        run("import-tokens", "-q", "-j", workers, "--format", "npy", "-o", "workers" + workers, export("npy"))
    run("diff", "workers1", "workers7")


def test_import_reads_what_the_other_tools_write(folder):
    random.seed(5)
    documents = [[random.randrange(50256) for _ in range(n)] for n in (3, 0, 700, 1)]
    after = np.concatenate([document + [EOT] for document in documents]).astype("<u2")
    before = np.concatenate([[EOT] + document for document in documents]).astype("<u2")

    os.makedirs(f"{folder}/numpy/sub")
    np.save(f"{folder}/numpy/a.npy", after[:100])
    np.save(f"{folder}/numpy/b.npy", after[100:])
    np.save(f"{folder}/numpy/sub/x_val.npy", after)
    run("import-tokens", "-q", "--format", "npy", "-o", f"{folder}/1", f"{folder}/numpy")
    assert np.array_equal(ids_of(f"{folder}/1", "train"), after) and np.array_equal(ids_of(f"{folder}/1", "val"), after)

    # llmc cuts documents anywhere between its files
    for i, part in enumerate((before[:300], before[300:])):
        header = np.zeros(256, "<i4")
        header[:3] = 20240520, 1, len(part)
        with open(f"{folder}/fineweb_train_{i:06}.bin", "wb") as file:
            file.write(header.tobytes() + part.tobytes())
    run("import-tokens", "-q", "--format", "llmc", "-o", f"{folder}/2", *sorted(glob.glob(f"{folder}/fineweb*")))
    assert np.array_equal(ids_of(f"{folder}/2", "train"), after)

    # Megatron without --append-eod, a document of several sequences, and an empty document
    lengths, bounds = [3, 400, 300, 1], [0, 1, 1, 3, 4]
    offsets = np.cumsum([0] + lengths[:-1]) * 2
    with open(f"{folder}/text_document.idx", "wb") as file:
        file.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 4, 5))
        file.write(np.array(lengths, "<i4").tobytes() + offsets.astype("<i8").tobytes() + np.array(bounds, "<i8").tobytes())
    np.concatenate(documents).astype("<u2").tofile(f"{folder}/text_document.bin")
    run("import-tokens", "-q", "--format", "megatron", "-o", f"{folder}/3", f"{folder}/text_document.bin")
    assert np.array_equal(ids_of(f"{folder}/3", "train"), after)

    # a stream
    shard = run("import-tokens", "-q", "--format", "nanogpt", "-o", "-", "-", stdin=after.tobytes())
    assert run("cat", "-", stdin=shard) == after.tobytes()


def test_damaged_files_are_refused_and_leave_nothing(folder):
    """Any byte of a header or an index changed, any cut: 65, or a dataset that verify accepts."""
    random.seed(3)
    for name, file, end in (
        ("npy", "train.npy", ""),
        ("llmc", "train_000000.bin", ""),
        ("megatron", "train.bin", ".idx"),
        ("datatrove", "train.ds", ".index"),
    ):
        changed = file.replace(".bin", ".idx") if end == ".idx" else file + end
        whole = open(os.path.join(export(name), changed), "rb").read()
        if end:
            os.symlink(os.path.abspath(os.path.join(export(name), file)), f"{folder}/{file}")
        head = 128 if name == "npy" else 12 if name == "llmc" else len(whole)
        refused = 0
        for _ in range(20):
            data = bytearray(whole)
            if random.random() < 0.3:
                del data[random.randrange(len(data)) :]
            else:
                data[random.randrange(head)] = random.randrange(256)
            open(f"{folder}/{changed}", "wb").write(data)
            done = subprocess.run([TOOL, "import-tokens", "-q", "-j", "1", "--force", "--format", name, "-o", f"{folder}/out", f"{folder}/{file}"],
                                  capture_output=True)
            assert done.returncode in (0, 65), (name, done.returncode, done.stderr)
            if done.returncode:
                refused += 1
                assert file in done.stderr.decode(), done.stderr
                assert not glob.glob(f"{folder}/out/*/*/*")
            else:
                run("verify", "-q", f"{folder}/out")
                subprocess.run(["rm", "-r", f"{folder}/out"], check=True)
        assert refused > 3, (name, refused)

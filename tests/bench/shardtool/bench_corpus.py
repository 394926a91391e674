"""Real mixed text out of Debian packages, as documents: load(folder, wanted) -> {"english": [bytes...], "code": ..., "other": ...}.

Packages come by apt-get download into folder/debs and stay there. Documents are pieces of files of at most 8 KiB, cut at
blank lines, each only once; what a group has beyond its size is left out, evenly over the files.
"""
import glob
import gzip
import hashlib
import html
import io
import os
import random
import re
import subprocess
import tarfile

MB = 1_000_000
SIZES = {"english": 52 * MB, "code": 25 * MB, "other": 20 * MB}
PACKAGES = [  # group, package, which files
    ("english", "anarchism", r"\.html$"),
    ("english", "dict-gcide", r"\.dict\.dz$"),
    ("english", "debian-handbook", r"/en-US/.*\.html$"),
    ("english", "perl-doc", r"(/man/.*\.3perl|/man/.*\.1)\.gz$|\.pod$"),
    ("english", "linux-doc-6.1", r"/_sources/.*\.txt(\.gz)?$"),
    ("code", "libpython3.11-stdlib", r"\.py$"),
    ("code", "python3.11-doc", r"/_sources/.*\.txt$"),
    ("code", "python3.11-doc", r"/html/.*\.html$"),
    ("other", "debian-handbook", r"/html/(?!en-US).*\.html$"),
] + [("other", f"libreoffice-help-{code}", r"\.html$") for code in "ru zh-cn ja ko hi el de tr vi".split()]

TAGS = re.compile(r"(?s)<(script|style)\b.*?</\1>|<!--.*?-->|<[^>]*>")


def fetch(folder, package):
    found = glob.glob(os.path.join(folder, package + "_*.deb"))
    if not found:
        os.makedirs(folder, exist_ok=True)
        subprocess.run(["apt-get", "-q", "download", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        found = glob.glob(os.path.join(folder, package + "_*.deb"))
    return found[0]


def texts(deb, pattern):
    tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], check=True, stdout=subprocess.PIPE).stdout
    for member in tarfile.open(fileobj=io.BytesIO(tar)):
        if not member.isfile() or not re.search(pattern, member.name):
            continue
        data = tar[member.offset_data : member.offset_data + member.size]
        if member.name.endswith((".gz", ".dz")):
            data = gzip.decompress(data)
        text = data.decode("utf-8", "replace")
        if member.name.endswith(".html"):
            text = re.sub(r"\n\s*\n+", "\n\n", html.unescape(TAGS.sub("", text))).strip()
        yield text


def documents(text):
    part = []
    size = 0
    for block in re.split(r"(?<=\n\n)", text):
        if size + len(block) > 8192 and part:
            yield "".join(part).encode()
            part, size = [], 0
        part.append(block)
        size += len(block)
    if part:
        yield "".join(part).encode()


def load(folder, wanted=tuple(SIZES)):
    groups = {}
    seen = set()
    for group, package, pattern in (row for row in PACKAGES if row[0] in wanted):
        for text in texts(fetch(os.path.join(folder, "debs"), package), pattern):
            for document in documents(text):
                digest = hashlib.sha256(document).digest()
                if document and digest not in seen:
                    seen.add(digest)
                    groups.setdefault(group, []).append(document)
    chosen = {}
    for group, items in groups.items():
        random.Random(1).shuffle(items)
        size = 0
        chosen[group] = []
        for document in items:
            if size + len(document) <= SIZES[group]:
                size += len(document)
                chosen[group].append(document)
    return chosen


def write_parquet(path, documents, rows, options):
    """The columns of FineWeb, with groups of so many rows; the options are those of pyarrow's writer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n = len(documents)
    table = pa.table({
        "text": [document.decode() for document in documents],
        "id": [f"<urn:uuid:{i:032x}>" for i in range(n)],
        "dump": ["CC-MAIN-2024-10"] * n,
        "url": [f"https://example.org/{i}" for i in range(n)],
        "language": ["en"] * n,
        "language_score": [0.65 + i % 100 / 300 for i in range(n)],
        "token_count": [len(document) // 4 for document in documents],
    })  # fmt: skip
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        for batch in table.to_batches(max_chunksize=rows):
            writer.write_batch(batch, rows)


if __name__ == "__main__":
    for group, items in load("build/bench").items():
        print(group, len(items), sum(map(len, items)))

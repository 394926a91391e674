#!/usr/bin/env bash
# Behaviour: datatrove 0.10.1 gives text to xxhash as str, which xxhash 4 refuses. Without its extra `processing`, which asks for
#   xxhash below 4, a fresh install has it, and MinHash, exact, sentence and Bloom-filter deduplication with the default hash end with
#   a TypeError.
#   hash_fc="sha1" works with both. xxhash 3.6.0 hashes a str as its UTF-8, so the values of old signatures are those of bytes.
# Guess: a fresh install of the current release works; a new major version of a hash changes names at most, not what it takes.
# Versions: datatrove 0.10.1 with xxhash 4.1.0 and 3.6.0
# Date: 2026-11-27
# Output seen:
#   xxhash 4.1.0: xxhash64 of str: TypeError: Strings must be encoded before hashing
#   xxhash 4.1.0: exact deduplication: the same TypeError
#   xxhash 4.1.0: sha1 of str: a number
#   xxhash 3.6.0: xxhash64 of str is that of its UTF-8; exact deduplication writes its signatures
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check datatrove==0.10.1 xxhash==4.1.0 numpy==2.4.6 regex==2026.11.19 tokenizers==0.23.3
cat >hash.py <<'END'
import sys, xxhash
from datatrove.data import Document
from datatrove.pipeline.dedup.exact_dedup import ExactDedupConfig, ExactDedupSignature
from datatrove.utils.hashing import HashConfig, create_hash_func

def says(what, function):
    try:
        result = function()
    except TypeError as error:
        print(f"xxhash {xxhash.VERSION}: {what}: TypeError: {error}")
        return None
    print(f"xxhash {xxhash.VERSION}: {what}: {result}")
    return result

ok = xxhash.VERSION < "4"
hashed = says("xxhash64 of str", lambda: create_hash_func(HashConfig())("the river"))
signed = says("exact deduplication", lambda: ExactDedupSignature("signatures", ExactDedupConfig(content_getter=lambda document: document.text)).run([Document(text="the river", id="0")], 0, 1) or "done")
sha1 = says("sha1 of str", lambda: create_hash_func(HashConfig(hash_fc="sha1"))("the river"))
sys.exit(bool(hashed) != ok or bool(signed) != ok or not sha1 or ok and hashed != xxhash.xxh64_intdigest(b"the river"))
END
venv/bin/python hash.py
venv/bin/pip install --quiet --disable-pip-version-check xxhash==3.6.0
venv/bin/python hash.py

"""A second implementation of dedup --similar and of decontaminate: words, shingles, bands, the greedy order, windows."""
import re
import unicodedata

import xxhash

SHINGLE, PERMUTATIONS, BANDS, ROWS, KEPT_MAX = 5, 112, 22, 5, 32
PRIME = (1 << 61) - 1
NUMBER = re.compile(r"\d+([.,،٫⎖⎗⎘]\d+)?")
WITHOUT_BLANKS = "CJK UNIFIED", "CJK COMPATIBILITY", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "IDEOGRAPHIC", "THAI", "LAO", "KHMER", "MYANMAR"


def fold(character):
    """What stands for a character after lower case and numbers."""
    category = unicodedata.category(character)
    if category[0] in "PSZ" or category in ("Cc", "Cs"):
        return " "
    folded = "".join(part for part in unicodedata.normalize("NFD", character) if unicodedata.category(part) != "Mn")
    if category not in ("Cn", "Co", "Nd") and unicodedata.name(character, "").startswith(WITHOUT_BLANKS):
        return f" {folded} "
    return folded


def words(text):
    seen = "".join(part for part in text.lower().replace("ς", "σ") if unicodedata.category(part) not in ("Mn", "Cf"))
    text = NUMBER.sub("0", seen)
    return "".join(map(fold, text)).split(" ")


def normal(text):
    return " ".join(filter(None, words(text)))


def shingles(text, length=SHINGLE):
    """The hashes of `length` words in a row, in order."""
    parts = normal(text).split()
    if not parts:
        return []
    length = min(length, len(parts))
    return [xxhash.xxh64_intdigest(" ".join(parts[i : i + length]).encode()) for i in range(len(parts) - length + 1)]


def permutations():
    import numpy

    draws = numpy.random.RandomState(1)
    pairs = [(draws.randint(1, PRIME, dtype=numpy.uint64), draws.randint(0, PRIME, dtype=numpy.uint64)) for _ in range(PERMUTATIONS)]
    return numpy.array(pairs, dtype=numpy.uint64).T


def values(hashes, factors_and_summands):
    """As MinhashDedupSignature.get_signature of datatrove."""
    import numpy

    factors, summands = factors_and_summands
    return ((numpy.array(hashes, dtype=numpy.uint64).reshape(-1, 1) * factors + summands) % numpy.uint64(PRIME)).min(axis=0)


def jaccard(a, b):
    shared = len(a & b)
    return shared / (len(a) + len(b) - shared)


def pairs_at_least(sets, least):
    """{(i, j): similarity} of all pairs i < j, by counting the documents of each shingle."""
    places, found = {}, {}
    for j, shingle_set in enumerate(sets):
        counts = {}
        for shingle in shingle_set:
            for i in places.get(shingle, ()):
                counts[i] = counts.get(i, 0) + 1
            places.setdefault(shingle, []).append(j)
        for i, shared in counts.items():
            similarity = shared / (len(sets[i]) + len(shingle_set) - shared)
            if similarity >= least:
                found[i, j] = similarity
    return found


def greedy(count, pairs):
    """{removed: kept} when every pair is known: a document goes when an earlier one that stays is similar."""
    earlier = {}
    for i, j in sorted(pairs):
        earlier.setdefault(j, []).append(i)
    removed = {}
    for j in range(count):
        kept = [i for i in earlier.get(j, ()) if i not in removed]
        if kept:
            removed[j] = kept[0]
    return removed


def near_duplicates(lists, signatures, least):
    """{removed: (kept, similarity)} as dedup --similar finds them, from the shingles of each document and their MinHash; comparisons."""
    tables, removed, comparisons = {}, {}, 0
    sets = [set(hashes) for hashes in lists]
    for number, signature in enumerate(signatures):
        if signature is None:
            continue
        groups = [tables.setdefault((band, tuple(signature[band * ROWS : band * ROWS + ROWS])), []) for band in range(BANDS)]
        for kept in sorted({kept for group in groups for kept in group}):
            sizes = sorted((len(sets[number]), len(sets[kept])))
            if sizes[0] / sizes[1] < least:
                continue
            comparisons += 1
            similarity = jaccard(sets[number], sets[kept])
            if similarity >= least:
                removed[number] = kept, similarity
                break
        else:
            for group in groups:
                if len(group) < KEPT_MAX:
                    group.append(number)
    return removed, comparisons


def contaminated(texts, items, length=13, least_words=8):
    """{document: (item, share)} as decontaminate finds them."""
    windows = {}
    for number, item in enumerate(items):
        count = len(normal(item).split())
        if count >= min(length, least_words):
            windows[number] = min(length, count), set(shingles(item, min(length, count)))
    found = {}
    for document, text in enumerate(texts):
        own = {}
        for number, (size, item_windows) in windows.items():
            if size not in own:
                own[size] = set(shingles(text, size)) if len(normal(text).split()) >= size else set()
            share = len(item_windows & own[size]) / len(item_windows)
            if share >= 0.5 and share > found.get(document, (0, 0))[1]:
                found[document] = number, share
    return found

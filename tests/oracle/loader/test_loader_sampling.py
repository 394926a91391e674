"""An independent implementation of the sampling modes, written from the specification in loader/protocol/sampling.h.

It is compared with the vectors in that header, which the C tests compare with the C code.

Run with --write to replace the line "//   @vectors@" in the header by new vectors."""
import pathlib
import re
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
import runner

HEADER = pathlib.Path(__file__).resolve().parents[3] / "loader" / "protocol" / "sampling.h"
M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k[0], p1 & M32, p0 >> 32 ^ c[3] ^ k[1], p0 & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


def words(x):
    return [x & M32, x >> 32]


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & M64
    return z ^ z >> 31


def permute(seed, epoch, stage, m, x):
    if m == 1:
        return 0
    h = ((m - 1).bit_length() + 1) // 2
    keys = philox([0, stage, *words(epoch)], words(seed)) + philox([1, stage, *words(epoch)], words(seed))
    while True:
        left, right = x >> h, x & ((1 << h) - 1)
        for key in keys:
            left, right = right, left ^ mix(key << 32 | right) >> (64 - h)
        x = left << h | right
        if x < m:
            return x


def crop(seed, split, n, t, index):
    out = philox([*words(index), *words(split)], words(seed))
    return (out[1] << 32 | out[0]) * (n - t) >> 64


def sequential(seed, split, n, t, index):
    return index * t


def epoch(seed, split, n, t, sample):
    return block(seed, (n - 1) // t, t, sample) * t


def permuted(seed, split, n, t, sample):
    return permute(seed, 0, 0, (n - 1) // t, sample) * t


def shifted(seed, split, n, t, sample):
    blocks, m = max(1, n // t - 1), min(t, n - t)
    e = sample // blocks
    return permute(seed, e // m, 2**32 - 1, m, e % m) + block(seed, blocks, t, sample) * t


def row(mode, ids, seed, split, t, sample, eot=50256):
    """The T+1 ids of a sample of the split `ids`."""
    n = len(ids)
    if mode == "documents":
        begin = shifted(seed, split, n, t, sample)
        starts = [i for i in range(begin, begin + t) if ids[i] == eot and i + t < n]
        first = starts[0] if starts else begin
    else:
        first = globals()[mode](seed, split, n, t, sample)
    return ids[first : first + t + 1]


def block(seed, n, t, sample):
    """The block of a sample, of `n` in an epoch."""
    e, p = divmod(sample, n)
    most = max(1, 2**18 // t)
    groups = (n - 1) // (64 * most) + 1
    j = next(j for j in range(p * groups // n, groups) if (j + 1) * n // groups > p)
    begin, size = j * n // groups, (j + 1) * n // groups - j * n // groups
    k = n // (64 * groups)
    q = permute(seed, e, 64 + j, size, p - begin)
    if q < 64 * k:
        i = q // k
        return (i * groups + permute(seed, e, i, groups, j)) * k + q % k
    first = 64 * groups * k
    r = n - first
    s = permute(seed, e, 2**32 - 2, r, e % r)
    return first + (begin + q - 64 * k * (j + 1) + s) % r


CASES = [
    ("crop", 1337, 0, 301966, 256, 0),
    ("crop", 1337, 1, 301966, 256, 12345678901),
    ("crop", 18446744073709551615, 0, 9035582198, 1024, 1000000000),
    ("epoch", 1337, 0, 301966, 256, 5),
    ("epoch", 1337, 0, 9035582198, 1024, 1000000000),
    ("epoch", 42, 0, 33554433, 1000, 33553),
    ("epoch", 42, 0, 33554433, 1000, 33554 * 3 + 17),
    ("epoch", 7, 1, 5000, 100, 123),
    ("epoch", 7, 0, 9223372036854775807, 1024, 9007199254740991),
    ("permuted", 1337, 1, 301966, 256, 0),
    ("permuted", 1337, 1, 301966, 256, 1178),
    ("permuted", 1337, 1, 9035582198, 1024, 1000000),
    ("shifted", 1337, 0, 301966, 256, 5),
    ("shifted", 1337, 0, 9035582198, 1024, 1000000000),
    ("shifted", 42, 0, 1500, 1000, 123456),
    ("shifted", 7, 0, 28389, 64, 442 * 3 + 25),
    ("sequential", 0, 1, 301966, 256, 0),
    ("sequential", 0, 1, 301966, 256, 1178),
    ("sequential", 0, 1, 4434606, 1024, 4329),
]


def line(case):
    mode, seed, split, n, t, sample = case
    return f"//   {mode} {seed} {split} {n} {t} {sample} -> {globals()[mode](seed, split, n, t, sample)}"


def test_the_header_contains_these_vectors():
    text = HEADER.read_text()
    for case in CASES:
        assert line(case) in text, line(case)
    assert len(re.findall(r"^//   \w+ \d+ \d \d+ \d+ \d+ -> \d+$", text, re.M)) == len(CASES)


def test_an_epoch_has_every_block_once():
    for n, t in [(1, 1), (5000, 7), (70001, 64)]:
        blocks = n and (n - 1) // t
        for e in (0, 3):
            got = sorted(epoch(9, 0, n, t, e * blocks + i) for i in range(blocks))
            assert got == [i * t for i in range(blocks)]


def test_the_blocks_of_t_epochs_begin_at_every_shift_once():
    for n, t in [(2, 1), (11, 10), (700, 7), (2000, 64), (127, 64)]:
        blocks, m = max(1, n // t - 1), min(t, n - t)
        shifts = set()
        for e in range(3 * m, 4 * m):
            got = sorted(shifted(9, 0, n, t, e * blocks + i) for i in range(blocks))
            assert got == [got[0] + i * t for i in range(blocks)] and got[-1] + t < n
            shifts.add(got[0])
        assert shifts == set(range(m))


if __name__ == "__main__":
    if "--write" in sys.argv:
        body = "\n".join(line(case) for case in CASES)
        HEADER.write_text(HEADER.read_text().replace("//   @vectors@", body))
        sys.exit()
    runner.main(globals())

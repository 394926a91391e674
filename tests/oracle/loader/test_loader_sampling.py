"""An independent implementation of the sampling modes, written from the specification in loader/protocol/sampling.h.

It is compared with the vectors in that header, which the C tests compare with the C code.

Run as a program to replace the line "//   @vectors@" in the header by new vectors."""
import pathlib
import re


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


def permute(seed, epoch, stage, m, x, c=0):
    if m == 1:
        return 0
    h = ((m - 1).bit_length() + 1) // 2
    keys = philox([2 * c, stage, *words(epoch)], words(seed)) + philox([2 * c + 1, stage, *words(epoch)], words(seed))
    while True:
        left, right = x >> h, x & ((1 << h) - 1)
        for key in keys:
            left, right = right, left ^ mix(key << 32 | right) >> (64 - h)
        x = left << h | right
        if x < m:
            return x


def crop(seed, split, n, t, index, c=0):
    out = philox([*words(index), split, c], words(seed))
    return (out[1] << 32 | out[0]) * (n - t) >> 64


def sequential(seed, split, n, t, index, c=0):
    return index * t


def epoch(seed, split, n, t, sample, c=0):
    return block(seed, (n - 1) // t, t, sample, c) * t


def permuted(seed, split, n, t, sample, c=0):
    return permute(seed, 0, 0, (n - 1) // t, sample) * t


def shifted(seed, split, n, t, sample, c=0):
    blocks, m = max(1, n // t - 1), min(t, n - t)
    e = sample // blocks
    return permute(seed, e // m, 2**32 - 1, m, e % m, c) + block(seed, blocks, t, sample, c) * t


def rest(seed, split, n, t, sample, c=0):
    return n - t - 1


def documents(seed, split, n, t, sample, c=0, is_end=lambda position: position % 100 == 7):
    begin = shifted(seed, split, n, t, sample, c)
    return next((i for i in range(begin, begin + t) if is_end(i) and i + t < n), begin)


def row(mode, ids, seed, split, t, sample, eot=50256, c=0):
    """The T+1 ids of a sample of the split `ids`."""
    n = len(ids)
    if mode == "documents":
        first = documents(seed, split, n, t, sample, c, lambda position: ids[position] == eot)
    else:
        first = globals()[mode](seed, split, n, t, sample, c)
    return ids[first : first + t + 1]


def block(seed, n, t, sample, c=0):
    """The block of a sample, of `n` in an epoch."""
    e, p = divmod(sample, n)
    most = max(1, 2**18 // t)
    groups = (n - 1) // (64 * most) + 1
    j = next(j for j in range(p * groups // n, groups) if (j + 1) * n // groups > p)
    begin, size = j * n // groups, (j + 1) * n // groups - j * n // groups
    k = n // (64 * groups)
    q = permute(seed, e, 64 + j, size, p - begin, c)
    if q < 64 * k:
        i = q // k
        return (i * groups + permute(seed, e, i, groups, j, c)) * k + q % k
    first = 64 * groups * k
    r = n - first
    s = permute(seed, e, 2**32 - 2, r, e % r, c)
    return first + (begin + q - 64 * k * (j + 1) + s) % r


CASES = [
    ("crop", 1337, 0, 0, 301966, 256, 0),
    ("crop", 1337, 1, 0, 301966, 256, 12345678901),
    ("crop", 18446744073709551615, 0, 0, 9035582198, 1024, 1000000000),
    ("epoch", 1337, 0, 0, 301966, 256, 5),
    ("epoch", 1337, 0, 0, 9035582198, 1024, 1000000000),
    ("epoch", 42, 0, 0, 33554433, 1000, 33553),
    ("epoch", 42, 0, 0, 33554433, 1000, 33554 * 3 + 17),
    ("epoch", 7, 1, 0, 5000, 100, 123),
    ("epoch", 7, 0, 0, 9223372036854775807, 1024, 9007199254740991),
    ("permuted", 1337, 1, 0, 301966, 256, 0),
    ("permuted", 1337, 1, 0, 301966, 256, 1178),
    ("permuted", 1337, 1, 0, 9035582198, 1024, 1000000),
    ("shifted", 1337, 0, 0, 301966, 256, 5),
    ("shifted", 1337, 0, 0, 9035582198, 1024, 1000000000),
    ("shifted", 42, 0, 0, 1500, 1000, 123456),
    ("shifted", 7, 0, 0, 28389, 64, 442 * 3 + 25),
    ("documents", 1337, 0, 0, 301966, 256, 5),
    ("documents", 1337, 0, 0, 28389, 64, 1351),
    ("documents", 1337, 0, 0, 28389, 64, 1353),
    ("crop", 1337, 0, 1, 301966, 256, 0),
    ("epoch", 1337, 0, 1, 301966, 256, 5),
    ("epoch", 1337, 0, 15, 9035582198, 1024, 1000000000),
    ("shifted", 1337, 0, 2, 301966, 256, 5),
    ("documents", 1337, 0, 3, 301966, 256, 5),
    ("permuted", 1337, 1, 3, 301966, 256, 0),
    ("sequential", 0, 1, 0, 301966, 256, 0),
    ("sequential", 0, 1, 0, 301966, 256, 1178),
    ("sequential", 0, 1, 0, 4434606, 1024, 4329),
    ("rest", 0, 1, 0, 4434606, 1024, 0),
]


def line(case):
    mode, seed, split, c, n, t, sample = case
    return f"//   {mode} {seed} {split} {c} {n} {t} {sample} -> {globals()[mode](seed, split, n, t, sample, c)}"


def test_the_page_has_the_numbers_of_the_modes():
    table = (HEADER.parent / "sampling_mode.h").read_text()
    numbers = sorted((int(number), word) for word, number in re.findall(r"^    MODE\(\w+, (\w+), (\d+),", table, re.M))
    page = " ".join((HEADER.parents[2] / "docs/formats.md").read_text().split())
    assert len(numbers) == 7 and ", ".join(f"{word} {number}" for number, word in numbers) in page, numbers


def test_the_header_contains_these_vectors():
    text = HEADER.read_text()
    for case in CASES:
        assert line(case) in text, line(case)
    assert len(re.findall(r"^//   \w+ \d+ \d \d+ \d+ \d+ \d+ -> \d+$", text, re.M)) == len(CASES)


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
    HEADER.write_text(HEADER.read_text().replace("//   @vectors@", "\n".join(line(case) for case in CASES)))

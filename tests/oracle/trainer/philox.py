"""The random numbers of common/rng.h over arrays, and the ids of fixture_trainer.h."""
import math

import numpy as np


def philox(counter, key):
    """Philox4x32-10; counter: four arrays of words; key: two words."""
    c, k, mask = [i.astype(np.uint64) for i in counter], key, np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p, q = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(q >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]), q & mask, (p >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]), p & mask]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def words(seed, stream, index):
    counter = [index & 0xFFFFFFFF, index >> 32, np.full_like(index, stream & 0xFFFFFFFF), np.full_like(index, stream >> 32)]
    return philox(counter, [seed & 0xFFFFFFFF, seed >> 32])


def normal(seed, stream, count):
    w = words(seed, stream, np.arange(count, dtype=np.int64))
    u = (((w[1] << np.uint64(32) | w[0]) >> np.uint64(11)).astype(np.float64) + 1) * 2.0**-53
    v = ((w[3] << np.uint64(32) | w[2]) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.sqrt(-2 * np.log(u)) * np.cos(2 * math.pi * v)


def rows(split, first, count, T, vocab):
    """Inputs and targets (count,T) of test_row_id, from sample `first` on."""
    w = words(99, split, np.arange(first * T, (first + count) * T + 1, dtype=np.int64))
    ids = ((w[1] << np.uint64(32) | w[0]) % np.uint64(vocab)).astype(np.int64)
    return ids[:-1].reshape(count, T), ids[1:].reshape(count, T)

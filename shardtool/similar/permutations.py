#!/usr/bin/env python3
"""Writes permutations.def, the permutations of datatrove 0.10.1 with its seed 1: python3 shardtool/similar/permutations.py > shardtool/similar/permutations.def
Needs numpy, whose RandomState has the same numbers in all versions."""
import numpy

PRIME = (1 << 61) - 1
draws = numpy.random.RandomState(1)
print("// PERMUTATION(factor, summand): made by permutations.py. Do not edit.")
for _ in range(112):
    factor, summand = draws.randint(1, PRIME, dtype=numpy.uint64), draws.randint(0, PRIME, dtype=numpy.uint64)
    print(f"PERMUTATION(0x{factor:016X}, 0x{summand:016X})")

"""Some configurations of `make combinations` keep its laws. SEEDS="1 2" takes other ones."""
import collections
import os

import runner
import combinations

SEEDS = os.environ.get("SEEDS", "12 23 50 55 67 79 97").split()


@runner.ci
def test_random_configurations_keep_what_the_documentation_promises(place):
    tool, counts, found = combinations.Tool(os.environ["BIN"], place), collections.Counter(), 0
    for seed in SEEDS:
        case, violations = combinations.check_seed(tool, int(seed), counts)
        case.close()
        found += violations
    assert not found, f"{found} violations"
    if not tool.has_ranks:
        raise runner.Skip("all but those of several processes were run: built without MPI, or mpirun is not installed")

#!/usr/bin/env bash
# Behaviour: OMP_PROC_BIND and OMP_PLACES are meant for the threads of OpenMP. Where a package brings GNU OpenMP, as scikit-learn and
#   torch do, `import` alone binds the program's main thread to one processor, before any parallel region. All that the thread starts
#   inherits that: polars has one thread, multiprocessing and DataLoaders run all workers on one processor, nproc prints 1.
# Guess: the main thread is bound in the first parallel region, if at all, and no import changes what other programs may use.
# Versions: scikit-learn 1.8.0, polars 2.1.0; Python 3.11.7. torch 2.15.0 did the same (by hand)
# Date: 2026-11-28
# Output seen (with two processors):
#   no variable: 2 processors at the start, 2 after the import, 2 threads of polars, nproc 2
#   OMP_PROC_BIND=true: 2 processors at the start, 1 after the import, 1 threads of polars, nproc 1
#   OMP_PROC_BIND=spread: 2 processors at the start, 1 after the import, 1 threads of polars, nproc 1
#   OMP_PLACES=cores: 2 processors at the start, 1 after the import, 1 threads of polars, nproc 1
set -eu
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT && cd "$dir"
[ "$(nproc)" -gt 1 ] || { echo "this needs two processors" && exit 1; }
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check scikit-learn==1.8.0 polars==2.1.0 numpy==2.4.6
cat >look.py <<'END'
import os, subprocess, sys
start = len(os.sched_getaffinity(0))
import sklearn.cluster
after = len(os.sched_getaffinity(0))
import polars
nproc = int(subprocess.check_output("nproc"))
print(f"{sys.argv[1]}: {start} processors at the start, {after} after the import, {polars.thread_pool_size()} threads of polars, nproc {nproc}")
want = start if sys.argv[1] == "no variable" else 1
raise SystemExit([after, polars.thread_pool_size(), nproc] != [want] * 3)
END
unset OMP_PROC_BIND OMP_PLACES GOMP_CPU_AFFINITY OMP_NUM_THREADS POLARS_MAX_THREADS
venv/bin/python look.py "no variable"
for variable in OMP_PROC_BIND=true OMP_PROC_BIND=spread OMP_PLACES=cores; do
    env "$variable" venv/bin/python look.py "$variable"
done

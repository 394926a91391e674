#!/usr/bin/env bash
# The tests, one closing line: run.sh [--no-python] BUILD [WORD]. C tests (cmocka), command-line tests (bats), Python tests
# against tiktoken and others, and the CUDA backend in the emulator. run.sh --planted-bugs BUILD [WORD]: only that the emulator's tests
# catch the bugs of mutant.sh. run.sh --peers BUILD [WORD]: only the files with a line `# peers: NAMES`, of which none may be
# skipped. run.sh --caps BUILD [WORD]: only the files that start a trainer, under each lower instruction set of this processor.
# TIER: `test`, without the tests that are marked `ci`; `ci`, only those; or `all`, which a WORD implies.
# A job is a program, a file or one emulated test; two more run side by side than there are cores, as many wait. Each job
# writes a row for each of its tests: passed, failed or skipped, milliseconds, suite, test, reason; and the time that it took of the
# processors, which depends less on what else runs. What this machine cannot run is skipped by name, never passed.
set -u
cd "$(dirname "$0")/.." || exit 2
suites=all
case ${1:-} in --*) suites=${1#--} && shift ;; esac
export build=$1 word=${2:-}
export TIER=${TIER:-$([ -n "$word" ] && echo all || echo test)}
export BIN="$PWD/$build/bin" DATA="$PWD/tests/data" LOGS
export emulator=${EMULATOR:-$build} # the build with the emulated backend
mkdir -p "$BIN"
LOGS=$(mktemp -d) && trap 'rm -rf "$LOGS"' EXIT
export FIXTURES=$LOGS/fixtures && mkdir "$FIXTURES" # what several files need is made once (helpers.bash)

# The rows of a log. cmocka names a failed test twice; a skipped one has a line of its own.
rows_of_c() {
    awk -v OFS='\t' '
        /^took / { ms[$2] = $3 }
        /^skipped / { name = $2; sub(/:$/, "", name); sub(/^skipped [^ ]* /, ""); print "skipped", 0, "C", name, $0 }
        /^\[       OK \] / { passed[$4] }
        /^\[  FAILED  \] [^ ]*$/ { failed[$4] }
        /^\[ RUN      \] / { running = $4 }
        /^\[/ && !/^\[ RUN/ && !/^\[===/ { running = "" }
        END {
            for (name in passed) print "passed", ms[name] + 0, "C", name
            for (name in failed) print "failed", ms[name] + 0, "C", name
            if (running) print "failed", 0, "C", running " (the program ended in this test)"
        }' "$1"
}
rows_of_bats() { # LOG SUITE
    sed -nE -e "s|^not ok [0-9]+ (.*) in ([0-9]+)ms$|failed\t\2\t$2\t\1|p" \
        -e "s|^ok [0-9]+ (.*) in ([0-9]+)ms # skip ?(.*)$|skipped\t\2\t$2\t\1\t\3|p" -e "s|^ok [0-9]+ (.*) in ([0-9]+)ms$|passed\t\2\t$2\t\1|p" "$1"
}
rows_of_python() { # LOG SUITE
    sed -nE -e "s|^not ok (\S+) ([0-9]+)$|failed\t\2\t$2\t\1|p" -e "s|^ok (\S+) ([0-9]+)$|passed\t\2\t$2\t\1|p" \
        -e "s|^skipped (\S+): (.*)$|skipped\t0\t$2\t\1\t\2|p" "$1"
}

# What makes this processor compute as a lower one: each level of cpu.c's table below its own, and oneDNN without AMX.
caps() {
    local isa own
    own=$("$BIN/trainer" doctor --device=cpu | sed -nE 's/^[a-z]+ +device .*\((\w+).*/\1/p')
    for isa in $(sed -nE 's/.* names\[\] = \{(.*)\};/\1/p' common/machine/cpu.c | tr -d '",'); do
        [ "$isa" != "$own" ] || break
        echo "MILLRACE_ISA=$isa"
    done
    ! grep -qw amx_bf16 /proc/cpuinfo || echo DNNL_MAX_CPU_ISA=AVX512_CORE_BF16
}
if [ $suites = caps ] && [ -z "$(caps)" ]; then
    printf 'this processor has no lower instruction set\n0 passed, 0 failed, 0 skipped\n'
    exit
fi

job() { # NUMBER [under CAP] KIND ARGUMENT...
    local under=
    if [ "$2" = under ]; then
        export "$3" FIXTURES=$FIXTURES/$3
        under="$3 "
        mkdir -p "$FIXTURES"
        set -- "$1" "${@:4}"
    fi
    local log=$LOGS/$1.log rows=$LOGS/$1.rows cpu=$LOGS/$1.cpu tier kind=$2 suite ms started=$EPOCHREALTIME status=0
    shift 2
    case $kind in
    c) # a test may leave memory behind, a program may not: leaks are looked for in programs only
        suite=C
        ASAN_OPTIONS=detect_leaks=0 "$build/test" --data "$DATA" --bin "$BIN" --part "$1" $word >"$log" 2>&1 || status=$?
        rows_of_c "$log" >"$rows"
        ;;
    bats)
        suite=$under$(basename "$1")
        case $TIER in test) tier='--filter-tags !ci' ;; ci) tier='--filter-tags ci' ;; *) tier= ;; esac
        bats --tap --timing $tier "$1" </dev/null >"$log" 2>&1 || status=$?
        rows_of_bats "$log" "$suite" >"$rows"
        ;;
    python)
        suite=$under$(basename "$1")
        build/venv/bin/python tests/oracle/runner.py "$1" >"$log" 2>&1 || status=$?
        rows_of_python "$log" "$suite" >"$rows"
        grep -h '^seeds ' "$log"
        ;;
    emulator)
        suite=emulator
        [ "$1" = bug ] && suite="planted bugs"
        tests/cuda/emulator/run_emulator.sh "$emulator" "$@" >"$log" 2>&1 || status=$?
        ;;
    esac
    ms=$(((${EPOCHREALTIME/./} - ${started/./}) / 1000))
    times >"$cpu" && sed -i "1d; 2s/\$/\t$ms\t$suite/" "$cpu"
    if [ $status -eq 0 ]; then
        [ "$kind" = emulator ] && printf 'passed\t%d\t%s\t%s\n' $ms "$suite" "$*" >"$rows"
        return 0
    fi
    grep -q '^failed' "$rows" 2>/dev/null ||
        printf 'failed\t%d\t%s\t%s\n' $ms "$suite" "${*:-the C tests} (exit $status)" >>"$rows"
    echo "== $suite failed: $*"
    grep -vE '^(\[ (RUN     |      OK) \]|took |ok |1\.\.)' "$log" | tail -60
}
export -f job rows_of_c rows_of_bats rows_of_python

# Long jobs first, so that the cores end together: the C tests, files that take minutes in one stage or another, and the
# trainer's files, those of several processes before the others. The emulator's tests, which are short, last.
long_first() { sort -r | awk '/kernels_|docs|trainer_faults/ { print; next } { rest = rest $0 "\n" } END { printf "%s", rest }'; }
emulator_jobs() { tests/cuda/emulator/run_emulator.sh "$emulator" "$1" | grep -E -- "$word" | sed 's/^/emulator /'; }
of_tier() { # the files that have tests of the tier
    case $TIER in test) xargs -r grep -L '^# bats file_tags=ci' ;; ci) xargs -r grep -l '^# bats .*_tags=ci' ;; *) cat ;; esac
}
jobs() {
    if [ $suites = caps ]; then
        for cap in $(caps); do
            find tests/cli/trainer tests/cli/loader -name "*$word*.bats" | of_tier | long_first | sed "s/^/under $cap bats /"
            find tests/oracle/trainer -name "test_*$word*.py" | sort | sed "s/^/under $cap python /"
        done
        return
    fi
    if [ $suites = planted-bugs ]; then
        emulator_jobs --list-bugs
        return
    fi
    if [ $suites = peers ]; then
        grep -rl --include="test_*$word*.py" '^# peers: ' tests/oracle | sed 's/^/python /'
        grep -rl --include="*$word*.bats" '^# peers: ' tests/cli | sed 's/^/bats /'
        return
    fi
    printf 'c %s\n' 1/2 2/2
    find tests/cli $([ $suites = all ] && echo tests/faults) -name "*$word*.bats" | of_tier | long_first | sed 's/^/bats /'
    [ $suites = all ] && find tests/oracle -name "test_*$word*.py" | sort | sed 's/^/python /'
    [ $suites = all ] && emulator_jobs --list
}
if [ $suites != no-python ] && [ ! -x "$emulator/test-emu" ]; then
    jobs | sed -nE 's/^emulator bug (.*)/skipped\t0\tplanted bugs\t\1\tbuilt without nvcc/p; s/^emulator (.*)/skipped\t0\temulator\t\1\tbuilt without nvcc/p' \
        >"$LOGS/emulator.rows"
    jobs | grep -v '^emulator '
else
    jobs
fi | nl -w1 -s' ' | xargs -P $(($(nproc) + 2)) -d '\n' -n 1 bash -c 'job $0'

cat "$LOGS"/*.rows >"$LOGS/all"
echo
echo "seconds of processors, and of a clock, of each suite, and the ten slowest tests:"
cat "$LOGS"/*.cpu | awk -F'\t' '
    { split($1, t, /[ms ]+/); cpu[$3] += 60 * (t[1] + t[3]) + t[2] + t[4]; sum += 60 * (t[1] + t[3]) + t[2] + t[4]; ms[$3] += $2 }
    END { for (suite in cpu) printf "%8.1f %8.1f  %s\n", cpu[suite], ms[suite] / 1000, suite; printf "%8.1f %8s  in all\n", sum, "" }' | sort -rn
sort -t$'\t' -k2,2nr "$LOGS/all" | head -10 | awk -F'\t' '{ printf "%8.1f  %s: %s\n", $2 / 1000, $3, $4 }'
awk -F'\t' '$1 == "skipped" { key = $3 ": " $5; n[key]++; names[key] = names[key] "\n    " $4 }
    END { for (key in n) printf "\nskipped %d of %s%s\n", n[key], key, names[key] }' "$LOGS/all"
awk -F'\t' '$1 == "failed" { print "\nfailed: " $3 ": " $4 }' "$LOGS/all"
echo
awk -F'\t' -v strict="$([ $suites = peers ] && echo 1)" '{ n[$1]++ } END { printf "%d passed, %d failed, %d skipped\n", n["passed"], n["failed"], n["skipped"]; exit n["failed"] > 0 || strict && n["skipped"] || !(n["passed"] + n["skipped"]) }' "$LOGS/all"

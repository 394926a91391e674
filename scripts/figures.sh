#!/usr/bin/env bash
# figures.sh PAGE...: prints each row of a table with a measured speed, time or ratio that does not name COMMIT, DATE, MACHINE in this
# order, in the row itself or in a line `Measured: ...` of its section or of the top of its page. Commits are those of the history, machines
# those of docs/measurements.md. A table whose heading says "predicted" has no measurements.
set -eu
cd "$(dirname "$0")/.."
machines=$(sed -n 's/^| \*\*\([^*]*\)\*\* |.*/\1/p' docs/measurements.md | paste -sd '|')
awk -v machines="${machines:-none}" '
    BEGIN {
        for (i = 1; i <= 7; i++) commit = commit "[0-9a-f]"
        stamp = " " commit "[ ,][^|]*20[0-9][0-9]-[01][0-9]-[0-3][0-9], ([^|]* )?(" machines ")([^A-Za-z0-9]|$)"
    }
    FNR == 1 { page = "" }
    /^#/ { measured = /^# / ? "" : page; top = /^# / }
    /^Measured: / { measured = $0; if (top) page = $0 }
    !/^\|/ { row = 0; next }
    ++row == 1 { heading = $0 }
    row > 2 && heading !~ /predicted/ && heading " " $0 ~ /tok(ens)?\/s|MB\/s|[0-9] m?s[ ,;|]|[^-][0-9] times/ {
        if ($0 " " measured !~ stamp) print FILENAME ":" FNR ": a figure without `COMMIT, DATE, MACHINE`: " $0
    }' "$@"
[ "$(git rev-parse --is-shallow-repository 2>/dev/null)" = false ] || exit 0
for commit in $(grep -hE '^(Measured: |\|)' "$@" | grep -oP '\b(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7}\b' | sort -u); do
    git merge-base --is-ancestor "$commit" HEAD 2>/dev/null || echo "$commit: no commit of the history, in $(grep -l "$commit" "$@" | paste -sd ' ')"
done

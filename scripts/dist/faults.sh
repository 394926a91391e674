#!/usr/bin/env bash
# faults.sh [FAULTS [VERSIONS]]: the published faults of the versions that make dist links, from faults.txt; fails if nothing is done about
# one. VERSIONS: the file `versions` of a made folder, whose lines "PACKAGE VERSION" must be those of the table.
set -u
cd "$(dirname "$0")" || exit 2
awk -F ' *[|] *' -v versions="${2:-}" '
    # By the rules of sort -V, as versions of Debian without an epoch.
    function is_below(a, b, order, first) {
        if (a == b) return 0
        order = "printf \"%s\\n%s\\n\" \"" a "\" \"" b "\" | sort -V | head -1"
        order | getline first
        close(order)
        return first == a
    }
    function complain(text) { print text; bad = 1 }
    /^#|^$/ { next }
    NF == 4 { sub(/^[0-9]+:/, "", $3); version[$1] = $3; of[$2] = $1; if ($4 !~ /^20[0-9][0-9]-[01][0-9]-[0-3][0-9], ./) complain($1 ": no day on which it was looked at: " $4); next }
    NF != 6 { complain("neither four columns nor six: " $0); next }
    !($1 in version) { complain($4 ": no library " $1); next }
    !is_below(version[$1], $2) && is_below(version[$1], $3) {
        print $1 " " version[$1] " has " $4 " (" $5 "): " ($6 == "-" ? "nothing is done" : $6)
        if ($6 == "-") bad = 1
    }
    END {
        while (versions && (getline line < versions) > 0) {
            split(line, word, " "); sub(/^[0-9]+:/, "", word[2])
            if (word[1] in of && word[2] != version[of[word[1]]]) complain(word[1] ": linked is " word[2] ", the table has " version[of[word[1]]])
        }
        exit bad
    }' "${1:-faults.txt}"

#!/usr/bin/env bash
# subjects.sh COMMIT: prints the commits after COMMIT whose subject has more than 72 characters; none where the history does not hold
# COMMIT, as in a shallow clone.
git rev-parse -q --verify "$1^{commit}" >/dev/null 2>&1 || exit 0
git log --no-merges --format='%h %s' "$1..HEAD" | awk 'length($0) - index($0, " ") > 72'

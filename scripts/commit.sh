#!/usr/bin/env bash
# Prints a header that defines COMMIT and COMMIT_DATE of this tree. In an archive made by git they stand in the line below, in a checkout
# git knows them, and a copy without both has empty ones. "+" behind the commit: files were changed since.
set -eu
found='$Format:%H %cs$'
cd "$(dirname "$0")/.."
case $found in
'$'*)
    found=$([ ! -e .git ] || git log -1 --format='%H %cs' 2>/dev/null) || true
    [ -z "$found" ] || [ -z "$(git --no-optional-locks status --porcelain --untracked-files=no)" ] || found=${found/ /+ }
    ;;
esac
read -r commit date <<<"$found" || true
changed=${commit//[^+]/}
printf '#define COMMIT "%s"\n#define COMMIT_DATE "%s"\n' "${commit:0:12}$changed" "$date"

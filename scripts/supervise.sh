#!/usr/bin/env bash
# supervise.sh COMMAND [ARGUMENT...]: runs a command until it has succeeded, again after every end that the same command can
# mend: a kill, a lost loader (69), a limit (71), a full disk (74), a stop after saving (75), a GPU (80), little memory (82).
# Any other error is the exit code of supervise.sh. Ctrl-C and SIGTERM stop the command and the supervision.
set -u
stopped=
trap 'stopped=1; kill "$child" 2>/dev/null' INT TERM
for ((pause = 1; ; pause = SECONDS - began > 10 ? 1 : pause < 60 ? 2 * pause : 60)); do
    began=$SECONDS
    "$@" &
    child=$!
    code=0
    until wait "$child"; code=$?; ! kill -0 "$child" 2>/dev/null; do :; done # a signal interrupts wait
    case $code in
    69 | 71 | 73 | 74 | 75 | 80 | 82 | 12[4-9] | 1[3-9]? | 2??) [ -z "$stopped" ] || exit "$code" ;;
    *) exit "$code" ;;
    esac
    echo "$(date +%T) exit $code: once more in $pause s" >&2
    sleep "$pause"
done

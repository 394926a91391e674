#!/bin/sh
# The trainer of aarch64 under qemu, in place of one of this machine: a copy of this file takes its program from AARCH64 to its own folder,
# because a trainer starts the loader that lies beside it.
[ -e "$0.program" ] || cp "$AARCH64/trainer" "$0.program"
exec qemu-aarch64-static "$0.program" "$@"

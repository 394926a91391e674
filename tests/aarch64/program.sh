#!/bin/sh
# A program of aarch64 under qemu, in place of one of this machine. A copy of this file takes the program of its name from AARCH64 to its own
# folder, because programs start those that lie beside them.
[ -e "$0.program" ] || cp "$AARCH64/$(basename "$0")" "$0.program"
exec qemu-aarch64-static "$0.program" "$@"

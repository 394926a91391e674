#!/usr/bin/env bash
# boot.sh ROOT SCRIPT: starts systemd of the system in the folder ROOT, with processes, mounts, network and control groups of its own, and runs
# SCRIPT there as root when the basic services are up. Its output goes to ROOT.log, its status is the status. Needs root.
set -eu
if [ "$1" != inside ]; then
    cp "$2" "$1/check.sh"
    cat >"$1/etc/systemd/system/check.service" <<'END_UNIT'
[Unit]
Requires=basic.target
After=basic.target
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'sh -eux /check.sh; echo $? >/status'
StandardOutput=file:/check.log
StandardError=file:/check.log
END_UNIT
    rm -f "$1/status" "$1/check.log"
    unshare --mount "$0" inside "$1" groups || true
    cat "$1/check.log" "$1.boot" >"$1.log" 2>/dev/null || true
    exit "$(cat "$1/status" 2>/dev/null || echo 1)"
fi
root=$2
if [ "$3" = groups ]; then # a control group for all of it, which is the root of what systemd sees
    mkdir -p "$root/groups" && mount -t cgroup2 cgroup2 "$root/groups"
    group=$root/groups/boot-$$ && mkdir "$group"
    (sh -c 'echo $PPID' >"$group/cgroup.procs" && exec timeout 300 unshare --mount --pid --kill-child --fork --ipc --uts --net --cgroup "$0" inside "$root" system) >"$root.boot" 2>&1 || true
    find "$group" -depth -type d -exec rmdir {} +
    umount "$root/groups"
    exit
fi
mount --make-rprivate /
umount "$root/groups"
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/dev"
for device in null zero full random urandom tty; do touch "$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device"; done
mkdir "$root"/dev/{shm,pts}
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mkdir -p "$root/old"
cd "$root"
pivot_root . old
hash -r # programs may be elsewhere in this system
umount -l /old
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=check.service --log-target=console --show-status=no

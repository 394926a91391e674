#!/usr/bin/env bash
# root.sh SUITE FOLDER: the packages that every system of this Debian release has, unpacked in FOLDER; from the mirror that apt uses here.
set -eu
site=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sort -u | head -n 1)
mkdir -p "$2"
debootstrap --foreign --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg "$1" "$2" "$site" >"$2.log" 2>&1 || { tail -3 "$2.log" && exit 1; }
[ ! -L "$2/proc" ] || { rm "$2/proc" && mkdir "$2/proc"; } # without rights to mount, debootstrap makes it a link

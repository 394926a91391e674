#!/usr/bin/env bash
# sysroot.sh FOLDER: Debian's arm64 packages that the build needs, with all that they depend on, unpacked in FOLDER. From the mirror and of the
# release that apt uses on this machine; nothing outside of FOLDER is changed.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1" && cd "$1"
[ ! -e made ] || exit 0
. /etc/os-release
mkdir -p apt/lists/partial apt/cache/archives/partial
site=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | sort -u | head -n 1)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $VERSION_CODENAME main" >apt/sources
: >apt/status
cat >apt/conf <<END_CONF
Dir::Etc::SourceList "$PWD/apt/sources";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$PWD/apt/lists";
Dir::State::Status "$PWD/apt/status";
Dir::Cache "$PWD/apt/cache";
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
END_CONF
export APT_CONFIG=$PWD/apt/conf
apt-get update -qq
packages=$("$root/scripts/deps.sh" packages apt)
# shellcheck disable=SC2086 # a list
apt-get install -qq -y --download-only libgomp1 bash ${packages#gcc make } >apt/log
for deb in apt/cache/archives/*.deb; do dpkg-deb -x "$deb" .; done
find . -type l -lname '/*' | while read -r link; do ln -sfnr ".$(readlink "$link")" "$link"; done
rm -rf apt
touch made

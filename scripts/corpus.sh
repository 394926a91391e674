#!/usr/bin/env bash
# Prints the path of a folder with 11 MB of real English text: the markdown of Debian's package anarchism, an encyclopedic
# FAQ. When the package is not installed, it is downloaded and unpacked under build/text; nothing is installed.
set -eu
cd "$(dirname "$0")/.."
text=/usr/share/doc/anarchism/markdown
if [ ! -d $text ]; then
    text=build/text$text
    if [ ! -d "$text" ]; then
        mkdir -p build/text
        echo "fetching 11 MB of English: Debian's package anarchism" >&2
        (cd build/text && apt-get download -qq anarchism >/dev/null 2>&1) || {
            echo "cannot fetch a text: run 'sudo apt-get install anarchism', or pass your own text with TEXT=path" >&2
            exit 69
        }
        dpkg-deb -x build/text/anarchism_*.deb build/text
    fi
fi
echo "$text"

# Sourced with `build` set: finds what the programs of $build need on this machine, or ends with 80 and one sentence.

if [ -f "$build/sha256sums" ] && command -v sha256sum >/dev/null && ! (cd "$build" && sha256sum --quiet -c sha256sums >&2); then
    echo "the pack is damaged: unpack it again" >&2
    exit 65
fi

# A pack has a libc of its own for a machine whose libc is older than that of the machine it was built on.
if ! words=$("$build/bin/trainer" --version 2>&1); then
    if [ -x "$build/compat/bin/trainer" ] && "$build/compat/bin/trainer" --version >/dev/null 2>&1; then
        build=$build/compat
    else
        echo "the programs do not start on this machine: $(tail -1 <<<"$words")" >&2
        exit 80
    fi
fi

# cuBLASLt of the version that the programs were built for: of a toolkit, of the system, or of a wheel that PyTorch installed.
library=$(grep -aoE 'libcublasLt\.so\.[0-9]+' "$build/bin/trainer" "$build/../bin/trainer" 2>/dev/null | head -1 | sed 's/.*://')
folders=(/usr/local/cuda*/lib64 /usr/local/cuda*/targets/*/lib /usr/lib /usr/lib64 /opt ~/.local/lib)
while read -r folder; do folders+=("$folder"); done < <(timeout 20 python3 -c 'import sys; print("\n".join(p for p in sys.path if p))' 2>/dev/null)
found=$([ -z "$library" ] || timeout 60 find -H "${folders[@]}" -name "$library" 2>/dev/null | head -1)
[ -z "$found" ] || export LD_LIBRARY_PATH="$(dirname "$found")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
[ -n "$found" ] || [ -z "$library" ] || ldconfig -p 2>/dev/null | grep -q "$library" ||
    echo "no $library on this machine: install the CUDA toolkit of that version, or PyTorch built for it" >&2

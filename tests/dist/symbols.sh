#!/usr/bin/env bash
# symbols.sh TREE CEILING: every program and library under TREE starts where glibc is CEILING or later and nothing else is installed:
# the versions of all symbols that they take from elsewhere, and the libraries that they name. Prints what breaks that.
set -u
tree=$1 ceiling=$2 bad=0 files=0
libc='^(libc|libm|libdl|librt|libpthread|ld-linux-.*)\.so'
while read -r file; do
    readelf -h "$file" >/dev/null 2>&1 || continue
    files=$((files + 1))
    while read -r symbol version; do
        case $version in
        GLIBC_[0-9]*) printf '%s\n' "${version#GLIBC_}" "$ceiling" | sort -CV && continue ;;
        esac
        echo "$file: $symbol needs $version" && bad=1
    done < <(readelf -W --dyn-syms "$file" | sed -nE 's/.* UND ([^@ ]+)@+([^ ]+).*/\1 \2/p' | sort -u)
    for library in $(readelf -Wd "$file" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p'); do
        [[ $library =~ $libc || $file == */mpi.so && $library == libmpi.so.* || $file == */mpi_abi.so && $library == libmpi_abi.so.1 ]] || { echo "$file: needs $library" && bad=1; }
    done
    readelf -Wd "$file" | grep -E '\((RPATH|RUNPATH)\)' && echo "$file: has a run path" && bad=1
done < <(find "$tree" -type f)
[ $files -gt 0 ] || { echo "no program under '$tree'" && bad=1; }
exit $bad

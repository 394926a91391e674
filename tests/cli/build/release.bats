# make release: what it refuses, and what it puts together. In a small repository of the files that it reads, with stand-ins for programs.
# bats file_tags=ci
load ../helpers

setup() {
    enter_test
    unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES SAN CUDA CFLAGS # of make check, which may run these
    for file in Makefile CHANGELOG.md debian/changelog loader/python/pyproject.toml scripts/dist/release.sh; do install -D "$ROOT/$file" "tree/$file"; done
    cd tree
    printf 'VERSION := 1.2.3\n' >Makefile
    printf '# Changelog\n\n## 1.2.3 (2026-12-01)\n\n- One thing,\n  and its second line.\n- Another.\n\n## 1.2.2\n\n- Old.\n' >CHANGELOG.md
    sed -i '1s/(.*)/(1.2.3-1)/' debian/changelog
    sed -i 's/^version = .*/version = "1.2.3"/' loader/python/pyproject.toml
    git init -q . && record
}
record() { git add -A && git -c user.name=a -c user.email=a@example.org commit -q -m "a commit"; }
refused() { # MESSAGE [ARGUMENT...]: by this line alone
    local message=$1
    shift
    run scripts/dist/release.sh "${@:-check}"
    [ "$status" != 0 ] && [ "$output" = "release: $message" ] || { echo "status $status: $output" && return 1; }
}

@test "a tree is released whose version stands in the Makefile, with a dated section and without changes" {
    run_code 0 scripts/dist/release.sh check
    [ -z "$output" ]
}

@test "a dirty tree, a version without a section, a section without a date and other versions are refused" {
    echo >>Makefile
    refused "files are changed or unknown to git: commit or remove them (git status)"
    git checkout -q Makefile
    touch new
    refused "files are changed or unknown to git: commit or remove them (git status)"
    rm new
    sed -i 's/^## 1.2.3.*/## 1.2.3 (unreleased)/' CHANGELOG.md && record
    refused "the section '1.2.3 (unreleased)' of CHANGELOG.md has no date: ## 1.2.3 ($(date +%F))"
    sed -i '/^## 1.2.3/d' CHANGELOG.md && sed -i 's/^## 1.2.2/& (2026-11-01)/' CHANGELOG.md && record
    refused "CHANGELOG.md has version '1.2.2', the Makefile's is 1.2.3: '1.2.3'"
    git reset -q --hard HEAD~2
    sed -i '1s/(.*)/(1.2.2-1)/' debian/changelog && record
    refused "debian/changelog has version '1.2.2-1', the Makefile's is 1.2.3: '1.2.3-1'"
    refused "debian/changelog has version '1.2.2-1', the Makefile's is 1.2.3: '1.2.3-1'" versions
    git reset -q --hard HEAD~1
    sed -i 's/^version = .*/version = "1.2.2"/' loader/python/pyproject.toml && record
    refused "loader/python/pyproject.toml has version '1.2.2', the Makefile's is 1.2.3: '1.2.3'"
    git reset -q --hard HEAD~1
    echo 'VERSION := 1.2.3-dev' >Makefile && sed -i '1s/(.*)/(1.2.3~dev-1)/' debian/changelog && sed -i 's/^version = .*/version = "1.2.3.dev0"/' loader/python/pyproject.toml && record
    refused "the Makefile's version '1.2.3-dev' is not that of a release: VERSION := 1.2.3"
    run_code 0 scripts/dist/release.sh versions
}

@test "the files of a release are those of make dist with the source, their checksums and the section of the changelog" {
    machine=$(uname -m)
    dist=../dist
    mkdir -p $dist/millrace-gpt-1.2.3/bin
    refused "no file 'millrace-gpt-1.2.3-linux-$machine.tar.xz' in $(realpath $dist): make dist" pack $dist ../out
    for file in millrace-gpt-1.2.3-linux-"$machine".tar.xz millrace_gpt-1.2.3-py3-none-any.whl millrace-gpt_1.2.3-1_amd64.deb; do echo "$file" >$dist/$file; done
    commit=$(git log -1 --abbrev=12 --format=%h)
    program() { printf '#!/bin/sh\necho "commit %s of 2026-12-01"\n' "$2" >"$dist/millrace-gpt-1.2.3/bin/$1" && chmod +x "$dist/millrace-gpt-1.2.3/bin/$1"; }
    program shardtool 0123456789ab
    program millrace-trainer "$commit"
    refused "the programs in $(realpath $dist) are not of commit $commit: make dist" pack $dist ../out
    program shardtool "$commit"
    mkdir -p ../out && touch ../out/old
    run_code 0 scripts/dist/release.sh pack $dist ../out
    cd ../out
    [ "$(ls | paste -sd ' ')" = "NOTES.md SHA256SUMS millrace-gpt-1.2.3-linux-$machine.tar.xz millrace-gpt-1.2.3.tar.gz millrace-gpt_1.2.3-1_amd64.deb millrace_gpt-1.2.3-py3-none-any.whl" ]
    [ "$(wc -l <SHA256SUMS)" = 4 ]
    python3 -c '
import hashlib
for line in open("SHA256SUMS"):
    digest, name = line.split()
    assert hashlib.sha256(open(name, "rb").read()).hexdigest() == digest, name
'
    [ "$(cat NOTES.md)" = $'- One thing,\n  and its second line.\n- Another.' ]
    mkdir source && tar -xf millrace-gpt-1.2.3.tar.gz -C source
    diff -r -x .git source/millrace-gpt-1.2.3 ../tree
    (cd ../tree && touch changed && refused "files are changed or unknown to git: commit or remove them (git status)" pack $dist ../out)
}

@test "make release checks first, then tests and packs" {
    cd "$ROOT"
    make -n CUDA=0 release >"$BATS_TEST_TMPDIR/steps"
    steps=$(grep -oE 'release.sh check|tests/run.sh |scripts/dist/libraries.sh|scripts/dist/tree.sh|bats tests/dist|release.sh pack' "$BATS_TEST_TMPDIR/steps" | uniq | paste -sd ,)
    [ "$steps" = "release.sh check,tests/run.sh ,scripts/dist/libraries.sh,scripts/dist/tree.sh,bats tests/dist,release.sh pack" ]
}

@test "pip install --target leaves out no file of the wheel" {
    "$ROOT/scripts/install.sh" install "$BIN" ../folder
    install -D "$BIN/shardtool" ../folder/lib/millrace/mpi.so # in its place, where MPI was not installed
    "$ROOT/scripts/dist/wheel.py" ../folder 1.2.3 ..
    python3 -m pip --version || skip "no pip"
    python3 -m pip install -q --no-index --no-deps --target ../target ../millrace_gpt-1.2.3-*.whl
    (cd ../folder && find . -type f | sed 's|/lib/|/libexec/|' | sort) >files
    while read -r file; do [ -s "../target/$file" ] || { echo "no $file" && false; }; done <files
    [ -s ../target/libexec/millrace/mpi.so ] && [ "$(wc -l <files)" -gt 50 ]
}

@test "make library-faults fails for a fault of a linked version about which nothing is done, and for another version than that of the table" {
    faults() { run "$ROOT/scripts/dist/faults.sh" "$PWD/faults.txt" "$@"; }
    plant() { cp "$ROOT/scripts/dist/faults.txt" . && echo "$1" >>faults.txt && faults; }
    run_code 0 "$ROOT/scripts/dist/faults.sh"
    known=$output
    for fault in 'lz4 | 1.9.0 | 1.9.5 | CVE-0 | blocks | -' 'lz4 | 0 | 1.9.4-2 | CVE-0 | blocks | -' 'lz4 | 1.9.4-1 | 2 | CVE-0 | blocks | -'; do
        plant "$fault" && [ "$status" = 1 ] && [ "$output" = "${known:+$known
}lz4 1.9.4-1 has CVE-0 (blocks): nothing is done" ]
    done
    for fault in 'lz4 | 1.9.5 | 2 | CVE-0 | blocks | -' 'lz4 | 0 | 1.9.4-1 | CVE-0 | blocks | -' 'lz4 | 0 | 1.9.4-1~deb12u1 | CVE-0 | blocks | -'; do
        plant "$fault" && [ "$status" = 0 ] && [ "$output" = "$known" ]
    done
    plant 'lz4 | 1.9.0 | 1.10 | CVE-0 | blocks | not called' && [ "$status" = 0 ] && [[ "$output" == *"lz4 1.9.4-1 has CVE-0 (blocks): not called" ]]
    for row in 'xpress | 0 | 1 | CVE-0 | a | -' 'xpress | libxpress | 1.0 | yesterday' 'lz4 | 0 | 1'; do plant "$row" && [ "$status" = 1 ]; done
    cp "$ROOT/scripts/dist/faults.txt" .
    printf 'liblz4-dev 1.9.4-1\nzlib1g-dev 1:1.2.13.dfsg-1\nlibc6 2.31\n' >versions && faults "$PWD/versions" && [ "$status" = 0 ]
    echo 'libbrotli-dev 1.0.9-2' >>versions && faults "$PWD/versions" && [ "$status" = 1 ]
    [[ "$output" == *"libbrotli-dev: linked is 1.0.9-2, the table has 1.0.9-2+deb12u1" ]]
}

# What the Makefile promises: install, uninstall, help, the places that it builds in.
load ../helpers

setup() {
    cd "$ROOT"
    unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES SAN CUDA CFLAGS # of make check, which may run these
}

@test "the seconds of S name no folder, and no program gets a folder as its seconds" {
    make -n CUDA=0 S=5 BUILD="$BATS_TEST_TMPDIR/new" all fuzz-now F=shard SAN=address >"$BATS_TEST_TMPDIR/commands"
    not grep -qE -- '(^| )5/' "$BATS_TEST_TMPDIR/commands"
    make -n CUDA=0 BUILD="$BATS_TEST_TMPDIR/new" bench-kernels >"$BATS_TEST_TMPDIR/commands"
    grep -qx ".*/bench_gpu trace device=cpu T=256 B=4 *" "$BATS_TEST_TMPDIR/commands"
}

# bats test_tags=ci
@test "install puts programs, manual pages and completion under PREFIX" {
    scripts/install.sh install "$BIN" "$BATS_TEST_TMPDIR/usr"
    cd "$BATS_TEST_TMPDIR/usr"
    [ "$(ls bin | paste -sd ' ')" = "millrace millrace-loader millrace-trainer shardtool" ]
    bin/shardtool --version | grep -E 'millrace\) [0-9]'
    for name in millrace shardtool millrace-loader millrace-trainer; do
        [ "$(sed 's/\\-/-/g' share/man/man1/$name.1 | grep -cE "^(\.TH $name 1 |$name - |\.B $name$)")" = 3 ]
    done
    for command in $(bin/millrace --help | sed -nE 's/^  ([a-z-]+)( .*)?$/\1/p'); do
        bin/millrace "$command" --help | grep -q "^usage: millrace $command "
        sed 's/\\-/-/g' "share/man/man1/millrace-$command.1" >page
        for section in NAME SYNOPSIS OPTIONS EXAMPLES "EXIT STATUS" "SEE ALSO"; do grep -qx ".SH $section" page; done
        [ "$(grep -c "^\.B millrace $command" page)" -ge 2 ] # the synopsis and an example
    done
    grep -q '^.B block_size = INTEGER$' share/man/man5/millrace-config.5
    not grep -rq 'gradient_accumulation_steps = ' share/man/man1
    [ "$(find share/man -type f | wc -l)" -ge 36 ]
    bash -c '. share/bash-completion/completions/millrace-loader
        COMP_WORDS=(millrace-loader ser) COMP_CWORD=1; _millrace_loader; [ "${COMPREPLY[0]}" = serve ]
        . share/bash-completion/completions/millrace
        COMP_WORDS=(millrace train --print_c) COMP_CWORD=2; _millrace; [ "${COMPREPLY[0]}" = --print_config ]'
    [ "$(head -n 1 share/zsh/site-functions/_millrace-loader)" = "#compdef millrace-loader" ]
    grep -q '^complete -c millrace-loader ' share/fish/vendor_completions.d/millrace-loader.fish
    bin/millrace-loader serve --help | grep -q '^usage: millrace-loader serve '
    run_code 2 bin/millrace-trainer nothing
    [[ "$output" == "millrace-trainer: unknown command 'nothing' (see millrace-trainer --help)" ]]
    diff <("$BIN/trainer" help) <("$BIN/trainer" --help)
    diff <("$BIN/shardtool" help cat) <("$BIN/shardtool" cat --help)
    diff <("$BIN/loader" -V) <("$BIN/loader" --version)
    run_match 2 "unknown command 'kat': did you mean cat?" "$BIN/shardtool" help kat
}

# bats test_tags=ci
@test "the manual pages have no errors or warnings of mandoc and groff" {
    scripts/install.sh install "$BIN" "$BATS_TEST_TMPDIR/usr"
    cd "$BATS_TEST_TMPDIR/usr/share/man"
    mandoc -Tlint -Wwarning man?/*
    for page in man?/*; do groff -man -Tutf8 -ww "$page" >page 2>>warnings && [ -s page ]; done
    [ ! -s warnings ]
}

# bats test_tags=ci
@test "install builds nothing, and copies what build/bin leads to with configurations and documentation" {
    run_code 0 make -n install PREFIX=/p
    [ "$output" = 'scripts/install.sh install build/bin "/p"' ]
    cd "$BATS_TEST_TMPDIR"
    run_match 66 "is not built: run make first" "$ROOT/scripts/install.sh" install nowhere "a prefix"
    [ ! -e "a prefix" ]
    "$ROOT/scripts/install.sh" install "$BIN" "a prefix"
    diff -r "$ROOT/config" "a prefix/share/millrace/config"
    diff -r "$ROOT/scripts/slurm" "a prefix/share/millrace/slurm"
    diff -r "$ROOT/docs" "a prefix/share/doc/millrace/docs"
    for program in shardtool loader trainer; do cmp "$BIN/$program" "a prefix/bin/"*"$program"; done
    cmp "$BIN/millrace" "a prefix/bin/millrace"
}

# bats test_tags=ci
@test "what root installs under umask 077 can be read and run by all users" {
    umask 077
    "$ROOT/scripts/install.sh" install "$BIN" "$BATS_TEST_TMPDIR/usr"
    cd "$BATS_TEST_TMPDIR/usr"
    [ "$(find . -type f | wc -l)" -gt 50 ]
    [ -z "$(find . \( -type d -o -path './bin/*' \) ! -perm 755)$(find share -type f ! -perm 644)" ]
}

# bats test_tags=ci
@test "uninstall removes what install has copied, and nothing else" {
    cd "$BATS_TEST_TMPDIR"
    mkdir -p usr/bin usr/share/man/man1
    touch usr/bin/other usr/share/man/man1/other.1
    find usr | sort >before
    "$ROOT/scripts/install.sh" install "$BIN" usr
    not diff -q before <(find usr | sort)
    "$ROOT/scripts/install.sh" uninstall "$BIN" usr
    diff before <(find usr | sort)
    run_match 66 "nothing is installed under 'usr'" "$ROOT/scripts/install.sh" uninstall "$BIN" usr
}

# bats test_tags=ci
@test "build/bin is a link inside the tree: a copied tree runs its own programs, and its path may have spaces" {
    [ "$(make -n CUDA=0 all | tail -n 1)" = "ln -sfn release-cpu/bin build/bin" ]
}

@test "help lists the targets" {
    run_code 0 make -s help
    for target in all test check demo deps format lint install; do grep -q "make $target " <<<"$output"; done
}

@test "a build elsewhere leaves build/bin as it is, and test-gpu without nvcc is refused in one line" {
    run_code 0 make -n CUDA=0 BUILD="$BATS_TEST_TMPDIR/build" all
    [[ "$output" != *"build/bin"$'\n'* ]]
    run_code 0 make -n CUDA=0 all
    [[ "$output" == *' build/bin' ]]
    run_match 2 'test-gpu requires nvcc 11.8 or later' make CUDA=0 test-gpu
}

@test "what cannot be written is 74, the help too" {
    for program in shardtool loader trainer; do
        for option in --help --version --man --completion; do
            run_code 74 bash -c '"$BIN/$0" $1 >/dev/full' $program $option
            run_code 74 bash -c '"$BIN/$0" $1 >&-' $program $option
        done
    done
    run bash -c 'ulimit -f 1; exec "$BIN/trainer" train --help >"$1"' - "$BATS_TEST_TMPDIR/help"
    [ "$status" = 74 ] # a signal ended it
}

@test "docs/troubleshooting.md lists every exit code with its meaning" {
    sed -n 's/^EXIT_CODE([A-Z_]*, \([0-9]*\), "\(.*\)")$/| \1 | \2 |/p' common/exit_codes.def >"$BATS_TEST_TMPDIR/codes"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/codes")" -gt 10 ]
    run_code 0 diff "$BATS_TEST_TMPDIR/codes" <(grep -E '^\| [0-9]+ \|' docs/troubleshooting.md)
}

# bats test_tags=ci
@test "make demo and make test, as README shows them, build on all processors unless -j says otherwise" {
    cd "$ROOT"
    for target in demo test; do
        grep -qE "^make $target  +#" README.md
        grep -q -- "--no-print-directory -j$(nproc) " <(make -n $target)
        not grep -q -- "--no-print-directory -j" <(make -n -j1 $target)
    done
}

# bats test_tags=ci
@test "make demo compiles the kernels of GPUs only where there is a driver, or with CUDA=1" {
    [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ] || skip "a driver is here"
    grep -q 'demo.sh build/release-cpu/bin' <(make -n demo)
    command -v nvcc || skip "no nvcc"
    grep -q 'demo.sh build/release/bin' <(make -n demo CUDA=1)
}

@test "make demo leaves the demo of before until it can read TEXT, and then beside the new one" {
    cd "$BATS_TEST_TMPDIR"
    mkdir -p build/demo fake && touch build/demo/mark
    printf '#!/bin/sh\nexit 2\n' >fake/millrace && chmod +x fake/millrace
    run_match 66 "cannot read 'none'" "$ROOT/scripts/demo.sh" fake none 1
    [ -e build/demo/mark ]
    echo text >text
    run_match 2 "FRESH=1 starts over" "$ROOT/scripts/demo.sh" fake text 1
    [ -e build/demo-before/mark ] && [ ! -e build/demo/mark ]
}

@test "make demo MINUTES=N trains the shape of a plan for that time, and the same one when it is run again" {
    cd "$BATS_TEST_TMPDIR"
    mkdir fake && ln -s "$ROOT/config" config
    # The lines of plan are tested by test_scaling_law.py.
    # shellcheck disable=SC2016  # for the script
    printf '#!/bin/bash\necho "$@" >>calls\ncase $1 in\nplan) printf "# candidates\\n# *     2 1.9\\n#\\n# model  1\\nn_layer = 2\\nbeta2 = 0.99\\nuntil = %%s\\ndataset = 1\\n" "'\''30m'\''" ;;
train | serve | sample | status) ;;\n*) exec "$BIN/millrace" "$@" ;;\nesac\n' >fake/millrace
    chmod +x fake/millrace
    for i in {1..30}; do printf 'line %d of a text about mills and rivers\n\n' $i; done >text
    for run in 1 2; do "$ROOT/scripts/demo.sh" fake text "" 30 >"out$run"; done
    grep -q '^\*     2 1.9' out1 && [ "$(grep -c '^plan --dataset=build/demo/data --until=30m' calls)" = 1 ]
    printf '%s\n' "n_layer = 2" "beta2 = 0.99" "until = '30m'" >expected
    grep -E '^(log_interval|sample_start) ' config/demo.conf | cat expected - | cmp - build/demo/planned.conf
    "$BIN/trainer" plan build/demo/planned.conf --print_config
    [ "$(grep -c '^train build/demo/planned.conf' calls)" = 2 ]
}

# bats test_tags=ci
@test "the text of the demo has a file for each chapter, and a line for each paragraph" {
    [ ! -e /usr/lib/R/site-library/janeaustenr ] || skip "the package r-cran-janeaustenr is installed"
    cd "$BATS_TEST_TMPDIR"
    mkdir -p copy/scripts fake
    cp "$ROOT/scripts/corpus.sh" copy/scripts
    python3 - <<'END'
import struct, zlib
novels = ["MILL HOUSE", "", "CHAPTER I", "", "A mill", "by a river.", "", "Next", "", "CHAPTER II", "", "The  end"], ["Wheel", "Chapter 1", "", "It turns"]
with open("rdb", "wb") as file:
    for lines in novels:
        text = b"X\n" + bytes(20) + struct.pack(">II", 16, len(lines))
        text += b"".join(struct.pack(">II", 0x40009, len(line)) + line.encode() for line in lines)
        file.write(struct.pack(">I", len(text)) + zlib.compress(text))
END
    printf '#!/bin/sh\n: >r-cran-janeaustenr_1_all.deb\n' >fake/apt-get
    printf '#!/bin/sh\nmkdir -p "$3/usr/lib/R/site-library/janeaustenr/data" && cp "%s/rdb" "$3/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"\n' "$PWD" >fake/dpkg-deb
    chmod +x fake/*
    [ "$(PATH=$PWD/fake:$PATH copy/scripts/corpus.sh)" = build/text/austen ]
    cd copy/build/text/austen
    [ "$(echo *)" = "mill-house-01.txt mill-house-02.txt wheel-01.txt" ]
    printf 'CHAPTER I\n\nA mill by a river.\n\nNext\n' | cmp - mill-house-01.txt
    printf 'CHAPTER II\n\nThe end\n' | cmp - mill-house-02.txt
    printf 'Chapter 1\n\nIt turns\n' | cmp - wheel-01.txt
    cd ../../..
    echo 'not a stream' >../rdb
    rm -r build/text/austen build/text/usr
    PATH=$PWD/../fake:$PATH not scripts/corpus.sh
    [ ! -e build/text/austen ]
}

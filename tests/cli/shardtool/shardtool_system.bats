# shardtool: what the system may do to a run: closed descriptors, odd file systems, files that change.

load ../helpers

setup() {
    enter_test
    printf 'The first document.\n' >a.txt
}

begin_reading() { # COMMAND...: its output is read up to the middle, which is in `first`
    mkfifo pipe
    "$@" >pipe 2>err &
    READER=$!
    exec 5<pipe
    head -c 1000 <&5 >first
}
end_reading() { # STATUS: all of its output is in `all`
    local status=0
    cat first - <&5 >all
    exec 5<&-
    wait "$READER" || status=$?
    rm pipe
    [ "$status" = "$1" ] || { echo "exit $status, not $1: $(cat err)" && return 1; }
}

@test "closed standard descriptors are not reused for files: progress lines would go there" {
    strace -f -qq -e trace=openat -o trace bash -c 'exec shardtool tokenize -q --val 0 -o out a.txt <&- >&- 2>&-' || true
    shardtool verify -q out
    grep -q 'out/train.*= [0-9]' trace
    [ -z "$(grep -v '/dev/null' trace | grep -E '(out/|a.txt).* = [012]$')" ]
}

@test "file systems without locks, or without fsync of directories, are one warning" {
    run_match 0 "has no locks" strace -f -qq -o /dev/null -e trace=flock -e inject=flock:error=ENOSYS shardtool tokenize -q -o out a.txt
    shardtool verify -q out
    run_code 0 strace -f -qq -o /dev/null -e trace=fsync -P "$PWD/out2" -e inject=fsync:error=EINVAL shardtool tokenize -q -o "$PWD/out2" a.txt
    [[ "$output" == *"cannot flush directories"* ]]
    shardtool verify -q out2
}

# fault 19
@test "interrupted system calls are not errors" {
    for call in flock fsync ftruncate; do
        rm -rf out
        run_code 0 strace -f -qq -o /dev/null -e trace=$call -e inject=$call:error=EINTR:when=1 shardtool tokenize -q -o out a.txt
    done
    rm -rf out
    # each close of a file that is being written: strace counts the calls of each thread
    strace -f -y -qq -o trace -e trace=close shardtool tokenize -q -j 1 -o out a.txt
    pid=$(grep -m 1 '[.]tmp[.]' trace | cut -d ' ' -f 1)
    calls=$(grep "^$pid " trace | grep -n '[.]tmp[.]' | cut -d : -f 1)
    [ -n "$calls" ]
    for number in $calls; do
        rm -rf out
        run_code 0 strace -f -qq -o /dev/null -e trace=close -e inject=close:error=EINTR:when=$number shardtool tokenize -q -j 1 -o out a.txt
        shardtool verify -q out
    done
    rm -rf out
    run_code 0 strace -f -qq -o /dev/null -e trace=openat -P "$PWD/a.txt" -e inject=openat:error=EINTR:when=1 shardtool tokenize -q -o out "$PWD/a.txt"
}

@test "a lock that is a symbolic link is refused, and its target is not touched" {
    mkdir out && echo precious >target && ln -s ../target out/.lock
    run shardtool tokenize -o out a.txt
    [ "$status" -ne 0 ]
    [ "$(cat target)" = precious ]
}

@test "a temporary file of another process with the same pid is neither used nor followed" {
    mkdir -p out/train/000 && : >out/.journal && echo precious >target
    # exec keeps the pid that the link is named for
    bash -c 'ln -s "$PWD/target" "out/train/000/.000000.zst.tmp.$$" && exec shardtool tokenize -q --val 0 -o out a.txt'
    [ "$(cat target)" = precious ]
    shardtool verify -q out
}

# fault 31
@test "a shard truncated while it is read is 74 and named" {
    export ASAN_OPTIONS=detect_leaks=0 # the program leaves the read where the fault is, and exits
    seq 400000 >lines.txt
    shardtool tokenize -q --docs lines --val 0 -o out lines.txt
    shard=out/train/000/000000.zst
    begin_reading shardtool cat $shard
    truncate -s 4096 $shard
    end_reading 74
    grep -q "$shard.*truncated" err
}

# fault 15
@test "an input rewritten with the same size while it is read is 74" {
    seq 300000 >a.txt && touch -d '2020-01-01' a.txt
    begin_reading shardtool decode -0 a.txt
    touch a.txt
    end_reading 74
    grep -q "changed while it was read" err
}

# fault 15
@test "an input rewritten during a run that --max-tokens ends early is 74" {
    head -c 3000000 /dev/urandom | base64 -w 1000 >a.txt && touch -d '2020-01-01' a.txt
    begin_reading shardtool tokenize --docs lines --max-tokens 1000000 -o - a.txt
    touch a.txt # the run waits: its output is larger than a pipe
    end_reading 74
    grep -q "'a.txt' changed while it was read" err
    run_code 0 shardtool tokenize --docs lines --max-tokens 1000000 -o out a.txt
}

@test "numbers in hexadecimal and negative ones are refused, not taken for 0" {
    for option in -j0x4 --shard-tokens=0x10000 -j-1; do
        run_match 2 "is not a number such as" shardtool tokenize $option -o out a.txt
    done
    run_match 2 "'0x10' is not a whole number from 0 to" shardtool tokenize --seed 0x10 -o out a.txt
    run_match 2 "'0x10' is not a size such as" shardtool tokenize --max-word 0x10 -o out a.txt
}

@test "merge refuses the same data twice" {
    shardtool tokenize -q -o a a.txt
    run_match 2 "'a' and 'a' hold the same data" shardtool merge -o b a a
    cp -r a copy
    run_code 2 shardtool merge -o b a copy
    run_code 0 shardtool merge --allow-duplicates -o b a copy
}

# fault 15
@test "an input that shrinks while it is read is 74, one that vanishes is 66 or read to its end" {
    seq 300000 >a.txt && cp a.txt want
    begin_reading shardtool decode -0 a.txt
    truncate -s 500000 a.txt
    end_reading 74
    grep -q "'a.txt'.*1988895.*500000" err
    begin_reading shardtool decode -0 want
    mv want gone
    end_reading 0
    tr -d '\0' <all | cmp - gone
    run_code 66 shardtool decode --json want
}

# fault 32
@test "a shard replaced while it is read is read to its end" {
    seq 400000 >lines.txt
    shardtool tokenize -q --docs lines --val 0 -o out lines.txt
    shardtool tokenize -q --val 0 -o other a.txt
    shard=out/train/000/000000.zst
    shardtool cat $shard >want
    begin_reading shardtool cat $shard
    mv other/train/000/000000.zst $shard
    end_reading 0
    cmp all want
    run_code 1 shardtool verify out
}

@test "a FIFO in place of a file of an unfinished dataset is 73, at its start and where it continues" {
    for name in .journal .pending; do
        mkdir new$name && mkfifo new$name/$name
        run_match 73 "'new$name/$name' is not a regular file" timeout 60 shardtool tokenize -o new$name a.txt
    done
    seq 60000 >lines.txt
    options="-q --docs lines --val 0.1 --frame-tokens 1024 --shard-tokens 16k lines.txt"
    kill_at rename 20 shardtool tokenize -j 1 -o out $options
    [ -s out/.journal ]
    [ -s out/.pending ]
    for name in .journal .pending; do
        cp -r out old$name && rm old$name/$name && mkfifo old$name/$name
        run_match 73 "'old$name/$name' is not a regular file" timeout 60 shardtool tokenize -o old$name $options
    done
}

# fault 14
@test "a FIFO is read, a socket and a loop of links are 66" {
    mkfifo fifo
    cat a.txt >fifo &
    [ "$(shardtool decode -0 fifo | tr -d '\0')" = "$(cat a.txt)" ]
    python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
    run_code 66 shardtool decode --json socket
    ln -s loop loop
    run_code 66 shardtool decode --json loop
    mkdir in && cp a.txt in/ && ln -s ../in in/again && ln -s self in/self
    run timeout 20 "$BIN/shardtool" decode --json in
    [ "$status" = 0 ] || [ "$status" = 66 ]
}

# fault 24
@test "an error of one worker ends the run with its code, and a thread that cannot start is 71" {
    for i in $(seq 40); do seq $((i * 1000)) | tr '\n' ' ' && echo; done >many.txt
    printf 'bad \xff byte\n' >>many.txt
    seq 100000 | tr '\n' ' ' >>many.txt
    run_match 65 "'many.txt' document 40: invalid UTF-8 at byte 4" timeout 60 "$BIN/shardtool" tokenize -q -j 4 --docs lines --invalid-utf8 fail -o out many.txt
    [ ! -e out/dataset.jsonl ]
    ASAN_OPTIONS=detect_leaks=0 run_code 71 timeout 60 strace -f -qq -o /dev/null -e trace=clone3 -e inject=clone3:error=EAGAIN:when=3 "$BIN/shardtool" tokenize -q -j 4 -o out2 a.txt
    [[ "$output" == *"cannot start thread 3 of 4"* ]]
}

# fault 3
@test "archives are never unpacked: paths that leave the folder, links and devices" {
    mkdir -p box/in && cd box/in
    python3 - <<'END'
import io, tarfile
with tarfile.open("a.tar", "w") as tar:
    def add(name, kind=tarfile.REGTYPE, link="", text=b"text\n"):
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = kind, link, len(text) if kind == tarfile.REGTYPE else 0
        tar.addfile(info, io.BytesIO(text) if kind == tarfile.REGTYPE else None)
    for name in ("../up.txt", "/tmp/millrace-absolute.txt", "a/../../../b.txt", "plain.txt"):
        add(name)
    add("link", tarfile.SYMTYPE, "/etc/passwd")
    add("hard", tarfile.LNKTYPE, "plain.txt")
    add("device", tarfile.CHRTYPE)
    add("pipe", tarfile.FIFOTYPE)
END
    [ "$(shardtool decode --json a.tar | wc -l)" = 4 ]
    shardtool tokenize -q -o out a.tar
    [ "$(ls -A . ..)" = "$(printf '.:\na.tar\nout\n\n..:\nin')" ]
    [ ! -e /tmp/millrace-absolute.txt ]
}

@test "a URL without libcurl, or with an old one, is refused with the package that has it" {
    mkdir none old
    echo text | tee none/libcurl.so.4 >none/libcurl-gnutls.so.4
    LD_LIBRARY_PATH=$PWD/none run_match 66 "cannot read 'https://127.0.0.1/a.txt': there is no libcurl.so.4 on this machine: install the package libcurl4 (Debian" \
        shardtool tokenize -o out https://127.0.0.1/a.txt
    printf '#include <curl/curl.h>\nCURLcode curl_global_init(long flags) { return (void)flags, CURLE_OK; }
        curl_version_info_data *curl_version_info(CURLversion v) { static curl_version_info_data data; data.version_num = 0x074300; return (void)v, &data; }' |
        gcc -shared -fPIC -x c - -o old/libcurl.so.4
    LD_LIBRARY_PATH=$PWD/old run_match 66 "cannot read 'https://127.0.0.1/a.txt': libcurl.so.4 of this machine is older than 7.68" shardtool tokenize -o out https://127.0.0.1/a.txt
    [ ! -e out ]
}

@test "no file takes the place of a device, pipe or folder, and no page that of another file" {
    shardtool tokenize -q -o data a.txt
    mkfifo pipe && mkdir folder && ln -s /dev/null link
    for name in pipe folder link; do
        run_match 73 "cannot create '$name': it is a directory, device, pipe or socket" shardtool cat --force -o $name data
    done
    [ -p pipe ] && [ -L link ]
    echo text >notes
    mkdir run && echo '{"step": 1, "loss": 2, "ms": 1, "tok_s": 1}' >run/metrics.jsonl
    run_match 73 "'run/metrics.jsonl' is another file" trainer report -o run/metrics.jsonl run
    run_match 73 "'notes' is another file" trainer doctor --report notes
    [ "$(cat notes)" = text ]
    trainer report -o page.html run
    trainer report -o page.html run
}

# bats test_tags=ci
# fault 126
@test "a run whose directory was moved away leaves alone what another run has made in its place, 73" {
    seq 3000000 >long.txt
    seq 30000 >text.txt
    begun() { [ -d out/train/000 ] || [ -e out/.counting ]; }
    for command in "tokenize -q -j 1" "train-vocabulary -q -j 1 -V 300"; do
        rm -rf out moved
        shardtool $command -o out long.txt 2>error 3>&- &
        LOADER=$! # ended by teardown
        wait_until begun
        kill -STOP $LOADER
        mv out moved
        shardtool $command -o out text.txt
        find out -type f ! -name .lock -exec sha256sum {} + >sums
        kill -CONT $LOADER
        status=0
        wait $LOADER || status=$?
        cat error
        [ $status = 73 ] || [ $status = 66 ] # a file of its own was not there any more
        sha256sum --quiet -c sums
    done
    grep -q "'out' is no longer the directory in which this run began" error
}

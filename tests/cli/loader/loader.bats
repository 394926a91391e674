# The loader on the command line: its log lines and exit codes.

load ../helpers

setup() {
    enter_test
    for i in $(seq 400); do echo "the quick brown fox number $i jumps over the lazy dog"; done >text.txt
    "$BIN/shardtool" tokenize --quiet --val 0 -o set text.txt
}

start() { serve_until_ready set "$@"; }

@test "serve logs one line when it is ready, and exits with 0 on SIGTERM and SIGINT" {
    for signal in TERM INT; do
        start
        [ "$(wc -l <log)" -eq 1 ]
        grep -q "ready: serving 'set', [0-9]* train and 0 val tokens, fingerprint [0-9a-f]\{16\}, at ipc://place" log
        [ "$(stat -c %a place)" = 700 ]
        stop_loader $signal
    done
}

# fault 43
@test "a second loader on the same directory is refused, 73" {
    start
    run_match 73 "locked by pid $LOADER: wait for it, or choose another --endpoint" "$BIN/loader" serve set --endpoint ipc://place
}

# fault 43
@test "a loader replaces the sockets of a killed one" {
    start
    kill_loader
    [ -S place/data.sock ]
    start
}

@test "a missing dataset exits with 66, a missing argument or a bad endpoint with 2" {
    run_match 66 "nowhere" "$BIN/loader" serve nowhere --endpoint ipc://place
    run_code 2 "$BIN/loader" serve
    run_code 2 "$BIN/loader" serve set --endpoint carrier-pigeon://coo
    for endpoint in place tcp:/127.0.0.1:5555 127.0.0.1:5555 ipc://; do
        run_code 2 "$BIN/loader" serve set --endpoint $endpoint
        run_code 2 "$BIN/loader" serve-status --endpoint $endpoint
    done
    run_match 2 "'place' is not an endpoint: ipc://DIR, tcp://HOST:PORT, or a directory as /DIR or ./DIR" "$BIN/loader" serve set --endpoint place
    [ ! -e place ]
    run_code 2 "$BIN/loader" serve set --endpoint tcp://127.0.0.1
    run_match 2 "too long" "$BIN/loader" serve set --endpoint "ipc://$(printf 'x%.0s' $(seq 120))"
}

@test "a truncated shard exits with 65 and is named" {
    truncate -s -10 set/train/000/000000.zst
    run_match 65 "000000.zst" "$BIN/loader" serve set --endpoint ipc://place
}

@test "a closed stderr does not stop the loader" {
    mkfifo pipe
    head -1 pipe >first 3>&- &
    "$BIN/loader" serve set --endpoint ipc://place 2>pipe 3>&- &
    LOADER=$!
    wait %1 # head has read the line "ready" and closed the pipe
    grep -q ready first
    for _ in 1 2 3; do # each reload logs a line
        kill -HUP "$LOADER"
        "$BIN/loader" serve-status --endpoint ipc://place
    done
    stop_loader
}

@test "a directory that other users may enter exits with 77" {
    mkdir -m 755 place
    run_match 77 "chmod 700" "$BIN/loader" serve set --endpoint ipc://place
}

@test "the default endpoint is in XDG_RUNTIME_DIR" {
    mkdir -m 700 run
    XDG_RUNTIME_DIR=$PWD/run "$BIN/loader" serve set 2>log 3>&- &
    LOADER=$!
    wait_until grep -q ready log
    [ -S run/millrace/data.sock ]
}

@test "with --die-with-parent the loader ends with its parent process" {
    sh -c '"$BIN/loader" serve set --endpoint ipc://place --die-with-parent=$$ 2>log & echo $! >pid
           while ! grep -q ready log; do sleep 0.01; done' 3>&-
    LOADER=$(cat pid)
    wait_until is_gone "$LOADER"
    run_match 0 "the parent, process 1, has ended" "$BIN/loader" serve set --endpoint ipc://place --die-with-parent=1
}

# bats test_tags=ci
# Also one that ends while the loader starts, before the loader has requested the signal of its parent's end.
@test "a trainer that ends at once leaves no loader" {
    write_tiny_conf tiny.conf
    "$BIN/shardtool" tokenize --quiet --val 0.5 --docs lines -o halves text.txt
    "$BIN/trainer" train tiny.conf --quiet --dataset=halves --out_dir=out --max_iters=1 --sample_tokens=0
    loaders() { pgrep -f "serve $PWD/halves " || true; }
    no_loader() { [ -z "$(loaders)" ]; }
    for i in $(seq 10); do
        MILLRACE_ISA=none run_code 2 "$BIN/trainer" eval tiny.conf --dataset="$PWD/halves" --out_dir=out
        "$BIN/trainer" eval tiny.conf --dataset="$PWD/halves" --out_dir=out >/dev/null 3>&- &
        until is_gone $! || pgrep -P $! >/dev/null; do :; done
        kill -9 $! && wait $! || true
    done 2>/dev/null
    wait_until no_loader || { loaders | xargs -r kill -9 && return 1; }
}

# bats test_tags=ci
@test "a trainer without a dataset and a loader says at once what it waits for, and gives up after 5 seconds" {
    write_tiny_conf tiny.conf
    mkdir -m 700 run
    XDG_RUNTIME_DIR=$PWD/run run_code 69 timeout 60 "$BIN/trainer" train tiny.conf --out_dir=out
    [[ "$output" == *"waiting for a loader at ipc://$PWD/run/millrace: give --dataset=DIR or --loader=ENDPOINT"* ]]
    [[ "$output" == *"no loader at ipc://$PWD/run/millrace after 5 s"* ]]
}

# bats test_tags=ci
@test "status prints the counters of a running loader, 69 without one" {
    run_code 69 "$BIN/loader" serve-status --endpoint ipc://place
    start
    run_code 0 "$BIN/loader" serve-status --endpoint ipc://place
    [[ "${lines[0]}" =~ ^batches\ +0$ ]]
    "$BIN/loader" serve-status --endpoint ipc://place --json | python3 -c '
import json, sys
stats = json.load(sys.stdin)
assert stats["batches"] == 0 and stats["sessions"] == 0 and stats["uptime_ms"] >= 0, stats'
}

umask_mode() { touch fresh && stat -c %a fresh; }

@test "the metrics file replaces nothing but a regular file" {
    mkfifo pipe
    ln -s text.txt link
    mkdir folder
    for file in pipe link folder; do # a device would be lost if this failed
        run_match 73 "'$file' is not a regular file" timeout 60 "$BIN/loader" serve set --endpoint ipc://place --metrics $file
    done
    [ -p pipe ]
    [ -L link ]
    cp set/dataset.jsonl before
    run_match 73 "is another file, which the metrics would replace" timeout 60 "$BIN/loader" serve set --endpoint ipc://place --metrics set/dataset.jsonl
    cmp set/dataset.jsonl before
    run_code 73 timeout 60 "$BIN/loader" serve set --endpoint ipc://place --metrics nosuch/metrics
    [[ "$output" == *"cannot create 'nosuch/metrics.tmp': No such file or directory"* ]]
}

@test "a cache that is too small or larger than the memory is refused with the accepted sizes, 2" {
    for size in 1 1M 999999999999999999; do
        run_code 2 timeout 60 "$BIN/loader" serve set --endpoint ipc://place --cache $size
        [[ "$output" == *"--cache is "*" bytes: give 0 (the default), or 2.0 MiB to "*"the memory that there is"* ]]
    done
    start --cache 2M
}

@test "status and the metrics file report clients, sources and memory" {
    start --metrics metrics.prom
    wait_until test -s metrics.prom
    [ "$(stat -c %a metrics.prom)" = "$(umask_mode)" ]
    grep -q '^# TYPE millrace_loader_tokens_total counter$' metrics.prom
    printf '%s\n' n_layer=1 n_head=2 n_embd=32 block_size=16 batch_size=2 gradient_accumulation_steps=1 \
        max_iters=1000000 eval_interval=0 threads=1 "dtype='float32'" >tiny.conf
    "$BIN/trainer" train tiny.conf --quiet --loader=ipc://place --out_dir=run 2>stderr 3>&- >/dev/null &
    TRAINER=$!
    has_tokens() { "$BIN/loader" serve-status --endpoint ipc://place --json | python3 -c '
import json, sys
status = json.load(sys.stdin)
assert status["sources"][0]["name"] == "set" and status["sources"][0]["replaced"] == 0
client, = status["clients"]
assert client["name"].endswith(" run") and client["address"] == "pid " + sys.argv[1] and client["unread_bytes"] == 0, client
assert client["next_sample"] == 2 * client["batches"] and client["name"].split(" ")[0].endswith(":" + sys.argv[1]), client
assert client["ring"] is True and client["block_size"] == 16 and client["batches"] > 1 and client["tokens_per_s"] > 0
assert status["resident_bytes"] > 1 << 20 and status["tokens"] == status["sources"][0]["tokens"]' $TRAINER; }
    wait_until has_tokens
    "$BIN/loader" serve-status --endpoint ipc://place --prometheus >now.prom
    grep -q '^millrace_loader_client_tokens_total{endpoint="ipc://'"$PWD"'/place",session="[0-9a-f]*",address="pid '$TRAINER'",name="[^"]*:'$TRAINER' run"} [1-9]' now.prom
    grep -q '^millrace_loader_source_tokens_total{endpoint="[^"]*",name="set",fingerprint="[0-9a-f]*",source="1"} [1-9]' now.prom
    now=$(sed -n 's/^millrace_loader_time_seconds{[^}]*} //p' now.prom)
    [ "$now" -le "$(date +%s)" ] && [ "$now" -ge "$(sed -n 's/^millrace_loader_start_time_seconds{[^}]*} //p' now.prom)" ]
    # The names follow the rules of promtool.
    python3 -c '
import re, sys
kinds, helps = {}, []
for line in open(sys.argv[1]):
    words = line.split()
    if line.startswith("# TYPE"): kinds[words[2]] = words[3]
    elif line.startswith("# HELP"): helps.append(words[2])
    else: assert line.split("{")[0].split()[0] in kinds, line
assert sorted(kinds) == sorted(helps) and "millrace_loader_start_time_seconds" in kinds, (kinds, helps)
for name, kind in kinds.items():
    assert name.endswith("_total") == (kind == "counter") and not re.search("_[mun]s(_|$)", name), name' now.prom
    "$BIN/loader" serve-status --endpoint ipc://place | grep -q '^set .* [0-9a-f]\{16\} *1 '
    "$BIN/loader" serve-status --endpoint ipc://place | grep -q "^[0-9a-f]\{16\} ring .* pid $TRAINER  *[^ ]*:$TRAINER run$"
    "$BIN/loader" serve-status --endpoint ipc://place --watch >watched 3>&- &
    WATCH=$!
    twice() { [ "$(grep -c ^uptime_ms watched)" -ge 2 ]; }
    wait_until twice
    kill "$WATCH"
    stop_loader
    [ ! -e metrics.prom ] # else old values would look like those of a loader that runs
}

# fault 96
@test "a loader whose socket is removed ends with 69, and SIGUSR1 does not end it" {
    start
    kill -USR1 "$LOADER"
    "$BIN/loader" serve-status --endpoint ipc://place | grep -q ^uptime_ms
    rm place/data.sock
    wait_until grep -q "the sockets in 'place' have been removed" log
    code=0
    wait "$LOADER" || code=$?
    LOADER=
    [ $code = 69 ]
}

@test "serve begins its lines with the time, except in the journal of systemd and in the lines of a trainer" {
    stamp='^20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9][.][0-9]\{3\}Z loader: '
    TZ=America/Lima start
    grep -q "$stamp"'ready: ' log
    minute=$(date -u +%Y-%m-%dT%H)
    [[ "$(head -c 13 log)" == "$minute" || "$(date -u +%M)" == 00 ]] # UTC
    run_code 73 "$BIN/loader" serve set --endpoint ipc://place
    grep -q "${stamp%: } serve: " <<<"$output"
    stop_loader
    grep -q "$stamp"'stopped$' log
    JOURNAL_STREAM=$(stat -c %d:%i log) start
    grep -q '^loader: ready: ' log
    stop_loader
    JOURNAL_STREAM=$(stat -c %d:%i text.txt) start # stderr has been redirected to another file
    grep -q "$stamp"'ready: ' log
    stop_loader
    start --die-with-parent=$$
    grep -q '^loader: ready: ' log
}

@test "serve notifies systemd when it is ready and when it stops" {
    python3 -c '
import socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
server.bind("notify")
server.settimeout(60)
print(server.recv(100).decode(), flush=True)
print(server.recv(100).decode(), flush=True)' >states 3>&- &
    python=$!
    wait_until test -S notify
    NOTIFY_SOCKET=notify start
    wait_until grep -qx "READY=1" states
    kill "$LOADER"
    wait "$python"
    grep -qx "STOPPING=1" states
}

# fault 44
@test "tcp needs keys or --insecure (77), a port in use exits with 73" {
    for host in 0.0.0.0 192.168.0.1 example.org 127.0.0.1.example.org 127.0.0.1 localhost; do
        run_code 77 "$BIN/loader" serve set --endpoint "tcp://$host:5555"
    done
    port=$(free_port)
    start --endpoint "tcp://localhost:$port" --insecure
    grep -q "at tcp://localhost:" log
    run_code 73 "$BIN/loader" serve set --endpoint "tcp://127.0.0.1:$port" --insecure
}

@test "with few descriptors, the loader ends with 71 or serves" {
    serves_or_ended() { grep -q ready log || is_gone "$LOADER"; }
    for files in 8 10 12 14 16 20 24; do
        (ulimit -n $files && exec "$BIN/loader" serve set --endpoint ipc://place) 2>log 3>&- &
        LOADER=$!
        wait_until serves_or_ended
        ! grep -q ready log || break
        status=0
        wait "$LOADER" || status=$?
        LOADER=
        [ "$status" -eq 71 ] || { echo "$files: $status" && cat log && false; }
        run_code 71 sh -c "ulimit -n 8; exec \"\$BIN/loader\" serve-status --endpoint ipc://place"
    done
    [ "$files" -gt 8 ]
}

# fault 38, 49
@test "hundreds of connections that send nothing do not stop the loader" {
    [ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 1024 ] || skip "the hard limit of descriptors is $(ulimit -Hn)"
    ulimit -Sn 64
    start
    python3 - place/data.sock "$BIN/loader" <<'END'
import resource, socket, subprocess, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
peers = []
for _ in range(400):
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(sys.argv[1])
    peers.append(peer)
subprocess.run([sys.argv[2], "serve-status", "--endpoint", "ipc://place"], check=True)
END
    stop_loader
}

# fault 38
@test "connections beyond the limit on descriptors are refused, and the loader continues to serve" {
    ulimit -n 128
    start
    python3 - place/data.sock place/ctl.sock <<'END'
import socket, sys
def connect(path, kind):
    peer = socket.socket(socket.AF_UNIX, kind)
    peer.connect(path)
    return peer
def is_served(peer):  # refused, or left waiting where another thread of the loader has just taken the spare descriptor
    peer.settimeout(5)
    try:
        return peer.recv(64) != b""
    except TimeoutError:
        return False
for path, kind in ((sys.argv[1], socket.SOCK_STREAM), (sys.argv[2], socket.SOCK_SEQPACKET)):
    peers = [connect(path, kind) for _ in range(115)]  # this process has the same limit
    assert not is_served(peers[-1]), path
    del peers
END
    grep -q "refused a connection: all descriptors are in use" log
    "$BIN/loader" serve-status --endpoint ipc://place
    stop_loader
}

@test "keygen creates a key file that others cannot read and never overwrites one" {
    run_code 0 "$BIN/loader" keygen loader.key
    [ "${#output}" -eq 40 ]
    [ "$(head -1 loader.key)" = "$output" ]
    [ "$(stat -c %a loader.key)" = 600 ]
    run_code 73 "$BIN/loader" keygen loader.key
    run_code 73 "$BIN/loader" keygen missing/loader.key
    if command -v strace >/dev/null; then # one that is not whole is not a key
        run_code 74 strace -f -qq -o /dev/null -e trace=fsync -e inject=fsync:error=EIO "$BIN/loader" keygen other.key
        [ ! -e other.key ]
    fi
}

@test "serve refuses one key file without the other, a readable secret key (77) and a line that is not a key (2)" {
    "$BIN/loader" keygen loader.key
    "$BIN/loader" keygen trainer.key >allow
    run_code 2 "$BIN/loader" serve set --endpoint tcp://127.0.0.1:5555 --key loader.key
    echo nonsense >>allow
    run_match 2 "'allow' line 2" "$BIN/loader" serve set --endpoint tcp://127.0.0.1:5555 --key loader.key --allow allow
    chmod 666 allow
    run_code 77 "$BIN/loader" serve set --endpoint tcp://127.0.0.1:5555 --key loader.key --allow allow
    chmod 644 allow
    : >allow
    run_code 66 "$BIN/loader" serve set --endpoint tcp://127.0.0.1:5555 --key loader.key --allow allow
    chmod 644 loader.key
    run_code 77 "$BIN/loader" serve set --endpoint tcp://127.0.0.1:5555 --key loader.key --allow allow
}

@test "status reaches a loader with keys only with the right ones" {
    "$BIN/loader" keygen loader.key >loader.public
    "$BIN/loader" keygen client.key >allow
    port=$(free_port)
    start --endpoint "tcp://[::1]:$port" --key loader.key --allow allow
    "$BIN/loader" serve-status --endpoint "tcp://[::1]:$port" --key client.key --loader-key "$(cat loader.public)" | grep -q '^uptime_ms'
    "$BIN/loader" serve-status --endpoint "tcp://[::1]:$port" --key loader.key | grep -q '^uptime_ms'
    run_code 2 "$BIN/loader" serve-status --endpoint "tcp://[::1]:$port" --loader-key "$(cat loader.public)"
    run_code 69 "$BIN/loader" serve-status --endpoint "tcp://[::1]:$port"
    run_match 69 "check its address and the keys" "$BIN/loader" serve-status --endpoint "tcp://[::1]:$port" --key client.key # which is not the loader's own
}

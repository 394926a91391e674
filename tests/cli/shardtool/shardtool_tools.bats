# shardtool's tools over shards and datasets: every reader takes a dataset, a shard or standard input.

load ../helpers

setup() {
    enter_test
    export TMPDIR="$PWD"
}

# Forty documents in 24 train and 4 val shards; most documents span shards.
dataset() {
    mkdir -p in
    for i in $(seq 40); do seq "$i" $((i * 17)) >"in/$(printf %03d "$i").txt"; done
    shardtool tokenize -q --val 0.2 --shard-tokens 1000 --frame-tokens 100 -o d in
    zstd -dcq d/train/*/*.zst >train.raw
    zstd -dcq d/val/*/*.zst >val.raw
}

@test "cat prints and merges the shards of a dataset" {
    dataset
    shardtool cat d | cmp - train.raw
    shardtool cat --split val d | cmp - val.raw
    shardtool cat -o train.zst d
    shardtool verify -q train.zst
    shardtool cat train.zst | cmp - train.raw
    shardtool cat --split val -o - d | shardtool verify -q -
    shardtool tokenize -q --val 0 -o plain in
    run_match 66 "'plain' has no val shards" shardtool cat --split val -o none.zst plain
    [ ! -e none.zst ]
}

@test "every reader takes a shard from a pipe and from a redirection, and leaves no file" {
    dataset
    shardtool cat -o s.zst d
    rm -rf in
    touch before # or ls may come before the shell has made it
    ls -A | sort >before
    for arguments in "cat" "info" "info --shards" "info --docs" "info --lengths" "info --ids" "info --frames" "verify -q" "diff --ids --split train d" "cat --random 5" "cat --ids" "decode"; do
        shardtool $arguments s.zst 2>&1 | sed 's/s\.zst/-/g' >"$BATS_TEST_TMPDIR/.file"
        cat s.zst | shardtool $arguments - 2>&1 | cmp - .file
        shardtool $arguments - <s.zst 2>&1 | cmp - .file
    done
    cat s.zst | shardtool cat - 5:5000 | cmp - <(shardtool cat s.zst 5:5000)
    cat s.zst | shardtool cat -o copy.zst -
    cmp s.zst copy.zst
    cat s.zst | shardtool verify --rebuild rebuilt.zst -
    shardtool diff --ids s.zst rebuilt.zst
    rm copy.zst rebuilt.zst .file
    ls -A | sort | cmp - before
}

@test "what is read from a pipe is checked like a file" {
    dataset
    shardtool cat -o s.zst d
    run_match 1 "shard '-': truncated" bash -c 'head -c 9000 s.zst | shardtool verify -'
    run_match 65 "not a shard" bash -c 'echo text | shardtool info -'
    run_code 65 bash -c ': | shardtool cat -'
    run_code 74 bash -c 'trap "" XFSZ; ulimit -f 4; cat s.zst | shardtool info -'
    run_match 73 "/absent/folder*TMPDIR" bash -c 'cat s.zst | TMPDIR=/absent/folder shardtool info -'
}

@test "decode prints a shard, a dataset, one document, a range" {
    dataset
    shardtool decode --raw train.raw >train.txt
    shardtool decode d | cmp - train.txt
    shardtool decode --split val d | cmp - <(shardtool decode --raw val.raw)
    shardtool cat -o s.zst d
    shardtool decode s.zst | cmp - train.txt
    cat s.zst | shardtool decode | cmp - train.txt
    python3 -c '
import fcntl, os, struct, sys, termios, time
data = open("s.zst", "rb").read()
os.write(1, data[:3])
while struct.unpack("i", fcntl.ioctl(1, termios.FIONREAD, bytes(4)))[0]: time.sleep(0.001) # until they are read
sys.stdout.buffer.write(data[3:])' | shardtool decode - | cmp - train.txt
    shardtool decode d 10:2500 | cmp - <(shardtool cat d 10:2500 | shardtool decode --raw)
    # documents, whole, in order, across shards: those of the folder that are not in val
    documents=$(shardtool info --json d | jq .train_documents)
    for i in $(seq 0 $((documents - 1))); do shardtool decode --doc "$i" d | md5sum; done >got
    for i in in/*; do md5sum <"$i"; done | grep -Fxf got | cmp - got
    cat s.zst | shardtool decode --doc 7 - | cmp - <(shardtool decode --doc 7 d)
    shardtool decode --doc 7 d 3:9 | cmp - <(shardtool decode --doc 7 d | shardtool tokenize --ids --format text | cut -d' ' -f4-9 | shardtool decode)
    run_match 2 "--doc $documents is not below the $documents documents of the input" shardtool decode --doc "$documents" d
    run_code 2 shardtool decode --doc x d
    run_code 2 shardtool decode d 5:4
    mkdir folder
    run_match 2 "'folder' is a folder, and no dataset: --json prints the documents in it" shardtool decode --doc 3 folder
}

@test "an option that has no effect in this mode is refused by name" {
    dataset
    echo '{"text": "five"}' >five.jsonl && echo 5 >five
    refused() { run_match 2 "$1 has no effect $2" shardtool "${@:3}"; }
    refused --doc "on ids, only on a shard or dataset" decode --doc 0 five
    refused --split "on ids, only on a shard or dataset" decode --split val five
    refused --text-field "on ids, only on inputs" decode --text-field x five
    refused --raw "on a shard or dataset, only on ids" decode --raw d
    refused --max-bad "on a shard or dataset, only on inputs" decode --json --max-bad 1 d
    refused --split "on inputs, only on a shard or dataset" decode --json --split val five.jsonl
    refused --doc "on inputs, only on a shard or dataset" decode --json --doc 0 five.jsonl
    refused --raw "on inputs, only on ids" decode --json --raw five.jsonl
    refused --vocabulary "on inputs, only on ids or on a shard or dataset" decode -0 --vocabulary d five.jsonl
    refused --seed "without -o, only with --random" cat --seed 3 d
    refused --seed "with ranges or --ids, only with --random" cat --ids --seed=3 d
    refused --force "without -o, only with -o" cat --force d
    refused --val "with --ids or --raw, only with -o DIR" tokenize --ids --val 0.1 five
    refused --part "with --ids or --raw, only with -o DIR or with -o -" tokenize --raw --part 1/2 five
    refused --shard-tokens "with -o -, only with -o DIR" tokenize -o - --shard-tokens 5k five
    refused --json "with -o -, only with -o DIR" tokenize -o - --json five
}

@test "diff says how to compare unlike things" {
    dataset
    shardtool cat -o s.zst d
    run_match 2 "'d' is a dataset and 's.zst' is not*--ids" shardtool diff d s.zst
    mkdir empty
    run_match 66 "'empty' is not a dataset" shardtool diff d empty
    shardtool diff --ids --split train d s.zst
    run_code 1 shardtool diff --ids --split val d s.zst
    run_match 2 "'d' has two splits*--split val" shardtool diff --ids d s.zst
    run_code 66 shardtool diff d nowhere
    shardtool shuffle -q -o other d
    run_code 1 shardtool diff other d
    run_code 0 shardtool diff --split train d d
}

documents() { # PATH [SPLIT]: one line a document, its ids with the end-of-text id
    shardtool cat --ids --split "${2:-train}" "$1" : | sed 's/ 50256/ 50256\n/g; s/^50256/50256\n/' | sed 's/^ //; /^$/d'
}

@test "info lists shards, documents, frames and lengths" {
    dataset
    run_code 0 shardtool info --shards d
    [ "${#lines[@]}" = 29 ]
    [[ "${lines[1]}" == *"1000"*"d/train/000/000000.zst" ]]
    shardtool info --shards --json d | jq -c '[.path, .tokens, .documents, .bytes]' >got
    tail -n +2 d/dataset.jsonl | jq -c '["d/" + .file, .tokens, .documents, .bytes]' | cmp - got
    [ "$(cat d/train/000/00000[01].zst | shardtool info --shards --json - | wc -l)" = 2 ]
    for split in train val; do
        shardtool info --docs --json --split $split d | jq .tokens | cmp - <(documents d $split | awk '{print NF}')
        shardtool info --frames --json --split $split d | jq -s 'map(.tokens) | add' | cmp - <(documents d $split | wc -w)
    done
    [ "$(shardtool info --frames --json --split val d | jq -r .shard | sort -u | wc -l)" = 4 ]
    run_code 0 shardtool info --docs d/train/000/000000.zst
    [[ "${lines[-1]}" == *"(no end-of-text)" ]]
    documents d | awk '{print NF}' | sort -n >lengths
    count=$(wc -l <lengths)
    for p in 1 5 25 50 75 95 99; do # the nearest rank
        echo "p$p $(sed -n "$(((count * p + 99) / 100))p" lengths)"
    done >want
    shardtool info --lengths d | head -17 | grep -E '^p[0-9]+ ' | tr -s ' ' | cmp - want
    shardtool info --lengths --json d | head -1 | jq -c '[.documents, .min, .max, .tokens]' >got
    [ "$(cat got)" = "[$count,$(head -1 lengths),$(tail -1 lengths),$(paste -sd+ lengths | bc)]" ]
    [ "$(shardtool info --lengths --json d | jq -s 'map(.text_bytes) | add')" = "$(cat in/* | wc -c)" ]
    [ "$(shardtool info --lengths --json d | jq -r .split | tr '\n' ' ')" = "train val " ]
    for split in train val; do
        documents d $split | awk '{print NF}' | python3 -c '
import json, sys
lengths = [int(line) for line in sys.stdin]
octaves = range(min(lengths).bit_length() - 1, max(lengths).bit_length())
inside = {o: [n for n in lengths if n.bit_length() - 1 == o] for o in octaves}
print(json.dumps([{"from": 2**o, "documents": len(inside[o]), "tokens": sum(inside[o])} for o in octaves], separators=(",", ":")))
highest = max(map(len, inside.values()))
for o in octaves:
    signs = len(inside[o]) * 40 // highest
    print(f"{2**o}-{2**(o + 1) - 1} {len(inside[o])} {100 * len(inside[o]) / len(lengths):.1f} {100 * sum(inside[o]) / sum(lengths):.1f} {chr(35) * (signs or bool(inside[o]))}".strip())' >histogram
        shardtool info --lengths --json d | jq -c "select(.split == \"$split\").histogram" | cmp - <(head -1 histogram)
        shardtool info --lengths d | awk -v name=", $split$" '/^path/ { on = $0 ~ name } on && /^ +[0-9]+-/' | sed 's/^ *//; s/  */ /g; s/ $//' |
            cmp - <(tail -n +2 histogram)
    done
    shardtool info --sources --json d | head -n 1 | cmp - <(printf '{"source":"in","dataset":"d","files":%d,"bytes":%d}\n' "$(find in -type f | wc -l)" "$(cat in/* | wc -c)")
    run_match 0 "40 *  in" shardtool info --sources d
    make_ascii
    mkdir -p data/web/deep # a folder counts as one input, also beside a file that sorts in its midst
    for i in 1 2 3 4 5; do seq $((i * 7)) | jq -c '{text: ("x" * .)}' >data/web$(cut -d ' ' -f "$i" <<<"/a /deep/b -2 /c .d").jsonl; done
    shardtool tokenize -q --vocabulary ascii --val 0.2 -o ordered data
    shardtool shuffle -q -o several ordered
    python3 - >want <<'END'
import collections, json, pathlib
counts = collections.defaultdict(collections.Counter)
for path in pathlib.Path("data").rglob("*.jsonl"):
    for line in path.open():
        counts["/".join(path.parts[:2])].update(documents=1, tokens=len(json.loads(line)["text"]) + 1)
whole = sum(count["tokens"] for count in counts.values())
for name, count in sorted(counts.items(), key=lambda item: -item[1]["tokens"]):
    print(json.dumps({"input": name, "dataset": "several", **count, "share": round(count["tokens"] / whole, 4)}))
END
    diff <(shardtool info --sources --json several | sed 1d | jq -Sc) <(jq -Sc . want)
    [ "$(wc -l <want)" = 3 ]
    shardtool info --sources several | tail -n 3 | awk '{print $1, $2, $3, $4}' |
        diff - <(jq -r '"\(.documents) \(.tokens) \(.share * 1000 | round / 10) \(.input)"' want)
    run_match 0 "'d/train/000/000000.zst' is a shard alone, which has no sources: name its dataset" shardtool info --sources d/train/000/000000.zst
    for part in 1 2; do shardtool tokenize -q --part $part/2 -o parts in; done
    shardtool merge -q -o joined parts/part-*
    cmp <(shardtool info --sources --json d | jq -c) <(shardtool info --sources --json joined | jq -c '.dataset = "d"')
    echo text | shardtool tokenize -q -o piped -
    [ "$(shardtool info --sources --json piped | head -n 1 | jq -c '[.files, .bytes]')" = '[1,null]' ]
    # each line names its dataset if there are several
    for command in "info --docs" "decode" "decode --random 2"; do
        shardtool $command --json d piped | jq -r .dataset | uniq | cmp - <(printf '%s\n' d piped)
        [ "$(shardtool $command --json d | jq -c 'has("dataset")' | uniq)" = false ]
    done
    printf 'a ' >long
    yes 'b ' | head -100000 | tr -d '\n' >>long
    shardtool tokenize -o - long | shardtool info --lengths --json - | jq -e '.max > 65536 and .min == .max and .p1 == .max and .p99 == .max'
    for list in "" --shards --docs --frames --lengths --sources --ids; do
        run_code 66 shardtool info $list absent
        run_code 2 shardtool info $list
    done
    run_match 2 "exclude each other" shardtool info --shards --ids d
}

@test "report makes a page of datasets: the numbers of info, and bars as long as the documents are many" {
    dataset
    shardtool tokenize -q --val 0 -o 'a&b' in/ && "$BIN/trainer" report -o page.html d 'a&b'
    shardtool info --lengths --json d >want && shardtool info --lengths --json 'a&b' | head -1 >>want
    python3 - <<'END'
import html.parser, json
class Page(html.parser.HTMLParser):
    tag, tables, text = "", [], []
    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "link", "i"), tag
        if tag == "table": self.tables.append((dict(attributes).get("class"), []))
        if tag == "tr": self.tables[-1][1].append([])
        if tag == "hr": self.tables[-1][1][-1].append(float(dict(attributes)["style"][6:-2]))
        if tag == "h2": self.text.append("")
        self.tag = tag
    def handle_data(self, data):
        if self.tag in ("td", "th") and data.strip(): self.tables[-1][1][-1].append(data)
        if self.tag == "h2": self.text[-1] += data.strip()
page = Page()
page.feed(open("page.html").read())
assert page.text == ["d", "a&b"], page.text
want = [json.loads(line) for line in open("want")]
bars = [rows[1:] for kind, rows in page.tables if kind == "bars"]
assert len(bars) == len(want) == 3
for rows, lengths in zip(bars, want):
    highest = max(octave["documents"] for octave in lengths["histogram"])
    assert len(rows) == len(lengths["histogram"])
    for (tokens, documents, share, of_tokens, bar), octave in zip(rows, lengths["histogram"]):
        assert tokens == f"{octave['from']}-{2 * octave['from'] - 1}" and int(documents) == octave["documents"]
        assert abs(float(share) - 100 * octave["documents"] / lengths["documents"]) < 0.051
        assert abs(float(of_tokens) - 100 * octave["tokens"] / lengths["tokens"]) < 0.051
        assert abs(bar - 20 * octave["documents"] / highest) < 0.051
totals = {row[0]: row[1:] for row in page.tables[0][1]}
for name, key in {"documents": "documents", "tokens": "tokens", "bytes of text": "text_bytes", "longest": "max", "50 % have at most": "p50"}.items():
    assert totals[name] == [str(lengths[key]) for lengths in want[:2]], name
sources = [rows[1:] for kind, rows in page.tables if rows[0][0] == "source"]
assert [row[:2] for rows in sources for row in rows] == [["in", "40"], ["in/", "40"]], sources
inputs = [rows[1:] for kind, rows in page.tables if rows[0][0] == "input"]
assert [len(rows) for rows in inputs] == [40, 40]
for rows, splits in zip(inputs, (want[:2], want[2:])):
    for column, key in (1, "documents"), (2, "tokens"):
        assert sum(int(row[column]) for row in rows) == sum(split[key] for split in splits), key
END
    run_match 2 "report is about runs or about datasets, not both" "$BIN/trainer" report -o both.html d in
}

# fault 94
@test "filter, dedup and shuffle write one split with --split, to a dataset as to standard output" {
    dataset
    for tool in "filter --min-tokens 1" "dedup" "shuffle --seed 5"; do
        for split in train val; do
            rm -rf one && shardtool $tool -q --split $split -o one d
            shardtool $tool -q --split $split -o - d | shardtool diff --ids --split $split one -
            shardtool info --json one | jq -e '.'$split'_documents > 0 and .train_documents * .val_documents == 0' >/dev/null
            run_code 73 shardtool $tool -o one d # that is another dataset
        done
    done
}

@test "filter keeps whole documents by length and by id" {
    dataset
    shardtool filter -q --min-tokens 200 --max-tokens 900 -o f d
    shardtool verify -q f
    for split in train val; do
        documents d $split | awk 'NF >= 200 && NF <= 900' >want
        documents f $split | cmp - want
    done
    shardtool filter -q --invert --min-tokens 200 --max-tokens 900 -o rest d
    documents rest | cmp - <(documents d | awk 'NF < 200 || NF > 900')
    # 3388 is "33"
    shardtool filter -q --contains-id 3388 --contains-id 65 -o c d
    documents c | cmp - <(documents d | grep -wE '3388|65')
    shardtool info --json c | jq -e '.source_bytes > 0'
    run_match 2 "missing a condition" shardtool filter -o x d
    run_code 2 shardtool filter --contains-id 1048576 -o x d
    run_match 66 "no documents are left to write" shardtool filter --min-tokens 1000000 -o x d
    [ ! -e x ]
    [ -z "$(find x -name '*.zst*' -o -name dataset.jsonl)" ]
}

@test "the tools that write datasets read pipes, do not depend on -j, and replace a dataset only with --force" {
    dataset
    shardtool cat -o s.zst d
    for tool in "filter --max-tokens 700" "dedup" "shuffle --seed 5"; do
        rm -rf one seven
        shardtool $tool -q -j 1 -o one d
        shardtool $tool -q -j 7 -o seven d
        cmp one/dataset.jsonl seven/dataset.jsonl
        shardtool diff one seven
        shardtool verify -q one
        [ "$(ls -A one | grep -v -e .lock -e train -e val | tr '\n' ' ')" = "dataset.jsonl " ]
        # to standard output, from standard input
        shardtool $tool -q -o - d | shardtool diff --ids --split train - one
        cat s.zst | shardtool $tool -q -o - - | shardtool diff --ids --split train - one
        shardtool $tool -q --split val -o - d | shardtool diff --ids --split val - one
        run_match 2 "'one' is both input and output" shardtool $tool --force -o one one
        run_match 2 " lies in the output 'one'" shardtool $tool --force -o one "$(ls one/train/*/*.zst | head -1)"
        run_match 0 "'one' is already complete" shardtool $tool -o one d
        run_match 73 "already holds another dataset" shardtool $tool -o one s.zst
        shardtool diff one seven
        shardtool $tool -q --force -o one s.zst
        shardtool verify -q one
        # damaged input: the old output stays
        cp -r d bad
        printf x | dd of=bad/train/000/000005.zst bs=1 seek=200 conv=notrunc status=none
        run_code 65 shardtool $tool -q --force -o seven bad
        shardtool verify -q seven
        shardtool $tool -q -o third d
        cmp seven/dataset.jsonl third/dataset.jsonl
        rm -rf bad third
        run_match 65 "begins inside a document" shardtool $tool -o x d/train/000/000001.zst
        run_match 2 "missing -o DIR" shardtool $tool d
    done
    ls -A | grep -E 'bucket|tmp' && false
    true
}

@test "a killed run continues with the same command and leaves no file behind" {
    dataset
    for tool in "filter --max-tokens 700" "dedup" "shuffle --seed 5"; do
        rm -rf whole
        shardtool $tool -q -o whole d
        for call in write fsync rename; do
            rm -rf out
            kill_at $call 3 shardtool $tool -q -o out d || true
            shardtool $tool -q -o out d
            shardtool verify -q out
            cmp whole/dataset.jsonl out/dataset.jsonl
            [ "$(cd out && find . ! -name .lock | sort)" = "$(cd whole && find . ! -name .lock | sort)" ]
        done
    done
}

@test "dedup keeps the first of equal documents" {
    mkdir in
    for i in $(seq 30); do echo "document $((i % 7))" >"in/$(printf %02d "$i").txt"; done
    : >in/00.txt # empty documents are left out by tokenize
    shardtool tokenize -q --val 0 -o d in
    run_match 0 "removed 23 of 30 documents" shardtool dedup -o u d
    documents u | cmp - <(documents d | awk '!seen[$0]++')
    # several inputs are one sequence
    shardtool tokenize -q --val 1 -o v in
    run_code 0 shardtool dedup -o both d v u
    [ "$(documents both | wc -l)" = 7 ]
    [ "$(shardtool info --json both | jq .val_documents)" = 0 ]
}

@test "shuffle writes every document once, in an order of the seed" {
    dataset
    shardtool shuffle -q --seed 1 -o one d
    shardtool shuffle -q --seed 2 -o two d
    for split in train val; do
        documents d $split >before
        documents one $split >after
        cmp <(sort before) <(sort after)
        cmp -s before after && false
        documents two $split | cmp -s - after && false
    done
    shardtool info --json one | jq -e '.source_bytes == '"$(cat in/* | wc -c)"
}

@test "split makes parts that merge joins again" {
    dataset
    shardtool split -q --parts 3 -o parts d
    [ "$(ls parts | tr '\n' ' ')" = "part-000000 part-000001 part-000002 " ]
    for i in 0 1 2; do
        shardtool verify -q parts/part-00000$i
        [ "$(shardtool info --json parts/part-00000$i | jq .val_documents)" = 2 ]
        documents parts/part-00000$i
    done | cmp - <(documents d)
    shardtool merge -q -o whole parts/part-*
    shardtool diff --ids d whole
    run_code 0 shardtool split --parts 3 -o parts d
    [ "$(grep -c "is already complete" <<<"$output")" = 3 ]
    run_match 73 "'parts/part-000002' belongs to another split" shardtool split --force --parts 2 -o parts d
    shardtool split -q --max-tokens 5000 -o tokens d
    for part in tokens/part-*; do documents $part | awk '{n += NF} END {print n}'; done | head -n -1 | awk '$1 < 5000 {exit 1}'
    shardtool merge -q -o again tokens/part-*
    shardtool diff --ids d again
    run_match 2 "--parts 100 is above the 34 documents" shardtool split --parts 100 -o x d
    run_code 2 shardtool split -o x d
    run_code 2 shardtool split --parts 2 --max-tokens 5 -o x d
}

@test "a document without end-of-text is refused where it would join the next" {
    printf '\001\000\002\000' >train.bin
    shardtool import-tokens -q --format nanogpt -o a train.bin
    shardtool filter -q --min-tokens 1 -o same a
    shardtool diff --ids a same
    run_match 65 "the document before document 0 of 'same' has no end-of-text id" shardtool filter --min-tokens 1 -o x a same
    [ -z "$(find x -name '*.zst*')" ]
}

@test "decode --json gives the documents back, whatever is in them" {
    mkdir in && printf '<|endoftext|> as text\n\tand "quotes" \\ \0 \x01 é 日本\n' >in/a.txt && seq 60000 >in/b.txt && : >in/c.txt && printf x >in/d.txt
    shardtool tokenize -q --val 0 --frame-tokens 1024 --shard-tokens 4096 -o d in
    shardtool decode --json in >want
    places() { sed -E 's/,"input":"in\/[a-d].txt","record":0\}$/}/'; } # which are tested in provenance.bats
    shardtool decode --json d | places | cmp - want
    shardtool cat -o - d | shardtool decode --json - | cmp - want
    shardtool decode --json --doc 1 d | places | cmp - <(sed -n 2p want)
    [ "$(shardtool decode --json --doc 1 d 2:4)" = "$(shardtool decode --doc 1 d 2:4 | jq -Rsc . | sed 's/.*/{"text": &}/')" ]
    [ "$(shardtool decode --json d 0:2 5:9 | wc -l)" = 2 ]
    shardtool decode -0 in | tee raw | cmp - <(shardtool decode -0 d)
    for form in cat "head -c 3"; do $form in/b.txt | shardtool decode -0 | cmp - <($form in/b.txt && printf '\0'); done
    shardtool cat -o - d | shardtool decode -0 - | cmp - raw
    # an input is what neither is a dataset nor begins as a shard; ids alone are text here
    echo 15496 995 >ids
    [ "$(shardtool decode --json ids)" = '{"text": "15496 995\n"}' ]
    run_match 2 "'d' holds ids and 'in' is an input" shardtool decode --json d in
    run_match 2 "ranges need a shard or dataset" shardtool decode --json ids 0:1
}

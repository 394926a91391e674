# `report`: two runs item by item and sample by sample, two configurations with several seeds.
load ../helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || exit
    make_data 6000 0.1 --vocabulary ascii
}

# graded RUN STEP RIGHT...: items of tasks `first` and `second`; each letter of RIGHT is an item, 1: right
graded() {
    mkdir -p "$1"
    [ -e "$1/metrics.jsonl" ] || echo '{"step": 1, "loss": 2.0}' >"$1/metrics.jsonl"
    {
        echo "{\"format\":\"millrace items 1\",\"items_sha256\":\"${digest:-ab12}\",\"model\":\"$1\",\"step\":$2,\"block\":${block:-16},\"rule\":\"${rule:-r}\"}"
        for task in first second; do
            grep -o . <<<"$3" | cat -n | while read -r id right; do
                echo "{\"task\":\"$task\",\"id\":$id,\"kind\":\"choice\",\"label\":1,\"right\":$right,\"losses\":[9,$((6 - right))],\"tokens\":[1,1],\"chars\":[4,4],\"bytes\":[4,4]}"
            done
            shift
        done
    } >"$1/items-$(printf %08d "$2").jsonl"
}

report() { "$BIN/trainer" report "$@"; }

@test "report pairs the items of two runs, and says whether they differ" {
    graded a 8 0000001111 0011001100
    graded a 16 0000001111 0011001100
    cp a/items-00000016.jsonl kept && rm a/items-00000016.jsonl
    graded b 8 1111111111 1100110111
    graded b 16 0000000000 0000000000 # of a step that a has not graded
    report a b | tee found
    grep -q '^A: a, step 8; B: b, step 8$' found
    # six of six better: 2 / 2^6, and twice that for two tasks; the mean of 0.6 has the error sqrt(0.24 / 9), and t is 2.2622
    grep -qE '^first +10 +40.00 +100.00 +\+60.00 \[\+23.06, \+96.94\] .* 0.0625$' found
    grep -qE '^second +10 +40.00 +70.00 +\+30.00 \[-37.86, \+97.86\] .* 0.5078$' found # six of nine: 2 * 130 / 512
    # above chance (0.5): 1.2 and 0.6; 6 + 9 + 2 coins of 2 / 10 / 2 each
    grep -qE '^mean above chance +\+90.00 \[\+9.19, \+170.81\] .* 0.0290$' found
    grep -q '^Beyond items: yes. B is better: mean above chance. Beyond seeds: not known, one run each.$' found
    grep -q '<td>6</td><td>0</td><td>-0.15000 ' runs.html # loss of the right ending: 0.6 nats in 4 bytes less
    run_code 1 grep -E 'src=|href=|<script|https?://' runs.html
    cp kept a/items-00000016.jsonl # now both have 16
    report a b | grep -q '^A: a, step 16; B: b, step 16$'
}

@test "report leaves out items that do not compare, with the reason" {
    graded a 8 0011
    mkdir none && cp a/metrics.jsonl none && cp a/items-00000008.jsonl none/items-8.jsonl # of another name
    report a none | grep -q "^'none' has no graded items, which the keys items and items_interval write.$"
    digest=ff00 graded b 8 0011
    report a b | grep -q "^'a/items-00000008.jsonl' (ab12) and 'b/items-00000008.jsonl' (ff00) have graded other items.$"
    rule=other graded b 8 0011
    report a b | grep -q "counts by the rule \"r\", 'b/items-00000008.jsonl' by \"other\".$"
    block=32 graded b 8 0011
    report a b | grep -q "^A reads 16 tokens of an item, B 32.$"
    report a b | grep -q "^Beyond items: no. "
    graded b 8 001
    graded b 16 0011
    truncate -s -3 b/items-00000016.jsonl
    cp -r b c
    run_match 65 "'b/items-00000016.jsonl', line 5: no JSON object" report b c
    rm b/items-00000016.jsonl
    run_match 65 "'b/items-00000008.jsonl' ends before 'a/items-00000008.jsonl'" report a b
    sed -i '2s/"id":1/"id":7/' b/items-00000008.jsonl
    run_match 65 "line 2: equal digests, but not the same item" report a b
    sed -i '2s/"right":0/"right":2/' b/items-00000008.jsonl
    run_match 65 "'b/items-00000008.jsonl', line 2: 'right' is not 0 or 1" report a b
    echo '{}' >b/items-00000008.jsonl
    run_match 65 "does not begin with a line of the format" report a b
    report a | diff - <(echo runs.html) # one run has no pair
    ln -s a linked
    run_match 0 "'linked' is the directory 'a' once more, and is left out" report a linked
    report a linked ./a | diff - <(echo runs.html)
}

@test "report names an input that is not there, or not whole" {
    graded a 8 0011
    graded b 8 0011
    run_match 66 "cannot open 'nope': No such file or directory" report nope a
    mkdir empty
    run_match 0 "'empty' has no steps, and is left out" report empty a
    run_match 66 "cannot open 'nope'" report "$BATS_FILE_TMPDIR/data" nope
    run_match 2 "report is about runs or about datasets, not both" report "$BATS_FILE_TMPDIR/data" a
    cp -r "$BATS_FILE_TMPDIR/data" unfinished
    rm unfinished/dataset* && touch unfinished/.journal
    run_match 66 "'unfinished' holds an unfinished run: the command that began it continues it" report unfinished
    run_match 2 "report writes a page to a file, not to standard output" report -o - a
    [ ! -e ./- ]
    [ -z "$(report -q a b)" ] && [ -s runs.html ]
    # the trainer leaves a torn last line at most
    for torn in '{"ste' '{"step": 2, "loss": 1.' '{"step": 2, "loss": 1.5}'; do
        { echo '{"step": 1, "loss": 2.0}' && printf %s "$torn"; } >b/metrics.jsonl
        report a b >found
    done
    grep -q '<td>b</td><td>2</td>' runs.html
    damage='not a line of a run, which has a step, and numbers for losses'
    for line in '{"step": 2, "loss": 1.' '' '[2]' '{"loss": 2}' '{"step": 2, "val_loss": "1.5"}' '{"step": 2, "first_sample": {}}'; do
        printf '%s\n' '{"step": 1, "loss": null}' "$line" '{"step": 3, "loss": 2.0}' >b/metrics.jsonl
        run_match 65 "'b/metrics.jsonl', line 2: $damage" report a b
    done
    for bytes in '\x81\x00\xff{' '{"step": 2\x00\x00' 'x\n'; do
        printf "$bytes" >b/metrics.jsonl
        run_match 65 "'b/metrics.jsonl', line 1: $damage" report a b
    done
}

@test "report pairs the losses of the same samples, step by step" {
    long=(--quiet --sample_tokens=0 --max_iters=600 --eval_interval=200 --eval_iters=1)
    train "${long[@]}" --out_dir=a
    train "${long[@]}" --out_dir=b --learning_rate=2e-3
    report a b | tee found
    python3 - >want <<'END'
import json
lines = {run: [json.loads(line) for line in open(f"{run}/metrics.jsonl")] for run in "ab"}
a, b = ({line["step"]: line["loss"] for line in lines[run] if "loss" in line} for run in "ab")
first = min(step for step in a if a[step] != b[step])  # after the first update, and to the last step
steps = sorted(a)[-288:]  # 16 blocks
mean = [sum(run[step] for step in steps) / len(steps) for run in (a, b)]
last = [[line["val_loss"] for line in lines[run] if "val_loss" in line][-1] for run in "ab"]
print(f"training, last 288 of steps {first} to 600  {mean[0]:.4f}  {mean[1]:.4f} {mean[1] - mean[0]:+.5f}")
print(f"validation, step 600 {last[0]:.4f}  {last[1]:.4f} {last[1] - last[0]:+.5f}")
END
    while read -r line; do grep -q "^$line" <(tr -s ' ' <found); done < <(tr -s ' ' <want)
    grep -q '^Beyond samples: yes, B is lower. Beyond seeds: not known, one run each.$' found
    report b a | grep -q '^Beyond samples: yes, B is higher. '
    # a branch has the steps before it in common with its run, and they say nothing
    train "${long[@]}" --out_dir=branch --branch_from=a/ckpt-00000400 --max_iters=1000 --decay_lr=False --eval_iters=2
    train "${long[@]}" --out_dir=a --max_iters=1000
    report a branch | tee found
    of() { jq -c 'select(.loss) | [.step, .loss]' "$1/metrics.jsonl"; }
    first=$(diff <(of a) <(of branch) | sed -nE 's/^< \[([0-9]+),.*/\1/p' | head -1)
    [ "$first" -gt 400 ] && grep -q "^Up to step $((first - 1)) the losses are equal, as those of one run, and are left out.$" found
    grep -q "^training, last $(((1002 - first) / 2 / 16 * 16)) of steps $first to 1000 " found
    grep -q "^The validation losses are left out: 'branch' has changed its evaluation.$" found
    cp -r a copy
    report a copy | grep -q '^The runs have no later step with the same samples.$'
    train --quiet --sample_tokens=0 --out_dir=short
    report b short | grep -q '^Beyond samples: not known, 512 common steps are the least for an interval.$'
    train --quiet --sample_tokens=0 --out_dir=batch --batch_size=1
    report short batch | grep -q '^The runs have no step with the same samples.$'
    train --quiet --sample_tokens=0 --out_dir=tokens --eval_tokens=64
    report short tokens | grep -q "^The validation losses are left out: 'short' and 'tokens' evaluate other tokens.$"
    train --quiet --sample_tokens=0 --out_dir=never --eval_interval=0
    report short never | grep -q "^The validation losses are left out: 'never' has no evaluation.$"
    for key in seed=5 z_loss=1e-4 dropout=0.1; do
        train --quiet --sample_tokens=0 --out_dir="${key%=*}" "--$key"
        report short "${key%=*}" | grep -q "^the training losses do not compare step by step: ${key%=*} is .* in A, .* in B.$"
    done
    "$BIN/shardtool" tokenize -q --val 0.5 --vocabulary "$BATS_FILE_TMPDIR/ascii" -o other "$BATS_FILE_TMPDIR/docs"
    train --quiet --out_dir=third --dataset=other
    report short third | grep -q '^the training losses are of different data.$'
    rm -r third/ckpt-*
    report third short | grep -q "^'third' has no checkpoint, which names its data.$"
}

@test "report compares two configurations by the means of their runs with several seeds" {
    for seed in 1 2; do
        for rate in 1e-3 5e-3; do train --quiet --sample_tokens=0 --out_dir="$rate-$seed" --seed=$seed --learning_rate=$rate; done
    done
    graded 1e-3-1 24 0000001111 0011001100
    graded 1e-3-2 24 0000111111 0011001100
    graded 5e-3-1 24 1111111111 1111110000
    graded 5e-3-2 24 1111111100 1111111100
    report 5e-3-1 1e-3-1 5e-3-2 1e-3-2 | tee found
    grep -q '^A: 5e-3-1, 5e-3-2; B: 1e-3-1, 1e-3-2$' found
    # above chance of 0.5: 0.6 and 0.6, -0.2 and 0. Welch has one degree of freedom: t is -7, 12.7062 its limit, p 1 - 2 atan(7) / pi
    grep -qE '^right above chance +0.6000 +-0.1000 +-0.7000 \[-1.9706, \+0.5706\] .* 0.0903$' found
    mean() { for run in "$1-1" "$1-2"; do jq -s '[.[] | .val_loss | numbers] | last' $run/metrics.jsonl; done | awk '{ a += $1 } END { printf "%.4f\n", a / 2 }'; }
    grep -qE "^last validation loss +$(mean 5e-3) +$(mean 1e-3) " found
    grep -q '^Beyond seeds: ' found
    grep -q '<h2>Two configurations, several runs of each</h2>' runs.html
    rm 1e-3-2/items-00000024.jsonl # without the items of one run
    report 5e-3-1 1e-3-1 5e-3-2 1e-3-2 | tee found | not grep -q '^right above chance'
    grep -q "^No row for right above chance: '1e-3-2' has no graded items, which the keys items and items_interval write.$" found
    graded 1e-3-2 16 0000111111 0011001100
    report 5e-3-1 1e-3-1 5e-3-2 1e-3-2 | grep -q "right above chance: '1e-3-2' has no graded items of step 24, the last one of '5e-3-1'.$"
    sed -i '$d' 1e-3-2/items-00000016.jsonl && mv 1e-3-2/items-000000{16,24}.jsonl
    run_match 65 "'1e-3-2/items-00000024.jsonl' ends before '5e-3-1/items-00000024.jsonl'" report 5e-3-1 1e-3-1 5e-3-2 1e-3-2
    rm */items-00000024.jsonl
    # a run says nothing about seeds a second time, whatever its name
    cp -r 1e-3-1 copy
    train --quiet --sample_tokens=0 --out_dir=twin --seed=1 --learning_rate=5e-3
    report 5e-3-1 twin 1e-3-1 copy copy/. | tee found
    grep -q "^'twin' is '5e-3-1' once more, with the same seed or chain, and does not count. 'copy' is '1e-3-1' once more, with " found
    no="^Beyond seeds: not known, "
    grep -q "${no}two seeds of each configuration are the least, and that of '5e-3-1' has 1, that of '1e-3-1' 1.$" found
    # what is left out, and why
    report 5e-3-1 1e-3-1 1e-3-2 | grep -q "${no}two seeds of each configuration are the least, and that of '5e-3-1' has 1, that of '1e-3-1' 2.$"
    report 5e-3-1 5e-3-2 twin | grep -q "${no}all runs have one configuration, but for the seed.$"
    train --quiet --sample_tokens=0 --out_dir=third --learning_rate=2e-3
    report 5e-3-1 1e-3-1 5e-3-2 1e-3-2 third | grep -q "${no}'5e-3-1', '1e-3-1' and 'third' have three configurations.$"
    loss='^No row for last validation loss: '
    cp 1e-3-2/metrics.jsonl kept.jsonl
    sed -i '/"step": 24, "val_loss"/d' 1e-3-2/metrics.jsonl
    report 5e-3-1 1e-3-1 5e-3-2 1e-3-2 | grep -q "${loss}the last evaluation of '5e-3-1' is of step 24, that of '1e-3-2' of step "
    sed -i '/"val_loss"/d' 1e-3-2/metrics.jsonl
    report 5e-3-1 1e-3-1 5e-3-2 1e-3-2 | grep -q "${loss}'1e-3-2' has no evaluation. No row for right above chance: '5e-3-1' has no graded items"
    rm -r third/ckpt-*
    report 5e-3-1 1e-3-1 third | grep -q "${no}'third' has no checkpoint, which names its configuration.$"
    # seeds on which the losses do not depend
    sed -i -E 's/"val_loss": [0-9.]+/"val_loss": 2.5/' 5e-3-*/metrics.jsonl
    mv kept.jsonl 1e-3-2/metrics.jsonl
    sed -i -E 's/"val_loss": [0-9.]+/"val_loss": 2.25/' 1e-3-*/metrics.jsonl
    report 5e-3-1 1e-3-1 5e-3-2 1e-3-2 | tee found
    grep -qE '^last validation loss +2.5000 +2.2500 +-0.2500 +[^ ]+ *$' found
    grep -q "${no}the runs of each configuration have equal values.$" found
}

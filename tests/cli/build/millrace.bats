# The command `millrace`: it starts the program that has a command, from a build and from an installation.
load ../helpers

setup_file() { cd "$BATS_FILE_TMPDIR" && make_data 3000 0.1 --vocabulary ascii; }

# commands_of PROGRAM: as its own help lists them
commands_of() { "$BIN/$1" --help | sed -nE 's/^  ([a-z-]+)( .*)?$/\1/p'; }

@test "millrace starts the program that has a command, and help names it so, for each command of the three programs" {
    for program in shardtool loader trainer; do
        [ "$(commands_of $program | wc -l)" -ge 4 ]
        for command in $(commands_of $program); do
            [[ "$("$BIN/$program" "$command" --help)" == "usage: $program $command "* ]]
            diff <("$BIN/$program" "$command" --help | sed "s/^usage: $program /usage: millrace /; s/^  $program /  millrace /") <(millrace "$command" --help)
            diff <(millrace "$command" --help) <(millrace help "$command")
            diff <("$BIN/$program" --man "$command") <(millrace --man "$command")
        done
    done
    diff <(trainer --man config) <(millrace --man config)
}

@test "millrace alone and its help list each command of the three programs once, with its program's summary" {
    millrace --help >help
    run_code 2 millrace
    diff help <(echo "$output")
    diff help <(millrace help)
    for program in shardtool loader trainer; do
        diff <(sed -n "/^$program: /,/^\$/p" help | sed 1d) <("$BIN/$program" --help | sed -n '/^usage/,/^[^ ]*COMMAND/p' | sed '1,2d' | sed '/^$/q')
    done
    for program in shardtool loader trainer; do commands_of $program; done | sort >commands
    diff commands <(sed -nE 's/^  ([a-z-]+)( .*)?$/\1/p' help | sort)
    diff commands <(millrace --man | sed -nE 's/^\.BR millrace\\-([a-z-]+) \(1\)$/\1/p' | sort)
    [ -z "$(uniq -d commands)" ]
}

@test "an unknown command, a missing one and a wrong option are usage errors, 2, and name what is similar" {
    run_code 2 millrace tokenise
    [ "$output" = "millrace: unknown command 'tokenise': did you mean tokenize?" ]
    run_code 2 millrace train_vocabulary
    [ "$output" = "millrace: unknown command 'train_vocabulary': did you mean train-vocabulary?" ]
    run_code 2 millrace nothing-of-that
    [ "$output" = "millrace: unknown command 'nothing-of-that' (see millrace --help)" ]
    run_code 2 millrace --quiet train
    [ "$output" = "millrace: missing command before '--quiet' (see millrace --help)" ]
    run_code 2 millrace help config # a manual page, but no command
    run_code 2 millrace ""
    run_code 2 millrace ls
    [ "$output" = "millrace: 'millrace ls' is now 'millrace info --shards'" ]
    run_match 2 "millrace tokenize: unknown option '--vall': did you mean --val?" millrace tokenize --vall 1
    run_match 2 "no completion for the shell 'tcsh'" millrace --completion tcsh
}

@test "--version prints that of millrace, and a full disk is 74" {
    diff <(millrace --version | sed 1d) <(trainer --version | sed 1d)
    [ "$(millrace -V | head -n 1)" = "millrace $(sed -n 's/^VERSION := //p' "$ROOT/Makefile")" ]
    for option in --help --version --man --completion; do
        run_code 74 bash -c 'millrace $0 >/dev/full' $option
        run_code 74 bash -c 'millrace $0 >&-' $option
    done
}

@test "the programs are found by either name beside millrace, also through a link, and one that is missing is 66" {
    mkdir built installed links
    cp "$BIN/millrace" built && cp "$BIN/millrace" installed
    cp "$BIN/shardtool" built && cp "$BIN/loader" installed/millrace-loader
    printf '#!/bin/sh\necho another program\n' >installed/loader && chmod +x installed/loader # of another package in /usr/bin
    ln -s ../built/millrace links/millrace && ln -s "$PWD/installed/millrace" links/mr
    PATH=$PWD/links:/usr/bin:/bin
    run_match 0 "usage: millrace cat " millrace cat --help
    run_match 0 "usage: loader serve " mr serve --help # by a name that is not its own
    run_match 0 "usage: millrace serve " bash -c 'exec -a somewhere/millrace installed/millrace serve --help'
    run_match 66 "no program 'millrace-trainer' or '$(realpath built)/trainer': build or install all of millrace" millrace train
    run_match 66 "no program 'millrace-loader'" millrace --help
    echo "no program" >built/trainer && chmod +x built/trainer
    run_match 74 "cannot run '$(realpath built)/trainer'" millrace train
    chmod -x built/trainer
    run_match 66 "no program" millrace train
}

@test "exit codes, signals, descriptors and arguments are those of the program" {
    run_match 66 "millrace cat: " millrace cat missing
    diff <(echo "line of a pipe" | millrace tokenize -q --vocabulary "$data/characters.txt" -o - -) \
        <(echo "line of a pipe" | shardtool tokenize -q --vocabulary "$data/characters.txt" -o - -)
    millrace train tiny.conf --quiet --dataset="$data" --out_dir=run "${endless[@]}" 2>stderr 3>&- &
    TRAINER=$!
    wait_for_steps run 3
    [ "$(cat /proc/$TRAINER/comm)" = trainer ] # the process itself: millrace does not wait beside it
    stop_run TERM 75
    has_checkpoint run
    millrace train tiny.conf --quiet --dataset="$data" --out_dir=run "${endless[@]}" 2>stderr 3>&- &
    TRAINER=$!
    wait_for_more_steps run
    stop_run KILL 137
    run_match 0 "last_step" millrace status run
}

@test "a second command of one name does not compile" {
    command -v cc >/dev/null || skip "needs a C compiler"
    mkdir -p common/cli
    sed 's/X(serve)/X(serve) X(train)/' "$ROOT/common/cli/commands.h" >common/cli/commands.h
    run_match 1 "COMMAND_train" cc -D_GNU_SOURCE -I. -I"$ROOT" -fsyntax-only "$ROOT/millrace/main.c"
    cc -D_GNU_SOURCE -I"$ROOT" -fsyntax-only "$ROOT/millrace/main.c"
}

@test "lines begin with the program that prints them, and the error that ends it with the command" {
    run_code 66 millrace train tiny.conf --dataset=missing --out_dir=run
    [[ "$output" == *"millrace train: "*missing* ]]
    millrace train tiny.conf --dataset="$data" --out_dir=run 2>stderr
    grep -q '^trainer: ' stderr
    not grep -q '^millrace: ' stderr
}

@test "mpirun starts millrace as it starts the trainer" {
    load ../ranks
    setup_ranks
    ranks 2 --quiet --out_dir=two
    mpirun -n 2 millrace train tiny.conf --quiet --dataset="$data" --out_dir=through
    same_run two through 6
    RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=localhost MASTER_PORT=29500 \
        run_match 2 'millrace train: *type `mpirun -n 2 millrace train tiny.conf`' millrace train tiny.conf
    run mpirun -n 2 millrace train tiny.conf --quiet --dataset=missing --out_dir=none # rank 0 prints it for all
    [ "$(grep -c "^millrace train: 'missing' is not a dataset" <<<"$output")" = 1 ]
    not grep '^trainer' <<<"$output"
}

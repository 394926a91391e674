# The completion scripts of the programs, run by the shells that they are for; and help in the width of a terminal.
load ../helpers

setup() { cd "$BATS_TEST_TMPDIR" && PATH="$BIN:$PATH"; }

# in_bash NAME WORD...: the completions of the last word, separated by spaces. bash makes `--key = value` of --key=value.
in_bash() {
    bash -c 'set -o posix
        . <("$1" --completion)
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        eval "$(complete -p "$1" | sed -E "s/.* -F ([^ ]+) .*/\1/")"
        echo "${COMPREPLY[*]}"' bash "$@"
}

@test "bash completes commands, options, keys and the words that are their values" {
    [ "$(in_bash shardtool tok)" = tokenize ]
    [ "$(in_bash loader ser)" = "serve serve-status" ]
    [ "$(in_bash trainer train --print_c)" = --print_config ]
    [ "$(in_bash trainer train --gradient_acc)" = --gradient_accumulation_steps ]
    [ "$(in_bash shardtool tokenize --gradient_acc)" = "" ]
    [ "$(in_bash trainer train --lr_schedule = c)" = "cosine constant" ]
    [ "$(in_bash trainer train --lr_schedule l)" = linear ]
    [ "$(in_bash trainer plan --bias =)" = "True False" ]
    [ "$(in_bash trainer plan --batch_size =)" = auto ]
    [ "$(in_bash trainer eval --ckpt =)" = "newest best graded" ]
    [ "$(in_bash shardtool tokenize --docs p)" = paragraphs ]
    [ "$(in_bash trainer export --dtype =)" = "float32 bfloat16 float16 q8_0" ] # its own, not those of the key
    [ "$(in_bash trainer train --out_dir =)" = "" ]                         # files, by the shell
    [ "$(in_bash millrace tra)" = "train-vocabulary train" ]                # of two programs
    [ "$(in_bash millrace train --lr_schedule = c)" = "cosine constant" ]
    [ "$(in_bash millrace tokenize --docs p)" = paragraphs ]
    [ "$(in_bash millrace serve --print_c)" = "" ]
}

# bats test_tags=ci
@test "zsh completes commands, options, keys and the words that are their values" {
    command -v zsh >/dev/null || skip "no zsh"
    mkdir functions
    for name in trainer shardtool loader millrace; do "$name" --completion zsh >functions/_$name && zsh -n functions/_$name; done
    cat >terminal.py <<'END'
import os, pty, select, sys, time
typed, wanted = sys.argv[1:]
pid, terminal = pty.fork()
if not pid: os.execvp("zsh", ["zsh", "-f", "-i"])
screen = ""
def wait(text):
    global screen
    end = time.time() + 120
    while text not in screen:
        if time.time() > end: sys.exit("no %r in %r" % (text, screen))
        if select.select([terminal], [], [], 1)[0]: screen += os.read(terminal, 65536).decode()
os.write(terminal, b"PS1=; fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -u -D; echo re''ady\n")
wait("ready\r\n")
screen = ""
os.write(terminal, typed.encode() + b"\t")
wait(wanted)
os.close(terminal)
END
    for line in "shardtool tok:tokenize" "loader ser:serve" "trainer train --gradient_acc:--gradient_accumulation_steps" \
        "trainer train --lr_schedule=lin:linear" "trainer plan --dtype=bf:bfloat16" "trainer eval --ckpt=b:best" \
        "millrace tok:tokenize" "millrace key:keygen" "millrace doc:doctor" "millrace train --lr_schedule=lin:linear" "millrace serve --endp:--endpoint"; do
        python3 terminal.py "${line%:*}" "${line#*:}"
    done
}

@test "fish completes commands, options, keys and the words that are their values" {
    command -v fish >/dev/null || skip "no fish"
    export HOME=$PWD
    for name in trainer shardtool loader millrace; do "$name" --completion fish; done >all.fish
    in_fish() { fish -c 'source all.fish; complete -C "$argv"' "$*" | cut -f 1 | paste -sd ' '; }
    [ "$(in_fish shardtool tok)" = tokenize ]
    [ "$(in_fish trainer train --gradient_acc)" = --gradient_accumulation_steps ]
    [ "$(in_fish trainer train --lr_schedule=lin)" = --lr_schedule=linear ]
    [ "$(in_fish trainer plan --lr_schedule c)" = "constant cosine" ]
    [ "$(in_fish trainer export --dtype=f)" = "--dtype=float16 --dtype=float32" ]
    [ "$(in_fish millrace tra)" = "train train-vocabulary" ]
    [ "$(in_fish millrace train --lr_schedule=lin)" = --lr_schedule=linear ]
}

@test "another shell is refused, 2" {
    run_match 2 "no completion for the shell 'tcsh': bash, zsh or fish" trainer --completion tcsh
}

@test "help has the keys in groups, with types, ranges, words and an example, in lines of the terminal's width" {
    for width in 60 90; do
        for command in "shardtool tokenize" "trainer train" "loader serve" shardtool trainer; do
            COLUMNS=$width $command --help | sed '/^examples:/,$d' >help
            [ "$(wc -L <help)" -le $width ] || { wc -L help && return 1; }
        done
    done
    COLUMNS=110 trainer train --help >help
    for line in "learning rate:" "  n_layer = INTEGER          transformer blocks (1..1024) \[12\]" "  out_dir = DIR  *directory of the run.*" \
        "  beta1 = NUMBER  *decay rate .* (0..0.9999999) \[0.9\]" "  bias = True|False  *True: .*" "  norm = WORD  *normalization: .*" \
        ".*(layernorm | rmsnorm) \[layernorm\]" "  trainer train small.conf .*"; do
        grep -qx -- "$line" help || { echo "no $line" && return 1; }
    done
    # every key stands behind one title
    trainer plan --print_config >config
    diff <(sed -nE 's/^(# [a-z ]+|[a-z_0-9]+) *(=.*)?$/\1/p' config) <(sed -nE 's/^([a-z ]+):$/# \1/p; s/^  ([a-z_0-9]+) = .*/\1/p' help | sed '/^# examples/d')
    python3 - <<'END' # a terminal of 70 columns
import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if not pid:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 70, 0, 0))
    os.execvp("trainer", ["trainer", "train", "--help"])
text = b""
try:
    while part := os.read(terminal, 65536): text += part
except OSError: pass
widths = [len(line) for line in text.decode().split("\r\n")]
assert len(widths) > 150 and 60 < max(widths) <= 70, max(widths)
END
}

#!/usr/bin/env bash
# formats.sh page: prints docs/formats.md, made from the first comments of the headers that specify formats.
# formats.sh man TITLE: prints that of the shard format as a manual page, after TITLE, the rest of its line .TH.
set -eu
cd "$(dirname "$0")/.."

# comment HEADER KIND: its first comment. Indented lines are a table or a formula, which keeps its line ends. Of a header whose
# structs are part of the specification (their sizes are asserted) the page has the declarations up to there, too.
comment() {
    awk -v kind="$2" '
        function verbatim(on) {
            if (on == inside) return
            inside = on
            if (kind == "man") print on ? ".PP\n.nf\n.ft CW" : ".ft R\n.fi\n.PP"
            else print on ? "\n```text" : "```\n"
        }
        function escaped(text, i, n, part, out) {
            if (kind == "man") {
                gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); gsub(/\047/, "\\(aq", text); gsub(/"/, "\\(dq", text)
                gsub(/`/, "\\(ga", text); gsub(/\^/, "\\(ha", text); gsub(/~/, "\\(ti", text)
                return text
            }
            if (inside) return text
            n = split(text, part, "`") # what is between them is code
            for (i = 1; i <= n; i++) {
                if (i % 2 == 1) { gsub(/</, "\\&lt;", part[i]); gsub(/\*/, "\\*", part[i]) }
                out = out (i > 1 ? "`" : "") part[i]
            }
            return out
        }
        !/^\/\// { exit }
        { sub(/^\/\/ ?/, "") }
        $0 == "" { pending = 1; next }
        {
            if (/^  / != inside) verbatim(/^  /)
            else if (pending) print kind == "man" ? ".PP" : ""
            pending = 0
            if (inside) sub(/^  /, "")
            text = escaped($0)
            print (kind == "man" && text ~ /^[.\047]/ ? "\\&" : "") text
        }
        END { verbatim(0) }' "$1"
    [ "$2" = man ] || awk '
        /^typedef|^enum/ { begun = 1 }
        begun { held = held $0 "\n" }
        /^_Static_assert/ { all = all held; held = "" }
        END { if (all) printf "\n```c\n%s```\n", all }' "$1"
}

if [ "$1" = man ]; then
    printf '.TH millrace-shard 5 %s\n.nh\n.ad l\n.SH NAME\nmillrace-shard \\- a file of token ids\n.SH DESCRIPTION\n' "$2"
    comment dataset/shard.h man
    printf '.SH EXAMPLES\n.TP\n.B zstd \\-dc data/train/000/000000.zst | od \\-An \\-tu2 | head \\-n 1\nprints the first ids of a shard\n'
    printf '.SH SEE ALSO\nshardtool(1), zstd(1)\n'
    exit
fi
printf '# Formats\n\nThis page is made by `scripts/formats.sh` from the headers of the libraries that write the formats.\n'
while IFS='|' read -r header title; do
    printf '\n## %s\n\n`%s`\n\n' "$title" "$header"
    comment "$header" page
done <<'END' | cat -s
dataset/shard.h|Shards
dataset/dataset.h|Datasets
dataset/provenance.h|Tables of documents
shardtool/similar/part_files.h|Parts of dedup and decontaminate
tokenizer/merge/vocab.h|Vocabularies
loader/protocol/sampling.h|The order of samples
loader/protocol/mixture.h|Mixtures
loader/protocol/wire.h|Messages between trainer and loader
trainer/checkpoint/checkpoint.h|Checkpoints
trainer/records/metrics.h|The record of a run
trainer/records/evaluation.h|Evaluations
trainer/items/items.h|Items
trainer/items/grade.h|Results of items
trainer/engine/chain.h|The hash chain of a run
trainer/audit/receipt.h|Receipts of runs
END
printf '\n## Exit codes\n\n`common/exit_codes.def`\n\n| code | meaning |\n| --- | --- |\n'
sed -n 's/^EXIT_CODE([A-Z_]*, \([0-9]*\), "\(.*\)")$/| \1 | \2 |/p' common/exit_codes.def

# tokenize --turns: conversations in JSON lines and Parquet.
load ../helpers

tokenize() { "$BIN/shardtool" tokenize --turns -q --val 0 "$@"; }

@test "tokenize --turns refuses what it does not read, by name and line" {
    cat >rows <<'END'
{"messages": []}	it has no message of an assistant
{"messages": [{"role": "user", "content": "x"}]}	it has no message of an assistant
{"messages": {"role": "user"}}	its messages are not an array
{"messages": [{"role": "tool", "content": "x"}]}	message 0 has the role 'tool', not the role system, user or assistant
{"messages": [{"content": "x"}]}	message 0 has no role, not the role system, user or assistant
{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": [{"type": "text"}]}]}	message 1 has an array as content, not a string
{"messages": [{"role": "assistant", "content": null, "tool_calls": [{"id": 1}]}]}	message 0 has 'tool_calls', and only role and content are read
{"messages": [{"role": "assistant", "content": "x", "train": false}]}	message 0 has 'train', and only role and content are read
{"messages": [{"role": "assistant", "content": "x", "weight": 0}]}	message 0 has 'weight', and only role and content are read
{"messages": [{"role": "assistant", "content": null}]}	message 0 has nothing as content, not a string
{"messages": [{"role": "assistant", "content": "x"}], "tools": [{"name": "f"}]}	it has 'tools', which is not read
{"messages": [{"role": "assistant", "content": "x"}], "documents": [{"title": "t", "text": "u"}]}	it has 'documents', which is not read
{"messages": [{"role": "assistant", "content": "x"}], "completion": "y"}	it has messages and a completion
{"messages": [{"role": "assistant", "content": "x"}], "images": ["a.png"]}	it has 'images', which is not read
{"messages": [{"role": "assistant", "content": "x"}], "chat_template_kwargs": {"enable_thinking": false}}	it has 'chat_template_kwargs', which is not read
{"messages": [{"role": "assistant", "content": "x"}], "assistant_masks": [0, 1]}	it has 'assistant_masks', which is not read
{"messages": [{"role": "assistant", "content": "x", "reasoning_content": "y"}]}	message 0 has 'reasoning_content', and only role and content are read
{"messages": ["{\"role\": \"assistant\"}"]}	message 0 has nothing as content, not a string
{"messages": "[{\"role\": \"tool\"}]"}	message 0 has the role 'tool', not the role system, user or assistant (--turns-keys names others, as
{"messages": "[{'role': 'user', 'content': 'x'}]"}	its messages are a text that is not JSON
{"messages": ["hello"]}	message 0 is not an object
{"prompt": "a", "chosen": "b", "rejected": "c"}	no messages, no prompt with a completion, and no text at the key 'text' (--text-field); the line has the keys prompt, chosen, rejected
{"prompt": [{"role": "user"}], "completion": "b"}	its prompt is not a string
{"prompt": [{"role": "assistant", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]}	its prompt has an answer, which would count: --turns-keys messages=prompt+completion reads it
{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "user", "content": "b"}]}	it has no message of an assistant
{"prompt": "a", "completion": 3}	its completion is not a string
{"conversations": [{"from": "human", "value": "x"}]}	no messages, no prompt with a completion, and no text at the key 'text' (--text-field); the line has the keys conversations: --turns-keys 'messages=conversations,role=from,content=value,user=human,assistant=gpt' reads them
{"instruction": "x", "output": "y"}	no messages, no prompt with a completion, and no text at the key 'text' (--text-field); the line has the keys instruction, output: --turns-keys 'user=instruction,assistant=output' reads them
{"prompt": "a", "completion": "b"	the line ends within an object
END
    { echo '{"prompt": "a", "completion": "b"}' && cut -f1 rows; } >bad.jsonl
    run_match 65 "'bad.jsonl' line 2, byte *: $(sed '1s/.*\t//;q' rows)" tokenize -o out bad.jsonl
    run_code 0 tokenize --max-bad "$(wc -l <rows)" --force -o out bad.jsonl
    jq -r .error out/skipped.jsonl | sed "s/'bad.jsonl' line [0-9]*, byte [0-9]*: //" >errors
    while read -r message && read -r error <&3; do
        [[ "$error" == $message* ]] || { echo "no '$message' in: $error" && return 1; }
    done < <(cut -f2 rows) 3<errors
    [ "$(jq -s 'map(.line) == [range(2; length + 2)]' out/skipped.jsonl)" = true ] && [ "$(wc -l <errors)" = "$(wc -l <rows)" ]
}

@test "tokenize --turns refuses masks and texts beside messages and beside a prompt, each by its name" {
    # names of LlamaFactory, TRL, axolotl, ms-swift, OpenAI and Alpaca; the values are of the type that each has there
    names='loss_mask loss_weights mask train_on_input history system_prompt instruction context input rejected chosen
        tools functions documents weight weights train system label labels images image videos video audio audios assistant_masks
        completion_mask chat_template_kwargs loss sample_weight function_calls contexts histories tool assistant_mask Mask'
    for name in $names; do
        printf '{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "id": 1, "%s": [0, 1]}\n' "$name"
        printf '{"%s": "z", "prompt": "x", "completion": "y"}\n' "$name"
    done >beside.jsonl
    echo '{"prompt": "x", "completion": "y"}' >>beside.jsonl
    tokenize --max-bad 100% -o out beside.jsonl
    for name in $names; do printf '%s\n' "$name" "$name"; done | sed "s/.*/it has '&', which is not read (--turns-keys ignore=& leaves it out)/" >want
    jq -r .error out/skipped.jsonl | sed 's/.*: it has/it has/' | cmp - want
}

@test "tokenize --turns skips a line of more than 256 MiB and reads on" {
    {
        echo '{"prompt": "a", "completion": "b"}'
        printf '{"prompt": "a", "completion": "' && head -c 270M /dev/zero | tr '\0' x && echo '"}'
        echo '{"prompt": "a", "completion": "c"}'
    } >in
    run_match 0 "skipped 1 bad input*'in' line 2, byte *: the line is longer than 256 MiB" timeout 60 "$BIN/shardtool" tokenize --turns --max-bad 100% \
        --val 0 -q --format jsonl -o out in
    [ "$("$BIN/shardtool" decode out)" = "<|user|>a<|end|><|assistant|>b<|end|><|endoftext|><|user|>a<|end|><|assistant|>c<|end|><|endoftext|>" ]
}

@test "tokenize --turns reads what other files name beside messages, and a text as a document" {
    cat >good.jsonl <<'END'
{"prompt": "unused", "prompt_id": "7", "messages": [{"role": "user", "content": "Spain?", "name": null}, {"role": "assistant", "content": "Madrid", "tool_calls": []}], "tools": null}
{"prompt": null, "completion": null, "text": "a plain text", "weight": 3}
{"text": null}
END
    tokenize -o out good.jsonl
    [ "$("$BIN/shardtool" decode out)" = "<|user|>Spain?<|end|><|assistant|>Madrid<|end|><|endoftext|>a plain text<|endoftext|>" ]
    gzip -k good.jsonl
    tokenize -o zipped good.jsonl.gz
    cmp <("$BIN/shardtool" cat out) <("$BIN/shardtool" cat zipped)
    # the keys that are not read are named once
    sed -E 's/"prompt_id": "7"/"id": 1, "so\\u0075rce\\n": ["x"], "system": "", "input": null/p' good.jsonl >named.jsonl
    run_match 0 "ignored keys: prompt, id, source?" "$BIN/shardtool" tokenize --turns --val 0 -o named named.jsonl
    [ "$(grep -c ignored <<<"$output")" = 1 ]
    cmp <("$BIN/shardtool" decode named | head -c 60) <("$BIN/shardtool" decode out | head -c 60)
    # without --turns the options and the ids are others
    run_match 2 "*turns=1*" "$BIN/shardtool" tokenize -q --val 0 --max-bad 100% --vocabulary out -o out good.jsonl
}

@test "tokenize names the option that reads the conversations of others, with --turns and without" {
    echo '[{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]' >nanochat.jsonl
    run_match 65 "'nanochat.jsonl' has a conversation that is an array of messages: tokenize --turns reads" "$BIN/shardtool" tokenize -o out nanochat.jsonl
    jq -c '{messages: .}' nanochat.jsonl >want.jsonl
    tokenize -o want want.jsonl && tokenize -o nanochat nanochat.jsonl
    cmp <("$BIN/shardtool" cat nanochat) <("$BIN/shardtool" cat want)
    jq . nanochat.jsonl >lines.jsonl
    run_match 65 "'lines.jsonl' has a conversation that is an array of messages" tokenize -o out lines.jsonl
    (cat nanochat.jsonl && echo '[]' && echo '[7]' && cat want.jsonl nanochat.jsonl) >arrays.jsonl
    tokenize --max-bad 2 -o arrays arrays.jsonl
    jq -r .error arrays/skipped.jsonl | sed 's/.*: //' | cmp - <(printf '%s\n' "it has no message of an assistant" "message 0 is not an object")
    cmp <("$BIN/shardtool" cat arrays) <(for i in 1 2 3; do "$BIN/shardtool" cat want; done)
    while IFS='|' read -r line keys; do
        echo "$line" >other.jsonl
        for turns in "" --turns; do
            run_match 65 ": --turns-keys '$keys' reads them" "$BIN/shardtool" tokenize $turns -o none other.jsonl
        done
        "$BIN/shardtool" tokenize --turns-keys "$keys" --val 0 -q --force -o out other.jsonl
        cmp <("$BIN/shardtool" cat out) <("$BIN/shardtool" cat want)
    done <<'END'
{"conversations": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}]}|messages=conversations,role=from,content=value,user=human,assistant=gpt
{"conversation": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}|messages=conversation
{"chat": [{"role": "user", "value": "x"}, {"role": "assistant", "value": "y"}], "id": 1}|messages=chat,role=role,content=value
{"conversation": [{"input": "x", "output": "y"}]}|messages=conversation,user=input,assistant=output
{"question": "x", "answer": "y"}|user=question,assistant=answer
{"instruction": "x", "input": "", "output": "y"}|user=instruction+input,assistant=output
{"system_prompt": null, "question": "x", "response": "y"}|system=system_prompt,user=question,assistant=response
{"instruction": "x", "context": null, "response": "y", "category": "qa"}|user=instruction+context,assistant=response
{"Question": "x", "Answer": "y"}|user=Question,assistant=Answer
{"input": "x", "output": "y"}|user=input,assistant=output
END
    # the option is among those that a dataset has, and what it leaves out is not named
    run_match 2 "*turns_keys=user=input,assistant=output*" "$BIN/shardtool" tokenize --turns -q --val 0 -o out want.jsonl
    echo '{"a": {"b": "x"}, "c": "y", "weight": 2, "id": 1, "n": 1}' >paths.jsonl
    run_match 0 "ignored keys: id" "$BIN/shardtool" tokenize --turns-keys user=a.b,assistant=c,ignore=weight+n --val 0 -o paths paths.jsonl
    cmp <("$BIN/shardtool" cat paths) <("$BIN/shardtool" cat want)
    while IFS='|' read -r keys why; do
        run_match 2 "--turns-keys '$keys': $why; as 'user=question,assistant=answer' or" tokenize --turns-keys "$keys" -o none paths.jsonl
    done <<'END'
question,answer|it is NAME=KEY, with NAME one of system, user, assistant, messages, role, content and ignore
user=a|a conversation needs texts of a user and of an assistant
user=a,user=b|a name occurs twice
user=a+,assistant=b|a key is missing
role=a+b|role and content are one key each
|it is NAME=KEY, with NAME one of system, user, assistant, messages, role, content and ignore
user=a,assistant=b,|it is NAME=KEY, with NAME one of system, user, assistant, messages, role, content and ignore
user=a,assistant=b+a|a key occurs twice
messages=a+a|a key occurs twice
END
    # a hint leads on, and not to an option that is on
    while IFS='|' read -r line hint; do
        echo "$line" >hint.jsonl
        run_match 65 "${hint//\*/\\*}" tokenize -o none hint.jsonl
        [[ "$output" != *"--turns reads"* ]]
    done <<'END'
{"messages": null}|the line has the keys messages
{"prompt": "x", "completion": null}|the line has the keys prompt, completion
{"messages": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "y"}]}|message 0 has 'from' and no role: --turns-keys 'messages=messages,role=from,content=value,user=human,assistant=gpt' reads it
END
    # a key that nothing has is named
    echo '{"question": "x", "answer": "y"}' >qa.jsonl
    typo() { "$BIN/shardtool" tokenize --turns-keys user=question+typo,assistant=answer --val 0 --force -o typo "$@"; }
    run_match 0 "no line or row that was read has the key 'typo' of --turns-keys" typo qa.jsonl
    run_match 65 "qa.parquet' has no column 'typo'; its columns: question (STRING), answer (STRING)" typo "$DATA/turns/qa.parquet"
    echo '{"question": "x", "answer": "y", "typo": null}' >>qa.jsonl
    typo -q qa.jsonl 2>&1 | { ! grep typo; }
}

@test "tokenize --turns refuses other formats, and vocabularies without special tokens" {
    echo text >a.txt
    run_match 65 "'a.txt' is text: --turns reads JSON lines and Parquet" tokenize -o out a.txt
    seq 32 126 | awk '{ printf "%c", $1 }' >characters
    echo '{"prompt": "a", "completion": "b"}' >a.jsonl
    run_match 65 "conversations need special tokens, and a vocabulary of characters has none" tokenize --vocabulary characters -o out a.jsonl
}

@test "tokenize names --turns at a conversation, also beside lines with a text" {
    tokenize_plain() { "$BIN/shardtool" tokenize -q --val 0 "$@"; }
    echo '{"text": "a plain text"}' >text.jsonl
    while read -r line; do
        rm -rf out
        echo "$line" | cat text.jsonl - text.jsonl >mixed.jsonl
        run_match 65 "'mixed.jsonl' line 2, byte *: a conversation, which only tokenize --turns reads (train-vocabulary: --text-field '\*' takes all its strings), and no text at the key 'text'" tokenize_plain -o out mixed.jsonl
        echo "$line" | cat - text.jsonl >mixed.jsonl
        run_match 65 "'mixed.jsonl' line 1, byte *: a conversation*the line has the keys *" tokenize_plain -o out mixed.jsonl
        { printf '\xef\xbb\xbf' && cat mixed.jsonl; } >marked.jsonl
        run_match 65 "'marked.jsonl' line 1, byte *: a conversation*the line has the keys *" tokenize_plain -o out marked.jsonl
        run_match 0 "skipped 1 bad input" tokenize_plain --max-bad 1 --force -o out mixed.jsonl
    done <<'END'
{"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}
{"text": null, "messages": [{"role": "tool", "content": [{"type": "text", "text": "x"}]}]}
{"prompt": "x", "completion": "y", "text": null}
{"prompt": [{"role": "user", "content": "x"}], "completion": [{"role": "assistant", "content": "y"}]}
END
    # as the message says
    head -1 mixed.jsonl >one.jsonl
    run_match 65 "train-vocabulary: --text-field" "$BIN/shardtool" train-vocabulary -V 260 -o words one.jsonl
    "$BIN/shardtool" train-vocabulary -q -V 260 --text-field '*' -o words one.jsonl
    # a text beside them is the document, and other keys of these names are not a conversation
    printf '%s\n' '{"text": "a", "messages": [{"role": "user"}]}' '{"messages": 7}' '{"prompt": "x"}' >other.jsonl
    run_match 0 "skipped 2 null texts" tokenize_plain -o other other.jsonl
}

@test "tokenize --turns replaces or refuses bytes that are not UTF-8, as --invalid-utf8 says" {
    printf '{"prompt": "a\xff\xe2\x82b", "completion": "c"}\n{"text": "d\xffe"}\n' >bad.jsonl
    run_match 0 "in 3 places" tokenize -o out bad.jsonl
    [ "$("$BIN/shardtool" decode out)" = "<|user|>a��b<|end|><|assistant|>c<|end|><|endoftext|>d�e<|endoftext|>" ]
    [ "$(tokenize --json --force -o out bad.jsonl 2>/dev/null | jq .replaced)" = 3 ]
    run_match 65 "'bad.jsonl' line 1, byte *: *0xff*" tokenize --invalid-utf8 fail -o failed bad.jsonl
    run_match 2 "--turns reads JSON, which is UTF-8: --invalid-utf8 replace or fail" tokenize --invalid-utf8 bytes -o kept bad.jsonl
}

@test "text_bytes are those of the texts of a conversation, without its markers" {
    python3 -c '
import json
for size in 0, 5, 3000000: print(json.dumps({"prompt": "a" * size, "completion": "ü"}))
print(json.dumps({"text": "plain"}))' >sizes.jsonl
    tokenize -o out sizes.jsonl
    [ "$("$BIN/shardtool" info --lengths --json out | jq 'select(.split == "train").text_bytes')" = $((3000005 + 3 * 2 + 5)) ]
}

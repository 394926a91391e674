# peers: torch, transformers
"""Training on answers: losses and norms of steps against torch in double precision with ignore_index, ids and masks of the exported chat
template against transformers, and a model that learns to answer and to stop."""
import json
import math
import os
import shutil
import struct
import subprocess
import sys

import numpy as np

import rooms  # noqa: F401
import gpt2_model, runner
import test_loader_sampling as sampling
import test_turns as turns

BIN = os.environ["BIN"]
END_OF_TEXT, SYSTEM, USER, ASSISTANT, END = 50256, 50257, 50258, 50259, 50260
T, SEQUENCES = 32, 8
STEP = ["--threads=1", "--dtype=float32", "--device=cpu", "--eval_interval=0", "--sample_tokens=0", "--quiet", "--loss_tokens=answers",
        "--grad_clip=0", "--max_iters=2", "--warmup_iters=0", "--decay_lr=False", "--learning_rate=1e-3", "--sampling=sequential",
        "--dataset=data", "--init_from=./gpt2", f"--block_size={T}"]  # fmt: skip


def setup():
    talks = list(turns.conversations(300, 5))
    with open("talks.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"messages": talk}) + "\n" for talk in talks)
        file.writelines(json.dumps({"text": f"a plain text about mills and wheel {i}"}) + "\n" for i in range(20))
    runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--turns", "--val", "0.1", "-o", "data", "talks.jsonl")
    runner.call(sys.executable, gpt2_model.__file__, "make", "gpt2")


def counted(row):
    """Whether each target of a row counts."""
    out, on = [], False
    for at, target in zip(row, row[1:]):
        if at == END_OF_TEXT:
            on = target not in (END_OF_TEXT, SYSTEM, USER, ASSISTANT)
        elif at in (SYSTEM, USER, ASSISTANT, END):
            on = at == ASSISTANT
        out.append(on)
    return np.array(out)


def test_the_python_client_has_the_rule():
    from millrace_loader import answer_targets

    rows = np.array(rows_of())
    for ids in rows, rows.astype(np.uint16):
        assert (answer_targets(ids, END_OF_TEXT, SYSTEM, USER, ASSISTANT, END) == [counted(row) for row in rows]).all()


def rows_of(split="train"):
    ids = np.frombuffer(runner.call(f"{BIN}/shardtool", "cat", "--split", split, "data").stdout, "<u2").astype(np.int64)
    return [ids[i * T : i * T + T + 1] for i in range((len(ids) - 1) // T)]


def train(out, *options, ranks=0):
    shutil.rmtree(out, ignore_errors=True)
    launcher = ["env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1", "mpirun", "-n", str(ranks)] if ranks else []
    runner.call(*launcher, f"{BIN}/trainer", "train", *STEP, f"--out_dir={out}", *options)
    with open(f"{out}/metrics.jsonl", encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if "loss" in line]


def has_mpi():
    return shutil.which("mpirun") and os.path.exists(f"{BIN}/../lib/millrace/mpi.so")


def torch_step(rows, documents, z_loss):
    """Loss, gradients and number of targets of the rows together; the names of the gradients are those of the optimizer's state."""
    import torch
    import transformers

    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained("gpt2", attn_implementation="eager").double().train()
    old = model.get_input_embeddings().weight.detach()[:50257]
    model.resize_token_embeddings(50261, mean_resizing=False)
    with torch.no_grad():
        model.get_input_embeddings().weight[50257:] = old.mean(0).float().double()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    total, targets = 0, 0
    for row in rows:
        sees = np.tril(np.ones((T, T), bool))
        if documents:
            starts = np.maximum.accumulate(np.where(row[:T] == END_OF_TEXT, np.arange(T), 0))
            sees &= np.arange(T)[None, :] >= starts[:, None]
        mask = torch.from_numpy(np.where(sees, 0.0, -1e300))[None, None]
        logits = model(torch.from_numpy(row[:T])[None], attention_mask=mask).logits[0]
        labels = torch.from_numpy(np.where(counted(row), row[1:], -100))
        total = total + torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum")
        total = total + z_loss * (logits.logsumexp(-1)[labels != -100] ** 2).sum()
        targets += int((labels != -100).sum())
    (total / targets).backward()
    gradients = {name.removeprefix("transformer."): parameter.grad.numpy() for name, parameter in model.named_parameters()}
    gradients["wpe.weight"] = gradients["wpe.weight"][:T]
    return (total / targets).item(), gradients, targets


def first_moments(run):
    """Those of AdamW, which with beta1=0 are the gradients of the step; matrices as GPT-2's files have them."""
    with open(f"{run}/ckpt-00000001/optimizer.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    found = {}
    for name, entry in header.items():
        if name.startswith("adamw.m."):
            values = np.frombuffer(data[slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"])
            found[name.removeprefix("adamw.m.")] = values.T if name.startswith("adamw.m.h.") else values
    return found


def test_torch_has_the_loss_the_norm_and_the_gradients_for_every_split_of_a_step():
    import torch, transformers  # noqa: F401
    rows = rows_of()[:SEQUENCES]
    assert any(not counted(row).any() for row in rows) and any(counted(row).any() for row in rows)
    for documents, z_loss in (False, 0), (True, 1e-2):
        loss, gradients, targets = torch_step(rows, documents, z_loss)
        norm = math.sqrt(sum((values**2).sum() for values in gradients.values()))
        splits, fixed = [(8, 1, 0), (1, 8, 0), (2, 4, 0), (4, 2, 2), (1, 8, 3)], {}
        for batch, micros, ranks in splits[: 5 if has_mpi() else 3]:
            for order in ("fixed", "fast"):
                first = train("run", f"--batch_size={batch}", f"--gradient_accumulation_steps={micros}", f"--reduce_order={order}",
                              f"--document_mask={documents}", f"--z_loss={z_loss}", "--beta1=0", "--max_iters=1", ranks=ranks)[0]  # fmt: skip
                split = (documents, batch, micros, ranks, order)
                assert first["targets"] == targets
                assert abs(first["loss"] - loss) < 1e-6 * loss, (split, first["loss"], loss)
                assert abs(first["norm"] - norm) < 1e-6 * norm, (split, first["norm"], norm)
                found = first_moments("run")
                assert found.keys() == gradients.keys()
                off = {name: np.abs(found[name] - values).max() / norm for name, values in gradients.items()}
                assert max(off.values()) < 1e-6, (split, off)
                bits = (first["loss"], first["norm"], {name: values.tobytes() for name, values in found.items()})
                assert order == "fast" or bits == fixed.setdefault(batch, bits), split


@runner.ci
def test_processes_give_the_same_bits_in_a_fixed_order():
    if not has_mpi():
        raise runner.Skip("built without MPI, or mpirun is not installed")
    options = ["--batch_size=1", "--gradient_accumulation_steps=5", "--reduce_order=fixed", "--max_iters=6", "--grad_clip=1"]
    want = [(line["loss"], line["norm"], line["targets"], line["chain"]) for line in train("run", *options)]
    for ranks in (2, 3):
        for stage in "01":
            got = train("run", *options, f"--zero_stage={stage}", ranks=ranks)
            assert [(line["loss"], line["norm"], line["targets"], line["chain"]) for line in got] == want, (ranks, stage)


@runner.ci
def test_with_everything_counted_the_bits_are_those_of_all():
    """Plain documents that are shorter than a row: each row begins with an end of text."""
    with open("plain.jsonl", "w") as file:
        file.writelines(json.dumps({"text": f"mill {i} turns"}) + "\n" for i in range(400))
    runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--turns", "--val", "0", "-o", "plain", "plain.jsonl")
    for options in (), ("--reduce_order=fixed", "--grad_clip=1", "--z_loss=0.1"), ("--dtype=bfloat16",), ("--dtype=float16",):
        results = []
        for words in "all", "answers":
            lines = train("run", "--dataset=plain", "--sampling=documents", "--document_mask=True", "--batch_size=2", "--gradient_accumulation_steps=2",
                          "--max_iters=2", *options, f"--loss_tokens={words}")  # fmt: skip
            assert [line.get("targets", 4 * T) for line in lines] == [4 * T] * 2
            with open("run/ckpt-00000002/model.safetensors", "rb") as weights:
                results.append(([(line["loss"], line["norm"]) for line in lines], weights.read()))
        assert results[0] == results[1], options


def evaluations(out, *options):
    train(out, *options, "--batch_size=2", "--gradient_accumulation_steps=1", "--eval_interval=2", "--eval_tokens=400")
    with open(f"{out}/metrics.jsonl", encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if "val_loss" in line]


@runner.ci
def test_losses_of_all_and_of_answers_have_different_rules():
    rules = [line["eval_rule"] for words in ("all", "answers") for line in evaluations("rules", "--document_mask=True", f"--loss_tokens={words}")]
    assert len(rules) == 4 and rules[0] == rules[1] != rules[2] == rules[3]


@runner.ci
def test_eval_reads_a_run_that_sets_the_document_mask_itself():
    for mask in "False", "True":
        want = evaluations("masked", f"--document_mask={mask}")[-1]["val_loss"]
        found = runner.call(f"{BIN}/trainer", "eval", "--json", "--out_dir=masked", "--dataset=data", "--threads=1", "--device=cpu").stdout
        found = {line["split"]: line["loss"] for line in map(json.loads, found.splitlines())}
        assert abs(found["val"] - want) < 1e-7 * want, (mask, found, want)
    found = runner.call(f"{BIN}/trainer", "eval", "--json", "--out_dir=masked", "--dataset=data", "--threads=1", "--device=cpu",
                        "--eval_order=sequential").stdout  # fmt: skip
    for line in map(json.loads, found.splitlines()):
        rows = rows_of(line["split"])[: -(-400 // T)]
        assert (line["tokens"], line["targets"]) == (len(rows) * T, sum(counted(row).sum() for row in rows)), line


@runner.ci
def test_plan_and_the_record_have_the_share_of_the_answers_that_an_epoch_counts():
    ids = np.frombuffer(runner.call(f"{BIN}/shardtool", "cat", "data").stdout, "<u2").astype(np.int64)
    answers, size = counted(ids).sum(), len(ids)
    orders = {"sequential": [i * T for i in range((size - 1) // T)],
              "documents": [sampling.documents(1337, 0, size, T, i, is_end=lambda at: ids[at] == END_OF_TEXT) for i in range(size // T - 1)]}  # fmt: skip
    for order, rows in orders.items():
        seen = np.zeros(size, int)
        for first in rows:
            seen[first : first + T] += counted(ids[first : first + T + 1])
        plan = runner.call(f"{BIN}/trainer", "plan", *STEP, f"--sampling={order}", "--batch_size=1", "--gradient_accumulation_steps=1")
        want = "%.1f %% of the answers' tokens count in the first epoch, %.1f %% in two rows; they are %.1f %% of its targets" % (
            100 * (seen > 0).sum() / answers, 100 * (seen > 1).sum() / answers, 100 * seen.sum() / (len(rows) * T))  # fmt: skip
        assert want in plan.stdout.decode(), (order, want, plan.stdout.decode())
        train("shared", f"--sampling={order}", "--batch_size=1", "--gradient_accumulation_steps=1", "--max_iters=1")
        with open("shared/metrics.jsonl", encoding="utf-8") as file:
            found = [line["answer_share"] for line in map(json.loads, file) if "answer_share" in line]
        assert found == [round((seen > 0).sum() / answers, 4)]
    for none in "--loss_tokens=all", "--sampling=crop":  # crops have no epochs
        plan = runner.call(f"{BIN}/trainer", "plan", *STEP, none, "--batch_size=1", "--gradient_accumulation_steps=1")
        assert b"answers'" not in plan.stdout


@runner.ci
def test_a_step_without_answers_is_null_and_leaves_the_weights():
    with open("late.jsonl", "w") as file:
        file.write(json.dumps({"prompt": "the mill " * 400, "completion": "turns"}) + "\n")
        file.writelines(json.dumps({"prompt": "a", "completion": "b"}) + "\n" for _ in range(100))
    runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--turns", "--val", "0", "-o", "late", "late.jsonl")
    lines = train("late-run", "--dataset=late", "--batch_size=2", "--gradient_accumulation_steps=2", "--max_iters=8",
                  "--checkpoint_interval=1")  # fmt: skip
    assert [line["targets"] > 0 for line in lines[:6]] == [False] * 6 and lines[-1]["targets"] > 0
    assert all(line["loss"] is None and line["norm"] is None for line in lines[:6])


def test_transformers_has_the_ids_and_the_mask_of_the_exported_template():
    import jinja2
    import transformers
    train("chat", "--batch_size=1", "--gradient_accumulation_steps=1", "--max_iters=1")
    runner.call(f"{BIN}/trainer", "export", "-q", "-o", "exported", "--out_dir=chat")
    tokenizer = transformers.AutoTokenizer.from_pretrained("exported")
    assert tokenizer.eos_token_id == END and tokenizer.bos_token_id == END_OF_TEXT
    assert transformers.GenerationConfig.from_pretrained("exported").eos_token_id == [END, END_OF_TEXT]
    found = 0
    for talk in turns.conversations(20, 3, turns.SPELL_NONE):
        theirs = tokenizer.apply_chat_template(talk, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        own = np.array([END_OF_TEXT, *turns.ids_of(talk)])
        assert theirs["input_ids"] == own[:-1].tolist()
        mask = counted(own)  # of targets: that of x[t+1] is mask[t]
        assert theirs["assistant_masks"] == [0, *mask[:-1].astype(int).tolist()], talk
        found += mask.sum()
        prompt = tokenizer.apply_chat_template(talk[:-1], add_generation_prompt=True, tokenize=True, return_dict=True)["input_ids"]
        assert own.tolist()[: len(prompt)] == prompt
    assert found > 200
    for content in None, [{"type": "text", "text": "a"}], 7:  # which a template prints as Python does
        try:
            tokenizer.apply_chat_template([{"role": "user", "content": content}])
            raise AssertionError(content)
        except jinja2.exceptions.TemplateError as error:
            assert "is not a text" in str(error)
    runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--turns", "--val", "0", "--vocabulary", "exported", "-o", "again", "talks.jsonl")
    runner.call(f"{BIN}/shardtool", "verify", "again")


def test_new_rows_are_the_mean_of_the_others():
    def weights(directory):
        with open(f"{directory}/model.safetensors", "rb") as file:
            data = file.read()
        size = 8 + struct.unpack("<Q", data[:8])[0]
        entry = json.loads(data[8:size])["transformer.wte.weight"]
        begin, end = entry["data_offsets"]
        return np.frombuffer(data[size + begin : size + end], "<f4").reshape(entry["shape"])

    train("grown", "--batch_size=1", "--gradient_accumulation_steps=1", "--max_iters=1", "--learning_rate=0", "--min_lr=0", "--weight_decay=0")
    runner.call(f"{BIN}/trainer", "export", "-q", "-o", "grown-exported", "--out_dir=grown")
    old, new = weights("gpt2"), weights("grown-exported")
    assert new.shape == (50261, old.shape[1]) and (new[:50257] == old[:50257]).all()
    mean = old[:50257].astype(np.float64).mean(0).astype(np.float32)
    assert np.abs(new[50257:] - mean).max() <= np.spacing(np.abs(mean)).max()


def answer(out, *questions, tokens=30):
    return subprocess.run([f"{BIN}/trainer", "sample", "--turns", "-q", f"--out_dir={out}", "--temperature=0", f"--max_new_tokens={tokens}",
                           "--threads=1", "--device=cpu"], input="\n".join(questions) + "\n", capture_output=True, text=True, check=True
                          ).stdout.split("\n")[:-1]  # fmt: skip


def learn():
    """Trains the run `learned`; returns its pairs of prompts and answers."""
    pairs = [(f"number {i}", f"{i * 7 % 50} and {i}") for i in range(16)]
    with open("pairs.jsonl", "w") as file:
        file.writelines(json.dumps({"prompt": prompt, "completion": completion}) + "\n" for prompt, completion in 8 * pairs)
    with open("letters.txt", "w") as file:
        file.writelines(f"number {i} and {i * 7 % 50}\n" for i in range(200))
    runner.call(f"{BIN}/shardtool", "train-vocabulary", "-q", "-V", "300", "-o", "small", "letters.txt")
    runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--turns", "--val", "0", "--vocabulary", "small", "-o", "pairs", "pairs.jsonl")
    options = ["--threads=1", "--dtype=float32", "--device=cpu", "--eval_interval=0", "--sample_tokens=0", "--quiet", "--dataset=pairs",
               "--n_layer=2", "--n_head=2", "--n_embd=64", "--block_size=64", "--batch_size=8", "--gradient_accumulation_steps=1",
               "--max_iters=300", "--learning_rate=5e-3", "--min_lr=5e-4", "--warmup_iters=10", "--lr_decay_iters=300"]  # fmt: skip
    runner.call(f"{BIN}/trainer", "train", *options, "--loss_tokens=answers", "--out_dir=learned")
    return pairs


def test_a_model_learns_its_answers_and_stops():
    pairs = learn()
    found = [answer("learned", prompt)[0] for prompt, _ in pairs]
    assert found == [completion for _, completion in pairs], found
    # conversations that are longer than a block lose their oldest pairs, and /clear forgets all
    assert answer("learned", "x " * 200, pairs[5][0], "/clear", pairs[3][0]) [-1:] == [pairs[3][1]]
    assert answer("learned", pairs[7][0] + "\r")[0] == pairs[7][1]  # a file with CRLF
    command = [f"{BIN}/trainer", "sample", "--turns", "-q", "--out_dir=learned", "--threads=1", "--device=cpu"]
    runner.call(*command, stdin=b"x" * (2 << 20), code=65)
    folder = os.open(".", os.O_RDONLY)
    refused = subprocess.run(command, stdin=folder, capture_output=True, text=True)
    os.close(folder)
    assert refused.returncode == 74 and "cannot read standard input: Is a directory" in refused.stderr, refused


def test_a_conversation_is_kept_as_far_as_it_leaves_a_quarter_of_the_block_to_the_answer():
    """Each answer is the most likely continuation, by numpy, of the messages that this rule keeps."""
    if not os.path.exists("learned"):
        learn()
    block, lines = 64, [f"number {i}" for i in (5, 11, 3, 7, 14, 2, 9)]
    weights = gpt2_model.read("learned/" + max(name for name in os.listdir("learned") if name.startswith("ckpt-")))
    with open("pairs/tokenizer.json", encoding="utf-8") as file:
        special = {token["content"]: token["id"] for token in json.load(file)["added_tokens"]}
    first, user, assistant, end = (special[f"<|{name}|>"] for name in ("endoftext", "user", "assistant", "end"))
    encoded = [[int(id) for id in runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--ids", "--vocabulary", "small", "-", stdin=line.encode()).stdout.split()] for line in lines]
    forgotten = {}
    for tokens in (500, 16, 5):
        talk = subprocess.run([f"{BIN}/trainer", "sample", "--turns", "--out_dir=learned", "--temperature=0", f"--max_new_tokens={tokens}", "--threads=1",
                               "--device=cpu"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)  # fmt: skip
        kept, forgotten[tokens] = [], 0
        for ids, got in zip(encoded, talk.stdout.split("\n"), strict=False):
            message = [user, *ids, end, assistant]
            while kept and 1 + sum(map(len, kept)) + len(message) + min(tokens, block // 4) + 1 > block:
                kept.pop(0)
                forgotten[tokens] += 1
            read = [first, *sum(kept, []), *message]
            begin = len(read)
            while len(read) < min(begin + tokens, block - 1) and read[-1] not in special.values() or len(read) == begin:
                read.append(int(gpt2_model.logits(weights, False, np.array(read), 2)[-1].argmax()))
            reply = read[begin:-1] if read[-1] in special.values() else read[begin:]
            want = runner.call(f"{BIN}/shardtool", "decode", "--raw", "--vocabulary", "pairs/tokenizer.json", "-", stdin=np.array(reply, "<u2").tobytes()).stdout.decode()
            assert got == want, (tokens, kept, got, want)
            kept.append([*message, *reply, end])
        assert talk.stderr.count("its oldest messages are forgotten") == (forgotten[tokens] > 0), talk.stderr
    assert len(lines) - 1 > forgotten[500] == forgotten[16] > forgotten[5] > 0, forgotten


@runner.ci
def test_the_page_goes_from_a_file_of_pairs_to_a_model_that_answers_and_stops(folder):
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "docs", "answers.md")
    with open(page, encoding="utf-8") as file:
        commands = file.read().split("<!-- run by tests/oracle/trainer/test_answers.py -->\n```sh\n")[1].split("```")[0]
    path = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-e"], input=commands, cwd=folder, env=path, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("---------------\n43 comes after 42.\n"), done.stdout[-500:]


@runner.ci
def test_a_model_stops_only_if_the_ends_of_its_answers_count():
    """The negative control. Each row of 32 ids ends with the last id of an answer, so that no <|end|> of an answer counts; or 16 ids before
    that place, so that each does. Nothing else differs, also not in the rows: attention stays in a document, and no position is learned."""
    row, rows = 32, 16 * 60
    pairs = [(chr(65 + i) + "Q", "".join(chr(65 + (7 * i + k) % 26) for k in range(3 + i % 4))) for i in range(16)]
    with open("ab.txt", "w") as file:
        file.write("ab " * 99)  # no capitals, so that each of them is an id
    runner.call(f"{BIN}/shardtool", "train-vocabulary", "-q", "-V", "259", "-o", "capitals", "ab.txt")
    for counts in (False, True):
        lines = [{"text": "Z" * (row - 4 - len(pairs[0][1]) - 1 + 16 * counts)}]
        for i in range(rows):
            (prompt, words), (_, after) = pairs[i % 16], pairs[(i + 1) % 16]
            talk = [("user", prompt), ("assistant", words), ("user", "Z" * (row - len(after) - 9))]
            lines.append({"messages": [{"role": role, "content": text} for role, text in talk]})
        with open("stops.jsonl", "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        runner.call(f"{BIN}/shardtool", "tokenize", "-q", "--turns", "--val", "0", "--force", "--vocabulary", "capitals", "-o", "stops", "stops.jsonl")
        runner.call(f"{BIN}/trainer", "train", "--threads=1", "--dtype=float32", "--device=cpu", "--eval_interval=0", "--sample_tokens=0", "--quiet",
                    "--dataset=stops", f"--out_dir=stops-{counts}", "--n_layer=2", "--n_head=2", "--n_embd=64", f"--block_size={row}", "--position=rope",
                    "--sampling=sequential", "--loss_tokens=answers", "--batch_size=8", "--gradient_accumulation_steps=1", f"--max_iters={rows // 8}",
                    "--learning_rate=5e-3", "--min_lr=5e-4", "--warmup_iters=10", f"--lr_decay_iters={rows // 8}")  # fmt: skip
        found = [answer(f"stops-{counts}", prompt, tokens=20)[0] for prompt, _ in pairs]
        want = [text for _, text in pairs]
        assert (found == want) if counts else all(len(text) == 20 and text.startswith(start) for text, start in zip(found, want)), (counts, found)

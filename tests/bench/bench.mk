# Benchmarks and soaks, included by the Makefile; none is part of `make test`.
PYTHON := build/venv/bin/python
PIP    := build/venv/bin/pip install -q --disable-pip-version-check

BENCHES := $(basename $(wildcard tests/bench/*/bench_*.c))
$(foreach bench,$(BENCHES),$(eval $(O)/$(notdir $(bench)): $(O)/$(bench).o))
$(addprefix $(O)/,$(notdir $(BENCHES))): $(O)/core.a
	$(LINK)
$(O)/bench_gpu: $(O)/tests/bench/gpu/bench_gpu_trace.o

## bench-kernels  every operation of a training step on this processor, timed, and its share of the measured peak: S="L=4 C=256 H=4 B=2 dtype=float32 threads=1"
bench-kernels: $(O)/bench_gpu ; $(Q)$< trace device=cpu T=256 B=4 $(S)
## bench-cpu  training speed on the CPU beside PyTorch in the same run (S="n_layer=6 ...")
## bench-busy  the same, and beside busy processes of the same and of another session, for the demo's model too (OLD=folder of older programs)
bench-cpu: export PLACES := alone
bench-cpu: export MODELS := 124M
bench-busy: export MODELS := 124M,demo
bench-cpu bench-busy: all test-deps
	$(Q)[ $@ = bench-busy ] || $(PYTHON) -c 'import torch' 2>/dev/null || $(PIP) torch numpy
	$(Q)mkdir -p build/bench/step
	$(Q)OLD=$(OLD) $(PYTHON) tests/bench/trainer/bench_step.py $(O)/bin build/bench/step "$${TEXT:-$$(scripts/corpus.sh)}" $(S)
## bench-until  runs with --until: what is left of their time, beside neighbours and after kills (S="3x20 10x8 40x2": minutes x runs)
bench-until: all test-deps
	$(Q)$(PYTHON) tests/bench/trainer/bench_until.py $(O)/bin build/bench/until "$${TEXT:-$$(scripts/corpus.sh)}" $(S)
## bench-grid  losses of five sizes at three lengths for each optimizer, by branches that cool down; goes on where it stopped (TEXT= NAME=, FLOP=2.7e13, DEPTHS=, OPTIMIZERS=)
bench-grid: all
	$(Q)$(PYTHON) tests/bench/trainer/bench_grid.py $(O)/bin build/bench/grid "$${NAME:-austen}" "$${TEXT:-$$(scripts/corpus.sh)}" $(S)
## bench-answers  fine-tuning on the answers of conversations beside TRL in the same run: tokens a second, memory (S="layers heads embd block batch")
bench-answers: all test-deps
	$(Q)$(PIP) torch==2.15.0 transformers==5.23.0 trl==1.16.0
	$(Q)$(PYTHON) tests/bench/trainer/bench_answers.py $(O)/bin build/bench/answers $(S)
## bench-gpu  training speed, operations and memory on a device beside PyTorch; writes docs/gpu-results.md
bench-gpu: all $(O)/bench_gpu
	$(Q)python3 tests/bench/gpu/bench_gpu.py $(O) && python3 tests/bench/gpu/bench_gpu.py $(O) --torch
## bench-gpu-run  one run of 124M on a device beside nanoGPT's model and loop in PyTorch: losses, time, memory, kill and resume
bench-gpu-run: all
	$(Q)python3 tests/bench/gpu/bench_gpu.py $(O) --run
## bench-ranks  two processes of one thread beside one of two: tokens a second, CPU time, bytes sent, memory (S="n_layer=6 ...")
bench-ranks: all ; $(Q)python3 tests/bench/trainer/bench_ranks.py $(O)/bin $(S)
## bench-items  grades by items beside the same tokens without what makes them fast, lm-eval, and --choices of a program of earlier versions (OLD=its folder, S=5)
bench-items: all test-deps
	$(Q)$(PIP) torch==2.15.0 transformers==5.23.0 lm_eval==0.4.13
	$(Q)$(PYTHON) tests/bench/trainer/bench_items.py $(O)/bin build/bench/items "$(OLD)" $(S)
## bench-sample  tokens a second of sampling from a 124M at 1,000 tokens of context, beside transformers with its cache
bench-sample: all test-deps ; $(Q)$(PYTHON) tests/bench/trainer/bench_sample.py $(O)/bin/trainer
## bench-chars  validation loss of a character model beside nanoGPT's in PyTorch, on the same ids (FILE=your text)
bench-chars: all test-deps ; $(Q)$(PYTHON) tests/bench/trainer/bench_chars.py $(O)/bin $(FILE)
## bench-loader  loader throughput, latency and restart time beside nanoGPT's get_batch
bench-loader: test-deps $(O)/bin/loader $(O)/bin/shardtool $(O)/bench_loader
	$(Q)mkdir -p build/bench/loader
	$(Q)$(PYTHON) tests/bench/loader/bench_loader.py $(O)/bench_loader $(O)/bin/loader build/bench/loader
## bench-tokenizer  MB/s beside tiktoken, gigatoken and tokenizers, ids compared (FILE=your text)
## bench-patterns  MB/s of each pattern beside GPT-2's, with the same tokens (FILE=your text)
bench-tokenizer bench-patterns: bench-%: test-deps $(O)/bench_tokenizer $(O)/bin/shardtool
	$(Q)$(PIP) gigatoken==0.10.0 tokenizers==0.23.3 awkward
	$(Q)$(PYTHON) tests/bench/tokenizer/bench_tokenizer.py $* $(O)/bench_tokenizer $(O)/bin/shardtool $(FILE)
## bench-vocabulary  seconds and memory of train-vocabulary beside gigatoken and rustbpe, tokens compared (FILE=your text, V=65536, RUNS=3)
bench-vocabulary: test-deps $(O)/bin/shardtool
	$(Q)$(PIP) gigatoken==0.10.0 rustbpe==0.1.0 awkward
	$(Q)mkdir -p build/bench/vocabulary
	$(Q)$(PYTHON) tests/bench/tokenizer/bench_vocabulary.py $(O)/bin/shardtool build/bench/vocabulary "$(FILE)" "$(V)" "$(RUNS)"
## bench-shards   datasets from JSON lines beside nanoGPT's prepare and datatrove; memory
## bench-formats  MB of text a second out of every format beside its library and pyarrow, to a dataset, and after a kill
## bench-remote   tokenize by level, and of URLs through TLS beside disk and pyarrow with tiktoken (GB=4)
bench-shards bench-formats bench-remote: bench-%: test-deps $(O)/bin/shardtool
	$(Q)[ $* != shards ] || $(PIP) datatrove==0.10.1 orjson tokenizers==0.23.3 || true
	$(Q)mkdir -p build/bench/$* && $(PYTHON) tests/bench/shardtool/bench_$*.py $(O)/bin/shardtool build/bench/$* $(GB)
## bench-neardup  near-duplicates and items of benchmarks beside datatrove and rensa, CPU seconds and disk (MB=60); memory for DOCUMENTS=1000000
bench-neardup: test-deps $(O)/bench_neardup $(O)/bin/shardtool
	$(Q)$(PIP) datatrove==0.10.1 'xxhash<4' orjson tokenizers==0.23.3 spacy nltk rensa==0.5.0
	$(Q)mkdir -p build/bench/neardup
	$(Q)$(PYTHON) tests/bench/shardtool/bench_neardup.py $(O)/bench_neardup $(O)/bin/shardtool build/bench/neardup $(or $(MB),60) $(DOCUMENTS)
## bench-parts    near-duplicates in 4 parts beside datatrove: CPU seconds, disk, removed without a partner, a lost part (DOCUMENTS=2000)
bench-parts: test-deps $(O)/bin/shardtool
	$(Q)$(PIP) datatrove==0.10.1 'xxhash<4' orjson tokenizers==0.23.3 spacy nltk
	$(Q)$(PYTHON) tests/bench/shardtool/bench_parts.py $(O)/bin/shardtool build/bench/parts $(DOCUMENTS)
## bench-documents  a condition, equal documents removed, and the list of them, beside DuckDB and datatrove in the same run (MB=120)
bench-documents: test-deps $(O)/bin/shardtool
	$(Q)$(PIP) datatrove==0.10.1 'xxhash<4' orjson duckdb==2.0.1
	$(Q)$(PYTHON) tests/bench/shardtool/bench_documents.py $(O)/bin/shardtool build/bench/documents $(MB)
## soak     a loader under a fault a minute: memory, descriptors and samples stay the same (MINUTES=30)
soak: test-deps $(O)/bin/loader $(O)/bin/shardtool
	$(Q)$(PYTHON) tests/bench/loader/soak_loader.py $(O)/bin $(or $(MINUTES),30)
## soak-train  two processes under a fault a minute beside an undisturbed one: steps kept, seconds lost, equal bits (HOURS=2 BETWEEN=60 SEED=1)
soak-train: all
	$(Q)python3 tests/bench/trainer/soak_train.py $(O)/bin $(or $(HOURS),2) $(or $(BETWEEN),60) $(or $(SEED),1)

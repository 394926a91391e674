# make -j8 [CUDA=0] [SAN=address|undefined|thread] [CC=clang] [V=1]; everything built lands in build/.
SAN    ?=
# nvcc is that of the toolkit CUDA_HOME, else the one in PATH. Where PATH has ccache under this name, ccache starts that of CUDA_HOME.
NVCC_FOUND := $(shell command -v nvcc)
NVCC_HOME  := $(wildcard $(addsuffix /bin/nvcc,$(CUDA_HOME)))
NVCC   := $(or $(NVCC),$(if $(NVCC_HOME),$(filter %/ccache,$(realpath $(NVCC_FOUND))) $(NVCC_HOME)),$(firstword $(NVCC_FOUND) $(wildcard /usr/local/cuda/bin/nvcc)))
# nvcc before 11.8 cannot compile the kernels: then the programs are built for the CPU alone.
NVCC_VERSION := $(if $(NVCC),$(shell $(NVCC) --version | sed -nE 's/.*release ([0-9]+\.[0-9]+).*/\1/p'))
NVCC_OLD     := $(if $(NVCC),$(shell printf '11.8\n$(or $(NVCC_VERSION),0)\n' | sort -CV || echo 1))
CUDA   ?= $(if $(NVCC),$(if $(NVCC_OLD),0,1),0)
ifeq ($(MAKELEVEL)$(NVCC_OLD),01)
$(info nvcc $(NVCC_VERSION) is older than 11.8: building without CUDA)
endif
CFLAGS ?= -O3 -g
PREFIX ?= /usr/local
BUILD  ?= build
# ONEDNN=0: products by our own code alone.
ONEDNN ?= 1
NO_DNN := $(if $(filter 0,$(ONEDNN)),-own)
O      := $(BUILD)/$(or $(SAN),release)$(if $(filter 0,$(CUDA)),-cpu)$(if $(findstring clang,$(CC)),-clang)$(NO_DNN)
# The C objects that a build with CUDA has in common with one without: all of the libraries but OF_CUDA and kernels/cuda.
HOST_O := $(BUILD)/$(or $(SAN),release)-cpu$(if $(findstring clang,$(CC)),-clang)$(NO_DNN)
OF_CUDA := kernels/backend.c common/cli/version.c
comma  := ,
Q      := $(if $(V),,@)
VERSION := 0.2.0-dev

PROGRAMS := $(patsubst %/main.c,%,$(wildcard */main.c))
LIBRARIES := common remote dataset tokenizer shardtool loader kernels trainer
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
CDEFS    := -I. -D_GNU_SOURCE
DEFS     := $(CDEFS) -DHAVE_CUDA=$(CUDA)
WERROR   := $(if $(filter true,$(CI)),-Werror)
WARN     := -std=c11 -Wall -Wextra -Wconversion -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes \
            -Werror=incompatible-pointer-types $(WERROR)
LIBS     := -lzmq -lzstd -lz -llzma -lbz2 -lsnappy -llz4 -lbrotlidec -larchive -ljansson -lxxhash -lcrypto $(if $(NO_DNN),,-ldnnl -lgomp) \
            -lpthread -lm
# Vector code is selected at run time; a file whose name ends in an instruction set is compiled for that set.
# -ffp-contract=off: fused multiply-add would make results depend on the compiler.
ISA_avx2   := -march=x86-64-v3
ISA_avx512 := -march=x86-64-v4 -mavx512vbmi -mavx512vbmi2 -mavx512bf16 -mprefer-vector-width=512
ISA_amx    := $(ISA_avx512) -mamx-tile -mamx-bf16
isa        = $(ISA_$(lastword $(subst _, ,$(basename $(@F)))))

# Files for an instruction set only on x86-64, kernels/cuda only where nvcc is; kernels/mpi is a shared object of its own.
X86   := $(filter x86_64%,$(shell $(CC) -dumpmachine 2>/dev/null))
CSRC  := $(filter-out kernels/cpu/ops/variant.c kernels/cpu/onednn$(if $(NO_DNN),,_none).c kernels/mpi/% $(if $(filter 0,$(CUDA)),kernels/cuda/%) \
           $(if $(X86),,%_avx2.c %_avx512.c %_amx.c), \
           $(wildcard $(LIBRARIES:%=%/*.c) $(LIBRARIES:%=%/*/*.c) $(LIBRARIES:%=%/*/*/*.c)))
# The vector kernels of the CPU, once for each activation type and instruction set.
ACTS     := $(shell sed -nE 's/^ *ROW.[A-Z0-9]+, *([a-z0-9]+),.* ON_(CPU|BOTH),.*/\1/p' kernels/dtypes.def)
upper     = $(shell echo $(1) | tr a-z A-Z)
VARIANTS := $(foreach t,$(ACTS),$(foreach i,portable $(if $(X86),avx2 avx512),$(HOST_O)/kernels/cpu/ops/variant_$(t)_$(i).o))
TESTS := $(wildcard tests/*.c tests/unit/*.c tests/unit/*/*.c tests/operations/*.c)
MAINS := $(PROGRAMS:%=$(O)/%/main.o)
ifeq ($(CUDA),1)
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
ifndef NVARCH
NVARCH    := $(filter $(shell $(NVCC) --list-gpu-arch | sed s/compute_//),75 80 86 90 120)
endif
# With another NVARCH than the last time, the kernels are compiled again.
CARDS     := $(O)/cards$(shell printf _%s $(NVARCH))
CUSRC     := $(wildcard kernels/cuda/*.cu kernels/cuda/*/*.cu)
# The types that they are compiled for, and the lowest compute capability of each.
CUDA_ACTS := $(shell sed -nE 's/^ *ROW.[A-Z0-9]+, *([a-z0-9]+),.* ON_BOTH,.*/\1/p' kernels/dtypes.def)
$(foreach t,$(CUDA_ACTS),$(eval CARD_$(t) := $(shell sed -nE 's/^ *ROW.[A-Z0-9]+, *$(t),.* ON_BOTH, *([0-9]+),.*/\1/p' kernels/dtypes.def)))
# The CUDA runtime is linked statically and cuBLASLt is loaded when a device is opened, so the trainer starts on
# machines without the toolkit. CUDART=cudart links the shared runtime instead, for fault injection. An installed toolkit
# has its libraries in lib64, NVIDIA's wheels in lib, conda in targets; the linker would take another one's where this has
# none, so it gets the file.
CUDART    ?= cudart_static
target    := targets/$(if $(X86),x86_64,sbsa)-linux
of_toolkit = $(firstword $(wildcard $(addprefix $(CUDA_HOME)/,$(1))))
CUDART_FILE  := $(call of_toolkit,$(patsubst %,%/lib$(CUDART).[as]*,lib64 lib $(target)/lib))
CUDA_INCLUDE := $(patsubst %/cuda_runtime_api.h,%,$(call of_toolkit,include/cuda_runtime_api.h $(target)/include/cuda_runtime_api.h))
LIBS      += $(if $(filter cudart,$(CUDART)),-Wl$(comma)-rpath$(comma)$(dir $(CUDART_FILE))) $(CUDART_FILE) -lstdc++ -ldl -lrt
DEFS      += -isystem $(or $(CUDA_INCLUDE),$(CUDA_HOME)/include)
# Every kernel is compiled for each type of CUDA_ACTS, from its lowest compute capability on. The source has three
# forms (ARCH in ptx.cuh), so there are three PTX for all cards, and 9.0 has code of its own (wgmma.cuh) by nvcc 12 and
# later. 8.9 runs the code of 8.6; a card without code compiles the PTX when a kernel is loaded.
ptx_for    = $(if $(filter 75 90a,$(1)),$(1),$(if $(filter 12%,$(1)),120,80))
ptx_kept   = $(call ptx_for,$(or $(filter 90,$(1)),$(lastword $(1))))
hopper    := $(if $(shell printf '12.0\n$(NVCC_VERSION)\n' | sort -CV && echo 1),90a,90)
gencode    = $(foreach a,$(1:90=$(hopper)),-gencode arch=compute_$(call ptx_for,$(a)),code=sm_$(a)) \
             -gencode arch=compute_$(ptx_kept),code=compute_$(ptx_kept)
# Line tables for profilers with -g alone: a program without debugging information is smaller without them.
nvcc       = $(NVCC) $(DEFS) -O3 $(if $(filter -g%,$(CFLAGS)),-g -lineinfo) -std=c++17 $(1) -Xcompiler -Wall,-Wextra $(WERROR:%=% all-warnings) \
             -Xptxas -v $(CPPFLAGS) -MMD -MP -c $< -o $@ 2>$@.ptxas || { cat $@.ptxas; exit 1; }
endif
# The CUDA emulator: the sources of the CUDA backend compiled for the host behind tests/cuda/emulator/emu.h, with
# sanitizers. The address sanitizer finds null pointers and wrong objects: those checks of the other one would take as
# long again. What is compiled again, for other types than bf16, has the address sanitizer alone.
EMUFLAGS := -O1 -g1 -fsanitize=address,undefined -fno-sanitize=null,object-size,pointer-overflow \
            -fno-sanitize-recover=all -fno-omit-frame-pointer
EMULIBS  := -Wl,--wrap=dlopen,--wrap=dlsym -Wl,--as-needed $(filter-out $(CUDART_FILE),$(LIBS)) -lcmocka
DEVICE_TESTS := $(wildcard tests/cuda/*.c tests/operations/*.c) tests/test_main.c tests/unit/trainer/fixture_trainer.c
EMU      := $(patsubst %,$(O)/emu/%.o,$(foreach t,$(CUDA_ACTS),$(CUSRC:%=%.$(t))) $(DEVICE_TESTS) \
              $(wildcard kernels/cuda/*.c kernels/cuda/*/*.c tests/cuda/emulator/*.cc tests/cuda/emulator/*.c))
# The same with the code paths of compute capability 7.5.
EMU75    := $(patsubst $(O)/emu/kernels/cuda/attention/%.fp16.o,$(O)/emu/kernels/cuda/attention/%.sm_75.o,$(EMU))
# HOST is what the emulator is linked with: everything but the CUDA backend, which it compiles for itself.
HOST  := $(patsubst %.c,$(HOST_O)/%.o,$(filter-out $(OF_CUDA) kernels/cuda/% %/main.c,$(CSRC))) $(OF_CUDA:%.c=$(O)/%.o) $(VARIANTS) \
         $(HOST_O)/tokenizer/gpt2_merges.o
CORE  := $(HOST) $(filter $(O)/kernels/cuda/%,$(CSRC:%.c=$(O)/%.o)) $(foreach t,$(CUDA_ACTS),$(CUSRC:%.cu=$(O)/%.$(t).cu.o))
define COMPILE
@mkdir -p $(@D); echo "  CC   $<$(if $(1), ($*))"
$(Q)$(CC) $(DEFS) $(1) $(WARN) $(SANFLAGS) $(CPPFLAGS) $(CFLAGS) -ffp-contract=off $(isa) -MMD -MP -c $< -o $@
endef
define LINK
@mkdir -p $(@D); echo "  LD   $@"
$(Q)$(CC) $(SANFLAGS) $(LDFLAGS) $(filter %.o,$^) $(filter %.a,$^) -Wl,--as-needed $(LIBS) $(LDLIBS) -o $@
endef

# Training with several processes needs MPI at build time; the programs load it only when mpirun or srun has started
# them. mpicc_abi, of MPICH 5, gives what compiles a second object, which runs with every MPI of the standard ABI: its
# options, but no path of a library that another machine does not have.
MPICC     ?= $(if $(SAN),,$(shell command -v mpicc))
MPICC_ABI ?= $(if $(SAN),,$(shell command -v mpicc_abi))
MPI       := $(O)/lib/millrace

## all      build millrace, shardtool, loader and trainer into build/*/bin (the default)
all: $(PROGRAMS:%=$(O)/bin/%) $(if $(MPICC),$(MPI)/mpi.so) $(if $(MPICC_ABI),$(MPI)/mpi_abi.so)
	@$(if $(SAN)$(filter-out build,$(BUILD)),true,ln -sfn $(notdir $(O))/bin build/bin)

$(O)/bin/%: $(O)/%/main.o $(O)/core.a
	$(LINK)
$(MPI)/mpi_abi.so: private MPICC = $(CC) -Dcollective_mpi=collective_mpi_abi -Wl,--no-as-needed $(filter -D% -I% -L% -l%,$(shell $(MPICC_ABI) -show))
$(MPI)/mpi.so $(MPI)/mpi_abi.so: kernels/mpi/collective_mpi.c kernels/collective.h Makefile
	@mkdir -p $(@D); echo "  MPI  $< ($(@F))"
	$(Q)$(MPICC) $(DEFS) $(WARN) $(CPPFLAGS) $(CFLAGS) -ffp-contract=off -fPIC -shared $(LDFLAGS) $< -o $@
$(O)/host.a: $(HOST)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(O)/core.a: $(CORE)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(O)/deps.ok:
	@mkdir -p $(@D); scripts/deps.sh headers '$(CC) $(CPPFLAGS)' $(if $(filter 1,$(CUDA)),'$(NVCC_VERSION)' '$(CUDA_HOME)' '$(CUDA_INCLUDE)' '$(CUDART_FILE)') && touch $@
$(O)/%.o: %.c Makefile | $(O)/deps.ok
	$(call COMPILE)
ifneq ($(HOST_O),$(O))
$(HOST_O)/%.o: DEFS := $(CDEFS) -DHAVE_CUDA=0
$(HOST_O)/%.o: %.c Makefile | $(HOST_O)/deps.ok
	$(call COMPILE)
$(HOST_O)/deps.ok:
	@mkdir -p $(@D); scripts/deps.sh headers '$(CC) $(CPPFLAGS)' && touch $@
endif
$(VARIANTS): $(HOST_O)/kernels/cpu/ops/variant_%.o: kernels/cpu/ops/variant.c Makefile | $(HOST_O)/deps.ok
	$(call COMPILE,-DCPU_VARIANT=cpu_$* -DACT_$(call upper,$(firstword $(subst _, ,$*))))
# The one object that holds the commit and what was built: it is compiled again when another is checked out, files of this one are
# changed, or the build has other parts.
$(O)/commit.h: always
	@mkdir -p $(@D); { scripts/commit.sh; echo '#define PARTS "$(PARTS)"'; } >$@.$$$$; cmp -s $@.$$$$ $@ && rm $@.$$$$ || mv $@.$$$$ $@
$(O)/common/cli/version.o: DEFS += -include $(O)/commit.h -DVERSION='"$(VERSION)"'
$(O)/common/cli/version.o: $(O)/commit.h
$(or $(CARDS),$(O)/cards): $(if $(wildcard $(CARDS)),,always) # .SECONDARY takes a missing file for an old one
	@mkdir -p $(@D); rm -f $(O)/cards_*; touch $@
NO_MPI     = $(if $(MPICC)$(MPICC_ABI),,MPI)
PARTS      = $(if $(filter 0,$(CUDA)),without CUDA$(NO_MPI:%=$(comma) %),$(NO_MPI:%=without %; )CUDA $(NVCC_VERSION) for compute capability \
               $(shell echo $(NVARCH) | sed -E 's/([0-9])( |$$)/.\1\2/g'); cuBLASLt 12 or 13$(DRIVER:%=; driver % or later))
# The oldest driver that the runtime of this nvcc works with.
DRIVER     = $(patsubst $(basename $(NVCC_VERSION)):%,%,$(filter $(basename $(NVCC_VERSION)):%,11:450 12:525 13:580))
$(HOST_O)/%.o: %.S
	@mkdir -p $(@D); echo "  AS   $<"
	$(Q)$(CC) -I. -c $< -o $@
$(HOST_O)/tokenizer/gpt2_merges.o: tokenizer/gpt2_merges.bpe
of_act = -DACT=$(1) -DACT_$(call upper,$(1))
# No card of 7.5 runs code of a type that needs 8.0: the only two limits there are.
define ACT_RULES
$(O)/%.$(1).cu.o: %.cu Makefile $(CARDS) | $(O)/deps.ok
	@mkdir -p $$(@D); echo "  NVCC $$< ($(1))"
	$$(Q)$$(call nvcc,$$(call gencode,$$(or $$(filter-out $(if $(filter 75,$(CARD_$(1))),,75),$$(NVARCH)),$(CARD_$(1)))) $(call of_act,$(1)))
$(O)/emu/%.$(1).o: % Makefile
	@mkdir -p $$(@D); echo "  CXX  $$< (emulator, $(1))"
	$$(Q)$$(call emucxx,$(call of_act,$(1)) $(if $(filter bf16,$(1)),,-fno-sanitize=undefined))
endef
$(foreach t,$(CUDA_ACTS),$(eval $(call ACT_RULES,$(t))))
WRAP  := malloc calloc realloc aligned_alloc clock_ns stop_check
# The fuzz targets, each under a name of its own, for test_fuzz_corpus.c.
REPLAYS := $(patsubst tests/fuzz/fuzz_%.c,$(O)/tests/replay/%.o,$(wildcard tests/fuzz/fuzz_*.c))
$(O)/tests/replay/%.o: tests/fuzz/fuzz_%.c Makefile | $(O)/deps.ok
	$(call COMPILE,-DLLVMFuzzerTestOneInput=fuzz_$*)
$(O)/test: private LIBS += -lcmocka $(WRAP:%=-Wl,--wrap=%)
$(O)/test: $(TESTS:%.c=$(O)/%.o) $(REPLAYS) $(O)/core.a
	$(LINK)

# The simulator of the loader's protocol replaces ZeroMQ, and what these functions do for the loader and its client.
SIM_WRAP := close open connect send sendmsg eventfd socket memfd_create accept4 signalfd signal pthread_sigmask clock_gettime getrandom usleep \
            pthread_create pthread_join pthread_detach pthread_mutex_lock pthread_cond_init pthread_cond_destroy pthread_cond_signal \
            pthread_cond_broadcast pthread_cond_wait pthread_cond_timedwait write fallocate fsync rename truncate mapguard_run \
            frame_decode endpoint_check_files server_send_error die
SIMULATOR := $(patsubst %.c,$(O)/%.o,$(wildcard tests/simulate/*.c) tests/unit/loader/fixture_loader.c)
$(O)/simulate: private LIBS += $(SIM_WRAP:%=-Wl,--wrap=%)
$(O)/simulate: $(SIMULATOR) $(O)/core.a
	$(LINK)
## simulate  histories of loader and trainers from seeds, with faults, under a virtual clock (S=60 seconds; SEED=n: one, with its steps)
simulate: $(O)/simulate ; $(Q)$< $(if $(SEED),--seed=$(SEED) --verbose,--seconds=$(or $(S),60))
## simulate-bugs  bugs planted in the protocol and after how many histories the simulator finds each (M=name: this one)
simulate-bugs: private LIBS += $(SIM_WRAP:%=-Wl,--wrap=%)
simulate-bugs: $(O)/simulate ; $(Q)SIMLIBS='$(LIBS)' tests/simulate/mutants.sh $(O) $(M)

# Small chunks of sorted tokens: a small batch has more of them than a block has threads. The bf16 object keeps the real
# size.
$(O)/emu/kernels/cuda/embed.cu.fp16.o: EMUFLAGS += -DSORTED_TOKENS=32
# The engine and the products run without sanitizers: there the tests spend their time.
$(O)/emu/tests/cuda/emulator/cublaslt.cc.o: EMUFLAGS := -O3 -g
$(addprefix $(O)/emu/tests/cuda/emulator/,emu.cc.o tma.cc.o): EMUFLAGS := -O3 -g -DEMU_ASAN
$(O)/emu/%.c.o: %.c Makefile
	@mkdir -p $(@D); echo "  CC   $< (emulator)"
	$(Q)$(CC) $(DEFS) $(WARN) $(EMUFLAGS) -MMD -MP -c $< -o $@
emucxx = $(CXX) $(DEFS) -std=c++17 -Wall -Wextra -Wno-unknown-pragmas -Wno-psabi $(WERROR) $(EMUFLAGS) -DEMU $(1) \
         -x c++ -include tests/cuda/emulator/emu.h -MMD -MP -c $< -o $@
$(O)/emu/%.o: % Makefile
	@mkdir -p $(@D); echo "  CXX  $< (emulator)"
	$(Q)$(call emucxx)
$(O)/emu/%.sm_75.o: % Makefile
	@mkdir -p $(@D); echo "  CXX  $< (emulator, sm_75)"
	$(Q)$(call emucxx,$(call of_act,fp16) -DARCH=750 -fno-sanitize=undefined)
$(O)/test-emu-75: $(EMU75) $(O)/host.a
$(O)/test-emu: $(EMU) $(O)/host.a
# The trainer on the emulated backend, for tests of several processes.
$(O)/emulated/trainer: $(filter-out $(DEVICE_TESTS:%=$(O)/emu/%.o) $(O)/emu/tests/cuda/emulator/%.c.o,$(EMU)) \
    $(O)/trainer/main.o $(O)/host.a
$(O)/test-emu $(O)/test-emu-75 $(O)/emulated/trainer: # mutant.sh links the same objects but one
	@mkdir -p $(@D); echo "  LD   $@"; echo $(filter %.o,$^) >$@.objects
	$(Q)$(CXX) $(EMUFLAGS) $(LDFLAGS) $^ $(EMULIBS) -o $@

# README's two commands build on all processors where the caller gave no -j.
JOBS = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))
# nvcc takes minutes: it runs where a driver is (of Linux or WSL), in CI, and with CUDA=1. The emulator needs its headers alone.
NO_NVCC = $(if $(filter file,$(origin CUDA)),$(if $(wildcard /dev/nvidiactl /dev/dxg),,CUDA=0))
## test     the tests of a change: C, command line, Python, emulated GPU; those whose name holds a word: make test T=shard
test: test-deps
	$(Q)$(if $(and $(NO_NVCC),$(EMULATED)),$(MAKE) --no-print-directory $(JOBS) $(filter-out $(OF_CI),$(EMULATED)))
	$(Q)EMULATOR=$(O) $(MAKE) --no-print-directory $(JOBS) $(NO_NVCC) test-now
## test-all  make test, then the tests that only CI and a release need (tests/README.md)
test-all: test
	$(Q)$(MAKE) --no-print-directory $(JOBS) TIER=ci test-now
EMULATED := $(if $(CUSRC),$(O)/test-emu $(O)/test-emu-75 $(O)/emulated/trainer)
# What only the tests of CI run.
OF_CI    := $(if $(CUSRC),$(O)/test-emu-75 $(O)/emulated/trainer $(O)/test-gpu $(O)/bench_gpu)
test-now: all $(O)/test $(O)/simulate $(O)/bench_tokenizer $(O)/bench_pieces $(O)/bench_neardup $(filter-out $(OF_CI),$(EMULATED)) \
    $(if $(filter-out test,$(or $(TIER),$(if $(T),all,test))),$(OF_CI))
	$(Q)CUDA_HOME='$(CUDA_HOME)' EMULIBS='$(EMULIBS)' LIBS='$(LIBS)' tests/run.sh $(O) $(T)
## test-caps  the tests of make test that start a trainer, under each instruction set below this processor's own
test-caps: test-deps all ; $(Q)tests/run.sh --caps $(O) $(T)
## test-peers  the tests beside torch, transformers, TRL, llama.cpp, MPICH, polars and others (docs/peers.md), installed in build (8 GB)
test-peers: test-deps
	$(Q)scripts/deps.sh peers
	$(Q)$(MAKE) --no-print-directory $(JOBS) all $(O)/bench_tokenizer
	$(Q)TIER=all tests/run.sh --peers $(O) $(T)
## audit    forged runs: one bit of the data, the configuration, a checkpoint or the metrics; and N receipts of each kind; none is accepted (N=1000 SEED=1)
audit: test-deps all
	$(Q)for file in audit receipt; do BIN=$(abspath $(O)/bin) FORGERIES=$(or $(N),1000) SEED=$(SEED) build/venv/bin/python \
	    tests/oracle/runner.py tests/oracle/trainer/test_$$file.py forged || exit; done
## combinations  random configurations over all keys of train, and what is promised of each (S=60 seconds; SEED=n: one, with its commands; DEVICE=cuda: emulated)
combinations: all $(if $(DEVICE),$(O)/emulated/trainer)
	$(Q)DEVICE=$(DEVICE) python3 tests/oracle/trainer/combinations.py $(O)/bin $(or $(S),60) $(SEED)
## check-bits  reduce_order=fixed in float32 on a CPU: the same bits by gcc and clang, -O1 to -O3, by musl, for each instruction set, threads and processes
BITS := $(foreach cc,gcc clang,$(foreach level,3 2 1,$(cc)$(level)))
check-bits: test-deps all
	$(Q)for build in $(BITS); do $(MAKE) --no-print-directory $(JOBS) CUDA=0 CC=$${build%?} CFLAGS=-O$${build#$${build%?}} BUILD=build/bits/$$build \
	    LIBRARIES='$(filter-out shardtool,$(LIBRARIES))' step-of-build trainer-of-build || exit 1; done
	$(if $(MUSL),$(Q)$(MAKE) --no-print-directory $(JOBS) step-with-musl)
	$(Q)BIN=$(abspath $(O)/bin) TRAINERS='$(BITS:%=$(CURDIR)/build/bits/%/trainer)' STEPS='$(patsubst %,$(CURDIR)/build/bits/%/step,$(BITS) $(if $(MUSL),musl))' \
	    build/venv/bin/python tests/oracle/runner.py tests/oracle/trainer/test_bits.py
trainer-of-build: $(O)/bin/trainer ; $(Q)cp $< $(BUILD)
step-of-build: $(O)/step ; $(Q)cp $< $(BUILD)
$(O)/step: $(addprefix $(O)/,tests/bits/bits_step.o tests/unit/trainer/fixture_trainer.o $(STEP_PARTS)) $(O)/core.a
	$(LINK)
# The step alone is also linked statically with musl. STEP: what it needs of ours, with the headers but none of the other libraries.
step-with-musl:
	$(Q)$(MAKE) --no-print-directory CUDA=0 CC=$(MUSL) CFLAGS='-O3 -ffunction-sections -fdata-sections' LDFLAGS='-static -Wl,--gc-sections' LIBS=-lm \
	    CPPFLAGS='$(patsubst %,-idirafter /usr/include/%,. $(shell $(CC) -dumpmachine)) -DXXH_INLINE_ALL -DTEMP_FAILURE_RETRY=' \
	    CSRC='$(STEP)' STEP_PARTS=tests/bits/static_parts.o BUILD=build/bits/musl step-of-build
MUSL := $(shell command -v musl-gcc)
STEP  = $(filter common/% kernels/% trainer/config/% trainer/shape/% trainer/plan/% trainer/model/% trainer/optim/% trainer/checkpoint/% \
          trainer/engine/chain.c loader/client/batch_stream.c loader/protocol/sampling.c,$(filter-out common/file/folder.c,$(CSRC:%/onednn.c=%/onednn_none.c)))
## test-slurm  the job scripts under a Slurm on this machine (root; needs slurm-wlm and munge)
test-slurm: all ; $(Q)tests/slurm/run_slurm.sh $(O)
## check    the C and command-line tests of make test under the address and the undefined-behaviour sanitizers (TIER=all: of test-all)
check:
	$(Q)$(MAKE) SAN=address,undefined CUDA=0 CFLAGS='-O1 -g' test-san
test-san: all $(O)/test
	$(Q)tests/run.sh --no-python $(O) $(T)
## check-bugs  bugs planted in the CUDA backend are caught by its tests in the emulator
check-bugs: $(if $(CUSRC),all $(EMULATED))
	$(Q)CUDA_HOME='$(CUDA_HOME)' EMULIBS='$(EMULIBS)' tests/run.sh --planted-bugs $(O) $(T)
## check-threads  the tests of what runs in several threads under the thread sanitizer
check-threads: ; $(Q)$(MAKE) SAN=thread CUDA=0 CFLAGS='-O1 -g' test-threads
test-threads: all $(O)/test
	$(Q)export TSAN_OPTIONS=suppressions=$(CURDIR)/tests/tsan.supp; \
	for word in pool team_ tokenizer shard_ source sampling loader feed record_sort workers_look checkpoint_whose; do \
	    $(O)/test --data tests/data --bin $(O)/bin $$word || exit 1; \
	done; \
	BIN=$(abspath $(O)/bin) DATA=$(CURDIR)/tests/data bats tests/cli/shardtool/shardtool.bats
## demo     train a small GPT on real text in a few minutes, in build/demo/ (TEXT=your files, FRESH=1 starts over, MINUTES=10 plans a run of that time)
demo: deps
	$(Q)$(MAKE) --no-print-directory $(JOBS) $(NO_NVCC) demo-now
demo-now: all
	$(Q)scripts/demo.sh $(O)/bin "$(TEXT)" "$(FRESH)" "$(MINUTES)"
## faults   every fault that must be survived, with its tests: row, result, test (R=27 or R=1-34: these rows only)
faults: test-deps all $(O)/test ; $(Q)tests/faults/run_faults.sh $(O) $(R)
## fuzz     F=tokenizer, F=patterns: random texts through ours and tiktoken's or regex; F=shard and the others of tests/fuzz: random bytes (S=60)
ifeq ($(F),patterns)
fuzz: test-deps $(O)/bench_pieces ; $(Q)SECONDS=$(or $(S),60) BIN=$(abspath $(O)/bin) build/venv/bin/python tests/oracle/runner.py tests/oracle/tokenizer/test_patterns.py
else ifeq ($(F),tokenizer)
fuzz: test-deps $(O)/bench_$(F) ; $(Q)build/venv/bin/python tests/fuzz/fuzz_$(F).py $(O)/bench_$(F) $(S)
else
fuzz: test-deps
	$(if $(F),,$(error name a target of tests/fuzz, or tokenizer: make fuzz F=shard))
	$(Q)$(MAKE) CC=clang SAN=fuzzer-no-link,address,undefined CUDA=0 CFLAGS='-O1 -g' fuzz-now
endif
fuzz-now: $(O)/fuzz_$(F) $(O)/bin/shardtool ; $(Q)tests/fuzz/run_fuzz.sh "$(F)" $^ $(S)
$(O)/fuzz_%: private SANFLAGS += -fsanitize=fuzzer
$(O)/fuzz_%: $(O)/tests/fuzz/fuzz_%.o $(O)/core.a
	$(LINK)
## test-gpu   tests of the CUDA backend on a device; writes docs/gpu-results.md
test-gpu: $(if $(CUSRC),all $(O)/test-gpu,$(if $(filter test-gpu,$(MAKECMDGOALS)),$(error test-gpu requires nvcc 11.8 or later, and not CUDA=0)))
	$(Q)tests/cuda/device/run_device.sh $(O)
$(O)/test-gpu: private LIBS += -lcmocka
$(O)/test-gpu: $(DEVICE_TESTS:%.c=$(O)/%.o) $(O)/core.a
	$(LINK)
# With -g, for the line tables of the kernels, which strip leaves in.
## gpu-pack   an archive that runs both on a machine with a driver, cuBLASLt and python3 alone: NVARCH=90
gpu-pack:
	$(Q)$(MAKE) BUILD=build/pack NVARCH='$(if $(filter command line,$(origin NVARCH)),$(NVARCH),90)' CFLAGS='-O3 -g' \
	    LDFLAGS="-s -Wl,--disable-new-dtags,-rpath,'\$$\$$ORIGIN/lib:\$$\$$ORIGIN/../lib'" pack-now
pack-now: all $(O)/test-gpu $(O)/bench_gpu
	$(Q)scripts/gpu_pack.sh $(O) build/gpu-pack.tar.xz
	$(Q)[ $$(id -u) != 0 ] || tests/cuda/device/check_pack.sh build/gpu-pack.tar.xz 40
## deps     install the packages needed to build (as root), or print the command that does
deps: ; $(Q)scripts/deps.sh build
test-deps: ; $(Q)scripts/deps.sh test
## docs     the manual as a site with search, in build/site
docs: test-deps all
	$(Q)$(PIP) mkdocs==1.6.1 mkdocs-material==9.8.1
	$(Q)scripts/docs.sh $(PYTHON) $(O)/bin
## format   run clang-format on all sources
## lint     check formatting, structure and names
format lint: ; $(Q)scripts/lint.sh $@
## dist     the programs for every Linux from glibc 2.31 on, in build/dist: a folder that runs wherever it is copied, .tar.xz, wheel, .deb (MACHINE=aarch64: folder, .tar.xz and wheel for it, in build/dist-aarch64)
MACHINE := x86_64
FOREIGN := $(filter-out x86_64,$(MACHINE))
DIST    := build/dist$(FOREIGN:%=-%)
FLOOR   := build/floor$(FOREIGN:%=-%)
TREE    := $(DIST)/millrace-gpt-$(VERSION)
dist:
	$(if $(FOREIGN),$(Q)$(MAKE) --no-print-directory $(JOBS) CUDA=0 all)
	$(Q)scripts/deps.sh dist $(MACHINE)
	$(Q)scripts/dist/libraries.sh $(FLOOR) $(MACHINE)
	$(Q)$(MAKE) --no-print-directory $(JOBS) BUILD=$(DIST)/objects CC='$(if $(FOREIGN),$(FLOOR)/cc,gcc-12) --sysroot=$(FLOOR)/sysroot -B$(FLOOR)/sysroot/usr/lib/$(MACHINE)-linux-gnu' \
	    CFLAGS=-O3 LDFLAGS='-s -static-libgcc -Wl,--gc-sections' LDLIBS='$(STATIC)' \
	    $(if $(FOREIGN),CUDA=0 ONEDNN=0 MPICC= MPICC_ABI= PRINTERS=$(HOST_O)/bin,MPICC_ABI=build/mpi/mpich/bin/mpicc_abi) dist-now
# What the static libraries need.
STATIC := -lzstd -lz -llzma -lbz2 -lsodium -lbrotlicommon -lstdc++ -ldl
dist-now: MPICC := $(if $(MPICC),env 'OMPI_CC=$(CC)' $(MPICC))
dist-now: all ; $(Q)scripts/dist/tree.sh $(O)/bin $(FLOOR) $(TREE) $(VERSION) $(MACHINE) $(PRINTERS)
## check-dist  make dist, and what it has made: needed symbols, the first steps in Debian 11, 12 and 13, the wheel, the .deb, equal bytes
check-dist:
	$(Q)scripts/deps.sh check-dist
	$(Q)$(MAKE) --no-print-directory dist
	$(Q)TREE='$(CURDIR)/$(TREE)' bats tests/dist
## library-faults  published faults of the libraries inside the packages, and what is done about each (scripts/dist/faults.txt); after make dist also its versions
library-faults: ; $(Q)scripts/dist/faults.sh '' '$(abspath $(wildcard $(FLOOR)/versions))'
## release  test-all, make dist and check-dist, then build/release-files: tarball, wheel, .deb, source, SHA256SUMS, NOTES.md
release:
	$(Q)scripts/dist/release.sh check
	$(Q)$(MAKE) --no-print-directory library-faults
	$(Q)$(MAKE) --no-print-directory test-all
	$(Q)$(MAKE) --no-print-directory check-dist
	$(Q)scripts/dist/release.sh pack $(DIST) build/release-files
## check-aarch64  the programs compiled for aarch64 by Debian's cross-compiler, and run by qemu-aarch64-static: ids, shards, bits of runs
AARCH64 := build/aarch64
check-aarch64: test-deps
	$(Q)for tool in aarch64-linux-gnu-gcc qemu-aarch64-static; do command -v $$tool >/dev/null || \
	    { echo "missing: sudo apt-get install gcc-aarch64-linux-gnu qemu-user-static" >&2; exit 71; }; done
	$(Q)tests/aarch64/sysroot.sh $(AARCH64)/sysroot
	$(Q)$(MAKE) --no-print-directory $(JOBS) CUDA=0 all
	$(Q)$(MAKE) --no-print-directory $(JOBS) CUDA=0 CI=true MPICC= MPICC_ABI= BUILD=$(AARCH64) CC='aarch64-linux-gnu-gcc --sysroot=$(CURDIR)/$(AARCH64)/sysroot' all
	$(Q)SYSROOT='$(CURDIR)/$(AARCH64)/sysroot' AARCH64='$(CURDIR)/$(AARCH64)/release-cpu/bin' BIN='$(CURDIR)/build/release-cpu/bin' bats tests/aarch64
## install  PREFIX=/usr/local DESTDIR=: copies what is built: programs, manual pages, completion, configurations, job scripts
## uninstall  removes what install has copied
install uninstall: ; $(Q)scripts/install.sh $@ $(if $(filter build,$(BUILD)),build,$(O))/bin "$(DESTDIR)$(PREFIX)"
## clean    remove build/
clean: ; rm -rf build
## help     this list
help: ; @sed -n 's/^## /make /p' $(RULES)

include tests/bench/bench.mk
RULES := $(MAKEFILE_LIST)
# Every target that `make help` lists, and the second halves of some.
.PHONY: always $(shell sed -nE 's/^## ([a-z-]+).*/\1/p' $(RULES)) test-now test-san test-threads fuzz-now pack-now dist-now demo-now
.DELETE_ON_ERROR:
.SECONDARY:
-include $(shell find $(sort $(O) $(HOST_O)) -name '*.d' 2>/dev/null)

// The host code of the CUDA backend on the emulated runtime: its messages without a usable card, the order of its
// streams, and that it leaks nothing and creates nothing twice.
#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/libraries/cublaslt.h"
#include "kernels/cuda/libraries/nvml.h"
#include "kernels/cuda/libraries/wddm.h"
#include "tests/cuda/emulator/device.h"
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/model/evaluate.h"
#include "trainer/model/sample.h"
#include <fcntl.h>
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VOCAB = 60 };
static const TinyShape small = {.device = DEVICE_CUDA, .type = DTYPE_BF16, .threads = 1, .layers = 1, .heads = 1};
static const BackendChoice choice = {.device = DEVICE_CUDA, .dtype = DTYPE_BF16, .threads = 1, .deterministic = true};

static const Backend *opened(void) {
    char why[256];
    const Backend *backend = backend_cuda(&choice, why);
    CHECK(backend);
    return backend;
}

// Checks the code and the message when the backend is opened in bfloat16 on such a card.
static void check_refused(struct EmuDevice device, int code, const char *sentence) {
    struct EmuDevice good = emu_device;
    char why[256];
    emu_device = device;
    CHECK(!backend_cuda(&choice, why));
    emu_device = good;
    CHECK_ERROR(code, sentence);
}

TEST(cuda_names_the_missing_driver_card_or_library) {
    struct EmuDevice none = emu_device, old = emu_device, hidden = emu_device, bare = emu_device;
    struct EmuDevice volta = emu_device, turing = emu_device;
    none.error = cudaErrorInsufficientDriver, none.driver = 0;
    check_refused(none, EX_GPU, "no NVIDIA driver on this machine");
    old.error = cudaErrorInsufficientDriver, old.driver = 11040;
    check_refused(old, EX_GPU, "the NVIDIA driver supports CUDA 11.4, this program needs 1");
    hidden.error = cudaErrorNoDevice;
    check_refused(hidden, EX_GPU, "finds no GPU");
    volta.capability = 70;
    check_refused(volta, EX_GPU, "compute capability 7.0, 7.5 is needed: use device=cpu");
    turing.capability = 75;
    check_refused(turing, EX_USAGE, "compute capability 7.5, bfloat16 needs 8.0: use dtype=float16");
    bare.cublaslt = 0, blas.Create = NULL;
    check_refused(bare, EX_GPU, "cannot load cuBLASLt (libcublasLt.so.missing: ");
    bare.cublaslt = 101103; // of a file with another name's version
    check_refused(bare, EX_GPU, " is version 10.11.3 of cuBLASLt, and 12 or 13 is needed");
    char text[256];
    CHECK(backend_cuda_libraries(text, sizeof text) && strstr(text, "cuBLASLt 13.0.1, ") && strstr(text, "; NCCL "));
    CHECK_EQUAL(emu_counts.live, 0);
}

TEST(cuda_selects_a_type_that_the_card_supports) {
    const struct {
        int capability;
        Dtype dtype;
        const char *says;
        Dtype type;
    } rows[] = {
        {75, DTYPE_AUTO, ", float16", DTYPE_FP16},
        {75, DTYPE_FP16, ", float16", DTYPE_FP16},
        {80, DTYPE_AUTO, ", bfloat16", DTYPE_BF16},
        {90, DTYPE_FP16, ", float16", DTYPE_FP16},
    };
    struct EmuDevice good = emu_device;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        emu_device.capability = rows[i].capability;
        BackendChoice card = choice;
        card.dtype = rows[i].dtype;
        char why[256];
        const Backend *backend = backend_cuda(&card, why);
        CHECK(backend);
        CHECK_EQUAL(backend->act_type, rows[i].type);
        CHECK_TEXT(why, rows[i].says);
        backend->close();
    }
    emu_device = good;
}

TEST(cuda_names_the_shapes_that_no_kernel_supports) {
    const Backend *backend = opened();
    CHECK_EQUAL(backend->check_shape(576, 12), 0); // heads of 48
    CHECK_EQUAL(backend->check_shape(1600, 25), 0);
    CHECK(backend->check_shape(100, 5) < 0);
    CHECK_ERROR(EX_USAGE, "n_embd / n_head = 20");
    CHECK(backend->check_shape(1024, 4) < 0);
    CHECK_ERROR(EX_USAGE, "n_embd / n_head = 256");
    CHECK(backend->check_shape(2048, 16) < 0);
    CHECK_ERROR(EX_USAGE, "n_embd up to 1792, not 2048");
    backend->close();
}

TEST(cuda_refuses_a_plan_that_the_card_cannot_hold) {
    const Backend *backend = opened();
    CHECK(!backend->alloc((size_t)13 << 30));
    CHECK_ERROR(EX_VRAM, "13.0 GiB of device memory, 12.0 GiB of 12.0 GiB are free");
    backend->close();
    CHECK_EQUAL(emu_counts.live, 0);
}

TEST(cuda_reports_free_memory) {
    void *other;
    cudaMalloc(&other, 1 << 20);
    fflush(stderr);
    const int standard_error = dup(2), words = open("words", O_WRONLY | O_CREAT, 0600);
    dup2(words, 2), close(words);
    const Backend *backend = opened();
    fflush(stderr);
    dup2(standard_error, 2), close(standard_error);
    size_t size;
    CHECK_TEXT(read_file("words", &size), "GPU memory of 12.0 GiB: context and other processes 1.0 MiB, libraries 0 B, "
                                          "reserved for code that is loaded later 256 MiB, for the arena 11.7 GiB");
    CHECK_EQUAL(backend->free_bytes,
                emu_device.memory - (1 << 20) - (256 << 20)); // the last is kept for code that is loaded later
    cudaFree(other);
    backend->close();
    CHECK_EQUAL(emu_counts.live, 0);
}

TEST(cuda_asks_the_driver_how_much_of_the_card_is_used) {
    DeviceUsage usage;
    const Backend *backend = opened();
    emu_device.has_nvml = true;
    CHECK(!backend->alloc((size_t)13 << 30));
    CHECK_ERROR(EX_VRAM, "are free: pid 4711 holds 3.0 GiB");
    CHECK(backend->usage(&usage));
    CHECK(usage.used == 3.0 * (1 << 30) && usage.free == 8.5 * (1 << 30) && usage.busy == 0.97);
    CHECK(nvml_used_bytes(0) == usage.used);
    emu_device.has_nvml = false;
    CHECK(nvml_used_bytes(0) == -1);
    backend->close();
}

TEST(cuda_leaves_a_fifth_of_the_card_to_windows) {
    const char *device = wddm_device;
    wddm_device = "/dev/null";
    fflush(stderr);
    const int standard_error = dup(2), words = open("words", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(words, 2), close(words);
    const Backend *backend = opened();
    fflush(stderr);
    dup2(standard_error, 2), close(standard_error);
    wddm_device = device;
    size_t size;
    CHECK_TEXT(read_file("words", &size), "for the arena 9.6 GiB (0.80 of the card at most: Windows");
    CHECK_EQUAL(backend->free_bytes, emu_device.memory / 5 * 4);
    backend->close();
}

// ---- waits

static int polls, polls_hung, slow_poll;
static bool hangs(void) {
    if (++polls == slow_poll) usleep(2500000);
    return polls <= polls_hung;
}
static bool hangs_for_ever(void) { return true; }

// Runs `wait` in a process of its own, where the GPU hangs and device_timeout is `seconds`. Returns its exit code.
static int wait_in_child(void (*wait)(const Backend *backend, void *device), bool (*hanging)(void), int seconds) {
    const Backend *backend = opened();
    void *device = backend->alloc(1 << 16);
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        int words = open("words", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(words, 2);
        alarm(30); // the program waits for ever where a wait is not watched
        emu_order = 1, cuda.timeout_s = seconds;
        backend->gelu_forward(device, device, 8, false);
        emu_device.hangs = hanging;
        wait(backend, device);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    backend->release(device);
    backend->close();
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void wait_for_download(const Backend *backend, void *device) {
    char got[64];
    backend->download(got, device, sizeof got);
}
static void wait_for_pinned(const Backend *backend, void *device) {
    static char got[4096] __attribute__((aligned(4096)));
    backend->pin(got, sizeof got);
    backend->download(got, device, sizeof got);
}
static void wait_for_upload(const Backend *backend, void *device) {
    const char given[64] = {0};
    backend->upload(device, given, sizeof given);
}
static void wait_for_copy_in(const Backend *backend, void *device) {
    static char given[64];
    backend->copy_in_async(0, device, given, sizeof given);
}
static void wait_for_copy_out(const Backend *backend, void *device) {
    static char got[64];
    backend->copy_out_async(0, got, device, sizeof got);
}
static void wait_for_close(const Backend *backend, void *device) {
    (void)device;
    backend->close();
}
static void wait_for_release(const Backend *backend, void *device) { backend->release(device); }
static void launch_without_code(const Backend *backend, void *device) {
    (void)backend, (void)device;
    cuda_check(cudaErrorNoKernelImageForDevice, "gelu");
}

TEST(cuda_names_the_build_that_a_card_without_code_needs) {
    size_t size;
    CHECK_EQUAL(wait_in_child(launch_without_code, NULL, 0), EX_GPU);
    CHECK_TEXT(read_file("words", &size), "no code for a GPU of compute capability 8.0: build it with make NVARCH=80");
}

TEST(cuda_waits_for_a_gpu_that_hangs_end_with_80) {
    static const struct {
        void (*wait)(const Backend *backend, void *device);
        const char *what;
    } rows[] = {
        {wait_for_download, "copying from the GPU"},
        {wait_for_pinned, "copying from the GPU"},
        {wait_for_upload, "copying to the GPU"},
        {wait_for_copy_in, "copying from host memory"},
        {wait_for_copy_out, "copying to host memory"},
        {wait_for_close, "waiting for the last operations"},
        {wait_for_release, "waiting for the last operations"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t size;
        CHECK_EQUAL(wait_in_child(rows[i].wait, hangs_for_ever, 1), EX_GPU);
        const char *words = read_file("words", &size);
        CHECK_TEXT(words, rows[i].what);
        CHECK_TEXT(words, ": waiting for the GPU for 0.");
        CHECK_TEXT(words, ": the GPU has not finished for 1 s: a kernel hangs");
    }
}

// As SIGSTOP or a suspended machine makes it.
TEST(cuda_wait_counts_a_long_gap_between_two_polls_as_one_second) {
    polls = 0, polls_hung = slow_poll = 2;
    CHECK_EQUAL(wait_in_child(wait_for_download, hangs, 2), 0);
}

TEST(cuda_wait_without_a_limit_goes_on) {
    polls_hung = 30, slow_poll = 0;
    CHECK_EQUAL(wait_in_child(wait_for_download, hangs, 0), 0);
    size_t size;
    read_file("words", &size);
    CHECK_EQUAL(size, 0);
}

TEST(cuda_queries_the_heuristic_once_per_shape) {
    enum { M = 16, ROWS = 64, COLS = 128 };
    const Backend *backend = opened();
    const Shape shape = {1, M, COLS, 2, ROWS, M, 1};
    size_t bytes = backend->scratch_bytes(&shape);
    void *scratch = backend->alloc(bytes), *in = backend->alloc(M * COLS * 2), *out = backend->alloc(M * ROWS * 2);
    Weight w = {backend->alloc(ROWS * COLS * 2), NULL, ROWS, COLS};
    backend->bind_scratch(scratch, bytes);
    uint64_t asked = emu_counts.heuristics, flops = emu_counts.flops;
    for (int i = 0; i < 3; i++) backend->matmul_forward(out, in, &w, NULL, M);
    CHECK_EQUAL(emu_counts.heuristics - asked, 1);
    CHECK_EQUAL(emu_counts.flops - flops, 3 * 2 * M * ROWS * COLS);
    for (int m = 1; m <= M; m++) // as a sample's text grows
        for (int i = 0; i < 20; i++) backend->matmul_forward(out, in, &w, NULL, m);
    CHECK_EQUAL(emu_counts.heuristics - asked, M);
    backend->release(scratch), backend->release(in), backend->release(out),
        backend->release((void *)(uintptr_t)w.param);
    backend->close();
    CHECK_EQUAL(emu_counts.live, 0);
}

// Eager, captured, replayed: the same numbers each time, and a replay launches no kernel by itself.
TEST(cuda_replays_a_captured_graph) {
    enum { N = 512 };
    for (emu_order = 0; emu_order < 4; emu_order++) {
        const Backend *backend = opened();
        void *in = backend->alloc(N * 2), *out = backend->alloc(N * 2);
        uint64_t graphs = emu_counts.graphs, launches = 0;
        for (int run = 0; run < 5; run++) {
            uint16_t x[N], y[N];
            for (int i = 0; i < N; i++) x[i] = (uint16_t)(0x4080 + 0x80 * run); // 4, 8, 16: gelu(x) = x there
            backend->upload(in, x, sizeof x);
            launches = emu_counts.launches;
            CHECK_EQUAL(backend->graph_begin(2, true), run < 2);
            if (run < 2) {
                backend->gelu_forward(out, in, N, false);
                backend->graph_end(2);
            } else {
                CHECK_EQUAL(emu_counts.launches, launches);
            }
            backend->download(y, out, sizeof y);
            CHECK(!memcmp(x, y, sizeof x));
        }
        CHECK_EQUAL(emu_counts.graphs - graphs, 1);
        backend->release(in), backend->release(out);
        backend->close();
        CHECK_EQUAL(emu_counts.live, 0);
    }
    emu_order = 0;
}

// ---- a whole model

typedef struct {
    bool warm, whole; // whole: also an evaluation and a sample
    OffloadMode offload;
    OptimizerState optimizer_state;
    int layers; // 0: one, and steps of one micro-batch unless whole
    Recompute recompute;
    int channels; // 0: 64
    const char *cache_dir;
    char *choices; // CHOICES_BYTES for what choices_get returns; NULL: not read
} ModelRun;

// The parameters and the optimizer's state.
static void read_state(Tiny *tiny, Buffer *bits) {
    const Backend *backend = tiny->backend;
    const MemoryPlan *plan = &tiny->plan;
    const size_t ranges[] = {plan->params, plan->master, plan->states[0], plan->states[1]}, n = tiny->model.elements;
    const Dtype par = par_type(backend), moment = optimizer_dtype(&plan->optimizer->states[0], backend);
    const Dtype types[] = {par, backend->master_bytes ? DTYPE_FP32 : par, moment, moment};
    bits->size = 0;
    buffer_reserve(bits, 4 * n * sizeof(float));
    bits->size = 4 * n * sizeof(float);
    for (size_t i = 0; i < 4; i++)
        network_read(&tiny->network, ranges[i], types[i], 0, n, (float *)(void *)bits->data + i * n);
}

// Steps; `bits` are the parameters and the optimizer's state afterwards. Returns how often the host waited in them.
static uint64_t train_model(ModelRun how, Buffer *bits) {
    enum { STEPS = 2 };
    TinyShape shape = small;
    shape.channels = how.channels ? how.channels : 64, shape.block = how.whole ? 40 : 8, shape.vocab = VOCAB,
    shape.batch = 1, shape.eval_batch = 3;
    shape.accumulation = how.whole || how.layers ? 2 : 1, shape.warm_up = how.warm, shape.recompute = how.recompute;
    shape.optimizer_state = how.optimizer_state, shape.offload = how.offload, shape.cache_dir = how.cache_dir;
    if (how.layers) shape.layers = how.layers;
    Tiny tiny;
    tiny_open(&tiny, &shape);
    const struct EmuCounts before = emu_counts;
    tiny_train(&tiny, 0, STEPS, NULL);
    const uint64_t waits = emu_counts.host_waits - before.host_waits;
    EvaluateResult found;
    uint16_t ids[4] = {1};
    const Sampler sampler = {0};
    if (how.whole) {
        CHECK(evaluate(&tiny.network, &tiny.source, &(EvaluateRequest){.split = SPLIT_VAL, .samples = 5}, &found) ==
              FEED_BATCH);
        sample(&tiny.network, &sampler, ids, 1, 2, NULL, NULL);
    }
    if (how.warm) {
        CHECK_EQUAL(emu_counts.allocations, before.allocations);
        CHECK_EQUAL(emu_counts.heuristics, before.heuristics);
        CHECK_EQUAL(emu_counts.graphs, before.graphs);
        CHECK_EQUAL(emu_counts.live, before.live);
    }
    if (how.choices) tiny.backend->choices_get(how.choices, CHOICES_BYTES);
    read_state(&tiny, bits);
    tiny_close(&tiny);
    CHECK_EQUAL(emu_counts.live, 0);
    return waits;
}

TEST(cuda_allocates_nothing_after_the_warm_up) {
    Buffer cold = {0}, warm = {0};
    train_model((ModelRun){.whole = true}, &cold), train_model((ModelRun){.whole = true, .warm = true}, &warm);
    CHECK(cold.size == warm.size && !memcmp(cold.data, warm.data, cold.size));
    buffer_close(&cold), buffer_close(&warm);
}

// With the optimizer's state in host memory: the same bits, however late and in whatever order the copies are made, and
// not one wait more.
TEST(cuda_streams_the_optimizer_state_through_slots) {
    static const OptimizerState states[] = {STATE_BF16_SR, STATE_BF16, STATE_FP32, STATE_FP32, STATE_FP32};
    Buffer here = {0}, away = {0};
    for (int run = 0; run < 5; run++) {
        ModelRun how = {.warm = run == 1, .optimizer_state = states[run]};
        static uint64_t waits;
        emu_order = 0;
        if (run < 3) waits = train_model(how, &here);
        emu_order = run < 3 ? 3 - run : run - 2, how.offload = OFFLOAD_OPTIMIZER;
        CHECK_EQUAL(train_model(how, &away), waits);
        CHECK(here.size == away.size && !memcmp(here.data, away.data, here.size));
    }
    buffer_close(&here), buffer_close(&away);
    emu_order = 0;
}

// The same with the gradients of six layers, to which micro-batches add, and their inputs, of which three are fetched:
// the last copies use the last slot, as in all sizes of GPT-2.
TEST(cuda_streams_gradients_and_residuals_through_slots) {
    ModelRun how = {.layers = 6, .channels = 40}; // 40: there are gaps between tensors
    Buffer here = {0}, away = {0};
    emu_order = 0;
    const uint64_t waits = train_model(how, &here);
    for (int run = 0; run < 4; run++) {
        const Recompute levels[] = {RECOMPUTE_BLOCK, RECOMPUTE_NONE, RECOMPUTE_MLP, RECOMPUTE_QKV};
        emu_order = run, how.recompute = levels[run], how.warm = run == 3;
        how.offload = OFFLOAD_ALL;
        CHECK_EQUAL(train_model(how, &away), waits);
        CHECK(here.size == away.size && !memcmp(here.data, away.data, here.size));
    }
    buffer_close(&here), buffer_close(&away);
    emu_order = 0;
}

// Matrix products are timed, kept and recalled whatever lies in host memory.
TEST(cuda_chooses_products_with_every_offload) {
    static const OffloadMode modes[] = {OFFLOAD_NONE, OFFLOAD_OPTIMIZER, OFFLOAD_ALL};
    static char want[CHOICES_BYTES], got[CHOICES_BYTES];
    Buffer bits = {0};
    train_model((ModelRun){.layers = 4, .warm = true, .cache_dir = "every/first", .choices = want}, &bits);
    CHECK(strchr(want, '\n') && strchr(strchr(want, '\n') + 1, '\n')); // a card and a product
    emu_device.fastest = 0; // the clock is noisy: what is recalled is not timed again
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        ModelRun how = {.layers = 4, .warm = i % 2, .offload = modes[i], .cache_dir = "every/first", .choices = got};
        train_model(how, &bits);
        CHECK(!strcmp(got, want));
    }
    emu_device.fastest = 1;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        char folder[16];
        snprintf(folder, sizeof folder, "every/%zu", i);
        train_model((ModelRun){.layers = 4, .offload = modes[i], .cache_dir = folder, .choices = got}, &bits);
        CHECK_EQUAL(strlen(got), strlen(want));
    }
    buffer_close(&bits);
}

// A step's numbers and batches go up, its operations are issued, and one download waits: nothing between them does.
// From the third step on all operations are replayed, and the update reads the step's own numbers.
TEST(cuda_steps_are_replayed_and_wait_once) {
    enum { MICROS = 2, ROWS = 1, BLOCK = 8, STEPS = 4 };
    static uint16_t slot[2048] __attribute__((aligned(4096)));
    TinyShape shape = small;
    shape.channels = 64, shape.block = BLOCK, shape.vocab = VOCAB, shape.batch = ROWS, shape.accumulation = MICROS;
    shape.chunk_rows = BLOCK;
    Tiny tiny;
    tiny_open(&tiny, &shape);
    Network *network = &tiny.network;
    const MemoryPlan *plan = &tiny.plan;
    tiny.config.warmup_iters = 1000;
    tiny.backend->pin(slot, sizeof slot);
    uint64_t work = 0;
    float before[64], after[64];
    for (int step = 0; step < STEPS; step++) {
        network_read(network, plan->master, DTYPE_FP32, 0, 64, before);
        const struct EmuCounts was = emu_counts;
        step_begin(network, &tiny.config, AFTER_STEPS(step));
        for (int micro = 0; micro < MICROS; micro++) {
            for (int i = 0; i <= BLOCK; i++) slot[i] = (uint16_t)(i * 7 % VOCAB);
            network_tokens(network, &plan->train, slot, ROWS, BLOCK);
            step_micro_batch(network, 1.0f / (ROWS * BLOCK * MICROS), micro);
        }
        CHECK_EQUAL(emu_counts.drains, was.drains);
        step_end(network);
        CHECK_EQUAL(emu_counts.drains - was.drains, 1);
        CHECK_EQUAL(emu_counts.host_waits - was.host_waits, 1 + MICROS + 1); // each upload has left its slot
        CHECK_EQUAL(emu_counts.graphs - was.graphs, step == 1 ? 4 : 0);
        CHECK(step < 2 ? emu_counts.launches > was.launches : emu_counts.launches == was.launches);
        CHECK(!step || emu_counts.work - was.work == work);
        work = emu_counts.work - was.work;
        CHECK(isfinite(network->scalars->loss) && isfinite(network->scalars->norm));
        network_read(network, plan->master, DTYPE_FP32, 0, 64, after);
        double moved = 0; // by an element, as Adam does when gradients hardly change: the step's own learning rate
        for (int i = 0; i < 64; i++) moved += fabs((double)(after[i] - before[i])) / 64;
        CHECK(fabs(moved / (tiny.config.learning_rate * (step + 1) / 1001) - 1) < 0.1);
    }
    enum { COUNT = 50000 }; // weights go up in one piece
    float *values = calloc(COUNT, sizeof *values);
    const uint64_t waits = emu_counts.host_waits;
    CHECK(values && tiny.model.elements >= COUNT);
    network_write(network, plan->params, DTYPE_BF16, 0, COUNT, values);
    CHECK_EQUAL(emu_counts.host_waits - waits, 2); // for the operations before and for the copy: it is pageable
    free(values);
    tiny_close(&tiny);
    CHECK_EQUAL(emu_counts.live, 0);
}

// Attention forward and backward of one head with D channels. starts: (T), or NULL.
static void attend(int T, int D, const int32_t *starts) {
    const size_t N = (size_t)T, width = (size_t)D;
    const Backend *backend = opened();
    const Shape shape = {1, T, D, 1, 64, 64, 1};
    size_t bytes = backend->scratch_bytes(&shape);
    void *scratch = backend->alloc(bytes), *qkv = backend->alloc(N * 3 * width * 2),
         *out = backend->alloc(N * width * 2);
    void *dqkv = backend->alloc(N * 3 * width * 2), *lse = backend->alloc(N * 4), *seen = backend->alloc(N * 4);
    backend->bind_scratch(scratch, bytes);
    backend->zero(qkv, N * 3 * width * 2);
    if (starts) backend->upload(seen, starts, N * 4);
    const Attention attention = {.B = 1, .T = T, .H = 1, .D = D, .starts = starts ? seen : NULL};
    backend->attention_forward(out, lse, qkv, &attention);
    backend->attention_backward(dqkv, NULL, out, out, lse, qkv, &attention, false);
    backend->download(&bytes, dqkv, sizeof bytes);
    void *buffers[] = {scratch, qkv, out, dqkv, lse, seen};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) backend->release(buffers[i]);
    backend->close();
}

// Every ldmatrix of attention reads its eight rows from eight different groups of banks.
TEST(cuda_attention_has_no_bank_conflicts) {
    cuda_attention_form = ATTENTION_FUSED_3; // TMA's copies are not read by ldmatrix
    for (int D = 64; D <= 128; D += 32) {
        const uint64_t reads = emu_counts.ldmatrix, conflicts = emu_counts.bank_conflicts;
        attend(128, D, NULL);
        CHECK(emu_counts.ldmatrix > reads);
        CHECK_EQUAL(emu_counts.bank_conflicts, conflicts);
    }
    cuda_attention_form = ATTENTION_AUTO;
}

// Documents of 64 tokens: tiles of keys that no query of a block sees are left out, in every form.
TEST(cuda_attention_skips_tiles_of_other_documents) {
    enum { T = 256 };
    int32_t starts[T];
    const int capability = emu_device.capability;
    for (int t = 0; t < T; t++) starts[t] = t / 64 * 64;
    for (cuda_attention_form = ATTENTION_SPLIT; cuda_attention_form <= ATTENTION_TMA; cuda_attention_form++) {
        emu_device.capability = cuda_attention_form == ATTENTION_TMA ? 90 : capability;
        const uint64_t before = emu_counts.mma;
        attend(T, 64, NULL);
        const uint64_t all = emu_counts.mma - before;
        attend(T, 64, starts);
        // 4 of 10 tiles in the backward pass, 6 of 12 forward; by TMA, dQ takes zeros from keys that are not seen
        CHECK((emu_counts.mma - before - all) * (cuda_attention_form == ATTENTION_TMA ? 3 : 4) < all * 2);
    }
    cuda_attention_form = ATTENTION_AUTO, emu_device.capability = capability;
    const uint64_t before = emu_counts.mma;
    attend(T, 128, NULL);
    const uint64_t all = emu_counts.mma - before;
    attend(T, 128, starts);
    CHECK((emu_counts.mma - before - all) * 2 < all);
}

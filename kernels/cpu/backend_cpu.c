// The CPU backend: selects the kernels for this processor, and provides memory.
#include "common/err.h"
#include "common/log.h"
#include "common/machine/cpu.h"
#include "common/machine/host_memory.h"
#include "common/machine/hugepages.h"
#include "common/machine/pool.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/onednn.h"
#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Backend backend;
OptimizerState cpu_optimizer_state;

TEAM_LOOP(touch_pages, size_t, (volatile char *, arena)) {
    for (size_t page = first; page < end; page += 4096) arena[page] = 0;
}

// Takes the pages of an arena from the system, in all threads: if the machine has several memories, each gives a part.
static int populate(char *arena, size_t bytes) {
    const size_t unit = 2 << 20; // of huge pages
    for (size_t done = 0, next; done < bytes; done += next) {
        if (!(next = host_memory_next(bytes - done))) return -1;
        touch_pages(next, unit, arena + done);
    }
    return 0;
}

static void *cpu_alloc(size_t bytes) {
    void *arena = hugepages_alloc(bytes);
    if (!arena) fail(EX_MEMORY, "cannot allocate %.2f GiB of host memory", (double)bytes / (1 << 30));
    if (arena && populate(arena, bytes) == 0) return arena;
    hugepages_free(arena);
    return NULL;
}

static void cpu_pin(void *host, size_t bytes) { (void)host, (void)bytes; }
static void cpu_unpin(void *host) { (void)host; }
static void cpu_upload(void *device, const void *host, size_t bytes) { memcpy(device, host, bytes); }
static void cpu_download(void *host, const void *device, size_t bytes) { memcpy(host, device, bytes); }
static void cpu_zero(void *device, size_t bytes) { memset(device, 0, bytes); }

static void cpu_copy_in_async(int slot, void *device, const void *host, size_t bytes) {
    (void)slot;
    memcpy(device, host, bytes);
}
static void cpu_copy_in_wait(int slot) { (void)slot; }
static void cpu_copy_out_async(int slot, void *host, const void *device, size_t bytes) {
    (void)slot;
    memcpy(host, device, bytes);
}
static void cpu_copy_out_wait(void) {}

static bool cpu_graph_begin(int key, bool captured) { return (void)key, (void)captured, true; }
static void cpu_graph_end(int key) { (void)key; }

// Nothing is chosen by timing: the instructions that a run is computed with, if its bits depend on them.
static void cpu_choices_get(char *text, size_t size) {
    char library[64];
    if (matmul_portable()) {
        snprintf(text, size, "cpu: bits of any processor");
        return;
    }
    product_library(library);
    snprintf(text, size, "cpu: %s, %s", cpu_isa_name(cpu_isa()), library);
}

static void cpu_choices_set(const char *text) {
    char now[128];
    cpu_choices_get(now, sizeof now);
    if (*text && strcmp(text, now) != 0)
        backend_warn_of_change(strncmp(text, "cpu: ", 5) ? "a GPU" : text + 5, now + 5);
}

static void cpu_close(void) {
    matmul_close();
    scratch_bind(NULL, 0);
}

static bool multiplies_bf16(Isa isa) {
#ifdef __x86_64__
    return isa == ISA_AVX512 && __builtin_cpu_supports("avx512bf16");
#else
    (void)isa;
    return false;
#endif
}

// Without AMX, Intel's vdpbf16ps issues every other cycle on one port: 112 GFLOP/s a core on Sapphire Rapids; fp32
// reaches 180. AMD's has twice the rate of fp32.
static bool gains_by_bf16(void) {
#ifdef __x86_64__
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool amx_bf16 = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1);
    return amx_bf16 || !__builtin_cpu_is("intel");
#else
    return false;
#endif
}

static void describe_loans(char *text, size_t size) {
    const char *why_not = team_no_loans();
    snprintf(text, size, "threads lend each other %s%s",
             why_not ? "no processors: " : "processors while other programs are busy (MILLRACE_LOANS=0: never)",
             why_not ? why_not : "");
}

// Of panels beside oneDNN (docs/measurements.md). Portable x86 has fused multiply-add by software.
static const double portable_cost[] = {ON_X86(9, 0.06), 0.05, 0.06};

const Backend *backend_cpu(const BackendChoice *choice, char how[96]) {
    const Isa isa = cpu_isa();
    if (getenv("MILLRACE_ISA")) product_cap(isa);
    const bool avx512 = isa == ISA_AVX512 && product_has_avx512(); // DNNL_MAX_CPU_ISA may forbid it
    const bool native = avx512 && multiplies_bf16(isa), automatic = choice->dtype == DTYPE_AUTO;
    const bool slow = native && !gains_by_bf16();
    const Dtype type = !automatic ? choice->dtype : native && !slow ? DTYPE_BF16 : DTYPE_FP32;
    cpu_optimizer_state = choice->optimizer_state;
#define VARIANTS(NAME, name, ...) [DTYPE_##NAME] = CPU_VARIANTS(name),
    static const CpuVariant *const variants[DTYPE_COUNT][3] = {ACTS(VARIANTS, )};
    const CpuVariant *variant = variants[type][type == DTYPE_BF16 && !native && isa == ISA_AVX512 ? ISA_AVX2 : isa];
    CpuProducts products = avx512 ? PRODUCTS_PACKED : PRODUCTS_PLAIN;
    if (type == DTYPE_FP16 || (type == DTYPE_BF16 && !native)) {
        products = PRODUCTS_WIDENED;
        log_warn("this %s does not multiply %s: float32 products of %s operands, slower than --dtype=%s",
                 product_has_onednn() ? "processor" : "program", dtype_name(type), dtype_name(type),
                 native && !slow ? "bfloat16" : "float32");
    }
    const char *variable = getenv("OMP_NUM_THREADS"); // a list is for loops within loops
    int threads = choice->threads > 0 ? choice->threads : variable ? atoi(variable) : 0;
    if (threads < 1) threads = (int)pool_cores();
    if (team_set_threads(smaller(threads, TEAM_MAX)) < 0) return NULL;

    backend = (Backend){.name = "cpu",
                        .in_host_memory = true,
                        .act_type = type,
                        .act_bytes = dtype_bytes(type),
                        .par_bytes = 4,
                        .grad_bytes = 4,
                        .res_bytes = 4,
                        .moment_bytes = choice->optimizer_state == STATE_FP32 ? 4 : 2,
                        .packed_bytes = matmul_packed_bytes,
                        .scratch_bytes = variant->scratch_bytes,
                        .alloc = cpu_alloc,
                        .release = hugepages_free,
                        .bind_scratch = scratch_bind,
                        .pin = cpu_pin,
                        .unpin = cpu_unpin,
                        .upload = cpu_upload,
                        .download = cpu_download,
                        .zero = cpu_zero,
                        .close = cpu_close,
                        .set_portable = type == DTYPE_FP32 ? matmul_set_portable : NULL,
                        .portable_cost = product_has_onednn() ? portable_cost[isa] : 0,
                        .choices_get = cpu_choices_get,
                        .choices_set = cpu_choices_set,
                        .copy_in_async = cpu_copy_in_async,
                        .copy_in_wait = cpu_copy_in_wait,
                        .copy_out_async = cpu_copy_out_async,
                        .copy_out_wait = cpu_copy_out_wait,
                        .graph_begin = cpu_graph_begin,
                        .graph_end = cpu_graph_end};
    variant->install(&backend);
    if (matmul_open(&backend, variant, products, slow) < 0) return NULL;
    threads = team_threads();
    if (threads > 1) describe_loans(backend.note, sizeof backend.note);
    snprintf(how, 96, "%d thread%s, %s (%s%s)", threads, threads == 1 ? "" : "s", dtype_name(type), cpu_isa_name(isa),
             slow && automatic ? ", faster here than its bfloat16" : "");
    return &backend;
}

bool backend_cpu_library(char *text, size_t size) {
    char library[PRODUCT_LIBRARY];
    const bool usable = product_library_check(library) == 0;
    snprintf(text, size, "%s", usable ? library : err_text());
    if (!usable) err_clear();
    return usable;
}

// The GEMM rate.
//
// A GPU takes calls faster than it computes them, and a launch and a wait last as long as a small product: so a round
// of calls with one wait at its end is timed. A call on the CPU is a round of its own. The threads of a call wait for
// each other, so that one whose processor is taken away for some milliseconds slows all of them: calls that take longer
// than a time slice of the scheduler are shortened, and the fastest call in some tens of milliseconds counts.
#include "trainer/model/gemm_rate.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sizes.h"
#include <math.h>

enum {
    COLUMNS_MAX = 2048, // a probe of a wider model measures the same rate
    ROWS_MAX = 1024,
    ROUND_NS = 10000000, // of one round on a device with a queue
    FAST_NS = 1000000    // a call that takes less is repeated with all rows
};
static const double CALL_FLOPS = 2e10; // at most, so that a slow processor needs less than a second

static uint64_t round_ns(const Backend *ops, const Weight *weight, const Act *in, Act *out, int M, int calls) {
    char done[1]; // a download waits for the device
    const uint64_t started = clock_ns();
    for (int call = 0; call < calls; call++) ops->matmul_forward(out, in, weight, NULL, M);
    ops->download(done, out, sizeof done);
    return clock_ns() - started;
}

double gemm_rate(const Backend *ops, const Weight *weight, const Act *in, Act *out, int M) {
    enum { ROUNDS = 50, PROBE_NS = 200000000, LEAST_NS = 30000000, SLICE_NS = 1000000, ROWS_LEAST = 128 };
    const double row_flops = 2.0 * weight->rows * weight->cols;
    const bool queued = !ops->in_host_memory;
    const int rows = M;
    if (M * row_flops > CALL_FLOPS) M = CALL_FLOPS > row_flops ? (int)(CALL_FLOPS / row_flops) : 1;
    if (queued && M < rows) { // few rows leave some multiprocessors of a GPU idle
        (void)round_ns(ops, weight, in, out, M, 1);
        if (round_ns(ops, weight, in, out, M, 1) < FAST_NS) M = rows;
    }
    (void)round_ns(ops, weight, in, out, M, 1); // it makes the kernel
    double best = 0;                            // FLOP/s
    uint64_t spent_ns = 0;
    for (int round = 0, calls = 1; spent_ns < PROBE_NS && (round < ROUNDS || spent_ns < LEAST_NS); round++) {
        const uint64_t ns = round_ns(ops, weight, in, out, M, calls);
        const double call_ns = (double)ns / calls;
        spent_ns += ns;
        best = fmax(best, M * row_flops / (call_ns * 1e-9));
        if (queued && ns < ROUND_NS / 2) calls = (int)((double)ROUND_NS / (call_ns + 1)) + 1;
        if (!queued && ns > SLICE_NS && M >= 2 * ROWS_LEAST) M /= 2;
    }
    return best;
}

double network_gemm_rate(const Network *network) {
    const PassLayout *pass = &network->plan->train;
    const Buffers x = network_buffers(network, pass, 0);
    return gemm_rate(network->ops, network_weight(network, PARAM_FC_W, 0), x.ln2, x.fc, pass->rows * pass->block);
}

double gemm_rate_probe(const Backend *ops, const ModelShape *shape, int rows) {
    const int C = shape->channels < COLUMNS_MAX ? shape->channels : COLUMNS_MAX, M = rows < ROWS_MAX ? rows : ROWS_MAX;
    const Shape largest = {.B = 1, .T = M, .C = C, .H = 1, .V = 64, .chunk_rows = 1};
    const size_t scratch = ops->scratch_bytes(&largest), line = 64;
    const size_t sizes[] = {scratch, 16 * (size_t)C * (size_t)C, ops->packed_bytes(4 * C, C),
                            (size_t)M * (size_t)C * ops->act_bytes, 4 * (size_t)M * (size_t)C * ops->act_bytes};
    enum { SCRATCH, PARAM, PACKED, IN, OUT, PARTS };
    size_t at[PARTS], bytes = 0;
    for (int i = 0; i < PARTS; i++) at[i] = size_reserve(&bytes, sizes[i], line);
    unsigned char *memory = ops->alloc(bytes);
    if (!memory) return err_clear(), 0;
    ops->bind_scratch(memory + at[SCRATCH], scratch);
    const Weight weight = {(const Par *)(memory + at[PARAM]), sizes[PACKED] ? memory + at[PACKED] : NULL, 4 * C, C};
    const double rate = gemm_rate(ops, &weight, (const Act *)(memory + at[IN]), (Act *)(memory + at[OUT]), M);
    ops->release(memory);
    return rate;
}

// The rate of matrix products.
#include "trainer/model/product_rate.h"
#include "common/err.h"
#include "common/log.h"

enum { COLUMNS_MAX = 2048, ROWS_MAX = 1024 }; // a probe of a wider model measures the same rate
static const double CALL_FLOPS = 2e10;        // at most, so that a slow processor needs less than a second

double product_rate(const Backend *ops, const Weight *weight, const Act *in, Act *out, int M) {
    enum { CALLS = 50, PROBE_NS = 200000000 };
    const double row_flops = 2.0 * weight->rows * weight->cols;
    if (M * row_flops > CALL_FLOPS) M = CALL_FLOPS > row_flops ? (int)(CALL_FLOPS / row_flops) : 1;
    uint64_t best = UINT64_MAX, spent = 0;
    char done[1]; // a download waits for the device
    for (int call = 0; call <= CALLS && spent < PROBE_NS; call++) {
        const uint64_t started = clock_ns();
        ops->matmul_forward(out, in, weight, NULL, M);
        ops->download(done, out, sizeof done);
        const uint64_t ns = clock_ns() - started;
        if (!call) continue; // it makes the kernel
        spent += ns;
        if (ns < best) best = ns;
    }
    return M * row_flops / ((double)best * 1e-9);
}

double network_product_rate(const Network *network) {
    const PassLayout *pass = &network->plan->train;
    const Buffers x = network_buffers(network, pass, 0);
    return product_rate(network->ops, network_weight(network, PARAM_FC_W, 0), x.ln2, x.fc, pass->rows * pass->block);
}

double product_rate_probe(const Backend *ops, const ModelShape *shape, int rows) {
    const int C = shape->channels < COLUMNS_MAX ? shape->channels : COLUMNS_MAX, M = rows < ROWS_MAX ? rows : ROWS_MAX;
    const Shape largest = {.B = 1, .T = M, .C = C, .H = 1, .V = 64, .chunk_rows = 1};
    const size_t scratch = ops->scratch_bytes(&largest), line = 64;
    const size_t sizes[] = {scratch, 16 * (size_t)C * (size_t)C, ops->packed_bytes(4 * C, C),
                            (size_t)M * (size_t)C * ops->act_bytes, 4 * (size_t)M * (size_t)C * ops->act_bytes};
    enum { SCRATCH, PARAM, PACKED, IN, OUT, PARTS };
    size_t at[PARTS], bytes = 0;
    for (int i = 0; i < PARTS; i++) at[i] = bytes, bytes += (sizes[i] + line - 1) / line * line;
    unsigned char *memory = ops->alloc(bytes);
    if (!memory) return err_clear(), 0;
    ops->bind_scratch(memory + at[SCRATCH], scratch);
    const Weight weight = {(const Par *)(memory + at[PARAM]), sizes[PACKED] ? memory + at[PACKED] : NULL, 4 * C, C};
    const double rate = product_rate(ops, &weight, (const Act *)(memory + at[IN]), (Act *)(memory + at[OUT]), M);
    ops->release(memory);
    return rate;
}

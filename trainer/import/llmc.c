// Models of llm.c: 256 int32 of header (magic number, version, T, V, L, H, C, padded V), then the parameters, one kind
// after the other, each of all layers, all in fp32 (version 3) or all in bf16 (version 5).
#include "common/err.h"
#include "trainer/import/foreign_model_internal.h"

enum { HEADER_BYTES = 1024, VERSION_FP32 = 3, VERSION_BF16 = 5, PADDED_MAX = 1 << 20 };

static const ParamId order[] = {PARAM_WTE,    PARAM_WPE,    PARAM_LN1_W, PARAM_LN1_B, PARAM_QKV_W, PARAM_QKV_B,
                                PARAM_ATT_W,  PARAM_ATT_B,  PARAM_LN2_W, PARAM_LN2_B, PARAM_FC_W,  PARAM_FC_B,
                                PARAM_PROJ_W, PARAM_PROJ_B, PARAM_LNF_W, PARAM_LNF_B};

static int64_t header_at(Bytes file, size_t place) { return (int32_t)get_u32(file.data + place * 4); }

// The offset after the parameters; with a map of the file their places are kept.
static uint64_t walk(ForeignModel *foreign, Dtype type, int64_t padded, const uint8_t *data) {
    const Model *model = &foreign->model;
    uint64_t offset = HEADER_BYTES;
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (int layer = 0; layer < model->shape.layers; layer++) {
            const Tensor *tensor = model_tensor(model, order[k], layer);
            if (!tensor) break; // of the whole model, and layer > 0
            const uint64_t rows = tensor->id == PARAM_WTE ? (uint64_t)padded : (uint64_t)tensor->rows;
            if (data) foreign->tensors[tensor - model->tensors] = (ForeignTensor){data + offset, type};
            offset += rows * (uint64_t)tensor->cols * dtype_bytes(type);
        }
    return offset;
}

int llmc_open(ForeignModel *foreign, Bytes file, bool exact_gelu) {
    (void)exact_gelu; // llm.c has the tanh form
    if (file.size < HEADER_BYTES) return fail(EX_DATA, "it is shorter than the header of a model of llm.c");
    const int64_t version = header_at(file, 1), padded = header_at(file, 7);
    const ForeignSizes sizes = {.block = header_at(file, 2),
                                .vocab = header_at(file, 3),
                                .layers = header_at(file, 4),
                                .heads = header_at(file, 5),
                                .channels = header_at(file, 6)};
    if (version != VERSION_FP32 && version != VERSION_BF16)
        return fail(EX_DATA,
                    "it has version %lld of llm.c's models, and 3 (fp32) and 5 (bf16) are read: write it again",
                    (long long)version);
    ModelShape shape;
    if (foreign_shape(&shape, &sizes) < 0) return -1;
    if (padded < sizes.vocab || padded > PADDED_MAX)
        return fail(EX_DATA, "its header has a padded vocabulary of %lld ids", (long long)padded);
    shape.bias = true;
    foreign_begin(foreign, &shape);
    const Dtype type = version == VERSION_FP32 ? DTYPE_FP32 : DTYPE_BF16;
    const uint64_t bytes = walk(foreign, type, padded, NULL);
    if (bytes != file.size)
        return fail(EX_DATA, "it has %zu bytes, and a model of the shape in its header has %llu", file.size,
                    (unsigned long long)bytes);
    walk(foreign, type, padded, file.data);
    return 0;
}

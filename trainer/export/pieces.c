// Parts of the tensors of a checkpoint.
#include "trainer/export/pieces.h"
#include "common/err.h"
#include <stdio.h>
#include <stdlib.h>

static void set_rows(Piece *piece, int part, const ModelShape *shape) {
    int rows[TENSOR_PARTS];
    tensor_parts(piece->tensor, shape, rows);
    for (int i = 0; i < part; i++) piece->first += rows[i];
    piece->rows = part == PIECE_WHOLE ? piece->tensor->file_rows : rows[part];
}

Piece *pieces_of(const Model *model, const PieceName *names, int name_count, int *count) {
    Piece *pieces = allocate_zeroed((size_t)model->count * (size_t)name_count, sizeof *pieces);
    *count = 0;
    for (int i = 0; i < model->count; i++)
        for (int k = 0; k < name_count; k++) {
            if (names[k].id != model->tensors[i].id) continue;
            Piece *piece = &pieces[(*count)++];
            piece->tensor = &model->tensors[i];
            set_rows(piece, names[k].part, &model->shape);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(piece->name, sizeof piece->name, names[k].name, piece->tensor->layer);
#pragma GCC diagnostic pop
        }
    return pieces;
}

static size_t source_row(const Piece *piece, size_t row) {
    const size_t head = (size_t)piece->head, in = head ? row % head : 0;
    return (size_t)piece->first + (head ? row - in + in / 2 + in % 2 * (head / 2) : row);
}

// Matrices of the source are inputs x outputs.
int piece_copy(const SafeFile *file, const Piece *piece,
               int (*write)(void *to, const Piece *piece, const float *values, size_t count), void *to) {
    const Tensor *tensor = piece->tensor;
    const bool turned = tensor_transposed(tensor), vector = piece_is_vector(piece);
    const size_t all = (size_t)tensor->file_rows, cols = (size_t)tensor->cols, rows = (size_t)piece->rows;
    const size_t lines = vector ? 1 : rows, length = vector ? rows : cols;
    char name[SAFE_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s", tensor_prefix(tensor), tensor->name);
    const SafeTensor *found = safe_find(file, name);
    if (!found || strcmp(found->dtype, "F32") || found->end - found->begin != all * cols * sizeof(float))
        return fail(EX_DATA, "'%s' is missing or of another type or shape", name);
    if (safe_check(file, found) < 0) return -1;
    float *line = allocate_zeroed(length, sizeof *line);
    int result = 0;
    for (size_t n = 0; n < lines && result == 0; n++) {
        for (size_t i = 0; i < length; i++)
            line[i] = dtype_value(DTYPE_FP32, file->data + found->begin,
                                  turned   ? i * all + source_row(piece, n)
                                  : vector ? source_row(piece, i)
                                           : source_row(piece, n) * cols + i);
        result = write(to, piece, line, length);
    }
    free(line);
    return result;
}

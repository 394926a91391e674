// In place of onednn.c in a program without oneDNN: panels compute every product (matmul.c), and no weight is packed.
#include "common/err.h"
#include "kernels/cpu/onednn.h"
#include <stdio.h>

bool product_has_onednn(void) { return false; }
bool product_has_avx512(void) { return false; }
bool product_has_amx(void) { return false; }
void product_cap(Isa isa) { (void)isa; }
void product_library(char text[64]) { snprintf(text, 64, "no oneDNN"); }
int product_library_check(char text[PRODUCT_LIBRARY]) {
    return snprintf(text, PRODUCT_LIBRARY, "none: the program multiplies by itself"), 0;
}
int product_open(bool bf16, bool packed) { return (void)bf16, packed ? fail(EX_BUG, "packed weights") : 0; }
void product_close(void) {}
void product(Direction direction, int M, int rows, int cols, bool add, const void *a, const void *b, const float *bias,
             void *c) {
    (void)add, (void)a, (void)b, (void)bias, (void)c;
    die(EX_BUG, "a product by oneDNN: direction %d of %d, %d, %d", (int)direction, M, rows, cols);
}
size_t product_layout_bytes(Direction direction, int rows, int cols) {
    return (void)direction, (void)rows, (void)cols, 0;
}
int product_layout_block(Direction direction, int rows, int cols) { return (void)direction, (void)rows, (void)cols, 0; }
void product_reorder(Direction direction, const float *w, int rows, int cols, void *packed) {
    (void)direction, (void)w, (void)rows, (void)cols, (void)packed;
}

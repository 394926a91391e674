// A block is 32 x 32 sums: four tiles, from two tiles of a (16 rows x 16 pairs) and two of b (16 pairs x 16 columns).
#include "kernels/cpu/tiles_amx.h"
#ifdef __AMX_BF16__
#include <immintrin.h>

static void configure(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t column_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.column_bytes[i] = 64, config.rows[i] = 16;
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
}

static void multiply_block(int pairs, const uint32_t *a, size_t a_row, const uint32_t *b, size_t b_row, float *c,
                           size_t c_row, bool add) {
    const size_t a_bytes = 4 * a_row, b_bytes = 4 * b_row, c_bytes = 4 * c_row;
    float *below = c + 16 * c_row;
    if (add) {
        _tile_loadd(0, c, c_bytes);
        _tile_loadd(1, c + 16, c_bytes);
        _tile_loadd(2, below, c_bytes);
        _tile_loadd(3, below + 16, c_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int k = 0; k < pairs; k += 16, a += 16, b += 16 * b_row) {
        _tile_loadd(6, b, b_bytes);
        _tile_loadd(4, a, a_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + 16, b_bytes);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + 16 * a_row, a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, c + 16, c_bytes);
    _tile_stored(2, below, c_bytes);
    _tile_stored(3, below + 16, c_bytes);
}

void amx_tiles(int rows, int columns, int depth, const uint32_t *a, size_t a_row, const uint32_t *b, size_t b_row,
               float *c, size_t c_row, bool add) {
    configure();
    __asm__ volatile("" ::: "memory"); // the tile loads of gcc 12 do not declare what they read
    for (int i = 0; i < rows; i += AMX_BLOCK)
        for (int j = 0; j < columns; j += AMX_BLOCK)
            multiply_block(depth / 2, a + (size_t)i * a_row, a_row, b + j, b_row, c + (size_t)i * c_row + j, c_row,
                           add);
    __asm__ volatile("" ::: "memory");
    _tile_release();
}

#else // no x86-64

void amx_tiles(int rows, int columns, int depth, const uint32_t *a, size_t a_row, const uint32_t *b, size_t b_row,
               float *c, size_t c_row, bool add) {
    (void)rows, (void)columns, (void)depth, (void)a, (void)a_row, (void)b, (void)b_row, (void)c, (void)c_row, (void)add;
}
#endif

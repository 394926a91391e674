// matmul_amx.h: one micro-kernel, and the two products that oneDNN computes below the rate of the others.
//
// The weight gradient: both operands are packed for the tiles first, because the tokens, over which the product sums,
// are their rows. oneDNN packs them too, but again for each thread and with a split of the sum that depends on the
// number of threads.
//
// The input gradient of the head: its sums are as long as the vocabulary, and the rows of dout as far apart. They are
// cut into chunks of CLASSES, whose weights stay in the second-level cache while they meet all rows of a group.
//
// A block is 32 x 32 outputs: four tiles of sums, two of the left operand (16 outputs x 32 of the sum) and two of the
// right (16 pairs of the sum x 16 columns). Chunks follow one after another, so that the bits depend on the shape
// alone.
#include "kernels/cpu/matmul_amx.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/team.h"
#ifdef __AMX_BF16__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    BLOCK = AMX_BLOCK, // outputs, columns and tokens of a block
    DEPTH = 1024,      // tokens whose packed operands are in scratch at a time
    STRIP = 128,       // outputs that a thread packs at a time: 256 KiB of the second-level cache
    TILE = 16 * 32,    // elements of a tile of two-byte numbers
    PANEL = BLOCK * 2, // elements of a pair of tokens in a panel of 32 columns
    CLASSES = 512,     // of the head, whose weights are multiplied at a time: 768 KiB at C = 768
    GROUP = 256,       // rows of dout at a time, at most
    WIDE = 64,         // columns of a panel of packed weights
};

// Tiles 0..3: sums of (rows, cols) outputs; 4, 5: the left operand; 6, 7: the right one.
static void configure(int rows, int cols) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t column_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    const int r[2] = {rows < 16 ? rows : 16, rows < 16 ? 0 : rows - 16};
    const int c[2] = {cols < 16 ? cols : 16, cols < 16 ? 0 : cols - 16};
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++)
            if (r[i] && c[j])
                config.rows[2 * i + j] = (uint8_t)r[i], config.column_bytes[2 * i + j] = (uint16_t)(4 * c[j]);
        if (r[i]) config.rows[4 + i] = (uint8_t)r[i], config.column_bytes[4 + i] = 64;
        if (c[i]) config.rows[6 + i] = 16, config.column_bytes[6 + i] = (uint16_t)(4 * c[i]);
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
}

// An operand in memory, as pairs of numbers that are neighbours in the sum: from a row of a tile to the next, and from
// the tiles of one part of the sum to the tiles of the next.
typedef struct {
    const uint32_t *pairs;
    size_t row, step;
} Operand;

// sums (32,32) (+)= a * b over `depth` parts of 32 numbers. !lower, !right: there are only 16 rows or columns.
static inline __attribute__((always_inline)) void multiply_tiles(float *sums, size_t stride, Operand a, Operand b,
                                                                 int depth, bool add, bool lower, bool right) {
    const size_t bytes = stride * sizeof *sums, a_bytes = 4 * a.row, b_bytes = 4 * b.row;
    float *below = sums + 16 * stride;
    _tile_zero(0);
    if (right) _tile_zero(1);
    if (lower) _tile_zero(2);
    if (lower && right) _tile_zero(3);
    if (add) {
        _tile_loadd(0, sums, bytes);
        if (right) _tile_loadd(1, sums + 16, bytes);
        if (lower) _tile_loadd(2, below, bytes);
        if (lower && right) _tile_loadd(3, below + 16, bytes);
    }
    for (int k = 0; k < depth; k++, a.pairs += a.step, b.pairs += b.step) {
        _tile_loadd(6, b.pairs, b_bytes);
        _tile_loadd(4, a.pairs, a_bytes);
        _tile_dpbf16ps(0, 4, 6);
        if (right) {
            _tile_loadd(7, b.pairs + 16, b_bytes);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (lower) {
            _tile_loadd(5, a.pairs + 16 * a.row, a_bytes);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (lower && right) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, bytes);
    if (right) _tile_stored(1, sums + 16, bytes);
    if (lower) _tile_stored(2, below, bytes);
    if (lower && right) _tile_stored(3, below + 16, bytes);
}

void amx_tiles(int rows, int columns, int depth, const uint32_t *a, size_t a_row, const uint32_t *b, size_t b_row,
               float *c, size_t c_row, bool add) {
    configure(BLOCK, BLOCK);
    __asm__ volatile("" ::: "memory"); // the tile loads of gcc 12 do not declare their input
    for (int i = 0; i < rows; i += BLOCK)
        for (int j = 0; j < columns; j += BLOCK)
            multiply_tiles(c + (size_t)i * c_row + j, c_row, (Operand){a + (size_t)i * a_row, a_row, 16},
                           (Operand){b + j, b_row, 16 * b_row}, depth / BLOCK, add, true, true);
    __asm__ volatile("" ::: "memory");
    _tile_release();
}

// dw (rows,cols of a block) (+)= over `depth` blocks of 32 tokens; `panel` elements from a pair of tokens in b to the
// next
static inline void multiply_block(float *dw, size_t stride, int rows, int cols, const uint16_t *packed_a,
                                  const uint16_t *packed_b, int panel, int depth, bool add) {
    const Operand a = {(const void *)packed_a, 16, TILE},
                  b = {(const void *)packed_b, (size_t)panel / 2, 8 * (size_t)panel};
    const bool edge = rows < BLOCK || cols < BLOCK; // of dw; some tiles are smaller or not configured
    __asm__ volatile("" ::: "memory");
    if (edge) configure(rows, cols);
    if (rows > 16 && cols > 16)
        multiply_tiles(dw, stride, a, b, depth, add, true, true);
    else
        multiply_tiles(dw, stride, a, b, depth, add, rows > 16, cols > 16);
    if (edge) configure(BLOCK, BLOCK);
}

// Tokens token and token + 1 of 32 columns, as pairs: columns 0..15 and 16..31. Past the edges: zeros.
static inline void load_pairs(VW pairs[2], const uint16_t *x, size_t stride, int token, int tokens, int columns) {
    const __mmask32 mask = columns >= BLOCK ? ~0u : (1u << columns) - 1;
    const __m512i zero = _mm512_setzero_si512();
    const __m512i even = token < tokens ? _mm512_maskz_loadu_epi16(mask, x + (size_t)token * stride) : zero;
    const __m512i odd = token + 1 < tokens ? _mm512_maskz_loadu_epi16(mask, x + (size_t)(token + 1) * stride) : zero;
    const __m512i low = _mm512_unpacklo_epi16(even, odd), high = _mm512_unpackhi_epi16(even, odd);
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                  second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    pairs[0] = (VW)_mm512_permutex2var_epi64(low, first, high);
    pairs[1] = (VW)_mm512_permutex2var_epi64(low, second, high);
}

// in -> (blocks of tokens, 16 pairs, 32 columns)
static void pack_in(uint16_t *out, const uint16_t *x, size_t stride, int tokens, int depth, int columns) {
    for (int pair = 0; pair < depth * 16; pair++, out += PANEL) {
        VW pairs[2];
        load_pairs(pairs, x, stride, 2 * pair, tokens, columns);
        *(VWAnywhere *)out = pairs[0], *(VWAnywhere *)(out + 32) = pairs[1];
    }
}

// dout -> (blocks of tokens, 32 outputs, 32 tokens)
static void pack_dout(uint16_t *out, const uint16_t *x, size_t stride, int tokens, int depth, int columns) {
    for (int k = 0; k < depth; k++, out += 2 * TILE) {
        VW upper[W], lower[W];
        for (int pair = 0; pair < 16; pair++) {
            VW pairs[2];
            load_pairs(pairs, x, stride, (k * 16 + pair) * 2, tokens, columns);
            upper[pair] = pairs[0], lower[pair] = pairs[1];
        }
        v_transpose(upper), v_transpose(lower);
        for (int row = 0; row < 16; row++) {
            *(VWAnywhere *)(out + row * 32) = upper[row];
            *(VWAnywhere *)(out + TILE + row * 32) = lower[row];
        }
    }
}

static size_t panel_elements(int cols) { return (size_t)(cols + BLOCK - 1) / BLOCK * BLOCK * DEPTH; }

size_t amx_scratch(int cols, int threads) {
    return (panel_elements(cols) + (size_t)threads * STRIP * DEPTH) * sizeof(uint16_t);
}

// The tokens of a product of tiles: dout (tokens,rows) and in (tokens,cols).
typedef struct {
    float *dw;
    const uint16_t *dout, *in;
    int rows, cols, strip, tokens, depth; // depth: blocks of tokens
    uint16_t *panels, *strips;
    bool add;
} TileProduct;

static size_t block_elements(const TileProduct *p) { return (size_t)p->depth * BLOCK * BLOCK; } // packed

TEAM_LOOP(pack_columns, int, (const TileProduct *, p)) {
    for (int c = first; c < end; c += BLOCK)
        pack_in(p->panels + (size_t)(c / BLOCK) * block_elements(p), p->in + c, (size_t)p->cols, p->tokens, p->depth,
                p->cols - c);
}

TEAM_LOOP(multiply_strips, int, (const TileProduct *, p)) {
    const size_t block = block_elements(p), rows = (size_t)p->rows, cols = (size_t)p->cols;
    uint16_t *mine = p->strips + (size_t)team_thread() * STRIP * DEPTH;
    configure(BLOCK, BLOCK);
    for (int start = first, stop; start < end; start = stop) {
        stop = end - start < p->strip ? end : start + p->strip;
        for (int r = start; r < stop; r += BLOCK)
            pack_dout(mine + (size_t)((r - start) / BLOCK) * block, p->dout + r, rows, p->tokens, p->depth,
                      p->rows - r);
        for (int c = 0; c < p->cols; c += BLOCK)
            for (int r = start; r < stop; r += BLOCK)
                multiply_block(p->dw + (size_t)r * cols + c, cols, stop - r < BLOCK ? stop - r : BLOCK,
                               p->cols - c < BLOCK ? p->cols - c : BLOCK, mine + (size_t)((r - start) / BLOCK) * block,
                               p->panels + (size_t)(c / BLOCK) * block, PANEL, p->depth, p->add);
    }
    _tile_release();
}

void amx_backward_weight(float *dw, const uint16_t *dout, const uint16_t *in, int M, int rows, int cols, bool add,
                         void *scratch) {
    uint16_t *panels = scratch, *strips = panels + panel_elements(cols);
    // Smaller strips if there are too few for the threads; the bits are the same.
    int strip = STRIP;
    while (strip > BLOCK && (rows + strip - 1) / strip < 4 * team_threads()) strip /= 2;
    for (int first = 0; first < M; first += DEPTH) {
        const int tokens = M - first < DEPTH ? M - first : DEPTH;
        const TileProduct product = {.dw = dw,
                                     .dout = dout + (size_t)first * (size_t)rows,
                                     .in = in + (size_t)first * (size_t)cols,
                                     .rows = rows,
                                     .cols = cols,
                                     .strip = strip,
                                     .tokens = tokens,
                                     .depth = (tokens + BLOCK - 1) / BLOCK,
                                     .panels = panels,
                                     .strips = strips,
                                     .add = add || first};
        pack_columns(cols, BLOCK, &product);
        multiply_strips(rows, strip, &product);
    }
}

// Rows of a group: fewer if some threads would have no row.
static int group_rows(int M, int threads) {
    const int share = (M + threads - 1) / threads, rows = (share + BLOCK - 1) / BLOCK * BLOCK;
    return rows < GROUP ? rows : GROUP;
}

static size_t group_bytes(int cols) {
    return GROUP * (size_t)cols * sizeof(float) + BLOCK * CLASSES * sizeof(uint16_t);
}

size_t amx_input_scratch(int cols, int threads) { return (size_t)threads * group_bytes(cols); }

// BLOCK rows of x, `depth` blocks of 32 numbers from each -> (depth, BLOCK, 32); rows from `rows` on: zeros
static void pack_rows(uint16_t *out, const uint16_t *x, size_t stride, int rows, int depth) {
    for (int row = 0; row < BLOCK; row++, x += stride)
        for (int k = 0; k < depth; k++) {
            const __m512i numbers = row < rows ? _mm512_loadu_si512(x + k * BLOCK) : _mm512_setzero_si512();
            _mm512_storeu_si512(out + (size_t)k * 2 * TILE + row * BLOCK, numbers);
        }
}

// din (rows of a group, cols) = dout (rows, classes) * w
static void multiply_group(uint16_t *din, const uint16_t *dout, const uint16_t *w, int rows, int classes, int cols,
                           float *sums, uint16_t *band) {
    for (int first = 0; first < classes; first += CLASSES) {
        const int depth = (classes - first < CLASSES ? classes - first : CLASSES) / BLOCK;
        for (int row = 0; row < rows; row += BLOCK) {
            pack_rows(band, dout + (size_t)row * (size_t)classes + first, (size_t)classes, rows - row, depth);
            for (int c = 0; c < cols; c += BLOCK) {
                const uint16_t *panel = w + (size_t)(c / WIDE) * WIDE * (size_t)classes + (size_t)first * WIDE;
                multiply_block(sums + (size_t)row * (size_t)cols + c, (size_t)cols, BLOCK, BLOCK, band,
                               panel + c % WIDE * 2, 2 * WIDE, depth, first);
            }
        }
    }
    for (size_t i = 0; i < (size_t)rows * (size_t)cols; i += 32) {
        const __m512bh pair = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(sums + i + 16), _mm512_loadu_ps(sums + i));
        _mm512_storeu_si512(din + i, (__m512i)pair);
    }
}

TEAM_LOOP(multiply_groups, int, (uint16_t *, din), (const uint16_t *, dout), (const uint16_t *, w), (int, group),
          (int, rows), (int, cols), (char *, scratch)) {
    float *sums = (float *)(scratch + (size_t)team_thread() * group_bytes(cols));
    uint16_t *band = (uint16_t *)(sums + GROUP * (size_t)cols);
    configure(BLOCK, BLOCK);
    for (int row = first; row < end; row += group)
        multiply_group(din + (size_t)row * (size_t)cols, dout + (size_t)row * (size_t)rows, w,
                       end - row < group ? end - row : group, rows, cols, sums, band);
    _tile_release();
}

void amx_backward_input(uint16_t *din, const uint16_t *dout, const uint16_t *w, int M, int rows, int cols,
                        void *scratch) {
    const int group = group_rows(M, team_threads());
    multiply_groups(M, group, din, dout, w, group, rows, cols, scratch);
}

bool amx_open(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; // arch_prctl
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1)) return false;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

#else // no x86-64

bool amx_open(void) { return false; }
void amx_tiles(int rows, int columns, int depth, const uint32_t *a, size_t a_row, const uint32_t *b, size_t b_row,
               float *c, size_t c_row, bool add) {
    (void)rows, (void)columns, (void)depth, (void)a, (void)a_row, (void)b, (void)b_row, (void)c, (void)c_row, (void)add;
}
size_t amx_scratch(int cols, int threads) { return (void)cols, (void)threads, 0; }
void amx_backward_weight(float *dw, const uint16_t *dout, const uint16_t *in, int M, int rows, int cols, bool add,
                         void *scratch) {
    (void)dw, (void)dout, (void)in, (void)M, (void)rows, (void)cols, (void)add, (void)scratch;
}
size_t amx_input_scratch(int cols, int threads) { return (void)cols, (void)threads, 0; }
void amx_backward_input(uint16_t *din, const uint16_t *dout, const uint16_t *w, int M, int rows, int cols,
                        void *scratch) {
    (void)din, (void)dout, (void)w, (void)M, (void)rows, (void)cols, (void)scratch;
}
#endif

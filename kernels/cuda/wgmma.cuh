// Products of a warpgroup, four warps, on compute capability 9.0 (wgmma): sums (64,64) += a (64,16) b (16,64), or with
// 192 columns, with the sums of a warp's 16 rows laid out as in mma_16x8x16, eight columns after eight.
//
// Operands are tiles of 64 rows of 64 activations in shared memory, at multiples of 1024 bytes, as load_tile<8, ..>
// writes them: chunk_at<8> is wgmma's swizzle of 128 bytes. A product is asynchronous: its registers are not touched
// between wgmma_fence and wgmma_wait, and operands that threads write to shared memory need put_async or cp_async16,
// then async_fence, then a barrier. The emulator checks this (tests/cuda/emulator/emu.cc).
#pragma once

#include "kernels/cuda/ptx.cuh"

// The meaning of a tile's row: a row or column of the product with its terms side by side, or a term with all rows or
// columns.
enum TileRow { LINE, TERM };

enum { WGMMA_ROWS = 64, WGMMA_TERMS = 16, TILE_BYTES = 64 * 64 * 2 };

// Tiles, one after another, from their term WGMMA_TERMS * step on, for the instruction: their place, the distance to
// the tile of the next 64 columns, the distance to the next eight rows, and in bit 62 the swizzle.
template <TileRow ROW, int TILES = 1> INLINE uint64_t tile_part(const uint4 *tile, int step) {
    const uint64_t distance = ROW == TERM && TILES > 1 ? TILE_BYTES >> 4 : 1;
    const uint64_t first =
        (uint64_t)(shared_offset(tile) >> 4) | distance << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
    return first + step * (ROW == LINE ? 2 * WGMMA_TERMS : 128 * WGMMA_TERMS) / 16; // one addition of a constant
}

#ifndef EMU
#if defined __CUDA_ARCH__ && !defined __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool has_wgmma = false; // never launched there
#define WGMMA_ASM(...)
#else
constexpr bool has_wgmma = true;
#define WGMMA_ASM(...) asm volatile(__VA_ARGS__)
#endif

#define FOUR_SUMS(as, n) as(d[n][0]), as(d[n][1]), as(d[n][2]), as(d[n][3])
#define ALL_SUMS(as)                                                                                                   \
    FOUR_SUMS(as, 0), FOUR_SUMS(as, 1), FOUR_SUMS(as, 2), FOUR_SUMS(as, 3), FOUR_SUMS(as, 4), FOUR_SUMS(as, 5),        \
        FOUR_SUMS(as, 6), FOUR_SUMS(as, 7)
#define WGMMA_TEXT(add, rest)                                                                                          \
    "{.reg .pred add; setp.eq.u32 add,0," add "; wgmma.mma_async.sync.aligned.m64n64k16.f32." ACT_TYPE "." ACT_TYPE    \
    " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,"     \
    "%29,%30,%31}," rest ";}"

// !add: the sums are new.
template <TileRow A, TileRow B>
INLINE void wgmma(float (&d)[8][4], const uint4 *a, const uint4 *b, int step, bool add = true) {
    const uint64_t part_a = tile_part<A>(a, step), part_b = tile_part<B>(b, step);
    if (add)
        WGMMA_ASM(WGMMA_TEXT("0", "%32,%33,add,1,1,%34,%35")
                  : ALL_SUMS("+f")
                  : "l"(part_a), "l"(part_b), "n"(A == TERM), "n"(B == TERM));
    else
        WGMMA_ASM(WGMMA_TEXT("1", "%32,%33,add,1,1,%34,%35")
                  : ALL_SUMS("=f")
                  : "l"(part_a), "l"(part_b), "n"(A == TERM), "n"(B == TERM));
}
// The first operand as for mma_16x8x16.
template <TileRow B> INLINE void wgmma(float (&d)[8][4], const uint32_t (&a)[4], const uint4 *b, int step) {
    WGMMA_ASM(WGMMA_TEXT("0", "{%32,%33,%34,%35},%36,add,1,1,%37")
              : ALL_SUMS("+f")
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tile_part<B>(b, step)), "n"(B == TERM));
}
// 192 columns: b is three tiles.
template <TileRow A, TileRow B> INLINE void wgmma(float (&d)[24][4], const uint4 *a, const uint4 *b, int step) {
    WGMMA_ASM("wgmma.mma_async.sync.aligned.m64n192k16.f32." ACT_TYPE "." ACT_TYPE " {"
              "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"
              "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
              "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,"
              "%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
              "},%96,%97,1,1,1,%98,%99;"
              : FOUR_SUMS("+f", 0), FOUR_SUMS("+f", 1), FOUR_SUMS("+f", 2), FOUR_SUMS("+f", 3), FOUR_SUMS("+f", 4),
                FOUR_SUMS("+f", 5), FOUR_SUMS("+f", 6), FOUR_SUMS("+f", 7), FOUR_SUMS("+f", 8), FOUR_SUMS("+f", 9),
                FOUR_SUMS("+f", 10), FOUR_SUMS("+f", 11), FOUR_SUMS("+f", 12), FOUR_SUMS("+f", 13), FOUR_SUMS("+f", 14),
                FOUR_SUMS("+f", 15), FOUR_SUMS("+f", 16), FOUR_SUMS("+f", 17), FOUR_SUMS("+f", 18), FOUR_SUMS("+f", 19),
                FOUR_SUMS("+f", 20), FOUR_SUMS("+f", 21), FOUR_SUMS("+f", 22), FOUR_SUMS("+f", 23)
              : "l"(tile_part<A>(a, step)), "l"(tile_part<B, 3>(b, step)), "n"(A == TERM), "n"(B == TERM));
}
INLINE void wgmma_fence() { WGMMA_ASM("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void wgmma_commit() { WGMMA_ASM("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// All but the last GROUPS committed groups are done ...
template <int GROUPS> INLINE void wgmma_wait() {
    WGMMA_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
}
// ... among them the groups of d.
template <int GROUPS, int N> INLINE void wgmma_wait(float (&d)[N][4]) {
    wgmma_wait<GROUPS>();
#pragma unroll
    for (int n = 0; n < N; n++) asm volatile("" : FOUR_SUMS("+f", n)::"memory"); // no use of d moves before the wait
}
// Products after the next barrier see the writes of this thread to shared memory so far.
INLINE void async_fence() { WGMMA_ASM("fence.proxy.async.shared::cta;" ::: "memory"); }
template <class T> INLINE void put_async(T *to, T value) { *to = value; }
#else
template <TileRow A, TileRow B>
static void wgmma(float (&d)[8][4], const uint4 *a, const uint4 *b, int step, bool add = true) {
    emu_wgmma({d, 64, {}, false, A == TERM, B == TERM, add, EMU_VALUE, tile_part<A>(a, step), tile_part<B>(b, step)});
}
template <TileRow A, TileRow B> static void wgmma(float (&d)[24][4], const uint4 *a, const uint4 *b, int step) {
    emu_wgmma(
        {d, 192, {}, false, A == TERM, B == TERM, true, EMU_VALUE, tile_part<A>(a, step), tile_part<B, 3>(b, step)});
}
template <TileRow B> static void wgmma(float (&d)[8][4], const uint32_t (&a)[4], const uint4 *b, int step) {
    emu_wgmma({d, 64, {a[0], a[1], a[2], a[3]}, true, false, B == TERM, true, EMU_VALUE, 0, tile_part<B>(b, step)});
}
#endif

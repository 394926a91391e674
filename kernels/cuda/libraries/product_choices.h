// The algorithms of matrix products that were chosen by timing: kept for the run, for its checkpoints, and in a file
// for later runs on this card.
//
// Text. The first line names the card, each other line a product with its workspace in MiB, its algorithm in
// hexadecimal as cuBLASLt stores it, or the word of another way (ProductWay), and its time. Every line ends with its
// check, XXH64 of the text before it:
//   cuBLASLt 130101 on NVIDIA H200, compute capability 9.0, 132 multiprocessors, driver 13000 CHECK
//   bfloat16 4096x8192x1024 TN act epilogue 4 alignment 256 workspace 64: ALGORITHM 123.4 us CHECK
// A file or a checkpoint of another card, library or driver, or a damaged one, is ignored with one line on stderr.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { ALGORITHM_BYTES = 64, PRODUCT_NAME_BYTES = 96 };

// How a product is made, and its word in the text. Only a product with a GELU is made apart or by a kernel for both.
#define PRODUCT_WAYS(W)                                                                                                \
    W(APART, "apart")    /* the product, and then another kernel: the epilogue is slower */                            \
    W(BY_ALGORITHM, "")  /* of cuBLASLt */                                                                             \
    W(BY_WGMMA, "wgmma") /* matmul_gelu.cu */
#define PRODUCT_WAY(name, word) PRODUCT_##name,
typedef enum { PRODUCT_WAYS(PRODUCT_WAY) } ProductWay;
#undef PRODUCT_WAY

typedef struct {
    ProductWay way;
    float us;
    unsigned char algorithm[ALGORITHM_BYTES]; // PRODUCT_BY_ALGORITHM
} ProductChoice;

// card: a line of text. directory NULL, or one in which no file can be written: no choice is kept for later runs.
void product_choices_open(const char *directory, const char *card);
void product_choices_close(void);

// Choices of a checkpoint, which go before the choices of the file. The text of a run without any, which names the card
// alone: this run makes none either, so that it computes the same bits.
void product_choices_set(const char *text);
// First the choices of the checkpoint, used or not: a replay of earlier steps needs them. Then the others that this run
// used, in the order of their first use.
void product_choices_get(char *text, size_t size);

// Would a choice be kept? Else a run that shall repeat its bits makes no choice and takes the heuristic's suggestion.
bool product_choices_may_be_made(void);

// Between lock and unlock no other process adds to the file, so that two runs that start together choose the same.
// Pairs may be nested.
void product_choices_lock(void);
void product_choices_unlock(void);
// Both return the number of the choice, from 1 on, or 0: no such choice, or no room. given: of the checkpoint alone.
unsigned product_choice_find(const char *product, bool given, ProductChoice *choice);
unsigned product_choice_add(const char *product, const ProductChoice *choice);
void product_choice_use(unsigned number); // the run computes by this choice; 0: nothing

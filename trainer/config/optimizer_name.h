// The table of optimizers, and their numbers. Their functions: trainer/shape/optimizer.h.
#pragma once

// One row per optimizer: OPTIMIZER(NAME, name, ...). optimizer_name is its row of functions; name is the word in
// configurations; ... is passed through.
#define OPTIMIZERS(OPTIMIZER, ...)                                                                                     \
    OPTIMIZER(ADAMW, adamw, __VA_ARGS__)                                                                               \
    OPTIMIZER(MUON, muon, __VA_ARGS__)

#define OPTIMIZER_NUMBER(NAME, name, ...) OPTIMIZER_##NAME,
typedef enum { OPTIMIZERS(OPTIMIZER_NUMBER, ) OPTIMIZER_COUNT } OptimizerName;

// OPTIMIZERS(OPTIMIZER_WORD, W) is W(OPTIMIZER_ADAMW, "adamw") and so on, for the words of a configuration key.
#define OPTIMIZER_WORD(NAME, name, W) W(OPTIMIZER_##NAME, #name)

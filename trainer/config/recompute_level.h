// The table of the levels of recompute: LEVEL(NAME, name, group, seconds, text, ...). Levels are cumulative.
#pragma once

// name: the word in configurations. group: the group of buffers.def that layers stop
// keeping at this level. seconds: the cost of computing the group again, for each token of one layer, in variables of
// plan/step_cost.c. text: in the table of the plan. ...: passed through. The operations are in model/forward.c.
#define RECOMPUTE_LEVELS(LEVEL, ...)                                                                                   \
    LEVEL(NONE, none, INPUT, 0, "none: all kept", __VA_ARGS__)                                                         \
    LEVEL(GELU, gelu, GELU, 4 * C / rates->gelu, "gelu: GELU computed again", __VA_ARGS__)                             \
    LEVEL(NORM, norm, NORM, 2 * C / rates->norm, "norm: and the norms", __VA_ARGS__)                                   \
    LEVEL(MLP, mlp, MLP, 4 * product, "mlp: and the input of GELU", __VA_ARGS__)                                       \
    LEVEL(QKV, qkv, QKV, 3 * product, "qkv: and queries, keys, values", __VA_ARGS__)                                   \
    LEVEL(BLOCK, block, ATTENTION, product + 2 * T * C / rates->attention_forward,                                     \
          "block: whole blocks computed again", __VA_ARGS__)

// RECOMPUTE_LEVELS(RECOMPUTE_WORD, W): the words of the configuration key.
#define RECOMPUTE_WORD(NAME, name, group, seconds, text, W) W(RECOMPUTE_##NAME, #name)

// The configuration of a run as its checkpoint has it, against the present one.
#include "trainer/checkpoint/saved_state.h"
#include "common/err.h"
#include "common/log.h"
#include <jansson.h>
#include <stdlib.h>

// 0 stands for the vocabulary of GPT-2.
static const char *value_text(int key, const char *value) {
    return key == KEY_vocab_size && !strcmp(value, "0") ? "GPT-2's 50257" : value;
}

int saved_state_compare(const SavedState *saved, const Config *config, const char *path) {
    Buffer differences = {0};
    const unsigned long long step = saved->state.step, last = (unsigned long long)config->max_iters;
    const bool complete = step >= last && !config->eval_only;
    if (complete && step > last)
        return fail(EX_USAGE, "nothing to do: step %llu of the run in '%s' is beyond max_iters %llu", step,
                    config->out_dir, last);
    for (int key = 0; key < KEY_COUNT; key++) {
        char now[256], initial[256];
        const char *then = json_string_value(json_object_get(saved->config, config_key(key)));
        config_value(config, key, now, sizeof now);
        config_default(key, initial, sizeof initial);
        if (!then && config_class(key) == CLASS_OPTION) then = initial;
        if (config_class(key) == CLASS_PLACE || !then) continue;
        char was[256];
        Config earlier = *config; // older spellings of a word have the same value
        if (config_parse(&earlier, key, then)) config_value(&earlier, key, was, sizeof was), then = was;
        if (!strcmp(then, now)) continue;
        if (config_class(key) == CLASS_RUN && !complete)
            log_line("%s is now %s, was %s until step %llu", config_key(key), now, then, step);
        else
            buffer_print(&differences, "%s%s is %s, was %s", differences.size ? "; " : "", config_key(key),
                         value_text(key, now), value_text(key, then));
    }
    int result = 0;
    if (differences.size && complete)
        result = fail(EX_USAGE,
                      "the run in '%s' is complete (step %llu of %llu), nothing was trained: %s (raise max_iters to go "
                      "on; another out_dir, or --fresh, starts a new run)",
                      config->out_dir, step, last, (const char *)differences.data);
    else if (differences.size)
        result =
            fail(EX_USAGE, "the checkpoint '%s' is of another run: %s (another out_dir, or --fresh, starts a new one)",
                 path, (const char *)differences.data);
    buffer_close(&differences);
    return result;
}

static int64_t saved_int(const SavedState *saved, int key) {
    const char *text = json_string_value(json_object_get(saved->config, config_key(key)));
    return text ? strtoll(text, NULL, 10) : 0;
}

static void saved_value(const SavedState *saved, int key, Config *config) {
    const char *text = json_string_value(json_object_get(saved->config, config_key(key)));
    if (text) config_parse(config, key, text);
}

void saved_state_settings(const SavedState *saved, Config *config) {
    static const int keys[] = {KEY_dtype,           KEY_batch_size, KEY_block_size,
                               KEY_document_mask,   KEY_eval_iters, KEY_eval_tokens,
                               KEY_eval_block_size, KEY_eval_order, KEY_always_save_checkpoint};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) saved_value(saved, keys[i], config);
}

void saved_state_resolve_auto(const SavedState *saved, Config *config) {
    int64_t rows = saved_int(saved, KEY_batch_size), micros = saved_int(saved, KEY_gradient_accumulation_steps);
    int64_t asked = config->batch_size.value;
    if (config->dtype == DTYPE_AUTO) saved_value(saved, KEY_dtype, config);
    if (config->recompute == RECOMPUTE_AUTO)
        saved_value(saved, KEY_recompute, config), saved_value(saved, KEY_recompute_layers, config);
    if (!config->loss_chunk_rows) saved_value(saved, KEY_loss_chunk_rows, config);
    if (!config->batch_size.is_auto || rows * micros != asked * config->gradient_accumulation_steps) return;
    if (!config->eval_tokens) config->eval_tokens = config->eval_iters * asked * config_eval_block(config);
    config->batch_size = (AutoInt){false, rows}, config->gradient_accumulation_steps = micros;
}

// trainer plan: the memory plan of a run, without running it.
#include "common/err.h"
#include "common/log.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/plan/plan_auto.h"
#include "trainer/run/backend_for.h"
#include "trainer/trainer_commands.h"
#include <stdio.h>

static bool print_config;
static const Option options[] = {
    {OPT_FLAG, "print_config", &print_config, NULL, "print every key, its value and where it comes from"},
    {OPT_END,  NULL,           NULL,          NULL, NULL                                                },
};

static int print_plan(Config *config) {
    const Backend *backend = backend_for(config, true, NULL);
    if (!backend) return -1;
    plan_auto(config, backend, false);
    ModelShape shape = model_shape(config);
    Model model;
    MemoryPlan plan;
    Buffer text = {0};
    model_open(&model, &shape);
    memory_plan_init(&plan, config, &model, backend, optimizer_find(config->optimizer));
    memory_plan_print(&plan, config, &model, backend, &text);
    const double tokens = (double)(config->batch_size.value * config->gradient_accumulation_steps * config->block_size);
    const double total = tokens * (double)config->max_iters, flops = total * model_token_flops(&model);
    char count[16];
    buffer_print(&text, "\nrun        %lld steps, %s tokens, %.3g FLOP: %.1f h at 10 TFLOP/s, %.1f h at 100 TFLOP/s\n",
                 (long long)config->max_iters, human_count(count, total), flops, flops / 10e12 / 3600,
                 flops / 100e12 / 3600);
    plan_print_choices(config, &model, backend, &text);
    fwrite(text.data, 1, text.size, stdout);
    int result = memory_plan_check(&plan, config, backend, false);
    buffer_close(&text);
    model_close(&model);
    backend->close();
    return result;
}

static int run(int count, char **files) {
    ConfigReader reader;
    int result = config_read(&reader, count, files);
    if (result == 0) result = model_config_resolve(&reader, true);
    if (result == 0 && print_config)
        config_print(&reader);
    else if (result == 0)
        result = print_plan(&reader.config);
    config_close(&reader);
    return result;
}

const Command trainer_plan = {
    "plan", "[CONFIG...] [--key=value...]", "print the memory plan of a run", options, run, &config_options};

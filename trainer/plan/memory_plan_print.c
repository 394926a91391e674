// The table of a memory plan, as text.
#include "common/log.h"
#include "trainer/plan/memory_plan.h"
#include "trainer/plan/plan_fit.h"
#include "trainer/plan/step_cost.h"

// How the gradients of the micro-batches are added.
static void print_order(const MemoryPlan *plan, const Config *config, const Model *model, const Backend *backend,
                        Buffer *out) {
    const long long micros = config->gradient_accumulation_steps;
    const unsigned world = config_world(config);
    const double cost = 100 * step_cost_order(model, backend, config);
    if (!plan->optimizer || (micros == 1 && !backend->set_portable)) return;
    if (!plan->fixed_order && backend->set_portable)
        buffer_print(out, "order      fast: the bits depend on the processor%s (fixed: predicted time %+.1f %%)\n",
                     micros > 1 ? " and the number of processes" : "", cost);
    else if (!plan->fixed_order)
        buffer_print(out,
                     "order      fast: the bits depend on the number of processes (fixed: predicted time %+.1f %%)\n",
                     cost);
    else if (micros == 1)
        buffer_print(out, "order      fixed: the same bits on any processor; predicted time %+.1f %%\n", cost);
    else
        buffer_print(
            out,
            "order      fixed: %lld micro-batches, one after another, %u at a time: the same bits for 1 to %lld "
            "processes%s; predicted time %+.1f %%\n",
            micros, world, micros, plan->portable ? ", and on any processor" : "", cost);
}

static void print_run(const MemoryPlan *plan, const Config *config, const Model *model, const Backend *backend,
                      Buffer *out) {
    char count[16];
    buffer_print(out, "model      %s parameters: %d layers, %d heads, %d channels, block %d\n",
                 human_count(count, (double)model->parameters), model->shape.layers, model->shape.heads,
                 model->shape.channels, model->shape.block);
    buffer_print(out, "step       %lld x %lld sequences of %lld tokens = %lld tokens\n",
                 (long long)config->batch_size.value, (long long)config->gradient_accumulation_steps,
                 (long long)config->block_size,
                 (long long)(config->batch_size.value * config->gradient_accumulation_steps * config->block_size));
    if (config_world(config) > 1)
        buffer_print(out, "processes  %u, each with %s%lld of the %lld micro-batches and %s of the optimizer's state\n",
                     config->world, config->gradient_accumulation_steps % config->world ? "at most " : "",
                     (long long)plan->rounds, (long long)config->gradient_accumulation_steps,
                     plan->shards > 1 ? "its part" : "all");
    print_order(plan, config, model, backend, out);
    buffer_print(out, "backend    %s%s\n\n", backend->name, config_world(config) > 1 ? "; of each process:" : "");
}

static void print_table(const MemoryPlan *plan, const Backend *backend, Buffer *out) {
    const double link = 20e9; // bytes/s
    const PlanRow *rows = plan->table.rows;
    char bytes[16];
    buffer_print(out, "  %-30s %14s  %10s\n", "buffer", "bytes", "size");
    for (int i = 0; i < plan->table.count; i++)
        if (!rows[i].copied)
            buffer_print(out, "  %-30s %14zu  %10s%s\n", rows[i].name, rows[i].bytes,
                         human_bytes(bytes, (double)rows[i].bytes), rows[i].overlaid ? "  (inside the above)" : "");
    buffer_print(out, "  %-30s %14zu  %10s%s\n", "arena", plan->bytes, human_bytes(bytes, (double)plan->bytes),
                 backend->in_host_memory ? "" : "  (beside it the CUDA context and libraries take about 0.5 GiB)");
    for (int i = 0; i < plan->table.count; i++)
        if (rows[i].copied)
            buffer_print(out, "  %-30s %14zu  %10s  (%.2f s of copies %s, at %.1f GiB/s each way)\n", rows[i].name,
                         rows[i].bytes, human_bytes(bytes, (double)rows[i].bytes), (double)rows[i].bytes / link,
                         rows[i].copied, link / 0x1p30);
}

void memory_plan_print(const MemoryPlan *plan, const Config *config, const Model *model, const Backend *backend,
                       Buffer *out) {
    char bytes[16];
    print_run(plan, config, model, backend, out);
    print_table(plan, backend, out);
    buffer_print(out, "  %-30s %14zu  %10s  (for checkpoints)\n", "host buffer", plan->staging,
                 human_bytes(bytes, (double)plan->staging));
    if (plan->copy_bytes)
        buffer_print(out, "  %-30s %14zu  %10s  (%s)\n",
                     plan->shards > 1 ? "checkpoint copy of rank 0" : "checkpoint copy", plan->copy_bytes,
                     human_bytes(bytes, (double)plan->copy_bytes),
                     plan->shards > 1 ? "required beside its arena, for what the processes divide"
                                      : "for saves beside training, if the memory is free");
    const uint64_t most = memory_limits(config, backend, false).arena;
    if (config->mem_limit && plan->bytes <= most)
        buffer_print(out, "  %-30s %14llu  %10s%s\n", "spare", (unsigned long long)(most - plan->bytes),
                     human_bytes(bytes, (double)(most - plan->bytes)),
                     most < config->mem_limit ? "  (of the card, which has less than mem_limit)" : "");
}

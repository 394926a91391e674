// Lines on stdout and in metrics.jsonl about steps and evaluations.
#include "trainer/run/loop_record.h"
#include "common/hash.h"
#include "common/json_write.h"
#include "common/log.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void loop_flush_lines(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return;
    log_warn("cannot write to stdout: %s; training continues without its lines", strerror(errno));
    if (!freopen("/dev/null", "w", stdout)) clearerr(stdout);
}

static void print_loss(char out[24], double loss) {
    if (isfinite(loss))
        snprintf(out, 24, "%.17g", loss);
    else
        snprintf(out, 24, "null");
}

// Losses of another rule are not compared.
static void check_rule(RunState *state, uint64_t rule) {
    if (isfinite(state->best_loss) && state->eval_rule != rule) {
        log_line("the best validation loss so far, %.4f at step %llu, is of an evaluation of another order, size, "
                 "dataset, mixture or loss_tokens: the best loss starts again",
                 state->best_loss, (unsigned long long)state->best_step);
        state->best_loss = state->first_loss = NAN;
    }
    state->eval_rule = rule;
}

void loop_print_evaluation(const Run *run, const Evaluation evaluations[SPLIT_COUNT], bool best) {
    Buffer text = {0};
    evaluation_add_text(&text, &evaluations[SPLIT_VAL]);
    if (run->config.eval_block_size)
        buffer_print(&text, " | sequences of %lld tokens", (long long)run->config.eval_block_size);
    if (!run->state.step && !*run->state.init_from)
        buffer_print(&text, " | a guess among %d ids: %.4f", run->model.shape.vocab, log(run->model.shape.vocab));
    printf("step %*llu | train loss %.4f | val loss %.4f%.*s%s\n", run->config.eval_only ? 1 : 6,
           (unsigned long long)run->state.step, evaluations[SPLIT_TRAIN].loss, evaluations[SPLIT_VAL].loss,
           (int)text.size, (const char *)text.data, best && run->state.step ? " | best so far" : "");
    buffer_close(&text);
}

// How often the run has seen the training data of its dataset.
static double epochs(const Run *run) {
    const DatasetUse *use = &run->state.datasets[run->state.dataset];
    return (double)use->consumed * (double)run->config.block_size /
           (double)feed_dataset(run->feed)->tokens[SPLIT_TRAIN];
}

bool loop_record_evaluation(Run *run, const Evaluation evaluations[SPLIT_COUNT]) {
    enum { DIGITS = 17 };
    const Evaluation *val = &evaluations[SPLIT_VAL], *trained = &evaluations[SPLIT_TRAIN];
    RunState *state = &run->state;
    check_rule(state, val->rule);
    const bool best = isfinite(val->loss) && !(state->best_loss <= val->loss);
    state->evaluated = true, state->last_loss = val->loss;
    if (!state->step) state->first_loss = val->loss;
    if (best) state->best_loss = val->loss, state->best_step = state->step;
    if (!log_quiet && !run->replays) loop_print_evaluation(run, evaluations, best);
    loop_flush_lines();
    Buffer members = {0};
    evaluation_add_value(&members, "val_loss", val->loss, DIGITS);
    evaluation_add_value(&members, "train_loss", trained->loss, DIGITS);
    evaluation_add_value(&members, "val_bpb", val->bits_per_byte, DIGITS);
    evaluation_add_value(&members, "train_bpb", trained->bits_per_byte, DIGITS);
    evaluation_add_sources(&members, val, DIGITS);
    evaluation_add_sources(&members, trained, DIGITS);
    if (feed_dataset(run->feed)->source_count == 1) evaluation_add_value(&members, "epochs", epochs(run), DIGITS);
    buffer_print(&members, ", \"eval_rule\": \"%016llx\"", (unsigned long long)val->rule);
    metrics_add(&run->metrics, state->step, "%.*s", (int)members.size - 2, (const char *)members.data + 2);
    buffer_close(&members);
    return best;
}

// Time to max_iters at the mean rate since the first step of this process, evaluations and checkpoints included, as "3:12:05".
static const char *time_left(const Run *run, char out[24]) {
    double seconds = (double)(clock_ns() - run->pace.began_ns) * 1e-9 / (double)run->pace.steps;
    uint64_t left = (uint64_t)(seconds * (double)((uint64_t)run->config.max_iters - run->state.step) + 0.5);
    snprintf(out, 24, "%u:%02u:%02u", (unsigned)(left / 3600), (unsigned)(left / 60 % 60), (unsigned)(left % 60));
    return out;
}

// The rate of a step, its share of the GEMM rate unless a step is faster than the measurement of that, and, on a GPU
// whose peak is known, its share of that: "1.23 TFLOP/s (64 % of measured peak)".
static const char *rate_text(const Run *run, double flops, char out[80]) {
    const double share = flops / run->pace.gemm_rate;
    int length = snprintf(out, 80, "%.3g TFLOP/s", flops * 1e-12);
    if (share > 1) return out;
    length += snprintf(out + length, 80 - (size_t)length, " (%.0f %% of measured peak", 100 * share);
    if (run->pace.peak_rate > 0)
        length += snprintf(out + length, 80 - (size_t)length, ", MFU %.1f %%", 100 * flops / run->pace.peak_rate);
    snprintf(out + length, 80 - (size_t)length, ")");
    return out;
}

// What the GPU's driver says of all its processes, at the steps that are logged.
static void record_usage(Run *run) {
    DeviceUsage usage;
    if (!run->backend->usage || !run->backend->usage(&usage)) return;
    metrics_add(&run->metrics, run->state.step,
                "\"gpu_used_bytes\": %.0f, \"gpu_free_bytes\": %.0f, \"gpu_busy\": %.2f", usage.used, usage.free,
                usage.busy);
}

void loop_record_step(Run *run, const StepResult *result, uint64_t first_sample, float loss_scale, uint64_t ns,
                      uint64_t wait_ns, uint64_t sent) {
    const Config *config = &run->config;
    uint64_t step = run->state.step;
    double seconds = (double)ns * 1e-9, tokens = (double)run_sequences(run) * (double)config->block_size;
    const double flops = tokens / seconds * model_token_flops(&run->model);
    double wait = ns ? 100.0 * (double)wait_ns / (double)ns : 0;
    char loss[24], norm[24], link[65], exchanged[32] = "", targets[32] = "";
    char words[96] = "", scale[32] = ""; // the loss scale of fp16, for the line and for metrics.jsonl
    if (!run->pace.steps++) run->pace.began_ns = clock_ns() - ns;
    run->pace.step_seconds += seconds, run->pace.step_tokens += tokens;
    if (run->state.scaler.scale > 0) {
        snprintf(words, sizeof words, " | scale %g", (double)loss_scale);
        snprintf(scale, sizeof scale, ", \"loss_scale\": %.9g", (double)loss_scale);
    }
    if (step % (uint64_t)config->log_interval == 0 && !log_quiet && !run->replays) {
        char left[24], rate[80];
        if (wait >= 1)
            snprintf(words + strlen(words), sizeof words - strlen(words), " | waiting for data %.0f %%", wait);
        if (run->plan.answers)
            snprintf(words + strlen(words), sizeof words - strlen(words), " | %.0f %% of the targets count",
                     100 * (double)result->targets / tokens);
        printf("step %6llu/%lld | loss %.4f | norm %.3f | lr %.2e | %.1f ms | %.0f tok/s | %s | "
               "%s left%s%s\n",
               (unsigned long long)step, (long long)config->max_iters, result->loss, (double)result->norm,
               result->learning_rate, seconds * 1e3, tokens / seconds, rate_text(run, flops, rate),
               time_left(run, left), words,
               !result->targets   ? " | no target counts: not applied"
               : !result->finite  ? " | not finite: not applied"
               : !result->applied ? " | spike: not applied"
                                  : "");
        loop_flush_lines();
    }
    print_loss(loss, result->loss), print_loss(norm, (double)result->norm);
    hex_encode(link, run->state.chain, 32);
    if (run->plan.answers)
        snprintf(targets, sizeof targets, ", \"targets\": %llu", (unsigned long long)result->targets);
    if (run->collective.world > 1) snprintf(exchanged, sizeof exchanged, ", \"sent\": %llu", (unsigned long long)sent);
    metrics_add(&run->metrics, step,
                "\"loss\": %s, \"norm\": %s%s%s, \"lr\": %.9g, \"first_sample\": %llu, \"chain\": \"%s\", "
                "\"ms\": %.3f, \"tok_s\": %.1f, \"product_share\": %.4g, \"wait\": %.3f%s",
                loss, norm, targets, scale, result->learning_rate, (unsigned long long)first_sample, link,
                seconds * 1e3, tokens / seconds, flops / run->pace.gemm_rate, wait, exchanged);
    if (step % (uint64_t)config->log_interval == 0) record_usage(run);
}

void loop_record_spike(Run *run, const StepResult *result, double score) {
    enum { STAYS = 3 };
    if (++run->pace.spikes == STAYS || !result->applied)
        log_warn(
            "step %llu: loss %.4f and norm %.3f: one is %.1f standard deviations above those of the last %d steps%s",
            (unsigned long long)run->state.step, result->loss, (double)result->norm, score,
            run->state.spikes.loss.count - 1,
            result->applied ? ", as in the two steps before" : "; the update is not applied");
    metrics_add(&run->metrics, run->state.step, "\"spike\": %.3f, \"applied\": %s", score,
                result->applied ? "true" : "false");
}

// The share of the processor that other programs had in the last window of step times: a line of metrics.jsonl where it is
// much, and when it no longer is.
static double record_lost(Run *run) {
    const double much = 0.2;
    const ProcessorTime now = processor_time();
    const double lost = run->pace.processor.used_ns ? processor_lost(run->pace.processor, now) : 0;
    run->pace.processor = now;
    if (lost <= much && run->pace.lost <= much) return lost;
    run->pace.lost = lost;
    metrics_add(&run->metrics, run->state.step, "\"processor_lost\": %.3f", lost);
    return lost;
}

static void warn_of_slow_steps(const Run *run, double median, double ratio, double usual, double lost) {
    char cause[160] = "is the GPU throttled or shared?";
    if (run->backend->in_host_memory && lost > 0.1)
        snprintf(cause, sizeof cause,
                 "other programs had the processor for %.0f %% of the time that this process could use: it is slower "
                 "until they end",
                 100 * lost);
    else if (run->backend->in_host_memory)
        snprintf(
            cause, sizeof cause,
            "this process received %.0f %% of the processor time that it could use: is the processor throttled, or "
            "shared with other virtual machines?",
            100 - 100 * lost);
    log_warn("step %llu: steps take %.1f ms, %.1f times as long as before (%.1f ms): %s",
             (unsigned long long)run->state.step, median, ratio, usual, cause);
}

void loop_record_speed(Run *run, uint64_t ns) {
    enum { STAYS = 4 }; // windows
    const double much = 1.5;
    const uint64_t minute_ns = 60000000000;
    static uint64_t warned_ns;
    uint64_t median_ns;
    const double ratio = step_times_add(&run->pace.step_times, ns, &median_ns);
    const double lost = run->pace.step_times.count ? 0 : record_lost(run); // a window is full
    if (ratio == 0) return;
    run->pace.slow_windows = ratio > much ? run->pace.slow_windows + 1 : 0;
    if (run->pace.slow ? ratio > much : run->pace.slow_windows < STAYS) return;
    if (!run->pace.slow && warned_ns && clock_ns() - warned_ns < minute_ns) return;
    run->pace.slow = ratio > much;
    if (run->pace.slow) warned_ns = clock_ns();
    const double median = (double)median_ns * 1e-6, usual = (double)run->pace.step_times.usual_ns * 1e-6;
    if (run->pace.slow)
        warn_of_slow_steps(run, median, ratio, usual, lost);
    else
        log_line("step %llu: steps take %.1f ms again", (unsigned long long)run->state.step, median);
    metrics_add(&run->metrics, run->state.step, "\"step_time_ratio\": %.3f", ratio);
}

void loop_record_sample(Run *run, Bytes text) {
    enum { SAMPLE_BYTES_MAX = 2000 }; // escaped, they fit a line of metrics.jsonl
    Buffer line = {0};
    JsonCarry carry = {0};
    if (text.size > SAMPLE_BYTES_MAX) text.size = SAMPLE_BYTES_MAX;
    buffer_print(&line, "\"sample\": \"");
    json_add_text(&line, text, true, &carry);
    buffer_print(&line, "\"");
    metrics_add(&run->metrics, run->state.step, "%.*s", (int)line.size, (const char *)line.data);
    buffer_close(&line);
}

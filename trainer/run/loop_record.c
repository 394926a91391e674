// Lines on stdout and in metrics.jsonl about steps and evaluations.
#include "trainer/run/loop_record.h"
#include "common/json_write.h"
#include "common/log.h"
#include "trainer/config/until.h"
#include "trainer/run/run_until.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void loop_flush_lines(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return;
    log_warn("cannot write to stdout: %s; training continues without its lines", strerror(errno));
    if (!freopen("/dev/null", "w", stdout)) clearerr(stdout);
}

void loop_print_evaluation(const Engine *engine, const Evaluation evaluations[SPLIT_COUNT], bool best) {
    Buffer text = {0};
    evaluation_add_text(&text, &evaluations[SPLIT_VAL]);
    if (engine->config.eval_block_size)
        buffer_print(&text, " | sequences of %lld tokens", (long long)engine->config.eval_block_size);
    if (engine_has_average(engine))
        buffer_print(&text, " | ema: train loss %.4f, val loss %.4f", evaluations[SPLIT_TRAIN].ema_loss,
                     evaluations[SPLIT_VAL].ema_loss);
    if (!engine->state.step && !*engine->state.init_from)
        buffer_print(&text, " | a guess among %d ids: %.4f", engine->model.shape.vocab, log(engine->model.shape.vocab));
    printf("step %*llu | train loss %.4f | val loss %.4f%.*s%s\n", engine->config.eval_only ? 1 : 6,
           (unsigned long long)engine->state.step, evaluations[SPLIT_TRAIN].loss, evaluations[SPLIT_VAL].loss,
           (int)text.size, (const char *)text.data, best && engine->state.step ? " | best so far" : "");
    buffer_close(&text);
    loop_flush_lines();
}

// To the last step at the mean rate since the first step of this process, evaluations and checkpoints included, or to
// the time that is set, as "3:12:05".
static const char *time_left(const Run *run, char out[24]) {
    double seconds = (double)(clock_ns() - run->pace.began_ns) * 1e-9 / (double)run->pace.steps;
    seconds *= (double)(engine_end(&run->engine) - run->engine.state.step);
    seconds = fmin(seconds, fmax(0, run_until_left(run)));
    uint64_t left = (uint64_t)(seconds + 0.5);
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

// Records the driver's facts about all processes of the GPU, at the steps that are logged.
static void record_usage(Run *run) {
    DeviceUsage usage;
    if (!run->engine.backend->usage || !run->engine.backend->usage(&usage)) return;
    metrics_add(&run->metrics, run->engine.state.step,
                "\"gpu_used_bytes\": %.0f, \"gpu_free_bytes\": %.0f, \"gpu_busy\": %.2f", usage.used, usage.free,
                usage.busy);
}

static void print_step(const Run *run, const ComputedStep *step, double seconds, double tokens, double flops) {
    const Engine *engine = &run->engine;
    const StepResult *result = &step->result;
    char left[24], rate[80], last[24] = "";
    const uint64_t end = engine_end(engine);
    Buffer words = {0};
    if (end != UNTIL_STEPS) snprintf(last, sizeof last, "/%llu", (unsigned long long)end);
    if (engine->state.scaler.scale > 0) buffer_print(&words, " | scale %g", (double)step->loss_scale);
    if (100 * step->wait_ns >= step->ns)
        buffer_print(&words, " | waiting for data %.0f %%", 100.0 * (double)step->wait_ns / (double)step->ns);
    if (engine->plan.answers)
        buffer_print(&words, " | %.0f %% of the targets count", 100 * (double)result->targets / tokens);
    char loss[32] = "-", norm[32] = "-"; // of a step without targets
    if (result->targets) snprintf(loss, sizeof loss, "%.4f", result->loss);
    if (result->targets) snprintf(norm, sizeof norm, "%.3f", (double)result->norm);
    printf("step %6llu%s | loss %s | norm %s | lr %.2e | %.1f ms | %.0f tok/s | %s | %s left%.*s%s\n",
           (unsigned long long)engine->state.step, last, loss, norm, result->learning_rate, seconds * 1e3,
           tokens / seconds, rate_text(run, flops, rate), time_left(run, left), (int)words.size,
           (const char *)words.data,
           !result->targets   ? " | no target counts: not applied"
           : !result->finite  ? " | not finite: not applied"
           : !result->applied ? " | spike: not applied"
                              : "");
    buffer_close(&words);
    loop_flush_lines();
}

void loop_record_step(Run *run, const ComputedStep *step) {
    Engine *engine = &run->engine;
    const Config *config = &engine->config;
    const bool logged = engine->state.step % (uint64_t)config->log_interval == 0;
    const double seconds = (double)step->ns * 1e-9,
                 tokens = (double)engine_sequences(engine) * (double)config->block_size;
    const double flops = tokens / seconds * model_token_flops(&engine->model);
    if (!run->pace.steps++) run->pace.began_ns = clock_ns() - step->ns;
    run->pace.step_seconds += seconds, run->pace.step_tokens += tokens;
    if (!step->result.targets && !run->warned_of_targets) {
        run->warned_of_targets = true;
        log_warn("no target of step %llu counts with loss_tokens=answers, so it changes nothing: it has no answer, or "
                 "prompts are longer than a sequence (block_size)",
                 (unsigned long long)engine->state.step);
    }
    if (logged && !log_quiet) print_step(run, step, seconds, tokens, flops);
    Buffer line = {0};
    step_add_members(&line, engine, step);
    buffer_print(&line, ", \"ms\": %.3f, \"tok_s\": %.1f, \"product_share\": %.4g, \"wait\": %.3f", seconds * 1e3,
                 tokens / seconds, flops / run->pace.gemm_rate, 100.0 * (double)step->wait_ns / (double)step->ns);
    if (engine->collective.world > 1) buffer_print(&line, ", \"sent\": %llu", (unsigned long long)step->sent);
    engine_record(engine, &line);
    if (logged) record_usage(run);
}

void loop_warn_of_spike(Run *run, const ComputedStep *step) {
    enum { STAYS = 3 };
    const StepResult *result = &step->result;
    if (step->spike <= run->engine.config.spike_z) run->pace.spikes = 0;
    if (!step_is_spike(&run->engine, step)) return;
    if (++run->pace.spikes == STAYS || !result->applied)
        log_warn(
            "step %llu: loss %.4f and norm %.3f: one is %.1f standard deviations above those of the last %d steps%s",
            (unsigned long long)run->engine.state.step, result->loss, (double)result->norm, step->spike,
            run->engine.state.spikes.loss.count - 1,
            result->applied ? ", as in the two steps before" : "; the update is not applied");
}

// The share of the processor that other programs had in the last window of step times: a line of metrics.jsonl if it is
// much, and when it no longer is.
static double record_lost(Run *run) {
    const double much = 0.2;
    const ProcessorTime now = processor_time();
    const double lost = run->pace.processor.used_ns ? processor_lost(run->pace.processor, now) : 0;
    run->pace.processor = now;
    if (lost <= much && run->pace.lost <= much) return lost;
    run->pace.lost = lost;
    metrics_add(&run->metrics, run->engine.state.step, "\"processor_lost\": %.3f", lost);
    return lost;
}

static void warn_of_slow_steps(const Run *run, double median, double ratio, double usual, double lost) {
    char cause[160] = "is the GPU throttled or shared?";
    if (run->engine.backend->in_host_memory && lost > 0.1)
        snprintf(cause, sizeof cause,
                 "other programs had the processor for %.0f %% of the time that this process could use: it is slower "
                 "until they end",
                 100 * lost);
    else if (run->engine.backend->in_host_memory)
        snprintf(
            cause, sizeof cause,
            "this process received %.0f %% of the processor time that it could use: is the processor throttled, or "
            "shared with other virtual machines?",
            100 - 100 * lost);
    log_warn("step %llu: steps take %.1f ms, %.1f times as long as before (%.1f ms): %s",
             (unsigned long long)run->engine.state.step, median, ratio, usual, cause);
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
        log_line("step %llu: steps take %.1f ms again", (unsigned long long)run->engine.state.step, median);
    metrics_add(&run->metrics, run->engine.state.step, "\"step_time_ratio\": %.3f", ratio);
}

void loop_record_sample(Run *run, Bytes text) {
    enum { SAMPLE_BYTES_MAX = 2000 }; // escaped, they fit a line of metrics.jsonl
    Buffer line = {0};
    JsonCarry carry = {0};
    if (text.size > SAMPLE_BYTES_MAX) text.size = SAMPLE_BYTES_MAX;
    buffer_print(&line, "\"sample\": \"");
    json_add_text(&line, text, true, &carry);
    buffer_print(&line, "\"");
    metrics_add(&run->metrics, run->engine.state.step, "%.*s", (int)line.size, (const char *)line.data);
    buffer_close(&line);
}

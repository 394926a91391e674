// The training loop: evaluate, step, save. Signals and messages of the loader are handled between two steps.
#include "trainer/run/train.h"
#include "common/err.h"
#include "common/log.h"
#include "trainer/records/evaluate_progress.h"
#include "trainer/run/ranks.h"
#include "trainer/run/report.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// What the loop does after one of its parts: continue, start over at its top, or exit with the pending error.
typedef enum { NEXT_CONTINUE, NEXT_RESTART, NEXT_EXIT = -1 } Next;

static void print_loss(char out[24], double loss) {
    if (isfinite(loss))
        snprintf(out, 24, "%.17g", loss);
    else
        snprintf(out, 24, "null");
}

// Handles what feed_next returned instead of a batch. The step is dropped: nothing of it was applied.
static Next handle_event(Run *run, FeedResult result) {
    run->stream.requested = run->stream.next;
    run->stop_agreed = result == FEED_STOPPED;
    if (result == FEED_CHANGED && run->collective.world > 1)
        return fail(EX_AGAIN, "stopped: the loader has another dataset"), NEXT_EXIT;
    if (result == FEED_CHANGED) return run_dataset(run) < 0 ? NEXT_EXIT : NEXT_RESTART;
    if (result == FEED_STOPPED) return NEXT_RESTART;
    return NEXT_EXIT;
}

void train_flush_lines(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return;
    log_warn("cannot write to stdout: %s; training continues without its lines", strerror(errno));
    if (!freopen("/dev/null", "w", stdout)) clearerr(stdout);
}

void train_report(Run *run) {
    const uint64_t minute_ns = 60000000000;
    if (!run_owns(run) || report_write(run) == 0) return;
    if (!run->report_warned_ns || clock_ns() - run->report_warned_ns > minute_ns) {
        log_warn("no report: %s; training continues", err_text());
        run->report_warned_ns = clock_ns();
    }
    err_clear();
}

// ---- evaluation

FeedResult train_evaluate(Run *run, double losses[SPLIT_COUNT]) {
    const FeedDataset *dataset = feed_dataset(run->feed);
    batch_stream_cancel(&run->stream);
    for (int split = SPLIT_TRAIN; split <= SPLIT_VAL; split++) {
        uint64_t samples = evaluate_samples(run->config, dataset->tokens[split]);
        FeedResult result =
            evaluate_with_progress(&run->network, &run->source, split, samples, &run->stop, &losses[split]);
        result = step_agree(&run->collective, result);
        if (result != FEED_BATCH) return result;
    }
    return FEED_BATCH;
}

static void record_evaluation(Run *run, const double losses[SPLIT_COUNT], bool *best) {
    RunState *state = &run->state;
    char val[24], trained[24];
    *best = isfinite(losses[SPLIT_VAL]) && !(state->best_loss <= losses[SPLIT_VAL]);
    state->evaluated = true, state->last_loss = losses[SPLIT_VAL];
    if (!state->step) state->first_loss = losses[SPLIT_VAL];
    if (*best) state->best_loss = losses[SPLIT_VAL], state->best_step = state->step;
    print_loss(val, losses[SPLIT_VAL]), print_loss(trained, losses[SPLIT_TRAIN]);
    char length[48] = "";
    if (run->config->eval_block_size)
        snprintf(length, sizeof length, " | sequences of %lld tokens", (long long)run->config->eval_block_size);
    if (!log_quiet)
        printf("step %6llu | train loss %.4f | val loss %.4f%s%s\n", (unsigned long long)state->step,
               losses[SPLIT_TRAIN], losses[SPLIT_VAL], length, *best && state->step ? " | best so far" : "");
    train_flush_lines();
    metrics_add(&run->metrics, state->step, "\"val_loss\": %s, \"train_loss\": %s", val, trained);
}

static Next evaluate_now(Run *run) {
    double losses[SPLIT_COUNT];
    FeedResult result = train_evaluate(run, losses);
    if (result != FEED_BATCH) return handle_event(run, result);
    bool best;
    record_evaluation(run, losses, &best);
    if (run->state.step && (best || run->config->always_save_checkpoint)) run_save(run, false);
    train_report(run);
    return NEXT_CONTINUE;
}

// ---- steps

// After a roll-back, skips the samples whose gradients were not finite.
static void skip_samples(Run *run) {
    RunState *state = &run->state;
    uint64_t consumed = run_use(run)->consumed;
    if (consumed < state->skip_from || consumed >= state->skip_to) return;
    run_use(run)->consumed = state->skip_to;
    log_line("skipping samples %llu to %llu", (unsigned long long)consumed, (unsigned long long)state->skip_to - 1);
    metrics_add(&run->metrics, state->step, "\"passed_from\": %llu, \"passed_to\": %llu", (unsigned long long)consumed,
                (unsigned long long)state->skip_to);
}

// Time to max_iters at the mean rate of this process, evaluations and checkpoints included, as "3:12:05".
static const char *time_left(const Run *run, char out[24]) {
    double steps = (double)(run->state.step - run->loop_first_step);
    double seconds = (double)(clock_ns() - run->loop_started_ns) * 1e-9 / (steps > 0 ? steps : 1);
    uint64_t left = (uint64_t)(seconds * (double)((uint64_t)run->config->max_iters - run->state.step) + 0.5);
    snprintf(out, 24, "%u:%02u:%02u", (unsigned)(left / 3600), (unsigned)(left / 60 % 60), (unsigned)(left % 60));
    return out;
}

// The rate of a step, its share of the GEMM rate and, on a GPU whose peak is known, its share of that:
// "1.23 TFLOP/s (64 % of GEMM rate)".
static const char *rate_text(const Run *run, double flops, char out[80]) {
    int length = snprintf(out, 80, "%.3g TFLOP/s (%.0f %% of GEMM rate", flops * 1e-12, 100 * flops / run->gemm_rate);
    if (run->peak_rate > 0)
        length += snprintf(out + length, 80 - (size_t)length, ", MFU %.1f %%", 100 * flops / run->peak_rate);
    snprintf(out + length, 80 - (size_t)length, ")");
    return out;
}

// sent: bytes, to other processes.
static void record_step(Run *run, const StepResult *result, float loss_scale, uint64_t ns, uint64_t wait_ns,
                        uint64_t sent) {
    const Config *config = run->config;
    uint64_t step = run->state.step;
    double seconds = (double)ns * 1e-9, tokens = (double)run_sequences(run) * (double)config->block_size;
    const double flops = tokens / seconds * model_token_flops(&run->model);
    double wait = ns ? 100.0 * (double)wait_ns / (double)ns : 0;
    char loss[24], norm[24], exchanged[32] = "";
    char words[32] = "", scale[32] = ""; // the loss scale of fp16, for people and for metrics
    if (run->state.scaler.scale > 0) {
        snprintf(words, sizeof words, " | scale %g", (double)loss_scale);
        snprintf(scale, sizeof scale, ", \"loss_scale\": %.9g", (double)loss_scale);
    }
    if (step % (uint64_t)config->log_interval == 0 && !log_quiet) {
        char left[24], rate[80];
        printf("step %6llu/%lld | loss %.4f | norm %.3f | lr %.2e | %.1f ms | %.0f tok/s | %s | "
               "data-wait %.1f %% | %s left%s%s\n",
               (unsigned long long)step, (long long)config->max_iters, result->loss, (double)result->norm,
               result->learning_rate, seconds * 1e3, tokens / seconds, rate_text(run, flops, rate), wait,
               time_left(run, left), words,
               !result->finite    ? " | not finite: not applied"
               : !result->applied ? " | spike: not applied"
                                  : "");
        train_flush_lines();
    }
    print_loss(loss, result->loss), print_loss(norm, (double)result->norm);
    if (run->collective.world > 1) snprintf(exchanged, sizeof exchanged, ", \"sent\": %llu", (unsigned long long)sent);
    metrics_add(&run->metrics, step,
                "\"loss\": %s, \"norm\": %s%s, \"lr\": %.9g, \"ms\": %.3f, \"tok_s\": %.1f, \"product_share\": %.4f, "
                "\"wait\": %.3f%s",
                loss, norm, scale, result->learning_rate, seconds * 1e3, tokens / seconds, flops / run->gemm_rate, wait,
                exchanged);
}

static void record_spike(Run *run, const StepResult *result, double score) {
    log_warn("step %llu: loss %.4f and norm %.3f: one is %.1f standard deviations above those of the last %d steps%s",
             (unsigned long long)run->state.step, result->loss, (double)result->norm, score,
             run->state.spikes.loss.count - 1, result->applied ? "" : "; the update is not applied");
    metrics_add(&run->metrics, run->state.step, "\"spike\": %.3f, \"applied\": %s", score,
                result->applied ? "true" : "false");
}

// Warns when steps become slower, once until they are fast again.
static void check_speed(Run *run, uint64_t ns) {
    const double much = 1.5;
    uint64_t median_ns;
    const double ratio = step_times_add(&run->step_times, ns, &median_ns);
    if (ratio == 0 || (ratio > much) == run->slow) return;
    run->slow = ratio > much;
    const unsigned long long step = (unsigned long long)run->state.step;
    const double median = (double)median_ns * 1e-6, usual = (double)run->step_times.usual_ns * 1e-6;
    if (run->slow)
        log_warn(
            "step %llu: steps take %.1f ms, %.1f times as long as before (%.1f ms): is the %s throttled or shared?",
            step, median, ratio, usual, run->backend->in_host_memory ? "processor" : "GPU");
    else
        log_line("step %llu: steps take %.1f ms again", step, median);
    metrics_add(&run->metrics, run->state.step, "\"step_time_ratio\": %.3f", ratio);
}

// Steps between checkpoints: those between evaluations, which save.
static uint64_t save_interval(const Config *config) {
    return config->eval_interval ? (uint64_t)config->eval_interval : 2000;
}

// Batches are requested ahead up to the next evaluation or the end of the run.
static void start_stream(Run *run) {
    const Config *config = run->config;
    const RunState *state = &run->state;
    const Collective *ranks = &run->collective;
    const uint64_t rows = (uint64_t)config->batch_size.value;
    uint64_t consumed = run_use(run)->consumed, until = save_interval(config);
    until -= state->step % until;
    if (until > (uint64_t)config->max_iters - state->step) until = (uint64_t)config->max_iters - state->step;
    const FeedRequest form = {
        .split = SPLIT_TRAIN,
        .mode = (uint8_t)config->sampling,
        .rows = (uint32_t)rows,
        .seed = (uint64_t)config->seed,
    };
    run->stream.skip = (ranks->world - 1) * rows; // the micro-batches of a step go round the processes
    if (run->print_ranks) run->stream.received = ranks_print_batch, run->stream.received_self = run;
    batch_stream_start(&run->stream, &run->source, &form, consumed + ranks->rank * rows,
                       consumed + until * run_sequences(run));
}

static Next step_now(Run *run) {
    enum { BAD_STEPS = 3 };
    RunState *state = &run->state;
    StepResult result;
    skip_samples(run);
    start_stream(run);
    uint64_t started = clock_ns(), waited = feed_stats(run->feed).wait_ns, sent = collective_sent(&run->collective);
    const StepPosition place = {state->step, state->updates, loss_scaler_scale(&state->scaler), &state->spikes};
    FeedResult found = step_run(&run->network, run->config, &run->stream, &place, &run->stop, &result);
    if (found != FEED_BATCH) return batch_stream_cancel(&run->stream), handle_event(run, found);

    const double spike = spike_score(&state->spikes, result.loss, (double)result.norm);
    spike_add(&state->spikes, result.loss, (double)result.norm, run->config->spike_z);
    state->step++, state->updates += result.applied;
    run_use(run)->consumed += run_sequences(run);
    state->tokens += run_sequences(run) * (uint64_t)run->config->block_size;
    state->evaluated = false, state->last_loss = NAN;
    state->nonfinite += !result.finite;
    state->nonfinite_streak = result.finite ? 0 : state->nonfinite_streak + 1;
    loss_scaler_step(&state->scaler, isfinite(result.loss), isfinite(result.norm));
    const uint64_t ns = clock_ns() - started, wait_ns = feed_stats(run->feed).wait_ns - waited;
    record_step(run, &result, place.loss_scale, ns, wait_ns, collective_sent(&run->collective) - sent);
    check_speed(run, ns - (wait_ns < ns ? wait_ns : ns));
    if (spike > run->config->spike_z && run->config->spike_action != SPIKE_OFF) record_spike(run, &result, spike);
    if (state->nonfinite_streak - state->scaler.overflow_streak == BAD_STEPS)
        return batch_stream_cancel(&run->stream), run_roll_back(run) < 0 ? NEXT_EXIT : NEXT_RESTART;
    return NEXT_CONTINUE;
}

// ---- the loop

// After a rank was lost, whether this process still has the state of the last whole step. Where the ranks divide the
// optimizer's state, that of the lost one is in the last checkpoint alone. A GPU may have run the update with gradients
// that the lost one had not sent.
static bool has_state(const Run *run) { return run->plan.shards == 1 && run->backend->in_host_memory; }

static void log_lost_state(const Run *run) {
    char path[PATH_MAX_BYTES] = "";
    uint64_t step = 0;
    checkpoint_any(run->config->out_dir, path, &step);
    log_line("%s is lost with its process: run the same command again to resume at step %llu%s",
             run->plan.shards > 1 ? "a part of the optimizer's state" : "the last step", (unsigned long long)step,
             *path ? ", the last that is saved" : "");
}

// Saves the steps since the last checkpoint, unless they are the error (81), and exits with the pending error.
static int save_and_exit(Run *run) {
    Error cause;
    ranks_agree(run, -1);
    const bool lost = run->collective.lost, stateless = lost && !has_state(run);
    if (lost && ranks_take_over(run) && !stateless) log_line("rank 0 has ended: saving in its place");
    err_take(&cause);
    if (stateless) {
        run_check_save(run);
        if (run_owns(run)) log_lost_state(run);
    } else if (cause.code != EX_NONFINITE && run_save(run, true) < 0) {
        if (cause.code == EX_AGAIN) return fail_in("%s, which is not saved", cause.text);
        log_warn("cannot save step %llu: %s", (unsigned long long)run->state.step, err_text());
        err_clear();
    }
    if (cause.code == EX_AGAIN && run->saved_step && run_owns(run) && !stateless)
        log_line("saved at step %llu: run the same command again to resume", (unsigned long long)run->saved_step);
    err_give(&cause);
    return -1;
}

static Next loop_once(Run *run) {
    const RunState *state = &run->state;
    run_check_save(run);
    bool last = state->step >= (uint64_t)run->config->max_iters;
    if (run->collective.world > 1 ? run->stop_agreed : run->stop)
        return fail(EX_AGAIN, "stopped at step %llu", (unsigned long long)state->step);
    if (run->config->eval_interval) {
        if (!state->evaluated && (last || state->step % (uint64_t)run->config->eval_interval == 0))
            return evaluate_now(run);
    } else if (state->step && state->step % save_interval(run->config) == 0)
        run_save(run, false);
    return last ? NEXT_RESTART : step_now(run);
}

int train(Run *run) {
    run->loop_started_ns = clock_ns(), run->loop_first_step = run->state.step;
    while (run->state.step < (uint64_t)run->config->max_iters || (run->config->eval_interval && !run->state.evaluated))
        if (loop_once(run) == NEXT_EXIT) return save_and_exit(run);
    return run_save(run, true);
}

// The training loop: evaluate, step, save. Signals and messages of the loader are handled between two steps.
#include "trainer/run/train.h"
#include "common/err.h"
#include "common/log.h"
#include "trainer/records/report.h"
#include "trainer/run/forecast.h"
#include "trainer/run/loop_record.h"
#include "trainer/run/run_data.h"
#include "trainer/run/run_save.h"
#include <math.h>

// How the loop continues: with its next part, from its top, or by exiting with the pending error.
typedef enum { NEXT_CONTINUE, NEXT_RESTART, NEXT_EXIT = -1 } Next;

// Handles what feed_next returned instead of a batch. The step is dropped: nothing of it was applied.
static Next handle_event(Run *run, FeedResult result) {
    run->stop_agreed = result == FEED_STOPPED;
    if (result == FEED_CHANGED && run->collective.world > 1)
        return fail(EX_AGAIN, "stopped: the loader has another dataset"), NEXT_EXIT;
    if (result == FEED_CHANGED) return run_data_update(run) < 0 ? NEXT_EXIT : NEXT_RESTART;
    if (result == FEED_STOPPED) return NEXT_RESTART;
    return NEXT_EXIT;
}

void train_report(Run *run) {
    const uint64_t minute_ns = 60000000000;
    static uint64_t warned_ns;
    const Report report = {&run->config, &run->state, run->backend, run->backend_text, &run->model, &run->plan};
    if (!run_owns(run)) return;
    if (lock_check(&run->lock, run->config.out_dir) == 0 && report_write(&report) == 0) return;
    if (!warned_ns || clock_ns() - warned_ns > minute_ns) {
        log_warn("no report: %s; training continues", err_text());
        warned_ns = clock_ns();
    }
    err_clear();
}

// ---- evaluation

FeedResult train_evaluate(Run *run, Evaluation evaluations[SPLIT_COUNT]) {
    batch_stream_cancel(&run->stream);
    for (int split = SPLIT_TRAIN; split <= SPLIT_VAL; split++) {
        evaluation_init(&evaluations[split], &run->config, run->feed, split, run_use(run)->consumed);
        FeedResult result =
            evaluation_run(&evaluations[split], &run->network, &run->source, run->token_bytes, &run->stop);
        result = step_agree(&run->collective, result);
        if (result != FEED_BATCH) return result;
    }
    return FEED_BATCH;
}

static Next evaluate_now(Run *run) {
    Evaluation evaluations[SPLIT_COUNT];
    FeedResult result = train_evaluate(run, evaluations);
    if (result != FEED_BATCH) return handle_event(run, result);
    const bool best = loop_record_evaluation(run, evaluations);
    const bool last = run->state.step >= (uint64_t)run->config.max_iters; // train saves it
    if (run->state.step && !last && (best || run->config.always_save_checkpoint)) run_save(run, false);
    train_report(run);
    return NEXT_CONTINUE;
}

// ---- steps

// Skips the samples whose gradients were not finite, after a roll-back.
static void skip_samples(Run *run) {
    RunState *state = &run->state;
    uint64_t consumed = run_use(run)->consumed;
    if (consumed < state->skip_from || consumed >= state->skip_to) return;
    run_use(run)->consumed = state->skip_to;
    log_line("skipping samples %llu to %llu", (unsigned long long)consumed, (unsigned long long)state->skip_to - 1);
    metrics_add(&run->metrics, state->step, "\"passed_from\": %llu, \"passed_to\": %llu", (unsigned long long)consumed,
                (unsigned long long)state->skip_to);
}

// Batches are requested ahead up to the next evaluation or the end of the run.
static void start_stream(Run *run) {
    const Config *config = &run->config;
    const RunState *state = &run->state;
    const Collective *ranks = &run->collective;
    const uint64_t rows = (uint64_t)config->batch_size.value;
    const uint64_t consumed = run_use(run)->consumed, between = (uint64_t)config->eval_interval;
    uint64_t until = (uint64_t)config->max_iters - state->step;
    if (between && until > between - state->step % between) until = between - state->step % between;
    const FeedRequest form = {
        .split = SPLIT_TRAIN,
        .mode = (uint8_t)config->sampling,
        .rows = (uint32_t)rows,
        .seed = (uint64_t)config->seed,
    };
    // The processes take the micro-batches of a step in turn.
    if (ranks->world > 1)
        run->stream.turns = (BatchTurns){ranks->rank * rows, (ranks->world - 1) * rows, run_sequences(run)};
    batch_stream_start(&run->stream, &run->source, &form, consumed, consumed + until * run_sequences(run));
}

static Next step_now(Run *run) {
    enum { BAD_STEPS = 3 };
    RunState *state = &run->state;
    StepResult result;
    skip_samples(run);
    start_stream(run);
    chain_begin(&run->chain);
    const uint64_t first_sample = run_use(run)->consumed;
    uint64_t started = clock_ns(), waited = feed_stats(run->feed).wait_ns, sent = collective_sent(&run->collective);
    const StepPosition place = {state->step, state->updates, loss_scaler_scale(&state->scaler), &state->spikes};
    FeedResult found = step_gradients(&run->network, &run->config, &run->stream, &place, &run->stop);
    if (found == FEED_BATCH && chain_share(&run->chain, &run->network) < 0) found = FEED_ERROR;
    if (found == FEED_BATCH && step_apply(&run->network, &run->config, &place, &result) < 0) found = FEED_ERROR;
    if (found != FEED_BATCH) return batch_stream_cancel(&run->stream), handle_event(run, found);

    if (!result.finite && !state->nonfinite_streak) run->before_streak = *state;
    const double spike = spike_score(&state->spikes, result.loss, (double)result.norm);
    spike_add(&state->spikes, result.loss, (double)result.norm, run->config.spike_z);
    state->step++, state->updates += result.applied;
    run_use(run)->consumed += run_sequences(run);
    state->tokens += run_sequences(run) * (uint64_t)run->config.block_size;
    state->evaluated = false, state->last_loss = NAN;
    state->nonfinite += !result.finite;
    state->nonfinite_streak = result.finite ? 0 : state->nonfinite_streak + 1;
    chain_end(&run->chain, &run->network, &run->config, &result, state);
    if (result.targets) loss_scaler_step(&state->scaler, isfinite(result.loss), isfinite(result.norm));
    const uint64_t ns = clock_ns() - started, wait_ns = feed_stats(run->feed).wait_ns - waited;
    loop_record_step(run, &result, first_sample, place.loss_scale, ns, wait_ns,
                     collective_sent(&run->collective) - sent);
    loop_record_speed(run, ns - (wait_ns < ns ? wait_ns : ns));
    if (spike <= run->config.spike_z)
        run->pace.spikes = 0;
    else if (run->config.spike_action != SPIKE_OFF)
        loop_record_spike(run, &result, spike);
    if (state->nonfinite_streak - state->scaler.overflow_streak == BAD_STEPS && !run->replays)
        return batch_stream_cancel(&run->stream), run_roll_back(run) < 0 ? NEXT_EXIT : NEXT_RESTART;
    return NEXT_CONTINUE;
}

// ---- the loop

// Whether this process still has the state of the last whole step after a rank was lost. Where the ranks divide the
// optimizer's state, the part of the lost rank is in the last checkpoint alone. A GPU may have run the update without
// the gradients of the lost rank.
static bool has_state(const Run *run) { return !run_divided(run) && run->backend->in_host_memory; }

static void log_lost_state(const Run *run) {
    char path[PATH_MAX_BYTES] = "";
    uint64_t step = 0;
    checkpoint_any(run->config.out_dir, path, &step);
    log_line("%s is lost with its process: run the same command again to resume at step %llu%s",
             run_divided(run) ? "a part of the optimizer's state" : "the last step", (unsigned long long)step,
             *path ? ", the last that is saved" : "");
}

// Locks the directory after a rank was lost. True when this process now owns it, because rank 0 has ended.
static bool take_over(Run *run) {
    const bool taken =
        !ranks_first(&run->collective) && lock_take(&run->lock, run->config.out_dir, "another out_dir") == 0;
    err_clear();
    if (taken && has_state(run) &&
        metrics_take_over(&run->metrics, run->config.out_dir, run->state.step, run->config.tensorboard_log) < 0) {
        log_warn("%s", err_text());
        err_clear();
    }
    return taken;
}

// Where the last steps were not finite, the run goes on before them: they are computed again after the resume, and
// whether the run rolls back, and to which samples, does not depend on where it was stopped.
static void leave_streak(Run *run) {
    const uint64_t step = run->state.step, streak = run->state.nonfinite_streak;
    if (!streak || run->before_streak.step + streak != step) return; // a part of it was resumed
    run->state = run->before_streak;
    log_warn("the last %llu steps were not finite and are not saved: the next start computes them again",
             (unsigned long long)streak);
}

// Saves the steps since the last checkpoint, unless they are the error (81), and exits with the pending error.
static int save_and_exit(Run *run) {
    Error cause;
    ranks_agree(&run->collective, -1);
    const bool lost = run->collective.lost, stateless = lost && !has_state(run);
    err_take(&cause);
    if (!lost && cause.code != EX_NONFINITE) leave_streak(run);
    if (lost && take_over(run) && !stateless) log_line("rank 0 has ended: saving in its place");
    if (stateless) {
        run_check_save(run);
        if (run_owns(run)) log_lost_state(run);
    } else if (cause.code != EX_NONFINITE && run_save(run, true) < 0) {
        if (cause.code == EX_AGAIN) return fail_in("%s, which is not saved", cause.text);
        log_warn("cannot save step %llu: %s", (unsigned long long)run->state.step, err_text());
        err_clear();
    }
    if (cause.code != EX_NONFINITE && run->saves.step && run_owns(run) && !stateless)
        log_line("saved at step %llu: run the same command again to resume", (unsigned long long)run->saves.step);
    err_give(&cause);
    return -1;
}

static Next loop_once(Run *run) {
    const RunState *state = &run->state;
    run_check_save(run);
    bool last = state->step >= (uint64_t)run->config.max_iters;
    if (run->collective.world > 1 ? run->stop_agreed : run->stop)
        return fail(EX_AGAIN, "stopped at step %llu", (unsigned long long)state->step);
    if (run->config.eval_interval && !state->evaluated &&
        (last || state->step % (uint64_t)run->config.eval_interval == 0))
        return evaluate_now(run);
    if (last) return NEXT_RESTART;
    const int due = run_save_due(run);
    if (due < 0) return NEXT_EXIT;
    if (due) run_save(run, false);
    return step_now(run);
}

int train_round(Run *run) { return loop_once(run) == NEXT_EXIT ? -1 : 0; }

int train(Run *run) {
    if (!run_is_complete(run)) forecast_log(run);
    run->pace.first_step = run->saves.begun = run->state.step;
    while (run->state.step < (uint64_t)run->config.max_iters || (run->config.eval_interval && !run->state.evaluated))
        if (loop_once(run) == NEXT_EXIT) return save_and_exit(run);
    return run_save(run, true);
}

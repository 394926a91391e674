// Saves beside training and at the end, and the roll-back to the last checkpoint.
#include "trainer/run/run_save.h"
#include "common/err.h"
#include "common/log.h"
#include "common/machine/stop.h"
#include "trainer/engine/engine_data.h"
#include "trainer/run/run_until.h"
#include <math.h>
#include <unistd.h>

static void warn_unsaved(void) {
    log_warn("no checkpoint: %s; training continues", err_text());
    err_clear();
}

// The new estimate after the last save. It at most doubles, so that one pause of the machine does not set it.
static double measured(double before, double now) { return before > 0 && now > 2 * before ? 2 * before : now; }

double save_last_s(double beside_s, ProcessorTime thread) {
    return fmax(0, beside_s - (double)thread.waited_ns * 1e-9) + (double)thread.used_ns * 1e-9;
}

// Records a save that has ended. A failure is a warning.
static void collect_save(Run *run, bool wait) {
    int result = checkpoint_writer_result(&run->saves.writer, wait);
    if (result > 0) {
        RunSaves *saves = &run->saves;
        const double seconds = (double)(clock_ns() - saves->started_ns) * 1e-9;
        saves->seconds = measured(saves->seconds, seconds);
        saves->cost = measured(saves->cost, saves->wait + (double)saves->writer.processor.used_ns * 1e-9);
        saves->last = measured(saves->last, save_last_s(seconds - saves->wait, saves->writer.processor));
        saves->step = saves->writer.state.step, saves->evaluated = saves->writer.state.evaluated;
        metrics_add(&run->metrics, run->engine.state.step, "\"saved_step\": %llu, \"save_ms\": %.1f",
                    (unsigned long long)saves->step, seconds * 1e3);
    }
    if (result < 0) warn_unsaved();
}

void run_check_save(Run *run) { collect_save(run, false); }

// A run before its first step saves nothing, but a run without steps saves the initial weights.
static bool is_saved(const Run *run) {
    const RunState *state = &run->engine.state;
    if (!run->engine.config.max_iters && !*run->engine.begins_with) return false;
    return run->saves.step == state->step && (run->saves.evaluated || !state->evaluated || !state->step);
}

static void mark_saved(Run *run) {
    run->saves.step = run->engine.state.step, run->saves.evaluated = run->engine.state.evaluated;
}

// Writes a checkpoint: in the writer's thread if `beside` and the writer is free, else before it returns.
static int write_checkpoint(Run *run, bool beside, uint64_t started) {
    RunSaves *saves = &run->saves;
    const Network *network = engine_divided(&run->engine) ? NULL : &run->engine.network;
    if (lock_check(&run->lock, run->engine.config.out_dir) < 0 || metrics_replace(&run->metrics) < 0 ||
        metrics_flush(&run->metrics) < 0)
        return -1;
    if (beside && checkpoint_writer_start(&saves->writer, network, &run->engine.state, run->metrics.fd)) {
        saves->started_ns = started;
        saves->wait = (double)(clock_ns() - started) * 1e-9;
        metrics_add(&run->metrics, run->engine.state.step, "\"save_wait_ms\": %.1f", saves->wait * 1e3);
        return 0;
    }
    if (metrics_sync(&run->metrics) < 0 ||
        checkpoint_save(engine_whole(&run->engine), &run->engine.state, &run->engine.config, run->engine.config.out_dir,
                        &run->lock) < 0)
        return -1;
    const double seconds = (double)(clock_ns() - started) * 1e-9;
    saves->seconds = measured(saves->seconds, seconds), saves->cost = measured(saves->cost, seconds);
    saves->last = measured(saves->last, seconds);
    return mark_saved(run), 0;
}

// Without the last save the last steps are lost: waits a minute for the disk to have room for it, at most to the time
// of the run, or until the next signal. It sends the other processes a message every second, because they give up a
// process that is silent for data_timeout.
static void wait_for_space(Run *run) {
    const int most = (int)fmin(60, fmax(0, run_until_left(run)));
    const uint64_t bytes = checkpoint_bytes(&run->engine.model, run->engine.plan.optimizer);
    const bool writes = run_owns(run) && !is_saved(run);
    const int signals = stop_requested;
    bool full = true;
    for (int waited = 0; full; waited++) {
        full = writes && waited < most && stop_requested == signals &&
               checkpoint_check_space(run->engine.config.out_dir, bytes) < 0;
        if (full && !waited) log_warn("the last save: %s; waiting %d s for space, or until a signal", err_text(), most);
        err_clear();
        if (collective_broadcast(&run->engine.collective, &full, sizeof full) < 0) err_clear(); // each continues alone
        if (full && writes) sleep(1);
    }
}

static int save(Run *run, bool beside, uint64_t started) {
    bool needed = !is_saved(run);
    const int status = engine_divided(&run->engine)
                           ? ranks_gather_state(&run->engine.network, engine_whole(&run->engine), &needed)
                           : 0;
    if (status == 0 && !needed) return 0;
    if (!run_owns(run)) return mark_saved(run), status;
    return status < 0 ? -1 : write_checkpoint(run, beside, started);
}

int run_save(Run *run, bool last) {
    if (run->engine.state.nonfinite_streak && !last) return 0;
    run->saves.begun = run->engine.state.step;
    collect_save(run, true);
    const uint64_t started = clock_ns();
    if (last) wait_for_space(run);
    const int status = save(run, !last, started);
    if (last)
        return run->engine.collective.lost ? status
                                           : ranks_agree(&run->engine.collective, status); // all exit with its code
    if (status == 0 || !run_owns(run)) return status;
    warn_unsaved();
    return 0;
}

// ---- checkpoints between evaluations

double save_interval_s(double save_s, double run_s, unsigned kills) {
    const double hour_s = 3600, between_kills_s = (run_s + hour_s) / (kills + 1);
    return sqrt(2 * save_s * between_kills_s);
}

static uint64_t plan_interval(const Run *run) {
    const double disk_bytes_s = 500e6; // a guess, until a save was measured
    const double guess_s = (double)checkpoint_bytes(&run->engine.model, run->engine.plan.optimizer) / disk_bytes_s;
    const double cost_s = run->saves.seconds > 0 ? run->saves.cost : guess_s;
    const double step_s = run->pace.step_seconds / (double)run->pace.steps;
    const double interval_s = save_interval_s(cost_s, step_s * (double)run->engine.state.step, run->metrics.kills);
    return (uint64_t)fmax(1, fmax(interval_s, run->saves.seconds) / step_s); // a save begins when the last has ended
}

int run_save_due(Run *run) {
    RunSaves *saves = &run->saves;
    const AutoInt *given = &run->engine.config.checkpoint_interval;
    const uint64_t done = run->pace.steps, since = run->engine.state.step - saves->begun;
    if (!done || !since) return 0;
    if (run->engine.state.step == schedule_cooldown(&run->engine.config, &run->engine.state.cooldown)) return 1;
    const uint64_t each = (uint64_t)given->value;
    if (!given->is_auto) return each && run->engine.state.step / each > saves->begun / each;
    const bool due = saves->interval && since >= saves->interval, doubled = !(done & (done - 1));
    if (due || doubled) {
        saves->interval = plan_interval(run);
        if (collective_broadcast(&run->engine.collective, &saves->interval, sizeof saves->interval) < 0) return -1;
    }
    return due;
}

// ---- going back

// Loads the newest checkpoint, or the initial weights.
static int restore(Run *run, RunState *state) {
    char path[PATH_MAX_BYTES];
    int found = checkpoint_find(run->engine.config.out_dir, &run->engine.config, path, state);
    if (found < 0) return -1;
    if (found) return checkpoint_load(engine_whole(&run->engine), path, true);
    *state = run->engine.start;
    network_reset_optimizer(engine_whole(&run->engine));
    return engine_load(&run->engine);
}

// Removes the lines of steps after the restored one from metrics.jsonl.
static int reopen_metrics(Run *run) {
    const MetricsEnd end = run_metrics_end(&run->engine.state);
    if (!run_owns(run)) return metrics_follow(&run->metrics, end), 0;
    metrics_close(&run->metrics);
    return metrics_open(&run->metrics, run->engine.config.out_dir, end, run->engine.config.tensorboard_log);
}

int run_roll_back(Run *run) {
    const RunState bad = run->engine.state;
    const uint64_t skip_to = engine_use(&run->engine)->consumed,
                   skipped = bad.nonfinite_streak * engine_sequences(&run->engine);
    RunState restored = bad, *state = &run->engine.state;
    if (bad.rolled_back)
        return fail(EX_NONFINITE,
                    "step %llu: the loss is again not finite after a roll-back; try a lower learning_rate",
                    (unsigned long long)bad.step);
    collect_save(run, true);
    if (ranks_agree(&run->engine.collective, run_owns(run) ? restore(run, &restored) : 0) < 0) return -1;
    *state = restored;
    if (collective_broadcast(&run->engine.collective, state, sizeof *state) < 0 ||
        ranks_share_weights(&run->engine.network, engine_whole(&run->engine)) < 0)
        return -1;
    loss_scaler_init(&state->scaler, dtype_is_narrow(run->engine.backend->act_type));
    if (reopen_metrics(run) < 0 || engine_data_update(&run->engine, true) < 0) return -1;
    state->rolled_back = true, state->nonfinite = bad.nonfinite, state->nonfinite_streak = 0;
    state->skip_from = skip_to - skipped, state->skip_to = skip_to;
    log_warn("three steps in a row were not finite: going back from step %llu to %llu and skipping their samples",
             (unsigned long long)bad.step, (unsigned long long)state->step);
    metrics_add(&run->metrics, state->step,
                "\"rolled_back_from\": %llu, \"nonfinite\": %llu, \"skip_from\": %llu, \"skip_to\": %llu",
                (unsigned long long)bad.step, (unsigned long long)state->nonfinite,
                (unsigned long long)state->skip_from, (unsigned long long)state->skip_to);
    return 0;
}

// The training loop: evaluate, grade, step, save. Signals and messages of the loader are handled between two steps.
#include "trainer/run/train.h"
#include "common/err.h"
#include "common/log.h"
#include "common/machine/stop.h"
#include "trainer/engine/engine_data.h"
#include "trainer/records/report.h"
#include "trainer/run/forecast.h"
#include "trainer/run/loop_record.h"
#include "trainer/run/run_items.h"
#include "trainer/run/run_save.h"
#include "trainer/run/run_until.h"

// How the loop continues: with its next part, from its top, or by exiting with the pending error.
typedef enum { NEXT_CONTINUE, NEXT_RESTART, NEXT_EXIT = -1 } Next;

// Handles the result of feed_next instead of a batch. The step is dropped: nothing of it was applied.
static Next handle_event(Run *run, FeedResult result) {
    run->stop_agreed = result == FEED_STOPPED;
    if (result == FEED_CHANGED && run->engine.collective.world > 1)
        return fail(EX_AGAIN, "stopped: the loader has another dataset"), NEXT_EXIT;
    if (result == FEED_CHANGED) return engine_data_update(&run->engine, true) < 0 ? NEXT_EXIT : NEXT_RESTART;
    if (result == FEED_STOPPED) return NEXT_RESTART;
    return NEXT_EXIT;
}

void train_report(Run *run) {
    const uint64_t minute_ns = 60000000000;
    static uint64_t warned_ns;
    const Report report = {&run->engine.config,      &run->engine.state, run->engine.backend,
                           run->engine.backend_text, &run->engine.model, &run->engine.plan};
    if (!run_owns(run)) return;
    if (lock_check(&run->lock, run->engine.config.out_dir) == 0 && report_write(&report) == 0) return;
    if (!warned_ns || clock_ns() - warned_ns > minute_ns) {
        log_warn("no report: %s; training continues", err_text());
        warned_ns = clock_ns();
    }
    err_clear();
}

// ---- evaluation

static Next evaluate_now(Run *run) {
    Evaluation evaluations[SPLIT_COUNT];
    const uint64_t started = clock_ns();
    FeedResult result = engine_evaluate(&run->engine, evaluations);
    if (result != FEED_BATCH) return handle_event(run, result);
    const bool best = engine_take_evaluation(&run->engine, evaluations);
    if (!log_quiet) loop_print_evaluation(&run->engine, evaluations, best);
    const bool last = run->engine.state.step >= engine_end(&run->engine); // train saves it
    const uint64_t saving = clock_ns();
    if (run->engine.state.step && !last && (best || run->engine.config.always_save_checkpoint)) run_save(run, false);
    const double save_s = (double)(clock_ns() - saving) * 1e-9;
    train_report(run);
    run_until_evaluated(run, (double)(clock_ns() - started) * 1e-9 - save_s, save_s);
    return NEXT_CONTINUE;
}

static Next grade_now(Run *run) {
    const bool always = run->engine.config.always_save_checkpoint;
    if (always) run_save(run, false);
    if (run_items_grade(run) < 0) return NEXT_EXIT;
    if (!always && run->engine.state.graded_step == run->engine.state.step) run_save(run, false);
    return NEXT_CONTINUE;
}

// ---- steps

static Next step_now(Run *run) {
    enum { BAD_STEPS = 3 };
    const RunState *state = &run->engine.state;
    ComputedStep step;
    FeedResult found = engine_step(&run->engine, &step);
    if (found != FEED_BATCH) return handle_event(run, found);
    loop_record_step(run, &step);
    loop_record_speed(run, step.ns - (step.wait_ns < step.ns ? step.wait_ns : step.ns));
    engine_record_spike(&run->engine, &step);
    loop_warn_of_spike(run, &step);
    if (state->nonfinite_streak - state->scaler.overflow_streak == BAD_STEPS)
        return batch_stream_cancel(&run->engine.stream),
               run_roll_back(run) < 0 || run_items_find(run) < 0 ? NEXT_EXIT : NEXT_RESTART;
    return NEXT_CONTINUE;
}

// ---- the loop

// Whether this process still has the state of the last whole step after a rank was lost. If the ranks divide the
// optimizer's state, the part of the lost rank is in the last checkpoint alone. A GPU may have run the update without
// the gradients of the lost rank.
static bool has_state(const Run *run) { return !engine_divided(&run->engine) && run->engine.backend->in_host_memory; }

static void log_lost_state(const Run *run) {
    char path[PATH_MAX_BYTES] = "";
    uint64_t step = 0;
    checkpoint_any(run->engine.config.out_dir, path, &step);
    log_line("%s is lost with its process: run the same command again to resume at step %llu%s",
             engine_divided(&run->engine) ? "a part of the optimizer's state" : "the last step",
             (unsigned long long)step, *path ? ", the last that is saved" : "");
}

// Locks the directory after a rank was lost. True when this process now owns it, because rank 0 has ended.
static bool take_over(Run *run) {
    const bool taken = !ranks_first(&run->engine.collective) &&
                       lock_take(&run->lock, run->engine.config.out_dir, "another out_dir") == 0;
    err_clear();
    if (taken && has_state(run) &&
        metrics_take_over(&run->metrics, run->engine.config.out_dir, run->engine.state.step,
                          run->engine.config.tensorboard_log) < 0) {
        log_warn("%s", err_text());
        err_clear();
    }
    return taken;
}

// If the last steps were not finite, the run continues before them: they are computed again after the resume, and
// whether the run rolls back, and to which samples, does not depend on where it was stopped.
static void leave_streak(Run *run) {
    const uint64_t step = run->engine.state.step, streak = run->engine.state.nonfinite_streak;
    if (!streak || run->engine.before_streak.step + streak != step) return; // a part of it was resumed
    run->engine.state = run->engine.before_streak;
    log_warn("the last %llu steps were not finite and are not saved: the next start computes them again",
             (unsigned long long)streak);
}

// Saves the steps since the last checkpoint, unless they are the error (81), and exits with the pending error.
static int save_and_exit(Run *run) {
    Error cause;
    ranks_agree(&run->engine.collective, -1);
    const bool lost = run->engine.collective.lost, stateless = lost && !has_state(run);
    err_take(&cause);
    if (!lost && cause.code != EX_NONFINITE) leave_streak(run);
    if (lost && take_over(run) && !stateless) log_line("rank 0 has ended: saving in its place");
    if (stateless) {
        run_check_save(run);
        if (run_owns(run)) log_lost_state(run);
    } else if (cause.code != EX_NONFINITE && run_save(run, true) < 0) {
        if (cause.code == EX_AGAIN) return fail_in("%s, which is not saved", cause.text);
        log_warn("cannot save step %llu: %s", (unsigned long long)run->engine.state.step, err_text());
        err_clear();
    }
    uint64_t saved; // the directory may be gone
    const char *next = cause.code == EX_USAGE ? "" : ": run the same command again to resume";
    if (cause.code != EX_NONFINITE && run->saves.step && run_owns(run) && !stateless &&
        checkpoint_up_to(run->engine.config.out_dir, run->saves.step, &saved) && saved == run->saves.step)
        log_line("saved at step %llu%s", (unsigned long long)run->saves.step, next);
    err_give(&cause);
    return -1;
}

static Next loop_once(Run *run) {
    const RunState *state = &run->engine.state;
    run_check_save(run);
    bool last = state->step >= engine_end(&run->engine);
    if (run->engine.collective.world > 1 ? run->stop_agreed : stop_requested)
        return fail(EX_AGAIN, "stopped at step %llu", (unsigned long long)state->step);
    if (engine_evaluation_due(&run->engine)) return evaluate_now(run);
    if (last) return NEXT_RESTART;
    if (run_items_due(run)) return grade_now(run);
    const int due = run_save_due(run);
    if (due < 0) return NEXT_EXIT;
    if (due) run_save(run, false);
    if (run_until_look(run) < 0) return NEXT_EXIT;
    return state->step < engine_end(&run->engine) ? step_now(run) : NEXT_RESTART;
}

int train(Run *run) {
    if (run_until_open(run) < 0 || run_items_open(run) < 0) return -1;
    if (!run_is_complete(run)) forecast_log(run);
    run->pace.first_step = run->saves.begun = run->engine.state.step;
    while (run->engine.state.step < engine_end(&run->engine) ||
           (run->engine.config.eval_interval && !run->engine.state.evaluated))
        if (loop_once(run) == NEXT_EXIT) return save_and_exit(run);
    if (run->engine.state.nonfinite_streak)
        log_warn("the last %llu steps were not finite: with a larger max_iters this run would skip other samples than "
                 "one that does not end here",
                 (unsigned long long)run->engine.state.nonfinite_streak);
    if (run_save(run, true) < 0) {
        if (run_owns(run))
            log_warn("the steps after %llu are not saved: the same command computes them again",
                     (unsigned long long)run->saves.step);
        return -1;
    }
    return run_items_due(run) ? run_items_grade(run) : 0;
}

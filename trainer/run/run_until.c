// Begins the cooldown by the clock, and records when, so that a replay needs no clock.
#include "trainer/run/run_until.h"
#include "common/err.h"
#include "common/json_write.h"
#include "common/log.h"
#include "common/machine/stop.h"
#include "common/sizes.h"
#include "trainer/config/until.h"
#include "trainer/model/sample.h"
#include "trainer/run/forecast.h"
#include "trainer/run/run_save.h"
#include <jansson.h>
#include <math.h>
#include <string.h>

static double seconds_of(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double run_until_left(const Run *run) {
    return run->until.at > 0 ? run->until.at - seconds_of(run->until.clock) : INFINITY;
}

static bool is_set(const Run *run) { return *run->engine.config.until; }

// Takes the time in the record, if it is that of this key. `later`: seconds by which this one is later.
static void find_recorded(const Run *run, time_t *at, time_t *later) {
    const char *text = json_string_value(json_object_get(run->until.line, "until"));
    // another job has another end
    const bool same = text && !strcmp(text, run->engine.config.until) && strcmp(text, "job") != 0;
    const time_t recorded = (time_t)json_integer_value(json_object_get(run->until.line, "until_at"));
    if (same) *at = recorded;
    *later = *run->engine.begins_with && text && *text ? *at - recorded : 0;
}

static void log_time(const char *what, time_t at) {
    const double seconds = (double)(at - until_start());
    char text[48], left[16];
    log_line("%s until %s%s%s", what, until_text(at, text), seconds > 0 ? ", in " : "",
             seconds > 0 ? human_time(left, seconds) : "");
}

// Names the checkpoint from which the run can be cooled down in another way.
static void warn_of_cooldown(const Run *run, const char *what) {
    const unsigned long long begun = run->engine.state.cooldown.begun;
    log_warn("%s: --branch_from=%s/ckpt-%08llu with another out_dir goes on from before the fall of the rate", what,
             run->engine.config.out_dir, begun);
}

static void record_time(Run *run, time_t at) {
    Buffer line = {0};
    run->until.recorded_at = (double)at;
    buffer_print(&line, ", \"until\": ");
    json_add_string(&line, run->engine.config.until);
    buffer_print(&line, ", \"until_at\": %lld", (long long)at);
    metrics_add_members(&run->metrics, run->engine.state.step, (Bytes){line.data, line.size});
    buffer_close(&line);
}

static int open_time(Run *run) {
    const Config *config = &run->engine.config;
    const time_t start = until_start();
    const bool begins = !*run->engine.begins_with;
    Until until;
    time_t later;
    if (until_parse(&until, config->until, start) < 0) return -1;
    run->until.now = until.now || run->until.at_once;
    if (until.now && begins) return fail(EX_USAGE, "until is now, and there is no step to cool down from");
    if (until.now) return 0;
    find_recorded(run, &until.at, &later);
    log_time(later ? "now" : begins ? "training" : "continuing", until.at);
    if (until.at <= start)
        return fail(EX_USAGE, "until %s has passed: %sanother time %s it", config->until,
                    begins ? "" : "--until=now cools the run down, ", begins ? "starts" : "continues");
    // A duration is not moved by a clock that is set, and counts while the machine sleeps.
    run->until.clock = until.duration ? CLOCK_BOOTTIME : CLOCK_REALTIME;
    run->until.at = (double)until.at + seconds_of(run->until.clock) - seconds_of(CLOCK_REALTIME);
    if (later > 0 && run->engine.state.cooldown.begun)
        warn_of_cooldown(run, "the weights have been cooling down for an earlier time");
    record_time(run, until.at);
    return 0;
}

// The clock was set, which does not move a duration: the record has its end by the clock as it is now, for a resume.
static void follow_clock(Run *run) {
    const double least_s = 2, at = seconds_of(CLOCK_REALTIME) + run_until_left(run);
    if (run->until.clock != CLOCK_BOOTTIME || fabs(at - run->until.recorded_at) < least_s) return;
    log_time("the clock was set: training", (time_t)llround(at));
    record_time(run, (time_t)llround(at));
}

int run_until_open(Run *run) {
    if (!is_set(run) || run_is_complete(run)) return 0;
    return ranks_agree(&run->engine.collective, run_owns(run) ? open_time(run) : 0);
}

// ---- the time that the end takes

void run_until_evaluated(Run *run, double seconds, double save_s) {
    RunUntil *until = &run->until;
    const double slowest = until->evaluate_s > 0 ? run_until_evaluation(until) : 0;
    until->other_s += seconds + save_s;
    if (slowest > 0) seconds = fmin(seconds, 2 * slowest); // the process may have been paused
    if (seconds >= slowest) until->evaluate_s = seconds, until->evaluate_step_s = until->step_s;
    if (is_set(run))
        metrics_add(&run->metrics, run->engine.state.step, "\"evaluate_s\": %.3f, \"evaluate_step_s\": %.4f",
                    until->evaluate_s, until->evaluate_step_s);
}

double run_until_evaluation(const RunUntil *until) {
    if (until->evaluate_s <= 0) return until->forecast_s;
    const bool measured = until->evaluate_step_s > 0 && until->step_s > 0;
    return until->evaluate_s * (measured ? until->step_s / until->evaluate_step_s : 1);
}

double run_until_sample(double first_s, double next_s, uint64_t tokens, uint64_t block) {
    double seconds = 0;
    for (uint64_t length = 1; length <= tokens; length++) {
        const uint64_t pass = round_up(length, SAMPLE_PADDED), first = block < SAMPLE_PADDED ? block : SAMPLE_PADDED;
        const bool kept = next_s > 0 && length > 1 && length <= block;
        seconds += kept ? next_s : first_s * (double)(pass < block ? pass : block) / (double)first;
    }
    return seconds;
}

typedef struct {
    uint64_t first_ns, last_ns;
} TokenTimes;

static bool note_token(void *context, uint32_t id) {
    TokenTimes *times = context;
    (void)id;
    times->last_ns = clock_ns();
    if (!times->first_ns) times->first_ns = times->last_ns;
    return true;
}

// Times a few tokens of the sample that follows the last step.
static double sample_seconds(Run *run) {
    enum { TOKENS = 5 };
    const Config *config = &run->engine.config;
    uint32_t ids[TOKENS + 1] = {0};
    TokenTimes times = {0};
    const uint64_t started = clock_ns();
    if (!config->sample_tokens) return 0;
    const ssize_t length =
        sample(&run->engine.network, &(Sampler){.temperature = 1}, ids, 1, TOKENS, note_token, &times);
    err_clear(); // the loss is not finite: the run tells
    if (!times.first_ns) return 0;
    const double first_s = (double)(times.first_ns - started) * 1e-9;
    const bool keeps = length > 2 && run->engine.plan.sample.cache_stride;
    const double next_s = keeps ? (double)(times.last_ns - times.first_ns) * 1e-9 / (double)(length - 2) : 0;
    return run_until_sample(first_s, next_s, (uint64_t)config->sample_tokens, (uint64_t)config->block_size);
}

static double save_seconds(const Run *run) {
    const double unmeasured_bytes_s = 100e6;
    const double bytes = (double)checkpoint_bytes(&run->engine.model, run->engine.plan.optimizer);
    return run->saves.last > 0 ? run->saves.last : bytes / unmeasured_bytes_s;
}

static double end_seconds(const Run *run) {
    const double slower = 1.25; // a sample that is slower is cut
    const double end_s =
        slower * (save_seconds(run) + run_until_evaluation(&run->until)) + run->until.sample_s + RUN_UNTIL_CLOSING_S;
    return fmax(end_s, run->until.end_s) + run->until.step_s;
}

// ---- steps

// Takes the time since the last look. The first step of a process is slower.
static void measure_step(Run *run) {
    enum { FEW = 4 };
    RunUntil *until = &run->until;
    const uint64_t now = clock_ns();
    if (!until->looked_ns) {
        until->sample_s = run_owns(run) ? sample_seconds(run) : 0;
        until->forecast_s = until->evaluate_s > 0 ? 0 : forecast_evaluation(run);
    } else if (until->steps++)
        until->step_s = cooldown_step_s(until->step_s, until->steps - 2,
                                        fmax(1e-9, (double)(now - until->looked_ns) * 1e-9 - until->other_s));
    if (until->steps > FEW && until->evaluate_step_s <= 0)
        until->evaluate_step_s = until->step_s; // that of before step 0
    until->other_s = 0;
    until->looked_ns = clock_ns();
}

static int check_warmup(const Run *run, double left_s) {
    enum { MEASURED = 4 };
    const double sure = 4; // times as long by the first steps
    const Config *config = &run->engine.config;
    const uint64_t step = run->engine.state.step, warmup = (uint64_t)config->warmup_iters;
    const double needed_s = (double)(warmup - step + warmup / 4 + 1) * run->until.step_s;
    if (step >= warmup || left_s >= needed_s || (run->until.steps > MEASURED && left_s > 0)) return 0;
    if (run->until.steps < MEASURED && left_s > 0 && left_s * sure >= needed_s) return 0;
    char needed[16], given[16];
    if (left_s <= 0)
        return fail(EX_USAGE,
                    "until %s is too short: no time is left for steps before the last evaluation, save and sample",
                    config->until);
    return fail(EX_USAGE,
                "until %s is too short: %llu steps of warmup and its cooldown take %s, and %s are left for steps; "
                "--warmup_iters=%.0f is a twentieth of them",
                config->until, (unsigned long long)warmup, human_time(needed, needed_s), human_time(given, left_s),
                floor(left_s / fmax(1e-9, run->until.step_s) / 20));
}

static int plan(Run *run, Cooldown *planned) {
    const Engine *engine = &run->engine;
    RunUntil *until = &run->until;
    const Cooldown *now = &engine->state.cooldown;
    measure_step(run);
    *planned = *now;
    const bool begins_now = until->now || stop_cooldown_requested;
    const double end_s = end_seconds(run), begin_s = now->begun ? 0 : save_seconds(run); // on the only core, at most
    const double left_s = run_until_left(run) - end_s - begin_s;
    if (!begins_now && check_warmup(run, left_s) < 0) return -1;
    const CooldownTime time = {.step = engine->state.step,
                               .most = (uint64_t)engine->config.max_iters,
                               .seconds = left_s,
                               .step_s = fmax(1e-9, until->step_s),
                               .end_s = end_s,
                               .evaluation_s = run_until_evaluation(until) + run->saves.wait,
                               .interval = (uint64_t)engine->config.eval_interval,
                               .measured = until->steps > 1 ? until->steps - 1 : 0,
                               .begins_now = begins_now};
    if (time.step) *planned = cooldown_plan(now, &time);
    return 0;
}

void run_until_warn_late(const Run *run) {
    const double late_s = -run_until_left(run);
    char time[16];
    if (late_s > 0) log_warn("the run ended %s after its time", human_time(time, late_s));
}

static void record_cooldown(Run *run, const Cooldown *cooldown) {
    char text[48];
    if (!cooldown->steps)
        log_warn("no time is left: the run ends after step %llu, %.0f %% into the cooldown%s",
                 (unsigned long long)cooldown->from, 100 * cooldown->done,
                 schedule_ends_uncooled(cooldown) ? "; another time continues it" : "");
    if (schedule_ends_uncooled(cooldown)) return;
    metrics_add(&run->metrics, run->engine.state.step,
                "\"cooldown_begun\": %llu, \"cooldown_steps\": %llu, \"cooldown_done\": %.17g%s, \"end_s\": %.3f",
                (unsigned long long)cooldown->begun, (unsigned long long)cooldown->steps, cooldown->done,
                cooldown->at_once ? ", \"at_once\": true" : "", end_seconds(run));
    if (cooldown->begun != cooldown->from) return;
    const bool timed = run->until.at > 0 && !cooldown->at_once;
    const time_t at = timed ? (time_t)llround(seconds_of(CLOCK_REALTIME) + run_until_left(run)) : 0;
    log_line("cooling down in %llu step%s%s%s", (unsigned long long)cooldown->steps, cooldown->steps > 1 ? "s" : "",
             timed ? ", to be finished by " : "", timed ? until_text(at, text) : "");
    if (cooldown->steps < cooldown->begun / 8)
        warn_of_cooldown(run, "a cooldown takes a quarter of the steps before it, and less than half of them are left");
}

int run_until_look(Run *run) {
    RunState *state = &run->engine.state;
    struct {
        Cooldown cooldown;
        int status;
    } planned = {.cooldown = state->cooldown};
    if (!is_set(run)) return 0;
    if (run_owns(run)) follow_clock(run), planned.status = plan(run, &planned.cooldown);
    if (collective_broadcast(&run->engine.collective, &planned, sizeof planned) < 0) return -1;
    if (planned.status < 0) return ranks_agree(&run->engine.collective, run_owns(run) ? -1 : 0);
    if (planned.cooldown.from == state->cooldown.from && planned.cooldown.steps == state->cooldown.steps) return 0;
    if (!state->cooldown.begun && planned.cooldown.steps && state->step != run->saves.begun)
        run_save(run, false); // for a branch with another end
    state->cooldown = planned.cooldown;
    record_cooldown(run, &state->cooldown);
    return 0;
}

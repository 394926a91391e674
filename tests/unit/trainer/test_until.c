// The key until: times that people type, and the length of a cooldown.
#include "common/err.h"
#include "tests/test.h"
#include "trainer/config/until.h"
#include "trainer/optim/schedule.h"
#include "trainer/run/run_save.h"
#include "trainer/run/run_until.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Central European time by its rule, so that no time zone database is needed; the numbers are those of Python's
// zoneinfo for Europe/Berlin.
static const time_t before_spring = 1774735200 /* 2026-03-28 23:00 */,
                    before_autumn = 1792877400 /* 2026-10-24 23:30 */;

TEST(until_reads_durations_and_times_of_day_with_summer_time) {
    static const struct {
        const char *text;
        time_t start, at;
        bool duration;
    } rows[] = {
        {"40m", 1000, 1000 + 2400, true},
        {"1h30m", 1000, 1000 + 5400, true},
        {"2d3h4m5s", 0, 183845, true},
        {"90s", 7, 97, true},
        {"08:00", before_spring, 1774764000, false},                   // the night has 23 hours
        {"8:00", before_autumn, 1792911600, false},                    // and this one 25
        {"23:00", before_spring, 1774735200 + 86400 - 3600, false},    // it is 23:00 now: the next one
        {"02:30", before_spring + 4 * 3600 - 3000, 1774830600, false}, // at 03:10 it has passed, though it was left out
        {"2026-10-25 02:30", before_autumn, 1792888200, false},        // the first of two
        {"02:30", 1792889100 /* the first 02:45 */, 1792891800, false},
        {"02:30", 1792892700 /* the second 02:45 */, 1792978200, false},
        {"2026-10-25 02:30", 1792892700, 1792891800, false}, // has passed
        {"2026-12-01 08:00", before_spring, 1796108400, false},
        {"2026-12-01T08:00:00", before_spring, 1796108400, false},
    };
    setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1), tzset();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Until until;
        CHECK(until_parse(&until, rows[i].text, rows[i].start) == 0);
        CHECK(until.at == rows[i].at && until.duration == rows[i].duration && !until.now);
    }
    static const char *const wrong[] = {"",
                                        "8",
                                        "0m",
                                        "m",
                                        "30m1h",
                                        "1.5h",
                                        "25:00",
                                        "8:00pm",
                                        "-40m",
                                        "tomorrow",
                                        "2026-13-01 08:00",
                                        "2026-02-30 08:00",
                                        "2026-03-29 02:30",
                                        "02:30",
                                        "4h ",
                                        "99999999h"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Until until;
        CHECK(until_parse(&until, wrong[i], before_spring) < 0 && err_code() == EX_USAGE);
        err_clear();
    }
    unsetenv("TZ"), tzset();
}

TEST(until_takes_the_end_that_slurm_states) {
    Until until;
    setenv("SLURM_JOB_END_TIME", "1796108400", 1);
    CHECK(until_parse(&until, "job", 0) == 0 && until.at == 1796108400 && !until.duration);
    static const char *const wrong[] = {"soon", "-1", "12.5", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("SLURM_JOB_END_TIME", wrong[i], 1);
        CHECK(until_parse(&until, "job", 0) < 0);
        err_clear();
    }
    unsetenv("SLURM_JOB_END_TIME");
}

// The seconds of a step at a time of the run.
typedef double Speed(double now, double seconds);
static double even(double now, double seconds) { return (void)now, (void)seconds, 0.5; }
static double neighbour_begins(double now, double seconds) { return now < 0.8 * seconds ? 0.5 : 1.1; }
static double neighbour_ends(double now, double seconds) { return now < 0.8 * seconds ? 1.1 : 0.5; }
static double pause(double now, double seconds) { return fabs(now - 0.85 * seconds) < 0.3 ? 0.04 * seconds : 0.5; }

static double long_pause(double now, double seconds) { return fabs(now - 0.65 * seconds) < 0.3 ? 0.2 * seconds : 0.5; }

static double neighbour_comes_and_goes(double now, double seconds) {
    return fmod(now, 40) < 20 ? 0.5 : 0.6 + 0 * seconds;
}

// A run of so many seconds, whose estimate of a step follows its speed as in trainer/run/until.c.
static void simulate(Speed *speed, double seconds) {
    Config config = {
        .lr_schedule = LR_WSD, .learning_rate = 1, .lr_decay_iters = UNTIL_STEPS, .max_iters = UNTIL_STEPS};
    Cooldown cooldown = {0};
    double now = 0, estimate = 0.5, rate = 1, rates = 0;
    uint64_t step = 0, changes = 0;
    for (; step < schedule_end(&config, &cooldown); step++) {
        const CooldownTime time = {
            .step = step, .most = UNTIL_STEPS, .seconds = seconds - now, .step_s = estimate, .measured = 16};
        const uint64_t from = cooldown.from;
        if (step > 2) cooldown = cooldown_plan(&cooldown, &time);
        changes += cooldown.from != from;
        const double next = schedule_rate(&config, &cooldown, step), took = speed(now, seconds);
        CHECK(next <= rate && next >= 0); // it never rises again
        rate = next, now += took, estimate = cooldown_step_s(estimate, 16, took);
        if (cooldown.begun) rates += rate;
    }
    CHECK(now <= seconds + 2 * estimate && now >= 0.97 * seconds); // the run leaves a step of slack before this time
    CHECK((double)(step - cooldown.begun) >= 0.1 * (double)step && rate < 0.05);
    CHECK(rates / (double)(step - cooldown.begun) > 0.2); // a third, if its length was not changed
    const double quarters = log((double)(step - cooldown.begun) / 4) / log(4.0 / 3); // until 4 steps are left
    CHECK((double)changes <= quarters + 4);
}

TEST(cooldown_ends_in_time_at_any_speed) {
    Speed *const speeds[] = {even, neighbour_begins, neighbour_ends, pause, long_pause, neighbour_comes_and_goes};
    for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++)
        simulate(speeds[i], 180), simulate(speeds[i], 2400), simulate(speeds[i], 86400);
}

// The same with an evaluation behind every 50 steps and behind the last one, each as long as 8 steps at its speed.
static void simulate_evaluations(Speed *speed, double seconds) {
    enum { INTERVAL = 50, AS_STEPS = 8 };
    static Run run;
    run = (Run){.engine.config.until = ""};
    const Config config = {
        .lr_schedule = LR_WSD, .learning_rate = 1, .lr_decay_iters = UNTIL_STEPS, .max_iters = UNTIL_STEPS};
    Cooldown cooldown = {0};
    double now = 0;
    uint64_t step = 0;
    for (; step < schedule_end(&config, &cooldown); step++) {
        const double evaluation = AS_STEPS * speed(now, seconds);
        if (schedule_evaluates(&cooldown, step, INTERVAL)) now += evaluation, run_until_evaluated(&run, evaluation, 0);
        if (step == 4)
            run.until.evaluate_step_s = run.until.step_s; // as trainer/run/run_until.c does for that of step 0
        const double end_s = 1.25 * run_until_evaluation(&run.until) + run.until.step_s;
        const CooldownTime time = {.step = step,
                                   .most = UNTIL_STEPS,
                                   .seconds = seconds - now - end_s,
                                   .end_s = end_s,
                                   .step_s = fmax(1e-9, run.until.step_s),
                                   .evaluation_s = run_until_evaluation(&run.until),
                                   .interval = INTERVAL,
                                   .measured = step > 16 ? 16 : (unsigned)step};
        if (step) cooldown = cooldown_plan(&cooldown, &time);
        const double took = speed(now, seconds);
        now += took, run.until.step_s = cooldown_step_s(run.until.step_s, step > 16 ? 16 : (unsigned)step, took);
    }
    const double last = AS_STEPS * speed(now, seconds), most = AS_STEPS * 1.1;
    CHECK(now + last <= seconds && now + last >= seconds - most - 4);
    CHECK((double)(step - cooldown.begun) >= 0.1 * (double)step);
}

TEST(cooldown_leaves_time_for_evaluations_at_any_speed) {
    Speed *const speeds[] = {even, neighbour_begins, neighbour_ends};
    for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++)
        for (double seconds = 150; seconds < 210; seconds++) simulate_evaluations(speeds[i], seconds);
}

TEST(cooldown_has_no_evaluation_before_its_step_eval_interval_and_counts_the_others) {
    const Cooldown cooldown = {.begun = 61, .from = 61, .steps = 79};
    CooldownTime time = {
        .step = 80, .most = UNTIL_STEPS, .step_s = 1, .evaluation_s = 8, .interval = 30, .measured = 8};
    static const struct {
        double seconds;
        uint64_t steps;
    } given[] = {{27, 27}, {47, 40}, {50.5, 42}, {48 + 2 * 38 + 5.5, 105}}; // evaluations before the steps 120, 150 ...
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        time.seconds = given[i].seconds;
        CHECK(cooldown_plan(&cooldown, &time).steps == given[i].steps);
    }
    for (uint64_t step = 0; step < 200; step++)
        CHECK(schedule_evaluates(&cooldown, step, 30) == (step % 30 == 0 && step != 90));
    time = (CooldownTime){
        .step = 60, .most = UNTIL_STEPS, .seconds = 15, .step_s = 1, .evaluation_s = 8, .interval = 10, .measured = 8};
    CHECK(cooldown_plan(&(Cooldown){0}, &time).steps == 10); // the evaluation behind the last step is not between
}

TEST(until_expects_an_evaluation_to_take_as_many_steps_as_the_slowest_did) {
    static Run run = {.engine.config.until = "", .until.step_s = 2};
    run_until_evaluated(&run, 8, 0), run.until.step_s = 1;
    CHECK(run_until_evaluation(&run.until) == 4);
    run_until_evaluated(&run, 3, 0);
    CHECK(run_until_evaluation(&run.until) == 4);
    run_until_evaluated(&run, 6, 0), run.until.step_s = 3;
    CHECK(run_until_evaluation(&run.until) == 18);
}

// The wait for the copy of a save belongs to neither the evaluation nor the next step.
TEST(until_counts_a_save_apart_from_the_evaluation_before_it) {
    static Run run = {.engine.config.until = ""};
    run_until_evaluated(&run, 7, 6);
    CHECK(run.until.evaluate_s == 7 && run.until.other_s == 13);
}

// The first token of 120 takes a pass over the padded text, as long as many of the others.
TEST(until_expects_the_tokens_of_the_sample_to_be_faster_than_its_first) {
    CHECK(fabs(run_until_sample(0.5, 0.05, 120, 1024) - (0.5 + 119 * 0.05)) < 1e-9);
    CHECK(run_until_sample(0.5, 0.05, 0, 1024) == 0 && run_until_sample(0.5, 0.05, 1, 1024) == 0.5);
    CHECK(fabs(run_until_sample(0.5, 0.05, 130, 128) - (0.5 + 127 * 0.05 + 2 * 2 * 0.5)) < 1e-9); // moves on twice
    CHECK(fabs(run_until_sample(0.5, 0.05, 20, 16) - (0.5 + 15 * 0.05 + 4 * 0.5)) < 1e-9);
    CHECK(fabs(run_until_sample(0.5, 0, 120, 1024) - (64 * 0.5 + 56 * 1)) < 1e-9); // no memory for keys and values
}

// A thread beside training that took 30 s had a processor for 3 s, waited 25 s for it, and 2 s for the disk.
TEST(until_expects_the_last_save_to_wait_for_the_disk_and_one_busy_process) {
    CHECK(fabs(save_last_s(30, (ProcessorTime){.used_ns = 3000000000, .waited_ns = 25000000000}) - 8) < 1e-9);
    CHECK(save_last_s(1, (ProcessorTime){.used_ns = 500000000, .waited_ns = 2000000000}) == 0.5);
}

TEST(until_takes_a_pause_in_an_evaluation_for_one_evaluation_more) {
    static Run run = {.engine.config.until = ""};
    run_until_evaluated(&run, 4, 0), run_until_evaluated(&run, 600, 0), run_until_evaluated(&run, 5, 0);
    CHECK(run.until.evaluate_s == 8 && run.until.other_s == 609);
}

TEST(cooldown_of_a_resumed_run_waits_until_a_few_steps_were_measured) {
    const Cooldown cooldown = {.begun = 800, .from = 800, .steps = 200};
    CooldownTime time = {.step = 850, .most = UNTIL_STEPS, .seconds = 150, .step_s = 3, .measured = 1};
    CHECK(cooldown_plan(&cooldown, &time).steps == 200);
    CHECK(!cooldown_plan(&(Cooldown){0}, &time).begun); // nor does it begin
    time.measured = 4;
    CHECK(cooldown_plan(&cooldown, &time).steps == 50);
    time.measured = 1, time.seconds = 15; // the end is near
    CHECK(cooldown_plan(&cooldown, &time).steps == 5);
    time = (CooldownTime){.step = 18, .most = 20, .seconds = 1e6, .step_s = 1e-9}; // max_iters is
    CHECK(cooldown_plan(&(Cooldown){0}, &time).steps == 2);
}

// A step without time would be one at a high rate.
TEST(cooldown_has_no_step_when_no_time_is_left) {
    CooldownTime time = {.step = 40, .most = UNTIL_STEPS, .seconds = -0.1, .step_s = 1, .measured = 8};
    const Cooldown at_first = cooldown_plan(&(Cooldown){0}, &time),
                   later = cooldown_plan(&(Cooldown){.begun = 30, .from = 30, .steps = 20}, &time);
    CHECK(at_first.begun == 40 && at_first.from == 40 && !at_first.steps && schedule_ends_uncooled(&at_first));
    CHECK(later.begun == 30 && later.from == 40 && !later.steps && later.done == 0.5);
    CHECK(!schedule_ends_uncooled(&later) && !schedule_ends_uncooled(&(Cooldown){0}));
    CHECK(schedule_end(&(Config){.max_iters = UNTIL_STEPS}, &at_first) == 40);
    time.seconds = 0.1;
    CHECK(cooldown_plan(&(Cooldown){0}, &time).steps == 1);
}

TEST(cooldown_is_a_fifth_of_the_steps_and_the_decay_of_wsd) {
    const Config until = {.lr_schedule = LR_WSD, .learning_rate = 1e-3, .min_lr = 1e-5, .lr_decay_iters = UNTIL_STEPS},
                 wsd = {.lr_schedule = LR_WSD, .learning_rate = 1e-3, .min_lr = 1e-5, .lr_decay_iters = 100};
    Cooldown cooldown = {0};
    CooldownTime time = {.step = 79, .most = UNTIL_STEPS, .seconds = 20, .step_s = 1, .measured = 16};
    cooldown = cooldown_plan(&cooldown, &time);
    CHECK(!cooldown.begun); // a quarter of 79 steps take less time
    time.step = 80;
    cooldown = cooldown_plan(&cooldown, &time);
    CHECK(cooldown.begun == 80 && cooldown.steps == 20 && !cooldown.at_once);
    for (uint64_t step = 0; step < 100; step++)
        CHECK(schedule_rate(&until, &cooldown, step) == schedule_rate(&wsd, NULL, step));
    // its length is set anew in the middle: half of what was left, at the same rate
    time = (CooldownTime){.step = 90, .most = UNTIL_STEPS, .seconds = 5, .step_s = 1, .measured = 16};
    const double before = schedule_rate(&until, &cooldown, 90);
    cooldown = cooldown_plan(&cooldown, &time);
    CHECK(cooldown.from == 90 && cooldown.steps == 5 && schedule_rate(&until, &cooldown, 90) == before);
    CHECK(fabs(schedule_rate(&until, &cooldown, 94) - schedule_rate(&wsd, NULL, 98)) < 1e-18);
    // at once: not made longer by the time that is left; max_iters ends it sooner
    time = (CooldownTime){.step = 40, .most = 45, .seconds = 1e9, .step_s = 1, .begins_now = true};
    cooldown = cooldown_plan(&(Cooldown){0}, &time);
    CHECK(cooldown.steps == 5 && !cooldown.at_once);
    time.most = UNTIL_STEPS;
    cooldown = cooldown_plan(&(Cooldown){0}, &time);
    CHECK(cooldown.steps == 10 && cooldown.at_once);
    time.step = 41, time.begins_now = false;
    CHECK(cooldown_plan(&cooldown, &time).steps == 10);
    // in the warmup: it falls from the rate that was reached, and never below min_lr if that is above it
    Config warms = until;
    warms.warmup_iters = 99, warms.min_lr = 2e-4;
    CHECK(fabs(schedule_rate(&warms, &cooldown, 40) - 41e-5) < 1e-18);
    CHECK(fabs(schedule_rate(&warms, &cooldown, 49) - (2e-4 + (1 - sqrt(0.9)) * 21e-5)) < 1e-18);
    warms.min_lr = 6e-4;
    CHECK(schedule_rate(&warms, &cooldown, 49) == schedule_rate(&warms, &cooldown, 40));
}

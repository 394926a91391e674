// Grades of a run: the results become a file first and a line of the record second, so that a run that was killed in
// between grades again.
#include "trainer/run/run_items.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/hash.h"
#include "common/json_write.h"
#include "common/log.h"
#include "trainer/engine/engine_data.h"
#include "trainer/items/grade.h"
#include "trainer/run/loop_record.h"
#include "trainer/run/run_until.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>

static Grading grading_of(Run *run) {
    Engine *engine = &run->engine;
    return (Grading){.network = &engine->network,
                     .vocab = run->items.vocab,
                     .model = engine->config.out_dir,
                     .step = (int64_t)engine->state.step};
}

static void print_digest(const RunItems *items, char hex[65]) { hex_encode(hex, items->file.sha256, 32); }

// From the last grade of the record.
static void find_graded(Run *run) {
    RunState *state = &run->engine.state;
    char hex[65];
    json_t *line = metrics_last_with(run->engine.config.out_dir, "items_accuracy");
    const char *of = json_string_value(json_object_get(line, "items_sha256"));
    print_digest(&run->items, hex);
    state->graded_step = metrics_graded(run->engine.config.out_dir, state->step);
    if (of && !strcmp(of, hex)) {
        run->items.graded = (uint64_t)json_integer_value(json_object_get(line, "step"));
        run->items.best = json_number_value(json_object_get(line, "items_best"));
    }
    if (of && strcmp(of, hex))
        log_line("items: '%s' is another file than at step %lld: its grades are another series", run->items.file.path,
                 (long long)json_integer_value(json_object_get(line, "step")));
    json_decref(line);
}

static int open_file(Run *run) {
    RunItems *items = &run->items;
    const Grading grading = grading_of(run);
    if (items_open(&items->file, run->engine.config.items) < 0) return -1;
    return grade_check(&grading, &items->file);
}

int run_items_find(Run *run) {
    struct {
        uint64_t graded, graded_step;
        double best;
    } found = {0};
    RunItems *items = &run->items;
    if (!items->vocab) return 0;
    items->graded = 0, items->best = NAN;
    if (run_owns(run)) find_graded(run);
    found.graded = items->graded, found.graded_step = run->engine.state.graded_step, found.best = items->best;
    if (collective_broadcast(&run->engine.collective, &found, sizeof found) < 0) return -1;
    items->graded = found.graded, run->engine.state.graded_step = found.graded_step, items->best = found.best;
    return 0;
}

int run_items_open(Run *run) {
    RunItems *items = &run->items;
    Collective *ranks = &run->engine.collective;
    if (!*run->engine.config.items || !run->engine.config.items_interval) return 0;
    items->vocab = vocabulary_open(&run->engine.config);
    if (ranks_agree(ranks, items->vocab ? open_file(run) : -1) < 0) return -1;
    uint8_t first[32];
    memcpy(first, items->file.sha256, sizeof first);
    if (collective_broadcast(ranks, first, sizeof first) < 0) return -1;
    const int same = memcmp(first, items->file.sha256, sizeof first)
                         ? fail(EX_USAGE, "items: '%s' is another file in rank 0", items->file.path)
                         : 0;
    if (ranks_agree(ranks, same) < 0) return -1;
    return run_items_find(run);
}

bool run_items_due(const Run *run) {
    const uint64_t step = run->engine.state.step, interval = (uint64_t)run->engine.config.items_interval;
    return run->items.vocab && step && step != run->items.graded &&
           (step % interval == 0 || step >= engine_end(&run->engine));
}

// ---- a grade

typedef struct {
    NewFile file;
    bool failed;
} Results;

static void write_line(void *self, Bytes line) {
    Results *results = self;
    if (!results->failed) results->failed = newfile_write(&results->file, line.data, line.size) < 0;
}

static double mean_accuracy(const Grade *grade) {
    double sum = 0;
    for (size_t i = 0; i < grade->task_count; i++) sum += (double)grade->tasks[i].right / (double)grade->tasks[i].items;
    return sum / (double)grade->task_count;
}

static void record_grade(Run *run, const Grade *grade) {
    Buffer members = {0};
    char hex[65];
    print_digest(&run->items, hex);
    buffer_print(
        &members,
        ", \"items_accuracy\": %.6f, \"items_sha256\": \"%s\", \"items_best\": %.17g, \"items_best_step\": %llu",
        mean_accuracy(grade), hex, run->items.best, (unsigned long long)run->engine.state.graded_step);
    for (size_t i = 0; i < grade->task_count; i++) {
        const TaskGrade *task = &grade->tasks[i];
        Buffer name = {0};
        buffer_print(&name, "items/%s%c", task->name, 0);
        buffer_print(&members, ", ");
        json_add_string(&members, (const char *)name.data);
        buffer_print(&members, ": %.6f", (double)task->right / (double)task->items);
        buffer_close(&name);
    }
    metrics_add_members(&run->metrics, run->engine.state.step, (Bytes){members.data, members.size});
    buffer_close(&members);
}

static void print_grade(const Run *run, const Grade *grade) {
    printf("step %6llu | items: accuracy %.4f, the mean of %zu task%s", (unsigned long long)run->engine.state.step,
           mean_accuracy(grade), grade->task_count, PLURAL(grade->task_count));
    for (size_t i = 0; i < grade->task_count && grade->task_count > 1; i++)
        printf(" | %s %.4f", grade->tasks[i].name, (double)grade->tasks[i].right / (double)grade->tasks[i].items);
    printf("%s\n", run->engine.state.graded_step == run->engine.state.step ? " | best so far" : "");
    loop_flush_lines();
}

static int keep_grade(Run *run, Results *results, const Grade *grade) {
    if (results->failed || lock_check(&run->lock, run->engine.config.out_dir) < 0 || newfile_commit(&results->file) < 0)
        return -1;
    record_grade(run, grade);
    if (!log_quiet) print_grade(run, grade);
    return 0;
}

int run_items_grade(Run *run) {
    char path[PATH_MAX_BYTES];
    const uint64_t started = clock_ns();
    Results results = {0};
    Grading grading = grading_of(run);
    Grade grade;
    batch_stream_cancel(&run->engine.stream);
    path_join(path, run->engine.config.out_dir, "items-%08llu.jsonl", (unsigned long long)run->engine.state.step);
    if (run_owns(run)) {
        results.failed = newfile_open(&results.file, path) < 0;
        grading.write = write_line, grading.self = &results;
    }
    int status = grade_items(&grade, &grading, &run->items.file);
    if (status == 0) status = grade_check_finite(&grade);
    if (status == 0) run->items.graded = run->engine.state.step;
    if (status == 0 && !(mean_accuracy(&grade) <= run->items.best))
        run->items.best = mean_accuracy(&grade), run->engine.state.graded_step = run->engine.state.step;
    if (status == 0 && run_owns(run) && keep_grade(run, &results, &grade) < 0) {
        log_warn("no grade: %s; training continues", err_text());
        err_clear();
    }
    newfile_abandon(&results.file);
    grade_free(&grade);
    run_until_evaluated(run, (double)(clock_ns() - started) * 1e-9, 0);
    return status;
}

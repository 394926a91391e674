// The graded items of two runs. Equal digests mean the same items in the same order, so lines are paired by number.
#include "trainer/records/grade_pair.h"
#include "common/err.h"
#include "common/file/file.h"
#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FILE_NAME "items-%08" PRIu64 ".jsonl" // of a step

typedef struct {
    char path[PATH_MAX_BYTES];
    Bytes text, rest; // rest: what is not read
    uint64_t line;
    json_t *object; // of the last line
} GradeFile;

// The steps with graded items in a run, in any order.
static uint64_t *steps_of(const char *run, size_t *count) {
    uint64_t *steps = NULL, step;
    char name[64];
    *count = 0;
    DIR *directory = opendir(run);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        if (sscanf(entry->d_name, "items-%" SCNu64, &step) != 1) continue;
        snprintf(name, sizeof name, FILE_NAME, step);
        if (strcmp(name, entry->d_name)) continue;
        steps = array_grow(steps, *count, sizeof *steps);
        steps[(*count)++] = step;
    }
    if (directory) closedir(directory);
    return steps;
}

static bool has_step(const uint64_t *steps, size_t count, uint64_t step) {
    for (size_t i = 0; i < count; i++)
        if (steps[i] == step) return true;
    return false;
}

// The last step that both have, or else the last one of each. False, with the reason, if one has none.
static bool choose_steps(const char *const runs[2], uint64_t steps[2], Buffer *reason) {
    size_t counts[2];
    uint64_t *all[2] = {steps_of(runs[0], &counts[0]), steps_of(runs[1], &counts[1])};
    bool found = false;
    for (int run = 0; run < 2; run++) {
        steps[run] = 0;
        for (size_t i = 0; i < counts[run]; i++)
            if (all[run][i] > steps[run]) steps[run] = all[run][i];
        if (!counts[run] && !reason->size)
            buffer_print(reason, "'%s' has no graded items, which the keys items and items_interval write", runs[run]);
    }
    for (size_t i = 0; i < counts[0]; i++)
        if (has_step(all[1], counts[1], all[0][i]) && (!found || all[0][i] > steps[0])) {
            found = true;
            steps[0] = steps[1] = all[0][i];
        }
    free(all[0]);
    free(all[1]);
    return counts[0] && counts[1];
}

static int next_line(GradeFile *file) {
    Bytes line;
    json_decref(file->object);
    file->object = NULL;
    if (!bytes_next_line_or_rest(&file->rest, &line)) return 0;
    file->line++;
    file->object = json_loadb((const char *)line.data, line.size, 0, NULL);
    if (json_is_object(file->object)) return 1;
    return fail(EX_DATA, "'%s', line %" PRIu64 ": no JSON object; remove the file and grade again", file->path,
                file->line);
}

static const char *text_of(const GradeFile *file, const char *key) {
    const char *text = json_string_value(json_object_get(file->object, key));
    return text ? text : "";
}

static int open_file(GradeFile *file, const char *run, uint64_t step) {
    if (file_map(&file->text, path_join(file->path, run, FILE_NAME, step)) < 0) return -1;
    file->rest = file->text;
    if (next_line(file) < 0) return -1;
    if (!strcmp(text_of(file, "format"), "millrace items 1")) return 0;
    return fail(EX_DATA, "'%s' does not begin with a line of the format \"millrace items 1\"", file->path);
}

static TaskPair *find_task(GradePair *pair, const char *name) {
    for (size_t i = pair->count; i > 0; i--)
        if (!strcmp(pair->tasks[i - 1].name, name)) return &pair->tasks[i - 1];
    pair->tasks = array_grow(pair->tasks, pair->count, sizeof *pair->tasks);
    TaskPair *task = &pair->tasks[pair->count++];
    *task = (TaskPair){.name = allocate_text(name, strlen(name))};
    return task;
}

// Of the right ending, in nats a byte. NAN: it has none, or its loss is not finite.
static double right_loss(const json_t *object) {
    const size_t label = (size_t)json_integer_value(json_object_get(object, "label"));
    const json_t *loss = json_array_get(json_object_get(object, "losses"), label);
    const double bytes = json_number_value(json_array_get(json_object_get(object, "bytes"), label));
    return json_is_number(loss) && bytes > 0 ? json_number_value(loss) / bytes : NAN;
}

static int add_item(GradePair *pair, const GradeFile files[2]) {
    const json_t *a = files[0].object, *b = files[1].object;
    const json_t *right[2] = {json_object_get(a, "right"), json_object_get(b, "right")};
    for (int i = 0; i < 2; i++)
        if (!json_is_integer(right[i]) || (json_integer_value(right[i]) & ~1))
            return fail(EX_DATA, "'%s', line %" PRIu64 ": 'right' is not 0 or 1", files[i].path, files[i].line);
    if (strcmp(text_of(&files[0], "task"), text_of(&files[1], "task")) ||
        !json_equal(json_object_get(a, "id"), json_object_get(b, "id")))
        return fail(EX_DATA, "'%s' and '%s', line %" PRIu64 ": equal digests, but not the same item", files[0].path,
                    files[1].path, files[0].line);
    TaskPair *task = find_task(pair, text_of(&files[0], "task"));
    const bool before = json_integer_value(right[0]), now = json_integer_value(right[1]);
    const double change = right_loss(b) - right_loss(a);
    const bool choice = !strcmp(text_of(&files[0], "kind"), "choice");
    const size_t choices = json_array_size(json_object_get(a, "losses"));
    task->chance += ((choice && choices ? 1 / (double)choices : 0) - task->chance) / (double)++task->items;
    task->right[0] += before, task->right[1] += now;
    task->better += now && !before, task->worse += before && !now;
    series_add(&task->right_change, (double)now - (double)before);
    if (isfinite(change)) series_add(&task->loss_change, change);
    return 0;
}

static int read_items(GradePair *pair, GradeFile files[2]) {
    for (;;) {
        const int first = next_line(&files[0]), second = first < 0 ? -1 : next_line(&files[1]);
        if (first < 0 || second < 0) return -1;
        if (first != second)
            return fail(EX_DATA, "'%s' ends before '%s', whose items have the same digest", files[first].path,
                        files[!first].path);
        if (!first) return 0;
        if (add_item(pair, files) < 0) return -1;
    }
}

// Whether the heads name the same items, counted by the same rule.
static bool compare_heads(GradePair *pair, const GradeFile files[2], Buffer *reason) {
    for (int i = 0; i < 2; i++) pair->blocks[i] = json_integer_value(json_object_get(files[i].object, "block"));
    if (!*text_of(&files[0], "items_sha256") ||
        strcmp(text_of(&files[0], "items_sha256"), text_of(&files[1], "items_sha256")))
        buffer_print(reason, "'%s' (%.12s) and '%s' (%.12s) have graded other items", files[0].path,
                     text_of(&files[0], "items_sha256"), files[1].path, text_of(&files[1], "items_sha256"));
    else if (strcmp(text_of(&files[0], "rule"), text_of(&files[1], "rule")))
        buffer_print(reason, "'%s' counts by the rule \"%s\", '%s' by \"%s\"", files[0].path,
                     text_of(&files[0], "rule"), files[1].path, text_of(&files[1], "rule"));
    return !reason->size;
}

int grade_pair_read(GradePair *pair, const char *const runs[2], Buffer *reason) {
    GradeFile *files = allocate_zeroed(2, sizeof *files);
    *pair = (GradePair){0};
    int result = choose_steps(runs, pair->steps, reason);
    for (int i = 0; i < 2 && result > 0; i++)
        if (open_file(&files[i], runs[i], pair->steps[i]) < 0) result = -1;
    if (result > 0) result = compare_heads(pair, files, reason);
    if (result > 0 && read_items(pair, files) < 0) result = -1;
    for (int i = 0; i < 2; i++) json_decref(files[i].object), file_unmap(&files[i].text);
    free(files);
    if (result > 0 && !pair->count) buffer_print(reason, "the graded files hold no item"), result = 0;
    return result;
}

void grade_pair_close(GradePair *pair) {
    for (size_t i = 0; i < pair->count; i++) free(pair->tasks[i].name);
    free(pair->tasks);
    *pair = (GradePair){0};
}

Estimate grade_pair_mean(const GradePair *pair, double *shares) {
    double sum = 0, variance = 0, most = 0;
    size_t heaviest = 0;
    for (size_t i = 0; i < pair->count; i++) {
        const TaskPair *task = &pair->tasks[i];
        const double weight = 1 / (1 - task->chance) / (double)task->items, square = weight * weight;
        sum += weight * ((double)task->better - (double)task->worse);
        variance += shares[i] = square * (double)(task->better + task->worse);
        if (square > most) most = square, heaviest = i;
    }
    variance += 2 * most, shares[heaviest] += 2 * most;
    for (size_t i = 0; i < pair->count; i++) shares[i] /= variance;
    return estimate_of(sum / (double)pair->count, sqrt(variance) / (double)pair->count, INFINITY);
}

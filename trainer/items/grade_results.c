// Picks, right answers, and the lines and tables of them.
#include "common/err.h"
#include "common/hash.h"
#include "common/json_write.h"
#include "common/log.h"
#include "trainer/items/grade_internal.h"
#include <math.h>
#include <stdlib.h>

static void write_line(const Grading *grading, Buffer *line) {
    buffer_add(line, "\n", 1);
    if (grading->write) grading->write(grading->self, (Bytes){line->data, line->size});
    buffer_close(line);
}

void grade_write_head(const Grading *grading, const ItemsFile *file) {
    Buffer line = {0};
    buffer_print(&line, "{\"format\":\"millrace items 1\"");
    json_add_hex(&line, "items_sha256", file->sha256, sizeof file->sha256);
    json_add_field(&line, "model", grading->model);
    if (grading->step < 0)
        buffer_print(&line, ",\"step\":null");
    else
        json_add_number(&line, "step", (uint64_t)grading->step);
    if (grading->ema) buffer_print(&line, ",\"ema\":true");
    json_add_number(&line, "block", (uint64_t)grading->network->plan->eval.block);
    json_add_field(&line, "rule", "ending sum, differing and common mean, greedy greedy, answers exact");
    buffer_add(&line, "}", 1);
    write_line(grading, &line);
}

// ---- an item

typedef enum { BY_SUM, BY_MEAN, BY_CHAR, BY_BYTE, UNITS } Unit;

static double loss_by(const ItemText *text, Unit unit) {
    const int of[] = {1, text->scored, text->chars, text->bytes};
    return text->score.loss / of[unit];
}

// The first text with the smallest loss. *tie: another one has the same.
static int pick(const GradedItem *item, const ItemText *texts, Unit unit, bool *tie) {
    int best = 0;
    *tie = false;
    for (int i = 1; i < item->texts; i++) {
        const double loss = loss_by(&texts[i], unit), least = loss_by(&texts[best], unit);
        *tie = loss < least ? false : *tie || loss == least;
        if (loss < least) best = i;
    }
    return best;
}

typedef struct {
    bool right, tie, finite;
} Outcome;

static Outcome judge(const GradedItem *item, const ItemText *texts) {
    Outcome outcome = {.finite = true};
    const ItemRule rule = item_rule(item);
    for (int i = 0; i < item->texts; i++) outcome.finite &= isfinite(texts[i].score.loss) != 0;
    if (rule == RULE_EXACT) return outcome.right = item->said.right, outcome;
    if (rule == RULE_GREEDY) return outcome.right = texts->score.greedy > 0, outcome;
    outcome.right = pick(item, texts, rule == RULE_SUM ? BY_SUM : BY_MEAN, &outcome.tie) == item->label;
    return outcome;
}

static void add_losses(Buffer *line, const GradedItem *item, const ItemText *texts) {
    buffer_print(line, ",\"losses\":[");
    for (int i = 0; i < item->texts; i++)
        if (isfinite(texts[i].score.loss))
            buffer_print(line, "%s%.17g", i ? "," : "", texts[i].score.loss);
        else
            buffer_print(line, "%snull", i ? "," : "");
    buffer_add(line, "]", 1);
}

static void write_item(const Grading *grading, const GradedItem *item, const ItemText *texts, bool right) {
    static const char *const kinds[] = {"choice", "greedy", "answers"}, *const units[] = {"sum", "mean", "char",
                                                                                          "byte"};
    Buffer line = {0};
    bool tie;
    buffer_add(&line, "{", 1);
    json_add_field(&line, "task", item->task);
    buffer_print(&line, ",\"id\":%s,\"kind\":\"%s\",\"label\":%d,\"rule\":\"%s\",\"right\":%d", item->id,
                 kinds[item->kind], item->label, item_rules[item_rule(item)], right);
    add_losses(&line, item, texts);
#define NUMBERS(key, value)                                                                                            \
    for (int i = 0; i < item->texts; i++) buffer_print(&line, "%s%d", i ? "," : ",\"" key "\":[", value);              \
    buffer_add(&line, "]", 1);
    NUMBERS("tokens", texts[i].scored)
    NUMBERS("chars", texts[i].chars)
    NUMBERS("bytes", texts[i].bytes)
    NUMBERS("greedy", texts[i].score.greedy > 0)
    NUMBERS("cut", texts[i].cut)
#undef NUMBERS
    for (Unit unit = BY_SUM; unit < UNITS; unit++)
        buffer_print(&line, "%s\"%s\":%d", unit ? "," : ",\"pick\":{", units[unit], pick(item, texts, unit, &tie));
    buffer_add(&line, "}", 1);
    if (item->kind == ITEM_ANSWERS) json_add_field(&line, "text", item->said.text);
    buffer_add(&line, "}", 1);
    write_line(grading, &line);
}

static TaskGrade *task_of(Grade *grade, const GradedItem *item) {
    for (size_t i = 0; i < grade->task_count; i++)
        if (!strcmp(grade->tasks[i].name, item->task)) return &grade->tasks[i];
    grade->tasks = array_grow(grade->tasks, grade->task_count, sizeof *grade->tasks);
    TaskGrade *task = &grade->tasks[grade->task_count++];
    *task = (TaskGrade){.name = allocate_text(item->task, strlen(item->task)), .rule = item_rule(item)};
    return task;
}

void grade_add(Grade *grade, const Grading *grading, const GradedItem *item, const ItemText *texts) {
    const Outcome outcome = judge(item, texts);
    const double chance = item->kind == ITEM_CHOICE ? 1.0 / item->texts : 0;
    TaskGrade *task = task_of(grade, item);
    bool cut = false, uneven = false;
    for (int i = 0; i < item->texts; i++) cut |= texts[i].cut > 0, uneven |= texts[i].cut != texts->cut;
    task->items++, task->right += outcome.right, task->ties += outcome.tie, task->overlaps += item->is_overlap;
    task->cut += cut, task->uneven += uneven, task->chance += chance;
    task->given += fabs(item->chance - chance) > 1e-3; // not of NAN
    grade->items++, grade->not_finite += !outcome.finite;
    if (grading->write) write_item(grading, item, texts, outcome.right);
}

// ---- tasks

// Wilson's interval of 95 % for a share.
static void wilson(double share, double n, double *low, double *high) {
    const double z = 1.959963984540054, middle = share + z * z / (2 * n),
                 half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n));
    *low = (middle - half) / (1 + z * z / n), *high = (middle + half) / (1 + z * z / n);
}

void grade_print(Buffer *out, const Grade *grade) {
    int width = 4;
    for (size_t i = 0; i < grade->task_count; i++)
        if ((int)strlen(grade->tasks[i].name) > width) width = (int)strlen(grade->tasks[i].name);
    buffer_print(out, "%-*s %7s %-6s %8s %7s %17s %7s %5s %5s\n", width, "task", "items", "rule", "accuracy", "+-",
                 "95 % interval", "chance", "ties", "cut");
    for (size_t i = 0; i < grade->task_count; i++) {
        const TaskGrade *task = &grade->tasks[i];
        const double n = (double)task->items, share = (double)task->right / n;
        double low, high;
        wilson(share, n, &low, &high);
        buffer_print(out, "%-*s %7.0f %-6s %8.4f", width, task->name, n, item_rules[task->rule], share);
        if (task->items > 1)
            buffer_print(out, " %7.4f", sqrt(share * (1 - share) / (n - 1)));
        else
            buffer_print(out, " %7s", "-");
        buffer_print(out, "  %7.4f %7.4f %8.4f %5llu %5llu\n", fmax(0, low), fmin(1, high), task->chance / n,
                     (unsigned long long)task->ties, (unsigned long long)task->cut);
    }
}

void grade_warn(const Grade *grade) {
    if (grade->computed < grade->tokens || grade->apart)
        log_line("computed %llu of %llu tokens: what texts of an item begin with, once; texts of %llu items whole",
                 (unsigned long long)grade->computed, (unsigned long long)grade->tokens,
                 (unsigned long long)grade->apart);
    for (size_t i = 0; i < grade->task_count; i++) {
        const TaskGrade *task = &grade->tasks[i];
        if (task->overlaps)
            log_warn("%s: in %llu items the ids of one text begin or are another's: the last common id is scored, too",
                     task->name, (unsigned long long)task->overlaps);
        if (task->uneven)
            log_warn(
                "%s: the texts of %llu items were cut by different numbers of tokens: they have different contexts",
                task->name, (unsigned long long)task->uneven);
        if (task->given)
            log_warn("%s: 'chance' of %llu items is not 1 / their texts, %.4f in the mean, which is printed",
                     task->name, (unsigned long long)task->given, task->chance / (double)task->items);
    }
}

int grade_check_finite(const Grade *grade) {
    if (!grade->not_finite) return 0;
    return fail(EX_NONFINITE, "the losses of %llu of %llu items are not finite: their answers say nothing",
                (unsigned long long)grade->not_finite, (unsigned long long)grade->items);
}

void grade_free(Grade *grade) {
    for (size_t i = 0; i < grade->task_count; i++) free(grade->tasks[i].name);
    free(grade->tasks);
    *grade = (Grade){0};
}

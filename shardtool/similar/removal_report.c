// The report and summary of what a command removes.
#include "shardtool/similar/removal_report.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/spool.h"
#include "common/json_write.h"
#include "common/log.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINES_BYTES = 1 << 16, WARN_PERCENT = 90 };

static const char BEGINNING[] = "{\"removed\":";

// Another file of that name is not replaced.
static int check_old(const char *path) {
    char head[sizeof BEGINNING - 1];
    const int fd = file_open(path);
    if (fd < 0) return fail_errno("cannot read '%s'", path);
    const ssize_t got = fd_read(fd, head, sizeof head, path);
    close(fd);
    if (got < 0) return -1;
    if (got && (got < (ssize_t)sizeof head || memcmp(head, BEGINNING, sizeof head)))
        return fail(EX_CREATE, "'%s' is there and is not a report: choose another file", path);
    return 0;
}

int removal_report_check(const char *path, const char *part) {
    if (path && part)
        return fail(EX_USAGE,
                    "--part removes nothing yet: give --report to the command without --part, after all parts");
    if (!path || !output_options.path || strcmp(path, "-") || strcmp(output_options.path, "-")) return 0;
    return fail(EX_USAGE, "standard output cannot take both the shard and the report");
}

// Counts the documents and tokens of a report. -1 without fail() if it is none.
static int count_lines(const char *path, uint64_t *documents, uint64_t *tokens) {
    static const char member[] = ",\"tokens\":"; // within a string the quotation marks are escaped
    struct stat st;
    Bytes map, line;
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return -1;
    if (file_map(&map, path) < 0) return err_clear(), -1;
    int status = 0;
    for (Bytes rest = map; status == 0 && bytes_next_line_or_rest(&rest, &line); ++*documents) {
        const uint8_t *at = line.size ? memmem(line.data, line.size, member, strlen(member)) : NULL;
        uint64_t number = 0;
        if (at) at += strlen(member);
        for (; at && at < line.data + line.size && *at >= '0' && *at <= '9'; at++) number = 10 * number + *at - '0';
        if (!at || line.size < strlen(BEGINNING) || memcmp(line.data, BEGINNING, strlen(BEGINNING))) status = -1;
        *tokens += number;
    }
    file_unmap(&map);
    return status;
}

int removal_report_check_finished(const char *path, const DocumentInputs *inputs) {
    uint64_t documents = 0, tokens = 0;
    Dataset dataset;
    if (!path) return 0;
    if (dataset_open_manifest(&dataset, output_options.path) < 0) return -1;
    int status = count_lines(path, &documents, &tokens);
    for (int i = 0; i < SPLIT_COUNT; i++) {
        if (output_options.split && i != output_options.split - 1) continue;
        documents += dataset.documents[i] - inputs->documents[i], tokens += dataset.tokens[i] - inputs->tokens[i];
    }
    dataset_close(&dataset);
    if (status == 0 && !documents && !tokens) return 0;
    return fail(EX_CREATE,
                "'%s' is already complete, and '%s' is not its report: without -o the report alone is written, and "
                "--force makes both",
                output_options.path, path);
}

static int refuse_twice(const Inputs *inputs) {
    for (uint64_t i = 0; i < inputs->argument_count; i++)
        for (uint64_t k = 0; k < i; k++)
            if (!strcmp(inputs->arguments[i].path, inputs->arguments[k].path))
                return fail(EX_USAGE, "'%s' is given twice, and the report names a document by its PATH: give it once",
                            inputs->arguments[i].path);
    return 0;
}

int removal_report_open(RemovalReport *report, const DocumentInputs *inputs, const OldDatasets *old, const char *path) {
    struct stat st;
    char folder[PATH_MAX_BYTES];
    *report = (RemovalReport){.inputs = inputs, .old = old, .fd = -1};
    report->sources = allocate_zeroed(inputs->inputs.argument_count, sizeof *report->sources);
    if (old) report->old_kept = allocate_zeroed(old->count + 1, sizeof *report->old_kept);
    if (!path) return 0;
    if (refuse_twice(&inputs->inputs) < 0) return -1;
    report->name = path;
    if (!strcmp(path, "-")) return report->name = "standard output", report->fd = STDOUT_FILENO, 0;
    const bool is_there = !stat(path, &st);
    if (is_there && !S_ISREG(st.st_mode)) { // a pipe or a device
        report->fd = open(path, O_WRONLY | O_CLOEXEC);
        return report->fd < 0 ? fail_create(path) : 0;
    }
    if (is_there && check_old(path) < 0) return -1;
    path_split(path, folder);
    report->path = path, report->fd = spool_create(folder, "the report");
    return report->fd < 0 ? -1 : 0;
}

static void close_kept(KeptRows *kept) {
    for (int split = 0; split < SPLIT_COUNT; split++) provenance_reader_close(&kept->rows[split]);
    dataset_close(&kept->dataset);
}

void removal_report_close(RemovalReport *report) {
    if (report->fd > STDOUT_FILENO) close(report->fd);
    buffer_close(&report->lines);
    for (uint64_t i = 0; i < report->inputs->inputs.argument_count; i++) close_kept(&report->sources[i].kept);
    for (unsigned i = 0; report->old && i < report->old->count; i++) close_kept(&report->old_kept[i]);
    free(report->sources);
    free(report->old_kept);
    *report = (RemovalReport){.fd = -1};
}

void removal_report_count(RemovalReport *report, const TextDocument *document) {
    RemovalSource *source = &report->sources[document->position.file];
    source->documents++, source->tokens += document->tokens;
    if (!source->counts[document->split]++) source->first[document->split] = document->number;
}

static void add_place(Buffer *lines, const char *split_key, const char *number_key, int split, uint64_t number) {
    json_add_field(lines, split_key, split_names[split]);
    json_add_number(lines, number_key, number);
}

void removal_report_begin(RemovalReport *report, const TextDocument *document) {
    RemovalSource *source = &report->sources[document->position.file];
    source->removed_documents++, source->removed_tokens += document->tokens;
    buffer_print(&report->lines, "{");
    json_add_field(&report->lines, "removed", report->inputs->inputs.arguments[document->position.file].path);
    add_place(&report->lines, "split", "document", document->split, document->position.document);
    json_add_number(&report->lines, "tokens", document->tokens);
    provenance_add_json(&report->lines, "", document->row);
}

// A document that stays, and where it came from. Without a report that is not looked up.
static int add_kept(RemovalReport *report, KeptRows *kept, const char *path, int split, uint64_t document) {
    Bytes row;
    json_add_field(&report->lines, "kept", path);
    add_place(&report->lines, "kept_split", "kept_document", split, document);
    if (report->fd < 0 || !dataset_is(path)) return 0;
    if (!kept->dataset.path) {
        if (dataset_open(&kept->dataset, path) < 0) return -1;
        for (int i = 0; i < SPLIT_COUNT; i++) kept->rows[i] = (ProvenanceReader){.dataset = &kept->dataset, .split = i};
    }
    if (provenance_at(&kept->rows[split], document, &row) < 0) return -1;
    provenance_add_json(&report->lines, "kept_", row);
    return 0;
}

static int add_kept_source(RemovalReport *report, uint64_t number) {
    for (uint64_t i = 0; i < report->inputs->inputs.argument_count; i++)
        for (int split = 0; split < SPLIT_COUNT; split++) {
            RemovalSource *source = &report->sources[i];
            const uint64_t within = number - source->first[split];
            const char *path = report->inputs->inputs.arguments[i].path;
            if (within < source->counts[split] && add_kept(report, &source->kept, path, split, within) < 0) return -1;
        }
    return 0;
}

static int add_kept_old(RemovalReport *report, uint64_t number) {
    int split;
    uint64_t document;
    const OldDataset *dataset = old_datasets_find(report->old, number, &split, &document);
    KeptRows *kept = &report->old_kept[dataset - report->old->datasets];
    return add_kept(report, kept, dataset->parts.directory, split, document);
}

int removal_report_add_kept(RemovalReport *report, uint64_t number, double similarity) {
    const uint64_t old = report->old ? report->old->documents : 0;
    const int status = number < old ? add_kept_old(report, number) : add_kept_source(report, number - old);
    json_add_real(&report->lines, "similarity", similarity, 4);
    return status;
}

static int flush(RemovalReport *report) {
    const int status = report->fd < 0 ? 0 : fd_write(report->fd, report->lines.data, report->lines.size, report->name);
    report->lines.size = 0;
    return status;
}

int removal_report_end(RemovalReport *report) {
    buffer_print(&report->lines, "}\n");
    return report->lines.size < LINES_BYTES ? 0 : flush(report);
}

// Copies the report to the file of its name.
static int publish(RemovalReport *report, NewFile *file) {
    static uint8_t block[1 << 16];
    char folder[PATH_MAX_BYTES];
    ssize_t got;
    const char *name = path_split(report->path, folder);
    dir_sweep(folder, name);
    if (newfile_open(file, report->path) < 0) return -1;
    while ((got = fd_read_at(report->fd, file->written, block, sizeof block, report->name)) > 0)
        if (newfile_write(file, block, (size_t)got) < 0) return -1;
    return got < 0 ? -1 : newfile_commit(file);
}

int removal_report_finish(RemovalReport *report) {
    NewFile file = {0};
    int status = flush(report);
    if (status == 0 && report->path) status = publish(report, &file);
    if (status < 0) newfile_abandon(&file);
    return status;
}

void removal_report_summary(const RemovalReport *report) {
    uint64_t documents = 0, removed = 0, tokens = 0;
    const uint64_t count = report->inputs->inputs.argument_count;
    for (uint64_t i = 0; i < count; i++) {
        const RemovalSource *source = &report->sources[i];
        const char *path = report->inputs->inputs.arguments[i].path;
        documents += source->documents, removed += source->removed_documents, tokens += source->removed_tokens;
        if (source->removed_documents * 100 > source->documents * WARN_PERCENT)
            log_warn("'%s' loses %" PRIu64 " of %" PRIu64 " document%s, more than %d %%", path,
                     source->removed_documents, source->documents, PLURAL(source->documents), WARN_PERCENT);
        else if (count > 1)
            log_line("'%s': removed %" PRIu64 " of %" PRIu64 " document%s, %" PRIu64 " of %" PRIu64 " tokens", path,
                     source->removed_documents, source->documents, PLURAL(source->documents), source->removed_tokens,
                     source->tokens);
    }
    log_line("removed %" PRIu64 " of %" PRIu64 " document%s, %" PRIu64 " tokens", removed, documents, PLURAL(documents),
             tokens);
}

// The text of trainer doctor --bug-report.
#include "trainer/run/bug_report.h"
#include "common/cli/version.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/hash.h"
#include "common/machine/cpu.h"
#include "common/machine/pool.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/plan/plan_check.h"
#include "trainer/setup/backend_for.h"
#include "trainer/setup/data_check.h"
#include "trainer/setup/loader_process.h"
#include <ctype.h>
#include <glob.h>
#include <gnu/libc-version.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static void add_title(Buffer *out, const char *title) { buffer_print(out, "\n== %s\n", title); }

static void add_error(Buffer *out) {
    buffer_print(out, "%s\n", err_text());
    err_clear();
}

// ---- programs

static void add_hash(Buffer *out, const char *name, const char *path) {
    uint8_t digest[32];
    char hex[65];
    Bytes map;
    if (file_map(&map, path) < 0) {
        add_error(out);
        return;
    }
    sha256(map.data, map.size, digest);
    hex_encode(hex, digest, sizeof digest);
    buffer_print(out, "%-10s sha256 %s, %zu bytes\n", name, hex, map.size);
    file_unmap(&map);
}

static void add_programs(Buffer *out) {
    char path[PATH_MAX_BYTES];
    add_title(out, "programs");
    buffer_print(out, "millrace %s, commit %s, compiler %s, glibc %s, %s\n", version, version_commit, __VERSION__,
                 gnu_get_libc_version(), version_parts);
    program_path(path, NULL) < 0 ? add_error(out) : add_hash(out, "trainer", path);
    program_find(path, "loader") < 0 ? add_error(out) : add_hash(out, "loader", path);
}

// ---- machine

// The rest of the first line of a file that begins with `key`; the first line for "".
static void add_line_of(Buffer *out, const char *path, const char *key) {
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "re");
    while (file && getline(&line, &size, file) > 0) {
        if (strncmp(line, key, strlen(key))) continue;
        const char *text = line + strlen(key);
        text += strspn(text, " \t:=\"");
        buffer_print(out, "%.*s\n", (int)strcspn(text, "\"\n"), text);
        break;
    }
    free(line);
    if (file) fclose(file);
}

static void add_machine(Buffer *out, Bytes checks) {
    struct utsname system;
    glob_t cards;
    add_title(out, "machine");
    if (uname(&system) == 0) buffer_print(out, "%s %s %s\n", system.sysname, system.release, system.machine);
    add_line_of(out, "/etc/os-release", "PRETTY_NAME");
    add_line_of(out, "/proc/cpuinfo", "model name");
    buffer_print(out, "instructions %s, %u cores\n", cpu_isa_name(cpu_isa()), pool_cores());
    add_line_of(out, "/proc/meminfo", "MemTotal");
    add_line_of(out, "/proc/driver/nvidia/version", "");
    if (glob("/proc/driver/nvidia/gpus/*/information", 0, NULL, &cards) == 0)
        for (size_t i = 0; i < cards.gl_pathc; i++) add_line_of(out, cards.gl_pathv[i], "Model");
    globfree(&cards);
    buffer_add(out, checks.data, checks.size);
}

// ---- the run

static void add_dataset(Buffer *out, const Config *config) {
    char path[PATH_MAX_BYTES];
    FeedDataset dataset;
    add_title(out, "dataset");
    if (*config->loader || !*config->dataset || !loader_process_dataset(path, config)) {
        buffer_print(out, "%s\n", *config->loader ? "of a running loader" : "none");
        return;
    }
    snprintf(path + strlen(path), sizeof path - strlen(path), "/dataset.jsonl");
    add_hash(out, "manifest", path);
    if (data_check_find(config, &dataset) > 0)
        buffer_print(out, "%llu training tokens\n", (unsigned long long)dataset.tokens[SPLIT_TRAIN]);
    else
        add_error(out);
}

static void add_configuration(Buffer *out, const ConfigReader *given) {
    ConfigReader reader = *given;
    add_title(out, "configuration");
    if (*reader.config.loader) reader.config.loader = "ENDPOINT";
    if (*reader.config.loader_key) reader.config.loader_key = "KEY";
    config_add_text(&reader, out);
}

static void add_plan(Buffer *out, Config config) {
    const Backend *backend = backend_for(&config, &(GpuProperties){0}, NULL);
    add_title(out, "plan");
    if (!backend) {
        add_error(out);
        return;
    }
    Model model;
    MemoryPlan plan;
    const bool fits = memory_plan_of_run(&plan, &model, &config, backend, false) == 0;
    memory_plan_print(&plan, &config, &model, backend, out);
    if (!fits) add_error(out);
    model_close(&model);
    backend->close();
}

// The newest checkpoint and the data that it has read, whose folders it does not know.
static void add_state(Buffer *out, const char *out_dir) {
    char path[PATH_MAX_BYTES], digits[65];
    uint64_t step = 0;
    SavedState saved;
    if (!checkpoint_any(out_dir, path, &step)) return;
    buffer_print(out, "newest checkpoint: step %llu\n", (unsigned long long)step);
    if (saved_state_read(&saved, path) < 0) add_error(out);
    for (int i = 0; i < saved.state.dataset_count; i++) {
        const DatasetUse *use = &saved.state.datasets[i];
        hex_encode(digits, use->fingerprint, sizeof use->fingerprint);
        buffer_print(out, "dataset '%s', fingerprint %s, %llu samples\n", use->name, digits,
                     (unsigned long long)use->consumed);
    }
    saved_state_close(&saved);
}

// The last lines of metrics.jsonl, of which one may be torn.
static void add_metrics(Buffer *out, const char *out_dir) {
    enum { LINES = 40 };
    char path[PATH_MAX_BYTES];
    Bytes map;
    add_title(out, "run");
    add_state(out, out_dir);
    if (file_map(&map, path_join(path, out_dir, "metrics.jsonl")) < 0) {
        add_error(out);
        return;
    }
    size_t from = map.size, lines = 0;
    while (from && lines <= LINES)
        if (map.data[--from] == '\n') lines++;
    buffer_add(out, map.data + from, map.size - from);
    buffer_print(out, "\n");
    file_unmap(&map);
}

// ---- names

void bug_report_hide(Buffer *text, const char *name, const char *by) {
    const size_t length = name ? strlen(name) : 0;
    if (length < 2) return;
    Buffer out = {0};
    buffer_add(text, "", 1);
    const char *from = (const char *)text->data, *at = from, *const end = from + text->size - 1;
    for (const char *found; (found = memmem(at, (size_t)(end - at), name, length)); at = found + 1) {
        const bool begins = found == (const char *)text->data || !isalnum((unsigned char)found[-1]);
        if (!begins || isalnum((unsigned char)found[length])) continue;
        buffer_add(&out, from, (size_t)(found - from));
        buffer_print(&out, "%s", by);
        from = found + length, found = from - 1;
    }
    buffer_add(&out, from, (size_t)(end - from));
    buffer_close(text);
    *text = out;
}

static void hide_names(Buffer *text) {
    const struct passwd *user = getpwuid(getuid());
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    bug_report_hide(text, getenv("HOME"), "~");
    if (user) bug_report_hide(text, user->pw_dir, "~"), bug_report_hide(text, user->pw_name, "USER");
    static const char *const names[] = {"USER", "LOGNAME", "SUDO_USER"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) bug_report_hide(text, getenv(names[i]), "USER");
    bug_report_hide(text, host, "HOST");
    host[strcspn(host, ".")] = 0;
    bug_report_hide(text, host, "HOST");
}

void bug_report_add(Buffer *out, ConfigReader *reader, Bytes checks) {
    Buffer text = {0};
    buffer_print(&text, "Report of millrace doctor. Names of the user, the machine and endpoints are replaced.\n");
    add_programs(&text);
    add_machine(&text, checks);
    add_configuration(&text, reader);
    add_dataset(&text, &reader->config);
    if (model_config_resolve(reader, true) < 0)
        add_title(&text, "model"), add_error(&text);
    else
        add_plan(&text, reader->config);
    add_metrics(&text, reader->config.out_dir);
    hide_names(&text);
    buffer_add(out, text.data, text.size);
    buffer_close(&text);
}

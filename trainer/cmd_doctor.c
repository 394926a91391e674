// trainer doctor: the parts of this machine that a run needs, and the reasons that would stop one.
#include "common/cli/cli.h"
#include "common/err.h"
#include "common/file/folder_probe.h"
#include "common/log.h"
#include "common/machine/cgroup.h"
#include "common/machine/host_memory.h"
#include "common/machine/pool.h"
#include "common/zstd/zstd_decoder.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/config/config.h"
#include "trainer/config/until.h"
#include "trainer/plan/plan_auto.h"
#include "trainer/plan/plan_check.h"
#include "trainer/run/bug_report.h"
#include "trainer/setup/backend_for.h"
#include "trainer/setup/data_check.h"
#include "trainer/setup/loader_process.h"
#include "trainer/setup/vocabulary.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

extern char **environ;

// A checkpoint of GPT-2 124M with its optimizer state, if no configuration is given.
#define CHECKPOINT_BYTES 1.5e9
// The smallest demo with its libraries.
#define MEMORY_BYTES     1e9

typedef enum { FINE, WARNING, BLOCKED } Finding;

static const char *report = "";
static const Option options[] = {
    {OPT_STRING, "report", &report, "FILE",
     "also write a bug report: versions, machine, configuration, plan, the end of the run in out_dir"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

static const char *directory;                                         // of a run
static char newest[PATH_MAX_BYTES], damage[2 * PATH_MAX_BYTES + 128]; // its newest checkpoint, and the damage found
static SavedState saved;
static const char argument[] = "argument"; // the origin of out_dir
static ConfigReader reader;
static const Config *const config = &reader.config;
static char no_vocabulary[PATH_MAX_BYTES + 256]; // why the model's was not found
static double checkpoint_size;
static bool sized; // by a configuration

static Finding check_device(char *text, size_t size) {
    char why[256];
    const Backend *backend = backend_open(&(BackendChoice){.device = config->device, .dtype = config->dtype}, why);
    snprintf(text, size, "%s", backend ? why : err_text());
    if (!backend) return err_clear(), BLOCKED;
    const bool unused = backend->in_host_memory && (!access("/dev/nvidiactl", F_OK) || !access("/dev/dxg", F_OK));
    backend->close();
    return unused ? WARNING : FINE;
}

// One that cannot be used stops a run on the CPU: check_device.
static Finding check_onednn(char *text, size_t size) { return backend_cpu_library(text, size) ? FINE : WARNING; }

static Finding check_cuda(char *text, size_t size) {
    const bool found = backend_cuda_libraries(text, size);
    return found || access("/dev/nvidiactl", F_OK) ? FINE : WARNING;
}

static Finding check_mpi(char *text, size_t size) { return collective_library(text, size), FINE; }

static Finding check_zstd(char *text, size_t size) { return snprintf(text, size, "%s", zstd_version_text()), FINE; }

static Finding check_cores(char *text, size_t size) {
    const CgroupLimits limits = cgroup_limits();
    snprintf(text, size, "%u of %ld", pool_cores(), sysconf(_SC_NPROCESSORS_ONLN));
    if (limits.cpus) snprintf(text + strlen(text), size - strlen(text), " (control group: %u)", limits.cpus);
    const int64_t threads = threads_requested(config);
    char bound[96];
    if (threads_bound(bound, sizeof bound)) {
        snprintf(text + strlen(text), size - strlen(text), "; %s", bound);
        return WARNING;
    }
    if (threads <= pool_cores()) return FINE;
    snprintf(text + strlen(text), size - strlen(text), "; %s asks for %lld threads, which makes a step slow",
             config->threads ? "'threads'" : "OMP_NUM_THREADS", (long long)threads);
    return WARNING;
}

// With the plan of a run, if a configuration names its model.
static Finding check_memory(char *text, size_t size) {
    const uint64_t bytes = host_memory_free(NULL);
    char number[16], level[64], why[256];
    snprintf(text, size, "%s free for a run", human_bytes(number, (double)bytes));
    const Backend *backend =
        !sized ? NULL : backend_open(&(BackendChoice){.device = config->device, .dtype = config->dtype}, why);
    err_clear(); // check_device names it
    if (!backend) return (double)bytes < MEMORY_BYTES ? WARNING : FINE;
    Config chosen = *config;
    Model model;
    MemoryPlan plan;
    const bool fits = memory_plan_of_run(&plan, &model, &chosen, backend, true) == 0;
    plan_recompute_text(&chosen, level, sizeof level);
    if (fits)
        snprintf(text + strlen(text), size - strlen(text), ", which takes %s with batch_size %lld and recompute %s",
                 human_bytes(number, (double)plan.bytes), (long long)chosen.batch_size.value, level);
    else
        snprintf(text, size, "%s", err_text());
    err_clear();
    model_close(&model);
    backend->close();
    return fits ? FINE : BLOCKED;
}

// Nothing is printed if no run is named.
static Finding check_run(char *text, size_t size) {
    *text = 0;
    if (!config_is_set(&reader, KEY_out_dir)) return FINE;
    if (*damage)
        snprintf(text, size, "%s", damage);
    else if (*newest)
        snprintf(text, size, config->max_iters == UNTIL_STEPS ? "'%s', step %llu" : "'%s', step %llu of %lld", newest,
                 (unsigned long long)saved.state.step, (long long)config->max_iters);
    else if (access(directory, F_OK) == 0)
        snprintf(text, size, "'%s' has no checkpoint: a run starts there at step 0", directory);
    else
        snprintf(text, size, "'%s' does not exist: 'millrace train --out_dir=%s' starts a run there", directory,
                 directory);
    if (*damage && !saved.config) return BLOCKED;
    return *newest && !*damage ? FINE : WARNING;
}

// The run makes the directory if it does not exist. Two checkpoints: the previous one is kept while the next is
// written.
static Finding check_disk(char *text, size_t size) {
    char number[16], at[PATH_MAX_BYTES];
    const int64_t bytes = checkpoint_space(directory, at);
    if (bytes < 0) return snprintf(text, size, "'%s': %s", directory, strerror(errno)), BLOCKED;
    const bool writable = access(at, W_OK) == 0;
    snprintf(text, size, "%s free in '%s'%s", human_bytes(number, (double)bytes), at,
             writable ? "" : ", which you cannot write");
    if (!writable) return BLOCKED;
    Buffer lacks = {0};
    const int probed = folder_probe(at, PROBE_LINKS | PROBE_LOCKS, &lacks);
    const bool is_whole = probed == 0 && !lacks.size;
    if (probed < 0)
        snprintf(text, size, "%s", err_text()), err_clear();
    else if (!is_whole)
        snprintf(text + strlen(text), size - strlen(text), "; %s", (const char *)lacks.data);
    buffer_close(&lacks);
    if (probed < 0) return BLOCKED;
    if ((double)bytes >= 2 * checkpoint_size) return is_whole ? FINE : WARNING;
    snprintf(text + strlen(text), size - strlen(text), "; two checkpoints of %s take %s",
             sized ? "this model" : "GPT-2 124M", human_bytes(number, 2 * checkpoint_size));
    return (double)bytes < checkpoint_size && sized ? BLOCKED : WARNING;
}

// The limits of the shell (ulimit) that end runs, each with the least that any run needs.
static Finding check_limits(char *text, size_t size) {
    static const struct {
        const char *name, *flag;
        int resource;
        rlim_t least;
    } rows[] = {
        {"file size", "-f", RLIMIT_FSIZE, (rlim_t)CHECKPOINT_BYTES},
        {"address space", "-v", RLIMIT_AS, (rlim_t)MEMORY_BYTES},
        {"stack", "-s", RLIMIT_STACK, 1 << 20},
        {"open files", "-n", RLIMIT_NOFILE, 64},
        {"processes", "-u", RLIMIT_NPROC, 64},
    };
    Finding worst = FINE;
    *text = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rlimit limit;
        if (getrlimit((__rlimit_resource_t)rows[i].resource, &limit) < 0 || limit.rlim_cur >= rows[i].least) continue;
        snprintf(text + strlen(text), size - strlen(text), "%s%s %llu (ulimit %s), a run may need %llu",
                 worst ? "; " : "", rows[i].name, (unsigned long long)limit.rlim_cur, rows[i].flag,
                 (unsigned long long)rows[i].least);
        worst = WARNING;
    }
    if (!worst) snprintf(text, size, "high enough");
    return worst;
}

// Whether the program starts: one of which a part is missing is killed, or something else.
static bool prints_version(char *path) {
    char *arguments[] = {path, (char[]){"--version"}, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&pid, path, &actions, NULL, arguments, environ) == 0)
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    posix_spawn_file_actions_destroy(&actions);
    return status == 0;
}

static Finding check_loader(char *text, size_t size) {
    char path[PATH_MAX_BYTES];
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    if (program_find(path, "loader") < 0) {
        snprintf(text, size, "%s; without it a run needs loader= with the endpoint of a running one", err_text());
        return err_clear(), WARNING;
    }
    snprintf(text, size, "'%s', ZeroMQ %d.%d.%d", path, major, minor, patch);
    if (prints_version(path)) return FINE;
    snprintf(text, size, "'%s' does not start: install it again, or name a running one with loader=", path);
    return *config->loader ? WARNING : BLOCKED;
}

// The inputs of the run, if the configuration names them: the dataset, whether the model can be trained on it, and the
// initial weights.
static Finding check_inputs(char *text, size_t size) {
    FeedDataset dataset;
    char model[PATH_MAX_BYTES];
    *text = 0;
    if (*no_vocabulary) return snprintf(text, size, "vocabulary: %s", no_vocabulary), BLOCKED;
    const int found = data_check_find(config, &dataset);
    int status = found < 0 ? -1 : found ? data_check(config, &dataset) : 0;
    if (status == 0 && found) status = data_check_pass(config, &dataset, 0, 0);
    if (status < 0) return snprintf(text, size, "dataset: %s", err_text()), err_clear(), BLOCKED;
    if (found) snprintf(text, size, "dataset '%s'", dataset.name);
    const bool starts = !checkpoint_any(config->out_dir, model, &(uint64_t){0}); // else no initial weights are read
    if (!starts || !strcmp(config->init_from, "scratch") || !strcmp(config->init_from, "resume")) return FINE;
    status = model_directory(model, config->init_from, config->out_dir);
    if (status == 0 && access(model, F_OK) < 0) status = fail_errno("'%s'", model);
    if (status < 0) return snprintf(text, size, "init_from: %s", err_text()), err_clear(), BLOCKED;
    snprintf(text + strlen(text), size - strlen(text), "%sinitial weights '%s'", found ? ", " : "", model);
    return FINE;
}

// The memory before the libraries, of which cuda and mpi take address space that a run has.
static const struct {
    const char *name;
    Finding (*check)(char *text, size_t size);
} checks[] = {
    {"device", check_device}, {"memory", check_memory}, {"onednn", check_onednn}, {"cuda", check_cuda},
    {"mpi", check_mpi},       {"zstd", check_zstd},     {"cores", check_cores},   {"run", check_run},
    {"disk", check_disk},     {"limits", check_limits}, {"loader", check_loader}, {"inputs", check_inputs},
};

static void add_checks(Buffer *out, Finding *worst) {
    static const char *const words[] = {"ok", "warning", "error"};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        char text[2 * PATH_MAX_BYTES];
        Finding found = checks[i].check(text, sizeof text);
        const bool shown = found > FINE || !log_quiet || *report;
        if (*text && shown) buffer_print(out, "%-8s %-7s %s\n", words[found], checks[i].name, text);
        if (found > *worst) *worst = found;
    }
}

// Finds the newest checkpoint in the directory. If no file gives a configuration, that of the checkpoint is taken from
// which a run continues.
static int take_run(bool from_files) {
    char whole[PATH_MAX_BYTES];
    uint64_t step;
    RunState state;
    if (!checkpoint_any(directory, newest, &step)) {
        if (!*report || from_files || strcmp(reader.origin[KEY_out_dir], argument) || access(directory, F_OK) == 0)
            return 0;
        return fail(EX_NOINPUT, "there is no run in '%s': name the directory that holds its metrics.jsonl", directory);
    }
    if (checkpoint_newest(directory, NULL, whole, &state) <= 0 || saved_state_read(&saved, whole) < 0) {
        snprintf(damage, sizeof damage, "%s", err_text());
        return err_clear(), 0;
    }
    if (state.step < step)
        snprintf(damage, sizeof damage, "'%s' is damaged: 'millrace train' continues from '%s', step %llu", newest,
                 whole, (unsigned long long)state.step);
    if (!from_files) saved_state_fill(&saved, &reader, whole);
    return 0;
}

// An argument that is not a file is the directory; files are configurations, whose model is then the run's.
static int take_arguments(int count, char **arguments) {
    struct stat status;
    int files = 0;
    for (int i = 0; i < count; i++)
        if (stat(arguments[i], &status) == 0 && S_ISREG(status.st_mode))
            arguments[files++] = arguments[i];
        else if (directory)
            return fail(EX_USAGE, "expected one directory at most");
        else
            directory = arguments[i];
    if (config_read(&reader, files, arguments) < 0) return -1;
    if (!directory)
        directory = config_is_set(&reader, KEY_out_dir) ? config->out_dir : ".";
    else if (!config_is_set(&reader, KEY_out_dir)) {
        reader.config.out_dir = directory;
        strcpy(reader.origin[KEY_out_dir], argument);
    }
    checkpoint_size = CHECKPOINT_BYTES;
    if (take_run(files) < 0) return -1;
    if (vocabulary_resolve(&reader, NULL) < 0)
        snprintf(no_vocabulary, sizeof no_vocabulary, "%s", err_text()), err_clear();
    if (!*newest && !files && !config_is_set(&reader, KEY_n_embd) && !config_is_set(&reader, KEY_n_layer)) return 0;
    Model model;
    const ModelShape shape = model_shape(config);
    model_open(&model, &shape);
    checkpoint_size = (double)checkpoint_bytes(&model, optimizer_for(config));
    sized = true;
    model_close(&model);
    return 0;
}

static int write_report(Bytes found) {
    Buffer text = {0};
    bug_report_add(&text, &reader, found);
    const int result = file_write_over(report, (Bytes){text.data, text.size}, strlen("Report of millrace"));
    if (result == 0) log_line("report for a bug: '%s'; read it before you send it", report);
    buffer_close(&text);
    return result;
}

static int run(int count, char **arguments) {
    Finding worst = FINE;
    Buffer text = {0};
    int result = take_arguments(count, arguments);
    if (result == 0) {
        add_checks(&text, &worst);
        fwrite(text.data, 1, text.size, stdout);
        if (*report) result = write_report((Bytes){text.data, text.size});
    }
    buffer_close(&text);
    saved_state_close(&saved);
    config_close(&reader);
    return result < 0 ? -1 : worst == BLOCKED ? EX_NO : EX_DONE;
}

const Command trainer_doctor = {"doctor",
                                "[DIR] [CONFIG...] [--key=value...]",
                                "check this machine for a run in DIR; exit code 1 if something would stop it",
                                options,
                                run,
                                &config_options};

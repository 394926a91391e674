// loader swap: has a running loader serve other datasets, or its mixture with other weights.
#include "common/cli/cli.h"
#include "common/err.h"
#include "common/file/file.h"
#include "loader/client/control.h"
#include "loader/protocol/mixture.h"
#include <unistd.h>

static const char *address, *key_file, *schedule_file;
static bool check;
static uint64_t from_sample;

static const Option options[] = {
    {OPT_STRING, "endpoint", &address, "ENDPOINT", "where the loader is, as in serve"},
    {OPT_STRING, "key", &key_file, "FILE", "the loader's own key pair, for a loader with keys"},
    {OPT_STRING, "schedule", &schedule_file, "FILE", "later weights of the new mixture, as in serve"},
    {OPT_SIZE, "from", &from_sample, "SAMPLE",
     "the first sample with new weights; 0: soon after the last one that trainers have requested"},
    {OPT_FLAG, "check", &check, NULL, "change nothing: only report whether the loader would serve it"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

// The loader may have another working directory.
static int add_path(Buffer *words, const char *path) {
    char folder[PATH_MAX_BYTES];
    if (*path != '/') {
        if (!getcwd(folder, sizeof folder)) return fail_errno("cannot read the working directory");
        buffer_print(words, "%s/", folder);
    }
    buffer_add(words, path, strlen(path) + 1);
    return 0;
}

static int send(const WireControl *control, Buffer *words, int status) {
    if (status == 0) status = control_send(address, key_file, control, words);
    buffer_close(words);
    return status;
}

static int swap_datasets(int count, char **arguments) {
    Buffer words = {0};
    WireControl control = {
        .action = WIRE_SWAP, .words = (uint32_t)count, .has_schedule = schedule_file != NULL, .check = check};
    int status = from_sample ? fail(EX_USAGE, "--from is for weights alone, :WEIGHT for each dataset") : 0;
    for (int i = 0; status == 0 && i < count; i++) status = add_path(&words, arguments[i]);
    if (status == 0 && schedule_file) control.words++, status = add_path(&words, schedule_file);
    return send(&control, &words, status);
}

static int change_weights(int count, char **arguments) {
    Buffer words = {0};
    if (count < 2) return fail(EX_USAGE, "swap needs a :WEIGHT argument for each dataset of the mixture");
    if (schedule_file || check) return fail(EX_USAGE, "--schedule and --check are for datasets, not for weights alone");
    if (from_sample >> WIRE_SAMPLE_MAX_BITS) return fail(EX_USAGE, "--from is too large");
    for (int i = 0; i < count; i++) buffer_add(&words, arguments[i] + 1, strlen(arguments[i]));
    return send(&(WireControl){.action = WIRE_REWEIGHT, .words = (uint32_t)count, .from_sample = from_sample}, &words,
                0);
}

static int run(int count, char **arguments) {
    int weights = 0;
    for (int i = 0; i < count; i++) weights += *arguments[i] == ':';
    if (count < 1 || count > MIXTURE_SOURCES_MAX)
        return fail(EX_USAGE,
                    "swap needs 1 to %d arguments: DIR[:WEIGHT] of datasets, or :WEIGHT for each of those served",
                    MIXTURE_SOURCES_MAX);
    if (weights && weights < count) return fail(EX_USAGE, "a :WEIGHT without its DIR is for all datasets or none");
    return weights ? change_weights(count, arguments) : swap_datasets(count, arguments);
}

const Command loader_swap = {"swap",
                             "DIR[:WEIGHT]...|:WEIGHT...",
                             "have a running loader serve other datasets, or its own with other weights",
                             options,
                             run,
                             NULL};

// loader swap: has a running loader serve other datasets.
#include "common/cli/cli.h"
#include "common/err.h"
#include "common/file/file.h"
#include "loader/client/control.h"
#include "loader/protocol/mixture.h"
#include <unistd.h>

static const char *address, *key_file, *schedule_file;
static bool check;

static const Option options[] = {
    {OPT_STRING, "endpoint", &address, "ENDPOINT", "where the loader is, as in serve"},
    {OPT_STRING, "key", &key_file, "FILE", "the loader's own key pair, for a loader with keys"},
    {OPT_STRING, "schedule", &schedule_file, "FILE", "later weights of the new mixture, as in serve"},
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

static int run(int count, char **arguments) {
    Buffer words = {0};
    if (count < 1 || count > MIXTURE_SOURCES_MAX)
        return fail(EX_USAGE, "swap needs 1 to %d DIR arguments, dataset directories", MIXTURE_SOURCES_MAX);
    WireControl control = {
        .action = WIRE_SWAP, .words = (uint32_t)count, .has_schedule = schedule_file != NULL, .check = check};
    int status = 0;
    for (int i = 0; status == 0 && i < count; i++) status = add_path(&words, arguments[i]);
    if (status == 0 && schedule_file) control.words++, status = add_path(&words, schedule_file);
    if (status == 0) status = control_send(address, key_file, &control, &words);
    buffer_close(&words);
    return status;
}

const Command loader_swap = {"swap", "DIR[:WEIGHT]...", "have a running loader serve other datasets", options, run,
                             NULL};

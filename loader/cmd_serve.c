// loader serve: opens a dataset directory and serves it.
#include "common/cli.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "loader/commands.h"
#include "loader/serve.h"
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char *endpoint;
static bool die_with_parent;

static const Option options[] = {
    {OPT_STRING, "endpoint",        &endpoint,        "ipc://DIR",
     "where trainers find the loader ($XDG_RUNTIME_DIR/millrace, else /tmp/millrace-UID)"                              },
    {OPT_FLAG,   "die-with-parent", &die_with_parent, NULL,        "stop when the process that started the loader ends"},
    {OPT_END,    NULL,              NULL,             NULL,        NULL                                                },
};

static int serve(const Place *place, const char *path) {
    Server *server = serve_open(place, path);
    if (!server) return -1;
    const Dataset *dataset = serve_dataset(server);
    char fp[17];
    hex_encode(fp, dataset->fingerprint, 8);
    log_line("ready: serving '%s', %llu train and %llu val tokens, fingerprint %s, at %s", dataset->name,
             (unsigned long long)dataset->tokens[SPLIT_TRAIN], (unsigned long long)dataset->tokens[SPLIT_VAL], fp,
             place->name);
    int status = serve_run(server);
    serve_close(server);
    if (status == 0) log_line("stopped");
    return status;
}

static int run(int count, char **arguments) {
    pid_t parent = getppid();
    if (die_with_parent) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) return 0;
    }
    if (count != 1) return fail(EX_USAGE, "serve takes one dataset directory");
    Place place;
    return place_of(&place, endpoint) < 0 ? -1 : serve(&place, arguments[0]);
}

const Command cmd_serve = {"serve", "DIR", "serve a dataset directory to trainers", options, run, NULL};

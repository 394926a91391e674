// loader: serves a tokenized dataset to trainers.
#include "common/cli/cli.h"
#include <stddef.h>

#define COMMANDS(X) X(serve) X(swap) X(reweight) X(status) X(keygen)

#define DECLARE(name) extern const Command loader_##name;
COMMANDS(DECLARE)

static const ManualRow environment[] = {
    {"XDG_RUNTIME_DIR", "the default endpoint is the folder millrace in this one; else /tmp/millrace-UID"},
    {"NOTIFY_SOCKET", "set by systemd: serve reports there that it is ready, and that it stops"},
    {"JOURNAL_STREAM", "set by systemd: serve begins its lines with the time (UTC) where stderr is not this stream"},
    {NULL, NULL},
};
static const ManualRow signals[] = {
    {"SIGINT, SIGTERM",
     "serve answers the requests that it has received and ends with 0; trainers wait for another loader"},
    {"SIGHUP", "serve reads the allow-list, the datasets and the schedule again, and serves on if they cannot be read"},
    {NULL, NULL},
};
static const ManualRow files[] = {
    {"DIR/data.sock, DIR/ctl.sock, DIR/.lock", "the sockets of the endpoint ipc://DIR and its lock"},
    {"FILE", "the key pair that keygen creates, for --key; its public key is printed"},
    {NULL, NULL},
};
static const ManualRow examples[] = {
    {"serve data &", "serves a dataset to trainers of this machine"},
    {"status", "prints the datasets, the trainers and their rates"},
    {"swap data:3 other:1", "serves a mixture instead, three samples of data for one of other"},
    {NULL, NULL},
};

int main(int argc, char **argv) {
#define ROW(name) &loader_##name,
    static const Command *const commands[] = {COMMANDS(ROW) NULL};
    static const Program program = {
        .name = "loader",
        .summary = "serves a tokenized dataset to trainers",
        .commands = commands,
        .environment = environment,
        .signals = signals,
        .files = files,
        .examples = examples,
    };
    return cli_main(&program, argc, argv);
}

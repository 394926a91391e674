// loader: serves a tokenized dataset to trainers.
#include "common/cli/cli.h"
#include "common/cli/commands.h"
#include <stddef.h>

#define DECLARE(name) extern const Command loader_##name;
LOADER_COMMANDS(DECLARE)

static const ManualRow environment[] = {
    {"XDG_RUNTIME_DIR", "the default endpoint is the folder millrace in this one; else /tmp/millrace-UID",
     "serve swap serve-status"},
    {"NOTIFY_SOCKET", "set by systemd: serve reports there that it is ready, and that it stops", "serve"},
    {"JOURNAL_STREAM", "set by systemd: serve begins its lines with the time (UTC) if stderr is not this stream",
     "serve"},
    {NULL, NULL, NULL},
};
static const ManualRow signals[] = {
    {"SIGINT, SIGTERM",
     "serve answers the requests that it has received and ends with 0; trainers wait for another loader", "serve"},
    {"SIGHUP", "serve reads the allow-list, the datasets and the schedule again, and serves on if they cannot be read",
     "serve"},
    {NULL, NULL, NULL},
};
static const ManualRow files[] = {
    {"DIR/data.sock, DIR/ctl.sock, DIR/.lock", "the sockets of the endpoint ipc://DIR and its lock", "serve"},
    {"FILE", "the key pair that keygen creates, for --key; its public key is printed", "keygen"},
    {NULL, NULL, NULL},
};
static const ManualRow descriptions[] = {
    {"serve",
     "Serves samples to the trainers that connect, through shared memory on this machine (ipc) or over tcp. DIR:WEIGHT "
     "several times serves a mixture. It may be stopped, killed and started again while trainers run.",
     NULL},
    {"swap",
     "Replaces the datasets of a running loader. Its trainers continue with the new ones, or save and stop. With :WEIGHT "
     "for each dataset of the mixture, in their order, it changes only the weights.",
     NULL},
    {NULL, NULL, NULL},
};
static const ManualRow examples[] = {
    {"serve data &", "serves a dataset to trainers of this machine", NULL},
    {"serve-status", "prints the datasets, the trainers and their rates", NULL},
    {"swap --schedule weights.txt data:3 other:1",
     "serves a mixture instead, three samples of data for one of other; a new schedule is an empty file", NULL},
    {"swap --from 1000000 :1 :1", "changes the weights of that mixture from this sample on", NULL},
    {"keygen mill.key > mill.public", "makes a key pair, for serve --endpoint tcp://HOST:PORT --key mill.key", NULL},
    {NULL, NULL, NULL},
};

int main(int argc, char **argv) {
#define ROW(name) &loader_##name,
    static const Command *const commands[] = {LOADER_COMMANDS(ROW) NULL};
    static const Program program = {
        .name = "loader",
        .installed = "millrace-loader",
        .summary = "serves a tokenized dataset to trainers",
        .commands = commands,
        .environment = environment,
        .signals = signals,
        .files = files,
        .descriptions = descriptions,
        .examples = examples,
        .see_also = "millrace-trainer(1), shardtool(1)",
    };
    return cli_main(&program, argc, argv);
}

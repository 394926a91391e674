// loader serve-status: prints the report of a running loader.
#include "common/cli/cli.h"
#include "common/err.h"
#include "loader/client/query.h"
#include "loader/protocol/status.h"
#include <stdio.h>
#include <unistd.h>

enum { WAIT_MS = 2000, WATCH_MS = 2000 };

static const char *address, *key_file, *loader_key;
static bool json, prometheus, watch;

static const Option options[] = {
    {OPT_STRING, "endpoint", &address, "ENDPOINT", "where the loader is, as in serve"},
    {OPT_STRING, "key", &key_file, "FILE",
     "a key pair that the loader allows, or without --loader-key the loader's own"},
    {OPT_STRING, "loader-key", &loader_key, "KEY", "the public key of the loader"},
    {OPT_FLAG, "json", &json, NULL, "print one JSON object"},
    {OPT_FLAG, "prometheus", &prometheus, NULL, "print the text format of Prometheus"},
    {OPT_FLAG, "watch", &watch, NULL, "print again every 2 seconds, until Ctrl-C"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

static int print_status(Query *query) {
    static Status status;
    Buffer tables = {0}, text = {0};
    WireMessage request, reply;
    memset(&request, 0, sizeof request);
    request.header.type = WIRE_STATS;
    int result = query_send(query, &request, (Bytes){0}, WAIT_MS, &reply, &tables);
    if (result == 0 && status_decode(&status, &reply.stats, (Bytes){tables.data, tables.size}) < 0)
        result = fail(EX_PROTOCOL, "the reply from '%s' is not a status", query->endpoint.name);
    const StatusForm form = json ? STATUS_JSON : prometheus ? STATUS_PROMETHEUS : STATUS_TABLE;
    if (result == 0) status_print(&status, form, &query->endpoint, &text);
    if (text.size) fwrite(text.data, 1, text.size, stdout);
    if (result == 0 && fflush(stdout)) result = fail_errno("cannot write to stdout");
    buffer_close(&tables), buffer_close(&text);
    return result;
}

static int run(int count, char **arguments) {
    (void)arguments;
    Query query;
    if (count) return fail(EX_USAGE, "serve-status takes no arguments");
    if (json && prometheus) return fail(EX_USAGE, "--json and --prometheus exclude each other");
    if (loader_key && !key_file) return fail(EX_USAGE, "--loader-key needs --key");
    if (query_open(&query, address, key_file, loader_key) < 0) return -1;
    int status = print_status(&query);
    while (status == 0 && watch) {
        usleep(WATCH_MS * 1000);
        if (!json && !prometheus) printf("\n");
        status = print_status(&query);
    }
    query_close(&query);
    return status;
}

const Command loader_serve_status = {"serve-status", "",  "print the datasets, trainers and speed of a running loader",
                                     options,        run, NULL};

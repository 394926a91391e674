// loader status: prints what a running loader reports.
#include "common/cli.h"
#include "common/err.h"
#include "common/log.h"
#include "loader/protocol/endpoint.h"
#include "loader/protocol/keys.h"
#include "loader/protocol/status.h"
#include <errno.h>
#include <stdio.h>
#include <unistd.h>
#include <zmq.h>

enum { WAIT_MS = 2000, WATCH_MS = 2000 };

static const char *address, *key_file, *loader_key;
static bool json, prometheus, watch;

static const Option options[] = {
    {OPT_STRING, "endpoint",   &address,    "ENDPOINT", "where the loader is, as in serve"                         },
    {OPT_STRING, "key",        &key_file,   "FILE",     "a key pair that the loader allows, for a loader with keys"},
    {OPT_STRING, "loader-key", &loader_key, "KEY",      "the public key of the loader"                             },
    {OPT_FLAG,   "json",       &json,       NULL,       "print one JSON object"                                    },
    {OPT_FLAG,   "prometheus", &prometheus, NULL,       "print the text format of Prometheus"                      },
    {OPT_FLAG,   "watch",      &watch,      NULL,       "print again every 2 seconds, until Ctrl-C"                },
    {OPT_END,    NULL,         NULL,        NULL,       NULL                                                       },
};

static int set_keys(void *socket) {
    KeyPair keys;
    if (!key_file != !loader_key) return fail(EX_USAGE, "--key and --loader-key must be given together");
    if (!key_file) return 0;
    if (keys_read(&keys, key_file) < 0 || key_check(loader_key, "the loader's public key") < 0) return -1;
    zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, loader_key, KEY_TEXT);
    zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, keys.public_key, KEY_TEXT);
    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, keys.secret_key, KEY_TEXT);
    return 0;
}

static int connect_to(void *socket, const Endpoint *endpoint) {
    int ipv6 = strchr(endpoint->zmq_address, '[') != NULL, timeout_ms = WAIT_MS, linger_ms = 0;
    zmq_setsockopt(socket, ZMQ_IPV6, &ipv6, sizeof ipv6);
    zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
    if (set_keys(socket) < 0) return -1;
    if (zmq_connect(socket, endpoint->zmq_address) == 0) return 0;
    return fail(EX_PEER, "cannot connect to '%s': %s", endpoint->name, zmq_strerror(errno));
}

static int decode(const Endpoint *endpoint, Bytes frame, Bytes tables, Status *status) {
    WireMessage reply;
    switch (wire_decode(frame, &reply, NULL)) {
    case WIRE_VALID:
        if (reply.header.type == WIRE_STATS && status_decode(status, &reply.stats, tables) == 0) return 0;
        // fall through
    case WIRE_CORRUPT:
    case WIRE_UNKNOWN_FIELD:
        return fail(EX_PROTOCOL, "the answer from '%s' is not a status", endpoint->name);
    case WIRE_OTHER_VERSION:
        break;
    }
    return fail(EX_PROTOCOL, "the loader at '%s' has protocol version %u, this program version %d", endpoint->name,
                reply.header.major, WIRE_MAJOR);
}

static int request_status(void *socket, const Endpoint *endpoint, Status *status) {
    WireMessage request;
    memset(&request, 0, sizeof request);
    request.header.type = WIRE_STATS, request.header.session = clock_ns() | 1;
    Bytes frame = wire_encode(&request);
    zmq_msg_t first, second;
    zmq_msg_init(&first), zmq_msg_init(&second);
    int result;
    if (zmq_send(socket, frame.data, frame.size, 0) < 0 || zmq_msg_recv(&first, socket, 0) < 0 ||
        (zmq_msg_more(&first) && zmq_msg_recv(&second, socket, 0) < 0))
        result = fail(EX_PEER, "no answer from a loader at '%s'", endpoint->name);
    else
        result = decode(endpoint, (Bytes){zmq_msg_data(&first), zmq_msg_size(&first)},
                        (Bytes){zmq_msg_data(&second), zmq_msg_size(&second)}, status);
    zmq_msg_close(&first), zmq_msg_close(&second);
    return result;
}

static int print_status(void *socket, const Endpoint *endpoint) {
    static Status status;
    Buffer text = {0};
    if (request_status(socket, endpoint, &status) < 0) return -1;
    status_print(&status, json ? STATUS_JSON : prometheus ? STATUS_PROMETHEUS : STATUS_TABLE, &text);
    fwrite(text.data, 1, text.size, stdout);
    buffer_close(&text);
    return fflush(stdout) == 0 ? 0 : fail_errno("cannot write to stdout");
}

static int run(int count, char **arguments) {
    (void)arguments;
    Endpoint endpoint;
    if (count) return fail(EX_USAGE, "status takes no arguments");
    if (json && prometheus) return fail(EX_USAGE, "--json and --prometheus exclude each other");
    if (endpoint_parse(&endpoint, address, key_file) < 0 || endpoint_check(&endpoint) < 0) return -1;
    void *context = zmq_ctx_new(), *socket = context ? zmq_socket(context, ZMQ_DEALER) : NULL;
    if (!socket) return fail(EX_LIMIT, "cannot start ZeroMQ: %s", zmq_strerror(errno));
    int status = connect_to(socket, &endpoint);
    if (status == 0) status = print_status(socket, &endpoint);
    while (status == 0 && watch) {
        usleep(WATCH_MS * 1000);
        if (!json && !prometheus) printf("\n");
        status = print_status(socket, &endpoint);
    }
    zmq_close(socket);
    zmq_ctx_term(context);
    return status;
}

const Command loader_status = {"status", "",  "print what a running loader serves, to whom and how fast",
                               options,  run, NULL};

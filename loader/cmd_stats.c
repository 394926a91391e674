// loader stats: prints the counters of a running loader.
#include "common/cli.h"
#include "common/err.h"
#include "common/log.h"
#include "loader/protocol/endpoint.h"
#include "loader/protocol/keys.h"
#include "loader/protocol/wire.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <zmq.h>

enum { WAIT_MS = 2000 };

static const char *address, *key_file, *loader_key;
static bool json;

static const Option options[] = {
    {OPT_STRING, "endpoint",   &address,    "ENDPOINT", "where the loader is, as in serve"                         },
    {OPT_STRING, "key",        &key_file,   "FILE",     "a key pair that the loader allows, for a loader with keys"},
    {OPT_STRING, "loader-key", &loader_key, "KEY",      "the public key of the loader"                             },
    {OPT_FLAG,   "json",       &json,       NULL,       "print one JSON object"                                    },
    {OPT_END,    NULL,         NULL,        NULL,       NULL                                                       },
};

static int request_stats(void *socket, const Endpoint *endpoint, WireMessage *reply) {
    WireMessage request;
    memset(&request, 0, sizeof request);
    request.header.type = WIRE_STATS, request.header.session = clock_ns() | 1;
    request.header.sent_ns = clock_ns();
    Bytes frame = wire_encode(&request);
    uint8_t bytes[sizeof *reply];
    KeyPair keys;
    if (!key_file != !loader_key) return fail(EX_USAGE, "--key and --loader-key must be given together");
    if (key_file) {
        if (keys_read(&keys, key_file) < 0 || key_check(loader_key, "the loader's public key") < 0) return -1;
        zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, loader_key, KEY_TEXT);
        zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, keys.public_key, KEY_TEXT);
        zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, keys.secret_key, KEY_TEXT);
    }
    int ipv6 = strchr(endpoint->zmq_address, '[') != NULL;
    zmq_setsockopt(socket, ZMQ_IPV6, &ipv6, sizeof ipv6);
    int timeout_ms = WAIT_MS, linger_ms = 0, got;
    zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
    if (zmq_connect(socket, endpoint->zmq_address) < 0 || zmq_send(socket, frame.data, frame.size, 0) < 0 ||
        (got = zmq_recv(socket, bytes, sizeof bytes, 0)) < 0)
        return fail(EX_PEER, "no answer from a loader at '%s'", endpoint->name);
    if ((size_t)got > sizeof bytes || wire_decode((Bytes){bytes, (size_t)got}, reply, NULL) != WIRE_VALID ||
        reply->header.type != WIRE_STATS)
        return fail(EX_PROTOCOL, "the answer from '%s' is not of protocol version %d", endpoint->name, WIRE_MAJOR);
    return 0;
}

static void print(const WireStats *stats) {
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"batches",        stats->batches            },
        {"tokens",         stats->tokens             },
        {"payload_bytes",  stats->payload_bytes      },
        {"frames_decoded", stats->frames_decoded     },
        {"produce_us",     stats->produce_ns / 1000  },
        {"repeated",       stats->repeated           },
        {"dropped",        stats->dropped            },
        {"errors",         stats->errors             },
        {"sessions",       stats->sessions           },
        {"uptime_ms",      stats->uptime_ns / 1000000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (json)
            printf("%s\"%s\":%" PRIu64, i ? "," : "{", rows[i].name, rows[i].value);
        else
            printf("%-15s %" PRIu64 "\n", rows[i].name, rows[i].value);
    }
    if (json) printf("}\n");
}

static int run(int count, char **arguments) {
    (void)arguments;
    Endpoint endpoint;
    WireMessage reply;
    if (count) return fail(EX_USAGE, "stats takes no arguments");
    if (endpoint_parse(&endpoint, address, key_file) < 0 || endpoint_check(&endpoint) < 0) return -1;
    void *context = zmq_ctx_new(), *socket = context ? zmq_socket(context, ZMQ_DEALER) : NULL;
    if (!socket) return fail(EX_LIMIT, "cannot start ZeroMQ: %s", zmq_strerror(errno));
    int status = request_stats(socket, &endpoint, &reply);
    zmq_close(socket);
    zmq_ctx_term(context);
    if (status == 0) print(&reply.stats);
    return status;
}

const Command loader_stats = {"stats", "", "print the counters of a running loader", options, run, NULL};

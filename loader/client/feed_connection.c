// The connection of a feed: a socket that is replaced when nothing arrives, the handshake, and the handlers of the
// loader's messages.
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "loader/client/feed_internal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <zmq.h>

#define MS 1000000ull
enum {
    DEADLINE_MS = 50, // an answer usually takes 0.1 ms; more when slower answers have been seen
    DEADLINE_TCP_MS = 500,
    DEADLINE_MAX_MS = 10000,
    LOADER_SILENCE_MS = 10000, // on tcp: no data and no heartbeats
    BACKOFF_MS = 10,
    BACKOFF_MAX_MS = 1000,
    ATTEMPT_MS = 2 // between attempts to connect at first
};

static void close_socket(Feed *feed) {
    // First the events: ZeroMQ's thread would wait for ever to send one to a closed monitor.
    if (feed->link.monitor) zmq_socket_monitor(feed->link.socket, NULL, 0), zmq_close(feed->link.monitor);
    if (feed->link.socket) zmq_close(feed->link.socket);
    feed->link.socket = feed->link.monitor = NULL;
    feed->link.state = CONNECTION_DOWN;
}

void connection_close(Feed *feed) {
    if (feed->link.socket && feed->link.state == CONNECTION_READY) {
        WireMessage bye;
        memset(&bye, 0, sizeof bye);
        bye.header.type = WIRE_BYE, bye.header.session = feed->link.session;
        Bytes frame = wire_encode(&bye);
        endpoint_set(feed->link.socket, ZMQ_LINGER, FEED_BYE_MS);
        zmq_send(feed->link.socket, frame.data, frame.size, ZMQ_DONTWAIT);
    }
    close_socket(feed);
    feed_ring_withdraw(feed);
}

static void send_hello(Feed *feed) {
    const FeedConfig *config = &feed->config;
    WireMessage message;
    memset(&message, 0, sizeof message);
    message.header.type = WIRE_HELLO;
    message.header.session = feed->link.session;
    message.header.req_id = feed->link.hello_req;
    message.header.sent_ns = clock_ns();
    WireHello *hello = &message.hello;
    hello->vocab_size = config->vocab_size, hello->sequence_tokens = config->sequence_tokens;
    hello->max_rows = config->max_rows, hello->window = feed->queue.window;
    memcpy(hello->dataset_fp8, feed->known ? feed->served : config->dataset, 8);
    memcpy(hello->name, feed->link.name, sizeof hello->name);
    memcpy(hello->vocab_fp, feed->known ? feed->dataset.vocab_fp : config->vocab_fp, 32);
    Bytes frame = wire_encode(&message);
    feed->link.hello_sent = zmq_send(feed->link.socket, frame.data, frame.size, ZMQ_DONTWAIT) >= 0;
}

// How long to wait for a message before a retry.
static uint64_t deadline_ns(const Feed *feed) {
    uint64_t shortest = (feed->link.endpoint.ipc ? DEADLINE_MS : DEADLINE_TCP_MS) * MS;
    uint64_t ns = 5 * feed->times.longest_wait_ns > shortest ? 5 * feed->times.longest_wait_ns : shortest;
    for (unsigned i = 0; i < feed->times.patience && ns < DEADLINE_MAX_MS * MS; i++) ns *= 2;
    return ns < DEADLINE_MAX_MS * MS ? ns : DEADLINE_MAX_MS * MS;
}

// An inproc socket that receives the events of feed->link.socket. When its queue is full, ZeroMQ's thread waits until
// the feed reads it, and zmq_socket_monitor waits for that thread: no event may repeat while the trainer computes.
static void open_monitor(Feed *feed) {
    char address[64];
    snprintf(address, sizeof address, "inproc://monitor-%llu", (unsigned long long)feed->queue.last_req);
    feed->link.monitor = zmq_socket(feed->link.context, ZMQ_PAIR);
    if (!feed->link.monitor ||
        zmq_socket_monitor(feed->link.socket, address,
                           ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                               ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL) < 0 ||
        zmq_connect(feed->link.monitor, address) < 0)
        die(EX_LIMIT, "cannot watch a ZeroMQ socket: %s", zmq_strerror(errno));
}

// A new socket, which connects once, and HELLO.
static void connect_once(Feed *feed) {
    uint8_t route[16]; // a new id: a ROUTER that still holds the old socket must not confuse the two
    close_socket(feed);
    feed->link.socket = zmq_socket(feed->link.context, ZMQ_DEALER);
    if (!feed->link.socket || getrandom(route, sizeof route, 0) != sizeof route)
        die(EX_LIMIT, "cannot open a ZeroMQ socket: %s", zmq_strerror(errno));
    route[0] |= 1; // an id must not begin with zero
    zmq_setsockopt(feed->link.socket, ZMQ_ROUTING_ID, route, sizeof route);
    endpoint_set(feed->link.socket, ZMQ_IMMEDIATE, 1); // do not queue messages while no loader is connected
    endpoint_set(feed->link.socket, ZMQ_SNDHWM, 2 * WIRE_WINDOW_MAX + 8);
    endpoint_set(feed->link.socket, ZMQ_RCVHWM, 2 * WIRE_WINDOW_MAX + 8);
    endpoint_set(feed->link.socket, ZMQ_LINGER, 0);
    endpoint_set(feed->link.socket, ZMQ_RECONNECT_IVL, -1); // by attempt_ns
    if (!feed->link.endpoint.ipc) endpoint_keep_alive(feed->link.socket, LOADER_SILENCE_MS);
    if (feed->config.loader_key) {
        zmq_setsockopt(feed->link.socket, ZMQ_CURVE_SERVERKEY, feed->config.loader_key, KEY_TEXT);
        zmq_setsockopt(feed->link.socket, ZMQ_CURVE_PUBLICKEY, feed->link.keys.public_key, KEY_TEXT);
        zmq_setsockopt(feed->link.socket, ZMQ_CURVE_SECRETKEY, feed->link.keys.secret_key, KEY_TEXT);
    }
    int64_t most = (int64_t)feed_batch_bytes(&feed->config);
    if (most < WIRE_WELCOME_MAX) most = WIRE_WELCOME_MAX;
    zmq_setsockopt(feed->link.socket, ZMQ_MAXMSGSIZE, &most, sizeof most);
    if (strchr(feed->link.endpoint.zmq_address, '[')) endpoint_set(feed->link.socket, ZMQ_IPV6, 1);
    feed->link.hello_req = ++feed->queue.last_req;
    open_monitor(feed);
    if (zmq_connect(feed->link.socket, feed->link.endpoint.zmq_address) < 0)
        die(EX_BUG, "ZeroMQ cannot connect to '%s': %s", feed->link.endpoint.zmq_address, zmq_strerror(errno));
    feed->link.state = CONNECTION_HELLO, feed->times.attempt_ns = UINT64_MAX;
    send_hello(feed);
}

void connection_open(Feed *feed) {
    if (feed->link.state == CONNECTION_ATTACH)
        feed_ring_withdraw(feed); // the ring was sent but the reply has not arrived
    connect_once(feed);
    feed->link.refused = false;
    feed->times.retry_ns = clock_ns() + feed->times.backoff_ns + deadline_ns(feed);
}

static void connection_reopen(Feed *feed) {
    feed->stats.reconnects++;
    connection_open(feed);
}

// The loader has ended or does not answer.
static void connection_reopen_next(Feed *feed) {
    feed->link.endpoint_number = (feed->link.endpoint_number + 1) % feed->link.endpoint_count;
    feed->link.endpoint = feed->link.endpoints[feed->link.endpoint_number];
    connection_reopen(feed);
}

static void note_reception(Feed *feed) {
    feed->times.last_rx_ns = feed->times.last_log_ns = clock_ns();
    feed->times.retry_ns = feed->times.last_rx_ns + deadline_ns(feed);
    feed->times.backoff_ns = BACKOFF_MS * MS;
    feed->link.attempts = 0;
}

void connection_send(Feed *feed, PendingRequest *request) {
    if (feed->link.state != CONNECTION_READY) return; // it is sent when the connection is ready
    uint64_t now = clock_ns();
    bool first = true;
    for (uint32_t i = 0; i < feed->queue.outstanding; i++) {
        const PendingRequest *other = feed_request_at(feed, i);
        first = first && (other == request || other->ready);
    }
    if (first) feed->times.retry_ns = now + deadline_ns(feed);
    WireMessage message;
    memset(&message, 0, sizeof message);
    message.header.type = WIRE_GET;
    message.header.session = feed->link.session;
    message.header.req_id = request->req_id;
    message.header.sent_ns = now;
    message.header.attach_id = feed->shared.attach_id;
    WireGet *get = &message.get;
    memcpy(get->dataset_fp8, feed->served, sizeof get->dataset_fp8);
    get->seed = request->what.seed, get->first_sample = request->what.first_sample;
    get->rows = request->what.rows, get->sequence_tokens = request->what.sequence_tokens;
    get->split = request->what.split, get->mode = request->what.mode, get->source = request->what.source;
    get->slot = request->slot, get->generation = request->generation;
    Bytes frame = wire_encode(&message);
    if (feed->shared.attach_id) request->received = 0; // pieces from an earlier connection without a ring
    if (request->sent_ns) feed->stats.resends++;
    request->sent_ns = now;
    zmq_send(feed->link.socket, frame.data, frame.size,
             ZMQ_DONTWAIT); // if it cannot be queued, the deadline sends it again
}

static void send_unanswered(Feed *feed) {
    for (uint32_t i = 0; i < feed->queue.outstanding; i++) {
        PendingRequest *request = feed_request_at(feed, i);
        if (!request->ready) connection_send(feed, request);
    }
}

static void connection_ready(Feed *feed) {
    feed->link.state = CONNECTION_READY;
    feed->stats.ring = feed->shared.attach_id != 0;
    note_reception(feed);
    send_unanswered(feed);
}

// --- the ring

int connection_attach(Feed *feed) {
    const FeedRingState state = feed_ring_offer(feed);
    if (state == FEED_RING_FAILED) return -1;
    if (state == FEED_RING_SETTLED) {
        connection_ready(feed);
    } else {
        feed->link.state = CONNECTION_ATTACH;
        feed->times.retry_ns = clock_ns() + deadline_ns(feed);
    }
    return 0;
}

static void on_ctl_readable(Feed *feed) {
    const FeedRingState state =
        feed->link.state == CONNECTION_ATTACH ? feed_ring_receive_reply(feed) : FEED_RING_FAILED;
    if (state == FEED_RING_SETTLED) connection_ready(feed);
    if (state != FEED_RING_FAILED) return;
    // The loader closed the connection: its process has ended or no longer writes to the ring.
    feed_ring_withdraw(feed);
    if (feed->link.state != CONNECTION_HELLO) connection_reopen_next(feed); // else the socket is new already
}

// --- handlers

static void store_dataset(Feed *feed, const WireWelcome *welcome, const WireSource *sources) {
    FeedDataset *dataset = &feed->dataset;
    memcpy(dataset->fingerprint, welcome->dataset_fp, 32), memcpy(feed->served, welcome->dataset_fp, 32);
    memcpy(dataset->vocab_fp, welcome->vocab_fp, 32);
    for (int split = 0; split < SPLIT_COUNT; split++) {
        dataset->tokens[split] = welcome->tokens[split];
        dataset->documents[split] = welcome->documents[split];
    }
    dataset->vocab_size = welcome->vocab_size, dataset->eot_id = welcome->eot_id;
    memcpy(dataset->name, welcome->name, sizeof welcome->name);
    dataset->source_count = welcome->sources;
    for (unsigned i = 0; i < welcome->sources; i++) {
        memcpy(dataset->sources[i].name, sources[i].name, sizeof sources[i].name);
        memcpy(dataset->sources[i].tokens, sources[i].tokens, sizeof sources[i].tokens);
    }
}

// The first split that is too short for this feed, and was not in the previous dataset; -1: none.
static int unfit_split(const Feed *feed, const WireWelcome *welcome) {
    uint32_t T = feed->config.sequence_tokens;
    for (int split = 0; feed->known && split < SPLIT_COUNT; split++)
        if (welcome->tokens[split] <= T && feed->dataset.tokens[split] > T) return split;
    return -1;
}

// The loader was restarted with a dataset that this trainer cannot use: another HELLO finds out when that has changed.
static int wait_for_another_dataset(Feed *feed, const WireWelcome *welcome, int split) {
    if (!feed->unfit)
        log_warn("the loader's dataset '%s' is too short (%s split: %llu tokens, needed: %llu): waiting for another",
                 welcome->name, split_names[split], (unsigned long long)welcome->tokens[split],
                 feed->config.sequence_tokens + 1ull);
    feed->unfit = true;
    feed->times.retry_ns = clock_ns() + BACKOFF_MAX_MS * MS;
    return 0;
}

// In a list of endpoints, a loader that replaces one that does not answer must serve the same samples; only the
// endpoint in use changes the samples of this trainer.
static bool replaces_dataset(const Feed *feed, const WireWelcome *welcome) {
    return feed->known && feed->link.endpoint_number != feed->link.dataset_endpoint && !welcome->same_samples;
}

static int pass_over(Feed *feed, const WireWelcome *welcome) {
    if (!feed->unfit)
        log_warn("the loader at %s serves dataset '%s', not '%s': waiting for another loader", feed->link.endpoint.name,
                 welcome->name, feed->dataset.name);
    feed->unfit = true;
    feed->times.retry_ns = clock_ns() + feed->times.backoff_ns;
    return 0;
}

// 0: keep waiting. -1 after fail().
enum { WELCOME_ACCEPTED = 1 };
static int accept_dataset(Feed *feed, const WireMessage *message, const WireSource *sources) {
    const WireWelcome *welcome = &message->welcome;
    if (welcome->vocab_size > feed->config.vocab_size)
        return fail(EX_PROTOCOL, "the loader's dataset '%s' has %u ids, the model only %u", welcome->name,
                    welcome->vocab_size, feed->config.vocab_size);
    if (replaces_dataset(feed, welcome)) return pass_over(feed, welcome);
    int split = unfit_split(feed, welcome);
    if (split >= 0) return wait_for_another_dataset(feed, welcome, split);
    feed->unfit = false;
    if (feed->known && memcmp(feed->served, welcome->dataset_fp, 32)) {
        feed_cancel(feed);
        feed->changed = true;
    }
    store_dataset(feed, welcome, sources);
    feed->known = true, feed->link.dataset_endpoint = feed->link.endpoint_number;
    feed->link.ring_offered = welcome->ring && feed->link.endpoint.ipc && !feed->config.inline_only;
    feed->link.instance = message->header.loader_instance;
    if (feed->queue.window > welcome->window && !feed->queue.outstanding) feed->queue.window = welcome->window;
    note_reception(feed);
    return WELCOME_ACCEPTED;
}

// Describes the mixture as it was with the fingerprint of FeedConfig, if its schedule begins with that one's.
static void leave_out_later(Feed *feed) {
    for (unsigned i = 0; i < feed->entry_count; i++)
        if (!memcmp(feed->weights[i].fingerprint, feed->config.dataset, 32)) {
            feed->weight_count = i + 1;
            memcpy(feed->dataset.fingerprint, feed->config.dataset, 32);
        }
}

static int on_welcome(Feed *feed, const WireMessage *message, Bytes part) {
    const WireWelcome *welcome = &message->welcome;
    WireSource sources[MIXTURE_SOURCES_MAX];
    WireWeights *weights;
    if (feed->link.state != CONNECTION_HELLO || message->header.req_id != feed->link.hello_req) return 0;
    weights = allocate_zeroed(welcome->entries, sizeof *weights);
    if (!wire_decode_sources(welcome, part, sources, weights)) { // HELLO is sent again at the deadline
        free(weights);
        feed->stats.dropped++;
        return 0;
    }
    const int status = accept_dataset(feed, message, sources);
    free(status == WELCOME_ACCEPTED ? feed->weights : weights);
    if (status != WELCOME_ACCEPTED) return status;
    feed->weights = weights, feed->weight_count = feed->entry_count = welcome->entries;
    if (feed->config.as_before) leave_out_later(feed);
    return connection_attach(feed);
}

static PendingRequest *find_request(Feed *feed, uint64_t req_id) {
    for (uint32_t i = 0; i < feed->queue.outstanding; i++)
        if (feed_request_at(feed, i)->req_id == req_id && !feed_request_at(feed, i)->ready)
            return feed_request_at(feed, i);
    return NULL;
}

// A part of the rows has arrived: measures how long the feed waited for it, by the clock of this process. Time before
// feed_next was called does not count, because the message may have been in the queue.
static void note_rows(Feed *feed, const PendingRequest *request) {
    uint64_t now = clock_ns(), since_ns = request->sent_ns;
    if (since_ns < feed->times.wait_began_ns) since_ns = feed->times.wait_began_ns;
    if (since_ns < feed->times.last_batch_ns) since_ns = feed->times.last_batch_ns;
    uint64_t waited_ns = now - since_ns, longest_ns = feed->times.longest_wait_ns;
    feed->times.longest_wait_ns = waited_ns > longest_ns ? waited_ns : longest_ns - longest_ns / 1024;
    feed->times.last_batch_ns = now;
    feed->times.patience = 0;
    note_reception(feed);
}

// The bytes of all rows of a batch.
static uint64_t all_rows(const Feed *feed, const WireBatch *batch) {
    return (uint64_t)batch->rows * (batch->sequence_tokens + 1) * id_bytes(feed->dataset.vocab_size);
}

// Whether the message answers the request, with a part of the rows that has not been received yet.
static bool is_expected(const Feed *feed, const PendingRequest *request, const WireMessage *message,
                        size_t payload_bytes) {
    const WireBatch *batch = &message->batch;
    const FeedRequest *what = &request->what;
    bool inline_rows = !feed->shared.attach_id;
    const uint64_t total = all_rows(feed, batch), end = (uint64_t)batch->offset + batch->length;
    return message->header.loader_instance == feed->link.instance &&
           message->header.attach_id == feed->shared.attach_id && batch->slot == request->slot &&
           batch->generation == request->generation && batch->first_sample == what->first_sample &&
           batch->sequence_tokens == what->sequence_tokens && batch->rows <= what->rows &&
           (batch->rows == what->rows || sampling_ends(what->mode)) && batch->offset == request->received &&
           payload_bytes == (inline_rows ? batch->length : 0) && end <= total &&
           (batch->length == total || (inline_rows && batch->length));
}

static void on_batch(Feed *feed, const WireMessage *message, Bytes payload) {
    const WireBatch *batch = &message->batch;
    PendingRequest *request = find_request(feed, message->header.req_id);
    if (!request || !is_expected(feed, request, message, payload.size)) {
        feed->stats.dropped++;
        return;
    }
    uint8_t *rows = ring_slot(&feed->shared.ring, request->slot) + batch->offset;
    if (payload.size) memcpy(rows, payload.data, payload.size);
    if (crc32c(0, rows, batch->length) != batch->payload_crc) {
        // The loader would repeat its answer to the same generation: request a new one.
        feed->stats.dropped++;
        request->generation = ++feed->shared.generation[request->slot];
        request->req_id = ++feed->queue.last_req;
        request->received = 0;
        connection_send(feed, request);
        return;
    }
    note_rows(feed, request);
    request->received += batch->length;
    if (request->received < all_rows(feed, batch)) return;
    request->ready = true;
    request->rows = batch->rows;
    request->epoch = batch->epoch;
    feed->stats.batches++;
    if (batch->flags & WIRE_BATCH_REPLACED) connection_reopen(feed); // the NOTICE was lost
}

static int on_error(Feed *feed, const WireMessage *message) {
    const WireError *error = &message->error;
    bool hello = feed->link.state == CONNECTION_HELLO && message->header.req_id == feed->link.hello_req;
    if (error->code == WIRE_AUTH)
        return fail(EX_PERMISSION, "the loader at %s: %s", feed->link.endpoint.name, error->text);
    if (!hello && !find_request(feed, message->header.req_id)) return 0;
    switch (error->code) {
    case WIRE_DATASET:
        connection_reopen(feed); // WELCOME describes the dataset that is served now
        return 0;
    case WIRE_SLOT:
        feed_ring_withdraw(feed);
        connection_reopen(feed);
        return 0;
    case WIRE_BUSY: // answers are on their way; the request is sent again at the deadline
        return 0;
    case WIRE_DATA:
    case WIRE_IO:
    case WIRE_RANGE:
        return fail(error->code == WIRE_IO ? EX_IO : EX_DATA, "the loader cannot serve dataset '%s': %s",
                    feed->dataset.name, error->text);
    default:
        return fail(EX_PROTOCOL, "the loader refused the request (%s): %s", wire_code_name(error->code), error->text);
    }
}

static int on_message(Feed *feed, Bytes frame, Bytes payload) {
    WireMessage message;
    const char *field = NULL;
    WireVerdict verdict = wire_decode(frame, &message, &field);
    if (verdict == WIRE_OTHER_VERSION)
        return fail(EX_PROTOCOL,
                    "the loader has protocol version %u, the trainer version %d: use programs of the same release",
                    message.header.major, WIRE_MAJOR);
    if (verdict == WIRE_CORRUPT || message.header.session != feed->link.session) {
        feed->stats.dropped++;
        return 0;
    }
    if (verdict == WIRE_UNKNOWN_FIELD)
        return fail(EX_PROTOCOL, "the loader sent an unknown value in field '%s' of a message of type %u", field,
                    message.header.type);
    switch (message.header.type) {
    case WIRE_WELCOME:
        return on_welcome(feed, &message, payload);
    case WIRE_ERROR:
        return on_error(feed, &message);
    case WIRE_BATCH:
        on_batch(feed, &message, payload);
        return 0;
    case WIRE_NOTICE:
        if (message.error.code == WIRE_DATASET)
            connection_reopen(feed); // WELCOME describes it
        else
            log_line("%s: waiting for another loader", message.error.text);
        return 0;
    default:
        return 0;
    }
}

int connection_receive(Feed *feed) {
    void *socket = feed->link.socket;
    int result = 0;
    while (result == 0 && feed->link.socket == socket) {
        zmq_msg_t frame, payload;
        zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&frame);
            break;
        }
        zmq_msg_init(&payload);
        int more = zmq_msg_more(&frame);
        if (more) more = zmq_msg_recv(&payload, socket, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&payload);
        if (!more)
            result = on_message(feed, (Bytes){zmq_msg_data(&frame), zmq_msg_size(&frame)},
                                (Bytes){zmq_msg_data(&payload), zmq_msg_size(&payload)});
        while (more) { // surplus parts
            more = zmq_msg_recv(&payload, socket, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&payload);
        }
        zmq_msg_close(&payload);
        zmq_msg_close(&frame);
    }
    return result;
}

// --- waiting

static void connection_retry(Feed *feed) {
    feed->link.attempts++;
    if (feed->link.state == CONNECTION_READY && feed->link.attempts == 1) {
        feed->times.retry_ns = clock_ns() + deadline_ns(feed);
        send_unanswered(feed);
        return;
    }
    if (feed->times.backoff_ns < BACKOFF_MAX_MS * MS) feed->times.backoff_ns *= 2;
    if (!feed->link.refused) feed->times.patience++; // the connection may be slow
    connection_reopen_next(feed);
}

// The loader refuses the keys, or one side has keys and the other none, which the next loader of a list may not.
static int fail_handshake(const Feed *feed, uint16_t event, uint32_t value) {
    if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
        return fail(EX_PERMISSION, "the loader at %s does not allow this trainer's key: add it to its --allow file",
                    feed->link.endpoint.name);
    if (value != ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH || feed->link.endpoint_count > 1)
        return 0; // DISCONNECTED follows
    return feed->config.loader_key
               ? fail(EX_PERMISSION,
                      "the loader at %s has no keys, and this trainer has: leave out --loader_key and --key_file, or "
                      "serve with --key and --allow",
                      feed->link.endpoint.name)
               : fail(EX_PERMISSION,
                      "the loader at %s takes trainers with a key only: give --loader_key and --key_file",
                      feed->link.endpoint.name);
}

// The loader has ended, or nothing accepts connections.
static void on_end_of_connection(Feed *feed) {
    if (feed->link.state != CONNECTION_HELLO) {
        connection_reopen_next(feed);
        return;
    }
    const uint64_t pause_ns = feed->times.backoff_ns / 10, now = clock_ns();
    feed->link.refused = true;
    if (feed->link.endpoint_count > 1)
        feed->times.retry_ns = now + feed->times.backoff_ns; // the next one is due
    else
        feed->times.attempt_ns = now + (pause_ns < ATTEMPT_MS * MS ? ATTEMPT_MS * MS : pause_ns);
}

static int on_monitor_readable(Feed *feed) {
    uint8_t event[6]; // u16 event, u32 value; a second part has the address
    const void *monitor = feed->link.monitor;
    while (feed->link.monitor == monitor && zmq_recv(feed->link.monitor, event, sizeof event, ZMQ_DONTWAIT) >= 0) {
        uint16_t number;
        uint32_t value;
        memcpy(&number, event, sizeof number);
        memcpy(&value, event + sizeof number, sizeof value);
        zmq_recv(feed->link.monitor, NULL, 0, ZMQ_DONTWAIT);
        if (number == ZMQ_EVENT_DISCONNECTED || number == ZMQ_EVENT_CLOSED)
            on_end_of_connection(feed);
        else if (fail_handshake(feed, number, value) < 0)
            return -1;
    }
    return 0;
}

int connection_wait(Feed *feed, uint64_t until_ns) {
    uint64_t now = clock_ns();
    bool waits = feed->link.state != CONNECTION_READY;
    for (uint32_t i = 0; i < feed->queue.outstanding; i++) waits = waits || !feed_request_at(feed, i)->ready;
    if (waits && feed->times.retry_ns < until_ns) until_ns = feed->times.retry_ns;
    if (feed->times.attempt_ns < until_ns) until_ns = feed->times.attempt_ns;
    if (until_ns > now + FEED_WAIT_MS * MS) until_ns = now + FEED_WAIT_MS * MS;
    bool hello = feed->link.state == CONNECTION_HELLO && !feed->link.hello_sent;
    zmq_pollitem_t items[3] = {{.socket = feed->link.socket, .events = (short)(ZMQ_POLLIN | (hello ? ZMQ_POLLOUT : 0))},
                               {.socket = feed->link.monitor, .events = ZMQ_POLLIN},
                               {.fd = feed->shared.ctl, .events = ZMQ_POLLIN}};
    long timeout_ms = until_ns > now ? (long)((until_ns - now + MS - 1) / MS) : 0;
    if (zmq_poll(items, feed->shared.ctl >= 0 ? 3 : 2, timeout_ms) < 0 && errno != EINTR)
        return fail(EX_BUG, "zmq_poll: %s", zmq_strerror(errno));
    if (items[0].revents & ZMQ_POLLOUT && hello) send_hello(feed);
    if (connection_receive(feed) < 0) return -1;
    if (items[1].revents && items[1].socket == feed->link.monitor && on_monitor_readable(feed) < 0) return -1;
    if (feed->shared.ctl >= 0 && items[2].fd == feed->shared.ctl && items[2].revents) on_ctl_readable(feed);
    if (waits && clock_ns() >= feed->times.retry_ns) connection_retry(feed);
    if (clock_ns() >= feed->times.attempt_ns) connect_once(feed);
    return 0;
}

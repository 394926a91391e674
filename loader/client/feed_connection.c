// The feed's way to the loader: a socket that is thrown away when it falls silent, the handshake, the ring's hand-over,
// and the answers.
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "loader/client/feed_internal.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>
#include <zmq.h>

#define MS 1000000ull
enum {
    DEADLINE_MS = 50, // an answer takes 0.1 ms; longer when the worst seen was
    DEADLINE_TCP_MS = 500,
    DEADLINE_MOST_MS = 5000,
    BACKOFF_MS = 10,
    BACKOFF_MOST_MS = 1000,
    WAIT_MOST_MS = 100, // so that a stop request is seen
    ATTACH_TRIES = 3,   // then without the ring
};

static void set_option(void *socket, int option, int value) {
    if (zmq_setsockopt(socket, option, &value, sizeof value) < 0)
        die(EX_BUG, "ZeroMQ refuses option %d: %s", option, zmq_strerror(errno));
}

static void drop_socket(Feed *feed) {
    if (feed->socket) zmq_close(feed->socket);
    feed->socket = NULL;
    feed->state = LINK_DOWN;
}

static void drop_ctl(Feed *feed) {
    if (feed->ctl >= 0) close(feed->ctl);
    feed->ctl = -1;
    feed->attach_id = 0;
}

void link_close(Feed *feed) {
    if (feed->socket && feed->state == LINK_LIVE) {
        WireMessage bye;
        memset(&bye, 0, sizeof bye);
        bye.header.type = WIRE_BYE, bye.header.session = feed->session;
        Bytes frame = wire_encode(&bye);
        set_option(feed->socket, ZMQ_LINGER, DEADLINE_MS);
        zmq_send(feed->socket, frame.data, frame.size, ZMQ_DONTWAIT);
    }
    drop_socket(feed);
    drop_ctl(feed);
}

static void say_hello(Feed *feed) {
    const FeedConfig *config = &feed->config;
    WireMessage message;
    memset(&message, 0, sizeof message);
    message.header.type = WIRE_HELLO;
    message.header.session = feed->session;
    message.header.req_id = feed->hello_req;
    message.header.sent_ns = clock_ns();
    WireHello *hello = &message.hello;
    hello->proto_min = hello->proto_max = WIRE_MAJOR;
    hello->vocab_size = config->vocab_size, hello->sequence_tokens = config->sequence_tokens;
    hello->max_rows = config->max_rows, hello->window = feed->window;
    hello->slot_bytes = feed->ring.slot_bytes, hello->slot_count = feed->ring.slot_count;
    hello->world = 1, hello->dtype_mask = 1;
    hello->want_ring = feed->endpoint.ipc && !config->inline_only;
    memcpy(hello->vocab_fp, feed->known ? feed->dataset.vocab_fp : config->vocab_fp, 32);
    memcpy(hello->want_fp, feed->known ? feed->dataset.fingerprint : config->dataset_fp, 32);
    Bytes frame = wire_encode(&message);
    feed->hello_sent = zmq_send(feed->socket, frame.data, frame.size, ZMQ_DONTWAIT) >= 0;
}

static uint64_t least_deadline_ns(const Feed *feed) {
    return (feed->endpoint.ipc ? DEADLINE_MS : DEADLINE_TCP_MS) * MS;
}

void link_open(Feed *feed) {
    uint8_t route[16]; // fresh: a ROUTER that still knows the old socket must not mix them up
    if (feed->state == LINK_ATTACH) drop_ctl(feed); // an offer without answer is void
    drop_socket(feed);
    feed->socket = zmq_socket(feed->context, ZMQ_DEALER);
    if (!feed->socket || getrandom(route, sizeof route, 0) != sizeof route)
        die(EX_LIMIT, "cannot open a ZeroMQ socket: %s", zmq_strerror(errno));
    route[0] |= 1; // an id must not begin with zero
    zmq_setsockopt(feed->socket, ZMQ_ROUTING_ID, route, sizeof route);
    set_option(feed->socket, ZMQ_IMMEDIATE, 1); // nothing queues to a loader that is not there
    set_option(feed->socket, ZMQ_SNDHWM, 2 * WIRE_WINDOW_MAX + 8);
    set_option(feed->socket, ZMQ_RCVHWM, 2 * WIRE_WINDOW_MAX + 8);
    set_option(feed->socket, ZMQ_LINGER, 0);
    set_option(feed->socket, ZMQ_RECONNECT_IVL, (int)(feed->backoff_ns / MS < 20 ? 2 : feed->backoff_ns / MS / 10));
    if (!feed->endpoint.ipc) endpoint_keep_alive(feed->socket);
    if (feed->config.loader_key) {
        zmq_setsockopt(feed->socket, ZMQ_CURVE_SERVERKEY, feed->config.loader_key, KEY_TEXT);
        zmq_setsockopt(feed->socket, ZMQ_CURVE_PUBLICKEY, feed->keys.public_key, KEY_TEXT);
        zmq_setsockopt(feed->socket, ZMQ_CURVE_SECRETKEY, feed->keys.secret_key, KEY_TEXT);
    }
    int64_t most = (int64_t)feed->config.max_rows * (feed->config.sequence_tokens + 1) * 2 + 4096;
    zmq_setsockopt(feed->socket, ZMQ_MAXMSGSIZE, &most, sizeof most);
    if (zmq_connect(feed->socket, feed->endpoint.zmq_address) < 0)
        die(EX_BUG, "ZeroMQ cannot connect to '%s': %s", feed->endpoint.zmq_address, zmq_strerror(errno));
    feed->state = LINK_HELLO;
    feed->hello_req = ++feed->last_req;
    feed->retry_ns = clock_ns() + feed->backoff_ns + least_deadline_ns(feed);
    say_hello(feed);
}

// After the loader's death or silence.
static void link_reopen(Feed *feed) {
    feed->stats.reconnects++;
    link_open(feed);
}

static uint64_t deadline_ns(const Feed *feed) {
    uint64_t ns = 5 * feed->worst_ns;
    uint64_t least = least_deadline_ns(feed);
    return ns < least ? least : ns > DEADLINE_MOST_MS * MS ? DEADLINE_MOST_MS * MS : ns;
}

static void link_received(Feed *feed) {
    feed->last_rx_ns = feed->last_log_ns = clock_ns();
    feed->retry_ns = feed->last_rx_ns + deadline_ns(feed);
    feed->backoff_ns = BACKOFF_MS * MS;
    feed->attempts = 0;
}

void link_send(Feed *feed, Request *request) {
    if (feed->state != LINK_LIVE) return; // goes out when it is
    uint64_t now = clock_ns();
    bool first = true;
    for (uint32_t i = 0; i < feed->asked; i++) {
        const Request *other = feed_request_at(feed, i);
        first = first && (other == request || other->ready);
    }
    if (first) feed->retry_ns = now + deadline_ns(feed);
    WireMessage message;
    memset(&message, 0, sizeof message);
    message.header.type = WIRE_GET;
    message.header.session = feed->session;
    message.header.req_id = request->req_id;
    message.header.sent_ns = now;
    message.header.loader_instance = feed->instance;
    message.header.attach_id = feed->attach_id;
    WireGet *get = &message.get;
    memcpy(get->dataset_fp8, feed->dataset.fingerprint, sizeof get->dataset_fp8);
    get->seed = request->ask.seed, get->first_sample = request->ask.first_sample;
    get->rows = request->ask.rows, get->sequence_tokens = feed->config.sequence_tokens;
    get->split = request->ask.split, get->mode = request->ask.mode;
    get->slot = request->slot, get->generation = request->generation;
    Bytes frame = wire_encode(&message);
    if (request->sent_ns) feed->stats.resends++;
    request->sent_ns = now;
    zmq_send(feed->socket, frame.data, frame.size, ZMQ_DONTWAIT); // what does not go now goes again at the deadline
}

static void send_unanswered(Feed *feed) {
    for (uint32_t i = 0; i < feed->asked; i++) {
        Request *request = feed_request_at(feed, i);
        if (!request->ready) link_send(feed, request);
    }
}

static void link_live(Feed *feed) {
    feed->state = LINK_LIVE;
    feed->stats.ring = feed->attach_id != 0;
    link_received(feed);
    send_unanswered(feed);
}

// --- the ring's hand-over

static int without_ring(Feed *feed, const char *why) {
    log_line("no shared ring with the loader (%s): batches come through the socket", why);
    drop_ctl(feed);
    link_live(feed);
    return 0;
}

int link_attach(Feed *feed) {
    if (!feed->ring.base || !feed->shares_ring || feed->attach_failures >= ATTACH_TRIES) {
        link_live(feed);
        return 0;
    }
    if (feed->ctl >= 0 && feed->attach_id && feed->attached_instance == feed->instance) {
        link_live(feed); // only the socket was new
        return 0;
    }
    if (feed->ctl >= 0) {
        struct pollfd end = {feed->ctl, POLLIN, 0};
        bool dead = poll(&end, 1, 0) > 0 && end.revents & (POLLHUP | POLLERR);
        drop_ctl(feed);
        // Another loader answers, but the one that has our ring has not ended: it gets to keep that ring.
        if (!dead && feed_make_ring(feed) < 0) return -1;
    }
    CtlAttach attach = {WIRE_MAGIC, WIRE_MAJOR, 0, feed->session, feed->ring.slot_bytes, feed->ring.slot_count, 0};
    feed->ctl = ctl_connect(feed->endpoint.ctl);
    if (feed->ctl < 0 || ctl_offer(feed->ctl, &attach, &feed->ring) < 0) return without_ring(feed, strerror(errno));
    feed->attached_instance = feed->instance;
    feed->state = LINK_ATTACH;
    feed->retry_ns = clock_ns() + deadline_ns(feed);
    return 0;
}

static void hear_ctl(Feed *feed) {
    if (feed->state == LINK_ATTACH) {
        CtlReply reply;
        bool answered = ctl_read_answer(feed->ctl, &reply) == 0;
        if (answered && !reply.code && reply.loader_instance == feed->instance) {
            feed->attach_id = reply.attach_id;
            feed->attach_failures = 0;
            link_live(feed);
            return;
        }
        if (!answered && errno == EAGAIN) return;
        feed->attach_failures++;
    }
    // The other end has hung up: that loader is gone, and nothing writes into the ring any more.
    drop_ctl(feed);
    link_reopen(feed);
}

// --- what the loader says

static void take_dataset(Feed *feed, const WireWelcome *welcome) {
    FeedDataset *dataset = &feed->dataset;
    memcpy(dataset->fingerprint, welcome->dataset_fp, 32);
    memcpy(dataset->vocab_fp, welcome->vocab_fp, 32);
    for (int split = 0; split < SPLIT_COUNT; split++) {
        dataset->tokens[split] = welcome->tokens[split];
        dataset->documents[split] = welcome->documents[split];
    }
    dataset->vocab_size = welcome->vocab_size, dataset->eot_id = welcome->eot_id;
    memcpy(dataset->name, welcome->name, sizeof welcome->name);
}

static int hear_welcome(Feed *feed, const WireMessage *message) {
    const WireWelcome *welcome = &message->welcome;
    if (feed->state != LINK_HELLO || message->header.req_id != feed->hello_req) return 0;
    if (welcome->vocab_size > feed->config.vocab_size)
        return fail(EX_PROTOCOL, "the loader's dataset '%s' has %u ids, the model only %u", welcome->name,
                    welcome->vocab_size, feed->config.vocab_size);
    bool other = feed->known && memcmp(feed->dataset.fingerprint, welcome->dataset_fp, 32);
    if (other) {
        feed_cancel(feed);
        feed->changed = true;
    }
    take_dataset(feed, welcome);
    feed->known = true;
    feed->shares_ring = welcome->ring && feed->endpoint.ipc && !feed->config.inline_only;
    feed->instance = message->header.loader_instance;
    if (feed->window > welcome->window && !feed->asked) feed->window = welcome->window;
    link_received(feed);
    return link_attach(feed);
}

static Request *find_request(Feed *feed, uint64_t req_id) {
    for (uint32_t i = 0; i < feed->asked; i++)
        if (feed_request_at(feed, i)->req_id == req_id && !feed_request_at(feed, i)->ready)
            return feed_request_at(feed, i);
    return NULL;
}

static void hear_batch(Feed *feed, const WireMessage *message, Bytes payload) {
    const WireBatch *batch = &message->batch;
    Request *request = find_request(feed, message->header.req_id);
    bool expected = request && message->header.loader_instance == feed->instance &&
                    message->header.attach_id == feed->attach_id && batch->slot == request->slot &&
                    batch->generation == request->generation && batch->first_sample == request->ask.first_sample &&
                    batch->sequence_tokens == feed->config.sequence_tokens && batch->rows <= request->ask.rows &&
                    (batch->rows == request->ask.rows || request->ask.mode == SAMPLING_SEQUENTIAL) &&
                    payload.size == (feed->attach_id ? 0 : batch->length);
    if (!expected) {
        feed->stats.duplicates++;
        return;
    }
    uint8_t *slot = ring_slot(&feed->ring, request->slot);
    if (payload.size) memcpy(slot, payload.data, payload.size);
    if (crc32c(0, slot, batch->length) != batch->payload_crc) {
        // The loader would repeat its answer to the same generation: ask as if anew.
        feed->stats.duplicates++;
        request->generation = ++feed->generation[request->slot];
        request->req_id = ++feed->last_req;
        link_send(feed, request);
        return;
    }
    request->ready = true;
    request->rows = batch->rows;
    request->epoch = batch->epoch;
    uint64_t took_ns = ((uint64_t)batch->queue_us + batch->produce_us) * 1000;
    feed->worst_ns = took_ns > feed->worst_ns ? took_ns : feed->worst_ns - feed->worst_ns / 1024;
    feed->stats.batches++;
    link_received(feed);
    if (batch->flags & WIRE_BATCH_REPLACED) link_reopen(feed); // its NOTICE was lost
}

static int hear_error(Feed *feed, const WireMessage *message) {
    const WireError *error = &message->error;
    bool hello = feed->state == LINK_HELLO && message->header.req_id == feed->hello_req;
    if (!hello && !find_request(feed, message->header.req_id)) return 0;
    uint64_t after_ns = error->retry_after_ms * MS;
    switch (error->code) {
    case WIRE_FP:
        link_reopen(feed); // its WELCOME says what is served now
        return 0;
    case WIRE_SLOT:
        drop_ctl(feed);
        link_reopen(feed);
        return 0;
    case WIRE_BUSY:
    case WIRE_SHUTDOWN:
        feed->retry_ns = clock_ns() + (after_ns ? after_ns : feed->backoff_ns);
        return 0;
    case WIRE_IO:
    case WIRE_TOKEN:
    case WIRE_RANGE:
        return fail(EX_DATA, "the loader cannot serve dataset '%s': %s", feed->dataset.name, error->text);
    default:
        return fail(EX_PROTOCOL, "the loader refuses (%s): %s", wire_code_name(error->code), error->text);
    }
}

static int hear_message(Feed *feed, Bytes frame, Bytes payload) {
    WireMessage message;
    WireVerdict verdict = wire_decode(frame, &message);
    if (verdict == WIRE_OTHER_MAJOR)
        return fail(EX_PROTOCOL, "the loader speaks protocol %u, we speak %d", message.header.major, WIRE_MAJOR);
    if (verdict != WIRE_FINE || message.header.session != feed->session) {
        feed->stats.duplicates++;
        return 0;
    }
    switch (message.header.type) {
    case WIRE_WELCOME:
        return hear_welcome(feed, &message);
    case WIRE_ERROR:
        return hear_error(feed, &message);
    case WIRE_BATCH:
        hear_batch(feed, &message, payload);
        return 0;
    case WIRE_NOTICE:
        if (message.error.code == WIRE_FP)
            link_reopen(feed); // its WELCOME says what is served now
        else
            log_line("%s: waiting for another", message.error.text);
        return 0;
    default:
        return 0;
    }
}

int link_drain(Feed *feed) {
    void *socket = feed->socket;
    int result = 0;
    while (result == 0 && feed->socket == socket) {
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
            result = hear_message(feed, (Bytes){zmq_msg_data(&frame), zmq_msg_size(&frame)},
                                  (Bytes){zmq_msg_data(&payload), zmq_msg_size(&payload)});
        while (more) { // more parts than the protocol knows
            more = zmq_msg_recv(&payload, socket, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&payload);
        }
        zmq_msg_close(&payload);
        zmq_msg_close(&frame);
    }
    return result;
}

// --- waiting

static void link_retry(Feed *feed) {
    feed->attempts++;
    if (feed->state == LINK_LIVE && feed->attempts == 1) {
        feed->retry_ns = clock_ns() + deadline_ns(feed);
        send_unanswered(feed);
        return;
    }
    if (feed->backoff_ns < BACKOFF_MOST_MS * MS) feed->backoff_ns *= 2;
    link_reopen(feed);
}

int link_wait(Feed *feed, uint64_t until_ns) {
    uint64_t now = clock_ns();
    bool waits = feed->state != LINK_LIVE;
    for (uint32_t i = 0; i < feed->asked; i++) waits = waits || !feed_request_at(feed, i)->ready;
    if (waits && feed->retry_ns < until_ns) until_ns = feed->retry_ns;
    if (until_ns > now + WAIT_MOST_MS * MS) until_ns = now + WAIT_MOST_MS * MS;
    bool hello = feed->state == LINK_HELLO && !feed->hello_sent;
    zmq_pollitem_t items[2] = {
        {.socket = feed->socket, .events = (short)(ZMQ_POLLIN | (hello ? ZMQ_POLLOUT : 0))},
        {.fd = feed->ctl,        .events = ZMQ_POLLIN                                     }
    };
    long timeout_ms = until_ns > now ? (long)((until_ns - now + MS - 1) / MS) : 0;
    if (zmq_poll(items, feed->ctl >= 0 ? 2 : 1, timeout_ms) < 0 && errno != EINTR)
        return fail(EX_BUG, "zmq_poll: %s", zmq_strerror(errno));
    if (items[0].revents & ZMQ_POLLOUT && hello) say_hello(feed);
    if (link_drain(feed) < 0) return -1;
    if (feed->ctl >= 0 && items[1].fd == feed->ctl && items[1].revents) hear_ctl(feed);
    if (waits && clock_ns() >= feed->retry_ns) link_retry(feed);
    return 0;
}

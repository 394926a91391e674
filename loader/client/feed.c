// Requests of the trainer and the ring of slots that receives the answers. See feed.h.
#include "loader/client/feed.h"
#include "common/err.h"
#include "common/log.h"
#include "common/search.h"
#include "loader/client/feed_internal.h"
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>
#include <zmq.h>

#define MS         1000000ull
#define CHECK_KEYS ": check its address, and the keys on both sides" // over tcp
enum {
    WINDOW_DEFAULT = 4,
    LOG_MS = 5000,
    DEFAULT_WAIT_MS = 5000 // for a loader at the default endpoint, which nobody may have meant to use
};

// --- opening and closing

static bool stopped(const Feed *feed) { return feed->config.stop && *feed->config.stop; }

static int while_waiting(const Feed *feed) {
    return feed->config.while_waiting ? feed->config.while_waiting(feed->config.while_waiting_self) : 0;
}

// The first line of a wait is a warning.
static void log_waiting(Feed *feed, const char *what) {
    uint64_t now = clock_ns();
    if (now - feed->times.last_log_ns < LOG_MS * MS) return;
    (feed->times.last_log_ns == feed->times.wait_began_ns ? log_warn : log_line)(
        "%s at %s (%llu s)", what, feed->link.endpoint.name,
        (unsigned long long)((now - feed->times.last_rx_ns) / (1000 * MS)));
    feed->times.last_log_ns = now;
}

// Waits until GETs can be sent.
static int wait_until_ready(Feed *feed) {
    uint64_t timeout_ms = feed->config.timeout_ms;
    if (!feed->config.endpoint && !feed->known && timeout_ms > DEFAULT_WAIT_MS) timeout_ms = DEFAULT_WAIT_MS;
    uint64_t end = clock_ns() + timeout_ms * MS;
    feed->times.wait_began_ns = feed->times.last_rx_ns = feed->times.last_log_ns = clock_ns();
    while (feed->link.state != CONNECTION_READY) {
        if (while_waiting(feed) < 0 || connection_wait(feed, end) < 0) return -1;
        if (stopped(feed)) return fail(EX_AGAIN, "stopped while waiting for the loader");
        if (clock_ns() >= end && !feed->link.endpoint.ipc)
            return fail(EX_PEER, "no answer from a loader at %s after %llu s" CHECK_KEYS, feed->link.endpoint.name,
                        (unsigned long long)timeout_ms / 1000);
        if (clock_ns() >= end)
            return fail(
                EX_PEER,
                "no loader at %s after %llu s: give --dataset=DIR, or start a loader and give its --loader=ENDPOINT",
                feed->link.endpoint.name, (unsigned long long)timeout_ms / 1000);
        if (feed->link.state != CONNECTION_READY) log_waiting(feed, "waiting for the loader");
    }
    return 0;
}

static int load_keys(Feed *feed) {
    const FeedConfig *config = &feed->config;
    if (!config->key_file && !config->loader_key) return 0;
    if (!config->key_file || !config->loader_key)
        return fail(EX_USAGE, "a key file and the loader's public key must be given together");
    return key_check(config->loader_key, "the loader's public key") < 0 ? -1
                                                                        : keys_read(&feed->link.keys, config->key_file);
}

// Whether there is the socket of a loader, which may have been killed.
static bool is_there(const Endpoint *endpoint) { return !endpoint->ipc || access(endpoint->ctl, F_OK) == 0; }

static int parse_endpoints(Feed *feed) {
    const FeedConfig *config = &feed->config;
    feed->link.endpoint_count =
        endpoint_parse_list(feed->link.endpoints, FEED_ENDPOINTS_MAX, config->endpoint, config->key_file != NULL);
    for (int i = 0; i < feed->link.endpoint_count; i++)
        if (endpoint_check(&feed->link.endpoints[i]) < 0) return -1;
    feed->link.endpoint = feed->link.endpoints[0];
    return feed->link.endpoint_count < 0 ? -1 : 0;
}

static void set_name(Feed *feed) {
    const char *name = feed->config.name;
    char host[HOST_NAME_MAX + 1] = "";
    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = 0;
    snprintf(feed->link.name, sizeof feed->link.name, "%.32s:%d%s%s", host, (int)getpid(), name ? " " : "",
             name ? name : "");
}

Feed *feed_open(const FeedConfig *config) {
    Feed *feed = allocate_zeroed(1, sizeof *feed);
    feed->config = *config;
    feed->shared.ctl = -1;
    feed->shared.ring.fd = -1;
    feed->queue.window = config->window ? config->window : WINDOW_DEFAULT;
    feed->times.backoff_ns = 10 * MS;
    set_name(feed);
    uint64_t bytes = feed_batch_bytes(config);
    assert(config->max_rows && config->sequence_tokens && feed->queue.window <= WIRE_WINDOW_MAX);
    if (getrandom(&feed->link.session, sizeof feed->link.session, 0) != sizeof feed->link.session)
        die(EX_LIMIT, "no random numbers");
    feed->link.session |= 1;
    if (config->max_rows > WIRE_ROWS_MAX || config->sequence_tokens > WIRE_TOKENS_MAX || bytes > WIRE_PAYLOAD_MAX) {
        fail(EX_USAGE, "batch_size %u of block_size %u is more than the protocol allows (64 MiB)", config->max_rows,
             config->sequence_tokens);
    } else if (parse_endpoints(feed) == 0 && load_keys(feed) == 0 && endpoint_check_files() == 0) {
        feed->link.context = zmq_ctx_new();
        if (!feed->link.context) die(EX_LIMIT, "cannot start ZeroMQ: %s", zmq_strerror(errno));
        connection_open(feed);
        if (!config->endpoint && !is_there(&feed->link.endpoint))
            log_line(
                "waiting for a loader at %s: give --dataset=DIR or --loader=ENDPOINT, or start `millrace serve DIR`",
                feed->link.endpoint.name);
        if (wait_until_ready(feed) == 0) return feed;
    }
    feed_close(feed);
    return NULL;
}

const FeedDataset *feed_dataset(const Feed *feed) { return &feed->dataset; }

// The entry of the schedule that holds for a sample.
static uint64_t entry_at(const Feed *feed, uint64_t sample) {
    return floor_index(&feed->weights->from, sizeof *feed->weights, feed->weight_count, sample);
}

uint32_t feed_weight(const Feed *feed, unsigned source, uint64_t sample) {
    return feed->weights[entry_at(feed, sample)].weights[source];
}

uint64_t feed_weights_end(const Feed *feed, uint64_t sample) {
    const uint64_t next = entry_at(feed, sample) + 1;
    return next < feed->weight_count ? feed->weights[next].from : UINT64_MAX;
}

const uint8_t *feed_fingerprint(const Feed *feed, uint64_t sample) {
    return feed->weights[entry_at(feed, sample)].fingerprint;
}

uint64_t feed_same_samples(const Feed *feed, const uint8_t fingerprint[32]) {
    for (unsigned i = 0; i < feed->entry_count; i++)
        if (!memcmp(feed->weights[i].fingerprint, fingerprint, 32))
            return i + 1 == feed->entry_count ? UINT64_MAX : feed->weights[i + 1].from;
    return 0;
}

int feed_attach(Feed *feed) {
    if (feed_ring_allocate(feed) < 0 || connection_attach(feed) < 0) return -1;
    return wait_until_ready(feed);
}

typedef struct {
    void *context;
    int ended; // an eventfd
} Ending;

static void *end_context(void *self) {
    const Ending *ending = self;
    const uint64_t one = 1;
    zmq_ctx_term(ending->context);
    if (write(ending->ended, &one, sizeof one) < 0) die(EX_BUG, "cannot write to an eventfd: %s", strerror(errno));
    return NULL;
}

// ZeroMQ's thread may wait for a name server that does not answer: it is left to the end of the process.
static void close_context(void *context) {
    Ending *ending = allocate_zeroed(1, sizeof *ending);
    pthread_t thread;
    *ending = (Ending){context, eventfd(0, EFD_CLOEXEC)};
    if (ending->ended < 0 || pthread_create(&thread, NULL, end_context, ending)) { // a limit: waits here
        zmq_ctx_term(context);
    } else {
        zmq_pollitem_t item = {.fd = ending->ended, .events = ZMQ_POLLIN};
        if (zmq_poll(&item, 1, FEED_CLOSE_MS) == 0) {
            pthread_detach(thread);
            return;
        }
        pthread_join(thread, NULL);
    }
    if (ending->ended >= 0) close(ending->ended);
    free(ending);
}

void feed_close(Feed *feed) {
    if (!feed) return;
    connection_close(feed);
    if (feed->link.context) close_context(feed->link.context);
    feed_ring_close(feed);
    free(feed->weights);
    free(feed);
}

// --- requests

static uint32_t free_slots(const Feed *feed, uint32_t *slot) {
    uint32_t free_count = 0;
    for (uint32_t i = feed->shared.ring.slot_count; i--;)
        if (feed->shared.slots[i] == SLOT_FREE) free_count++, *slot = i;
    return free_count;
}

uint32_t feed_capacity(const Feed *feed) {
    uint32_t slot, slots = free_slots(feed, &slot), window = feed->queue.window - feed->queue.outstanding;
    return slots < window ? slots : window;
}

int feed_request(Feed *feed, const FeedRequest *what) {
    uint32_t slot = 0;
    assert(feed->shared.ring.base && feed->queue.outstanding < feed->queue.window && what->rows &&
           what->rows <= feed->config.max_rows);
    assert(what->sequence_tokens <= feed->config.sequence_tokens);
    if (!free_slots(feed, &slot)) return fail(EX_BUG, "no free slot for a request: feed_release was not called");
    PendingRequest *request = feed_request_at(feed, feed->queue.outstanding++);
    *request = (PendingRequest){
        .what = *what, .req_id = ++feed->queue.last_req, .slot = slot, .generation = ++feed->shared.generation[slot]};
    feed->shared.slots[slot] = SLOT_REQUESTED;
    if (!what->sequence_tokens) request->what.sequence_tokens = feed->config.sequence_tokens;
    connection_send(feed, request);
    return 0;
}

void feed_cancel(Feed *feed) {
    // A late answer is dropped: its request no longer exists, and the next one for the slot has another generation.
    for (uint32_t i = 0; i < feed->queue.outstanding; i++)
        feed->shared.slots[feed_request_at(feed, i)->slot] = SLOT_FREE;
    feed->queue.outstanding = 0;
}

static FeedResult lend_batch(Feed *feed, FeedBatch *batch) {
    PendingRequest *request = feed_request_at(feed, 0);
    feed->shared.slots[request->slot] = SLOT_LENT;
    *batch = (FeedBatch){ring_slot(&feed->shared.ring, request->slot), request->rows, request->slot,
                         request->what.first_sample, request->epoch};
    feed->queue.head = (feed->queue.head + 1) % WIRE_WINDOW_MAX;
    feed->queue.outstanding--;
    return FEED_BATCH;
}

static FeedResult wait_batch(Feed *feed, FeedBatch *batch, uint64_t began_ns) {
    uint64_t timeout_ns = feed->config.timeout_ms * MS;
    // Else the refusal of a request that the new dataset does not fit, made by a caller that knows the old one, ends
    // it.
    if (!feed->changed && connection_receive(feed) < 0) return FEED_ERROR;
    for (;;) {
        if (feed->changed) {
            feed->changed = false;
            feed_cancel(feed); // requests made since the change: the caller learns of it only now
            return FEED_CHANGED;
        }
        if (feed_request_at(feed, 0)->ready) return lend_batch(feed, batch);
        if (stopped(feed)) return FEED_STOPPED;
        uint64_t quiet_ns = feed->times.last_batch_ns > began_ns ? feed->times.last_batch_ns : began_ns;
        if (clock_ns() - quiet_ns >= timeout_ns) {
            const bool refused = !feed->link.endpoint.ipc && feed->link.state != CONNECTION_READY;
            fail(EX_PEER, "no data from the loader at %s for %llu s%s", feed->link.endpoint.name,
                 (unsigned long long)feed->config.timeout_ms / 1000, refused ? CHECK_KEYS : "");
            return FEED_ERROR;
        }
        if (while_waiting(feed) < 0 || connection_wait(feed, quiet_ns + timeout_ns) < 0) return FEED_ERROR;
        log_waiting(feed, "no data from the loader");
    }
}

FeedResult feed_next(Feed *feed, FeedBatch *batch) {
    assert(feed->queue.outstanding || feed->changed);
    uint64_t began_ns = clock_ns();
    // The time since the last call was the trainer's own work, not a wait for the loader.
    feed->times.wait_began_ns = feed->times.last_rx_ns = feed->times.last_log_ns = began_ns;
    FeedResult result = wait_batch(feed, batch, began_ns);
    feed->stats.wait_ns += clock_ns() - began_ns;
    return result;
}

void feed_release(Feed *feed, const FeedBatch *batch) {
    const uint8_t *at = batch->ids;
    if (at == ring_slot(&feed->shared.ring, batch->slot)) {
        assert(feed->shared.slots[batch->slot] == SLOT_LENT);
        feed->shared.slots[batch->slot] = SLOT_FREE;
        return;
    }
    if (!feed_ring_release(feed, at, batch->slot)) die(EX_BUG, "feed_release of a batch that is not lent");
}

FeedStats feed_stats(const Feed *feed) { return feed->stats; }

// What the trainer asks of the loader, and the slots it is answered in. See feed.h.
#include "loader/client/feed.h"
#include "common/err.h"
#include "common/log.h"
#include "loader/client/feed_internal.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <zmq.h>

#define MS 1000000ull
enum {
    WINDOW_DEFAULT = 4,
    SLOTS_BEYOND_WINDOW = 3,
    SAY_MS = 5000
}; // slots: two buffers on the device, and one to spare

// --- the ring

static void unmap_ring(const Feed *feed, Ring *ring) {
    if (ring->base && feed->config.unpin) feed->config.unpin(ring->base);
    ring_close(ring);
}

int feed_make_ring(Feed *feed) {
    const FeedConfig *config = &feed->config;
    uint32_t lent = 0;
    for (uint32_t i = 0; i < FEED_SLOTS_MAX; i++) lent += feed->slots[i] == SLOT_LENT;
    if (lent) {
        RetiredRing *retired = calloc(1, sizeof *retired);
        if (!retired) die(EX_MEMORY, "no memory");
        *retired = (RetiredRing){feed->ring, lent, feed->retired};
        feed->retired = retired;
        feed->ring = (Ring){.fd = -1};
    } else {
        unmap_ring(feed, &feed->ring);
    }
    uint32_t count = feed->window + SLOTS_BEYOND_WINDOW;
    uint64_t slot_bytes = (uint64_t)config->max_rows * (config->sequence_tokens + 1) * sizeof(uint16_t);
    if (ring_open(&feed->ring, feed->endpoint.ipc && !config->inline_only, slot_bytes, count) < 0) return -1;
    if (config->pin) config->pin(feed->ring.base, (size_t)feed->ring.slot_bytes * count);
    memset(feed->slots, 0, sizeof feed->slots);
    // What was answered into the old ring and not yet handed out is asked again.
    for (uint32_t i = 0; i < feed->asked; i++) {
        Request *request = feed_request_at(feed, i);
        request->slot = i;
        request->generation = ++feed->generation[i];
        request->req_id = ++feed->last_req;
        request->ready = false;
        feed->slots[i] = SLOT_ASKED;
    }
    return 0;
}

// --- a life

static bool stopped(const Feed *feed) { return feed->config.stop && *feed->config.stop; }

static void say_waiting(Feed *feed, const char *what) {
    uint64_t now = clock_ns();
    if (now - feed->last_log_ns < SAY_MS * MS) return;
    feed->last_log_ns = now;
    log_line("%s at %s (%llu s)", what, feed->endpoint.name,
             (unsigned long long)((now - feed->last_rx_ns) / (1000 * MS)));
}

// Until GETs may go.
static int wait_live(Feed *feed) {
    uint64_t end = clock_ns() + feed->config.timeout_ms * MS;
    feed->last_rx_ns = feed->last_log_ns = clock_ns();
    while (feed->state != LINK_LIVE) {
        if (link_wait(feed, end) < 0) return -1;
        if (stopped(feed)) return fail(EX_AGAIN, "stopped while waiting for the loader");
        if (clock_ns() >= end)
            return fail(EX_PEER, "no loader at %s after %llu s: start `loader serve DIR`, or raise data_timeout",
                        feed->endpoint.name, (unsigned long long)feed->config.timeout_ms / 1000);
        if (feed->state != LINK_LIVE) say_waiting(feed, "waiting for the loader");
    }
    return 0;
}

static int take_keys(Feed *feed) {
    const FeedConfig *config = &feed->config;
    if (!config->key_file && !config->loader_key) return 0;
    if (!config->key_file || !config->loader_key)
        return fail(EX_USAGE, "keys come in twos: a key file of ours and the loader's public key");
    return key_check(config->loader_key, "the loader's key") < 0 ? -1 : keys_read(&feed->keys, config->key_file);
}

Feed *feed_open(const FeedConfig *config) {
    Feed *feed = calloc(1, sizeof *feed);
    if (!feed) die(EX_MEMORY, "no memory");
    feed->config = *config;
    feed->ctl = -1;
    feed->ring.fd = -1;
    feed->window = config->window ? config->window : WINDOW_DEFAULT;
    feed->backoff_ns = 10 * MS;
    uint64_t bytes = (uint64_t)config->max_rows * (config->sequence_tokens + 1ull) * sizeof(uint16_t);
    assert(config->max_rows && config->sequence_tokens && feed->window <= WIRE_WINDOW_MAX);
    if (getrandom(&feed->session, sizeof feed->session, 0) != sizeof feed->session) die(EX_LIMIT, "no random numbers");
    feed->session |= 1;
    if (config->max_rows > WIRE_ROWS_MAX || config->sequence_tokens > WIRE_TOKENS_MAX || bytes > WIRE_PAYLOAD_MAX) {
        fail(EX_USAGE, "batch_size %u of block_size %u is more than a message may hold (1 GiB)", config->max_rows,
             config->sequence_tokens);
    } else if (endpoint_parse(&feed->endpoint, config->endpoint, config->key_file) == 0 &&
               endpoint_check(&feed->endpoint) == 0 && take_keys(feed) == 0) {
        feed->context = zmq_ctx_new();
        if (!feed->context) die(EX_LIMIT, "cannot start ZeroMQ: %s", zmq_strerror(errno));
        link_open(feed);
        if (wait_live(feed) == 0) return feed;
    }
    feed_close(feed);
    return NULL;
}

const FeedDataset *feed_dataset(const Feed *feed) { return &feed->dataset; }

int feed_attach(Feed *feed) {
    if (feed_make_ring(feed) < 0 || link_attach(feed) < 0) return -1;
    return wait_live(feed);
}

void feed_close(Feed *feed) {
    if (!feed) return;
    link_close(feed);
    if (feed->context) zmq_ctx_term(feed->context);
    while (feed->retired) {
        RetiredRing *next = feed->retired->next;
        unmap_ring(feed, &feed->retired->ring);
        free(feed->retired);
        feed->retired = next;
    }
    unmap_ring(feed, &feed->ring);
    free(feed);
}

// --- requests

static uint32_t free_slots(const Feed *feed, uint32_t *slot) {
    uint32_t free_count = 0;
    for (uint32_t i = feed->ring.slot_count; i--;)
        if (feed->slots[i] == SLOT_FREE) free_count++, *slot = i;
    return free_count;
}

uint32_t feed_capacity(const Feed *feed) {
    uint32_t slot, slots = free_slots(feed, &slot), window = feed->window - feed->asked;
    return slots < window ? slots : window;
}

int feed_request(Feed *feed, const FeedRequest *ask) {
    uint32_t slot = 0;
    assert(feed->ring.base && feed->asked < feed->window && ask->rows && ask->rows <= feed->config.max_rows);
    if (!free_slots(feed, &slot)) return fail(EX_BUG, "no free slot to ask into: feed_release was forgotten");
    Request *request = feed_request_at(feed, feed->asked++);
    *request = (Request){.ask = *ask, .req_id = ++feed->last_req, .slot = slot, .generation = ++feed->generation[slot]};
    feed->slots[slot] = SLOT_ASKED;
    link_send(feed, request);
    return 0;
}

void feed_cancel(Feed *feed) {
    // A late answer finds another generation in the slot.
    for (uint32_t i = 0; i < feed->asked; i++) feed->slots[feed_request_at(feed, i)->slot] = SLOT_FREE;
    feed->asked = 0;
}

static FeedResult hand_out(Feed *feed, FeedBatch *batch) {
    Request *request = feed_request_at(feed, 0);
    feed->slots[request->slot] = SLOT_LENT;
    *batch = (FeedBatch){(const uint16_t *)(const void *)ring_slot(&feed->ring, request->slot), request->rows,
                         request->slot, request->ask.first_sample, request->epoch};
    feed->head = (feed->head + 1) % WIRE_WINDOW_MAX;
    feed->asked--;
    return FEED_BATCH;
}

static FeedResult wait_batch(Feed *feed, FeedBatch *batch, uint64_t began_ns) {
    uint64_t quiet_ns = began_ns;
    if (link_drain(feed) < 0) return FEED_ERROR;
    for (;;) {
        if (feed->changed) {
            feed->changed = false;
            return FEED_CHANGED;
        }
        if (feed_request_at(feed, 0)->ready) return hand_out(feed, batch);
        if (stopped(feed)) return FEED_STOPPED;
        if (clock_ns() - quiet_ns >= feed->config.timeout_ms * MS) {
            fail(EX_PEER, "no data from the loader at %s for %llu s", feed->endpoint.name,
                 (unsigned long long)feed->config.timeout_ms / 1000);
            return FEED_ERROR;
        }
        uint64_t batches = feed->stats.batches;
        if (link_wait(feed, quiet_ns + feed->config.timeout_ms * MS) < 0) return FEED_ERROR;
        if (feed->stats.batches != batches) quiet_ns = clock_ns();
        say_waiting(feed, "no data from the loader");
    }
}

FeedResult feed_next(Feed *feed, FeedBatch *batch) {
    assert(feed->asked || feed->changed);
    uint64_t began_ns = clock_ns();
    // A long step is not the loader's silence.
    feed->last_rx_ns = feed->last_log_ns = began_ns;
    FeedResult result = wait_batch(feed, batch, began_ns);
    feed->stats.wait_ns += clock_ns() - began_ns;
    return result;
}

void feed_release(Feed *feed, const FeedBatch *batch) {
    const uint8_t *at = (const uint8_t *)batch->ids;
    if (at == ring_slot(&feed->ring, batch->slot)) {
        assert(feed->slots[batch->slot] == SLOT_LENT);
        feed->slots[batch->slot] = SLOT_FREE;
        return;
    }
    for (RetiredRing **link = &feed->retired; *link; link = &(*link)->next) {
        RetiredRing *retired = *link;
        if (at != ring_slot(&retired->ring, batch->slot)) continue;
        if (--retired->lent == 0) {
            *link = retired->next;
            unmap_ring(feed, &retired->ring);
            free(retired);
        }
        return;
    }
    die(EX_BUG, "a batch was given back that is not lent");
}

FeedStats feed_stats(const Feed *feed) { return feed->stats; }

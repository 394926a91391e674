// The ring of a feed: its slots, the hand-over to a loader, and rings that an earlier loader may still write to.
#include "common/log.h"
#include "loader/client/feed_internal.h"
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    SLOTS_BEYOND_WINDOW = 3, // two that the device uploads from, and one spare
    ATTACH_TRIES = 3,        // then the rows arrive over the socket
};

static void unmap_ring(const Feed *feed, Ring *ring) {
    if (ring->base && feed->config.unpin) feed->config.unpin(ring->base);
    ring_close(ring);
}

int feed_ring_allocate(Feed *feed) {
    const FeedConfig *config = &feed->config;
    uint32_t lent = 0;
    for (uint32_t i = 0; i < FEED_SLOTS_MAX; i++) lent += feed->shared.slots[i] == SLOT_LENT;
    if (lent) {
        RetiredRing *retired = allocate_zeroed(1, sizeof *retired);
        *retired = (RetiredRing){feed->shared.ring, lent, feed->shared.retired};
        feed->shared.retired = retired;
        feed->shared.ring = (Ring){.fd = -1};
    } else {
        unmap_ring(feed, &feed->shared.ring);
    }
    uint32_t count = feed->queue.window + SLOTS_BEYOND_WINDOW;
    assert(count <= FEED_SLOTS_MAX && feed->queue.outstanding <= feed->queue.window);
    if (ring_open(&feed->shared.ring, feed->link.endpoint.ipc && !config->inline_only, feed_batch_bytes(config),
                  count) < 0)
        return -1;
    if (config->pin) config->pin(feed->shared.ring.base, (size_t)feed->shared.ring.slot_bytes * count);
    memset(feed->shared.slots, 0, sizeof feed->shared.slots);
    // Answers in the old ring that feed_next has not returned are requested again.
    for (uint32_t i = 0; i < feed->queue.outstanding; i++) {
        PendingRequest *request = feed_request_at(feed, i);
        request->slot = i;
        request->generation = ++feed->shared.generation[i];
        request->req_id = ++feed->queue.last_req;
        request->ready = false;
        request->sent_ns = 0, request->received = 0;
        feed->shared.slots[i] = SLOT_REQUESTED;
    }
    return 0;
}

bool feed_ring_release(Feed *feed, const uint8_t *at, uint32_t slot) {
    for (RetiredRing **link = &feed->shared.retired; *link; link = &(*link)->next) {
        RetiredRing *retired = *link;
        if (at != ring_slot(&retired->ring, slot)) continue;
        assert(retired->lent);
        if (--retired->lent == 0) {
            *link = retired->next;
            unmap_ring(feed, &retired->ring);
            free(retired);
        }
        return true;
    }
    return false;
}

void feed_ring_close(Feed *feed) {
    for (RetiredRing *next; feed->shared.retired; feed->shared.retired = next) {
        next = feed->shared.retired->next;
        unmap_ring(feed, &feed->shared.retired->ring);
        free(feed->shared.retired);
    }
    unmap_ring(feed, &feed->shared.ring);
}

// --- the hand-over

void feed_ring_withdraw(Feed *feed) {
    if (feed->shared.ctl >= 0) close(feed->shared.ctl);
    feed->shared.ctl = -1;
    feed->shared.attach_id = 0;
}

static FeedRingState continue_inline(Feed *feed, const char *why) {
    log_line("no shared ring with the loader (%s): batches arrive over the socket", why);
    feed_ring_withdraw(feed);
    return FEED_RING_SETTLED;
}

FeedRingState feed_ring_offer(Feed *feed) {
    if (!feed->shared.ring.base) return FEED_RING_SETTLED;
    if (feed->shared.ctl >= 0 && feed->shared.attach_id && feed->shared.attached_instance == feed->link.instance)
        return FEED_RING_SETTLED; // only the socket is new
    if (feed->shared.ctl >= 0) {
        struct pollfd end = {feed->shared.ctl, POLLIN, 0};
        bool closed = poll(&end, 1, 0) > 0 && end.revents & (POLLHUP | POLLERR);
        feed_ring_withdraw(feed);
        // The previous loader may still be running and writing: leave that ring to it and allocate a new one.
        if (!closed && feed_ring_allocate(feed) < 0) return FEED_RING_FAILED;
    }
    if (!feed->link.ring_offered || feed->shared.attach_failures >= ATTACH_TRIES) return FEED_RING_SETTLED;
    CtlAttach attach = {
        WIRE_MAGIC, WIRE_MAJOR, 0, feed->link.session, feed->shared.ring.slot_bytes, feed->shared.ring.slot_count, 0};
    feed->shared.ctl = ctl_connect(feed->link.endpoint.ctl);
    if (feed->shared.ctl < 0 || ctl_send_ring(feed->shared.ctl, &attach, &feed->shared.ring) < 0)
        return continue_inline(feed, strerror(errno));
    feed->shared.attached_instance = feed->link.instance;
    return FEED_RING_SENT;
}

FeedRingState feed_ring_receive_reply(Feed *feed) {
    CtlReply reply;
    bool received = ctl_receive_reply(feed->shared.ctl, &reply) == 0;
    if (received && reply.loader_instance == feed->link.instance) {
        feed->shared.attach_id = reply.attach_id;
        feed->shared.attach_failures = 0;
        return FEED_RING_SETTLED;
    }
    if (!received && errno == EAGAIN) return FEED_RING_SENT;
    feed->shared.attach_failures++;
    return FEED_RING_FAILED;
}

// The inside of a feed, shared by feed.c (what the trainer asked) and feed_link.c (the way to the loader).
#pragma once

#include "loader/client/feed.h"
#include "loader/protocol/endpoint.h"
#include "loader/protocol/keys.h"
#include "loader/protocol/ring.h"

enum { FEED_SLOTS_MAX = WIRE_WINDOW_MAX + 3 };

typedef struct {
    FeedRequest ask;
    uint64_t req_id, sent_ns;
    uint32_t slot, generation;
    bool ready;
    uint32_t rows; // of the answer
    uint64_t epoch;
} Request;

// A ring that an earlier loader, not proven dead, may still write into; it goes when its last lent slot is given back.
typedef struct RetiredRing {
    Ring ring;
    uint32_t lent;
    struct RetiredRing *next;
} RetiredRing;

typedef enum {
    LINK_DOWN,
    LINK_HELLO,  // a fresh socket: HELLO is to be answered
    LINK_ATTACH, // the ring was offered on ctl.sock
    LINK_LIVE    // GETs may go
} LinkState;

struct Feed {
    FeedConfig config;
    Endpoint endpoint;
    FeedDataset dataset;
    FeedStats stats;

    LinkState state;
    KeyPair keys;
    void *context, *socket;
    int ctl; // -1 = none
    bool hello_sent, shares_ring, known, changed;
    uint64_t session, last_req, hello_req;
    uint64_t instance, attach_id; // of the loader that answered HELLO; 0 = inline
    uint64_t attached_instance;   // of the loader at the other end of ctl
    uint64_t retry_ns, backoff_ns, worst_ns, last_rx_ns, last_log_ns;
    unsigned attempts, attach_failures; // since anything was heard

    Ring ring;
    RetiredRing *retired;
    uint32_t generation[FEED_SLOTS_MAX];
    enum { SLOT_FREE, SLOT_ASKED, SLOT_LENT } slots[FEED_SLOTS_MAX];
    Request requests[WIRE_WINDOW_MAX]; // a ring: the oldest at `head`
    uint32_t window, head, asked;
};

static inline Request *feed_request_at(Feed *feed, uint32_t age) {
    return &feed->requests[(feed->head + age) % WIRE_WINDOW_MAX];
}

int feed_make_ring(Feed *feed);

void link_open(Feed *feed);  // a fresh socket and HELLO
int link_attach(Feed *feed); // offers the ring
void link_send(Feed *feed, Request *request);
int link_drain(Feed *feed);                   // handles what has arrived; -1 after fail()
int link_wait(Feed *feed, uint64_t until_ns); // one round of waiting, hearing and retrying; -1 after fail()
void link_close(Feed *feed);

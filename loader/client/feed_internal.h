// Feed internals. feed.c (requests) calls feed_connection.c (sockets and messages), which calls feed_ring.c.
#pragma once

#include "loader/client/feed.h"
#include "loader/protocol/endpoint.h"
#include "loader/protocol/keys.h"
#include "loader/protocol/ring.h"

enum { FEED_SLOTS_MAX = WIRE_WINDOW_MAX + 3, FEED_ENDPOINTS_MAX = 8 };

enum {
    FEED_WAIT_MS = 100,  // without an event, so that a stop request is noticed
    FEED_BYE_MS = 50,    // for BYE to be sent
    FEED_CLOSE_MS = 1000 // for the threads of ZeroMQ to end
};
_Static_assert(FEED_WAIT_MS + FEED_BYE_MS + FEED_CLOSE_MS < FEED_STOP_MS, "a stop request ends the feed in that time");

typedef struct {
    FeedRequest what;
    uint64_t req_id, sent_ns; // sent_ns: 0 until the GET has been sent
    uint32_t slot, generation;
    bool ready;        // the rows are in the slot
    uint32_t rows;     // of the answer
    uint32_t received; // bytes of an inline answer that are in the slot
    uint64_t epoch;
} PendingRequest;

// A ring to which an earlier loader, which may still be running, could write; freed when its last lent slot is
// released.
typedef struct RetiredRing {
    Ring ring;
    uint32_t lent;
    struct RetiredRing *next;
} RetiredRing;

typedef enum {
    CONNECTION_DOWN,
    CONNECTION_HELLO,  // a new socket: waits for the answer to HELLO
    CONNECTION_ATTACH, // the ring was sent on ctl.sock: waits for the reply
    CONNECTION_READY   // GETs can be sent
} ConnectionState;

// The connection to a loader.
typedef struct {
    Endpoint endpoints[FEED_ENDPOINTS_MAX], endpoint;      // endpoint: the one in use or tried
    int endpoint_count, endpoint_number, dataset_endpoint; // dataset_endpoint: the one of `dataset`
    ConnectionState state;
    KeyPair keys;
    void *context, *socket;
    void *monitor;               // reports the events of `socket`
    bool hello_sent;             // on this socket
    bool refused;                // nothing accepts connections at the endpoint of this socket
    bool ring_offered;           // by the WELCOME of this socket
    char name[WIRE_CLIENT_NAME]; // HOST:PID and the configured name
    uint64_t session, hello_req;
    uint64_t instance; // of the loader that sent WELCOME
    unsigned attempts; // since the last message was received
} FeedLink;

// Times of the clock at which something happened or is due.
typedef struct {
    uint64_t retry_ns;        // when to retry if nothing arrives
    uint64_t attempt_ns;      // when to connect again; UINT64_MAX unless the socket's connection has ended
    uint64_t backoff_ns;      // grows with each socket that gets no answer
    uint64_t longest_wait_ns; // that ended with a BATCH, slowly decaying
    unsigned patience;        // doublings of the deadline, one for each socket on which no BATCH arrived in time
    uint64_t wait_began_ns, last_rx_ns, last_batch_ns, last_log_ns;
} FeedTimes;

// The ring and who writes to it.
typedef struct {
    int ctl;                    // -1 = none
    uint64_t attach_id;         // 0 = inline
    uint64_t attached_instance; // of the loader that has the ring
    unsigned attach_failures;   // since the last message was received
    Ring ring;
    RetiredRing *retired;
    uint32_t generation[FEED_SLOTS_MAX];
    enum { SLOT_FREE, SLOT_REQUESTED, SLOT_LENT } slots[FEED_SLOTS_MAX];
} FeedRing;

// The requests without an answer.
typedef struct {
    uint64_t last_req;
    PendingRequest requests[WIRE_WINDOW_MAX]; // circular: the oldest at `head`
    uint32_t window, head, outstanding;
} FeedQueue;

struct Feed {
    FeedConfig config;
    FeedDataset dataset;
    uint8_t served[32];                 // the dataset's fingerprint as the loader has it
    WireWeights *weights;               // of the dataset's sources: the schedule
    unsigned weight_count, entry_count; // entry_count: of the loader's; weight_count: without later ones (as_before)
    FeedStats stats;
    bool known;   // `dataset` is set
    bool changed; // FEED_CHANGED has not been returned yet
    bool unfit;   // a loader serves a dataset that is too short, or in a list another dataset, and this has been logged
    FeedLink link;
    FeedTimes times;
    FeedRing shared;
    FeedQueue queue;
};

static inline PendingRequest *feed_request_at(Feed *feed, uint32_t age) {
    return &feed->queue.requests[(feed->queue.head + age) % WIRE_WINDOW_MAX];
}

// --- feed_ring.c

// The bytes of the largest batch, of a dataset with as many ids as the model.
static inline uint64_t feed_batch_bytes(const FeedConfig *config) {
    return (uint64_t)config->max_rows * (config->sequence_tokens + 1ull) * id_bytes(config->vocab_size);
}

int feed_ring_allocate(Feed *feed); // all outstanding requests get new slots and are sent again
// Releases a slot of an earlier ring; false when `at` is not such a slot.
bool feed_ring_release(Feed *feed, const uint8_t *at, uint32_t slot);
void feed_ring_close(Feed *feed); // and earlier rings

typedef enum {
    FEED_RING_FAILED, // of an offer, after fail(); of a reply: the connection has ended
    FEED_RING_SENT,   // to the loader: its reply will arrive on feed->shared.ctl
    FEED_RING_SETTLED // GETs can be sent: attach_id is the ring's, or 0 when the rows arrive over the socket
} FeedRingState;

FeedRingState feed_ring_offer(Feed *feed);         // sends the ring to the loader, if both sides can share one
FeedRingState feed_ring_receive_reply(Feed *feed); // when feed->shared.ctl is readable
void feed_ring_withdraw(Feed *feed);               // closes feed->shared.ctl: the loader must not write to the ring

// --- feed_connection.c

void connection_open(Feed *feed);  // a new socket and HELLO
int connection_attach(Feed *feed); // offers the ring to the loader; -1 after fail()
void connection_send(Feed *feed, PendingRequest *request);
int connection_receive(Feed *feed);                 // handles the messages that have arrived; -1 after fail()
int connection_wait(Feed *feed, uint64_t until_ns); // waits for one event, receives, retries; -1 after fail()
void connection_close(Feed *feed);

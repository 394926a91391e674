// Server internals. server.c (lifecycle, poll loop, rings) calls requests.c (message handlers), which calls jobs.c
// (GETs), reload.c (changes of the datasets) and server_status.c (counters); session.c (sending) and unread.c (limits
// of sending) are below them all.
#pragma once

#include "common/err.h"
#include "common/file/file.h"
#include "loader/protocol/ring.h"
#include "loader/protocol/status.h"
#include "loader/server/row_reader.h"
#include "loader/server/server.h"
#include <pthread.h>
#include <stdatomic.h>
#include <zmq.h>

enum {
    SESSIONS_MAX = STATUS_CLIENTS_MAX,
    ATTACHMENTS_MAX = 256,
    ROUTE_MAX = 255,     // bytes of a ZeroMQ routing id
    ANSWER_BYTES = 4096, // memory for an answer beyond its rows
    UNREAD_PEERS = 1024, // with answers that they have not read
    ERROR_LIMITS = 256,  // the limits on ERROR messages; peers are assigned to them by a hash of their routing id
};

#define RATE_NS 5000000000ull // the interval over which a client's tokens a second are counted

typedef struct {
    uint8_t bytes[ROUTE_MAX];
    size_t size;
} Route;

// A trainer. `route` is the socket of its last HELLO; a trainer that is killed sends no BYE, so sessions expire.
typedef struct {
    uint64_t id, seen_ns;
    uint32_t sequence_tokens; // the largest T of the run
    uint64_t unread_max;      // limit on the bytes of its unread answers
    Route route;
    char key[KEY_TEXT];    // of the peer that opened it; empty without keys
    WireClientStats stats; // with its name and address
    bool endless;          // it has read a sampling mode without an end, so that others are evaluations
    uint64_t started_ns, rate_began_ns, rate_tokens; // rate_tokens: sent since rate_began_ns
} Session;

// The sender of a message.
typedef struct {
    Route route;
    const char *key;     // its public key, NULL without keys
    const char *address; // as ZeroMQ reports it, NULL when it does not
} Sender;

// How many errors were sent to a group of peers in the current second.
typedef struct {
    uint64_t began_ns;
    unsigned count;
} ErrorLimit;

// The bytes of one peer's answers in ZeroMQ's queues.
typedef struct {
    Route route;
    _Atomic uint64_t bytes;
} UnreadAccount;

// Memory of an answer; ZeroMQ's thread frees it when the last part has been sent or dropped.
typedef struct {
    atomic_uint users; // parts, and the caller
    _Atomic uint64_t *account, *total;
    uint64_t bytes;
    _Alignas(8) uint8_t data[];
} Unread;

// A GET whose rows are not complete.
typedef struct Job {
    struct Job *next;
    Route route;
    WireHeader header; // of the newest request for it
    uint64_t arrived_ns;
    RowCopy copy;
    uint32_t crc;        // CRC32C of the rows in the slot
    Unread *inline_rows; // NULL: to a slot of the ring
    bool runnable;       // its last step ended at the limit of a step
} Job;

// The last request for a slot, so that a resend is answered without writing the slot and an overtaken request is
// dropped.
typedef struct {
    uint64_t req_id;
    uint32_t generation;
    bool seen, answered;
    WireBatch batch;
} SlotRecord;

typedef struct {
    int fd; // the connection on ctl.sock; it closes when the trainer ends
    uint64_t id, session;
    Ring ring;
    SlotRecord *slots;
} Attachment;

// Datasets that a thread opens while the loop serves the current ones.
typedef struct {
    pthread_t thread;
    bool running, again; // again: SIGHUP arrived in the meantime
    int done;            // eventfd: the thread has finished
    ServedSpec spec;     // of the datasets to open
    char *words;         // own the strings of `spec`, if they came with CONTROL
    size_t words_bytes;
    WireMessage request;           // the CONTROL that waits for a reply; of type 0 after SIGHUP
    Route route;                   // of the request
    uint32_t weights[SOURCES_MAX]; // of REWEIGHT
    bool appended;                 // they have been added to the schedule, ...
    uint64_t schedule_bytes;       // ... which had this size before
    const Served *current;         // the datasets that are served meanwhile
    Served *fresh;                 // NULL after an error
    Error error;
} Reload;

struct Server {
    const Endpoint *endpoint;
    const ServerConfig *config;
    AllowList allow;          // with the loader's own key; empty without keys
    bool metrics_written;     // the metrics file is this loader's
    bool unreachable;         // a socket of the endpoint has been removed
    uint64_t refused_warn_ns; // time of the last line about a refused peer
    Served *current;
    Served *previous; // NULL, or replaced by a reload and still available to trainers that request it
    Served *closing;  // to be closed when no decoder works on them
    ServedSpec spec;  // of `current`
    char *words;      // own the strings of `spec`, if they came with CONTROL
    RowReader *reader;
    Job *jobs, **last_job; // the last one's `next`
    Reload reload;
    Lock lock;
    void *context, *router, *zap; // zap: NULL without keys
    int signals, listener;        // a signalfd; ctl.sock, -1 for tcp
    uint64_t instance, started_ns;
    ErrorLimit error_limits[ERROR_LIMITS];
    mode_t file_mode;                // of files that the user reads, by the umask that the loader was started with
    uint64_t metrics_ns, watched_ns; // when the metrics file was written, and the decoders checked, last
    Session sessions[SESSIONS_MAX];
    struct {
        _Atomic uint64_t total;
        UnreadAccount accounts[UNREAD_PEERS];
    } unread;
    Attachment attachments[ATTACHMENTS_MAX];
    unsigned attachment_count;
    uint32_t rings_received; // counts the attachments, also those that have ended
    WireStats stats;
};

// --- session.c

// Sends a message, and a second part, which it then owns, unless it is NULL. It is dropped when the peer is gone or
// its queue is full: the peer repeats its request.
void server_send_parts(Server *server, const Route *route, WireMessage *message, zmq_msg_t *second);
void server_send(Server *server, const Route *route, WireMessage *message);
void server_notify_all(Server *server, WireCode code, const char *text); // a NOTICE to every session
WireMessage server_reply(const WireHeader *request, WireType type);      // with the ids of the request
void server_send_error(Server *server, const Route *route, const WireHeader *request, WireCode code, uint32_t detail,
                       const char *format, ...) PRINTF_LIKE(6, 7);

Session *session_find(Server *server, uint64_t id); // NULL when it is not known
bool session_is_live(const Session *session);
// Keeps the newest route, address, name and T of the session. A full table loses the session that has been silent for
// longest.
void session_register(Server *server, const WireMessage *hello, const Sender *peer);
// An answer was sent.
void session_count(Session *session, const WireGet *get, const WireBatch *batch, uint64_t wait_ns);

// Counts a peer without an allowed key, and logs it, but at most once a second.
void server_refuse_peer(Server *server, const char *address);

// --- unread.c

// Memory for an answer of `payload` bytes. NULL when the peer would hold more than `limit` bytes, or all peers more
// than a quarter of the cache and 64 MiB.
Unread *unread_open(Server *server, const Route *route, uint64_t limit, uint64_t payload);
uint64_t unread_bytes(const Server *server, const Route *route);                // that the peer holds
int unread_part(Unread *unread, size_t offset, size_t length, zmq_msg_t *part); // a message of some of its bytes
void unread_release(void *data, void *unread);                                  // by its caller; `data` is not used

// --- jobs.c

// Starts to answer a GET; answers it at once when its frames are decoded.
void job_start(Server *server, const Route *route, const WireMessage *request);
bool jobs_advance(Server *server);                    // true when a job can continue at once
void jobs_cancel(Server *server, uint64_t attach_id); // the jobs that write to this ring

// --- reload.c

int server_read_keys(Server *server, AllowList *allow); // the allow-list, and the loader's own key
void server_reload(Server *server);                     // SIGHUP: reads the keys and opens the datasets again
// CONTROL: opens other datasets, or the same ones with other weights. `key`: of the sender, NULL without keys.
void server_control(Server *server, const Route *route, const char *key, const WireMessage *request, Bytes text);
void server_reload_finish(Server *server); // when reload.done is readable

// --- server_status.c

// Collects the values of STATS; writes them to the metrics file, which is replaced at once (rename).
void server_status(const Server *server, Status *status);
int server_write_metrics(Server *server); // 73 when the path is not a regular file, but a device for example
// At the end: the last values would look like the values of a loader that runs.
void server_remove_metrics(const Server *server);

// --- requests.c

// Handles one message; corrupt messages are dropped and counted. `second` is the second part, empty when the message
// has one part.
void server_handle_message(Server *server, const Sender *peer, Bytes frame, Bytes second);

// The loader's loop: one thread, a ROUTER socket, ctl.sock, and signals as just another descriptor.
#include "loader/serve.h"
#include "common/err.h"
#include "common/file.h"
#include "common/hash.h"
#include "common/log.h"
#include "loader/fill.h"
#include "loader/ring.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

enum {
    SESSIONS_MAX = 64,
    ATTACHMENTS_MAX = 64,
    ROUTE_MAX = 255, // a ZeroMQ routing id
    HIGH_WATER = 2 * WIRE_WINDOW_MAX + 8,
    LINGER_MS = 100, // for the last answers
    QUIET_MS = 10,   // then nothing more was on its way
    HANDSHAKE_MS = 2000,
    ERRORS_PER_SECOND = 100, // a peer that errs in a loop must not be answered in a loop
};

typedef struct {
    uint8_t bytes[ROUTE_MAX];
    size_t size;
} Route;

typedef struct {
    uint64_t id, seen_ns;
    Route route;
} Session;

// What was last done in a slot, so that a resend is answered without touching it and a late request is refused.
typedef struct {
    uint64_t req_id;
    uint32_t generation;
    bool seen, answered;
    WireBatch batch;
} SlotRecord;

typedef struct {
    int fd; // the connection on ctl.sock; its end is the trainer's
    uint64_t id, session;
    Ring ring;
    SlotRecord *slots;
} Attachment;

struct Server {
    const Dataset *dataset;
    Fill *fill;
    Lock lock;
    void *context, *router;
    int signals, listener;
    uint64_t instance, started_ns, errors_ns;
    unsigned errors_now;
    Session sessions[SESSIONS_MAX];
    Attachment attachments[ATTACHMENTS_MAX];
    unsigned attachment_count;
    Buffer payload; // rows of an inline batch
    WireStats stats;
};

static uint64_t random_id(void) {
    uint64_t id;
    if (getrandom(&id, sizeof id, 0) != sizeof id) die(EX_LIMIT, "no random numbers: %s", strerror(errno));
    return id | 1;
}

static void set_option(void *socket, int option, int value) {
    if (zmq_setsockopt(socket, option, &value, sizeof value) < 0)
        die(EX_BUG, "ZeroMQ refuses option %d: %s", option, zmq_strerror(errno));
}

static int bind_sockets(Server *server, const Place *place) {
    server->listener = ctl_listen(place->ctl);
    if (server->listener < 0) return fail_errno("cannot listen on '%s'", place->ctl);
    server->context = zmq_ctx_new();
    server->router = server->context ? zmq_socket(server->context, ZMQ_ROUTER) : NULL;
    if (!server->router) return fail(EX_LIMIT, "cannot start ZeroMQ: %s", zmq_strerror(errno));
    set_option(server->router, ZMQ_ROUTER_MANDATORY, 1); // else a full queue loses answers silently
    set_option(server->router, ZMQ_ROUTER_HANDOVER, 1);
    set_option(server->router, ZMQ_SNDTIMEO, 0);
    set_option(server->router, ZMQ_SNDHWM, HIGH_WATER);
    set_option(server->router, ZMQ_RCVHWM, HIGH_WATER);
    set_option(server->router, ZMQ_LINGER, LINGER_MS);
    set_option(server->router, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
    int64_t most = WIRE_REQUEST_MAX;
    zmq_setsockopt(server->router, ZMQ_MAXMSGSIZE, &most, sizeof most);
    if (zmq_bind(server->router, place->endpoint) < 0)
        return fail(EX_CREATE, "cannot bind '%s': %s", place->endpoint, zmq_strerror(errno));
    return 0;
}

Server *serve_open(const Place *place, const Dataset *dataset) {
    Server *server = calloc(1, sizeof *server);
    if (!server) die(EX_MEMORY, "no memory");
    server->dataset = dataset;
    server->signals = server->listener = -1;
    server->instance = random_id();
    server->started_ns = clock_ns();
    // Before ZeroMQ starts its threads, so that they inherit the mask.
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    server->signals = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
    umask(077);
    // The lock before the sockets: libzmq would take a living loader's path from it without a word.
    if (place_make(place) < 0 || lock_take(&server->lock, place->dir) < 0 || !(server->fill = fill_open(dataset)) ||
        bind_sockets(server, place) < 0) {
        serve_close(server);
        return NULL;
    }
    return server;
}

static void attachment_close(Server *server, Attachment *attachment) {
    ring_close(&attachment->ring);
    free(attachment->slots);
    close(attachment->fd); // last: to the trainer it says that nobody writes into the ring any more
    *attachment = server->attachments[--server->attachment_count];
}

void serve_close(Server *server) {
    if (!server) return;
    while (server->attachment_count) attachment_close(server, &server->attachments[0]);
    if (server->router) zmq_close(server->router);
    if (server->context) zmq_ctx_term(server->context);
    if (server->listener >= 0) close(server->listener);
    if (server->signals >= 0) close(server->signals);
    lock_drop(&server->lock);
    fill_close(server->fill);
    buffer_close(&server->payload);
    free(server);
}

// --- answers

// Sends to one peer. A peer that is gone or whose queue is full asks again.
static void send_message(Server *server, const Route *route, WireMessage *message, Bytes payload) {
    message->header.loader_instance = server->instance;
    Bytes frame = wire_encode(message);
    if (zmq_send(server->router, route->bytes, route->size, ZMQ_SNDMORE) < 0 ||
        zmq_send(server->router, frame.data, frame.size, payload.size ? ZMQ_SNDMORE : 0) < 0 ||
        (payload.size && zmq_send(server->router, payload.data, payload.size, 0) < 0))
        server->stats.dropped++;
}

static WireMessage answer_to(const WireMessage *request, WireType type) {
    WireMessage answer;
    memset(&answer, 0, sizeof answer);
    answer.header.type = (uint8_t)type;
    answer.header.session = request->header.session;
    answer.header.req_id = request->header.req_id;
    answer.header.sent_ns = request->header.sent_ns;
    answer.header.attach_id = request->header.attach_id;
    return answer;
}

__attribute__((format(printf, 6, 7))) static void send_error(Server *server, const Route *route,
                                                             const WireMessage *request, WireCode code, uint32_t detail,
                                                             const char *format, ...) {
    uint64_t now = clock_ns();
    if (now - server->errors_ns > 1000000000) server->errors_ns = now, server->errors_now = 0;
    server->stats.errors++;
    if (server->errors_now++ >= ERRORS_PER_SECOND) return;
    WireMessage answer = answer_to(request, WIRE_ERROR);
    answer.error.code = (uint16_t)code;
    answer.error.detail = detail;
    va_list list;
    va_start(list, format);
    vsnprintf(answer.error.text, sizeof answer.error.text, format, list);
    va_end(list);
    send_message(server, route, &answer, (Bytes){0});
}

static void session_note(Server *server, uint64_t id, const Route *route) {
    Session *chosen = &server->sessions[0];
    for (Session *s = server->sessions; s < server->sessions + SESSIONS_MAX; s++) {
        if (s->id == id) {
            chosen = s;
            break;
        }
        if (s->seen_ns < chosen->seen_ns) chosen = s;
    }
    *chosen = (Session){id, clock_ns(), *route};
}

static bool is_zero(const uint8_t fp[32]) {
    static const uint8_t zero[32];
    return !memcmp(fp, zero, 32);
}

static void answer_hello(Server *server, const Route *route, const WireMessage *request, Bytes spec) {
    const WireHello *hello = &request->hello;
    const Dataset *dataset = server->dataset;
    char ours[17], theirs[17];
    hex_encode(ours, dataset->vocab_fp, 8);
    hex_encode(theirs, hello->vocab_fp, 8);
    if (hello->proto_min > WIRE_MAJOR || hello->proto_max < WIRE_MAJOR) {
        send_error(server, route, request, WIRE_PROTO, 0, "the loader speaks protocol %d, the trainer %u to %u",
                   WIRE_MAJOR, hello->proto_min, hello->proto_max);
    } else if (!is_zero(hello->vocab_fp) && memcmp(hello->vocab_fp, dataset->vocab_fp, 32)) {
        send_error(server, route, request, WIRE_VOCAB, 0,
                   "the loader's dataset '%.40s' has vocabulary %s (%u ids), the trainer's model has %s (%u ids)",
                   dataset->name, ours, dataset->vocab_size, theirs, hello->vocab_size);
    } else if (hello->vocab_size < dataset->vocab_size) {
        send_error(server, route, request, WIRE_VOCAB, 0,
                   "the loader's dataset '%.40s' has %u ids (vocabulary %s), the trainer's model only %u (%s)",
                   dataset->name, dataset->vocab_size, ours, hello->vocab_size, theirs);
    } else if (!(hello->dtype_mask & 1)) {
        send_error(server, route, request, WIRE_PROTO, 0, "the loader sends u16 ids only");
    } else {
        uint8_t hash[32];
        sha256(spec.data, spec.size, hash);
        if (spec.size > WIRE_SPEC_MAX || (!is_zero(hello->spec_hash) && memcmp(hash, hello->spec_hash, 32))) {
            send_error(server, route, request, WIRE_SPEC, 0, "the sampling spec is not what its hash says");
            return;
        }
        session_note(server, request->header.session, route);
        WireMessage answer = answer_to(request, WIRE_WELCOME);
        WireWelcome *welcome = &answer.welcome;
        welcome->proto = WIRE_MAJOR, welcome->dtype = 1, welcome->ring = 1;
        welcome->window = hello->window;
        for (int split = 0; split < SPLIT_COUNT; split++) {
            welcome->tokens[split] = dataset->tokens[split];
            welcome->documents[split] = dataset->documents[split];
        }
        welcome->eot_id = dataset->eot_id, welcome->vocab_size = dataset->vocab_size;
        memcpy(welcome->vocab_fp, dataset->vocab_fp, 32);
        memcpy(welcome->dataset_fp, dataset->fingerprint, 32);
        memcpy(welcome->spec_hash, hello->spec_hash, 32);
        snprintf(welcome->name, sizeof welcome->name, "%s", dataset->name);
        send_message(server, route, &answer, (Bytes){0});
    }
}

static Attachment *attachment_find(Server *server, const WireHeader *header) {
    for (unsigned i = 0; i < server->attachment_count; i++) {
        Attachment *attachment = &server->attachments[i];
        if (attachment->id == header->attach_id && attachment->session == header->session) return attachment;
    }
    return NULL;
}

static void answer_get(Server *server, const Route *route, const WireMessage *request) {
    const WireGet *get = &request->get;
    uint64_t bytes = (uint64_t)get->rows * (get->sequence_tokens + 1) * sizeof(uint16_t), began_ns = clock_ns();
    if (memcmp(get->dataset_fp8, server->dataset->fingerprint, sizeof get->dataset_fp8)) {
        send_error(server, route, request, WIRE_FP, 0, "that dataset is not served here");
        return;
    }
    if (get->spec_id) {
        send_error(server, route, request, WIRE_SPEC, get->spec_id, "there is no sampling spec %u", get->spec_id);
        return;
    }
    Attachment *attachment = NULL;
    SlotRecord *record = NULL;
    uint16_t *ids;
    if (request->header.attach_id) {
        attachment = attachment_find(server, &request->header);
        if (!attachment || get->slot >= attachment->ring.slot_count || bytes > attachment->ring.slot_bytes) {
            send_error(server, route, request, WIRE_SLOT, get->slot, "no such ring or slot");
            return;
        }
        record = &attachment->slots[get->slot];
        if (record->seen && (int32_t)(get->generation - record->generation) < 0) {
            server->stats.dropped++; // overtaken by a later request for the slot
            return;
        }
        if (record->answered && record->generation == get->generation && record->req_id == request->header.req_id) {
            server->stats.repeated++;
            WireMessage again = answer_to(request, WIRE_BATCH);
            again.batch = record->batch;
            send_message(server, route, &again, (Bytes){0});
            return;
        }
        *record = (SlotRecord){.req_id = request->header.req_id, .generation = get->generation, .seen = true};
        ids = (uint16_t *)(void *)ring_slot(&attachment->ring, get->slot);
    } else {
        server->payload.size = 0;
        buffer_reserve(&server->payload, bytes);
        ids = (uint16_t *)(void *)server->payload.data;
    }

    FeedAsk ask = {get->split, get->mode, get->rows, get->seed, get->first_sample};
    WireMessage answer = answer_to(request, WIRE_BATCH);
    WireBatch *batch = &answer.batch;
    uint32_t shard = UINT32_MAX;
    if (fill_rows(server->fill, &ask, get->sequence_tokens, ids, &batch->rows, &batch->epoch, &shard) < 0) {
        send_error(server, route, request, shard == UINT32_MAX ? WIRE_RANGE : WIRE_IO, shard, "%s", err_text());
        err_clear();
        return;
    }
    batch->first_sample = get->first_sample;
    batch->sequence_tokens = get->sequence_tokens;
    batch->slot = get->slot, batch->generation = get->generation, batch->dtype = 1;
    batch->length = batch->rows * (get->sequence_tokens + 1) * (uint32_t)sizeof(uint16_t);
    batch->payload_crc = crc32c(0, ids, batch->length);
    uint64_t now = clock_ns();
    batch->produce_us = (uint32_t)((now - began_ns) / 1000);
    if (request->header.sent_ns < began_ns) batch->queue_us = (uint32_t)((began_ns - request->header.sent_ns) / 1000);
    if (record) record->answered = true, record->batch = *batch;
    server->stats.batches++;
    server->stats.tokens += (uint64_t)batch->rows * get->sequence_tokens;
    server->stats.payload_bytes += batch->length;
    server->stats.produce_ns += now - began_ns;
    send_message(server, route, &answer, attachment ? (Bytes){0} : (Bytes){(const uint8_t *)ids, batch->length});
}

static void answer_stats(Server *server, const Route *route, const WireMessage *request) {
    WireMessage answer = answer_to(request, WIRE_STATS);
    answer.stats = server->stats;
    answer.stats.frames_decoded = fill_frames(server->fill);
    for (int i = 0; i < SESSIONS_MAX; i++) answer.stats.sessions += server->sessions[i].id != 0;
    answer.stats.uptime_ns = clock_ns() - server->started_ns;
    send_message(server, route, &answer, (Bytes){0});
}

static void answer_message(Server *server, const Route *route, Bytes frame, Bytes payload) {
    WireMessage request, answer;
    WireVerdict verdict = wire_decode(frame, &request);
    if (verdict == WIRE_OTHER_MAJOR) {
        send_error(server, route, &request, WIRE_PROTO, 0, "the loader speaks protocol %d, the trainer %u", WIRE_MAJOR,
                   request.header.major);
        return;
    }
    switch (verdict == WIRE_FINE ? request.header.type : 0) {
    case WIRE_HELLO:
        answer_hello(server, route, &request, payload);
        return;
    case WIRE_GET:
        answer_get(server, route, &request);
        return;
    case WIRE_STATS:
        answer_stats(server, route, &request);
        return;
    case WIRE_PING:
        answer = answer_to(&request, WIRE_PONG);
        send_message(server, route, &answer, (Bytes){0});
        return;
    case WIRE_BYE:
        for (int i = 0; i < SESSIONS_MAX; i++)
            if (server->sessions[i].id == request.header.session) server->sessions[i] = (Session){0};
        return;
    default:
        server->stats.dropped++;
    }
}

// --- the loop

// Takes one message of at most three parts (route, frame, payload); false when none waits.
static bool take_message(Server *server) {
    enum { PARTS = 3 };
    zmq_msg_t parts[PARTS];
    int count = 0, more = 1;
    for (; more; count++) {
        zmq_msg_t extra, *part = count < PARTS ? &parts[count] : &extra;
        zmq_msg_init(part);
        if (zmq_msg_recv(part, server->router, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(part);
            break;
        }
        more = zmq_msg_more(part);
        if (part == &extra) zmq_msg_close(part);
    }
    if (!count) return false;
    if (count >= 2 && count <= PARTS && !more) {
        Route route = {.size = zmq_msg_size(&parts[0])};
        Bytes frame = {zmq_msg_data(&parts[1]), zmq_msg_size(&parts[1])}, payload = {0};
        if (count == PARTS) payload = (Bytes){zmq_msg_data(&parts[2]), zmq_msg_size(&parts[2])};
        if (route.size <= ROUTE_MAX) {
            memcpy(route.bytes, zmq_msg_data(&parts[0]), route.size);
            answer_message(server, &route, frame, payload);
        }
    } else {
        server->stats.dropped++;
    }
    for (int i = 0; i < count && i < PARTS; i++) zmq_msg_close(&parts[i]);
    return true;
}

static void accept_trainer(Server *server) {
    int fd = ctl_accept(server->listener);
    if (fd < 0) return;
    if (server->attachment_count == ATTACHMENTS_MAX) {
        close(fd);
        return;
    }
    server->attachments[server->attachment_count++] = (Attachment){.fd = fd, .ring.fd = -1};
}

// The connection speaks once, with its ring; after that, or with anything else, it is over.
static void hear_trainer(Server *server, Attachment *attachment) {
    CtlAttach attach;
    Ring ring;
    if (attachment->id || ctl_receive(attachment->fd, &attach, &ring) < 0) {
        if (!attachment->id && (errno == EAGAIN || errno == EINTR)) return;
        attachment_close(server, attachment);
        return;
    }
    attachment->ring = ring;
    attachment->id = random_id();
    attachment->session = attach.session;
    attachment->slots = calloc(ring.slot_count, sizeof *attachment->slots);
    if (!attachment->slots) die(EX_MEMORY, "no memory for %u slots", ring.slot_count);
    CtlReply reply = {WIRE_MAGIC, WIRE_MAJOR, 0, attachment->id, server->instance, 0};
    if (ctl_answer(attachment->fd, &reply) < 0) attachment_close(server, attachment);
}

// Tells the trainers, then answers what they asked before they knew.
static void say_goodbye(Server *server) {
    for (Session *session = server->sessions; session < server->sessions + SESSIONS_MAX; session++) {
        if (!session->id) continue;
        WireMessage notice;
        memset(&notice, 0, sizeof notice);
        notice.header.type = WIRE_NOTICE, notice.header.session = session->id;
        notice.error.code = WIRE_SHUTDOWN;
        snprintf(notice.error.text, sizeof notice.error.text, "the loader was told to stop");
        send_message(server, &session->route, &notice, (Bytes){0});
    }
    zmq_pollitem_t item = {.socket = server->router, .events = ZMQ_POLLIN};
    uint64_t end_ns = clock_ns() + LINGER_MS * 1000000ull;
    while (clock_ns() < end_ns && zmq_poll(&item, 1, QUIET_MS) > 0) take_message(server);
}

int serve_run(Server *server) {
    enum { ROUTER, SIGNALS, LISTENER, FIRST };
    zmq_pollitem_t items[FIRST + ATTACHMENTS_MAX];
    bool idle = false;
    for (;;) {
        memset(items, 0, sizeof items);
        items[ROUTER].socket = server->router;
        items[SIGNALS].fd = server->signals;
        items[LISTENER].fd = server->listener;
        unsigned attached = server->attachment_count;
        for (unsigned i = 0; i < attached; i++) items[FIRST + i].fd = server->attachments[i].fd;
        for (unsigned i = 0; i < FIRST + attached; i++) items[i].events = ZMQ_POLLIN;
        int ready = zmq_poll(items, (int)(FIRST + attached), idle ? -1 : 0);
        if (ready < 0 && errno != EINTR) return fail(EX_BUG, "zmq_poll: %s", zmq_strerror(errno));
        if (ready <= 0) {
            idle = !fill_ahead(server->fill);
            continue;
        }
        idle = false;
        if (items[SIGNALS].revents) {
            say_goodbye(server);
            return 0;
        }
        // Downwards, because closing one moves the last into its place.
        for (unsigned i = attached; i--;)
            if (items[FIRST + i].revents) hear_trainer(server, &server->attachments[i]);
        if (items[LISTENER].revents) accept_trainer(server);
        for (int i = 0; i < WIRE_WINDOW_MAX && take_message(server); i++) {
        }
    }
}

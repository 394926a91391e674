// The loader's loop: one thread, a ROUTER socket, ctl.sock, and signals as just another descriptor.
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "loader/server/server_internal.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

enum {
    HIGH_WATER = 2 * WIRE_WINDOW_MAX + 8,
    LINGER_MS = 100, // for the last answers
    QUIET_MS = 10,   // then nothing more was on its way
    HANDSHAKE_MS = 2000,
    BEFORE_MS = 60000, // a replaced dataset goes when it was not asked for this long
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

static int bind_sockets(Server *server, const Endpoint *endpoint) {
    if (endpoint->ipc) server->listener = ctl_listen(endpoint->ctl);
    if (endpoint->ipc && server->listener < 0) return fail_errno("cannot listen on '%s'", endpoint->ctl);
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
    if (!endpoint->ipc) endpoint_keep_alive(server->router);
    int64_t most = WIRE_REQUEST_MAX;
    zmq_setsockopt(server->router, ZMQ_MAXMSGSIZE, &most, sizeof most);
    if (server->keys) {
        set_option(server->router, ZMQ_CURVE_SERVER, 1);
        zmq_setsockopt(server->router, ZMQ_CURVE_SECRETKEY, server->keys->pair.secret_key, KEY_TEXT);
        if (!(server->zap = zap_open(server->context))) return -1;
    }
    if (zmq_bind(server->router, endpoint->zmq_address) < 0)
        return fail(EX_CREATE, "cannot bind '%s': %s", endpoint->name, zmq_strerror(errno));
    return 0;
}

static void served_close(Served *served) {
    row_reader_close(served->reader);
    dataset_close(&served->dataset);
    *served = (Served){0};
}

static int served_open(Served *served, const char *path) {
    *served = (Served){.asked_ns = clock_ns()};
    if (dataset_open(&served->dataset, path) == 0 && (served->reader = row_reader_open(&served->dataset))) return 0;
    served_close(served);
    return -1;
}

const Dataset *serve_dataset(const Server *server) { return &server->now.dataset; }

Server *serve_open(const Endpoint *endpoint, const char *path, const ServerKeys *keys) {
    Server *server = calloc(1, sizeof *server);
    if (!server) die(EX_MEMORY, "no memory");
    server->path = path;
    server->keys = keys;
    server->signals = server->listener = -1;
    server->instance = random_id();
    server->started_ns = clock_ns();
    // Before ZeroMQ starts its threads, so that they inherit the mask.
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    sigaddset(&stop, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    server->signals = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
    umask(077);
    if (served_open(&server->now, path) < 0 || endpoint_lock(endpoint, &server->lock) < 0 ||
        bind_sockets(server, endpoint) < 0) {
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
    if (server->zap) zmq_close(server->zap);
    if (server->context) zmq_ctx_term(server->context);
    if (server->listener >= 0) close(server->listener);
    if (server->signals >= 0) close(server->signals);
    lock_drop(&server->lock);
    served_close(&server->now);
    served_close(&server->before);
    buffer_close(&server->payload);
    free(server);
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
    send_notices(server, WIRE_SHUTDOWN, "the loader was told to stop");
    zmq_pollitem_t item = {.socket = server->router, .events = ZMQ_POLLIN};
    uint64_t end_ns = clock_ns() + LINGER_MS * 1000000ull;
    while (clock_ns() < end_ns && zmq_poll(&item, 1, QUIET_MS) > 0) take_message(server);
}

// SIGHUP: what is in the directory now takes the place of what was there, if trainers can use it.
static void swap_dataset(Server *server) {
    Served fresh;
    if (served_open(&fresh, server->path) < 0) {
        log_warn("the dataset stays as it was: %s", err_text());
        err_clear();
        return;
    }
    bool same = !memcmp(fresh.dataset.fingerprint, server->now.dataset.fingerprint, 32);
    bool fits = !memcmp(fresh.dataset.vocab_fp, server->now.dataset.vocab_fp, 32);
    if (same || !fits) {
        log_warn(same ? "the dataset is the same as before"
                      : "the dataset stays as it was: the new one has another vocabulary");
        served_close(&fresh);
        return;
    }
    served_close(&server->before);
    server->before = server->now;
    server->now = fresh;
    char fp[17];
    hex_encode(fp, fresh.dataset.fingerprint, 8);
    log_line("now serving '%s', %llu train tokens, fingerprint %s", fresh.dataset.name,
             (unsigned long long)fresh.dataset.tokens[SPLIT_TRAIN], fp);
    send_notices(server, WIRE_FP, "the loader serves another dataset now");
}

// False when told to stop.
static bool hear_signals(Server *server) {
    struct signalfd_siginfo signal;
    while (read(server->signals, &signal, sizeof signal) == sizeof signal) {
        if (signal.ssi_signo != SIGHUP) return false;
        swap_dataset(server);
    }
    return true;
}

int serve_run(Server *server) {
    enum { ROUTER, SIGNALS, LISTENER, ZAP, FIRST };
    zmq_pollitem_t items[FIRST + ATTACHMENTS_MAX];
    bool idle = false;
    for (;;) {
        memset(items, 0, sizeof items);
        items[ROUTER].socket = server->router;
        items[SIGNALS].fd = server->signals;
        items[LISTENER].fd = server->listener;
        items[ZAP].socket = server->zap;
        if (!server->zap) items[ZAP].fd = -1;
        unsigned attached = server->attachment_count;
        for (unsigned i = 0; i < attached; i++) items[FIRST + i].fd = server->attachments[i].fd;
        for (unsigned i = 0; i < FIRST + attached; i++) items[i].events = ZMQ_POLLIN;
        int ready = zmq_poll(items, (int)(FIRST + attached), !idle ? 0 : server->before.reader ? BEFORE_MS : -1);
        if (ready < 0 && errno != EINTR) return fail(EX_BUG, "zmq_poll: %s", zmq_strerror(errno));
        if (ready <= 0) {
            idle = !row_reader_prefetch(server->now.reader);
            if (server->before.reader && clock_ns() - server->before.asked_ns > BEFORE_MS * 1000000ull)
                served_close(&server->before);
            continue;
        }
        idle = false;
        if (items[SIGNALS].revents && !hear_signals(server)) {
            say_goodbye(server);
            return 0;
        }
        // Downwards, because closing one moves the last into its place.
        for (unsigned i = attached; i--;)
            if (items[FIRST + i].revents) hear_trainer(server, &server->attachments[i]);
        if (items[LISTENER].revents) accept_trainer(server);
        if (items[ZAP].revents) zap_answer(server->zap, &server->keys->allow);
        for (int i = 0; i < WIRE_WINDOW_MAX && take_message(server); i++) {
        }
    }
}

// ZeroMQ as libzmq 4.3 behaves, on a network of the simulation: the functions of zmq.h that the loader and its client
// call. Messages of a connection arrive in their order, those of two connections in any. A connection that ends keeps a
// part of what is under way, from its beginning. DEALER sockets connect again by themselves, unless ZMQ_RECONNECT_IVL
// is -1. Where libzmq's thread would wait for room in the queue of a monitor, the history fails: the queue is shorter
// here.
#include "tests/simulate/sim.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

enum { ROUTE = 16, ADDRESS = 160, EVENTS_MAX = 20 };

typedef struct Part {
    struct Part *next;
    uint8_t *data;
    size_t size;
    zmq_free_fn *release;
    void *hint;
} Part;

typedef struct Message {
    struct Message *next;
    Part *parts;
    size_t bytes;
    uint64_t arrival;
} Message;

typedef struct {
    Message *first, *last;
    unsigned count;
    uint64_t latest; // arrival of the last message
} Queue;

typedef struct Socket {
    struct Socket *next;
    const Node *node;
    int type;
    char address[ADDRESS]; // bound, or connected to
    uint8_t route[ROUTE];
    int send_max, receive_max, linger_ms, reconnect_ms, immediate;
    Queue inbox;            // DEALER and PAIR
    Part *reading;          // parts of the message that is being received
    Part *writing;          // of the one that is being sent
    struct Link *target;    // of this one
    struct Socket *monitor; // the PAIR that gets the events
    int monitored;
} Socket;

typedef enum { TRYING, SHAKING, UP, BROKEN } LinkState;

typedef struct Link { // a connection
    struct Link *next;
    Socket *dealer, *router; // NULL: closed
    LinkState state;
    uint64_t event; // time of the next attempt, of the end of the handshake, or when the dealer learns of the end
    uint64_t frozen_until, break_at;
    Queue up, down; // under way
    Queue arrived;  // at the router
    uint8_t route[ROUTE];
} Link;

Net sim_network = {.latency_ns = 30 * US, .bytes_per_ms = 1 << 20};
static Socket *sockets;
static Link *links;
static char context; // there is one

// --- parts and messages

static Part *part_new(const void *data, size_t size) {
    Part *part = calloc(1, sizeof *part + size);
    if (!part) sim_fail("no memory");
    part->data = (uint8_t *)(part + 1), part->size = size;
    if (data) memcpy(part->data, data, size);
    return part;
}

static void part_free(Part *part) {
    if (part->release) part->release(part->data, part->hint);
    free(part);
}

static void parts_add(Part **parts, Part *part) {
    while (*parts) parts = &(*parts)->next;
    *parts = part;
}

static void message_free(Message *message) {
    for (Part *next, *part = message->parts; part; part = next) next = part->next, part_free(part);
    free(message);
}

static void queue_add(Queue *queue, Message *message) {
    message->next = NULL;
    *(queue->first ? &queue->last->next : &queue->first) = message;
    queue->last = message, queue->latest = message->arrival;
    queue->count++;
}

static Message *queue_take(Queue *queue) {
    Message *message = queue->first;
    queue->first = message->next;
    queue->count--;
    return message;
}

static void queue_clear(Queue *queue) {
    while (queue->first) message_free(queue_take(queue));
}

// The receiver gets a copy, as from a network: the sender's memory is free again.
static void arrive(Queue *from, Queue *to) {
    Message *message = queue_take(from);
    for (Part **at = &message->parts; *at; at = &(*at)->next) {
        if (!(*at)->release) continue;
        Part *copy = part_new((*at)->data, (*at)->size);
        copy->next = (*at)->next;
        part_free(*at);
        *at = copy;
    }
    queue_add(to, message);
}

// --- events of a socket

static void monitor_event(const Socket *socket, uint16_t number) {
    if (!socket->monitor || !(socket->monitored & number)) return;
    uint8_t event[6] = {(uint8_t)number, (uint8_t)(number >> 8)};
    Message *message = calloc(1, sizeof *message);
    if (!message) sim_fail("no memory");
    parts_add(&message->parts, part_new(event, sizeof event));
    parts_add(&message->parts, part_new(socket->address, strlen(socket->address)));
    queue_add(&socket->monitor->inbox, message);
    if (socket->monitor->inbox.count > EVENTS_MAX) sim_fail("ZeroMQ's thread waits until the events are read");
}

// --- connections

static Socket *bound_at(const char *address) {
    for (Socket *socket = sockets; socket; socket = socket->next)
        if (socket->type == ZMQ_ROUTER && !strcmp(socket->address, address)) return socket;
    return NULL;
}

static Link *link_new(Socket *dealer) {
    Link *link = calloc(1, sizeof *link);
    if (!link) sim_fail("no memory");
    *link = (Link){.next = links, .dealer = dealer, .event = sim_now};
    memcpy(link->route, dealer->route, ROUTE);
    return links = link;
}

static void link_free(Link *link) {
    Link **at = &links;
    while (*at != link) at = &(*at)->next;
    *at = link->next;
    for (Socket *socket = sockets; socket; socket = socket->next)
        if (socket->target == link) socket->target = NULL;
    queue_clear(&link->up), queue_clear(&link->down), queue_clear(&link->arrived);
    free(link);
}

// Of what is under way, a part from its beginning is kept, and all of it where `whole`.
static void cut(Queue *queue, bool whole) {
    uint64_t kept = whole ? queue->count : sim_below(queue->count + 1);
    Queue all = *queue;
    *queue = (Queue){.latest = all.latest};
    while (all.first && kept--) queue_add(queue, queue_take(&all));
    queue_clear(&all);
}

// What is kept of the dealer's messages arrives in its time, perhaps after those of its next connection.
static void link_break(Link *link, bool up_whole, bool down_whole) {
    if (link->state == BROKEN) return;
    sim_event("break", link->up.count, link->down.count);
    cut(&link->up, up_whole && link->frozen_until <= sim_now);
    cut(&link->down, down_whole && link->frozen_until <= sim_now);
    while (link->dealer && link->down.first) arrive(&link->down, &link->dealer->inbox);
    queue_clear(&link->down);
    if (!link->router || link->state != UP) queue_clear(&link->up);
    link->state = BROKEN, link->break_at = 0;
    link->event = sim_now + sim_spread(sim_network.latency_ns);
}

// Of the next attempt to connect; UINT64_MAX: there is none.
static uint64_t reconnect_time(const Socket *socket) {
    if (socket->reconnect_ms < 0) return UINT64_MAX;
    const uint64_t ns = (unsigned)socket->reconnect_ms * MS;
    monitor_event(socket, ZMQ_EVENT_CONNECT_RETRIED);
    return sim_now + ns + sim_below(ns + 1);
}

static uint64_t arrival(const Queue *queue, size_t bytes) {
    const uint64_t time = sim_now + sim_spread(sim_network.latency_ns);
    return (time > queue->latest ? time : queue->latest) + bytes * MS / sim_network.bytes_per_ms;
}

static void link_attempt(Link *link) {
    Socket *router = bound_at(link->dealer->address);
    if (!router) {
        monitor_event(link->dealer, ZMQ_EVENT_CLOSED);
        link->event = reconnect_time(link->dealer);
    } else if (router->node->stalled_until > sim_now) {
        link->event = router->node->stalled_until + sim_network.latency_ns;
    } else {
        link->router = router, link->state = SHAKING;
        link->event = sim_now + 3 * sim_spread(sim_network.latency_ns);
    }
}

static void link_up(Link *link) {
    Queue waited = link->up;
    link->up = (Queue){0};
    link->state = UP, link->event = UINT64_MAX;
    while (waited.first) {
        Message *message = queue_take(&waited);
        message->arrival = arrival(&link->up, message->bytes);
        queue_add(&link->up, message);
    }
    sim_event("connected", link->route[1], 0);
}

// What happens to a connection by itself.
static void link_event(Link *link) {
    if (link->state == BROKEN && link->dealer) {
        Socket *dealer = link->dealer;
        link->dealer = NULL, link->event = UINT64_MAX;
        monitor_event(dealer, ZMQ_EVENT_DISCONNECTED);
        const uint64_t next = reconnect_time(dealer);
        if (next != UINT64_MAX) link_new(dealer)->event = next;
    } else if (link->state == TRYING) {
        link_attempt(link);
    } else if (link->state == SHAKING) {
        link_up(link);
    } else {
        link->event = UINT64_MAX;
    }
}

// --- the network as a whole

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

// When the first message of a queue arrives; UINT64_MAX while the receiver has no room.
static uint64_t delivery(const Link *link, const Queue *queue, const Socket *receiver, const Queue *inbox) {
    if (!receiver || !queue->first || inbox->count >= (unsigned)receiver->receive_max) return UINT64_MAX;
    return later(later(queue->first->arrival, link->frozen_until), receiver->node->stalled_until);
}

static uint64_t delivery_up(const Link *link) {
    return link->state < UP ? UINT64_MAX : delivery(link, &link->up, link->router, &link->arrived);
}
static uint64_t delivery_down(const Link *link) {
    return link->dealer ? delivery(link, &link->down, link->dealer, &link->dealer->inbox) : UINT64_MAX;
}

static uint64_t event_time(const Link *link) {
    if (link->dealer && link->event != UINT64_MAX) return later(link->event, link->dealer->node->stalled_until);
    return UINT64_MAX;
}

uint64_t net_next(void) {
    uint64_t next = UINT64_MAX;
    for (const Link *link = links; link; link = link->next) {
        const uint64_t times[] = {delivery_up(link), delivery_down(link), event_time(link),
                                  link->break_at ? link->break_at : UINT64_MAX};
        for (int i = 0; i < 4; i++)
            if (times[i] < next) next = times[i];
    }
    return later(next, sim_now);
}

void net_run(void) {
    for (Link *next, *link = links; link; link = next) {
        next = link->next;
        if (delivery_up(link) <= sim_now) arrive(&link->up, &link->arrived);
        if (delivery_down(link) <= sim_now) arrive(&link->down, &link->dealer->inbox);
        if (link->break_at && link->break_at <= sim_now) link_break(link, false, false);
        if (event_time(link) <= sim_now) link_event(link);
        if (!link->dealer && (!link->router || (link->state == BROKEN && !link->arrived.first && !link->up.first)))
            link_free(link);
    }
}

static Link *link_number(uint64_t which) {
    unsigned count = 0;
    for (const Link *link = links; link; link = link->next) count += link->state == UP;
    if (!count) return NULL;
    Link *link = links;
    for (which %= count; link->state != UP || which--;) link = link->next;
    return link;
}

bool net_break(uint64_t which) {
    Link *link = link_number(which);
    if (link) link_break(link, false, false);
    return link;
}

bool net_freeze(uint64_t which, uint64_t ns) {
    enum { HEARTBEAT_S = 10 };
    Link *link = link_number(which);
    if (!link) return false;
    link->frozen_until = sim_now + ns;
    if (ns > HEARTBEAT_S * S) link->break_at = sim_now + HEARTBEAT_S * S;
    return true;
}

// --- sockets

static void socket_gone(Socket *socket, bool lingers) {
    for (Link *link = links; link; link = link->next) {
        if (link->dealer == socket) {
            link->dealer = NULL;
            link_break(link, lingers, false);
        }
        if (link->router == socket) {
            link->router = NULL;
            queue_clear(&link->arrived), queue_clear(&link->up);
            link_break(link, false, lingers);
        }
    }
    for (Socket *other = sockets; other; other = other->next)
        if (other->monitor == socket) other->monitor = NULL;
    Socket **at = &sockets;
    while (*at != socket) at = &(*at)->next;
    *at = socket->next;
    queue_clear(&socket->inbox);
    free(socket);
}

void net_node_ended(const Node *node) {
    for (Socket *next, *socket = sockets; socket; socket = next) {
        next = socket->next;
        if (socket->node == node) socket_gone(socket, false);
    }
}

void *zmq_ctx_new(void) { return &context; }
int zmq_ctx_term(void *self) { return self == &context ? 0 : -1; }

void *zmq_socket(void *self, int type) {
    Socket *socket = calloc(1, sizeof *socket);
    if (!socket || self != &context) sim_fail("no socket");
    *socket = (Socket){
        .next = sockets, .node = sim_node, .type = type, .send_max = 1000, .receive_max = 1000, .reconnect_ms = 100};
    for (int i = 0; i < ROUTE; i++) socket->route[i] = (uint8_t)(sim_random() | 1);
    return sockets = socket;
}

int zmq_close(void *self) {
    Socket *socket = self;
    socket_gone(socket, socket->linger_ms > 0);
    return 0;
}

int zmq_setsockopt(void *self, int option, const void *value, size_t size) {
    Socket *socket = self;
    if (option == ZMQ_ROUTING_ID) {
        if (size != ROUTE) sim_fail("a routing id of %zu bytes", size);
        memcpy(socket->route, value, size);
    }
    int *field = option == ZMQ_SNDHWM          ? &socket->send_max
                 : option == ZMQ_RCVHWM        ? &socket->receive_max
                 : option == ZMQ_LINGER        ? &socket->linger_ms
                 : option == ZMQ_IMMEDIATE     ? &socket->immediate
                 : option == ZMQ_RECONNECT_IVL ? &socket->reconnect_ms
                                               : NULL;
    if (field) memcpy(field, value, sizeof *field);
    return 0;
}

int zmq_bind(void *self, const char *address) {
    Socket *socket = self;
    if (bound_at(address)) return errno = EADDRINUSE, -1;
    strncpy(socket->address, address, ADDRESS - 1);
    if (!strncmp(address, "ipc://", 6)) close(open(address + 6, O_CREAT | O_WRONLY, 0600));
    return 0;
}

int zmq_connect(void *self, const char *address) {
    Socket *socket = self;
    strncpy(socket->address, address, ADDRESS - 1);
    for (Socket *other = sockets; socket->type == ZMQ_PAIR && other; other = other->next)
        if (other->monitored && !other->monitor && other->node == sim_node) other->monitor = socket;
    if (socket->type == ZMQ_DEALER) link_new(socket)->event += sim_spread(sim_network.latency_ns);
    return 0;
}

int zmq_socket_monitor(void *self, const char *address, int events) {
    Socket *socket = self;
    socket->monitored = address ? events : 0;
    if (!address) socket->monitor = NULL;
    return 0;
}

// --- messages of the interface: a zmq_msg_t begins with a pointer to its part

static Part **part_of(const zmq_msg_t *message) { return (Part **)(uintptr_t)message; }

int zmq_msg_init_size(zmq_msg_t *message, size_t size) {
    *part_of(message) = part_new(NULL, size);
    return 0;
}

int zmq_msg_init(zmq_msg_t *message) { return zmq_msg_init_size(message, 0); }

int zmq_msg_init_data(zmq_msg_t *message, void *data, size_t size, zmq_free_fn *release, void *hint) {
    Part *part = part_new(NULL, 0);
    part->data = data, part->size = size, part->release = release, part->hint = hint;
    *part_of(message) = part;
    return 0;
}

int zmq_msg_close(zmq_msg_t *message) {
    part_free(*part_of(message));
    return 0;
}

void *zmq_msg_data(zmq_msg_t *message) { return (*part_of(message))->data; }
size_t zmq_msg_size(const zmq_msg_t *message) { return (*part_of(message))->size; }
int zmq_msg_more(const zmq_msg_t *message) { return (*part_of(message))->hint == &context; }
const char *zmq_msg_gets(const zmq_msg_t *message, const char *property) {
    (void)message;
    return strcmp(property, "Peer-Address") ? NULL : "127.0.0.1";
}

// --- sending

static Link *link_to(const Socket *socket, const Part *route) {
    for (Link *link = links; link; link = link->next) {
        if (link->state == BROKEN) continue;
        if (socket->type == ZMQ_DEALER && link->dealer == socket && (link->state == UP || !socket->immediate))
            return link;
        if (route && link->router == socket && link->state == UP && route->size == ROUTE &&
            !memcmp(link->route, route->data, ROUTE))
            return link;
    }
    errno = socket->type == ZMQ_ROUTER ? EHOSTUNREACH : EAGAIN;
    return NULL;
}

static Queue *outgoing(const Socket *socket, Link *link) {
    return socket->type == ZMQ_DEALER ? &link->up : &link->down;
}

// Changes a bit, in a copy: the sender may still use its memory. More often of a NOTICE, which is not repeated; not of
// the operator's: a second part of CONTROL has no checksum, and a command ends at a reply that is damaged.
static void damage(Message *message) {
    enum { TYPE = 6, NOTICE = 6, STATS = 7, CONTROL = 9 };
    const uint8_t type = message->parts->data[TYPE];
    if (type == CONTROL || type == STATS || !sim_chance(type == NOTICE ? 5 * sim_network.damaged : sim_network.damaged))
        return;
    Part **at = sim_chance(500) && message->parts->next ? &message->parts->next : &message->parts, *part = *at;
    if (!part->size) return;
    Part *copy = part_new(part->data, part->size);
    copy->next = part->next, *at = copy;
    copy->data[sim_below(copy->size)] ^= (uint8_t)(1 << sim_below(8));
    part_free(part);
}

static void send_message(Socket *socket) {
    Message *message = calloc(1, sizeof *message);
    if (!message) sim_fail("no memory");
    message->parts = socket->writing, socket->writing = NULL;
    Link *link = socket->target;
    if (!link || link->state == BROKEN) { // it ended after the first part
        message_free(message);
        return;
    }
    for (const Part *part = message->parts; part; part = part->next) message->bytes += part->size;
    Queue *queue = outgoing(socket, link);
    message->arrival = arrival(queue, message->bytes);
    sim_event("send", message->parts->size > 6 ? message->parts->data[6] : 0, message->bytes);
    if (sim_network.damaged) damage(message);
    queue_add(queue, message);
    if (sim_chance(sim_network.lossy)) link_break(link, false, false);
}

// Takes the part, unless it fails.
static int send_part(Socket *socket, Part *part, bool more) {
    const bool route = socket->type == ZMQ_ROUTER && !socket->target;
    if (!socket->target) {
        Link *link = link_to(socket, part);
        if (!link) return -1;
        if (outgoing(socket, link)->count >= (unsigned)socket->send_max) return errno = EAGAIN, -1;
        socket->target = link;
    }
    const int size = (int)part->size;
    if (route)
        part_free(part);
    else
        parts_add(&socket->writing, part);
    if (!more) {
        send_message(socket);
        socket->target = NULL;
    }
    return size;
}

int zmq_send(void *self, const void *data, size_t size, int flags) {
    Part *part = part_new(data, size);
    const int status = send_part(self, part, flags & ZMQ_SNDMORE);
    if (status < 0) part_free(part);
    return status;
}

int zmq_msg_send(zmq_msg_t *message, void *self, int flags) {
    const int status = send_part(self, *part_of(message), flags & ZMQ_SNDMORE);
    if (status >= 0) zmq_msg_init(message);
    return status;
}

// --- receiving

static bool has_arrived(const Socket *socket) {
    for (const Link *link = links; socket->type == ZMQ_ROUTER && link; link = link->next)
        if (link->router == socket && link->arrived.first) return true;
    return socket->reading || socket->inbox.first;
}

// The connections of a ROUTER have their turns by chance.
static Link *take_turn(const Socket *socket) {
    unsigned count = 0;
    for (const Link *link = links; link; link = link->next) count += link->router == socket && link->arrived.first;
    uint64_t turn = sim_below(count);
    Link *link = links;
    while (!(link->router == socket && link->arrived.first) || turn--) link = link->next;
    return link;
}

static void begin_message(Socket *socket) {
    Link *link = socket->type == ZMQ_ROUTER ? take_turn(socket) : NULL;
    Message *message = queue_take(link ? &link->arrived : &socket->inbox);
    const Part *first = message->parts;
    if (link) parts_add(&socket->reading, part_new(link->route, ROUTE));
    parts_add(&socket->reading, message->parts);
    sim_event("receive", first->size > 6 ? first->data[6] : 0, first->size);
    free(message);
}

int zmq_msg_recv(zmq_msg_t *message, void *self, int flags) {
    Socket *socket = self;
    (void)flags; // nothing here waits for a message without zmq_poll
    if (!has_arrived(socket)) return errno = EAGAIN, -1;
    if (!socket->reading) begin_message(socket);
    part_free(*part_of(message));
    Part *part = *part_of(message) = socket->reading;
    socket->reading = part->next;
    part->hint = part->next ? &context : NULL, part->next = NULL;
    return (int)part->size;
}

int zmq_recv(void *self, void *data, size_t size, int flags) {
    zmq_msg_t message;
    zmq_msg_init(&message);
    const int got = zmq_msg_recv(&message, self, flags);
    if (got > 0) memcpy(data, zmq_msg_data(&message), (size_t)got < size ? (size_t)got : size);
    zmq_msg_close(&message);
    return got;
}

// --- waiting

typedef struct {
    zmq_pollitem_t *items;
    int count;
    uint64_t io; // when the descriptors were looked at last, and none was readable
} Polled;

static bool can_send(const Socket *socket) {
    Link *link = link_to(socket, NULL);
    return link && outgoing(socket, link)->count < (unsigned)socket->send_max;
}

static bool check_items(void *self) {
    enum { FDS_MAX = 300 };
    Polled *polled = self;
    struct pollfd fds[FDS_MAX];
    bool any = false;
    for (int i = 0; i < polled->count; i++) {
        zmq_pollitem_t *item = &polled->items[i];
        fds[i] = (struct pollfd){item->socket ? -1 : item->fd, item->events, 0};
        item->revents = 0;
        if (!item->socket) continue;
        if (item->events & ZMQ_POLLIN && has_arrived(item->socket)) item->revents |= ZMQ_POLLIN;
        if (item->events & ZMQ_POLLOUT && can_send(item->socket)) item->revents |= ZMQ_POLLOUT;
        any = any || item->revents;
    }
    if (polled->io == sim_io) return any;
    if (poll(fds, (nfds_t)polled->count, 0) <= 0) {
        polled->io = sim_io;
        return any;
    }
    for (int i = 0; i < polled->count; i++)
        if (fds[i].revents)
            polled->items[i].revents = (short)(fds[i].revents & POLLIN ? ZMQ_POLLIN : ZMQ_POLLERR), any = true;
    return any;
}

int zmq_poll(zmq_pollitem_t *items, int count, long timeout_ms) {
    Polled polled = {items, count, 0};
    const uint64_t ns = timeout_ms < 0 ? UINT64_MAX : timeout_ms ? (uint64_t)timeout_ms * MS : US;
    if (!task_wait(check_items, &polled, ns)) return 0;
    int ready = 0;
    for (int i = 0; i < count; i++) ready += items[i].revents != 0;
    return ready;
}

const char *zmq_strerror(int number) { return strerror(number); }

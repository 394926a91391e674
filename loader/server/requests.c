// What the loader says to a trainer's messages.
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "loader/server/server_internal.h"
#include <stdarg.h>
#include <stdio.h>
#include <zmq.h>

enum { ERRORS_PER_SECOND = 100 }; // a peer that errs in a loop must not be answered in a loop

void send_message(Server *server, const Route *route, WireMessage *message, Bytes payload) {
    message->header.loader_instance = server->instance;
    Bytes frame = wire_encode(message);
    if (zmq_send(server->router, route->bytes, route->size, ZMQ_SNDMORE) < 0 ||
        zmq_send(server->router, frame.data, frame.size, payload.size ? ZMQ_SNDMORE : 0) < 0 ||
        (payload.size && zmq_send(server->router, payload.data, payload.size, 0) < 0))
        server->stats.dropped++;
}

void send_notices(Server *server, WireCode code, const char *text) {
    for (Session *session = server->sessions; session < server->sessions + SESSIONS_MAX; session++) {
        if (!session->id) continue;
        WireMessage notice;
        memset(&notice, 0, sizeof notice);
        notice.header.type = WIRE_NOTICE, notice.header.session = session->id;
        notice.error.code = (uint16_t)code;
        snprintf(notice.error.text, sizeof notice.error.text, "%s", text);
        send_message(server, &session->route, &notice, (Bytes){0});
    }
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
    const Dataset *dataset = &server->now.dataset;
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
        welcome->proto = WIRE_MAJOR, welcome->dtype = 1, welcome->ring = server->listener >= 0;
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

static Served *served_find(Server *server, const uint8_t fp8[8]) {
    Served *served = memcmp(fp8, server->now.dataset.fingerprint, 8) ? &server->before : &server->now;
    if (!served->reader || memcmp(fp8, served->dataset.fingerprint, 8)) return NULL;
    served->asked_ns = clock_ns();
    return served;
}

static void answer_get(Server *server, const Route *route, const WireMessage *request) {
    const WireGet *get = &request->get;
    uint64_t bytes = (uint64_t)get->rows * (get->sequence_tokens + 1) * sizeof(uint16_t), began_ns = clock_ns();
    Served *served = served_find(server, get->dataset_fp8);
    if (!served) {
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

    FeedRequest ask = {get->split, get->mode, get->rows, get->seed, get->first_sample};
    WireMessage answer = answer_to(request, WIRE_BATCH);
    WireBatch *batch = &answer.batch;
    uint32_t shard = UINT32_MAX;
    if (row_reader_read(served->reader, &ask, get->sequence_tokens, ids, &batch->rows, &batch->epoch, &shard) < 0) {
        send_error(server, route, request, shard == UINT32_MAX ? WIRE_RANGE : WIRE_IO, shard, "%s", err_text());
        err_clear();
        return;
    }
    batch->first_sample = get->first_sample;
    batch->sequence_tokens = get->sequence_tokens;
    batch->slot = get->slot, batch->generation = get->generation, batch->dtype = 1;
    batch->flags = served == &server->before ? WIRE_BATCH_REPLACED : 0;
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
    answer.stats.frames_decoded = row_reader_frames(server->now.reader);
    for (int i = 0; i < SESSIONS_MAX; i++) answer.stats.sessions += server->sessions[i].id != 0;
    answer.stats.uptime_ns = clock_ns() - server->started_ns;
    send_message(server, route, &answer, (Bytes){0});
}

void answer_message(Server *server, const Route *route, Bytes frame, Bytes payload) {
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

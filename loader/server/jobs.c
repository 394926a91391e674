// GETs: from the request, over the copying of its rows, to the answer. A request whose frames are decoded is answered
// at once; the others are jobs, which continue when decoders have finished frames.
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "loader/server/server_internal.h"
#include <stdlib.h>

static Attachment *attachment_find(Server *server, const WireHeader *header) {
    for (unsigned i = 0; i < server->attachment_count; i++) {
        Attachment *attachment = &server->attachments[i];
        if (attachment->id == header->attach_id && attachment->session == header->session) return attachment;
    }
    return NULL;
}

// Whether this loader has given out the id and its attachment has ended: the trainer has closed the connection.
static bool attachment_has_ended(const Server *server, uint64_t id) {
    for (unsigned i = 0; i < server->attachment_count; i++)
        if (server->attachments[i].id == id) return false;
    const uint64_t number = id - (server->instance >> 32 << 32);
    return number && number <= server->rings_received;
}

static Served *served_find(Server *server, const uint8_t fp8[8]) {
    Served *served = server->current;
    if (memcmp(fp8, served->dataset.fingerprint, 8)) served = server->previous;
    if (!served || memcmp(fp8, served->dataset.fingerprint, 8)) return NULL;
    served->requested_ns = clock_ns();
    return served;
}

// --- inline rows

// Memory for the rows of an inline answer; NULL when too many answers to this trainer are unread.
static Unread *inline_rows_open(Server *server, const Route *route, const WireMessage *request, uint64_t bytes) {
    const Session *session = session_find(server, request->header.session);
    return unread_open(server, route, session ? session->unread_max : WIRE_PAYLOAD_MAX, bytes);
}

// Sends `reply`, a BATCH that describes all rows, once for each piece of them.
static void send_pieces(Server *server, const Route *route, WireMessage *reply, Unread *rows) {
    WireBatch *batch = &reply->batch;
    uint32_t total = batch->length;
    do {
        batch->length = total - batch->offset < WIRE_PIECE_MAX ? total - batch->offset : WIRE_PIECE_MAX;
        batch->payload_crc = crc32c(0, rows->data + batch->offset, batch->length);
        zmq_msg_t piece;
        if (unread_part(rows, batch->offset, batch->length, &piece) < 0) {
            server->stats.dropped++;
            return;
        }
        server_send_parts(server, route, reply, batch->length ? &piece : NULL);
        if (!batch->length) zmq_msg_close(&piece);
        batch->offset += batch->length;
    } while (batch->offset < total);
}

// --- jobs

static void job_free(Job *job) {
    row_copy_end(&job->copy);
    job->copy.served->users--;
    if (job->inline_rows) unread_release(NULL, job->inline_rows);
    free(job);
}

// Removes the job that *link points to.
static void job_remove(Server *server, Job **link) {
    Job *job = *link;
    *link = job->next;
    if (server->last_job == &job->next) server->last_job = link;
    job_free(job);
}

static void describe_batch(const Server *server, const Job *job, WireBatch *batch) {
    const RowCopy *copy = &job->copy;
    const WireGet *get = &copy->get;
    batch->first_sample = get->first_sample, batch->rows = copy->rows;
    batch->sequence_tokens = get->sequence_tokens;
    batch->slot = get->slot, batch->generation = get->generation;
    batch->epoch = copy->epoch;
    bool replaced = memcmp(copy->served->dataset.fingerprint, server->current->dataset.fingerprint, 32);
    batch->flags = replaced ? WIRE_BATCH_REPLACED : 0;
    batch->length = copy->rows * (get->sequence_tokens + 1) * copy->id_bytes;
    batch->payload_crc = job->crc;
}

static void count_batch(const Job *job) {
    Served *served = job->copy.served;
    const unsigned source = job->copy.get.source;
    for (unsigned i = 0; i < served->source_count; i++) served->source_batches[i] += !source || i + 1 == source;
}

// Counts samples for training: evaluations read modes that end, or the sources apart.
static void count_training(const Job *job) {
    Served *served = job->copy.served;
    const WireGet *get = &job->copy.get;
    if (get->split != SPLIT_TRAIN || get->source || sampling_ends(get->mode)) return;
    if (get->first_sample + get->rows > served->highest) served->highest = get->first_sample + get->rows;
    for (uint32_t row = 0; row < job->copy.rows; row++)
        served->source_tokens[served_sample(served, get, get->first_sample + row).source] += get->sequence_tokens;
}

static void job_answer(Server *server, Job *job) {
    WireMessage reply = server_reply(&job->header, WIRE_BATCH);
    WireBatch *batch = &reply.batch;
    describe_batch(server, job, batch);
    uint64_t took_ns = clock_ns() - job->arrived_ns, tokens = (uint64_t)batch->rows * batch->sequence_tokens;
    batch->produce_us = (uint32_t)(took_ns / 1000);
    server->stats.batches++;
    server->stats.tokens += tokens;
    server->stats.payload_bytes += batch->length;
    server->stats.produce_ns += took_ns;
    count_batch(job);
    count_training(job);
    Session *session = session_find(server, job->header.session);
    if (session) session_count(session, &job->copy.get, batch, took_ns);
    if (job->inline_rows) {
        send_pieces(server, &job->route, &reply, job->inline_rows);
        return;
    }
    SlotRecord *slot = &attachment_find(server, &job->header)->slots[job->copy.get.slot]; // its jobs end before a ring
    slot->answered = true, slot->batch = *batch;
    server_send(server, &job->route, &reply);
}

static void job_refuse(Server *server, const Job *job) {
    const CachedFrame *frame = job->copy.awaited; // NULL: the split is too short
    WireCode code = !frame ? WIRE_RANGE : err_code() == EX_IO ? WIRE_IO : WIRE_DATA;
    server_send_error(server, &job->route, &job->header, code, frame ? (uint32_t)frame->place.shard : 0, "%s",
                      err_text());
    err_clear();
}

// True when the job has ended, with an answer or an error.
static bool job_step(Server *server, Job *job) {
    const uint8_t *from = job->copy.ids;
    RowResult result = row_copy_advance(server->reader, &job->copy);
    if (!job->inline_rows) job->crc = crc32c(job->crc, from, (size_t)(job->copy.ids - from));
    job->runnable = result == ROWS_MORE;
    if (result == ROWS_DONE) job_answer(server, job);
    if (result == ROWS_FAILED) job_refuse(server, job);
    return result == ROWS_DONE || result == ROWS_FAILED;
}

bool jobs_advance(Server *server) {
    bool more = false;
    for (Job **link = &server->jobs; *link;) {
        if (job_step(server, *link)) {
            job_remove(server, link);
        } else {
            more = more || (*link)->runnable;
            link = &(*link)->next;
        }
    }
    return more;
}

void jobs_cancel(Server *server, uint64_t attach_id) {
    for (Job **link = &server->jobs; *link;) {
        if ((*link)->header.attach_id == attach_id)
            job_remove(server, link);
        else
            link = &(*link)->next;
    }
}

// --- requests

// A resend of a job's request: the answer goes to the connection that sent it.
static bool is_in_progress(Server *server, const Route *route, const WireMessage *request) {
    for (Job *job = server->jobs; job; job = job->next) {
        if (job->header.session != request->header.session || job->header.req_id != request->header.req_id ||
            job->header.attach_id != request->header.attach_id)
            continue;
        job->route = *route, job->header = request->header;
        return true;
    }
    return false;
}

static void count_repeat(Server *server, const WireHeader *header) {
    Session *session = session_find(server, header->session);
    server->stats.repeated++;
    if (session) session->stats.repeated++;
}

// A newer request for a slot: nothing may write it for the older one any more.
static void cancel_slot(Server *server, const WireMessage *request) {
    for (Job **link = &server->jobs; *link; link = &(*link)->next) {
        const Job *job = *link;
        if (job->header.attach_id != request->header.attach_id || job->copy.get.slot != request->get.slot) continue;
        job_remove(server, link);
        return;
    }
}

// The slot of the ring that `request` names. NULL when the request has been dealt with: it was refused, dropped because
// the ring's connection has ended or a newer request for the slot overtook it, or answered before.
static void *slot_open(Server *server, const Route *route, const WireMessage *request, uint64_t bytes) {
    const WireGet *get = &request->get;
    Attachment *attachment = attachment_find(server, &request->header);
    if (attachment_has_ended(server, request->header.attach_id)) return NULL;
    if (!attachment || get->slot >= attachment->ring.slot_count || bytes > attachment->ring.slot_bytes) {
        server_send_error(server, route, &request->header, WIRE_SLOT, get->slot, "no such ring or slot");
        return NULL;
    }
    SlotRecord *slot = &attachment->slots[get->slot];
    if (slot->seen && (int32_t)(get->generation - slot->generation) < 0) {
        server->stats.dropped++;
        return NULL;
    }
    if (slot->answered && slot->generation == get->generation && slot->req_id == request->header.req_id) {
        count_repeat(server, &request->header);
        WireMessage reply = server_reply(&request->header, WIRE_BATCH);
        reply.batch = slot->batch;
        server_send(server, route, &reply);
        return NULL;
    }
    cancel_slot(server, request);
    *slot = (SlotRecord){.req_id = request->header.req_id, .generation = get->generation, .seen = true};
    return ring_slot(&attachment->ring, get->slot);
}

// The memory for the rows: a slot, or the body of an inline answer. NULL when the request was refused or dealt with.
static void *rows_open(Server *server, const Route *route, const WireMessage *request, uint64_t bytes, Unread **rows) {
    *rows = NULL;
    if (request->header.attach_id) return slot_open(server, route, request, bytes);
    *rows = inline_rows_open(server, route, request, bytes);
    if (*rows) return (*rows)->data;
    server_send_error(server, route, &request->header, WIRE_BUSY, 0, "too many answers to this trainer are unread");
    return NULL;
}

void job_start(Server *server, const Route *route, const WireMessage *request) {
    if (is_in_progress(server, route, request)) {
        count_repeat(server, &request->header);
        return;
    }
    Served *served = served_find(server, request->get.dataset_fp8);
    if (!served) {
        server_send_error(server, route, &request->header, WIRE_DATASET, 0, "the loader does not serve this dataset");
        return;
    }
    if (request->get.source > served->source_count) {
        server_send_error(server, route, &request->header, WIRE_PROTO, 0, "the dataset has %u sources, not %u",
                          served->source_count, request->get.source);
        return;
    }
    const uint64_t bytes = row_bytes(served, &request->get);
    if (bytes > WIRE_PAYLOAD_MAX) {
        server_send_error(server, route, &request->header, WIRE_PROTO, 0,
                          "the rows have %llu bytes, and a request at most %d: make batches smaller",
                          (unsigned long long)bytes, WIRE_PAYLOAD_MAX);
        return;
    }
    Unread *rows;
    void *ids = rows_open(server, route, request, bytes, &rows);
    if (!ids) return;
    Job *job = allocate_zeroed(1, sizeof *job);
    job->route = *route, job->header = request->header;
    job->arrived_ns = clock_ns(), job->inline_rows = rows;
    served->users++;
    if (row_copy_begin(server->reader, &job->copy, served, &request->get, ids) < 0) {
        job_refuse(server, job);
        job_free(job);
    } else if (job_step(server, job)) {
        job_free(job);
    } else {
        *server->last_job = job, server->last_job = &job->next;
    }
}

// transfer.h by the multi interface of libcurl. Redirects are followed here and not by libcurl, because later ranges
// are requested where the first was found, and because its rules for credentials differ between versions.
#include "remote/transfer.h"
#include "common/log.h"
#include "common/rng.h"
#include "remote/transfer_request.h"
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

enum {
    HOPS_MAX = 5,
    CONNECTIONS = 8,
    PROGRESS_BYTES = 65536, // so many bytes make a transfer that is cut one that advances
    WAIT_FIRST_MS = 250,
    WAIT_MAX_MS = 60000,
    RETRY_AFTER_MAX_S = 600,
    LOGGED_WAIT_MS = 2000
};

Remote *remote_open(const RemoteOptions *options, const char *url) {
    const CurlLibrary *curl = curl_library(url);
    if (!curl) return NULL;
    Remote *remote = allocate_zeroed(1, sizeof *remote);
    remote->curl = curl, remote->options = *options;
    remote->multi = curl->multi_init();
    if (!remote->multi) die(EX_MEMORY, "no memory for connections");
    curl->multi_setopt(remote->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)CONNECTIONS);
    return remote;
}

void remote_close(Remote *remote) {
    if (!remote) return;
    remote->curl->multi_cleanup(remote->multi);
    free(remote->bearer);
    free(remote->s3.key), free(remote->s3.secret), free(remote->s3.session);
    free(remote->s3.region), free(remote->s3.endpoint);
    free(remote);
}

void object_close(RemoteObject *object) {
    free(object->url);
    free(object->moved);
    object->url = object->moved = NULL;
}

// Ends

static void leave(Transfer *transfer) {
    Transfer **at = &transfer->remote->active;
    while (*at && *at != transfer) at = &(*at)->next;
    if (*at) *at = transfer->next;
    transfer->next = NULL;
}

static void end(Transfer *transfer, TransferState state) {
    leave(transfer);
    transfer->state = state;
    if (state == TRANSFER_FAILED && !transfer->error.code) err_take(&transfer->error);
}

// Waits and repeats the rest of the request, or fails with `code` after the last try.
static void try_again(Transfer *transfer, int code, const char *why) {
    Remote *remote = transfer->remote;
    if (transfer->got - transfer->got_before >= PROGRESS_BYTES) transfer->failures = 0;
    transfer->got_before = transfer->got;
    if (transfer->failures++ >= remote->options.retries) {
        transfer_refuse(transfer, code, "%s, in %u tries", why, transfer->failures);
        end(transfer, TRANSFER_FAILED);
        return;
    }
    const unsigned doublings = transfer->failures < 10 ? transfer->failures - 1 : 9;
    const double jitter = 0.5 + rng_uniform((uint64_t)getpid(), clock_ns(), remote->jitter++);
    double wait_ms = WAIT_FIRST_MS * (double)(1u << doublings);
    if (wait_ms > WAIT_MAX_MS) wait_ms = WAIT_MAX_MS;
    wait_ms *= jitter;
    const Response *response = &transfer->response;
    uint64_t after_s = response->status == 429 && response->limit_s ? response->limit_s : response->retry_after_s;
    if (after_s > RETRY_AFTER_MAX_S) after_s = RETRY_AFTER_MAX_S;
    if (wait_ms < (double)after_s * 1000) wait_ms = (double)after_s * 1000 + 250 * jitter;
    if (wait_ms >= LOGGED_WAIT_MS)
        log_line("'%s' at byte %" PRIu64 ": %s; trying again in %.0f s", transfer->object->name,
                 transfer_offset(transfer), why, wait_ms / 1000);
    free(transfer->object->moved), transfer->object->moved = NULL; // the URL named may redirect to another place now
    free(transfer->at), transfer->at = NULL;
    transfer->resume_ns = clock_ns() + (uint64_t)(wait_ms * 1e6);
    transfer->state = TRANSFER_WAITING;
}

// Responses

static void follow(Transfer *transfer) {
    const Remote *remote = transfer->remote;
    char *place = NULL;
    remote->curl->easy_getinfo(transfer->easy, CURLINFO_REDIRECT_URL, &place);
    char host[FIELD_BYTES] = "";
    if (place) remote_url_part(remote->curl, place, CURLUPART_HOST, host);
    // http only from http, so that no page in between can take the protection away.
    const bool from_http = !strncasecmp(transfer->at, "http:", 5);
    if (!place || !*host)
        transfer_refuse(transfer, EX_DATA, "the server redirects to no valid URL (%u)", transfer->response.status);
    else if (++transfer->hops > HOPS_MAX)
        transfer_refuse(transfer, EX_DATA, "the server redirects more than %d times", HOPS_MAX);
    else if (strncasecmp(place, "https:", 6) != 0 && (!from_http || !remote_url_is_allowed(remote, place)))
        transfer_refuse(transfer, EX_PROTOCOL, "the server redirects to '%s' without https", host);
    else
        transfer_check_hub(transfer);
    if (err_code()) {
        end(transfer, TRANSFER_FAILED);
        return;
    }
    char *next = allocate_text(place, strlen(place));
    free(transfer->at), transfer->at = next;
    transfer_launch(transfer);
}

// The code of an error of S3, as " (NoSuchBucket)"; "" for another answer.
static void error_code(const Transfer *transfer, char code[static 64]) {
    static const char open[] = "<Code>";
    const Buffer *text = &transfer->document;
    const uint8_t *at = text->size ? memmem(text->data, text->size, open, sizeof open - 1) : NULL;
    size_t size = 0, left = at ? text->size - (size_t)(at - text->data) - (sizeof open - 1) : 0;
    if (at) at += sizeof open - 1;
    while (size < left && ((at[size] | 32) >= 'a' && (at[size] | 32) <= 'z')) size++;
    *code = '\0';
    if (size && size < 60) snprintf(code, 64, " (%.*s)", (int)size, (const char *)at);
}

static void end_by_status(Transfer *transfer) {
    Response *response = &transfer->response;
    RemoteObject *object = transfer->object;
    const unsigned status = response->status;
    curl_off_t length = -1;
    transfer->remote->curl->easy_getinfo(transfer->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    const bool is_empty = transfer->to && !object->has_size && transfer->begin == 0 &&
                          ((status == 416 && response->has_total && !response->has_range && !response->total) ||
                           (status == 200 && length == 0));
    if (is_empty) {
        const bool is_file = transfer_check_kind(transfer) == 0;
        if (is_file) {
            snprintf(object->validator, FIELD_BYTES, "%s", response_validator(response));
            object->size = 0, object->has_size = true;
        }
        end(transfer, is_file ? TRANSFER_DONE : TRANSFER_FAILED);
        return;
    }
    // A server that answers so to a range of an empty file, as webfs, is asked for the whole file.
    if (transfer->to && !object->has_size && !object->in_order && (status == 400 || status == 416)) {
        object->in_order = true;
        transfer_launch(transfer);
        return;
    }
    char why[128], code[64];
    error_code(transfer, code);
    snprintf(why, sizeof why, "the server answers %u%s", status, code);
    const bool is_elsewhere =
        object->auth == AUTH_S3 && *response->region && strcmp(response->region, transfer->remote->s3.region) != 0;
    if (is_elsewhere && status >= 300 && status < 500) {
        transfer_refuse(transfer, EX_NOINPUT, "%s: the bucket is in %.40s, set AWS_REGION", why, response->region);
        end(transfer, TRANSFER_FAILED);
    } else if (status == 301 || status == 302 || status == 303 || status == 307 || status == 308)
        follow(transfer);
    else if (status == 408 || status == 429 || (status >= 500 && status <= 599))
        try_again(transfer, EX_IO, why);
    else if ((transfer->began_moved || transfer->hops) && status != 416 && status >= 400) // an expired signature
        try_again(transfer, status == 404 || status == 410 ? EX_NOINPUT : EX_PERMISSION, why);
    else {
        if (status == 407)
            transfer_refuse(transfer, EX_PERMISSION,
                            "the proxy answers 407: http_proxy needs another user or password");
        else if (status == 401 || status == 403)
            transfer_refuse(transfer, EX_PERMISSION, "%s%s", why,
                            *code ? "" : ": it requires credentials, or a signature that has not expired");
        else if (status == 200 || status == 412 || (status == 416 && object->has_size))
            transfer_refuse(transfer, EX_DATA, "the file changed while it was read (%u)", status);
        else
            transfer_refuse(transfer, EX_NOINPUT, "%s", why);
        end(transfer, TRANSFER_FAILED);
    }
}

// A complete response. If it had no body, it was not checked yet.
static void end_by_body(Transfer *transfer) {
    RemoteObject *object = transfer->object;
    if (!transfer->checked && transfer_check(transfer) < 0) {
        end(transfer, TRANSFER_FAILED);
        return;
    }
    if (transfer->to && transfer_offset(transfer) < transfer->end) {
        try_again(transfer, EX_DATA, "truncated: the server sends fewer bytes than the range has");
        return;
    }
    if (transfer->hops && !object->moved) object->moved = allocate_text(transfer->at, strlen(transfer->at));
    end(transfer, TRANSFER_DONE);
}

// A proxy that refuses the connection refuses it again, unless it is busy.
static bool is_refused_by_proxy(long status) { return status >= 400 && status < 500 && status != 408 && status != 429; }

static bool is_certificate_error(CURLcode code) {
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CERTPROBLEM ||
           code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_ISSUER_ERROR || code == CURLE_SSL_INVALIDCERTSTATUS;
}

static void finish(Transfer *transfer, CURLcode code) {
    const CurlLibrary *curl = transfer->remote->curl;
    const unsigned status = transfer->response.status;
    curl->multi_remove_handle(transfer->remote->multi, transfer->easy);
    transfer->paused = false;
    curl_off_t length = -1;
    long connect = 0; // the answer of a proxy to CONNECT
    curl->easy_getinfo(transfer->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    curl->easy_getinfo(transfer->easy, CURLINFO_HTTP_CONNECTCODE, &connect);
    const char *why = *transfer->why ? transfer->why : curl->easy_strerror(code);
    if (transfer->error.code)
        end(transfer, TRANSFER_FAILED);
    else if (transfer_has_range(transfer))
        end_by_body(transfer);
    else if (code != CURLE_OK && is_refused_by_proxy(connect)) {
        transfer_refuse(transfer, EX_PERMISSION, "the proxy of https_proxy answers %ld: %s", connect,
                        connect == 401 || connect == 407 ? "it needs another user or password"
                                                         : "it does not connect to this host");
        end(transfer, TRANSFER_FAILED);
    } else if (is_certificate_error(code)) {
        const char *what = code == CURLE_SSL_CACERT_BADFILE
                               ? "the file of certificates (CURL_CA_BUNDLE, else SSL_CERT_FILE) is not read"
                               : "the certificate of the server is not accepted";
        transfer_refuse(transfer, EX_PROTOCOL, "%s: %s", what, why);
        end(transfer, TRANSFER_FAILED);
    } else if (code != CURLE_OK && !(code == CURLE_WRITE_ERROR && transfer->dropped > DROPPED_BYTES_MAX))
        try_again(transfer, EX_IO, why);
    else if (status == 206 || (status == 200 && (!transfer->to || length != 0)))
        end_by_body(transfer);
    else
        end_by_status(transfer);
}

void transfer_start(Remote *remote, Transfer *transfer) {
    transfer->remote = remote;
    transfer->next = remote->active, remote->active = transfer;
    transfer_launch(transfer);
}

// Continues a transfer whose window is empty again. libcurl calls take_body with the bytes that it has kept.
static void go_on(Transfer *transfer) {
    transfer->paused = false;
    const CURLcode code = transfer->remote->curl->easy_pause(transfer->easy, CURLPAUSE_CONT);
    if (code != CURLE_OK) finish(transfer, code);
}

// Repeats the requests whose wait is over, and shortens the wait for events to the wait of the next request.
static int launch_due(Remote *remote, int wait_ms) {
    const uint64_t now = clock_ns();
    for (Transfer *transfer = remote->active, *next; transfer; transfer = next) {
        next = transfer->next;
        if (transfer->paused && transfer->window_at == transfer->got) go_on(transfer);
        if (transfer->state != TRANSFER_WAITING) continue;
        if (transfer->resume_ns <= now) {
            transfer_launch(transfer);
            continue;
        }
        const uint64_t left_ms = (transfer->resume_ns - now) / 1000000 + 1;
        if (left_ms < (uint64_t)wait_ms) wait_ms = (int)left_ms;
    }
    return wait_ms;
}

// Ends the transfers of which nothing arrived for too long. Time that passed between two calls, in which the owner did
// something else, does not count: libcurl would count it.
static void end_stalled(Remote *remote) {
    enum { PAUSE_NS = 500000000 };
    const uint64_t now = clock_ns(), paused = now - remote->pumped_ns;
    for (Transfer *transfer = remote->active, *next; transfer; transfer = next) {
        next = transfer->next;
        if (transfer->state != TRANSFER_RUNNING) continue;
        if (transfer->paused) transfer->heard_ns = now;
        if (paused > PAUSE_NS)
            transfer->heard_ns += paused < now - transfer->heard_ns ? paused : now - transfer->heard_ns;
        if (now - transfer->heard_ns > remote->options.timeout_s * 1000000000)
            finish(transfer, CURLE_OPERATION_TIMEDOUT);
    }
    remote->pumped_ns = now;
}

void remote_pump(Remote *remote, int wait_ms) {
    const CurlLibrary *curl = remote->curl;
    Error pending;
    int running, left;
    if (!remote->active) return;
    err_take(&pending); // of the caller; each transfer keeps its own
    wait_ms = launch_due(remote, wait_ms);
    curl->multi_perform(remote->multi, &running);
    bool ended = false;
    for (CURLMsg *message; (message = curl->multi_info_read(remote->multi, &left));) {
        Transfer *transfer = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        const CURLcode code = message->data.result;
        curl->easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
        finish(transfer, code);
        ended = true;
    }
    end_stalled(remote);
    if (wait_ms && !ended) curl->multi_poll(remote->multi, NULL, 0, wait_ms, NULL);
    err_clear();
    err_give(&pending);
}

static atomic_bool stopped;
void transfers_stop(void) { atomic_store(&stopped, true); }

// Until it is done, or has more than `enough` bytes.
static int wait_for_bytes(Transfer *transfer, uint64_t enough) {
    enum { POLL_MS = 200 };
    while (transfer->got <= enough && (transfer->state == TRANSFER_RUNNING || transfer->state == TRANSFER_WAITING)) {
        if (atomic_load(&stopped)) return fail(EX_AGAIN, "'%s': stopped while it was read", transfer->object->name);
        remote_pump(transfer->remote, POLL_MS);
    }
    if (transfer->state != TRANSFER_FAILED) return 0;
    err_give(&transfer->error);
    return -1;
}

int transfer_wait(Transfer *transfer) { return wait_for_bytes(transfer, UINT64_MAX); }

int transfer_next(Transfer *transfer, Bytes *bytes) {
    if (transfer->given == transfer->got) transfer->window_at = transfer->got;
    if (wait_for_bytes(transfer, transfer->given) < 0) return -1;
    *bytes = (Bytes){transfer->to + (transfer->given - transfer->window_at), (size_t)(transfer->got - transfer->given)};
    transfer->given = transfer->got;
    return 0;
}

void transfer_stop(Transfer *transfer) {
    if (!transfer->remote) return;
    const CurlLibrary *curl = transfer->remote->curl;
    leave(transfer);
    if (transfer->easy) {
        curl->multi_remove_handle(transfer->remote->multi, transfer->easy);
        curl->easy_cleanup(transfer->easy);
    }
    curl->slist_free_all(transfer->headers);
    free(transfer->at);
    buffer_close(&transfer->document);
    *transfer = (Transfer){.state = TRANSFER_IDLE};
}

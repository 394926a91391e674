// transfer.h by the multi interface of libcurl. Redirects are followed here and not by libcurl, because later ranges are
// requested where the first was found, and because its rules for credentials differ between versions.
#include "shardtool/remote/transfer.h"
#include "common/log.h"
#include "common/rng.h"
#include "shardtool/remote/s3_sign.h"
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

enum {
    HOPS_MAX = 5,
    CONNECTIONS = 8,
    PROGRESS_BYTES = 65536, // so many bytes make a transfer that is cut one that advances
    DROPPED_BYTES_MAX = 1 << 20,
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

static char *copy_text(const char *text) {
    char *copy = strdup(text);
    if (!copy) die(EX_MEMORY, "no memory for a URL");
    return copy;
}

// A part of a URL, or "".
static void get_part(const CurlLibrary *curl, const char *url, CURLUPart part, char text[FIELD_BYTES]) {
    CURLU *parsed = curl->url();
    char *found = NULL;
    *text = '\0';
    if (parsed && !curl->url_set(parsed, CURLUPART_URL, url, 0) &&
        !curl->url_get(parsed, part, &found, part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0) &&
        strlen(found) < FIELD_BYTES)
        snprintf(text, FIELD_BYTES, "%s", found);
    curl->free(found);
    curl->url_cleanup(parsed);
}

static bool is_loopback(const char *host) {
    struct in_addr address;
    if (!strcasecmp(host, "localhost") || !strcmp(host, "[::1]")) return true;
    return inet_pton(AF_INET, host, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

bool remote_same_origin(const Remote *remote, const char *a, const char *b) {
    static const CURLUPart parts[] = {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT};
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        char one[FIELD_BYTES], other[FIELD_BYTES];
        get_part(remote->curl, a, parts[i], one), get_part(remote->curl, b, parts[i], other);
        if (!*one || strcasecmp(one, other) != 0) return false;
    }
    return true;
}

static bool is_allowed(const Remote *remote, const char *url) {
    char scheme[FIELD_BYTES], host[FIELD_BYTES];
    get_part(remote->curl, url, CURLUPART_SCHEME, scheme), get_part(remote->curl, url, CURLUPART_HOST, host);
    if (!strcasecmp(scheme, "https")) return *host;
    return !strcasecmp(scheme, "http") && (remote->options.allow_http || is_loopback(host));
}

int remote_check_url(const Remote *remote, const char *url, const char *name) {
    char text[FIELD_BYTES];
    get_part(remote->curl, url, CURLUPART_HOST, text);
    if (!*text) return fail(EX_USAGE, "'%s' is no valid URL", name);
    get_part(remote->curl, url, CURLUPART_USER, text);
    if (*text) return fail(EX_USAGE, "a URL of a host with a user name in it is refused: others can read it");
    if (!is_allowed(remote, url)) return fail(EX_USAGE, "'%s' is not https: --allow-http reads it all the same", name);
    return 0;
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

static uint64_t offset(const Transfer *transfer) { return transfer->begin + transfer->got; }

static int refuse(const Transfer *transfer, int code, const char *format, ...) PRINTF_LIKE(3, 4);
static int refuse(const Transfer *transfer, int code, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (!transfer->to) return fail(code, "'%s': %s", transfer->object->name, text);
    return fail(code, "'%s' at byte %" PRIu64 ": %s", transfer->object->name, offset(transfer), text);
}

// Waits and repeats the rest of the request, or fails with `code` after the last try.
static void try_again(Transfer *transfer, int code, const char *why) {
    Remote *remote = transfer->remote;
    if (transfer->got - transfer->got_before >= PROGRESS_BYTES) transfer->failures = 0;
    transfer->got_before = transfer->got;
    if (transfer->failures++ >= remote->options.retries) {
        refuse(transfer, code, "%s, in %u tries", why, transfer->failures);
        end(transfer, TRANSFER_FAILED);
        return;
    }
    const unsigned doublings = transfer->failures < 10 ? transfer->failures - 1 : 9;
    const double jitter = 0.5 + rng_uniform((uint64_t)getpid(), clock_ns(), remote->jitter++);
    double wait_ms = WAIT_FIRST_MS * (double)(1u << doublings);
    if (wait_ms > WAIT_MAX_MS) wait_ms = WAIT_MAX_MS;
    wait_ms *= jitter;
    uint64_t after_s = transfer->response.retry_after_s;
    if (after_s > RETRY_AFTER_MAX_S) after_s = RETRY_AFTER_MAX_S;
    if (wait_ms < (double)after_s * 1000) wait_ms = (double)after_s * 1000 + 250 * jitter;
    if (wait_ms >= LOGGED_WAIT_MS)
        log_line("'%s' at byte %" PRIu64 ": %s; trying again in %.0f s", transfer->object->name, offset(transfer), why,
                 wait_ms / 1000);
    free(transfer->object->moved), transfer->object->moved = NULL; // the URL named may redirect to another place now
    free(transfer->at), transfer->at = NULL;
    transfer->resume_ns = clock_ns() + (uint64_t)(wait_ms * 1e6);
    transfer->state = TRANSFER_WAITING;
}

// Responses

static int check_identity(Transfer *transfer) {
    const Response *response = &transfer->response;
    RemoteObject *object = transfer->object;
    const char *validator = response_validator(response);
    if (object->has_size && response->total != object->size)
        return refuse(transfer, EX_DATA, "the file changed: %" PRIu64 " bytes at first, now %" PRIu64, object->size,
                      response->total);
    if (object->has_size && (*object->validator || object->seen) && strcmp(validator, object->validator) != 0)
        return refuse(transfer, EX_DATA, "the file changed while it was read (its ETag was %s, now it is %s)",
                      *object->validator ? object->validator : "missing", *validator ? validator : "missing");
    if (!object->seen) object->was_html = response_is_html(response);
    if (response_is_html(response) && !object->was_html)
        return refuse(transfer, EX_DATA, "the server sends a web page in place of the file");
    if (!object->has_size || !*object->validator) snprintf(object->validator, FIELD_BYTES, "%s", validator);
    object->size = response->total, object->has_size = object->seen = true;
    return 0;
}

static int check_first_seen(const Transfer *transfer, char first[FIELD_BYTES], const char *now, const char *what) {
    if (!*now || !strcmp(first, now)) return 0;
    if (*first) return refuse(transfer, EX_DATA, "the file changed: the %s was %s, now it is %s", what, first, now);
    snprintf(first, FIELD_BYTES, "%s", now);
    return 0;
}

// A hub sends the commit and the hash with a file, or with the redirect to the host that has it.
static int check_hub(Transfer *transfer) {
    const Response *response = &transfer->response;
    RemoteObject *object = transfer->object;
    if (object->auth != AUTH_BEARER || !remote_same_origin(transfer->remote, object->url, transfer->at)) return 0;
    if (response->malformed) return refuse(transfer, EX_DATA, "the header of the response is malformed");
    if (check_first_seen(transfer, object->commit, response->commit, "commit") < 0 ||
        check_first_seen(transfer, object->linked, response->linked_etag, "hash") < 0)
        return -1;
    if (object->has_size && response->linked_size && response->linked_size != object->size)
        return refuse(transfer, EX_DATA, "the file changed: the hub announces %" PRIu64 " bytes instead of %" PRIu64,
                      response->linked_size, object->size);
    return 0;
}

// Whether the body that follows is the one that was requested.
static int check_response(Transfer *transfer) {
    const Response *response = &transfer->response;
    if (response->malformed) return refuse(transfer, EX_DATA, "the header of the response is malformed");
    if (*response->encoding && strcasecmp(response->encoding, "identity") != 0)
        return refuse(transfer, EX_DATA, "the server compresses the transfer (Content-Encoding: %.40s)",
                      response->encoding);
    if (!transfer->to) return 0;
    if (check_hub(transfer) < 0) return -1;
    if (response->status == 200 && response_is_html(response))
        return refuse(transfer, EX_DATA,
                      "the server sends a web page in place of the file: a login page or the portal "
                      "of a network");
    if (response->status == 200)
        return refuse(transfer, EX_DATA,
                      transfer->object->seen ? "the file changed while it was read (200)"
                                             : "the server does not serve ranges of the file");
    if (!response->has_range || !response->has_total || response->first != offset(transfer) ||
        response->end != transfer->end)
        return refuse(transfer, EX_DATA, "the server sends another range than the requested one");
    return check_identity(transfer);
}

static size_t take_line(char *data, size_t one, size_t size, void *user) {
    (void)one;
    ((Transfer *)user)->heard_ns = clock_ns();
    response_add_line(&((Transfer *)user)->response, (Bytes){(const uint8_t *)data, size});
    return size;
}

static int keep_bytes(Transfer *transfer, const void *data, size_t size) {
    if (!transfer->to) {
        if (size > DOCUMENT_BYTES_MAX - transfer->document.size)
            return refuse(transfer, EX_DATA, "a listing of more than %d MiB", DOCUMENT_BYTES_MAX >> 20);
        buffer_add(&transfer->document, data, size);
        return 0;
    }
    if (size > transfer->end - offset(transfer))
        return refuse(transfer, EX_DATA, "the server sends more bytes than the range has");
    memcpy(transfer->to + transfer->got, data, size);
    transfer->got += size;
    return 0;
}

// The bodies of redirects and errors are dropped. A return value other than `size` ends the transfer.
static size_t take_body(char *data, size_t one, size_t size, void *user) {
    Transfer *transfer = user;
    (void)one;
    const unsigned status = transfer->response.status;
    transfer->heard_ns = clock_ns();
    if (status != 200 && status != 206) {
        transfer->dropped += size;
        return transfer->dropped > DROPPED_BYTES_MAX ? 0 : size;
    }
    int status_of_check = transfer->checked ? 0 : check_response(transfer);
    transfer->checked = true;
    if (status_of_check == 0) status_of_check = keep_bytes(transfer, data, size);
    if (status_of_check == 0) return size;
    err_take(&transfer->error);
    return 0;
}

// Requests

static void add_header(Transfer *transfer, const char *name, const char *value) {
    Buffer line = {0};
    buffer_print(&line, "%s%s", name, value);
    buffer_add(&line, "", 1);
    struct curl_slist *more = transfer->remote->curl->slist_append(transfer->headers, (const char *)line.data);
    if (!more) die(EX_MEMORY, "no memory for a request");
    transfer->headers = more;
    buffer_close(&line);
}

static void add_signature(Transfer *transfer) {
    const Remote *remote = transfer->remote;
    const S3Keys keys = {remote->s3.key, remote->s3.secret, remote->s3.session, remote->s3.region};
    S3Signature signature;
    if (!s3_sign(&signature, &keys, transfer->at, time(NULL))) return;
    add_header(transfer, "Host: ", signature.host);
    add_header(transfer, "x-amz-date: ", signature.date);
    add_header(transfer, "x-amz-content-sha256: ", S3_EMPTY_SHA256);
    if (keys.session) add_header(transfer, "x-amz-security-token: ", keys.session);
    add_header(transfer, "Authorization: ", (const char *)signature.authorization.data);
    s3_signature_close(&signature);
}

static void set_credentials(Transfer *transfer) {
    const Remote *remote = transfer->remote;
    const RemoteObject *object = transfer->object;
    if (object->auth == AUTH_NONE || !remote_same_origin(remote, object->url, transfer->at)) return;
    if (object->auth == AUTH_BEARER && remote->bearer) add_header(transfer, remote->bearer, "");
    if (object->auth == AUTH_S3 && remote->s3.key) add_signature(transfer);
}

static void set_certificates(const CurlLibrary *curl, CURL *easy) {
    const char *file = getenv("CURL_CA_BUNDLE"), *folder = getenv("SSL_CERT_DIR");
    if (!file || !*file) file = getenv("SSL_CERT_FILE");
    if (file && *file) curl->easy_setopt(easy, CURLOPT_CAINFO, file);
    if (folder && *folder) curl->easy_setopt(easy, CURLOPT_CAPATH, folder);
}

// A weak ETag must not be sent in If-Range. A response that ignores the field is found by its status and ETag.
static void set_range(Transfer *transfer) {
    char range[64];
    const RemoteObject *object = transfer->object;
    snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, offset(transfer), transfer->end - 1);
    transfer->remote->curl->easy_setopt(transfer->easy, CURLOPT_RANGE, range);
    if (*object->validator == '"') add_header(transfer, "If-Range: ", object->validator);
}

static void launch(Transfer *transfer) {
    Remote *remote = transfer->remote;
    const CurlLibrary *curl = remote->curl;
    const RemoteObject *object = transfer->object;
    if (!transfer->at) {
        transfer->began_moved = object->moved;
        transfer->at = copy_text(object->moved ? object->moved : object->url);
        transfer->hops = 0;
    }
    if (transfer->easy) curl->easy_reset(transfer->easy);
    if (!transfer->easy) transfer->easy = curl->easy_init();
    CURL *easy = transfer->easy;
    if (!easy) die(EX_MEMORY, "no memory for a connection");
    curl->slist_free_all(transfer->headers), transfer->headers = NULL;
    transfer->response = (Response){0};
    transfer->checked = false, transfer->dropped = 0, *transfer->why = '\0';
    transfer->heard_ns = clock_ns();
    if (!transfer->to) transfer->document.size = 0;
    curl->easy_setopt(easy, CURLOPT_URL, transfer->at);
    curl->easy_setopt(easy, CURLOPT_PRIVATE, transfer);
    curl->easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->why);
    curl->easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    curl->easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
    curl->easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_line);
    curl->easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
    curl->easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl->easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); // a connection for each range
    curl->easy_setopt(easy, CURLOPT_USERAGENT, "millrace");
    curl->easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L); // a key may hold "/../"
    set_certificates(curl, easy);
    add_header(transfer, "Accept-Encoding: identity", "");
    if (transfer->to) set_range(transfer);
    set_credentials(transfer);
    curl->easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->headers);
    if (curl->multi_add_handle(remote->multi, easy)) die(EX_MEMORY, "no memory for a connection");
    transfer->state = TRANSFER_RUNNING;
}

static void follow(Transfer *transfer) {
    const Remote *remote = transfer->remote;
    char *place = NULL;
    remote->curl->easy_getinfo(transfer->easy, CURLINFO_REDIRECT_URL, &place);
    char host[FIELD_BYTES] = "";
    if (place) get_part(remote->curl, place, CURLUPART_HOST, host);
    // http only from http, so that no page in between can take the protection away.
    const bool from_http = !strncasecmp(transfer->at, "http:", 5);
    if (!place || !*host)
        refuse(transfer, EX_DATA, "the server redirects to no valid URL (%u)", transfer->response.status);
    else if (++transfer->hops > HOPS_MAX)
        refuse(transfer, EX_DATA, "the server redirects more than %d times", HOPS_MAX);
    else if (strncasecmp(place, "https:", 6) != 0 && (!from_http || !is_allowed(remote, place)))
        refuse(transfer, EX_PROTOCOL, "the server redirects to '%s' without https", host);
    else
        check_hub(transfer);
    if (err_code()) {
        end(transfer, TRANSFER_FAILED);
        return;
    }
    char *next = copy_text(place);
    free(transfer->at), transfer->at = next;
    launch(transfer);
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
        snprintf(object->validator, FIELD_BYTES, "%s", response_validator(response));
        object->size = 0, object->has_size = true;
        end(transfer, TRANSFER_DONE);
        return;
    }
    char why[64];
    snprintf(why, sizeof why, "the server answers %u", status);
    const bool is_elsewhere =
        object->auth == AUTH_S3 && *response->region && strcmp(response->region, transfer->remote->s3.region) != 0;
    if (is_elsewhere && status >= 300 && status < 500) {
        refuse(transfer, EX_NOINPUT, "%s: the bucket is in %.40s, set AWS_REGION", why, response->region);
        end(transfer, TRANSFER_FAILED);
    } else if (status == 301 || status == 302 || status == 303 || status == 307 || status == 308)
        follow(transfer);
    else if (status == 408 || status == 429 || (status >= 500 && status <= 599))
        try_again(transfer, EX_IO, why);
    else if ((transfer->began_moved || transfer->hops) && status != 416 && status >= 400) // an expired signature
        try_again(transfer, EX_PERMISSION, why);
    else {
        if (status == 401 || status == 403)
            refuse(transfer, EX_PERMISSION, "%s: it requires credentials, or a signature that has not expired", why);
        else if (status == 200 || status == 412 || (status == 416 && object->has_size))
            refuse(transfer, EX_DATA, "the file changed while it was read (%u)", status);
        else
            refuse(transfer, EX_NOINPUT, "%s", why);
        end(transfer, TRANSFER_FAILED);
    }
}

// A complete response. Where it had no body, it was not checked yet.
static void end_by_body(Transfer *transfer) {
    RemoteObject *object = transfer->object;
    if (!transfer->checked && check_response(transfer) < 0) {
        end(transfer, TRANSFER_FAILED);
        return;
    }
    if (transfer->to && offset(transfer) < transfer->end) {
        try_again(transfer, EX_DATA, "truncated: the server sends fewer bytes than the range has");
        return;
    }
    if (transfer->hops && !object->moved) object->moved = copy_text(transfer->at);
    end(transfer, TRANSFER_DONE);
}

static bool is_certificate_error(CURLcode code) {
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CERTPROBLEM ||
           code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_ISSUER_ERROR || code == CURLE_SSL_INVALIDCERTSTATUS;
}

static void finish(Transfer *transfer, CURLcode code) {
    const CurlLibrary *curl = transfer->remote->curl;
    const unsigned status = transfer->response.status;
    curl->multi_remove_handle(transfer->remote->multi, transfer->easy);
    curl_off_t length = -1;
    curl->easy_getinfo(transfer->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    const char *why = *transfer->why ? transfer->why : curl->easy_strerror(code);
    if (transfer->error.code)
        end(transfer, TRANSFER_FAILED);
    else if (is_certificate_error(code)) {
        refuse(transfer, EX_PROTOCOL, "the certificate of the server is not accepted: %s", why);
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
    launch(transfer);
}

// Repeats the requests whose wait is over, and shortens the wait for events to that of the next one.
static int launch_due(Remote *remote, int wait_ms) {
    const uint64_t now = clock_ns();
    for (Transfer *transfer = remote->active; transfer; transfer = transfer->next) {
        if (transfer->state != TRANSFER_WAITING) continue;
        if (transfer->resume_ns <= now) {
            launch(transfer);
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

int transfer_wait(Transfer *transfer) {
    enum { POLL_MS = 200 };
    while (transfer->state == TRANSFER_RUNNING || transfer->state == TRANSFER_WAITING) {
        if (atomic_load(&stopped)) return fail(EX_AGAIN, "'%s': stopped while it was read", transfer->object->name);
        remote_pump(transfer->remote, POLL_MS);
    }
    if (transfer->state == TRANSFER_DONE) return 0;
    err_give(&transfer->error);
    return -1;
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

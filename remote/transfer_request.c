// The header and the credentials of a request, and the checks of its response.
#include "remote/transfer_request.h"
#include "common/log.h"
#include "remote/s3_sign.h"
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

const char *remote_variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

void remote_url_part(const CurlLibrary *curl, const char *url, CURLUPart part, char text[FIELD_BYTES]) {
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
        remote_url_part(remote->curl, a, parts[i], one), remote_url_part(remote->curl, b, parts[i], other);
        if (!*one || strcasecmp(one, other) != 0) return false;
    }
    return true;
}

bool remote_url_is_allowed(const Remote *remote, const char *url) {
    char scheme[FIELD_BYTES], host[FIELD_BYTES];
    remote_url_part(remote->curl, url, CURLUPART_SCHEME, scheme),
        remote_url_part(remote->curl, url, CURLUPART_HOST, host);
    if (!strcasecmp(scheme, "https")) return *host;
    return !strcasecmp(scheme, "http") && (remote->options.allow_http || is_loopback(host));
}

int remote_check_url(const Remote *remote, const char *url, const char *name) {
    char text[FIELD_BYTES];
    remote_url_part(remote->curl, url, CURLUPART_HOST, text);
    if (!*text)
        return fail(EX_USAGE, "'%s' is not a valid URL%s", name, strchr(name, ' ') ? ": write %20 for a space" : "");
    remote_url_part(remote->curl, url, CURLUPART_USER, text);
    if (*text) return fail(EX_USAGE, "a URL of a host with a user name in it is refused: others can read it");
    if (!remote_url_is_allowed(remote, url))
        return fail(EX_USAGE, "'%s' is not https: --allow-http reads it all the same", name);
    return 0;
}

uint64_t transfer_offset(const Transfer *transfer) { return transfer->begin + transfer->got; }

int transfer_refuse(const Transfer *transfer, int code, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (!transfer->to) return fail(code, "'%s': %s", transfer->object->name, text);
    return fail(code, "'%s' at byte %" PRIu64 ": %s", transfer->object->name, transfer_offset(transfer), text);
}

// Responses

// An ETag may be weak ("W/") for a second after a file was written, and through a cache that compresses. The listings
// of rclone's S3 server leave its quotes out.
static Bytes bare_validator(const char *validator) {
    if (!strncmp(validator, "W/", 2)) validator += 2;
    size_t size = strlen(validator);
    if (size > 1 && *validator == '"' && validator[size - 1] == '"') validator++, size -= 2;
    return (Bytes){(const uint8_t *)validator, size};
}

static bool same_validator(const char *a, const char *b) {
    const Bytes one = bare_validator(a), other = bare_validator(b);
    return one.size == other.size && !memcmp(one.data, other.data, one.size);
}

#define START_AGAIN ": start again, or name one server where several answer by turns"

static int check_identity(Transfer *transfer) {
    const Response *response = &transfer->response;
    RemoteObject *object = transfer->object;
    const char *validator = response_validator(response);
    if (object->has_size && response->total != object->size)
        return transfer_refuse(transfer, EX_DATA,
                               "the file changed: %" PRIu64 " bytes at first, now %" PRIu64 START_AGAIN, object->size,
                               response->total);
    if (object->has_size && (*object->validator || object->seen) && !same_validator(validator, object->validator))
        return transfer_refuse(transfer, EX_DATA,
                               "the file changed while it was read (its ETag or date was %s, now it is %s)" START_AGAIN,
                               *object->validator ? object->validator : "missing", *validator ? validator : "missing");
    if (!object->seen) object->was_html = response_is_html(response);
    if (response_is_html(response) && !object->was_html)
        return transfer_refuse(transfer, EX_DATA, "the server sends a web page in place of the file");
    if (!object->has_size || !*object->validator) snprintf(object->validator, FIELD_BYTES, "%s", validator);
    object->size = response->total, object->has_size = object->seen = true;
    return 0;
}

static int check_first_seen(const Transfer *transfer, char first[FIELD_BYTES], const char *now, const char *what) {
    if (!*now || !strcmp(first, now)) return 0;
    if (*first)
        return transfer_refuse(transfer, EX_DATA, "the file changed: the %s was %s, now it is %s", what, first, now);
    snprintf(first, FIELD_BYTES, "%s", now);
    return 0;
}

int transfer_check_hub(Transfer *transfer) {
    const Response *response = &transfer->response;
    RemoteObject *object = transfer->object;
    if (object->auth != AUTH_BEARER || !remote_same_origin(transfer->remote, object->url, transfer->at)) return 0;
    if (response->malformed) return transfer_refuse(transfer, EX_DATA, "the header of the response is malformed");
    if (check_first_seen(transfer, object->commit, response->commit, "commit") < 0 ||
        check_first_seen(transfer, object->linked, response->linked_etag, "hash") < 0)
        return -1;
    if (object->has_size && response->linked_size && response->linked_size != object->size)
        return transfer_refuse(transfer, EX_DATA,
                               "the file changed: the hub announces %" PRIu64 " bytes instead of %" PRIu64,
                               response->linked_size, object->size);
    return 0;
}

// The first bytes of a file that is stored with a Content-Encoding, which some servers send as its label. A list has
// "aws-chunked" if an upload had it. "": of any file; NULL: of no file that is read.
static const char *encoding_magic(const char *encoding) {
    static const struct {
        const char *name, *magic;
    } encodings[] = {{"gzip", "\x1F\x8B"}, {"x-gzip", "\x1F\x8B"}, {"zstd", "\x28\xB5"}, {"bzip2", "BZ"},
                     {"x-bzip2", "BZ"},    {"xz", "\xFD\x37"},     {"identity", ""},     {"aws-chunked", ""}};
    const char *magic = "";
    for (size_t size; *encoding; encoding += size, encoding += strspn(encoding, ", ")) {
        size_t i = 0;
        size = strcspn(encoding, ", ");
        while (i < sizeof encodings / sizeof *encodings &&
               (strlen(encodings[i].name) != size || strncasecmp(encodings[i].name, encoding, size) != 0))
            i++;
        if (i == sizeof encodings / sizeof *encodings || (*magic && *encodings[i].magic)) return NULL;
        if (*encodings[i].magic) magic = encodings[i].magic;
    }
    return magic;
}

static int refuse_encoding(const Transfer *transfer) {
    return transfer_refuse(transfer, EX_DATA, "the server compresses the transfer (Content-Encoding: %.40s)",
                           transfer->response.encoding);
}

int transfer_check_kind(Transfer *transfer) {
    const Response *response = &transfer->response;
    if (response->malformed) return transfer_refuse(transfer, EX_DATA, "the header of the response is malformed");
    const char *magic = encoding_magic(response->encoding);
    if (!magic || (*magic && !transfer->to)) return refuse_encoding(transfer);
    if (!transfer->to) return 0;
    if (transfer_check_hub(transfer) < 0) return -1;
    if (response->status == 200 && response_is_html(response))
        return transfer_refuse(transfer, EX_DATA,
                               "the server sends a web page in place of the file: a login page or the portal "
                               "of a network");
    return 0;
}

// The whole file in place of a range: of a server without ranges, or because the file changed since it was listed.
static int check_whole(Transfer *transfer) {
    RemoteObject *object = transfer->object;
    curl_off_t length = -1;
    transfer->remote->curl->easy_getinfo(transfer->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (length < 0)
        return transfer_refuse(
            transfer, EX_DATA,
            "the server serves no ranges of the file, and does not send its size: download it first");
    transfer->response.total = (uint64_t)length;
    const bool was_in_order = object->in_order || !object->has_size;
    if (check_identity(transfer) < 0) return -1;
    object->in_order = true;
    if (!was_in_order)
        return transfer_refuse(transfer, EX_DATA, "the server does not serve ranges of the file: download it first");
    if (transfer->end > object->size) transfer->end = object->size;
    return 0;
}

int transfer_check(Transfer *transfer) {
    const Response *response = &transfer->response;
    if (transfer_check_kind(transfer) < 0) return -1;
    if (!transfer->to) return 0;
    // The look at a file asks for two bytes, as BusyBox sends the whole file for one; the file may have only one.
    if (!transfer->object->has_size && response->has_total && response->total == response->end &&
        response->end < transfer->end)
        transfer->end = response->end;
    // The S3 server of rclone answers a range with status 200, and its Content-Range.
    if (response->has_range && response->has_total && response->first == transfer_offset(transfer) &&
        response->end == transfer->end)
        return check_identity(transfer);
    if (response->status == 200 && (!response->has_range || (!response->first && response->end == response->total)))
        return check_whole(transfer);
    return transfer_refuse(transfer, EX_DATA, "the server sends another range than the requested one");
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
            return transfer_refuse(transfer, EX_DATA, "a listing of more than %d MiB", DOCUMENT_BYTES_MAX >> 20);
        buffer_add(&transfer->document, data, size);
        return 0;
    }
    const bool had_magic = transfer_offset(transfer) >= 2;
    const size_t skipped = size < transfer->skip ? size : (size_t)transfer->skip;
    const uint64_t left = transfer->end - transfer_offset(transfer);
    transfer->skip -= skipped, size -= skipped;
    if (transfer->object->in_order && size > left) size = (size_t)left;
    if (size > left) return transfer_refuse(transfer, EX_DATA, "the server sends more bytes than the range has");
    memcpy(transfer->to + (transfer->got - transfer->window_at), (const uint8_t *)data + skipped, size);
    transfer->got += size;
    if (had_magic || transfer->begin || transfer->got < 2) return 0;
    const char *magic = encoding_magic(transfer->response.encoding);
    return !*magic || !memcmp(transfer->to, magic, 2) ? 0 : refuse_encoding(transfer);
}

bool transfer_has_range(const Transfer *transfer) {
    return transfer->checked && transfer->object->in_order && transfer_offset(transfer) == transfer->end;
}

// Whether the window has no room for more bytes.
static bool is_full(const Transfer *transfer, size_t size) {
    return transfer->window && size > transfer->window - (size_t)(transfer->got - transfer->window_at);
}

enum { ERROR_BYTES = 4096 }; // of the answer of S3

// The bodies of redirects and errors are dropped, except an error of S3, which has a code. A return value other than
// `size` ends the transfer.
static size_t take_body(char *data, size_t one, size_t size, void *user) {
    Transfer *transfer = user;
    (void)one;
    const unsigned status = transfer->response.status;
    transfer->heard_ns = clock_ns();
    if (status != 200 && status != 206) {
        if (transfer->object->auth == AUTH_S3 && transfer->dropped < ERROR_BYTES)
            buffer_add(&transfer->document, data, size);
        transfer->dropped += size;
        return transfer->dropped > DROPPED_BYTES_MAX ? 0 : size;
    }
    int status_of_check = transfer->checked ? 0 : transfer_check(transfer);
    transfer->checked = true;
    if (status_of_check == 0 && is_full(transfer, size)) {
        transfer->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    if (status_of_check == 0) status_of_check = keep_bytes(transfer, data, size);
    if (status_of_check == 0) return transfer_has_range(transfer) && transfer->end < transfer->object->size ? 0 : size;
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
    transfer->skip = object->in_order ? transfer_offset(transfer) : 0;
    if (object->in_order) return;
    snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, transfer_offset(transfer), transfer->end - 1);
    transfer->remote->curl->easy_setopt(transfer->easy, CURLOPT_RANGE, range);
    if (*object->validator == '"') add_header(transfer, "If-Range: ", object->validator);
}

void transfer_launch(Transfer *transfer) {
    Remote *remote = transfer->remote;
    const CurlLibrary *curl = remote->curl;
    const RemoteObject *object = transfer->object;
    if (!transfer->at) {
        transfer->began_moved = object->moved;
        const char *url = object->moved ? object->moved : object->url;
        transfer->at = allocate_text(url, strlen(url));
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
    transfer->document.size = 0;
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
    if (object->auth == AUTH_NONE) curl->easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
    if (transfer->to) set_range(transfer);
    set_credentials(transfer);
    curl->easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->headers);
    if (curl->multi_add_handle(remote->multi, easy)) die(EX_MEMORY, "no memory for a connection");
    transfer->state = TRANSFER_RUNNING;
}

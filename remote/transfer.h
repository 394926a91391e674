// Requests over HTTPS: bounded retries, redirects, and checks that each response belongs to the content that was seen
// first.
//
// One pool of connections (Remote) for each process. It has no thread: transfers advance while the owner waits for one
// of them or calls remote_pump; between these calls the buffers of the system receive. All calls are for the thread
// that opened the pool.
//
// Only https is requested, and http if --allow-http or a loopback address permits it. Credentials go to the origin
// (scheme, host and port) of the URL that was named, never to a host to which it redirects. Certificates are always
// checked, with the file that CURL_CA_BUNDLE or SSL_CERT_FILE names, else the certificates of the system.
//
// A server without ranges sends the whole file (200). Its bytes before the range are dropped, and the transfer ends
// after the range, so such a file is read by one transfer in order (RemoteObject.in_order).
//
// Exit codes: 65 for content that changed, a wrong range, more bytes than requested, a compressed transfer or a web
// page; 66 for 404 and the like; 74 for failures that remain after the retries: 408, 429, 5xx, cut transfers, timeouts,
// unreachable hosts; 76 for certificates and redirects to http; 77 for 401 and 403. Messages have the name of the
// object and the offset, never the query of its URL.
#pragma once

#include "common/err.h"
#include "remote/curl_library.h"
#include "remote/response.h"

typedef struct {
    bool allow_http;         // also to hosts other than this one
    const char *s3_endpoint; // NULL: of the environment
    uint64_t retries, timeout_s;
} RemoteOptions;

typedef enum { AUTH_NONE, AUTH_BEARER, AUTH_S3 } RemoteAuth;

typedef struct Transfer Transfer;
typedef struct {
    const CurlLibrary *curl;
    CURLM *multi;
    RemoteOptions options;
    Transfer *active; // list of those that run or wait
    uint64_t jitter;  // drawn so far
    uint64_t pumped_ns;
    char *bearer; // "Authorization: Bearer TOKEN", or NULL; owned
    bool bearer_known;
    struct {
        bool known;                   // the environment and files were read
        char *key, *secret, *session; // owned; key NULL: requests are not signed
        char *region, *endpoint;      // owned
        bool in_host;                 // the bucket: addressing_style = virtual
    } s3;
} Remote;

// State that all requests for one file or listing share.
typedef struct {
    char *url;        // owned; its query may hold a signature
    const char *name; // printed in its place; borrowed
    RemoteAuth auth;
    bool has_size; // and validator: of a listing or of the first response
    uint64_t size;
    char validator[FIELD_BYTES]; // "": the server sends none
    char linked[FIELD_BYTES];    // X-Linked-Etag of a hub: of a listing or of the first response; "": none yet
    char commit[FIELD_BYTES];    // X-Repo-Commit in the same way
    bool seen, was_html;         // a response was accepted, and its type
    bool in_order;               // the server has no ranges, or refused one
    char *moved;                 // where redirects led to; owned
} RemoteObject;

typedef enum { TRANSFER_IDLE, TRANSFER_RUNNING, TRANSFER_WAITING, TRANSFER_DONE, TRANSFER_FAILED } TransferState;

// Zero it, set the first group, then call transfer_start.
struct Transfer {
    RemoteObject *object;
    uint64_t begin, end; // the range, whose bytes go to `to`
    uint8_t *to;         // NULL: the whole content goes to `document`
    size_t window;       // 0, or the bytes of `to` for transfer_next, at least 64 KiB
    Buffer document;
    TransferState state;
    Error error; // of TRANSFER_FAILED
    Response response;
    // For transfer.c and transfer_request.c:
    Remote *remote;
    uint64_t got, got_before, resume_ns, heard_ns, dropped;
    uint64_t skip;             // bytes of the response before the range
    uint64_t window_at, given; // of the range: the first byte in the window, the end of the bytes that were returned
    unsigned failures, hops;
    bool checked, began_moved, paused;
    char *at; // the URL that is requested
    CURL *easy;
    struct curl_slist *headers;
    char why[CURL_ERROR_SIZE];
    Transfer *next;
};

enum { DOCUMENT_BYTES_MAX = 64 << 20 };

Remote *remote_open(const RemoteOptions *options, const char *url); // NULL after fail(); `url`: why, for the message
void remote_close(Remote *remote);                                  // after all transfers are stopped; accepts NULL

void object_close(RemoteObject *object);

void transfer_start(Remote *remote, Transfer *transfer);
void remote_pump(Remote *remote, int wait_ms); // advances all transfers; waits so long at most for the next event
int transfer_wait(Transfer *transfer);         // until it is done; -1 with its error pending
// Waits for the next bytes of a transfer with a window, which are valid until the next call; none at the end. It pauses
// while the window is full. -1 with its error pending.
int transfer_next(Transfer *transfer, Bytes *bytes);
void transfers_stop(void);              // from now on, every wait fails (75); thread-safe
void transfer_stop(Transfer *transfer); // in any state; frees what it holds, but `to`

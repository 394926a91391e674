// libcurl, loaded when the first URL is read: programs that read files alone start without it, and the static
// distribution uses the TLS library of the system, with its updates and certificates, instead of one of its own.
#pragma once

#define CURL_DISABLE_TYPECHECK // its macros take the names of the functions
#include <curl/curl.h>

#define CURL_FUNCTIONS(X)                                                                                              \
    X(easy_init)                                                                                                       \
    X(easy_setopt)                                                                                                     \
    X(easy_getinfo)                                                                                                    \
    X(easy_pause)                                                                                                      \
    X(easy_strerror)                                                                                                   \
    X(easy_reset)                                                                                                      \
    X(easy_cleanup)                                                                                                    \
    X(slist_append)                                                                                                    \
    X(slist_free_all)                                                                                                  \
    X(multi_init)                                                                                                      \
    X(multi_setopt)                                                                                                    \
    X(multi_add_handle)                                                                                                \
    X(multi_remove_handle)                                                                                             \
    X(multi_perform)                                                                                                   \
    X(multi_poll)                                                                                                      \
    X(multi_info_read)                                                                                                 \
    X(multi_cleanup)                                                                                                   \
    X(url)                                                                                                             \
    X(url_get)                                                                                                         \
    X(url_set)                                                                                                         \
    X(url_cleanup)                                                                                                     \
    X(free)

// The functions of libcurl without their prefix: curl->easy_init is curl_easy_init.
typedef struct {
#define CURL_MEMBER(name) __typeof__(curl_##name) *name;
    CURL_FUNCTIONS(CURL_MEMBER)
#undef CURL_MEMBER
} CurlLibrary;

// NULL after fail() (66): the system has no libcurl, or one older than 7.68. `url` is why it is loaded, for the
// message.
const CurlLibrary *curl_library(const char *url);

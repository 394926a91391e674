// Loads libcurl.so.4, whose interface has been the same since 2006; Debian has it linked with OpenSSL or with GnuTLS.
#include "remote/curl_library.h"
#include "common/err.h"
#include <dlfcn.h>

enum { VERSION_LEAST = 0x074400 }; // 7.68 has multi_poll and its errors

static bool has_functions(void *library, CurlLibrary *curl) {
#define CURL_LOAD(name)                                                                                                \
    *(void **)&curl->name = dlsym(library, "curl_" #name);                                                             \
    if (!curl->name) return false;
    CURL_FUNCTIONS(CURL_LOAD)
#undef CURL_LOAD
    return true;
}

const CurlLibrary *curl_library(const char *url) {
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    static CurlLibrary curl;
    static bool loaded;
    if (loaded) return &curl;
    void *library = NULL;
    for (unsigned i = 0; !library && i < sizeof names / sizeof *names; i++) library = dlopen(names[i], RTLD_NOW);
    if (!library) {
        fail(EX_NOINPUT,
             "cannot read '%s': there is no libcurl.so.4 on this machine: install the package libcurl4 (Debian, "
             "Ubuntu, openSUSE), libcurl (Fedora) or curl (Arch), or read a pipe",
             url);
        return NULL;
    }
    __typeof__(curl_global_init) *init;
    __typeof__(curl_version_info) *version;
    *(void **)&init = dlsym(library, "curl_global_init"), *(void **)&version = dlsym(library, "curl_version_info");
    if (!init || !version || version(CURLVERSION_NOW)->version_num < VERSION_LEAST || !has_functions(library, &curl) ||
        init(CURL_GLOBAL_DEFAULT)) {
        fail(EX_NOINPUT,
             "cannot read '%s': libcurl.so.4 of this machine is older than 7.68: install a later one, or read a pipe",
             url);
        return NULL;
    }
    loaded = true;
    return &curl;
}

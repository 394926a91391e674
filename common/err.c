// One pending error per thread.
#include "common/err.h"
#include "common/log.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local Error pending;

static int set_pending(int code, const char *format, va_list arguments) {
    if (pending.code) return -1;
    pending.code = code;
    vsnprintf(pending.text, sizeof pending.text, format, arguments);
    text_printable(pending.text);
    return -1;
}

int fail(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    set_pending(code, format, arguments);
    va_end(arguments);
    return -1;
}

static int errno_to_code(int error) {
    switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
        return EX_NOINPUT;
    case EACCES:
    case EPERM:
        return EX_PERMISSION;
    case EMFILE:
    case ENFILE:
    case EAGAIN:
        return EX_LIMIT;
    case ENOMEM:
        return EX_MEMORY;
    case EROFS:
    case ENAMETOOLONG:
    case EEXIST:
    case EISDIR:
    case ENOTEMPTY:
        return EX_CREATE;
    default:
        return EX_IO;
    }
}

int fail_errno(const char *format, ...) {
    int error = errno;
    if (pending.code) return -1;
    va_list arguments;
    va_start(arguments, format);
    set_pending(errno_to_code(error), format, arguments);
    va_end(arguments);
    size_t length = strlen(pending.text);
    snprintf(pending.text + length, sizeof pending.text - length, ": %s", strerror(error));
    return -1;
}

int fail_create(const char *path) {
    const bool no_parent = errno == ENOENT || errno == ENOTDIR || errno == ELOOP, first = !pending.code;
    fail_errno("cannot create '%s'", path);
    if (no_parent && first) pending.code = EX_CREATE;
    return -1;
}

int fail_in(const char *format, ...) {
    char where[sizeof pending.text / 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(where, sizeof where, format, arguments);
    va_end(arguments);
    text_printable(where);
    size_t length = strlen(where);
    memmove(pending.text + length + 2, pending.text, sizeof pending.text - length - 2);
    memcpy(pending.text, where, length);
    memcpy(pending.text + length, ": ", 2);
    pending.text[sizeof pending.text - 1] = '\0';
    return -1;
}

void die(int code, const char *format, ...) {
    char text[sizeof pending.text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    text_printable(text);
    log_silent = false;
    log_error("", text);
    _Exit(code);
}

const char *err_text(void) { return pending.text; }
int err_code(void) { return pending.code; }
void err_clear(void) { pending = (Error){0}; }

void err_take(Error *error) {
    *error = pending;
    err_clear();
}

void err_give(const Error *error) {
    if (!pending.code) pending = *error;
}

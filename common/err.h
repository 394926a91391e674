// Errors: one pending sentence and one exit code per thread.
//
// A function that cannot do its work calls fail() and returns -1 (or NULL); its callers return it upwards and may add
// where it happened. Only main prints the error and exits with its code (cli_main does both). Other messages
// (a reconnection, a plan that was chosen, a file that was skipped) go to log_line or log_warn, which every library may
// call.
#pragma once

#include <stdbool.h>

enum {
#define EXIT_CODE(name, code, meaning) name = code,
#include "common/exit_codes.def"
#undef EXIT_CODE
};

#define PRINTF_LIKE(which, first) __attribute__((format(printf, which, first)))

// Makes this sentence and this code the thread's pending error and returns -1. While an error is pending, further ones
// are dropped: the first one is the cause, an error of the cleanup is not.
int fail(int code, const char *format, ...) PRINTF_LIKE(2, 3);

// Same for a failed system call: appends ": " and strerror(errno), and derives the code from errno (ENOENT 66,
// EACCES 77, EMFILE 71, ENOMEM 82, EROFS and the like 73, all others 74).
int fail_errno(const char *format, ...) PRINTF_LIKE(1, 2);

// Same for a file or directory that could not be created: 73 also when its parent is missing.
int fail_create(const char *path);

// Puts "where: " before the pending sentence, for a caller that knows more about the place. Returns -1.
int fail_in(const char *format, ...) PRINTF_LIKE(1, 2);

// Prints the sentence and exits at once, without atexit handlers. Only for errors that no caller can handle: no memory,
// or a bug found at run time.
_Noreturn void die(int code, const char *format, ...) PRINTF_LIKE(2, 3);

const char *err_text(void); // "" when no error is pending; valid until the thread's next call of these functions
int err_code(void);         // 0 when no error is pending
void err_clear(void);

// A thread's pending error as a value, to carry it from a worker to the thread that waits for the worker.
typedef struct {
    int code;
    char text[1024];
} Error;
void err_take(Error *error);       // moves this thread's pending error into *error; code 0 without one
void err_give(const Error *error); // makes *error this thread's pending error, unless one is pending already

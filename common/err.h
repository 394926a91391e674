// Errors: one sentence and one exit code per thread. Libraries print nothing; main does.
#pragma once

#include <stdbool.h>

// The exit codes of every program.
enum {
    EX_DONE = 0,
    EX_NO = 1,          // the answer is no (verify, diff)
    EX_USAGE = 2,       // usage or config
    EX_DATA = 65,       // bad input data
    EX_NOINPUT = 66,    // no such input, or nothing in it
    EX_PEER = 69,       // the other program cannot be reached
    EX_BUG = 70,        // ours
    EX_LIMIT = 71,      // a system limit: threads, descriptors
    EX_CREATE = 73,     // cannot create the output, or another run holds it
    EX_IO = 74,         // reading or writing failed, disk full too
    EX_AGAIN = 75,      // stopped cleanly after saving: the same command continues
    EX_PROTOCOL = 76,   // protocol or fingerprint mismatch
    EX_PERMISSION = 77, // not allowed to read or write
    EX_GPU = 80,        // GPU or driver
    EX_NONFINITE = 81,  // the loss or a gradient is not finite
    EX_MEMORY = 82,     // host memory
    EX_VRAM = 83        // device memory: the plan does not fit
};

#define PRINTF_LIKE(which, first) __attribute__((format(printf, which, first)))

// Keeps the sentence and the code and returns -1. While an error is pending, further ones are dropped: the first one
// is the cause, what fails while cleaning up is not.
int fail(int code, const char *format, ...) PRINTF_LIKE(2, 3);

// The same for a failed system call: appends strerror(errno) and takes the code from errno (ENOENT 66, EACCES 77,
// EMFILE 71, ENOMEM 82, EROFS and the like 73, else 74).
int fail_errno(const char *format, ...) PRINTF_LIKE(1, 2);

// Passing it up: puts "where: " before the pending sentence. Returns -1.
int fail_in(const char *format, ...) PRINTF_LIKE(1, 2);

// Prints the sentence and leaves at once, for what nobody can mend: no memory, a bug found at run time.
_Noreturn void die(int code, const char *format, ...) PRINTF_LIKE(2, 3);

const char *err_text(void); // "" when nothing is pending
int err_code(void);         // 0 when nothing is pending
void err_clear(void);

// A thread's pending error as a value, to hand it from a worker to the thread that waits for it.
typedef struct {
    int code;
    char text[1024];
} Error;
void err_take(Error *error);       // moves this thread's error out, leaving none
void err_give(const Error *error); // makes it this thread's pending error, if none is

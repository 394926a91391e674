// Tests are sentences: TEST(a_name_that_is_a_sentence) { ... } registers itself with cmocka.
// Each runs in an empty folder of its own, with no error pending. Assert in the main thread only.
// What this machine cannot run is skipped with its reason and counted as skipped, never as passed: SKIP and
// TEST_ON_EACH_ISA. TEST_CI: a test that CI and releases run, and `make test` does not (tests/README.md).
#pragma once

// cmocka needs the first four, in this order
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail // ours has arguments
// clang-format on

#include "common/err.h"
#include "common/machine/cpu.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void test_register(const char *name, CMUnitTestFunction function, bool ci);

#define TEST_IN(name, ci)                                                                                              \
    static void name(void **state);                                                                                    \
    __attribute__((constructor)) static void register_##name(void) { test_register(#name, name, ci); }                 \
    static void name(__attribute__((unused)) void **state)
#define TEST(name)    TEST_IN(name, false)
#define TEST_CI(name) TEST_IN(name, true)

// The same test on each instruction set: TEST_ON_EACH_ISA(fp16_is_ieee) { ... } becomes fp16_is_ieee_portable, _avx2
// and _avx512, with cpu_isa() capped; instruction sets that the processor lacks are skipped.
#define TEST_ON_EACH_ISA(name)                                                                                         \
    static void name(void);                                                                                            \
    TEST(name##_portable) { test_cap_isa(ISA_PORTABLE), name(); }                                                      \
    TEST(name##_avx2) { test_cap_isa(ISA_AVX2), name(); }                                                              \
    TEST(name##_avx512) { test_cap_isa(ISA_AVX512), name(); }                                                          \
    static void name(void)

// Fails with the expression, the place and the pending error.
#define CHECK(expression)                                                                                              \
    do {                                                                                                               \
        if (!(expression)) test_failed(#expression, __FILE__, __LINE__);                                               \
    } while (0)
#define CHECK_TEXT(text, part)                test_text(text, part, __FILE__, __LINE__)
// The pending error has this code, and `part` in its text; no error is pending after it.
#define CHECK_ERROR(code, part)               test_error(code, part, __FILE__, __LINE__)
#define CHECK_EQUAL(got, want)                test_equal((long long)(got), (long long)(want), #got, __FILE__, __LINE__)
// |got - want| <= atol + rtol*|want| for each of n floats; names the first that is off, and the worst. NaN fails.
#define CHECK_CLOSE(got, want, n, rtol, atol) test_close(got, want, n, rtol, atol, #got, __FILE__, __LINE__)

// Leaves the test, which this machine cannot run.
#define SKIP(reason) test_skip(reason, __FILE__, __LINE__)

void test_skip(const char *reason, const char *file, int line) __attribute__((noreturn));
// cpu_isa() is this one until the test ends; skips the test where the processor lacks it.
void test_cap_isa(Isa isa);
void test_owns(int pid); // a child process, which is killed at the end of the test if it still runs
void test_failed(const char *what, const char *file, int line);
void test_text(const char *text, const char *part, const char *file, int line);
void test_error(int code, const char *part, const char *file, int line);
void test_equal(long long got, long long want, const char *what, const char *file, int line);
void test_close(const float *got, const float *want, size_t n, double rtol, double atol, const char *what,
                const char *file, int line);

extern const char *test_data; // absolute path of tests/data
extern const char *test_bin;  // absolute path of the programs' folder
void write_file(const char *path, const void *data, size_t size);
char *read_file(const char *path, size_t *size); // malloc'ed, NUL-terminated; a test may leak it
// From now on, each piece of memory of at least so many bytes that our code takes is counted (malloc_counter.c), and
// those that begin as zeros. 0: none is.
void test_watch_memory(size_t least);
void test_watched_memory(uint64_t *count, uint64_t *zeroed);

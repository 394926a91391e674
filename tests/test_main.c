// Runs the tests that registered themselves: test [--data DIR] [--bin DIR] [--part 2/3] [WORD], each in its own scratch
// folder. TIER=test leaves out those of TEST_CI, TIER=ci the others. --part 2/3: every third one, from the second on.
// Prints beside cmocka's lines, for run.sh: "skipped NAME: REASON" and "took NAME MILLISECONDS".
#include "common/file/file.h"
#include "common/log.h"
#include "tests/test.h"
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TESTS_MAX = 4096 };
static struct CMUnitTest tests[TESTS_MAX];
static bool of_ci[TESTS_MAX];
static unsigned test_count;
const char *test_data, *test_bin;
static const char *run_isa; // MILLRACE_ISA of the whole run
static char home[4096], scratch[64] = "/tmp/millrace-test-XXXXXX";

static const char *test_name;
static uint64_t started_ns;

static int set_up(void **state) {
    test_name = *state, started_ns = clock_ns();
    err_clear();
    char folder[128];
    static int serial;
    snprintf(folder, sizeof folder, "%s/%d", scratch, serial++);
    return mkdir(folder, 0755) || chdir(folder);
}

static pid_t children[256];
static unsigned child_count;

void test_owns(int pid) {
    if (child_count == sizeof children / sizeof *children) abort();
    children[child_count++] = pid;
}

static int tear_down(void **state) {
    (void)state;
    while (child_count) { // one that the test has waited for is no child any more
        const pid_t pid = children[--child_count];
        if (waitpid(pid, NULL, WNOHANG) == 0 && kill(pid, SIGKILL) == 0) waitpid(pid, NULL, 0);
    }
    run_isa ? setenv("MILLRACE_ISA", run_isa, 1) : unsetenv("MILLRACE_ISA");
    printf("took %s %.0f ms\n", test_name, (double)(clock_ns() - started_ns) / 1e6);
    return chdir(home);
}

void test_skip(const char *reason, const char *file, int line) {
    printf("skipped %s: %s\n", test_name, reason);
    fflush(stdout);
    _skip(file, line);
    abort(); // does not come back
}

void test_cap_isa(Isa isa) {
    char reason[64];
    setenv("MILLRACE_ISA", cpu_isa_name(isa), 1);
    if (cpu_isa() == isa) return;
    snprintf(reason, sizeof reason, "this processor has no %s", cpu_isa_name(isa));
    test_skip(reason, __FILE__, __LINE__);
}

void test_register(const char *name, CMUnitTestFunction function, bool ci) {
    if (test_count == TESTS_MAX) abort();
    of_ci[test_count] = ci;
    tests[test_count++] = (struct CMUnitTest){name, function, set_up, tear_down, (void *)(uintptr_t)name};
}

void test_failed(const char *what, const char *file, int line) {
    if (err_code()) print_error("pending error %d: %s\n", err_code(), err_text());
    _assert_true(0, what, file, line);
}

void test_text(const char *text, const char *part, const char *file, int line) {
    if (text && strstr(text, part)) return;
    print_error("'%s' does not hold '%s'\n", text ? text : "(null)", part);
    test_failed("text holds part", file, line);
}

void test_error(int code, const char *part, const char *file, int line) {
    test_equal(err_code(), code, "err_code()", file, line);
    test_text(err_text(), part, file, line);
    err_clear();
}

void test_equal(long long got, long long want, const char *what, const char *file, int line) {
    if (got == want) return;
    print_error("%s is %lld, not %lld\n", what, got, want);
    test_failed("got == want", file, line);
}

void test_close(const float *got, const float *want, size_t n, double rtol, double atol, const char *what,
                const char *file, int line) {
    size_t bad = n, worst = 0;
    double worst_excess = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        double excess = fabs((double)got[i] - (double)want[i]) - (atol + rtol * fabs((double)want[i]));
        if (!(excess <= 0) && bad == n) bad = i;
        if (!(excess <= worst_excess)) worst_excess = excess, worst = i;
    }
    if (bad == n) return;
    print_error("%s[%zu] is %.9g, not %.9g; worst [%zu] %.9g, not %.9g\n", what, bad, (double)got[bad],
                (double)want[bad], worst, (double)got[worst], (double)want[worst]);
    test_failed("close", file, line);
}

void write_file(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file)) abort();
}

char *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    char *data = calloc(1, bytes + 1);
    if (!data || fread(data, 1, bytes, file) != bytes) abort();
    fclose(file);
    if (size) *size = bytes;
    return data;
}

// Keeps the tests of the tier and of the part.
static void select_tests(const char *tier, unsigned part, unsigned parts) {
    unsigned in_tier = 0, kept = 0;
    for (unsigned i = 0; i < test_count; i++) {
        if (tier && ((!strcmp(tier, "test") && of_ci[i]) || (!strcmp(tier, "ci") && !of_ci[i]))) continue;
        if (in_tier++ % parts == part - 1) tests[kept++] = tests[i];
    }
    test_count = kept;
}

int main(int argc, char **argv) {
    char filter[256] = "*";
    const char *tier = getenv("TIER");
    unsigned part = 1, parts = 1;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--data") && i + 1 < argc)
            test_data = realpath(argv[++i], NULL);
        else if (!strcmp(argv[i], "--bin") && i + 1 < argc)
            test_bin = realpath(argv[++i], NULL);
        else if (!strcmp(argv[i], "--part") && i + 1 < argc && sscanf(argv[i + 1], "%u/%u", &part, &parts) == 2 &&
                 parts)
            i++;
        else
            tier = NULL, snprintf(filter, sizeof filter, "*%s*", argv[i]);
    }
    if (!test_data || !test_bin || !getcwd(home, sizeof home) || !mkdtemp(scratch)) {
        fprintf(stderr, "test: usage: test --data tests/data --bin FOLDER [WORD]\n");
        return 2;
    }
    run_isa = getenv("MILLRACE_ISA") ? strdup(getenv("MILLRACE_ISA")) : NULL;
    setvbuf(stdout, NULL, _IOLBF, 0); // so that a log ends with the test that crashed
    select_tests(tier, part, parts);
    cmocka_set_test_filter(filter);
    int failed = _cmocka_run_group_tests("millrace", tests, (size_t)test_count, NULL, NULL);
    dir_remove(scratch);
    return failed != 0;
}

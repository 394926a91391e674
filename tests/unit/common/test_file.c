// Files: names, new ones that appear whole, maps that cannot be made or read, locks.
#include "common/file/file.h"
#include "common/file/folder_probe.h"
#include "tests/test.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(path_join_prints_a_name_and_cuts_none) {
    char path[PATH_MAX_BYTES], folder[PATH_MAX_BYTES];
    assert_string_equal(path_join(path, "runs/a", "ckpt-%08d", 7), "runs/a/ckpt-00000007");
    memset(folder, 'a', sizeof folder);
    folder[PATH_MAX_BYTES - 6] = '\0';
    CHECK_EQUAL(strlen(path_join(path, folder, "%s", "name")), PATH_MAX_BYTES - 1);
    for (size_t length = PATH_MAX_BYTES - 5; length < PATH_MAX_BYTES; length++) {
        folder[length - 1] = 'a', folder[length] = '\0';
        const pid_t child = fork();
        if (!child) _exit(path_join(path, folder, "%s", "name") ? 0 : 1);
        int status = -1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == EX_CREATE);
    }
}

TEST(newfile_appears_only_when_it_is_complete) {
    NewFile file;
    CHECK(newfile_open(&file, "shard") == 0);
    CHECK(newfile_write(&file, "abc", 3) == 0);
    CHECK(access("shard", F_OK) < 0);
    CHECK(newfile_commit(&file) == 0);
    size_t size;
    assert_string_equal(read_file("shard", &size), "abc");

    CHECK(newfile_open(&file, "shard") == 0);
    CHECK(newfile_write(&file, "xyz", 3) == 0);
    char temp[PATH_MAX_BYTES];
    snprintf(temp, sizeof temp, "%s", file.temp);
    CHECK(access(temp, F_OK) == 0);
    newfile_abandon(&file);
    CHECK(access(temp, F_OK) < 0);
    assert_string_equal(read_file("shard", &size), "abc");

    CHECK(newfile_open(&file, "no/such/place") < 0);
    CHECK_EQUAL(err_code(), EX_CREATE);
}

TEST(dir_sweep_removes_only_what_dead_processes_left) {
    pid_t dead = fork();
    if (dead == 0) _exit(0);
    waitpid(dead, NULL, 0);
    char name[64], mine[64];
    snprintf(name, sizeof name, ".a.tmp.%d", dead);
    snprintf(mine, sizeof mine, ".a.tmp.%d", getpid());
    write_file(name, "", 0);
    write_file(mine, "", 0);
    write_file("a.tmp.1", "", 0);
    dir_sweep(".", "b");
    CHECK(access(name, F_OK) == 0);
    CHECK(file_write("a", (Bytes){NULL, 0}) == 0); // sweeps, as dir_sweep(".", "a") does
    CHECK(access(name, F_OK) < 0);
    CHECK(access(mine, F_OK) == 0 && access("a.tmp.1", F_OK) == 0);
}

// Lets the calls mmap of one descriptor fail with ENODEV, in this process, for ever.
static int refuse_maps(int fd) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mmap, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[4])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)fd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENODEV),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

// The exit status of `child`, which gets `fd` in a process of its own; 128 + the signal that ended it.
static int status_of(int (*child)(int fd), int fd) {
    int status;
    const pid_t pid = fork();
    if (pid == 0) _exit(child(fd));
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

enum { MAPPED_BYTES = 3000007 };

static bool is_pattern(Bytes map) {
    bool same = map.size == MAPPED_BYTES;
    for (size_t i = 0; same && i < map.size; i++) same = map.data[i] == (uint8_t)(i * 7 + i / 4096);
    return same;
}

static int write_pattern(const char *path) {
    uint8_t *bytes = allocate_zeroed(1, MAPPED_BYTES);
    for (size_t i = 0; i < MAPPED_BYTES; i++) bytes[i] = (uint8_t)(i * 7 + i / 4096);
    write_file(path, bytes, MAPPED_BYTES);
    free(bytes);
    return open(path, O_RDWR);
}

static int read_without_maps(int fd) {
    Bytes map;
    if (refuse_maps(fd)) return 99;
    if (fd_map(&map, fd, "file") < 0 || !is_pattern(map)) return 1;
    if (madvise((void *)(uintptr_t)map.data, map.size, MADV_DONTNEED) || !is_pattern(map)) return 2; // as verify does
    file_unmap(&map);
    return 0;
}

TEST(a_file_that_cannot_be_mapped_is_read_into_memory_whose_pages_can_be_dropped) {
    const int fd = write_pattern("file"), status = status_of(read_without_maps, fd);
    close(fd);
    if (status == 99) SKIP("no seccomp");
    CHECK_EQUAL(status, 0);
}

static int read_truncated(int fd) {
    Bytes map;
    dup2(open("log", O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    if (fd_map(&map, fd, "file") < 0 || ftruncate(fd, 0)) return 1;
    return is_pattern(map);
}

TEST(a_page_of_a_mapped_file_that_cannot_be_read_ends_the_program_with_74_and_its_name) {
    const int fd = write_pattern("file");
    CHECK_EQUAL(status_of(read_truncated, fd), EX_IO);
    close(fd);
    size_t size;
    const char *log = read_file("log", &size);
    CHECK_TEXT(log, "/file': the file was truncated, or its disk failed");
}

TEST(a_folder_that_can_do_everything_lacks_nothing_and_keeps_nothing_of_the_probe) {
    Buffer lacks = {0};
    CHECK(mkdir("folder", 0777) == 0);
    CHECK(folder_probe("folder", PROBE_LINKS | PROBE_LOCKS, &lacks) == 0);
    CHECK_EQUAL(lacks.size, 0);
    CHECK(rmdir("folder") == 0); // it is empty
    CHECK(folder_probe("folder", 0, &lacks) < 0);
    CHECK_ERROR(EX_CREATE, "'folder' cannot hold a run: cannot create 'folder/.probe.tmp.");
    buffer_close(&lacks);
}

// fault 22
TEST(lock_names_the_process_that_holds_it) {
    Lock lock, second;
    CHECK(lock_take(&lock, ".", "another") == 0);
    CHECK(lock_take(&second, ".", "another") < 0);
    CHECK_EQUAL(err_code(), EX_CREATE);
    char pid[32];
    snprintf(pid, sizeof pid, "pid %d", getpid());
    CHECK_TEXT(err_text(), pid);
    CHECK_TEXT(err_text(), "choose another");
    err_clear();
    lock_drop(&lock);
    CHECK(lock_take(&second, ".", "another") == 0);
    lock_drop(&second);
}

TEST(file_read_stops_at_its_limit) {
    write_file("long", "0123456789", 10);
    Buffer buffer = {0};
    CHECK(file_read(&buffer, "long", 10) == 0);
    CHECK_EQUAL(buffer.size, 10);
    CHECK(file_read(&buffer, "long", 9) < 0);
    CHECK_EQUAL(err_code(), EX_DATA);
    buffer_close(&buffer);
}

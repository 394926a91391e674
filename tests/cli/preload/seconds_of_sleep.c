// For LD_PRELOAD: time passes in rank 0's sleep(1) alone, when rank 1 has looked at the clock since the second before:
// `seconds` and `seen` have as many bytes. After 18 of them rank 0 sleeps until there is a file `space`.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static long size_of(const char *path) {
    struct stat status;
    return stat(path, &status) ? 0 : status.st_size;
}
static void set_size(const char *path, long size) {
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    if (ftruncate(fd, size) == 0) close(fd);
}
unsigned sleep(unsigned seconds) {
    while (size_of("seen") < size_of("seconds")) usleep(1000);
    set_size("seconds", size_of("seconds") + 1);
    while (size_of("seconds") == 18 && access("space", F_OK)) usleep(1000);
    return seconds - seconds;
}
int clock_gettime(clockid_t id, struct timespec *t) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    const int result = (int)syscall(SYS_clock_gettime, id, t);
    if (id != CLOCK_MONOTONIC) return result;
    const long seconds = size_of("seconds");
    t->tv_sec += seconds;
    if (rank && *rank == '1' && getpid() == syscall(SYS_gettid) && size_of("seen") < seconds) set_size("seen", seconds);
    return result;
}

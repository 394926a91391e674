// kill_at NUMBER COMMAND...: kills COMMAND before the NUMBER-th system call CALL (SYS_..., of -DCALL) of one of its
// threads, or of a process that it has started; exits as COMMAND does, with 137 when it was killed. With BEFORE, it
// runs that instead. A filter stops the threads at CALL alone: strace would stop them at all calls, because a signal
// that it injects under its filter is lost.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int run(char **command) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CALL, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 126;
    execvp(*command, command);
    return 127;
}

int main(int argc, char **argv) {
    static unsigned short calls[1 << 22]; // of each thread, by its id
    const long follow = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK;
    const char *const before = getenv("BEFORE");
    int seized[2], status, result = 126;
    char byte;
    if (argc < 3 || pipe2(seized, O_CLOEXEC)) return 126;
    const pid_t command = fork();
    if (!command) _exit(!close(seized[1]) && read(seized[0], &byte, 1) == 1 ? run(argv + 2) : 126);
    if (ptrace(PTRACE_SEIZE, command, NULL, follow) || write(seized[1], "", 1) != 1) return 126;
    for (pid_t thread; (thread = waitpid(-1, &status, __WALL)) > 0;) {
        const int event = status >> 16;
        if (WIFSTOPPED(status)) {
            if (event == PTRACE_EVENT_SECCOMP && ++calls[thread] == atoi(argv[1]) && (!before || system(before)))
                kill(thread, SIGKILL);
            ptrace(PTRACE_CONT, thread, NULL, event ? 0 : (long)WSTOPSIG(status));
        } else if (thread == command) {
            result = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        }
    }
    return result;
}

// trainer: trains a GPT.
#include "common/bytes.h"
#include "common/cli/cli.h"
#include "common/cli/commands.h"
#include "common/err.h"
#include "common/log.h"
#include "common/machine/launch.h"
#include "common/machine/processors.h"
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DECLARE(name) extern const Command trainer_##name;
TRAINER_COMMANDS(DECLARE)

// Appends a word of a command line as a shell reads it.
static void print_word(Buffer *line, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=:,+@%-";
    const bool quoted = !*word || word[strspn(word, plain)];
    buffer_print(line, quoted ? " '" : " ");
    for (; *word; word++) buffer_print(line, *word == '\'' ? "'\\''" : "%c", *word);
    if (quoted) buffer_print(line, "'");
}

// The processes of PyTorch's torchrun have no MPI, with which ranks exchange gradients. Rank 0 prints the error.
static int refuse_torchrun(char **argv, const Launch *launch) {
    Buffer line = {0};
    if (launch->rank) return EX_USAGE;
    buffer_print(&line, "the %u processes of torchrun have no MPI: type `mpirun -n %u", launch->world, launch->world);
    for (; *argv; argv++) print_word(&line, *argv);
    buffer_print(&line, "` (on several machines, add -H HOST:COUNT,...)");
    buffer_add(&line, "", 1);
    log_error("train", (const char *)line.data);
    buffer_close(&line);
    return EX_USAGE;
}

// Under a launcher, rank 0 alone runs a command other than train. Returns an exit code for the processes that end here,
// else -1.
static int run_once(char **argv, bool trains) {
    Launch launch;
    if (launch_find(&launch) < 0) return err_clear(), -1; // the command reports it
    if (trains && launch.world > 1 && !strcmp(launch.launcher, LAUNCH_TORCHRUN)) return refuse_torchrun(argv, &launch);
    unsigned tasks = 1;
    if (trains && launch.world == 1 && launch_number("SLURM_NTASKS", &tasks) > 0 && tasks > 1)
        log_warn(
            "this Slurm job has %u tasks, and this process trains alone: type `srun --mpi=pmix` before its command",
            tasks);
    err_clear();
    if (trains || !launch.rank) return -1;
    log_line("'%s' runs once, in rank 0: rank %u of the %u processes of %s ends here", argv[1], launch.rank,
             launch.world, launch.launcher);
    return EX_DONE;
}

// Commands that open a device.
#define COMPUTE "train plan eval sample replay doctor"

static const ManualRow environment[] = {
    {"CUDA_HOME, CUDA_PATH", "folders of a CUDA toolkit, whose lib64 may have cuBLASLt", COMPUTE},
    {"CUDA_VISIBLE_DEVICES", "the GPUs that the program may use, as for every program with CUDA", COMPUTE},
    {"LD_LIBRARY_PATH", "folders that are searched for cuBLASLt, NCCL and MPI before pip's and the system's", COMPUTE},
    {"MILLRACE_ISA", "portable, avx2 or avx512: use no instruction set beyond this one", COMPUTE},
    {"MILLRACE_LOANS", "0: the threads of a step lend each other no processors", COMPUTE},
    {"MILLRACE_MODELS", "folder of models, in which init_from looks for a name", COMPUTE},
    {"OMP_NUM_THREADS", "threads of a training step, if the key threads is 0", COMPUTE},
    {"PMIX_RANK",
     "set by srun --mpi=pmix and by launchers of Open MPI: without it and PMI_RANK processes of srun are refused",
     "train"},
    {"PMI_RANK", "set by mpiexec of MPICH and by srun with its plug-in", "train"},
    {"SLURM_JOB_END_TIME", "when the job ends, in seconds since 1970, which Slurm sets: for until=job", "train"},
    {"TMPDIR", "folder, in place of /tmp, of millrace-UID/; not if its path has more than 32 bytes", "train eval"},
    {"XDG_CACHE_HOME", "folder, in place of ~/.cache, of millrace/, which keeps the measurements of a GPU", COMPUTE},
    {NULL, NULL, NULL},
};
static const ManualRow signals[] = {
    {"SIGINT, SIGTERM, SIGUSR1, SIGHUP",
     "train saves after the current step, or stops in the phase before or after the steps, and ends with 75; the same "
     "command resumes the run",
     "train"},
    {"SIGINT, the second", "train ends with 130, without a save", "train"},
    {NULL, NULL, NULL},
};
static const ManualRow files[] = {
    {"OUT_DIR/ckpt-00000020", "the checkpoint after step 20: model.safetensors, config.json and the state of the run",
     "train"},
    {"OUT_DIR/metrics.jsonl", "a line for each logged step and each evaluation", "train"},
    {"OUT_DIR/report.html", "a page of the run: curves, samples, data, plan and configuration", "train"},
    {"~/.cache/millrace", "algorithms that were chosen by measurement on each kind of GPU", "train eval sample"},
    {"/tmp/millrace-UID", "the sockets of loaders that trainers started", "train eval"},
    {NULL, NULL, NULL},
};
static const ManualRow descriptions[] = {
    {"train",
     "A directory that holds a run is resumed from its newest checkpoint, and the result equals an undisturbed run "
     "bit for bit. Nothing is allocated after the start: a run that does not fit is refused with settings that do. "
     "The loss of a model that has learned nothing is the logarithm of the size of the vocabulary, 10.8 for GPT-2's.",
     NULL},
    {"plan",
     "The plan lists every buffer of the one allocation, the time of the run, and the memory of other levels of "
     "recompute and sizes of a micro-batch. Nothing is allocated, and no GPU is needed. 83 or 82: it does not fit. The "
     "dataset is checked and refused as by train.",
     NULL},
    {"replay",
     "The training loop computes the steps, from the last kept checkpoint before them or else from the initial "
     "weights. Every line of metrics.jsonl and every kept checkpoint is compared, bit for bit, times excepted. "
     "Nothing is written. 0: all is equal; 1: the first step that differs; 65: a part is damaged; 66: one is missing. "
     "--check computes segments of a receipt again that somebody else has written with --receipt. 65: one is refused.",
     NULL},
    {"which",
     "The dataset is found by its fingerprint: the run's, or one that follows RUN. A mixture is named "
     "by all its datasets with their weights. Manifests and document indexes are read, and no token is decoded.",
     NULL},
    {"doctor",
     "DIR names the directory of a run, and CONFIG a configuration, whose model then sizes the checkpoints. Without "
     "CONFIG the configuration comes from the newest checkpoint in DIR, of which every byte is checked.",
     NULL},
    {NULL, NULL, NULL},
};
static const ManualRow output[] = {
    {"step", "the step of the newest checkpoint, from which the run would resume", "status"},
    {"max_iters", "the last step of the run in the configuration of that checkpoint", "status"},
    {"last_step", "the last step that was trained; the steps after the checkpoint are repeated after a kill", "status"},
    {"evaluated_step", "the step of the last evaluation", "status"},
    {"val_loss, val_bpb, ema_val_loss",
     "the losses of the last evaluation; val_bpb in bits per byte, ema_val_loss of the averaged weights, with ema",
     "status"},
    {"best_val_loss, best_step",
     "the lowest loss that the checkpoint has, of the evaluations since best_since, and its step; the last evaluation "
     "may be lower, if a kill came before its save",
     "status"},
    {"best_since", "the step of the first of these evaluations, which have all read the same tokens", "status"},
    {"tokens", "the training data up to step", "status"},
    {"evaluated_epochs", "how often the run had seen its dataset at evaluated_step", "status"},
    {"tokens_per_s", "the median of the last 100 steps or fewer, without evaluations and saves", "status"},
    {"until", "the time at which a run with this key is to be finished; until_at: in seconds since 1970", "status"},
    {"gpu_used, gpu_free, gpu_busy",
     "memory and use of the GPU by all processes at the last step that was logged, if the driver has NVML", "status"},
    {"processor_lost",
     "the share of the usable time in which other programs had the processor, in the last 32 steps, if above 20 %",
     "status"},
    {NULL, NULL, NULL},
};
static const ManualRow examples[] = {
    {"plan small.conf", "prints the memory that a run needs", NULL},
    {"doctor run small.conf", "prints problems that would stop this run on this machine", NULL},
    {"train small.conf --dataset=data --out_dir=run", "trains a model, or resumes the run in out_dir", NULL},
    {"status run", "prints progress and losses", NULL},
    {"report -o runs.html run", "writes a page of curves; of several runs, beside each other", NULL},
    {"replay run --steps=3..20", "computes these steps again and compares all bits", NULL},
    {"replay --receipt receipt.json run", "writes a claim about the run that others can check", NULL},
    {"replay --check receipt.json --segments=1 --seed=271828 run", "computes one segment of it again", NULL},
    {"which run --steps=20", "prints which tokens of which documents the step was trained on", NULL},
    {"eval --dataset=data --out_dir=run", "prints the loss of the newest checkpoint", NULL},
    {"sample --out_dir=run --start='The mill' --max_new_tokens=20", "prints text that begins with a prompt", NULL},
    {"export --out_dir=run -o model", "writes a model that transformers reads", NULL},
    {"import --vocabulary meta.pkl -o imported ckpt.pt", "makes a model for init_from from a checkpoint of nanoGPT",
     NULL},
    {NULL, NULL, NULL},
};

// A scheduler's SIGUSR1 must not end a run that has just started: it is blocked before the constructors of libraries,
// which take milliseconds, until train waits for signals. The runtime of a sanitizer may start later.
__attribute__((no_sanitize("address", "thread", "undefined"))) static void hold_usr1(void) {
    const uint64_t usr1 = UINT64_C(1) << (SIGUSR1 - 1);
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &usr1, NULL, sizeof usr1);
}
__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = hold_usr1;

static void release_usr1(void) {
    sigset_t usr1;
    sigemptyset(&usr1), sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_UNBLOCK, &usr1, NULL);
}

int main(int argc, char **argv) {
    signal(SIGXFSZ, SIG_IGN); // a write beyond `ulimit -f` is an error with a message
    processors_restore();
    const bool trains = argc > 1 && !strcmp(argv[1], "train");
    if (!trains) release_usr1();
#define ROW(name) &trainer_##name,
    static const Command *const commands[] = {TRAINER_COMMANDS(ROW) NULL};
    static const Program program = {
        .name = "trainer",
        .installed = "millrace-trainer",
        .summary = "trains a GPT within a memory plan that is made before it starts",
        .commands = commands,
        .environment = environment,
        .signals = signals,
        .files = files,
        .descriptions = descriptions,
        .output = output,
        .examples = examples,
        .see_also = "shardtool(1), millrace-loader(1)",
    };
    cli_set_name(&program, argc > 0 ? argv[0] : NULL);
    const int status = argc > 1 ? run_once(argv, trains) : -1;
    return status < 0 ? cli_main(&program, argc, argv) : status;
}

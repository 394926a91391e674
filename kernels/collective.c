// Chooses the row for the launcher that started this process. Each row is a shared object beside the programs, which is
// loaded only here, so the programs start where its library is not installed.
#include "kernels/collective.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/machine/launch.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const CollectiveRow none = {.name = "none"};
Collective collective_none = {.row = &none, .world = 1};

// The first row that serves the launcher, and whose object and library are there, is taken. NAME.so in one of `folders`
// has the CollectiveRow collective_NAME.
typedef struct {
    const char *launcher; // NULL: any
    const char *name;
    const char *library; // that it needs; pip installs it in the folder lib of its environment
} Library;
static const Library libraries[] = {
    {"mpiexec", "mpi_abi", "libmpi_abi.so.1"}, // the standard ABI of MPI 5: MPICH 5, Intel MPI
    {NULL, "mpi", "libmpi.so.40"},             // of the MPI of the build, in packages Open MPI
};
enum { LIBRARIES = sizeof libraries / sizeof *libraries, WHY = 1024 };
#define PACKAGE "libopenmpi-dev" // must be installed when millrace is built

// From the folder of this program. A wheel has its objects in the first, because `pip install --target` leaves out lib.
static const char *const folders[] = {"../libexec/millrace", "../lib/millrace"};

// Sets the path of its shared object. 1: it is there, 0: it is not, -1 after fail().
static int find_object(const Library *library, char path[PATH_MAX_BYTES]) {
    char name[64];
    bool found = false;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !found; i++) {
        snprintf(name, sizeof name, "%s/%s.so", folders[i], library->name);
        if (program_path(path, name) < 0) return -1;
        found = access(path, F_OK) == 0;
    }
    return found;
}

// Loads the object of a row, with the library that the system finds, else with that of the environment. NULL: adds the
// reason to `why`, if the object is there.
static void *open_object(const Library *library, int scope, char why[WHY]) {
    char path[PATH_MAX_BYTES], near[PATH_MAX_BYTES], name[64];
    const size_t used = strlen(why);
    if (find_object(library, path) <= 0) return err_clear(), NULL;
    void *object = dlopen(path, RTLD_NOW | scope);
    if (object) return object;
    snprintf(why + used, WHY - used, "%s%s", used ? "; " : "", dlerror());
    snprintf(name, sizeof name, "../lib/%s", library->library);
    if (program_path(near, name) < 0) return err_clear(), NULL;
    return dlopen(near, RTLD_NOW | scope) ? dlopen(path, RTLD_NOW | scope) : NULL;
}

static void describe_missing(char *text, size_t size, const char *needed) {
    char path[PATH_MAX_BYTES];
    if (find_object(&libraries[LIBRARIES - 1], path) < 0) err_clear(), snprintf(path, sizeof path, "mpi.so");
    snprintf(text, size, "'%s' is missing%s: it is built where " PACKAGE " is installed", path, needed);
}

// The name and version of the library of an object, and its file.
static void name_library(void *object, char *text, size_t size) {
    enum { VERSION_BYTES = 8192 }; // MPICH's MPI_MAX_LIBRARY_VERSION_STRING, the longest
    static char version[VERSION_BYTES];
    int length = 0;
    Dl_info place;
    void *address = dlsym(object, "MPI_Get_library_version");
    snprintf(text, size, "MPI");
    if (!address || !dladdr(address, &place)) return;
    ((int (*)(char *, int *))address)(version, &length);
    snprintf(text, size, "%.*s, '%s'", (int)strcspn(version, ",\n"), version, place.dli_fname);
}

void collective_library(char *text, size_t size) {
    char why[WHY] = "";
    *text = 0;
    for (int i = 0; i < LIBRARIES; i++) {
        void *object = open_object(&libraries[i], RTLD_LOCAL, why);
        const size_t used = strlen(text);
        if (object && used) snprintf(text + used, size - used, "; ");
        if (object) name_library(object, text + strlen(text), size - strlen(text));
    }
    if (*text) return;
    if (*why)
        snprintf(text, size, "%s; runs of several processes need it: install openmpi-bin", why);
    else
        describe_missing(text, size, "; runs of several processes need it");
}

static const CollectiveRow *load_row(const Launch *launch, char name[WHY], char why[WHY]) {
    char path[PATH_MAX_BYTES], missing[PATH_MAX_BYTES + WHY];
    for (int i = 0; i < LIBRARIES; i++) {
        if (libraries[i].launcher && strcmp(libraries[i].launcher, launch->launcher)) continue;
        void *object =
            open_object(&libraries[i], RTLD_GLOBAL, why); // global: Open MPI loads modules that need its symbols
        if (!object) continue;
        name_library(object, name, WHY);
        snprintf(path, sizeof path, "collective_%s", libraries[i].name);
        const CollectiveRow *row = dlsym(object, path);
        if (!row) fail(EX_USAGE, "cannot load MPI: %s", dlerror());
        return row;
    }
    if (*why)
        fail(EX_USAGE, "cannot load MPI: %s", why);
    else
        describe_missing(missing, sizeof missing, ""),
            fail(EX_USAGE, "%s started %u processes, and %s", launch->launcher, launch->world, missing);
    return NULL;
}

int collective_open(Collective *collective, const CollectiveSettings *settings) {
    Launch launch;
    char why[COLLECTIVE_WHY] = "";
    *collective = collective_none;
    if (launch_find(&launch) < 0) return -1;
    if (launch.world == 1) return 0;
    if (!strcmp(launch.launcher, "srun") && !getenv("PMIX_RANK") &&
        !getenv("PMI_RANK")) // MPI_Init would end the process
        return fail(EX_USAGE, "srun passes no PMIx to its %u processes, by which MPI joins them: type srun --mpi=pmix",
                    launch.world);
    char name[WHY] = "", missed[WHY] = "";
    const CollectiveRow *row = load_row(&launch, name, missed);
    if (!row) return -1;
    RankPlace place;
    if (row->open(settings, &place, why) < 0) return fail(EX_USAGE, "%s: %s", name, why);
    if (place.world > COLLECTIVE_RANKS)
        return fail(EX_USAGE, "%u processes are more than %d", place.world, COLLECTIVE_RANKS);
    if (place.world != launch.world)
        return fail(EX_USAGE,
                    "%s started %u processes, and %s joins %u%s%s%s: start them by the mpirun of that MPI, by srun "
                    "--mpi=pmix, or by the mpiexec of an MPI whose libmpi_abi.so.1 is in LD_LIBRARY_PATH",
                    launch.launcher, launch.world, name, place.world, *missed ? " (" : "", missed, *missed ? ")" : "");
    *collective = (Collective){.row = row,
                               .rank = place.rank,
                               .world = place.world,
                               .local_first = place.local_first,
                               .local = place.local,
                               .local_world = place.local_world};
    return 0;
}

static void close_device(Collective *collective) {
    if (collective->device) collective->device->close();
    collective->device = NULL;
}

void collective_close(Collective *collective, bool by_signal) {
    if (!collective->row || collective->world == 1) return;
    Error cause;
    err_take(&cause);
    const bool settled = collective_settle(collective) == 0;
    const bool together = settled && collective_barrier(collective) == 0; // then no rank needs this one's part any more
    close_device(collective);
    if (together && !by_signal) collective->row->close();
    err_clear();
    err_give(&cause);
    *collective = collective_none;
}

// Ends a call: the first failure makes the others fail at once, and ends the waits of the device.
static int finish(Collective *collective, int status, const char *why) {
    if (status == 0) return 0;
    collective->lost = true;
    if (!err_code()) fail(EX_AGAIN, "stopped: %s", why);
    close_device(collective);
    return -1;
}

// With a pending error of its own, a row leaves `why` empty.
#define CALL_ON(given, function, ...)                                                                                  \
    char why[COLLECTIVE_WHY] = "";                                                                                     \
    if (collective->world == 1) return 0;                                                                              \
    if (collective->lost) return fail(EX_AGAIN, "stopped: a process of this run was lost");                            \
    return finish(collective, (given)->function(__VA_ARGS__), why)
#define CALL(function, ...) CALL_ON(collective->row, function, __VA_ARGS__)

// ---- memory of the backend

int collective_load(Collective *collective, const DeviceCollectiveRow *row) {
    uint8_t card[COLLECTIVE_CARD];
    collective->device = NULL;
    if (collective->world == 1 || !row) return 0;
    if (row->load(card) < 0) return -1;
    collective->device = row;
    return 0;
}

// The GPU of each rank, zeros for a rank without a GPU.
typedef struct {
    uint8_t has, card[COLLECTIVE_CARD];
} Card;

// All ranks have a GPU of their own, or none has one.
static int compare_cards(const Card *cards, unsigned world) {
    for (unsigned rank = 1; rank < world; rank++) {
        if (cards[rank].has != cards[0].has)
            return fail(EX_USAGE, "rank %u trains on %s, rank 0 on %s: set device=cuda or device=cpu", rank,
                        cards[rank].has ? "a GPU" : "the CPU", cards[0].has ? "a GPU" : "the CPU");
        for (unsigned other = 0; cards[0].has && other < rank; other++)
            if (!memcmp(&cards[rank], &cards[other], sizeof *cards))
                return fail(EX_USAGE,
                            "ranks %u and %u have the same GPU: start one process for each GPU of a machine, with "
                            "device=cuda",
                            other, rank);
    }
    return 0;
}

int collective_open_device(Collective *collective) {
    if (collective->world == 1) return 0;
    const DeviceCollectiveRow *row = collective->device;
    Card cards[COLLECTIVE_RANKS], *own = &cards[collective->rank];
    uint8_t id[COLLECTIVE_ID] = {0};
    collective->device = NULL; // until it is open
    *own = (Card){.has = row != NULL};
    if (row && row->load(own->card) < 0) return finish(collective, -1, "");
    if (collective_all_gather(collective, cards, collective->world * sizeof *cards, sizeof *cards) < 0) return -1;
    if (compare_cards(cards, collective->world) < 0) return -1;
    if (!row) return 0;
    if (collective->rank == 0 && row->make_id(id) < 0) return finish(collective, -1, "");
    if (collective_broadcast(collective, id, sizeof id) < 0) return -1;
    collective->device = row;
    return finish(collective, row->open(collective, id), "");
}

int collective_begin_reduce_scatter(Collective *collective, float *values, size_t count, size_t share, bool bf16) {
    const OrderedSum sum = {.ranks = collective->world, .after = values + collective->rank * share, .bf16 = bf16};
    if (!collective->device || bf16) return collective_begin_ordered_sum(collective, values, count, share, &sum);
    CALL_ON(collective->device, reduce_scatter, collective, values, count, share);
}

int collective_begin_ordered_sum(Collective *collective, float *values, size_t count, size_t share,
                                 const OrderedSum *sum) {
    if (!collective->device) {
        CALL(ordered_sum, values, count, share, sum, why);
    }
    CALL_ON(collective->device, ordered_sum, collective, values, count, share, sum);
}

int collective_begin_all_gather(Collective *collective, void *values, size_t bytes, size_t share) {
    if (!collective->device) return collective_all_gather(collective, values, bytes, share);
    CALL_ON(collective->device, all_gather, collective, values, bytes, share);
}

int collective_finish(Collective *collective) {
    if (collective->lost) return -1;
    if (collective->device) collective->device->finish();
    return 0;
}

void collective_mark(Collective *collective, int place) {
    if (collective->device && !collective->lost) collective->device->mark(place);
}

void collective_defer(Collective *collective) {
    if (!collective->device || collective->lost) return;
    collective->device->defer();
    collective->deferred = true;
}

void collective_await(Collective *collective, int place) {
    if (collective->deferred && !collective->lost) collective->device->await(place);
}

void collective_await_all(Collective *collective) {
    collective_await(collective, -1);
    collective->deferred = false;
}

int collective_settle(Collective *collective) {
    if (!collective->deferred) return 0;
    collective_await_all(collective);
    return collective_wait(collective);
}

int collective_wait(Collective *collective) {
    if (!collective->device) return collective->lost ? -1 : 0;
    CALL_ON(collective->device, wait, collective);
}

// ---- host memory

int collective_all_gather(Collective *collective, void *values, size_t bytes, size_t share) {
    CALL(all_gather, values, bytes, share, why);
}

int collective_all_reduce(Collective *collective, double *values, int count) {
    double all[COLLECTIVE_DOUBLES * COLLECTIVE_RANKS];
    const size_t share = (size_t)count * sizeof *values;
    if (collective->world == 1) return 0;
    double *mine = all + collective->rank * (size_t)count;
    memcpy(mine, values, share);
    if (collective_all_gather(collective, all, collective->world * share, share) < 0) return -1;
    for (int i = 0; i < count; i++) {
        values[i] = 0;
        for (unsigned rank = 0; rank < collective->world; rank++) values[i] += all[rank * (size_t)count + (size_t)i];
    }
    return 0;
}

int collective_broadcast(Collective *collective, void *values, size_t bytes) { CALL(broadcast, values, bytes, why); }
int collective_barrier(Collective *collective) { CALL(barrier, why); }
int collective_check_ended(Collective *collective) { CALL(check, 0, why); }

uint64_t collective_sent(const Collective *collective) {
    if (collective->world == 1) return 0;
    return collective->row->sent() + (collective->device ? collective->device->sent() : 0);
}

int collective_check(const Collective *collective, uint64_t waited_ms) {
    char why[COLLECTIVE_WHY] = "";
    if (collective->row->check(waited_ms, why) == 0) return 0;
    return err_code() ? -1 : fail(EX_AGAIN, "stopped: %s", why);
}

// loader reweight: changes the weights of a mixture that a running loader serves.
#include "common/cli/cli.h"
#include "common/err.h"
#include "loader/client/control.h"
#include "loader/protocol/mixture.h"

static const char *address, *key_file;
static uint64_t from_sample;

static const Option options[] = {
    {OPT_STRING, "endpoint", &address, "ENDPOINT", "where the loader is, as in serve"},
    {OPT_STRING, "key", &key_file, "FILE", "the loader's own key pair, for a loader with keys"},
    {OPT_SIZE, "from", &from_sample, "SAMPLE",
     "the first sample with the new weights; 0: soon after the last one that trainers have requested"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

static int run(int count, char **arguments) {
    Buffer words = {0};
    if (count < 2 || count > MIXTURE_SOURCES_MAX)
        return fail(EX_USAGE, "reweight needs a WEIGHT argument for each dataset of the mixture, 2 to %d",
                    MIXTURE_SOURCES_MAX);
    if (from_sample >> WIRE_SAMPLE_MAX_BITS) return fail(EX_USAGE, "--from is too large");
    for (int i = 0; i < count; i++) buffer_add(&words, arguments[i], strlen(arguments[i]) + 1);
    WireControl control = {.action = WIRE_REWEIGHT, .words = (uint32_t)count, .from_sample = from_sample};
    int status = control_send(address, key_file, &control, &words);
    buffer_close(&words);
    return status;
}

const Command loader_reweight = {
    "reweight", "WEIGHT...", "change the weights of the mixture that a running loader serves", options, run, NULL};

// trainer replay: computes steps of a run again and compares them.
#include "common/cli/cli.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/machine/launch.h"
#include "trainer/audit/receipt.h"
#include "trainer/audit/replay.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char *steps = "", *receipt = "", *check = "", *seed = "";
static uint64_t segments;
static const Option options[] = {
    {OPT_STRING, "steps", &steps, "A..B", "the steps, from 1 on; without it all"},
    {OPT_STRING, "receipt", &receipt, "FILE", "write a receipt of the run, and compute nothing"},
    {OPT_STRING, "check", &check, "FILE", "compute segments of this receipt again"},
    {OPT_SIZE, "segments", &segments, "K", "with --check: draw K segments; 0 = all"},
    {OPT_STRING, "seed", &seed, "SEED", "with --segments: seed of the draw, chosen after the receipt was published"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

enum { ALL, RECEIPT, CHECK };
static const char *const modes[] = {"without --receipt and --check", "with --receipt", "with --check"};
static const OptionModes option_modes[] = {
    {"steps", 1 << ALL},
    {"segments seed", 1 << CHECK},
    {"receipt", 1 << RECEIPT},
    {NULL, 0},
};

static int parse_seed(uint64_t *number) {
    Bytes text = bytes_of_text(seed);
    *number = 0;
    if (!segments && !*seed) return 0;
    if (segments && bytes_take_number(&text, number) && !text.size) return 0;
    return fail(EX_USAGE,
                segments ? "--seed is '%s': --segments needs a number that you choose after the receipt was "
                           "published, of at most 18 digits"
                         : "--seed=%s draws segments: name their number, --segments=K",
                seed);
}

static int parse_steps(ReplayResult *result) {
    char *end;
    if (!*steps) return 0;
    result->first = result->last = strtoull(steps, &end, 10);
    if (end[0] == '.' && end[1] == '.') result->last = strtoull(end + 2, &end, 10);
    if (!*end && *steps >= '0' && *steps <= '9' && result->first && result->first <= result->last) return 0;
    return fail(EX_USAGE, "--steps is '%s', not A..B with 1 <= A <= B", steps);
}

static int run(int count, char **arguments) {
    ConfigReader reader;
    ReplayResult result = {0};
    char link[65];
    if (count < 1) return fail(EX_USAGE, "expected the run directory");
    launch_forget(); // the training loop would wait for ranks that have ended
    uint64_t draw;
    if (cli_check_mode(option_modes, modes, *check ? CHECK : *receipt ? RECEIPT : ALL) < 0) return -1;
    if (*receipt && count > 1) return fail(EX_USAGE, "expected the run directory alone");
    if (*receipt) return receipt_write(receipt, arguments[0]);
    if (*check && parse_seed(&draw) < 0) return -1;
    if (*check) return receipt_check(check, arguments[0], segments, draw, count - 1, arguments + 1);
    int status = parse_steps(&result);
    if (status < 0 || config_read(&reader, 0, NULL) < 0) return -1;
    status = replay(&result, arguments[0], &reader, count - 1, arguments + 1);
    config_close(&reader);
    if (status < 0) return -1;
    hex_encode(link, result.link, 32);
    char from[64] = "the initial weights";
    if (result.from) snprintf(from, sizeof from, "the checkpoint of step %" PRIu64, result.from);
    printf("steps %" PRIu64 " to %" PRIu64 " are equal, and %u checkpoint%s; computed from %s\nchain %s%s\n",
           result.first, result.last, result.checkpoints, PLURAL(result.checkpoints), from, link,
           result.rule ? "" : ", by rule 1 of chains");
    return 0;
}

const Command trainer_replay = {"replay",
                                "RUN [DIR...] [--key=value...]",
                                "compute steps of a run again and compare losses, norms, chain and checkpoints",
                                options,
                                run,
                                &config_options};

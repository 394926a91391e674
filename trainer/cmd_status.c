// trainer status: the progress of a run.
#include "common/err.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/trainer_commands.h"
#include <math.h>
#include <stdio.h>

static bool json;
static const Option options[] = {
    {OPT_FLAG, "json", &json, NULL, "print one JSON object"},
    {OPT_END,  NULL,   NULL,  NULL, NULL                   },
};

static void print_loss(const char *name, double loss) {
    if (json && isfinite(loss))
        printf(", \"%s\": %.9g", name, loss);
    else if (json)
        printf(", \"%s\": null", name);
    else if (isfinite(loss))
        printf("%-22s %.4f\n", name, loss);
}

static int run(int count, char **arguments) {
    char path[PATH_MAX_BYTES];
    RunState state;
    if (count != 1) return fail(EX_USAGE, "expected one argument, the run directory");
    int found = checkpoint_newest(arguments[0], path, &state);
    if (found < 0) return -1;
    if (!found) return fail(EX_NOINPUT, "there is no checkpoint in '%s'", arguments[0]);
    if (json)
        printf("{\"step\": %llu", (unsigned long long)state.step);
    else
        printf("%-22s %llu\n", "step", (unsigned long long)state.step);
    print_loss("val_loss_before", state.first_loss);
    print_loss("val_loss", state.last_loss);
    print_loss("best_val_loss", state.best_loss);
    if (json)
        printf("}\n");
    else
        printf("%-22s %s\n", "checkpoint", path);
    return 0;
}

const Command trainer_status = {"status", "RUN", "step and losses of a run, from its newest checkpoint",
                                options,  run,   NULL};

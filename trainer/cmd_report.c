// trainer report: one page about several runs.
#include "common/cli/cli.h"
#include "common/err.h"
#include "common/file/file.h"
#include "trainer/records/comparison.h"
#include <stdio.h>
#include <string.h>

static const char *path = "runs.html";
static const Option options[] = {
    {OPT_STRING, "o,output", &path, "FILE", "the page (default: runs.html)"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

static int run(int count, char **arguments) {
    if (!count) return fail(EX_USAGE, "expected run directories");
    if (path_ends(path, ".png") || path_ends(path, ".svg") || path_ends(path, ".pdf") || path_ends(path, ".json"))
        return fail(EX_USAGE, "'%s': report writes a page of HTML, with the curves as SVG in it: -o %.*s.html", path,
                    (int)(strrchr(path, '.') - path), path);
    Buffer tables = {0};
    const int result = comparison_write(path, arguments, count, &tables);
    if (result == 0) printf("%.*s%s\n", (int)tables.size, (const char *)tables.data, path);
    buffer_close(&tables);
    return result;
}

const Command trainer_report = {
    "report", "RUN...", "compare runs: curves, different keys; of two runs also items and samples", options, run, NULL};

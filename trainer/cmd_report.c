// trainer report: one page about several runs, or about datasets.
#include "common/cli/cli.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/log.h"
#include "dataset/dataset.h"
#include "trainer/records/comparison.h"
#include "trainer/records/dataset_page.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *path = "runs.html";
static const Option options[] = {
    {OPT_STRING, "o,output", &path, "FILE", "the page (default: runs.html)"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

static int run(int count, char **arguments) {
    if (!count) return fail(EX_USAGE, "expected directories of runs or of datasets");
    if (path_ends(path, ".png") || path_ends(path, ".svg") || path_ends(path, ".pdf") || path_ends(path, ".json"))
        return fail(EX_USAGE, "'%s': report writes a page of HTML, with the curves as SVG in it: -o %.*s.html", path,
                    (int)(strrchr(path, '.') - path), path);
    if (!strcmp(path, "-"))
        return fail(EX_USAGE, "report writes a page to a file, not to standard output: -o runs.html");
    int datasets = 0;
    for (int i = 0; i < count; i++) {
        const bool is_dataset = dataset_is(arguments[i]) || dataset_is_unfinished(arguments[i]);
        if (!is_dataset && access(arguments[i], F_OK) < 0) return fail_errno("cannot open '%s'", arguments[i]);
        datasets += is_dataset;
    }
    if (datasets && datasets < count) return fail(EX_USAGE, "report is about runs or about datasets, not both");
    Buffer tables = {0};
    const int result =
        datasets ? dataset_page_write(path, arguments, count) : comparison_write(path, arguments, count, &tables);
    if (result == 0 && !log_quiet) printf("%.*s%s\n", (int)tables.size, (const char *)tables.data, path);
    buffer_close(&tables);
    return result;
}

const Command trainer_report = {"report",
                                "RUN...|DATASET...",
                                "a page that compares runs (of two also items and samples), or shows datasets",
                                options,
                                run,
                                NULL};

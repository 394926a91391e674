// A text that describes a machine and a run, to attach to a report of a bug: versions and hashes of the programs,
// system, processor, cards and driver, the dataset, the configuration, the plan, and the end of metrics.jsonl. It holds
// nothing of the environment; the names of the user and of the machine, the home folder, and endpoints are replaced.
#pragma once

#include "common/bytes.h"
#include "trainer/config/config.h"

// Adds the report to `out`. `reader` holds the configuration as given, of which the model of a checkpoint is resolved
// here; `checks`: lines of trainer doctor. A fact that cannot be found is replaced by the error.
void bug_report_add(Buffer *out, ConfigReader *reader, Bytes checks);

// Replaces `name` by `by` wherever it is not a part of a longer word of letters and digits; a name of one letter stays.
void bug_report_hide(Buffer *text, const char *name, const char *by);

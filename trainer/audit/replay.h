// A replay: steps of a run are computed again, by the engine that trains, and every line and checkpoint that the run
// has of them is compared, bit for bit.
#pragma once

#include "trainer/audit/record.h"
#include "trainer/config/config.h"

typedef struct {
    uint64_t first, last; // the steps
    uint64_t from;        // the checkpoint that it begins with; 0: the initial weights
    unsigned checkpoints; // that were compared
    uint8_t link[32];     // of the last step
    uint64_t rule;        // of the chain: CHAIN_RULE, or 0
    uint64_t compared;    // the step of the last of these checkpoints
    bool segment;         // of a receipt: 2 on another machine than the run's; later lines may be missing
} ReplayResult;

// Replays steps result->first to result->last of the run in `directory` (0: from its first, to its last). Keys that the
// reader has set replace the run's; the datasets are found among `paths` and the run's, by fingerprint. 0 when all is
// equal; -1 after fail(): 1 with the first difference, 2 with it if another machine made the steps, 65 for damaged
// parts, 66 for missing ones.
int replay(ReplayResult *result, const char *directory, ConfigReader *reader, int path_count, char **paths);

// -1 (2) when this program, in one process, does not compute the bits of a process. fast: its order of sums.
int replay_check_process(const RecordLine *process, bool fast);
// -1 (2) when no replay goes on from the steps of a process to those of the next one.
int replay_check_change(const Record *record, const RecordLine *before, const RecordLine *process);
// -1 (1) when the record has another link of a step than its checkpoint.
int replay_check_link(const Record *record, uint64_t step, const uint8_t link[32]);

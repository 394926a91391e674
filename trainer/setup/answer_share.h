// How much of the answers of a dataset an epoch counts, with loss_tokens = answers: a row cuts longer conversations,
// and the rest after its cut counts from the next marker on.
#pragma once

#include "trainer/config/config.h"

typedef struct {
    uint64_t answers;        // ids that would count if no row were cut
    uint64_t counted, twice; // the ones that count in rows of the first epoch, and that do in two rows
    uint64_t targets;        // of these rows, counted or not
    bool whole;              // of the whole split, not of its beginning
} AnswerShare;

// Reads at most ANSWER_SHARE_TOKENS of the training split of the dataset that the key `dataset` names, for the
// configured order of samples. 1, -1 after fail(), or 0 when there is no share:
// - with loss_tokens = all;
// - with crops, which have no epochs;
// - when the dataset is served by a loader that the user started, or is not on this machine;
// - when the tokens that are read hold no answer, or fill no row.
enum { ANSWER_SHARE_TOKENS = 1 << 22 };
int answer_share_find(AnswerShare *share, const Config *config);

// How much of the answers of a dataset an epoch counts.
#include "trainer/setup/answer_share.h"
#include "common/id_array.h"
#include "common/sizes.h"
#include "dataset/token_reader.h"
#include "loader/protocol/sampling.h"
#include "trainer/model/answers.h"
#include "trainer/setup/loader_process.h"
#include <stdlib.h>
#include <string.h>

// Ids [0, count) of the split, and of each target x[t+1] whether it would count, and whether a row has counted it.
typedef struct {
    void *ids;
    unsigned id_bytes;
    uint64_t count;
    uint8_t *seen;
} Beginning;

static const uint8_t *ids_from(const Beginning *begin, uint64_t first) {
    return (const uint8_t *)begin->ids + first * begin->id_bytes;
}

// The first id of the row of a block (sampling.h).
static uint64_t row_start(const Beginning *begin, const SampleOrder *order, uint64_t block, uint32_t end_of_text) {
    for (uint64_t at = block; order->documents && at < block + sample_order_starts(order, block) && at < begin->count;
         at++)
        if (id_at(begin->ids, at, begin->id_bytes) == end_of_text) return at;
    return block;
}

static void count_rows(AnswerShare *share, const Beginning *begin, const SampleOrder *order, const Config *config) {
    const uint32_t end_of_text = (uint32_t)config->end_of_text, T = order->sequence_tokens;
    uint8_t *counted = allocate_zeroed(T, 1);
    ShuffleGroup group;
    sample_order_group(order, 0, &group);
    for (uint64_t block = 0; block < order->blocks; block++) {
        const uint64_t first = row_start(begin, order, group.shift + block * T, end_of_text);
        if (first + T + 1 > begin->count) break;
        answers_count(&config->turns, end_of_text, ids_from(begin, first), begin->id_bytes, 1, T, counted);
        for (uint32_t t = 0; t < T; t++)
            if (counted[t]) begin->seen[first + t]++;
        share->targets += T;
    }
    free(counted);
}

static int count_all(AnswerShare *share, TokenReader *tokens, const SampleOrder *order, const Config *config) {
    Beginning begin = {.id_bytes = tokens->id_bytes, .count = size_smaller(tokens->tokens, ANSWER_SHARE_TOKENS)};
    begin.ids = allocate_zeroed(begin.count, begin.id_bytes), begin.seen = allocate_zeroed(begin.count, 1);
    const int status = token_reader_get(tokens, 0, begin.count, begin.ids);
    if (status == 0) {
        share->whole = begin.count == tokens->tokens;
        share->answers = answers_count(&config->turns, (uint32_t)config->end_of_text, begin.ids, begin.id_bytes, 1,
                                       begin.count - 1, begin.seen);
        memset(begin.seen, 0, begin.count);
        count_rows(share, &begin, order, config);
        for (uint64_t i = 0; i < begin.count; i++)
            share->counted += begin.seen[i] > 0, share->twice += begin.seen[i] > 1;
    }
    free(begin.ids), free(begin.seen);
    return status;
}

int answer_share_find(AnswerShare *share, const Config *config) {
    char path[PATH_MAX_BYTES];
    TokenReader tokens = {0};
    SampleOrder order;
    *share = (AnswerShare){0};
    if (config->loss_tokens == LOSS_ALL || config->sampling == SAMPLING_CROP || *config->loader || !*config->dataset ||
        !loader_process_dataset(path, config))
        return 0;
    int status = token_reader_open(&tokens, path, SPLIT_TRAIN);
    if (status == 0 && tokens.tokens > (uint64_t)config->block_size) {
        status = sample_order_init(&order, (Sampling)config->sampling, SPLIT_TRAIN, (uint64_t)config->seed, 0,
                                   tokens.tokens, (uint32_t)config->block_size);
        if (status == 0) status = count_all(share, &tokens, &order, config);
    }
    token_reader_close(&tokens);
    return status < 0 ? -1 : share->answers && share->targets;
}

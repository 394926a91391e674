// Reads documents from datasets and shards, in order.
#include "shardtool/support/documents.h"
#include "common/err.h"
#include "common/log.h"
#include "shardtool/support/hash_set.h"
#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

// Compares the vocabulary of one input with the others'.
static int add_params(DocumentInputs *inputs, const char *path, const ShardFile *shard) {
    ShardParams *params = &inputs->params;
    if (params->vocab_size == 0) {
        *params = (ShardParams){
            .frame_tokens = shard->frame_tokens, .vocab_size = shard->vocab_size, .eot_id = shard->eot_id};
        memcpy(params->vocab_fp, shard->vocab_fp, 32);
    }
    if (memcmp(params->vocab_fp, shard->vocab_fp, 32) || params->vocab_size != shard->vocab_size ||
        params->eot_id != shard->eot_id)
        return dataset_fail_vocabularies(inputs->inputs.arguments[0].path, params->vocab_fp, params->vocab_size, path,
                                         shard->vocab_fp, shard->vocab_size);
    if (shard->members->index.data[0] & SHARD_CONTINUES_BEFORE)
        return fail(EX_DATA, "'%s' begins inside a document: give its whole dataset", path);
    return 0;
}

// The rule of the datasets so far and of this one.
static void add_rule(DocumentInputs *inputs, const Dataset *dataset) {
    const ValRule rule = val_rule_of(dataset);
    if (!inputs->val) {
        inputs->val = allocate_text(dataset->val, strlen(dataset->val)), inputs->val_seed = dataset->val_seed;
        inputs->rule = rule;
    } else if (!val_rule_same(&inputs->rule, &rule)) {
        inputs->mixed = true;
    }
}

static int add_split(DocumentInputs *inputs, InputArgument *argument, const char *path, int split, Sha256 *digest) {
    TokenReader tokens;
    if (token_reader_open(&tokens, path, split) < 0) return -1;
    int status = 0;
    if (token_reader_shards(&tokens)) {
        const ShardFile *shard = token_reader_shard(&tokens, 0);
        status = shard ? add_params(inputs, path, shard) : -1;
        if (status == 0 && tokens.path) {
            for (uint64_t i = 0; i < shard->member_count; i++) sha256_add(digest, shard->members[i].content_hash, 32);
            inputs->documents[split] += shard->documents;
            argument->bytes += shard->map.size;
        }
    }
    if (!tokens.path) {
        argument->bytes += dataset_bytes(&tokens.dataset, split);
        sha256_add(digest, tokens.dataset.fingerprint, 32);
        inputs->documents[split] += tokens.dataset.documents[split];
        if (split == SPLIT_TRAIN) add_rule(inputs, &tokens.dataset), lineage_add(&inputs->history, &tokens.dataset);
    } else
        lineage_add_shard(&inputs->history, path, &tokens.shard);
    argument->files += token_reader_shards(&tokens);
    inputs->tokens[split] += tokens.tokens;
    token_reader_close(&tokens);
    return status;
}

int documents_open(DocumentInputs *inputs, int count, char **paths) {
    *inputs = (DocumentInputs){0};
    if (count == 0) return fail(EX_USAGE, "missing PATH of a shard or dataset (- is standard input)");
    inputs_add_names(&inputs->inputs, (const char *const *)paths, (unsigned)count);
    inputs->inputs.arguments = allocate_zeroed((size_t)count, sizeof(InputArgument));
    inputs->inputs.file_count = inputs->inputs.argument_count = (uint64_t)count;
    int status = 0;
    bool has_shards = false;
    for (int i = 0; status == 0 && i < count; i++) {
        has_shards |= !dataset_is(paths[i]);
        InputArgument *argument = &inputs->inputs.arguments[i];
        argument->path = paths[i];
        Sha256 digest;
        uint8_t hash[32];
        sha256_open(&digest);
        for (int split = 0; status == 0 && split < (dataset_is(paths[i]) ? SPLIT_COUNT : 1); split++)
            status = add_split(inputs, argument, paths[i], split, &digest);
        sha256_close(&digest, hash);
        memcpy(argument->digest, hash, sizeof argument->digest);
    }
    inputs->mixed |= inputs->val && has_shards; // which do not tell their rule
    if (inputs->mixed) {
        free(inputs->val);
        inputs->val = allocate_text("mixed", strlen("mixed")), inputs->val_seed = 0;
    }
    if (!inputs->val) inputs->val = allocate_text("0", 1);
    if (status == 0 && inputs->tokens[SPLIT_TRAIN] + inputs->tokens[SPLIT_VAL] == 0)
        status = fail(EX_NOINPUT, "the inputs contain no documents");
    if (status < 0) documents_close(inputs);
    return status;
}

void documents_close(DocumentInputs *inputs) {
    inputs_close(&inputs->inputs);
    buffer_close(&inputs->history);
    free(inputs->val);
    *inputs = (DocumentInputs){0};
}

int documents_next(DocumentCursor *cursor) {
    const Inputs *inputs = &cursor->inputs->inputs;
    for (;;) {
        if (!cursor->is_open) {
            if (cursor->position.file == inputs->file_count) return 0;
            const char *path = inputs->arguments[cursor->position.file].path;
            bool has_split = cursor->split == SPLIT_TRAIN || dataset_is(path);
            if (has_split && token_reader_open(&cursor->tokens, path, cursor->split) < 0) return -1;
            if (!has_split && ++cursor->position.file) continue;
            cursor->is_open = true;
            cursor->rows = (ProvenanceReader){.dataset = &cursor->tokens.dataset, .split = cursor->split};
        }
        int status = document_reader_next(&cursor->reader, &cursor->tokens, &cursor->document);
        if (status < 0) return -1;
        if (status > 0) {
            cursor->position.document = cursor->document.number;
            cursor->passed++;
            return 1;
        }
        document_reader_close(&cursor->reader);
        provenance_reader_close(&cursor->rows);
        token_reader_close(&cursor->tokens);
        cursor->is_open = false, cursor->position.file++;
    }
}

int documents_read(DocumentCursor *cursor, TokenVisit *visit, void *context) {
    const Document *document = &cursor->document;
    return token_reader_visit(&cursor->tokens, document->first, document->first + document->tokens, visit, context);
}

int documents_row(DocumentCursor *cursor, Bytes *row) {
    return provenance_at(&cursor->rows, cursor->document.number, row);
}

static int add_hash(void *state, const void *ids, size_t count, unsigned bytes) {
    return XXH3_128bits_update(state, ids, count * bytes) == XXH_OK ? 0 : fail(EX_BUG, "cannot hash");
}

int documents_hash(DocumentCursor *cursor, DocumentHash *hash) {
    XXH3_state_t *state = XXH3_createState();
    if (!state) die(EX_MEMORY, "no memory for a hash");
    XXH3_128bits_reset(state);
    const int status = documents_read(cursor, add_hash, state);
    const XXH128_hash_t digest = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    *hash = (DocumentHash){digest.low64, digest.high64};
    return status;
}

void documents_end(DocumentCursor *cursor) {
    document_reader_close(&cursor->reader);
    provenance_reader_close(&cursor->rows);
    if (cursor->is_open) token_reader_close(&cursor->tokens);
    cursor->is_open = false;
}

int documents_begin(Output *output, const DocumentInputs *inputs, int split, InputPosition position, Bytes row) {
    output_row(output, split, row);
    if (!output->is_open[split]) return 0;
    return fail(EX_DATA,
                "the document before document %" PRIu64 " of '%s' has no end-of-text id, so that both would "
                "become one",
                position.document, inputs->inputs.arguments[position.file].path);
}

typedef struct {
    Output *output;
    int split;
    InputPosition position;
} DocumentCopy;

static int copy_ids(void *context, const void *ids, size_t count, unsigned bytes) {
    (void)bytes;
    const DocumentCopy *copy = context;
    return output_add(copy->output, copy->split, ids, count, copy->position);
}

int documents_copy(DocumentCursor *cursor, Output *output) {
    Bytes row;
    if (documents_row(cursor, &row) < 0 ||
        documents_begin(output, cursor->inputs, cursor->split, cursor->position, row) < 0)
        return -1;
    DocumentCopy copy = {output, cursor->split, cursor->position};
    return documents_read(cursor, copy_ids, &copy);
}

// Finds a document of a split by its hash: 1 with the cursor at it.
static int find_document(DocumentCursor *cursor, const DocumentHash *wanted) {
    DocumentHash hash;
    int status;
    while ((status = documents_next(cursor)) > 0) {
        if (documents_hash(cursor, &hash) < 0) return -1;
        if (hash.low == wanted->low && hash.high == wanted->high) break;
    }
    return status;
}

static int fail_both(const DocumentCursor *train, const DocumentCursor *val) {
    const char *paths[] = {train->inputs->inputs.arguments[train->position.file].path,
                           train->inputs->inputs.arguments[val->position.file].path};
    char texts[2][VAL_RULE_TEXT];
    for (int i = 0; i < 2; i++) {
        Dataset dataset;
        ValRule rule = {.share = "mixed"};
        if (dataset_is(paths[i]) && dataset_open_manifest(&dataset, paths[i]) == 0)
            rule = val_rule_of(&dataset), dataset_close(&dataset);
        val_rule_text(&rule, texts[i]);
    }
    return fail(EX_USAGE,
                "document %" PRIu64 " of the training split of '%s' (%s) is document %" PRIu64
                " of the validation split of '%s' (%s): make both with one --val and --seed, or join them by dedup, "
                "which keeps one of the two",
                train->position.document, paths[0], texts[0], val->position.document, paths[1], texts[1]);
}

int documents_check_splits(const DocumentInputs *inputs) {
    if (!inputs->mixed || !inputs->documents[SPLIT_VAL] || !inputs->documents[SPLIT_TRAIN]) return 0;
    log_line("the datasets have other rules for validation: comparing their documents");
    DocumentCursor val = {.inputs = inputs, .split = SPLIT_VAL}, train = {.inputs = inputs, .split = SPLIT_TRAIN};
    HashSet hashes = {0};
    DocumentHash hash;
    int status, found = 0;
    hash_set_clear(&hashes, inputs->documents[SPLIT_VAL]);
    while ((status = documents_next(&val)) > 0 && (status = documents_hash(&val, &hash)) == 0)
        hash_set_add(&hashes, hash.low);
    documents_end(&val);
    while (status == 0 && !found && (status = documents_next(&train)) > 0) {
        status = documents_hash(&train, &hash);
        if (status < 0 || !hash_set_has(&hashes, hash.low)) continue;
        val = (DocumentCursor){.inputs = inputs, .split = SPLIT_VAL};
        found = find_document(&val, &hash);
        if (found > 0) status = fail_both(&train, &val);
        if (found < 0) status = -1;
        documents_end(&val);
    }
    documents_end(&train);
    hash_set_close(&hashes);
    return status;
}

OutputPlan documents_plan(const DocumentInputs *inputs, const char *command, const char *settings) {
    return (OutputPlan){.command = command,
                        .settings = settings,
                        .history = &inputs->history,
                        .inputs = &inputs->inputs,
                        .params = inputs->params,
                        .val = inputs->val,
                        .val_seed = inputs->val_seed,
                        .tokens = inputs->tokens[SPLIT_TRAIN] + inputs->tokens[SPLIT_VAL]};
}

bool documents_has(const Output *output, int split) {
    const int wanted = output_options.split;
    return wanted ? split == wanted - 1 : split == SPLIT_TRAIN || !output || !output->to_stdout;
}

static void warn_no_val(const DocumentInputs *inputs, const Output *output) {
    if (output->to_stdout || output_options.split || !inputs->documents[SPLIT_VAL] ||
        output->dataset.documents[SPLIT_VAL])
        return;
    log_warn("the validation split is empty: none of the %" PRIu64 " validation documents of the inputs is left%s",
             inputs->documents[SPLIT_VAL],
             inputs->mixed ? ": the copies in training stay, so make all datasets with one --val and --seed" : "");
}

int documents_run(int count, char **paths, const char *command, const char *settings, DocumentWork *work,
                  DocumentCheck *check, void *context) {
    static Output output;
    DocumentInputs inputs;
    if (documents_open(&inputs, count, paths) < 0) return -1;
    Buffer line = {0};
    const int only = output_options.split;
    const bool to_stdout = output_options.path && !strcmp(output_options.path, "-");
    buffer_print(&line, "%s", settings);
    if (only && !to_stdout) buffer_print(&line, "%ssplit=%s", *settings ? ";" : "", split_names[only - 1]);
    OutputPlan plan = documents_plan(&inputs, command, (const char *)line.data);
    int status = output_open(&output, output_options.path, &plan);
    if (status == 0) {
        status = work(context, &inputs, &output);
        if (status == 0) status = output_finish(&output);
        if (status == 0) warn_no_val(&inputs, &output);
    } else if (status > 0 && check) {
        status = check(&inputs);
    }
    output_close(&output);
    documents_close(&inputs);
    buffer_close(&line);
    return status < 0 ? -1 : 0;
}

int documents_run_dry(int count, char **paths, DocumentWork *work, void *context) {
    DocumentInputs inputs;
    if (jobs_check(output_options.threads) < 0 || documents_open(&inputs, count, paths) < 0) return -1;
    const int status = work(context, &inputs, NULL);
    documents_close(&inputs);
    return status < 0 ? -1 : 0;
}

// The directory of a vocabulary that was trained:
//
//   vocabulary.tiktoken  for each token but the special ones its bytes in base64, a space, and its id
//   vocabulary.json      one line: pattern, size, special tokens, options, inputs, totals, SHA-256 of
//                        vocabulary.tiktoken
//
// Without vocabulary.json the other files do not count. The files of other tools are made from these two,
// tokenizer.json as the last: vocab.json and merges.txt, which name no pattern, for the pattern of GPT-2 only, and
// tokenizer.json. A vocabulary of more than VOCAB_IDS_MAX ids has no files of other tools.
#pragma once

#include "shardtool/ingest/inputs.h"
#include "tokenizer/training/bpe_training.h"

#define VOCABULARY_MANIFEST "vocabulary.json"
#define VOCABULARY_RANKS    "vocabulary.tiktoken"

typedef struct {
    const char *pattern, *params; // params: the options of the vocabulary, in one line
    const BpeMerge *merges;
    uint32_t merge_count;
    const StringList *specials; // their ids follow the ids of the merges
    const Inputs *inputs;
    uint64_t documents, bytes, pieces, distinct_pieces;
} VocabularyFiles;

int vocabulary_check_special(const char *token); // 2 when no vocabulary can have it: before any text is read

// 65 when a special token has the bytes of another token.
int vocabulary_files_write(const char *folder, const VocabularyFiles *files);

// Writes the files for other tools, if they are not there.
int vocabulary_files_convert(const char *folder, uint64_t size);

// Reads the options and inputs of a finished directory. 66 when it has no vocabulary, 65 when the manifest is damaged.
int vocabulary_files_read(const char *folder, Buffer *params, uint8_t inputs_hash[32]);

// The file of a dataset's vocabulary beside its manifest, which has the fingerprint: CHARACTERS_FILE, or VOCAB_FILE for
// merges (tokenizer/files/vocab_file.h). A dataset of GPT-2's vocabulary has no file.
#pragma once

#include "common/file/file.h"
#include "dataset/dataset.h"
#include "shardtool/ingest/inputs.h"
#include "tokenizer/files/vocab_file.h"
#include <stdbool.h>

// Writes the file of a vocabulary, or copies another dataset's; one of another kind is removed. GPT-2's vocabulary, and
// `from` "", have no file.
int dataset_vocabulary_keep(const char *directory, const Vocab *vocab);
int dataset_vocabulary_copy(const char *directory, const char *from);

// As vocab_file_in, of a directory that may be a URL.
bool dataset_vocabulary_in(char path[PATH_MAX_BYTES], const char *directory);

// The vocabulary of a file beside ids of that fingerprint. NULL after fail(): 65 when it is damaged or of other ids.
const Vocab *dataset_vocabulary_open(const char *path, const uint8_t fingerprint[32]);

// The vocabulary of ids of that fingerprint: GPT-2's, or the one in an input that has its file; *vocab is NULL if no
// input has it.
int dataset_vocabulary_of(const Vocab **vocab, const Inputs *inputs, const uint8_t fingerprint[32]);

int dataset_vocabulary_need(const Vocab **vocab, const Inputs *inputs, const uint8_t fingerprint[32]); // 65 without one

// Sets the path of the file, "" for GPT-2's vocabulary. 65 also without a file.
int dataset_vocabulary_find(char path[PATH_MAX_BYTES], const Dataset *dataset);

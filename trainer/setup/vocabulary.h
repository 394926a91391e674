// The vocabulary of a model: GPT-2's, which is built in, or a file's (tokenizer/files/vocab_file.h), which lies
// in the dataset, and then in out_dir and in exported models. The key `vocabulary` is its path, "" for GPT-2's.
#pragma once

#include "common/id_array.h"
#include "loader/client/feed.h"
#include "tokenizer/files/vocab_file.h"
#include "tokenizer/tokenizer.h"
#include "trainer/config/config.h"

// Finds the file of another vocabulary, and sets vocabulary, vocab_size, end_of_text, turns and added_ids: the file
// that the user names, the one of the dataset, and for a model of another vocabulary than GPT-2's the one of its run.
// `model`: the directory of the model, NULL for a run. -1 after fail(): 66 when the model needs a file that is missing,
// 76 when it is not the model's.
int vocabulary_resolve(ConfigReader *reader, const char *model);

const Vocab *vocabulary_open(const Config *config); // vocab_close closes it; NULL after fail()

// The length in bytes of each id's text; 0 for special tokens and for ids that the vocabulary does not have.
int vocabulary_token_bytes(const Config *config, uint8_t bytes[IDS_MAX]);

// Sets the fingerprint of another vocabulary for the handshake with a loader. Changes nothing for GPT-2's.
int vocabulary_fingerprint(const Config *config, uint8_t fingerprint[32]);
int vocabulary_check(const Config *config, const FeedDataset *dataset); // 76 when it has another vocabulary

int vocabulary_keep(const Config *config, const char *directory); // copies the file, if there is one

// Files of vocabularies: byte-level BPE as other tools write it, and the characters of a file. By the name of the path:
//
//   NAME.tiktoken    and tokenizer.model, as Llama 3 has it: a token a line, base64 and its rank from 0: any two tokens whose bytes together are a token merge,
//                    lower ranks first. The file has no pattern, so that one must be named.
//   NAME.json        tokenizer.json of Hugging Face: BPE on bytes, by ByteLevel or by Split and ByteLevel
//   a directory      its characters.txt, tokenizer.json, vocabulary.tiktoken with vocabulary.json (of train-vocabulary), or
//                    vocab.json with merges.txt, the first that there is; those of Hugging Face together with the files
//                    beside them (vocab_config.h)
//   another file     characters (vocab.h)
//
// Ids are in the order of merges: bytes, then merges, then special tokens. The id that ends a document is that of
// <|endoftext|>, <|end_of_text|>, </s> or <|eos|>, or of the only special token; without one it is added as the next id.
// What a file requires and the encoder does not do is refused by name (65): normalizers, other models, dropout, tokens
// that are added in the middle, more than VOCAB_IDS_MAX ids or MERGES_MAX merges.
#pragma once

#include "common/file/file.h"
#include "tokenizer/merge/vocab.h"

enum { VOCAB_IDS_MAX = 1 << 20, VOCAB_FILE_BYTES_MAX = 256 << 20, VOCAB_TOKEN_MAX = 255 };
#define VOCAB_FILE "tokenizer.json" // in which datasets and runs keep merges other than GPT-2's

// `pattern`: by its name (pattern.h), or NULL for that of the file; another one than the file's is refused. The merges of
// GPT-2 are those that are built in. NULL after fail().
const Vocab *vocab_open_path(const char *path, const char *pattern);

// The same, from the bytes of a file whose `name` tells what it is.
const Vocab *vocab_open_bytes(Bytes file, const char *name, const char *pattern);

// The name and the bytes under which a vocabulary is kept beside ids: CHARACTERS_FILE or VOCAB_FILE.
const char *vocab_file_name(const Vocab *vocab);
void vocab_print_file(const Vocab *vocab, Buffer *out);
int vocab_file_write(const Vocab *vocab, const char *directory); // -1 after fail()
// Sets the path of that file in a directory. False: there is none.
bool vocab_file_in(char path[PATH_MAX_BYTES], const char *directory);

// The files of Hugging Face beside tokenizer.json, of merges alone.
void vocab_print_json(const Vocab *vocab, Buffer *out);   // vocab.json
void vocab_print_merges(const Vocab *vocab, Buffer *out); // merges.txt

// tokenizer_config.json: the class of transformers, and the token that ends and begins a text. `more`: further lines.
void vocab_print_config(const Vocab *vocab, const char *class, const char *more, Buffer *out);

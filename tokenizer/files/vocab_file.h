// Files of vocabularies: byte-level BPE as other tools write it, and the characters of a file. By the name of the path:
//
//   NAME.tiktoken    and tokenizer.model of Llama 3: a token a line, base64 and its rank from 0: any two tokens
//                    whose bytes together are a token merge, lower ranks first. The file has no pattern, so that one
//                    must be named.
//   NAME.json        tokenizer.json of Hugging Face: BPE on bytes, by ByteLevel or by Split and ByteLevel
//   a directory      its characters.txt, tokenizer.json, vocabulary.tiktoken with vocabulary.json (of
//                    train-vocabulary), or vocab.json with merges.txt, the first that there is; Hugging Face's files
//                    together with the files beside them (vocab_config.h)
//   another file     characters (vocab.h)
//
// Ids are in the order of merges: bytes, then merges; special tokens have any ids. The id that ends a document is the
// id of the token that the user names, or else of "end_of_text" of tokenizer_config.json (vocab_print_config); of
// <|endoftext|>, <|end_of_text|>, </s> or <|eos|>, the first that there is; of "eos_token" of tokenizer_config.json; or
// of the only special token. Without a special token one is added as the next id.
// A file that requires a step that the encoder lacks is refused with its name (65): normalizers, other models, dropout,
// tokens that cut text, more than VOCAB_IDS_MAX ids or MERGES_MAX merges.
#pragma once

#include "common/file/file.h"
#include "tokenizer/merge/vocab.h"

enum { VOCAB_IDS_MAX = 1 << 20, VOCAB_FILE_BYTES_MAX = 256 << 20, VOCAB_TOKEN_MAX = 255 };
#define VOCAB_FILE "tokenizer.json" // in which datasets and runs keep merges other than GPT-2's

// Names that the user gives besides the file; NULL: as the file says. Another pattern (pattern.h) than the file's is
// refused.
typedef struct {
    const char *pattern, *end_of_text;
} VocabNames;

// `names` can be NULL. The merges of GPT-2 are those that are built in. NULL after fail().
const Vocab *vocab_open_path(const char *path, const VocabNames *names);

// The same, from the bytes of a file whose `name` tells its kind.
const Vocab *vocab_open_bytes(Bytes file, const char *name, const VocabNames *names);

// The name and the bytes under which a vocabulary is kept beside ids: CHARACTERS_FILE or VOCAB_FILE.
const char *vocab_file_name(const Vocab *vocab);
void vocab_print_file(const Vocab *vocab, Buffer *out);

// Whether the file alone tells which id ends a document. If it does not, VOCAB_CONFIG_FILE is beside it.
bool vocab_names_end(const Vocab *vocab);
#define VOCAB_CONFIG_FILE "tokenizer_config.json"

// Writes these files, and removes others of their names. NULL: removes all. -1 after fail().
int vocab_file_write(const Vocab *vocab, const char *directory);
// Sets the path of that file in a directory. False: there is no such file.
bool vocab_file_in(char path[PATH_MAX_BYTES], const char *directory);

// Appends a token as vocab.json has it: bytes as vocab_spelling says, a special token by its name.
void vocab_spell(const Vocab *vocab, unsigned id, Buffer *out);

// The files of Hugging Face beside tokenizer.json, of merges alone.
void vocab_print_json(const Vocab *vocab, Buffer *out);   // vocab.json
void vocab_print_merges(const Vocab *vocab, Buffer *out); // merges.txt

// chat_template.jinja, of a vocabulary with the markers of conversations (turns.h).
void vocab_print_chat_template(const Vocab *vocab, Buffer *out);

// tokenizer_config.json: the class of transformers, the token that begins a text, and that which ends one or, with
// markers of conversations, a message; with them also the chat template. `more`: further lines.
void vocab_print_config(const Vocab *vocab, const char *class, const char *more, Buffer *out);

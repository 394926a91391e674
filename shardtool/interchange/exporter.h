// One split that is written as token files of another tool, with the end-of-text ids where that tool expects them.
#pragma once

#include "common/file/file.h"
#include "dataset/document_reader.h"

typedef struct {
    TokenReader *tokens;
    const char *folder, *name; // of the files: "train" or "val"; exporter_open adds the rest
    const char *tokenizer;     // its name: "gpt2", or the fingerprint of the vocabulary
    uint64_t file_tokens;      // of --shard-tokens
    uint64_t count, at;        // ids of the split; ids written so far
    bool eot_before;
    uint32_t eot_id;
    NewFile file;
    Buffer block;
} Exporter;

// Exports the split of `tokens` by `write`, which writes all files.
int exporter_run(Exporter *exporter, int (*write)(Exporter *exporter));

int exporter_open(Exporter *exporter, const char *end); // opens a file; write with newfile_write, newfile_commit
int exporter_add(Exporter *exporter, uint64_t count);   // writes the next `count` ids to it
// Opens a file, writes a header and the next `count` ids, and commits it.
int exporter_write(Exporter *exporter, const char *end, Bytes header, uint64_t count);

// Writes the bytes that `add` adds for each document, in order. `documents` gets their number.
typedef int (*AddDocument)(const Exporter *exporter, Buffer *out, const Document *document);
int exporter_add_documents(Exporter *exporter, AddDocument add, uint64_t *documents);

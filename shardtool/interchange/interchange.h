// Token files of other tools. Each tool is one name in INTERCHANGE_FORMATS and one file, tokens_NAME.c, which specifies
// the layout and holds the row with the reader for import-tokens and the writer for export-tokens. All numbers are
// little-endian. Ids are u16, and u32 if the vocabulary has more than 65,536. A directory holds one set of files per
// split: train*, val*.
#pragma once

#include "shardtool/interchange/exporter.h"
#include "shardtool/interchange/importer.h"

#define INTERCHANGE_FORMATS(X) X(nanogpt) X(llmc) X(megatron) X(datatrove) X(npy)

#define NPY_MAGIC "\x93NUMPY" // of a file of NumPy

// Where the end-of-text id is; auto is the place that the other tool expects.
#define EOT_WORDS "auto|after|before"
typedef enum { EOT_AUTO, EOT_AFTER, EOT_BEFORE } EotPlace;

typedef struct {
    const char *name;
    const char *extensions;                      // of its files, "bin|idx"; the file of ids has the first
    bool has_index;                              // a second file holds the length of each document
    EotPlace eot;                                // of `auto`
    int (*read)(Importer *importer, Bytes file); // adds all ids of a file
    int (*write)(Exporter *exporter);            // writes all files of a split
} Interchange;

// The options of both commands.
typedef struct {
    unsigned format; // row of the table
    EotPlace eot;
} InterchangeOptions;
#define INTERCHANGE_ONE(name)  +1
#define INTERCHANGE_NONE       (0 INTERCHANGE_FORMATS(INTERCHANGE_ONE)) // there is no default
#define INTERCHANGE_WORD(name) "|" #name
#define INTERCHANGE_WORDS      (&(INTERCHANGE_FORMATS(INTERCHANGE_WORD))[1])
#define ROWS_INTERCHANGE(options)                                                                                      \
    {OPT_WORD, "format", &(options)->format, INTERCHANGE_WORDS, "the other tool"}, {                                   \
        OPT_WORD, "eot", &(options)->eot, EOT_WORDS,                                                                   \
            "end-of-text ids after or before each document; auto: where the other tool expects them"                   \
    }

// The chosen row. NULL after fail() (2) when none was chosen, or when --eot does not fit it.
const Interchange *interchange_choose(const InterchangeOptions *options);
bool interchange_eot_before(const InterchangeOptions *options);

// The extension of the file of ids, ".bin".
void interchange_extension(const Interchange *format, char out[16]);
// Adds a pattern (fnmatch) of all names that an export of any format may have, NUL-terminated.
void interchange_pattern(Buffer *out);

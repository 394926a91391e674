// The files that the arguments of a command name, in the order in which they are read.
#pragma once

#include "common/file/file.h"
#include "shardtool/ingest/input_walk.h"

typedef struct {
    const InputFilter *filter; // borrowed; of the folders, and later of the archives' members
    InputStrings *strings;
    InputFile *files;
    InputFolder *folders;
    char *names;
    uint64_t folder_count, names_bytes;
    InputArgument *arguments;
    uint64_t file_count, argument_count, bytes;
    uint64_t about;       // files that were left out as README.md is
    Remote *remote;       // for files of URLs, or NULL
    const char *outside;  // the first argument that is an absolute path or begins with ..; NULL: none
    size_t outside_bytes; // of its folders that all such arguments share
} Inputs;

// Sorts the arguments by bytes, walks directories in byte order of their paths. Dot files and Parquet's indexes are
// skipped; links to directories are followed; dangling links, those back to a directory around them, and files about
// others are skipped with a warning. `filter` may be NULL: then a URL is not a file. The same file twice is 2, a
// folder that is a dataset 65, a missing file 66, an unreadable one 77.
int inputs_open(Inputs *inputs, int count, char **arguments, const InputFilter *filter);
int inputs_digest(Inputs *inputs); // fills in the digests
// Hashes the paths, sizes and digests of the arguments. With `times`, for a run that is continued with the same files,
// also their times and the patterns.
void inputs_hash(const Inputs *inputs, bool times, uint8_t hash[32]);
// Appends names to `files` without counting them: for positions in files that this run does not read itself.
void inputs_add_names(Inputs *inputs, const char *const *names, unsigned count);
// Keeps the files first, first + step, ... and the arguments that still have files. Before inputs_digest.
void inputs_keep_every(Inputs *inputs, uint64_t first, uint64_t step);
void inputs_close(Inputs *inputs); // accepts a zeroed struct

// The entry of a remote file, whose name is written to `path`. False for a file of this machine.
bool input_entry(const Inputs *inputs, const InputFile *file, char path[static PATH_MAX_BYTES], RemoteEntry *entry);
// Writes the path of a file to `path`, and returns it.
const char *input_path(const Inputs *inputs, const InputFile *file, char path[static PATH_MAX_BYTES]);
// The name of a file in tables of documents (dataset/provenance.h): without what tells where this machine has it.
const char *input_name(const Inputs *inputs, const InputFile *file, char name[static PATH_MAX_BYTES]);
// Makes these names relative to another folder, with its `/`, than the one that the arguments share. Borrowed.
void inputs_name_from(Inputs *inputs, const char *folder);
// Names a document of a file in the pending error; returns -1.
int input_fail_in(const Inputs *inputs, uint64_t file, uint64_t document);
const InputFolder *input_folder(const Inputs *inputs, const InputFile *file);

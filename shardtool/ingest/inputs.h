// The files that the arguments of a command name, in the order in which they are read.
#pragma once

#include "common/cli/cli.h"
#include "common/file/file.h"
#include "remote/remote_scheme.h"
#include <stdbool.h>
#include <stdint.h>

// 16 bytes and a name for each of millions of files. InputFolder has the fields that the files of a folder share.
typedef struct {
    uint64_t bytes;  // 0 unless it is a regular file
    uint32_t name;   // its offset in Inputs.names; "-" is standard input; input_entry has more of a remote file
    uint32_t folder; // its number in Inputs.folders
} InputFile;

typedef struct {
    const char *path; // with a slash at the end; "" for a file that the user named
    uint32_t argument;
    bool is_remote;
} InputFolder;

typedef struct {
    const char *path; // as typed; a URL without its query
    uint64_t files, bytes;
    uint8_t digest[16]; // XXH3-128 over each file's path, size, first and last 64 KiB, or ETag; zero for a stream
    uint64_t times;     // a hash of the times when the files were modified last: of the journal, not of the dataset
    uint64_t newest_ns; // when the file that was modified last was; since 1970
    bool stream;        // standard input or a pipe: one file, and nothing can be said about it beforehand
} InputArgument;

// The choices of --files-from, --include and --exclude, and how URLs are read.
typedef struct InputFilter {
    const char *files_from;      // a file with further arguments, or NULL
    StringList include, exclude; // glob patterns of the files in folders and archives
    RemoteOptions remote;
} InputFilter;

typedef struct InputStrings InputStrings;
typedef struct {
    const InputFilter *filter; // borrowed; of the folders, and later of the archives' members
    InputStrings *strings;
    InputFile *files;
    InputFolder *folders;
    char *names;
    uint64_t folder_count, names_bytes;
    InputArgument *arguments;
    uint64_t file_count, argument_count, bytes;
    Remote *remote; // for files of URLs, or NULL
} Inputs;

// Sorts the arguments by bytes, walks directories in byte order of their paths. Dot files and Parquet's indexes are
// skipped; links to directories are followed; dangling links, those back to a directory around them, and files about
// records are skipped with a warning. `filter` may be NULL: then a URL is no file. The same file twice is 2, a folder
// that is a dataset 65, a missing file 66, an unreadable one 77.
int inputs_open(Inputs *inputs, int count, char **arguments, const InputFilter *filter);
// Whether the filter leaves a file in a folder, by its path below the argument.
bool input_is_wanted(const InputFilter *filter, const char *below);
// Whether it leaves a member of an archive. A pattern that chose the archive, or one around it, chooses all its
// members. `archive` is the name of its stream.
bool input_member_is_wanted(const InputFilter *filter, const char *archive, const char *member);
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
// Names a document of a file in the pending error; returns -1.
int input_fail_in(const Inputs *inputs, uint64_t file, uint64_t document);
const InputFolder *input_folder(const Inputs *inputs, const InputFile *file);

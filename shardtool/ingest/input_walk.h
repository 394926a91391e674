// The files that one argument of a command names: itself, or those of a folder and of the folders in it, or of a URL.
#pragma once

#include "common/bytes.h"
#include "common/cli/cli.h"
#include "remote/remote_list.h"
#include "remote/remote_scheme.h"
#include <sys/stat.h>

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

// Whether a path in a folder or an archive has a part that holds no documents by its name: one that begins with a dot,
// or an index or the uncommitted rows of Spark.
bool input_is_left_out(const char *path);
// Whether a file in a folder or an archive is about others by its name, as README.md, also compressed: it is left out
// unless --include is given. What else is there makes no difference, because an archive is read once, in its order.
bool input_is_about(const InputFilter *filter, const char *path);
void input_warn_about(const char *path, uint64_t number); // the first one is a warning
// Whether the filter leaves a file in a folder, by its path below the argument.
bool input_is_wanted(const InputFilter *filter, const char *below);
// Whether it leaves a member of an archive. A pattern that chose the archive, or one around it, chooses all its
// members. `archive` is the name of its stream.
bool input_member_is_wanted(const InputFilter *filter, const char *archive, const char *member);

// Strings in chunks, so that 8 million paths need no more memory than their bytes.
typedef struct InputStrings InputStrings;
char *input_string(InputStrings **chunks, const void *string, size_t length); // copies it
void input_strings_free(InputStrings *chunks);
int input_by_text(const void *a, const void *b); // of two const char *, for qsort

typedef struct {
    ino_t inode;
    uint32_t device; // the 12 and 20 bits of its numbers
    uint32_t file;   // its number
} Identity;

typedef struct {
    const InputFilter *filter;
    InputArgument *arguments; // of the command; the walk fills in path and stream
    uint32_t argument;        // the one that is visited
    InputStrings *strings;
    Buffer files, folders, names, identities; // InputFile, InputFolder, bytes, Identity
    Buffer open;                              // Identity of each directory from the argument to the one being visited
    Buffer path;                              // of the file or directory being visited, without NUL
    size_t root_length;                       // of the argument in `path`
    uint64_t dangling;
    bool reads_urls;
    Remote *remote; // NULL without a URL
    RemoteList urls;
    size_t next_url;
    uint64_t about; // files that input_is_about has left out
} Walk;

int walk_list_urls(Walk *walk, char **arguments, size_t count); // the files of the URLs
int walk_argument(Walk *walk, const char *path);                // adds the files of one argument, in their order
void walk_close(Walk *walk);                                    // keeps strings, remote, files, folders and names

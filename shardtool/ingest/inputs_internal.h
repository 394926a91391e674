// Shared by the walk over the arguments and the list of inputs.
#pragma once

#include "common/bytes.h"
#include "remote/remote_list.h"
#include "shardtool/ingest/inputs.h"
#include <sys/stat.h>

typedef struct {
    ino_t inode;
    uint32_t device; // the 12 and 20 bits of its numbers
    uint32_t file;   // its number
} Identity;

typedef struct {
    Inputs *inputs;
    const InputFilter *filter;
    Buffer files, folders, names, identities;
    Buffer open;        // Identity of each directory from the argument to the one being visited
    Buffer path;        // of the file or directory being visited, without NUL
    size_t root_length; // of the argument in `path`
    uint32_t argument;
    uint64_t dangling;
    bool reads_urls;
    RemoteList urls;
    size_t next_url;
    // Properties of the argument:
    bool has_records;
    Buffer about;            // the numbers of the files that are FOLDER_FILE_ABOUT
    const char *first_about; // the path of the first
} Walk;

int walk_list_urls(Walk *walk, char **arguments, size_t count); // the files of the URLs
int walk_argument(Walk *walk, const char *path);                // adds the files of one argument, in their order

// Copies a string into the chunks, so that 8 million paths need no more memory than their bytes.
char *input_string(InputStrings **chunks, const void *string, size_t length);
void input_strings_free(InputStrings *chunks);
int input_by_text(const void *a, const void *b); // of two const char *, for qsort

// Documents of a hub's API: JSON of a foreign server.
#pragma once

#include "common/bytes.h"

enum { HUB_COMMIT_DIGITS = 40 };

typedef struct {
    const char *path;   // in the repository
    const char *sha256; // 64 hex digits of a file in LFS; NULL of one in git
    uint64_t size;
} HubFile;

// A page of /api/datasets/OWNER/NAME/tree/REVISION: an array of {"type":"file","path":...,"size":...,"lfs":{"oid":...}}
// and folders.
typedef struct {
    HubFile *files;
    size_t count;
    void *json; // owns the strings
} HubTree;

int hub_tree_parse(HubTree *tree, Bytes json); // 65 when it is malformed. Call hub_tree_close in either case.
void hub_tree_close(HubTree *tree);
// The commit in "sha" of /api/datasets/OWNER/NAME/revision/REVISION. 65 when it is malformed.
int hub_commit_parse(char commit[static HUB_COMMIT_DIGITS + 1], Bytes json);
bool hub_is_commit(const char *text);

// JSON of a hub's API.
#include "remote/hub_listing.h"
#include "common/err.h"
#include "common/json_read.h"
#include <stdlib.h>

static bool is_hex(const char *text, size_t digits) {
    return text && strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

bool hub_is_commit(const char *text) { return is_hex(text, HUB_COMMIT_DIGITS); }

// False when a file has no path, size or hash of the right form.
static bool read_file(HubFile *file, const json_t *entry) {
    const json_t *size = json_object_get(entry, "size"), *lfs = json_object_get(entry, "lfs");
    *file = (HubFile){.path = json_string_value(json_object_get(entry, "path"))};
    if (!file->path || !*file->path || !json_is_integer(size) || json_integer_value(size) < 0) return false;
    file->size = (uint64_t)json_integer_value(size);
    if (!lfs || json_is_null(lfs)) return true;
    file->sha256 = json_string_value(json_object_get(lfs, "oid"));
    return is_hex(file->sha256, 64);
}

int hub_tree_parse(HubTree *tree, Bytes json) {
    json_error_t error;
    json_t *root = json_parse(json, JSON_REJECT_DUPLICATES, &error);
    *tree = (HubTree){.json = root};
    if (!json_is_array(root)) return fail(EX_DATA, "the hub sends no listing of a folder, or a malformed one");
    tree->files = allocate_zeroed(json_array_size(root) + 1, sizeof *tree->files);
    for (size_t i = 0; i < json_array_size(root); i++) {
        const json_t *entry = json_array_get(root, i);
        const char *type = json_string_value(json_object_get(entry, "type"));
        if (type && !strcmp(type, "directory")) continue;
        if (!type || strcmp(type, "file") != 0 || !read_file(&tree->files[tree->count], entry))
            return fail(EX_DATA, "entry %zu of the listing of the hub is malformed", i);
        tree->count++;
    }
    return 0;
}

void hub_tree_close(HubTree *tree) {
    free(tree->files);
    json_decref(tree->json);
    *tree = (HubTree){0};
}

int hub_commit_parse(char commit[static HUB_COMMIT_DIGITS + 1], Bytes json) {
    json_error_t error;
    json_t *root = json_parse(json, JSON_REJECT_DUPLICATES, &error);
    const char *sha = json_string_value(json_object_get(root, "sha"));
    const bool good = hub_is_commit(sha);
    if (good) memcpy(commit, sha, HUB_COMMIT_DIGITS + 1);
    json_decref(root);
    return good ? 0 : fail(EX_DATA, "the hub names no commit of the revision");
}

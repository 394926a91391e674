// Follows the keys of a JSON line.
#include "shardtool/jsonl/key_path.h"

bool key_path_open(KeyPath *path, const char *text) {
    *path = (KeyPath){.whole = text};
    for (const char *at = text;; at++) {
        const size_t length = strcspn(at, ".");
        if (path->count == PATH_KEYS_MAX || length == 0) return false;
        path->keys[path->count] = at;
        path->key_bytes[path->count++] = length;
        at += length;
        if (!*at) return true;
    }
}

void key_path_begin(KeyPath *path) { path->matched = 0, path->at_whole = path->has_whole = false; }

static bool is_key(const JsonEvents *json, const char *key, size_t bytes) {
    return json->key.size == bytes && !memcmp(json->key.data, key, bytes);
}

bool key_path_enter(KeyPath *path, const JsonEvents *json) {
    const unsigned level = json->depth - 1;
    if (path->matched > level) path->matched = level;
    if (level == 0) {
        path->at_whole = is_key(json, path->whole, strlen(path->whole));
        path->has_whole |= path->at_whole;
        if (path->at_whole) return true;
    }
    if (path->has_whole || path->matched != level || level >= path->count ||
        !is_key(json, path->keys[level], path->key_bytes[level]))
        return false;
    path->matched++;
    return true;
}

bool key_path_ends(const KeyPath *path, unsigned depth) {
    return path->at_whole ? depth == 1 : path->count && path->matched == path->count && depth == path->count;
}

const json_t *key_path_value(const KeyPath *path, const json_t *line) {
    const json_t *whole = json_object_get(line, path->whole);
    if (whole) return whole;
    for (unsigned i = 0; i < path->count; i++) line = json_object_getn(line, path->keys[i], path->key_bytes[i]);
    return line;
}

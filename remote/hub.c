// hf:// URLs: revisions, files and errors of a hub.
#include "remote/hub.h"
#include "common/file/table_log.h"
#include "remote/hub_listing.h"
#include "remote/transfer_request.h"
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TOKEN_BYTES_MAX = 4096, PAGES_MAX = 100000 };
#define WILDCARDS "*?["

// The parts of hf://datasets/OWNER/NAME@REVISION/PATH.
typedef struct {
    char repository[FIELD_BYTES]; // OWNER/NAME
    char revision[FIELD_BYTES];
    const char *path; // "": the whole repository
} HubName;

static int take_part(char *part, const char *text, size_t size, const char *name) {
    if (!size || size >= FIELD_BYTES)
        return fail(EX_USAGE, "'%s' is not " HUB_PREFIX "OWNER/NAME[@REVISION]/PATH", name);
    memcpy(part, text, size);
    part[size] = '\0';
    return 0;
}

static int split_name(HubName *parts, const char *name) {
    const char *at = name + strlen(HUB_PREFIX);
    const size_t owner = strcspn(at, "/@"), size = at[owner] == '/' ? owner + 1 + strcspn(at + owner + 1, "/@") : 0;
    *parts = (HubName){.revision = "main"};
    if (take_part(parts->repository, at, size > owner + 1 && owner ? size : 0, name) < 0) return -1;
    at += size;
    if (*at == '@') {
        size_t length = strcspn(++at, "/");
        // refs/convert/parquet, refs/pr/1
        for (int i = 0; i < 2 && !strncmp(at, "refs/", 5) && at[length]; i++)
            length += 1 + strcspn(at + length + 1, "/");
        if (take_part(parts->revision, at, length, name) < 0) return -1;
        at += length;
    }
    parts->path = at + (*at == '/');
    return 0;
}

bool hub_is_folder(const char *wanted) {
    HubName parts;
    if (split_name(&parts, wanted) < 0) return false; // hub_make_object fails again
    const size_t size = strlen(parts.path);
    return !size || parts.path[size - 1] == '/' || strpbrk(parts.path, WILDCARDS);
}

static const char *endpoint(void) {
    return remote_variable("HF_ENDPOINT") ? remote_variable("HF_ENDPOINT") : "https://huggingface.co";
}

// The token in a file that may be missing.
static int read_token(Buffer *token) {
    static const struct {
        const char *variable, *below;
    } places[] = {{"HF_TOKEN_PATH", ""},
                  {"HF_HOME", "/token"},
                  {"XDG_CACHE_HOME", "/huggingface/token"},
                  {"HOME", "/.cache/huggingface/token"}};
    char path[PATH_MAX_BYTES];
    size_t i = 0;
    while (i < sizeof places / sizeof *places && !remote_variable(places[i].variable)) i++;
    if (i == sizeof places / sizeof *places) return 0;
    if (snprintf(path, sizeof path, "%s%s", remote_variable(places[i].variable), places[i].below) >= (int)sizeof path)
        return fail(EX_USAGE, "the path in %s is too long", places[i].variable);
    if (access(path, F_OK) && errno == ENOENT) return 0;
    return file_read_stream(token, path, TOKEN_BYTES_MAX);
}

static int load_token(Remote *remote) {
    if (remote->bearer_known) return 0;
    Buffer token = {0}, line = {0};
    int status = 0;
    if (remote_variable("HF_TOKEN"))
        buffer_print(&token, "%s", remote_variable("HF_TOKEN"));
    else
        status = read_token(&token);
    while (token.size && token.data[token.size - 1] <= ' ') token.size--;
    for (size_t i = 0; status == 0 && i < token.size; i++)
        if (token.data[i] <= ' ' || token.data[i] > '~')
            status = fail(EX_USAGE, "the token of the hub has a space or control character");
    if (status == 0 && token.size) {
        buffer_print(&line, "Authorization: Bearer %.*s", (int)token.size, (const char *)token.data);
        buffer_add(&line, "", 1);
        remote->bearer = (char *)line.data;
    }
    remote->bearer_known = status == 0;
    buffer_close(&token);
    return status;
}

// ENDPOINT/MIDDLE/OWNER/NAME/KIND/REVISION, with "/PATH" if there is a path.
static int make_url(Remote *remote, Buffer *url, const char *middle, const HubName *parts, const char *kind,
                    const char *path, size_t path_size) {
    size_t size = strlen(endpoint());
    while (size && endpoint()[size - 1] == '/') size--;
    buffer_print(url, "%.*s/%s/", (int)size, endpoint(), middle);
    url_add_escaped(url, parts->repository, false);
    buffer_print(url, "/%s/", kind);
    url_add_escaped(url, parts->revision, true);
    if (path_size) {
        char *below = allocate_text(path, path_size);
        buffer_print(url, "/");
        url_add_escaped(url, below, false);
        free(below);
    }
    buffer_add(url, "", 1);
    url->size--;
    return load_token(remote) < 0 ? -1 : remote_check_url(remote, (const char *)url->data, endpoint());
}

int hub_make_object(Remote *remote, const RemoteEntry *entry, RemoteObject *object) {
    HubName parts;
    Buffer url = {0};
    if (split_name(&parts, entry->name) < 0) return -1;
    if (!*parts.path) return fail(EX_USAGE, "'%s' names no file", entry->name);
    const int status = make_url(remote, &url, "datasets", &parts, "resolve", parts.path, strlen(parts.path));
    object->url = (char *)url.data, object->auth = AUTH_BEARER;
    if (hub_is_commit(parts.revision)) snprintf(object->commit, sizeof object->commit, "%s", parts.revision);
    return status;
}

static void add_name(Buffer *name, const HubName *parts, const char *path) {
    name->size = 0;
    buffer_print(name, HUB_PREFIX "%s@%s/%s", parts->repository, parts->revision, path);
    buffer_add(name, "", 1);
    name->size--;
}

int hub_pin(Buffer *name, const char *wanted, const RemoteObject *object) {
    HubName parts;
    if (split_name(&parts, wanted) < 0) return -1;
    if (!hub_is_commit(object->commit)) return fail(EX_DATA, "'%s': the hub names no commit (X-Repo-Commit)", wanted);
    snprintf(parts.revision, sizeof parts.revision, "%.40s", object->commit);
    add_name(name, &parts, parts.path);
    return 0;
}

static int request(Remote *remote, RemoteArgument *argument, char *url, Buffer *document, Response *response) {
    RemoteObject object = {.url = url, .name = argument->name, .auth = AUTH_BEARER};
    document->size = 0;
    return remote_request(remote, &object, document, response);
}

// Replaces the revision by its commit.
static int resolve(Remote *remote, RemoteArgument *argument, HubName *parts) {
    Buffer url = {0}, document = {0};
    Response response;
    char commit[HUB_COMMIT_DIGITS + 1];
    if (hub_is_commit(parts->revision)) return 0;
    int status = make_url(remote, &url, "api/datasets", parts, "revision", "", 0);
    if (status == 0)
        status = request(remote, argument, (char *)url.data, &document, &response);
    else
        buffer_close(&url);
    if (status == 0 && hub_commit_parse(commit, (Bytes){document.data, document.size}) < 0)
        status = fail_in("'%s'", argument->name);
    if (status == 0) snprintf(parts->revision, sizeof parts->revision, "%s", commit);
    buffer_close(&document);
    return status;
}

// Adds the files of a page that lie in the folder and match the pattern, if there is one.
static int add_files(RemoteArgument *argument, const HubName *parts, const HubTree *tree, size_t folder_size) {
    Buffer name = {0}, validator = {0};
    const bool is_pattern = strpbrk(parts->path, WILDCARDS);
    size_t root;
    int status = 0;
    for (size_t i = 0; status == 0 && i < tree->count; i++) {
        const HubFile *file = &tree->files[i];
        if (strncmp(file->path, parts->path, folder_size) != 0)
            status = fail(EX_DATA, "'%s': the listing has a file outside of it", argument->name);
        if (status < 0) continue;
        add_name(&name, parts, file->path);
        if (!argument->log && table_log_in((const char *)name.data, &root))
            argument->log = allocate_text((const char *)name.data, strlen((const char *)name.data));
        if (is_pattern && fnmatch(parts->path, file->path, 0) != 0) continue;
        validator.size = 0;
        if (file->sha256) buffer_print(&validator, ENTRY_SHA256 "%s", file->sha256);
        buffer_add(&validator, "", 1);
        status = argument_add(argument, (const char *)name.data, "", (const char *)validator.data, file->size);
    }
    buffer_close(&name);
    buffer_close(&validator);
    return status;
}

// Requests a page, and replaces its URL by the URL of the next page; empty after the last page.
static int list_page(Remote *remote, RemoteArgument *argument, const HubName *parts, size_t folder_size, Buffer *url) {
    Buffer document = {0};
    Response response;
    HubTree tree = {0};
    char *first = allocate_text((const char *)url->data, url->size);
    int status = request(remote, argument, allocate_text((const char *)url->data, url->size), &document, &response);
    if (status == 0 && hub_tree_parse(&tree, (Bytes){document.data, document.size}) < 0)
        status = fail_in("'%s'", argument->name);
    if (status == 0) status = add_files(argument, parts, &tree, folder_size);
    url->size = 0;
    if (status == 0 && *response.next) {
        // The token goes to the next page: a link to another host must not receive it.
        if (!remote_same_origin(remote, first, response.next) || !strcmp(first, response.next))
            status = fail(EX_DATA, "'%s': the next page of the listing is at another host, or the same page",
                          argument->name);
        buffer_print(url, "%s", response.next);
    }
    hub_tree_close(&tree);
    buffer_close(&document);
    free(first);
    return status;
}

int hub_list(Remote *remote, const char *wanted, RemoteArgument *argument) {
    HubName parts;
    Buffer path = {0}, url = {0}, name = {0};
    if (split_name(&parts, wanted) < 0 || resolve(remote, argument, &parts) < 0) return -1;
    const char *wildcard = strpbrk(parts.path, WILDCARDS);
    buffer_print(&path, "%s", parts.path);
    if (!wildcard && path.size && path.data[path.size - 1] != '/') buffer_print(&path, "/");
    buffer_add(&path, "", 1);
    parts.path = (const char *)path.data;
    size_t folder_size = path.size - 1; // of the folder that is listed, with its slash
    if (wildcard) folder_size = strcspn(parts.path, WILDCARDS);
    while (folder_size && parts.path[folder_size - 1] != '/') folder_size--;

    add_name(&name, &parts, parts.path);
    argument_set_name(argument, (const char *)name.data, name.size);
    argument->folder_length = name.size - strlen(parts.path) + folder_size;
    int status = make_url(remote, &url, "api/datasets", &parts, "tree", parts.path, folder_size ? folder_size - 1 : 0);
    buffer_print(&url, "?recursive=true");
    for (int pages = 0; status == 0 && url.size; pages++) {
        status = list_page(remote, argument, &parts, folder_size, &url);
        if (status == 0 && pages > PAGES_MAX) status = fail(EX_DATA, "'%s': its listing does not end", argument->name);
    }
    buffer_close(&path), buffer_close(&url), buffer_close(&name);
    return status;
}

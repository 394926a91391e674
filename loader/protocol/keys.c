// Key files, the allow-list, and the ZAP handler.
#include "loader/protocol/keys.h"
#include "common/err.h"
#include "common/file/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

enum { KEY_FILE_MAX = 4096, ALLOW_FILE_MAX = 1 << 20, ZAP_PARTS = 7 };

int key_check(const char *text, const char *where) {
    uint8_t bytes[KEY_BYTES];
    if (strlen(text) == KEY_TEXT - 1 && zmq_z85_decode(bytes, text)) return 0;
    return fail(EX_USAGE, "%s is not a key: expected 40 characters as printed by `millrace keygen`", where);
}

int keys_make(KeyPair *pair, const char *path) {
    char text[2 * KEY_TEXT + 1];
    if (zmq_curve_keypair(pair->public_key, pair->secret_key) < 0)
        return fail(EX_LIMIT, "cannot create keys: %s", zmq_strerror(errno));
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST) return fail(EX_CREATE, "'%s' exists already: choose another file", path);
    if (fd < 0) return fail_create(path);
    int length = snprintf(text, sizeof text, "%s\n%s\n", pair->public_key, pair->secret_key);
    int status = fd_write(fd, text, (size_t)length, path);
    if (status == 0 && fsync(fd) < 0) status = fail_errno("cannot write '%s'", path);
    close(fd);
    if (status < 0) unlink(path);
    return status;
}

static int check_pair(const KeyPair *pair, const char *path) {
    char derived[KEY_TEXT];
    if (zmq_curve_public(derived, pair->secret_key) == 0 && !strcmp(derived, pair->public_key)) return 0;
    return fail(EX_USAGE, "'%s': its public key, the first line, is not that of its secret key", path);
}

int keys_read(KeyPair *pair, const char *path) {
    struct stat st;
    Buffer text = {0};
    if (stat(path, &st) < 0) return fail_errno("cannot open '%s'", path);
    if (st.st_mode & 077) return fail(EX_PERMISSION, "other users may read the secret key in '%s': chmod 600 it", path);
    int status = file_read(&text, path, KEY_FILE_MAX);
    buffer_add(&text, "", 1);
    if (status == 0 && sscanf((const char *)text.data, "%40s %40s", pair->public_key, pair->secret_key) != 2)
        status = fail(EX_USAGE, "'%s' is not a key file of `millrace keygen`", path);
    if (status == 0) status = key_check(pair->public_key, path);
    if (status == 0) status = key_check(pair->secret_key, path);
    if (status == 0) status = check_pair(pair, path);
    buffer_close(&text);
    return status;
}

int allow_read(AllowList *list, const char *path) {
    Buffer text = {0};
    struct stat st;
    *list = (AllowList){0};
    if (stat(path, &st) < 0) return fail_errno("cannot open '%s'", path);
    if (st.st_mode & 022)
        return fail(EX_PERMISSION, "other users may change the list of keys '%s': chmod 644 it", path);
    if (file_read(&text, path, ALLOW_FILE_MAX) < 0) {
        buffer_close(&text);
        return -1;
    }
    buffer_add(&text, "", 1);
    int status = 0, number = 1;
    for (char *line = (char *)text.data, *end; status == 0 && *line; line = end, number++) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = '\0';
        line[strcspn(line, " \t\r")] = '\0';
        if (!*line) continue;
        if (key_check(line, "the first word") < 0)
            status = fail_in("'%s' line %d", path, number);
        else
            allow_add(list, line);
    }
    buffer_close(&text);
    if (status == 0 && !list->count) status = fail(EX_NOINPUT, "no keys in '%s'", path);
    if (status < 0) allow_close(list);
    return status;
}

void allow_add(AllowList *list, const char *key) {
    list->keys = array_grow(list->keys, list->count, sizeof *list->keys);
    zmq_z85_decode(list->keys[list->count++], key);
}

void allow_close(AllowList *list) {
    free(list->keys);
    *list = (AllowList){0};
}

void *zap_open(void *context) {
    void *socket = zmq_socket(context, ZMQ_REP);
    if (socket && zmq_bind(socket, "inproc://zeromq.zap.01") == 0) return socket;
    fail(EX_LIMIT, "cannot start the ZAP handler: %s", zmq_strerror(errno));
    if (socket) zmq_close(socket);
    return NULL;
}

static bool allowed(const AllowList *list, const uint8_t *key) {
    for (size_t i = 0; i < list->count; i++)
        if (!memcmp(list->keys[i], key, KEY_BYTES)) return true;
    return false;
}

bool allow_has(const AllowList *list, const char *key) {
    uint8_t bytes[KEY_BYTES];
    return strlen(key) == KEY_TEXT - 1 && zmq_z85_decode(bytes, key) && allowed(list, bytes);
}

// A request is: version, request id, domain, address, identity, mechanism, and for CURVE the public key of the client.
bool zap_handle_request(void *socket, const AllowList *list, char address[ZAP_ADDRESS_MAX]) {
    uint8_t parts[ZAP_PARTS][256];
    int sizes[ZAP_PARTS], count = 0, more = 1;
    for (; more; count++) {
        uint8_t extra[256];
        size_t size = sizeof more;
        int got = zmq_recv(socket, count < ZAP_PARTS ? parts[count] : extra, sizeof extra, count ? 0 : ZMQ_DONTWAIT);
        if (got < 0) return true;
        if (count < ZAP_PARTS) sizes[count] = got;
        zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size);
    }
    bool accepted = count == ZAP_PARTS && sizes[1] >= 0 && (size_t)sizes[1] <= sizeof parts[1] && sizes[5] == 5 &&
                    !memcmp(parts[5], "CURVE", 5) && sizes[6] == KEY_BYTES && allowed(list, parts[6]);
    char key[KEY_TEXT] = "";
    if (accepted) zmq_z85_encode(key, parts[6], KEY_BYTES);
    snprintf(address, ZAP_ADDRESS_MAX, "%.*s", count > 3 && sizes[3] > 0 && sizes[3] < 64 ? sizes[3] : 0, parts[3]);
    zmq_send(socket, "1.0", 3, ZMQ_SNDMORE);
    zmq_send(socket, parts[1], count > 1 && (size_t)sizes[1] <= sizeof parts[1] ? (size_t)sizes[1] : 0, ZMQ_SNDMORE);
    zmq_send(socket, accepted ? "200" : "400", 3, ZMQ_SNDMORE);
    zmq_send(socket, accepted ? "" : "unknown key", accepted ? 0 : 11, ZMQ_SNDMORE);
    zmq_send(socket, key, strlen(key), ZMQ_SNDMORE);
    zmq_send(socket, "", 0, 0);
    return accepted;
}

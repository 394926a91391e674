// Which trainers a loader with keys accepts over tcp.
#include "loader/protocol/keys.h"
#include "loader/protocol/wire.h"
#include "tests/unit/loader/fixture_loader.h"
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

enum { T = 64, ROWS = 8 };

static Feed *open_feed(const char *key_file, const char *loader_key, uint64_t timeout_ms) {
    return feed_open(TEST_FEED(T, ROWS, .endpoint = tcp_endpoint(), .timeout_ms = timeout_ms, .key_file = key_file,
                               .loader_key = loader_key));
}

static pid_t start_with_keys(void) {
    return start_loader_with("d", tcp_endpoint(), "--key=loader.key", "--allow=allow");
}

// A loader with keys, which allows two trainers; their key files are a.key and b.key.
static pid_t serve_two_keys(KeyPair *loader, KeyPair *a, KeyPair *b) {
    char allow[100];
    CHECK(keys_make(loader, "loader.key") == 0 && keys_make(a, "a.key") == 0 && keys_make(b, "b.key") == 0);
    snprintf(allow, sizeof allow, "%s\n%s\n", a->public_key, b->public_key);
    write_file("allow", allow, strlen(allow));
    make_test_dataset("d", &test_small);
    return start_with_keys();
}

// fault 53
TEST(feed_gets_data_over_tcp_only_with_a_key_the_loader_allows) {
    KeyPair loader, listed, unlisted;
    CHECK(keys_make(&loader, "loader.key") == 0 && keys_make(&listed, "listed.key") == 0);
    CHECK(keys_make(&unlisted, "unlisted.key") == 0);
    char allow[100];
    snprintf(allow, sizeof allow, "\n%s a comment\n", listed.public_key);
    write_file("allow", allow, strlen(allow));
    make_test_dataset("d", &test_small);
    pid_t pid = start_with_keys();

    Feed *feed = open_feed("listed.key", loader.public_key, FOREVER);
    CHECK(feed && feed_attach(feed) == 0);
    read_rows(feed, 1, ROWS, T, 5);
    feed_close(feed);

    // A key that is not on the list, no key, and a loader with another key than expected.
    enum { MS = 500 }; // the feed waits this long for an answer that never comes
    CHECK(!open_feed("unlisted.key", loader.public_key, FOREVER)); // refused at once
    CHECK_ERROR(EX_PERMISSION, "does not allow this trainer's key");
    wait_for_line("tcp", "refused 127.0.0.1: its key is not in 'allow' (1 refused so far)", 1);
    CHECK(!open_feed(NULL, NULL, FOREVER));
    CHECK_ERROR(EX_PERMISSION, "takes trainers with a key only");
    CHECK(!open_feed("listed.key", unlisted.public_key, MS));
    CHECK_ERROR(EX_PEER, "and the keys on both sides");
    CHECK(!open_feed("listed.key", NULL, MS));
    CHECK_ERROR(EX_USAGE, "");
    CHECK(!open_feed("listed.key", "too short", MS));
    CHECK_ERROR(EX_USAGE, "");
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);

    pid = start_loader_with("d", tcp_endpoint(), "--insecure", NULL);
    CHECK(!open_feed("listed.key", loader.public_key, FOREVER));
    CHECK_ERROR(EX_PERMISSION, "has no keys, and this trainer has");
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// fault 53
TEST(loader_refuses_a_key_that_is_removed_from_its_list) {
    KeyPair loader, removed, kept;
    pid_t pid = serve_two_keys(&loader, &removed, &kept);
    Feed *feed = open_feed("a.key", loader.public_key, FOREVER),
         *other = open_feed("b.key", loader.public_key, FOREVER);
    CHECK(feed && feed_attach(feed) == 0 && other && feed_attach(other) == 0);

    // A list that is not valid changes nothing.
    write_file("allow", "nonsense\n", 9);
    kill(pid, SIGHUP);
    wait_for_line("tcp", "the allow-list stays as it was: 'allow' line 1: the first word is not a key", 1);
    read_rows(feed, 1, ROWS, T, 5);

    write_file("allow", kept.public_key, KEY_TEXT - 1);
    kill(pid, SIGHUP);
    wait_for_line("tcp", "keys allowed: 1", 1);
    CHECK_EQUAL(result_of_rows(feed, ROWS, 5), FEED_ERROR);
    CHECK_ERROR(EX_PERMISSION, "removed from the allow-list");
    read_rows(other, 1, ROWS, T, 5);
    feed_close(feed), feed_close(other);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// fault 53
TEST(feed_names_the_keys_when_the_loader_comes_back_with_others) {
    KeyPair loader, trainer, other, rotated;
    pid_t pid = serve_two_keys(&loader, &trainer, &other);
    Feed *feed = open_feed("a.key", loader.public_key, 2000);
    CHECK(feed && feed_attach(feed) == 0);
    read_rows(feed, 1, ROWS, T, 5);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
    CHECK(unlink("loader.key") == 0 && keys_make(&rotated, "loader.key") == 0);
    pid = start_with_keys();
    CHECK_EQUAL(result_of_rows(feed, ROWS, 5), FEED_ERROR);
    CHECK_ERROR(EX_PEER, "for 2 s: check its address, and the keys on both sides");
    feed_close(feed);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// fault 105
TEST(keys_of_two_pairs_are_refused_where_they_are_read) {
    KeyPair a, b, read;
    char text[2 * KEY_TEXT + 1];
    CHECK(keys_make(&a, "a.key") == 0 && keys_make(&b, "b.key") == 0 && keys_read(&read, "a.key") == 0);
    const char *const lines[][2] = {{a.public_key, b.secret_key}, {a.secret_key, a.public_key}};
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "%s\n%s\n", lines[i][0], lines[i][1]);
        write_file("mixed.key", text, strlen(text));
        CHECK(chmod("mixed.key", 0600) == 0 && keys_read(&read, "mixed.key") < 0);
        CHECK_ERROR(EX_USAGE, "'mixed.key': its public key, the first line, is not that of its secret key");
    }
}

// The code of the ERROR that answers `type` with session 77 from the owner of `keys`; 0: another answer.
static unsigned refusal(const KeyPair *keys, const char *loader_key, WireType type) {
    static const WireHello hello = {.vocab_size = 50304, .sequence_tokens = T, .max_rows = ROWS, .window = 4};
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
    const int none = 0;
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, loader_key, KEY_TEXT);
    zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, keys->public_key, KEY_TEXT);
    zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, keys->secret_key, KEY_TEXT);
    CHECK(zmq_connect(socket, tcp_endpoint()) == 0);
    WireMessage message;
    memset(&message, 0, sizeof message);
    message.header.type = (uint8_t)type, message.header.session = 77;
    if (type == WIRE_HELLO) message.hello = hello;
    Bytes frame = wire_encode(&message);
    uint8_t bytes[4096];
    CHECK(zmq_send(socket, frame.data, frame.size, 0) >= 0);
    const int got = zmq_recv(socket, bytes, sizeof bytes, 0);
    CHECK(got > 0 && wire_decode((Bytes){bytes, (size_t)got}, &message, NULL) == WIRE_VALID);
    zmq_close(socket);
    zmq_ctx_term(context);
    return message.header.type == WIRE_ERROR ? message.error.code : 0;
}

// fault 99
TEST(loader_refuses_the_session_of_another_key) {
    KeyPair loader, owner, other;
    pid_t pid = serve_two_keys(&loader, &owner, &other);
    CHECK_EQUAL(refusal(&owner, loader.public_key, WIRE_HELLO), 0);
    CHECK_EQUAL(refusal(&other, loader.public_key, WIRE_HELLO), WIRE_PROTO);
    CHECK_EQUAL(refusal(&other, loader.public_key, WIRE_BYE), WIRE_PROTO);
    CHECK_EQUAL(refusal(&owner, loader.public_key, WIRE_HELLO), 0); // also over a new connection
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

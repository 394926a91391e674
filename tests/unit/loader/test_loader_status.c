// What the loader reports of its clients and datasets.
#include "tests/unit/loader/fixture_peer.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { T = PEER_T, ROWS = PEER_ROWS };

static const char *printed(const Status *status, StatusForm form, const char *address) {
    static Buffer text;
    static Endpoint endpoint;
    text.size = 0;
    CHECK_EQUAL(endpoint_parse(&endpoint, address, false), 0);
    status_print(status, form, &endpoint, &text);
    buffer_add(&text, "", 1);
    return (const char *)text.data;
}

// fault 98
TEST(loader_status_shows_who_a_client_is_where_it_is_and_what_it_has_not_read) {
    enum { BIG = 60000, FIRST = 1000 };
    const pid_t pid = serve_ready();
    Peer peer = peer_open("p");
    static Status status;
    uint8_t fp8[8];
    WireHello hello = {.vocab_size = 50304, .sequence_tokens = T, .max_rows = BIG, .window = 1};
    strcpy(hello.name, "a\"b\\c 1\nmillrace_loader_forged 1\x1b[2J\xe2\x80\xae");
    peer_greet(&peer, &hello, fp8);
    peer_set_get(&peer, fp8, BIG, 0, 0);
    peer.message.get.mode = SAMPLING_CROP, peer.message.get.first_sample = FIRST;
    peer_send(&peer, WIRE_GET, 0);
    do read_status(&status, "ipc://p");
    while (!status.totals.batches);
    CHECK_EQUAL(status.totals.clients, 1);
    const WireClientStats *client = &status.clients[0];
    char address[32];
    snprintf(address, sizeof address, "pid %d", (int)getpid());
    CHECK_TEXT(client->address, address);
    CHECK_TEXT(client->name, "a\"b\\c 1?millrace_loader_forged 1?[2J???");
    CHECK_EQUAL(client->next_sample, FIRST + BIG);
    CHECK(client->unread_bytes >= BIG * (T + 1) * 2);
    const char *metrics = printed(&status, STATUS_PROMETHEUS, "ipc://p");
    CHECK(strstr(metrics, ",name=\"a\\\"b\\\\c 1?millrace_loader_forged 1?[2J???\"} 61000\n"));
    CHECK(!strstr(metrics, "\nmillrace_loader_forged") && !strchr(metrics, 0x1b));
    CHECK(strstr(printed(&status, STATUS_JSON, "ipc://p"),
                 "\"name\": \"a\\\"b\\\\c 1?millrace_loader_forged 1?[2J???\", \"address\""));
    CHECK(strstr(printed(&status, STATUS_TABLE, "ipc://p"), " a\"b\\c 1?millrace_loader_forged 1?[2J???\n"));

    // An evaluation of the train split does not move the position; a name that does not end is refused.
    WireMessage answer;
    while (peer_receive(&peer, &answer) == WIRE_BATCH &&
           answer.batch.offset + answer.batch.length < BIG * (T + 1) * 2) {
    }
    peer_set_get(&peer, fp8, ROWS, 0, 0);
    peer_send(&peer, WIRE_GET, 0);
    CHECK_EQUAL(peer_receive(&peer, &answer), WIRE_BATCH);
    read_status(&status, "ipc://p");
    CHECK(status.clients[0].next_sample == FIRST + BIG && status.clients[0].batches == 2);
    memset(hello.name, 'x', sizeof hello.name);
    peer.message.hello = hello;
    peer_send(&peer, WIRE_HELLO, 0);
    CHECK_EQUAL(peer_receive(&peer, &answer), WIRE_ERROR);
    CHECK(answer.error.code == WIRE_PROTO && strstr(answer.error.text, "'name'"));
    peer_close(&peer);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

TEST(loader_metrics_have_the_place_of_their_loader_in_each_sample) {
    static const Status status = {.totals = {.clients = 1, .sources = 1}, .sources = {{.name = "tab\there"}}};
    char *here = realpath(".", NULL), label[PATH_MAX_BYTES];
    CHECK(mkdir("a\"b\\c\nd\te\xff", 0700) == 0 && symlink("a\"b\\c\nd\te\xff", "link") == 0);
    snprintf(label, sizeof label, "{endpoint=\"ipc://%s/a\\\"b\\\\c\\nd\te\xEF\xBF\xBD\"", here);
    const char *text = printed(&status, STATUS_PROMETHEUS, "ipc://link");
    unsigned samples = 0;
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        const char *open = strchr(line, '{');
        if (*line == '#') continue;
        samples++;
        CHECK(open && open < end && !strncmp(open, label, strlen(label)));
    }
    CHECK_EQUAL(samples, 2 + 16 + 10 + 7);
    CHECK(strstr(text, ",name=\"tab\there\",fingerprint=\"0000000000000000\",source=\"1\"} 0\n"));
    CHECK(strstr(printed(&status, STATUS_PROMETHEUS, "tcp://localhost:1"),
                 "_sessions{endpoint=\"tcp://localhost:1\"} 0\n"));
    free(here);
}

TEST(loader_status_shows_the_newest_name_and_address_of_a_session) {
    make_test_dataset("d", &test_small);
    const pid_t pid = start_loader("d", tcp_endpoint());
    const char *const hosts[] = {"127.0.0.1", "127.0.0.2"}, *const names[] = {"first", ""};
    static Status status;
    for (int i = 0; i < 2; i++) {
        char from[80];
        snprintf(from, sizeof from, "tcp://%s:0;%s", hosts[i], tcp_endpoint() + strlen("tcp://"));
        Peer peer = peer_open(from);
        uint8_t fp8[8];
        WireHello hello = peer_hello;
        strcpy(hello.name, names[i]);
        peer_greet(&peer, &hello, fp8);
        read_status(&status, tcp_endpoint());
        CHECK_EQUAL(status.totals.clients, 1);
        CHECK(!strcmp(status.clients[0].address, hosts[i]) && !strcmp(status.clients[0].name, names[i]));
        peer_close(&peer);
    }
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

// The tokens that status reports of each source of these datasets after 8 samples for training and evaluations.
static void check_training_tokens(const char *dataset, const char *other, const uint64_t tokens[2]) {
    const pid_t pid = start_loader_with(dataset, "p", other, NULL);
    wait_for_loader("p", 1);
    Peer peer = peer_open("p");
    static Status status;
    uint8_t fp8[8];
    WireMessage answer;
    peer_greet(&peer, &peer_hello, fp8);
    static const WireGet gets[] = {{.mode = SAMPLING_EPOCH},
                                   {.mode = SAMPLING_EPOCH, .split = SPLIT_VAL},
                                   {.mode = SAMPLING_PERMUTED, .first_sample = 100},
                                   {.mode = SAMPLING_PERMUTED, .split = SPLIT_VAL, .source = 1},
                                   {.mode = SAMPLING_EPOCH, .source = 1, .first_sample = 100}};
    for (const WireGet *get = gets; get < gets + sizeof gets / sizeof *gets; get++) {
        peer.message.get = *get;
        peer.message.get.rows = ROWS, peer.message.get.sequence_tokens = T;
        memcpy(peer.message.get.dataset_fp8, fp8, 8);
        peer_send(&peer, WIRE_GET, 0);
        CHECK_EQUAL(peer_receive(&peer, &answer), WIRE_BATCH);
        read_status(&status, "ipc://p");
        CHECK_EQUAL(status.totals.sources, other ? 2 : 1);
        for (unsigned i = 0; i < status.totals.sources; i++) {
            CHECK_EQUAL(status.sources[i].tokens, tokens[i]);
            CHECK_EQUAL(status.sources[i].highest, ROWS);
        }
    }
    CHECK_EQUAL(status.sources[0].batches, 5);
    if (other) CHECK_EQUAL(status.sources[1].batches, 3); // without those of source 1 alone
    peer_close(&peer);
    CHECK_EQUAL(stop_loader(pid, SIGTERM), 0);
}

TEST(loader_status_counts_the_tokens_for_training_without_evaluations) {
    make_test_dataset("d", &test_small);
    make_test_dataset("e", &test_small);
    check_training_tokens("d", NULL, (const uint64_t[]){ROWS * T, 0});
    CHECK(unlink("p.log") == 0);
    check_training_tokens("d:3", "e:1", (const uint64_t[]){ROWS * 3 / 4 * T, ROWS / 4 * T});
}

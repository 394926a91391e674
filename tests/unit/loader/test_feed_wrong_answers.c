// A feed with a loader that sends wrong answers: none of them reaches a batch.
#include "common/hash.h"
#include "loader/protocol/wire.h"
#include "tests/unit/loader/fixture_loader.h"
#include <pthread.h>
#include <sys/stat.h>
#include <zmq.h>

enum { T = 16, ROWS = 4, WRONG_ANSWERS = 11, BATCHES = 5 };

typedef struct {
    void *context;
    int wrong_answers;
    uint64_t corrupted; // samples below this one have been sent once with a wrong CRC
    bool named;         // a message named the loader's instance
} WrongLoader;

static uint16_t right_id(uint64_t first, size_t i) { return (uint16_t)(first * 1000 + i); }

static void send_to(void *router, zmq_msg_t *route, WireMessage *message, const void *payload, size_t size) {
    Bytes frame = wire_encode(message);
    zmq_send(router, zmq_msg_data(route), zmq_msg_size(route), ZMQ_SNDMORE);
    zmq_send(router, frame.data, frame.size, size ? ZMQ_SNDMORE : 0);
    if (size) zmq_send(router, payload, size, 0);
}

// Once with sources that do not have their CRC, then right.
static void send_welcome(void *router, zmq_msg_t *route, WireMessage *answer) {
    const struct {
        WireSource source;
        WireWeights weights;
    } part = {.source.tokens = {1000, 0}, .weights.weights = {MIXTURE_SUM}};
    answer->welcome = (WireWelcome){.window = 1, .tokens = {1000, 0}, .vocab_size = 50257, .sources = 1, .entries = 1};
    send_to(router, route, answer, &part, sizeof part);
    answer->welcome.sources_crc = crc32c(0, &part, sizeof part);
    send_to(router, route, answer, &part, sizeof part);
}

static void send_answers(WrongLoader *loader, void *router, zmq_msg_t *route, const WireMessage *get,
                         WireMessage answer) {
    uint16_t ids[(ROWS + 1) * (T + 1)], wrong[ROWS * (T + 1)];
    for (size_t i = 0; i < ROWS * (T + 1); i++) ids[i] = right_id(get->get.first_sample, i), wrong[i] = 7;
    answer.header.type = WIRE_BATCH;
    answer.batch = (WireBatch){.first_sample = get->get.first_sample,
                               .rows = ROWS,
                               .sequence_tokens = T,
                               .slot = get->get.slot,
                               .generation = get->get.generation,
                               .length = sizeof wrong,
                               .payload_crc = crc32c(0, ids, sizeof wrong)};
    for (int kind = 0; kind < WRONG_ANSWERS; kind++) {
        WireMessage message = answer;
        size_t size = sizeof wrong;
        switch (kind) {
        case 0:
            message.header.session++;
            break;
        case 1:
            message.header.req_id += 100;
            break;
        case 2:
            message.header.loader_instance++;
            break;
        case 3:
            message.header.attach_id = 5;
            break;
        case 4:
            message.batch.slot++;
            break;
        case 5:
            message.batch.generation--;
            break;
        case 6:
            message.batch.first_sample++;
            break;
        case 7:
            message.batch.sequence_tokens++, message.batch.length += ROWS * 2, size += ROWS * 2;
            break;
        case 8:
            message.batch.rows--, message.batch.length -= (T + 1) * 2, size -= (T + 1) * 2;
            break;
        case 9:
            size = 0;
            break;
        case 10:
            size -= 2;
            break;
        }
        message.batch.payload_crc = crc32c(0, kind == 7 ? ids : wrong, message.batch.length);
        send_to(router, route, &message, kind == 7 ? ids : wrong, size);
    }
    loader->wrong_answers += WRONG_ANSWERS;
    // The first time the rows do not match their CRC: the feed must request them again with another generation.
    bool again = loader->corrupted > get->get.first_sample;
    loader->corrupted = get->get.first_sample + 1;
    send_to(router, route, &answer, again ? ids : wrong, sizeof wrong);
}

static void *send_wrong_answers(void *argument) {
    WrongLoader *loader = argument;
    void *router = zmq_socket(loader->context, ZMQ_ROUTER);
    int ms = 120000;
    zmq_setsockopt(router, ZMQ_RCVTIMEO, &ms, sizeof ms);
    for (bool bound = zmq_bind(router, "ipc://p/data.sock") == 0; bound;) {
        zmq_msg_t route, frame, more;
        zmq_msg_init(&route), zmq_msg_init(&frame), zmq_msg_init(&more);
        WireMessage message, answer;
        memset(&answer, 0, sizeof answer);
        if (zmq_msg_recv(&route, router, 0) < 0 || zmq_msg_recv(&frame, router, 0) < 0) break;
        if (wire_decode((Bytes){zmq_msg_data(&frame), zmq_msg_size(&frame)}, &message, NULL) != WIRE_VALID) break;
        loader->named = loader->named || message.header.loader_instance;
        answer.header.session = message.header.session, answer.header.req_id = message.header.req_id;
        answer.header.loader_instance = 3;
        bound = message.header.type != WIRE_BYE;
        if (message.header.type == WIRE_HELLO) {
            send_to(router, &route, &message, NULL, 0); // the request itself
            answer.header.type = WIRE_WELCOME;
            send_welcome(router, &route, &answer);
        } else if (message.header.type == WIRE_GET) {
            send_answers(loader, router, &route, &message, answer);
        }
        zmq_msg_close(&route), zmq_msg_close(&frame), zmq_msg_close(&more);
    }
    zmq_close(router);
    return NULL;
}

// fault 50
TEST(feed_drops_every_answer_that_does_not_match_its_request) {
    WrongLoader loader = {.context = zmq_ctx_new()};
    pthread_t thread;
    CHECK(mkdir("p", 0700) == 0 && pthread_create(&thread, NULL, send_wrong_answers, &loader) == 0);
    Feed *feed = open_test_feed(TEST_FEED(T, ROWS, .window = 1));
    for (uint64_t first = 0; first < BATCHES; first++) {
        FeedRequest request = {SPLIT_TRAIN, SAMPLING_EPOCH, ROWS, 0, first, 0, 0};
        FeedBatch batch;
        CHECK(feed_request(feed, &request) == 0 && feed_next(feed, &batch) == FEED_BATCH);
        CHECK(batch.rows == ROWS && batch.first_sample == first);
        for (size_t i = 0; i < ROWS * (T + 1); i++) CHECK_EQUAL(((const uint16_t *)batch.ids)[i], right_id(first, i));
        feed_release(feed, &batch);
    }
    FeedStats stats = feed_stats(feed);
    feed_close(feed);
    pthread_join(thread, NULL);
    CHECK(!loader.named); // as wire.h has it of messages to a loader
    // Every wrong answer was counted, also the rows with the wrong CRC.
    CHECK_EQUAL(stats.batches, BATCHES);
    CHECK(loader.wrong_answers >=
          2 * WRONG_ANSWERS * BATCHES); // more when the feed asked again, which it does after 50 ms
    CHECK(stats.dropped >= 2 * WRONG_ANSWERS * BATCHES);
    zmq_ctx_term(loader.context);
}

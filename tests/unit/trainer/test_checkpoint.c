// Checkpoints: written, read back, found, damaged, rotated; safetensors as foreign bytes.
#include "common/file/file.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/rng.h"
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include "trainer/checkpoint/run_state.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/export/export.h"
#include "trainer/import/foreign_model.h"
#include "trainer/records/metrics.h"
#include "trainer/run/run_save.h"
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <unistd.h>

static RunState state_at(uint64_t step) {
    RunState now;
    run_state_init(&now);
    now.step = step, now.updates = step, now.dataset_count = 1, now.datasets[0].consumed = 2 * step;
    snprintf(now.datasets[0].name, sizeof now.datasets[0].name, "a \"quoted\" name");
    memset(now.datasets[0].fingerprint, 7, 32);
    memset(now.vocab_fp, 9, 32);
    return now;
}

// Gives the moments values too.
static void scramble(Tiny *tiny) {
    float *m = network_at(&tiny->network, tiny->plan.states[0]), *v = network_at(&tiny->network, tiny->plan.states[1]);
    for (int i = 0; i < tiny->model.count; i++)
        for (size_t k = 0; k < (size_t)tiny->model.tensors[i].file_rows * (size_t)tiny->model.tensors[i].cols; k++)
            m[tiny->model.tensors[i].offset + k] = (float)k, v[tiny->model.tensors[i].offset + k] = -(float)k;
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

TEST(checkpoint_gives_back_every_bit) {
    for (int bias = 0; bias < 2; bias++) {
        TinyShape shape = tiny_shape;
        shape.bias = bias;
        Tiny a, b;
        tiny_open(&a, &shape);
        scramble(&a);
        RunState now = state_at(7), found;
        now.best_loss = 1.0 / 3, now.best_step = 7, now.eval_rule = 11, now.evaluated = true;
        if (bias) now.scaler = (LossScaler){512, 1234, 2};
        for (int i = 0; i < 70; i++) spike_add(&now.spikes, 1.0 / (i + 3), i + 1, 6);
        if (bias) strcpy(now.choices, "a card\nof two lines\n");
        strcpy(found.choices, "of an earlier file");
        now.changes[0] = (DatasetChange){.step = 3, .consumed = 12}, now.change_count = 1;
        char out[16], path[PATH_MAX_BYTES];
        snprintf(out, sizeof out, "run%d", bias);
        CHECK(dir_make(out) == 0 && checkpoint_save(&a.network, &now, &a.config, out, NULL) == 0);
        CHECK(checkpoint_find(out, &a.config, path, &found) == 1);
        CHECK_TEXT(path, "ckpt-00000007");
        CHECK(found.step == 7 && found.best_loss == 1.0 / 3 && found.eval_rule == 11 && isnan(found.last_loss) &&
              found.evaluated && found.best_step == 7);
        CHECK(!memcmp(found.datasets, now.datasets, sizeof now.datasets[0]) && found.dataset_count == 1);
        CHECK(!memcmp(found.changes, now.changes, sizeof now.changes[0]) && found.change_count == 1);
        CHECK(!memcmp(&found.scaler, &now.scaler, sizeof now.scaler));
        CHECK(!memcmp(&found.spikes, &now.spikes, sizeof now.spikes));
        CHECK(!strcmp(found.choices, now.choices));
        float *params = tiny_read(&a, a.plan.params), *m = tiny_read(&a, a.plan.states[0]),
              *v = tiny_read(&a, a.plan.states[1]);
        tiny_close(&a);

        tiny_open(&b, &shape);
        CHECK(network_init(&b.network, 5) == 0); // others
        CHECK(checkpoint_load(&b.network, path, true) == 0);
        float *params2 = tiny_read(&b, b.plan.params), *m2 = tiny_read(&b, b.plan.states[0]),
              *v2 = tiny_read(&b, b.plan.states[1]);
        size_t bytes = b.model.elements * sizeof(float);
        CHECK(!memcmp(params, params2, bytes) && !memcmp(m, m2, bytes) && !memcmp(v, v2, bytes));
        CHECK(checkpoint_load(&b.network, path, false) == 0); // as init_from: moments begin at zero
        float *m3 = tiny_read(&b, b.plan.states[0]);
        for (size_t i = 0; i < b.model.elements; i++) CHECK(m3[i] == 0);
        free(params), free(m), free(v), free(params2), free(m2), free(v2), free(m3);
        tiny_close(&b);
    }
}

// Rows, columns and pieces that end within a tile.
TEST(checkpoint_whose_tensors_are_read_in_pieces_is_saved_again_with_the_same_bytes) {
    for (int narrow = 0; narrow < 2; narrow++) {
        const TinyShape *shape =
            TINY_SHAPE(.layers = 1, .channels = 140, .vocab = 500, .optimizer_state = narrow ? STATE_BF16 : STATE_FP32);
        const RunState now = state_at(2);
        Tiny tiny;
        tiny_open(&tiny, shape);
        tiny_train(&tiny, 0, 2, NULL);
        CHECK(dir_make("run") == 0 && checkpoint_save(&tiny.network, &now, &tiny.config, "run", NULL) == 0);
        tiny_close(&tiny);
        tiny_open(&tiny, shape);
        CHECK(network_init(&tiny.network, 5) == 0 && checkpoint_load(&tiny.network, "run/ckpt-00000002", true) == 0);
        CHECK(dir_make("again") == 0 && checkpoint_save(&tiny.network, &now, &tiny.config, "again", NULL) == 0);
        CHECK_EQUAL(system("diff -r run again && rm -r run again"), 0);
        tiny_close(&tiny);
    }
}

// fault 76
TEST(checkpoint_that_is_damaged_gives_way_to_the_one_before) {
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
    Tiny tiny;
    tiny_open(&tiny, &tiny_shape);
    CHECK(dir_make("run") == 0);
    RunState now = state_at(1), found;
    CHECK(checkpoint_save(&tiny.network, &now, &tiny.config, "run", NULL) == 0);
    char path[PATH_MAX_BYTES];
    for (int file = 0; file < 3; file++) {
        // a bit at the start, in the header, in the middle, at the end; and a file cut short
        for (int where = 0; where < 5; where++) {
            now = state_at(2);
            CHECK(checkpoint_save(&tiny.network, &now, &tiny.config, "run", NULL) == 0);
            char name[64];
            size_t size;
            snprintf(name, sizeof name, "run/ckpt-00000002/%s", files[file]);
            char *data = read_file(name, &size);
            const size_t places[] = {0, 60, size / 2, size - 30};
            if (where < 4) data[places[where]] ^= 1;
            write_file(name, data, where < 4 ? size : size - 1);
            free(data);
            CHECK(checkpoint_find("run", &tiny.config, path, &found) == 1);
            CHECK_EQUAL(found.step, 1);
            CHECK(exists("run/ckpt-00000002.damaged") && !exists("run/ckpt-00000002"));
            CHECK(system("rm -r run/ckpt-00000002.damaged") == 0);
        }
    }
    CHECK(truncate("run/ckpt-00000001/model.safetensors", 100) == 0);
    for (int call = 0; call < 2; call++) { // the second one, too, does not take the run for a new one
        err_clear();
        CHECK_EQUAL(checkpoint_find("run", &tiny.config, path, &found), -1);
        CHECK_ERROR(EX_DATA, "no undamaged checkpoint");
    }
    tiny_close(&tiny);
}

// Changes a bit of every third byte of the tensors of a directory, one after another. Each change must be found.
static void check_flips(const char *directory, Network *network) {
    SafeFile file;
    char name[PATH_MAX_BYTES];
    CHECK(safe_open(&file, path_join(name, directory, "model.safetensors")) == 0);
    const int fd = open(name, O_WRONLY);
    CHECK(fd >= 0);
    for (const uint8_t *at = file.data; at < file.map.data + file.map.size; at += 3) {
        const uint8_t kept = *at, flipped = (uint8_t)(kept ^ (1 << (at - file.data) % 8));
        const off_t byte = at - file.map.data;
        CHECK(pwrite(fd, &flipped, 1, byte) == 1);
        CHECK_EQUAL(checkpoint_load(network, directory, false), -1);
        CHECK_ERROR(EX_DATA, "is damaged");
        CHECK(pwrite(fd, &kept, 1, byte) == 1);
    }
    close(fd);
    safe_close(&file);
    CHECK(checkpoint_load(network, directory, false) == 0);
}

// fault 88
TEST(a_changed_bit_of_a_tensor_is_found_in_a_checkpoint_an_export_and_an_import) {
    static const char *const directories[] = {"run/ckpt-00000001", "exported", "imported"};
    Tiny tiny;
    tiny_open(&tiny, TINY_SHAPE(.layers = 1, .channels = 4, .block = 3, .vocab = 11));
    ForeignModel foreign;
    char path[PATH_MAX_BYTES];
    snprintf(path, sizeof path, "%s/fuzz/import/float32.pt", test_data);
    const RunState now = state_at(1);
    CHECK(dir_make("run") == 0 && checkpoint_save(&tiny.network, &now, &tiny.config, "run", NULL) == 0);
    CHECK(dir_make("exported") == 0);
    write_file("exported/characters.txt", "\n abcdefgz", 10); // and the end of a text
    CHECK(model_export(directories[0], "exported", &tiny.model.shape, DTYPE_FP32) == 0);
    CHECK(dir_make("imported") == 0 && foreign_open(&foreign, path, true) == 0);
    CHECK(foreign_write(&foreign, "imported/model.safetensors", &foreign.model.shape) == 0);
    foreign_close(&foreign);
    for (unsigned i = 0; i < 3; i++) check_flips(directories[i], &tiny.network);
    tiny_close(&tiny);
}

// What training changes while the thread writes is not in the checkpoint.
TEST(checkpoint_writer_saves_the_network_as_it_was_at_the_start) {
    for (int offload = 0; offload < 2; offload++) {
        Tiny tiny;
        tiny_open(&tiny, TINY_SHAPE(.offload = offload ? OFFLOAD_OPTIMIZER : OFFLOAD_NONE));
        scramble(&tiny);
        char out[32], path[PATH_MAX_BYTES];
        snprintf(out, sizeof out, "beside%d", offload);
        CHECK(dir_make(out) == 0);
        tiny.config.out_dir = out;
        RunState now = state_at(5), found;
        CHECK(checkpoint_save(&tiny.network, &now, &tiny.config, "waiting", NULL) < 0); // no such directory
        err_clear();
        CHECK(dir_make("waiting") == 0 && checkpoint_save(&tiny.network, &now, &tiny.config, "waiting", NULL) == 0);
        const int metrics = open("metrics.jsonl", O_WRONLY | O_CREAT, 0666);
        HostCopy copy;
        CheckpointWriter writer = {.copy = &copy, .config = &tiny.config};
        host_copy_open(&copy, &tiny.network, &tiny.config, UINT64_MAX);
        CHECK(copy.view.arena && !copy.populated); // its pages are taken when it is needed
        CHECK_EQUAL(checkpoint_writer_result(&writer, true), 0);
        CHECK(checkpoint_writer_start(&writer, &tiny.network, &now, metrics));
        CHECK(!checkpoint_writer_start(&writer, &tiny.network, &now, metrics)); // one at a time
        CHECK(network_init(&tiny.network, 99) == 0);
        CHECK_EQUAL(checkpoint_writer_result(&writer, true), 1);
        CHECK_EQUAL(writer.state.step, 5);
        CHECK_EQUAL(checkpoint_newest(out, NULL, path, &found), 1);
        char command[256];
        snprintf(command, sizeof command, "diff -r waiting/ckpt-00000005 %s/ckpt-00000005 && rm -r waiting", out);
        CHECK_EQUAL(system(command), 0);
        now.step = 6, tiny.config.out_dir = "nowhere";
        CHECK(checkpoint_writer_start(&writer, &tiny.network, &now, metrics));
        CHECK_EQUAL(checkpoint_writer_result(&writer, true), -1);
        CHECK_ERROR(EX_CREATE, "nowhere");
        checkpoint_writer_close(&writer);
        host_copy_close(&copy);
        close(metrics);
        tiny_close(&tiny);
    }
}

// Single-bit flips at random places of all four files, and one in each byte of the headers.
// fault 76
TEST_CI(checkpoint_detects_every_flipped_bit) {
    enum { FLIPS = 250 };
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json", "config.json"};
    Tiny tiny;
    tiny_open(&tiny, TINY_SHAPE(.layers = 1, .heads = 1, .channels = 8, .vocab = 16, .block = 4));
    CHECK(dir_make("run") == 0);
    RunState now = state_at(1), found;
    CHECK(checkpoint_save(&tiny.network, &now, &tiny.config, "run", NULL) == 0);
    log_quiet = true;
    for (int file = 0; file < 4; file++) {
        char name[64], path[PATH_MAX_BYTES];
        size_t size;
        snprintf(name, sizeof name, "run/ckpt-00000001/%s", files[file]);
        char *data = read_file(name, &size);
        uint64_t header = 0;
        if (file < 2) memcpy(&header, data, sizeof header), header += sizeof header;
        for (uint64_t i = 0; i < FLIPS + header; i++) {
            uint64_t byte = i < header ? i : rng_u64(3, (uint64_t)file, i) % size,
                     bit = rng_u64(4, (uint64_t)file, i) % 8;
            int fd = open(name, O_WRONLY);
            char flipped = (char)(data[byte] ^ (1 << bit));
            CHECK(fd >= 0 && pwrite(fd, &flipped, 1, (off_t)byte) == 1);
            CHECK_EQUAL(checkpoint_newest("run", NULL, path, &found), -1);
            err_clear();
            CHECK(pwrite(fd, &data[byte], 1, (off_t)byte) == 1 && close(fd) == 0);
        }
        free(data);
        CHECK_EQUAL(checkpoint_newest("run", NULL, path, &found), 1);
    }
    log_quiet = false;
    tiny_close(&tiny);
}

// fault 77
TEST(checkpoint_of_another_model_is_refused_with_the_differences) {
    Tiny tiny;
    tiny_open(&tiny, &tiny_shape);
    CHECK(dir_make("run") == 0);
    RunState now = state_at(4);
    CHECK(checkpoint_save(&tiny.network, &now, &tiny.config, "run", NULL) == 0);
    char path[PATH_MAX_BYTES];
    Config other = tiny.config;
    other.learning_rate = 3, other.batch_size.value = 1, other.out_dir = "elsewhere"; // may change
    CHECK_EQUAL(checkpoint_find("run", &other, path, &now), 1);
    other.n_layer = 3, other.seed = 4, other.bias = false;
    CHECK_EQUAL(checkpoint_find("run", &other, path, &now), -1);
    CHECK_EQUAL(err_code(), EX_USAGE);
    CHECK_TEXT(err_text(), "n_layer is 3, was 2");
    CHECK_TEXT(err_text(), "seed is 4, was 1337");
    CHECK_TEXT(err_text(), "bias is False, was True");
    CHECK(!strstr(err_text(), "batch_size"));
    tiny_close(&tiny);
}

// fault 81
TEST(checkpoints_rotate_but_for_the_last_two_and_the_best) {
    Tiny tiny;
    tiny_open(&tiny, &tiny_shape);
    CHECK(dir_make("run/ckpt-5") == 0 &&
          dir_make("run/ckpt-00000001/mine") == 0); // not ours, and with a foreign folder
    for (uint64_t step = 1; step <= 6; step++) {
        RunState now = state_at(step);
        now.best_step = step < 2 ? step : 2;
        CHECK(checkpoint_save(&tiny.network, &now, &tiny.config, "run", NULL) == 0);
    }
    CHECK(exists("run/ckpt-00000002") && exists("run/ckpt-00000005") && exists("run/ckpt-00000006"));
    CHECK(!exists("run/ckpt-00000003") && !exists("run/ckpt-00000004"));
    CHECK(exists("run/ckpt-5") && exists("run/ckpt-00000001/mine"));

    // a checkpoint that the user keeps elsewhere, with a link in its place
    CHECK(system("mv run/ckpt-00000005 kept && ln -s ../kept run/ckpt-00000005") == 0);
    for (uint64_t step = 7; step <= 9; step++) {
        RunState now = state_at(step);
        now.best_step = 2;
        CHECK(checkpoint_save(&tiny.network, &now, &tiny.config, "run", NULL) == 0);
    }
    CHECK(exists("run/ckpt-00000005/state.json") && exists("kept/model.safetensors") && !exists("run/ckpt-00000006"));

    // Both lack state.json. A killed removal leaves 2 only if it is not the best, and never 8, which is new.
    CHECK(!unlink("run/ckpt-00000002/state.json") && !unlink("run/ckpt-00000008/state.json"));
    CHECK(checkpoint_is_remnant("run", 1) && !checkpoint_is_remnant("run", 2) && !checkpoint_is_remnant("run", 5) &&
          !checkpoint_is_remnant("run", 8));
    tiny_close(&tiny);
}

TEST(checkpoint_that_cannot_be_written_leaves_nothing) {
    Tiny tiny;
    tiny_open(&tiny, &tiny_shape);
    RunState now = state_at(3);
    CHECK_EQUAL(checkpoint_save(&tiny.network, &now, &tiny.config, "nowhere", NULL), -1);
    CHECK_TEXT(err_text(), "checkpoint of step 3");
    tiny_close(&tiny);
}

TEST(checkpoint_is_not_written_to_a_directory_that_took_the_place_of_the_run_s_own) {
    Tiny tiny;
    Lock lock;
    tiny_open(&tiny, &tiny_shape);
    RunState now = state_at(3);
    CHECK(dir_make("run") == 0 && lock_take(&lock, "run", "another") == 0 && rename("run", "moved") == 0);
    CHECK(dir_make("run") == 0);
    write_file("run/.lock", "", 0);
    CHECK_EQUAL(checkpoint_save(&tiny.network, &now, &tiny.config, "run", &lock), -1);
    CHECK_ERROR(EX_CREATE, "no longer the directory in which this run began");
    CHECK(remove("run/.lock") == 0 && rmdir("run") == 0); // it was empty
    CHECK(checkpoint_save(&tiny.network, &now, &tiny.config, "moved", &lock) == 0);
    lock_drop(&lock);
    tiny_close(&tiny);
}

// ---- safetensors

static void write_safe(const char *header, size_t length, size_t data) {
    char *file = calloc(1, 8 + strlen(header) + data);
    CHECK(file);
    uint64_t claimed = length;
    memcpy(file, &claimed, 8);
    memcpy(file + 8, header, strlen(header));
    write_file("x.safetensors", file, 8 + strlen(header) + data);
    free(file);
}

// fault 79
TEST(safetensors_with_false_headers_are_refused) {
    static const struct {
        const char *header;
        size_t data;
        const char *reason; // NULL: it is fine
    } cases[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24, NULL},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_"
         "offsets\":[4,4]}}",
         4, NULL},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}", 8, "not JSON"},
        {"[1,2]", 0, "not a JSON object"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"a\":{\"dtype\":\"F32\",\"shape\":[2],"
         "\"data_offsets\":[0,8]}}",
         8, "duplicate"},
        {"{\"a\":{\"dtype\":\"F99\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no known dtype"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no known dtype"},
        {"{\"a\":7}", 8, "no known dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "no usable shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", 8, "no usable shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0, "overflows"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,12]}}", 12, "do not match"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "not in the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "not in the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, "not in the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, "not in the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],"
         "\"data_offsets\":[4,12]}}",
         12, "overlaps"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],"
         "\"data_offsets\":[12,20]}}",
         20, "gap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 12, "4 bytes after"},
    };
    SafeFile file;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_safe(cases[i].header, strlen(cases[i].header), cases[i].data);
        int result = safe_open(&file, "x.safetensors");
        if (!cases[i].reason)
            CHECK_EQUAL(result, 0);
        else {
            CHECK_EQUAL(result, -1);
            CHECK_ERROR(EX_DATA, cases[i].reason);
        }
        err_clear();
        safe_close(&file);
    }
    write_safe("{}", 1ull << 40, 0);
    CHECK_EQUAL(safe_open(&file, "x.safetensors"), -1);
    CHECK_ERROR(EX_DATA, "the header ends after the file");
    write_file("x.safetensors", "\x02\0\0", 3);
    CHECK_EQUAL(safe_open(&file, "x.safetensors"), -1);
    err_clear();
    write_safe("{}", 100 << 20, 100 << 20);
    CHECK_EQUAL(safe_open(&file, "x.safetensors"), -1);
    CHECK_TEXT(err_text(), "claims 104857600 bytes");
}

// ---- metrics

// fault 82
TEST(metrics_open_removes_later_steps_and_a_torn_line) {
    static const char text[] =
        "{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n{\"step\": 2, \"val_loss\": 2}\n"
        "{\"step\": 3, \"loss\": 1}\n{\"step\": 4, \"lo";
    Metrics metrics;
    write_file("metrics.jsonl", text, sizeof text - 1);
    CHECK(metrics_open(&metrics, ".", (MetricsEnd){.step = 2, .evaluated = true}, false) == 0);
    metrics_add(&metrics, 3, "\"loss\": %d", 1);
    metrics_close(&metrics);
    CHECK(!strcmp(read_file("metrics.jsonl", NULL),
                  "{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n{\"step\": 2, \"val_loss\": "
                  "2}\n{\"step\": 3, \"loss\": 1}\n"));
    // A checkpoint that was saved before the evaluation of its step: the evaluation is repeated.
    CHECK(metrics_open(&metrics, ".", (MetricsEnd){.step = 2, .evaluated = false}, false) == 0);
    metrics_close(&metrics);
    CHECK(!strcmp(read_file("metrics.jsonl", NULL), "{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n"));
    CHECK(metrics_open(&metrics, ".", (MetricsEnd){.step = -1, .evaluated = true}, false) == 0);
    metrics_close(&metrics);
    CHECK(!*read_file("metrics.jsonl", NULL));
}

// A run that rolled back to a step was killed before its next checkpoint.
TEST(metrics_open_removes_what_the_state_of_the_step_does_not_know_of) {
    static const char text[] =
        "{\"step\": 1, \"loss\": 3}\n{\"step\": 1, \"rolled_back_from\": 4, \"nonfinite\": 3}\n"
        "{\"step\": 1, \"passed_from\": 8, \"passed_to\": 32}\n{\"step\": 1, \"saved_step\": 1}\n";
    static const struct {
        MetricsEnd end;
        int lines;
    } rows[] = {
        {{1, true, true, 32}, 4}, {{1, true, true, 31}, 2}, {{1, true, false, 32}, 1}, {{2, false, false, 0}, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Metrics metrics;
        write_file("metrics.jsonl", text, sizeof text - 1);
        CHECK(metrics_open(&metrics, ".", rows[i].end, false) == 0);
        metrics_close(&metrics);
        char *kept = read_file("metrics.jsonl", NULL);
        int lines = 0;
        for (const char *at = kept; (at = strchr(at, '\n')); at++) lines++;
        CHECK_EQUAL(lines, rows[i].lines);
        free(kept);
    }
}

TEST(metrics_go_on_in_a_new_file_when_theirs_was_removed) {
    Metrics metrics;
    unlink("metrics.jsonl");
    CHECK(metrics_open(&metrics, ".", (MetricsEnd){.step = -1}, false) == 0);
    metrics_add(&metrics, 1, "\"loss\": 3");
    CHECK(unlink("metrics.jsonl") == 0);
    metrics_add(&metrics, 2, "\"loss\": 2");
    CHECK(metrics_flush(&metrics) < 0 && !exists("metrics.jsonl")); // it may now be another run's
    err_clear();
    CHECK(metrics_replace(&metrics) == 0 && metrics_sync(&metrics) == 0);
    metrics_close(&metrics);
    CHECK(!strcmp(read_file("metrics.jsonl", NULL), "{\"step\": 2, \"loss\": 2}\n"));
}

// fault 65
TEST(metrics_open_counts_the_lost_steps_and_the_kills_before) {
    static const char text[] = "{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n{\"step\": 3, \"loss\": 1}\n";
    Metrics metrics;
    write_file("metrics.jsonl", text, sizeof text - 1);
    CHECK(metrics_open(&metrics, ".", (MetricsEnd){.step = 3, .evaluated = true}, false) == 0);
    CHECK(metrics.lost_steps == 0 && metrics.kills == 0);
    metrics_close(&metrics);
    CHECK(metrics_open(&metrics, ".", (MetricsEnd){.step = 1, .evaluated = true}, false) == 0);
    CHECK(metrics.lost_steps == 2 && metrics.kills == 0);
    metrics_add_lost(&metrics, 1);
    metrics_add(&metrics, 9, "\"loss\": 1");
    metrics_close(&metrics);
    CHECK(metrics_open(&metrics, ".", (MetricsEnd){.step = 1, .evaluated = true}, false) == 0);
    CHECK(metrics.lost_steps == 8 && metrics.kills == 1);
    metrics_close(&metrics);
    CHECK(metrics_open(&metrics, ".", (MetricsEnd){.step = -1, .evaluated = true}, false) ==
          0); // killed before its first checkpoint
    CHECK(metrics.lost_steps == 1 && metrics.kills == 0);
    metrics_close(&metrics);
}

TEST(metrics_are_written_where_the_event_file_cannot_be) {
    Metrics metrics;
    CHECK(metrics_open(&metrics, ".", (MetricsEnd){.step = -1, .evaluated = false}, true) == 0);
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    CHECK(full >= 0 && dup2(full, metrics.events.fd) >= 0);
    metrics_add(&metrics, 1, "\"loss\": 1");
    CHECK(metrics_sync(&metrics) == 0);
    metrics_close(&metrics);
    close(full);
    CHECK_TEXT(read_file("metrics.jsonl", NULL), "{\"step\": 1, \"loss\": 1}\n");
}

// The process that wrote the record ended before, between and after its lines of the last step, or a step later.
TEST(metrics_of_a_process_that_takes_over_have_every_line_once) {
    static const char all[] =
        "{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n{\"step\": 2, \"val_loss\": 5}\n",
                      later[] = "{\"step\": 3, \"loss\": 1}\n";
    const char *first = strchr(all, '\n') + 1, *second = strchr(first, '\n') + 1;
    const size_t written[] = {(size_t)(first - all), (size_t)(second - all), sizeof all - 1,
                              sizeof all + sizeof later - 2};
    for (int i = 0; i < 4; i++) {
        char text[sizeof all + sizeof later];
        snprintf(text, sizeof text, "%s%s", all, later);
        write_file("metrics.jsonl", text, written[i]);
        Metrics metrics = {0};
        metrics_follow(&metrics, (MetricsEnd){.step = -1});
        metrics_add(&metrics, 1, "\"loss\": 3");
        metrics_add(&metrics, 2, "\"loss\": 2");
        metrics_add(&metrics, 2, "\"val_loss\": 5");
        CHECK(metrics_take_over(&metrics, ".", 2, false) == 0);
        metrics_close(&metrics);
        char *kept = read_file("metrics.jsonl", NULL);
        CHECK_TEXT(kept, all);
        CHECK_EQUAL(strlen(kept), sizeof all - 1);
        free(kept);
    }
}

// The same before its first step: the lines of the step from which it continues were written by an earlier process.
TEST(metrics_of_a_process_that_takes_over_before_a_step_keep_what_was_written_before) {
    static const char before[] = "{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 2}\n",
                      own[] = "{\"step\": 2, \"lost_steps\": 1}\n",
                      later[] = "{\"step\": 2, \"val_loss\": 5}\n{\"step\": 3, \"loss\": 1}\n",
                      line[] = "{\"step\": 2, \"world\": 2}\n";
    static const char *const written[][2] = {{before, later}, {before, own}, {before, line}};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        char text[256], want[256];
        snprintf(text, sizeof text, "%s%s", written[i][0], written[i][1]);
        snprintf(want, sizeof want, "%s%s%s", before, written[i][1] == later ? "" : written[i][1], line);
        write_file("metrics.jsonl", text, strlen(text));
        Metrics metrics = {0};
        metrics_follow(&metrics, (MetricsEnd){.step = 2});
        metrics_add(&metrics, 2, "\"world\": 2");
        CHECK(metrics_take_over(&metrics, ".", 2, false) == 0);
        metrics_close(&metrics);
        char *kept = read_file("metrics.jsonl", NULL);
        CHECK_TEXT(kept, want);
        free(kept);
    }
}

// Compared with the smallest loss a second of all intervals: S / t for saves, and t / 2 M for the steps that a kill
// undoes.
TEST(save_interval_loses_the_least_time) {
    static const double saves_s[] = {0.01, 0.5, 20}, runs_s[] = {0, 3600, 1e6};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            for (unsigned kills = 0; kills < 100; kills = 3 * kills + 1) {
                const double mean_s = (runs_s[j] + 3600) / (kills + 1);
                double best = INFINITY, best_s = 0;
                for (double t = 0.1; t < 1e5; t *= 1.001) {
                    const double loss = saves_s[i] / t + t / (2 * mean_s);
                    if (loss < best) best = loss, best_s = t;
                }
                CHECK(fabs(save_interval_s(saves_s[i], runs_s[j], kills) - best_s) < 0.002 * best_s);
            }
}

// tests/data/state_0.1.0.json is a state.json that version 0.1.0 wrote: 12 steps in float16 over 96 samples.
// fault 78
TEST(checkpoint_state_of_version_0_1_0_is_read) {
    char path[PATH_MAX_BYTES];
    Buffer text = {0};
    SavedState saved = {0};
    snprintf(path, sizeof path, "%s/state_0.1.0.json", test_data);
    CHECK_EQUAL(file_read(&text, path, 1 << 20), 0);
    CHECK_EQUAL(saved_state_parse(&saved, (Bytes){text.data, text.size}), 0);
    CHECK_EQUAL(saved.state.step, 12);
    CHECK_EQUAL(saved.state.nonfinite_streak, 0);
    CHECK(saved.state.scaler.scale == 65536);
    CHECK_EQUAL(saved.state.datasets[0].consumed, 96);
    CHECK_TEXT(json_string_value(json_object_get(saved.config, "recompute")), "none");
    CHECK_TEXT(json_string_value(json_object_get(saved.config, "optimizer_state")), "fp32");
    CHECK_TEXT(json_string_value(json_object_get(saved.config, "eval_tokens")), "1024"); // 4 * 4 * 64
    CHECK(!json_object_get(saved.config, "decay_lr") && !json_object_get(saved.config, "eval_iters"));
    saved_state_close(&saved);
    buffer_close(&text);
}

// fault 78
TEST(checkpoint_state_of_a_newer_version_is_refused) {
    static const char text[] = "{\n \"format\": 99";
    uint8_t hash[SAFE_HASH_BYTES];
    char digits[2 * SAFE_HASH_BYTES + 1], whole[256];
    SavedState saved = {0};
    safe_hash(text, sizeof text - 1, hash);
    hex_encode(digits, hash, sizeof hash);
    int length = snprintf(whole, sizeof whole, "%s,\n \"hash\": \"%s\"\n}\n", text, digits);
    CHECK_EQUAL(saved_state_parse(&saved, (Bytes){(const unsigned char *)whole, (size_t)length}), -1);
    CHECK_ERROR(EX_DATA, "written by a newer trainer (format 99, this one reads 1)");
}

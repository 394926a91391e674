// The stored files of other trainers (tests/oracle/trainer/foreign_models.py, by torch.save): their tensors are the
// numbers 0 to 127 again and again, in the order of nanoGPT's modules.
#include "common/err.h"
#include "common/file/file.h"
#include "tests/test.h"
#include "trainer/import/foreign_model.h"
#include "trainer/import/nanogpt_meta.h"
#include "trainer/import/pickle.h"

static const ParamId order[] = {PARAM_WTE,    PARAM_WPE,    PARAM_LN1_W, PARAM_LN1_B, PARAM_QKV_W, PARAM_QKV_B,
                                PARAM_ATT_W,  PARAM_ATT_B,  PARAM_LN2_W, PARAM_LN2_B, PARAM_FC_W,  PARAM_FC_B,
                                PARAM_PROJ_W, PARAM_PROJ_B, PARAM_LNF_W, PARAM_LNF_B};

static void check_file(const char *name, bool bias, bool exact_gelu) {
    char path[512];
    ForeignModel foreign;
    snprintf(path, sizeof path, "%s/fuzz/import/%s", test_data, name);
    CHECK(foreign_open(&foreign, path, true) == 0);
    const ModelShape *shape = &foreign.model.shape;
    CHECK(shape->layers == 1 && shape->heads == 2 && shape->channels == 4 && shape->block == 3 && shape->vocab == 11);
    CHECK(shape->bias == bias && shape->activation == (exact_gelu ? ACTIVATION_GELU : ACTIVATION_GELU_TANH));
    size_t next = 0, wrong = 0;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        const Tensor *tensor = model_tensor(&foreign.model, order[i], 0);
        if (!tensor) continue;
        const ForeignTensor *numbers = &foreign.tensors[tensor - foreign.model.tensors];
        for (size_t k = 0; k < (size_t)tensor->file_rows * (size_t)tensor->cols; k++, next++)
            wrong += dtype_value(numbers->type, numbers->data, k) != (float)(next % 128);
    }
    CHECK_EQUAL(wrong, 0);
    CHECK_EQUAL(next, foreign.model.parameters);
    foreign_close(&foreign);
}

TEST(checkpoints_of_nanogpt_are_read_in_every_type) {
    check_file("float32.pt", true, true);
    check_file("float16.pt", false, true);
    check_file("bfloat16.pt", false, true);
}

TEST(models_of_llmc_are_read_in_both_types) {
    check_file("llmc3.bin", true, false);
    check_file("llmc5.bin", true, false);
}

// Every file that is cut anywhere, or has a bit flipped in its pickle, is refused or read without harm.
TEST(a_foreign_file_that_is_cut_is_refused) {
    static const char *const names[] = {"float32.pt", "llmc5.bin"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        char path[512];
        Buffer file = {0};
        ForeignModel foreign;
        snprintf(path, sizeof path, "%s/fuzz/import/%s", test_data, names[n]);
        CHECK(file_read(&file, path, 1 << 20) == 0);
        for (size_t size = 0; size < file.size; size += 13) {
            CHECK_EQUAL(foreign_open_bytes(&foreign, (Bytes){file.data, size}, true), -1);
            CHECK_ERROR(EX_DATA, "");
        }
        buffer_close(&file);
    }
}

static void check_refused(const char *pickle, size_t size, const char *message) {
    Arena arena = {0};
    CHECK(!pickle_read(&arena, (Bytes){(const uint8_t *)pickle, size}));
    CHECK_ERROR(EX_DATA, message);
    arena_close(&arena);
}

#define REFUSED(pickle, message) check_refused(pickle, sizeof pickle - 1, message)

TEST(a_pickle_that_would_run_code_is_refused_by_name) {
    REFUSED("\x80\x02"
            "cposix\nsystem\nX\x02\0\0\0id\x85R.",
            "'posix.system', which is refused");
    REFUSED("\x80\x02"
            "cbuiltins\neval\n.",
            "'builtins.eval', which is refused");
    REFUSED("\x80\x02"
            "(i__main__\nA\n.",
            "the opcode 0x69");
    REFUSED("\x80\x04\x8c\x05"
            "posix\x8c\x06"
            "system\x93.",
            "'posix.system', which is refused");
    REFUSED("\x80\x04\x93", "a value is missing");
}

// Of a byte for each value.
TEST(a_pickle_whose_values_take_too_much_memory_is_refused) {
    enum { DEPTH = 3 << 20 };
    char *nested = malloc(DEPTH);
    memset(nested, 0x85, DEPTH); // TUPLE1
    memcpy(nested, "\x80\x02)", 3);
    nested[DEPTH - 1] = '.';
    check_refused(nested, DEPTH, "the values of the pickle take more than 64 MiB");
    free(nested);
}

static void check_meta(const char *pickle, size_t size, const char *message) {
    Buffer characters = {0};
    CHECK_EQUAL(nanogpt_meta_read(&characters, (Bytes){(const uint8_t *)pickle, size}), -1);
    CHECK_ERROR(EX_DATA, message);
    buffer_close(&characters);
}

// Dicts by pickle.dump of Python 3.11.
TEST(the_characters_of_nanogpts_meta_are_in_the_order_of_their_ids) {
    static const char meta[] =
        "\x80\x04\x95I\0\0\0\0\0\0\0}\x94(\x8c\nvocab_size\x94K\3\x8c\4itos\x94}\x94(K\0\x8c\1\n\x94"
        "K\1\x8c\1a\x94K\2\x8c\2\xc3\xbc\x94u\x8c\4stoi\x94}\x94(h\4K\0h\5K\1h\6K\2uu.";
    Buffer characters = {0};
    CHECK(nanogpt_meta_read(&characters, (Bytes){(const uint8_t *)meta, sizeof meta - 1}) == 0);
    CHECK(characters.size == 4 && !memcmp(characters.data, "\na\xc3\xbc", 4));
    buffer_close(&characters);
#define META_REFUSED(pickle, message) check_meta(pickle, sizeof pickle - 1, message)
    META_REFUSED("\x80\4}\x94.", "it has no 'itos'");
    META_REFUSED("\x80\4}\x94\x8c\4itos}K\1\x8c\1ass.", "from 0 in their order");
    META_REFUSED("\x80\4}\x94\x8c\4itos}K\0\x8c\2abss.", "a text for id 0 that is not one character");
}

TEST(a_damaged_pickle_is_refused) {
    REFUSED("", "it ends early");
    REFUSED("\x80\x02.", "a value is missing");
    REFUSED("(.", "a value is missing");
    REFUSED("(]a.", "a list or dict");
    REFUSED("}K\1s.", "a value is missing");
    REFUSED("}(K\1u.", "a value is missing");
    REFUSED("u.", "a mark is missing");
    REFUSED("h\0.", "an empty memo is read");
    REFUSED("Nr\xff\xff\xff\xff.", "a memo out of order");
    REFUSED("\x8a\x09"
            "123456789.",
            "more than 64 bits");
    REFUSED("X\xff\xff\xff\xff"
            "abc",
            "a text ends after it");
    REFUSED("K\1Q.", "as torch.save does");
    REFUSED("ctorch\nFloatStorage\n)R.", "a call, and not of a function");
    REFUSED("ctorch._utils\n_rebuild_tensor_v2\n)R.", "as torch.save does");
    REFUSED("K\1}b.", "attributes, and not of a dict");
}

// The pickles that torch.save and nanoGPT's prepare.py write: tensors, dicts, lists, tuples, numbers and text. Nothing
// of a pickle is executed: its opcodes build the values below. A global that is not in the table of pickle.c makes a
// value without content; one of a module that runs programs is refused by its name.
#pragma once

#include "common/arena.h"
#include "common/bytes.h"
#include "kernels/backend.h"

enum {
    PICKLE_MAX_BYTES = 4 << 20,  // names and shapes of GPT-2 1558M and its optimizer: 0.5 MB
    PICKLE_MAX_MEMORY = 64 << 20 // of the values; one byte of a pickle can make a value of 128
};

typedef enum {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_FLOAT,
    PICKLE_TEXT,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT,
    PICKLE_STORAGE,
    PICKLE_TENSOR,
    PICKLE_OTHER,  // of another class, as numpy.float64 or a set
    PICKLE_GLOBAL, // these two occur only while a pickle is read
    PICKLE_MARK
} PickleKind;

typedef struct PickleValue PickleValue;

typedef struct {
    PickleValue **at;
    size_t count, capacity;
} PickleItems;

struct PickleValue {
    PickleKind kind;
    union {
        int64_t integer; // BOOL, INT
        double number;
        Bytes text;        // borrowed from the pickle
        PickleItems items; // of a DICT: key, value, key, value
        struct {
            Bytes key; // of the file that holds the numbers
            Dtype type;
            bool is_double; // and then type is that to which the numbers are rounded
            uint64_t count; // of numbers
        } storage;
        struct {
            const PickleValue *storage, *shape, *strides; // tuples of INT
            uint64_t first;                               // number of the storage
            bool used;                                    // set by the reader, to find the tensors that it did not use
        } tensor;
        const struct PickleGlobal *global;
    };
};

// The value, in the arena, or NULL after fail() (65).
PickleValue *pickle_read(Arena *arena, Bytes pickle);

// The value of a key of a DICT, or NULL. `dict` may be NULL or of another kind.
PickleValue *pickle_find(const PickleValue *dict, const char *key);

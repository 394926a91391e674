// A virtual machine for the opcodes of pickle protocols 2 to 5 that torch.save writes. It only builds values.
#include "trainer/import/pickle.h"
#include "common/err.h"

typedef enum { GLOBAL_OTHER, GLOBAL_TENSOR, GLOBAL_PARAMETER, GLOBAL_DICT, GLOBAL_STORAGE } GlobalKind;

// The globals that a pickle may name.
// clang-format off
static const struct PickleGlobal {
    const char *module, *name;
    GlobalKind kind;
    Dtype type; // of a storage
    bool is_double;
} globals[] = {
    {"torch._utils", "_rebuild_tensor_v2", GLOBAL_TENSOR,  0, false},
    {"collections",  "OrderedDict",        GLOBAL_DICT,    0, false},
    {"torch._utils", "_rebuild_parameter", GLOBAL_PARAMETER, 0, false},
    {"torch",        "FloatStorage",       GLOBAL_STORAGE, DTYPE_FP32, false},
    {"torch",        "DoubleStorage",      GLOBAL_STORAGE, DTYPE_FP32, true},
    {"torch",        "BFloat16Storage",    GLOBAL_STORAGE, DTYPE_BF16, false},
    {"torch",        "HalfStorage",        GLOBAL_STORAGE, DTYPE_FP16, false},
};
// clang-format on

typedef struct {
    Cursor cursor;
    const uint8_t *begin;
    Arena *arena;
    PickleItems stack, memo;
} Machine;

static int damaged(const Machine *machine, const char *what) {
    return fail(EX_DATA, "the pickle is damaged before byte %zu: %s", (size_t)(machine->cursor.at - machine->begin),
                what);
}

// ---- values

static void items_add(Machine *machine, PickleItems *items, PickleValue *value) {
    if (items->count == items->capacity) {
        const size_t capacity = items->capacity ? 2 * items->capacity : 4;
        PickleValue **at = arena_push(machine->arena, capacity * sizeof *at);
        if (items->count) memcpy(at, items->at, items->count * sizeof *at);
        items->at = at, items->capacity = capacity;
    }
    items->at[items->count++] = value;
}

static PickleValue *push(Machine *machine, PickleKind kind) {
    PickleValue *value = arena_push(machine->arena, sizeof *value);
    value->kind = kind;
    items_add(machine, &machine->stack, value);
    return value;
}

static int push_empty(Machine *machine, int kind) { return push(machine, (PickleKind)kind), 0; }

static int push_integer(Machine *machine, PickleKind kind, int64_t integer) {
    push(machine, kind)->integer = integer;
    return 0;
}

static int push_bool(Machine *machine, int value) { return push_integer(machine, PICKLE_BOOL, value); }

static PickleValue *pop(Machine *machine) {
    PickleItems *stack = &machine->stack;
    if (stack->count && stack->at[stack->count - 1]->kind != PICKLE_MARK) return stack->at[--stack->count];
    damaged(machine, "a value is missing");
    return NULL;
}

// The number of values above the last mark, which is removed with mark_drop. -1 after fail().
static int64_t above_mark(Machine *machine) {
    for (size_t i = machine->stack.count; i--;)
        if (machine->stack.at[i]->kind == PICKLE_MARK) return (int64_t)(machine->stack.count - i - 1);
    return damaged(machine, "a mark is missing");
}

// ---- opcodes

// A number of the pickle, little-endian, of up to 8 bytes.
static int take_number(Machine *machine, size_t bytes, uint64_t *number) {
    const uint8_t *at = cursor_take(&machine->cursor, bytes);
    *number = 0;
    if (!at) return damaged(machine, "it ends early");
    for (size_t i = bytes; i--;) *number = *number << 8 | at[i];
    return 0;
}

static int take_integer(Machine *machine, int bytes) {
    uint64_t number;
    if (take_number(machine, (size_t)bytes, &number) < 0) return -1;
    return push_integer(machine, PICKLE_INT, (int64_t)number);
}

static int take_signed(Machine *machine, int bytes) {
    uint64_t number;
    if (take_number(machine, (size_t)bytes, &number) < 0) return -1;
    if (bytes && bytes < 8 && number >> (8 * bytes - 1)) number |= UINT64_MAX << 8 * bytes;
    return push_integer(machine, PICKLE_INT, (int64_t)number);
}

static int take_long(Machine *machine) {
    uint64_t bytes;
    if (take_number(machine, 1, &bytes) < 0) return -1;
    return bytes <= 8 ? take_signed(machine, (int)bytes) : damaged(machine, "an integer has more than 64 bits");
}

static int skip_number(Machine *machine, int bytes) {
    uint64_t ignored;
    return take_number(machine, (size_t)bytes, &ignored);
}

static int take_float(Machine *machine) {
    uint64_t bits;
    if (take_number(machine, sizeof bits, &bits) < 0) return -1;
    bits = __builtin_bswap64(bits);
    memcpy(&push(machine, PICKLE_FLOAT)->number, &bits, sizeof bits);
    return 0;
}

static int take_text(Machine *machine, int length_bytes) {
    uint64_t bytes;
    if (take_number(machine, (size_t)length_bytes, &bytes) < 0) return -1;
    const uint8_t *text = cursor_take(&machine->cursor, bytes);
    if (!text) return damaged(machine, "a text ends after it");
    push(machine, PICKLE_TEXT)->text = (Bytes){text, bytes};
    return 0;
}

// The last values of the stack become the items of a container below them.
static int take_items(Machine *machine, int64_t count, bool marked, PickleKind kind) {
    PickleItems *stack = &machine->stack;
    if (count < 0) return -1;
    const size_t n = (size_t)count, above = n + marked;
    if (stack->count <= above || (kind == PICKLE_DICT && n % 2)) return damaged(machine, "a value is missing");
    PickleValue *container = stack->at[stack->count - above - 1], **values = &stack->at[stack->count - n];
    if (container->kind != kind && container->kind != PICKLE_OTHER)
        return damaged(machine, "items without a list or dict");
    for (size_t i = 0; i < n; i++)
        if (values[i]->kind == PICKLE_MARK) return damaged(machine, "a value is missing");
    for (size_t i = 0; i < n && container->kind == kind; i++) items_add(machine, &container->items, values[i]);
    stack->count -= above;
    return 0;
}

static int make_tuple(Machine *machine, int64_t count, bool marked) {
    PickleItems *stack = &machine->stack, items = {0};
    if (count < 0) return -1;
    const size_t n = (size_t)count;
    if (stack->count < n + marked) return damaged(machine, "a value is missing");
    for (size_t i = stack->count - n; i < stack->count; i++) {
        if (stack->at[i]->kind == PICKLE_MARK) return damaged(machine, "a value is missing");
        items_add(machine, &items, stack->at[i]);
    }
    stack->count -= n + marked;
    push(machine, PICKLE_TUPLE)->items = items;
    return 0;
}

static int add_item(Machine *machine, int kind) {
    return take_items(machine, kind == PICKLE_DICT ? 2 : 1, false, (PickleKind)kind);
}
static int add_items(Machine *machine, int kind) {
    return take_items(machine, above_mark(machine), true, (PickleKind)kind);
}
static int pack(Machine *machine, int count) { return make_tuple(machine, count, false); }
static int pack_marked(Machine *machine) { return make_tuple(machine, above_mark(machine), true); }

// Every place of the memo is written once, in their order.
static int memo_add(Machine *machine) {
    const PickleItems *stack = &machine->stack;
    if (!stack->count || stack->at[stack->count - 1]->kind == PICKLE_MARK)
        return damaged(machine, "a value is missing");
    items_add(machine, &machine->memo, stack->at[stack->count - 1]);
    return 0;
}

static int memo_put(Machine *machine, int bytes) {
    uint64_t place;
    if (take_number(machine, (size_t)bytes, &place) < 0) return -1;
    return place == machine->memo.count ? memo_add(machine) : damaged(machine, "a memo out of order");
}

static int memo_get(Machine *machine, int bytes) {
    uint64_t place;
    if (take_number(machine, (size_t)bytes, &place) < 0) return -1;
    if (place >= machine->memo.count) return damaged(machine, "an empty memo is read");
    items_add(machine, &machine->stack, machine->memo.at[place]);
    return 0;
}

// The text up to the next line feed.
static Bytes take_line(Machine *machine) {
    Cursor *cursor = &machine->cursor;
    const uint8_t *begin = cursor->at, *end = memchr(begin, '\n', (size_t)(cursor->end - begin));
    if (!end) return damaged(machine, "it ends early"), (Bytes){0};
    cursor->at = end + 1;
    return (Bytes){begin, (size_t)(end - begin)};
}

static bool text_is(Bytes text, const char *word) {
    return text.size == strlen(word) && !memcmp(text.data, word, text.size);
}

// Modules whose functions run programs or touch files, which no checkpoint needs.
static const char *const refused[] = {"builtins", "__builtin__", "os",  "posix",  "posixpath", "nt",
                                      "ntpath",   "subprocess",  "sys", "shutil", "runpy"};
static const char *const plain[] = {"set",   "frozenset", "complex", "bytearray",
                                    "range", "slice",     "object"}; // of builtins

static bool is_among(Bytes text, const char *const *words, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (text_is(text, words[i])) return true;
    return false;
}

static int push_global(Machine *machine, Bytes module, Bytes name) {
    static const struct PickleGlobal other = {"", "", GLOBAL_OTHER, 0, false};
    PickleValue *value = push(machine, PICKLE_GLOBAL);
    value->global = &other;
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (text_is(module, globals[i].module) && text_is(name, globals[i].name)) value->global = &globals[i];
    if (!is_among(module, refused, sizeof refused / sizeof *refused) ||
        is_among(name, plain, sizeof plain / sizeof *plain))
        return 0;
    return fail(
        EX_DATA,
        "the pickle names '%.*s.%.*s', which is refused: only tensors, dicts, lists, tuples, numbers and text are "
        "read",
        module.size < 100 ? (int)module.size : 100, (const char *)module.data, name.size < 100 ? (int)name.size : 100,
        (const char *)name.data);
}

static int take_global(Machine *machine) {
    const Bytes module = take_line(machine), name = module.data ? take_line(machine) : module;
    return name.data ? push_global(machine, module, name) : -1;
}

// In protocol 4: module and name are on the stack.
static int take_stack_global(Machine *machine) {
    const PickleValue *name = pop(machine), *module = name ? pop(machine) : NULL;
    if (!module) return -1;
    if (name->kind != PICKLE_TEXT || module->kind != PICKLE_TEXT) return damaged(machine, "a global without a name");
    return push_global(machine, module->text, name->text);
}

static bool is_tuple(const PickleValue *value, size_t count) {
    return value->kind == PICKLE_TUPLE && value->items.count >= count;
}

// ("storage", class, key, place, count): where the numbers of tensors are.
static int take_persistent(Machine *machine) {
    const PickleValue *id = pop(machine);
    if (!id) return -1;
    PickleValue *const *at = id->items.at;
    if (!is_tuple(id, 5) || at[0]->kind != PICKLE_TEXT || !text_is(at[0]->text, "storage") ||
        at[1]->kind != PICKLE_GLOBAL || at[2]->kind != PICKLE_TEXT || at[4]->kind != PICKLE_INT || at[4]->integer < 0)
        return damaged(machine, "a storage is not described as torch.save does");
    if (at[1]->global->kind != GLOBAL_STORAGE) return push(machine, PICKLE_OTHER), 0; // of integers
    PickleValue *value = push(machine, PICKLE_STORAGE);
    value->storage.key = at[2]->text;
    value->storage.type = at[1]->global->type, value->storage.is_double = at[1]->global->is_double;
    value->storage.count = (uint64_t)at[4]->integer;
    return 0;
}

static bool are_sizes(const PickleValue *tuple) {
    for (size_t i = 0; is_tuple(tuple, 0) && i < tuple->items.count; i++)
        if (tuple->items.at[i]->kind != PICKLE_INT || tuple->items.at[i]->integer < 0) return false;
    return is_tuple(tuple, 0);
}

// (storage, first, shape, strides, ...)
static int make_tensor(Machine *machine, const PickleValue *arguments) {
    PickleValue *const *at = arguments->items.at;
    if (is_tuple(arguments, 1) && at[0]->kind == PICKLE_OTHER) return push(machine, PICKLE_OTHER), 0;
    if (!is_tuple(arguments, 4) || at[0]->kind != PICKLE_STORAGE || at[1]->kind != PICKLE_INT || at[1]->integer < 0 ||
        !are_sizes(at[2]) || !are_sizes(at[3]) || at[2]->items.count != at[3]->items.count)
        return damaged(machine, "a tensor is not described as torch.save does");
    PickleValue *value = push(machine, PICKLE_TENSOR);
    value->tensor.storage = at[0], value->tensor.shape = at[2], value->tensor.strides = at[3];
    value->tensor.first = (uint64_t)at[1]->integer;
    return 0;
}

static int reduce(Machine *machine) {
    const PickleValue *arguments = pop(machine), *function = arguments ? pop(machine) : NULL;
    if (!function) return -1;
    if (function->kind != PICKLE_GLOBAL || function->global->kind == GLOBAL_STORAGE)
        return damaged(machine, "a call, and not of a function");
    if (function->global->kind == GLOBAL_OTHER) return push(machine, PICKLE_OTHER), 0;
    if (function->global->kind == GLOBAL_TENSOR) return make_tensor(machine, arguments);
    if (function->global->kind == GLOBAL_PARAMETER && is_tuple(arguments, 1)) // (tensor, requires_grad, hooks)
        return items_add(machine, &machine->stack, arguments->items.at[0]), 0;
    if (!is_tuple(arguments, 0) || arguments->items.count)
        return damaged(machine, "a dict is not described as torch.save does");
    push(machine, PICKLE_DICT);
    return 0;
}

// An object of a class: its arguments, of protocol 4 with names, are left out.
static int make_other(Machine *machine, int arguments) {
    for (int i = 0; i < arguments; i++)
        if (!pop(machine)) return -1;
    return push(machine, PICKLE_OTHER), 0;
}

// Bytes, which are left out.
static int take_bytes(Machine *machine, int length_bytes) {
    return take_text(machine, length_bytes) < 0 ? -1 : make_other(machine, 1);
}

// A set, whose items are left out.
static int make_set(Machine *machine, int is_new) {
    const int64_t count = above_mark(machine);
    if (count < 0) return -1;
    machine->stack.count -= (size_t)count + 1;
    return is_new ? (push(machine, PICKLE_OTHER), 0) : 0;
}

// Attributes of an OrderedDict (_metadata of a state_dict) or of an object, which are left out.
static int build(Machine *machine) {
    const PickleItems *stack = &machine->stack;
    if (!pop(machine)) return -1;
    if (!stack->count ||
        (stack->at[stack->count - 1]->kind != PICKLE_DICT && stack->at[stack->count - 1]->kind != PICKLE_OTHER))
        return damaged(machine, "attributes, and not of a dict");
    return 0;
}

// By the names of pickletools.
// clang-format off
static const struct {
    int (*run)(Machine *machine);
    int (*run_with)(Machine *machine, int argument);
    int argument;
} opcodes[256] = {
    ['('] = {NULL, push_empty, PICKLE_MARK},   // MARK
    ['N'] = {NULL, push_empty, PICKLE_NONE},   // NONE
    [0x88] = {NULL, push_bool, true},          // NEWTRUE
    [0x89] = {NULL, push_bool, false},         // NEWFALSE
    ['K'] = {NULL, take_integer, 1},           // BININT1
    ['M'] = {NULL, take_integer, 2},           // BININT2
    ['J'] = {NULL, take_signed, 4},            // BININT
    [0x8a] = {take_long, NULL, 0},             // LONG1
    ['G'] = {take_float, NULL, 0},             // BINFLOAT
    ['X'] = {NULL, take_text, 4},              // BINUNICODE
    [']'] = {NULL, push_empty, PICKLE_LIST},   // EMPTY_LIST
    ['}'] = {NULL, push_empty, PICKLE_DICT},   // EMPTY_DICT
    [')'] = {NULL, push_empty, PICKLE_TUPLE},  // EMPTY_TUPLE
    [0x85] = {NULL, pack, 1},                  // TUPLE1
    [0x86] = {NULL, pack, 2},                  // TUPLE2
    [0x87] = {NULL, pack, 3},                  // TUPLE3
    ['t'] = {pack_marked, NULL, 0},            // TUPLE
    ['a'] = {NULL, add_item, PICKLE_LIST},     // APPEND
    ['e'] = {NULL, add_items, PICKLE_LIST},    // APPENDS
    ['s'] = {NULL, add_item, PICKLE_DICT},     // SETITEM
    ['u'] = {NULL, add_items, PICKLE_DICT},    // SETITEMS
    ['q'] = {NULL, memo_put, 1},               // BINPUT
    ['r'] = {NULL, memo_put, 4},               // LONG_BINPUT
    ['h'] = {NULL, memo_get, 1},               // BINGET
    ['j'] = {NULL, memo_get, 4},               // LONG_BINGET
    ['c'] = {take_global, NULL, 0},            // GLOBAL
    ['Q'] = {take_persistent, NULL, 0},        // BINPERSID
    ['R'] = {reduce, NULL, 0},                 // REDUCE
    ['b'] = {build, NULL, 0},                  // BUILD
    [0x80] = {NULL, skip_number, 1},           // PROTO
    // of protocol 4
    [0x8c] = {NULL, take_text, 1},             // SHORT_BINUNICODE
    [0x8d] = {NULL, take_text, 8},             // BINUNICODE8
    ['C'] = {NULL, take_bytes, 1},             // SHORT_BINBYTES
    ['B'] = {NULL, take_bytes, 4},             // BINBYTES
    [0x81] = {NULL, make_other, 2},            // NEWOBJ
    [0x92] = {NULL, make_other, 3},            // NEWOBJ_EX
    [0x8f] = {NULL, push_empty, PICKLE_OTHER}, // EMPTY_SET
    [0x90] = {NULL, make_set, false},          // ADDITEMS
    [0x91] = {NULL, make_set, true},           // FROZENSET
    [0x93] = {take_stack_global, NULL, 0},     // STACK_GLOBAL
    [0x94] = {memo_add, NULL, 0},              // MEMOIZE
    [0x95] = {NULL, skip_number, 8},           // FRAME
};
// clang-format on

static int run_opcode(Machine *machine, uint8_t opcode) {
    if (opcodes[opcode].run) return opcodes[opcode].run(machine);
    if (opcodes[opcode].run_with) return opcodes[opcode].run_with(machine, opcodes[opcode].argument);
    return fail(EX_DATA, "the pickle has the opcode 0x%02x, which is none of tensors, numbers and text", opcode);
}

PickleValue *pickle_read(Arena *arena, Bytes pickle) {
    Machine machine = {cursor_init(pickle), pickle.data, arena, {0}, {0}};
    const size_t before = arena_bytes(arena);
    if (pickle.size > PICKLE_MAX_BYTES)
        return fail(EX_DATA, "the pickle has %zu bytes, more than %d", pickle.size, PICKLE_MAX_BYTES), NULL;
    for (uint8_t opcode; cursor_u8(&machine.cursor, &opcode);) {
        if (opcode == '.') return pop(&machine);
        if (run_opcode(&machine, opcode) < 0) return NULL;
        if (arena_bytes(arena) - before > PICKLE_MAX_MEMORY)
            return fail(EX_DATA, "the values of the pickle take more than %d MiB", PICKLE_MAX_MEMORY >> 20), NULL;
    }
    return damaged(&machine, "it ends early"), NULL;
}

PickleValue *pickle_find(const PickleValue *dict, const char *key) {
    if (!dict || dict->kind != PICKLE_DICT) return NULL;
    for (size_t i = dict->items.count; i; i -= 2) // of equal keys the last one counts
        if (dict->items.at[i - 2]->kind == PICKLE_TEXT && text_is(dict->items.at[i - 2]->text, key))
            return dict->items.at[i - 1];
    return NULL;
}

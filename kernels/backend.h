// A backend is a device: memory, and the table of operations that ops.def lists. No device type crosses this header.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Tensors. Their storage types are chosen when the backend is opened, so these types are incomplete: a pointer to one
// converts to and from void *, and never to another, so that swapped arguments do not compile.
typedef struct Act Act;       // activations: fp32, bf16 or fp16
typedef struct Par Par;       // parameters as the operations read them: fp32 on the CPU
typedef struct Grad Grad;     // gradients: fp32
typedef struct Moment Moment; // the first and second moments of AdamW: fp32, or bf16, whatever the activations are
typedef struct Res Res;       // residual stream and its gradient: fp32 on the CPU

typedef enum { DTYPE_FP32, DTYPE_BF16, DTYPE_FP16, DTYPE_AUTO } Dtype; // DTYPE_AUTO: in a BackendChoice only
const char *dtype_name(Dtype type);                                    // "float32", "bfloat16", "float16", "auto"
bool dtype_parse(const char *name, Dtype *type);

// A matrix that is multiplied with: (rows = outputs, cols = inputs).
typedef struct {
    const Par *param;
    void *packed; // backend's own form, packed_bytes(rows, cols), 64-byte aligned; NULL where that is 0
    int rows, cols;
} Weight;

typedef struct AdamW AdamW; // kernels/adamw_scalars.h

// The largest shapes a run will use: what scratch and workspaces are sized by.
typedef struct {
    int B, T, C, H, V;
    int chunk_rows; // rows of one logits chunk
    int threads;    // CPU
} Shape;

enum { BACKEND_RECORDINGS = 4, BACKEND_SLOTS = 3 };

typedef struct {
    const char *name; // "cpu", "cuda"

    // Facts: no device needed, so that a plan can be made for a card that is not there.
    Dtype act_type; // of activations, and of what else below has two bytes but moments
    size_t act_bytes, par_bytes, grad_bytes, res_bytes; // of one element; act = res: they have one type
    size_t master_bytes, moment_bytes;                  // of one element; master 0: parameters are their own
    bool needs_warm_up;                                 // the first time an operation meets a shape it makes something
    int (*check)(int channels, int heads); // -1 after fail() (2) where it has no kernels for them; NULL: it always has
    size_t (*packed_bytes)(int rows, int cols);
    size_t (*scratch_bytes)(const Shape *shape);

    // Of an open device with memory of its own: bytes that an arena can have, 0: not known. Who else holds the rest, ""
    // when nobody does or nobody can say.
    size_t free_bytes;
    void (*holders)(char *text, size_t size);

    // Memory: one arena for the life of the run. NULL after fail() (82 or 83).
    void *(*alloc)(size_t bytes);
    void (*release)(void *arena);
    void (*bind_scratch)(void *scratch, size_t bytes); // part of the arena, shared by all operations
    void (*pin)(void *host, size_t bytes); // makes copies from there fast; before it is unmapped or freed: unpin
    void (*unpin)(void *host);
    void (*upload)(void *device, const void *host, size_t bytes);   // in order with the operations
    void (*download)(void *host, const void *device, size_t bytes); // waits
    void (*zero)(void *device, size_t bytes);
    void (*close)(void);

    // Copies beside the operations, for what lies in pinned host memory and comes to the device in slices, each to a
    // slot of the arena. Several copies may share a slot. The host waits for none of them: what was stored may be read
    // there after `stored` and a download.
    void (*fetch)(int slot, void *device, const void *host, size_t bytes); // after the operations and its stores so far
    void (*fetched)(int slot);                                             // operations from here on have it
    void (*store)(int slot, void *host, const void *device, size_t bytes); // after the operations so far
    void (*stored)(void); // operations from here on come after all stores

    // A run of operations that comes again with the same arguments: `if (begin(key)) { operations; end(key); }`. Where
    // begin is false the run was replayed from a recording, and is skipped. No upload, download, fetch or store inside.
    // Recordings last until the arena is released.
    bool (*begin)(int key); // below BACKEND_RECORDINGS
    void (*end)(int key);

#define OP(name, scratch, arguments) void(*name) arguments;
#include "kernels/ops.def"
#undef OP
} Backend;

typedef enum { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA } Device; // DEVICE_CUDA + n is card number n

// What AdamW keeps: fp32 moments, bf16 moments, or bf16 moments and no fp32 master parameters (stochastic rounding).
typedef enum { STATE_FP32, STATE_BF16, STATE_BF16_SR } OptimizerState;

typedef struct {
    Device device;
    Dtype dtype;
    int threads; // CPU: 0 = all this process may use
    bool deterministic;
    OptimizerState optimizer_state;
    bool facts_only; // a plan is made: no device is needed, none is opened
} BackendChoice;

// One backend is open at a time. Says in `why` (one sentence) which device and type it took and why. NULL after fail().
const Backend *backend_open(const BackendChoice *choice, char why[256]);

// A backend is a device: memory, and the table of operations that ops.def lists. No device type crosses this header.
#pragma once

#include "kernels/dropout_mask.h"
#include "kernels/dtype.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Tensors. Their storage types are chosen when the backend is opened, so these types are incomplete: a pointer to one
// converts to and from void *, and never to another, so that swapped arguments do not compile.
typedef struct Act Act;       // activations: one of ACTS in dtypes.def
typedef struct Par Par;       // parameters as the operations read them: fp32 on the CPU
typedef struct Grad Grad;     // gradients: fp32
typedef struct Moment Moment; // the first and second moments of AdamW: fp32, or bf16, whatever the activations are
typedef struct Res Res;       // residual stream and its gradient: fp32 on the CPU

// Between the two products of a block's MLP. SWIGLU, which needs a product of twice the width, has operations of its
// own.
typedef enum { ACTIVATION_GELU_TANH, ACTIVATION_GELU, ACTIVATION_RELU2, ACTIVATION_SWIGLU } Activation;

// The weights of a matrix product (rows = outputs, cols = inputs).
typedef struct {
    const Par *param;
    void *packed; // the layout that the backend multiplies by: packed_bytes(rows, cols), 64-byte aligned; NULL if that
                  // is 0
    int rows, cols;
} Weight;

// Causal attention of B sequences of T tokens, with H heads of D channels.
typedef struct {
    int B, T, H, D;
    const int32_t *starts; // (B,T): the first token that each query sees, at most its own, rising with t; NULL: 0
    // (B,T), forward pass with starts only: the position of each query in its text, of which positions[t] -
    // (t - starts[t]) tokens are the first ones of the sequence, before starts[t]. It sees these, too. NULL: none
    const int32_t *positions;
    const Dropout *dropout; // of the softmax's output, site DROPOUT_ATTENTION of `layer`; NULL: none
    int layer;
    int from; // the forward pass computes the queries from this position on, and may write any number to those before
} Attention;

// A norm of N rows with C channels.
typedef struct {
    int N, C;
    const Par *weight, *bias; // (C); bias NULL: none
    float *mean, *rstd;       // (N), which the forward pass writes; mean NULL: the RMS norm, which subtracts no mean
} Norm;

// The gradients of a norm's parameters, (C); NULL: none, but for weight.
typedef struct {
    Grad *weight, *bias;
    Grad *below; // column sums of the new dsum: the gradient of the bias of the product whose output was `branch`
} NormGradients;

// From the product to the input of attention: B sequences of T tokens, H heads of queries, K of keys and K of values,
// of D channels. Queries and keys are normalized (RMS norm of each head, epsilon 1e-5) and then rotated by position.
// H/K heads of queries share one of keys and values.
typedef struct {
    int B, T, H, K, D;
    const Par *q_gain, *k_gain; // (D), the factors of the norm; both NULL: no norm
    const float *rotation; // (T,D): the cosines of D/2 angles for each position, then their sines; element i turns with
                           // element i + D/2; NULL: no rotation
    const int32_t *positions; // (B,T), forward pass only; NULL: t
} Heads;

// The losses of M rows of logits, which are rows first .. first+M-1 of the batch. Columns from vocab on are ignored.
typedef struct {
    int first, M, T, vocab, V;
    float softcap;           // not 0: of softcap * tanh(logits / softcap)
    float z_loss;            // times the square of the softmax's log denominator is added to a loss
    bool gradient;           // the logits become their gradient; else they stay, and the two below are not read
    float scale;             // of the gradient
    const float *loss_scale; // the same, a power of two: 1, or more with fp16 activations, so that gradients do not
                             // underflow
    const uint8_t *counted;  // (B,T) of the batch: 0 if loss and gradient of a row are 0; NULL: all rows count
} CrossEntropy;

// A symmetric matrix (n,n). beside: if activations are fp32, `whole`; else its elements beside the diagonal as
// activations, and 0 on it, because the diagonal, which can be most of the matrix, is multiplied in fp32.
typedef struct {
    Grad *whole;
    Act *beside;
} Symmetric;

// An update of elements first .. first+count-1 of a flat range; the pointers point to element `first`.
typedef struct {
    size_t first, count, decay_count; // elements below decay_count decay
    Par *params;
    float *master; // params if both are fp32
    const Grad *gradients;
    const float *norm;    // of all gradients
    const float *divisor; // of gradients
    const Weight *weight; // that has these elements and no others, and is packed, too; or NULL
} Update;

typedef struct AdamW AdamW; // kernels/adamw_scalars.h
typedef struct Muon Muon;   // kernels/muon_scalars.h

// The largest shapes of a run. They determine the sizes of scratch memory and workspaces.
typedef struct {
    int B, T, C, H, V;
    int chunk_rows; // rows of one logits chunk
    int threads;    // CPU
} Shape;

// Recordings of a step (optim/step.c): of each layer forward and backward, with new gradients and added ones; and
// others.
enum { LAYERS_MAX = 1024, BACKEND_GRAPHS = 4 * LAYERS_MAX + 10, BACKEND_SLOTS = 3, CHOICES_BYTES = 32 << 10 };

// The norm of all gradients is added up from sums of this many elements, wherever each sum was made: its bits do not
// depend on how many processes divide the gradients.
enum { NORM_PIECE = 8192 };
static inline size_t norm_pieces(size_t count) { return (count + NORM_PIECE - 1) / NORM_PIECE; }

// A device by its driver, of all processes that use it.
typedef struct {
    double used, free; // bytes
    double busy;       // share of the last moment in which it computed, 0 to 1
} DeviceUsage;

// A GPU: as its driver states it, or of a card that is elsewhere. A zeroed one is not known.
typedef struct {
    const char *card;    // its name and other facts on which its speed depends
    int capability;      // 86: compute capability 8.6
    size_t memory_bytes; // all of it, whoever uses it
    size_t free_bytes;   // that an arena can have
} GpuProperties;

// Entries marked optional may be NULL.
typedef struct {
    const char *name; // "cpu", "cuda"
    const char *card; // the name of the open device and other facts on which its speed depends; NULL: not known
    char note[128];   // a sentence for the log at the start, or ""

    // Facts. They hold without a device, so that a plan can be made for a card that is not there.
    bool is_planned;     // no device is open: there are facts alone
    bool in_host_memory; // device memory is host memory: uploads and downloads are plain copies
    bool needs_warm_up;  // the first call with a new shape allocates or compiles: run one step before measuring
    Dtype act_type;      // of activations, and of every other type below that has two bytes, but moments
    // Of one element. act_bytes = res_bytes: Act and Res are the same.
    size_t act_bytes, par_bytes, grad_bytes, res_bytes;
    size_t master_bytes, moment_bytes;           // of one element; master_bytes 0: the parameters are their own master
    int (*check_shape)(int channels, int heads); // optional; -1 after fail() (2) when no kernel supports the shape
    size_t (*packed_bytes)(int rows, int cols);
    size_t (*scratch_bytes)(const Shape *shape);

    // Facts of an open device with memory of its own, or of a card for which a plan is made.
    size_t free_bytes;                                // that an arena can have; 0: unknown
    size_t memory_bytes;                              // all of the device, whoever uses it; 0: unknown
    void (*other_processes)(char *text, size_t size); // optional; lists who uses the rest, "" when unknown or nobody
    bool (*usage)(DeviceUsage *usage);                // optional; false: not known
    const struct DeviceCollectiveRow *collective;     // how processes exchange its memory; NULL: as host memory

    // Memory: one arena for the life of the run, zeroed if it is in host memory. alloc returns NULL after fail() (82 or
    // 83).
    void *(*alloc)(size_t bytes);
    void (*release)(void *arena);
    void (*bind_scratch)(void *scratch, size_t bytes);              // part of the arena, shared by all operations
    void (*pin)(void *host, size_t bytes);                          // page-locks it, so that copies from it are fast
    void (*unpin)(void *host);                                      // before it is unmapped or freed
    void (*upload)(void *device, const void *host, size_t bytes);   // ordered with the operations
    void (*download)(void *host, const void *device, size_t bytes); // waits until the copy is done
    void (*zero)(void *device, size_t bytes);
    void (*close)(void);

    // Copies that run beside the operations, between pinned host memory and a slot of the arena. Several copies may
    // share a slot. The host waits for none of them: it may read copied-out bytes after copy_out_wait and a download.
    // copy_in_async runs after the operations so far and the copies out of its slot.
    void (*copy_in_async)(int slot, void *device, const void *host, size_t bytes);
    void (*copy_in_wait)(int slot); // operations from here on run after the slot's copies in
    // copy_out_async runs after the operations so far.
    void (*copy_out_async)(int slot, void *host, const void *device, size_t bytes);
    void (*copy_out_wait)(void); // operations from here on run after all copies out

    // optional: whether the bits of all operations from here on are those of any processor, which costs time. Weights
    // are then not packed. They are not at first.
    void (*set_portable)(bool portable);
    double portable_cost; // of products then, as a share of their time

    // The choices on which the bits of the backend depend beside its operands, by timing or instructions: as text for a
    // checkpoint, and the text of a checkpoint for a run that shall repeat those bits, before its first operation. "":
    // no choice is known. Warns of choices that it cannot repeat.
    void (*choices_get)(char *text, size_t size); // CHOICES_BYTES are enough
    void (*choices_set)(const char *text);

    // A sequence of operations that is repeated with the same arguments: `if (graph_begin(key, true)) { operations;
    // graph_end(key); }`. When graph_begin returns false, the sequence was replayed from its captured graph. It holds
    // no upload, download or copy; one with copies beside the operations is never captured (`captured` false), and
    // its first run, too, is where a backend may time its choices. Graphs last until the arena is released.
    bool (*graph_begin)(int key, bool captured); // key < BACKEND_GRAPHS
    void (*graph_end)(int key);

#define OP(name, scratch, arguments) void(*name) arguments;
#include "kernels/ops.def"
#undef OP
} Backend;

typedef enum { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA } Device; // DEVICE_CUDA + n is card number n

// The state of AdamW: fp32 moments, bf16 moments, or bf16 moments and no fp32 master parameters (stochastic rounding).
typedef enum { STATE_FP32, STATE_BF16, STATE_BF16_SR } OptimizerState;

// Products of float32 on a GPU: as float32, or of operands rounded to TF32, 8 bits of exponent and 10 of fraction.
typedef enum { PRECISION_HIGHEST, PRECISION_HIGH } MatmulPrecision;

typedef struct {
    Device device;
    Dtype dtype;
    int threads; // CPU: 0 = all this process may use
    bool deterministic;
    OptimizerState optimizer_state;
    const GpuProperties *planned; // of a GPU, only the facts are needed, for a plan for this one; NULL: it is opened
    const char *cache_dir;        // a folder for measurements of a device; NULL: none is kept
    int timeout_s;                // of a wait for a GPU, after which the program exits (80); 0: waits do not end
    MatmulPrecision matmul_precision;
} BackendChoice;

// Opens a backend; one is open at a time. `why` receives one sentence: the device, the type and the reason. NULL after
// fail().
const Backend *backend_open(const BackendChoice *choice, char why[256]);

// For choices_set: warns that a run was computed with `was`, and continues with `now`.
void backend_warn_of_change(const char *was, const char *now);

// The backends, for backend_open, of kernels/cpu and of kernels/cuda. backend_cpu describes itself in `how`: "2
// threads, bfloat16 (avx512)"; NULL after fail() (71). backend_cuda opens a device; backend_planned, which is in every
// build, has the facts of choice->planned; NULL after fail() (2 or 80).
const Backend *backend_cpu(const BackendChoice *choice, char how[96]);
const Backend *backend_cuda(const BackendChoice *choice, char why[256]);
const Backend *backend_planned(const BackendChoice *choice, char why[256]);

// Prints which oneDNN was found. False: the CPU backend cannot work with it, and why.
bool backend_cpu_library(char *text, size_t size);
// Prints which files of cuBLASLt and NCCL are taken, or why none is. False if a device could not be used.
bool backend_cuda_libraries(char *text, size_t size);

// The hash chain of a run. Every step has a link: the SHA-256 of the link before it and of the step's data and results.
// A checkpoint holds the link of its step, so that the chain continues after a kill, and the link of a step is in its
// line of metrics.jsonl. The last link therefore commits to all steps: their data, losses, norms, and weights.
//
// H(NAME, ...) is the SHA-256 of "millrace chain NAME 1\n" and the bytes of the arguments. Numbers are little-endian.
//
//   link 0     H("run", "KEY=VALUE\n" for each key that a run cannot change (below), the 32 bytes of vocab_fp)
//   link n     H("step", link n-1, u64 n, the 32 bytes of the fingerprint, data, f64 loss, f64 norm, weights)
//   fingerprint  of the dataset; of a mixture, of it without the entries of its schedule that begin after the last
//              sample of the step (F[k] of mixture.h), so that no link depends on weights of later samples
//   loss, norm as in metrics.jsonl; a value that is not finite is the NaN 7ff8000000000000
//   data       H("data", the batch hash of each micro-batch of the step, in order of samples)
//   batch hash H("batch", u64 first sample, u32 samples, u32 bytes of an id, the ids of the samples)
//   weights    after each step that eval_interval divides: H("weights", the f32 parameters, tensor by tensor in the
//              order and layout of optimizer.safetensors with AdamW); after others 32 zero bytes
//
// The keys of link 0 and their order are seed, sampling, block_size, loss_tokens*, n_layer, n_head, n_embd, vocab_size,
// bias, gelu, mlp*, norm*, position*, rope_theta*, n_kv_head*, qk_norm*, tie_embeddings*, logit_softcap*, z_loss*,
// optimizer, ema*, optimizer_state. Those with * are left out at their default. VALUE is the text of "config" in
// state.json, which leaves them out too, and vocab_fp is its "vocabulary". A configuration has gelu and rope_theta
// behind the words of mlp and position, as mlp=gelu:tanh.
//
// So the chain does not depend on the number of processes, on batches that were requested again, or on where the state
// of the run lies. A run that an earlier version began has link 0 before its first step with this one.
//
// This is rule 2, which state.json names as chain_rule. Without that key a run has rule 1, and keeps it when it goes
// on: the fingerprint of a mixture is then of its whole schedule, as the loader had it at the step (`fingerprint` in
// metrics.jsonl). Links of other runs are the same by both rules, and so are those of a mixture without later entries.
//
// Cost (one core of an AMD EPYC with SHA instructions, 2026-11-24): 1.25 ns a token, 0.08 % of a step of 124M on an
// H200 (652,000 tokens a second); 3.9 ns without these instructions; 3 us of the smallest step. Weights: 0.41 s of 124M
// after an evaluation.
#pragma once

#include "trainer/checkpoint/run_state.h"
#include "trainer/optim/step.h"

typedef struct {
    uint64_t first_sample; // UINT64_MAX: none
    uint8_t hash[32];
} ChainBatch;

typedef struct {
    ChainBatch *batches; // of the step, of every process: (world, most)
    size_t most, count;  // count: micro-batches that this process has received
    unsigned world, id_bytes;
} Chain;

void chain_open(Chain *chain, const Network *network, const Config *config);
void chain_close(Chain *chain); // accepts a zeroed struct

// The calls of each step: begin, each micro-batch that this process receives, share, end.
void chain_begin(Chain *chain);
void chain_add_batch(Chain *chain, const Network *network, const FeedBatch *batch);
// Gives the hashes of the batches to all processes, which all call it before the update: when one of them ends, the
// others have the state and the link of the step before. -1 when one of them has ended.
int chain_share(Chain *chain, const Network *network);
// Sets state->chain, the link of state->step. `fingerprint`: by rule 2.
void chain_end(Chain *chain, const Network *network, const Config *config, const uint8_t fingerprint[32],
               const StepResult *result, RunState *state);

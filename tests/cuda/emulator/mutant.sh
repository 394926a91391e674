#!/usr/bin/env bash
# A planted bug must be caught: mutant.sh BUILD NAME edits one line of the CUDA backend, builds the emulated backend with
# it, and passes when the named test fails with the expected message. mutant.sh --list prints their names; the bugs of "ranks" are
# planted in a trainer, of which two processes and then one train on emulated GPUs with the same losses; with "fixed" and "fixed_cpu", by
# which three train on CPUs, the bits must be the same, in a fixed order of sums. Words that end with bf16: operands are sent in bfloat16.
set -u
# A kernel is compiled without sanitizers, five times as fast, unless a sanitizer prints the message.
mutants() { # name | file, of kernels/cuda if no folder is named | the edit, for sed | the test | its message | sm_75, fp16, fp32, sm_90 or sm_120, if not a card with bf16 and mma
    cat <<'END'
barrier|attention/backward.cu|/__syncthreads(); \/\/ dS of all warps/d|attention_of_64|nothing orders the write
wait|attention/forward.cu|s/^        cp_async_wait<0>();//|attention_of_more|the same bits in every run
ticket|attention/backward.cu|s/= atomicAdd(turns, 1)/= (int)blockIdx.x/|attention_of_more|waits for a block that has not run
race|cross_entropy.cu|0,/__syncthreads/s/__syncthreads();//|loss|error
overrun|embed.cu|s/if (i >= vectors) return;//|embedding_agrees|heap-buffer-overflow
shared|cross_entropy.cu|s/SHARED(double, sums, 256)/SHARED(double, sums, 255)/|loss|heap-buffer-overflow
divergent|column_sums.cu|s/^    __syncthreads();/    if (threadIdx.x < 16) __syncthreads();/|attention_of_more|deadlock
misaligned|layernorm_forward.cu|s/load8(b, branch + first + c)/load8(b, branch + first + c + 1)/|layernorm_agrees|misaligned
copy|attention/forward.cu|s/^        __syncthreads();//|attention_of_64|error|sm_75
half|attention/backward.cu|/^        __syncthreads(); \/\/ the tile has landed/d|attention_of_more|nothing orders the write|sm_75
hidden|attention/attention.cuh|/< first) s\[n\]/s/-INFINITY/-1e30f/|attention_within_documents|finite
begins|attention/attention.cuh|s/ \&\& !(positions \&\& k < shared)//|attention_of_texts|rror
arrival|upload.c|/cudaStreamWaitEvent(cuda.stream, stage->arrived/d|uploads|error
slot|upload.c|/cuda_wait_event(stage->arrived/d|uploads|error
stage|upload.c|/cudaStreamWaitEvent(copy_stream, stage->taken/d|uploads|error
pageable|upload.c|s/if (!is_pinned(host, bytes)) cuda_wait(stream, what);//|gpu_that_hangs|rror
slow_out|copy_streams.c|/cuda_wait_before_pageable(out,/d|gpu_that_hangs|rror
slow_in|copy_streams.c|/cuda_wait_before_pageable(in,/d|gpu_that_hangs|rror
gap|device.c|s/gap_ns < GAP_NS_MAX ? gap_ns : GAP_NS_MAX/gap_ns/|a_long_gap|rror
room|copy_streams.c|s/order(cuda.stream, slots\[slot\].vacated, in);//|slots|error
arrived|copy_streams.c|/cudaStreamWaitEvent(cuda.stream, slots\[slot\].arrived/d|slots|error
made|copy_streams.c|s/order(cuda.stream, slots\[slot\].written, out);//|slots|error
left|copy_streams.c|/cudaStreamWaitEvent(in, slots\[slot\].left/d|slots|error
stored|copy_streams.c|s/cuda_check(cudaStreamWaitEvent(cuda.stream, slots\[i\].left, 0), "waiting for copies to host memory")/(void)i/|slots|wrong use
norm_round|adamw.cu|s/vectors; i += THREADS)/vectors; i += THREADS * 4)/|gradient_norm|relative error
gelu_round|gelu.cu|s/n += gridDim.y \* WARPS)/n += gridDim.y * WARPS * 2)/|gelu_agrees|relative error
chunks|embed.cu|s/const size_t base = (size_t)(first + i) \* SORTED;/const size_t base = (size_t)i * SORTED;/|gathered|relative error|fp16
channels|embed.cu|s/int c = (blockIdx.y \* GATHER + threadIdx.x) \* 8;/int c = threadIdx.x * 8;/|embedding_agrees|relative error
pieces|embed.cu|s/runs\[k\].y), c, C)/runs[k].x + PIECE), c, C)/|gathered|rror
frequent|embed.cu|s/if (n == 0) \*frequent = 0;/if (n == 0) *frequent = 1;/|gathered|rror
order|kernels/cuda/attention/wave_order.h|s/ - 1 - (id - first)/ - (id - first)/|divides_a_grid|rror
rest|cross_entropy.cu|s/vocab - kept), 8)/vocab - kept), 16)/|operation_loss|heap-buffer-overflow
rest_place|cross_entropy.cu|s/rest\[c - KEPT \* THREADS\] = v/rest[(c - KEPT * THREADS) % 1024] = v/|operation_loss|rror
losses|cross_entropy.cu|s/i < n; i += 256/i < min(n, 256); i += 256/|operation_loss|relative error
acquire|attention/backward.cu|s/WAIT_UNTIL(load_acquire(turn + tile) == before)/WAIT_UNTIL(turn[tile] == before)/|attention_of_64|nothing orders the write
release|attention/backward.cu|/^        __syncthreads(); \/\/ the tile has landed/i if (C::FUSED \&\& threadIdx.x == 0 \&\& tile > first) store_release(turn + tile - 1, (tile - 1) * QUERIES \/ KEYS - kb + 1);|attention_of_64|nothing orders the write
plain_load|attention/backward.cu|s/float4 x = __ldcg(dq_sums + (c \/ 8 + n) \* 32);/float4 x = dq_sums[(c \/ 8 + n) * 32];/|attention_of_64|the same bits in every run
opt_in|attention/forward.cu|s/= ALLOW_SHARED(kernel, (int)shared_bytes<C>);/= cudaSuccess;/|attention_of_more|was not allowed
bounds|cross_entropy.cu|s/__launch_bounds__(THREADS, 2)/__launch_bounds__(THREADS \/ 2, 2)/|operation_loss|its launch bounds are
capture|graph.c|s/^        graphs\[key\].capturing = true;/&  void *late; cudaMalloc(\&late, 8);/|replays|wrong use
other_card|kernels/cuda/libraries/product_choices.c|s/if (strcmp(line, card)) return/if (0) return/|choices_of_a_checkpoint|rror
given|kernels/cuda/libraries/product_choices.c|s/(entry->given .. !known->given)/!entry->given/|choices_of_a_checkpoint|rror
timed|kernels/cuda/libraries/product_choices.c|s/\.used = entry->used}/.used = entry->used ? entry->used : ++used_count}/|epilogue_and_a_kernel|rror
check|kernels/cuda/libraries/product_choices.c|s/ \&\& !memcmp(check + text, line + text, CHECK_DIGITS + 1)//|damaged_file|rror
no_choice|kernels/cuda/libraries/product_choices.c|s/!entry .. none_are_made/!entry/|choices_of_a_checkpoint|rror
by_atomics|matmul_cublaslt.c|s/reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)/reduction)/|damaged_file|rror
apart|matmul_cublaslt.c|s/plan->way = choice.way;/plan->way = PRODUCT_BY_ALGORITHM;/|epilogue_and_a_kernel|wrong use
dropped|attention/attention.cuh|s/ \* scale : 0;/ * scale : x[n][e];/|attention_with_dropout|relative error
of_key|attention/backward.cu|s/(mask, b, h, query, key, T/(mask, b, h, query, key + 8, T/|attention_with_dropout|relative error
of_split|attention/backward.cu|s/drop_scores<QUERY_ROWS>(dp, kept,/drop_scores<QUERY_ROWS>(dp, ~0u,/|cuda_attention_gradient_agrees|relative error
sample|attention/attention.cuh|s/dropout.first_sample + (uint32_t)b/dropout.first_sample/|attention_with_dropout|relative error
count|collective_nccl.c|s/nccl.Broadcast(part, part, size,/nccl.Broadcast(part, part, size - collective->rank,/|ranks|different counts in a broadcast|ranks
type|collective_nccl.c|s/size, NCCL_FLOAT32, NCCL_SUM/size, collective->rank ? NCCL_UINT8 : NCCL_FLOAT32, NCCL_SUM/|ranks|different types in a reduction|ranks
other|collective_nccl.c|s/const bool even = bytes/const bool even = !collective->rank \&\& bytes/|ranks|ranks call|ranks
offset|trainer/optim/step.c|s/range + bucket.first \/ unit/range + bucket.first \/ unit \/ network->collective->world/|ranks|touches a buffer of an exchange|ranks
priority|collective_nccl.c|s/cudaStreamNonBlocking, highest/cudaStreamNonBlocking, least/|ranks|behind the operations|ranks
blocks|collective_nccl.c|s/MOST_BLOCKS};/NCCL_CONFIG_DEFAULT};/|ranks|too many multiprocessors|ranks
before_reduce|collective_nccl.c|/cudaStreamWaitEvent(stream, phases/d|ranks|no event orders it after the operations so far|ranks
after_gather|collective_nccl.c|/cudaStreamWaitEvent(cuda.stream, event/d|ranks|touches a buffer of an exchange|ranks
gather_first|trainer/optim/step.c|/^        offload_slices(network, update_slice);/d;s/^        if (!plan_updates_whole(plan)) network_pack(network);/        offload_slices(network, update_slice);\n&/|ranks|touches a buffer of an exchange|ranks
own_layer|trainer/optim/step.c|s/shard_bucket_of_layer(part - 1)/shard_bucket_of_layer(part - 2)/|ranks|touches a buffer of an exchange|ranks
early_sum|trainer/optim/step.c|s/reduce_layer(network, 2 \* layers + 1 - part)/reduce_layer(network, 2 * layers - part < 0 ? 0 : 2 * layers - part)/|ranks|rror|ranks
other_part|trainer/optim/step.c|s/PARTS + (add ? parts : 0)/PARTS/|ranks|losses of two processes are not those of one|ranks
unsettled_read|trainer/model/network.c|/collective_settle/d|ranks|touches a buffer of an exchange|ranks
host_wait|collective_nccl.c|s/^    sent += (count/    cuda_wait(stream, "");\n&/|ranks|the host waits while an exchange is in flight|ranks
no_poll|trainer/optim/step.c|/collective_wait/d|ranks|the host waits while an exchange is in flight|ranks
blamed|collective_nccl.c|s/== cudaErrorNotReady) return false;/== cudaErrorNotReady) return i > 0;/|stopped|the GPU has not finished|ranks
ranks_order|gradient_sums.cu|s/add8(sum, r == rank ? own + i : received + r \* stride + i);/{ const unsigned q = before ? ranks - 1 - r : r; add8(sum, q == rank ? own + i : received + q * stride + i); }/|fixed|the bits of several processes are not those of one|ranks
round_apart|gradient_sums.cu|s/^    if (before)$/    if (false)/;s/r = before ? 0 : 1/r = 1/;s/^    store8(after + i, sum);/    if (before) add8(sum, before + i);\n&/|fixed|the bits of several processes are not those of one|ranks
losses_round|trainer/optim/step.c|s/sum += losses\[rank \* each + micro\];/sum = (float)(sum + losses[rank * each + micro]);/|fixed_cpu|the bits of several processes are not those of one|ranks
blocks|trainer/engine/steps.c|s/(BatchTurns){ranks->rank \* rows, (ranks->world - 1) \* rows,/(BatchTurns){ranks->rank * ((uint64_t)engine->network.plan->rounds * rows), 0,/|fixed_cpu|the bits of several processes are not those of one|ranks
fast_alone|trainer/optim/step.c|s/micro \&\& !network->plan->fixed_order;/micro \&\& network->collective->world == 1;/;s/network->apart = micro \&\& network->plan->micro_gradients.layer_bytes/network->apart = false/|fixed_cpu|the bits of several processes are not those of one|ranks
fast_layers|trainer/model/network.c|s/add_gradients(network, first, first + micro->layer_bytes, layer);/if (layer) &/|fixed_cpu|the bits of several processes are not those of one|ranks
last_round|trainer/optim/step.c|s/left < ranks->world ? (unsigned)left : ranks->world/ranks->world/|fixed_cpu|the bits of several processes are not those of one|ranks
whole|trainer/optim/step.c|s/gather(network, network->plan->grads, network->ops->grad_bytes, 1);/(void)0;/|fixed_cpu|the bits of several processes are not those of one|ranks
norm_own|trainer/optim/step.c|/gather(network, plan->sums/d|fixed_cpu|the bits of several processes are not those of one|ranks
host_order|kernels/mpi/collective_mpi.c|s/const float \*other = received + (size_t)i \* PIECE;/const float *other = received + (size_t)(before ? ranks - 1 - i : i) * PIECE;/|fixed_cpu|the bits of several processes are not those of one|ranks
host_apart|kernels/mpi/collective_mpi.c|s/const float \*first = before ? before : received;/const float *first = received;/;s/for (int i = before ? 0 : 1; i < ranks; i++) {/for (int i = 1; i <= ranks - !before; i++) {/;s/const float \*other = received + (size_t)i \* PIECE;/const float *other = i < ranks ? received + (size_t)i * PIECE : before;/|fixed_cpu|the bits of several processes are not those of one|ranks
tile_step|wgmma.cuh|s/128 \* WGMMA_TERMS/64 * WGMMA_TERMS/|attention_of_64|relative error|sm_90
gelu_turn|matmul_gelu.cu|/if (i) barrier_wait(&memory.multiplied/d|by_wgmma|deadlock|sm_90
gelu_emptied|matmul_gelu.cu|/barrier_wait(&memory.emptied/d|by_wgmma|more arrivals than|sm_90
gelu_landed|matmul_gelu.cu|/barrier_wait(&memory.landed/d|by_wgmma|deadlock|sm_90
gelu_early|matmul_gelu.cu|s/emptied\[(n - 1) % STAGES\]);$/emptied[n % STAGES]);/|by_wgmma|deadlock|sm_90
gelu_bytes|matmul_gelu.cu|s/(DOWN + ACROSS) \* TILE_BYTES/(DOWN + ACROSS - 1) * TILE_BYTES/|by_wgmma|deadlock|sm_90
gelu_distance|wgmma.cuh|s/ROW == TERM \&\& TILES > 1 ? TILE_BYTES >> 4 : 1/1/|by_wgmma|rror|sm_90
gelu_wait|matmul_gelu.cu|s/wgmma_wait<0>(sums\[half\]);/wgmma_wait<1>(sums[half]);/|by_wgmma|without a wait|sm_90
gelu_fence|matmul_gelu.cu|/^ *async_fence();/d|by_wgmma|without async_fence|sm_90
gelu_written|matmul_gelu.cu|/bulk_wait_read();/{n;d}|by_wgmma|deadlock|sm_90
gelu_read|matmul_gelu.cu|s/if (starts) bulk_wait_read();.*//|by_wgmma|rror|sm_90
gelu_arrived|matmul_gelu.cu|/^ *barrier_wait(&arrived/d|by_wgmma|more arrivals than|sm_90
gelu_fetch|matmul_gelu.cu|s/AHEAD = BUFFERS - 1,/AHEAD = BUFFERS,/|by_wgmma|rror|sm_90
gelu_piece|matmul_gelu.cu|s/: 2 \* down\], \*const pres = pieces\[2 \* down + 1\]/: 0], *const pres = pieces[1]/|by_wgmma|rror|sm_90
gelu_row|matmul_gelu.cu|s/row + r \* 8 \* CHUNKS/row + (1 - r) * 8 * CHUNKS/|by_wgmma|rror|sm_90
gelu_half|matmul_gelu.cu|s/sums\[down\], across, biases/sums[0], across, biases/|by_wgmma|rror|sm_90
gelu_column|matmul_gelu.cu|s/\&sums\[across \* 8 + k\]/\&sums[k]/|by_wgmma|rror|sm_90
gelu_bias|matmul_gelu.cu|s/(bias + column + k \* 8/(bias + k * 8/|by_wgmma|rror|sm_90
gelu_outside|matmul_gelu.cu|s/const bool inside = column < product.N;/const bool inside = true;/|by_wgmma|rror|sm_90
gelu_sums|matmul_gelu.cu|s/, halve<2>(x);/;/|by_wgmma|rror|sm_90
gelu_warps|matmul_gelu.cu|s/ + of\[3\]\[thread\];/;/|by_wgmma|rror|sm_90
gelu_slope|matmul_gelu.cu|s/slope_of<FORM>(high(x\[k\]\[r\]))/slope_of<FORM>(low(x[k][r]))/|by_wgmma|rror|sm_90
gelu_next|matmul_gelu.cu|s/fetch(ahead < PIECES ? at : next,/fetch(at,/|by_wgmma|rror|sm_90
gelu_summed|matmul_gelu.cu|/barrier_wait(&memory.summed\[group\], 0)/d|by_wgmma|deadlock|sm_90
gelu_again|matmul_gelu.cu|/barrier_wait(&memory.summed\[group\], 1)/d|by_wgmma|deadlock|sm_90
gelu_height|matmul_gelu.cu|s/ + warp \* PIECE_ROWS, ahead/, ahead/|by_wgmma|rror|sm_90
gelu_part|matmul_gelu.cu|s/(at.row \/ (DOWN \* SIDE))/(at.row \/ SIDE)/|by_wgmma|rror|sm_90
gelu_parts|matmul_gelu.cu|s/(const float \*)cuda.scratch, down,/(const float *)cuda.scratch, down - 1,/|by_wgmma|rror|sm_90
gelu_rounded|matmul_gelu.cu|s/of_columns\[2 \* k + 1\] += high(d)/of_columns[2 * k + 1] += low(d)/|by_wgmma|rror|sm_90
gelu_end|matmul_gelu.cu|/^    if (starts) bulk_wait();/d|by_wgmma|without a wait|sm_90
gelu_allowed|matmul_gelu.cu|s/= ALLOW_SHARED((matmul.*;/= cudaSuccess;/|by_wgmma|was not allowed|sm_90
gelu_kept|matmul_cublaslt.c|s/choice.way == PRODUCT_BY_WGMMA \&\& !wgmma/false/|kernel_that_has_both|rror
gelu_form|matmul_cublaslt.c|s/workspace >> 20, forms\[p->form\]/workspace >> 20, ""/|kernel_that_has_both|rror
bf16_truncated|gradient_sums.cu|s/bits + 0x7fffu + (bits >> 16 \& 1)/bits/|rounding_to_bf16|not inf
bf16_ties|gradient_sums.cu|s/0x7fffu + (bits >> 16 \& 1)/0x8000u/|rounding_to_bf16|relative error
bf16_half|collective_nccl.c|s/(bf16 ? PIECE \/ 2 : 0)/0/|ranks_bf16|a receive over what a send reads|ranks
bf16_own|collective_nccl.c|s/sum->bf16 ? slot_of(rank)/sum->bf16 ? slot_of(0)/|fixed_bf16|the bits of several processes are not those of one|ranks
bf16_early|collective_nccl.c|s/OF_DEVICE(write_bf16)(stream/OF_DEVICE(write_bf16)(cuda.stream/|ranks_bf16|touches a buffer of an exchange|ranks
bf16_first|trainer/model/network.c|s/if (plan->reduce_bf16)/if (plan->reduce_bf16 \&\& network->apart)/|fixed_cpu_bf16|the bits of several processes are not those of one|ranks
host_own|kernels/mpi/collective_mpi.c|s/^        add_in_order(sum/        if (rank < ranks) memcpy(received + (size_t)rank * PIECE, values + (size_t)rank * share + at, mine * sizeof *values);\n&/|fixed_cpu_bf16|the bits of several processes are not those of one|ranks
host_half|kernels/mpi/collective_mpi.c|s/\* sizeof \*received - bytes) \* PIECE/* sizeof *received - 4) * PIECE/|fixed_cpu_bf16|the bits of several processes are not those of one|ranks
host_shared|kernels/mpi/collective_mpi.c|s/(received + (size_t)to \* PIECE)/(received + (size_t)rank * PIECE)/|fixed_cpu_bf16|the bits of several processes are not those of one|ranks
tma_ticket|attention/backward_tma.cu|s/= atomicAdd(turns, 1)/= (int)blockIdx.x/|by_tma_agrees|waits for a block that has not run|sm_90
tma_acquire|attention/backward_tma.cu|s/load_acquire(block.turns + tile)/block.turns[tile]/|by_tma_agrees|nothing orders the write|sm_90
tma_memory_fence|attention/backward_tma.cu|s/^            memory_fence();//|by_tma_agrees|without memory_fence|sm_90
tma_release|attention/backward_tma.cu|/^        bulk_wait();/{N;s/\(.*\)\n\(.*\)/\2\n\1/}|by_tma_agrees|nothing orders the write|sm_90
tma_wait|attention/backward_tma.cu|s/^        bulk_wait();//|by_tma_agrees|bulk_store without a wait|sm_90
tma_read|attention/backward_tma.cu|s/^        bulk_wait_read();//|by_tma_agrees|rror|sm_90
tma_taken|attention/backward_tma.cu|/barrier_wait(&tiles.taken/d|by_tma_agrees|deadlock|sm_90
tma_given|attention/backward_tma.cu|/barrier_wait(&tiles.given/d|by_tma_agrees|deadlock|sm_90
tma_filled|attention/backward_tma.cu|/^    barrier_wait(&tiles.filled/d|by_tma_agrees|deadlock|sm_90
tma_emptied|attention/backward_tma.cu|/barrier_wait(&tiles.emptied/d|by_tma_agrees|rror|sm_90
tma_landed|attention/backward_tma.cu|/barrier_wait(&tiles.landed/d|by_tma_agrees|more arrivals|sm_90
tma_stage_free|attention/backward_tma.cu|/if (last > 0) barrier_wait/d|by_tma_agrees|more arrivals|sm_90
tma_parity|attention/backward_tma.cu|s/n . STAGES & 1);/0);/|by_tma_agrees|deadlock|sm_90
tma_async_fence|tma.cuh|s/^    async_fence();//|by_tma_agrees|without async_fence|sm_90
tma_zeros|attention/backward_tma.cu|/put_zeros(tiles.ds/d|by_tma_agrees|rror|sm_90
tma_arrivals|attention/backward_tma.cu|s/filled\[i\], GROUPS \* 4/filled[i], GROUPS * 4 - 1/|by_tma_agrees|rror|sm_90
tma_bytes|attention/backward_tma.cu|s/2 \* TILE_BYTES + ROW_BYTES/TILE_BYTES + ROW_BYTES/|by_tma_agrees|deadlock|sm_90
tma_add|attention/backward_tma.cu|s/SUM_BYTES, turn);/SUM_BYTES, false);/|by_tma_agrees|rror|sm_90
tma_before|attention/backward_tma.cu|s/^    if (turn) {/    if (false) {/|by_tma_agrees|rror|sm_90
tma_is_last|attention/backward_tma.cu|s/tile < first_tile(block) + GROUPS;/tile < first_tile(block) + GROUPS - 1;/|by_tma_agrees|rror|sm_90
tma_documents|attention/backward_tma.cu|s/block.kb - first_key_of(block, tile) . KEYS/block.kb/|by_tma_agrees|waits for a block that has not run|sm_90
tma_steps|attention/backward_tma.cu|s/< (block.kb + 1) \* KEYS)/< block.kb * KEYS)/|by_tma_agrees|waits for a block that has not run|sm_90
tma_sees|attention/backward_tma.cu|s/KEYS + (group + 1) \* SIDE/KEYS + group * SIDE/|by_tma_agrees|rror|sm_90
tma_masks|attention/backward_tma.cu|s/block.T) > block.kb \* KEYS + group \* SIDE)/block.T) > (block.kb + 1) * KEYS)/|by_tma_agrees|rror|sm_90
tma_rows_masks|attention/forward_tma.cu|s/last_first_key > tile \* SIDE/last_first_key > (tile + 1) * SIDE/|by_tma_agrees|rror|sm_90
tma_kept|attention/backward_tma.cu|s/uint32_t kept = 0;/uint16_t kept = 0;/|by_tma_agrees|rror|sm_90
tma_words|attention/backward_tma.cu|s/bit < 4; bit \*= 2/bit < 2; bit *= 2/|by_tma_agrees|rror|sm_90
tma_head|attention/forward_tma.cu|s/qkv, 2 \* H + block.h/qkv, H + block.h/|by_tma_agrees|rror|sm_90
tma_rows_landed|attention/forward_tma.cu|/barrier_wait(&tiles.landed/d|by_tma_agrees|more arrivals|sm_90
tma_rows_emptied|attention/forward_tma.cu|/barrier_wait(&tiles.emptied/d|by_tma_agrees|deadlock|sm_90
tma_rows_early|attention/forward_tma.cu|s/^        wgmma_wait<1>(s);/        wgmma_wait<2>(s);/|by_tma_agrees|before its wait|sm_90
tma_rows_sums|attention/forward_tma.cu|s/^    wgmma_wait<0>(softmax.sums);/    wgmma_wait<1>(softmax.sums);/|by_tma_agrees|without a wait|sm_90
tma_rows_faded|attention/forward_tma.cu|s/^        softmax_fade(softmax, fades);//|by_tma_agrees|rror|sm_90
tma_map|kernels/cuda/tensor_map.c|s/row, row \* (uint64_t)T}/row, row}/|by_tma_agrees|rror|sm_90
first_sum|layernorm_backward.cu|s/ds\[i\] = first ? zero : /ds[i] = /|layernorm_gradient|relative error
last_slot|copy_streams.c|s/for (int i = 0; i < BACKEND_SLOTS; i++)$/for (int i = 0; i < BACKEND_SLOTS - 1; i++)/|gradients_and_residuals|rror
whole_stage|upload.c|s/bytes > STAGE_BYTES/bytes > UPLOAD_BYTES/|more_than_a_stage|wrong use
workspace|matmul_cublaslt.c|s/result.workspaceSize <= workspace_bytes()/true/|damaged_file|rror
workspace_end|matmul_cublaslt.c|s/while (bytes > cuda.scratch_bytes/while (bytes > 2 * cuda.scratch_bytes/|for_each_workspace|assert
workspace_key|matmul_cublaslt.c|s/gemm_name(p, workspace_bytes(), name);/gemm_name(p, WORKSPACE_LEAST, name);/|for_each_workspace|rror
workspace_given|kernels/cuda/libraries/product_choices.c|s/(given \&\& !entry->given)/given/|for_each_workspace|rror
cached|matmul_cublaslt.c|/cudaMemsetAsync(cuda.scratch/d|no_cache_holds|rror
tf32|matmul_cublaslt.c|s/cuda.tf32 ? "tf32" : //|to_tf32|rror
precision|device.c|s/== PRECISION_HIGH \&\&/== PRECISION_HIGHEST \&\&/|to_tf32|rror
replaced|matmul_cublaslt.c|/the product's plan may have replaced it/d;/const float apart_ms/i GemmPlan *plan = gemm_plan_for(ways->both, \&ways->of_both);|full_table|rror
other_cards|device.c|s/cuda.capability == 90/cuda.capability >= 90/|attention_of_64|a card that has none|sm_120
gaps|trainer/model/layer_offload.c|s/network->ops->zero(network_at(network, gradients->kept), gradients->bytes);/(void)0;/|gradients_and_residuals|rror
chosen|trainer/optim/step.c|s/network->ops->graph_begin(key, is_recorded(network))/(is_recorded(network) ? network->ops->graph_begin(key, true) : true)/;s/        network->ops->graph_end(key);/        if (is_recorded(network)) network->ops->graph_end(key);/|every_offload|rror
skipped_keys|attention/forward.cu|s/block \* QUERIES, T) \/ KEYS/block * QUERIES, T) \/ KEYS + 1/|attention_within_documents|error
last_keys|attention/backward.cu|s/(mask, b, tile, T) >= kb \* KEYS/(mask, b, tile, T) > kb * KEYS/|attention_within_documents|error
last_queries|attention/backward.cu|s/(mask, b, tile, T) >= (kb + 1) \* KEYS/(mask, b, tile, T) >= kb * KEYS/|attention_within_documents|waits for a block
rows_fade|attention/fp32.cu|s/sums\[i\]\[n\] \*= fade/sums[i][n] *= 1/|attention_of_64|rror|fp32
rows_kept|attention/fp32.cu|s/if (!is_kept) weight = 0;//|attention_with_dropout|rror|fp32
rows_left|attention/fp32.cu|s/>= keys + TILE) break;/>= keys) break;/|attention_within|rror|fp32
rows_beyond|attention/fp32.cu|s/if (row_of(i) < to.count \&\& /if (/|attention_of_64|rror|fp32
rows_wide|attention/fp32.cu|s/ \&\& c < from.D;/;/|attention_of_fewer|rror|fp32
rows_diagonal|attention/fp32.cu|s/keys <= first_query; keys/keys < first_query; keys/|attention_of_64|rror|fp32
rows_arrived|attention/fp32.cu|s/__syncthreads(); \/\/ the rows are there//|attention_of_64|rror|fp32
rows_read|attention/fp32.cu|s/__syncwarp(); \/\/ the warp has read its weights//|attention_of_64|rror|fp32
swizzle|attention/attention.cuh|s/W % 4 == 0 ? row >> 1 & 3/W % 4 == 0 ? row \& 1/|bank_conflicts|emu_counts.bank_conflicts
END
}
if [ "${1:-}" = --list ]; then
    if command -v mpirun >/dev/null; then mutants; else mutants | grep -v '|ranks$'; fi | cut -d'|' -f1
    exit
fi
build=$1 name=$2
IFS='|' read -r _ file edit word words card < <(mutants | grep "^$name|")
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
path=kernels/cuda/$file
[ -e "$path" ] || path=$file
mkdir -p "$folder/$(dirname "$path")"
sed "$edit" "$path" >"$folder/$path"
[ "$name" = release ] && sed -i 's/^            store_release(turn + tile - 1, .*/            (void)0;/' "$folder/kernels/cuda/$file"
cmp -s "$path" "$folder/$path" && echo "the edit of '$name' changes nothing" && exit 1
source=$folder/$path
kernel=attention/forward.cu # that includes the edited header
[[ $file == wgmma.cuh ]] && kernel=attention/forward_tma.cu
[[ $file == tma.cuh ]] && kernel=attention/backward_tma.cu
[[ $name == gelu_* ]] && kernel=matmul_gelu.cu
[[ $file == *.cuh ]] && file=$kernel && source=kernels/cuda/$file
[[ $file == *.h ]] && file=test_emu_order.c && source=tests/cuda/emulator/$file
sanitize="-fsanitize=address,undefined -fno-sanitize-recover=all"
object=$file.o program=test-emu type=bf16
instrument=
[[ $words == heap-buffer-overflow || $words == misaligned ]] && instrument=$sanitize
more=
case $card in
sm_75) export EMU_CAPABILITY=75 && type=fp16 more=-DARCH=750 program=test-emu-75 ;;
fp16) export TEST_DTYPE=float16 && type=fp16 more=-DSORTED_TOKENS=32 ;;
fp32) export TEST_DTYPE=float32 && type=fp32 ;;
sm_90 | sm_120) export EMU_CAPABILITY=${card#sm_} ;;
ranks) program=emulated/trainer ;;
esac
case $file in
*.cu)
    compile="g++ -std=c++17 -Wno-unknown-pragmas -Wno-psabi -DEMU -x c++ -include tests/cuda/emulator/emu.h -DACT=$type -DACT_${type^^} $more"
    object=$file.$([ "$card" = sm_75 ] && echo sm_75 || echo $type).o
    ;;
*) compile="gcc -std=c11 -D_GNU_SOURCE" ;;
esac
objects=$(tr ' ' '\n' <"$build/$program.objects" | grep -v "/$object$")
if [[ $file == kernels/mpi/* ]]; then # a shared object
    mkdir -p "$folder/lib/millrace" && cp "$build/$program" "$folder/test" || exit 1
    mpicc -std=c11 -D_GNU_SOURCE -O1 -ffp-contract=off -fPIC -shared -I. "$source" -o "$folder/lib/millrace/mpi.so" || exit 1
else
    # shellcheck disable=SC2086
    $compile -O1 $instrument -I"$folder" -I. -isystem "$CUDA_HOME/include" -c "$source" -o "$folder/mutant.o" || exit 1
    # shellcheck disable=SC2086
    g++ $sanitize -Wl,-S "$folder/mutant.o" $objects "$build/host.a" $EMULIBS -o "$folder/test" || exit 1
fi
if [ "$card" = ranks ]; then
    BIN=$PWD/$build/bin DATA=$PWD/tests/data BATS_FILE_TMPDIR=$folder BATS_TEST_TMPDIR=$folder PROGRAM=$folder/bin/trainer
    export PROGRAM
    mkdir "$folder/bin" && mv "$folder/test" "$PROGRAM" && { [ -e "$folder/lib" ] || ln -s "$BIN/../lib" "$folder/lib"; } && ln -s "$BIN/loader" "$folder/bin/loader"
    . tests/cli/helpers.bash && . tests/cli/ranks.bash && setup_ranks && make_character_data && make_emulated_conf || exit 1
    [[ $word == *bf16 ]] && echo "reduce_dtype = 'bfloat16'" >>tiny.conf
    if [ "$word" = stopped ]; then
        rank_1_stops
        cp stderr log
        [ "$(cat status.0)" = 75 ] && echo "planted bug '$name' was not caught" && exit 1
    elif [[ $word == fixed* ]]; then
        options="--reduce_order=fixed --gradient_accumulation_steps=5" count=2 runs="part"
        if [[ $word == fixed_cpu* ]]; then options="$options --device=cpu --dtype=float32" count=3 runs="part whole"; else options="$options --device=cuda"; fi
        export -f ranks && export data
        bits() { cat "$(checkpoint "$1" 2)"/{model,optimizer}.safetensors <(losses "$1") | sha256sum; }
        timeout 200 bash -c "ranks 1 $options --out_dir=one" >log 2>&1 || { tail -15 log && exit 1; }
        for run in $runs; do
            [ "$run" = whole ] && options="$options --zero_stage=0"
            timeout 200 bash -c "ranks $count $options --out_dir=$run" >log 2>&1 || { tail -15 log && exit 1; }
            [ "$(bits one)" = "$(bits "$run")" ] || runs=
        done
        [ "$runs" ] && echo "planted bug '$name' was not caught" && exit 1
        echo "the bits of several processes are not those of one" >>log
    elif timeout 100 bash -c "$(declare -f ranks); data=$data; ranks 2 --device=cuda --out_dir=two --eval_interval=2 --eval_iters=1" >log 2>&1; then
        ranks 1 --device=cuda --out_dir=one >/dev/null 2>&1
        close_losses one two >/dev/null && echo "planted bug '$name' was not caught" && exit 1
        echo "the losses of two processes are not those of one" >>log
    fi
else
    multiprocessors=0 # no grid is small
    [[ $name == gelu_* ]] && multiprocessors=1 # a block has several tiles
    EMU_MULTIPROCESSORS=$multiprocessors timeout 200 "$folder/test" --data tests/data --bin "$build/bin" "$word" >"$folder/log" 2>&1 &&
        echo "planted bug '$name' was not caught" && exit 1
fi
grep -qi -- "$words" "$folder/log" || { tail -15 "$folder/log" && exit 1; }

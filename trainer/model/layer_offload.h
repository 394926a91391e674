// Offload of the buffers of a layer: its input (offload = residuals) and the gradients of its matrices (gradients) are
// in host memory, and in slots of the arena while the layer is computed. Copies run beside the operations of other
// layers. Each function does nothing if its buffers stay in the arena.
#pragma once

#include "trainer/model/network.h"

// Residuals. The input of a layer has the slot of layer % BACKEND_SLOTS. The last BACKEND_SLOTS layers find theirs
// still there in the backward pass.
void layer_offload_store_input(const Network *network, const PassLayout *pass, int layer); // after its block, in order
void layer_offload_await_input(const Network *network, const PassLayout *pass, int layer); // before its backward pass
void layer_offload_fetch_input(const Network *network, const PassLayout *pass,
                               int layer); // after the backward pass of layer, for another

// Gradients. Only matrices of layers are moved; other gradients stay on the device until the last micro-batch.
void layer_offload_begin_gradients(const Network *network, bool add);            // before a micro-batch
void layer_offload_await_gradients(const Network *network, int layer);           // before a layer's backward pass
void layer_offload_store_gradients(const Network *network, int layer, bool add); // after it
void layer_offload_store_kept(const Network *network);        // those that stay: to host memory, beside the others
void layer_offload_collect_gradients(const Network *network); // all to the arena, for the norm and the update

// Recorded runs of operations (backend.h: begin, end): CUDA graphs over fixed addresses, one launch for hundreds.
//
// A run is made plainly the first time, so that whatever is made once (plans, a kernel's shared memory) is made outside
// the recording; recorded the second time; replayed from then on.
#include "kernels/cuda/cuda_internal.h"
#include <assert.h>
#include <string.h>

static bool plain; // a first run is being made

static struct {
    int runs;
    bool recording;
    cudaGraphExec_t graph;
} recorded[BACKEND_RECORDINGS];

bool graph_begin(int key) {
    assert(key >= 0 && key < BACKEND_RECORDINGS);
    if (recorded[key].graph) {
        cuda_check(cudaGraphLaunch(recorded[key].graph, cuda.stream), "replaying a graph");
        return false;
    }
    plain = !recorded[key].runs++;
    if (!plain) {
        cuda_check(cudaStreamBeginCapture(cuda.stream, cudaStreamCaptureModeThreadLocal), "recording a graph");
        recorded[key].recording = true;
    }
    return true;
}

void graph_end(int key) {
    plain = false;
    if (!recorded[key].recording) return;
    cudaGraph_t graph;
    cuda_check(cudaStreamEndCapture(cuda.stream, &graph), "recording a graph");
    cuda_check(cudaGraphInstantiate(&recorded[key].graph, graph, 0), "making a graph");
    cuda_check(cudaGraphDestroy(graph), "making a graph");
    cuda_check(cudaGraphLaunch(recorded[key].graph, cuda.stream), "replaying a graph");
    recorded[key].recording = false;
}

bool graph_is_warmup_run(void) { return plain; }

void graph_clear(void) {
    for (int key = 0; key < BACKEND_RECORDINGS; key++)
        if (recorded[key].graph) cuda_check(cudaGraphExecDestroy(recorded[key].graph), "dropping a graph");
    memset(recorded, 0, sizeof recorded);
}

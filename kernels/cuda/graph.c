// Sequences of operations as CUDA graphs (backend.h: graph_begin, graph_end): one launch replaces hundreds.
//
// The first run is eager, because lazy initialization (matmul plans, shared-memory limits of kernels) must not be
// captured. The second run is captured, later ones are replayed; a sequence with copies always runs eagerly.
#include "kernels/cuda/cuda_internal.h"
#include <assert.h>
#include <string.h>

static bool warming_up; // during an eager first run

static struct {
    int runs;
    bool capturing;
    cudaGraphExec_t graph;
} graphs[BACKEND_GRAPHS];

bool graph_begin(int key, bool captured) {
    assert(key >= 0 && key < BACKEND_GRAPHS);
    if (graphs[key].graph) {
        cuda_check(cudaGraphLaunch(graphs[key].graph, cuda.stream), "replaying a graph");
        return false;
    }
    warming_up = !graphs[key].runs++;
    if (!warming_up && captured) {
        cuda_check(cudaStreamBeginCapture(cuda.stream, cudaStreamCaptureModeThreadLocal), "capturing a graph");
        graphs[key].capturing = true;
    }
    return true;
}

void graph_end(int key) {
    warming_up = false;
    if (!graphs[key].capturing) return;
    cudaGraph_t graph;
    cuda_check(cudaStreamEndCapture(cuda.stream, &graph), "capturing a graph");
    cuda_check(cudaGraphInstantiateWithFlags(&graphs[key].graph, graph, 0), "instantiating a graph");
    cuda_check(cudaGraphDestroy(graph), "instantiating a graph");
    cuda_check(cudaGraphLaunch(graphs[key].graph, cuda.stream), "replaying a graph");
    graphs[key].capturing = false;
}

bool graph_is_warmup_run(void) { return warming_up; }

void graph_clear(void) {
    for (int key = 0; key < BACKEND_GRAPHS; key++)
        if (graphs[key].graph) cuda_check(cudaGraphExecDestroy(graphs[key].graph), "destroying a graph");
    memset(graphs, 0, sizeof graphs);
}

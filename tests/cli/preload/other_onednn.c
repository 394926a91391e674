// Another oneDNN, for LD_PRELOAD: with RUNTIME defined, one that names this CPU runtime; else one that names the real
// library's, and computes when dnnl_stream_wait is called, as a library with queues may. Each thread waits for what it
// has begun itself, and begins nothing before that.
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

#ifdef RUNTIME
const dnnl_version_t *dnnl_version(void) {
    static dnnl_version_t version;
    const dnnl_version_t *(*next)(void);
    *(void **)&next = dlsym(RTLD_NEXT, "dnnl_version");
    version = *next();
    version.cpu_runtime = RUNTIME;
    return &version;
}
#else
enum { ARGUMENTS = 8 };
static _Thread_local struct {
    const_dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    int count;
    dnnl_exec_arg_t arguments[ARGUMENTS];
    void *data[ARGUMENTS];
} begun;

dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int count,
                                     const dnnl_exec_arg_t *arguments) {
    if (count > ARGUMENTS) abort();
    begun.primitive = primitive, begun.stream = stream, begun.count = count;
    memcpy(begun.arguments, arguments, (size_t)count * sizeof *arguments);
    for (int i = 0; i < count; i++) dnnl_memory_get_data_handle(arguments[i].memory, &begun.data[i]);
    return dnnl_success;
}

dnnl_status_t dnnl_stream_wait(dnnl_stream_t stream) {
    dnnl_status_t (*next)(const_dnnl_primitive_t, dnnl_stream_t, int, const dnnl_exec_arg_t *);
    *(void **)&next = dlsym(RTLD_NEXT, "dnnl_primitive_execute");
    if (!begun.primitive || begun.stream != stream) return dnnl_success;
    for (int i = 0; i < begun.count; i++) dnnl_memory_set_data_handle(begun.arguments[i].memory, begun.data[i]);
    const dnnl_status_t status = next(begun.primitive, stream, begun.count, begun.arguments);
    begun.primitive = NULL;
    return status;
}
#endif

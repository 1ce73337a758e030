/* Implements the CUDA runtime functions that Lathe calls, on host memory. Work is queued and runs
 * when the caller waits for it; device memory is accessible only while work runs. LATHE_EMULATOR
 * describes the emulated machine: "driver=none gpus=0 arch=75 memory=BYTES used=BYTES", each
 * optional. Above 500 lines because memory, streams and captures share one private state. */
#include <cuda_runtime_api.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <sched.h>
#include <set>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "emulator.h"
#include "emulator_checks.h"
#include "emulator_image.h"
#include "emulator_threads.h"

/* Longest wait for work that is not ready: other processes do not do their part. */
static const double longest_wait_ms = 120e3;

namespace
{

using work = std::function<void()>;

struct event_mark {
    struct stream_queue *stream; /* stream on which it was recorded last */
    uint64_t ticket;
    struct capture *in; /* capture in which it was recorded; NULL: none */
    std::shared_ptr<double>
        when; /* for an event with timing: ms, NaN until it has passed; else NULL */
};

/* One item of a captured stream: work, or, if the work is empty, a wait for the first `ticket`
 * items of another stream. */
struct captured_item {
    work w;
    size_t stream;
    uint64_t ticket;
};

/* The streams of a capture. The first is the one on which the capture began; the others join it by
 * waiting for one of its events. */
struct capture {
    std::vector<struct stream_queue *> streams;
    std::vector<std::vector<captured_item>> items;
    bool is_invalid = false; /* a call was made that a capture forbids */
};

using launchable = std::shared_ptr<const capture>;

/* ready: whether the work may run; empty: always. */
struct pending_work {
    work w;
    std::function<bool()> ready;
};

struct stream_queue {
    std::deque<pending_work> pending;
    uint64_t n_queued = 0, n_done = 0;
    capture *in = nullptr; /* capture in progress */
};

struct block {
    size_t bytes;
    bool is_device;
};

stream_queue default_stream;
std::map<char *, block> blocks;
cudaError_t last_error = cudaSuccess;
std::set<stream_queue *> streams; /* that were created */
int current_device;
int n_running;     /* nesting depth of work that runs "on the GPU" */
capture *captured; /* capture in progress */

/* ---- the emulated machine ---- */

int64_t setting(const char *key, int64_t otherwise)
{
    const char *text = getenv("LATHE_EMULATOR"),
               *at = text == nullptr ? nullptr : strstr(text, key);
    if (at == nullptr || at[strlen(key)] != '=')
        return otherwise;
    const char *value = at + strlen(key) + 1;
    return strncmp(value, "none", 4) == 0 ? 0 : strtoll(value, nullptr, 10);
}

size_t total_bytes()
{
    return (size_t)setting("memory", (int64_t)1 << 32);
}

size_t free_bytes()
{
    size_t used = (size_t)setting("used", 0);
    for (const auto &entry : blocks)
        used += entry.second.is_device ? entry.second.bytes : 0;
    return used < total_bytes() ? total_bytes() - used : 0;
}

cudaError_t fail(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

/* Calls that may wait for the GPU are refused while their thread captures a stream; the capture
 * becomes invalid. */
bool is_forbidden()
{
    if (captured == nullptr)
        return false;
    captured->is_invalid = true;
    (void)fail(cudaErrorStreamCaptureUnsupported);
    return true;
}

/* ---- memory: the host can access it only while the GPU works ---- */

size_t page_up(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

#ifdef __SANITIZE_ADDRESS__ /* its red zones detect more than pages do */
char *memory_new(size_t bytes)
{
    void *p = nullptr;
    return posix_memalign(&p, 256, bytes) == 0 ? (char *)p : nullptr;
}

void memory_delete(char *p, size_t bytes)
{
    (void)bytes;
    free(p);
}

void protect(int access)
{
    (void)access;
}
#else
char *memory_new(size_t bytes)
{
    void *p = mmap(nullptr, page_up(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? nullptr : (char *)p;
}

void memory_delete(char *p, size_t bytes)
{
    munmap(p, page_up(bytes));
}

void protect(int access)
{
    for (const auto &entry : blocks)
        if (entry.second.is_device)
            mprotect(entry.first, page_up(entry.second.bytes), access);
}
#endif

/* ---- streams ---- */

stream_queue *of(cudaStream_t stream)
{
    return stream == nullptr || stream == cudaStreamPerThread || stream == cudaStreamLegacy
               ? &default_stream
               : (stream_queue *)stream;
}

double now_ms()
{
    using namespace std::chrono;
    return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

/* Waits until the next work of a stream is ready. */
void wait_ready(const stream_queue *s)
{
    const double begin = now_ms();
    while (s->pending.front().ready && !s->pending.front().ready()) {
        if (now_ms() - begin > longest_wait_ms)
            emulator_refuse("a stream has waited for other processes for two minutes");
        sched_yield();
    }
}

/* waits: also for work that is not ready; otherwise it ends before that. */
void drain(stream_queue *s, uint64_t until, bool waits = true)
{
    if (s->n_done >= until || s->pending.empty())
        return;
    if (n_running++ == 0)
        protect(PROT_READ | PROT_WRITE);
    while (s->n_done < until && !s->pending.empty()) {
        if (!waits && s->pending.front().ready && !s->pending.front().ready())
            break;
        wait_ready(s);
        work next = std::move(s->pending.front().w);
        s->pending.pop_front();
        next();
        s->n_done++;
    }
    if (--n_running == 0)
        protect(PROT_NONE);
}

size_t place_in(const capture *c, const stream_queue *s)
{
    size_t i = 0;
    while (c->streams[i] != s)
        i++;
    return i;
}

void join(capture *c, stream_queue *s)
{
    s->in = c;
    c->streams.push_back(s);
    c->items.emplace_back();
}

/* Progress of a captured stream: runs `until` items of one stream, and of the others only those
 * that it waits for. */
void run_captured(const std::vector<std::vector<captured_item>> &items, std::vector<uint64_t> &done,
                  size_t stream, uint64_t until, bool calls)
{
    while (done[stream] < until) {
        const captured_item &next = items[stream][done[stream]++];
        if (!next.w)
            run_captured(items, done, next.stream, next.ticket, calls);
        else if (calls)
            next.w();
    }
}

void push(stream_queue *s, work w)
{
    if (s->in != nullptr) {
        s->in->items[place_in(s->in, s)].push_back({std::move(w), 0, 0});
        return;
    }
    s->pending.push_back({std::move(w), nullptr});
    s->n_queued++;
}

/* The block that holds p; NULL: ordinary host memory. */
const block *block_of(const void *p)
{
    auto next = blocks.upper_bound((char *)p);
    if (next == blocks.begin())
        return nullptr;
    const auto &entry = *std::prev(next);
    return (const char *)p < entry.first + entry.second.bytes ? &entry.second : nullptr;
}

} // namespace

int emulator_allocation(const void *p, const void **out_first, size_t *out_bytes)
{
    auto next = blocks.upper_bound((char *)p);
    if (next == blocks.begin())
        return 0;
    const auto &entry = *std::prev(next);
    *out_first = entry.first;
    *out_bytes = entry.second.bytes;
    return (const char *)p < entry.first + entry.second.bytes;
}

cudaError_t emulator::queue(cudaStream_t stream, std::function<void()> w)
{
    push(of(stream), std::move(w));
    return cudaSuccess;
}

cudaError_t emulator::queue_when(cudaStream_t stream, std::function<bool()> ready,
                                 std::function<void()> w)
{
    stream_queue *s = of(stream);
    s->pending.push_back({std::move(w), std::move(ready)});
    s->n_queued++;
    return cudaSuccess;
}

void emulator::run_ready(cudaStream_t stream)
{
    drain(of(stream), of(stream)->n_queued, false);
}

bool emulator::is_stream(cudaStream_t stream)
{
    return streams.count((stream_queue *)stream) > 0;
}

bool emulator::is_captured(cudaStream_t stream)
{
    return of(stream)->in != nullptr;
}

int emulator::device()
{
    return current_device;
}

bool emulator::is_device_memory(const void *p, size_t bytes)
{
    const block *b = block_of(p);
    const void *first = nullptr;
    size_t n = 0;
    return b != nullptr && b->is_device && emulator_allocation(p, &first, &n) != 0 &&
           (const char *)p + bytes <= (const char *)first + n;
}

cudaError_t emulator::launch_with(const char *name, int64_t n_blocks, int threads,
                                  cudaStream_t stream, void (*thread)(const void *),
                                  const void *args, size_t args_bytes)
{
    if (n_blocks < 1 || n_blocks > INT32_MAX || threads < 1 || threads > 1024)
        return fail(cudaErrorInvalidConfiguration);
    const std::string title = name;
    const std::vector<char> copy((const char *)args, (const char *)args + args_bytes);
    return queue(stream, [=] {
        emulator_run_grid(title.c_str(), n_blocks, threads, thread, copy.data(), copy.size());
    });
}

extern "C" {

/* ---- devices and errors ---- */

cudaError_t cudaDriverGetVersion(int *out)
{
    *out = (int)setting("driver", CUDART_VERSION);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *out)
{
    int driver = 0;
    cudaDriverGetVersion(&driver);
    *out = (int)setting("gpus", 1);
    if (driver < CUDART_VERSION / 1000 * 1000)
        return fail(cudaErrorInsufficientDriver);
    return *out == 0 ? fail(cudaErrorNoDevice) : cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (device >= setting("gpus", 1))
        return fail(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device)
{
    if (device >= setting("gpus", 1))
        return fail(cudaErrorInvalidDevice);
    *out = {};
    snprintf(out->name, sizeof out->name, "emulated GPU");
    out->major = (int)setting("arch", 90) / 10;
    out->minor = (int)setting("arch", 90) % 10;
    out->multiProcessorCount = 4;
    out->totalGlobalMem = total_bytes();
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
        return "cudaErrorInvalidConfiguration";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    default:
        return "cudaErrorOfTheEmulator";
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "out of memory"
           : error == cudaErrorNoDevice       ? "no CUDA-capable device is detected"
                                              : "the emulator refuses this call";
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

/* ---- memory ---- */

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    if (is_forbidden())
        return cudaErrorStreamCaptureUnsupported;
    char *p = bytes <= free_bytes() ? memory_new(bytes) : nullptr;
    if (p == nullptr)
        return fail(cudaErrorMemoryAllocation);
    blocks[p] = {bytes, true};
    *out = p;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    if (is_forbidden())
        return cudaErrorStreamCaptureUnsupported;
    char *p = (char *)aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p == nullptr)
        return fail(cudaErrorMemoryAllocation);
    blocks[p] = {bytes, false};
    *out = p;
    return cudaSuccess;
}

/* Waits for all work first, as CUDA does. */
cudaError_t cudaFree(void *memory)
{
    if (is_forbidden())
        return cudaErrorStreamCaptureUnsupported;
    const auto entry = blocks.find((char *)memory);
    if (memory == nullptr)
        return cudaSuccess;
    if (entry == blocks.end())
        return fail(cudaErrorInvalidValue);
    drain(&default_stream, default_stream.n_queued);
    emulator_checks_forget(entry->first, entry->second.bytes);
    memory_delete(entry->first, entry->second.bytes);
    blocks.erase(entry);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    if (is_forbidden())
        return cudaErrorStreamCaptureUnsupported;
    drain(&default_stream, default_stream.n_queued);
    blocks.erase((char *)memory);
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *out, const void *p)
{
    const block *b = block_of(p);
    *out = {};
    out->type = b == nullptr   ? cudaMemoryTypeUnregistered
                : b->is_device ? cudaMemoryTypeDevice
                               : cudaMemoryTypeHost;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *out_free, size_t *out_total)
{
    *out_free = free_bytes();
    *out_total = total_bytes();
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
    return emulator::queue(stream, [=] { memset(p, value, bytes); });
}

/* Pinned host memory is read and written when the copy runs, other host memory when it is queued.
 */
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const block *to = block_of(dst), *from = block_of(src);
    const bool to_device = to != nullptr && to->is_device,
               from_device = from != nullptr && from->is_device;
    if (to_device != (kind != cudaMemcpyDeviceToHost) ||
        from_device != (kind != cudaMemcpyHostToDevice))
        return fail(cudaErrorInvalidValue);
    if ((to == nullptr || from == nullptr) && of(stream)->in != nullptr && is_forbidden())
        return cudaErrorStreamCaptureUnsupported; /* memory that is not pinned */
    if (kind == cudaMemcpyHostToDevice && from == nullptr) {
        std::vector<char> copy((const char *)src, (const char *)src + bytes);
        return emulator::queue(stream, [=] { memcpy(dst, copy.data(), bytes); });
    }
    emulator::queue(stream, [=] { memmove(dst, src, bytes); });
    if (kind == cudaMemcpyDeviceToHost && to == nullptr)
        drain(of(stream), of(stream)->n_queued);
    return cudaSuccess;
}

/* ---- streams, events, graphs ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    (void)flags;
    stream_queue *s = new stream_queue;
    streams.insert(s);
    *out = (cudaStream_t)s;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    drain(of(stream), of(stream)->n_queued);
    streams.erase(of(stream));
    delete of(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (of(stream)->in != nullptr && is_forbidden())
        return cudaErrorStreamCaptureUnsupported;
    drain(of(stream), of(stream)->n_queued);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    const bool times = !(flags & cudaEventDisableTiming);
    *out = (cudaEvent_t) new event_mark{&default_stream, 0, nullptr,
                                        times ? std::make_shared<double>(NAN) : nullptr};
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    event_mark *mark = (event_mark *)event;
    stream_queue *s = of(stream);
    if (mark->when != nullptr && s->in == nullptr) { /* an event in a capture has no time */
        const std::shared_ptr<double> when = mark->when;
        *when = NAN;
        (void)emulator::queue(stream, [=] { *when = now_ms(); });
    }
    mark->stream = s;
    mark->ticket = s->in ? s->in->items[place_in(s->in, s)].size() : s->n_queued;
    mark->in = s->in;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    const event_mark *from = (event_mark *)start, *to = (event_mark *)end;
    if (from->when == nullptr || to->when == nullptr)
        return fail(cudaErrorInvalidResourceHandle);
    if (std::isnan(*from->when) || std::isnan(*to->when))
        return fail(cudaErrorNotReady);
    *ms = (float)(*to->when - *from->when);
    return cudaSuccess;
}

/* In CUDA, a stream that waits for an event of a capture joins the capture, and a capture cannot
 * wait for work outside of it. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    const event_mark mark = *(event_mark *)event;
    stream_queue *s = of(stream);
    (void)flags;
    if (mark.in == nullptr && s->in == nullptr)
        return emulator::queue(stream, [=] { drain(mark.stream, mark.ticket); });
    if (mark.in == nullptr || (s->in != nullptr && s->in != mark.in))
        return fail(cudaErrorStreamCaptureIsolation);
    if (mark.stream->in != mark.in)
        return fail(cudaErrorCapturedEvent);
    if (s->in == nullptr)
        join(mark.in, s);
    s->in->items[place_in(s->in, s)].push_back({work(), place_in(s->in, mark.stream), mark.ticket});
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete (event_mark *)event;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    (void)mode;
    if (captured != nullptr || stream == nullptr || stream == cudaStreamLegacy)
        return fail(cudaErrorStreamCaptureUnsupported);
    join(captured = new capture, of(stream));
    return cudaSuccess;
}

/* Each stream that joined must have been waited for up to its last item. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    capture *c = of(stream)->in;
    if (c == nullptr || c->streams[0] != of(stream))
        return fail(cudaErrorStreamCaptureInvalidated);
    std::vector<uint64_t> done(c->streams.size());
    run_captured(c->items, done, 0, c->items[0].size(), false);
    for (stream_queue *s : c->streams)
        s->in = nullptr;
    captured = nullptr;
    cudaError_t error = c->is_invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    for (size_t i = 0; i < done.size(); i++)
        if (done[i] < c->items[i].size() && error == cudaSuccess)
            error = cudaErrorStreamCaptureUnjoined;
    *out = error == cudaSuccess ? (cudaGraph_t)c : nullptr;
    if (error != cudaSuccess) {
        delete c;
        return fail(error);
    }
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    *out = (cudaGraphExec_t) new launchable(std::make_shared<capture>(*(capture *)graph));
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete (capture *)graph;
    return cudaSuccess;
}

/* Counts as one item of the stream: a wait for a position within the graph waits for the whole
 * graph. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    const launchable c = *(const launchable *)exec;
    const auto done = std::make_shared<std::vector<uint64_t>>(c->items.size());
    for (size_t i = 0; i < c->items[0].size(); i++)
        push(of(stream), [=] { run_captured(c->items, *done, 0, i + 1, true); });
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete (launchable *)exec;
    return cudaSuccess;
}

/* ---- code of plugins: emulator_image.h ---- */

cudaError_t cudaLibraryLoadData(cudaLibrary_t *out, const void *code, cudaJitOption *jit_options,
                                void **jit_values, unsigned n_jit, cudaLibraryOption *options,
                                void **values, unsigned n)
{
    (void)jit_options, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n;
    if (is_forbidden())
        return cudaErrorStreamCaptureUnsupported;
    if (memcmp(code, EMULATOR_IMAGE_MAGIC, 8) != 0)
        return fail(cudaErrorInvalidKernelImage);
    *out = (cudaLibrary_t)code;
    return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    (void)library;
    return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *out, cudaLibrary_t library, const char *name)
{
    for (const emulator_kernel *k = ((const emulator_image *)library)->kernels; k->name != nullptr;
         k++)
        if (strcmp(k->name, name) == 0) {
            *out = (cudaKernel_t)k;
            return cudaSuccess;
        }
    return fail(cudaErrorSymbolNotFound);
}

/* Only for kernels of images; the others are launched by emulator::launch. */
cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 threads, void **args,
                             size_t shared, cudaStream_t stream)
{
    const emulator_kernel *k = (const emulator_kernel *)kernel;
    if (shared != 0)
        return fail(cudaErrorInvalidConfiguration);
    return emulator::launch_with(k->name, grid.x, (int)threads.x, stream, k->run, args[0],
                                 k->args_bytes);
}

} // extern "C"

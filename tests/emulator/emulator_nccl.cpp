/* The functions of NCCL that Lathe calls, between processes that share memory. As NCCL's do, they
 * queue work on the caller's stream and return at once, with ncclInProgress at times; work that
 * other ranks take part in keeps its stream waiting until they do. Sums of more than two ranks
 * begin with rank 1, so that nobody counts on the order of ranks. Above 500 lines because
 * operations, groups and communicators share one private state.
 *
 * An operation of a communicator with n ranks has two parts, whose order counters in the shared
 * memory keep:
 *
 *   arrive    after all ranks have finished the operation before: puts the input into this rank's
 *             part of the memory
 *   complete  after all ranks have arrived: reads the others' inputs, writes the output
 *
 * Misuse is refused with a message: memory that is not the GPU's or too short, no stream or one
 * that is captured, overlapping buffers, ranks that ask for different operations, calls before the
 * last one was taken in or after the communicator was aborted. LATHE_EMULATOR: "nccl=21300" is
 * another version, "quiet=1" does not notice that a process has ended. */
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <set>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "emulator.h"
#include "emulator_checks.h"
#include "lathe/dtype.h"

extern "C" {
#include "nccl_api.h"
}

namespace
{

constexpr int most_ranks = 16;
constexpr size_t part_bytes = (size_t)256 << 20; /* of one rank; the file is sparse */
constexpr size_t head_bytes = 1 << 16;

enum kind { ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, PAIRS };
const char *const kind_names[] = {"ncclAllReduce",     "ncclReduce",
                                  "ncclReduceScatter", "ncclAllGather",
                                  "ncclBroadcast",     "a group of ncclSend and ncclRecv"};

/* A rank's request in an operation. */
struct asked {
    int kind, type, op, root;
    size_t count;
    size_t sent[most_ranks]; /* PAIRS: bytes to each rank */
};

struct rank_state {
    std::atomic<uint64_t> arrived, finished;
    std::atomic<int> pid; /* 0: has not joined */
    int device;
    asked ask;
};

struct shared_state {
    rank_state ranks[most_ranks];
};
static_assert(sizeof(shared_state) <= head_bytes, "the head of the shared memory");

} // namespace

struct ncclComm {
    shared_state *s;
    char *parts;
    size_t bytes;
    std::string file, error;
    int rank, n;
    bool is_joined = false, is_dead = false, is_finalized = false;
    int n_more = 1; /* calls of ncclCommGetAsyncError that still tell ncclInProgress */
    uint64_t n_ops = 0;
    std::set<cudaStream_t> streams;
};

namespace
{

struct message {
    ncclComm_t comm;
    void *data;
    size_t bytes;
    int peer;
    bool sends;
    cudaStream_t stream;
};

int group_depth;
std::vector<message> group_messages;
ncclComm_t group_comm; /* of its collectives; NULL: none */

int64_t setting(const char *key, int64_t otherwise)
{
    const char *text = getenv("LATHE_EMULATOR"),
               *at = text == nullptr ? nullptr : strstr(text, key);
    return at == nullptr || at[strlen(key)] != '=' ? otherwise
                                                   : strtoll(at + strlen(key) + 1, nullptr, 10);
}

size_t width_of(int type)
{
    switch (type) {
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
    case ncclFloat64:
        return 8;
    default:
        emulator_refuse("NCCL: the emulator has no data type %d", type);
    }
}

/* ---- arithmetic ---- */

template <typename T> T combine(T a, T b, int op)
{
    if (op == ncclMax)
        return a > b ? a : b; /* drops NaN, as NCCL does */
    if (op == ncclMin)
        return a < b ? a : b;
    return (T)(a + b);
}

template <typename T, typename Load, typename Store>
void reduce_as(void *out, const std::vector<const char *> &in, size_t n, int op, Load load,
               Store store)
{
    const int n_ranks = (int)in.size();
    for (size_t i = 0; i < n; i++) {
        T sum = ((const T *)in[1 % n_ranks])[i];
        for (int q = 1; q < n_ranks; q++) /* rounded after each addition */
            sum = store(combine(load(sum), load(((const T *)in[(1 + q) % n_ranks])[i]), op));
        ((T *)out)[i] = sum;
    }
}

template <typename T>
void reduce_plain(void *out, const std::vector<const char *> &in, size_t n, int op)
{
    reduce_as<T>(
        out, in, n, op, [](T x) { return x; }, [](T x) { return x; });
}

void reduce(void *out, const std::vector<const char *> &in, size_t n, int type, int op)
{
    switch (type) {
    case ncclFloat32:
        return reduce_plain<float>(out, in, n, op);
    case ncclFloat64:
        return reduce_plain<double>(out, in, n, op);
    case ncclInt32: /* wraps around */
        if (op == ncclSum)
            return reduce_plain<uint32_t>(out, in, n, op);
        return reduce_plain<int32_t>(out, in, n, op);
    case ncclInt64:
        if (op == ncclSum)
            return reduce_plain<uint64_t>(out, in, n, op);
        return reduce_plain<int64_t>(out, in, n, op);
    case ncclBfloat16:
        return reduce_as<uint16_t>(out, in, n, op, lathe_bf16_to_f32, lathe_f32_to_bf16);
    case ncclFloat16:
        return reduce_as<uint16_t>(out, in, n, op, lathe_f16_to_f32, lathe_f32_to_f16);
    default:
        return reduce_plain<uint8_t>(out, in, n, op);
    }
}

/* ---- operations ---- */

bool all_reached(const ncclComm *c, std::atomic<uint64_t> rank_state::*counter, uint64_t k)
{
    for (int q = 0; q < c->n; q++)
        if ((c->s->ranks[q].*counter).load() < k)
            return false;
    return true;
}

char *part(const ncclComm *c, int rank)
{
    return c->parts + rank * part_bytes;
}

void compare(const ncclComm *c, uint64_t k)
{
    const asked &own = c->s->ranks[c->rank].ask;
    for (int q = 0; q < c->n; q++) {
        const asked &other = c->s->ranks[q].ask;
        if (own.kind != other.kind || own.type != other.type || own.op != other.op ||
            own.root != other.root || own.count != other.count)
            emulator_refuse("NCCL: operation %llu is %s of %zu elements of type %d on rank %d, and "
                            "%s of %zu of type %d on rank %d",
                            (unsigned long long)k, kind_names[own.kind], own.count, own.type,
                            c->rank, kind_names[other.kind], other.count, other.type, q);
    }
}

/* The two parts of an operation on a stream. */
template <typename Arrive, typename Complete>
void queue_operation(ncclComm_t c, cudaStream_t stream, Arrive arrive, Complete complete)
{
    const uint64_t k = ++c->n_ops;
    c->streams.insert(stream);
    emulator::queue_when(
        stream, [=] { return c->is_dead || all_reached(c, &rank_state::finished, k - 1); },
        [=] {
            if (c->is_dead)
                return;
            arrive();
            c->s->ranks[c->rank].arrived.store(k);
        });
    emulator::queue_when(
        stream, [=] { return c->is_dead || all_reached(c, &rank_state::arrived, k); },
        [=] {
            if (c->is_dead)
                return;
            compare(c, k);
            complete();
            c->s->ranks[c->rank].finished.store(k);
        });
}

void check_call(ncclComm_t c, const char *name, cudaStream_t stream)
{
    if (c == nullptr || c->is_dead || c->is_finalized)
        emulator_refuse("NCCL: %s on a communicator that was aborted or ended", name);
    if (!c->is_joined || (group_depth == 0 && c->n_more > 0))
        emulator_refuse("NCCL: %s before ncclCommGetAsyncError has told that the last call was "
                        "taken in",
                        name);
    if (!emulator::is_stream(stream))
        emulator_refuse("NCCL: %s on no stream, or one that is not there", name);
    if (emulator::is_captured(stream))
        emulator_refuse("NCCL: %s on a stream that is captured", name);
}

void check_memory(const char *name, const void *p, size_t bytes)
{
    if (bytes > 0 && !emulator::is_device_memory(p, bytes))
        emulator_refuse("NCCL: %s: %zu bytes at %p are not in memory of the GPU", name, bytes, p);
    if (bytes > part_bytes)
        emulator_refuse("NCCL: %s: the emulator takes at most %zu bytes", name, part_bytes);
}

bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return a_bytes > 0 && b_bytes > 0 && (const char *)a < (const char *)b + b_bytes &&
           (const char *)b < (const char *)a + a_bytes;
}

ncclResult_t taken_in(ncclComm_t c)
{
    if (group_depth > 0) {
        group_comm = c;
        return ncclInProgress;
    }
    c->n_more = 1;
    return ncclInProgress;
}

ncclResult_t collective(int kind, const void *in, void *out, size_t count, int type, int op,
                        int root, ncclComm_t c, void *raw)
{
    cudaStream_t stream = (cudaStream_t)raw;
    const char *name = kind_names[kind];
    check_call(c, name, stream);
    const size_t w = width_of(type), n = (size_t)c->n;
    const bool at_root = root == c->rank;
    const size_t in_bytes = w * (kind == REDUCE_SCATTER          ? count * n
                                 : kind == BROADCAST && !at_root ? 0
                                                                 : count);
    const size_t out_bytes = w * (kind == ALL_GATHER           ? count * n
                                  : kind == REDUCE && !at_root ? 0
                                                               : count);
    check_memory(name, in, in_bytes);
    check_memory(name, out, out_bytes);
    const size_t at = w * count * (size_t)c->rank;
    const bool in_place = kind == REDUCE_SCATTER ? out == (const char *)in + at
                          : kind == ALL_GATHER   ? in == (const char *)out + at
                                                 : in == out;
    if (!in_place && overlap(in, in_bytes, out, out_bytes))
        emulator_refuse("NCCL: %s: input and output overlap", name);
    asked ask = {};
    ask.kind = kind;
    ask.type = type;
    ask.op = op;
    ask.root = root;
    ask.count = count;
    queue_operation(
        c, stream,
        [=] {
            c->s->ranks[c->rank].ask = ask;
            memcpy(part(c, c->rank), in, in_bytes);
        },
        [=] {
            if (out_bytes == 0)
                return;
            if (kind == ALL_GATHER) {
                for (int q = 0; q < c->n; q++)
                    memcpy((char *)out + w * count * (size_t)q, part(c, q), w * count);
            } else if (kind == BROADCAST) {
                memcpy(out, part(c, root), out_bytes);
            } else {
                std::vector<const char *> parts;
                for (int q = 0; q < c->n; q++)
                    parts.push_back(part(c, q) + (kind == REDUCE_SCATTER ? at : 0));
                reduce(out, parts, count, type, op);
            }
        });
    return taken_in(c);
}

/* All messages of a group are one operation of their communicator. */
void queue_messages(ncclComm_t c, const std::vector<message> &list)
{
    asked ask = {};
    ask.kind = PAIRS;
    std::vector<const message *> to(most_ranks), from(most_ranks);
    for (const message &m : list) {
        std::vector<const message *> &side = m.sends ? to : from;
        if (m.peer < 0 || m.peer >= c->n || side[m.peer] != nullptr)
            emulator_refuse(
                "NCCL: the emulator takes one message to and one from a rank in a group");
        side[m.peer] = &m;
        if (m.sends)
            ask.sent[m.peer] = m.bytes;
    }
    const auto own = std::make_shared<std::vector<message>>(list);
    queue_operation(
        c, list[0].stream,
        [=] {
            size_t at = 0;
            c->s->ranks[c->rank].ask = ask;
            for (int q = 0; q < c->n; q++)
                for (const message &m : *own)
                    if (m.sends && m.peer == q) {
                        memcpy(part(c, c->rank) + at, m.data, m.bytes);
                        at += m.bytes;
                    }
        },
        [=] {
            for (const message &m : *own) {
                if (m.sends)
                    continue;
                const asked &other = c->s->ranks[m.peer].ask;
                size_t at = 0;
                for (int q = 0; q < c->rank; q++)
                    at += other.sent[q];
                if (other.sent[c->rank] != m.bytes)
                    emulator_refuse("NCCL: rank %d receives %zu bytes, and rank %d sends %zu",
                                    c->rank, m.bytes, m.peer, other.sent[c->rank]);
                memcpy(m.data, part(c, m.peer) + at, m.bytes);
            }
        });
}

ncclResult_t add_message(const char *name, void *data, size_t count, int type, int peer,
                         ncclComm_t c, void *stream, bool sends)
{
    check_call(c, name, (cudaStream_t)stream);
    check_memory(name, data, count * width_of(type));
    if (group_depth == 0)
        emulator_refuse("NCCL: the emulator takes %s in groups only", name);
    group_messages.push_back({c, data, count * width_of(type), peer, sends, (cudaStream_t)stream});
    return ncclInProgress;
}

/* ---- communicators ---- */

bool has_ended(int pid)
{
    return pid != 0 && kill(pid, 0) != 0;
}

ncclResult_t join(ncclComm_t c)
{
    for (int q = 0; q < c->n; q++)
        if (c->s->ranks[q].pid.load() == 0)
            return ncclInProgress;
    for (int b = 1; b < c->n; b++)
        for (int a = 0; a < b; a++)
            if (c->s->ranks[a].device == c->s->ranks[b].device) {
                c->error = "Duplicate GPU detected : rank " + std::to_string(a) + " and rank " +
                           std::to_string(b) + " both on CUDA device " +
                           std::to_string(c->s->ranks[a].device);
                return ncclInvalidUsage;
            }
    c->is_joined = true;
    if (c->rank == 0)
        unlink(c->file.c_str());
    return ncclSuccess;
}

void end(ncclComm_t c)
{
    c->is_dead = true;
    if (c->rank == 0)
        unlink(c->file.c_str());
}

} // namespace

extern "C" {

ncclResult_t ncclGetVersion(int *out)
{
    *out = (int)setting("nccl", 22809);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t code)
{
    return code == ncclRemoteError    ? "remote process exited or there was a network error"
           : code == ncclInvalidUsage ? "invalid usage"
                                      : "unhandled error";
}

const char *ncclGetLastError(ncclComm_t c)
{
    return c != nullptr ? c->error.c_str() : "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *out)
{
    static int n;
    memset(out, 0, sizeof *out);
    snprintf(out->internal, sizeof out->internal, "/dev/shm/lathe-emulated-nccl-%d-%d",
             (int)getpid(), n++);
    const int fd = open(out->internal, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const bool made = fd >= 0 && ftruncate(fd, head_bytes + most_ranks * part_bytes) == 0;
    if (fd >= 0)
        close(fd);
    return made ? ncclSuccess : 2;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n_ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    if (config == nullptr || config->magic != NCCL_CONFIG_MAGIC || config->size < 24 ||
        config->version < 21400 || config->blocking != 0)
        emulator_refuse("NCCL: a configuration that is none, or blocks");
    const int fd = open(id.internal, O_RDWR | O_CLOEXEC);
    if (fd < 0 || n_ranks > most_ranks)
        return ncclInvalidUsage;
    const size_t bytes = head_bytes + most_ranks * part_bytes;
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    if (memory == MAP_FAILED)
        return 2;
    ncclComm_t c = new ncclComm();
    c->s = (shared_state *)memory;
    c->parts = (char *)memory + head_bytes;
    c->bytes = bytes;
    c->file = id.internal;
    c->rank = rank;
    c->n = n_ranks;
    c->s->ranks[rank].device = emulator::device();
    c->s->ranks[rank].pid.store(getpid());
    *out = c;
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out)
{
    if (c == nullptr || c->is_dead)
        emulator_refuse("NCCL: ncclCommGetAsyncError on a communicator that was aborted or ended");
    *out = ncclSuccess;
    if (!c->is_joined) {
        *out = join(c);
        if (*out != ncclSuccess)
            return ncclSuccess;
    }
    for (cudaStream_t stream : c->streams)
        if (emulator::is_stream(stream))
            emulator::run_ready(stream);
    for (int q = 0; q < c->n; q++)
        if (c->s->ranks[c->rank].finished.load() < c->n_ops && setting("quiet", 0) == 0 &&
            has_ended(c->s->ranks[q].pid.load()))
            *out = ncclRemoteError;
    if (*out == ncclSuccess && c->n_more > 0) {
        c->n_more--;
        *out = ncclInProgress;
    }
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    if (c == nullptr || c->is_dead || c->is_finalized)
        emulator_refuse("NCCL: ncclCommFinalize on a communicator that was aborted or ended");
    c->is_finalized = true;
    c->n_more = 1;
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    if (c == nullptr || c->is_dead || !c->is_finalized ||
        c->s->ranks[c->rank].finished.load() < c->n_ops)
        emulator_refuse("NCCL: ncclCommDestroy with operations under way, or not finalized");
    end(c);
    munmap((void *)c->s, c->bytes);
    return ncclSuccess;
}

/* The object stays, so that a later use is seen. */
ncclResult_t ncclCommAbort(ncclComm_t c)
{
    if (c == nullptr || c->is_dead)
        emulator_refuse("NCCL: ncclCommAbort on a communicator that was aborted or ended");
    end(c);
    for (cudaStream_t stream : c->streams)
        if (emulator::is_stream(stream))
            emulator::run_ready(stream); /* what waited for others ends without them */
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (group_depth == 0)
        emulator_refuse("NCCL: ncclGroupEnd without ncclGroupStart");
    if (--group_depth > 0)
        return ncclSuccess;
    const std::vector<message> list = std::move(group_messages);
    group_messages.clear();
    const ncclComm_t comm = group_comm != nullptr ? group_comm
                            : !list.empty()       ? list[0].comm
                                                  : nullptr;
    if (group_comm != nullptr && !list.empty())
        emulator_refuse("NCCL: the emulator takes no group of messages and collectives");
    group_comm = nullptr;
    if (!list.empty())
        queue_messages(comm, list);
    if (comm != nullptr)
        comm->n_more = 1;
    return comm == nullptr ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t c, void *stream)
{
    return collective(ALL_REDUCE, in, out, n, type, op, 0, c, stream);
}

ncclResult_t ncclReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t c, void *stream)
{
    return collective(REDUCE, in, out, n, type, op, root, c, stream);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t c, void *stream)
{
    return collective(REDUCE_SCATTER, in, out, n, type, op, 0, c, stream);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t type, ncclComm_t c,
                           void *stream)
{
    return collective(ALL_GATHER, in, out, n, type, ncclSum, 0, c, stream);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t n, ncclDataType_t type, int root,
                           ncclComm_t c, void *stream)
{
    return collective(BROADCAST, in, out, n, type, ncclSum, root, c, stream);
}

ncclResult_t ncclSend(const void *data, size_t n, ncclDataType_t type, int peer, ncclComm_t c,
                      void *stream)
{
    return add_message("ncclSend", (void *)(uintptr_t)data, n, type, peer, c, stream, true);
}

ncclResult_t ncclRecv(void *data, size_t n, ncclDataType_t type, int peer, ncclComm_t c,
                      void *stream)
{
    return add_message("ncclRecv", data, n, type, peer, c, stream, false);
}

} // extern "C"

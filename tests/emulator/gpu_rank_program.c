/* A rank with an emulated GPU: gpu_rank_program MODE DEADLINE. It repeats a sum of the GPU's memory
 * by collective/nccl, and the last rank does what MODE says at the third repetition. A rank that
 * gets an error prints it, and ends the others.
 *
 *   sum         nothing
 *   kill        it kills itself
 *   stop        it stops itself
 *   exit        it exits with 7 without a word
 *   differ      it prepares another exchange
 *   host        all ranks give memory that is not the GPU's
 *   twice       it starts an exchange that is under way
 *   after       all ranks go on after an error */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "lathe/collective.h"
#include "lathe/kit/testing.h"

enum { N = 100000, N_STEPS = 5, BAD_STEP = 3 };

typedef struct opened {
    const lathe_plugin *plugin;
    const void *table;
    void *self;
} opened;

static opened cuda, mpi, nccl;
static const lathe_device_v1 *dev;
static const lathe_collective_v1 *base, *table;
static lathe_group *base_group, *group;
static lathe_group_info info = {.size = (uint32_t)sizeof info};
static lathe_stream *stream;

static void expect(lathe_status status, int step)
{
    if (status == LATHE_OK)
        return;
    fprintf(stderr, "step %d: %s (%d)\n", step, lathe_test_message, status);
    fflush(stderr);
    const struct timespec pause = {0, 300000000}; /* until all have said their line */
    (void)nanosleep(&pause, NULL);
    if (group != NULL)
        table->abort(group, 3);
    _exit(3);
}

static opened open_one(const char *path)
{
    opened o = {.plugin = lathe_test_open(path)};
    o.table = o.plugin->table;
    expect(lathe_test_create(o.plugin, "", &o.self), 0);
    return o;
}

static void misbehave(const char *mode)
{
    if (strcmp(mode, "kill") == 0)
        (void)raise(SIGKILL);
    if (strcmp(mode, "stop") == 0)
        (void)raise(SIGSTOP);
    if (strcmp(mode, "exit") == 0)
        _exit(7);
}

/* Sums in the GPU's memory, in place; they are checked through pinned memory. */
static void steps(const char *mode, double deadline)
{
    const int is_last = info.rank == info.n_ranks - 1;
    const int64_t bytes = N * (int64_t)sizeof(float);
    const lathe_exchange_problem problem = {.size = (uint32_t)sizeof problem,
                                            .op = LATHE_ALL_REDUCE,
                                            .dtype = LATHE_F32,
                                            .n = is_last && strcmp(mode, "differ") == 0 ? N - 1 : N,
                                            .label = "gradients 1 of 1"};
    lathe_exchange_info what = {.size = (uint32_t)sizeof what};
    lathe_exchange *x;
    void *pinned = NULL, *memory = NULL;
    expect(dev->alloc(cuda.self, bytes, LATHE_MEM_HOST_PINNED, &pinned), 0);
    expect(dev->alloc(cuda.self, bytes, LATHE_MEM_DEVICE, &memory), 0);
    expect(table->prepare(group, &problem, &x, &what), 0);
    float *const host = pinned;
    void *const at = strcmp(mode, "host") == 0 ? pinned : memory;
    const lathe_exchange_args args = {
        .size = (uint32_t)sizeof args, .in = at, .out = at, .stream = stream};
    for (int step = 1; step <= N_STEPS; step++) {
        if (is_last && step == BAD_STEP)
            misbehave(mode);
        for (int i = 0; i < N; i++)
            host[i] = (float)(info.rank + step + i % 7);
        expect(dev->copy(cuda.self, stream, memory, pinned, bytes, LATHE_COPY_TO_DEVICE), step);
        expect(table->start(x, &args), step);
        if (is_last && strcmp(mode, "twice") == 0)
            expect(table->start(x, &args), step);
        lathe_status status = table->wait(x, deadline);
        if (status != LATHE_OK && strcmp(mode, "after") == 0)
            status = table->start(x, &args);
        expect(status, step);
        expect(dev->copy(cuda.self, stream, pinned, memory, bytes, LATHE_COPY_TO_HOST), step);
        expect(dev->sync(cuda.self, stream), step);
        for (int i = 0; i < N; i++) {
            const int n = info.n_ranks;
            if (host[i] != (float)(n * (n - 1) / 2 + n * (step + i % 7))) {
                (void)snprintf(lathe_test_message, sizeof lathe_test_message, "element %d is %g", i,
                               (double)host[i]);
                expect(LATHE_E_NUMERIC, step);
            }
        }
        if (step == BAD_STEP && is_last && strcmp(mode, "after") == 0)
            (void)raise(SIGSTOP);
    }
    table->exchange_destroy(x);
    dev->free(cuda.self, memory);
    dev->free(cuda.self, pinned);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const double deadline = strtod(argv[2], NULL);
    lathe_collective_setup setup = {.size = (uint32_t)sizeof setup, .deadline_seconds = deadline};
    (void)signal(SIGTERM, SIG_IGN); /* as a run, which ends in order */
    cuda = open_one(LATHE_TEST_BUILD "/tests/emulated/device/cuda.so");
    mpi = open_one(LATHE_TEST_BUILD "/lib/lathe/plugins/collective/mpi.so");
    nccl = open_one(LATHE_TEST_BUILD "/tests/emulated/collective/nccl.so");
    dev = cuda.table;
    base = mpi.table;
    table = nccl.table;
    expect(dev->stream_create(cuda.self, &stream), 0);
    expect(base->open(mpi.self, &setup, &base_group), 0);
    setup.device = dev;
    setup.device_self = cuda.self;
    setup.base = base;
    setup.base_group = base_group;
    expect(table->open(nccl.self, &setup, &group), 0);
    expect(table->info(group, &info), 0);
    steps(argv[1], deadline);
    expect(table->close(group), 99);
    expect(base->close(base_group), 99);
    dev->stream_destroy(cuda.self, stream);
    nccl.plugin->destroy(nccl.self);
    mpi.plugin->destroy(mpi.self);
    cuda.plugin->destroy(cuda.self);
    return 0;
}

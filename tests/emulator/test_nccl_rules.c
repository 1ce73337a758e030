/* The emulated NCCL refuses what breaks a rule of the real one, and says what. */
#include <criterion/criterion.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl_api.h"

#define X(result, name, parameters) result name parameters;
NCCL_FUNCTIONS(X)
#undef X

enum { N = 64 };

typedef struct rank {
    ncclComm_t comm;
    cudaStream_t stream;
    float *a, *b; /* [N] of the GPU */
} rank;

static void settle(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress)
        if (ncclCommGetAsyncError(comm, &state) != ncclSuccess)
            break;
}

static void join(rank *r, ncclUniqueId id, int n_ranks, int me)
{
    ncclConfig_t config = {
        .size = sizeof config, .magic = NCCL_CONFIG_MAGIC, .version = NCCL_CONFIG_VERSION};
    void *a = NULL, *b = NULL;
    (void)cudaSetDevice(me);
    (void)cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking);
    (void)cudaMalloc(&a, N * sizeof(float));
    (void)cudaMalloc(&b, N * sizeof(float));
    r->a = a;
    r->b = b;
    (void)ncclCommInitRankConfig(&r->comm, n_ranks, id, me, &config);
    settle(r->comm);
}

static void add(const rank *r, const void *in, void *out, size_t n, cudaStream_t stream)
{
    (void)ncclAllReduce(in, out, n, ncclFloat32, ncclSum, r->comm, (void *)stream);
}

/* A rank of two does this in a child process. */
static void act(const char *what, const rank *r, int me)
{
    float host[N] = {0};
    if (strcmp(what, "mismatch") == 0)
        add(r, r->a, r->b, me == 0 ? N : N / 2, r->stream);
    else if (strcmp(what, "host") == 0)
        add(r, host, r->b, N, r->stream);
    else if (strcmp(what, "too_long") == 0)
        add(r, r->a, r->b, N + 1, r->stream);
    else if (strcmp(what, "overlap") == 0)
        add(r, r->a, r->a + 1, N / 2, r->stream);
    else if (strcmp(what, "no_stream") == 0)
        add(r, r->a, r->b, N, NULL);
    else if (strcmp(what, "captured") == 0) {
        (void)cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal);
        add(r, r->a, r->b, N, r->stream);
    } else if (strcmp(what, "too_early") == 0) {
        add(r, r->a, r->b, N, r->stream);
        add(r, r->a, r->b, N, r->stream);
    } else if (strcmp(what, "aborted") == 0) {
        (void)ncclCommAbort(r->comm);
        add(r, r->a, r->b, N, r->stream);
    } else if (strcmp(what, "lone_message") == 0) {
        (void)ncclSend(r->a, N, ncclFloat32, 1 - me, r->comm, (void *)r->stream);
    } else { /* good */
        add(r, r->a, r->b, N, r->stream);
    }
    settle(r->comm);
    (void)cudaStreamSynchronize(r->stream);
}

/* Runs it on two ranks; out: what they print. Returns how many of them aborted. */
static int run(const char *what, char *out, size_t bytes)
{
    ncclUniqueId id;
    int ends[2], n_aborted = 0;
    size_t n = 0;
    cr_assert_eq(setenv("LATHE_EMULATOR", "gpus=2", 1), 0);
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(ncclGetUniqueId(&id), ncclSuccess);
    for (int me = 0; me < 2; me++)
        if (fork() == 0) {
            rank r = {0};
            (void)dup2(ends[1], STDERR_FILENO);
            (void)close(ends[0]);
            (void)signal(SIGABRT, SIG_DFL);
            (void)alarm(60);
            join(&r, id, 2, me);
            act(what, &r, me);
            _exit(0);
        }
    (void)close(ends[1]);
    for (ssize_t got = 1; got > 0 && n + 1 < bytes; n += (size_t)got)
        if ((got = read(ends[0], out + n, bytes - 1 - n)) < 0)
            break;
    out[n] = '\0';
    (void)close(ends[0]);
    for (int me = 0; me < 2; me++) {
        int status = 0;
        (void)wait(&status);
        n_aborted += WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    }
    return n_aborted;
}

static void check(const char *what, const char *said)
{
    char text[2048];
    const int n_aborted = run(what, text, sizeof text);
    cr_expect_eq(n_aborted > 0, said[0] != '\0', "%s: %d aborted: %s", what, n_aborted, text);
    cr_expect(said[0] != '\0' ? strstr(text, said) != NULL : text[0] == '\0', "%s: \"%s\"", what,
              text);
}

Test(nccl_rules, let_a_sum_be)
{
    check("good", "");
}

Test(nccl_rules, see_ranks_that_ask_for_different_sums)
{
    check("mismatch", "operation 1 is ncclAllReduce of ");
}

Test(nccl_rules, see_memory_that_is_not_right)
{
    check("host", "are not in memory of the GPU");
    check("too_long", "are not in memory of the GPU");
    check("overlap", "input and output overlap");
}

Test(nccl_rules, see_streams_that_are_not_right)
{
    check("no_stream", "on no stream");
    check("captured", "on a stream that is captured");
}

Test(nccl_rules, see_calls_out_of_order)
{
    check("too_early", "before ncclCommGetAsyncError has told");
    check("aborted", "on a communicator that was aborted or ended");
    check("lone_message", "in groups only");
}

/* The rules of the emulated GPU: it refuses each kernel that breaks one, and runs those that keep
 * them all. */
#include <criterion/criterion.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulator/bad_kernels.h"

/* The message of the kernel's process before it aborts; "" if it finishes. */
static void refusal(const char *name, char *out, size_t out_bytes)
{
    int ends[2], status = 0;
    size_t n = 0;
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        (void)close(ends[0]);
        (void)signal(SIGABRT, SIG_DFL);
        _exit(bad_kernel_run(name) ? 0 : 1);
    }
    (void)close(ends[1]);
    for (ssize_t got = 1; got > 0 && n + 1 < out_bytes; n += (size_t)got)
        if ((got = read(ends[0], out + n, out_bytes - 1 - n)) < 0)
            break;
    out[n] = '\0';
    (void)close(ends[0]);
    cr_assert_eq(waitpid(child, &status, 0), child);
    if (n == 0)
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: %d", name, status);
    else
        cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s: %s", name, out);
}

static void check(const char *name, const char *said)
{
    char text[512];
    refusal(name, text, sizeof text);
    cr_assert(said[0] != '\0' ? strstr(text, said) != NULL : text[0] == '\0', "%s: \"%s\"", name,
              text);
}

Test(emulator_rules, let_a_kernel_run_that_keeps_them)
{
    check("good", "");
}

Test(emulator_rules, see_accesses_without_order)
{
    check("no_barrier", "of the block wrote, and nothing orders the two");
    check("shuffle_for_barrier", "of the block wrote, and nothing orders the two");
    check("barrier_at_one_end", "nothing orders the two");
    check("blocks_meet", "of another block wrote, and nothing orders the two");
    check("block_reads_block", "of another block");
}

Test(emulator_rules, see_addresses_that_are_not_the_gpus)
{
    check("beyond_the_end", "writes 4 bytes at ");
    check("reads_beyond_the_end", "reads 4 bytes at ");
    check("reads_the_host", "no memory of the GPU");
}

Test(emulator_rules, see_packs_that_are_not_aligned)
{
    check("odd_pack", "is no multiple of 16");
}

Test(emulator_rules, see_shared_memory_that_the_block_did_not_write)
{
    check("unwritten", "that the block did not write");
}

Test(emulator_rules, see_barriers_that_are_not_one)
{
    check("two_barriers", "waits at ");
    check("barrier_of_some", "wait at a barrier that others never reach");
    check("not_of_the_mask", "is none of them");
    check("asks_outside_the_mask", "asks lane ");
}

/* ---- captures ---- */

static cudaStream_t capturing(void)
{
    cudaStream_t stream = NULL;
    cr_assert_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    cr_assert_eq(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    return stream;
}

static void ends_with(cudaStream_t stream, cudaError_t error)
{
    cudaGraph_t graph = NULL;
    cr_assert_eq(cudaStreamEndCapture(stream, &graph), error);
    cr_assert_eq(graph == NULL, error != cudaSuccess);
}

Test(emulator_rules, keep_a_capture_from_what_waits)
{
    void *before = NULL, *p = NULL, *pinned = NULL;
    char ordinary[16] = "";
    cr_assert_eq(cudaMalloc(&before, 16), cudaSuccess);
    cr_assert_eq(cudaHostAlloc(&pinned, 16, cudaHostAllocDefault), cudaSuccess);
    for (int i = 0; i < 7; i++) {
        const cudaStream_t stream = capturing();
        const cudaError_t error =
            i == 0   ? cudaMalloc(&p, 16)
            : i == 1 ? cudaFree(before)
            : i == 2 ? cudaHostAlloc(&p, 16, cudaHostAllocDefault)
            : i == 3 ? cudaFreeHost(pinned)
            : i == 4 ? cudaStreamSynchronize(stream)
            : i == 5 ? cudaMemcpyAsync(before, ordinary, 16, cudaMemcpyHostToDevice, stream)
                     : cudaMemcpyAsync(before, pinned, 16, cudaMemcpyHostToDevice, stream);
        cr_assert_eq(error, i < 6 ? cudaErrorStreamCaptureUnsupported : cudaSuccess, "call %d", i);
        ends_with(stream, i < 6 ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
        cr_assert_eq(cudaMalloc(&p, 16), cudaSuccess); /* the capture is over */
    }
}

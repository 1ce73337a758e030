/* Visits the bytes of tensors in pieces. */
#include "files/safetensors/tensor_pieces.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/parallel.h"

/* State of a thread. The error record is per thread, so this keeps a worker's message. */
typedef struct worker {
    void *scratch; /* NULL until its first piece */
    lathe_status status;
    char message[1024];
} worker;

typedef struct job {
    const int64_t *bytes;
    /* [n + 1] number of the first piece of each tensor; at n, the number of pieces */
    int64_t *first;
    int64_t n;
    lathe_tensor_piece_fn fn;
    void *arg;
    worker *workers;
    atomic_int failed;
} job;

/* The tensor to which piece `index` belongs. */
static int64_t tensor_of(const job *j, int64_t index)
{
    int64_t low = 0, high = j->n;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (j->first[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static lathe_status visit(const job *j, worker *w, int64_t index)
{
    const int64_t tensor = tensor_of(j, index);
    const int64_t offset = (index - j->first[tensor]) * LATHE_PIECE_BYTES;
    const int64_t rest = j->bytes[tensor] - offset;
    if (w->scratch == NULL)
        w->scratch = aligned_alloc(64, LATHE_SCRATCH_BYTES);
    if (w->scratch == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for pieces of tensors");
    const lathe_tensor_piece piece = {
        tensor, offset, rest < LATHE_PIECE_BYTES ? rest : LATHE_PIECE_BYTES, w->scratch};
    return j->fn(j->arg, &piece);
}

static void visit_range(void *arg, int64_t begin, int64_t end, int32_t index)
{
    job *j = arg;
    worker *w = &j->workers[index];
    for (int64_t i = begin; i < end && !atomic_load(&j->failed); i++) {
        w->status = visit(j, w, i);
        if (w->status == LATHE_OK)
            continue;
        (void)snprintf(w->message, sizeof w->message, "%s", lathe_error_message());
        atomic_store(&j->failed, 1);
    }
}

static lathe_status run(job *j, int32_t n_workers)
{
    lathe_status status = LATHE_OK;
    lathe_parallel_for(j->first[j->n], 1, visit_range, j);
    for (int32_t i = 0; i < n_workers; i++) {
        if (status == LATHE_OK && j->workers[i].status != LATHE_OK)
            status = lathe_error(j->workers[i].status, "%s", j->workers[i].message);
        free(j->workers[i].scratch);
    }
    return status;
}

lathe_status lathe_tensor_pieces_each(const int64_t *bytes, int64_t n, lathe_tensor_piece_fn fn,
                                      void *arg)
{
    const int32_t n_workers = lathe_parallel_threads();
    job j = {.bytes = bytes, .n = n, .fn = fn, .arg = arg};
    lathe_status status = LATHE_OK;
    j.first = calloc((size_t)n + 1, sizeof *j.first);
    j.workers = calloc((size_t)n_workers, sizeof *j.workers);
    if (j.first == NULL || j.workers == NULL) {
        status = lathe_error(LATHE_E_NOMEM, "no memory for pieces of tensors");
    } else {
        for (int64_t i = 0; i < n; i++)
            j.first[i + 1] = j.first[i] + (bytes[i] + LATHE_PIECE_BYTES - 1) / LATHE_PIECE_BYTES;
        status = run(&j, n_workers);
    }
    free(j.workers);
    free(j.first);
    return status;
}

/* Converts bf16 gradients to f32, part by part. */
#include "optim/widen.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "optim/update_ranges.h"
#include "plug/answers.h"

typedef struct part {
    int64_t first, n;     /* range of elements, counted from the first bf16 gradient */
    lathe_kernel *kernel; /* NULL: the part has no bf16 gradients */
} part;

struct lathe_widen {
    lathe_machine *m;
    const lathe_store *store;
    const lathe_instance *optimizer; /* NULL: the pieces are borrowed */
    lathe_optimizer_tensor *pieces;
    int32_t *ends; /* [n_parts] end of each part's pieces */
    part *parts;   /* [n_parts] */
    int32_t n_parts;
    int64_t scratch_bytes; /* scratch of one cast */
    char *memory;          /* |buffer|scratch| */
};

/* Padding between the gradients of two rows, in elements, is less than this. */
#define PADDING 32

static int is_narrow(const lathe_store *store, int32_t param)
{
    return lathe_params_grad_dtype(store->params, param) != LATHE_F32;
}

/* ---- parts ---- */

static lathe_status no_memory(void)
{
    return lathe_error(LATHE_E_NOMEM, "no memory for the parts of the gradients");
}

/* Elements of a tensor, a multiple of `step`, that still fit in a part whose buffer has `room` left
 * of `most`; 0: none. */
static int64_t fitting(int64_t step, int64_t left, int64_t room, int64_t max)
{
    const int64_t n_steps = room / step;
    if (left <= room)
        return left;
    if (n_steps == 0 && room < max)
        return 0;
    const int64_t n = (n_steps > 0 ? n_steps : 1) * step;
    return n < left ? n : left;
}

/* Index of an element's gradient among the bf16 gradients. */
static int64_t first_at(const lathe_store *store, int32_t param, int64_t element)
{
    const lathe_store_row *row = &store->rows[param];
    return (row->grad - store->wide_grad_bytes) / 2 + element - row->held[LATHE_OF_GRADIENT].begin;
}

/* Counts the pieces and parts, and writes them if the outputs are allocated. A part has no gap,
 * such as the extents of other ranks. */
static void cut(const lathe_widen *w, const lathe_optimizer_tensor *tensors, int32_t n_tensors,
                int64_t max, int32_t *out_pieces, int32_t *out_parts)
{
    int64_t room = max, at = -1;
    int32_t n_pieces = 0, n_parts = 0;
    for (int32_t i = 0; i < n_tensors; i++) {
        const lathe_optimizer_tensor *t = &tensors[i];
        const int narrow = is_narrow(w->store, t->tensor);
        const int64_t step = lathe__cut_step(w->store, w->optimizer, t);
        if (narrow && at >= 0 && first_at(w->store, t->tensor, t->first) - at >= PADDING)
            room = 0;
        for (int64_t begin = 0; begin < t->n;) {
            const int64_t left = t->n - begin;
            const int64_t n = !narrow ? left : room > 0 ? fitting(step, left, room, max) : 0;
            if (n == 0 || n_parts == 0) {
                room = max;
                n_parts++;
            }
            if (n == 0)
                continue;
            if (w->pieces) {
                w->pieces[n_pieces] = *t;
                w->pieces[n_pieces].first = t->first + begin;
                w->pieces[n_pieces].n = n;
                w->ends[n_parts - 1] = n_pieces + 1;
            }
            n_pieces++;
            begin += n;
            room -= narrow ? (n < room ? n : room) : 0;
            if (narrow)
                at = first_at(w->store, t->tensor, t->first + begin);
        }
    }
    *out_pieces = n_pieces;
    *out_parts = n_parts;
}

/* Index of a piece's gradient among the bf16 gradients. */
static int64_t first_of(const lathe_store *store, const lathe_optimizer_tensor *piece)
{
    return first_at(store, piece->tensor, piece->first);
}

static int32_t begin_of(const lathe_widen *w, int32_t k)
{
    return k > 0 ? w->ends[k - 1] : 0;
}

/* Finds the range of elements of a part. It is contiguous, because the store lays gradients out in
 * the order of the update. */
static lathe_status span(lathe_widen *w, int32_t k)
{
    part *p = &w->parts[k];
    int64_t end = 0, scratch = 0;
    for (int32_t i = begin_of(w, k); i < w->ends[k]; i++) {
        const lathe_optimizer_tensor *piece = &w->pieces[i];
        if (!is_narrow(w->store, piece->tensor))
            continue;
        const int64_t first = first_of(w->store, piece);
        p->first = end == 0 || first < p->first ? first : p->first;
        end = first + piece->n > end ? first + piece->n : end;
    }
    p->n = end > 0 ? end - p->first : 0;
    if (p->n == 0)
        return LATHE_OK;
    const lathe_op_attrs attrs = {.dtype = LATHE_F32};
    const lathe_desc in = lathe_desc_1d(w->store->params->grad_dtype, p->n);
    const lathe_desc out = lathe_desc_1d(LATHE_F32, p->n);
    const lathe_kernel_problem problem = {.size = (uint32_t)sizeof problem,
                                          .op = LATHE_OP_CAST,
                                          .attrs = &attrs,
                                          .in = &in,
                                          .out = &out,
                                          .n_in = 1,
                                          .n_out = 1,
                                          .may_overwrite = 1,
                                          .flags = w->m->flags,
                                          .n_threads = w->m->n_threads};
    LATHE_TRY(lathe_answer_kernel(w->m->device, &problem, &p->kernel, &scratch));
    w->scratch_bytes = scratch > w->scratch_bytes ? scratch : w->scratch_bytes;
    return LATHE_OK;
}

static lathe_status create(lathe_machine *m, const lathe_store *store, lathe_widen **out)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return no_memory();
    (*out)->m = m;
    (*out)->store = store;
    return LATHE_OK;
}

static lathe_status finish(lathe_widen *w, lathe_status status, lathe_widen **out)
{
    for (int32_t k = 0; k < w->n_parts && status == LATHE_OK; k++)
        status = span(w, k);
    if (status == LATHE_OK)
        *out = w;
    else
        lathe_widen_destroy(w);
    return status;
}

lathe_status lathe_widen_create(lathe_machine *m, const lathe_store *store,
                                const lathe_instance *optimizer,
                                const lathe_optimizer_tensor *tensors, int32_t n_tensors,
                                int64_t elements, lathe_widen **out)
{
    lathe_widen *w;
    int32_t n_pieces = 0, n_parts = 0;
    LATHE_TRY(create(m, store, &w));
    w->optimizer = optimizer;
    cut(w, tensors, n_tensors, elements, &n_pieces, &n_parts);
    w->pieces = calloc((size_t)n_pieces + 1, sizeof *w->pieces);
    w->ends = calloc((size_t)n_parts + 1, sizeof *w->ends);
    w->parts = calloc((size_t)n_parts + 1, sizeof *w->parts);
    if (w->pieces == NULL || w->ends == NULL || w->parts == NULL)
        return finish(w, no_memory(), out);
    w->n_parts = n_parts;
    cut(w, tensors, n_tensors, elements, &n_pieces, &n_parts);
    return finish(w, LATHE_OK, out);
}

lathe_status lathe_widen_join(lathe_machine *m, const lathe_store *store,
                              lathe_optimizer_tensor *pieces, const int32_t *ends, int32_t n_parts,
                              lathe_widen **out)
{
    lathe_widen *w;
    LATHE_TRY(create(m, store, &w));
    w->pieces = pieces;
    w->ends = calloc((size_t)n_parts + 1, sizeof *w->ends);
    w->parts = calloc((size_t)n_parts + 1, sizeof *w->parts);
    if (w->ends == NULL || w->parts == NULL)
        return finish(w, no_memory(), out);
    w->n_parts = n_parts;
    memcpy(w->ends, ends, (size_t)n_parts * sizeof *ends);
    return finish(w, LATHE_OK, out);
}

void lathe_widen_destroy(lathe_widen *w)
{
    if (w == NULL)
        return;
    for (int32_t k = 0; k < w->n_parts; k++)
        if (w->parts[k].kernel)
            w->m->dev->kernel_destroy(w->m->device->self, w->parts[k].kernel);
    lathe_machine_free(w->m, LATHE_MEM_OPTIMIZER, lathe_widen_bytes(w), w->memory);
    if (w->optimizer)
        free(w->pieces);
    free(w->ends);
    free(w->parts);
    free(w);
}

lathe_update_table lathe_widen_table(const lathe_widen *w)
{
    const lathe_update_table table = {w->pieces, w->ends, w->n_parts};
    return table;
}

/* ---- memory ---- */

static int64_t buffer_bytes(const lathe_widen *w)
{
    int64_t max = 0;
    for (int32_t k = 0; k < w->n_parts; k++)
        max = w->parts[k].n > max ? w->parts[k].n : max;
    return (max * (int64_t)sizeof(float) + 63) / 64 * 64;
}

int64_t lathe_widen_bytes(const lathe_widen *w)
{
    return buffer_bytes(w) + w->scratch_bytes;
}

lathe_status lathe_widen_place(lathe_widen *w, const lathe_optimizer_tensor *tensors,
                               int32_t n_tensors)
{
    void *memory = NULL;
    int32_t t = 0;
    LATHE_TRY(lathe_machine_alloc(w->m, LATHE_MEM_OPTIMIZER, lathe_widen_bytes(w), &memory));
    w->memory = memory;
    for (int32_t k = 0; k < w->n_parts; k++)
        for (int32_t i = begin_of(w, k); i < w->ends[k]; i++) {
            lathe_optimizer_tensor *piece = &w->pieces[i];
            while (w->optimizer && t < n_tensors && tensors[t].tensor != piece->tensor)
                t++;
            if (w->optimizer)
                lathe__cut_piece(w->store, &tensors[t],
                                 lathe__cut_unit(w->store, w->optimizer, &tensors[t]),
                                 piece->first - tensors[t].first, piece->n, piece);
            if (is_narrow(w->store, piece->tensor))
                piece->grad = (const float *)(const void *)w->memory +
                              (first_of(w->store, piece) - w->parts[k].first);
        }
    return LATHE_OK;
}

lathe_status lathe_widen_run(const lathe_widen *w, int32_t k)
{
    const part *p = &w->parts[k];
    if (p->kernel == NULL)
        return LATHE_OK;
    const void *const in[1] = {w->store->grads + w->store->wide_grad_bytes + 2 * p->first};
    void *const out[1] = {w->memory};
    const lathe_kernel_args args = {.size = (uint32_t)sizeof args,
                                    .in = in,
                                    .out = out,
                                    .scratch =
                                        w->scratch_bytes > 0 ? w->memory + buffer_bytes(w) : NULL,
                                    .stream = w->m->stream};
    return w->m->dev->kernel_run(w->m->device->self, p->kernel, &args);
}

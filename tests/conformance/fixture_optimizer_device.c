/* Plain gradient descent with momentum. Its code for the far device breaks one rule, chosen by
 * FAULT. */
#include <math.h>

#include "far/far.h"
#include "lathe/kit/optimizer_queue.h"

enum {
    FAULT_NONE,
    FAULT_QUEUED,    /* no fault, with queue() */
    FAULT_NO_KERNEL, /* the image lacks the kernel that loads it */
    FAULT_BITS,      /* rounds the update differently from the host */
    FAULT_SLOTS,  /* the state differs from the host's; the parameters do not in the first step */
    FAULT_SHADOW, /* skips one element of the narrow copy */
    FAULT_HIDDEN_STATE, /* the kernel keeps what belongs in a slot */
    FAULT_PARTITION,    /* the update depends on where the range begins */
    FAULT_OVERRUN,      /* writes one element too many */
    FAULT_UNDERRUN,     /* writes the element before the first one */
    FAULT_NOT_FINITE,   /* divides by zero */
    FAULT_GRID,         /* a block processes only one chunk */
    FAULT_NO_SUMS,      /* writes no sums of the update */
    FAULT_INPUTS,       /* overwrites the gradient */
    FAULT_SCALARS,      /* overwrites a scalar */
    FAULT_EMPTY,        /* tensors without elements shift the following ones */
    FAULT_ROOM,         /* queue() relies on its room from the last step */
    FAULT_ALLOCATES,    /* queue() allocates memory */
    FAULT_SWALLOWS      /* queue() continues after a failed launch */
};

static const lathe_host *memory;

static lathe_status create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                           void **out_self)
{
    (void)values, (void)n_values;
    memory = host;
    *out_self = NULL;
    return LATHE_OK;
}

static void destroy(void *self)
{
    (void)self;
}

static int32_t slots(void *self, const lathe_param_info *param, lathe_slot *out)
{
    (void)self;
    out[0] = (lathe_slot){"momentum", param->desc};
    return 1;
}

static double base_lr(void *self)
{
    (void)self;
    return 0.1;
}

/* Updates one element on either side; returns the parameter's old value. */
static float element(const lathe_optimizer_tensor *t, const float *scalars, int64_t i)
{
    float *m = t->slots[0];
    const float before = t->param[i];
    m[i] = 0.9f * m[i] + t->grad[i] * scalars[LATHE_SCALAR_GRAD_SCALE];
    t->param[i] = before - scalars[LATHE_SCALAR_LR] * m[i];
    if (t->shadow != NULL)
        t->shadow[i] = lathe_f32_to_bf16(t->param[i]);
    return before;
}

static lathe_status step(void *self, const lathe_optimizer_step *s)
{
    (void)self;
    for (int32_t k = 0; k < s->n_tensors; k++)
        for (int64_t i = 0; i < s->tensors[k].n; i++)
            (void)element(&s->tensors[k], s->scalars, i);
    return LATHE_OK;
}

/* ---- on the device ---- */

static int hidden;

static void set(const lathe_optimizer_tensor *t, int64_t i, float x)
{
    t->param[i] = x;
    if (t->shadow != NULL)
        t->shadow[i] = lathe_f32_to_bf16(x);
}

/* Applies the fault to an element with the correct value. */
static void spoil(const lathe_elementwise_args *a, const lathe_optimizer_tensor *t, int64_t i)
{
    if (FAULT == FAULT_BITS && t->first + i == 2)
        t->param[i] *= 1.0f + 0x1p-23f;
    if (FAULT == FAULT_SLOTS && t->first + i == 2)
        ((float *)t->slots[0])[i] = -1.0f;
    if (FAULT == FAULT_SHADOW && t->first + i == 2 && t->shadow != NULL)
        t->shadow[i] = 0x3f80;
    if (FAULT == FAULT_HIDDEN_STATE && t->first + i == 0)
        set(t, i, t->param[i] + 0.125f * (float)hidden);
    if (FAULT == FAULT_PARTITION && i == 0 && t->first > 0)
        set(t, i, t->param[i] + 1.0f);
    if (FAULT == FAULT_NOT_FINITE && t->first + i == 0)
        set(t, i, INFINITY);
    if (FAULT == FAULT_INPUTS && t->first + i == 0)
        *(float *)(uintptr_t)t->grad = 1.0f;
    if (FAULT == FAULT_SCALARS)
        ((float *)(uintptr_t)a->scalars)[LATHE_N_SCALARS - 1] = 1.0f;
}

static void chunk(const lathe_elementwise_args *a, int64_t c)
{
    int32_t k = 0;
    while (a->first_chunk[k + 1] <= c)
        k++;
    if (FAULT == FAULT_EMPTY && k > 0 && a->tensors[k - 1].n == 0)
        return;
    const lathe_optimizer_tensor *t = &a->tensors[k];
    const int64_t begin = (c - a->first_chunk[k]) * LATHE_ELEMENTWISE_CHUNK;
    const int64_t end =
        begin + LATHE_ELEMENTWISE_CHUNK < t->n ? begin + LATHE_ELEMENTWISE_CHUNK : t->n;
    double sums[2] = {0.0, 0.0};
    for (int64_t i = begin; i < end; i++) {
        const float before = element(t, a->scalars, i);
        spoil(a, t, i);
        const double now = (double)t->param[i], d = now - (double)before;
        sums[0] += d * d;
        sums[1] += now * now;
    }
    if (FAULT == FAULT_OVERRUN && end == t->n)
        t->param[t->n] = 0.0f;
    if (FAULT == FAULT_UNDERRUN && begin == 0)
        ((float *)t->slots[0])[-1] = 0.0f;
    for (int j = 0; j < 2 && FAULT != FAULT_NO_SUMS; j++)
        a->sums[2 * c + j] = sums[j];
}

static void grid(int64_t n_blocks, int32_t n_threads, const void *args)
{
    const lathe_elementwise_args *a = args;
    (void)n_threads;
    for (int64_t c = 0; c < (FAULT == FAULT_GRID ? n_blocks : a->n_chunks); c++)
        chunk(a, c);
    hidden++;
}

/* Arguments of a grid() with a counter in its own room that only the first step sets. */
typedef struct room_args {
    lathe_elementwise_args all;
    int64_t *count;
    int64_t step;
} room_args;

static void grid_with_room(int64_t n_blocks, int32_t n_threads, const void *args)
{
    const room_args *a = args;
    *a->count = a->step == 1 ? 1 : *a->count + 1;
    grid(n_blocks, n_threads, &a->all);
    if (*a->count != a->step)
        set(&a->all.tensors[0], 0, 0.0f);
}

static const far_kernel kernels[] = {
    {FAULT == FAULT_NO_KERNEL ? "another" : LATHE_ELEMENTWISE_KERNEL,
     (int64_t)sizeof(lathe_elementwise_args), grid},
    {"with_room", (int64_t)sizeof(room_args), grid_with_room},
    {NULL, 0, NULL}};
static const far_image image = {FAR_MAGIC, kernels};

static lathe_status queue(void *self, const lathe_optimizer_queue *todo)
{
    const room_args args = {*todo->args, todo->own, todo->step->step};
    (void)self;
    if (FAULT == FAULT_ALLOCATES)
        memory->free(memory->alloc(64));
    if (FAULT == FAULT_ROOM)
        return lathe_queue_launch(todo, "with_room", &args, (int64_t)sizeof args);
    const lathe_status status = lathe_queue_elementwise(todo);
    return FAULT == FAULT_SWALLOWS ? LATHE_OK : status;
}

static void room(void *self, const lathe_param_info *param, lathe_optimizer_room *out)
{
    (void)self, (void)param;
    out->own = 8;
}

enum { IS_QUEUED = FAULT == FAULT_QUEUED || FAULT >= FAULT_ROOM };

static const lathe_optimizer_v1 table = {
    .size = sizeof table,
    .revision = LATHE_OPTIMIZER_REVISION,
    .slots = slots,
    .base_lr = base_lr,
    .step = step,
    .cuda_image = &image,
    .queue = IS_QUEUED ? queue : NULL,
    .room = IS_QUEUED ? room : NULL,
};

LATHE_EXPORT const lathe_plugin LATHE_PLUGIN_ENTRY = {
    LATHE_PLUGIN_HEADER,
    .kind = LATHE_KIND_OPTIMIZER,
    .revision = LATHE_OPTIMIZER_REVISION,
    .name = FIXTURE_NAME,
    .version = "0.1.0",
    .summary = "a fixture",
    .source = "ours",
    .license = "MIT",
    .table = &table,
    .create = create,
    .destroy = destroy,
};

/* Tensors of several shapes and roles, and steps that update them whole or in parts. */
#include "check/kinds/optimizer_case.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/parallel.h"
#include "lathe/rng.h"

/* Each role occurs, and shapes that loops over vectors, chunks and blocks find hard: one element,
 * odd sizes, more rows than columns, less than a block. */
lathe_param_info lathe__optimizer_info(int i)
{
    static const struct {
        const char *name;
        int32_t role, rank;
        int64_t rows, cols;
    } rows[LATHE__N_TENSORS] = {
        {"model.layers.0.self_attn.q_proj.weight", LATHE_ROLE_MATRIX, 2, 48, 40},
        {"model.embed_tokens.weight", LATHE_ROLE_EMBEDDING, 2, 37, 24},
        {"model.norm.weight", LATHE_ROLE_NORM, 1, 33, 1},
        {"model.layers.0.mlp.down_proj.bias", LATHE_ROLE_BIAS, 1, 1, 1},
        {"lm_head.weight", LATHE_ROLE_HEAD, 2, 300, 83}, /* longer than one chunk of most loops */
        {"model.layers.0.lora_A", LATHE_ROLE_ADAPTER, 2, 4, 40},
    };
    const lathe_desc desc = {LATHE_F32, rows[i].rank, {rows[i].rows, rows[i].cols, 1, 1}};
    return (lathe_param_info){.size = sizeof(lathe_param_info),
                              .role = rows[i].role,
                              .name = rows[i].name,
                              .desc = desc,
                              .trainable = 1,
                              .layer = i == 0 || i == 3 || i == 5 ? 0 : -1,
                              .head_rows = i == 0 ? 16 : 0};
}

/* Checks that a slot has a name, a dtype, and a size that fits a parameter of this size. */
static lathe_status check_slot(const lathe_slot *slot, int32_t k, const lathe_param_info *info)
{
    const lathe_desc *d = &slot->desc;
    const int64_t max_elements = 16 * lathe_desc_count(&info->desc) + ((int64_t)1 << 20);
    int64_t n = 1;
    if (slot->name == NULL || slot->name[0] == '\0' || lathe_dtype_bytes(d->dtype) == 0)
        return lathe_error(LATHE_E_PLUGIN, "slot %d of %s has no name or no dtype", k, info->name);
    if (d->rank < 0 || d->rank > LATHE_MAX_RANK)
        return lathe_error(LATHE_E_PLUGIN, "slot %s of %s has rank %d", slot->name, info->name,
                           d->rank);
    for (int32_t i = 0; i < d->rank; i++) {
        if (d->dims[i] < 0 || d->dims[i] > max_elements || n * d->dims[i] > max_elements)
            return lathe_error(LATHE_E_PLUGIN,
                               "slot %s of %s is larger than 16 times the parameter and 1 Mi",
                               slot->name, info->name);
        n *= d->dims[i];
    }
    return LATHE_OK;
}

/* Asks the plugin about tensor i as the core would, and checks the answers before memory is made
 * after them. */
static lathe_status init_tensor(lathe__optimizer_case *c, int i)
{
    const lathe_param_info info = lathe__optimizer_info(i);
    const int64_t n = lathe_desc_count(&info.desc);
    lathe_optimizer_tensor *t = &c->tensors[i];
    c->partition[i] = LATHE_HAS(c->table, partition) ? c->table->partition(c->instance.self, &info)
                                                     : LATHE_PARTITION_ELEMENT;
    if (c->partition[i] < 0 || c->partition[i] > LATHE_PARTITION_TENSOR)
        return lathe_error(LATHE_E_PLUGIN, "partition of %s is %d", info.name, c->partition[i]);
    c->n_slots[i] = c->table->slots(c->instance.self, &info, c->slots[i]);
    if (c->n_slots[i] < 0 || c->n_slots[i] > LATHE_MAX_SLOTS)
        return lathe_error(LATHE_E_PLUGIN, "%s has %d slots, expected 0 to %d", info.name,
                           c->n_slots[i], LATHE_MAX_SLOTS);
    *t = (lathe_optimizer_tensor){
        .param = lathe__random(c->s, n, 11 + (uint64_t)i, 0.5),
        .shadow = lathe__memory(c->s, n * 2),
        .shadow_dtype = LATHE_BF16,
        .n = n,
        .rows = info.desc.dims[0],
        .cols = n / info.desc.dims[0],
        .tensor = i,
        .lr_mult = 1.0,
        .weight_decay_mult = info.desc.rank > 1 ? 1.0 : 0.0,
        .block = LATHE_HAS(c->table, block) ? c->table->block(c->instance.self, &info) : 1};
    const int64_t scratch =
        LATHE_HAS(c->table, scratch) ? c->table->scratch(c->instance.self, &info) : 0;
    if (scratch < 0 || scratch > (int64_t)1 << 32)
        return lathe_error(LATHE_E_PLUGIN, "scratch of %s is %lld bytes", info.name,
                           (long long)scratch);
    c->scratch_bytes = scratch > c->scratch_bytes ? scratch : c->scratch_bytes;
    t->grad = c->grads[i] = lathe__memory(c->s, n * 4);
    c->saved_grads[i] = lathe__memory(c->s, n * 4);
    for (int32_t k = 0; k < c->n_slots[i]; k++) {
        LATHE_TRY(check_slot(&c->slots[i][k], k, &info));
        t->slots[k] = lathe__memory(c->s, lathe_desc_bytes(&c->slots[i][k].desc));
        t->half_slots |= c->slots[i][k].desc.dtype == LATHE_BF16 ? 1u << k : 0u;
    }
    return LATHE_OK;
}

lathe_status lathe__optimizer_case_init_with(lathe__optimizer_case *c, lathe__subject *s,
                                             const char *toml)
{
    *c = (lathe__optimizer_case){.s = s, .table = s->table};
    LATHE_TRY(lathe__instance_with(s, toml, &c->instance));
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        const lathe_status status = init_tensor(c, i);
        if (status != LATHE_OK) {
            lathe_instance_fini(&c->instance);
            return status;
        }
    }
    c->scratch = c->scratch_bytes > 0 ? lathe__memory(s, c->scratch_bytes) : NULL;
    return LATHE_OK;
}

lathe_status lathe__optimizer_case_init(lathe__optimizer_case *c, lathe__subject *s)
{
    LATHE_TRY(lathe__optimizer_case_init_with(c, s, NULL));
    c->on_device = s->device != NULL;
    const lathe_status status = c->on_device ? lathe__optimizer_case_place(c) : LATHE_OK;
    if (status != LATHE_OK)
        lathe_instance_fini(&c->instance);
    return status;
}

/* Bytes of slot k that belong to one unit of a tensor cut into n_units; 0: it cannot be cut. */
static int64_t slot_stride(const lathe__optimizer_case *c, int i, int32_t k, int64_t n_units)
{
    const lathe_desc *d = &c->slots[i][k].desc;
    const int64_t count = lathe_desc_count(d);
    return count % n_units == 0 ? count / n_units * lathe_dtype_bytes(d->dtype) : 0;
}

/* Adds elements [first, first + n) of tensor i to the list. */
static void add_range(const lathe__optimizer_case *c, int i, int64_t first, int64_t n, int64_t unit,
                      lathe_optimizer_tensor *list, int32_t *n_list)
{
    lathe_optimizer_tensor part = c->tensors[i];
    part.param += first;
    part.grad += first;
    part.shadow += first;
    part.first = first;
    part.n = n;
    for (int32_t k = 0; k < c->n_slots[i]; k++)
        part.slots[k] =
            (char *)part.slots[k] + first / unit * slot_stride(c, i, k, c->tensors[i].n / unit);
    list[(*n_list)++] = part;
}

/* Cuts tensor i into three ranges if its partition and slots allow it, as ranks that divide the
 * state and parts of offloaded state do: the result must be the same to the bit. */
static void add_parts(const lathe__optimizer_case *c, int i, lathe_optimizer_tensor *list,
                      int32_t *n_list)
{
    const lathe_param_info info = lathe__optimizer_info(i);
    const int64_t n = c->tensors[i].n;
    int64_t unit = 1;
    if (c->partition[i] == LATHE_PARTITION_ROW)
        unit = c->tensors[i].cols;
    else if (c->partition[i] == LATHE_PARTITION_BLOCK && LATHE_HAS(c->table, block))
        unit = c->table->block(c->instance.self, &info);
    int whole =
        c->partition[i] == LATHE_PARTITION_TENSOR || unit < 1 || n % unit != 0 || n / unit < 3;
    for (int32_t k = 0; k < c->n_slots[i] && !whole; k++)
        whole = slot_stride(c, i, k, n / unit) == 0;
    if (whole) {
        list[(*n_list)++] = c->tensors[i];
        return;
    }
    const int64_t a = n / unit / 3, b = n / unit * 4 / 5;        /* uneven on purpose */
    add_range(c, i, b * unit, n - b * unit, unit, list, n_list); /* and not in order */
    add_range(c, i, 0, a * unit, unit, list, n_list);
    add_range(c, i, a * unit, (b - a) * unit, unit, list, n_list);
}

/* Fills the gradients with noise in [-4, 4) that depends on the step and on the use, so that an
 * estimate after a step gets other gradients than the step. */
static void draw(lathe__optimizer_case *c, int32_t what)
{
    for (int i = 0; i < LATHE__N_TENSORS; i++)
        for (int64_t e = 0; e < c->tensors[i].n; e++) {
            const lathe_u32x4 w =
                lathe_rng_block(5 + (uint64_t)what, (uint64_t)c->step, (uint64_t)i, (uint64_t)e);
            c->grads[i][e] = 8.0f * lathe_uniform_f32(w.v[0]) - 4.0f;
        }
}

/* Scalars as the core sets them before a step; an average reads the user's own alone. */
static void fill_scalars(const lathe__optimizer_case *c, int32_t what, float *scalars)
{
    double user[8] = {0};
    if (what != LATHE_QUEUE_AVERAGE) {
        scalars[LATHE_SCALAR_LR] = (float)c->table->base_lr(c->instance.self);
        scalars[LATHE_SCALAR_GRAD_SCALE] = 0.25f; /* four tokens, no clipping */
        scalars[LATHE_SCALAR_LR_RATIO] = 1.0f;
        scalars[LATHE_SCALAR_COUNT] = 4.0f;
    }
    if (LATHE_HAS(c->table, scalars))
        c->table->scalars(c->instance.self, c->step, user);
    for (int i = 0; i < 8; i++)
        scalars[LATHE_SCALAR_USER + i] = (float)user[i];
}

/* Computes in the image or in host memory; counts the heap blocks that the plugin took. */
static lathe_status compute(lathe__optimizer_case *c, const lathe_optimizer_step *step,
                            int32_t what, float *const *out)
{
    if (c->on_device)
        return lathe__optimizer_case_queue(c, step, what, out);
    void *const self = c->instance.self;
    const int64_t before = lathe__heap();
    const lathe_status status = what == LATHE_QUEUE_ESTIMATE  ? c->table->estimate(self, step)
                                : what == LATHE_QUEUE_AVERAGE ? c->table->average(self, step, out)
                                                              : c->table->step(self, step);
    c->heap_blocks += lathe__heap() - before;
    return status;
}

/* Runs one use of the plugin over all tensors, whole or in ranges (in_parts). MATRIX tensors are
 * updated by a graph, which other checks run. */
static lathe_status run(lathe__optimizer_case *c, int32_t what)
{
    lathe_optimizer_tensor list[LATHE__N_PIECES];
    float *out[LATHE__N_PIECES];
    float scalars[LATHE_N_SCALARS] = {0};
    int32_t n_list = 0;
    draw(c, what);
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        const int32_t before = n_list;
        if (c->partition[i] == LATHE_PARTITION_MATRIX)
            continue;
        if (c->in_parts)
            add_parts(c, i, list, &n_list);
        else
            list[n_list++] = c->tensors[i];
        if (what == LATHE_QUEUE_AVERAGE && c->averages[i] == NULL)
            c->averages[i] = lathe__memory(c->s, c->tensors[i].n * 4);
        for (int32_t k = before; k < n_list; k++)
            out[k] = c->averages[i] != NULL ? c->averages[i] + list[k].first : NULL;
    }
    if (n_list == 0)
        return LATHE_OK;
    fill_scalars(c, what, scalars);
    const lathe_optimizer_step step = lathe__optimizer_case_arguments(c, list, n_list, scalars);
    (void)lathe_parallel_threads(); /* starts the pool, whose memory is not the plugin's */
    return compute(c, &step, what, out);
}

lathe_status lathe__optimizer_case_step(lathe__optimizer_case *c)
{
    c->step++;
    return run(c, LATHE_QUEUE_STEP);
}

lathe_status lathe__optimizer_case_run(lathe__optimizer_case *c, int32_t what)
{
    return run(c, what);
}

void lathe__optimizer_case_copy(lathe__optimizer_case *to, const lathe__optimizer_case *from)
{
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        memcpy(to->tensors[i].param, from->tensors[i].param, (size_t)from->tensors[i].n * 4);
        memcpy(to->tensors[i].shadow, from->tensors[i].shadow, (size_t)from->tensors[i].n * 2);
        for (int32_t k = 0; k < from->n_slots[i]; k++)
            memcpy(to->tensors[i].slots[k], from->tensors[i].slots[k],
                   (size_t)lathe_desc_bytes(&from->slots[i][k].desc));
    }
    to->step = from->step;
}

lathe_status lathe__optimizer_case_compare(const lathe__optimizer_case *a,
                                           const lathe__optimizer_case *b, const char *what)
{
    for (int i = 0; i < LATHE__N_TENSORS; i++) {
        const lathe_optimizer_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        const char *name = lathe__optimizer_info(i).name;
        if (!lathe__same(x->param, y->param, x->n * 4))
            return lathe_error(LATHE_E_NUMERIC, "%s: %s differs", what, name);
        if (x->shadow != NULL && !lathe__same(x->shadow, y->shadow, x->n * 2))
            return lathe_error(LATHE_E_NUMERIC, "%s: the bf16 copy of %s differs", what, name);
        for (int32_t k = 0; k < a->n_slots[i]; k++)
            if (!lathe__same(x->slots[k], y->slots[k], lathe_desc_bytes(&a->slots[i][k].desc)))
                return lathe_error(LATHE_E_NUMERIC, "%s: slot %s of %s differs", what,
                                   a->slots[i][k].name, name);
        if (a->averages[i] != NULL && !lathe__same(a->averages[i], b->averages[i], x->n * 4))
            return lathe_error(LATHE_E_NUMERIC, "%s: the average of %s differs", what, name);
    }
    return LATHE_OK;
}

lathe_optimizer_step lathe__optimizer_case_arguments(const lathe__optimizer_case *c,
                                                     const lathe_optimizer_tensor *list, int32_t n,
                                                     const float *scalars)
{
    return (lathe_optimizer_step){.size = sizeof(lathe_optimizer_step),
                                  .n_tensors = n,
                                  .tensors = list,
                                  .scalars = scalars,
                                  .step = c->step,
                                  .seed = 42,
                                  .scratch = c->scratch,
                                  .scratch_bytes = c->scratch_bytes};
}

int lathe__optimizer_case_stepped(const lathe__optimizer_case *c)
{
    int n = 0;
    for (int i = 0; i < LATHE__N_TENSORS; i++)
        n += c->partition[i] != LATHE_PARTITION_MATRIX;
    return n;
}

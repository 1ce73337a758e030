/* The CUDA code of every optimizer that has some, run by launch() of the GPU, or of the emulated
 * one if there is none, with its tables in device memory: parameters, states and narrow copies must
 * equal those of step() on the CPU bit for bit. */
#include "base/eigen.h"
#include "kernels/op_harness.h"
#include "lathe/kit/optimizer_queue.h"
#include "support/optimizer_case.h"

/* Settings of an optimizer; one that is not listed uses its defaults. */
typedef struct setting {
    const char *name, *text;
} setting;

static const setting settings[] = {
    {"adafactor", "lr=0.01 weight_decay=0.1"},
    {"adafactor", "beta1=0.9 warmup_init=true"},
    {"adafactor", "scale_parameter=false lr=0.01 clip_threshold=0.5"},
    {"adam_mini", "lr=0.01 weight_decay=0.1"},
    {"adamw", "lr=0.01 weight_decay=0.1"},
    {"adamw", "lr=0.01 state_dtype=bf16"},
    {"adamw_8bit", "lr=0.01 weight_decay=0.1"},
    {"adamw_8bit", "lr=0.01 min_8bit_size=0"},
    {"adamw_anyprecision", "lr=0.01 weight_decay=0.1"},
    {"adamw_anyprecision", "use_kahan_summation=false variance_dtype=fp32"},
    {"adamw_anyprecision", "momentum_dtype=fp32 compensation_dtype=fp32"},
    {"apollo", "lr=0.01 weight_decay=0.1 rank=5 update_proj_gap=2"},
    {"apollo", "rank=1 scale=128 scale_type=tensor scale_front=true"},
    {"apollo", "rank=15 norm_growth_limiter=false"},
    {"galore", "lr=0.01 weight_decay=0.1 rank=5 update_proj_gap=2"},
    {"galore", "rank=15"},
    {"lion", "lr=0.01 weight_decay=0.1"},
    {"lion", "state_dtype=bf16"},
    {"muon", "adamw_lr=0.01 adamw_weight_decay=0.1"},
    {"muon", "state_dtype=bf16"},
    {"schedule_free_adamw", "weight_decay=0.1 warmup_steps=3 r=1"},
    {"sgd", "lr=0.01 weight_decay=0.1"},
    {"sgd", "lr=0.01 momentum=0.9 dampening=0.1 state_dtype=bf16"},
    {"sgd", "lr=0.01 momentum=0.9 nesterov=true"},
    {"signsgd", "weight_decay=0.1"},
    {"signsgd", "state_dtype=bf16"},
    {"sophia", "lr=0.01 weight_decay=0.1"},
    {"sophia", "state_dtype=bf16"},
};

/* ---- tensors, on both sides ---- */

enum { PARAM, GRAD, SHADOW, FIRST_SLOT, N_PARTS = FIRST_SLOT + LATHE_MAX_SLOTS };
enum { N_TENSORS = 11, LARGE = 10, N_STEPS = 3, SEED = 7 };

typedef struct tensor {
    int32_t role, rank;
    int64_t dims[2], head_rows;
    double lr_mult, decay;
    int32_t shadow; /* its dtype; LATHE_F32: none */
} tensor;

static const tensor shapes[N_TENSORS] = {
    /* 7 elements in the second chunk */
    {LATHE_ROLE_EMBEDDING, 2, {37, 443}, 0, 1.0, 1.0, LATHE_BF16},
    {LATHE_ROLE_NORM, 1, {1}, 0, 2.0, 0.0, LATHE_F32},
    {LATHE_ROLE_NORM, 1, {0}, 0, 1.0, 0.0, LATHE_F32},
    {LATHE_ROLE_BIAS, 1, {300}, 0, 1.0, 0.0, LATHE_F16},
    {LATHE_ROLE_HEAD, 2, {43, 388}, 0, 0.5, 0.5, LATHE_F16},
    {LATHE_ROLE_ADAPTER, 2, {515, 16}, 0, 3.0, 1.0, LATHE_BF16},
    {LATHE_ROLE_MATRIX, 2, {96, 91}, 32, 1.0, 1.0, LATHE_BF16},
    {LATHE_ROLE_NORM, 1, {1201}, 0, 1.0, 0.0, LATHE_BF16},
    {LATHE_ROLE_BIAS, 1, {7}, 0, 1.0, 1.0, LATHE_F32},
    /* its columns are the longer side's lines */
    {LATHE_ROLE_MATRIX, 2, {24, 701}, 8, 2.0, 1.0, LATHE_F16},
    /* rows longer than a chunk; 33 chunks in all */
    {LATHE_ROLE_MATRIX, 2, {3, 180001}, 0, 1.0, 1.0, LATHE_F32},
};

typedef struct subject {
    const lathe_plugin *plugin;
    const lathe_optimizer_v1 *table;
    void *self;
    int32_t n;
    lathe_optimizer_tensor cpu[N_TENSORS], gpu[N_TENSORS];
    int64_t bytes[N_TENSORS][N_PARTS];
    float *before[N_TENSORS];
    float scalars[LATHE_N_SCALARS];
    int64_t first_chunk[N_TENSORS + 1];
    op_build device;
    lathe_elementwise_args args;
    void *owned[3];
    double *sums; /* on the device */
    lathe_optimizer_room room;
    void *own, *shared, *host; /* as room() asked */
    void *scratch;             /* for the CPU's step */
    int64_t scratch_bytes;
    /* the array is on the device */
    float *cpu_averages[N_TENSORS], *gpu_averages[N_TENSORS], **averages;
} subject;

static void *part_of(const lathe_optimizer_tensor *x, int part)
{
    return part == PARAM    ? x->param
           : part == GRAD   ? (void *)(uintptr_t)x->grad
           : part == SHADOW ? x->shadow
                            : x->slots[part - FIRST_SLOT];
}

static void part_set(lathe_optimizer_tensor *x, int part, void *memory)
{
    if (part == PARAM)
        x->param = memory;
    else if (part == GRAD)
        x->grad = memory;
    else if (part == SHADOW)
        x->shadow = memory;
    else
        x->slots[part - FIRST_SLOT] = memory;
}

/* Adds a tensor as the core describes it; returns 0 if the test skips it. */
static int add(subject *s, int32_t k)
{
    const tensor *t = &shapes[k];
    lathe_param_info info = {.size = sizeof info, .role = t->role, .name = "w", .trainable = 1};
    info.head_rows = (int32_t)t->head_rows;
    info.desc = t->rank == 2 ? lathe_desc_2d(LATHE_F32, t->dims[0], t->dims[1])
                             : lathe_desc_1d(LATHE_F32, t->dims[0]);
    const int32_t split =
        s->table->partition != NULL ? s->table->partition(s->self, &info) : LATHE_PARTITION_ELEMENT;
    if (split == LATHE_PARTITION_MATRIX || (k == LARGE && !LATHE_HAS(s->table, room)))
        return 0; /* an optimizer without room has no sums over whole tensors */
    lathe_slot slots[LATHE_MAX_SLOTS];
    const int32_t n_slots = s->table->slots(s->self, &info, slots);
    const int32_t at = s->n++;
    lathe_optimizer_tensor *x = &s->cpu[at];
    const int64_t n = lathe_desc_count(&info.desc);
    *x = (lathe_optimizer_tensor){.n = n,
                                  .rows = t->dims[0],
                                  .cols = t->rank == 2 ? t->dims[1] : 1,
                                  .tensor = k,
                                  .lr_mult = t->lr_mult,
                                  .weight_decay_mult = t->decay,
                                  .shadow_dtype = t->shadow};
    lathe_optimizer_room room = {0};
    if (LATHE_HAS(s->table, room))
        s->table->room(s->self, &info, &room);
    s->room.own += room.own;
    s->room.shared = room.shared > s->room.shared ? room.shared : s->room.shared;
    s->room.host = room.host > s->room.host ? room.host : s->room.host;
    const int64_t scratch = s->table->scratch != NULL ? s->table->scratch(s->self, &info) : 0;
    s->scratch_bytes = scratch > s->scratch_bytes ? scratch : s->scratch_bytes;
    x->block = s->table->block != NULL ? s->table->block(s->self, &info) : 1;
    /* a range of a tensor */
    x->first = split == LATHE_PARTITION_ELEMENT && k == 4 ? 40 * 16384 + 13 : 0;
    int64_t *bytes = s->bytes[at];
    bytes[PARAM] = bytes[GRAD] = 4 * n;
    bytes[SHADOW] = t->shadow != LATHE_F32 ? 2 * n : 0;
    for (int32_t i = 0; i < n_slots; i++) {
        bytes[FIRST_SLOT + i] = lathe_desc_bytes(&slots[i].desc);
        x->half_slots |= slots[i].desc.dtype == LATHE_BF16 ? 1u << i : 0u;
    }
    for (int part = 0; part < N_PARTS; part++) /* also for a tensor without elements */
        if (part < SHADOW || bytes[part] > 0 || (part >= FIRST_SLOT && part < FIRST_SLOT + n_slots))
            part_set(x, part, calloc((size_t)bytes[part] + 1, 1));
    for (int64_t i = 0; i < n; i++)
        x->param[i] = case_uniform((uint64_t)k, 0, i);
    s->before[at] = malloc((size_t)bytes[PARAM] + 1);
    s->gpu[at] = *x;
    for (int part = 0; part < N_PARTS; part++)
        if (part_of(x, part) != NULL)
            part_set(&s->gpu[at], part,
                     op_to_device(&s->device, part_of(x, part), bytes[part] + 1));
    return 1;
}

static void upload(const subject *s, void *to, const void *from, int64_t bytes)
{
    cr_assert_eq(
        s->device.device->copy(s->device.self, NULL, to, from, bytes, LATHE_COPY_TO_DEVICE),
        LATHE_OK);
    cr_assert_eq(s->device.device->sync(s->device.self, NULL), LATHE_OK);
}

/* Memory filled with NaN: nothing may rely on zeros. */
static void *unset(const subject *s, int64_t bytes)
{
    char *host = malloc((size_t)bytes + 1);
    memset(host, 0xff, (size_t)bytes + 1);
    void *there = op_to_device(&s->device, host, bytes + 1);
    free(host);
    return there;
}

static void rooms_init(subject *s)
{
    s->own = unset(s, s->room.own);
    s->shared = unset(s, s->room.shared);
    s->host = malloc((size_t)s->room.host + 1);
    cr_assert_eq(posix_memalign(&s->scratch, 64, (size_t)s->scratch_bytes + 1), 0);
    for (int32_t i = 0; i < s->n; i++) {
        s->cpu_averages[i] = malloc((size_t)s->bytes[i][PARAM] + 1);
        s->gpu_averages[i] = unset(s, s->bytes[i][PARAM]);
    }
    s->averages =
        op_to_device(&s->device, s->gpu_averages, s->n * (int64_t)sizeof *s->gpu_averages);
}

static void rooms_fini(subject *s)
{
    const op_build *d = &s->device;
    d->device->free(d->self, s->own);
    d->device->free(d->self, s->shared);
    d->device->free(d->self, s->averages);
    free(s->host);
    free(s->scratch);
    for (int32_t i = 0; i < s->n; i++) {
        free(s->cpu_averages[i]);
        d->device->free(d->self, s->gpu_averages[i]);
    }
}

static void subject_init(subject *s, const char *name, const char *text)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s/optimizer/%s.so", lathe_test_build(),
                   op_open_gpu(&s->device), name);
    s->plugin = lathe_test_open(path);
    s->table = s->plugin->table;
    cr_assert(s->table->cuda_image != NULL);
    lathe_test_host()->eigenvectors = lathe_eigenvectors; /* galore asks the host for them */
    cr_assert_eq(lathe_test_create(s->plugin, text, &s->self), LATHE_OK, "%s: %s", name,
                 lathe_test_message);
    for (int32_t k = 0; k < N_TENSORS; k++)
        (void)add(s, k);
    cr_assert_geq(s->n, N_TENSORS - 3); /* without muon's matrices */
    for (int32_t i = 0; i < s->n; i++)
        s->first_chunk[i + 1] = s->first_chunk[i] + (s->cpu[i].n + LATHE_ELEMENTWISE_CHUNK - 1) /
                                                        LATHE_ELEMENTWISE_CHUNK;
    rooms_init(s);
    const uint64_t counter[2] = {0};
    const int64_t n_chunks = s->first_chunk[s->n];
    void *tensors = op_to_device(&s->device, s->gpu, s->n * (int64_t)sizeof *s->gpu);
    s->owned[0] =
        op_to_device(&s->device, s->first_chunk, (s->n + 1) * (int64_t)sizeof *s->first_chunk);
    s->owned[1] = op_to_device(&s->device, s->scalars, sizeof s->scalars);
    s->owned[2] = op_to_device(&s->device, counter, sizeof counter);
    double *nothing = calloc((size_t)n_chunks, 2 * sizeof *nothing);
    memset(nothing, 0xff, (size_t)n_chunks * 2 * sizeof *nothing);
    s->sums = op_to_device(&s->device, nothing, n_chunks * 2 * (int64_t)sizeof *nothing);
    free(nothing);
    s->args = (lathe_elementwise_args){.tensors = tensors,
                                       .first_chunk = s->owned[0],
                                       .scalars = s->owned[1],
                                       .counter = s->owned[2],
                                       .n_chunks = n_chunks,
                                       .n_tensors = s->n,
                                       .sums = s->sums};
}

static void subject_fini(subject *s)
{
    const op_build *d = &s->device;
    rooms_fini(s);
    for (int32_t i = 0; i < s->n; i++) {
        for (int part = 0; part < N_PARTS; part++) {
            d->device->free(d->self, part_of(&s->gpu[i], part));
            free(part_of(&s->cpu[i], part));
        }
        free(s->before[i]);
    }
    for (int k = 0; k < 3; k++)
        d->device->free(d->self, s->owned[k]);
    d->device->free(d->self, (void *)(uintptr_t)s->args.tensors);
    d->device->free(d->self, s->sums);
    op_close(&s->device);
    s->plugin->destroy(s->self);
}

/* ---- one step on both sides ---- */

static void scalars_set(subject *s, int64_t step)
{
    double user[8] = {0};
    if (s->table->scalars != NULL)
        s->table->scalars(s->self, step, user);
    memset(s->scalars, 0, sizeof s->scalars);
    s->scalars[LATHE_SCALAR_LR] = (float)(0.01 / (double)step);
    s->scalars[LATHE_SCALAR_GRAD_SCALE] = 0.125f;
    s->scalars[LATHE_SCALAR_COUNT] = 96.0f;
    s->scalars[LATHE_SCALAR_LR_RATIO] = (float)(1.0 / (double)step);
    for (int k = 0; k < 8; k++)
        s->scalars[LATHE_SCALAR_USER + k] = (float)user[k];
    const uint64_t counter[2] = {SEED, (uint64_t)step};
    upload(s, s->owned[1], s->scalars, sizeof s->scalars);
    upload(s, s->owned[2], counter, sizeof counter);
}

static void gradients_set(subject *s, uint64_t draw)
{
    for (int32_t i = 0; i < s->n; i++) {
        float *g = part_of(&s->cpu[i], GRAD);
        case_gradient((uint64_t)i, draw, g, s->cpu[i].n);
        upload(s, part_of(&s->gpu[i], GRAD), g, s->bytes[i][GRAD]);
    }
}

static lathe_optimizer_step step_of(subject *s, int64_t step)
{
    return (lathe_optimizer_step){.size = (uint32_t)sizeof(lathe_optimizer_step),
                                  .n_tensors = s->n,
                                  .tensors = s->cpu,
                                  .scalars = s->scalars,
                                  .step = step,
                                  .seed = SEED,
                                  .scratch = s->scratch,
                                  .scratch_bytes = s->scratch_bytes};
}

/* ---- the core's part on the device ---- */

typedef struct launcher {
    const subject *s;
    int is_narrow; /* fewer blocks than requested: any grid must work */
} launcher;

static lathe_status launch(void *ctx, const char *kernel, int64_t n_blocks, const void *args,
                           int64_t args_bytes)
{
    const launcher *l = ctx;
    const op_build *d = &l->s->device;
    return d->device->launch(d->self, NULL, l->s->table->cuda_image, kernel,
                             l->is_narrow && n_blocks > 3 ? 3 : n_blocks, LATHE_ELEMENTWISE_THREADS,
                             args, args_bytes);
}

static lathe_status copy(void *ctx, void *dst, const void *src, int64_t bytes, int32_t direction)
{
    const op_build *d = &((const launcher *)ctx)->s->device;
    return d->device->copy(d->self, NULL, dst, src, bytes, direction);
}

static lathe_status sync_device(void *ctx)
{
    const op_build *d = &((const launcher *)ctx)->s->device;
    return d->device->sync(d->self, NULL);
}

static void queue(subject *s, int32_t what, int64_t step)
{
    launcher l = {s, step % 2 == 0};
    lathe_optimizer_step todo = step_of(s, step);
    todo.tensors = s->gpu;
    todo.scratch = NULL;
    todo.scratch_bytes = 0;
    const lathe_optimizer_queue q = {.size = (uint32_t)sizeof q,
                                     .what = what,
                                     .step = &todo,
                                     .args = &s->args,
                                     .averages = what == LATHE_QUEUE_AVERAGE ? s->averages : NULL,
                                     .own = s->own,
                                     .shared = s->shared,
                                     .host = s->host,
                                     .ctx = &l,
                                     .launch = launch,
                                     .copy = copy,
                                     .wait = sync_device};
    const lathe_status status =
        LATHE_HAS(s->table, queue) ? s->table->queue(s->self, &q) : lathe_queue_elementwise(&q);
    cr_assert_eq(status, LATHE_OK, "%s", lathe_test_message);
    cr_assert_eq(sync_device(&l), LATHE_OK);
}

/* ---- comparing ---- */

static void compare(const subject *s, const char *name, int64_t step)
{
    for (int32_t i = 0; i < s->n; i++)
        for (int part = 0; part < N_PARTS; part++) {
            const char *want = part_of(&s->cpu[i], part);
            if (want == NULL)
                continue;
            char *got = op_to_host(&s->device, part_of(&s->gpu[i], part), s->bytes[i][part] + 1);
            int64_t b = 0;
            while (b <= s->bytes[i][part] && got[b] == want[b]) /* also the byte after it */
                b++;
            cr_assert_gt(b, s->bytes[i][part], "%s step %d tensor %d part %d: byte %lld of %lld",
                         name, (int)step, (int)s->cpu[i].tensor, part, (long long)b,
                         (long long)s->bytes[i][part]);
            free(got);
        }
}

/* Compares the kernel's sums of the update with the tensors before and after. The order is free:
 * eight roundings of doubles for each level of the tree and for the loops of its leaves. */
static void check_sums(const subject *s, const char *name)
{
    double *sums = op_to_host(&s->device, s->sums, s->args.n_chunks * 2 * (int64_t)sizeof *sums);
    for (int32_t i = 0; i < s->n; i++) {
        double change = 0.0, size = 0.0, got[2] = {0.0, 0.0}, part[2] = {0.0, 0.0};
        for (int64_t e = 0; e < s->cpu[i].n; e++) {
            const double now = (double)s->cpu[i].param[e], d = now - (double)s->before[i][e];
            part[0] += d * d;
            part[1] += now * now;
            if ((e + 1) % LATHE_ELEMENTWISE_CHUNK == 0 || e + 1 == s->cpu[i].n) {
                /* sums by chunk, because a single sum over all elements is less exact */
                change += part[0];
                size += part[1];
                part[0] = part[1] = 0.0;
            }
        }
        for (int64_t c = s->first_chunk[i]; c < s->first_chunk[i + 1]; c++) {
            got[0] += sums[2 * c];
            got[1] += sums[2 * c + 1];
        }
        cr_assert_float_eq(got[0], change, 1e-12 * change, "%s: tensor %d", name, (int)i);
        cr_assert_float_eq(got[1], size, 1e-12 * size, "%s: tensor %d", name, (int)i);
        cr_assert(s->cpu[i].n < 10 || change > 0.0, "%s left tensor %d as it was", name, (int)i);
    }
    free(sums);
}

/* Tests estimate(), which changes slots, and average(), which writes its own memory, where they
 * exist. */
static void check_others(subject *s, const char *name, int64_t step)
{
    const lathe_optimizer_step todo = step_of(s, step);
    if (LATHE_HAS(s->table, estimate)) {
        gradients_set(s, (uint64_t)(step + 90));
        cr_assert_eq(s->table->estimate(s->self, &todo), LATHE_OK, "%s", lathe_test_message);
        queue(s, LATHE_QUEUE_ESTIMATE, step);
        compare(s, name, step);
    }
    if (!LATHE_HAS(s->table, average))
        return;
    cr_assert_eq(s->table->average(s->self, &todo, s->cpu_averages), LATHE_OK);
    queue(s, LATHE_QUEUE_AVERAGE, step);
    for (int32_t i = 0; i < s->n; i++) {
        float *got = op_to_host(&s->device, s->gpu_averages[i], s->bytes[i][PARAM] + 1);
        cr_assert_eq(memcmp(got, s->cpu_averages[i], (size_t)s->bytes[i][PARAM]), 0,
                     "%s step %d: other average of tensor %d", name, (int)step, (int)i);
        cr_assert_eq(((const unsigned char *)got)[s->bytes[i][PARAM]], 0xff);
        free(got);
    }
}

static void check_steps(const char *name, const char *text)
{
    subject s = {0};
    subject_init(&s, name, text);
    for (int64_t step = 1; step <= N_STEPS; step++) {
        scalars_set(&s, step);
        gradients_set(&s, (uint64_t)(step + 9)); /* the first has zeros */
        for (int32_t i = 0; i < s.n; i++)
            memcpy(s.before[i], s.cpu[i].param, (size_t)s.bytes[i][PARAM]);
        const lathe_optimizer_step todo = step_of(&s, step);
        cr_assert_eq(s.table->step(s.self, &todo), LATHE_OK, "%s: %s", name, lathe_test_message);
        queue(&s, LATHE_QUEUE_STEP, step);
        compare(&s, name, step);
        check_sums(&s, name);
        check_others(&s, name, step);
    }
    subject_fini(&s);
}

/* ---- tests ---- */

/* Tests every fourth plugin of the build, from number `share` on; returns their number. */
static int check_share(int share)
{
    char text[] = EMULATED_PLUGINS, *rest = text;
    int n = 0;
    for (char *name; (name = strtok_r(rest, " ", &rest)) != NULL; n++) {
        int n_settings = 0;
        if (n % 4 != share)
            continue;
        for (size_t k = 0; k < sizeof settings / sizeof *settings; k++)
            if (strcmp(settings[k].name, name) == 0) {
                check_steps(name, settings[k].text);
                n_settings++;
            }
        if (n_settings == 0)
            check_steps(name, "");
    }
    return n;
}

Test(optimizer_images, launched_steps_give_the_bits_of_the_cpu)
{
    cr_assert_eq(check_share(0), 13);
}

Test(optimizer_images, launched_steps_give_the_bits_of_the_cpu_second_share)
{
    (void)check_share(1);
}

Test(optimizer_images, launched_steps_give_the_bits_of_the_cpu_third_share)
{
    (void)check_share(2);
}

Test(optimizer_images, launched_steps_give_the_bits_of_the_cpu_last_share)
{
    (void)check_share(3);
}

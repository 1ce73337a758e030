/* An op with one fault: a decayed sum along the tokens of each channel, and its sum over channels.
 *
 *     z[t,c] = lr * z[t-1,c] + w[c] * x[t,c]      y = z, s[t] = sum of z[t,c] over c
 *
 * z starts at 0 in each row of T tokens and in each document; while text is generated it is the
 * sequence's state. Names that begin with "graph_" are
 * faults of another op, y = lr * x^2, whose derivative is a graph. */
#define FAULT_N_FIELDS 3
#include "fault.h"

#include "lathe/kit/op_kit.h"

static const lathe_field op_fields[] = {
    {"lr", LATHE_T_FLOAT, 0, "0.01", 0, 10, NULL, "1", "decay"},
    {"spare", LATHE_T_FLOAT, 0, "0.5", 0, 1, NULL, "1", "unused"},
    {"tokens", LATHE_T_INT, 0, "4", 1, 1e6, NULL, "tokens", "tokens of a row"},
};

static lathe_status op_create(const lathe_host *host, const lathe_value *values, int32_t n_values,
                              void **out_self)
{
    LATHE_TRY(create(host, values, n_values, out_self));
    ((instance *)*out_self)->calls = values[2].i;
    return LATHE_OK;
}
#undef FAULT_CREATE
#undef FAULT_FIELDS
#define FAULT_CREATE op_create
#define FAULT_FIELDS op_fields

enum { MOST = 512 };
enum { X, W, DOC, N_IN, SLOTS = N_IN, STATES };

#define BY_GRAPH (__builtin_strncmp(FAULT_NAME, "graph_", 6) == 0 || IS(sound_op_by_graph))

/* ---- rules ---- */

static lathe_status shape(void *self, const lathe_desc *in, lathe_desc *out)
{
    const instance *a = self;
    if (IS(shape_crashes_on_a_vector) && in[X].rank == 1)
        crash();
    if (IS(shape_hangs))
        hang();
    if (IS(shape_misbehaves_by_exit))
        exit(0);
    const int fits = in[X].rank == 2 && in[X].dims[0] % a->calls == 0 && in[X].dims[1] <= MOST;
    const int w_fits =
        in[W].dtype == LATHE_F32 && in[W].rank == 1 && in[W].dims[0] == in[X].dims[1];
    const int doc_fits = lathe_op_is_vector(&in[DOC], LATHE_I32, in[X].dims[0]);
    const int computes = lathe_op_computes(in[X].dtype) ||
                         (IS(shape_takes_other_dtypes) && in[X].dtype == LATHE_I32);
    if (!fits || !computes || (!w_fits && !IS(shape_takes_any_w)) ||
        (!doc_fits && !IS(shape_takes_any_doc)))
        return IS(shape_refuses_in_silence)
                   ? LATHE_E_SHAPE
                   : lathe_fail(a->host,
                                IS(shape_refuses_with_an_odd_code) ? LATHE_E_IO : LATHE_E_SHAPE,
                                "expected x c[N,C], w f32[C], doc_start i32[N]");
    out[0] = in[X];
    out[1] = lathe_desc_1d(LATHE_F32, in[X].dims[0]);
    if (IS(shape_of_another_size))
        out[0].dims[1]++;
    if (IS(shape_of_another_dtype))
        out[0].dtype = LATHE_F32;
    if (IS(shape_of_rank_nine))
        out[0].rank = 9;
    if (IS(shape_of_no_elements))
        out[0].dims[0] = 0;
    if (IS(shape_forgets_an_output))
        out[1].dtype = LATHE_ABSENT;
    return LATHE_OK;
}

static double flops(void *self, const lathe_desc *in, const lathe_desc *out)
{
    static int64_t asked;
    (void)self, (void)in;
    if (IS(flops_negative))
        return -1.0;
    if (IS(flops_not_a_number))
        return (double)NAN;
    return 4.0 * (double)lathe_desc_count(out) + (IS(flops_grow) ? (double)asked++ : 0.0);
}

/* ---- in double precision ---- */

static int begins(const instance *a, const double *doc, int64_t i)
{
    return i % a->calls == 0 || (doc != NULL && (int64_t)doc[i] == i % a->calls);
}

/* Rows that continue sequences: z of the token before the first is in the slot. */
static void exact_states(const instance *a, const lathe_desc *in, const double *const *x,
                         double *const *y)
{
    const int64_t C = in[X].dims[1];
    for (int64_t i = 0; i < in[X].dims[0]; i++) {
        const int64_t slot = (int64_t)x[SLOTS][i / a->calls];
        for (int64_t c = 0; c < C; c++) {
            const double before = i % a->calls != 0 ? y[0][(i - 1) * C + c]
                                  : slot >= 0       ? y[2][slot * C + c]
                                                    : 0.0;
            const double z = (IS(state_is_not_in_the_reference) ? 0.0 : a->lr * before) +
                             x[W][c] * x[X][i * C + c];
            y[0][i * C + c] = z;
            y[1][i] += z;
            if (slot >= 0 && i % a->calls == a->calls - 1)
                y[2][slot * C + c] = z;
        }
    }
}

static void exact(void *self, const lathe_desc *in, const lathe_desc *out, const double *const *x,
                  double *const *y)
{
    const instance *a = self;
    const int64_t n = in[X].dims[0], C = in[X].dims[1];
    if (lathe_op_is_given(&out[2])) {
        exact_states(a, in, x, y);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < C; c++) {
            const double last = begins(a, x[DOC], i) ? 0.0 : y[0][(i - 1) * C + c];
            y[0][i * C + c] = a->lr * last + x[W][c] * x[X][i * C + c];
            if (IS(exact_is_wrong))
                y[0][i * C + c] += 0.01;
            y[1][i] += y[0][i * C + c];
        }
}

/* x: dy, ds, then x, w, doc_start. */
static void backward_exact(void *self, const lathe_desc *in, const lathe_desc *out,
                           const double *const *x, double *const *y)
{
    const instance *a = self;
    const lathe_desc *d = in[0].dtype != LATHE_ABSENT ? &in[0] : &in[2 + X];
    const int64_t n = d->dims[0], C = d->dims[1];
    (void)out;
    for (int64_t c = 0; c < C; c++) {
        double dz = 0.0;
        for (int64_t i = n - 1; i >= 0; i--) {
            const int last_of = i == n - 1 || begins(a, x[2 + DOC], i + 1);
            dz = (last_of ? 0.0 : a->lr * dz) + (x[0] != NULL ? x[0][i * C + c] : 0.0);
            if (x[1] != NULL && !IS(derivative_forgets_an_output))
                dz += x[1][i];
            if (y[X] != NULL)
                y[X][i * C + c] = dz * x[2 + W][c] * (IS(derivative_is_wrong) ? 1.01 : 1.0);
            if (y[W] != NULL && !IS(derivative_forgets_a_row))
                y[W][c] += dz * x[2 + X][i * C + c];
            else if (y[W] != NULL && i < n - 1)
                y[W][c] += dz * x[2 + X][i * C + c];
        }
    }
}

/* ---- kernels ---- */

typedef struct work {
    const instance *a;
    const lathe_op_call *call;
    const lathe_kernel_args *args;
    int64_t n, C;
    int32_t dtype;
} work;

static float at(const void *from, int32_t dtype, int64_t i)
{
    float x;
    lathe_op_read(from, dtype, i, 1, &x);
    return x;
}

static void put(void *to, int32_t dtype, int64_t i, float x, int adds)
{
    lathe_op_write(to, dtype, i, 1, &x, adds);
}

static float kept_z[MOST];
static const void *first_w;
static float first_w_value[MOST];

/* Sum over channels in an order that a fault may change. */
static float sum_of(const work *k, const float *z)
{
    float s = 0.0f, part = 0.0f;
    int64_t pieces = 1;
    if (IS(order_changes_with_threads))
        pieces = k->call->n_threads;
    if (IS(order_changes_with_the_batch))
        pieces = k->n > k->a->calls ? 2 : 1;
    for (int64_t p = 0; p < pieces; p++, s += part, part = 0.0f)
        for (int64_t c = p * k->C / pieces; c < (p + 1) * k->C / pieces; c++)
            part += z[c];
    return s;
}

static int begins_here(const instance *a, const int32_t *doc, int64_t i, int64_t row)
{
    const int64_t T = a->calls;
    if (IS(state_is_not_reset_in_rows) && i > 0 && i % T == 0)
        return 0;
    if (IS(state_is_not_reset_in_documents))
        return i % T == 0;
    (void)row;
    return i % T == 0 || (doc != NULL && doc[i] == i % T);
}

static void forward_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const work *k = arg;
    (void)worker;
    const lathe_kernel_args *m = k->args;
    const float *w = m->in[W];
    const int adds = m->accumulate & 1u && !IS(ignores_accumulate);
    const int64_t T = k->a->calls;
    for (int64_t row = begin; row < end; row++) {
        float *z = (float *)m->scratch + row * k->C;
        if (IS(state_is_in_a_static))
            z = kept_z;
        else if (!IS(reads_scratch) && !IS(state_is_not_reset_in_rows))
            memset(z, 0, (size_t)k->C * 4);
        else if (row == 0 && !IS(reads_scratch))
            memset(z, 0, (size_t)k->C * 4);
        else if (IS(state_is_not_reset_in_rows))
            memcpy(z, z - k->C, (size_t)k->C * 4);
        float last_x = 0.0f;
        for (int64_t i = row * T; i < (row + 1) * T; i++) {
            for (int64_t c = 0; c < k->C; c++) {
                const int64_t e = i * k->C + c;
                float weight = w[c], x = at(m->in[X], k->dtype, e);
                if (IS(remembers_the_first_weights))
                    weight = first_w_value[c];
                if (IS(reads_past_the_end) && e == k->n * k->C - 1)
                    x += 0.0f * at(m->in[X], k->dtype, e + 1);
                if (IS(reads_far_past_the_end) && e == k->n * k->C - 1)
                    x += 0.0f * at(m->in[X], k->dtype, e + 600);
                if (IS(reads_before_the_begin) && e == 0)
                    x += 0.0f * at(m->in[X], k->dtype, -1);
                if (IS(reads_weights_past_the_end) && c == k->C - 1)
                    weight += 0.0f * w[c + 1];
                const int keeps = IS(reads_scratch) || IS(state_is_in_a_static) ||
                                  !begins_here(k->a, m->in[DOC], i, row);
                z[c] = (keeps ? (float)k->a->lr * z[c] : 0.0f) + weight * x;
                if (IS(formula_is_wrong))
                    z[c] *= 1.001f;
                if (IS(last_channel_of_odd_sizes_is_wrong) && k->C % 8 != 0 && c == k->C - 1)
                    z[c] = 0.0f;
                if (IS(keeps_its_state_in_the_dtype))
                    z[c] = k->dtype == LATHE_BF16  ? lathe_bf16_to_f32(lathe_f32_to_bf16(z[c]))
                           : k->dtype == LATHE_F16 ? lathe_f16_to_f32(lathe_f32_to_f16(z[c]))
                                                   : z[c];
                float y = z[c];
                if (IS(in_place_where_it_reads_later) && c > 0)
                    y += at(m->in[X], k->dtype, e - 1) - last_x; /* 0, unless it was overwritten */
                last_x = x;
                if (IS(wrong_in_bf16) && k->dtype == LATHE_BF16)
                    y *= 0.98f;
                if (IS(wrong_in_f16) && k->dtype == LATHE_F16)
                    y += 0.01f;
                put(m->out[0], k->dtype, e, y, IS(always_accumulates) || adds);
            }
            if (m->out[1] != NULL)
                put(m->out[1], LATHE_F32, i, sum_of(k, z),
                    m->accumulate >> 1 & 1u && !IS(ignores_accumulate));
        }
    }
}

static void do_bad_things(const work *k)
{
    const lathe_kernel_args *m = k->args;
    const int64_t bytes = lathe_dtype_bytes(k->dtype), n = k->n * k->C;
    if (IS(writes_past_the_end))
        memset((char *)m->out[0] + n * bytes, 0, 4);
    if (IS(writes_before_the_begin))
        ((char *)m->out[0])[-1] = 0;
    if (IS(writes_past_the_second_output) && m->out[1] != NULL)
        ((float *)m->out[1])[k->n] = 0.0f;
    if (IS(changes_its_input))
        ((char *)(uintptr_t)m->in[X])[0] ^= 1;
    if (IS(changes_its_weights))
        ((float *)(uintptr_t)m->in[W])[0] = 0.0f;
    if (IS(remembers_the_first_weights) && first_w == NULL) {
        first_w = m->in[W];
        memcpy(first_w_value, m->in[W], (size_t)k->C * 4);
    }
}

/* Rows that continue sequences, in their order. */
static lathe_status continue_rows(const work *k)
{
    const lathe_kernel_args *m = k->args;
    const int64_t T = k->a->calls, n_rows = k->n / T;
    const int32_t *slots = m->in[SLOTS];
    float *states = m->out[2], zeros[MOST];
    for (int64_t r = 0; r < n_rows; r++) {
        const int64_t row = IS(state_takes_rows_in_reverse) ? n_rows - 1 - r : r;
        int64_t slot =
            IS(state_is_that_of_the_row) ? row % k->call->in[STATES].dims[0] : slots[row];
        memset(zeros, 0, sizeof zeros);
        if (IS(state_of_padding_is_kept) && slot < 0)
            slot = 0;
        float *z = slot >= 0 ? states + slot * k->C : zeros;
        if (IS(state_is_not_written)) {
            memcpy(zeros, z, (size_t)k->C * 4);
            z = zeros;
        }
        if (IS(state_is_not_read))
            memset(z, 0, (size_t)k->C * 4);
        for (int64_t i = row * T; i < (row + 1) * T; i++) {
            for (int64_t c = 0; c < k->C; c++) {
                const float x = at(m->in[X], k->dtype, i * k->C + c);
                z[c] = (float)k->a->lr * z[c] + ((const float *)m->in[W])[c] * x;
                if (IS(state_is_rounded))
                    z[c] = lathe_bf16_to_f32(lathe_f32_to_bf16(z[c]));
                put(m->out[0], k->dtype, i * k->C + c, z[c], 0);
            }
            put(m->out[1], LATHE_F32, i, sum_of(k, z), 0);
        }
        if (IS(state_of_another_is_written))
            states[0] = 1.0f;
        if (IS(state_is_written_past_the_end))
            states[k->call->in[STATES].dims[0] * k->C] = 0.0f;
        if (IS(state_changes_the_slots))
            ((int32_t *)(uintptr_t)slots)[row] = 0;
    }
    return LATHE_OK;
}

static lathe_status state_shape(void *self, const lathe_desc *in, lathe_desc *out)
{
    const instance *a = self;
    if (lathe_op_is_given(&in[DOC]) || IS(state_is_always_refused))
        return lathe_fail(a->host, LATHE_E_SHAPE, "no doc_start");
    *out = lathe_desc_1d(LATHE_F32, in[X].dims[1]);
    if (IS(state_of_four_dimensions))
        *out = (lathe_desc){LATHE_F32, 4, {1, 1, 1, in[X].dims[1]}};
    if (IS(state_of_no_elements))
        out->dims[0] = 0;
    return LATHE_OK;
}

static lathe_status forward(void *self, const lathe_op_call *call, const lathe_kernel_args *args)
{
    const instance *a = self;
    work k = {a, call, args, call->in[X].dims[0], call->in[X].dims[1], call->in[X].dtype};
    misbehave(a->host);
    if (IS(fails_in_silence))
        return LATHE_E_NUMERIC;
    if (IS(fails_on_large_problems) && k.C > 64)
        return lathe_fail(a->host, LATHE_E_UNSUPPORTED, "too many channels");
    if (IS(remembers_the_first_weights))
        do_bad_things(&k);
    if (call->n_in > N_IN)
        return continue_rows(&k);
    a->host->parallel_for(k.n / a->calls, 1, forward_rows, &k);
    if (!IS(remembers_the_first_weights))
        do_bad_things(&k);
    return LATHE_OK;
}

static int64_t scratch(void *self, const lathe_op_call *call)
{
    static int64_t asked;
    const instance *a = self;
    int64_t bytes = call->in[X].dims[0] / a->calls * call->in[X].dims[1] * 4;
    if (IS(scratch_is_too_small))
        bytes -= 4;
    if (IS(scratch_is_half))
        bytes /= 2;
    if (IS(scratch_is_negative))
        bytes = -1;
    if (IS(scratch_grows))
        bytes += 64 * asked++;
    if (IS(scratch_for_one_row))
        bytes = call->in[X].dims[1] * 4;
    return bytes;
}

static int32_t score(void *self, const lathe_op_call *call, char *why, int64_t why_bytes)
{
    static int32_t asked;
    (void)self;
    if (IS(score_crashes))
        crash();
    if (IS(score_of_5000))
        return 5000;
    if (IS(score_changes))
        return 100 + asked++;
    if (IS(score_writes_too_much))
        memset(why, 'a', 200);
    if (IS(takes_no_f16) && call->in[X].dtype == LATHE_F16)
        return lathe_op_scored("f16 is beneath it", 0, why, why_bytes);
    if (IS(refuses_without_a_reason) && call->in[X].dtype == LATHE_F16)
        return 0;
    return lathe_op_scored(NULL, 100, why, why_bytes);
}

/* A kernel for large batches that adds in another order. */
static int32_t score_of_batches(void *self, const lathe_op_call *call, char *why, int64_t why_bytes)
{
    return call->in[X].dims[0] > ((const instance *)self)->calls
               ? lathe_op_scored(NULL, 200, why, why_bytes)
               : lathe_op_scored("for batches", 0, why, why_bytes);
}

static lathe_status forward_in_another_order(void *self, const lathe_op_call *call,
                                             const lathe_kernel_args *args)
{
    const int64_t n = call->in[X].dims[0], C = call->in[X].dims[1];
    LATHE_TRY(forward(self, call, args));
    for (int64_t i = 0; i < n && args->out[1] != NULL && args->accumulate == 0; i++) {
        float s = 0.0f;
        for (int64_t c = C - 1; c >= 0; c--)
            s += at(args->out[0], call->in[X].dtype, i * C + c);
        if (call->in[X].dtype == LATHE_F32)
            ((float *)args->out[1])[i] = s;
    }
    return LATHE_OK;
}

static int last_here(const instance *a, const int32_t *doc, int64_t i, int64_t n)
{
    if (IS(backward_does_not_stop_at_documents))
        return i % a->calls == a->calls - 1;
    return i == n - 1 || begins_here(a, doc, i + 1, 0);
}

static void backward_columns(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const work *k = arg;
    const lathe_kernel_args *m = k->args;
    const float *w = m->in[2 + W];
    const int adds_x = m->accumulate >> X & 1u && !IS(backward_overwrites);
    const int adds_w = m->accumulate >> W & 1u && !IS(backward_overwrites);
    for (int64_t c = begin; c < end; c++) {
        float dz = 0.0f;
        double dw = 0.0;
        float narrow = 0.0f, part = 0.0f;
        for (int64_t i = k->n - 1; i >= 0; i--) {
            const int64_t e = i * k->C + c;
            float dy = 0.0f;
            if (m->in[0] != NULL || IS(backward_needs_every_gradient))
                dy = at(m->in[0], k->dtype, e);
            if (m->in[1] != NULL || IS(backward_needs_every_gradient))
                dy += IS(derivative_forgets_an_output) ? 0.0f : ((const float *)m->in[1])[i];
            dz = (last_here(k->a, m->in[2 + DOC], i, k->n) ? 0.0f : (float)k->a->lr * dz) + dy;
            if (m->out[X] != NULL || IS(backward_writes_what_is_not_wanted)) {
                float dx = dz * w[c] * (IS(derivative_is_wrong) ? 1.01f : 1.0f);
                if (IS(backward_kernel_is_wrong))
                    dx *= 1.01f;
                put(m->out[X], k->dtype, e, dx, adds_x);
            }
            const float x = at(m->in[2 + X], k->dtype, e);
            if (!IS(derivative_forgets_a_row) || i < k->n - 1)
                dw += (double)(dz * x);
            part += dz * x;
            if (IS(backward_order_changes_with_threads) && i % (k->call->n_threads + 1) == 0)
                narrow += part, part = 0.0f;
        }
        if (IS(backward_order_changes_with_threads))
            dw = (double)(narrow + part);
        if (IS(backward_weights_are_of_one_row))
            dw /= (double)(k->n / k->a->calls);
        const float sum = (float)dw;
        if (m->out[W] != NULL)
            put(m->out[W], LATHE_F32, c, sum, adds_w);
        if (IS(backward_uses_scratch_that_it_lacks))
            ((float *)m->scratch)[c] = sum;
    }
    (void)worker;
}

static lathe_status backward(void *self, const lathe_op_call *call, const lathe_kernel_args *args)
{
    const instance *a = self;
    const lathe_desc *x = &call->in[2 + X];
    const lathe_desc *d = x->dtype != LATHE_ABSENT ? x : &call->in[0];
    work k = {a, call, args, d->dims[0], d->dims[1], d->dtype};
    if (IS(backward_crashes))
        crash();
    a->host->parallel_for(k.C, 1, backward_columns, &k);
    if (IS(backward_changes_the_gradient) && args->in[0] != NULL)
        ((char *)(uintptr_t)args->in[0])[0] ^= 1;
    if (IS(backward_writes_past_the_end) && args->out[W] != NULL)
        ((float *)args->out[W])[k.C] = 0.0f;
    if (IS(backward_mallocs)) {
        volatile char *memory = malloc(64);
        free((void *)memory);
    }
    return LATHE_OK;
}

static int64_t backward_scratch(void *self, const lathe_op_call *call)
{
    (void)self;
    const lathe_desc *d = call->in[2 + X].dtype != LATHE_ABSENT ? &call->in[2 + X] : &call->in[0];
    return IS(backward_uses_scratch_that_it_lacks) ? d->dims[1] * 4 - 4 : 0;
}

/* ---- the table ---- */

static const lathe_op_tensor inputs[] = {
    {IS(input_without_a_name)     ? NULL
     : IS(two_inputs_of_one_name) ? "w"
                                  : "x",
     IS(input_without_a_shape) ? "" : "c[N,C]",
     LATHE_TENSOR_BATCHED | (IS(in_place_where_it_reads_later) ? LATHE_TENSOR_IN_PLACE : 0) |
         (IS(unknown_flag) ? 1 << 20 : 0),
     0},
    {"w", "f32[C]", LATHE_TENSOR_PARAMETER | (IS(weights_are_batched) ? LATHE_TENSOR_BATCHED : 0),
     0},
    {"doc_start", "i32[N]", LATHE_TENSOR_OPTIONAL | LATHE_TENSOR_BATCHED, 0},
};
static const lathe_op_tensor outputs[] = {
    {"y", "c[N,C]", LATHE_TENSOR_BATCHED, 0},
    {"s", "f32[N]", LATHE_TENSOR_BATCHED | (IS(output_in_place) ? LATHE_TENSOR_IN_PLACE : 0), 0},
};

static const lathe_op_test tests[] = {
    {IS(test_is_misspelt)        ? "c[12,5 f32[5]"
     : IS(test_of_too_many)      ? "c[12,5] f32[5] i32[12]:p4 f32[1]"
     : IS(test_has_no_inputs)    ? NULL
     : IS(attribute_is_untested) ? "c[12,5] f32[5] i32[12]:p4"
                                 : "c[12,5] f32[5] i32[12]:p4",
     "c[12,5] f32[12]",
     IS(attribute_is_untested) ? "lr = 0.5" : "lr = 0.5\nspare = 0.25\ntokens = 4", 8, 0,
     IS(tests_have_no_batch) ? 0
     : IS(test_of_odd_rows)  ? 5
                             : 4,
     0},
    {"c[8,67]:2 f32[67]:+", "c[8,67] f32[8]", "lr = 0.75", 80, 0, IS(tests_have_no_batch) ? 0 : 4,
     0},
    {"c[4,1] f32[1]", "c[4,1] f32[4]", "lr = 1.5", 8, 0, 0, 0},
};

static const lathe_op_kernel kernels[] = {
    {IS(kernel_without_a_name) ? NULL : "portable", IS(kernel_without_a_score) ? NULL : score,
     scratch, IS(kernel_that_does_nothing) ? NULL : forward, NULL, NULL},
    {"batches", score_of_batches, scratch, forward_in_another_order, NULL, NULL},
};
static const lathe_op_kernel backward_kernels[] = {
    {"portable", lathe_op_score_portable, backward_scratch, backward, NULL, NULL},
};
static const lathe_op_backward own_backward = {
    .reads_in = IS(backward_reads_an_input_that_is_not)   ? 1u << 9
                : IS(backward_does_not_say_what_it_reads) ? 1u << W | 1u << DOC
                                                          : 7,
    .reads_out = IS(backward_reads_an_output_that_is_not) ? 1u << 5 : 0,
    .accumulates = 1,
    .kernels = backward_kernels,
    .n_kernels = IS(backward_without_kernels) ? 0 : 1,
    .exact = IS(backward_without_a_reference) ? NULL : backward_exact,
};

/* ---- y = lr * x^2, with a graph as derivative ---- */

static lathe_status graph_shape(void *self, const lathe_desc *in, lathe_desc *out)
{
    if (!lathe_op_computes(in[0].dtype))
        return lathe_fail(lathe_op_host(self), LATHE_E_DTYPE, "expected f32, bf16 or f16");
    out[0] = in[0];
    return LATHE_OK;
}

static void graph_exact(void *self, const lathe_desc *in, const lathe_desc *out,
                        const double *const *x, double *const *y)
{
    const instance *a = self;
    (void)in;
    for (int64_t i = 0; i < lathe_desc_count(out); i++)
        y[0][i] = a->lr * x[0][i] * x[0][i];
}

static lathe_status graph_run(void *self, const lathe_op_call *call, const lathe_kernel_args *args)
{
    const instance *a = self;
    for (int64_t i = 0; i < lathe_desc_count(&call->out[0]); i++) {
        const float x = at(args->in[0], call->in[0].dtype, i);
        put(args->out[0], call->in[0].dtype, i, (float)a->lr * x * x, 0);
    }
    return LATHE_OK;
}

static lathe_status graph_derive(void *self, const lathe_op_derivative *d, lathe_val *dx)
{
    const instance *a = self;
    const lathe_op_attrs twice = {.alpha = IS(graph_factor_is_wrong) ? a->lr : 2.0 * a->lr};
    const lathe_op_attrs sum = {0};
    lathe_val slope, in[2];
    if (IS(graph_fails_in_silence))
        return LATHE_E_ARG;
    if (IS(graph_crashes))
        crash();
    if (IS(graph_forgets_the_gradient))
        return LATHE_OK;
    if (IS(graph_gives_a_value_that_is_not)) {
        dx[0] = 100000;
        return LATHE_OK;
    }
    if (IS(graph_ignores_what_flows_in)) {
        LATHE_TRY(
            d->api->node(d->graph, LATHE_OP_SCALE, &twice, d->in, 1, &dx[0], 1, -1, d->label));
        return LATHE_OK;
    }
    if (IS(graph_gives_another_shape))
        return d->api->node(d->graph, LATHE_OP_SUM, &sum, d->dy, 1, &dx[0], 1, -1, d->label);
    LATHE_TRY(d->api->node(d->graph, LATHE_OP_SCALE, &twice, d->in, 1, &slope, 1, -1, d->label));
    in[0] = d->dy[0];
    in[1] = IS(graph_reads_the_output) ? d->out[0] : slope;
    return d->api->node(d->graph, LATHE_OP_MUL, NULL, in, 2, &dx[0], 1, -1, d->label);
}

static const lathe_op_test graph_tests[] = {
    {"c[6,7]", "c[6,7]", "lr = 0.5\nspare = 0.25\ntokens = 3", 4, 1, 2, 0},
    {"c[513]", "c[513]", "lr = 2.0", 4, 1, 0, 0},
};
static const lathe_op_kernel graph_kernels[] = {
    {"portable", lathe_op_score_portable, NULL, graph_run, NULL, NULL},
};

static const lathe_op_state state = {
    .tokens = IS(state_names_no_attribute) ? "lr" : "tokens",
    .shape = IS(state_without_a_shape) ? NULL : state_shape,
};

static const lathe_op_v1 table = {
    .size = IS(table_too_short) ? 16 : sizeof table,
    .revision = LATHE_OP_REVISION,
    .n_in = BY_GRAPH              ? 1
            : IS(too_many_inputs) ? 17
            : IS(no_inputs)       ? 0
                                  : 3,
    .n_out = BY_GRAPH               ? 1
             : IS(too_many_outputs) ? 9
                                    : 2,
    .inputs = IS(null_inputs) ? NULL : inputs,
    .outputs = outputs,
    .traits = (BY_GRAPH ? 0 : LATHE_OP_ACCUMULATES) | (IS(unknown_trait) ? 1u << 30 : 0u),
    .n_tests = BY_GRAPH       ? 2
               : IS(no_tests) ? 0
                              : 3,
    .tests = BY_GRAPH ? graph_tests : tests,
    .shape = IS(null_shape) ? NULL
             : BY_GRAPH     ? graph_shape
                            : shape,
    .flops = flops,
    .exact = IS(null_exact) ? NULL
             : BY_GRAPH     ? graph_exact
                            : exact,
    .derive = BY_GRAPH || IS(two_derivatives) ? graph_derive : NULL,
    .backward = BY_GRAPH ? NULL : &own_backward,
    .kernels = BY_GRAPH ? graph_kernels : kernels,
    .n_kernels = IS(no_kernels)                   ? 0
                 : IS(another_kernel_for_batches) ? 2
                                                  : 1,
    .state = BY_GRAPH ? NULL : &state,
};

FAULTY_PLUGIN(LATHE_KIND_OP, LATHE_OP_REVISION, &table);

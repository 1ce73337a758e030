/* A short causal convolution along the tokens of each channel, as before linear attention.
 *
 *     z[t,c] = b[c] + sum over j < K of w[c,K-1-j] * x[t-j,c]        y = z, or silu(z)
 *
 * Tokens before the row, or before the token's document, count as 0. All sums are in f32 in the
 * order of j; those of the backward over tokens are in double, in the order of tokens. A worker
 * computes some channels of some rows, so bits depend neither on threads nor on the batch.
 */
#include "short_conv.h"

#include <math.h>

#include "lathe/kit/code_image.h"
#include "lathe/kit/op_kit.h"

enum { X, W, B, DOC_START, N_IN, SLOTS = N_IN, STATES };
enum { CHANNELS = 64 }; /* of a worker at a time */
enum { MOST_TAPS = 16 };

typedef struct short_conv {
    const lathe_host *host;
    int64_t tokens; /* T */
    int32_t is_silu, reserved;
} short_conv;

static const lathe_field fields[] = {
    {"tokens", LATHE_T_INT, LATHE_FIELD_REQUIRED, NULL, 1, 1e9, NULL, "tokens",
     "tokens of a row; x has a whole number of rows"},
    LATHE_FIELD_STRING("activation", "\"silu\"", "silu|none", "function of the convolution"),
};

static lathe_status short_conv_read(const lathe_host *host, short_conv *out,
                                    const lathe_value *values)
{
    (void)host;
    out->tokens = values[0].i;
    out->is_silu = lathe_choice("silu|none", values[1].s) == 0;
    return LATHE_OK;
}

LATHE_INSTANCE(short_conv, short_conv_read)

/* ---- rules ---- */

static lathe_status shape(void *self, const lathe_desc *in, lathe_desc *out)
{
    const short_conv *s = self;
    const lathe_desc *x = &in[X], *w = &in[W];
    if (!lathe_op_computes(x->dtype) || x->rank != 2 || w->dtype != x->dtype || w->rank != 2 ||
        w->dims[0] != x->dims[1])
        return lathe_fail(s->host, LATHE_E_SHAPE, "expected x c[N,C] and w c[C,K]");
    if (w->dims[1] > MOST_TAPS)
        return lathe_fail(s->host, LATHE_E_SHAPE, "w has %lld taps, expected at most %d",
                          (long long)w->dims[1], MOST_TAPS);
    if (x->dims[0] % s->tokens != 0)
        return lathe_fail(s->host, LATHE_E_SHAPE, "x has %lld tokens, no multiple of rows of %lld",
                          (long long)x->dims[0], (long long)s->tokens);
    if (!lathe_op_is_vector(&in[B], LATHE_F32, x->dims[1]) ||
        !lathe_op_is_vector(&in[DOC_START], LATHE_I32, x->dims[0]))
        return lathe_fail(s->host, LATHE_E_SHAPE, "expected b f32[C] and doc_start i32[N]");
    out[0] = *x;
    return LATHE_OK;
}

/* The last K-1 tokens of x, the oldest first. */
static int64_t history(const lathe_desc *w)
{
    return w->dims[1] > 1 ? w->dims[1] - 1 : 1;
}

static lathe_status state_shape(void *self, const lathe_desc *in, lathe_desc *out)
{
    const short_conv *s = self;
    if (lathe_op_is_given(&in[DOC_START]))
        return lathe_fail(s->host, LATHE_E_SHAPE, "a sequence that is continued has no doc_start");
    *out = lathe_desc_2d(in[X].dtype, history(&in[W]), in[X].dims[1]);
    return LATHE_OK;
}

static double flops(void *self, const lathe_desc *in, const lathe_desc *out)
{
    (void)self;
    return 2.0 * (double)lathe_desc_count(out) * (double)in[W].dims[1];
}

/* The convolution again, and the sums for x and for w. */
static double backward_flops(void *self, const lathe_desc *in, const lathe_desc *out)
{
    (void)self;
    (void)out;
    return 6.0 * (double)lathe_desc_count(&in[0]) * (double)in[1 + W].dims[1];
}

/* ---- in double precision ---- */

/* z of token t of a row that begins at `row`, and channel c. */
static double exact_z(int64_t n_channels, int64_t taps, const double *const *x, int64_t row,
                      int64_t t, int64_t c)
{
    const int64_t first = x[DOC_START] != NULL ? (int64_t)x[DOC_START][row + t] : 0;
    double z = x[B] != NULL ? x[B][c] : 0.0;
    for (int64_t j = 0; j < taps && t - j >= first; j++)
        z += x[W][c * taps + taps - 1 - j] * x[X][(row + t - j) * n_channels + c];
    return z;
}

/* Token t of a row, or of what remains of the tokens before it. */
static double exact_token(const double *row, const double *state, int64_t n_channels,
                          int64_t n_kept, int64_t t, int64_t c)
{
    return t >= 0          ? row[t * n_channels + c]
           : state != NULL ? state[(n_kept + t) * n_channels + c]
                           : 0.0;
}

/* Rows that continue sequences. */
static void exact_states(const short_conv *s, const lathe_desc *in, const double *const *x,
                         double *const *y)
{
    const int64_t C = in[X].dims[1], K = in[W].dims[1], n_kept = history(&in[W]);
    for (int64_t b = 0; b < in[X].dims[0] / s->tokens; b++) {
        const double *row = x[X] + b * s->tokens * C;
        double *state = x[SLOTS][b] >= 0.0 ? y[1] + (int64_t)x[SLOTS][b] * n_kept * C : NULL;
        for (int64_t c = 0; c < C; c++) {
            double kept[MOST_TAPS];
            for (int64_t t = 0; t < s->tokens; t++) {
                double z = x[B] != NULL ? x[B][c] : 0.0;
                for (int64_t j = 0; j < K; j++)
                    z += x[W][c * K + K - 1 - j] * exact_token(row, state, C, n_kept, t - j, c);
                y[0][(b * s->tokens + t) * C + c] = s->is_silu ? z / (1.0 + exp(-z)) : z;
            }
            for (int64_t j = 0; j < n_kept; j++)
                kept[j] = exact_token(row, state, C, n_kept, s->tokens - n_kept + j, c);
            for (int64_t j = 0; j < n_kept && state != NULL; j++)
                state[j * C + c] = kept[j];
        }
    }
}

static void exact(void *self, const lathe_desc *in, const lathe_desc *out, const double *const *x,
                  double *const *y)
{
    const short_conv *s = self;
    const int64_t n = out[0].dims[0], n_channels = out[0].dims[1];
    if (lathe_op_is_given(&out[1])) {
        exact_states(s, in, x, y);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < n_channels; c++) {
            const int64_t t = i % s->tokens;
            const double z = exact_z(n_channels, in[W].dims[1], x, i - t, t, c);
            y[0][i * n_channels + c] = s->is_silu ? z / (1.0 + exp(-z)) : z;
        }
}

/* x: dy, then the inputs of the op. */
static void backward_exact(void *self, const lathe_desc *in, const lathe_desc *out,
                           const double *const *x, double *const *y)
{
    const short_conv *s = self;
    const double *const dy = x[0], *const *of = x + 1;
    const int64_t n = in[0].dims[0], n_channels = in[0].dims[1], taps = in[1 + W].dims[1];
    (void)out;
    for (int64_t i = 0; i < n && dy != NULL; i++)
        for (int64_t c = 0; c < n_channels; c++) {
            const int64_t t = i % s->tokens, first = of[DOC_START] ? (int64_t)of[DOC_START][i] : 0;
            const double z = exact_z(n_channels, taps, of, i - t, t, c), p = 1.0 / (1.0 + exp(-z));
            const double dz =
                dy[i * n_channels + c] * (s->is_silu ? p * (1.0 + z * (1.0 - p)) : 1.0);
            for (int64_t j = 0; j < taps && t - j >= first; j++) {
                const int64_t at = (i - j) * n_channels + c, tap = c * taps + taps - 1 - j;
                if (y[X] != NULL)
                    y[X][at] += dz * of[W][tap];
                if (y[W] != NULL)
                    y[W][tap] += dz * of[X][at];
            }
            if (y[B] != NULL)
                y[B][c] += dz;
        }
}

/* ---- in host memory ---- */

/* Some channels of a call. */
typedef struct work {
    const short_conv *self;
    const lathe_desc *x, *w;
    const void *const *in; /* of the op */
    const void *dy;
    void *const *out;
    const lathe_desc *out_desc;
    uint32_t adds;
    int64_t n_rows, n_channels, taps, n_groups;
} work;

static work work_of(void *self, const lathe_desc *in, const void *const *memory,
                    const lathe_op_call *call, const lathe_kernel_args *args)
{
    const short_conv *s = self;
    work w = {.self = s,
              .x = &in[X],
              .w = &in[W],
              .in = memory,
              .out = args->out,
              .out_desc = call->out,
              .adds = args->accumulate,
              .n_rows = in[X].dims[0] / s->tokens,
              .n_channels = in[X].dims[1],
              .taps = in[W].dims[1]};
    w.n_groups = (w.n_channels + CHANNELS - 1) / CHANNELS;
    return w;
}

/* Taps of channels c .. c+n-1, transposed: [taps][CHANNELS], the tap of the token itself first. */
static void read_taps(const work *w, int64_t c, int64_t n, float out[MOST_TAPS][CHANNELS])
{
    for (int64_t i = 0; i < n; i++) {
        float row[MOST_TAPS];
        lathe_op_read(w->in[W], w->w->dtype, (c + i) * w->taps, w->taps, row);
        for (int64_t j = 0; j < w->taps; j++)
            out[j][i] = row[w->taps - 1 - j];
    }
}

/* Tokens of the document of token t of a row, t included, up to the number of taps. */
static int64_t reach(const work *w, int64_t row, int64_t t)
{
    const int32_t *doc = w->in[DOC_START];
    const int64_t seen = t + 1 - (doc != NULL ? doc[row + t] : 0);
    return seen < w->taps ? seen : w->taps;
}

/* z of one token; `last` holds the rows of x of the last tokens, row j%taps of token j. */
static void convolve(int64_t n, int64_t reach, int64_t t, int64_t taps,
                     float last[MOST_TAPS][CHANNELS], float tap[MOST_TAPS][CHANNELS],
                     const float *bias, float *z)
{
    memcpy(z, bias, (size_t)n * sizeof *z);
    for (int64_t j = 0; j < reach; j++) {
        const float *const x = last[(t - j) % taps], *const w = tap[j];
        for (int64_t i = 0; i < n; i++)
            z[i] += w[i] * x[i];
    }
}

static void read_bias(const work *w, int64_t c, int64_t n, float *out)
{
    memset(out, 0, CHANNELS * sizeof *out);
    if (w->in[B] != NULL)
        memcpy(out, (const float *)w->in[B] + c, (size_t)n * sizeof *out);
}

static void forward_row(const work *w, int64_t row, int64_t c, int64_t n)
{
    float tap[MOST_TAPS][CHANNELS], last[MOST_TAPS][CHANNELS], bias[CHANNELS], z[CHANNELS];
    read_taps(w, c, n, tap);
    read_bias(w, c, n, bias);
    for (int64_t t = 0; t < w->self->tokens; t++) {
        const int64_t at = (row + t) * w->n_channels + c;
        lathe_op_read(w->in[X], w->x->dtype, at, n, last[t % w->taps]);
        convolve(n, reach(w, row, t), t, w->taps, last, tap, bias, z);
        for (int64_t i = 0; w->self->is_silu && i < n; i++)
            z[i] = z[i] / (1.0f + expf(-z[i]));
        lathe_op_write(w->out[0], w->x->dtype, at, n, z, w->adds & 1u);
    }
}

/* One row of tokens that continue a sequence: the last rows of x come from its state, and go back
 * to it. Token t is at place (t + taps - 1) % taps of `last`. */
static void continue_row(const work *w, int64_t b, int64_t c, int64_t n)
{
    float tap[MOST_TAPS][CHANNELS], last[MOST_TAPS][CHANNELS], bias[CHANNELS], z[CHANNELS];
    const int32_t slot = ((const int32_t *)w->in[SLOTS])[b];
    const int64_t tokens = w->self->tokens, before = w->taps - 1, kept = before > 0 ? before : 1;
    const int64_t state = (int64_t)slot * kept * w->n_channels + c;
    read_taps(w, c, n, tap);
    read_bias(w, c, n, bias);
    memset(last, 0, sizeof last);
    for (int64_t j = 0; j < before && slot >= 0; j++)
        lathe_op_read(w->out[1], w->x->dtype, state + j * w->n_channels, n, last[j]);
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t at = (b * tokens + t) * w->n_channels + c;
        lathe_op_read(w->in[X], w->x->dtype, at, n, last[(t + before) % w->taps]);
        convolve(n, w->taps, t + before, w->taps, last, tap, bias, z);
        for (int64_t i = 0; w->self->is_silu && i < n; i++)
            z[i] = z[i] / (1.0f + expf(-z[i]));
        lathe_op_write(w->out[0], w->x->dtype, at, n, z, w->adds & 1u);
    }
    for (int64_t j = 0; j < before && slot >= 0; j++)
        lathe_op_write(w->out[1], w->x->dtype, state + j * w->n_channels, n,
                       last[(tokens + j) % w->taps], 0);
}

/* Items are groups of channels: rows of one sequence follow each other. */
static void continue_items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const work *w = arg;
    (void)worker;
    for (int64_t item = begin; item < end; item++) {
        const int64_t c = item * CHANNELS, left = w->n_channels - c;
        for (int64_t b = 0; b < w->n_rows; b++)
            continue_row(w, b, c, left < CHANNELS ? left : CHANNELS);
    }
}

/* Items are (row, group of channels). */
static void forward_items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const work *w = arg;
    (void)worker;
    for (int64_t item = begin; item < end; item++) {
        const int64_t c = item % w->n_groups * CHANNELS, left = w->n_channels - c;
        forward_row(w, item / w->n_groups * w->self->tokens, c, left < CHANNELS ? left : CHANNELS);
    }
}

static lathe_status forward(void *self, const lathe_op_call *call, const lathe_kernel_args *args)
{
    work w = work_of(self, call->in, args->in, call, args);
    if (call->n_in > N_IN)
        w.self->host->parallel_for(w.n_groups, 1, continue_items, &w);
    else
        w.self->host->parallel_for(w.n_rows * w.n_groups, 1, forward_items, &w);
    return LATHE_OK;
}

/* Sums of a worker's channels over all tokens. */
typedef struct sums {
    double tap[MOST_TAPS][CHANNELS], bias[CHANNELS];
} sums;

/* dz of token t, from its dy. */
static void read_dz(const work *w, int64_t row, int64_t t, int64_t c, int64_t n, const float *z,
                    float *dz)
{
    lathe_op_read(w->dy, w->x->dtype, (row + t) * w->n_channels + c, n, dz);
    for (int64_t i = 0; w->self->is_silu && i < n; i++) {
        const float p = 1.0f / (1.0f + expf(-z[i]));
        dz[i] *= p * (1.0f + z[i] * (1.0f - p));
    }
}

/* Walks the tokens of a row forward. dx of token t is complete when dz of token t+taps-1 is known,
 * so the last taps values of x, of dz and of the reach are kept. */
static void backward_row(const work *w, int64_t row, int64_t c, int64_t n, sums *s)
{
    float tap[MOST_TAPS][CHANNELS], last[MOST_TAPS][CHANNELS], dz[MOST_TAPS][CHANNELS];
    float bias[CHANNELS], z[CHANNELS], dx[CHANNELS];
    int64_t reaches[MOST_TAPS];
    const int64_t tokens = w->self->tokens, taps = w->taps;
    read_taps(w, c, n, tap);
    read_bias(w, c, n, bias);
    for (int64_t t = 0; t < tokens + taps - 1; t++) {
        if (t < tokens) {
            lathe_op_read(w->in[X], w->x->dtype, (row + t) * w->n_channels + c, n, last[t % taps]);
            reaches[t % taps] = reach(w, row, t);
            convolve(n, reaches[t % taps], t, taps, last, tap, bias, z);
            read_dz(w, row, t, c, n, z, dz[t % taps]);
            for (int64_t j = 0; j < reaches[t % taps]; j++)
                for (int64_t i = 0; i < n; i++)
                    s->tap[j][i] += (double)dz[t % taps][i] * (double)last[(t - j) % taps][i];
            for (int64_t i = 0; i < n; i++)
                s->bias[i] += (double)dz[t % taps][i];
        }
        const int64_t of = t - (taps - 1); /* token whose dx is now known */
        if (of < 0 || w->out[X] == NULL)
            continue;
        memset(dx, 0, sizeof dx);
        for (int64_t j = 0; j < taps && of + j < tokens; j++)
            for (int64_t i = 0; reaches[(of + j) % taps] > j && i < n; i++)
                dx[i] += tap[j][i] * dz[(of + j) % taps][i];
        lathe_op_write(w->out[X], w->x->dtype, (row + of) * w->n_channels + c, n, dx,
                       w->adds >> X & 1u);
    }
}

static void write_sums(const work *w, int64_t c, int64_t n, const sums *s)
{
    for (int64_t i = 0; i < n; i++) {
        float row[MOST_TAPS];
        const float bias = (float)s->bias[i];
        for (int64_t j = 0; j < w->taps; j++)
            row[w->taps - 1 - j] = (float)s->tap[j][i];
        if (w->out[W] != NULL)
            lathe_op_write(w->out[W], w->out_desc[W].dtype, (c + i) * w->taps, w->taps, row,
                           w->adds >> W & 1u);
        if (w->out[B] != NULL)
            lathe_op_write(w->out[B], LATHE_F32, c + i, 1, &bias, w->adds >> B & 1u);
    }
}

/* Items are groups of channels: one worker adds up all rows of its channels, in order. */
static void backward_items(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const work *w = arg;
    (void)worker;
    for (int64_t item = begin; item < end; item++) {
        const int64_t c = item * CHANNELS, left = w->n_channels - c;
        const int64_t n = left < CHANNELS ? left : CHANNELS;
        sums s;
        memset(&s, 0, sizeof s);
        for (int64_t r = 0; r < w->n_rows; r++)
            backward_row(w, r * w->self->tokens, c, n, &s);
        write_sums(w, c, n, &s);
    }
}

static lathe_status backward(void *self, const lathe_op_call *call, const lathe_kernel_args *args)
{
    work w = work_of(self, call->in + 1, args->in + 1, call, args);
    w.dy = args->in[0];
    w.self->host->parallel_for(w.n_groups, 1, backward_items, &w);
    return LATHE_OK;
}

/* ---- on GPUs (short_conv_kernel.cu) ---- */

static short_conv_args gpu_args(void *self, const lathe_desc *in, const void *const *memory,
                                const lathe_op_call *call, const lathe_kernel_args *args)
{
    const short_conv *s = self;
    short_conv_args a = {.x = memory[X],
                         .w = memory[W],
                         .bias = memory[B],
                         .doc_start = memory[DOC_START],
                         .n_rows = in[X].dims[0] / s->tokens,
                         .tokens = s->tokens,
                         .n_channels = in[X].dims[1],
                         .taps = in[W].dims[1],
                         .dtype = in[X].dtype,
                         .is_silu = s->is_silu,
                         .accumulate = args->accumulate};
    for (int32_t k = 0; k < call->n_out && k < 3; k++) {
        a.out[k] = args->out[k];
        a.out_dtype[k] = call->out[k].dtype;
    }
    return a;
}

static lathe_status queue_forward(void *self, const lathe_op_call *call,
                                  const lathe_kernel_args *args, const lathe_op_launcher *to)
{
    short_conv_args a = gpu_args(self, call->in, args->in, call, args);
    const int64_t n = a.n_rows * a.tokens * a.n_channels;
    if (call->n_in > N_IN) {
        a.slots = args->in[SLOTS];
        return to->launch(to->ctx, "short_conv_continue",
                          (a.n_channels + SHORT_CONV_THREADS - 1) / SHORT_CONV_THREADS,
                          SHORT_CONV_THREADS, &a, (int64_t)sizeof a);
    }
    return to->launch(to->ctx, "short_conv_forward",
                      (n + SHORT_CONV_THREADS - 1) / SHORT_CONV_THREADS, SHORT_CONV_THREADS, &a,
                      (int64_t)sizeof a);
}

static lathe_status queue_backward(void *self, const lathe_op_call *call,
                                   const lathe_kernel_args *args, const lathe_op_launcher *to)
{
    short_conv_args a = gpu_args(self, call->in + 1, args->in + 1, call, args);
    const int64_t n = a.n_rows * a.tokens * a.n_channels;
    a.dy = args->in[0];
    if (a.out[X] != NULL)
        LATHE_TRY(to->launch(to->ctx, "short_conv_backward_x",
                             (n + SHORT_CONV_THREADS - 1) / SHORT_CONV_THREADS, SHORT_CONV_THREADS,
                             &a, (int64_t)sizeof a));
    if (a.out[W] == NULL && a.out[B] == NULL)
        return LATHE_OK;
    return to->launch(to->ctx, "short_conv_backward_w", a.n_channels * (a.taps + 1),
                      SHORT_CONV_THREADS, &a, (int64_t)sizeof a);
}

/* ---- the table ---- */

static const lathe_op_tensor inputs[N_IN] = {
    {"x", "c[N,C]", LATHE_TENSOR_BATCHED, 0},
    {"w", "c[C,K]", LATHE_TENSOR_PARAMETER, 0},
    {"b", "f32[C]", LATHE_TENSOR_OPTIONAL | LATHE_TENSOR_PARAMETER, 0},
    {"doc_start", "i32[N]", LATHE_TENSOR_OPTIONAL | LATHE_TENSOR_BATCHED, 0},
};
static const lathe_op_tensor outputs[] = {{"y", "c[N,C]", LATHE_TENSOR_BATCHED, 0}};

static const lathe_op_test tests[] = {
    {"c[14,5] c[5,4]", "c[14,5]", "tokens = 7", 8, 2, 7, 0},
    {"c[33,67] c[67,3] f32[67] i32[33]:p11", "c[33,67]", "tokens = 11\nactivation = \"silu\"", 8, 2,
     11, 0},
    {"c[6,130] c[130,16] f32[130]", "c[6,130]", "tokens = 2\nactivation = \"none\"", 20, 1, 2, 0},
    {"c[9,1] c[1,1] - i32[9]:p9", "c[9,1]", "tokens = 9\nactivation = \"none\"", 4, 1, 0, 0},
    {"c[1,3] c[3,2]", "c[1,3]", "tokens = 1", 4, 2, 0, 0},
};

static const lathe_op_kernel kernels[] = {
    {.name = "portable", .score = lathe_op_score_portable, .run = forward},
    {.name = "cuda",
     .score = lathe_op_score_portable,
     .queue = queue_forward,
     .image = LATHE_CUDA_IMAGE},
};
static const lathe_op_kernel backward_kernels[] = {
    {.name = "portable", .score = lathe_op_score_portable, .run = backward},
    {.name = "cuda",
     .score = lathe_op_score_portable,
     .queue = queue_backward,
     .image = LATHE_CUDA_IMAGE},
};
static const lathe_op_backward own_backward = {
    .reads_in = 1u << X | 1u << W | 1u << B | 1u << DOC_START,
    .accumulates = 1,
    .kernels = backward_kernels,
    .n_kernels = LATHE_OP_COUNT(backward_kernels),
    .flops = backward_flops,
    .exact = backward_exact,
};

static const lathe_op_state state = {.tokens = "tokens", .shape = state_shape};

static const lathe_op_v1 short_conv_table = {
    LATHE_OP_HEADER,
    LATHE_OP_LISTS,
    .traits = LATHE_OP_CHEAP | LATHE_OP_ACCUMULATES,
    .shape = shape,
    .flops = flops,
    .exact = exact,
    .backward = &own_backward,
    .kernels = kernels,
    .n_kernels = LATHE_OP_COUNT(kernels),
    .state = &state,
};

LATHE_OP_ENTRY(short_conv, LATHE_PLUGIN_FIELDS, .version = "0.1.0",
               .summary = "causal convolution of a few taps along the tokens of each channel",
               .source = "Dao-AILab/causal-conv1d, causal_conv1d_fn; documents are ours",
               .license = "Apache-2.0");

/* Linear attention with a decaying state, token by token, in double precision. */
#include "scan_exact.h"

#include <math.h>
#include <string.h>

/* One head of a row, and its tokens. */
typedef struct exact_head {
    const scan_args *a;
    const double *const *x;
    int64_t row;
    int32_t head, key;
    int32_t n_in, reserved; /* inputs, without those of a state */
} exact_head;

static const double *vector(const exact_head *h, int input, int64_t t)
{
    const scan_args *a = h->a;
    const int64_t n = h->row + t;
    return input == SCAN_V ? h->x[SCAN_V] + (n * a->heads + h->head) * a->value_dim
                           : h->x[input] + (n * a->key_heads + h->key) * a->key_dim;
}

static double number(const exact_head *h, int input, int64_t t)
{
    return h->x[input][(h->row + t) * h->a->heads + h->head];
}

static int begins(const exact_head *h, int64_t t)
{
    const double *doc = h->x[SCAN_DOC_START];
    return t == 0 || (doc != NULL && doc[h->row + t] != doc[h->row + t - 1]);
}

/* One token: state [Dk,Dv], from S_(t-1) to S_t; u [Dv]. */
static void step(const exact_head *h, int64_t t, double *state, double *u)
{
    const int32_t nk = h->a->key_dim, nv = h->a->value_dim;
    const double decay = exp(number(h, SCAN_G, t)), beta = number(h, SCAN_BETA, t);
    const double *k = vector(h, SCAN_K, t), *v = vector(h, SCAN_V, t);
    for (int32_t j = 0; j < nv; j++) {
        double seen = 0.0;
        for (int32_t i = 0; i < nk; i++) {
            state[i * nv + j] *= decay;
            seen += state[i * nv + j] * k[i];
        }
        u[j] = beta * (v[j] - (h->a->corrects ? seen : 0.0));
        for (int32_t i = 0; i < nk; i++)
            state[i * nv + j] += k[i] * u[j];
    }
}

static int skips(const exact_head *h)
{
    return h->n_in > SCAN_SKIP && h->x[SCAN_SKIP] != NULL;
}

static void output(const exact_head *h, int64_t t, const double *state, double *o)
{
    const int32_t nk = h->a->key_dim, nv = h->a->value_dim;
    const double *q = vector(h, SCAN_Q, t);
    double *const to = o + ((h->row + t) * h->a->heads + h->head) * nv;
    for (int32_t j = 0; j < nv; j++) {
        if (skips(h))
            to[j] = number(h, SCAN_SKIP, t) * vector(h, SCAN_V, t)[j];
        for (int32_t i = 0; i < nk; i++)
            to[j] += (double)h->a->scale * q[i] * state[i * nv + j];
    }
}

/* The state of a sequence in memory (scan_state_size): that before its chunk, and the chunk's
 * tokens. */
typedef struct kept_state {
    double *state, *kt, *u, *log, *head;
    int64_t ld;
} kept_state;

static kept_state kept_at(const scan_args *a, double *memory)
{
    kept_state s = {.state = memory, .ld = scan_ld(a->value_dim)};
    s.kt = s.state + a->key_dim * s.ld;
    s.u = s.kt + a->key_dim * SCAN_CHUNK;
    s.log = s.u + SCAN_CHUNK * s.ld;
    s.head = s.log + SCAN_CHUNK;
    return s;
}

/* S after the tokens of the chunk: element (i, j). */
static double now(const kept_state *s, int64_t i, int64_t j)
{
    const int64_t n = (int64_t)s->head[0];
    double sum = s->state[i * s->ld + j];
    if (n > 0)
        sum *= exp(s->log[n - 1]);
    for (int64_t t = 0; t < n; t++)
        sum += exp(s->log[n - 1] - s->log[t]) * s->kt[i * SCAN_CHUNK + t] * s->u[t * s->ld + j];
    return sum;
}

/* Adds the token to the chunk; after the last one the chunk becomes the state. */
static void keep(const exact_head *h, int64_t t, const kept_state *s, const double *u)
{
    const int32_t nk = h->a->key_dim, nv = h->a->value_dim;
    const int64_t n = (int64_t)s->head[0];
    const double *k = vector(h, SCAN_K, t);
    for (int32_t i = 0; i < nk; i++)
        s->kt[i * SCAN_CHUNK + n] = k[i];
    memcpy(s->u + n * s->ld, u, (size_t)nv * sizeof *u);
    s->log[n] = number(h, SCAN_G, t) + (n > 0 ? s->log[n - 1] : 0.0);
    s->head[0] = (double)(n + 1);
    if (n + 1 < SCAN_CHUNK)
        return;
    for (int32_t i = 0; i < nk; i++)
        for (int32_t j = 0; j < nv; j++)
            s->state[i * s->ld + j] = now(s, i, j);
    s->head[0] = 0.0;
    s->head[1] = 1.0;
}

/* state [Dk,Dv], u [Dv]: memory. */
static void row_forward(const exact_head *h, const kept_state *kept, double *o, double *state,
                        double *u)
{
    const int32_t nk = h->a->key_dim, nv = h->a->value_dim;
    for (int32_t i = 0; i < nk; i++)
        for (int32_t j = 0; j < nv; j++)
            state[i * nv + j] = kept != NULL ? now(kept, i, j) : 0.0;
    for (int64_t t = 0; t < h->a->tokens; t++) {
        if (kept == NULL && begins(h, t))
            memset(state, 0, (size_t)((int64_t)nk * nv) * sizeof *state);
        step(h, t, state, u);
        output(h, t, state, o);
        if (kept != NULL)
            keep(h, t, kept, u);
    }
}

void scan_exact_forward(const lathe_host *host, const scan_args *a, int32_t n_in,
                        const double *const *x, double *const *y)
{
    const int64_t size = scan_state_size(a->key_dim, a->value_dim),
                  plain = (int64_t)a->key_dim * a->value_dim;
    double *const memory = host->alloc((plain + a->value_dim) * 8);
    for (int64_t b = 0; memory != NULL && b < a->n_rows; b++)
        for (int32_t head = 0; head < a->heads; head++) {
            const exact_head h = {a,    x, b * a->tokens, head, head / (a->heads / a->key_heads),
                                  n_in, 0};
            const int64_t slot = y[1] != NULL ? (int64_t)x[n_in][b] : -1;
            const kept_state kept =
                kept_at(a, slot >= 0 ? y[1] + (slot * a->heads + head) * size : memory);
            row_forward(&h, slot >= 0 ? &kept : NULL, y[0], memory, memory + plain);
        }
    host->free(memory);
}

/* ---- backward ---- */

/* Where the gradients of a token's vectors and numbers are; NULL: not wanted. */
static double *gradient(const exact_head *h, double *const *y, int input, int64_t t)
{
    if (y[input] == NULL)
        return NULL;
    if (input == SCAN_G || input == SCAN_BETA || input == SCAN_SKIP)
        return y[input] + (h->row + t) * h->a->heads + h->head;
    return y[input] + (vector(h, input, t) - h->x[input]);
}

static void add_to(double *to, int32_t i, double x)
{
    if (to != NULL)
        to[i] += x;
}

/* One token, backwards: ds [Dk,Dv], from the gradient of S_t to that of S_(t-1). before: S_(t-1);
 * dout: the gradient of o_t, whose own share in ds is already in it; u, r [Dv]: memory. */
static void step_back(const exact_head *h, double *const *y, int64_t t, const double *before,
                      double *ds)
{
    const int32_t nk = h->a->key_dim, nv = h->a->value_dim;
    const double decay = exp(number(h, SCAN_G, t)), beta = number(h, SCAN_BETA, t);
    const double *k = vector(h, SCAN_K, t), *v = vector(h, SCAN_V, t);
    double *const dk = gradient(h, y, SCAN_K, t), *const dv = gradient(h, y, SCAN_V, t),
                  *const dg = gradient(h, y, SCAN_G, t),
                  *const dbeta = gradient(h, y, SCAN_BETA, t);
    for (int32_t j = 0; j < nv; j++) {
        double seen = 0.0, du = 0.0;
        for (int32_t i = 0; i < nk; i++) {
            seen += decay * before[i * nv + j] * k[i];
            du += ds[i * nv + j] * k[i];
        }
        const double r = v[j] - (h->a->corrects ? seen : 0.0);
        add_to(dbeta, 0, du * r);
        add_to(dv, j, beta * du);
        for (int32_t i = 0; i < nk; i++) {
            add_to(dk, i, ds[i * nv + j] * beta * r);
            if (h->a->corrects) {
                add_to(dk, i, -beta * decay * before[i * nv + j] * du);
                ds[i * nv + j] -= beta * k[i] * du;
            }
            add_to(dg, 0, ds[i * nv + j] * decay * before[i * nv + j]);
            ds[i * nv + j] *= decay;
        }
    }
}

/* Memory of one head: states before each token, two states, a value. */
typedef struct back_memory {
    double *before; /* [T,Dk,Dv] */
    double *state, *ds, *u;
} back_memory;

static void row_backward(const exact_head *h, const double *dout, double *const *y,
                         const back_memory *m)
{
    const int32_t nk = h->a->key_dim, nv = h->a->value_dim;
    const int64_t size = (int64_t)nk * nv, bytes = 8 * size;
    for (int64_t t = 0; t < h->a->tokens; t++) {
        if (begins(h, t))
            memset(m->state, 0, (size_t)bytes);
        memcpy(m->before + t * size, m->state, (size_t)bytes);
        step(h, t, m->state, m->u);
    }
    for (int64_t t = h->a->tokens - 1; t >= 0; t--) {
        const double *d = dout + ((h->row + t) * h->a->heads + h->head) * nv,
                     *q = vector(h, SCAN_Q, t);
        double *const dq = gradient(h, y, SCAN_Q, t);
        if (t + 1 == h->a->tokens || begins(h, t + 1))
            memset(m->ds, 0, (size_t)bytes);
        memcpy(m->state, m->before + t * size, (size_t)bytes);
        step(h, t, m->state, m->u);
        for (int32_t i = 0; i < nk; i++)
            for (int32_t j = 0; j < nv; j++) {
                add_to(dq, i, (double)h->a->scale * m->state[i * nv + j] * d[j]);
                m->ds[i * nv + j] += (double)h->a->scale * q[i] * d[j];
            }
        for (int32_t j = 0; j < nv && skips(h); j++) {
            add_to(gradient(h, y, SCAN_SKIP, t), 0, d[j] * vector(h, SCAN_V, t)[j]);
            add_to(gradient(h, y, SCAN_V, t), j, number(h, SCAN_SKIP, t) * d[j]);
        }
        step_back(h, y, t, m->before + t * size, m->ds);
    }
}

void scan_exact_backward(const lathe_host *host, const scan_args *a, int32_t n_in,
                         const double *const *x, double *const *y)
{
    const int64_t size = (int64_t)a->key_dim * a->value_dim;
    double *const memory = host->alloc(((a->tokens + 2) * size + a->value_dim) * 8);
    const back_memory m = {memory, memory + a->tokens * size, memory + (a->tokens + 1) * size,
                           memory + (a->tokens + 2) * size};
    for (int64_t b = 0; memory != NULL && x[0] != NULL && b < a->n_rows; b++)
        for (int32_t head = 0; head < a->heads; head++) {
            const exact_head h = {
                a, x + 1, b * a->tokens, head, head / (a->heads / a->key_heads), n_in, 0};
            row_backward(&h, x[0], y, &m);
        }
    host->free(memory);
}

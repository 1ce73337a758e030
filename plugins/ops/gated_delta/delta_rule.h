/* The gated delta rule of one head, chunk by chunk, forward and backward.
 *
 *     S_t = e^(g_t) S_(t-1) + k_t u_t',   u_t = beta_t (v_t - (e^(g_t) S_(t-1))' k_t),
 *     o_t = scale S_t' q_t
 *
 * In a chunk that begins with the state S, with b_t the sum of g from the chunk's first token to t
 * (arXiv:2412.06464, section 3.3; its WY form, with U solved for directly):
 *
 *     r_t = v_t - e^(b_t) S' k_t - sum over j < t of e^(b_t - b_j) (k_t.k_j) u_j,  u_t = beta_t r_t
 *     o_t = scale (e^(b_t) S' q_t + sum over j <= t of e^(b_t - b_j) (q_t.k_j) u_j)
 *     S after n tokens = e^(b_n) S + sum over j of e^(b_n - b_j) k_j u_j'
 *
 * Each sum is computed in the order of its index, each element by itself. A token's bits therefore
 * depend only on its place in the document, and not on how the document comes: whole, in parts, or
 * token by token. Documents begin with a chunk of their own.
 *
 * The including file defines what differs between devices: DELTA_RULE (specifiers of a function),
 * DELTA_EMPTY (an initializer), EACH(i, n) (the items of this lane), LANE, sync(), and
 *
 *     multiply(m, n, k, a, a_row, a_col, b, b_ld, c, c_ld, adds)   c [m,n] = or += a b;
 *              element (i,p) of a is a[i * a_row + p * a_col]; n is a multiple of DELTA_TILE
 *     dot(x, y, n)
 *     read_rows(from, dtype, at, step, rows, columns, factor, to, ld)   zeros up to ld
 *     write_rows(from, ld, rows, columns, factor, to, dtype, at, step, adds)
 *     transpose(from, from_ld, rows, columns, to, to_ld)
 *
 * multiply, read_rows, write_rows and transpose end with a sync().
 */

/* One head of a row. */
typedef struct delta_head {
    const delta_args *a;
    int64_t row;       /* first token of the row */
    int32_t head, key; /* of v and g; of q and k */
    int64_t kld, vld;  /* rows of keys and of values */
} delta_head;

/* Memory of a chunk: see delta_state_size. */
typedef struct delta_chunk {
    float *state, *kt, *u, *log, *head;
} delta_chunk;

typedef struct delta_work {
    float *q, *k, *y;     /* [64, kld]: q is scaled; y: a product */
    float *kk, *qk;       /* [64, 64]: -e^(b_t - b_j) k_t.k_j, j < t; e^(b_t - b_j) q_t.k_j */
    float *x;             /* [64, vld] */
    float *beta;          /* [64] */
    float *pair;          /* [64, 64] e^(b_t - b_j), or NULL in the forward; as all that follows */
    float *dkk, *dqk, *s; /* [64, 64] gradients of kk and qk; their share in those of b */
    float *r, *dout, *du; /* [64, vld]; du: the gradient of u, then that of r */
    float *ut;            /* [vld, 64] */
    float *dstate;        /* [Dk, vld] gradient of the state after the chunk */
    float *turned;        /* [vld, kld] a state transposed */
    float *dlog, *dbeta;  /* [64] */
    float *kept;          /* [., Dk, vld] states before chunks */
    float *dq, *dk;       /* [T, kld] */
    int32_t *starts;      /* number of chunks, their first tokens, T */
} delta_work;

DELTA_RULE float *delta_take(float **io, int64_t n)
{
    float *const at = *io;
    *io += n;
    return at;
}

DELTA_RULE delta_chunk delta_chunk_at(const delta_args *a, float *memory)
{
    const int64_t v = delta_ld(a->value_dim);
    delta_chunk c;
    c.state = delta_take(&memory, a->key_dim * v);
    c.kt = delta_take(&memory, a->key_dim * DELTA_CHUNK);
    c.u = delta_take(&memory, DELTA_CHUNK * v);
    c.log = delta_take(&memory, DELTA_CHUNK);
    c.head = memory;
    return c;
}

DELTA_RULE delta_work delta_work_at(const delta_args *a, int is_backward, float **io,
                                    delta_chunk *out)
{
    const int64_t k = DELTA_CHUNK * delta_ld(a->key_dim), v = DELTA_CHUNK * delta_ld(a->value_dim);
    const int64_t pairs = DELTA_CHUNK * DELTA_CHUNK, state = a->key_dim * delta_ld(a->value_dim);
    delta_work w = DELTA_EMPTY;
    *out = delta_chunk_at(a, delta_take(io, delta_state_size(a->key_dim, a->value_dim)));
    w.q = delta_take(io, k);
    w.k = delta_take(io, k);
    w.y = delta_take(io, k);
    w.kk = delta_take(io, pairs);
    w.qk = delta_take(io, pairs);
    w.x = delta_take(io, v);
    w.beta = delta_take(io, DELTA_CHUNK);
    if (!is_backward)
        return w;
    w.pair = delta_take(io, pairs);
    w.dkk = delta_take(io, pairs);
    w.dqk = delta_take(io, pairs);
    w.s = delta_take(io, pairs);
    w.r = delta_take(io, v);
    w.dout = delta_take(io, v);
    w.du = delta_take(io, v);
    w.ut = delta_take(io, v);
    w.dstate = delta_take(io, state);
    w.turned = delta_take(io, delta_ld(a->value_dim) * delta_ld(a->key_dim));
    w.dlog = delta_take(io, DELTA_CHUNK);
    w.dbeta = delta_take(io, DELTA_CHUNK);
    w.kept = delta_take(io, delta_kept_states(a->tokens) * state);
    w.dq = delta_take(io, a->tokens * delta_ld(a->key_dim));
    w.dk = delta_take(io, a->tokens * delta_ld(a->key_dim));
    w.starts = (int32_t *)delta_take(io, delta_ld(a->tokens + 2));
    return w;
}

DELTA_RULE delta_head delta_head_of(const delta_args *a, int64_t row, int32_t head)
{
    delta_head h;
    h.a = a;
    h.row = row * a->tokens;
    h.head = head;
    h.key = head / (a->heads / a->key_heads);
    h.kld = delta_ld(a->key_dim);
    h.vld = delta_ld(a->value_dim);
    return h;
}

/* to[t] = sign * e^log[t] * from[t], for rows of ld floats. */
DELTA_RULE void delta_scale(const float *from, int64_t ld, int64_t rows, const float *log,
                            float sign, float *to)
{
    for (int64_t t = 0; t < rows; t++) {
        const float factor = sign * expf(log[t]);
        for (EACH(i, ld))
            to[t * ld + i] = factor * from[t * ld + i];
    }
    sync();
}

/* to[t] = e^(last - log[t]) from[t]: how much of token t is left after the chunk's last. */
DELTA_RULE void delta_left(const float *from, int64_t ld, int64_t rows, const float *log, float *to)
{
    const float last = log[rows - 1];
    for (int64_t t = 0; t < rows; t++) {
        const float factor = expf(last - log[t]);
        for (EACH(i, ld))
            to[t * ld + i] = factor * from[t * ld + i];
    }
    sync();
}

/* Reads tokens begin .. end-1 of a chunk, the first of which is token `at` of the row: q, k and
 * beta, v to the places of u, and the sums of g. */
DELTA_RULE void delta_read(const delta_head *h, int64_t at, int64_t begin, int64_t end,
                           const delta_chunk *c, const delta_work *w)
{
    const delta_args *a = h->a;
    const int64_t n = end - begin, keys = (int64_t)a->key_heads * a->key_dim,
                  values = (int64_t)a->heads * a->value_dim, first = h->row + at;
    read_rows(a->q, a->dtype, first * keys + (int64_t)h->key * a->key_dim, keys, n, a->key_dim,
              a->scale, w->q, h->kld);
    read_rows(a->k, a->dtype, first * keys + (int64_t)h->key * a->key_dim, keys, n, a->key_dim,
              1.0f, w->k, h->kld);
    read_rows(a->v, a->dtype, first * values + (int64_t)h->head * a->value_dim, values, n,
              a->value_dim, 1.0f, c->u + begin * h->vld, h->vld);
    transpose(w->k, h->kld, n, a->key_dim, c->kt + begin, DELTA_CHUNK);
    if (LANE == 0) {
        float sum = begin > 0 ? c->log[begin - 1] : 0.0f;
        for (int64_t t = 0; t < n; t++) {
            sum += a->g[(first + t) * a->heads + h->head];
            c->log[begin + t] = sum;
            w->beta[t] = a->beta[(first + t) * a->heads + h->head];
        }
    }
    sync();
}

/* kk and qk of tokens begin .. end-1, zero beyond the token itself. */
DELTA_RULE void delta_pairs(const delta_head *h, int64_t begin, int64_t end, const delta_chunk *c,
                            const delta_work *w)
{
    const int64_t n = end - begin, width = delta_ld(end), dim = h->a->key_dim;
    for (int64_t r = 0; r < n; r += DELTA_TILE) {
        const int64_t m = n - r < DELTA_TILE ? n - r : DELTA_TILE;
        const int64_t seen = delta_ld(begin + r + m);
        multiply(m, seen, dim, w->k + r * h->kld, h->kld, 1, c->kt, DELTA_CHUNK,
                 w->kk + r * DELTA_CHUNK, DELTA_CHUNK, 0);
        multiply(m, seen, dim, w->q + r * h->kld, h->kld, 1, c->kt, DELTA_CHUNK,
                 w->qk + r * DELTA_CHUNK, DELTA_CHUNK, 0);
    }
    for (int64_t t = 0; t < n; t++)
        for (EACH(j, width)) {
            const int64_t at = t * DELTA_CHUNK + j;
            const float e = j <= begin + t ? expf(c->log[begin + t] - c->log[j]) : 0.0f;
            w->kk[at] = j < begin + t ? -e * w->kk[at] : 0.0f;
            w->qk[at] = j <= begin + t ? e * w->qk[at] : 0.0f;
            if (w->pair != 0)
                w->pair[at] = e;
        }
    sync();
}

/* u of tokens begin .. end-1, in the places of v. */
DELTA_RULE void delta_solve(const delta_head *h, int64_t begin, int64_t end, int is_first,
                            const delta_chunk *c, const delta_work *w)
{
    enum { AT_A_TIME = 8 };
    const int64_t n = end - begin, v = h->vld;
    if (!is_first) {
        delta_scale(w->k, h->kld, n, c->log + begin, -1.0f, w->y);
        multiply(n, v, h->a->key_dim, w->y, h->kld, 1, c->state, v, c->u + begin * v, v, 1);
    }
    for (int64_t r = 0; r < n; r += AT_A_TIME) {
        const int64_t m = n - r < AT_A_TIME ? n - r : AT_A_TIME, at = begin + r;
        if (at > 0)
            multiply(m, v, at, w->kk + r * DELTA_CHUNK, DELTA_CHUNK, 1, c->u, v, c->u + at * v, v,
                     1);
        for (int64_t i = 0; i < m; i++) {
            float *const u = c->u + (at + i) * v;
            if (i > 0)
                multiply(1, v, i, w->kk + (r + i) * DELTA_CHUNK + at, DELTA_CHUNK, 1, c->u + at * v,
                         v, u, v, 1);
            for (EACH(j, v)) {
                if (w->r != 0)
                    w->r[(r + i) * v + j] = u[j];
                u[j] *= w->beta[r + i];
            }
            sync();
        }
    }
}

/* o of tokens begin .. end-1, to w->x. */
DELTA_RULE void delta_outputs(const delta_head *h, int64_t begin, int64_t end, int is_first,
                              const delta_chunk *c, const delta_work *w)
{
    const int64_t n = end - begin, v = h->vld;
    if (!is_first) {
        delta_scale(w->q, h->kld, n, c->log + begin, 1.0f, w->y);
        multiply(n, v, h->a->key_dim, w->y, h->kld, 1, c->state, v, w->x, v, 0);
    }
    for (int64_t r = 0; r < n; r += DELTA_TILE) {
        const int64_t m = n - r < DELTA_TILE ? n - r : DELTA_TILE;
        multiply(m, v, begin + r + m, w->qk + r * DELTA_CHUNK, DELTA_CHUNK, 1, c->u, v,
                 w->x + r * v, v, !is_first);
    }
}

/* The state after a chunk of n tokens, to `to`, which may be the state before it. */
DELTA_RULE void delta_fold(const delta_head *h, int64_t n, int is_first, const delta_chunk *c,
                           const delta_work *w, float *to)
{
    const int64_t v = h->vld, count = h->a->key_dim * v;
    const float left = expf(c->log[n - 1]);
    delta_left(c->u, v, n, c->log, w->x);
    if (!is_first)
        for (EACH(i, count))
            to[i] = left * c->state[i];
    sync();
    multiply(h->a->key_dim, v, n, c->kt, DELTA_CHUNK, 1, w->x, v, to, v, !is_first);
}

/* Whether token t of the row begins a document. */
DELTA_RULE int delta_begins(const delta_head *h, int64_t t)
{
    const int32_t *doc = h->a->doc_start;
    return t == 0 || (doc != 0 && doc[h->row + t] != doc[h->row + t - 1]);
}

/* The token after the chunk that begins at token t. */
DELTA_RULE int64_t delta_chunk_end(const delta_head *h, int64_t t)
{
    int64_t end = t + 1;
    while (end < h->a->tokens && end < t + DELTA_CHUNK && !delta_begins(h, end))
        end++;
    return end;
}

DELTA_RULE void delta_write_outputs(const delta_head *h, int64_t at, int64_t n, const delta_work *w)
{
    const delta_args *a = h->a;
    const int64_t values = (int64_t)a->heads * a->value_dim;
    write_rows(w->x, h->vld, n, a->value_dim, 1.0f, a->out[0], a->dtype,
               (h->row + at) * values + (int64_t)h->head * a->value_dim, values,
               a->accumulate & 1u);
}

/* A whole row of one head. */
DELTA_RULE void delta_forward_row(const delta_head *h, const delta_chunk *c, const delta_work *w)
{
    for (int64_t t = 0, end; t < h->a->tokens; t = end) {
        const int is_first = delta_begins(h, t);
        end = delta_chunk_end(h, t);
        delta_read(h, t, 0, end - t, c, w);
        delta_pairs(h, 0, end - t, c, w);
        delta_solve(h, 0, end - t, is_first, c, w);
        delta_outputs(h, 0, end - t, is_first, c, w);
        delta_write_outputs(h, t, end - t, w);
        if (end < h->a->tokens && !delta_begins(h, end))
            delta_fold(h, end - t, is_first, c, w, c->state);
    }
}

/* A part of a sequence, whose chunk is in the memory of its state. */
DELTA_RULE void delta_continue_row(const delta_head *h, const delta_chunk *c, const delta_work *w)
{
    int64_t begin = (int64_t)c->head[0];
    int is_first = c->head[1] == 0.0f;
    for (int64_t t = 0, n; t < h->a->tokens; t += n) {
        n = h->a->tokens - t < DELTA_CHUNK - begin ? h->a->tokens - t : DELTA_CHUNK - begin;
        delta_read(h, t, begin, begin + n, c, w);
        delta_pairs(h, begin, begin + n, c, w);
        delta_solve(h, begin, begin + n, is_first, c, w);
        delta_outputs(h, begin, begin + n, is_first, c, w);
        delta_write_outputs(h, t, n, w);
        begin += n;
        if (begin == DELTA_CHUNK) {
            delta_fold(h, DELTA_CHUNK, is_first, c, w, c->state);
            begin = is_first = 0;
        }
    }
    sync();
    if (LANE == 0) {
        c->head[0] = (float)begin;
        c->head[1] = is_first ? 0.0f : 1.0f;
    }
    sync();
}

/* Rows of one sequence follow each other, so that one item has them all. */
DELTA_RULE void delta_continue(const delta_args *a, int32_t head, float *scratch)
{
    const int64_t size = delta_state_size(a->key_dim, a->value_dim);
    delta_chunk own;
    const delta_work w = delta_work_at(a, 0, &scratch, &own);
    for (int64_t b = 0; b < a->n_rows; b++) {
        const delta_head h = delta_head_of(a, b, head);
        const int64_t slot = a->slots[b];
        if (slot < 0) { /* padding: a sequence that is forgotten */
            for (EACH(i, size))
                own.state[i] = 0.0f;
            sync();
        }
        const delta_chunk kept =
            slot < 0 ? own : delta_chunk_at(a, a->states + (slot * a->heads + head) * size);
        delta_continue_row(&h, &kept, &w);
    }
}

DELTA_RULE void delta_forward_item(const delta_args *a, int64_t item, float *scratch)
{
    if (a->slots != 0) {
        delta_continue(a, (int32_t)item, scratch);
        return;
    }
    delta_chunk c;
    const delta_work w = delta_work_at(a, 0, &scratch, &c);
    const delta_head h = delta_head_of(a, item / a->heads, (int32_t)(item % a->heads));
    delta_forward_row(&h, &c, &w);
}

/* ---- backward ---- */

/* du: from the outputs and from the state after the chunk; then through the solution, from the last
 * token to the first: du_t += sum over i > t of kk[i,t] beta_i du_i. Leaves the gradient of r,
 * beta_t du_t, and dbeta. */
DELTA_RULE void delta_solve_backward(const delta_head *h, int64_t n, int has_next,
                                     const delta_chunk *c, const delta_work *w)
{
    enum { AT_A_TIME = 8 };
    const int64_t v = h->vld;
    multiply(n, v, n, w->qk, 1, DELTA_CHUNK, w->dout, v, w->du, v, 0);
    if (has_next) {
        delta_left(w->k, h->kld, n, c->log, w->y);
        multiply(n, v, h->a->key_dim, w->y, h->kld, 1, w->dstate, v, w->du, v, 1);
    }
    for (int64_t r = (n - 1) / AT_A_TIME * AT_A_TIME; r >= 0; r -= AT_A_TIME) {
        const int64_t m = n - r < AT_A_TIME ? n - r : AT_A_TIME, after = r + m;
        if (after < n)
            multiply(m, v, n - after, w->kk + after * DELTA_CHUNK + r, 1, DELTA_CHUNK,
                     w->du + after * v, v, w->du + r * v, v, 1);
        for (int64_t t = after - 1; t >= r; t--) {
            if (t + 1 < after)
                multiply(1, v, after - t - 1, w->kk + (t + 1) * DELTA_CHUNK + t, 1, DELTA_CHUNK,
                         w->du + (t + 1) * v, v, w->du + t * v, v, 1);
            if (LANE == 0)
                w->dbeta[t] = dot(w->du + t * v, w->r + t * v, v);
            sync();
            for (EACH(j, v))
                w->du[t * v + j] *= w->beta[t];
            sync();
        }
    }
}

/* dkk and dqk, as factors of k_t.k_j and of q_t.k_j, and their share in the gradients of b. */
DELTA_RULE void delta_pairs_backward(const delta_head *h, int64_t n, const delta_chunk *c,
                                     const delta_work *w)
{
    const int64_t v = h->vld, width = delta_ld(n), dim = h->a->value_dim;
    for (EACH(i, v * DELTA_CHUNK))
        w->ut[i] = 0.0f;
    sync();
    transpose(c->u, v, n, dim, w->ut, DELTA_CHUNK);
    multiply(n, width, dim, w->du, v, 1, w->ut, DELTA_CHUNK, w->dkk, DELTA_CHUNK, 0);
    multiply(n, width, dim, w->dout, v, 1, w->ut, DELTA_CHUNK, w->dqk, DELTA_CHUNK, 0);
    for (int64_t t = 0; t < n; t++)
        for (EACH(j, width)) {
            const int64_t at = t * DELTA_CHUNK + j;
            w->s[at] = j < t ? w->dkk[at] * w->kk[at] + w->dqk[at] * w->qk[at] : 0.0f;
            w->dkk[at] = j < t ? -w->pair[at] * w->dkk[at] : 0.0f;
            w->dqk[at] = j <= t ? w->pair[at] * w->dqk[at] : 0.0f;
        }
    sync();
    for (EACH(t, n)) {
        float sum = 0.0f;
        for (int64_t j = 0; j < t; j++)
            sum += w->s[t * DELTA_CHUNK + j];
        for (int64_t i = t + 1; i < n; i++)
            sum -= w->s[i * DELTA_CHUNK + t];
        w->dlog[t] = sum;
    }
    sync();
}

/* dlog[t] += sign * y_t.x_t */
DELTA_RULE void delta_add_dots(const delta_head *h, int64_t n, const float *x, float sign,
                               const delta_work *w)
{
    for (EACH(t, n))
        w->dlog[t] += sign * dot(w->y + t * h->kld, x + t * h->kld, h->kld);
    sync();
}

/* to (+)= y */
DELTA_RULE void delta_add_y(const delta_head *h, int64_t n, const delta_work *w, int adds,
                            float *to)
{
    for (EACH(i, n * h->kld))
        to[i] = adds ? to[i] + w->y[i] : w->y[i];
    sync();
}

/* The parts of dq and dk that come through the state before the chunk. dq, dk: of its tokens. */
DELTA_RULE void delta_state_backward(const delta_head *h, int64_t n, int adds, const delta_chunk *c,
                                     const delta_work *w, float *dq, float *dk)
{
    const int64_t v = h->vld, dim = h->a->value_dim;
    transpose(c->state, v, h->a->key_dim, v, w->turned, h->kld);
    delta_scale(w->dout, v, n, c->log, 1.0f, w->x);
    multiply(n, h->kld, dim, w->x, v, 1, w->turned, h->kld, w->y, h->kld, 0);
    delta_add_dots(h, n, w->q, 1.0f, w);
    delta_add_y(h, n, w, adds, dq);
    delta_scale(w->du, v, n, c->log, -1.0f, w->x);
    multiply(n, h->kld, dim, w->x, v, 1, w->turned, h->kld, w->y, h->kld, 0);
    delta_add_dots(h, n, w->k, 1.0f, w);
    delta_add_y(h, n, w, adds, dk);
}

/* The part of dk that comes through the state after the chunk: token t is left in it with
 * e^(b_n - b_t). */
DELTA_RULE void delta_next_backward(const delta_head *h, int64_t n, const delta_chunk *c,
                                    const delta_work *w, float *dk)
{
    const int64_t v = h->vld;
    transpose(w->dstate, v, h->a->key_dim, v, w->turned, h->kld);
    delta_left(c->u, v, n, c->log, w->x);
    multiply(n, h->kld, h->a->value_dim, w->x, v, 1, w->turned, h->kld, w->y, h->kld, 0);
    delta_add_y(h, n, w, 1, dk);
    for (EACH(t, n))
        w->s[t] = dot(w->y + t * h->kld, w->k + t * h->kld, h->kld);
    sync();
    if (LANE == 0)
        for (int64_t t = 0; t < n; t++) {
            w->dlog[t] -= w->s[t];
            w->dlog[n - 1] += w->s[t];
        }
    sync();
}

/* dstate, from the gradient of the state after the chunk to that of the state before it. */
DELTA_RULE void delta_fold_backward(const delta_head *h, int64_t n, int has_next,
                                    const delta_chunk *c, const delta_work *w)
{
    const int64_t v = h->vld, dim = h->a->key_dim;
    const float left = expf(c->log[n - 1]);
    if (has_next) {
        if (LANE == 0)
            for (int64_t i = 0; i < dim; i++)
                w->dlog[n - 1] += left * dot(c->state + i * v, w->dstate + i * v, v);
        sync();
        for (EACH(i, dim * v))
            w->dstate[i] *= left;
        sync();
    }
    delta_scale(w->du, v, n, c->log, -1.0f, w->x);
    multiply(dim, v, n, w->k, 1, h->kld, w->x, v, w->dstate, v, has_next);
    delta_scale(w->dout, v, n, c->log, 1.0f, w->x);
    multiply(dim, v, n, w->q, 1, h->kld, w->x, v, w->dstate, v, 1);
}

/* Gradients of v, g and beta of a chunk that begins with token t of the row. */
DELTA_RULE void delta_write_gradients(const delta_head *h, int64_t at, int64_t n,
                                      const delta_work *w)
{
    const delta_args *a = h->a;
    const int64_t values = (int64_t)a->heads * a->value_dim, first = h->row + at;
    float *const dg = (float *)a->out[3], *const dbeta = (float *)a->out[4];
    if (a->out[2] != 0)
        write_rows(w->du, h->vld, n, a->value_dim, 1.0f, a->out[2], a->dtype,
                   first * values + (int64_t)h->head * a->value_dim, values,
                   a->accumulate >> 2 & 1u);
    if (LANE == 0) {
        float sum = 0.0f; /* g_t is in b of all later tokens */
        for (int64_t t = n - 1; t >= 0; t--) {
            const int64_t i = (first + t) * a->heads + h->head;
            sum += w->dlog[t];
            if (dg != 0)
                dg[i] = a->accumulate >> 3 & 1u ? dg[i] + sum : sum;
            if (dbeta != 0)
                dbeta[i] = a->accumulate >> 4 & 1u ? dbeta[i] + w->dbeta[t] : w->dbeta[t];
        }
    }
    sync();
}

/* A chunk of n tokens from token t of the row on. c->state is the state before it, unless it is the
 * first of a document; w->dstate, if has_next, the gradient of the state after it. adds: to dq and
 * dk, which other heads of v have begun. */
DELTA_RULE void delta_chunk_backward(const delta_head *h, int64_t at, int64_t n, int is_first,
                                     int has_next, int adds, const delta_chunk *c,
                                     const delta_work *w)
{
    const delta_args *a = h->a;
    const int64_t values = (int64_t)a->heads * a->value_dim, k = h->kld;
    float *const dq = w->dq + at * k, *const dk = w->dk + at * k;
    delta_read(h, at, 0, n, c, w);
    read_rows(a->d_out, a->dtype, (h->row + at) * values + (int64_t)h->head * a->value_dim, values,
              n, a->value_dim, 1.0f, w->dout, h->vld);
    delta_pairs(h, 0, n, c, w);
    delta_solve(h, 0, n, is_first, c, w);
    delta_solve_backward(h, n, has_next, c, w);
    delta_pairs_backward(h, n, c, w);
    if (!is_first)
        delta_state_backward(h, n, adds, c, w, dq, dk);
    const int adds_on = adds || !is_first;
    multiply(n, k, n, w->dqk, DELTA_CHUNK, 1, w->k, k, dq, k, adds_on);
    multiply(n, k, n, w->dqk, 1, DELTA_CHUNK, w->q, k, dk, k, adds_on);
    multiply(n, k, n, w->dkk, DELTA_CHUNK, 1, w->k, k, dk, k, 1);
    multiply(n, k, n, w->dkk, 1, DELTA_CHUNK, w->k, k, dk, k, 1);
    if (has_next)
        delta_next_backward(h, n, c, w, dk);
    if (!is_first)
        delta_fold_backward(h, n, has_next, c, w);
    delta_write_gradients(h, at, n, w);
}

/* Number of chunks of the row, then their first tokens, then T. */
DELTA_RULE void delta_list_chunks(const delta_head *h, const delta_work *w)
{
    if (LANE == 0) {
        int32_t n = 0;
        for (int64_t t = 0; t < h->a->tokens; t = delta_chunk_end(h, t))
            w->starts[++n] = (int32_t)t;
        w->starts[0] = n;
        w->starts[n + 1] = (int32_t)h->a->tokens;
    }
    sync();
}

/* One head of v of a row: keeps the states before its chunks, and goes back through them. */
DELTA_RULE void delta_backward_head(const delta_head *h, int adds, const delta_chunk *memory,
                                    const delta_work *w)
{
    const int64_t state = h->a->key_dim * h->vld, count = w->starts[0];
    delta_work plain = *w;
    delta_chunk c = *memory;
    float *kept = w->kept; /* after the last one */
    plain.pair = plain.r = 0;
    for (int64_t i = 1; i < count; i++) {
        const int64_t t = w->starts[i], n = w->starts[i + 1] - t;
        if (delta_begins(h, t + n))
            continue;
        const int is_first = delta_begins(h, t);
        delta_read(h, t, 0, n, &c, &plain);
        delta_pairs(h, 0, n, &c, &plain);
        delta_solve(h, 0, n, is_first, &c, &plain);
        delta_fold(h, n, is_first, &c, &plain, kept);
        c.state = kept;
        kept += state;
    }
    for (int64_t i = count; i >= 1; i--) {
        const int64_t t = w->starts[i], n = w->starts[i + 1] - t;
        const int is_first = delta_begins(h, t);
        if (!is_first)
            kept -= state;
        c.state = kept;
        delta_chunk_backward(h, t, n, is_first, t + n < h->a->tokens && !delta_begins(h, t + n),
                             adds, &c, w);
    }
}

DELTA_RULE void delta_backward_item(const delta_args *a, int64_t item, float *scratch)
{
    delta_chunk c;
    const delta_work w = delta_work_at(a, 1, &scratch, &c);
    const int32_t key = (int32_t)(item % a->key_heads), group = a->heads / a->key_heads;
    const int64_t row = item / a->key_heads, keys = (int64_t)a->key_heads * a->key_dim;
    const int64_t at = row * a->tokens * keys + (int64_t)key * a->key_dim,
                  ld = delta_ld(a->key_dim);
    delta_head h = delta_head_of(a, row, key * group);
    delta_list_chunks(&h, &w);
    for (EACH(i, h.vld * h.kld)) /* columns after the last one stay 0 */
        w.turned[i] = 0.0f;
    sync();
    for (int32_t i = 0; i < group; i++) {
        h = delta_head_of(a, row, key * group + i);
        delta_backward_head(&h, i > 0, &c, &w);
    }
    if (a->out[0] != 0)
        write_rows(w.dq, ld, a->tokens, a->key_dim, a->scale, a->out[0], a->dtype, at, keys,
                   a->accumulate & 1u);
    if (a->out[1] != 0)
        write_rows(w.dk, ld, a->tokens, a->key_dim, 1.0f, a->out[1], a->dtype, at, keys,
                   a->accumulate >> 1 & 1u);
}

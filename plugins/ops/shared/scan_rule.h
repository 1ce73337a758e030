/* Linear attention with a decaying state of one head, chunk by chunk, forward and backward: the
 * gated delta rule, and without its correction Mamba-2, which has a skip as well.
 *
 *     S_t = e^(g_t) S_(t-1) + k_t u_t',   o_t = scale S_t' q_t + skip_t v_t
 *     u_t = beta_t (v_t - (e^(g_t) S_(t-1))' k_t);   without the correction u_t = beta_t v_t
 *
 * In a chunk that begins with the state S, with b_t the sum of g from the chunk's first token to t
 * (arXiv:2412.06464, section 3.3; its WY form, with U solved for directly; and arXiv:2405.21060,
 * section 6):
 *
 *     r_t = v_t - e^(b_t) S' k_t - sum over j < t of e^(b_t - b_j) (k_t.k_j) u_j,  u_t = beta_t r_t
 *     o_t = scale (e^(b_t) S' q_t + sum over j <= t of e^(b_t - b_j) (q_t.k_j) u_j) + skip_t v_t
 *     S after n tokens = e^(b_n) S + sum over j of e^(b_n - b_j) k_j u_j'
 *
 * Each sum is computed in the order of its index, each element by itself. A token's bits therefore
 * depend only on its place in the document, and not on how the document comes: whole, in parts, or
 * token by token. Documents begin with a chunk of their own.
 *
 * The including file defines what differs between devices: SCAN_RULE (specifiers of a function),
 * SCAN_EMPTY (an initializer), EACH(i, n) (the items of this lane), LANE, sync(), and
 *
 *     multiply(m, n, k, a, a_row, a_col, b, b_ld, c, c_ld, adds)   c [m,n] = or += a b;
 *              element (i,p) of a is a[i * a_row + p * a_col]; n is a multiple of SCAN_TILE
 *     dot(x, y, n)
 *     read_rows(from, dtype, at, step, rows, columns, factor, to, ld)   zeros up to ld
 *     write_rows(from, ld, rows, columns, factor, to, dtype, at, step, adds)
 *     transpose(from, from_ld, rows, columns, to, to_ld)
 *
 * multiply, read_rows, write_rows and transpose end with a sync().
 */

/* One head of a row. */
typedef struct scan_head {
    const scan_args *a;
    int64_t row;       /* first token of the row */
    int32_t head, key; /* of v and g; of q and k */
    int64_t kld, vld;  /* rows of keys and of values */
} scan_head;

/* Memory of a chunk: see scan_state_size. */
typedef struct scan_chunk {
    float *state, *kt, *u, *log, *head;
} scan_chunk;

typedef struct scan_work {
    float *q, *k, *y;     /* [64, kld]: q is scaled; y: a product */
    float *kk, *qk;       /* [64, 64]: -e^(b_t - b_j) k_t.k_j, j < t; e^(b_t - b_j) q_t.k_j */
    float *x;             /* [64, vld] */
    float *beta, *skip;   /* [64] */
    float *pair;          /* [64, 64] e^(b_t - b_j), or NULL in the forward; as all that follows */
    float *dkk, *dqk, *s; /* [64, 64] gradients of kk and qk; their share in those of b */
    float *r, *dout, *du; /* [64, vld]; du: the gradient of u, then that of r */
    float *ut;            /* [vld, 64] */
    float *dstate;        /* [Dk, vld] gradient of the state after the chunk */
    float *turned;        /* [vld, kld] a state transposed */
    float *dlog, *dbeta;  /* [64] */
    float *dskip;         /* [64] */
    float *kept;          /* [., Dk, vld] states before chunks */
    float *dq, *dk;       /* [T, kld], of this item's heads of v */
    int32_t *starts;      /* number of chunks, their first tokens, T */
} scan_work;

SCAN_RULE float *scan_take(float **io, int64_t n)
{
    float *const at = *io;
    *io += n;
    return at;
}

SCAN_RULE scan_chunk scan_chunk_at(const scan_args *a, float *memory)
{
    const int64_t v = scan_ld(a->value_dim);
    scan_chunk c;
    c.state = scan_take(&memory, a->key_dim * v);
    c.kt = scan_take(&memory, a->key_dim * SCAN_CHUNK);
    c.u = scan_take(&memory, SCAN_CHUNK * v);
    c.log = scan_take(&memory, SCAN_CHUNK);
    c.head = memory;
    return c;
}

SCAN_RULE scan_work scan_work_at(const scan_args *a, int is_backward, float **io, scan_chunk *out)
{
    const int64_t k = SCAN_CHUNK * scan_ld(a->key_dim), v = SCAN_CHUNK * scan_ld(a->value_dim);
    const int64_t pairs = SCAN_CHUNK * SCAN_CHUNK, state = a->key_dim * scan_ld(a->value_dim);
    scan_work w = SCAN_EMPTY;
    *out = scan_chunk_at(a, scan_take(io, scan_state_size(a->key_dim, a->value_dim)));
    w.q = scan_take(io, k);
    w.k = scan_take(io, k);
    w.y = scan_take(io, k);
    w.kk = scan_take(io, pairs);
    w.qk = scan_take(io, pairs);
    w.x = scan_take(io, v);
    w.beta = scan_take(io, SCAN_CHUNK);
    w.skip = scan_take(io, SCAN_CHUNK);
    if (!is_backward)
        return w;
    w.pair = scan_take(io, pairs);
    w.dkk = scan_take(io, pairs);
    w.dqk = scan_take(io, pairs);
    w.s = scan_take(io, pairs);
    w.r = scan_take(io, v);
    w.dout = scan_take(io, v);
    w.du = scan_take(io, v);
    w.ut = scan_take(io, v);
    w.dstate = scan_take(io, state);
    w.turned = scan_take(io, scan_ld(a->value_dim) * scan_ld(a->key_dim));
    w.dlog = scan_take(io, SCAN_CHUNK);
    w.dbeta = scan_take(io, SCAN_CHUNK);
    w.dskip = scan_take(io, SCAN_CHUNK);
    w.kept = scan_take(io, scan_kept_states(a->tokens) * state);
    if (scan_parts(a) == 1) {
        w.dq = scan_take(io, a->tokens * scan_ld(a->key_dim));
        w.dk = scan_take(io, a->tokens * scan_ld(a->key_dim));
    }
    w.starts = (int32_t *)scan_take(io, scan_ld(a->tokens + 2));
    return w;
}

SCAN_RULE scan_head scan_head_of(const scan_args *a, int64_t row, int32_t head)
{
    scan_head h;
    h.a = a;
    h.row = row * a->tokens;
    h.head = head;
    h.key = head / (a->heads / a->key_heads);
    h.kld = scan_ld(a->key_dim);
    h.vld = scan_ld(a->value_dim);
    return h;
}

/* to[t] = sign * e^log[t] * from[t], for rows of ld floats. */
SCAN_RULE void scan_scale(const float *from, int64_t ld, int64_t rows, const float *log, float sign,
                          float *to)
{
    for (int64_t t = 0; t < rows; t++) {
        const float factor = sign * expf(log[t]);
        for (EACH(i, ld))
            to[t * ld + i] = factor * from[t * ld + i];
    }
    sync();
}

/* to[t] = e^(last - log[t]) from[t]: how much of token t is left after the chunk's last. */
SCAN_RULE void scan_left(const float *from, int64_t ld, int64_t rows, const float *log, float *to)
{
    const float last = log[rows - 1];
    for (int64_t t = 0; t < rows; t++) {
        const float factor = expf(last - log[t]);
        for (EACH(i, ld))
            to[t * ld + i] = factor * from[t * ld + i];
    }
    sync();
}

/* Reads tokens begin .. end-1 of a chunk, the first of which is token `at` of the row: q, k, beta
 * and skip, v to the places of u, and the sums of g. */
SCAN_RULE void scan_read(const scan_head *h, int64_t at, int64_t begin, int64_t end,
                         const scan_chunk *c, const scan_work *w)
{
    const scan_args *a = h->a;
    const int64_t n = end - begin, keys = (int64_t)a->key_heads * a->key_dim,
                  values = (int64_t)a->heads * a->value_dim, first = h->row + at;
    read_rows(a->q, a->dtype, first * keys + (int64_t)h->key * a->key_dim, keys, n, a->key_dim,
              a->scale, w->q, h->kld);
    read_rows(a->k, a->dtype, first * keys + (int64_t)h->key * a->key_dim, keys, n, a->key_dim,
              1.0f, w->k, h->kld);
    read_rows(a->v, a->dtype, first * values + (int64_t)h->head * a->value_dim, values, n,
              a->value_dim, 1.0f, c->u + begin * h->vld, h->vld);
    transpose(w->k, h->kld, n, a->key_dim, c->kt + begin, SCAN_CHUNK);
    if (LANE == 0) {
        float sum = begin > 0 ? c->log[begin - 1] : 0.0f;
        for (int64_t t = 0; t < n; t++) {
            sum += a->g[(first + t) * a->heads + h->head];
            c->log[begin + t] = sum;
            w->beta[t] = a->beta[(first + t) * a->heads + h->head];
            if (a->skip != 0)
                w->skip[t] = a->skip[(first + t) * a->heads + h->head];
        }
    }
    sync();
}

/* kk and qk of tokens begin .. end-1, zero beyond the token itself. */
SCAN_RULE void scan_pairs(const scan_head *h, int64_t begin, int64_t end, const scan_chunk *c,
                          const scan_work *w)
{
    const int64_t n = end - begin, width = scan_ld(end), dim = h->a->key_dim;
    for (int64_t r = 0; r < n; r += SCAN_TILE) {
        const int64_t m = n - r < SCAN_TILE ? n - r : SCAN_TILE;
        const int64_t seen = scan_ld(begin + r + m);
        if (h->a->corrects)
            multiply(m, seen, dim, w->k + r * h->kld, h->kld, 1, c->kt, SCAN_CHUNK,
                     w->kk + r * SCAN_CHUNK, SCAN_CHUNK, 0);
        multiply(m, seen, dim, w->q + r * h->kld, h->kld, 1, c->kt, SCAN_CHUNK,
                 w->qk + r * SCAN_CHUNK, SCAN_CHUNK, 0);
    }
    for (int64_t t = 0; t < n; t++)
        for (EACH(j, width)) {
            const int64_t at = t * SCAN_CHUNK + j;
            const float e = j <= begin + t ? expf(c->log[begin + t] - c->log[j]) : 0.0f;
            if (h->a->corrects)
                w->kk[at] = j < begin + t ? -e * w->kk[at] : 0.0f;
            w->qk[at] = j <= begin + t ? e * w->qk[at] : 0.0f;
            if (w->pair != 0)
                w->pair[at] = e;
        }
    sync();
}

/* u of n tokens in the places of v, without the correction. Leaves the share of the skip in w->x.
 */
SCAN_RULE void scan_weigh(const scan_head *h, int64_t begin, int64_t n, const scan_chunk *c,
                          const scan_work *w)
{
    const int64_t v = h->vld;
    for (int64_t t = 0; t < n; t++) {
        float *const u = c->u + (begin + t) * v;
        for (EACH(j, v)) {
            if (h->a->skip != 0)
                w->x[t * v + j] = w->skip[t] * u[j];
            if (w->r != 0)
                w->r[t * v + j] = u[j];
            u[j] *= w->beta[t];
        }
    }
    sync();
}

/* u of tokens begin .. end-1, in the places of v. */
SCAN_RULE void scan_solve(const scan_head *h, int64_t begin, int64_t end, int is_first,
                          const scan_chunk *c, const scan_work *w)
{
    enum { AT_A_TIME = 8 };
    const int64_t n = end - begin, v = h->vld;
    if (!h->a->corrects) {
        scan_weigh(h, begin, n, c, w);
        return;
    }
    if (!is_first) {
        scan_scale(w->k, h->kld, n, c->log + begin, -1.0f, w->y);
        multiply(n, v, h->a->key_dim, w->y, h->kld, 1, c->state, v, c->u + begin * v, v, 1);
    }
    for (int64_t r = 0; r < n; r += AT_A_TIME) {
        const int64_t m = n - r < AT_A_TIME ? n - r : AT_A_TIME, at = begin + r;
        if (at > 0)
            multiply(m, v, at, w->kk + r * SCAN_CHUNK, SCAN_CHUNK, 1, c->u, v, c->u + at * v, v, 1);
        for (int64_t i = 0; i < m; i++) {
            float *const u = c->u + (at + i) * v;
            if (i > 0)
                multiply(1, v, i, w->kk + (r + i) * SCAN_CHUNK + at, SCAN_CHUNK, 1, c->u + at * v,
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
SCAN_RULE void scan_outputs(const scan_head *h, int64_t begin, int64_t end, int is_first,
                            const scan_chunk *c, const scan_work *w)
{
    const int64_t n = end - begin, v = h->vld;
    const int skips = h->a->skip != 0;
    if (!is_first) {
        scan_scale(w->q, h->kld, n, c->log + begin, 1.0f, w->y);
        multiply(n, v, h->a->key_dim, w->y, h->kld, 1, c->state, v, w->x, v, skips);
    }
    for (int64_t r = 0; r < n; r += SCAN_TILE) {
        const int64_t m = n - r < SCAN_TILE ? n - r : SCAN_TILE;
        multiply(m, v, begin + r + m, w->qk + r * SCAN_CHUNK, SCAN_CHUNK, 1, c->u, v, w->x + r * v,
                 v, skips || !is_first);
    }
}

/* The state after a chunk of n tokens, to `to`, which may be the state before it. */
SCAN_RULE void scan_fold(const scan_head *h, int64_t n, int is_first, const scan_chunk *c,
                         const scan_work *w, float *to)
{
    const int64_t v = h->vld, count = h->a->key_dim * v;
    const float left = expf(c->log[n - 1]);
    scan_left(c->u, v, n, c->log, w->x);
    if (!is_first)
        for (EACH(i, count))
            to[i] = left * c->state[i];
    sync();
    multiply(h->a->key_dim, v, n, c->kt, SCAN_CHUNK, 1, w->x, v, to, v, !is_first);
}

/* Whether token t of the row begins a document. */
SCAN_RULE int scan_begins(const scan_head *h, int64_t t)
{
    const int32_t *doc = h->a->doc_start;
    return t == 0 || (doc != 0 && doc[h->row + t] != doc[h->row + t - 1]);
}

/* The token after the chunk that begins at token t. */
SCAN_RULE int64_t scan_chunk_end(const scan_head *h, int64_t t)
{
    int64_t end = t + 1;
    while (end < h->a->tokens && end < t + SCAN_CHUNK && !scan_begins(h, end))
        end++;
    return end;
}

SCAN_RULE void scan_write_outputs(const scan_head *h, int64_t at, int64_t n, const scan_work *w)
{
    const scan_args *a = h->a;
    const int64_t values = (int64_t)a->heads * a->value_dim;
    write_rows(w->x, h->vld, n, a->value_dim, 1.0f, a->out[0], a->dtype,
               (h->row + at) * values + (int64_t)h->head * a->value_dim, values,
               a->accumulate & 1u);
}

/* A whole row of one head. */
SCAN_RULE void scan_forward_row(const scan_head *h, const scan_chunk *c, const scan_work *w)
{
    for (int64_t t = 0, end; t < h->a->tokens; t = end) {
        const int is_first = scan_begins(h, t);
        end = scan_chunk_end(h, t);
        scan_read(h, t, 0, end - t, c, w);
        scan_pairs(h, 0, end - t, c, w);
        scan_solve(h, 0, end - t, is_first, c, w);
        scan_outputs(h, 0, end - t, is_first, c, w);
        scan_write_outputs(h, t, end - t, w);
        if (end < h->a->tokens && !scan_begins(h, end))
            scan_fold(h, end - t, is_first, c, w, c->state);
    }
}

/* A part of a sequence, whose chunk is in the memory of its state. */
SCAN_RULE void scan_continue_row(const scan_head *h, const scan_chunk *c, const scan_work *w)
{
    int64_t begin = (int64_t)c->head[0];
    int is_first = c->head[1] == 0.0f;
    for (int64_t t = 0, n; t < h->a->tokens; t += n) {
        n = h->a->tokens - t < SCAN_CHUNK - begin ? h->a->tokens - t : SCAN_CHUNK - begin;
        scan_read(h, t, begin, begin + n, c, w);
        scan_pairs(h, begin, begin + n, c, w);
        scan_solve(h, begin, begin + n, is_first, c, w);
        scan_outputs(h, begin, begin + n, is_first, c, w);
        scan_write_outputs(h, t, n, w);
        begin += n;
        if (begin == SCAN_CHUNK) {
            scan_fold(h, SCAN_CHUNK, is_first, c, w, c->state);
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
SCAN_RULE void scan_continue(const scan_args *a, int32_t head, float *scratch)
{
    const int64_t size = scan_state_size(a->key_dim, a->value_dim);
    scan_chunk own;
    const scan_work w = scan_work_at(a, 0, &scratch, &own);
    for (int64_t b = 0; b < a->n_rows; b++) {
        const scan_head h = scan_head_of(a, b, head);
        const int64_t slot = a->slots[b];
        if (slot < 0) { /* padding: a sequence that is forgotten */
            for (EACH(i, size))
                own.state[i] = 0.0f;
            sync();
        }
        const scan_chunk kept =
            slot < 0 ? own : scan_chunk_at(a, a->states + (slot * a->heads + head) * size);
        scan_continue_row(&h, &kept, &w);
    }
}

SCAN_RULE void scan_forward_item(const scan_args *a, int64_t item, float *scratch)
{
    if (a->slots != 0) {
        scan_continue(a, (int32_t)item, scratch);
        return;
    }
    scan_chunk c;
    const scan_work w = scan_work_at(a, 0, &scratch, &c);
    const scan_head h = scan_head_of(a, item / a->heads, (int32_t)(item % a->heads));
    scan_forward_row(&h, &c, &w);
}

/* ---- backward ---- */

/* Computes dbeta_t, and overwrites du_t with the gradient of r_t, which is beta_t du_t. */
SCAN_RULE void scan_weigh_backward(const scan_head *h, int64_t t, const scan_work *w)
{
    const int64_t v = h->vld;
    if (LANE == 0)
        w->dbeta[t] = dot(w->du + t * v, w->r + t * v, v);
    sync();
    for (EACH(j, v))
        w->du[t * v + j] *= w->beta[t];
    sync();
}

/* du: from the outputs and from the state after the chunk; then through the solution, from the last
 * token to the first: du_t += sum over i > t of kk[i,t] beta_i du_i. Leaves the gradient of r,
 * beta_t du_t, and dbeta. */
SCAN_RULE void scan_solve_backward(const scan_head *h, int64_t n, int has_next, const scan_chunk *c,
                                   const scan_work *w)
{
    enum { AT_A_TIME = 8 };
    const int64_t v = h->vld;
    multiply(n, v, n, w->qk, 1, SCAN_CHUNK, w->dout, v, w->du, v, 0);
    if (has_next) {
        scan_left(w->k, h->kld, n, c->log, w->y);
        multiply(n, v, h->a->key_dim, w->y, h->kld, 1, w->dstate, v, w->du, v, 1);
    }
    for (int64_t t = 0; t < n && !h->a->corrects; t++)
        scan_weigh_backward(h, t, w);
    for (int64_t r = !h->a->corrects ? -1 : (n - 1) / AT_A_TIME * AT_A_TIME; r >= 0;
         r -= AT_A_TIME) {
        const int64_t m = n - r < AT_A_TIME ? n - r : AT_A_TIME, after = r + m;
        if (after < n)
            multiply(m, v, n - after, w->kk + after * SCAN_CHUNK + r, 1, SCAN_CHUNK,
                     w->du + after * v, v, w->du + r * v, v, 1);
        for (int64_t t = after - 1; t >= r; t--) {
            if (t + 1 < after)
                multiply(1, v, after - t - 1, w->kk + (t + 1) * SCAN_CHUNK + t, 1, SCAN_CHUNK,
                         w->du + (t + 1) * v, v, w->du + t * v, v, 1);
            scan_weigh_backward(h, t, w);
        }
    }
}

/* dkk and dqk, as factors of k_t.k_j and of q_t.k_j, and their share in the gradients of b. */
SCAN_RULE void scan_pairs_backward(const scan_head *h, int64_t n, const scan_chunk *c,
                                   const scan_work *w)
{
    const int64_t v = h->vld, width = scan_ld(n), dim = h->a->value_dim;
    for (EACH(i, v * SCAN_CHUNK))
        w->ut[i] = 0.0f;
    sync();
    transpose(c->u, v, n, dim, w->ut, SCAN_CHUNK);
    if (h->a->corrects)
        multiply(n, width, dim, w->du, v, 1, w->ut, SCAN_CHUNK, w->dkk, SCAN_CHUNK, 0);
    multiply(n, width, dim, w->dout, v, 1, w->ut, SCAN_CHUNK, w->dqk, SCAN_CHUNK, 0);
    for (int64_t t = 0; t < n; t++)
        for (EACH(j, width)) {
            const int64_t at = t * SCAN_CHUNK + j;
            w->s[at] = j < t ? w->dqk[at] * w->qk[at] : 0.0f;
            if (h->a->corrects) {
                w->s[at] += j < t ? w->dkk[at] * w->kk[at] : 0.0f;
                w->dkk[at] = j < t ? -w->pair[at] * w->dkk[at] : 0.0f;
            }
            w->dqk[at] = j <= t ? w->pair[at] * w->dqk[at] : 0.0f;
        }
    sync();
    for (EACH(t, n)) {
        float sum = 0.0f;
        for (int64_t j = 0; j < t; j++)
            sum += w->s[t * SCAN_CHUNK + j];
        for (int64_t i = t + 1; i < n; i++)
            sum -= w->s[i * SCAN_CHUNK + t];
        w->dlog[t] = sum;
    }
    sync();
}

/* dlog[t] += sign * y_t.x_t */
SCAN_RULE void scan_add_dots(const scan_head *h, int64_t n, const float *x, float sign,
                             const scan_work *w)
{
    for (EACH(t, n))
        w->dlog[t] += sign * dot(w->y + t * h->kld, x + t * h->kld, h->kld);
    sync();
}

/* to (+)= y */
SCAN_RULE void scan_add_y(const scan_head *h, int64_t n, const scan_work *w, int adds, float *to)
{
    for (EACH(i, n * h->kld))
        to[i] = adds ? to[i] + w->y[i] : w->y[i];
    sync();
}

/* The parts of dq and dk that come through the state before the chunk. dq, dk: of its tokens. */
SCAN_RULE void scan_state_backward(const scan_head *h, int64_t n, int adds, const scan_chunk *c,
                                   const scan_work *w, float *dq, float *dk)
{
    const int64_t v = h->vld, dim = h->a->value_dim;
    transpose(c->state, v, h->a->key_dim, v, w->turned, h->kld);
    scan_scale(w->dout, v, n, c->log, 1.0f, w->x);
    multiply(n, h->kld, dim, w->x, v, 1, w->turned, h->kld, w->y, h->kld, 0);
    scan_add_dots(h, n, w->q, 1.0f, w);
    scan_add_y(h, n, w, adds, dq);
    if (!h->a->corrects)
        return;
    scan_scale(w->du, v, n, c->log, -1.0f, w->x);
    multiply(n, h->kld, dim, w->x, v, 1, w->turned, h->kld, w->y, h->kld, 0);
    scan_add_dots(h, n, w->k, 1.0f, w);
    scan_add_y(h, n, w, adds, dk);
}

/* The part of dk that comes through the state after the chunk: token t is left in it with
 * e^(b_n - b_t). */
SCAN_RULE void scan_next_backward(const scan_head *h, int64_t n, const scan_chunk *c,
                                  const scan_work *w, float *dk)
{
    const int64_t v = h->vld;
    transpose(w->dstate, v, h->a->key_dim, v, w->turned, h->kld);
    scan_left(c->u, v, n, c->log, w->x);
    multiply(n, h->kld, h->a->value_dim, w->x, v, 1, w->turned, h->kld, w->y, h->kld, 0);
    scan_add_y(h, n, w, 1, dk);
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
SCAN_RULE void scan_fold_backward(const scan_head *h, int64_t n, int has_next, const scan_chunk *c,
                                  const scan_work *w)
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
    const int corrects = h->a->corrects;
    if (corrects) {
        scan_scale(w->du, v, n, c->log, -1.0f, w->x);
        multiply(dim, v, n, w->k, 1, h->kld, w->x, v, w->dstate, v, has_next);
    }
    scan_scale(w->dout, v, n, c->log, 1.0f, w->x);
    multiply(dim, v, n, w->q, 1, h->kld, w->x, v, w->dstate, v, corrects || has_next);
}

/* dskip, and the share of the skip in the gradient of v, which then is in w->du. r is v here: there
 * is a skip only without the correction. */
SCAN_RULE void scan_skip_backward(const scan_head *h, int64_t n, const scan_work *w)
{
    const int64_t v = h->vld;
    for (EACH(t, n))
        w->dskip[t] = dot(w->dout + t * v, w->r + t * v, v);
    for (int64_t t = 0; t < n; t++)
        for (EACH(j, v))
            w->du[t * v + j] += w->skip[t] * w->dout[t * v + j];
    sync();
}

/* Gradients of v, g, beta and skip of a chunk that begins with token t of the row. */
SCAN_RULE void scan_write_gradients(const scan_head *h, int64_t at, int64_t n, const scan_work *w)
{
    const scan_args *a = h->a;
    const int64_t values = (int64_t)a->heads * a->value_dim, first = h->row + at;
    float *const dg = (float *)a->out[SCAN_G], *const dbeta = (float *)a->out[SCAN_BETA],
                 *const dskip = (float *)a->out[SCAN_SKIP];
    if (a->out[SCAN_V] != 0)
        write_rows(w->du, h->vld, n, a->value_dim, 1.0f, a->out[SCAN_V], a->dtype,
                   first * values + (int64_t)h->head * a->value_dim, values,
                   a->accumulate >> SCAN_V & 1u);
    if (LANE == 0) {
        float sum = 0.0f; /* g_t is in b of all later tokens */
        for (int64_t t = n - 1; t >= 0; t--) {
            const int64_t i = (first + t) * a->heads + h->head;
            sum += w->dlog[t];
            if (dg != 0)
                dg[i] = a->accumulate >> SCAN_G & 1u ? dg[i] + sum : sum;
            if (dbeta != 0)
                dbeta[i] = a->accumulate >> SCAN_BETA & 1u ? dbeta[i] + w->dbeta[t] : w->dbeta[t];
            if (dskip != 0)
                dskip[i] = a->accumulate >> SCAN_SKIP & 1u ? dskip[i] + w->dskip[t] : w->dskip[t];
        }
    }
    sync();
}

/* A chunk of n tokens from token t of the row on. c->state is the state before it, unless it is the
 * first of a document; w->dstate, if has_next, the gradient of the state after it. adds: to dq and
 * dk, which other heads of v have begun. */
SCAN_RULE void scan_chunk_backward(const scan_head *h, int64_t at, int64_t n, int is_first,
                                   int has_next, int adds, const scan_chunk *c, const scan_work *w)
{
    const scan_args *a = h->a;
    const int64_t values = (int64_t)a->heads * a->value_dim, k = h->kld;
    float *const dq = w->dq + at * k, *const dk = w->dk + at * k;
    scan_read(h, at, 0, n, c, w);
    read_rows(a->d_out, a->dtype, (h->row + at) * values + (int64_t)h->head * a->value_dim, values,
              n, a->value_dim, 1.0f, w->dout, h->vld);
    scan_pairs(h, 0, n, c, w);
    scan_solve(h, 0, n, is_first, c, w);
    scan_solve_backward(h, n, has_next, c, w);
    scan_pairs_backward(h, n, c, w);
    if (!is_first)
        scan_state_backward(h, n, adds, c, w, dq, dk);
    multiply(n, k, n, w->dqk, SCAN_CHUNK, 1, w->k, k, dq, k, adds || !is_first);
    multiply(n, k, n, w->dqk, 1, SCAN_CHUNK, w->q, k, dk, k, adds || (!is_first && a->corrects));
    if (a->corrects) {
        multiply(n, k, n, w->dkk, SCAN_CHUNK, 1, w->k, k, dk, k, 1);
        multiply(n, k, n, w->dkk, 1, SCAN_CHUNK, w->k, k, dk, k, 1);
    }
    if (has_next)
        scan_next_backward(h, n, c, w, dk);
    if (!is_first)
        scan_fold_backward(h, n, has_next, c, w);
    if (a->skip != 0)
        scan_skip_backward(h, n, w);
    scan_write_gradients(h, at, n, w);
}

/* Number of chunks of the row, then their first tokens, then T. */
SCAN_RULE void scan_list_chunks(const scan_head *h, const scan_work *w)
{
    if (LANE == 0) {
        int32_t n = 0;
        for (int64_t t = 0; t < h->a->tokens; t = scan_chunk_end(h, t))
            w->starts[++n] = (int32_t)t;
        w->starts[0] = n;
        w->starts[n + 1] = (int32_t)h->a->tokens;
    }
    sync();
}

/* One head of v of a row: keeps the states before its chunks, and goes back through them. */
SCAN_RULE void scan_backward_head(const scan_head *h, int adds, const scan_chunk *memory,
                                  const scan_work *w)
{
    const int64_t state = h->a->key_dim * h->vld, count = w->starts[0];
    scan_work plain = *w;
    scan_chunk c = *memory;
    float *kept = w->kept; /* after the last one */
    plain.pair = plain.r = 0;
    for (int64_t i = 1; i < count; i++) {
        const int64_t t = w->starts[i], n = w->starts[i + 1] - t;
        if (scan_begins(h, t + n))
            continue;
        const int is_first = scan_begins(h, t);
        scan_read(h, t, 0, n, &c, &plain);
        scan_pairs(h, 0, n, &c, &plain);
        scan_solve(h, 0, n, is_first, &c, &plain);
        scan_fold(h, n, is_first, &c, &plain, kept);
        c.state = kept;
        kept += state;
    }
    for (int64_t i = count; i >= 1; i--) {
        const int64_t t = w->starts[i], n = w->starts[i + 1] - t;
        const int is_first = scan_begins(h, t);
        if (!is_first)
            kept -= state;
        c.state = kept;
        scan_chunk_backward(h, t, n, is_first, t + n < h->a->tokens && !scan_begins(h, t + n), adds,
                            &c, w);
    }
}

/* [T, kld] of scan_args.sums: which 0: q, 1: k. */
SCAN_RULE float *scan_sum_at(const scan_args *a, int32_t which, int32_t part, int64_t row,
                             int32_t key)
{
    const int64_t at = ((which * scan_parts(a) + part) * a->n_rows + row) * a->key_heads + key;
    return a->sums + at * a->tokens * scan_ld(a->key_dim);
}

/* Writes the gradients of q and k of n tokens from token t of the row on. Changes dq and dk. */
SCAN_RULE void scan_write_sums(const scan_args *a, int64_t row, int32_t key, int64_t t, int64_t n,
                               float *dq, float *dk)
{
    const int64_t keys = (int64_t)a->key_heads * a->key_dim, ld = scan_ld(a->key_dim),
                  at = (row * a->tokens + t) * keys + (int64_t)key * a->key_dim;
    if (a->out[SCAN_Q] != 0)
        write_rows(dq, ld, n, a->key_dim, a->scale, a->out[SCAN_Q], a->dtype, at, keys,
                   a->accumulate >> SCAN_Q & 1u);
    if (a->out[SCAN_K] != 0)
        write_rows(dk, ld, n, a->key_dim, 1.0f, a->out[SCAN_K], a->dtype, at, keys,
                   a->accumulate >> SCAN_K & 1u);
}

/* Some heads of v, those of one part, for one head of k. */
SCAN_RULE void scan_backward_item(const scan_args *a, int64_t item, float *scratch)
{
    scan_chunk c;
    scan_work w = scan_work_at(a, 1, &scratch, &c);
    const int32_t parts = scan_parts(a), part = (int32_t)(item % parts),
                  key = (int32_t)(item / parts % a->key_heads), group = a->heads / a->key_heads;
    const int64_t row = item / parts / a->key_heads;
    const int32_t begin = key * group + group * part / parts,
                  end = key * group + group * (part + 1) / parts;
    scan_head h = scan_head_of(a, row, begin);
    if (parts > 1) {
        w.dq = scan_sum_at(a, 0, part, row, key);
        w.dk = scan_sum_at(a, 1, part, row, key);
    }
    scan_list_chunks(&h, &w);
    for (EACH(i, h.vld * h.kld)) /* columns after the last one stay 0 */
        w.turned[i] = 0.0f;
    sync();
    for (int32_t i = begin; i < end; i++) {
        h = scan_head_of(a, row, i);
        scan_backward_head(&h, i > begin, &c, &w);
    }
    if (parts == 1)
        scan_write_sums(a, row, key, 0, a->tokens, w.dq, w.dk);
}

/* The gradients of q and k of 64 tokens: the parts' sums, added in their order. */
SCAN_RULE void scan_sum_item(const scan_args *a, int64_t item, float *scratch)
{
    const int64_t blocks = scan_kept_states(a->tokens), t = item % blocks * SCAN_CHUNK,
                  row = item / blocks / a->key_heads, ld = scan_ld(a->key_dim);
    const int32_t key = (int32_t)(item / blocks % a->key_heads);
    const int64_t n = a->tokens - t < SCAN_CHUNK ? a->tokens - t : SCAN_CHUNK;
    (void)scratch;
    for (int32_t which = 0; which < 2; which++) {
        float *const sum = scan_sum_at(a, which, 0, row, key) + t * ld;
        for (int32_t part = 1; part < scan_parts(a); part++) {
            const float *const more = scan_sum_at(a, which, part, row, key) + t * ld;
            for (EACH(i, n * ld))
                sum[i] += more[i];
        }
    }
    sync();
    scan_write_sums(a, row, key, t, n, scan_sum_at(a, 0, 0, row, key) + t * ld,
                    scan_sum_at(a, 1, 0, row, key) + t * ld);
}

/* Joins the matrices of experts, and the norms of heads, which files hold one by one, and takes
 * apart the fused gate and up projections of all experts. */
#include "files/safetensors/expert_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/error.h"

/* The text before the numbers, and the rank of each tensor. */
static const struct {
    const char *text;
    int32_t rank;
} numbered[] = {{".experts.", 2}, {"_layernorm.norms.", 1}};

enum { N_NUMBERED = sizeof numbered / sizeof numbered[0] };

/* The first character after a name's ".experts.", and its row in `numbered`; NULL: it has none. */
static const char *after_marker(const char *name, int *out_kind)
{
    for (int i = 0; i < N_NUMBERED; i++) {
        const char *at = strstr(name, numbered[i].text);
        *out_kind = i;
        if (at != NULL)
            return at + strlen(numbered[i].text);
    }
    return NULL;
}

/* One joined tensor: the matrices by number. */
typedef struct joined {
    char *name;
    const lathe_st_tensor **parts; /* [n] */
    int64_t n, capacity;
    int is_whole; /* numbers from 0 on, one shape and dtype */
} joined;

/* Rows of a fused tensor [E, R, I]: `rows` of each expert, from its row `first` on. */
typedef struct slice {
    char *name;
    const lathe_st_tensor *whole;
    int64_t first, rows;
} slice;

typedef struct joined_set {
    lathe_safetensors *set; /* held */
    lathe_arena arena;
    joined *list; /* [n] */
    int64_t n;
    slice *slices; /* [n_slices] */
    int64_t n_slices;
    lathe_st_tensor *tensors;
} joined_set;

/* Layers that predict several tokens, beside a model: nothing computes them, and a wrapper's
 * folder keeps them as they are. */
static int is_beside_model(const char *name)
{
    return strncmp(name, "mtp.", 4) == 0;
}

int32_t lathe_expert_tensor_name(const char *name, int64_t e, char *out, size_t bytes)
{
    int kind;
    const char *at = after_marker(name, &kind);
    if (at == NULL)
        return -1;
    const int head = (int)(at - name);
    return (int32_t)snprintf(out, bytes, "%.*s%lld.%s", head, name, (long long)e, name + head);
}

/* The number of "….experts.12.up_proj.weight", and the name without it; -1: another name, or a
 * tensor that is not joined. */
static int64_t number_of(const lathe_st_tensor *t, lathe_arena *arena, char **out_name)
{
    int kind;
    const char *at = after_marker(t->name, &kind);
    const size_t n = strlen(t->name), end = sizeof ".weight" - 1;
    if (at == NULL || is_beside_model(t->name) || n < end ||
        strcmp(t->name + n - end, ".weight") != 0 || t->desc.rank != numbered[kind].rank ||
        (t->desc.dtype != LATHE_F32 && t->desc.dtype != LATHE_BF16 && t->desc.dtype != LATHE_F16))
        return -1;
    char *rest;
    const long long number = strtoll(at, &rest, 10);
    if (rest == at || *at < '0' || *at > '9' || (*at == '0' && rest != at + 1) || rest[0] != '.' ||
        number < 0 || number >= 65536)
        return -1;
    *out_name = lathe_arena_printf(arena, "%.*s%s", (int)(at - t->name), t->name, rest + 1);
    return *out_name != NULL ? (int64_t)number : -1;
}

/* lathe_st_decode_fn: rows of one expert after the other. */
static lathe_status decode(const lathe_st_tensor *t, int64_t begin, int64_t n, float *out)
{
    const joined *j = t->coding;
    const int64_t rows = t->desc.dims[0] / j->n, cols = t->desc.dims[1];
    for (int64_t e = 0; t->desc.rank == 1 && e < j->n; e++) /* a vector is one row */
        LATHE_TRY(lathe_st_read(j->parts[e], 0, rows, out + e * rows, LATHE_F32));
    if (t->desc.rank == 1)
        return LATHE_OK;
    for (int64_t at = begin; at < begin + n;) {
        const int64_t e = at / rows, from = at - e * rows;
        const int64_t m = rows - from < begin + n - at ? rows - from : begin + n - at;
        LATHE_TRY(lathe_st_read(j->parts[e], from * cols, m * cols, out + (at - begin) * cols,
                                LATHE_F32));
        at += m;
    }
    return LATHE_OK;
}

/* lathe_st_decode_fn: rows of a slice. */
static lathe_status decode_slice(const lathe_st_tensor *t, int64_t begin, int64_t n, float *out)
{
    const slice *part = t->coding;
    const int64_t all = part->whole->desc.dims[1], cols = t->desc.dims[1];
    for (int64_t at = begin; at < begin + n;) {
        const int64_t e = at / part->rows, from = at - e * part->rows;
        const int64_t m = part->rows - from < begin + n - at ? part->rows - from : begin + n - at;
        LATHE_TRY(lathe_st_read(part->whole, (e * all + part->first + from) * cols, m * cols,
                                out + (at - begin) * cols, LATHE_F32));
        at += m;
    }
    return LATHE_OK;
}

static joined *find(joined_set *s, const char *name)
{
    for (int64_t i = s->n; i > 0; i--) /* neighbours in the order of names come together */
        if (strcmp(s->list[i - 1].name, name) == 0)
            return &s->list[i - 1];
    return NULL;
}

/* Notes a matrix as number `e` of its tensor. */
static lathe_status note(joined_set *s, char *name, const lathe_st_tensor *t, int64_t e)
{
    joined *j = find(s, name);
    if (j == NULL) {
        joined *grown = realloc(s->list, (size_t)(s->n + 1) * sizeof *grown);
        if (grown == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory for the tensors of experts");
        s->list = grown;
        j = &s->list[s->n++];
        *j = (joined){.name = name};
    }
    if (e >= j->capacity) {
        const int64_t capacity = 2 * e + 8;
        const lathe_st_tensor **grown = realloc((void *)j->parts, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return lathe_error(LATHE_E_NOMEM, "no memory for the tensors of experts");
        for (int64_t i = j->capacity; i < capacity; i++)
            grown[i] = NULL;
        j->parts = grown;
        j->capacity = capacity;
    }
    j->parts[e] = t;
    j->n = e + 1 > j->n ? e + 1 : j->n;
    return LATHE_OK;
}

static int is_whole(const lathe_safetensors *set, const joined *j)
{
    int same = j->n > 0 && lathe_safetensors_find(set, j->name) == NULL;
    for (int64_t e = 0; same && e < j->n; e++)
        same = j->parts[e] != NULL &&
               memcmp(&j->parts[e]->desc, &j->parts[0]->desc, sizeof j->parts[0]->desc) == 0;
    return same;
}

static lathe_status add_slice(joined_set *s, const lathe_st_tensor *whole, int stem,
                              const char *projection, int64_t first, int64_t rows)
{
    slice *grown = realloc(s->slices, (size_t)(s->n_slices + 1) * sizeof *grown);
    if (grown == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the tensors of experts");
    s->slices = grown;
    char *name = lathe_arena_printf(&s->arena, "%.*s%s.weight", stem, whole->name, projection);
    if (name == NULL)
        return LATHE_E_NOMEM;
    s->slices[s->n_slices++] = (slice){name, whole, first, rows};
    return LATHE_OK;
}

static int is_stack(const lathe_st_tensor *t)
{
    return t->desc.rank == 3 && (t->desc.dtype == LATHE_F32 || t->desc.dtype == LATHE_BF16 ||
                                 t->desc.dtype == LATHE_F16);
}

/* Notes the parts of "L.experts.gate_up_proj" [E, 2F, C] and "L.experts.down_proj" [E, C, F]. The
 * tensors of gpt-oss, [E, C, 2F] and [E, F, C], have the same names: no F and C fit both. */
static lathe_status take_apart(joined_set *s, const lathe_st_tensor *t)
{
    static const char gate_up[] = "gate_up_proj", before[] = ".experts.gate_up_proj";
    const size_t n = strlen(t->name), end = sizeof before - 1;
    if (n < end || strcmp(t->name + n - end, before) != 0 || is_beside_model(t->name) ||
        !is_stack(t))
        return LATHE_OK;
    const int stem = (int)(n - (sizeof gate_up - 1));
    const char *name = lathe_arena_printf(&s->arena, "%.*sdown_proj", stem, t->name);
    const lathe_st_tensor *down = name != NULL ? lathe_safetensors_find(s->set, name) : NULL;
    if (name == NULL)
        return LATHE_E_NOMEM;
    if (down == NULL || !is_stack(down) || down->desc.dims[0] != t->desc.dims[0] ||
        t->desc.dims[1] != 2 * down->desc.dims[2] || t->desc.dims[2] != down->desc.dims[1])
        return LATHE_OK;
    const int64_t width = down->desc.dims[2];
    LATHE_TRY(add_slice(s, t, stem, "gate_proj", 0, width));
    LATHE_TRY(add_slice(s, t, stem, "up_proj", width, width));
    return add_slice(s, down, stem, "down_proj", 0, down->desc.dims[1]);
}

static int is_sliced(const joined_set *s, const lathe_st_tensor *t)
{
    for (int64_t i = 0; i < s->n_slices; i++)
        if (s->slices[i].whole == t)
            return 1;
    return 0;
}

static lathe_status collect(joined_set *s)
{
    for (int64_t i = 0; i < lathe_safetensors_count(s->set); i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(s->set, i);
        char *name = NULL;
        const int64_t e = number_of(t, &s->arena, &name);
        if (e >= 0)
            LATHE_TRY(note(s, name, t, e));
        LATHE_TRY(take_apart(s, t));
    }
    for (int64_t i = 0; i < s->n; i++)
        s->list[i].is_whole = is_whole(s->set, &s->list[i]);
    return LATHE_OK;
}

/* Makes a joined tensor plain data. */
static lathe_status copy_parts(joined_set *s, lathe_st_tensor *t)
{
    void *data = lathe_arena_alloc(&s->arena, lathe_desc_bytes(&t->desc));
    if (data == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_st_read(t, 0, lathe_desc_count(&t->desc), data, t->desc.dtype));
    t->data = data;
    t->decode = NULL;
    t->coding = NULL;
    return LATHE_OK;
}

static lathe_status list_slices(joined_set *s, int32_t copies, int64_t *io_n)
{
    for (int64_t i = 0; i < s->n_slices; i++) {
        const slice *part = &s->slices[i];
        const lathe_desc *whole = &part->whole->desc;
        lathe_st_tensor *t = &s->tensors[(*io_n)++];
        *t = *part->whole;
        t->name = part->name;
        t->desc = lathe_desc_2d(whole->dtype, whole->dims[0] * part->rows, whole->dims[2]);
        t->decode = decode_slice;
        t->coding = part;
        if (copies)
            LATHE_TRY(copy_parts(s, t));
    }
    return LATHE_OK;
}

/* The tensors of the joined set: those that were joined or taken apart, then all others. */
static lathe_status list_tensors(joined_set *s, int32_t copies, int64_t *out_n)
{
    const int64_t all = lathe_safetensors_count(s->set);
    *out_n = 0;
    s->tensors = calloc((size_t)(all + s->n + s->n_slices) + 1, sizeof *s->tensors);
    if (s->tensors == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the tensors of experts");
    for (int64_t i = 0; i < s->n; i++) {
        const joined *j = &s->list[i];
        if (!j->is_whole)
            continue;
        lathe_st_tensor *t = &s->tensors[(*out_n)++];
        *t = *j->parts[0];
        t->name = j->name;
        t->desc.dims[0] *= j->n;
        t->decode = decode;
        t->coding = j;
        if (copies)
            LATHE_TRY(copy_parts(s, t));
    }
    LATHE_TRY(list_slices(s, copies, out_n));
    for (int64_t i = 0; i < all; i++) {
        const lathe_st_tensor *t = lathe_safetensors_at(s->set, i);
        char *name = NULL;
        const int64_t e = number_of(t, &s->arena, &name);
        const joined *j = e >= 0 ? find(s, name) : NULL;
        if ((j == NULL || !j->is_whole) && !is_sliced(s, t))
            s->tensors[(*out_n)++] = *t;
    }
    return LATHE_OK;
}

/* ---- lathe_st_owner ---- */

static lathe_status check(const void *arg)
{
    return lathe_safetensors_check(((const joined_set *)arg)->set);
}

static void release(joined_set *s)
{
    for (int64_t i = 0; i < s->n; i++)
        free((void *)s->list[i].parts);
    free(s->list);
    free(s->slices);
    free(s->tensors);
    lathe_arena_fini(&s->arena);
    free(s);
}

static void close_all(void *arg)
{
    joined_set *s = arg;
    lathe_safetensors_close(s->set);
    release(s);
}

lathe_status lathe_expert_tensors_join(lathe_safetensors **io, int32_t copies)
{
    joined_set *s = calloc(1, sizeof *s);
    lathe_safetensors *made = NULL;
    int64_t n = 0;
    if (s == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the tensors of experts");
    s->set = *io;
    lathe_status status = collect(s);
    const int changes = s->n + s->n_slices > 0;
    if (status == LATHE_OK && changes)
        status = list_tensors(s, copies, &n);
    if (status == LATHE_OK && changes) {
        const lathe_st_owner owner = {s, check, close_all};
        status =
            lathe_safetensors_make(lathe_safetensors_path(s->set), s->tensors, n, &owner, &made);
    }
    if (made == NULL)
        release(s);
    else
        *io = made;
    return status;
}

lathe_status lathe_safetensors_open_joined(const char *path, lathe_safetensors **out)
{
    LATHE_TRY(lathe_safetensors_open_all(path, out));
    const lathe_status status = lathe_expert_tensors_join(out, 0);
    if (status == LATHE_OK)
        return LATHE_OK;
    lathe_safetensors_close(*out);
    *out = NULL;
    return status;
}

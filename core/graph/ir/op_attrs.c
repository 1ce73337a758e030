/* Attributes of the core's ops by name, for builders that add ops by name. */
#include "graph/ir/op_attrs.h"

#include <string.h>

#include "base/error.h"

typedef struct member {
    const char *key;
    int32_t type; /* LATHE_T_INT, LATHE_T_FLOAT */
    uint32_t offset, bytes;
} member;

#define MEMBER(name, value_type)                                                                   \
    {                                                                                              \
#name, value_type, (uint32_t)offsetof(lathe_op_attrs, name),                               \
            (uint32_t)sizeof(((lathe_op_attrs *)0)->name)                                          \
    }

static const member members[] = {
    MEMBER(alpha, LATHE_T_FLOAT),     MEMBER(beta, LATHE_T_FLOAT),
    MEMBER(eps, LATHE_T_FLOAT),       MEMBER(softcap, LATHE_T_FLOAT),
    MEMBER(scale, LATHE_T_FLOAT),     MEMBER(p, LATHE_T_FLOAT),
    MEMBER(n_heads, LATHE_T_INT),     MEMBER(n_kv_heads, LATHE_T_INT),
    MEMBER(head_dim, LATHE_T_INT),    MEMBER(window, LATHE_T_INT),
    MEMBER(causal, LATHE_T_INT),      MEMBER(fused_qkv, LATHE_T_INT),
    MEMBER(inverse, LATHE_T_INT),     MEMBER(offset_one, LATHE_T_INT),
    MEMBER(trans_a, LATHE_T_INT),     MEMBER(trans_b, LATHE_T_INT),
    MEMBER(batch, LATHE_T_INT),       MEMBER(start, LATHE_T_INT),
    MEMBER(count, LATHE_T_INT),       MEMBER(chunk_rows, LATHE_T_INT),
    MEMBER(rng_stream, LATHE_T_INT),  MEMBER(dtype, LATHE_T_INT),
    MEMBER(fp8, LATHE_T_INT),         MEMBER(invariant, LATHE_T_INT),
    MEMBER(interleaved, LATHE_T_INT), MEMBER(value_dim, LATHE_T_INT),
};
enum { N_MEMBERS = sizeof members / sizeof *members };

static const member *find(const char *key)
{
    for (int32_t i = 0; i < N_MEMBERS; i++)
        if (strcmp(members[i].key, key) == 0)
            return &members[i];
    return NULL;
}

static lathe_status store(const char *op, const member *m, const lathe_op_attr *attr, char *to)
{
    const int is_whole = attr->type == LATHE_T_INT || attr->type == LATHE_T_BOOL;
    const double f = attr->type == LATHE_T_FLOAT ? attr->f : (double)attr->i;
    const float narrow = (float)f;
    const int32_t i = (int32_t)attr->i;
    if (attr->type == LATHE_T_STRING || (m->type == LATHE_T_INT && !is_whole))
        return lathe_error(LATHE_E_CONFIG, "op %s: attribute %s is a %s, expected a number%s", op,
                           m->key, attr->type == LATHE_T_STRING ? "text" : "fraction",
                           m->type == LATHE_T_INT ? " without one" : "");
    if (m->type == LATHE_T_INT && m->bytes == sizeof i && i != attr->i)
        return lathe_error(LATHE_E_CONFIG,
                           "op %s: attribute %s is %lld, which has more than 32 bits", op, m->key,
                           (long long)attr->i);
    if (m->type == LATHE_T_FLOAT)
        memcpy(to + m->offset, m->bytes == sizeof f ? (const void *)&f : (const void *)&narrow,
               m->bytes);
    else
        memcpy(to + m->offset, m->bytes == sizeof i ? (const void *)&i : (const void *)&attr->i,
               m->bytes);
    return LATHE_OK;
}

lathe_status lathe_op_attrs_read(const char *op, const lathe_op_attr *list, int32_t n,
                                 lathe_op_attrs *out)
{
    memset(out, 0, sizeof *out);
    for (int32_t i = 0; i < n; i++) {
        const member *m = find(list[i].key);
        if (m == NULL)
            return lathe_error(LATHE_E_CONFIG,
                               "op %s has no attribute '%s'; lathe_op_attrs in lathe/op.h has the "
                               "attributes of the core's ops",
                               op, list[i].key);
        LATHE_TRY(store(op, m, &list[i], (char *)out));
    }
    return LATHE_OK;
}

/* The table of kernels' problems, and what its words mean. */
#include "conformance/op_cases.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lathe/fp8.h"
#include "lathe/rng.h"

#define ROW(name, inputs, outputs, n_terms, units, ...)                                            \
    {                                                                                              \
        .op = LATHE_OP_##name, .in = inputs, .out = outputs, .attrs = {__VA_ARGS__},               \
        .terms = n_terms, .half_units = units                                                      \
    }
#define HEADS .n_heads = 4, .n_kv_heads = 2, .head_dim = 6, .batch = 2, .scale = 0.4f

/* Odd sizes, one element, several chunks of a loop; every attribute that changes what an op does. */
static const lathe__op_row rows[] = {
    ROW(EMBED, "i32[31]:t53 c[53,77]", "c[31,77]", 0, 0, .alpha = 0),
    ROW(LINEAR, "c[13,72] c[37,72] f32[37]", "c[13,37]", 72, 0, .alpha = 0),
    ROW(LINEAR, "c[1,33] c[129,33] -", "c[1,129]", 33, 0, .alpha = 0),
    ROW(LINEAR, "bf16[16,80] bf16[48,80] f32[48]", "bf16[16,48]", 80, 0,
        .fp8 = LATHE_FP8_TENSORWISE),
    ROW(LINEAR, "bf16[16,80] bf16[48,80] f32[48]", "bf16[16,48]", 80, 0, .fp8 = LATHE_FP8_ROWWISE),
    ROW(RMSNORM, "c[9,48]:2 f32[48]:+", "c[9,48] f32[9]", 48, 0, .eps = 1e-5f),
    ROW(RMSNORM, "c[3,67]:2 f32[67]:+", "c[3,67] f32[3]", 67, 0, .eps = 1e-2f, .offset_one = 1),
    ROW(LAYERNORM, "c[9,67]:2 f32[67]:+ f32[67]", "c[9,67] f32[9] f32[9]", 67, 0, .eps = 1e-5f),
    ROW(LAYERNORM, "c[1,5]:2 f32[5]:+ -", "c[1,5] f32[1] f32[1]", 5, 0, .eps = 1e-2f),
    ROW(ROPE, "c[19,66] i32[19]:t31 f32[31,2,11]", "c[19,66]", 2, 0, .head_dim = 22),
    ROW(ROPE, "c[7,4] i32[7]:t9 f32[9,2,1]", "c[7,4]", 2, 0, .head_dim = 2, .inverse = 1),
    ROW(ATTENTION, "c[14,24] c[14,12] c[14,12] - -", "c[14,24] f32[2,4,7]", 40, 8, HEADS,
        .causal = 1),
    ROW(ATTENTION, "c[14,48] - - - -", "c[14,24] f32[2,4,7]", 40, 8, HEADS, .causal = 1,
        .fused_qkv = 1, .window = 3, .softcap = 2.0f),
    ROW(SWIGLU, "c[5,67]:2 c[5,67]", "c[5,67]", 4, 0, .alpha = 0),
    ROW(GELU_TANH, "c[5003]:2", "c[5003]", 4, 0, .alpha = 0),
    ROW(ADD, "c[7,33] c[7,33]", "c[7,33]", 1, 0, .alpha = 0),
    ROW(ADD, "c[40003] c[40003]", "c[40003]", 1, 0, .alpha = 0),
    ROW(SUB, "c[1025] c[1025]", "c[1025]", 1, 0, .alpha = 0),
    ROW(MUL, "c[1025] c[1025]", "c[1025]", 1, 0, .alpha = 0),
    ROW(SCALE, "c[1025]", "c[1025]", 1, 0, .alpha = 0.75, .beta = -1.25),
    ROW(SCALE_BY, "f32[1025] f32[3]", "f32[1025]", 1, 0, .start = 2),
    ROW(LINCOMB, "c[1025] c[1025]", "c[1025]", 2, 0, .alpha = 0.75, .beta = -1.25),
    ROW(DROPOUT, "c[5003] i64[2]:r", "c[5003]", 1, 0, .p = 0.3f, .rng_stream = 9),
    ROW(DROPOUT, "c[5] i64[2]:r", "c[5]", 1, 0, .p = 0.0f, .rng_stream = ((uint64_t)5 << 33) + 9),
    ROW(HEAD_LOGPROB, "c[13,9] c[37,9] i32[13]:T37", "f32[13]", 40, 4, .chunk_rows = 4),
    ROW(HEAD_LOGPROB, "c[3,8] c[130,8] i32[3]:t130", "f32[3]", 130, 4, .softcap = 2.0f),
    ROW(DEQUANT, "u8[64] f32[1] - - - -", "c[8,8]", 1, 0, .alpha = 0),
    ROW(CAST, "c[1025]", "f32[1025]", 0, 0, .dtype = LATHE_F32),
    ROW(CAST, "f32[1025]", "c[1025]", 0, 0, .dtype = LATHE_ABSENT), /* to c: filled in below */
    ROW(COPY, "c[40003]", "c[40003]", 0, 0, .alpha = 0),
    ROW(SUM, "f32[40001]", "f32[]", 16, 0, .alpha = 0),
    ROW(ROW_SUM, "f32[1400]", "f32[200]", 7, 0, .count = 7),
    ROW(SLICE, "c[11,7]", "c[4,7]", 0, 0, .start = 3, .count = 4),
    ROW(LOGSIGMOID, "f32[1001]:2", "f32[1001]", 8, 0, .alpha = 0),
    ROW(SIGMOID, "f32[1001]:2", "f32[1001]", 8, 0, .alpha = 0),
    ROW(KV_APPEND, "c[3,9,10] c[9,10] i32[3]:k", "c[3,9,10]", 0, 0, .alpha = 0),
    ROW(MATMUL, "c[23,41] c[41,31]", "c[23,31]", 41, 0, .alpha = 1.0),
    ROW(MATMUL, "c[41,23] c[41,31]", "c[23,31]", 41, 0, .alpha = -0.75, .trans_a = 1),
    ROW(MATMUL, "c[23,41] c[31,41]", "c[23,31]", 41, 0, .alpha = 0.5, .trans_b = 1),
    ROW(MATMUL, "c[41,23] c[31,41]", "c[23,31]", 41, 0, .alpha = 2.0, .trans_a = 1, .trans_b = 1),
    ROW(L2_NORMALIZE, "f32[6633]", "f32[6633]", 16, 0, .eps = 1e-3f, .dtype = LATHE_F32),
    ROW(TRANSPOSE, "c[37,45]", "c[45,37]", 0, 0, .alpha = 0),
    ROW(APPLY_UPDATE, "f32[5003] c[5003] f32[4]", "f32[5003]", 2, 0, .alpha = 0.75, .beta = -1.25,
        .start = 1),
    ROW(EMBED_BWD, "c[301,13] i32[301]:t53", "f32[60,13]", 301, 0, .alpha = 0),
    ROW(LINEAR_DX, "c[13,37] c[37,72]", "c[13,72]", 37, 0, .alpha = 0),
    ROW(LINEAR_DX, "c[1,3] c[3,5]", "c[1,5]", 3, 0, .alpha = 0),
    ROW(LINEAR_DW, "c[37,45] c[37,67]", "f32[45,67] f32[45]", 37, 0, .alpha = 0),
    ROW(LINEAR_DW, "c[1,9] c[1,33]", "f32[9,33] -", 1, 0, .alpha = 0),
    ROW(LINEAR_DW, "c[29,9] c[29,33]", "c[9,33] f32[9]", 29, 0, .alpha = 0),
    ROW(RMSNORM_BWD, "c[7,21] c[7,21]:2 f32[21]:+ f32[7]:+", "c[7,21] f32[21]", 28, 0,
        .eps = 1e-5f),
    ROW(RMSNORM_BWD, "c[2,67] c[2,67]:2 f32[67]:+ f32[2]:+", "c[2,67] -", 67, 0, .eps = 1e-5f,
        .offset_one = 1),
    ROW(LAYERNORM_BWD, "c[7,21] c[7,21]:2 f32[21]:+ f32[7] f32[7]:+", "c[7,21] f32[21] f32[21]", 28,
        0, .eps = 1e-5f),
    ROW(LAYERNORM_BWD, "c[2,67] c[2,67]:2 f32[67]:+ f32[2] f32[2]:+", "c[2,67] - -", 67, 0,
        .eps = 1e-5f),
    ROW(ATTENTION_BWD, "c[14,24] c[14,24] c[14,12] c[14,12] c[14,24] f32[2,4,7] -",
        "c[14,24] c[14,12] c[14,12]", 60, 16, HEADS, .causal = 1),
    ROW(SWIGLU_BWD, "c[5,67] c[5,67]:2 c[5,67]", "c[5,67] c[5,67]", 8, 0, .alpha = 0),
    ROW(GELU_TANH_BWD, "c[5003] c[5003]:2", "c[5003]", 8, 0, .alpha = 0),
    ROW(DROPOUT_BWD, "c[5003] i64[2]:r", "c[5003]", 1, 0, .p = 0.3f, .rng_stream = 9),
    ROW(HEAD_LOGPROB_BWD, "c[13,9] c[37,9] i32[13]:T37 f32[13]", "f32[13] c[13,9] f32[37,9]", 64, 4,
        .chunk_rows = 4),
    ROW(HEAD_LOGPROB_BWD, "c[3,8] c[40,8] i32[3]:t40 f32[3]", "f32[3] c[3,8] -", 64, 4,
        .softcap = 2.0f),
    ROW(BROADCAST, "f32[5]", "f32[35]", 0, 0, .count = 7),
    ROW(BROADCAST, "f32[]", "f32[5003]", 0, 0, .count = 5003),
    ROW(SLICE_BWD, "c[4,7]", "c[11,7]", 0, 0, .start = 3, .count = 4),
    ROW(HEAD_EVAL, "c[13,5]:w c[101,5]:w i32[13]:T101", "f32[13] f32[13] i32[13]", 110, 0,
        .chunk_rows = 8),
    ROW(HEAD_SAMPLE, "c[37,5]:w c[101,5]:w i32[37]:T101 i64[2]:r", "i32[37]", 0, 0,
        .rng_stream = 9),
    ROW(SUM_SQUARES, "c[301] i64[4,2]:s", "f64[4]", 0, 0, .alpha = 0),
    ROW(UPDATE_SQUARES, "f32[16411] c[16411,1] f32[2]", "f64[2]", 0, 0, .alpha = 0.75,
        .beta = -1.25, .start = 1),
    ROW(CLAMP, "c[5003] f32[2]", "c[5003]", 0, 0, .start = 1),
    ROW(LINEAR_GELU, "c[13,24] c[37,24] f32[37]", "c[13,37] c[13,37]", 24, 4, .alpha = 0),
    ROW(LINEAR_GELU, "c[1,33] c[5,33] -", "c[1,5] -", 33, 4, .alpha = 0),
    ROW(LINEAR_DX_GELU, "c[13,37] c[37,24] c[13,24]:2", "c[13,24]", 37, 4, .alpha = 0),
    ROW(ADD_RMSNORM, "c[9,67] c[9,67] f32[67]:+", "c[9,67] c[9,67] f32[9]", 67, 2, .eps = 1e-5f),
    ROW(ADD_LAYERNORM, "c[9,67] c[9,67] f32[67]:+ f32[67]", "c[9,67] c[9,67] f32[9] f32[9]", 67, 2,
        .eps = 1e-5f),
};

const lathe__op_row *lathe__op_rows_table(int32_t *out_n)
{
    *out_n = (int32_t)(sizeof rows / sizeof rows[0]);
    return rows;
}

/* The word that begins at `text`, for tensor i; NULL: there is none. */
static const char *word_at(const char *text, int32_t i)
{
    while (i > 0 && text != NULL) {
        text = strchr(text, ' ');
        text = text != NULL ? text + 1 : NULL;
        i--;
    }
    return text;
}

static int32_t dtype_of(const char *word, size_t n, int32_t compute)
{
    if (n == 1 && word[0] == 'c')
        return compute;
    for (int32_t d = 0; d < LATHE_N_DTYPES; d++)
        if (strlen(lathe_dtype_name(d)) == n && strncmp(word, lathe_dtype_name(d), n) == 0)
            return d;
    return LATHE_N_DTYPES;
}

static lathe_status read_tensor(const char *word, int32_t compute, lathe_desc *out)
{
    const size_t n = strcspn(word, "[ ");
    *out = (lathe_desc){LATHE_ABSENT, 0, {1, 1, 1, 1}};
    if (word[0] == '-')
        return LATHE_OK;
    out->dtype = dtype_of(word, n, compute);
    if (out->dtype == LATHE_N_DTYPES || word[n] != '[')
        return lathe_error(LATHE_E_ARG, "the table of ops has the tensor '%s'", word);
    for (const char *at = word + n + 1; *at != ']' && *at != '\0' && out->rank < LATHE_MAX_RANK;) {
        char *end;
        out->dims[out->rank++] = strtoll(at, &end, 10);
        at = *end == ',' ? end + 1 : end;
    }
    return LATHE_OK;
}

static lathe_status read_tensors(const char *text, int32_t compute, int32_t most, lathe_desc *out,
                                 int32_t *out_n)
{
    *out_n = 0;
    for (const char *word; *out_n < most && (word = word_at(text, *out_n)) != NULL; (*out_n)++)
        LATHE_TRY(read_tensor(word, compute, &out[*out_n]));
    return LATHE_OK;
}

static int has_c(const char *text)
{
    return strncmp(text, "c[", 2) == 0 || strstr(text, " c[") != NULL;
}

lathe_status lathe__op_row_problem(const lathe__op_row *row, int32_t dtype, lathe__op_problem *out,
                                   int *out_uses_c)
{
    *out = (lathe__op_problem){.op = row->op, .attrs = row->attrs};
    if (row->op == LATHE_OP_CAST && row->attrs.dtype == LATHE_ABSENT)
        out->attrs.dtype = dtype;
    *out_uses_c = has_c(row->in) || has_c(row->out);
    LATHE_TRY(read_tensors(row->in, dtype, LATHE_OP_MAX_IN, out->in, &out->n_in));
    return read_tensors(row->out, dtype, LATHE_OP_MAX_OUT, out->out, &out->n_out);
}

/* Uniform in [-1, 1). */
static double noise(uint64_t seed, int64_t i)
{
    const lathe_u32x4 r = lathe_rng_block(seed, 0, 77, (uint64_t)i);
    return 2.0 * lathe_uniform_f64(r.v[0], r.v[1]) - 1.0;
}

/* Two segments that overlap, an empty one, and all of it. */
static const double segments[8] = {0, 100, 37, 200, 300, 0, 0, 301};

static double filled(const char *fill, double x, int64_t i)
{
    const int has_number = fill[0] != '\0' && isdigit((unsigned char)fill[1]);
    const int64_t n = has_number ? strtoll(fill + 1, NULL, 10) : 1;
    switch (fill[0]) {
    case '+':
        return 1.0 + 0.5 * x;
    case '2':
        return 2.0 * x;
    case 'w':
        return rint(2.0 * x);
    case 't':
        return (double)((2 + 7 * i) % n);
    case 'T':
        return i % 3 == 0 ? -1.0 : (double)((1 + 7 * i) % n);
    case 'r':
        return i == 0 ? 1234567.0 : 17.0;
    case 's':
        return segments[i];
    case 'k':
        return (double)(5 + 2 * (i % 3)); /* 5, 7, 9 */
    default:
        return x;
    }
}

void lathe__op_row_fill(const lathe__op_row *row, const lathe__op_problem *p, int32_t i,
                        double *values)
{
    const char *word = word_at(row->in, i), *fill = "";
    const size_t n = word != NULL ? strcspn(word, " ") : 0;
    const char *colon = n > 0 ? memchr(word, ':', n) : NULL;
    if (colon != NULL)
        fill = colon + 1;
    for (int64_t k = 0; k < lathe_desc_count(&p->in[i]); k++)
        values[k] = lathe__op_round(filled(fill, noise((uint64_t)(100 * row->op + i), k), k),
                                    p->in[i].dtype);
}

/* Half a unit of the dtype's last place, and f32 sums that are added up over at least 8 lanes. */
double lathe__op_row_bound(const lathe__op_row *row, int32_t compute_dtype, int32_t out_dtype,
                           double want, double largest)
{
    const double half[] = {[LATHE_F32] = 0x1p-22, [LATHE_BF16] = 0x1p-8, [LATHE_F16] = 0x1p-11};
    const double round_off = out_dtype <= LATHE_F16 ? half[out_dtype] : 0.0;
    const double between =
        compute_dtype == LATHE_BF16 || compute_dtype == LATHE_F16 ? half[compute_dtype] : 0.0;
    const double sums = out_dtype == LATHE_F64  ? 0x1p-40
                        : out_dtype > LATHE_F16 ? 0.0
                                                : 0x1p-24 * (8.0 + 4.0 * sqrt((double)row->terms));
    return round_off * fabs(want) + (sums + row->half_units * between) * largest +
           (out_dtype == LATHE_F16 ? 0x1p-25 : (double)FLT_MIN);
}

/* Interprets the text of an op's test cases. */
#include "check/device/op_cases.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lathe/rng.h"

/* The word of tensor i in `text`; NULL: there is none. */
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

lathe_status lathe__op_case_problem(int32_t op, const lathe_op_case *c, int32_t dtype,
                                    lathe_op_problem *out, int *out_uses_c)
{
    *out = (lathe_op_problem){.op = op, .attrs = c->attrs};
    if (c->attrs.dtype == LATHE_ABSENT) /* the attribute is the compute dtype */
        out->attrs.dtype = dtype;
    *out_uses_c = has_c(c->in) || has_c(c->out);
    LATHE_TRY(read_tensors(c->in, dtype, LATHE_OP_MAX_IN, out->in, &out->n_in));
    return read_tensors(c->out, dtype, LATHE_OP_MAX_OUT, out->out, &out->n_out);
}

/* Uniform in [-1, 1). */
static double noise(uint64_t seed, int64_t i)
{
    const lathe_u32x4 r = lathe_rng_block(seed, 0, 77, (uint64_t)i);
    return 2.0 * lathe_uniform_f64(r.v[0], r.v[1]) - 1.0;
}

/* Two overlapping segments, an empty one, and the whole. */
/* Rank 2 of 3 has pairs. */
static const double counters[2][LATHE_RNG_COUNTER] = {{1234567, 17, 0, 1, 1},
                                                      {1234567, 17, 2, 3, 2}};
static const double segments[8] = {0, 100, 37, 200, 300, 0, 0, 301};

/* Column i%8 of request i/8 of SAMPLE, of n rows of logits. Drafted: every other request has a
 * token that was drafted. */
static double request(int64_t i, int64_t n, int is_drafted)
{
    const int64_t r = i / LATHE_SAMPLE_COLUMNS;
    switch (i % LATHE_SAMPLE_COLUMNS) {
    case LATHE_SAMPLE_ROW:
        return r % 7 == 6 ? -1.0 : (double)((1 + 5 * r) % n);
    case LATHE_SAMPLE_DRAFT_ROW:
        return is_drafted ? (double)(r % n) : 0.0;
    case LATHE_SAMPLE_DRAFTED:
        return is_drafted && r % 2 ? (double)(3 * r % 31) : -1.0;
    case LATHE_SAMPLE_POSITION:
        return (double)(10 + r);
    case LATHE_SAMPLE_SEED:
        return (double)(1234 + r / 3);
    case LATHE_SAMPLE_STREAM:
        return 77.0;
    case LATHE_SAMPLE_TOP_K:
        return (double)(r % 5 == 1 ? 4 : r % 5 == 3 ? 600 : 0);
    default:
        return 0.0;
    }
}

/* Column i%4 of the settings of request i/4 of SAMPLE. */
static double setting(int64_t i)
{
    static const double temperatures[4] = {1.0, 0.7, 0.0, 2.0}, top_ps[3] = {1.0, 0.9, 0.4},
                        min_ps[3] = {0.0, 0.0, 0.2}, penalties[3] = {1.0, 0.0, 1.3};
    const int64_t r = i / LATHE_SAMPLE_SETTINGS;
    switch (i % LATHE_SAMPLE_SETTINGS) {
    case LATHE_SAMPLE_TEMPERATURE:
        return temperatures[r % 4];
    case LATHE_SAMPLE_TOP_P:
        return top_ps[r / 2 % 3];
    case LATHE_SAMPLE_MIN_P:
        return min_ps[r / 3 % 3];
    default:
        return penalties[r % 3];
    }
}

static double filled(const char *fill, double x, int64_t i)
{
    const int has_number = fill[0] != '\0' && isdigit((unsigned char)fill[1]);
    const int64_t n = has_number ? strtoll(fill + 1, NULL, 10) : 1;
    switch (fill[0]) {
    case '+':
        return 1.0 + 0.5 * x;
    case '-':
        return -1.0 - 0.5 * x;
    case '2':
        return 2.0 * x;
    case 'p': /* documents of five tokens, the first one of three */
        return (double)(i % n < 3 ? 0 : 3 + (i % n - 3) / 5 * 5);
    case 'w':
        return rint(2.0 * x);
    case 't':
        return (double)((2 + 7 * i) % n);
    case 'T':
        return i % 3 == 0 ? -1.0 : (double)((1 + 7 * i) % n);
    case 'r':
    case 'R':
        return counters[fill[0] == 'R'][i];
    case 's':
        return segments[i];
    case 'g': /* 0, 5, 5, 15, 20, .. and at last n: the second group has no rows */
        return fmin((double)n, 5.0 * (double)(i == 2 ? 1 : i));
    case 'k':
        return (double)(5 + 2 * (i % 3)); /* 5, 7, 9 */
    case 'd':
    case 'D':
        return request(i, n, fill[0] == 'D');
    case 'h':
        return setting(i);
    case 'b':
        return (double)(int32_t)((uint32_t)(i + 1) * 0x5a0f1249u);
    default:
        return x;
    }
}

void lathe__op_case_fill(const lathe_op_case *c, const lathe_op_problem *p, int32_t i,
                         double *values)
{
    const char *word = word_at(c->in, i), *fill = "";
    const size_t n = word != NULL ? strcspn(word, " ") : 0;
    const char *colon = n > 0 ? memchr(word, ':', n) : NULL;
    if (colon != NULL)
        fill = colon + 1;
    for (int64_t k = 0; k < lathe_desc_count(&p->in[i]); k++)
        values[k] =
            lathe__op_round(filled(fill, noise((uint64_t)(100 * p->op + i), k), k), p->in[i].dtype);
}

/* Half a unit in the last place of the dtype, and f32 sums over at least 8 lanes. */
double lathe__op_case_bound(const lathe_op_case *c, int32_t compute_dtype, int32_t out_dtype,
                            int32_t is_gpu, double want, double largest)
{
    const double half[] = {[LATHE_F32] = 0x1p-22, [LATHE_BF16] = 0x1p-8, [LATHE_F16] = 0x1p-11};
    const double round_off = out_dtype <= LATHE_F16 ? half[out_dtype] : 0.0;
    const double between =
        compute_dtype == LATHE_BF16 || compute_dtype == LATHE_F16 ? half[compute_dtype] : 0.0;
    const int is_f64 = out_dtype == LATHE_F64; /* with terms: the log of a sum in f32 */
    const double sums = is_f64 && c->terms == 0 ? 0x1p-40
                        : !is_f64 && out_dtype > LATHE_F16
                            ? 0.0
                            : 0x1p-24 * (8.0 + 4.0 * sqrt((double)c->terms));
    /* a GPU keeps 14 bits of a sum of fp8 products after every 32 of them, and cuts off the others
     * ("DeepSeek-V3 Technical Report", 3.3.2) */
    const double fp8 =
        is_gpu && c->attrs.fp8 != 0 ? 0x1p-13 * (1.0 + (double)c->terms / 32.0) : 0.0;
    return round_off * fabs(want) + (sums + fp8 + c->half_units * between) * largest +
           (out_dtype == LATHE_F16 ? 0x1p-25 : (double)FLT_MIN);
}

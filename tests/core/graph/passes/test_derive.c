/* The derivative: every rule against central differences, sums over several uses, and its refusals.
 */
#include "support/graph_fixture.h"

typedef lathe_val (*rule_fn)(fixture *f);

/* bf16 rounds to 2^-9 relative; a gradient here is a sum of at most some tens of products of a few
 * such factors, each off by less than 2^-7 of the largest. f16 has three more bits. */
#define BF16_TOLERANCE 0x1p-4
#define F16_TOLERANCE 0x1p-7

/* The gradients in half precision are approximately those in f32: dtypes fit and no term is
 * missing. */
static void check_half(rule_fn rule, int32_t dtype, double tolerance)
{
    fixture f32, half;
    fixture_open(&f32, LATHE_F32);
    fixture_finish(&f32, fixture_loss(&f32, rule(&f32)));
    fixture_run(&f32, 0);
    fixture_open(&half, dtype);
    fixture_finish(&half, fixture_loss(&half, rule(&half)));
    fixture_run(&half, 0);
    for (int32_t p = 0; p < f32.params.n; p++) {
        const int64_t n = lathe_desc_count(&f32.params.rows[p]->desc);
        double scale = 0.0;
        if (!f32.params.rows[p]->trainable)
            continue;
        float *want = fixture_gradient(&f32, p), *got = fixture_gradient(&half, p);
        for (int64_t i = 0; i < n; i++)
            scale = fmax(scale, fabs((double)want[i]));
        for (int64_t i = 0; i < n; i++)
            cr_expect(fabs((double)got[i] - (double)want[i]) <= tolerance * scale,
                      "%s[%lld] in %s: %g, in f32 %g", f32.params.rows[p]->name, (long long)i,
                      lathe_dtype_name(dtype), (double)got[i], (double)want[i]);
        free(want);
        free(got);
    }
    fixture_close(&f32);
    fixture_close(&half);
}

static void check_rule(rule_fn rule)
{
    fixture f;
    fixture_open(&f, LATHE_F32);
    fixture_finish(&f, fixture_loss(&f, rule(&f)));
    fixture_check(&f);
    fixture_close(&f);
    check_half(rule, LATHE_BF16, BF16_TOLERANCE);
    check_half(rule, LATHE_F16, F16_TOLERANCE);
}

#define RULE(name)                                                                                 \
    static lathe_val rule_##name(fixture *f);                                                      \
    Test(derive, name)                                                                             \
    {                                                                                              \
        check_rule(rule_##name);                                                                   \
    }                                                                                              \
    static lathe_val rule_##name(fixture *f)

RULE(linear)
{
    const lathe_val x = fixture_matrix(f, "x", 3, 4), w = fixture_matrix(f, "w", 5, 4);
    return fixture_linear(f, x, w, LATHE_NONE);
}

RULE(linear_with_bias)
{
    const lathe_val x = fixture_matrix(f, "x", 3, 4), w = fixture_matrix(f, "w", 5, 4);
    return fixture_linear(f, x, w, fixture_vector(f, "b", 5));
}

RULE(linear_whose_bias_alone_trains)
{
    const lathe_val x = fixture_param(f, "x", 3, 4, 0), w = fixture_param(f, "w", 5, 4, 0);
    return fixture_linear(f, x, w, fixture_vector(f, "b", 5));
}

RULE(linear_whose_weight_is_computed)
{
    const lathe_val x = fixture_matrix(f, "x", 3, 4), w = fixture_matrix(f, "w", 5, 4);
    return fixture_linear(f, x, fixture_binary(f, LATHE_OP_MUL, w, w), LATHE_NONE);
}

RULE(embed)
{
    static const int32_t ids[] = {2, 0, 2, 1, 2};
    const lathe_val w = fixture_matrix(f, "w", 4, 3);
    return fixture_binary(f, LATHE_OP_EMBED, fixture_ids(f, ids, 5), w);
}

RULE(rmsnorm)
{
    const lathe_op_attrs attrs = {.eps = 1e-5f};
    const lathe_val x = fixture_matrix(f, "x", 3, 4);
    return fixture_node(f, LATHE_OP_RMSNORM, &attrs, x, fixture_vector(f, "w", 4), LATHE_NONE);
}

RULE(rmsnorm_of_heads_with_offset)
{
    const lathe_op_attrs attrs = {.eps = 1e-5f, .offset_one = 1};
    const lathe_val x = fixture_matrix(f, "x", 2, 6);
    return fixture_node(f, LATHE_OP_RMSNORM, &attrs, x, fixture_vector(f, "w", 3), LATHE_NONE);
}

RULE(layernorm)
{
    const lathe_op_attrs attrs = {.eps = 1e-5f};
    const lathe_val x = fixture_matrix(f, "x", 3, 5), w = fixture_vector(f, "w", 5);
    return fixture_node(f, LATHE_OP_LAYERNORM, &attrs, x, w, fixture_vector(f, "b", 5));
}

RULE(layernorm_without_bias)
{
    const lathe_op_attrs attrs = {.eps = 1e-5f};
    const lathe_val x = fixture_matrix(f, "x", 3, 5), w = fixture_vector(f, "w", 5);
    return fixture_node(f, LATHE_OP_LAYERNORM, &attrs, x, w, LATHE_NONE);
}

static lathe_val turned(fixture *f, lathe_val x, int32_t head_dim, int32_t inverse)
{
    static const int32_t positions[] = {0, 3, 1, 2};
    const lathe_op_attrs attrs = {.head_dim = head_dim, .inverse = inverse};
    float table[4][2][2];
    lathe_val at;
    for (int p = 0; p < 4; p++)
        for (int i = 0; i < 2; i++) {
            table[p][0][i] = cosf((float)p / (float)(1 + 9 * i));
            table[p][1][i] = sinf((float)p / (float)(1 + 9 * i));
        }
    const lathe_desc desc = {LATHE_F32, 3, {4, 2, 2, 1}};
    OK(lathe_graph_const(f->g, "rope", desc, table, &at));
    return fixture_node(f, LATHE_OP_ROPE, &attrs, x, fixture_ids(f, positions, 4), at);
}

RULE(rope)
{
    return turned(f, fixture_matrix(f, "x", 4, 8), 4, 0);
}

RULE(rope_backwards)
{
    return turned(f, fixture_matrix(f, "x", 4, 8), 4, 1);
}

RULE(rope_of_a_part_of_each_head)
{
    return turned(f, fixture_matrix(f, "x", 4, 14), 7, 0);
}

/* B = 2, T = 3, H = 2, Hkv = 1, D = 4 */
RULE(attention_with_grouped_heads)
{
    const lathe_op_attrs attrs = {.n_heads = 2, .n_kv_heads = 1, .causal = 1};
    const lathe_val in[5] = {fixture_matrix(f, "q", 6, 8), fixture_matrix(f, "k", 6, 4),
                             fixture_matrix(f, "v", 6, 4), LATHE_NONE, LATHE_NONE};
    return fixture_attention(f, attrs, in);
}

RULE(attention_over_fused_rows_of_documents)
{
    static const int32_t doc_start[] = {0, 0, 2, 0, 1, 1};
    const lathe_op_attrs attrs = {.n_heads = 2, .n_kv_heads = 2, .causal = 1, .fused_qkv = 1};
    const lathe_val in[5] = {fixture_matrix(f, "qkv", 6, 24), LATHE_NONE, LATHE_NONE,
                             fixture_ids(f, doc_start, 6), LATHE_NONE};
    return fixture_attention(f, attrs, in);
}

RULE(attention_of_a_value_with_itself)
{
    const lathe_op_attrs attrs = {.n_heads = 2, .n_kv_heads = 2, .causal = 1};
    const lathe_val x = fixture_matrix(f, "x", 6, 8);
    const lathe_val y = fixture_binary(f, LATHE_OP_MUL, x, x);
    const lathe_val in[5] = {y, y, y, LATHE_NONE, LATHE_NONE};
    return fixture_binary(f, LATHE_OP_ADD, fixture_attention(f, attrs, in), y);
}

RULE(swiglu)
{
    return fixture_binary(f, LATHE_OP_SWIGLU, fixture_matrix(f, "gate", 3, 5),
                          fixture_matrix(f, "up", 3, 5));
}

/* Both outputs of one node are gradients of x, which already has one. */
RULE(swiglu_of_one_value_used_again)
{
    const lathe_val p = fixture_matrix(f, "x", 3, 5);
    const lathe_val x = fixture_binary(f, LATHE_OP_MUL, p, p);
    const lathe_val y = fixture_binary(f, LATHE_OP_SWIGLU, x, x);
    return fixture_binary(f, LATHE_OP_ADD, y, fixture_unary(f, LATHE_OP_GELU_TANH, x));
}

RULE(swiglu_of_a_parameter_with_itself)
{
    const lathe_val p = fixture_matrix(f, "x", 3, 5);
    return fixture_binary(f, LATHE_OP_SWIGLU, p, p);
}

RULE(gelu_tanh)
{
    return fixture_unary(f, LATHE_OP_GELU_TANH, fixture_matrix(f, "x", 3, 5));
}

RULE(gelu)
{
    return fixture_unary(f, LATHE_OP_GELU, fixture_matrix(f, "x", 3, 5));
}

RULE(add)
{
    return fixture_binary(f, LATHE_OP_ADD, fixture_matrix(f, "x", 3, 5),
                          fixture_matrix(f, "y", 3, 5));
}

RULE(add_of_a_value_to_itself)
{
    const lathe_val x = fixture_matrix(f, "x", 3, 5);
    const lathe_val y = fixture_unary(f, LATHE_OP_GELU_TANH, x);
    return fixture_binary(f, LATHE_OP_ADD, fixture_binary(f, LATHE_OP_ADD, y, y),
                          fixture_binary(f, LATHE_OP_ADD, x, x));
}

RULE(sub)
{
    const lathe_val x = fixture_matrix(f, "x", 3, 5), y = fixture_matrix(f, "y", 3, 5);
    return fixture_binary(f, LATHE_OP_SUB, x, fixture_unary(f, LATHE_OP_GELU_TANH, y));
}

RULE(mul)
{
    return fixture_binary(f, LATHE_OP_MUL, fixture_matrix(f, "x", 3, 5),
                          fixture_matrix(f, "y", 3, 5));
}

RULE(mul_of_a_value_with_itself)
{
    const lathe_val x = fixture_unary(f, LATHE_OP_GELU_TANH, fixture_matrix(f, "x", 3, 5));
    return fixture_binary(f, LATHE_OP_MUL, x, x);
}

RULE(scale)
{
    const lathe_op_attrs attrs = {.alpha = -1.5, .beta = 0.25};
    const lathe_val x = fixture_matrix(f, "x", 3, 5);
    return fixture_node(f, LATHE_OP_SCALE, &attrs, x, LATHE_NONE, LATHE_NONE);
}

RULE(scale_by)
{
    const lathe_op_attrs attrs = {.start = 2};
    const lathe_val s = fixture_const(f, lathe_desc_1d(LATHE_F32, 4));
    return fixture_node(f, LATHE_OP_SCALE_BY, &attrs, fixture_vector(f, "x", 6), s, LATHE_NONE);
}

RULE(lincomb)
{
    const lathe_op_attrs attrs = {.alpha = 0.5, .beta = -2.0};
    return fixture_node(f, LATHE_OP_LINCOMB, &attrs, fixture_matrix(f, "x", 3, 5),
                        fixture_matrix(f, "y", 3, 5), LATHE_NONE);
}

/* y stays f32 while x has the compute dtype. */
RULE(lincomb_of_two_dtypes)
{
    const lathe_op_attrs attrs = {.alpha = 0.5, .beta = -2.0};
    const lathe_val x = fixture_unary(f, LATHE_OP_GELU_TANH, fixture_matrix(f, "x", 3, 5));
    const lathe_val y = fixture_f32(f, fixture_matrix(f, "y", 3, 5));
    return fixture_node(f, LATHE_OP_LINCOMB, &attrs, x, y, LATHE_NONE);
}

RULE(dropout)
{
    lathe_val rng;
    OK(lathe_graph_api_get()->rng(f->g, &rng));
    const lathe_op_attrs attrs = {.p = 0.4f, .rng_stream = lathe_graph_api_get()->rng_stream(f->g)};
    const lathe_val x = fixture_matrix(f, "x", 5, 7);
    return fixture_node(f, LATHE_OP_DROPOUT, &attrs, x, rng, LATHE_NONE);
}

RULE(head_logprob)
{
    return fixture_head(f, fixture_matrix(f, "x", 4, 3), fixture_matrix(f, "w", 6, 3), 0.0f);
}

RULE(head_logprob_with_a_soft_cap)
{
    return fixture_head(f, fixture_matrix(f, "x", 4, 3), fixture_matrix(f, "w", 6, 3), 1.5f);
}

RULE(head_logprob_of_a_frozen_head)
{
    return fixture_head(f, fixture_matrix(f, "x", 4, 3), fixture_param(f, "w", 6, 3, 0), 0.0f);
}

RULE(head_tied_to_the_embedding)
{
    static const int32_t ids[] = {3, 1, 1, 4};
    const lathe_val w = fixture_matrix(f, "w", 6, 3);
    const lathe_val x = fixture_binary(f, LATHE_OP_EMBED, fixture_ids(f, ids, 4), w);
    return fixture_head(f, fixture_unary(f, LATHE_OP_GELU_TANH, x), w, 0.0f);
}

RULE(cast_of_a_parameter)
{
    return fixture_f32(f, fixture_matrix(f, "x", 3, 5));
}

RULE(copy)
{
    const lathe_val x = fixture_matrix(f, "x", 3, 5);
    return fixture_unary(f, LATHE_OP_GELU_TANH, fixture_unary(f, LATHE_OP_COPY, x));
}

RULE(sum)
{
    const lathe_val x = fixture_f32(f, fixture_matrix(f, "x", 3, 5));
    return fixture_unary(f, LATHE_OP_SUM, fixture_binary(f, LATHE_OP_MUL, x, x));
}

RULE(row_sum)
{
    const lathe_op_attrs attrs = {.count = 4};
    const lathe_val x = fixture_vector(f, "x", 12);
    return fixture_node(f, LATHE_OP_ROW_SUM, &attrs, x, LATHE_NONE, LATHE_NONE);
}

RULE(slice)
{
    const lathe_op_attrs attrs = {.start = 1, .count = 2};
    const lathe_val x = fixture_matrix(f, "x", 5, 3);
    return fixture_node(f, LATHE_OP_SLICE, &attrs, x, LATHE_NONE, LATHE_NONE);
}

RULE(slices_that_overlap)
{
    const lathe_op_attrs first = {.start = 0, .count = 3}, second = {.start = 1, .count = 3};
    const lathe_val x = fixture_unary(f, LATHE_OP_GELU_TANH, fixture_matrix(f, "x", 5, 3));
    return fixture_binary(f, LATHE_OP_MUL,
                          fixture_node(f, LATHE_OP_SLICE, &first, x, LATHE_NONE, LATHE_NONE),
                          fixture_node(f, LATHE_OP_SLICE, &second, x, LATHE_NONE, LATHE_NONE));
}

RULE(logsigmoid)
{
    return fixture_unary(f, LATHE_OP_LOGSIGMOID, fixture_vector(f, "x", 9));
}

RULE(sigmoid)
{
    return fixture_unary(f, LATHE_OP_SIGMOID, fixture_vector(f, "x", 9));
}

static lathe_val matmul(fixture *f, int32_t trans_a, int32_t trans_b)
{
    const lathe_op_attrs attrs = {.alpha = 0.75, .trans_a = trans_a, .trans_b = trans_b};
    const lathe_val a = trans_a ? fixture_matrix(f, "a", 3, 2) : fixture_matrix(f, "a", 2, 3);
    const lathe_val b = trans_b ? fixture_matrix(f, "b", 4, 3) : fixture_matrix(f, "b", 3, 4);
    return fixture_node(f, LATHE_OP_MATMUL, &attrs, a, b, LATHE_NONE);
}

RULE(matmul)
{
    return matmul(f, 0, 0);
}

RULE(matmul_of_a_transposed)
{
    return matmul(f, 1, 0);
}

RULE(matmul_of_b_transposed)
{
    return matmul(f, 0, 1);
}

RULE(matmul_of_both_transposed)
{
    return matmul(f, 1, 1);
}

RULE(transpose)
{
    return fixture_unary(f, LATHE_OP_TRANSPOSE, fixture_matrix(f, "x", 3, 5));
}

RULE(three_uses_of_a_value)
{
    const lathe_val x = fixture_matrix(f, "x", 3, 4), w = fixture_matrix(f, "w", 4, 4);
    const lathe_val h = fixture_linear(f, x, w, LATHE_NONE);
    const lathe_val a = fixture_linear(f, h, w, LATHE_NONE); /* w again: tied weights */
    const lathe_val b = fixture_unary(f, LATHE_OP_GELU_TANH, h);
    return fixture_binary(f, LATHE_OP_MUL, fixture_binary(f, LATHE_OP_ADD, a, b), h);
}

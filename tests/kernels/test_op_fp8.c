/* Products in fp8: the formats compared with torch's casts; the three products of a linear compared
 * with torchao's Float8Linear (tests/golden/fp8.py) and with a reference in double. On the CPU, on
 * the emulated GPU with several architectures, and on the real one if it has fp8. */
#include "files/safetensors/safetensors.h"
#include "kernels/op_harness.h"
#include "lathe/fp8.h"

static const int32_t recipes[] = {LATHE_FP8_TENSORWISE, LATHE_FP8_ROWWISE};
static const char *const recipe_names[] = {"", "tensorwise", "rowwise"};
/* On 9.0, cuBLASLt supports scales per row; on the others, the kernel after it applies them. */
static const char *const machines[] = {"arch=90", "arch=89", "arch=100", "arch=120"};

static void set_machine(int i)
{
    cr_assert_eq(setenv("LATHE_EMULATOR", machines[i], 1), 0);
}

static lathe_safetensors *golden(void)
{
    lathe_safetensors *set = NULL;
    char path[4400];
    (void)snprintf(path, sizeof path, "%s/golden/data/fp8.safetensors", lathe_test_data());
    cr_assert_eq(lathe_safetensors_open(path, &set), LATHE_OK);
    return set;
}

static const lathe_st_tensor *tensor_of(const lathe_safetensors *set, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static const lathe_st_tensor *tensor_of(const lathe_safetensors *set, const char *format, ...)
{
    char name[128];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(name, sizeof name, format, args);
    va_end(args);
    const lathe_st_tensor *t = lathe_safetensors_find(set, name);
    cr_assert_not_null(t, "the golden lacks %s", name);
    return t;
}

/* ---- the formats ---- */

typedef struct format {
    const char *name;
    uint8_t (*encode)(float);
    float (*decode)(uint8_t);
    int32_t dtype;
    float largest;
} format;

static uint8_t encode_e4m3(float x)
{
    return lathe_f32_to_e4m3(x);
}

static uint8_t encode_e5m2(float x)
{
    return lathe_f32_to_e5m2(x);
}

static float decode_e4m3(uint8_t x)
{
    return lathe_e4m3_to_f32(x);
}

static float decode_e5m2(uint8_t x)
{
    return lathe_e5m2_to_f32(x);
}

static const format formats[] = {{"e4m3", encode_e4m3, decode_e4m3, LATHE_F8_E4M3, 448.0f},
                                 {"e5m2", encode_e5m2, decode_e5m2, LATHE_F8_E5M2, 57344.0f}};

/* A NaN may have either sign. */
static void expect_code(const format *f, float x, uint8_t want)
{
    const uint8_t got = f->encode(x);
    if (isnan(x))
        cr_assert(isnan(f->decode(got)) && isnan(f->decode(want)));
    else
        cr_assert_eq(got, want, "%s of %a is 0x%02x, torch has 0x%02x", f->name, (double)x, got,
                     want);
}

Test(fp8, every_bf16_has_torchs_code)
{
    lathe_safetensors *set = golden();
    for (int i = 0; i < 2; i++) {
        const uint8_t *want = tensor_of(set, "%s.bf16", formats[i].name)->data;
        for (int32_t bits = 0; bits < 65536; bits++)
            expect_code(&formats[i], lathe_bf16_to_f32((uint16_t)bits), want[bits]);
    }
    lathe_safetensors_close(set);
}

/* A function that only increases is determined by the positions of its steps. */
Test(fp8, floats_step_from_code_to_code_where_torchs_do)
{
    lathe_safetensors *set = golden();
    for (int i = 0; i < 2; i++) {
        const lathe_st_tensor *edges = tensor_of(set, "%s.edges", formats[i].name);
        const uint8_t *want = tensor_of(set, "%s.edge_codes", formats[i].name)->data;
        const int64_t n = lathe_desc_count(&edges->desc);
        cr_assert_gt(n, 900);
        for (int64_t j = 0; j < n; j++) {
            float x;
            memcpy(&x, (const char *)edges->data + 4 * j, sizeof x);
            expect_code(&formats[i], x, want[j]);
        }
        uint8_t before = 0;
        /* the function only increases */
        for (uint32_t bits = 0; bits <= 0x7f800000u; bits += 0x1fffu) {
            float x;
            memcpy(&x, &bits, sizeof x);
            const uint8_t code = formats[i].encode(x);
            cr_assert_geq(code, before, "%a", (double)x);
            before = code;
        }
        cr_assert_eq(formats[i].decode(before), formats[i].largest);
    }
    lathe_safetensors_close(set);
}

Test(fp8, codes_come_back_from_floats)
{
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(formats[i].decode(0x40), 2.0f);
        cr_expect_eq(formats[i].decode(1), i == 0 ? 0x1p-9f : 0x1p-16f);
        for (int code = 0; code < 256; code++) {
            const float x = formats[i].decode((uint8_t)code);
            if (isfinite(x))
                cr_assert_eq(formats[i].encode(x), code, "%s 0x%02x", formats[i].name, code);
        }
    }
    cr_expect(isinf(lathe_e5m2_to_f32(0xfc)) && isnan(lathe_e5m2_to_f32(0x7d)));
    cr_expect(isnan(lathe_e4m3_to_f32(0xff)));
}

Test(fp8, a_factor_lifts_the_largest_to_the_formats)
{
    cr_expect_eq(lathe_fp8_scale(3.5f, LATHE_F8_E4M3, LATHE_FP8_TENSORWISE), 128.0f);
    cr_expect_eq(lathe_fp8_scale(3.0f, LATHE_F8_E4M3, LATHE_FP8_TENSORWISE), 448.0f / 3.0f);
    cr_expect_eq(lathe_fp8_scale(3.0f, LATHE_F8_E4M3, LATHE_FP8_ROWWISE), 128.0f);
    cr_expect_eq(lathe_fp8_scale(1.0f, LATHE_F8_E5M2, LATHE_FP8_ROWWISE), 32768.0f);
    cr_expect_eq(lathe_fp8_scale(0.0f, LATHE_F8_E4M3, LATHE_FP8_TENSORWISE), 448.0f / 1e-12f);
    for (int r = 0; r < 2; r++) {
        cr_expect_eq(lathe_fp8_scale(INFINITY, LATHE_F8_E4M3, recipes[r]), 0.0f);
        cr_expect(isnan(lathe_fp8_scale(NAN, LATHE_F8_E4M3, recipes[r])));
    }
}

/* ---- comparison with torchao's products ---- */

static const float *expected; /* of the case being checked, unaligned */

static void from_golden(const op_case *c, double *const *in, double *const *want)
{
    (void)in;
    for (int64_t i = 0; i < lathe_desc_count(&c->out[0]); i++) {
        float x;
        memcpy(&x, (const char *)(const void *)expected + 4 * i, sizeof x);
        want[0][i] = (double)x;
    }
}

static void golden_input(op_case *c, int32_t i, const lathe_st_tensor *t)
{
    op_input(c, i, t->desc, 0.0, 0.0);
    cr_assert_eq(t->desc.dtype, LATHE_BF16);
    for (int64_t j = 0; j < lathe_desc_count(&t->desc); j++) {
        uint16_t bits;
        memcpy(&bits, (const char *)t->data + 2 * j, sizeof bits);
        c->value[i][j] = (double)lathe_bf16_to_f32(bits);
    }
}

/* Codes and factors are equal; only the order of f32 sums differs between torch and this device. */
static void golden_case(const lathe_safetensors *set, const char *name, int32_t recipe, int32_t op)
{
    const lathe_st_tensor *x = tensor_of(set, "%s.x", name), *w = tensor_of(set, "%s.w", name),
                          *dy = tensor_of(set, "%s.dy", name);
    const char *result = op == LATHE_OP_LINEAR ? "y" : op == LATHE_OP_LINEAR_DX ? "dx" : "dw";
    const lathe_st_tensor *want = tensor_of(set, "%s.%s.%s", name, recipe_names[recipe], result);
    op_case c = {.op = op, .product = 1, .reference = from_golden, .attrs = {.fp8 = recipe}};
    golden_input(&c, 0, op == LATHE_OP_LINEAR ? x : dy);
    golden_input(&c, 1, op == LATHE_OP_LINEAR_DW ? x : w);
    if (op == LATHE_OP_LINEAR)
        op_absent_in(&c, 2);
    op_output(&c, 0, want->desc);
    if (op == LATHE_OP_LINEAR_DW)
        op_absent_out(&c, 1);
    else
        c.out[0].dtype = LATHE_BF16;
    c.add = op != LATHE_OP_LINEAR;
    c.slack = 2.0 * slack_of(c.in[0].dims[op != LATHE_OP_LINEAR_DW]);
    expected = want->data;
    op_check(&c);
}

static void golden_cases(int machine)
{
    static const char *const names[] = {"small", "wide", "long"};
    static const int32_t ops[] = {LATHE_OP_LINEAR, LATHE_OP_LINEAR_DX, LATHE_OP_LINEAR_DW};
    lathe_safetensors *set = golden();
    set_machine(machine);
    for (int i = 0; i < 18; i++)
        golden_case(set, names[i / 6], recipes[i % 2], ops[i / 2 % 3]);
    lathe_safetensors_close(set);
}

Test(fp8, products_are_torchaos_where_the_library_scales)
{
    golden_cases(0);
}

Test(fp8, products_are_torchaos_where_a_kernel_scales)
{
    golden_cases(1);
}

/* ---- comparison with a reference in double ---- */

typedef struct view {
    const double *x;
    int64_t outer, inner;
    int32_t is_transposed, dtype, recipe;
} view;

static double element(const view *v, int64_t i, int64_t j)
{
    return v->is_transposed ? v->x[j * v->outer + i] : v->x[i * v->inner + j];
}

/* The operand after a cast to fp8 and back, [outer, inner]. */
static double *quantized(const view *v)
{
    double *out = malloc((size_t)(v->outer * v->inner) * sizeof *out), all = 0.0;
    const format *f = &formats[v->dtype == LATHE_F8_E5M2];
    for (int64_t i = 0; i < v->outer * v->inner; i++)
        all = fmax(all, fabs(v->x[i]));
    for (int64_t i = 0; i < v->outer; i++) {
        double max = v->recipe == LATHE_FP8_ROWWISE ? 0.0 : all;
        for (int64_t j = 0; v->recipe == LATHE_FP8_ROWWISE && j < v->inner; j++)
            max = fmax(max, fabs(element(v, i, j)));
        float factor = f->largest / fmaxf((float)max, 1e-12f);
        if (v->recipe == LATHE_FP8_ROWWISE)
            factor = exp2f(floorf(log2f(factor)));
        for (int64_t j = 0; j < v->inner; j++)
            out[i * v->inner + j] =
                (double)f->decode(f->encode((float)element(v, i, j) * factor)) / (double)factor;
    }
    return out;
}

static void multiply(const view *a, const view *b, double *want)
{
    double *x = quantized(a), *y = quantized(b);
    for (int64_t i = 0; i < a->outer; i++)
        for (int64_t j = 0; j < b->outer; j++)
            for (int64_t k = 0; k < a->inner; k++)
                want[i * b->outer + j] += x[i * a->inner + k] * y[j * a->inner + k];
    free(x);
    free(y);
}

static void product_reference(const op_case *c, double *const *in, double *const *want)
{
    const int is_dw = c->op == LATHE_OP_LINEAR_DW, is_y = c->op == LATHE_OP_LINEAR;
    const int64_t *d0 = c->in[0].dims, *d1 = c->in[1].dims;
    const int32_t first = is_y ? LATHE_F8_E4M3 : LATHE_F8_E5M2, recipe = c->attrs.fp8;
    const view a = {in[0], is_dw ? d0[1] : d0[0], is_dw ? d0[0] : d0[1], is_dw, first, recipe};
    const view b = {in[1], is_y ? d1[0] : d1[1], is_y ? d1[1] : d1[0],
                    !is_y, LATHE_F8_E4M3,        recipe};
    multiply(&a, &b, want[0]);
    for (int64_t i = 0; is_y && in[2] != NULL && i < a.outer * b.outer; i++)
        want[0][i] += in[2][i % b.outer];
    if (is_dw && c->out[1].dtype != LATHE_ABSENT)
        for (int64_t i = 0; i < d0[0] * d0[1]; i++)
            want[1][i % d0[1]] += in[0][i]; /* from dy itself, not its cast */
}

/* Noise with rows and columns of different magnitudes, so that their factors differ. */
static void uneven_input(op_case *c, int32_t i, int64_t rows, int64_t cols, double scale)
{
    op_input(c, i, lathe_desc_2d(LATHE_BF16, rows, cols), 0.0, scale);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++)
            c->value[i][r * cols + j] *=
                ldexp(1.0, (int)(r * 7 % 11 + j * 5 % 13 + (4 * r > 3 * rows ? j % 5 : 0)) - 11);
}

static void linear_case(int32_t recipe, int64_t n, int64_t i, int64_t o, int bias)
{
    op_case c = {.op = LATHE_OP_LINEAR,
                 .product = 1,
                 .attrs = {.fp8 = recipe},
                 .reference = product_reference,
                 .slack = 2.0 * slack_of(i)};
    uneven_input(&c, 0, n, i, 3.0);
    uneven_input(&c, 1, o, i, 0.1);
    if (bias)
        op_input(&c, 2, lathe_desc_1d(LATHE_F32, o), 0.0, 1.0);
    else
        op_absent_in(&c, 2);
    op_output(&c, 0, lathe_desc_2d(LATHE_BF16, n, o));
    op_check(&c);
}

static void dx_case(int32_t recipe, int64_t n, int64_t i, int64_t o)
{
    op_case c = {.op = LATHE_OP_LINEAR_DX,
                 .product = 1,
                 .attrs = {.fp8 = recipe},
                 .reference = product_reference,
                 .slack = 2.0 * slack_of(o),
                 .add = 1};
    uneven_input(&c, 0, n, o, 1e-3);
    uneven_input(&c, 1, o, i, 0.1);
    op_output(&c, 0, lathe_desc_2d(LATHE_BF16, n, i));
    op_check(&c);
}

static void dw_case(int32_t recipe, int64_t n, int64_t i, int64_t o, int bias)
{
    op_case c = {.op = LATHE_OP_LINEAR_DW,
                 .product = 1,
                 .attrs = {.fp8 = recipe},
                 .reference = product_reference,
                 .slack = 2.0 * slack_of(n),
                 .add = 1};
    uneven_input(&c, 0, n, o, 1.0);
    uneven_input(&c, 1, n, i, 1.0);
    op_output(&c, 0, lathe_desc_2d(LATHE_F32, o, i));
    if (bias)
        op_output(&c, 1, lathe_desc_1d(LATHE_F32, o));
    else
        op_absent_out(&c, 1);
    op_check(&c);
}

Test(fp8, products_agree_on_every_generation)
{
    for (int m = 0; m < 4; m++) {
        set_machine(m);
        for (int r = 0; r < 2; r++) {
            linear_case(recipes[r], 80, 208, 144, 1);
            linear_case(recipes[r], 16, 16, 16, 0);
            dx_case(recipes[r], 80, 208, 144);
            dw_case(recipes[r], 208, 80, 144, m == 0);
        }
    }
}

/* Rows that fit a warp, rows that fit a block, and rows that are read again; several parts of
 * columns and of a tensor. */
Test(fp8, rows_of_every_length_agree)
{
    for (int r = 0; r < 2; r++) {
        linear_case(recipes[r], 32, 1040, 32, 0);
        linear_case(recipes[r], 16, 8208, 32, 0);
        dw_case(recipes[r], 1056, 48, 80, 1);
        dx_case(recipes[r], 16, 48, 1040);
    }
}

/* Several blocks of rows, the last one shorter. */
Test(fp8, blocks_of_rows_agree)
{
    set_machine(1);
    linear_case(LATHE_FP8_ROWWISE, 160, 16, 65536, 1);
}

/* ---- NaN, infinity, and refusals ---- */

static void expect_nans(const op_build *b, int32_t recipe, double what)
{
    op_case c = {.op = LATHE_OP_LINEAR, .attrs = {.fp8 = recipe}};
    void *out[1];
    op_input(&c, 0, lathe_desc_2d(LATHE_BF16, 32, 48), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(LATHE_BF16, 16, 48), 0.0, 1.0);
    op_absent_in(&c, 2);
    op_output(&c, 0, lathe_desc_2d(LATHE_BF16, 32, 16));
    c.value[0][5 * 48 + 7] = what;
    op_run(b, &c, 0, out);
    for (int i = 0; i < 32 * 16; i++)
        cr_assert_eq(!isfinite(op_load(out[0], LATHE_BF16, i)),
                     recipe == LATHE_FP8_TENSORWISE || i / 16 == 5, "%s, %s, %g: element %d",
                     b->plugin->name, recipe_names[recipe], what, i);
    op_free_outputs(&c, out);
    op_free(&c);
}

/* NaN and infinity must reach the loss, whose check stops the step; with a scale per row they stay
 * in their rows. */
Test(fp8, what_is_no_number_is_none_in_the_result)
{
    for (int m = 0; m < 2; m++) {
        op_build b = {0};
        set_machine(m);
        if (!op_open_file(op_gpus[0], &b))
            break;
        for (int r = 0; r < 2; r++) {
            expect_nans(&b, recipes[r], INFINITY);
            expect_nans(&b, recipes[r], -INFINITY);
            expect_nans(&b, recipes[r], NAN);
        }
        op_close(&b);
    }
    for (int i = 0; i < N_ISAS; i++) {
        op_build b = {0};
        if (!op_open(op_isas[i], &b))
            continue;
        for (int r = 0; r < 2; r++)
            expect_nans(&b, recipes[r], INFINITY);
        op_close(&b);
    }
}

static op_case plain_case(int32_t dtype, int64_t n, int32_t recipe)
{
    op_case c = {.op = LATHE_OP_LINEAR, .attrs = {.fp8 = recipe}};
    op_input(&c, 0, lathe_desc_2d(dtype, n, 32), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(dtype, 16, 32), 0.0, 1.0);
    op_absent_in(&c, 2);
    op_output(&c, 0, lathe_desc_2d(dtype, n, 16));
    return c;
}

Test(fp8, refuses_what_it_cannot_be)
{
    static const struct {
        int32_t dtype;
        int64_t n;
        int32_t recipe;
        lathe_status want;
    } rows[] = {{LATHE_BF16, 16, LATHE_FP8_ROWWISE, LATHE_OK},
                {LATHE_BF16, 24, LATHE_FP8_ROWWISE, LATHE_E_SHAPE},
                {LATHE_F16, 16, LATHE_FP8_ROWWISE, LATHE_E_UNSUPPORTED},
                {LATHE_BF16, 16, LATHE_N_FP8, LATHE_E_UNSUPPORTED},
                {LATHE_BF16, 16, -1, LATHE_E_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        op_case c = plain_case(rows[i].dtype, rows[i].n, rows[i].recipe);
        cr_expect_eq(op_refusal(&c), rows[i].want, "row %zu", i);
        op_free(&c);
    }
}

/* A GPU before 8.9 has no fp8; its info says so, and it refuses the op. */
Test(fp8, the_cuda_device_offers_it_from_8_9_on)
{
    static const struct {
        const char *machine;
        int32_t recipe; /* the best recipe; 0: no fp8 */
    } rows[] = {{"arch=80", 0},
                {"arch=86", 0},
                {"arch=89", LATHE_FP8_TENSORWISE},
                {"arch=90", LATHE_FP8_ROWWISE},
                {"arch=100", LATHE_FP8_TENSORWISE},
                {"arch=103", LATHE_FP8_TENSORWISE},
                {"arch=120", LATHE_FP8_TENSORWISE}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        op_build b = {0};
        cr_assert_eq(setenv("LATHE_EMULATOR", rows[i].machine, 1), 0);
        if (!op_open_file(op_gpus[0], &b))
            cr_skip_test("built without the CUDA toolkit");
        const int has = rows[i].recipe != 0;
        cr_expect_eq((b.info.graph_dtypes >> LATHE_F8_E4M3 & 1u) != 0, has, "%s", rows[i].machine);
        cr_expect_eq(b.info.fp8_recipe, rows[i].recipe, "%s", rows[i].machine);
        cr_expect_eq(b.info.fp8_recipes, has ? 6u : 0u, "%s", rows[i].machine);
        op_case c = plain_case(LATHE_BF16, 32, LATHE_FP8_TENSORWISE);
        const lathe_kernel_problem problem = op_problem(&c);
        lathe_kernel *k = NULL;
        int64_t scratch = 0;
        const lathe_status made = b.device->kernel_create(b.self, &problem, &k, &scratch);
        cr_expect_eq(made, has ? LATHE_OK : LATHE_E_UNSUPPORTED, "%s", rows[i].machine);
        b.device->kernel_destroy(b.self, k);
        op_free(&c);
        op_close(&b);
    }
}

/* The factors of a matrix: their product is PEFT's for PiSSA, and that of a known matrix; odd ones.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/store/singular.h"

enum { MAX = 64 };

/* The largest difference between scale * b a and `want` [rows, cols]. */
static double off(const float *a, const float *b, int64_t rows, int64_t cols, int64_t r,
                  double scale, const double *want)
{
    double worst = 0.0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < r; k++)
                sum += scale * (double)b[i * r + k] * (double)a[k * cols + j];
            worst = fmax(worst, fabs(sum - want[i * cols + j]));
        }
    return worst;
}

static void read_line(FILE *file, const char *name, double *out, int64_t n)
{
    char word[32];
    cr_assert_eq(fscanf(file, "%31s", word), 1);
    cr_assert_str_eq(word, name);
    for (int64_t i = 0; i < n; i++)
        cr_assert_eq(fscanf(file, "%lf", &out[i]), 1);
}

static void check_case(FILE *file)
{
    double w[MAX], a0[MAX], b0[MAX], want[MAX] = {0}, alpha, skipped[MAX];
    float narrow[MAX], a[MAX], b[MAX];
    int64_t r, n, in, out;
    int rslora;
    cr_assert_eq(fscanf(file, "%*s %ld %lf %d %ld %ld %ld", &r, &alpha, &rslora, &n, &in, &out), 6);
    const struct {
        const char *name;
        int64_t n;
    } others[] = {{"bias", out},      {"a", r * in},       {"b", out * r},     {"x", n * in},
                  {"t", n * out},     {"y", n * out},      {"grad_a", r * in}, {"grad_b", out * r},
                  {"grad_x", n * in}, {"merged", out * in}};
    read_line(file, "w", w, out * in);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        read_line(file, others[i].name, skipped, others[i].n);
    read_line(file, "a0", a0, r * in);
    read_line(file, "b0", b0, out * r);
    const double scale = alpha / (rslora ? sqrt((double)r) : (double)r);
    for (int64_t i = 0; i < out * in; i++) {
        narrow[i] = (float)w[i];
        for (int64_t k = 0; k < r; k++)
            want[i] += scale * b0[i / in * r + k] * a0[k * in + i % in];
    }
    cr_assert_eq(lathe_singular_factors(narrow, out, in, r, 1.0 / scale, a, b), LATHE_OK);
    cr_expect_lt(off(a, b, out, in, r, scale, want), 2e-6, "PEFT's factors are f32");
    for (int64_t k = 0; k < r; k++) { /* the factors are alike but for signs */
        double dot = 0.0, square = 0.0;
        for (int64_t j = 0; j < in; j++) {
            dot += (double)a[k * in + j] * a0[k * in + j];
            square += a0[k * in + j] * a0[k * in + j];
        }
        cr_expect_float_eq(fabs(dot), square, 1e-5);
    }
}

Test(singular, factors_are_those_of_peft)
{
    FILE *file = fopen(LATHE_TEST_DATA "/golden/data/pissa.txt", "r");
    char word[32];
    int cases = 0;
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "#%*[^\n]"), 0);
    for (; fscanf(file, "%31s", word) == 1; cases++)
        check_case(file);
    cr_expect_eq(cases, 3);
    (void)fclose(file);
}

/* w = 3 u v^T: one singular value, 3, and zeros, whose factors are zero. */
Test(singular, of_rank_one_have_one_product_and_zeros)
{
    float w[6], a[4], b[6];
    double want[6];
    const double u[3] = {2.0 / 3, -1.0 / 3, 2.0 / 3}, v[2] = {0.6, 0.8};
    for (int i = 0; i < 6; i++)
        w[i] = (float)(want[i] = 3.0 * u[i / 2] * v[i % 2]);
    cr_assert_eq(lathe_singular_factors(w, 3, 2, 2, 1.0, a, b), LATHE_OK);
    cr_expect_lt(off(a, b, 3, 2, 2, 1.0, want), 1e-6);
    cr_expect_float_eq((double)a[0], sqrt(3.0) * 0.6, 1e-6);
    cr_expect_float_eq((double)b[0], sqrt(3.0) * 2.0 / 3, 1e-6);
    memset(w, 0, sizeof w);
    cr_assert_eq(lathe_singular_factors(w, 2, 3, 1, 1.0, a, b), LATHE_OK);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(a[i], 0.0f);
}

Test(singular, of_a_matrix_with_nan_are_refused)
{
    float w[6] = {1, 2, NAN, 3, 4, 5}, a[3], b[2];
    cr_expect_eq(lathe_singular_factors(w, 2, 3, 1, 1.0, a, b), LATHE_E_NUMERIC);
}

/* ---- the last ones ---- */

/* Column k of the vectors [n, r] is the unit vector of axis at[k], but for its sign. */
static void expect_axes(const float *w, int64_t rows, int64_t cols, int64_t r, int32_t of_columns,
                        const int *at)
{
    const int64_t n = of_columns ? cols : rows;
    float v[16];
    cr_assert_eq(lathe_singular_minor(w, rows, cols, r, of_columns, v), LATHE_OK);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < r; k++)
            cr_expect_float_eq(fabs((double)v[i * r + k]), at[k] == i ? 1.0 : 0.0, 1e-6,
                               "[%ld, %ld], of columns %d: element %ld of vector %ld is %g", rows,
                               cols, of_columns, i, k, (double)v[i * r + k]);
}

/* Matrices whose singular vectors are axes, by hand: the smallest value comes last. */
Test(singular, last_vectors_belong_to_the_smallest_values)
{
    const float square[9] = {3, 0, 0, 0, 1, 0, 0, 0, 2}; /* values 3, 1, 2 at the axes 0, 1, 2 */
    const float tall[6] = {3, 0, 0, 0, 0, -1}; /* 3: left 0, right 0; 1: left 2, right 1 */
    const float wide[6] = {0, 3, 0, 1, 0, 0};  /* 3: left 0, right 1; 1: left 1, right 0 */
    expect_axes(square, 3, 3, 2, 0, (const int[]){2, 1});
    expect_axes(square, 3, 3, 2, 1, (const int[]){2, 1});
    expect_axes(square, 3, 3, 3, 0, (const int[]){0, 2, 1});
    expect_axes(tall, 3, 2, 1, 0, (const int[]){2});
    expect_axes(tall, 3, 2, 2, 0, (const int[]){0, 2});
    expect_axes(tall, 3, 2, 1, 1, (const int[]){1});
    expect_axes(wide, 2, 3, 1, 0, (const int[]){1});
    expect_axes(wide, 2, 3, 2, 1, (const int[]){1, 0});
}

/* The vectors of the shorter side exist for values of 0, too; those of the longer side are any. */
Test(singular, last_vectors_of_a_zero_are_determined_on_the_shorter_side_alone)
{
    float tall[6] = {1, 0, 0, 0, 0, 0}, v[3];
    expect_axes(tall, 3, 2, 1, 1, (const int[]){1});
    cr_expect_eq(lathe_singular_minor(tall, 3, 2, 1, 0, v), LATHE_E_CONFIG);
    tall[3] = NAN;
    cr_expect_eq(lathe_singular_minor(tall, 3, 2, 1, 0, v), LATHE_E_NUMERIC);
    cr_expect_eq(lathe_singular_minor(tall, 3, 2, 1, 1, v), LATHE_E_NUMERIC);
}

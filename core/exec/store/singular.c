/* The leading singular vectors of a matrix, and the last ones. */
#include "exec/store/singular.h"

#include <math.h>
#include <stdlib.h>

#include "base/eigen.h"
#include "base/error.h"
#include "base/parallel.h"

/* The matrix as `lines` lines of length n, the shorter side; its Gram matrix; eigenvectors. */
typedef struct singular {
    const float *line; /* [lines, n] */
    float *turned;     /* the transposed matrix, if that has the lines; else NULL */
    double *gram;      /* [n, n] */
    float *vectors;    /* [r, n] */
    double *images;    /* [r, lines]: the matrix times each vector */
    void *scratch;
    int64_t lines, n;
} singular;

/* Rows [begin, end) of the Gram matrix, each sum in the order of the lines. */
static void gram_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const singular *s = arg;
    (void)worker;
    for (int64_t l = 0; l < s->lines; l++) {
        const float *line = s->line + l * s->n;
        for (int64_t i = begin; i < end; i++) {
            const double x = (double)line[i];
            double *row = s->gram + i * s->n;
            for (int64_t j = 0; j < s->n; j++)
                row[j] += x * (double)line[j];
        }
    }
}

/* The products of lines [begin, end) with r vectors. */
typedef struct image_job {
    const singular *s;
    int64_t r;
} image_job;

static void image_lines(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const image_job *job = arg;
    const singular *s = job->s;
    (void)worker;
    for (int64_t l = begin; l < end; l++)
        for (int64_t k = 0; k < job->r; k++) {
            double sum = 0.0;
            for (int64_t j = 0; j < s->n; j++)
                sum += (double)s->line[l * s->n + j] * (double)s->vectors[k * s->n + j];
            s->images[k * s->lines + l] = sum;
        }
}

/* turns: the lines are the columns. */
static lathe_status make_room(singular *s, const float *w, int64_t rows, int64_t cols, int64_t r,
                              int turns)
{
    s->line = w;
    s->n = turns ? rows : cols;
    s->lines = turns ? cols : rows;
    if (turns) {
        s->turned = malloc((size_t)(rows * cols) * sizeof *s->turned);
        for (int64_t e = 0; s->turned && e < rows * cols; e++)
            s->turned[e % cols * rows + e / cols] = w[e];
        s->line = s->turned;
    }
    s->gram = calloc((size_t)(s->n * s->n), sizeof *s->gram);
    s->vectors = malloc((size_t)(r * s->n) * sizeof *s->vectors);
    s->images = malloc((size_t)(r * s->lines) * sizeof *s->images);
    s->scratch = malloc((size_t)lathe_eigenvectors_scratch(s->n));
    if (!s->line || !s->gram || !s->vectors || !s->images || !s->scratch)
        return lathe_error(LATHE_E_NOMEM, "no memory for the singular vectors of a matrix");
    return LATHE_OK;
}

/* A vector has the length 1 and its image s_k: the factors take the root of scale * s_k. */
static void write_factors(const singular *s, int64_t r, double scale, float *a, float *b)
{
    for (int64_t k = 0; k < r; k++) {
        double square = 0.0;
        for (int64_t l = 0; l < s->lines; l++)
            square += s->images[k * s->lines + l] * s->images[k * s->lines + l];
        const double value = sqrt(square), root = sqrt(scale * value);
        const double of_image = value > 0.0 ? root / value : 0.0;
        for (int64_t j = 0; j < s->n; j++) {
            const float x = (float)(root * (double)s->vectors[k * s->n + j]);
            if (s->turned)
                b[j * r + k] = x;
            else
                a[k * s->n + j] = x;
        }
        for (int64_t l = 0; l < s->lines; l++) {
            const float x = (float)(of_image * s->images[k * s->lines + l]);
            if (s->turned)
                a[k * s->lines + l] = x;
            else
                b[l * r + k] = x;
        }
    }
}

static void give_room(singular *s)
{
    free(s->turned);
    free(s->gram);
    free(s->vectors);
    free(s->images);
    free(s->scratch);
}

lathe_status lathe_singular_factors(const float *w, int64_t rows, int64_t cols, int64_t r,
                                    double scale, float *a, float *b)
{
    singular s = {.turned = NULL};
    lathe_status status = make_room(&s, w, rows, cols, r, cols > rows);
    if (status == LATHE_OK) {
        image_job job = {&s, r};
        lathe_parallel_for(s.n, 16, gram_rows, &s);
        status = lathe_eigenvectors(s.gram, s.n, r, s.vectors, s.scratch);
        if (status == LATHE_OK) {
            lathe_parallel_for(s.lines, 16, image_lines, &job);
            write_factors(&s, r, scale, a, b);
        }
    }
    give_room(&s);
    return status;
}

/* ---- the last ones ---- */

/* Index of the smallest eigenvalue that was not given yet. */
static int64_t take_smallest(const double *values, char *taken, int64_t n)
{
    int64_t best = 0;
    while (best < n - 1 && taken[best])
        best++;
    for (int64_t i = best; i < n; i++)
        if (!taken[i] && values[i] < values[best])
            best = i;
    taken[best] = 1;
    return best;
}

/* Writes a vector as column k of out [n, r], with the length 1. */
static void write_column(const double *vector, int64_t n, double length, float *out, int64_t r,
                         int64_t k)
{
    for (int64_t i = 0; i < n; i++)
        out[i * r + k] = (float)(vector[i] / length);
}

/* image [lines] = the lines times an eigenvector. Returns its length, the singular value. */
static double image_of(const singular *s, const double *vector, double *image)
{
    double square = 0.0;
    for (int64_t l = 0; l < s->lines; l++) {
        double sum = 0.0;
        for (int64_t j = 0; j < s->n; j++)
            sum += (double)s->line[l * s->n + j] * vector[j];
        image[l] = sum;
        square += sum * sum;
    }
    return sqrt(square);
}

/* of_lines: the vectors of the longer side. */
static lathe_status write_minor(const singular *s, int64_t r, int of_lines, char *taken, float *out)
{
    const double *values = s->scratch;
    double largest = 0.0;
    for (int64_t i = 0; i < s->n; i++)
        largest = values[i] > largest ? values[i] : largest;
    for (int64_t k = r - 1; k >= 0; k--) {
        const double *vector = s->gram + take_smallest(values, taken, s->n) * s->n;
        if (!of_lines) {
            write_column(vector, s->n, 1.0, out, r, k);
            continue;
        }
        const double value = image_of(s, vector, s->images);
        if (!(value > 1e-12 * sqrt(largest)))
            return lathe_error(LATHE_E_CONFIG, "the matrix has fewer singular values above 0");
        write_column(s->images, s->lines, value, out, r, k);
    }
    return LATHE_OK;
}

lathe_status lathe_singular_minor(const float *w, int64_t rows, int64_t cols, int64_t r,
                                  int32_t of_columns, float *out)
{
    /* of a square matrix the side that is wanted is the one that is decomposed */
    const int turns = of_columns ? cols > rows : cols >= rows;
    singular s = {.turned = NULL};
    lathe_status status = make_room(&s, w, rows, cols, 1, turns);
    char *taken = calloc((size_t)s.n + 1, 1);
    if (status == LATHE_OK && taken == NULL)
        status = lathe_error(LATHE_E_NOMEM, "no memory for the singular vectors of a matrix");
    if (status == LATHE_OK) {
        lathe_parallel_for(s.n, 16, gram_rows, &s);
        status = lathe_eigenvectors(s.gram, s.n, 0, s.vectors, s.scratch);
    }
    if (status == LATHE_OK)
        status = write_minor(&s, r, of_columns ? turns : !turns, taken, out);
    free(taken);
    give_room(&s);
    return status;
}

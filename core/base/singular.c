/* The leading singular vectors of a matrix. */
#include "base/singular.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/parallel.h"
#include "lathe/kit/eigen.h"

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

static lathe_status make_room(singular *s, const float *w, int64_t rows, int64_t cols, int64_t r)
{
    s->line = w;
    s->n = cols <= rows ? cols : rows;
    s->lines = cols <= rows ? rows : cols;
    if (cols > rows) {
        s->turned = malloc((size_t)(rows * cols) * sizeof *s->turned);
        for (int64_t e = 0; s->turned && e < rows * cols; e++)
            s->turned[e % cols * rows + e / cols] = w[e];
        s->line = s->turned;
    }
    s->gram = calloc((size_t)(s->n * s->n), sizeof *s->gram);
    s->vectors = malloc((size_t)(r * s->n) * sizeof *s->vectors);
    s->images = malloc((size_t)(r * s->lines) * sizeof *s->images);
    s->scratch = malloc((size_t)lathe_eigen_scratch(s->n));
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

lathe_status lathe_singular_factors(const float *w, int64_t rows, int64_t cols, int64_t r,
                                    double scale, float *a, float *b)
{
    singular s = {.turned = NULL};
    lathe_status status = make_room(&s, w, rows, cols, r);
    if (status == LATHE_OK) {
        image_job job = {&s, r};
        lathe_parallel_for(s.n, 16, gram_rows, &s);
        status = lathe_eigenvectors(lathe_host_get(), s.gram, s.n, r, s.vectors, s.scratch);
        if (status == LATHE_OK) {
            lathe_parallel_for(s.lines, 16, image_lines, &job);
            write_factors(&s, r, scale, a, b);
        }
    }
    free(s.turned);
    free(s.gram);
    free(s.vectors);
    free(s.images);
    free(s.scratch);
    return status;
}

/* EXPERT_CHOICE: the experts of each token, by scores x with a bias that does not count in y. A row
 * is one insertion sort of the columns of its groups. */
#include <math.h>

#include "base/cpu.h"

enum { MAX_GROUPS = 256 };

typedef struct choice_job {
    const float *x, *bias; /* bias NULL: zeros */
    float *y;
    int32_t *index;
    int64_t k, v;
    int64_t groups, open; /* of which `open` take part */
} choice_job;

static float score(const choice_job *job, const float *x, int64_t i)
{
    return job->bias != NULL ? x[i] + job->bias[i] : x[i];
}

/* The two largest scores of a group, added. */
static float two_largest(const choice_job *job, const float *x, int64_t begin, int64_t end)
{
    float first = -INFINITY, second = -INFINITY;
    for (int64_t i = begin; i < end; i++) {
        const float s = score(job, x, i);
        if (s > first) {
            second = first;
            first = s;
        } else if (s > second) {
            second = s;
        }
    }
    return first + second;
}

/* is_open[g]: whether group g takes part: fewer than `open` rank before it. */
static void choose_groups(const choice_job *job, const float *x, uint8_t *is_open)
{
    const int64_t size = job->v / job->groups;
    float sums[MAX_GROUPS];
    for (int64_t g = 0; g < job->groups; g++)
        sums[g] = two_largest(job, x, g * size, (g + 1) * size);
    for (int64_t g = 0; g < job->groups; g++) {
        int64_t before = 0;
        for (int64_t h = 0; h < job->groups; h++)
            before += sums[h] > sums[g] || (sums[h] == sums[g] && h < g);
        is_open[g] = before < job->open;
    }
}

/* Inserts columns begin .. end-1 into the list of n columns, which grows to at most k. Returns the
 * new number. Equal ones keep their order. */
static int64_t insert_columns(const choice_job *job, const float *x, int32_t *index, int64_t n,
                              int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        const float s = score(job, x, i);
        if (isnan(s) || (n == job->k && !(s > score(job, x, index[n - 1]))))
            continue;
        int64_t place = n < job->k ? n++ : job->k - 1;
        for (; place > 0 && s > score(job, x, index[place - 1]); place--)
            index[place] = index[place - 1];
        index[place] = (int32_t)i;
    }
    return n;
}

static void choose_rows(void *arg, int64_t begin, int64_t end, int32_t worker)
{
    const choice_job *job = arg;
    const int64_t size = job->v / job->groups;
    uint8_t is_open[MAX_GROUPS] = {1};
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *x = job->x + r * job->v;
        float *y = job->y + r * job->k;
        int32_t *index = job->index + r * job->k;
        int64_t n = 0;
        if (job->groups > 1)
            choose_groups(job, x, is_open);
        for (int64_t g = 0; g < job->groups; g++)
            if (is_open[g])
                n = insert_columns(job, x, index, n, g * size, (g + 1) * size);
        for (int64_t j = 0; j < job->k; j++) {
            index[j] = j < n ? index[j] : -1;
            y[j] = j < n ? x[index[j]] : NAN;
        }
    }
}

static lathe_status run(lathe_kernel *k, const lathe_kernel_args *a)
{
    choice_job job = {.x = a->in[0],
                      .bias = kernel_has_in(k, 1) ? a->in[1] : NULL,
                      .y = a->out[0],
                      .index = a->out[1],
                      .k = k->out[0].dims[1],
                      .v = k->in[0].dims[1],
                      .groups = k->attrs.batch > 1 ? k->attrs.batch : 1,
                      .open = k->attrs.start};
    k->host->parallel_for(k->in[0].dims[0], cpu_row_grain(job.v), choose_rows, &job);
    return LATHE_OK;
}

const kernel_op CPU_OP(EXPERT_CHOICE) = {NULL, run, NULL, 0};

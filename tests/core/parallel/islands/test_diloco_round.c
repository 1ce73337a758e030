/* The outer step of DiLoCo, against torch.optim.SGD(nesterov=True): tests/golden/diloco.py. */
#include "exec/store/store_io.h"
#include "lathe/dtype.h"
#include "parallel/islands/island_files.h"
#include "support/small_run.h"

enum { MAX = 64 };

static int read_line(FILE *f, double *out, int n)
{
    for (int i = 0; i < n; i++)
        if (fscanf(f, "%lf", &out[i]) != 1) /* NOLINT(cert-err34-c): a file of the project */
            return 0;
    return 1;
}

/* One island on one rank: what it computes in a round is set by hand. Other elements do not change,
 * and what kernels read follows the masters. */
static void rounds(const char *precision)
{
    char dir[] = "/tmp/lathe_diloco_round_XXXXXX";
    double head[4], inner[MAX], want[MAX];
    settings s = {.n = 0};
    FILE *f = fopen(LATHE_TEST_DATA "/golden/data/diloco.txt", "r");
    cr_assert_not_null(f);
    cr_assert(read_line(f, head, 4));
    const int n = (int)head[1];
    cr_assert(n > 0 && n <= MAX);
    make_folder(dir, 20000);
    set_llama(&s, 1, 32, 4, 2, 64);
    set_data(&s, dir);
    set(&s, "data.seq_len=32");
    set(&s, "train.max_steps=100");
    set(&s, "train.precision=%s", precision);
    set(&s, "parallel.diloco_islands=1");
    set(&s, "parallel.diloco_outer_lr=%.9g", head[2]);
    set(&s, "parallel.diloco_outer_momentum=%.9g", head[3]);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    cr_assert_not_null(run->outer);
    lathe_islands *islands = run->outer->islands;
    int32_t row = 0, other = 0;
    while (!run->params.rows[row]->trainable || run->params.rows[row]->desc.rank < 2)
        row++;
    other = row + 1;
    while (!run->params.rows[other]->trainable)
        other++;
    float *w = lathe_store_master(&run->store, row);
    memset(w, 0, (size_t)n * sizeof *w); /* the golden steps begin with zeros */
    const float before = lathe_store_master(&run->store, other)[0], beside = w[n];
    lathe_islands_begin(islands);
    for (int r = 0; r < (int)head[0]; r++) {
        cr_assert(read_line(f, inner, n) && read_line(f, want, n));
        for (int i = 0; i < n; i++)
            w[i] = (float)inner[i];
        OK(lathe_islands_end_round(islands));
        for (int i = 0; i < n; i++)
            cr_expect_float_eq(w[i], want[i], 1e-6 * fabs(want[i]) + 1e-8,
                               "round %d, element %d: %.9g, not %.9g", r + 1, i, (double)w[i],
                               want[i]);
        if (lathe_store_shadow(&run->store, row)) {
            const uint16_t *narrow = lathe_store_shadow(&run->store, row);
            for (int i = 0; i < n; i++)
                cr_expect_eq(narrow[i], lathe_f32_to_bf16(w[i]));
        }
    }
    cr_expect_eq(lathe_store_master(&run->store, other)[0], before);
    cr_expect_eq(w[n], beside);
    cr_expect_eq(fclose(f), 0);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(diloco_round, outer_steps_are_those_of_pytorch)
{
    rounds("fp32");
}

Test(diloco_round, copies_in_bf16_follow)
{
    rounds("bf16");
}

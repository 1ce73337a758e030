/* A step without targets: its batch has none. */
#include "support/small_run.h"

#include <dlfcn.h>

#include "train/train.h"

enum { T = 32 };

static int n_batches;

/* Replaces the library's function, which the run calls: every fifth batch has no target. */
lathe_status lathe_loader_next(lathe_loader *loader, lathe_batch *out)
{
    static lathe_status (*original)(lathe_loader *, lathe_batch *);
    if (!original) {
        void *symbol = dlsym(RTLD_NEXT, "lathe_loader_next");
        memcpy(&original, &symbol, sizeof symbol);
    }
    const lathe_status status = original(loader, out);
    if (status != LATHE_OK || ++n_batches % 5 != 0)
        return status;
    static int32_t none[T];
    for (int i = 0; i < T; i++)
        none[i] = -1;
    out->targets = none;
    out->n_target = 0;
    return LATHE_OK;
}

static lathe_run *open_rows(const char *dir, int64_t steps)
{
    settings s = {.n = 0};
    set_llama(&s, 1, 32, 2, 2, 64);
    set_data(&s, dir);
    set(&s, "data.seq_len=%d", T);
    set(&s, "train.precision=fp32");
    set(&s, "train.max_steps=%d", (int)steps);
    return open_run(LATHE_OPEN_TRAIN, s.list);
}

Test(empty_step, is_left_out_and_reported)
{
    char dir[] = "/tmp/lathe-empty-XXXXXX", said[4096] = "";
    lathe_train_result r;
    make_folder(dir, 40 * T);
    lathe_run *run = open_rows(dir, 12);
    FILE *f = fmemopen(said, sizeof said, "w");
    const lathe_train_options options = {.out = f};
    OK(lathe_train(run, &options, &r));
    fclose(f);
    cr_expect_eq(run->at.step, 12);
    cr_expect_eq(run->at.skipped, 2); /* steps 5 and 10 */
    cr_expect_eq(run->at.skipped_in_row, 0);
    cr_expect(strstr(said, "step 5: none of the tokens was a target; the step is left out"), "%s",
              said);
    cr_expect(strstr(said, "step 10: none of the tokens was a target"), "%s", said);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

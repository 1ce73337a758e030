/* A step without targets: the last token of an epoch, alone in its row. */
#include "small_run.h"

#include "loop/train.h"

enum { T = 32 };

/* 4 T bytes and the document's end: rows of T, and a fifth with one token. */
static void write_text(char *dir)
{
    char path[256];
    make_folder(dir, 4 * T);
    snprintf(path, sizeof path, "%s/corpus.txt", dir);
    cr_assert_eq(truncate(path, 4 * T), 0);
}

static lathe_run *open_rows(const char *dir, int64_t steps)
{
    settings s = {.n = 0};
    set_llama(&s, 1, 32, 2, 2, 64);
    set_data(&s, dir);
    set(&s, "data.seq_len=%d", T);
    set(&s, "data.shuffle=false");
    set(&s, "train.precision=fp32");
    set(&s, "train.max_steps=%d", (int)steps);
    return open_run(LATHE_OPEN_TRAIN, s.list);
}

Test(empty_step, is_left_out_and_reported)
{
    char dir[] = "/tmp/lathe-empty-XXXXXX", said[4096] = "";
    lathe_train_result r;
    write_text(dir);
    lathe_run *run = open_rows(dir, 12);
    FILE *f = fmemopen(said, sizeof said, "w");
    const lathe_train_options options = {.out = f};
    OK(lathe_train(run, &options, &r));
    fclose(f);
    cr_expect_eq(run->at.step, 12);
    cr_expect_eq(run->at.skipped, 2); /* the ends of two epochs: steps 5 and 10 */
    cr_expect_eq(run->at.skipped_in_row, 0);
    cr_expect(strstr(said, "step 5: none of the tokens was a target; the step is left out"), "%s",
              said);
    cr_expect(strstr(said, "step 10: none of the tokens was a target"), "%s", said);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

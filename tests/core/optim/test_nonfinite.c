/* Tests NaN and infinity in training: the messages, and the actions of train.on_nonfinite.
 *
 * The model is a GPT-2 whose embedding of 'Q' and of position 5 are near the largest float in one
 * column: their sum is infinite only if column 5 of a row is a Q. */
#include "exec/store/row_kernels.h"
#include "support/small_run.h"

#include "train/training.h"

enum { T = 32, ROWS = 96, Q_COLUMN = 5 };

/* Rows of T bytes in training order; rows first to last have a Q in column 5. */
static void write_rows(const char *dir, int first, int last)
{
    char path[256];
    snprintf(path, sizeof path, "%s/corpus.txt", dir);
    write_corpus(path, T * ROWS);
    FILE *f = fopen(path, "r+");
    cr_assert(f);
    for (int r = first; r <= last; r++) {
        cr_assert_eq(fseek(f, r * T + Q_COLUMN, SEEK_SET), 0);
        fputc('Q', f);
    }
    fclose(f);
}

static void configure(settings *s, const char *dir, const char *policy)
{
    set(s, "model.model_type=gpt2");
    set(s, "model.vocab_size=320");
    set(s, "model.n_embd=32");
    set(s, "model.n_layer=2");
    set(s, "model.n_head=2");
    set(s, "model.n_positions=64");
    set(s, "model.tie_word_embeddings=false");
    set_data(s, dir);
    set(s, "data.seq_len=%d", T);
    set(s, "data.shuffle=false");
    set(s, "train.precision=fp32");
    set(s, "train.micro_batch_size=2");
    set(s, "train.gradient_accumulation_steps=2");
    set(s, "train.max_steps=20");
    set(s, "train.on_nonfinite=%s", policy);
    set(s, "optimizer.lr=0.001");
    set(s, "optimizer.weight_decay=0");
}

static float *values(lathe_run *run, const char *suffix)
{
    for (int32_t i = 0; i < run->params.n; i++) {
        const char *name = run->params.rows[i]->name, *at = strstr(name, suffix);
        if (at && strcmp(at, suffix) == 0)
            return lathe_store_master(&run->store, i);
    }
    cr_assert_fail("no parameter %s", suffix);
    return NULL;
}

static lathe_run *open_trap(const settings *s)
{
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s->list);
    values(run, "wte.weight")[(int64_t)'Q' * 32 + 3] = 3e38f;
    values(run, "wpe.weight")[Q_COLUMN * 32 + 3] = 3e38f;
    return run;
}

Test(nonfinite, stop_names_step_micro_batch_and_first_tensor)
{
    char dir[] = "/tmp/lathe-nonfinite-XXXXXX", said[4096] = "";
    settings s = {.n = 0};
    lathe_train_result r;
    make_folder(dir, 100);
    write_rows(dir, 22, 22); /* step 6 has rows 20 to 23: its second micro-batch */
    configure(&s, dir, "stop");
    lathe_run *run = open_trap(&s);
    cr_assert_eq(train_said(run, said, sizeof said, &r), LATHE_E_NUMERIC);
    /* row 22 is row 0 of its micro-batch: element 5*32 + 3 = 163 */
    expect_parts((const char *const[]){
        "step 6, micro-batch 2: the loss is ", "first in micro-batch 2", "output 0 of node ",
        "add_layernorm '", "forward", "f32[64,32]: 1 values are bad, the first inf at 163",
        "nothing was updated", NULL});
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(nonfinite, a_bad_parameter_is_named)
{
    char dir[] = "/tmp/lathe-nonfinite-XXXXXX", said[4096] = "";
    settings s = {.n = 0};
    lathe_train_result r;
    make_folder(dir, T * ROWS);
    configure(&s, dir, "stop");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    values(run, "h.1.mlp.c_fc.weight")[17] = NAN;
    cr_assert_eq(train_said(run, said, sizeof said, &r), LATHE_E_NUMERIC);
    expect_parts((const char *const[]){"step 1, micro-batch 1: the loss is nan",
                                       "h.1.mlp.c_fc.weight' was not finite before the step: 1 of",
                                       "the first nan at 17", NULL});
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* Weights of the last norm near 1e38, and a head that cancels them: the logits are finite, but the
 * sum over the tokens for the head's gradient is not. */
Test(nonfinite, a_gradient_that_overflows_is_named)
{
    char dir[] = "/tmp/lathe-nonfinite-XXXXXX", said[4096] = "";
    settings s = {.n = 0};
    lathe_train_result r;
    make_folder(dir, T * ROWS);
    configure(&s, dir, "stop");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    float *norm = values(run, "ln_f.weight"), *head = values(run, "lm_head.weight");
    for (int i = 0; i < 32; i++)
        norm[i] = 9e37f;
    for (int i = 0; i < 320 * 32; i++)
        head[i] = 0.0f;
    cr_assert_eq(train_said(run, said, sizeof said, &r), LATHE_E_NUMERIC);
    expect_parts((const char *const[]){"step 1: the gradient's norm is nan",
                                       "first in micro-batch 1: the gradient of '",
                                       "lm_head.weight'", "backward", NULL});
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* The rows of steps 4 and 6 are bad: both steps are counted, neither updates, the schedule waits,
 * and the rest of the run gets the same rows as without them. */
Test(nonfinite, skip_leaves_the_step_out)
{
    char dir[] = "/tmp/lathe-nonfinite-XXXXXX", said[4096] = "", path[256], *metrics = NULL;
    settings s = {.n = 0};
    int64_t bytes = 0;
    lathe_train_result r;
    make_folder(dir, 100);
    write_rows(dir, 15, 20);
    configure(&s, dir, "skip");
    lathe_run *run = open_trap(&s);
    OK(train_said(run, said, sizeof said, &r));
    cr_assert_eq(run->at.step, 20);
    cr_assert_eq(run->at.skipped, 3); /* rows 12-15, 16-19, 20-23 */
    cr_assert_eq(run->at.skipped_in_row, 0);
    cr_assert_eq(run->at.micro, 40);
    cr_assert_eq(run->at.cursor.index, 80); /* 20 steps of 4 rows, as in a run without them */
    cr_assert(strstr(said, "step 4, micro-batch 2: the loss is "), "%s", said);
    cr_assert(strstr(said, "step 5, micro-batch 1: the loss is "), "%s", said);
    cr_assert(strstr(said, "; the step is left out\n"), "%s", said);
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", dir);
    OK(lathe_file_read(path, 0, &metrics, &bytes));
    const char *line = strstr(metrics, "{\"step\": 5, \"loss\": null");
    cr_assert(line, "%s", metrics);
    line = strstr(line, "\"skipped_steps\": ");
    cr_assert(line && atoi(line + 17) == 2, "%s", line);
    free(metrics);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(nonfinite, skip_gives_up_after_ten_in_a_row)
{
    char dir[] = "/tmp/lathe-nonfinite-XXXXXX", said[4096] = "";
    settings s = {.n = 0};
    lathe_train_result r;
    make_folder(dir, 100);
    write_rows(dir, 8, ROWS - 1); /* from step 3 on */
    configure(&s, dir, "skip");
    lathe_run *run = open_trap(&s);
    cr_assert_eq(train_said(run, said, sizeof said, &r), LATHE_E_NUMERIC);
    expect_parts((const char *const[]){"step 12, micro-batch 1: the loss is ",
                                       "10 steps in a row were left out", NULL});
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

static void copy_masters(const lathe_run *run, float *out)
{
    memcpy(out, run->store.masters, (size_t)run->store.master_bytes);
}

/* Step 6 is bad and step 4 was saved: the run continues from its state with the rows of step 7. The
 * same rows in another way give the same bits. */
Test(nonfinite, rewind_continues_after_the_bad_step)
{
    char dir[] = "/tmp/lathe-nonfinite-XXXXXX", said[4096] = "";
    settings s = {.n = 0};
    lathe_train_result r;
    make_folder(dir, 100);
    write_rows(dir, 22, 22);
    configure(&s, dir, "rewind");
    set(&s, "checkpoint.every=4");
    set(&s, "train.stop_after=8");
    lathe_run *run = open_trap(&s);
    OK(train_said(run, said, sizeof said, &r));
    cr_assert(strstr(said, "step 6, micro-batch 2: the loss is "), "%s", said);
    cr_assert(strstr(said, "back from step 6 to "), "%s", said);
    cr_assert_eq(run->at.step, 8);
    cr_assert_eq(run->at.skipped, 0);
    cr_assert_eq(run->at.cursor.index, 4 * 10); /* 4 steps, 2 discarded, 4 after them */
    /* it is another branch from step 4 on: the line of step 5 is the new branch's, and the old one
     * is kept */
    char *lines = NULL, path[256];
    int64_t bytes = 0;
    snprintf(path, sizeof path, "%s/out/abandoned/branch-1/metrics.jsonl", dir);
    OK(lathe_file_read(path, 0, &lines, &bytes));
    cr_assert(strncmp(lines, "{\"step\": 5,", 11) == 0 && !strstr(lines + 1, "{\"step\""), "%s",
              lines);
    free(lines);
    cr_assert_eq(run->checkpoints.branch.number, 1);
    float *got = malloc((size_t)run->store.master_bytes);
    copy_masters(run, got);
    /* by hand: 4 steps, skip the rows of 2 steps, 4 steps */
    settings again = {.n = 0};
    configure(&again, dir, "stop");
    set(&again, "checkpoint.resume=never");
    set(&again, "checkpoint.dir=%s/other", dir);
    lathe_run *other = open_trap(&again);
    for (int k = 0; k < 8; k++) {
        for (int m = 0; k == 4 && m < 4; m++) {
            lathe_batch batch;
            OK(lathe_loader_next(other->data.loader, &batch));
            other->at.micro++;
        }
        for (int m = 0; m < 2; m++) {
            lathe_forward_result f = {.size = sizeof f};
            OK(lathe_forward(other, NULL, LATHE_FORWARD_TRAIN, &f));
            OK(lathe_backward(other, NULL));
        }
        OK(lathe_step(other, NULL));
    }
    cr_assert_eq(memcmp(got, other->store.masters, (size_t)run->store.master_bytes), 0);
    free(got);
    lathe_run_close(other);
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(nonfinite, rewind_before_the_first_checkpoint_is_an_error)
{
    char dir[] = "/tmp/lathe-nonfinite-XXXXXX", said[4096] = "";
    settings s = {.n = 0};
    lathe_train_result r;
    make_folder(dir, 100);
    write_rows(dir, 0, 0);
    configure(&s, dir, "rewind");
    set(&s, "checkpoint.every=3");
    lathe_run *run = open_trap(&s);
    cr_assert_eq(train_said(run, said, sizeof said, &r), LATHE_E_NUMERIC);
    expect_parts((const char *const[]){"step 1, micro-batch 1",
                                       "there is no checkpoint to go back to", NULL});
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

Test(nonfinite, rewind_gives_up_after_three_times)
{
    char dir[] = "/tmp/lathe-nonfinite-XXXXXX", said[4096] = "";
    settings s = {.n = 0};
    lathe_train_result r;
    make_folder(dir, 100);
    write_rows(dir, 20, ROWS - 1);
    configure(&s, dir, "rewind");
    set(&s, "checkpoint.every=4");
    lathe_run *run = open_trap(&s);
    cr_assert_eq(train_said(run, said, sizeof said, &r), LATHE_E_NUMERIC);
    expect_parts((const char *const[]){"after going back to ", "step-00000004 3 times", NULL});
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

/* Sets value = value * factor + offset in tensors whose name contains this text. */
static void change(lathe_run *run, const char *text, float factor, float offset)
{
    int n = 0;
    for (int32_t i = 0; i < run->params.n; i++) {
        const lathe_param *row = run->params.rows[i];
        float *x = lathe_store_master(&run->store, i);
        if (!strstr(row->name, text))
            continue;
        cr_assert(x, "%s", row->name);
        for (int64_t k = 0; k < lathe_desc_count(&row->desc); k++)
            x[k] = x[k] * factor + offset;
        OK(lathe_row_refresh(&run->store, i));
        n++;
    }
    cr_assert_gt(n, 0, "no parameter like %s", text);
}

/* LoRA's scale of 10^6 is cancelled by its A in the forward pass. In the backward pass it
 * multiplies only the gradient, which a steep last norm keeps above 65504 / 10^6 even at a loss
 * scale of 2^-10. The scale falls from 2^10 to that in 20 steps; the 21st gives up. */
Test(nonfinite, fp16_gives_up_at_the_least_scale)
{
    char dir[] = "/tmp/lathe-nonfinite-XXXXXX", said[4096] = "";
    settings s = {.n = 0};
    lathe_train_result r;
    make_folder(dir, T * ROWS);
    configure(&s, dir, "stop");
    set(&s, "train.precision=fp16");
    set(&s, "train.max_steps=40");
    set(&s, "adapter.name=lora");
    set(&s, "adapter.r=1");
    set(&s, "adapter.alpha=1e6");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s.list);
    change(run, "lora_A", 1e-6f, 0.0f);
    change(run, "lora_B", 1.0f, 1.0f);
    change(run, "ln_f.weight", 1000.0f, 0.0f);
    cr_assert_eq(train_said(run, said, sizeof said, &r), LATHE_E_NUMERIC);
    expect_parts((const char *const[]){"step 21: the gradient's norm is ",
                                       "at the least loss scale", "scale 'lora.scale'", "backward",
                                       "f16[64,1]", NULL});
    cr_assert_eq(run->at.skipped, 20); /* the step that ends the run is not counted */
    lathe_run_close(run);
    OK(lathe_dir_remove(dir));
}

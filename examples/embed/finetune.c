/* finetune RUN.toml CONVERSATIONS.jsonl STEPS OUT: fine-tunes a model in a loop of its own, with
 * the eight primitives, and saves a checkpoint in OUT.
 *
 * A line of CONVERSATIONS is what `lathe train` reads for sft: {"messages": [...]}. Each step takes
 * the next train.micro_batch_size conversations, one a row, cut at data.seq_len.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lathe/session.h>

enum { ROWS = 4, LENGTH = 256 }; /* micro_batch_size and seq_len of run.toml */

typedef struct batch {
    int32_t tokens[ROWS * LENGTH], targets[ROWS * LENGTH];
    int32_t n_rows;
} batch;

/* Puts a conversation into the next row: token i is followed by target i, which is token i + 1
 * where that is learnt, and else ignored (-1). */
static lathe_status add_row(lathe_session *session, const char *line, batch *b)
{
    lathe_session_ids made;
    const lathe_status status = lathe_session_learn(session, line, (int64_t)strlen(line), &made);
    if (status != LATHE_OK)
        return status;
    int32_t *tokens = b->tokens + b->n_rows * LENGTH, *targets = b->targets + b->n_rows * LENGTH;
    for (int64_t i = 0; i < LENGTH; i++) {
        tokens[i] = i < made.n ? made.ids[i] : 0;
        targets[i] = i + 1 < made.n && made.learnt[i + 1] ? made.ids[i + 1] : -1;
    }
    b->n_rows++;
    return LATHE_OK;
}

/* Reads the next rows; the file begins anew after its end. */
static lathe_status fill(lathe_session *session, FILE *file, batch *b)
{
    char *line = NULL;
    size_t capacity = 0;
    lathe_status status = LATHE_OK;
    b->n_rows = 0;
    for (int passes = 0; status == LATHE_OK && b->n_rows < ROWS && passes < 2;) {
        if (getline(&line, &capacity, file) > 0) {
            status = add_row(session, line, b);
        } else {
            rewind(file);
            passes++;
        }
    }
    free(line);
    return status;
}

static lathe_status train(lathe_session *session, FILE *file, long n_steps, const char *out)
{
    lathe_run *const run = lathe_session_run(session);
    batch *b = malloc(sizeof *b);
    lathe_status status = b != NULL ? LATHE_OK : LATHE_E_NOMEM;
    for (long i = 0; i < n_steps && status == LATHE_OK; i++) {
        lathe_forward_result forward = {.size = (uint32_t)sizeof forward};
        lathe_step_result step = {.size = (uint32_t)sizeof step};
        status = fill(session, file, b);
        const lathe_run_batch rows = {.size = (uint32_t)sizeof rows,
                                      .n_rows = b->n_rows,
                                      .row_tokens = LENGTH,
                                      .tokens = b->tokens,
                                      .targets = b->targets};
        if (status == LATHE_OK)
            status = lathe_forward(run, &rows, LATHE_FORWARD_TRAIN, &forward);
        if (status == LATHE_OK)
            status = lathe_backward(run, NULL);
        if (status == LATHE_OK)
            status = lathe_step(run, &step);
        if (status == LATHE_OK)
            printf("step %lld  loss %.4f  norm %.3f\n", (long long)step.step, step.loss,
                   step.grad_norm);
    }
    free(b);
    return status == LATHE_OK ? lathe_save(run, out) : status;
}

/* Reads a number of steps: a whole number from 1. -1: the text is something else. */
static long steps_of(const char *text)
{
    char *end;
    errno = 0;
    const long n = strtol(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && n >= 1 ? n : -1;
}

int main(int argc, char **argv)
{
    lathe_session *session = NULL;
    if (argc != 5) {
        fprintf(stderr, "usage: finetune RUN.toml CONVERSATIONS.jsonl STEPS OUT\n");
        return 2;
    }
    const long n_steps = steps_of(argv[3]);
    if (n_steps < 0) {
        fprintf(stderr, "finetune: STEPS is \"%s\"; expected a whole number from 1\n", argv[3]);
        return 2;
    }
    if (access(argv[4], F_OK) == 0) { /* lathe_save would find it out after the training */
        fprintf(stderr, "finetune: %s is there already; name a new folder\n", argv[4]);
        return 2;
    }
    FILE *file = fopen(argv[2], "r");
    if (file == NULL) {
        perror(argv[2]);
        return 1;
    }
    const lathe_session_config config = {
        .size = (uint32_t)sizeof config, .purpose = LATHE_SESSION_TRAIN, .model = argv[1]};
    lathe_status status = lathe_session_open(&config, &session);
    if (status == LATHE_OK)
        status = train(session, file, n_steps, argv[4]);
    if (status != LATHE_OK)
        fprintf(stderr, "finetune: %s\n", lathe_last_error());
    lathe_session_close(session);
    fclose(file);
    return status == LATHE_OK ? 0 : 1;
}

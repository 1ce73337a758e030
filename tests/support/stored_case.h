/* Runs that learn from a stored teacher: a folder with examples, a teacher, its stored numbers. */
#ifndef LATHE_TEST_STORED_CASE_H
#define LATHE_TEST_STORED_CASE_H

#include "checkpoint/state/checkpoint.h"
#include "data/rows/logprob_file.h"
#include "far_case.h"
#include "files/safetensors/manifest.h"
#include "open_options.h"
#include "run/api/stored_logprobs.h"
#include "run/open/opening.h"
#include "run/parts/stored_teacher.h"

static char folder[] = "/tmp/lathe_stored_XXXXXX";

__attribute__((unused)) static void setup(void)
{
    cr_assert(mkdtemp(folder));
}

__attribute__((unused)) static void teardown(void)
{
    (void)lathe_dir_remove(folder);
}

__attribute__((unused)) static const char *in_folder(const char *name)
{
    static char path[4][300];
    static int next;
    char *to = path[next++ % 4];
    snprintf(to, sizeof path[0], "%s/%s", folder, name);
    return to;
}

enum { V = 320 }; /* words of the runs */

/* Examples of different lengths; the last one is longer than a row of 48. */
__attribute__((unused)) static void write_examples(const char *name, int n)
{
    FILE *f = fopen(in_folder(name), "w");
    cr_assert(f);
    for (int i = 0; i < n; i++)
        fprintf(f, "{\"prompt\": \"part %d: \", \"completion\": \"made in %.*s ways\"}\n", i,
                i + 1 < n ? i % 5 : 40, "very many and then some more and again more of them");
    fclose(f);
}

__attribute__((unused)) static void set_run(settings *s, const char *stage, const char *out)
{
    set(s, "data.datasets=[{path = \"%s\"}]", in_folder("train.jsonl"));
    set(s, "data.cache_dir=%s", in_folder("cache"));
    set(s, "checkpoint.dir=%s", in_folder(out));
    set(s, "tokenizer.path=bytes");
    set(s, "log.progress=off");
    set(s, "data.seq_len=48");
    set(s, "stage.name=%s", stage);
    set(s, "optimizer.lr=5e-3");
    set(s, "scheduler.name=constant");
    set(s, "train.threads=1");
    set(s, "train.micro_batch_size=2");
    set(s, "train.precision=fp32");
}

__attribute__((unused)) static void train_to(settings *s, int steps)
{
    static char said[4096];
    lathe_train_result result;
    set(s, "train.max_steps=%d", steps);
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s->list);
    OK(train_said(run, said, sizeof said, &result));
    lathe_run_close(run);
}

/* A teacher of another width, with random weights. */
__attribute__((unused)) static void make_teacher(void)
{
    settings s = {.n = 0};
    write_examples("train.jsonl", 16);
    set_run(&s, "sft", "teacher");
    set_llama(&s, 1, 48, 2, 2, 64);
    train_to(&s, 1);
}

/* The run that learns; it has no teacher yet. */
__attribute__((unused)) static void set_student(settings *s, const char *out)
{
    set_run(s, "distill", out);
    set_llama(s, 1, 32, 2, 2, 64);
}

/* "key=value" -> overrides */
__attribute__((unused)) static int split(const char *const *list, lathe_override *out)
{
    static char keys[MAX_SETTINGS][192];
    int n = 0;
    for (; list[n]; n++) {
        snprintf(keys[n], sizeof keys[n], "%s", list[n]);
        char *equals = strchr(keys[n], '=');
        *equals = '\0';
        out[n] = (lathe_override){keys[n], equals + 1};
    }
    return n;
}

typedef struct making {
    int k;
    double temperature;
    int is_f16;
    int64_t file_bytes;
} making;

/* teacher: path of the teacher's folder */
__attribute__((unused)) static lathe_status store_status_of(settings *s, const char *teacher,
                                                            const char *to, const making *how,
                                                            lathe_stored *out)
{
    lathe_override list[MAX_SETTINGS];
    lathe_run *run = NULL;
    const lathe_storing storing = {
        .dir = in_folder(to), .is_f16 = how->is_f16, .file_bytes = how->file_bytes};
    set(s, "teacher.path=%s", teacher);
    const int n = split(s->list, list);
    lathe_status status =
        open_to_store(list, n, how->k, how->temperature > 0.0 ? how->temperature : 1.0, &run);
    if (status == LATHE_OK)
        status = lathe__logprobs_store(run, &storing, out);
    lathe_run_close(run);
    return status;
}

__attribute__((unused)) static lathe_status store_status(settings *s, const char *to,
                                                         const making *how, lathe_stored *out)
{
    return store_status_of(s, in_folder("teacher/step-00000001"), to, how, out);
}

__attribute__((unused)) static lathe_stored store(const char *to, const making *how)
{
    settings s = {.n = 0};
    lathe_stored out;
    set_student(&s, "unused");
    OK(store_status(&s, to, how, &out));
    return out;
}

__attribute__((unused)) static lathe_stored store_k(const char *to, int k)
{
    const making how = {.k = k};
    return store(to, &how);
}

/* A folder whose manifest says k and the temperature, for batches that bring their numbers. */
__attribute__((unused)) static void make_empty_folder(int k, double temperature, int row_tokens,
                                                      int vocab)
{
    lathe_tokenizer *bytes = NULL;
    lathe_logprob_writer writer;
    uint64_t checksum;
    char meta[512];
    lathe_logprob_header h = {.top_k = k,
                              .value_bytes = 4,
                              .row_tokens = row_tokens,
                              .vocab_size = vocab,
                              .temperature = temperature};
    OK(lathe_tokenizer_bytes(&bytes));
    OK(lathe_dir_create(in_folder("golden")));
    OK(lathe__logprob_writer_init(&writer, in_folder("golden/a.logprobs"), &h));
    OK(lathe__logprob_writer_finish(&writer, &checksum));
    lathe__logprob_writer_fini(&writer);
    snprintf(meta, sizeof meta,
             "{\"kind\": \"logprobs\", \"top_k\": %d, \"temperature\": %g, \"seq_len\": %d, "
             "\"vocab_size\": %d, \"tokenizer\": \"%s\", \"sets\": [{\"data\": \"%064d\", "
             "\"files\": [\"a.logprobs\"]}]}",
             k, temperature, row_tokens, vocab, lathe_tokenizer_hash(bytes), 0);
    OK(lathe_manifest_write(in_folder("golden"), meta));
    lathe_tokenizer_destroy(bytes);
}

/* The loss, both metrics and the gradient of the first batches of a run. */
typedef struct outcome {
    double loss, cross_entropy, divergence;
    float *gradient; /* of the embedding */
    int64_t n;
} outcome;

__attribute__((unused)) static outcome first_batches(settings *s, int n_batches)
{
    outcome out = {.loss = 0.0};
    set(s, "train.max_steps=1");
    lathe_run *run = open_run(LATHE_OPEN_TRAIN, s->list);
    for (int i = 0; i < n_batches; i++) {
        lathe_forward_result f = {.size = sizeof f};
        OK(lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f));
        OK(lathe_backward(run, NULL));
        out.loss += f.loss_sum;
    }
    out.cross_entropy = run->sum.metric_sums[0];
    out.divergence = run->sum.metric_sums[1];
    out.n = lathe_desc_count(&run->params.rows[0]->desc);
    out.gradient = malloc((size_t)out.n * sizeof *out.gradient);
    OK(lathe_store_get(&run->store, out.gradient, lathe_store_grad(&run->store, 0),
                       out.n * (int64_t)sizeof *out.gradient));
    lathe_run_close(run);
    return out;
}

#endif

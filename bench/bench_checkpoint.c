/* Measures checkpoints of the GPT-2 124M shape: how long asynchronous checkpoints stop training,
 * and how long resuming takes compared with a fresh start.
 *
 * Usage: bench_checkpoint DIR stall [rows] [row_tokens] [steps] [every] [section.key=value ...]
 *        bench_checkpoint DIR start|resume [rows] [row_tokens] [section.key=value ...]
 *
 *   stall   runs `steps` steps without checkpoints, then `steps` with one every `every`; prints
 *             step_ms, plain_ms, stall_ms (mean per checkpoint), share (of the time, stalled)
 *             slower (ratio of the step time during writing to the step time without)
 *   start   trains one step and saves; prints first_ms, the time from opening the run to the end
 *             of the first step
 *   resume  does the same from the checkpoint that `start` wrote to DIR
 *
 * Prints one "key value" per line. DIR needs space for two checkpoints of 1.5 GB.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "bench_open.h"
#include "checkpoint/state/checkpoint.h"
#include "checkpoint/state/checkpoint_writer.h"
#include "run/api/save_load.h"
#include "run/open/opening.h"
#include "run/state/run_saved.h"
#include "train/training.h"

enum { MAX_SETTINGS = 40, V = 50257 };

static void die(const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", what, lathe_error_message());
    exit(1);
}

/* Writes random bytes once. */
static void write_text(const char *path)
{
    uint32_t state = 1;
    if (lathe_path_exists(path))
        return;
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < 400000; i++) {
        state = state * 1664525u + 1013904223u;
        (void)fputc(' ' + (int)(state >> 26), f);
    }
    if (!f || fclose(f) != 0)
        die(path);
}

static lathe_run *open_run(const char *dir, const char *rows, const char *tokens, const char *every,
                           int n_more, char *const *more)
{
    char plugins[512], data[512], cache[512];
    (void)snprintf(plugins, sizeof plugins, "[\"%s/lib/lathe/plugins\"]", LATHE_BUILD);
    (void)snprintf(data, sizeof data, "[{path = \"%s/text.txt\"}]", dir);
    (void)snprintf(cache, sizeof cache, "%s/cache", dir);
    const lathe_override settings[MAX_SETTINGS] = {
        {"model.model_type", "gpt2"}, {"model.vocab_size", "50257"},
        {"model.n_embd", "768"},      {"model.n_layer", "12"},
        {"model.n_head", "12"},       {"model.n_positions", "1024"},
        {"tokenizer.path", "bytes"},  {"train.max_steps", "1000000"},
        {"data.datasets", data},      {"data.cache_dir", cache},
        {"data.seq_len", tokens},     {"train.micro_batch_size", rows},
        {"optimizer.lr", "3e-4"},     {"plugins.paths", plugins},
        {"checkpoint.dir", dir},      {"checkpoint.every", every},
        {"checkpoint.keep_last", "1"}};
    lathe_override list[MAX_SETTINGS];
    lathe_run *run = NULL;
    int32_t n = 0;
    for (; settings[n].key; n++)
        list[n] = settings[n];
    for (int i = 0; i < n_more && n < MAX_SETTINGS; i++) {
        char *equals = strchr(more[i], '=');
        if (!equals)
            continue;
        *equals = '\0';
        list[n++] = (lathe_override){more[i], equals + 1};
    }
    if (bench_open(list, n, LATHE_OPEN_TRAIN, &run) != LATHE_OK)
        die("open");
    return run;
}

static double one_step(lathe_run *run)
{
    lathe_forward_result f = {.size = (uint32_t)sizeof f};
    const double begun = lathe_now();
    if (lathe_forward(run, NULL, LATHE_FORWARD_TRAIN, &f) != LATHE_OK ||
        lathe_backward(run, NULL) != LATHE_OK || lathe_step(run, NULL) != LATHE_OK)
        die("step");
    return lathe_now() - begun;
}

/* Starts a checkpoint as lathe_train does. */
static double begin_checkpoint(lathe_run *run, lathe_writer *writer)
{
    const lathe_figures none = {.n = 0};
    const double begun = lathe_now();
    if (lathe_writer_wait(writer, NULL) != LATHE_OK ||
        lathe_image_take(run->checkpoints.image, lathe__run_saved(run)) != LATHE_OK)
        die("checkpoint");
    lathe_writer_post(writer, &none, 0);
    return lathe_now() - begun;
}

static void measure_stall(lathe_run *run, int steps, int every)
{
    lathe_writer *writer = NULL;
    double plain = 0.0, with = 0.0, stall = 0.0;
    int n = 0;
    if (lathe__checkpoint_know_plugins(lathe__run_saved(run)) != LATHE_OK ||
        lathe_writer_create(run->checkpoints.image, &writer) != LATHE_OK ||
        lathe_writer_wait(writer, NULL) != LATHE_OK)
        die("writer");
    (void)one_step(run);
    for (int i = 0; i < steps; i++)
        plain += one_step(run);
    for (int i = 0; i < steps; i++) {
        if (i % every == 0) {
            stall += begin_checkpoint(run, writer);
            n++;
        }
        with += one_step(run);
    }
    const double begun = lathe_now();
    if (lathe_writer_wait(writer, NULL) != LATHE_OK)
        die("checkpoint");
    (void)printf(
        "plain_ms %.1f\nstep_ms %.1f\nstall_ms %.1f\nshare %.5f\nslower %.4f\nleft_ms %.1f\n",
        1e3 * plain / steps, 1e3 * with / steps, 1e3 * stall / n, stall / (stall + with),
        with / plain, 1e3 * (lathe_now() - begun));
    lathe_writer_destroy(writer);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        (void)fprintf(stderr,
                      "usage: bench_checkpoint DIR stall|start|resume [rows] [row_tokens] ...\n");
        return 2;
    }
    char text[512];
    const char *dir = argv[1], *what = argv[2];
    const int stalls = strcmp(what, "stall") == 0, resumes = strcmp(what, "resume") == 0;
    const char *rows = argc > 3 ? argv[3] : "1", *tokens = argc > 4 ? argv[4] : "256";
    const int steps = stalls && argc > 5 ? atoi(argv[5]) : 20;
    const char *every = stalls && argc > 6 ? argv[6] : stalls ? "20" : "0";
    const int first = stalls ? 7 : 5;
    (void)snprintf(text, sizeof text, "%s/text.txt", dir);
    if (lathe_dir_create(dir) != LATHE_OK)
        die(dir);
    write_text(text);
    const double begun = lathe_now();
    lathe_run *run =
        open_run(dir, rows, tokens, every, argc > first ? argc - first : 0, argv + first);
    if (stalls) {
        measure_stall(run, steps, atoi(every));
    } else {
        const char *from = NULL;
        char path[4096];
        if (resumes && (lathe__run_resume(run, &from) != LATHE_OK || !from))
            die("resume");
        const double opened = lathe_now();
        const double step = one_step(run);
        (void)printf("opened_ms %.1f\nfirst_step_ms %.1f\nfirst_ms %.1f\n", 1e3 * (opened - begun),
                     1e3 * step, 1e3 * (lathe_now() - begun));
        if (!resumes && lathe_checkpoint_write(lathe__run_saved(run), NULL, 0, path,
                                               (int64_t)sizeof path) != LATHE_OK)
            die("save");
    }
    lathe_run_close(run);
    return 0;
}

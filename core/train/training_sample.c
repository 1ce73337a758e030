/* Generates text from the prompt at regular steps, as samples. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/trace.h"
#include "parallel/ranks/extents.h"
#include "run/api/generate.h"
#include "run/api/save_load.h"
#include "run/parts/sampling_settings.h"
#include "train/training.h"

static const char *prompt_of(const lathe_run *run)
{
    return run->set.prompt ? run->set.prompt : "";
}

lathe_status lathe__training_samples_open(lathe_training *t)
{
    lathe_run *run = t->run;
    if (run->set.sample_every == 0)
        return LATHE_OK;
    const lathe_status status = lathe__generate_check(run, prompt_of(run));
    if (status != LATHE_OK)
        return lathe_error_context(status, "generate.every wants samples of generate.prompt");
    lathe__sampling_say(run);
    if (run->set.checkpoint.dir == NULL)
        return lathe_error(LATHE_E_CONFIG,
                           "generate.every writes samples.jsonl: set checkpoint.dir, its folder");
    const char *path = lathe_path_join(&run->arena, run->set.checkpoint.dir, "samples.jsonl");
    if (path == NULL)
        return LATHE_E_NOMEM;
    int fd = -1;
    LATHE_TRY(lathe_lines_cut(path, run->at.step));
    LATHE_TRY(lathe_file_append(path, &fd));
    t->samples = fdopen(fd, "a");
    if (t->samples)
        return LATHE_OK;
    (void)close(fd);
    return lathe_error(LATHE_E_NOMEM, "no memory for %s", path);
}

void lathe__training_samples_close(lathe_training *t)
{
    if (t->samples)
        (void)fclose(t->samples);
    t->samples = NULL;
}

/* Where ranks divide the parameters, the others serve this one while it generates. */
static lathe_status make(lathe_run *run, lathe_generation *out)
{
    lathe_sampling sampling = {.size = (uint32_t)sizeof sampling};
    LATHE_TRY(lathe_default_sampling(run, &sampling));
    const double begin = lathe_now();
    *out = (lathe_generation){.size = (uint32_t)sizeof *out};
    if (run->store.gathers)
        lathe_extents_lead(run->extents, 1);
    LATHE_TRY(lathe_generate(run, prompt_of(run), &sampling, out));
    lathe_trace_since("sample", "sample", begin);
    return LATHE_OK;
}

/* Whether this rank serves rank 0 while it generates. */
static int serves(const lathe_run *run)
{
    return run->programs.rank > 0 && run->store.gathers && run->samples_every > 0 &&
           run->at.step % run->samples_every == 0;
}

/* A NUL within the text would end it: it becomes what stands for bytes that are no text. */
static void put_text(lathe_buffer *b, const char *text, int64_t bytes)
{
    char *copy = malloc((size_t)bytes + 1);
    if (copy == NULL) {
        b->status = LATHE_E_NOMEM;
        return;
    }
    for (int64_t i = 0; i < bytes; i++)
        copy[i] = text[i] ? text[i] : '\xff';
    copy[bytes] = '\0';
    lathe_buffer_json_string(b, copy);
    free(copy);
}

lathe_status lathe__training_sample(lathe_training *t)
{
    lathe_run *run = t->run;
    lathe_generation made = {.size = (uint32_t)sizeof made};
    lathe_buffer b = LATHE_BUFFER_INIT;
    if (serves(run))
        return lathe__run_serve(run);
    if (t->samples == NULL || run->at.step % run->set.sample_every != 0)
        return LATHE_OK;
    const lathe_status sampled = make(run, &made);
    if (run->store.gathers && (sampled == LATHE_OK || sampled == LATHE_E_NUMERIC))
        LATHE_TRY(lathe__run_release(run));
    if (sampled == LATHE_E_NUMERIC) { /* train.on_nonfinite decides, at the next loss */
        lathe_log(LATHE_LOG_WARN, "no sample after step %lld: %s", (long long)run->at.step,
                  lathe_error_message());
        return LATHE_OK;
    }
    LATHE_TRY(sampled);
    lathe_buffer_printf(&b, "{\"step\": %lld, \"prompt\": ", (long long)run->at.step);
    lathe_buffer_json_string(&b, prompt_of(run));
    lathe_buffer_puts(&b, ", \"text\": ");
    put_text(&b, made.text, made.text_bytes);
    lathe_buffer_puts(&b, "}\n");
    lathe_status status = b.status;
    if (status != LATHE_OK)
        (void)lathe_error(status, "no memory for a sample");
    else if (fwrite(b.data, 1, (size_t)b.len, t->samples) != (size_t)b.len ||
             fflush(t->samples) != 0)
        status =
            lathe_error(LATHE_E_IO, "%s/samples.jsonl: cannot write the sample of step %lld: %s",
                        run->set.checkpoint.dir, (long long)run->at.step, strerror(errno));
    lathe_buffer_fini(&b);
    return status;
}

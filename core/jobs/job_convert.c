/* Converts a GGUF file to a Hugging Face folder, and back; a LoRA adapter to a GGUF adapter. */
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "checkpoint/state/adapter_file.h"
#include "jobs/job.h"
#include "model/convert/gguf_convert.h"
#include "run/folder/adapter_folder.h"
#include "run/merge/adapter_gguf.h"
#include "run/open/opening.h"
#include "run/state/run_saved.h"
#include "session/model_word.h"
#include "session/which_weights.h"

static const struct {
    const char *name;
    int32_t type, dtype; /* in GGUF; in a folder, -1: none */
} types[] = {{"f32", LATHE_GGUF_F32, LATHE_F32},    {"f16", LATHE_GGUF_F16, LATHE_F16},
             {"bf16", LATHE_GGUF_BF16, LATHE_BF16}, {"q8_0", LATHE_GGUF_Q8_0, -1},
             {"q4_0", LATHE_GGUF_Q4_0, -1},         {"q4_k", LATHE_GGUF_Q4_K, -1},
             {"q6_k", LATHE_GGUF_Q6_K, -1}};

static int32_t find_type(const char *text)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, text) == 0)
            return (int32_t)i;
    return -1;
}

static int ends_in_gguf(const char *path)
{
    const size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".gguf") == 0;
}

/* ---- an adapter ---- */

/* Opens the model with the adapter's settings, and reads its matrices. */
static lathe_status open_adapter(const lathe_model_folder *found, const char *base,
                                 lathe_arena *arena, lathe_run **out)
{
    lathe_adapter_folder folder;
    lathe_edits edits = {.n = 0};
    const char *dir = found->dir;
    LATHE_TRY(lathe_adapter_folder_read(dir, base, arena, &folder));
    if (base != NULL)
        LATHE_TRY(lathe_adapter_folder_refuse_merged(dir, base));
    else
        LATHE_TRY(lathe_adapter_base_check(dir, folder.base));
    for (int32_t i = 0; i < folder.settings.n; i++)
        lathe_edits_add(&edits, &folder.settings.edits[i]);
    lathe_edits_text(&edits, LATHE_BY_FOLDER, "model.path", folder.base);
    if (base == NULL) /* the adapter names the weights themselves */
        lathe_edits_text(&edits, LATHE_BY_FOLDER, "model.weights", "training");
    if (!lathe_settings_have(&folder.settings, "data.seq_len"))
        lathe_edits_int(&edits, LATHE_BY_FOLDER, "data.seq_len", 2); /* nothing is computed */
    const lathe_run_source from = {NULL, &edits, NULL};
    lathe_status status = lathe_run_open_for(&from, LATHE_OPEN_WEIGHTS, out);
    lathe_edits_fini(&edits);
    return status == LATHE_OK ? lathe__adapter_file_take(lathe__run_saved(*out), found->weights)
                              : status;
}

/* An adapter becomes a GGUF adapter, in f32 as by llama.cpp's converter unless another type of
 * floats is named. */
static lathe_status convert_adapter(const lathe_job_convert_config *c, const char *dash,
                                    const lathe_model_folder *folder, lathe_arena *arena,
                                    const lathe_work_watch *watch)
{
    const int32_t type = find_type(c->type != NULL ? c->type : "f32");
    lathe_run *run = NULL;
    if (!ends_in_gguf(c->output))
        return lathe_error(LATHE_E_ARG, "%soutput %s: an adapter is converted to a file *.gguf",
                           dash, c->output);
    if (type < 0 || types[type].dtype < 0)
        return lathe_error(LATHE_E_ARG, "%stype %s: expected f32, f16 or bf16 for an adapter", dash,
                           c->type);
    lathe_status status = open_adapter(folder, c->base, arena, &run);
    if (status == LATHE_OK) {
        const lathe_merge_part part = {lathe__run_saved(run), folder->dir, 1.0};
        status = lathe__adapter_gguf_write(&part, c->output, types[type].type, watch);
    }
    lathe_run_close(run);
    return status;
}

/* ---- a model ---- */

/* Finds the model. An adapter alone is converted as one; beside a model it is part of that. */
static lathe_status find_model(const lathe_job_convert_config *c, lathe_arena *arena,
                               lathe_model_folder *out)
{
    LATHE_TRY(lathe_which_weights_find(c->model, c->weights, arena, out));
    if (out->has_model)
        LATHE_TRY(lathe_model_folder_refuse_adapter(out));
    lathe_which_weights_say(out);
    return lathe_model_folder_check(out);
}

static lathe_status convert_model(const lathe_job_convert_config *c, const char *dash,
                                  const char *from, const lathe_work_watch *watch)
{
    const int is_folder = lathe_path_is_dir(c->model);
    const int32_t type = c->type != NULL ? find_type(c->type) : -1;
    lathe_model_source source = {NULL, NULL};
    if (is_folder && !ends_in_gguf(c->output))
        return lathe_error(LATHE_E_ARG, "%soutput %s: a folder is converted to a file *.gguf", dash,
                           c->output);
    if (!is_folder && ends_in_gguf(c->output))
        return lathe_error(LATHE_E_ARG,
                           "%soutput %s: a GGUF file is converted to a folder, and then to another "
                           "type",
                           dash, c->output);
    if (c->type != NULL && (type < 0 || (!is_folder && types[type].dtype < 0)))
        return lathe_error(LATHE_E_ARG, "%stype %s: expected f32, f16%s", dash, c->type,
                           is_folder ? ", bf16, q8_0, q4_0, q4_k or q6_k" : " or bf16");
    lathe_status status = lathe_registry_create(&source.registry);
    if (status == LATHE_OK && is_folder)
        status = lathe_gguf_export(&source, from, c->output,
                                   type >= 0 ? types[type].type : LATHE_GGUF_BF16, watch);
    else if (status == LATHE_OK)
        status =
            lathe_gguf_import(&source, from, c->output, type >= 0 ? types[type].dtype : -1, watch);
    lathe_registry_destroy(source.registry);
    return status;
}

static lathe_status convert(const lathe_job_convert_config *c, const char *dash, lathe_job *job,
                            lathe_arena *arena)
{
    lathe_model_folder folder;
    if (c->model == NULL)
        return lathe_error(LATHE_E_ARG, "%smodel is missing: the folder or the GGUF file to read",
                           dash);
    if (c->output == NULL)
        return lathe_error(LATHE_E_ARG,
                           "%soutput is missing: name the folder or the .gguf file to write", dash);
    LATHE_TRY(lathe_model_word_check_weights(c->model));
    LATHE_TRY(find_model(c, arena, &folder));
    const lathe_work_watch *watch = lathe__job_part(job, "convert", 1.0);
    return folder.has_adapter ? convert_adapter(c, dash, &folder, arena, watch)
                              : convert_model(c, dash, folder.weights, watch);
}

lathe_status lathe__job_convert(const lathe_job_convert_config *config,
                                const lathe_job_caller *caller)
{
    lathe_arena arena = LATHE_ARENA_INIT;
    lathe_job job;
    lathe__job_begin(&job, config->progress, config->arg, "nothing was written");
    const lathe_status status = convert(config, caller->dash, &job, &arena);
    lathe_arena_fini(&arena);
    return lathe__job_end(&job, status);
}

lathe_status lathe_job_convert(const lathe_job_convert_config *config)
{
    const lathe_job_caller caller = {NULL, ""};
    LATHE_TRY(lathe__job_check(config, (uint32_t)sizeof *config, "lathe_job_convert"));
    return lathe__job_convert(config, &caller);
}

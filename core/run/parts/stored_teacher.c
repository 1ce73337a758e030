/* The stored teacher of a run. */
#include "run/parts/stored_teacher.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/json/json.h"
#include "files/safetensors/manifest.h"
#include "plug/stage_inputs.h"

enum { MAX_SETS = 2 }; /* of data.datasets and data.validation */

#define MAX_CHECKED ((int64_t)1 << 30) /* bytes of files that are read when a run starts */

typedef struct stored_set {
    const char *data; /* hash of its data; borrowed from meta */
    const json_t *files;
    lathe_logprob_set *set; /* NULL: not opened */
} stored_set;

struct lathe_stored_teacher {
    json_t *meta;
    int32_t top_k;
    int64_t row_tokens, bytes;
    double temperature;
    stored_set sets[MAX_SETS];
    int32_t n_sets;
};

static lathe_status refuse(const lathe_run *run, const char *what)
{
    return lathe__run_refuse(run, "teacher", "stored", "teacher.stored = \"%s\": %s",
                             run->set.teacher_stored, what);
}

/* A failure to read the folder, at the key that names it. */
static lathe_status refuse_said(const lathe_run *run, lathe_status status)
{
    return status == LATHE_E_NOMEM ? status
                                   : lathe__run_refuse(run, "teacher", "stored",
                                                       "teacher.stored: %s", lathe_error_message());
}

/* ---- the manifest ---- */

static lathe_status read_meta(lathe_run *run)
{
    struct lathe_stored_teacher *s = run->stored;
    const char *dir = run->set.teacher_stored;
    char *text = NULL, hex[65];
    lathe_status status = lathe_manifest_meta(dir, &text);
    if (status == LATHE_OK && text)
        status = lathe_manifest_self(dir, hex);
    if (status == LATHE_OK && text)
        status = lathe_json_load(dir, text, (int64_t)strlen(text), &s->meta);
    free(text);
    if (status != LATHE_OK)
        return refuse_said(run, status);
    const char *kind = json_string_value(json_object_get(s->meta, "kind"));
    if (kind == NULL || strcmp(kind, LATHE_LOGPROBS_KIND) != 0)
        return refuse(run, "the folder has no log-probabilities; expected one that lathe logprobs "
                           "made");
    status = lathe_manifest_survey(dir, 0, NULL, NULL, &s->bytes);
    return status == LATHE_OK ? LATHE_OK : refuse_said(run, status);
}

static int64_t number_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

/* Reads the members of the manifest that the graphs need, and the lists of files. */
static lathe_status read_members(lathe_run *run)
{
    struct lathe_stored_teacher *s = run->stored;
    const json_t *sets = json_object_get(s->meta, "sets");
    const int64_t k = number_of(s->meta, "top_k");
    const json_t *temperature = json_object_get(s->meta, "temperature");
    s->row_tokens = number_of(s->meta, "seq_len");
    s->temperature = json_is_number(temperature) ? json_number_value(temperature) : 0.0;
    if (k < 1 || k > LATHE_LOGPROB_MOST_K || k > number_of(s->meta, "vocab_size") ||
        s->row_tokens < 1 || !(s->temperature > 0.0) || json_array_size(sets) < 1 ||
        json_array_size(sets) > MAX_SETS)
        return refuse(run, "its manifest.json contradicts itself; run lathe logprobs again");
    s->top_k = (int32_t)k;
    for (size_t i = 0; i < json_array_size(sets); i++) {
        const json_t *one = json_array_get(sets, i);
        stored_set *to = &s->sets[s->n_sets];
        to->data = json_string_value(json_object_get(one, "data"));
        to->files = json_object_get(one, "files");
        if (to->data == NULL || strlen(to->data) != 64 || json_array_size(to->files) < 1)
            return refuse(run, "its manifest.json contradicts itself; run lathe logprobs again");
        s->n_sets++;
    }
    return LATHE_OK;
}

static lathe_status check_vocabulary(const lathe_run *run)
{
    const struct lathe_stored_teacher *s = run->stored;
    const char *hash = json_string_value(json_object_get(s->meta, "tokenizer"));
    const int64_t vocab = number_of(s->meta, "vocab_size");
    if (vocab > run->model.vocab)
        return lathe__run_refuse(run, "teacher", "stored",
                                 "teacher.stored = \"%s\": made of the first %lld tokens of the "
                                 "teacher, and the model has %lld; run lathe logprobs again with "
                                 "this run file",
                                 run->set.teacher_stored, (long long)vocab,
                                 (long long)run->model.vocab);
    if (run->data.tokenizer &&
        (hash == NULL || strcmp(hash, lathe_tokenizer_hash(run->data.tokenizer))))
        return refuse(run, "made with another tokenizer; run lathe logprobs again with this run "
                           "file");
    return LATHE_OK;
}

lathe_status lathe__stored_open(lathe_run *run)
{
    const lathe_stage_v1 *stage = run->parts.stage.table;
    if (!lathe_stage_takes_stored(stage))
        return lathe__run_refuse(
            run, "teacher", "stored",
            "teacher.stored: stage \"%s\" learns from a model, not from stored "
            "log-probabilities; set teacher.path instead",
            run->parts.stage.component->plugin->name);
    run->stored = calloc(1, sizeof *run->stored);
    if (run->stored == NULL)
        return lathe_error(LATHE_E_NOMEM, "no memory for the stored teacher");
    LATHE_TRY(read_meta(run));
    LATHE_TRY(read_members(run));
    return check_vocabulary(run);
}

int32_t lathe__stored_k(const lathe_run *run)
{
    return run->stored ? run->stored->top_k : 0;
}

double lathe__stored_temperature(const lathe_run *run)
{
    return run->stored ? run->stored->temperature : 0.0;
}

int32_t lathe__stored_inputs(const lathe_run *run, lathe_stage_input *out,
                             lathe_input_shape *out_shapes)
{
    const lathe_stage_v1 *stage = run->parts.stage.table;
    int32_t n = 0;
    for (int32_t i = 0; run->stored && i < stage->n_inputs; i++)
        if (stage->inputs[i].source == LATHE_INPUT_STORED) {
            out[n] = stage->inputs[i];
            out_shapes[n].dtype = lathe_stage_shape(stage, i).dtype;
            out_shapes[n++].count = (int32_t)lathe_stage_input_count(stage, i, run->stored->top_k);
        }
    return n;
}

/* ---- the files of some data ---- */

static lathe_status open_set(lathe_run *run, stored_set *of)
{
    struct lathe_stored_teacher *s = run->stored;
    const int64_t n = (int64_t)json_array_size(of->files);
    const char **paths = lathe_arena_alloc(&run->arena, n * (int64_t)sizeof *paths);
    if (paths == NULL)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(of->files, (size_t)i));
        if (name == NULL || strchr(name, '/'))
            return refuse(run, "its manifest.json names a file outside the folder");
        paths[i] = lathe_path_join(&run->arena, run->set.teacher_stored, name);
        if (paths[i] == NULL)
            return LATHE_E_NOMEM;
    }
    const lathe_status status = lathe_logprob_set_open(paths, n, s->bytes <= MAX_CHECKED, &of->set);
    if (status != LATHE_OK)
        return refuse_said(run, status);
    const lathe_logprob_header *h = lathe_logprob_set_header(of->set);
    if (h->top_k != s->top_k || h->row_tokens != s->row_tokens ||
        h->vocab_size != number_of(s->meta, "vocab_size") || h->temperature < s->temperature ||
        h->temperature > s->temperature || memcmp(h->data, of->data, sizeof h->data) != 0)
        return refuse(run, "its files are not those that its manifest.json describes");
    return LATHE_OK;
}

/* Refuses records that were cut shorter than the rows of this run. */
static lathe_status check_rows(const lathe_run *run, const lathe_shards *shards,
                               const lathe_logprob_set *set)
{
    const int64_t stored = run->stored->row_tokens, n = lathe_shards_segments(shards);
    if (lathe_logprob_set_records(set) != n)
        return refuse(run, "it has another number of records than the data; run lathe logprobs "
                           "again");
    for (int64_t i = 0; run->set.seq_len > stored && i < n; i++) {
        const int64_t length = lathe_shards_offset(shards, i + 1) - lathe_shards_offset(shards, i);
        if (length > stored)
            return lathe__run_refuse(
                run, "teacher", "stored",
                "teacher.stored = \"%s\": made with data.seq_len = %lld, up to "
                "which records are stored; example %lld has %lld tokens, and "
                "data.seq_len is %d: run lathe logprobs again with it, or set "
                "data.seq_len to %lld at most",
                run->set.teacher_stored, (long long)stored, (long long)i + 1, (long long)length,
                run->set.seq_len, (long long)stored);
    }
    return LATHE_OK;
}

lathe_status lathe__stored_of(lathe_run *run, const lathe_shards *shards,
                              const lathe_logprob_set **out)
{
    struct lathe_stored_teacher *s = run->stored;
    int32_t i = 0;
    *out = NULL;
    if (s == NULL)
        return LATHE_OK;
    while (i < s->n_sets && strcmp(s->sets[i].data, lathe_shards_hash(shards)) != 0)
        i++;
    if (i == s->n_sets && lathe__run_is_dry(run))
        return LATHE_OK;
    if (i == s->n_sets)
        return lathe__run_refuse(run, "teacher", "stored",
                                 "teacher.stored = \"%s\": made of other data: the tokens of this "
                                 "run's %s have the hash %.12s, those of the folder %.12s%s%.12s; "
                                 "run lathe logprobs again with this run file",
                                 run->set.teacher_stored,
                                 shards == run->data.shards ? "data.datasets" : "data.validation",
                                 lathe_shards_hash(shards), s->sets[0].data,
                                 s->n_sets > 1 ? " and " : "",
                                 s->n_sets > 1 ? s->sets[1].data : "");
    if (s->sets[i].set == NULL)
        LATHE_TRY(open_set(run, &s->sets[i]));
    LATHE_TRY(check_rows(run, shards, s->sets[i].set));
    *out = s->sets[i].set;
    return LATHE_OK;
}

void lathe__stored_close(lathe_run *run)
{
    if (run->stored == NULL)
        return;
    for (int32_t i = 0; i < run->stored->n_sets; i++)
        lathe_logprob_set_close(run->stored->sets[i].set);
    json_decref(run->stored->meta);
    free(run->stored);
    run->stored = NULL;
}

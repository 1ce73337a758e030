/* Adds tokens to the tokenizer and the model of a run. */
#include "run/decide/new_tokens.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/model_path.h"
#include "base/new_folder.h"
#include "files/gguf/model_files.h"
#include "model/family/weights.h"
#include "tokenizer/json/token_growth.h"
#include "tokenizer/json/tokenizer_file.h"

/* ---- the tokenizer ---- */

/* Keys of [tokenizer] that say how tokens are added. */
static const char *const details[] = {"add_plain", "add_init", "add_seed"};

static void warn_idle(const lathe_run *run)
{
    const int is_padded = run->set.pad_to_multiple_of > 1;
    for (size_t i = 0; i < sizeof details / sizeof details[0]; i++) {
        const int is_of_rows = i > 0;
        if (lathe_config_is_explicit(run->config, "tokenizer", details[i]) &&
            !(is_of_rows && is_padded))
            lathe__run_warn(run, "tokenizer", details[i],
                            "tokenizer.%s has no effect: tokenizer.add_tokens names no token",
                            details[i]);
    }
}

/* The SHA-256 of the files of a folder, with their names: chat templates count, too. */
static lathe_status hash_folder(const char *folder, lathe_arena *arena, char out[65])
{
    char **paths = NULL, hex[65] = "";
    int64_t n = 0;
    lathe_sha256 *hash = NULL;
    LATHE_TRY(lathe_dir_walk(folder, arena, &paths, &n));
    LATHE_TRY(lathe_sha256_create(&hash));
    lathe_status status = LATHE_OK;
    for (int64_t i = 0; i < n && status == LATHE_OK; i++) {
        const char *name = paths[i] + strlen(folder);
        status = lathe_sha256_file(paths[i], hex);
        if (status != LATHE_OK)
            break;
        lathe_sha256_update(hash, name, (int64_t)strlen(name) + 1);
        lathe_sha256_update(hash, hex, (int64_t)strlen(hex));
    }
    lathe_sha256_finish(hash, out);
    return status;
}

/* Gives a complete folder the name of its content. One that has the name already stays, unless it
 * is damaged; another process may have made it meanwhile. */
static lathe_status name_folder(const char *beside, const char *path, const char *hex,
                                lathe_arena *arena)
{
    char found[65] = "";
    if (lathe_path_is_dir(path)) {
        if (hash_folder(path, arena, found) == LATHE_OK && strcmp(found, hex) == 0)
            return lathe_dir_remove(beside);
        lathe_error_clear();
        return lathe_new_folder_replace(LATHE_OK, beside, path);
    }
    const lathe_status status = lathe_new_folder_end(LATHE_OK, beside, path);
    if (status != LATHE_E_CONFIG || !lathe_path_is_dir(path))
        return status;
    lathe_error_clear();
    return LATHE_OK;
}

static lathe_status write_folder(lathe_run *run, const lathe_token_growth *growth,
                                 const lathe_numbered_tokens *numbers, const char **out)
{
    char hex[65] = "";
    const char *beside = NULL;
    const char *start = lathe_path_join(&run->arena, run->set.cache_dir, "tokenizer-added");
    if (start == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(lathe_new_folder_begin(&run->arena, start, &beside));
    lathe_status status = lathe_tokenizer_files_copy(run->data.tokenizer_dir, beside);
    if (status == LATHE_OK)
        status = lathe_tokens_write(run->data.tokenizer, growth, numbers, beside);
    if (status == LATHE_OK)
        status = hash_folder(beside, &run->arena, hex);
    *out = lathe_arena_printf(&run->arena, "%s/tokenizer-%.16s", run->set.cache_dir, hex);
    if (*out == NULL)
        status = LATHE_E_NOMEM;
    return status == LATHE_OK ? name_folder(beside, *out, hex, &run->arena)
                              : lathe_new_folder_end(status, beside, start);
}

/* Replaces the run's tokenizer by the one with the tokens. */
static lathe_status use_folder(lathe_run *run, const lathe_token_growth *growth,
                               const lathe_numbered_tokens *numbers)
{
    const char *folder = NULL;
    lathe_tokenizer *with = NULL;
    if (run->set.cache_dir == NULL)
        return lathe__run_refuse(run, "data", "cache_dir",
                                 "data.cache_dir is empty; expected a folder for the tokenizer "
                                 "with tokenizer.add_tokens, such as \".lathe/cache\"");
    lathe_status status = write_folder(run, growth, numbers, &folder);
    if (status == LATHE_E_IO)
        return lathe__run_refuse(run, "data", "cache_dir", "data.cache_dir: %s",
                                 lathe_error_message());
    LATHE_TRY(status);
    LATHE_TRY(lathe_tokenizer_load_with(&run->inputs->texts, folder, &with));
    /* ids that only config.json of the model names, which is not in the new folder */
    lathe_tokenizer_take_specials(with, run->data.tokenizer);
    lathe_tokenizer_destroy(run->data.tokenizer);
    run->data.tokenizer = with;
    run->data.tokenizer_dir = folder;
    return LATHE_OK;
}

int32_t lathe__new_tokens_are_written(const lathe_run *run)
{
    return !lathe__run_only_plans(run) && !lathe__run_is_offline(run);
}

static void say(const lathe_run *run, const lathe_numbered_tokens *numbers)
{
    const long long n = (long long)(numbers->n_added + numbers->n_known),
                    added = (long long)numbers->n_added;
    const char *from = run->data.tokenizer_dir;
    if (run->open.is_trial || !lathe__run_is_of_file(run))
        return;
    if (added == 0)
        lathe_log(LATHE_LOG_INFO, "tokenizer.add_tokens: %s has %s already, so nothing is added",
                  from, n == 1 ? "the token" : "all of the tokens");
    else
        lathe_log(
            LATHE_LOG_INFO,
            "adds %lld of the %lld token%s of tokenizer.add_tokens to the %lld of %s, and rows "
            "for them to the model",
            added, n, n == 1 ? "" : "s", (long long)numbers->n_before, from);
}

lathe_status lathe__new_tokens_add(lathe_run *run)
{
    const lathe_texts *list = &run->set.add_tokens;
    const lathe_token_growth growth = {list->strs, (int32_t)list->n, run->set.add_plain};
    lathe_numbered_tokens numbers;
    if (list->n == 0) {
        warn_idle(run);
        return LATHE_OK;
    }
    if (run->data.tokenizer_dir == NULL)
        return lathe__run_refuse(run, "tokenizer", "add_tokens",
                                 "tokenizer.add_tokens: the tokenizer of raw bytes has no tokens "
                                 "but the bytes: use one with a tokenizer.json (tokenizer.path, "
                                 "tokenizer.train), or leave the key out");
    const lathe_status status =
        lathe_tokens_number(run->data.tokenizer, &growth, &run->arena, &numbers);
    if (status == LATHE_E_ARG)
        return lathe__run_refuse(run, "tokenizer", "add_tokens", "tokenizer.add_tokens: %s",
                                 lathe_error_message());
    LATHE_TRY(status);
    run->decided.tokens.ids = numbers.ids;
    run->decided.tokens.n = list->n;
    run->decided.tokens.n_before = numbers.n_before;
    run->decided.tokens.n_after = numbers.n_after;
    say(run, &numbers);
    return numbers.n_added == 0 || !lathe__new_tokens_are_written(run)
               ? LATHE_OK
               : use_folder(run, &growth, &numbers);
}

/* ---- the model ---- */

/* Number of tokens of the model's own tokenizer; of a folder without one, its rows. */
static lathe_status count_base(lathe_run *run, int64_t *out)
{
    lathe_tokenizer *own = NULL;
    *out = run->decided.tokens.n_before;
    if (run->set.tokenizer_path == NULL && run->set.tokenizer_train == NULL)
        return LATHE_OK;
    *out = run->model.vocab;
    if (!lathe_model_has(run->set.model_path, "tokenizer.json"))
        return LATHE_OK;
    LATHE_TRY(lathe_tokenizer_load_with(&run->inputs->texts, run->set.model_path, &own));
    *out = lathe_tokenizer_vocab_size(own);
    lathe_tokenizer_destroy(own);
    return LATHE_OK;
}

/* The key that makes the model grow. */
static const char *growing_key(const lathe_run *run)
{
    return run->decided.tokens.n > 0 ? "add_tokens" : "pad_to_multiple_of";
}

/* Refuses weights to which no row can be added. What else is wrong with them is told when they are
 * read. */
static lathe_status check_growth(lathe_run *run)
{
    lathe_safetensors *set = NULL, *grown = NULL;
    const char *path = run->set.model_path;
    lathe_status status = lathe_model_weights(path, &set);
    if (status == LATHE_OK)
        status = lathe_grown_weights(set, &run->model, &run->decided.tokens.growth, path, &grown);
    lathe_safetensors_close(grown);
    lathe_safetensors_close(set);
    if (status == LATHE_E_UNSUPPORTED)
        return lathe__run_refuse(run, "tokenizer", growing_key(run), "tokenizer.%s: %s",
                                 growing_key(run), lathe_error_message());
    if (status == LATHE_E_NOMEM)
        return status;
    lathe_error_clear();
    return LATHE_OK;
}

lathe_status lathe__new_rows(lathe_run *run, const lathe_model_source *source)
{
    const char *path = run->set.model_path;
    lathe_new_tokens *t = &run->decided.tokens;
    int64_t n_base = 0;
    if (t->n == 0 && run->set.pad_to_multiple_of <= 1)
        return LATHE_OK;
    const lathe_tokenizer *tokenizer = run->data.tokenizer;
    const int64_t n_tokens = t->n > 0    ? t->n_after
                             : tokenizer ? lathe_tokenizer_vocab_size(tokenizer)
                                         : 0;
    t->growth = (lathe_row_growth){
        .rows_before = run->model.vocab,
        .rows = lathe_grown_row_count(run->model.vocab, n_tokens, run->set.pad_to_multiple_of),
        .init = run->set.add_init,
        .seed = (uint64_t)run->set.add_seed};
    if (t->n > 0)
        LATHE_TRY(count_base(run, &n_base));
    if (t->n_after > t->n_before && t->n_before < n_base && lathe_model_has(path, "tokenizer.json"))
        return lathe__run_refuse(run, "tokenizer", "add_tokens",
                                 "tokenizer.add_tokens: the tokenizer has %lld tokens, and that of "
                                 "the model in %s has %lld: the new ones would get the rows of "
                                 "others; leave out tokenizer.path, or add the tokens to the "
                                 "tokenizer that belongs to the model",
                                 (long long)t->n_before, path, (long long)n_base);
    LATHE_TRY(lathe_fresh_rows(t->ids, t->n, n_base, &run->arena, &t->growth));
    if (t->growth.rows == t->growth.rows_before && t->growth.n_fresh == 0)
        return LATHE_OK;
    if (lathe_path_is_gguf(path))
        return lathe__run_refuse(run, "tokenizer", growing_key(run),
                                 "tokenizer.%s: %s is a GGUF file, whose rows do not grow: lathe "
                                 "convert makes a folder of it",
                                 growing_key(run), path);
    LATHE_TRY(check_growth(run));
    if (t->growth.rows != t->growth.rows_before)
        LATHE_TRY(lathe_model_config_resize(source, path, t->growth.rows, &run->model));
    run->model.growth = &t->growth;
    return LATHE_OK;
}

/* ---- rows that train ---- */

static const char key[] = "trainable_token_rows";

/* The ids of the configuration. */
static lathe_status take_named(lathe_run *run, const lathe_value *list, int32_t *out)
{
    for (int64_t i = 0; i < list->n; i++) {
        const double id = list->nums[i];
        if (!(id >= 0.0) || id >= (double)run->model.vocab || floor(id) < id)
            return lathe__run_refuse(run, "adapter", key,
                                     "adapter.%s has %.15g; expected ids of tokens below %lld, the "
                                     "number of rows of the model",
                                     key, id, (long long)run->model.vocab);
        out[i] = (int32_t)id;
        for (int64_t k = 0; k < i; k++)
            if (out[k] == out[i])
                return lathe__run_refuse(run, "adapter", key, "adapter.%s has %d twice", key,
                                         out[i]);
    }
    return LATHE_OK;
}

/* The tokens that are new to the model. */
static lathe_status take_new(lathe_run *run, int32_t *out, int32_t *out_n)
{
    const lathe_new_tokens *t = &run->decided.tokens;
    int64_t n_base = 0;
    *out_n = 0;
    if (t->n == 0 || run->set.model_path == NULL)
        return LATHE_OK;
    LATHE_TRY(count_base(run, &n_base));
    if (!lathe_model_has(run->set.model_path, "tokenizer.json") && run->model.growth)
        n_base = run->model.growth->rows_before;
    for (int64_t i = 0; i < t->n; i++)
        if (t->ids[i] >= n_base)
            out[(*out_n)++] = t->ids[i];
    return LATHE_OK;
}

static int is_trained_whole(const lathe_run *run, const char *matrix)
{
    const int32_t row = matrix != NULL ? lathe_params_find(&run->params, matrix) : -1;
    return row >= 0 && (run->params.rows[row]->trainable || run->params.rows[row]->in_adapter);
}

/* Why rows cannot train beside the others; NULL: they can. */
static const char *hindrance(const lathe_run *run)
{
    if (run->set.merge_every > 0)
        return "adapter.merge_every merges the adapter during the run, and rows of tokens are not "
               "merged";
    if (is_trained_whole(run, run->model.embedding))
        return "the adapter trains the whole embedding";
    if (is_trained_whole(run, run->model.head)) /* its rows train with those of the embedding */
        return "the adapter trains the whole head";
    return NULL;
}

/* Where only one of the two matrices trains as a whole, new tokens are read, or written, by rows
 * that stay as they begin. */
static void warn_of_half(const lathe_run *run, int32_t n)
{
    const int reads = is_trained_whole(run, run->model.embedding),
              writes = is_trained_whole(run, run->model.head);
    if (reads != writes && !run->model.tied && lathe__run_has_step(run))
        lathe__run_warn(run, "tokenizer", "add_tokens",
                        "tokenizer.add_tokens: the adapter trains the whole %s and not the %s, in "
                        "which the rows of the %d new tokens stay as they begin: name both in "
                        "adapter.modules_to_save, or none",
                        reads ? "embedding" : "head", reads ? "head" : "embedding", n);
}

static void warn_of_freeze(const lathe_run *run, int32_t n)
{
    const int32_t row = lathe_params_find(&run->params, run->model.embedding);
    if (n > 0 && lathe__run_has_step(run) && row >= 0 && !run->params.rows[row]->trainable)
        lathe__run_warn(run, "tokenizer", "add_tokens",
                        "tokenizer.add_tokens: the adapter leaves the embedding frozen, so the "
                        "rows of the %d new tokens stay as they begin",
                        n);
}

/* The rows of the reference's own adapter. */
static lathe_status choose_reference(lathe_run *run)
{
    if (run->parts.reference_adapter.component == NULL)
        return LATHE_OK;
    const lathe_status status = lathe__token_rows_of_other(
        run, run->reference_config, "model.reference_adapter", &run->decided.reference_token_rows);
    return status == LATHE_E_CONFIG
               ? lathe__run_refuse(run, "model", "reference_adapter", "%s", lathe_error_message())
               : status;
}

lathe_status lathe__token_rows_choose(lathe_run *run)
{
    const lathe_instance *part = &run->parts.adapter;
    const lathe_adapter_v1 *adapter = part->component ? part->table : NULL;
    const lathe_value *list = lathe_config_get(run->config, "adapter", key);
    const int is_named = list != NULL && list->is_set;
    const int64_t room = is_named ? list->n : run->decided.tokens.n;
    const int is_beside = LATHE_HAS(adapter, base_is_frozen) &&
                          adapter->base_is_frozen(part->self) && LATHE_HAS(adapter, wrap);
    int32_t n = 0, *ids = lathe_arena_alloc(&run->arena, (room + 1) * (int64_t)sizeof *ids);
    if (ids == NULL)
        return LATHE_E_NOMEM;
    LATHE_TRY(choose_reference(run));
    if (adapter == NULL || run->named != NULL)
        return LATHE_OK;
    if (is_named && list->n > 0 && !is_beside)
        return lathe__run_refuse(run, "adapter", key,
                                 "adapter.%s: adapter \"%s\" trains the model itself; the key is "
                                 "for adapters that leave the base as it is (lora, oft)",
                                 key, part->component->plugin->name);
    if (is_named)
        LATHE_TRY(take_named(run, list, ids));
    else
        LATHE_TRY(take_new(run, ids, &n));
    n = is_named ? (int32_t)list->n : n;
    if (!is_beside) {
        warn_of_freeze(run, n);
        return LATHE_OK;
    }
    const char *why = n > 0 ? hindrance(run) : NULL;
    if (why != NULL && is_named)
        return lathe__run_refuse(run, "adapter", key, "adapter.%s: %s: leave one of them out", key,
                                 why);
    if (why != NULL && run->set.merge_every > 0)
        return lathe__run_refuse(run, "adapter", "merge_every",
                                 "%s: set adapter.%s = [] to leave the rows of the new tokens as "
                                 "they begin",
                                 why, key);
    if (why != NULL)
        warn_of_half(run, n);
    run->decided.token_rows = (lathe_token_rows){ids, why == NULL ? n : 0};
    return LATHE_OK;
}

/* Whether the run adds the same tokens. */
static int adds_same(const lathe_run *run, const lathe_value *added)
{
    const lathe_texts *own = &run->set.add_tokens;
    int same = own->n == added->n;
    for (int64_t i = 0; same && i < own->n; i++)
        same = strcmp(own->strs[i], added->strs[i]) == 0;
    return same;
}

/* The rows of an adapter whose run added tokens: those of this run, if it adds them too. */
static lathe_status take_added(lathe_run *run, const lathe_value *added, const char *what,
                               lathe_token_rows *out)
{
    int32_t *ids = lathe_arena_alloc(&run->arena, (added->n + 1) * (int64_t)sizeof *ids);
    if (ids == NULL)
        return LATHE_E_NOMEM;
    if (!adds_same(run, added) || run->decided.tokens.n == 0)
        return lathe_error(LATHE_E_CONFIG,
                           "%s: its run added tokens to the model (tokenizer.add_tokens), which "
                           "the model here does not have: merge the adapter (lathe merge)",
                           what);
    out->ids = ids;
    return take_new(run, ids, &out->n);
}

lathe_status lathe__token_rows_of_other(lathe_run *run, const lathe_config *config,
                                        const char *what, lathe_token_rows *out)
{
    const lathe_value *list = lathe_config_get(config, "adapter", key);
    const lathe_value *added = lathe_config_get(config, "tokenizer", "add_tokens");
    *out = (lathe_token_rows){NULL, 0};
    if ((list == NULL || !list->is_set) && added && added->is_set && added->n > 0)
        return take_added(run, added, what, out);
    if (list == NULL || !list->is_set || list->n == 0)
        return LATHE_OK;
    int32_t *ids = lathe_arena_alloc(&run->arena, list->n * (int64_t)sizeof *ids);
    if (ids == NULL)
        return LATHE_E_NOMEM;
    for (int64_t i = 0; i < list->n; i++) {
        if (!(list->nums[i] >= 0.0) || list->nums[i] >= (double)run->model.vocab)
            return lathe_error(LATHE_E_CONFIG,
                               "%s: it holds row %.15g of the embedding, and the model has %lld",
                               what, list->nums[i], (long long)run->model.vocab);
        ids[i] = (int32_t)list->nums[i];
    }
    *out = (lathe_token_rows){ids, (int32_t)list->n};
    return LATHE_OK;
}

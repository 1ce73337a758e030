/* Loads and saves weights: values, layout, the bytes of transformers' files, and refusals. */
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/map.h"
#include "files/safetensors/st_writer.h"
#include "golden_model.h"
#include "model/family/weight_file.h"

static char dir[64];

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/lathe-weights-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
}

static void drop_dir(void)
{
    cr_assert_eq(lathe_dir_remove(dir), LATHE_OK);
}

TestSuite(weights, .init = make_dir, .fini = drop_dir);

Test(weights, values_arrive_in_our_layout)
{
    golden g, sharded;
    golden_open(&g, "gpt2");
    const int32_t i = lathe_params_find(&g.params, "transformer.h.0.attn.c_attn.weight");
    const lathe_st_tensor *t =
        lathe_safetensors_find(g.weights, "transformer.h.0.attn.c_attn.weight");
    cr_assert(t->desc.dims[0] == 32 && t->desc.dims[1] == 96);
    for (int64_t in = 0; in < 32; in++)
        for (int64_t out = 0; out < 96; out++) {
            float x;
            memcpy(&x, (const char *)t->data + (in * 96 + out) * 4, 4);
            cr_assert_eq(g.data[i][out * 32 + in], x);
        }
    golden_close(&g);
    golden_open(&g, "llama_tied");
    golden_open(&sharded, "llama_sharded");
    for (int32_t k = 0; k < g.params.n; k++)
        cr_assert_eq(
            memcmp(g.data[k], sharded.data[k], (size_t)lathe_desc_bytes(&g.params.rows[k]->desc)),
            0);
    golden_close(&g);
    golden_close(&sharded);
    golden_open(&g, "qwen3"); /* bf16 on file */
    t = lathe_safetensors_find(g.weights, g.params.rows[0]->name);
    cr_assert_eq(t->desc.dtype, LATHE_BF16);
    for (int64_t k = 0; k < lathe_desc_count(&t->desc); k++) {
        uint16_t bits;
        memcpy(&bits, (const char *)t->data + 2 * k, 2);
        cr_assert_eq(g.data[0][k], lathe_bf16_to_f32(bits));
    }
    golden_close(&g);
}

/* A job with every row of a golden model, in the dtype of its file. Free the tensors. */
static lathe_weight_job job_of(golden *g)
{
    lathe_weight_job job = {.params = &g->params};
    job.tensors = calloc((size_t)g->params.n, sizeof *job.tensors);
    cr_assert_not_null(job.tensors);
    for (int32_t i = 0; i < g->params.n; i++)
        job.tensors[job.n++] =
            (lathe_weight_tensor){.param = i, .dtype = g->config.file_dtype, .values = g->data[i]};
    return job;
}

Test(weights, saved_files_are_the_bytes_that_transformers_wrote)
{
    static const char *const names[] = {"gpt2", "llama_tied", "llama_untied", "qwen2", "qwen3"};
    for (int m = 0; m < 5; m++) {
        golden g;
        golden_open(&g, names[m]);
        lathe_weight_job job = job_of(&g);
        OK(lathe_weight_file_write(&job, dir, 0));
        free(job.tensors);
        OK(lathe_model_config_save(&g.config, dir));
        static const char *const files[] = {"model.safetensors", "config.json"};
        for (int f = 0; f < 2; f++) {
            char ours[128], theirs[512];
            lathe_map a, b;
            snprintf(ours, sizeof ours, "%s/%s", dir, files[f]);
            snprintf(theirs, sizeof theirs, "%s%s/%s", MODELS, names[m], files[f]);
            OK(lathe_map_open(ours, &a));
            OK(lathe_map_open(theirs, &b));
            cr_expect(a.bytes == b.bytes && memcmp(a.data, b.data, (size_t)a.bytes) == 0,
                      "%s differs", theirs);
            lathe_map_close(&a);
            lathe_map_close(&b);
        }
        golden_close(&g);
    }
}

static void expect_same_file(const char *ours, const char *theirs)
{
    lathe_map a, b;
    OK(lathe_map_open(ours, &a));
    OK(lathe_map_open(theirs, &b));
    cr_expect(a.bytes == b.bytes && memcmp(a.data, b.data, (size_t)a.bytes) == 0, "%s differs",
              theirs);
    lathe_map_close(&a);
    lathe_map_close(&b);
}

Test(weights, saved_in_shards_are_the_files_that_transformers_wrote)
{
    golden g;
    char ours[512], theirs[512];
    lathe_arena arena = LATHE_ARENA_INIT;
    char **names = NULL;
    int64_t n = 0, n_shards = 0;
    golden_open(&g, "llama_tied");
    lathe_weight_job job = job_of(&g);
    OK(lathe_weight_file_write(&job, dir, 40000)); /* the limit that models.py gives */
    OK(lathe_dir_list(MODELS "llama_sharded", &arena, &names, &n));
    for (int64_t i = 0; i < n; i++) {
        if (strncmp(names[i], "model", 5) != 0)
            continue;
        snprintf(ours, sizeof ours, "%s/%s", dir, names[i]);
        snprintf(theirs, sizeof theirs, "%sllama_sharded/%s", MODELS, names[i]);
        expect_same_file(ours, theirs);
        n_shards++;
    }
    cr_expect_gt(n_shards, 3, "%lld", (long long)n_shards);
    free(job.tensors);
    lathe_arena_fini(&arena);
    golden_close(&g);
}

static char warned[1024];

static void keep_warning(void *arg, int32_t level, const char *message)
{
    (void)arg;
    if (level == LATHE_LOG_WARN)
        snprintf(warned, sizeof warned, "%s", message);
}

/* Writes a changed file of a model's tensors: without `drop`, with prefixes cut, and with an extra
 * tensor. */
static void write_changed(const golden *g, const char *drop, const char *cut_prefix,
                          const char *extra, float extra_value)
{
    lathe_st_writer *w = NULL;
    OK(lathe_st_writer_create(dir, "model", 0, &w));
    const int64_t n = lathe_safetensors_count(g->weights);
    for (int pass = 0; pass < 2; pass++) {
        int64_t index = 0;
        for (int64_t i = 0; i < n; i++) {
            const lathe_st_tensor *t = lathe_safetensors_at(g->weights, i);
            if (drop != NULL && strcmp(t->name, drop) == 0)
                continue;
            const size_t cut = cut_prefix != NULL ? strlen(cut_prefix) : 0;
            const char *name =
                cut > 0 && strncmp(t->name, cut_prefix, cut) == 0 ? t->name + cut : t->name;
            if (pass == 0)
                OK(lathe_st_writer_add(w, name, &t->desc));
            else
                OK(lathe_st_writer_write(w, index++, 0, t->data, lathe_desc_bytes(&t->desc)));
        }
        if (extra != NULL) {
            const lathe_desc desc = lathe_desc_1d(LATHE_F32, 1);
            if (pass == 0)
                OK(lathe_st_writer_add(w, extra, &desc));
            else
                OK(lathe_st_writer_write(w, index, 0, &extra_value, 4));
        }
        if (pass == 0)
            OK(lathe_st_writer_begin(w));
    }
    OK(lathe_st_writer_finish(w));
    lathe_st_writer_destroy(w);
}

static lathe_status skip(void *arg, int32_t index, const lathe_param *row, void **out,
                         int32_t *dtype)
{
    (void)index;
    (void)row;
    (void)dtype;
    *out = NULL;
    ++*(int32_t *)arg;
    return LATHE_OK;
}

static lathe_status load_dir(const golden *g, int32_t *rows)
{
    lathe_safetensors *set = NULL;
    OK(lathe_safetensors_open_joined(dir, &set));
    *rows = 0;
    const lathe_weight_sink sink = {.place = skip, .arg = rows};
    warned[0] = '\0';
    lathe_log_set_sink(keep_warning, NULL);
    const lathe_status status = lathe_weights_load(set, &g->config, &g->params, &sink);
    lathe_log_set_sink(NULL, NULL);
    lathe_safetensors_close(set);
    return status;
}

Test(weights, takes_files_without_the_prefix_and_ignores_old_buffers)
{
    golden g;
    int32_t rows;
    golden_open(&g, "gpt2");
    write_changed(&g, NULL, "transformer.", "h.0.attn.bias", 1.0f);
    OK(load_dir(&g, &rows));
    cr_assert_eq(rows, g.params.n);
    cr_assert_str_eq(warned, "");
    golden_close(&g);
}

Test(weights, names_missing_tensors_and_extra_ones)
{
    golden g;
    int32_t rows;
    golden_open(&g, "llama_tied");
    write_changed(&g, "model.layers.1.mlp.up_proj.weight", NULL, NULL, 0.0f);
    cr_assert_eq(load_dir(&g, &rows), LATHE_E_NOT_FOUND);
    cr_assert_not_null(strstr(lathe_error_message(), "model.layers.1.mlp.up_proj.weight"));
    write_changed(&g, NULL, NULL, "model.vision.weight", 0.0f);
    cr_assert_eq(load_dir(&g, &rows), LATHE_E_CONFIG);
    cr_assert_not_null(strstr(lathe_error_message(), "1 tensor is not part of this model: "
                                                     "model.vision.weight"));
    write_changed(&g, NULL, NULL, "value.weight", 0.0f); /* the head of a stage */
    OK(load_dir(&g, &rows));
    cr_assert_not_null(strstr(warned, "value.weight"));
    write_changed(&g, "model.norm.weight", NULL, "model.norm.weight", 0.0f);
    cr_assert_eq(load_dir(&g, &rows), LATHE_E_SHAPE);
    cr_assert_not_null(strstr(lathe_error_message(), "model.norm.weight"));
    cr_assert_not_null(strstr(lathe_error_message(), "32"));
    golden_close(&g);
}

/* Loads a golden folder to whose tensors `extra` was added. */
static lathe_status load_with(const char *folder, const char *extra)
{
    golden g, plain;
    int32_t rows;
    char path[512];
    golden_open(&g, folder);
    plain = g;
    snprintf(path, sizeof path, MODELS "%s", folder);
    OK(lathe_safetensors_open(path, &plain.weights)); /* an expert a tensor, as files have them */
    write_changed(&plain, NULL, NULL, extra, 0.0f);
    const lathe_status status = load_dir(&g, &rows);
    lathe_safetensors_close(plain.weights);
    golden_close(&g);
    return status;
}

Test(weights, layers_of_multi_token_prediction_are_left_out_with_a_warning)
{
    static const struct {
        const char *folder, *taken, *refused;
    } cases[] = {
        {"glm4_moe", "model.layers.3.eh_proj.weight", "model.layers.4.eh_proj.weight"},
        {"glm4_moe", "model.layers.3.shared_head.norm.weight", "model.layers.30.x.weight"},
        {"deepseek_v3", "model.layers.2.eh_proj.weight", "model.layers.3.eh_proj.weight"},
        {"ernie4_5_moe", "model.mtp_block.0.mlp.up_proj.weight", "model.layers.3.x.weight"},
        {"qwen3_5", "mtp.layers.0.mlp.up_proj.weight", "model.layers.3.x.weight"},
    };
    char want[256];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OK(load_with(cases[i].folder, cases[i].taken));
        snprintf(want, sizeof want,
                 "layers of multi-token prediction (%s) are not computed and not saved",
                 cases[i].taken);
        cr_expect_not_null(strstr(warned, want), "%s", warned);
        cr_expect_eq(load_with(cases[i].folder, cases[i].refused), LATHE_E_CONFIG, "%s: %s",
                     cases[i].folder, cases[i].refused);
        cr_expect_not_null(strstr(lathe_error_message(), cases[i].refused), "%s",
                           lathe_error_message());
    }
}

/* A family without such layers refuses them as every other tensor. */
Test(weights, layers_of_multi_token_prediction_are_extra_in_llama)
{
    static const char *const names[] = {"mtp.fc.weight", "model.mtp_block.0.x.weight",
                                        "model.layers.2.x.weight"};
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(load_with("llama_tied", names[i]), LATHE_E_CONFIG, "%s", names[i]);
        cr_expect_not_null(strstr(lathe_error_message(), names[i]), "%s", lathe_error_message());
    }
}

Test(weights, refuses_an_ambiguous_head)
{
    golden g;
    int32_t rows;
    golden_open(&g, "llama_tied");
    write_changed(&g, NULL, NULL, "lm_head.weight", 0.0f);
    cr_assert_eq(load_dir(&g, &rows), LATHE_E_CONFIG);
    cr_assert_not_null(strstr(lathe_error_message(), "tie_word_embeddings"));
    golden_close(&g);
    golden_open(&g, "llama_untied");
    write_changed(&g, "lm_head.weight", NULL, NULL, 0.0f);
    cr_assert_eq(load_dir(&g, &rows), LATHE_E_CONFIG);
    cr_assert_not_null(strstr(lathe_error_message(), "lm_head.weight"));
    golden_close(&g);
}

Test(weights, copies_the_tokenizer_files_that_exist)
{
    char from[96], path[160];
    snprintf(from, sizeof from, "%s/from", dir);
    OK(lathe_dir_create(from));
    snprintf(path, sizeof path, "%s/tokenizer.json", from);
    OK(lathe_file_write_atomic(path, "{}", 2));
    OK(lathe_tokenizer_files_copy(from, dir));
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    cr_assert(lathe_path_exists(path));
    snprintf(path, sizeof path, "%s/vocab.json", dir);
    cr_assert_not(lathe_path_exists(path));
}

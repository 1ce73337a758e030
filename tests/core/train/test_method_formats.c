/* Every fine-tuning method over every format of the frozen weights, as the registry lists them: a
 * pair trains, stops and resumes with the same bits, and its adapter is read back; or it is refused
 * before it starts, with the reason. What a plugin can do is read from its table and its keys, so
 * that a new one takes part by itself. Formats that are calibrated on data are met in folders. */
#include <glob.h>

#include "base/hash.h"
#include "lathe/quant.h"
#include "plug/kind.h"
#include "plug/registry.h"
#include "support/small_run.h"

#define QUANTIZED LATHE_TEST_DATA "/golden/data/quantized/"
#define TOKENIZER "tokenizer.path=" LATHE_TEST_DATA "/golden/data/tokenizer/tiny_64.json"

/* The sanitizers make a step many times slower. */
#ifdef __SANITIZE_ADDRESS__
enum { STEPS = 6, HALF = 3 };
#else
enum { STEPS = 20, HALF = 10 };
#endif
enum { MAX = 64, B = 2, T = 16 };

/* The plugins of a kind, in the order of the registry. */
static int32_t list_plugins(int32_t kind, const lathe_plugin **out)
{
    lathe_registry *registry = NULL;
    lathe_arena arena = LATHE_ARENA_INIT;
    const lathe_component **found = NULL;
    int64_t n = 0;
    OK(lathe_registry_create(&registry));
    OK(lathe_registry_scan(registry, kind));
    OK(lathe_registry_list(registry, kind, &arena, &found, &n));
    cr_assert_lt(n, MAX);
    for (int64_t i = 0; i < n; i++)
        out[i] = found[i]->plugin; /* plugins stay loaded */
    lathe_arena_fini(&arena);
    lathe_registry_destroy(registry);
    return (int32_t)n;
}

static int has_key(const lathe_plugin *plugin, const char *key)
{
    for (int32_t i = 0; i < plugin->n_fields; i++)
        if (strcmp(plugin->fields[i].key, key) == 0)
            return 1;
    return 0;
}

static const char *name_of(const lathe_plugin *format)
{
    return format ? format->name : "none";
}

/* ---- a pair ---- */

typedef struct pair {
    const lathe_plugin *method;
    const lathe_plugin *format; /* of [quant]; NULL: none */
    const char *folder;         /* quantized weights; NULL: new ones */
    const char *dir;
} pair;

static void set_method(settings *s, const lathe_plugin *method)
{
    set(s, "adapter.name=%s", method->name);
    if (has_key(method, "layers"))
        set(s, "adapter.layers=1");
    if (has_key(method, "block_size"))
        set(s, "adapter.block_size=8");
    if (has_key(method, "dropout"))
        set(s, "adapter.dropout=0.1");
}

static void configure(settings *s, const pair *p)
{
    if (p->folder) {
        set(s, "model.path=%s", p->folder);
        set(s, TOKENIZER);
    } else {
        set_llama(s, 2, 64, 2, 1, 128);
        set_data(s, p->dir);
        set(s, "data.prefetch=0");
        set(s, "quant.name=%s", name_of(p->format));
    }
    set(s, "data.seq_len=%d", T);
    set(s, "train.micro_batch_size=%d", B);
    set(s, "train.max_steps=%d", STEPS);
    set(s, "train.threads=1");
    set(s, "optimizer.lr=0.01");
    set(s, "log.level=error");
    set_method(s, p->method);
}

/* Trains on the data of the run, or, over a folder, on a batch by hand; returns the last loss. */
static double train(lathe_run *run, const pair *p, int steps)
{
    static int32_t tokens[B * T], targets[B * T];
    for (int i = 0; i < B * T; i++) {
        tokens[i] = (i * i + 7 * i) % 60;
        targets[i] = ((i + 1) * (i + 1) + 7 * (i + 1)) % 60;
    }
    const lathe_run_batch batch = {
        .size = sizeof batch, .n_rows = B, .row_tokens = T, .tokens = tokens, .targets = targets};
    lathe_step_result r = {.size = sizeof r};
    for (int k = 0; k < steps; k++) {
        lathe_forward_result f = {.size = sizeof f};
        OK(lathe_forward(run, p->folder ? &batch : NULL, LATHE_FORWARD_TRAIN, &f));
        OK(lathe_backward(run, NULL));
        OK(lathe_step(run, &r));
    }
    return r.loss;
}

static uint64_t weights_of(const lathe_run *run)
{
    return lathe_hash64(run->store.masters, run->store.master_bytes) ^
           3 * lathe_hash64(run->store.planes, run->store.plane_bytes);
}

static const char *text_of(const pair *p)
{
    static char text[400];
    snprintf(text, sizeof text, "%s over %s", p->method->name,
             p->folder ? p->folder : name_of(p->format));
    return text;
}

static void check_pair(const pair *p)
{
    const int32_t mode = p->folder ? LATHE_OPEN_BATCHES : LATHE_OPEN_TRAIN;
    settings s = {.n = 0};
    char middle[256];
    snprintf(middle, sizeof middle, "%s/middle", p->dir);
    configure(&s, p);
    lathe_run *run = open_run(mode, s.list);
    const uint64_t start = weights_of(run);
    const double first = train(run, p, 1);
    (void)train(run, p, HALF - 1);
    const uint64_t saved = weights_of(run);
    OK(lathe_save(run, middle));
    const double last = train(run, p, STEPS - HALF);
    const uint64_t want = weights_of(run);
    lathe_run_close(run);
    cr_expect_neq(want, start, "%s trains nothing", text_of(p));
    cr_expect_lt(last, first, "%s: loss %g, then %g", text_of(p), first, last);

    run = open_run(mode, s.list);
    OK(lathe_load(run, middle));
    cr_expect_eq(weights_of(run), saved, "%s: other bits read back", text_of(p));
    cr_expect_eq(train(run, p, STEPS - HALF), last, "%s: another loss", text_of(p));
    cr_expect_eq(weights_of(run), want, "%s: other bits after resuming", text_of(p));
    lathe_run_close(run);
    OK(lathe_dir_remove(middle));
}

static void check_refusal(const pair *p, const char *reason)
{
    settings s = {.n = 0};
    lathe_run *run = NULL;
    configure(&s, p);
    cr_expect_eq(open_run_status(LATHE_OPEN_PLAN, s.list, &run), LATHE_E_CONFIG, "%s", text_of(p));
    cr_expect(strstr(lathe_error_message(), reason), "%s: %s", text_of(p), lathe_error_message());
    lathe_run_close(run);
}

/* ---- what the plugins say ---- */

static int adds_parameters(const lathe_plugin *method)
{
    return LATHE_HAS((const lathe_adapter_v1 *)method->table, wrap);
}

/* Asks the method with its default settings; it is opened over a base that has what it may need. */
static int needs_quantized(const pair *p)
{
    const lathe_adapter_v1 *table = p->method->table;
    settings s = {.n = 0};
    if (!LATHE_HAS(table, needs_quantized_base))
        return 0;
    configure(&s, &(pair){.method = p->method, .dir = p->dir});
    set(&s, "quant.name=nf4");
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    const int needs = table->needs_quantized_base(run->parts.adapter.self);
    lathe_run_close(run);
    return needs;
}

static int is_calibrated(const lathe_plugin *format)
{
    return LATHE_HAS((const lathe_quant_v1 *)format->table, encode_calibrated);
}

/* Whether the method leaves no matrix of the model frozen. */
static int trains_every_matrix(const pair *p)
{
    const pair plain = {.method = p->method, .dir = p->dir};
    settings s = {.n = 0};
    int n_frozen = 0;
    configure(&s, &plain);
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    for (int32_t i = 0; i < run->params.n_model; i++)
        n_frozen +=
            run->params.rows[i]->role == LATHE_ROLE_MATRIX && !run->params.rows[i]->trainable;
    lathe_run_close(run);
    return n_frozen == 0;
}

/* The reason why a pair makes no sense; NULL: it does. */
static const char *senseless(const pair *p)
{
    if (p->folder)
        return adds_parameters(p->method) ? NULL : "can be trained";
    if (!p->format)
        return needs_quantized(p)
                   ? "trains beside a quantized base, and the base is in full precision"
                   : NULL;
    if (!adds_parameters(p->method) && trains_every_matrix(p))
        return "trains every matrix: choose an adapter that freezes the model";
    return is_calibrated(p->format) ? "is calibrated on data, which a run does not do" : NULL;
}

static int try_pair(const pair *p)
{
    const char *reason = senseless(p);
    if (reason)
        check_refusal(p, reason);
    else
        check_pair(p);
    return reason == NULL;
}

/* ---- the matrix ---- */

static char dir[32];

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/lathe-pairs-XXXXXX");
    make_folder(dir, 1500);
}

static void drop_dir(void)
{
    OK(lathe_dir_remove(dir));
}

TestSuite(method_formats, .init = make_dir, .fini = drop_dir);

Test(method_formats, every_pair_trains_and_resumes_or_is_refused_with_the_reason)
{
    const lathe_plugin *methods[MAX], *formats[MAX] = {NULL};
    const int32_t n_methods = list_plugins(LATHE_KIND_ADAPTER, methods);
    const int32_t n_formats = 1 + list_plugins(LATHE_KIND_QUANT, formats + 1);
    int n_trained = 0, n_adding = 0, n_plain = 0;
    for (int32_t m = 0; m < n_methods; m++)
        n_adding += adds_parameters(methods[m]);
    for (int32_t f = 1; f < n_formats; f++)
        n_plain += !is_calibrated(formats[f]);
    for (int32_t m = 0; m < n_methods; m++)
        for (int32_t f = 0; f < n_formats; f++)
            n_trained += try_pair(&(pair){.method = methods[m], .format = formats[f], .dir = dir});
    cr_expect_geq(n_adding, 5, "%d adapters add parameters", n_adding);
    cr_expect_geq(n_plain, 7, "%d formats need no data", n_plain);
    cr_expect_geq(n_trained, n_adding * n_plain, "%d pairs", n_trained);
}

/* Whether the weights of a folder are stored in the format. */
static int is_stored_in(const char *folder, const lathe_plugin *method, const lathe_plugin *format)
{
    const pair p = {.method = method, .folder = folder, .dir = dir};
    settings s = {.n = 0};
    int found = 0;
    configure(&s, &p);
    lathe_run *run = open_run(LATHE_OPEN_PLAN, s.list);
    for (int32_t i = 0; i < run->params.n_model; i++) {
        const lathe_param *row = run->params.rows[i];
        found |= row->format && row->format->component->plugin == format;
    }
    lathe_run_close(run);
    return found;
}

static const lathe_plugin *named(const lathe_plugin *const *list, int32_t n, const char *name)
{
    for (int32_t i = 0; i < n; i++)
        if (strcmp(list[i]->name, name) == 0)
            return list[i];
    cr_assert(0, "no %s", name);
    return NULL;
}

/* Tries every method over the folders in one format; returns how many such folders there are. */
static int try_folders(const glob_t *folders, const lathe_plugin *const *methods, int32_t n_methods,
                       const lathe_plugin *format)
{
    const lathe_plugin *lora = named(methods, n_methods, "lora");
    int n_folders = 0;
    for (size_t i = 0; i < folders->gl_pathc; i++) {
        if (!is_stored_in(folders->gl_pathv[i], lora, format))
            continue;
        n_folders++;
        for (int32_t m = 0; m < n_methods; m++)
            (void)try_pair(
                &(pair){.method = methods[m], .folder = folders->gl_pathv[i], .dir = dir});
    }
    return n_folders;
}

Test(method_formats, formats_that_need_data_are_trained_over_from_folders)
{
    const lathe_plugin *methods[MAX], *formats[MAX];
    const int32_t n_methods = list_plugins(LATHE_KIND_ADAPTER, methods);
    const int32_t n_formats = list_plugins(LATHE_KIND_QUANT, formats);
    int n_calibrated = 0;
    glob_t found;
    cr_assert_eq(glob(QUANTIZED "*/golden.safetensors", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        *strrchr(found.gl_pathv[i], '/') = '\0';
    for (int32_t f = 0; f < n_formats; f++) {
        if (!is_calibrated(formats[f]))
            continue;
        n_calibrated++;
        cr_expect_gt(try_folders(&found, methods, n_methods, formats[f]), 0,
                     "no folder in " QUANTIZED " has weights in %s: add a tiny one",
                     formats[f]->name);
    }
    cr_expect_geq(n_calibrated, 2);
    globfree(&found);
}

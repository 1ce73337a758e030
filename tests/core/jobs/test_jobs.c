/* lathe/jobs.h: what a job writes is what the command of its name writes; progress rises to 1; a
 * cancelled job leaves nothing behind. */
#include "cli/cli_case.h"

#include <math.h>

#include "files/safetensors/convert.h"
#include "files/safetensors/safetensors.h"
#include "lathe/jobs.h"

#define LATHE LATHE_TEST_BUILD "/bin/lathe"
/* Prepared data stay in data.cache_dir, for the next call. */
#define LIST "find . -path ./.lathe -prune -o -print | LC_ALL=C sort"
#define OK(call) cr_assert_eq((call), LATHE_OK, "%s: %s", #call, lathe_last_error())

static const char base_file[] = "[model]\nmodel_type = \"llama\"\nhidden_size = 32\n"
                                "intermediate_size = 64\nnum_hidden_layers = 2\n"
                                "num_attention_heads = 2\nmax_position_embeddings = 64\n"
                                "[tokenizer]\ntrain = { vocab_size = 300 }\n"
                                "[data]\ndatasets = [{ path = \"text.txt\" }]\nseq_len = 16\n"
                                "[optimizer]\nlr = 0.02\n"
                                "[train]\nprecision = \"fp32\"\nmax_steps = 12\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"first\"\n";

static const char lora_file[] = "[model]\npath = \"base\"\n[data]\nseq_len = 16\n"
                                "datasets = [{ path = \"text.txt\" }]\n"
                                "[adapter]\nname = \"lora\"\nr = 4\n"
                                "[optimizer]\nlr = 0.01\n"
                                "[train]\nprecision = \"fp32\"\nmax_steps = 4\nthreads = 1\n"
                                "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"tuned\"\n";

static const char distill_file[] =
    "[model]\nmodel_type = \"llama\"\nvocab_size = 300\nhidden_size = 16\n"
    "intermediate_size = 32\nnum_hidden_layers = 1\nnum_attention_heads = 2\n"
    "max_position_embeddings = 64\n[tokenizer]\npath = \"base\"\n"
    "[data]\nseq_len = 64\ndatasets = [{ path = \"answers.jsonl\" }]\n"
    "[stage]\nname = \"distill\"\n[teacher]\npath = \"base\"\n"
    "[train]\nprecision = \"fp32\"\nmax_steps = 1\nthreads = 1\nmicro_batch_size = 1\n"
    "[log]\nprogress = \"off\"\n[checkpoint]\ndir = \"small\"\n";

static void setup(void)
{
    make_folder();
    put_times("text.txt", "the cat sat on the mat and it was fine with the other cats.\n", 40);
    put_times("answers.jsonl", "{\"prompt\": \"the cat \", \"completion\": \"sat on the mat\"}\n",
              24);
    put("base.toml", base_file);
    put("lora.toml", lora_file);
    put("distill.toml", distill_file);
    expect(LATHE " train base.toml 2>&1", 0, "checkpoint first/step-00000012");
    cr_assert_eq(run("mv first/step-00000012 base"), 0);
    expect(LATHE " train lora.toml 2>&1", 0, "checkpoint tuned/step-00000004");
}

TestSuite(jobs, .init = setup, .fini = remove_folder, .timeout = 240);

/* ---- a watcher ---- */

/* A caller that counts the calls of a job. */
typedef struct told {
    double ends_at; /* 0: never */
    double last;
    int n, fell, ended;
    char part[32];
} told;

static int32_t hear(void *arg, const lathe_job_progress *p)
{
    told *t = arg;
    cr_expect_eq(p->size, sizeof *p);
    if (t->n++ == 0)
        cr_expect_float_eq(p->done, 0.0, 0.0);
    t->fell |= !(p->done >= t->last) || p->done > 1.0 || p->n_done > p->n_all;
    t->last = p->done;
    (void)snprintf(t->part, sizeof t->part, "%s", p->part);
    t->ended = t->ends_at > 0.0 && p->done >= t->ends_at && p->done < 1.0;
    return t->ended;
}

static void rose_to_the_end(const told *t)
{
    cr_expect_eq(t->fell, 0);
    cr_expect_gt(t->n, 2);
    cr_expect_float_eq(t->last, 1.0, 0.0);
}

static char before[1 << 16];

static void look(void)
{
    cr_assert_eq(run(LIST), 0);
    cr_assert_lt(strlen(output), sizeof before);
    strcpy(before, output);
}

/* After a job that was ended, the folder is as look() saw it. */
static void left_nothing(lathe_status status, const told *t)
{
    cr_expect_eq(status, LATHE_E_INTERRUPTED, "%d: %s", status, lathe_last_error());
    cr_expect(t->ended && t->last > 0.0);
    cr_expect_not_null(strstr(lathe_last_error(), "stopped; "), "%s", lathe_last_error());
    cr_assert_eq(run(LIST), 0);
    cr_expect_str_eq(output, before);
}

/* ---- convert ---- */

static lathe_status convert(const char *model, const char *to, const char *type, told *t)
{
    const lathe_job_convert_config config = {.size = (uint32_t)sizeof config,
                                             .model = model,
                                             .output = to,
                                             .type = type,
                                             .progress = hear,
                                             .arg = t};
    return lathe_job_convert(&config);
}

Test(jobs, convert_writes_what_the_command_writes)
{
    told t = {.n = 0}, back = {.n = 0}, adapter = {.n = 0};
    OK(convert("base", "m.gguf", "f16", &t));
    rose_to_the_end(&t);
    expect(LATHE " convert base -o c.gguf --type f16 && cmp m.gguf c.gguf && echo same", 0, "same");
    OK(convert("m.gguf", "back", NULL, &back));
    rose_to_the_end(&back);
    expect(LATHE " convert m.gguf -o back2 && cmp back/model.safetensors back2/model.safetensors "
                 "&& cmp back/config.json back2/config.json && echo same",
           0, "same");
    OK(convert("tuned", "a.gguf", NULL, &adapter));
    rose_to_the_end(&adapter);
    expect(LATHE " convert tuned -o b.gguf && cmp a.gguf b.gguf && echo same", 0, "same");
}

Test(jobs, convert_that_is_ended_leaves_nothing)
{
    told t = {.ends_at = 0.3}, back = {.ends_at = 0.3}, adapter = {.ends_at = 0.3};
    look();
    left_nothing(convert("base", "m.gguf", "f16", &t), &t);
    left_nothing(convert("tuned", "a.gguf", NULL, &adapter), &adapter);
    expect(LATHE " convert base -o c.gguf", 0, "c.gguf");
    look();
    left_nothing(convert("c.gguf", "back", NULL, &back), &back);
}

/* ---- merge ---- */

static const char *const tuned[] = {"tuned", "tuned"};
static const char *const as_int8[] = {"quant.name=int8"};

Test(jobs, merge_writes_what_the_command_writes)
{
    told t = {.n = 0}, quantized = {.n = 0};
    lathe_job_merge_config config = {.size = (uint32_t)sizeof config,
                                     .model = "base",
                                     .adapters = tuned,
                                     .n_adapters = 1,
                                     .output = "m",
                                     .progress = hear,
                                     .arg = &t};
    lathe_job_merge_result made = {.size = (uint32_t)sizeof made};
    OK(lathe_job_merge(&config, &made));
    rose_to_the_end(&t);
    cr_expect_eq(made.n_changed, 14);
    cr_expect_eq(made.n_quantized, 0);
    expect(LATHE " merge base tuned -o c && cmp m/model.safetensors c/model.safetensors && "
                 "cmp m/config.json c/config.json && echo same",
           0, "same");
    /* two of them, with factors, and quantized */
    const double factors[] = {0.5, -0.25};
    config.n_adapters = 2;
    config.factors = factors;
    config.settings = as_int8;
    config.n_settings = 1;
    config.output = "q";
    config.arg = &quantized;
    OK(lathe_job_merge(&config, &made));
    rose_to_the_end(&quantized);
    cr_expect_str_eq(quantized.part, "quantize");
    cr_expect_eq(made.n_quantized, 14);
    expect(LATHE " merge base tuned tuned -o d --adapter-weights 0.5,-0.25 --quant.name int8 && "
                 "cmp q/model.safetensors d/model.safetensors && echo same",
           0, "same");
}

Test(jobs, merge_that_is_ended_leaves_nothing)
{
    told t = {.ends_at = 0.3}, late = {.ends_at = 0.7};
    lathe_job_merge_config config = {.size = (uint32_t)sizeof config,
                                     .adapters = tuned,
                                     .n_adapters = 1,
                                     .output = "m",
                                     .progress = hear,
                                     .arg = &t};
    look();
    left_nothing(lathe_job_merge(&config, NULL), &t);
    config.settings = as_int8;
    config.n_settings = 1;
    config.arg = &late;
    left_nothing(lathe_job_merge(&config, NULL), &late);
    cr_expect_str_eq(late.part, "quantize");
}

/* ---- quantize and calibrate ---- */

typedef struct quantized {
    told t; /* first: hear() gets the whole */
    int n_weights, n_written;
} quantized;

static void take_weight(void *arg, const lathe_job_weight *w)
{
    quantized *q = arg;
    cr_expect(w->size == sizeof *w && w->rows > 0 && w->cols > 0 && w->bytes > 0);
    cr_expect(w->relative_error >= 0.0 && w->relative_error < 1.0);
    q->n_weights++;
}

static void take_written(void *arg, const lathe_job_quantize_result *so_far)
{
    quantized *q = arg;
    cr_expect(so_far->n_quantized == q->n_weights && isnan(so_far->perplexity));
    q->n_written++;
}

static const char *const as_gptq[] = {"quant.name=gptq", "quant.group_size=32", "train.threads=1"};

static lathe_job_quantize_config quantize_config(quantized *q)
{
    return (lathe_job_quantize_config){.size = (uint32_t)sizeof(lathe_job_quantize_config),
                                       .model = "base",
                                       .output = "m",
                                       .settings = as_int8,
                                       .n_settings = 1,
                                       .weight = take_weight,
                                       .written = take_written,
                                       .progress = hear,
                                       .arg = q};
}

Test(jobs, quantize_writes_what_the_command_writes)
{
    quantized plain = {.n_weights = 0}, calibrated = {.n_weights = 0};
    lathe_job_quantize_config config = quantize_config(&plain);
    lathe_job_quantize_result made = {.size = (uint32_t)sizeof made};
    OK(lathe_job_quantize(&config, &made));
    rose_to_the_end(&plain.t);
    cr_expect(plain.n_weights == 14 && plain.n_written == 1 && made.n_quantized == 14);
    cr_expect(isnan(made.perplexity_before) && isnan(made.perplexity));
    expect(LATHE " quantize base -o c --quant.name int8 >said && "
                 "cmp m/model.safetensors c/model.safetensors && echo same",
           0, "same");
    config = quantize_config(&calibrated);
    config.output = "g";
    config.settings = as_gptq;
    config.n_settings = 3;
    config.calibration = config.text = "text.txt";
    config.n_rows = 8;
    OK(lathe_job_quantize(&config, &made));
    rose_to_the_end(&calibrated.t);
    cr_expect_str_eq(calibrated.t.part, "evaluate");
    expect(LATHE " quantize base -o d --quant.name gptq --quant.group_size 32 --train.threads 1 "
                 "--calibration text.txt --text text.txt --rows 8 --json >said 2>/dev/null && "
                 "cmp g/model.safetensors d/model.safetensors && cat said",
           0, "\"perplexity\": ");
    const double there = strtod(strstr(output, "\"perplexity\": ") + 14, NULL);
    const double was = strtod(strstr(output, "\"perplexity_before\": ") + 21, NULL);
    cr_expect_float_eq(made.perplexity, there, 1e-7 * there);
    cr_expect_float_eq(made.perplexity_before, was, 1e-7 * was);
}

Test(jobs, quantize_that_is_ended_leaves_nothing)
{
    quantized plain = {.t.ends_at = 0.3}, first = {.t.ends_at = 0.05},
              calibrated = {.t.ends_at = 0.5}, late = {.t.ends_at = 0.76};
    lathe_job_quantize_config config = quantize_config(&plain);
    look();
    left_nothing(lathe_job_quantize(&config, NULL), &plain.t);
    config.text = "text.txt";
    config.arg = &first;
    left_nothing(lathe_job_quantize(&config, NULL), &first.t);
    cr_expect_str_eq(first.t.part, "evaluate");
    config.text = NULL;
    config.calibration = "text.txt";
    config.settings = as_gptq;
    config.n_settings = 3;
    config.arg = &calibrated;
    left_nothing(lathe_job_quantize(&config, NULL), &calibrated.t);
    /* the second evaluation comes after the folder is complete, which then stays */
    config = quantize_config(&late);
    config.text = "text.txt";
    cr_expect_eq(lathe_job_quantize(&config, NULL), LATHE_E_INTERRUPTED);
    cr_expect_not_null(strstr(lathe_last_error(), "the new folder is complete"), "%s",
                       lathe_last_error());
    expect(LATHE " checkpoint verify m", 0, "");
}

/* The inputs of the first layer's projections, by hand: the normalized embeddings of the tokens. */
typedef struct inputs {
    told t;
    int n_layers;
    int64_t n;
    float squares[32], magnitudes[32];
} inputs;

static void take_inputs(void *arg, const lathe_job_inputs *given)
{
    inputs *x = arg;
    const int64_t cols = given->cols;
    cr_assert(given->size == sizeof *given && given->inputs->n > 0);
    for (int64_t i = 0; i < cols; i++)
        for (int64_t k = 0; k < i; k++)
            cr_assert_float_eq(given->inputs->products[i * cols + k],
                               given->inputs->products[k * cols + i], 1e-5);
    x->n_layers++;
    if (strcmp(given->weight, "model.layers.0.self_attn.q_proj.weight") != 0)
        return;
    cr_assert(cols == 32 && given->rows == 32);
    x->n = given->inputs->n;
    for (int i = 0; i < 32; i++) {
        x->squares[i] = given->inputs->products[i * 33];
        x->magnitudes[i] = given->inputs->magnitudes[i];
    }
}

static void read_tensor(const lathe_safetensors *set, const char *name, float *out, int64_t n)
{
    const lathe_st_tensor *t = lathe_safetensors_find(set, name);
    cr_assert(t && lathe_desc_count(&t->desc) == n);
    cr_assert_eq(lathe_convert(out, LATHE_F32, t->data, t->desc.dtype, n), LATHE_OK);
}

static void expect_first_inputs(const inputs *x)
{
    static float table[300 * 32];
    float norm[32];
    double squares[32] = {0.0}, magnitudes[32] = {0.0};
    lathe_safetensors *set = NULL;
    lathe_session *session = NULL;
    lathe_session_ids ids;
    char text[4096];
    FILE *file = fopen("text.txt", "rb");
    cr_assert_not_null(file);
    const size_t n = fread(text, 1, sizeof text, file);
    (void)fclose(file);
    const lathe_session_config config = {.size = (uint32_t)sizeof config, .model = "base"};
    OK(lathe_session_open(&config, &session));
    OK(lathe_session_encode(session, text, (int64_t)n, &ids));
    cr_assert_geq(ids.n, x->n);
    OK(lathe_safetensors_open("base/model.safetensors", &set));
    read_tensor(set, "model.embed_tokens.weight", table, 300 * 32);
    read_tensor(set, "model.layers.0.input_layernorm.weight", norm, 32);
    for (int64_t t = 0; t < x->n; t++) {
        const float *row = table + 32 * ids.ids[t];
        double sum = 0.0;
        for (int i = 0; i < 32; i++)
            sum += (double)row[i] * (double)row[i];
        for (int i = 0; i < 32; i++) {
            const double v = (double)row[i] / sqrt(sum / 32.0 + 1e-6) * (double)norm[i];
            squares[i] += v * v / (double)x->n;
            magnitudes[i] += fabs(v) / (double)x->n;
        }
    }
    for (int i = 0; i < 32; i++) { /* sums of 64 terms in f32 */
        cr_expect_float_eq((double)x->squares[i], squares[i], 1e-4 * squares[i] + 1e-6);
        cr_expect_float_eq((double)x->magnitudes[i], magnitudes[i], 1e-4 * magnitudes[i] + 1e-6);
    }
    lathe_safetensors_close(set);
    lathe_session_close(session);
}

Test(jobs, calibrate_gives_the_inputs_of_linear_layers)
{
    static const char *const settings[] = {"train.micro_batch_size=1", "train.precision=fp32"};
    inputs x = {.n_layers = 0}, ended = {.t.ends_at = 0.4};
    lathe_job_calibrate_config config = {.size = (uint32_t)sizeof config,
                                         .model = "base",
                                         .settings = settings,
                                         .n_settings = 2,
                                         .n_rows = 1,
                                         .text = "text.txt",
                                         .layer = take_inputs,
                                         .progress = hear,
                                         .arg = &x};
    look();
    OK(lathe_job_calibrate(&config));
    rose_to_the_end(&x.t);
    cr_expect_eq(x.n_layers, 14);
    cr_assert_eq(x.n, 64);
    expect_first_inputs(&x);
    config.n_rows = 4;
    config.arg = &ended;
    look();
    left_nothing(lathe_job_calibrate(&config), &ended.t);
}

/* ---- log-probabilities ---- */

static lathe_status store(const char *to, told *t, lathe_job_logprobs_result *out)
{
    const lathe_job_logprobs_config config = {.size = (uint32_t)sizeof config,
                                              .run_file = "distill.toml",
                                              .output = to,
                                              .top_k = 4,
                                              .progress = hear,
                                              .arg = t};
    return lathe_job_logprobs(&config, out);
}

Test(jobs, logprobs_are_those_of_the_command)
{
    told t = {.n = 0};
    lathe_job_logprobs_result made = {.size = (uint32_t)sizeof made};
    OK(store("m", &t, &made));
    rose_to_the_end(&t);
    cr_expect(made.top_k == 4 && made.n_records == 24 && made.n_targets > 24);
    expect(LATHE " logprobs distill.toml -o c --top-k 4 && "
                 "cmp m/datasets-00000.logprobs c/datasets-00000.logprobs && echo same",
           0, "same");
}

Test(jobs, logprobs_that_are_ended_go_on)
{
    told t = {.ends_at = 0.3}, again = {.n = 0};
    lathe_job_logprobs_result made = {.size = (uint32_t)sizeof made};
    cr_expect_eq(store("m", &t, &made), LATHE_E_INTERRUPTED);
    cr_expect(t.ended);
    expect("test -e m || echo none", 0, "none"); /* no file was finished */
    OK(store("m", &again, &made));
    rose_to_the_end(&again);
    expect(LATHE " logprobs distill.toml -o c --top-k 4 && "
                 "cmp m/datasets-00000.logprobs c/datasets-00000.logprobs && echo same",
           0, "same");
}

/* ---- evaluate ---- */

Test(jobs, evaluate_gives_the_figures_of_the_command)
{
    told t = {.n = 0}, ended = {.ends_at = 0.3}, again = {.n = 0};
    lathe_session *session = NULL;
    const lathe_session_config open = {.size = (uint32_t)sizeof open,
                                       .purpose = LATHE_SESSION_EVALUATE,
                                       .model = "base",
                                       .data = "text.txt"};
    lathe_job_evaluation e = {.size = (uint32_t)sizeof e};
    OK(lathe_session_open(&open, &session));
    lathe_job_evaluate_config config = {
        .size = (uint32_t)sizeof config, .session = session, .progress = hear, .arg = &t};
    OK(lathe_job_evaluate(&config, &e));
    rose_to_the_end(&t);
    expect(LATHE " eval base --data text.txt --json 2>/dev/null", 0, "\"loss\": ");
    cr_expect_float_eq(e.loss, strtod(strstr(output, "\"loss\": ") + 8, NULL), 1e-8);
    cr_expect_float_eq(e.count, strtod(strstr(output, "\"count\": ") + 9, NULL), 0.0);
    cr_expect_float_eq(e.bits_per_byte, strtod(strstr(output, "\"bits_per_byte\": ") + 17, NULL),
                       1e-8);
    cr_expect_str_eq(e.unit, "targets");
    config.arg = &ended;
    cr_expect_eq(lathe_job_evaluate(&config, &e), LATHE_E_INTERRUPTED);
    cr_expect(ended.ended);
    /* the session is as before */
    const double loss = e.loss;
    config.arg = &again;
    OK(lathe_job_evaluate(&config, &e));
    cr_expect_float_eq(e.loss, loss, 0.0);
    lathe_session_close(session);
}

/* ---- bad values ---- */

static void refused(lathe_status status, lathe_status want, const char *why)
{
    cr_expect_eq(status, want, "%d: %s", status, lathe_last_error());
    cr_expect_not_null(strstr(lathe_last_error(), why), "no '%s' in %s", why, lathe_last_error());
}

Test(jobs, bad_values_are_named_as_the_config_names_them)
{
    quantized q = {.n_weights = 0};
    lathe_job_convert_config convert_config = {.size = (uint32_t)sizeof convert_config};
    lathe_job_merge_config merge = {.size = (uint32_t)sizeof merge, .output = "m"};
    lathe_job_quantize_config quantize = quantize_config(&q);
    lathe_job_calibrate_config calibrate = {.size = (uint32_t)sizeof calibrate, .model = "base"};
    lathe_job_logprobs_config logprobs = {.size = (uint32_t)sizeof logprobs};
    lathe_job_evaluate_config evaluate = {.size = (uint32_t)sizeof evaluate};
    lathe_job_evaluation e = {.size = (uint32_t)sizeof e};
    static const char *const odd[] = {"quant.name"}, *const idle[] = {"optimizer.lr=1"};
    look();
    refused(lathe_job_convert(NULL), LATHE_E_ARG, "config is NULL");
    refused(lathe_job_convert(&convert_config), LATHE_E_ARG, "model is missing");
    convert_config.model = "base";
    refused(lathe_job_convert(&convert_config), LATHE_E_ARG, "output is missing");
    convert_config.output = "m.gguf";
    convert_config.type = "q5";
    refused(lathe_job_convert(&convert_config), LATHE_E_ARG, "type q5: expected f32");
    cr_expect_null(strstr(lathe_last_error(), "--"), "%s", lathe_last_error());
    convert_config.size = 8;
    refused(lathe_job_convert(&convert_config), LATHE_E_ARG, "config.size is 8");
    refused(lathe_job_merge(&merge, NULL), LATHE_E_ARG, "0 adapters; expected 1 to 8");
    merge.adapters = tuned;
    merge.n_adapters = 2;
    refused(lathe_job_merge(&merge, NULL), LATHE_E_ARG, "several adapters need the model");
    merge.model = "none";
    refused(lathe_job_merge(&merge, NULL), LATHE_E_CONFIG, "none: no such file or folder");
    merge.model = "base";
    merge.settings = odd;
    merge.n_settings = 1;
    refused(lathe_job_merge(&merge, NULL), LATHE_E_ARG, "not of the form section.key=value");
    quantize.settings = idle;
    refused(lathe_job_quantize(&quantize, NULL), LATHE_E_ARG, "optimizer.lr has no effect");
    quantize.settings = as_gptq;
    quantize.n_settings = 2;
    refused(lathe_job_quantize(&quantize, NULL), LATHE_E_ARG, "calibration is missing");
    quantize.calibration = "none.txt";
    refused(lathe_job_quantize(&quantize, NULL), LATHE_E_CONFIG, "calibration none.txt: no such");
    quantize.calibration = "text.txt";
    quantize.n_rows = 4000;
    refused(lathe_job_quantize(&quantize, NULL), LATHE_E_CONFIG, "n_rows 4000: the calibration");
    refused(lathe_job_calibrate(&calibrate), LATHE_E_ARG, "text is missing");
    refused(lathe_job_logprobs(&logprobs, NULL), LATHE_E_ARG, "output is missing");
    logprobs.output = "m";
    logprobs.run_file = "base";
    refused(lathe_job_logprobs(&logprobs, NULL), LATHE_E_ARG, "base is a folder");
    logprobs.run_file = "distill.toml";
    logprobs.top_k = -1;
    refused(lathe_job_logprobs(&logprobs, NULL), LATHE_E_ARG, "top_k is -1");
    refused(lathe_job_evaluate(&evaluate, &e), LATHE_E_ARG, "session is NULL");
    cr_assert_eq(run(LIST), 0);
    cr_expect_str_eq(output, before);
}

/* The CUDA device on the emulated GPU (tests/emulator): its messages on machines that cannot run
 * it, its memory, the code of plugins, and how its ops handle values that a GPU cannot refuse.
 * LATHE_EMULATOR describes the machine. */
#include "emulator/emulator_image.h"
#include "kernels/op_harness.h"
#include "lathe/lathe.h"
#include "lathe/rng.h"
#include "plug/host_table.h"

/* Loads the plugin without opening a device. Skips the test if the toolkit's headers were not
 * found. */
static void load(const char *machine, op_build *b)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", lathe_test_build(), op_gpus[0]);
    if (access(path, F_OK) != 0)
        cr_skip_test("built without the CUDA toolkit");
    cr_assert_eq(setenv("LATHE_EMULATOR", machine, 1), 0);
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(so, "%s: %s", path, dlerror());
    b->plugin = dlsym(so, LATHE_PLUGIN_ENTRY_NAME);
    b->device = b->plugin->table;
}

static lathe_status open_index(op_build *b, int64_t index)
{
    lathe_value values[3] = {0};
    cr_assert_eq(b->plugin->n_fields, 3);
    cr_assert_str_eq(b->plugin->fields[0].key, "index");
    values[0].i = index;
    return b->plugin->create(lathe_host_get(), values, 3, &b->self);
}

static void open_gpu(const char *machine, op_build *b)
{
    load(machine, b);
    cr_assert_eq(open_index(b, 0), LATHE_OK, "%s", lathe_last_error());
}

/* ---- messages about the machine ---- */

static void check_score(const char *machine, int runs, const char *line)
{
    op_build b = {0};
    char why[256] = "";
    load(machine, &b);
    const int32_t score = b.device->score(why, sizeof why);
    cr_assert_eq(score, runs ? LATHE_SCORE_EXACT : LATHE_SCORE_NO, "%s: score %d", machine,
                 (int)score); /* "auto" takes the highest score: a GPU before the CPU's builds */
    cr_assert_str_eq(why, line);
}

Test(cuda_score, reports_the_gpu_of_the_machine)
{
    check_score("gpus=2 arch=90", 1, "2 GPUs, the first: emulated GPU, sm_90");
}

Test(cuda_score, is_none_without_a_driver)
{
    check_score("driver=none", 0, "no CUDA driver is installed (libcuda.so.1)");
}

Test(cuda_score, is_none_where_the_driver_is_too_old)
{
    op_build b = {0};
    char why[256] = "";
    load("driver=11040", &b);
    cr_assert_eq(b.device->score(why, sizeof why), LATHE_SCORE_NO);
    const char *first = "the CUDA driver is for CUDA 11.4, this build needs ";
    cr_assert_eq(strncmp(why, first, strlen(first)), 0, "%s", why);
    cr_assert_not_null(strstr(why, " or later: update the driver"), "%s", why);
}

Test(cuda_score, is_none_where_the_driver_shows_no_gpu)
{
    check_score("gpus=0", 0, "the CUDA driver shows no GPU: no CUDA-capable device is detected");
}

Test(cuda_score, is_none_for_a_gpu_that_no_code_is_for)
{
    check_score("arch=75", 0,
                "GPU 0 is of compute capability 7.5; this build has code from 8.0 on");
}

Test(cuda_device, says_what_it_is)
{
    op_build b = {0};
    open_gpu("memory=1073741824 used=268435456 arch=89 gpus=2", &b);
    b.device->info(b.self, &b.info); /* a caller with size 0 */
    cr_assert_eq(b.info.memory_bytes, 0);
    b.info.size = sizeof b.info;
    cr_assert_eq(b.device->info(b.self, &b.info), LATHE_OK);
    cr_assert_str_eq(b.info.isa, "sm_89");
    cr_assert_eq(b.info.host_memory, 0);
    cr_assert_eq(b.info.memory_bytes, 1073741824);
    cr_assert_eq(b.info.memory_free_bytes, 1073741824 - 268435456);
    cr_assert_eq(b.info.index, 0);
    cr_assert_eq(strncmp(b.info.driver, "CUDA ", 5), 0, "%s", b.info.driver);
    op_close(&b);
    cr_assert_eq(open_index(&b, 1), LATHE_OK);
    cr_assert_eq(b.device->info(b.self, &b.info), LATHE_OK);
    cr_assert_eq(b.info.index, 1);
    op_close(&b);
}

/* The reason must not be the runtime's message ("driver version is insufficient" if there is no
 * driver). */
Test(cuda_device, tells_why_no_gpu_can_be_opened)
{
    static const char *const cases[][2] = {
        {"driver=none", "no CUDA driver is installed (libcuda.so.1)"},
        {"gpus=0", "the CUDA driver shows no GPU: no CUDA-capable device is detected"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        op_build b = {0};
        load(cases[i][0], &b);
        cr_assert_eq(open_index(&b, 0), LATHE_E_UNSUPPORTED);
        cr_assert_str_eq(lathe_last_error(), cases[i][1]);
    }
}

Test(cuda_device, refuses_an_index_that_no_gpu_has)
{
    op_build b = {0};
    load("gpus=2", &b);
    cr_assert_eq(open_index(&b, 2), LATHE_E_CONFIG);
    cr_assert_str_eq(lathe_last_error(),
                     "device.index is 2, and this machine shows 2 GPUs (0 to 1)");
    cr_assert_null(b.self);
}

/* The selected GPU may differ from the first one, so create checks again. */
Test(cuda_device, refuses_a_gpu_that_no_code_is_for)
{
    op_build b = {0};
    load("arch=75", &b);
    cr_assert_eq(open_index(&b, 0), LATHE_E_UNSUPPORTED);
    cr_assert_str_eq(
        lathe_last_error(),
        "GPU 0 (emulated GPU) is of compute capability 7.5; this build has code from 8.0 on");
}

/* The device stays usable: the next launch does not report the error again. */
Test(cuda_memory, names_what_is_free_and_what_was_asked_for)
{
    op_build b = {0};
    void *p = NULL;
    open_gpu("memory=8589934592 used=6442450944", &b);
    cr_assert_eq(b.device->alloc(b.self, (int64_t)3 << 30, LATHE_MEM_DEVICE, &p), LATHE_E_NOMEM);
    cr_assert_str_eq(lathe_last_error(), "GPU 0 has 2.00 GiB free of 8.00, 3.00 were requested");
    cr_assert_null(p);
    cr_assert_eq(b.device->alloc(b.self, -1, LATHE_MEM_DEVICE, &p), LATHE_E_ARG);
    cr_assert_eq(b.device->alloc(b.self, 1 << 20, LATHE_MEM_DEVICE, &p), LATHE_OK);
    cr_assert_eq(b.device->sync(b.self, NULL), LATHE_OK);
    b.device->free(b.self, p);
    op_close(&b);
}

/* ---- code of plugins ---- */

typedef struct count_args {
    int64_t *at; /* in device memory */
    int64_t by;
} count_args;

/* One thread; the emulator runs one at a time. */
static void count(const void *args)
{
    const count_args *a = args;
    *a->at += a->by;
}

static const emulator_kernel kernels[] = {{"count", count, sizeof(count_args)}, {NULL, NULL, 0}};
static const emulator_image image = {{'E', 'M', 'U', 'L', 'A', 'T', 'E', 'D'}, kernels};
static const char other_image[64] = "code for something else";

Test(cuda_launch, queues_every_thread_with_the_arguments_of_the_call)
{
    op_build b = {0};
    void *p = NULL;
    int64_t sum = -1;
    open_gpu("", &b);
    cr_assert(LATHE_HAS(b.device, launch));
    cr_assert_eq(b.device->alloc(b.self, sizeof sum, LATHE_MEM_DEVICE, &p), LATHE_OK);
    for (int64_t i = 1; i <= 2; i++) {
        count_args args = {p, i};
        cr_assert_eq(b.device->launch(b.self, NULL, &image, "count", 3, 64, &args, sizeof args),
                     LATHE_OK, "%s", lathe_last_error());
        args.by = 1000; /* args was copied at the launch */
    }
    cr_assert_eq(b.device->copy(b.self, NULL, &sum, p, sizeof sum, LATHE_COPY_TO_HOST), LATHE_OK);
    cr_assert_eq(b.device->sync(b.self, NULL), LATHE_OK);
    cr_assert_eq(sum, 3 * 64 * (1 + 2));
    b.device->free(b.self, p);
    op_close(&b);
}

Test(cuda_launch, refuses_what_does_not_exist)
{
    op_build b = {0};
    int64_t args = 0;
    open_gpu("arch=90", &b);
    cr_assert_eq(b.device->launch(b.self, NULL, &image, "recount", 1, 32, &args, sizeof args),
                 LATHE_E_NOT_FOUND);
    cr_assert_str_eq(lathe_last_error(), "recount: no such kernel in the plugin's CUDA code");
    cr_assert_eq(b.device->launch(b.self, NULL, other_image, "count", 1, 32, &args, sizeof args),
                 LATHE_E_UNSUPPORTED);
    cr_assert_str_eq(lathe_last_error(),
                     "count: the plugin's CUDA code holds nothing for compute capability 9.0");
    cr_assert_eq(
        b.device->launch(b.self, NULL, &image, "count", (int64_t)1 << 31, 32, &args, sizeof args),
        LATHE_E_ARG);
    cr_assert_eq(b.device->launch(b.self, NULL, &image, "count", 0, 32, &args, sizeof args),
                 LATHE_OK);
    op_close(&b);
}

/* ---- tests that only the CUDA device needs ---- */

/* Runs the case with input i moved by shift[i] elements in its memory; the caller frees output
 * 0. */
static void *run_shifted(const op_build *b, const op_case *c, const int *shift)
{
    const void *in[LATHE_OP_MAX_IN] = {0};
    void *memory[LATHE_OP_MAX_IN] = {0}, *out[LATHE_OP_MAX_OUT] = {0};
    for (int32_t i = 0; i < c->n_in; i++) {
        const int64_t element = lathe_dtype_bytes(c->in[i].dtype), n = lathe_desc_count(&c->in[i]);
        char *host = calloc((size_t)(n + shift[i]), (size_t)element);
        for (int64_t j = 0; j < n; j++)
            op_store(host, c->in[i].dtype, j + shift[i], c->value[i][j]);
        memory[i] = op_to_device(b, host, (n + shift[i]) * element);
        in[i] = (const char *)memory[i] + shift[i] * element;
        free(host);
    }
    out[0] = op_make_output(b, c, 0, 0);
    op_run_kernel(b, c, 0, in, out);
    void *host = op_to_host(b, out[0], lathe_desc_bytes(&c->out[0]));
    b->device->free(b->self, out[0]);
    for (int32_t i = 0; i < c->n_in; i++)
        b->device->free(b->self, memory[i]);
    return host;
}

/* The emulator's products fail if an operand is less aligned than the algorithm was told. */
Test(cuda_linear, takes_operands_of_any_alignment)
{
    static const int32_t dtypes[3] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    static const int none[3] = {0, 0, 0}, shifts[3][3] = {{1, 0, 0}, {0, 3, 0}, {0, 0, 1}};
    op_build b = {0};
    open_gpu("", &b);
    for (int d = 0; d < 3; d++) {
        op_case c = {.op = LATHE_OP_LINEAR};
        op_input(&c, 0, lathe_desc_2d(dtypes[d], 5, 8), 0.0, 1.0);
        op_input(&c, 1, lathe_desc_2d(dtypes[d], 12, 8), 0.0, 1.0);
        op_input(&c, 2, lathe_desc_1d(LATHE_F32, 12), 0.0, 1.0);
        op_output(&c, 0, lathe_desc_2d(dtypes[d], 5, 12));
        void *want = run_shifted(&b, &c, none);
        for (int i = 0; i < 3; i++) {
            void *got = run_shifted(&b, &c, shifts[i]);
            cr_assert_eq(memcmp(got, want, (size_t)lathe_desc_bytes(&c.out[0])), 0,
                         "dtype %d, input %d moved", (int)dtypes[d], i);
            free(got);
        }
        free(want);
        op_free(&c);
    }
    op_close(&b);
}

Test(cuda_linear_gelu, takes_operands_of_any_alignment)
{
    static const int32_t dtypes[3] = {LATHE_F32, LATHE_BF16, LATHE_F16};
    static const int none[3] = {0, 0, 0}, shifts[3][3] = {{1, 0, 0}, {0, 3, 0}, {0, 0, 1}};
    op_build b = {0};
    open_gpu("", &b);
    for (int i = 0; i < 18; i++) {
        const int32_t dtype = dtypes[i % 3];
        const int *shift = shifts[i / 3 % 3], is_backward = i / 9;
        op_case c = {.op = is_backward ? LATHE_OP_LINEAR_DX_GELU : LATHE_OP_LINEAR_GELU};
        op_input(&c, 0, lathe_desc_2d(dtype, 5, is_backward ? 12 : 8), 0.0, 1.0);
        op_input(&c, 1, lathe_desc_2d(dtype, 12, 8), 0.0, 1.0);
        op_input(&c, 2, is_backward ? lathe_desc_2d(dtype, 5, 8) : lathe_desc_1d(LATHE_F32, 12),
                 0.0, 1.0);
        op_output(&c, 0, lathe_desc_2d(dtype, 5, is_backward ? 8 : 12));
        void *want = run_shifted(&b, &c, none), *got = run_shifted(&b, &c, shift);
        cr_assert_eq(memcmp(got, want, (size_t)lathe_desc_bytes(&c.out[0])), 0,
                     "op %d, dtype %d, input %d moved", (int)c.op, (int)dtype, i / 3 % 3);
        free(got);
        free(want);
        op_free(&c);
    }
    op_close(&b);
}

/* Each row has 16 MiB of f32 products: three blocks, the last one shorter. */
Test(cuda_linear, adds_a_bias_over_several_blocks_of_rows)
{
    enum { N = 150, O = 65541 };
    static const int none[3] = {0, 0, 0};
    op_build b = {0};
    open_gpu("", &b);
    op_case c = {.op = LATHE_OP_LINEAR};
    op_input(&c, 0, lathe_desc_2d(LATHE_BF16, N, 1), 0.0, 1.0);
    op_input(&c, 1, lathe_desc_2d(LATHE_BF16, O, 1), 0.0, 1.0);
    op_input(&c, 2, lathe_desc_1d(LATHE_F32, O), 0.0, 1.0);
    op_output(&c, 0, lathe_desc_2d(LATHE_BF16, N, O));
    uint16_t *y = run_shifted(&b, &c, none);
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = 0; j < O; j++) { /* x w is exact in f32: one rounding follows */
            const float p = (float)(c.value[0][i] * c.value[1][j]);
            cr_assert_eq(y[i * O + j], lathe_f32_to_bf16(p + (float)c.value[2][j]), "%lld, %lld",
                         (long long)i, (long long)j);
        }
    free(y);
    op_free(&c);
    op_close(&b);
}

enum { ROWS = 6, WIDTH = 4, VOCABULARY = 20 };
static const double odd_targets[ROWS] = {3, -1, VOCABULARY, -2, INT32_MIN, VOCABULARY - 1};

static void odd_head(op_case *c)
{
    op_input(c, 0, lathe_desc_2d(LATHE_F32, ROWS, WIDTH), 0.0, 1.0);
    op_input(c, 1, lathe_desc_2d(LATHE_F32, VOCABULARY, WIDTH), 0.0, 1.0);
    op_indices(c, 2, ROWS, 0, 1, VOCABULARY);
    memcpy(c->value[2], odd_targets, sizeof odd_targets);
}

static int is_a_token(int64_t row)
{
    return odd_targets[row] >= 0 && odd_targets[row] < VOCABULARY;
}

static void check_logp(const float *logp)
{
    for (int64_t r = 0; r < ROWS; r++)
        if (is_a_token(r))
            cr_assert_lt(logp[r], 0.0f, "row %lld", (long long)r);
        else if (odd_targets[r] == -1)
            cr_assert_eq(logp[r], 0.0f, "row %lld", (long long)r);
        else
            cr_assert(isnan(logp[r]), "row %lld: %g", (long long)r, (double)logp[r]);
}

Test(cuda_head, gives_nan_and_no_gradient_for_a_target_outside_the_vocabulary)
{
    op_build b = {0};
    void *out[LATHE_OP_MAX_OUT];
    open_gpu("", &b);
    op_case c = {.op = LATHE_OP_HEAD_LOGPROB_BWD};
    odd_head(&c);
    op_input(&c, 3, lathe_desc_1d(LATHE_F32, ROWS), 1.0, 0.0);
    op_output(&c, 0, lathe_desc_1d(LATHE_F32, ROWS));
    op_output(&c, 1, lathe_desc_2d(LATHE_F32, ROWS, WIDTH));
    op_output(&c, 2, lathe_desc_2d(LATHE_F32, VOCABULARY, WIDTH));
    op_run(&b, &c, 0, out);
    check_logp(out[0]);
    const float *dx = out[1], *dw = out[2];
    for (int64_t i = 0; i < ROWS * WIDTH; i++)
        cr_assert_eq(dx[i] != 0.0f, is_a_token(i / WIDTH), "dx[%lld] is %g", (long long)i,
                     (double)dx[i]);
    for (int64_t i = 0; i < VOCABULARY * WIDTH; i++)
        cr_assert(isfinite(dw[i]));
    op_free_outputs(&c, out);
    op_free(&c);
    op_close(&b);
}

Test(cuda_head, finds_no_top_nor_token_for_a_target_outside_the_vocabulary)
{
    op_build b = {0};
    void *out[LATHE_OP_MAX_OUT];
    open_gpu("", &b);
    op_case c = {.op = LATHE_OP_HEAD_EVAL};
    odd_head(&c);
    op_output(&c, 0, lathe_desc_1d(LATHE_F32, ROWS));
    op_output(&c, 1, lathe_desc_1d(LATHE_F32, ROWS));
    op_output(&c, 2, lathe_desc_1d(LATHE_I32, ROWS));
    op_run(&b, &c, 0, out);
    check_logp(out[0]);
    check_logp(out[1]);
    for (int64_t r = 0; r < ROWS; r++)
        cr_assert_eq(((int32_t *)out[2])[r] >= 0, is_a_token(r));
    op_free_outputs(&c, out);
    op_free(&c);

    op_case draw = {.op = LATHE_OP_HEAD_SAMPLE};
    odd_head(&draw);
    op_input(&draw, 3, lathe_desc_1d(LATHE_I64, LATHE_RNG_COUNTER), 1.0, 0.0);
    op_output(&draw, 0, lathe_desc_1d(LATHE_I32, ROWS));
    op_run(&b, &draw, 0, out);
    for (int64_t r = 0; r < ROWS; r++)
        cr_assert_eq(((int32_t *)out[0])[r] >= 0, is_a_token(r));
    op_free_outputs(&draw, out);
    op_free(&draw);
    op_close(&b);
}

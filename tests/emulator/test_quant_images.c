/* The CUDA code of every codec that has some, run by launch() of the GPU, or of the emulated one if
 * there is none, with its planes in device memory: the decoded weight must equal that of decode()
 * on the CPU bit for bit. */
#include "kernels/op_harness.h"
#include "quant_weights.h"
#include "support/plugin_fixture.h"

typedef struct setting {
    const char *name, *text;
} setting;

static const setting settings[] = {{"nf4", "double_quant=true"},
                                   {"nf4", "double_quant=false"},
                                   {"int8", ""},
                                   {"fp8", "scaling=tensor"},
                                   {"fp8", "scaling=row"},
                                   {"fp8", "scaling=block"},
                                   {"nvfp4", "layout=compressed-tensors"},
                                   {"nvfp4", "layout=modelopt"},
                                   {"hqq", "bits=1"},
                                   {"hqq", "bits=2"},
                                   {"hqq", "bits=3 compute_dtype=bfloat16"},
                                   {"hqq", "bits=4 compute_dtype=float32"},
                                   {"hqq", "bits=8"},
                                   {"gptq", "bits=3 group_size=64"},
                                   {"gptq", "bits=4 symmetric=false checkpoint_format=gptq_v2"},
                                   {"gptq", "bits=8 group_size=-1"},
                                   {"awq", "group_size=64"},
                                   {"awq", "group_size=-1"},
                                   {"awq", "group_size=64 scale_dtype=bf16"},
                                   {"gptq", "bits=4 scale_dtype=bf16"},
                                   {"fp8", "block_rows=3 block_cols=24"},
                                   {"fp8", "block_cols=32 scales=e8m0"},
                                   {"rtn", "group_size=-1"},
                                   {"rtn", "bits=3 group_size=32 symmetric=false"},
                                   {"rtn", "bits=8 packed=false group_size=0 symmetric=false"},
                                   {"rtn", "bits=7 group_size=32 act_order=true"}};

/* One element; an odd count; whole blocks of 64; a chunk of 4096 and one element; nested blocks and
 * an odd end; groups that end within a chunk. A format skips what it does not accept. */
static const int64_t shapes[][2] = {{1, 1},     {3, 5},    {64, 64}, {17, 241},
                                    {129, 387}, {66, 192}, {64, 192}};

typedef struct subject {
    const char *name;
    const lathe_quant_v1 *quant;
    void *self;
    op_build device;
} subject;

/* Decodes on both sides; the byte after the weight must not change. */
static void check_dtype(const subject *s, int64_t rows, int64_t cols, const planes *p,
                        const lathe_quant_args *on_device, int32_t dtype)
{
    const int64_t bytes = rows * cols * lathe_dtype_bytes(dtype);
    char *want = malloc((size_t)bytes + 1);
    memset(want, 0xa5, (size_t)bytes + 1);
    lathe_quant_args args = *on_device;
    args.dtype = dtype;
    args.out = op_to_device(&s->device, want, bytes + 1);
    cr_assert_eq(s->quant->decode(s->self, rows, cols, planes_in(p), want, dtype, NULL, NULL),
                 LATHE_OK);
    const int64_t n_blocks = args.n_chunks > 2 ? 2 : args.n_chunks; /* any grid must work */
    cr_assert_eq(s->device.device->launch(s->device.self, NULL, s->quant->cuda_image,
                                          LATHE_QUANT_KERNEL, n_blocks, LATHE_QUANT_THREADS, &args,
                                          (int64_t)sizeof args),
                 LATHE_OK);
    char *got = op_to_host(&s->device, args.out, bytes + 1);
    int64_t i = 0;
    while (i <= bytes && got[i] == want[i])
        i++;
    cr_assert_gt(i, bytes, "%s [%d, %d] %s: byte %d of %d", s->name, (int)rows, (int)cols,
                 lathe_dtype_name(dtype), (int)i, (int)bytes);
    s->device.device->free(s->device.self, args.out);
    free(got);
    free(want);
}

static void check_shape(const subject *s, int64_t rows, int64_t cols)
{
    if (s->quant->accepts(s->self, rows, cols) != LATHE_OK)
        return;
    float *w = golden_weights((uint32_t)(rows + cols), rows * cols);
    planes p = planes_of(s->quant, s->self, rows, cols);
    cr_assert_eq(s->quant->encode(s->self, rows, cols, w, p.data), LATHE_OK);
    lathe_quant_args args = {.rows = rows,
                             .cols = cols,
                             .n_chunks = (rows * cols + LATHE_QUANT_CHUNK - 1) / LATHE_QUANT_CHUNK,
                             .n_planes = p.n};
    void *there[LATHE_MAX_PLANES] = {0};
    for (int32_t k = 0; k < p.n; k++)
        args.planes[k] = there[k] =
            op_to_device(&s->device, p.data[k], lathe_desc_bytes(&p.info[k].desc));
    if (s->quant->image_settings != NULL)
        s->quant->image_settings(s->self, args.settings);
    check_dtype(s, rows, cols, &p, &args, LATHE_F32);
    check_dtype(s, rows, cols, &p, &args, LATHE_BF16);
    check_dtype(s, rows, cols, &p, &args, LATHE_F16);
    for (int32_t k = 0; k < p.n; k++)
        s->device.device->free(s->device.self, there[k]);
    planes_free(&p);
    free(w);
}

static void check(const char *name, const char *text)
{
    char path[4096];
    subject s = {.name = name};
    (void)snprintf(path, sizeof path, "%s/%s/quant/%s.so", lathe_test_build(),
                   op_open_gpu(&s.device), name);
    const lathe_plugin *plugin = lathe_test_open(path);
    s.quant = plugin->table;
    cr_assert(s.quant->cuda_image != NULL);
    cr_assert_eq(lathe_test_create(plugin, text, &s.self), LATHE_OK, "%s", lathe_test_message);
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        check_shape(&s, shapes[k][0], shapes[k][1]);
    op_close(&s.device);
    plugin->destroy(s.self);
}

Test(quant_images, launched_decodes_give_the_bits_of_the_cpu)
{
    char text[] = EMULATED_PLUGINS, *rest = text;
    int n = 0;
    for (char *name; (name = strtok_r(rest, " ", &rest)) != NULL; n++) {
        int n_settings = 0;
        for (size_t k = 0; k < sizeof settings / sizeof *settings; k++)
            if (strcmp(settings[k].name, name) == 0) {
                check(name, settings[k].text);
                n_settings++;
            }
        if (n_settings == 0)
            check(name, "");
    }
    cr_assert_geq(n, 7);
}

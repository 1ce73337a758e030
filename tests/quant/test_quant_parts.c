/* decode_part of every format gives the bits of decode, for parts of any place, build and dtype,
 * and writes nothing beside them. */
#include "quant_weights.h"

#include "lathe/kit/testing.h"
#include "support/build_folder.h"

/* The head of every instance (plugins/quant/shared/quant_codec.h); nf4's begins otherwise. */
typedef struct instance_head {
    const lathe_host *host;
    int32_t build;
} instance_head;

typedef struct format {
    const char *name, *settings;
    int64_t rows, cols; /* beyond a multiple of LATHE_PART_COLS, where that may be */
} format;

static const format formats[] = {
    {"nf4", "", 23, 1088},
    {"nf4", "double_quant=false", 7, 1091},
    {"int8", "", 23, 1091},
    {"eetq", "", 22, 1088},
    {"fp8", "scaling=block", 131, 1091},
    {"fp8", "scaling=row", 7, 1091},
    {"fp8", "scaling=tensor", 7, 1091},
    {"mxfp4", "scale_rounding=nearest", 23, 1088},
    {"nvfp4", "layout=compressed-tensors", 23, 1072},
    {"nvfp4", "layout=modelopt", 23, 1072},
    {"hqq", "", 24, 1088},
    {"hqq", "bits=1", 32, 1088},
    {"hqq", "bits=2 compute_dtype=bfloat16", 24, 1088},
    {"hqq", "bits=3 compute_dtype=float32", 23, 1088},
    {"hqq", "bits=4 group_size=96", 24, 1088}, /* groups that do not end with a row */
    {"hqq", "bits=8 group_size=1088", 24, 1088},
    {"gptq", "", 40, 1088},
    {"gptq", "bits=2", 32, 1088},
    {"gptq", "bits=3 symmetric=false group_size=96", 32, 1088},
    {"gptq", "bits=4 group_size=4", 40, 1088}, /* short groups, as act_order makes them */
    {"gptq", "bits=8 checkpoint_format=gptq_v2", 24, 1088},
    {"awq", "group_size=64", 152, 1088},
    {"awq", "group_size=64 scale_dtype=bf16 zero_point=false", 152, 1088},
    {"gptq", "scale_dtype=bf16 symmetric=false", 40, 1088},
    {"fp8", "scaling=block block_rows=3 block_cols=96", 7, 1091},
    {"fp8", "scaling=block block_rows=1 block_cols=32 scales=e8m0", 7, 1088},
    {"rtn", "group_size=32", 23, 1088},
    {"rtn", "group_size=64 symmetric=false", 23, 1088},
    {"rtn", "bits=3 group_size=-1 symmetric=false", 23, 1091},
    {"rtn", "bits=8 group_size=0 symmetric=false", 7, 1091},
    {"rtn", "bits=8 group_size=-1", 7, 1088},
    {"rtn", "bits=8 packed=false group_size=64 symmetric=false", 7, 1088},
    {"rtn", "bits=5 group_size=32 act_order=true", 7, 1088},
};

typedef struct subject {
    const lathe_quant_v1 *quant;
    void *self;
    int64_t rows, cols;
    planes p;
    const char *label;
} subject;

/* Decodes a part between two columns that nobody may write, and compares it with the whole. */
static void check_part(const subject *s, lathe_weight_part part, const char *whole, int32_t dtype)
{
    const int64_t width = lathe_dtype_bytes(dtype), n = part.runs * part.rows;
    char *const room = malloc((size_t)((n * part.stride + 2) * width));
    memset(room, 0x5a, (size_t)((n * part.stride + 2) * width));
    char *const out = room + width;
    s->quant->decode_part(s->self, s->rows, s->cols, planes_in(&s->p), &part, out, dtype);
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = part.row + i / part.rows * part.distance + i % part.rows;
        cr_assert_eq(memcmp(out + i * part.stride * width,
                            whole + (row * s->cols + part.col) * width,
                            (size_t)(part.cols * width)),
                     0, "%s %s: row %d, columns %d to %d, part from row %d on", s->label,
                     lathe_dtype_name(dtype), (int)row, (int)part.col,
                     (int)(part.col + part.cols - 1), (int)part.row);
        for (int64_t k = part.cols * width; k < part.stride * width; k++)
            cr_assert_eq(out[i * part.stride * width + k], 0x5a, "%s: wrote beside row %d",
                         s->label, (int)row);
    }
    cr_assert(room[0] == 0x5a && room[(n * part.stride + 1) * width] == 0x5a, "%s", s->label);
    free(room);
}

static void check_parts(const subject *s, int32_t dtype)
{
    lathe_part_rows by = {1, 1, 0};
    char *const whole = malloc((size_t)(s->rows * s->cols * lathe_dtype_bytes(dtype)));
    cr_assert_eq(
        s->quant->decode(s->self, s->rows, s->cols, planes_in(&s->p), whole, dtype, NULL, NULL),
        LATHE_OK);
    if (LATHE_HAS(s->quant, part_rows))
        s->quant->part_rows(s->self, s->rows, s->cols, &by);
    cr_assert(by.rows >= 1 && by.runs >= 1, "%s", s->label);
    cr_assert(by.runs == 1 || by.runs * by.distance == s->rows, "%s: %d runs of %d rows", s->label,
              (int)by.runs, (int)by.distance);
    const int64_t cut = s->cols / LATHE_PART_COLS * LATHE_PART_COLS;
    const int64_t run = s->rows / by.runs;
    const lathe_weight_part parts[] = {
        {0, s->rows, 1, 0, 0, s->cols, s->cols},
        {0, s->rows, 1, 0, cut, s->cols - cut, s->cols - cut + 3},
        {1, s->rows - 2, 1, 0, LATHE_PART_COLS, s->cols - LATHE_PART_COLS, s->cols},
        {s->rows / 2, 1, 1, 0, 0, LATHE_PART_COLS, LATHE_PART_COLS + 1},
        {s->rows - 3, 3, 1, 0, LATHE_PART_COLS, cut - LATHE_PART_COLS, cut},
        {0, run, by.runs, by.distance, 0, s->cols, s->cols + 5},
        {run / 2, run - run / 2, by.runs, by.distance, 0, LATHE_PART_COLS, LATHE_PART_COLS},
        {run - 1, 1, by.runs, by.distance, cut, s->cols - cut, s->cols},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        check_part(s, parts[i], whole, dtype);
    free(whole);
}

static void check_format(const format *f)
{
    char path[4096], label[128];
    void *self = NULL;
    (void)snprintf(path, sizeof path, "%s/lib/lathe/plugins/quant/%s.so", lathe_test_build(),
                   f->name);
    (void)snprintf(label, sizeof label, "%s %s", f->name, f->settings);
    const lathe_plugin *plugin = lathe_test_open(path);
    cr_assert_eq(lathe_test_create(plugin, f->settings, &self), LATHE_OK, "%s: %s", f->name,
                 lathe_test_message);
    subject s = {plugin->table, self, f->rows, f->cols, {0}, label};
    cr_assert(LATHE_HAS(s.quant, decode_part), "%s", label);
    cr_assert_eq(s.quant->accepts(self, f->rows, f->cols), LATHE_OK, "%s: %s", label,
                 lathe_test_message);
    s.p = planes_of(s.quant, self, f->rows, f->cols);
    float *w = golden_weights(10, f->rows * f->cols);
    cr_assert_eq(s.quant->encode(self, f->rows, f->cols, w, s.p.data), LATHE_OK);
    instance_head *head = self;
    const int has_head = strcmp(f->name, "nf4") != 0;
    const int32_t best = has_head ? head->build : 0;
    for (int32_t build = 0; build <= best; build++) {
        if (has_head)
            head->build = build;
        for (int32_t dtype = LATHE_F32; dtype <= LATHE_F16; dtype++)
            check_parts(&s, dtype);
    }
    planes_free(&s.p);
    free(w);
    plugin->destroy(self);
}

Test(quant_parts, have_the_bits_of_the_whole_weight)
{
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++)
        check_format(&formats[k]);
}

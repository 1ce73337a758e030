/* The ABI in bytes: offsets, sizes and numbers that compiled plugins and files rely on. */
#include <criterion/criterion.h>
#include <string.h>

#include "lathe/adapter.h"
#include "lathe/attention.h"
#include "lathe/collective.h"
#include "lathe/device.h"
#include "lathe/graph.h"
#include "lathe/jobs.h"
#include "lathe/kit/elementwise.h"
#include "lathe/kit/optimizer_queue.h"
#include "lathe/lathe.h"
#include "lathe/model.h"
#include "lathe/op_plugin.h"
#include "lathe/plugin.h"
#include "lathe/quant.h"
#include "lathe/reader.h"
#include "lathe/renderer.h"
#include "lathe/reward.h"
#include "lathe/scheduler.h"
#include "lathe/session.h"
#include "lathe/stage.h"
#include "lathe/stage_run.h"

typedef struct entry {
    const char *type, *member; /* member NULL: the whole struct */
    size_t want, got;
} entry;

#define STRUCT(type, bytes) {#type, NULL, bytes, sizeof(type)},
#define MEMBER(type, name, offset) {#type, #name, offset, offsetof(type, name)},
static const entry entries[] = {
#include "abi/layout_v1.inc"
};
enum { N_ENTRIES = sizeof entries / sizeof entries[0] };

Test(layout, members_stay_where_they_are)
{
    int members = 0;
    for (int i = 0; i < N_ENTRIES; i++) {
        const entry *e = &entries[i];
        if (e->member == NULL)
            continue;
        members++;
        cr_expect_eq(e->got, e->want, "%s.%s is at %zu, it was at %zu", e->type, e->member, e->got,
                     e->want);
    }
    cr_expect_geq(members, 300);
}

/* A struct that begins with its own size is a table and may grow. Plain data may not. */
Test(layout, plain_data_keeps_its_size_and_tables_only_grow)
{
    for (int i = 0; i < N_ENTRIES; i++) {
        const entry *e = &entries[i];
        if (e->member != NULL)
            continue;
        if (strcmp(entries[i + 1].member, "size") == 0)
            cr_expect_geq(e->got, e->want, "%s shrank from %zu to %zu", e->type, e->want, e->got);
        else
            cr_expect_eq(e->got, e->want, "%s has %zu bytes, it had %zu", e->type, e->got, e->want);
    }
}

/* Recorded graphs, devices and plugins refer to ops by number, so ops may only be appended. */
Test(layout, ops_keep_their_numbers_and_arities)
{
    typedef struct op_row {
        int32_t number;
        const char *name;
        int32_t n_in, n_out;
    } op_row;
#define X(number, name, n_in, n_out) {number, name, n_in, n_out},
    static const op_row want[] = {
#include "abi/ops_v1.inc"
    };
#define LATHE_X(name, text, n_in, n_out) {LATHE_OP_##name, text, n_in, n_out},
    static const op_row got[] = {LATHE_OP_TABLE(LATHE_X)};
#undef LATHE_X
    const int n = (int)(sizeof want / sizeof want[0]);
    cr_assert_geq(LATHE_N_OPS, n);
    for (int i = 0; i < n; i++) {
        cr_expect_eq(got[i].number, want[i].number);
        cr_expect_str_eq(got[i].name, want[i].name);
        cr_expect_eq(got[i].n_in, want[i].n_in, "%s", want[i].name);
        cr_expect_eq(got[i].n_out, want[i].n_out, "%s", want[i].name);
    }
    cr_expect_geq(LATHE_OP_MAX_IN, 8);
    cr_expect_geq(LATHE_OP_MAX_OUT, 4);
}

Test(layout, numbers_in_files_keep_their_meaning)
{
    static const char *const dtypes[] = {"f32", "bf16", "f16",  "f64", "i8",      "u8",
                                         "i32", "i64",  "bool", "i16", "f8_e4m3", "f8_e5m2"};
    for (int i = 0; i < 12; i++)
        cr_expect_str_eq(lathe_dtype_name(i), dtypes[i]);
    static const int32_t kinds[] = {
        LATHE_KIND_OPTIMIZER, LATHE_KIND_SCHEDULER, LATHE_KIND_QUANT,  LATHE_KIND_ADAPTER,
        LATHE_KIND_STAGE,     LATHE_KIND_ATTENTION, LATHE_KIND_DEVICE, LATHE_KIND_MODEL,
        LATHE_KIND_REWARD,    LATHE_KIND_RENDERER,  LATHE_KIND_READER, LATHE_KIND_COLLECTIVE,
        LATHE_KIND_OP};
    for (int i = 0; i < 13; i++)
        cr_expect_eq(kinds[i], i + 1);
    static const int32_t errors[] = {
        LATHE_OK,       LATHE_E_ARG,       LATHE_E_NOMEM, LATHE_E_IO,      LATHE_E_PARSE,
        LATHE_E_CONFIG, LATHE_E_NOT_FOUND, LATHE_E_SHAPE, LATHE_E_DTYPE,   LATHE_E_UNSUPPORTED,
        LATHE_E_PLUGIN, LATHE_E_CORRUPT,   LATHE_E_STATE, LATHE_E_NUMERIC, LATHE_E_INTERRUPTED,
        LATHE_E_DEVICE, LATHE_E_RANK};
    for (int i = 0; i < 17; i++)
        cr_expect_eq(errors[i], -i);
    static const int32_t roles[] = {LATHE_ROLE_MATRIX, LATHE_ROLE_EMBEDDING, LATHE_ROLE_HEAD,
                                    LATHE_ROLE_NORM,   LATHE_ROLE_BIAS,      LATHE_ROLE_ADAPTER};
    for (int i = 0; i < 6; i++)
        cr_expect_eq(roles[i], i);
    cr_expect_eq(LATHE_SCALAR_USER, 8);
    cr_expect_eq(LATHE_N_SCALARS, 16);
}

Test(layout, the_entry_is_named_after_the_major_version)
{
    cr_expect_eq(LATHE_ABI_MAJOR, 1);
    cr_expect_str_eq(LATHE_PLUGIN_ENTRY_NAME, "lathe_plugin_v1");
}

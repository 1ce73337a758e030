/* Matrices of experts, which files hold one by one or fused, as one tensor for each projection. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "files/safetensors/expert_tensors.h"
#include "files/safetensors/st_writer.h"

#define OK(call) cr_assert_eq((call), LATHE_OK, "%s: %s", #call, lathe_error_message())

enum { E = 11, O = 3, I = 5 };

/* A folder with model.safetensors; `missing`: the number of an expert that has no matrix. */
static void make_folder(char *dir, int missing)
{
    lathe_st_writer *w = NULL;
    float values[O * I];
    const lathe_desc desc = {LATHE_F32, 2, {O, I, 1, 1}};
    int64_t index = 0;
    cr_assert(mkdtemp(dir));
    OK(lathe_st_writer_create(dir, "model", 0, &w));
    for (int pass = 0; pass < 2; pass++) {
        for (int e = 0; e < E; e++) {
            char name[64];
            snprintf(name, sizeof name, "l.experts.%d.up.weight", e);
            for (int i = 0; i < O * I; i++)
                values[i] = (float)(100 * e + i);
            if (e == missing)
                continue;
            if (pass == 0)
                OK(lathe_st_writer_add(w, name, &desc));
            else
                OK(lathe_st_writer_write(w, index++, 0, values, (int64_t)sizeof values));
        }
        if (pass == 0) {
            OK(lathe_st_writer_add(w, "l.other.weight", &desc));
            OK(lathe_st_writer_begin(w));
        } else {
            OK(lathe_st_writer_write(w, index, 0, values, (int64_t)sizeof values));
        }
    }
    OK(lathe_st_writer_finish(w));
    lathe_st_writer_destroy(w);
}

static void check_joined(const lathe_safetensors *set, int are_copies)
{
    const lathe_st_tensor *t = lathe_safetensors_find(set, "l.experts.up.weight");
    float some[4 * I];
    cr_assert_eq(lathe_safetensors_count(set), 2);
    cr_assert(t);
    cr_assert_eq(t->desc.dims[0], E * O);
    cr_assert_eq(t->desc.dims[1], I);
    cr_assert_eq(t->decode == NULL, are_copies);
    /* the last row of expert 9 and the rows of expert 10, which is behind expert 1 in the file */
    OK(lathe_st_read(t, (10 * O - 1) * I, 4 * I, some, LATHE_F32));
    for (int i = 0; i < 4 * I; i++)
        cr_assert_eq(some[i], i < I ? (float)(900 + 2 * I + i) : (float)(1000 + i - I), "%d", i);
    cr_assert(lathe_safetensors_find(set, "l.other.weight"));
}

Test(expert_tensors, matrices_are_joined_in_the_order_of_their_numbers)
{
    char dir[] = "/tmp/lathe-experts-XXXXXX";
    lathe_safetensors *set = NULL;
    make_folder(dir, -1);
    OK(lathe_safetensors_open_joined(dir, &set));
    check_joined(set, 0);
    OK(lathe_safetensors_check(set));
    lathe_safetensors_close(set);
    OK(lathe_safetensors_open(dir, &set));
    OK(lathe_expert_tensors_join(&set, 1));
    check_joined(set, 1);
    lathe_safetensors_close(set);
}

Test(expert_tensors, matrices_with_a_gap_stay_what_they_are)
{
    char dir[] = "/tmp/lathe-experts-XXXXXX";
    lathe_safetensors *set = NULL;
    make_folder(dir, 4);
    OK(lathe_safetensors_open_joined(dir, &set));
    cr_assert_eq(lathe_safetensors_count(set), E);
    cr_assert_null(lathe_safetensors_find(set, "l.experts.up.weight"));
    cr_assert(lathe_safetensors_find(set, "l.experts.10.up.weight"));
    lathe_safetensors_close(set);
}

Test(expert_tensors, names_in_files_have_the_number_after_experts)
{
    char name[64];
    cr_assert_gt(lathe_expert_tensor_name("a.experts.w1.weight", 12, name, sizeof name), 0);
    cr_assert_str_eq(name, "a.experts.12.w1.weight");
    cr_assert_lt(lathe_expert_tensor_name("a.mlp.w1.weight", 0, name, sizeof name), 0);
}

/* Adds a tensor [E, rows, cols] whose numbers count from `start` on, or writes it. */
static void put_stack(lathe_st_writer *w, const char *name, int64_t rows, int64_t cols,
                      int64_t index, float start)
{
    const lathe_desc desc = {LATHE_F32, 3, {E, rows, cols, 1}};
    float values[E * 6 * 6];
    if (index < 0) {
        OK(lathe_st_writer_add(w, name, &desc));
        return;
    }
    for (int64_t i = 0; i < E * rows * cols; i++)
        values[i] = start + (float)i;
    OK(lathe_st_writer_write(w, index, 0, values, E * rows * cols * (int64_t)sizeof values[0]));
}

/* A folder with fused experts of width 2 for 5 channels, and with those of gpt-oss, transposed. */
static void make_fused(char *dir)
{
    lathe_st_writer *w = NULL;
    cr_assert(mkdtemp(dir));
    OK(lathe_st_writer_create(dir, "model", 0, &w));
    for (int pass = 0; pass < 2; pass++) {
        put_stack(w, "l.experts.gate_up_proj", 4, 5, pass ? 0 : -1, 0.0f);
        put_stack(w, "l.experts.down_proj", 5, 2, pass ? 1 : -1, 1000.0f);
        put_stack(w, "m.experts.gate_up_proj", 5, 4, pass ? 2 : -1, 0.0f);
        put_stack(w, "m.experts.down_proj", 2, 5, pass ? 3 : -1, 0.0f);
        put_stack(w, "mtp.experts.gate_up_proj", 4, 5, pass ? 4 : -1, 0.0f);
        put_stack(w, "mtp.experts.down_proj", 5, 2, pass ? 5 : -1, 0.0f);
        if (pass == 0)
            OK(lathe_st_writer_begin(w));
    }
    OK(lathe_st_writer_finish(w));
    lathe_st_writer_destroy(w);
}

/* Element i of expert e of a projection [rows, 5] of l.experts.gate_up_proj is 20 e + first + i. */
static void check_projection(const lathe_safetensors *set, const char *name, int64_t first)
{
    const lathe_st_tensor *t = lathe_safetensors_find(set, name);
    float all[E * 2 * 5], some[3 * 5];
    cr_assert(t, "%s", name);
    cr_assert(t->desc.rank == 2 && t->desc.dims[0] == E * 2 && t->desc.dims[1] == 5);
    OK(lathe_st_read(t, 0, E * 2 * 5, all, LATHE_F32));
    for (int64_t i = 0; i < E * 2 * 5; i++)
        cr_assert_eq(all[i], (float)(i / 10 * 20 + first + i % 10), "%s: %d", name, (int)i);
    OK(lathe_st_read(t, 3 * 5, 3 * 5, some, LATHE_F32)); /* from within expert 1 into expert 2 */
    cr_assert_arr_eq(some, all + 3 * 5, sizeof some);
}

Test(expert_tensors, fused_experts_are_taken_apart_where_they_are_not_transposed)
{
    char dir[] = "/tmp/lathe-experts-XXXXXX";
    for (int copies = 0; copies < 2; copies++) {
        lathe_safetensors *set = NULL;
        if (copies == 0)
            make_fused(dir);
        OK(lathe_safetensors_open(dir, &set));
        OK(lathe_expert_tensors_join(&set, copies));
        cr_assert_eq(lathe_safetensors_count(set), 7);
        check_projection(set, "l.experts.gate_proj.weight", 0);
        check_projection(set, "l.experts.up_proj.weight", 10);
        const lathe_st_tensor *down = lathe_safetensors_find(set, "l.experts.down_proj.weight");
        float last[2];
        cr_assert(down);
        cr_assert(down->desc.dims[0] == E * 5 && down->desc.dims[1] == 2);
        cr_assert_eq(down->decode == NULL, copies);
        OK(lathe_st_read(down, E * 10 - 2, 2, last, LATHE_F32));
        cr_assert_eq(last[1], 1000.0f + E * 10 - 1);
        cr_assert_null(lathe_safetensors_find(set, "l.experts.gate_up_proj"));
        cr_assert(lathe_safetensors_find(set, "m.experts.gate_up_proj"));
        cr_assert(lathe_safetensors_find(set, "m.experts.down_proj"));
        cr_assert(lathe_safetensors_find(set, "mtp.experts.gate_up_proj"));
        lathe_safetensors_close(set);
    }
}

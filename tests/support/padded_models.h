/* Folders of models with one tokenizer of 64 tokens and embeddings that are filled up to different
 * numbers of rows: `model` (128; of MODELS), `more` (150) and `fewer` (100) of
 * tests/golden/distill.py.
 */
#ifndef LATHE_TEST_PADDED_MODELS_H
#define LATHE_TEST_PADDED_MODELS_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define PADDED_DATA LATHE_TEST_DATA "/golden/data/"

static inline void padded_model_link(const char *root, const char *name, const char *from)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    char target[512], link[512];
    (void)snprintf(link, sizeof link, "%s/%s", root, name);
    cr_assert_eq(mkdir(link, 0700), 0, "%s", link);
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(target, sizeof target, PADDED_DATA "%s/%s", from, files[i]);
        (void)snprintf(link, sizeof link, "%s/%s/%s", root, name, files[i]);
        cr_assert_eq(symlink(target, link), 0, "%s", link);
    }
    (void)snprintf(link, sizeof link, "%s/%s/tokenizer.json", root, name);
    cr_assert_eq(symlink(PADDED_DATA "tokenizer/tiny_64.json", link), 0, "%s", link);
}

/* Makes the three folders in a new one, whose name replaces the XXXXXX of `root`. model: a folder
 * of MODELS with 128 rows. */
static inline void padded_models_make(char *root, const char *model)
{
    char from[256];
    cr_assert(mkdtemp(root), "%s", root);
    (void)snprintf(from, sizeof from, "models/%s", model);
    padded_model_link(root, "model", from);
    padded_model_link(root, "more", "distill_teachers/more");
    padded_model_link(root, "fewer", "distill_teachers/fewer");
}

#endif

/* Finds the tiny models of tests/golden/data/models that have golden values of transformers, so
 * that a new family's folder is tested without changing a test. */
#ifndef LATHE_TEST_GOLDEN_FOLDERS_H
#define LATHE_TEST_GOLDEN_FOLDERS_H

#include <criterion/criterion.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

enum { GOLDEN_FOLDERS_LEAST = 17, GOLDEN_FOLDERS_MAX = 128 };

typedef struct golden_folders {
    char names[GOLDEN_FOLDERS_MAX][64];
    int n;
} golden_folders;

/* Every folder with golden.safetensors, by name. */
static inline void golden_folders_find(golden_folders *f)
{
    static const char root[] = LATHE_TEST_DATA "/golden/data/models/";
    glob_t found;
    f->n = 0;
    cr_assert_eq(glob(LATHE_TEST_DATA "/golden/data/models/*/golden.safetensors", 0, NULL, &found),
                 0);
    cr_assert(found.gl_pathc >= GOLDEN_FOLDERS_LEAST && found.gl_pathc <= GOLDEN_FOLDERS_MAX,
              "%zu folders", found.gl_pathc);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *name = found.gl_pathv[i] + strlen(root);
        snprintf(f->names[f->n++], sizeof f->names[0], "%.*s", (int)strcspn(name, "/"), name);
    }
    globfree(&found);
}

#endif

/* The built-in families, for tests that read configurations without a run. */
#ifndef LATHE_TEST_FAMILY_SOURCE_H
#define LATHE_TEST_FAMILY_SOURCE_H

#include <criterion/criterion.h>

#include "base/error.h"
#include "model/family/hf_config.h"

/** One registry for the duration of the test. */
static inline const lathe_model_source *family_source(void)
{
    static lathe_model_source source;
    if (source.registry == NULL)
        cr_assert_eq(lathe_registry_create(&source.registry), LATHE_OK, "%s",
                     lathe_error_message());
    return &source;
}

#endif

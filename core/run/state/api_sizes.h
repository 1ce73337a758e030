/* Sizes of the C API's structs in their first header (lathe/lathe.h). A caller's struct may not
 * be shorter. These numbers do not change when a struct grows. */
#ifndef LATHE_RUN_API_SIZES_H
#define LATHE_RUN_API_SIZES_H

enum {
    LATHE_LEAST_BATCH = 48,
    LATHE_LEAST_FORWARD = 40,
    LATHE_LEAST_BACKWARD = 16,
    LATHE_LEAST_STEP = 64,
    LATHE_LEAST_SAMPLING = 64,
    LATHE_LEAST_GENERATION = 40,
    LATHE_LEAST_PROMPT = 32
};

#endif

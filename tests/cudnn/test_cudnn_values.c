/* The values that the cudnn backend declares itself, compared with NVIDIA's headers where
 * available. */
#include <criterion/criterion.h>

#if __has_include(<cudnn_graph.h>) && __has_include(<cuda_runtime_api.h>)
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cudnn_graph.h>

Test(cudnn_values, are_those_of_the_headers)
{
    static const struct {
        const char *name;
        long ours, theirs;
    } values[] = {
#define X(name, value) {#name, value, (long)name},
#include "cudnn_values.inc"
#undef X
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        cr_assert(values[i].ours == values[i].theirs, "%s is %ld, not %ld", values[i].name,
                  values[i].theirs, values[i].ours);
    cr_assert(sizeof(cudnnBackendAttributeName_t) == sizeof(int));
    cr_assert(sizeof(cudnnBackendDescriptor_t) == sizeof(void *));
}
#else
Test(cudnn_values, are_those_of_the_headers)
{
    cr_skip_test("cuDNN's headers are not here");
}
#endif

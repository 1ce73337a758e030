/* libFuzzer target: any bytes as a CSV dataset. */
#include "fuzz/fuzz_dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_dataset(LATHE_DATASET_CSV, "csv", data, size);
}

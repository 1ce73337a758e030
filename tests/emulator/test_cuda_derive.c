/* Every derivative rule against central differences on the CUDA device: the cases of the CPU's
 * test. */
#define FIXTURE_GPU 1
#include "test_derive.c"

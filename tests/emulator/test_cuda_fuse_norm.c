/* Norms and the sums in front of them on the CUDA device: the cases of the CPU's test. */
#define FIXTURE_GPU 1
#include "test_fuse_norm.c"

/* Norms fused with the sums before them, on the CUDA device: the cases of the CPU's test. */
#define FIXTURE_GPU 1
#include "test_fuse_norm.c"

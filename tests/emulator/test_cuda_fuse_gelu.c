/* GELU fused with its neighbours, on the CUDA device: the cases of the CPU's test. */
#define FIXTURE_GPU 1
#include "test_fuse_gelu.c"

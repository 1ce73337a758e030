/* Gradients of whole graphs on the CUDA device: the cases of the CPU's test. */
#define FIXTURE_GPU 1
#include "test_derive_graphs.c"

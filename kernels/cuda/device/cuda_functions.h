/* The functions of the CUDA device's table that have files of their own. */
#ifndef LATHE_CUDA_FUNCTIONS_H
#define LATHE_CUDA_FUNCTIONS_H

#include "base/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Fitness. 0, with the reason, if there is no driver, no device or no code for its
 *  architecture. */
int32_t cuda_score(char *why, int64_t why_bytes);
/** Whether this build has code for compute capability `arch` (10 * major + minor). */
int32_t cuda_has_code_for(int32_t arch);

lathe_status cuda_stream_create(void *self, lathe_stream **out);
void cuda_stream_destroy(void *self, lathe_stream *stream);
lathe_status cuda_event_record(void *self, lathe_stream *stream, lathe_event **io_event);
lathe_status cuda_event_stamp(void *self, lathe_stream *stream, lathe_event **io_event);
lathe_status cuda_event_seconds(void *self, lathe_event *from, lathe_event *to,
                                double *out_seconds);
lathe_status cuda_event_wait(void *self, lathe_stream *stream, lathe_event *event);
void cuda_event_destroy(void *self, lathe_event *event);

lathe_status cuda_capture_begin(void *self, lathe_stream *stream);
lathe_status cuda_capture_end(void *self, lathe_stream *stream, lathe_capture **out);
lathe_status cuda_capture_launch(void *self, lathe_capture *capture, lathe_stream *stream);
void cuda_capture_destroy(void *self, lathe_capture *capture);

/** Creates the table of loaded images; destroy takes NULL. */
lathe_status cuda_images_create(const lathe_host *host, cuda_images **out);
void cuda_images_destroy(const lathe_host *host, cuda_images *images);
/** lathe_device_v1.launch: runs kernel `name` of a plugin's embedded code, with one struct by
 *  value. */
lathe_status cuda_launch_image(void *self, lathe_stream *stream, const void *image,
                               const char *name, int64_t n_blocks, int32_t n_threads,
                               const void *args, int64_t args_bytes);

lathe_status cuda_kernel_create(void *self, const lathe_kernel_problem *problem, lathe_kernel **out,
                                int64_t *out_scratch_bytes);
void cuda_kernel_destroy(void *self, lathe_kernel *kernel);
lathe_status cuda_kernel_run(void *self, lathe_kernel *kernel, const lathe_kernel_args *args);

#ifdef __cplusplus
}
#endif

#endif

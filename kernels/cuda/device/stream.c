/* Streams, events between them, and captured steps: a CUDA graph that is launched as a whole. */
#include "device/cuda_functions.h"

lathe_status cuda_stream_create(void *self, lathe_stream **out)
{
    const cuda_device *device = self;
    cudaStream_t stream = NULL;
    LATHE_TRY(cuda_status(device->host, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                          "a stream"));
    *out = (lathe_stream *)stream;
    return LATHE_OK;
}

void cuda_stream_destroy(void *self, lathe_stream *stream)
{
    (void)self;
    if (stream != NULL)
        (void)cudaStreamDestroy((cudaStream_t)stream);
}

lathe_status cuda_event_record(void *self, lathe_stream *stream, lathe_event **io_event)
{
    const cuda_device *device = self;
    if (*io_event == NULL) {
        cudaEvent_t event = NULL;
        LATHE_TRY(cuda_status(
            device->host, cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event"));
        *io_event = (lathe_event *)event;
    }
    return cuda_status(device->host, cudaEventRecord((cudaEvent_t)*io_event, cuda_stream(stream)),
                       "recording an event");
}

/* An event with timing costs the driver a little more, so only events that are asked for it have
 * it. */
lathe_status cuda_event_stamp(void *self, lathe_stream *stream, lathe_event **io_event)
{
    const cuda_device *device = self;
    if (*io_event == NULL) {
        cudaEvent_t event = NULL;
        LATHE_TRY(cuda_status(device->host, cudaEventCreateWithFlags(&event, cudaEventDefault),
                              "an event with a time"));
        *io_event = (lathe_event *)event;
    }
    return cuda_event_record(self, stream, io_event);
}

lathe_status cuda_event_seconds(void *self, lathe_event *from, lathe_event *to, double *out_seconds)
{
    const cuda_device *device = self;
    float ms = 0.0f;
    const cudaError_t code = cudaEventElapsedTime(&ms, (cudaEvent_t)from, (cudaEvent_t)to);
    if (code == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return lathe_fail(device->host, LATHE_E_STATE,
                          "the time of an event that is still to come");
    }
    *out_seconds = 1e-3 * (double)ms;
    return cuda_status(device->host, code, "the time between two events");
}

lathe_status cuda_event_wait(void *self, lathe_stream *stream, lathe_event *event)
{
    const cuda_device *device = self;
    return cuda_status(device->host,
                       cudaStreamWaitEvent(cuda_stream(stream), (cudaEvent_t)event, 0),
                       "waiting for an event");
}

void cuda_event_destroy(void *self, lathe_event *event)
{
    (void)self;
    if (event != NULL)
        (void)cudaEventDestroy((cudaEvent_t)event);
}

/* Other threads may allocate and copy while this thread captures its stream. */
lathe_status cuda_capture_begin(void *self, lathe_stream *stream)
{
    const cuda_device *device = self;
    return cuda_status(
        device->host, cudaStreamBeginCapture(cuda_stream(stream), cudaStreamCaptureModeThreadLocal),
        "beginning to capture the step");
}

lathe_status cuda_capture_end(void *self, lathe_stream *stream, lathe_capture **out)
{
    const cuda_device *device = self;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    LATHE_TRY(cuda_status(device->host, cudaStreamEndCapture(cuda_stream(stream), &graph),
                          "capturing the step"));
    const lathe_status status = cuda_status(device->host, cudaGraphInstantiate(&exec, graph, 0),
                                            "preparing the captured step");
    (void)cudaGraphDestroy(graph);
    *out = (lathe_capture *)exec;
    return status;
}

lathe_status cuda_capture_launch(void *self, lathe_capture *capture, lathe_stream *stream)
{
    const cuda_device *device = self;
    return cuda_status(device->host, cudaGraphLaunch((cudaGraphExec_t)capture, cuda_stream(stream)),
                       "launching the captured step");
}

void cuda_capture_destroy(void *self, lathe_capture *capture)
{
    (void)self;
    if (capture != NULL)
        (void)cudaGraphExecDestroy((cudaGraphExec_t)capture);
}

/* An emulated libcudnn.so.9: the descriptors of its graph API, and engines that evaluate those
 * graphs.
 *
 * It enforces the documentation: attributes of the right type and number, finalized before use;
 * 16-byte alignment of tensors that promise it; a workspace that belongs to one run. Its first
 * proposal for a graph adds in no fixed order and only runs a backward that gathers dq in memory,
 * which needs no dS; the next one runs any. Like NVIDIA's, it has no backward for head sizes above
 * 128 or with documents' starts except on sm_90, and in a fixed order on sm_10x only engine 5 with
 * its knobs. LATHE_EMULATOR may contain "cudnn=91900", the version.
 */
#include "emulator_cudnn.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include <cuda_runtime_api.h>

namespace emulator
{
cudaError_t queue(cudaStream_t stream, std::function<void()> work);
}

namespace
{

using namespace emulated_cudnn;

constexpr int64_t WORKSPACE = 256; /* size for every run, and its alignment */
constexpr int64_t UNORDERED = 100, ORDERED = 101, BLACKWELL = 5; /* numbers of engines */

struct value {
    int32_t type;
    int64_t count;
    std::vector<char> bytes;
};

struct descriptor {
    int32_t type;
    bool is_final = false;
    std::map<int32_t, value> attributes;
    std::shared_ptr<graph> ops; /* of a graph, and of what is made from it */
    int64_t engine = 0;
};

struct context {
    void *stream = nullptr;
};

std::string last_error;

cudnnStatus_t fail(cudnnStatus_t status, const std::string &why)
{
    last_error = why;
    return status;
}

/* A rule for an attribute: its type, minimum and maximum number of elements; minimum 0:
 * optional. */
struct rule {
    int32_t descriptor, attribute, type, least, most;
};

#define D(name) CUDNN_BACKEND_##name##_DESCRIPTOR
#define REF CUDNN_TYPE_BACKEND_DESCRIPTOR
const rule rules[] = {
    {D(TENSOR), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 1},
    {D(TENSOR), CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {D(TENSOR), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, 4},
    {D(TENSOR), CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, 4},
    {D(TENSOR), CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 1},
    {D(TENSOR), CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 0, 1},
    {D(TENSOR), CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 0, 1},
    {D(POINTWISE), CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, 1},
    {D(POINTWISE), CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {D(POINTWISE), CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 0, 1},
    {D(MATMUL), CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {D(REDUCTION), CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, 1},
    {D(REDUCTION), CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {D(OPERATION_POINTWISE), CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, REF, 1, 1},
    {D(OPERATION_POINTWISE), CUDNN_ATTR_OPERATION_POINTWISE_XDESC, REF, 1, 1},
    {D(OPERATION_POINTWISE), CUDNN_ATTR_OPERATION_POINTWISE_BDESC, REF, 0, 1},
    {D(OPERATION_POINTWISE), CUDNN_ATTR_OPERATION_POINTWISE_TDESC, REF, 0, 1},
    {D(OPERATION_POINTWISE), CUDNN_ATTR_OPERATION_POINTWISE_YDESC, REF, 1, 1},
    {D(OPERATION_MATMUL), CUDNN_ATTR_OPERATION_MATMUL_DESC, REF, 1, 1},
    {D(OPERATION_MATMUL), CUDNN_ATTR_OPERATION_MATMUL_ADESC, REF, 1, 1},
    {D(OPERATION_MATMUL), CUDNN_ATTR_OPERATION_MATMUL_BDESC, REF, 1, 1},
    {D(OPERATION_MATMUL), CUDNN_ATTR_OPERATION_MATMUL_CDESC, REF, 1, 1},
    {D(OPERATION_REDUCTION), CUDNN_ATTR_OPERATION_REDUCTION_DESC, REF, 1, 1},
    {D(OPERATION_REDUCTION), CUDNN_ATTR_OPERATION_REDUCTION_XDESC, REF, 1, 1},
    {D(OPERATION_REDUCTION), CUDNN_ATTR_OPERATION_REDUCTION_YDESC, REF, 1, 1},
    {D(OPERATION_RESHAPE), CUDNN_ATTR_OPERATION_RESHAPE_XDESC, REF, 1, 1},
    {D(OPERATION_RESHAPE), CUDNN_ATTR_OPERATION_RESHAPE_YDESC, REF, 1, 1},
    {D(OPERATIONGRAPH), CUDNN_ATTR_OPERATIONGRAPH_OPS, REF, 1, 64},
    {D(OPERATIONGRAPH), CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 1},
    {D(ENGINEHEUR), CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, REF, 1, 1},
    {D(ENGINEHEUR), CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1},
    {D(ENGINE), CUDNN_ATTR_ENGINE_OPERATION_GRAPH, REF, 1, 1},
    {D(ENGINE), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, 1},
    {D(KNOB_CHOICE), CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, 1},
    {D(KNOB_CHOICE), CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, 1},
    {D(ENGINECFG), CUDNN_ATTR_ENGINECFG_ENGINE, REF, 1, 1},
    {D(ENGINECFG), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, REF, 0, 8},
    {D(EXECUTION_PLAN), CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 1},
    {D(EXECUTION_PLAN), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, REF, 1, 1},
    {D(VARIANT_PACK), CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1, 64},
    {D(VARIANT_PACK), CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, 64},
    {D(VARIANT_PACK), CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 1},
};

const rule *rule_of(int32_t descriptor, int32_t attribute)
{
    for (const rule &r : rules)
        if (r.descriptor == descriptor && r.attribute == attribute)
            return &r;
    return nullptr;
}

int64_t size_of(int32_t type)
{
    return type == CUDNN_TYPE_BOOLEAN ? 1
           : type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR || type == CUDNN_TYPE_HANDLE ||
                   type == CUDNN_TYPE_BACKEND_DESCRIPTOR
               ? 8
               : 4;
}

template <typename T> T get(const descriptor *d, int32_t attribute, int64_t i = 0)
{
    T out{};
    const auto found = d->attributes.find(attribute);
    if (found != d->attributes.end() && i < found->second.count)
        memcpy(&out, found->second.bytes.data() + i * (int64_t)sizeof out, sizeof out);
    return out;
}

const descriptor *ref(const descriptor *d, int32_t attribute, int64_t i = 0)
{
    return get<const descriptor *>(d, attribute, i);
}

int64_t count(const descriptor *d, int32_t attribute)
{
    const auto found = d->attributes.find(attribute);
    return found == d->attributes.end() ? 0 : found->second.count;
}

/* ---- graphs ---- */

/* The uid of a tensor that an operation names, after adding it to the graph; 0: none. */
int64_t join(graph &g, const descriptor *op, int32_t attribute)
{
    const descriptor *d = ref(op, attribute);
    if (d == nullptr)
        return 0;
    tensor t{};
    t.uid = get<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t.type = get<int32_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE);
    t.alignment = get<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    t.is_virtual = get<bool>(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    t.is_number = get<bool>(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    for (int i = 0; i < 4; i++) {
        t.dims[i] = get<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS, i);
        t.strides[i] = get<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES, i);
    }
    g.tensors[t.uid] = t;
    return t.uid;
}

void add(graph &g, const descriptor *d)
{
    operation op{};
    if (d->type == D(OPERATION_POINTWISE)) {
        const descriptor *what = ref(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        op = {kind::pointwise,
              get<int32_t>(what, CUDNN_ATTR_POINTWISE_MODE),
              get<int64_t>(what, CUDNN_ATTR_POINTWISE_AXIS),
              join(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
              join(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
              join(g, d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC),
              join(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC)};
    } else if (d->type == D(OPERATION_MATMUL)) {
        op = {kind::matmul,
              0,
              0,
              join(g, d, CUDNN_ATTR_OPERATION_MATMUL_ADESC),
              join(g, d, CUDNN_ATTR_OPERATION_MATMUL_BDESC),
              0,
              join(g, d, CUDNN_ATTR_OPERATION_MATMUL_CDESC)};
    } else if (d->type == D(OPERATION_REDUCTION)) {
        op = {kind::reduction,
              get<int32_t>(ref(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC),
                           CUDNN_ATTR_REDUCTION_OPERATOR),
              0,
              join(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
              0,
              0,
              join(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC)};
    } else {
        op = {kind::reshape,
              0,
              0,
              join(g, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
              0,
              0,
              join(g, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC)};
    }
    g.ops.push_back(op);
}

/* Recognises a backward: only it transposes scores. */
bool is_backward(const graph &g)
{
    for (const operation &op : g.ops)
        if (op.what == kind::reshape)
            return true;
    return false;
}

/* Recognises a backward that gathers dq in f32 and then copies it. */
bool is_gathered(const graph &g)
{
    return g.ops.back().what == kind::pointwise && g.ops.back().mode == CUDNN_POINTWISE_IDENTITY;
}

/* Whether a bound per query is compared with: an int32 column in memory. */
bool has_starts(const graph &g)
{
    for (const auto &entry : g.tensors)
        if (!entry.second.is_virtual && entry.second.type == CUDNN_DATA_INT32 &&
            entry.second.dims[3] == 1)
            return true;
    return false;
}

int64_t head_size(const graph &g)
{
    return g.tensors.at(g.ops.back().y).dims[3];
}

/* Like the real library: a backward stores dS, which has the size of the scores, unless it gathers
 * dq. */
int64_t workspace_of(const graph &g)
{
    int64_t scores = 0;
    for (const auto &entry : g.tensors)
        if (entry.second.is_virtual && entry.second.count() > scores)
            scores = entry.second.count();
    return WORKSPACE + (is_backward(g) && !is_gathered(g) ? 2 * scores : 0);
}

int arch()
{
    cudaDeviceProp p;
    return cudaGetDeviceProperties(&p, 0) == cudaSuccess ? 10 * p.major + p.minor : 0;
}

/* ---- finalization ---- */

cudnnStatus_t finish_graph(descriptor *d)
{
    d->ops = std::make_shared<graph>();
    for (int64_t i = 0; i < count(d, CUDNN_ATTR_OPERATIONGRAPH_OPS); i++)
        add(*d->ops, ref(d, CUDNN_ATTR_OPERATIONGRAPH_OPS, i));
    if (!is_sound(*d->ops))
        return fail(CUDNN_STATUS_BAD_PARAM, "the graph's operations do not fit together");
    return CUDNN_STATUS_SUCCESS;
}

/* The knobs without which engine 5 adds in any order. */
bool has_knobs(const descriptor *config)
{
    int64_t found = 0;
    for (int64_t i = 0; i < count(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES); i++) {
        const descriptor *knob = ref(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, i);
        const int32_t type = get<int32_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
        const int64_t v = get<int64_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
        found += (type == CUDNN_KNOB_TYPE_KERNEL_CFG && v == 31) ||
                 (type == CUDNN_KNOB_TYPE_STAGES && v == 2);
    }
    return found == 2;
}

cudnnStatus_t finish_plan(descriptor *d)
{
    const descriptor *config = ref(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG),
                     *named = ref(config, CUDNN_ATTR_ENGINECFG_ENGINE),
                     *engine = named != nullptr ? named : config; /* a proposal is its own engine */
    d->ops = engine->ops;
    d->engine = engine->engine;
    if (is_backward(*d->ops) && head_size(*d->ops) > 128 && arch() != 90)
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "a backward for heads above 128 is for sm_90");
    if (is_backward(*d->ops) && has_starts(*d->ops) && arch() != 90)
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "a backward with starts is for sm_90");
    if (d->engine == BLACKWELL && (arch() / 10 != 10 || !has_knobs(config)))
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "engine 5 is for sm_10x, with its knobs");
    if (d->engine == ORDERED && is_backward(*d->ops) && arch() / 10 == 10)
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "no backward of fixed order");
    return CUDNN_STATUS_SUCCESS;
}

void set_engine(descriptor *engine, int64_t index, const std::shared_ptr<graph> &ops)
{
    engine->engine = index;
    engine->ops = ops;
    engine->is_final = true;
}

/* Fills in descriptors that belong to the caller. */
cudnnStatus_t give_results(const descriptor *d, int64_t wanted, int64_t *out_n, void *out)
{
    static const int64_t engines[] = {UNORDERED, ORDERED};
    const std::shared_ptr<graph> ops = ref(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->ops;
    *out_n = wanted < 2 ? wanted : 2;
    for (int64_t i = 0; i < *out_n; i++) {
        descriptor *config = ((descriptor **)out)[i];
        if (config == nullptr || config->type != D(ENGINECFG) || config->is_final)
            return fail(CUDNN_STATUS_BAD_PARAM, "results need configurations to fill in");
        config->engine = engines[i];
        config->ops = ops;
        config->is_final = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

extern "C" {

size_t cudnnGetVersion(void)
{
    const char *text = getenv("LATHE_EMULATOR"),
               *at = text == nullptr ? nullptr : strstr(text, "cudnn=");
    return at == nullptr ? 91900 : strtoull(at + 6, nullptr, 10);
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS         ? "CUDNN_STATUS_SUCCESS"
           : status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
           : status == CUDNN_STATUS_BAD_PARAM     ? "CUDNN_STATUS_BAD_PARAM"
                                                  : "CUDNN_STATUS_OF_THE_EMULATOR";
}

void cudnnGetLastErrorString(char *message, size_t most)
{
    snprintf(message, most, "%s", last_error.c_str());
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
    *out = (cudnnHandle_t) new context;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    delete (context *)handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, void *stream)
{
    ((context *)handle)->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    auto *d = new descriptor;
    d->type = type;
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    delete (descriptor *)d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t to,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void *at)
{
    auto *d = (descriptor *)to;
    const rule *r = rule_of(d->type, name);
    if (d->is_final || r == nullptr || r->type != type || n < 1 || n > r->most)
        return fail(CUDNN_STATUS_BAD_PARAM, "attribute " + std::to_string(name));
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < n; i++)
            if (((descriptor *const *)at)[i] == nullptr || !((descriptor *const *)at)[i]->is_final)
                return fail(CUDNN_STATUS_BAD_PARAM,
                            "attribute " + std::to_string(name) + " is not finalized");
    d->attributes[name] = {
        type, n, std::vector<char>((const char *)at, (const char *)at + n * size_of(type))};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t from,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted,
                                       int64_t *out_n, void *out)
{
    const auto *d = (const descriptor *)from;
    if (!d->is_final)
        return fail(CUDNN_STATUS_BAD_PARAM, "not finalized");
    *out_n = 1;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return give_results(d, wanted, out_n, out);
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        const descriptor *engine = ref(d, CUDNN_ATTR_ENGINECFG_ENGINE);
        set_engine(*(descriptor **)out, engine ? engine->engine : d->engine,
                   engine ? engine->ops : d->ops);
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE) {
        *out_n = d->engine == UNORDERED;
        *(int32_t *)out = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        return CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64) {
        *(int64_t *)out = workspace_of(*d->ops);
        return CUDNN_STATUS_SUCCESS;
    }
    return fail(CUDNN_STATUS_BAD_PARAM, "attribute " + std::to_string(name));
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t what)
{
    auto *d = (descriptor *)what;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    for (const rule &r : rules)
        if (r.descriptor == d->type && count(d, r.attribute) < r.least)
            return fail(CUDNN_STATUS_BAD_PARAM,
                        "attribute " + std::to_string(r.attribute) + " is missing");
    if (d->type == D(OPERATIONGRAPH))
        status = finish_graph(d);
    else if (d->type == D(ENGINE))
        set_engine(d, get<int64_t>(d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX),
                   ref(d, CUDNN_ATTR_ENGINE_OPERATION_GRAPH)->ops);
    else if (d->type == D(EXECUTION_PLAN))
        status = finish_plan(d);
    d->is_final = status == CUDNN_STATUS_SUCCESS;
    return status;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    const auto *d = (const descriptor *)plan, *p = (const descriptor *)pack;
    void *workspace = get<void *>(p, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    const int64_t n = count(p, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS), bytes = workspace_of(*d->ops);
    if ((d->engine == UNORDERED && !is_gathered(*d->ops)) || !p->is_final ||
        n != count(p, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS))
        return fail(CUDNN_STATUS_BAD_PARAM, "this plan or pack does not run");
    if (workspace == nullptr || (uintptr_t)workspace % WORKSPACE != 0)
        return fail(CUDNN_STATUS_BAD_PARAM, "the workspace is not aligned");
    std::map<int64_t, void *> at;
    std::map<int64_t, float> numbers; /* in host memory, read during the call */
    for (int64_t i = 0; i < n; i++)
        at[get<int64_t>(p, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i)] =
            get<void *>(p, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
    for (const auto &entry : d->ops->tensors) {
        const tensor &t = entry.second;
        if (t.is_virtual)
            continue;
        if (at[t.uid] == nullptr || (uintptr_t)at[t.uid] % (uintptr_t)t.alignment != 0)
            return fail(CUDNN_STATUS_BAD_PARAM,
                        "tensor " + std::to_string(t.uid) + " is missing or not aligned");
        if (t.is_number)
            numbers[t.uid] = *(const float *)at[t.uid];
    }
    if ((int64_t)at.size() != n)
        return fail(CUDNN_STATUS_BAD_PARAM, "the pack lacks a tensor");
    const std::shared_ptr<graph> ops = d->ops;
    emulator::queue((cudaStream_t)((context *)handle)->stream, [=]() mutable {
        memset(workspace, 0xff, (size_t)bytes); /* the workspace belongs to the run */
        for (auto &entry : numbers)
            at[entry.first] = &entry.second;
        evaluate(*ops, at);
    });
    return CUDNN_STATUS_SUCCESS;
}

} // extern "C"

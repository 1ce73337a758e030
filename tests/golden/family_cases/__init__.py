"""Configurations of the families, one file for each; models.py, config_sweep.py and family_table.py read them.

    TYPE    model_type, for AutoConfig
    GOLDEN  {folder of data/models: (seed, keys)}       tiny models whose numbers the tests of this tree compare
    SIX     {description: keys}                         six odd configurations, compared live by family_table.py
    SWEEP   {model_type: keys}                          the model whose keys config_sweep.py edits
    OTHER   {key: values}                               values that config_sweep.py gives keys of this family
    UNEDITED  [key]                                     keys that config_sweep.py leaves alone, as transformers errs with them
    FUSED   True: files hold experts fused, as transformers keeps them in memory
    ATTENTION  attention of transformers with which the numbers are made; without it, eager
"""
import importlib
import pathlib


def families():
    """{name: module} of all files."""
    names = sorted(p.stem for p in pathlib.Path(__file__).parent.glob("*.py") if p.stem != "__init__")
    return {name: importlib.import_module(f"family_cases.{name}") for name in names}


def attention_of(kind):
    """The attention of transformers for a model_type: eager, unless a file names another one."""
    return next((m.ATTENTION for m in families().values() if hasattr(m, "ATTENTION") and kind == m.TYPE), "eager")


def is_fused(kind):
    return any(getattr(m, "FUSED", False) and kind == m.TYPE for m in families().values())


def file_tensors(kind, name, tensor):
    """A tensor of named_parameters() of model_type `kind` under the names of files, without the number of the expert:
    transformers keeps the matrices of experts fused, [E,2F,C] and [E,C,F]; files have them one by one, but for Granite."""
    like_mixtral = kind in ("mixtral", "minimax_m2")
    names = ("w1", "w3", "w2") if like_mixtral else ("gate_proj", "up_proj", "down_proj")
    if like_mixtral:
        name = name.replace(".mlp.", ".block_sparse_moe.")
    if kind.startswith("granitemoe"):
        for ours, theirs in (("experts.gate_up_proj", "input_linear.weight"), ("experts.down_proj", "output_linear.weight"),
                             ("router.weight", "router.layer.weight")):
            name = name.replace(f"block_sparse_moe.{ours}", f"block_sparse_moe.{theirs}")
    stem, _, last = name.rpartition(".")
    if is_fused(kind):
        return [(name, tensor)]
    if last == "gate_up_proj" and tensor.dim() == 3:
        return [(f"{stem}.{n}.weight", half) for n, half in zip(names, tensor.chunk(2, 1))]
    if last == "down_proj" and tensor.dim() == 3:
        return [(f"{stem}.{names[2]}.weight", tensor)]
    return [(name, tensor)]


def each_file_tensor(kind, name, tensor):
    """As file_tensors, with a tensor for each expert."""
    for key, value in file_tensors(kind, name, tensor):
        if value.dim() < 3 or ".experts." not in key or is_fused(kind):  # a convolution's weight has three dimensions, too
            yield key, value
            continue
        for e in range(value.shape[0]):
            yield key.replace(".experts.", f".experts.{e}."), value[e]


# ---- shapes and rotary settings that several files share ----

TINY = dict(vocab_size=64, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=64, bos_token_id=1, eos_token_id=2)
SWEPT = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0, initializer_range=0.3,
             tie_word_embeddings=False, hidden_act="silu", rope_theta=10000.0, rope_scaling=None)
FULL, SLIDING = "full_attention", "sliding_attention"
DEFAULT = dict(rope_type="default", rope_theta=300.0)
LINEAR = dict(rope_type="linear", rope_theta=1000.0, factor=3.0)
DYNAMIC = dict(rope_type="dynamic", rope_theta=100.0, factor=4.0)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)


def longrope(rotated):
    """Settings of longrope for so many rotated channels of a head; rows of more than 16 tokens take the long factors."""
    n = rotated // 2
    return dict(rope_type="longrope", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16,
                short_factor=[1.0 + 0.1 * i for i in range(n)], long_factor=[1.5 + i for i in range(n)])

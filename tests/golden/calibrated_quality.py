#!/usr/bin/env python3
"""Compares the folders that Lathe and other programs make with GPTQ and AWQ: the errors of outputs, and the perplexity.

    python tests/golden/calibrated_quality.py shorten MODEL OUT LAYERS
    python tests/golden/calibrated_quality.py make LIBRARY MODEL TEXT OUT [--rows 128] [--group 64] [--asymmetric]
    python tests/golden/calibrated_quality.py compare MODEL TEXT OURS THEIRS [--rows 16] [--lathe LATHE]

`shorten` writes a folder with the first LAYERS layers alone, for programs that take minutes for one. `make` lets LIBRARY write the folder OUT with 4 bits, calibrated on the first rows of 512 tokens of TEXT (in a Python that has it):
  gptq      GPTQModel's GPTQ with its defaults (GPTQMODEL_CPU_WORKERS=2 on two processors)
  gptq-awq  GPTQModel's AWQ
  autoawq   AutoAWQ 0.2.9 (it needs transformers 4.51), with a mistake mended that shows on CPUs alone (keep_weights)
`compare` decodes both folders here, from the layouts of GPTQ and AWQ, and gives each linear layer, and each attention and MLP with the
norm before it, the inputs that it has in MODEL for rows of TEXT, a text that nobody was calibrated on. It prints the geometric mean
over the layers of OURS' mean squared error of the output over that of THEIRS, and exits with 1 if it is above 1.01. AWQ moves scales into
the ops before a layer, so only whole attentions and MLPs are compared for it. --lathe adds the perplexities of `lathe eval`.
"""
import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

T, MOST = 512, 1.01
AWQ_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]  # nibble of output 0 to 7 in a word


def rows_of(model, text, n):
    ids = Tokenizer.from_file(str(pathlib.Path(model, "tokenizer.json"))).encode(pathlib.Path(text).read_text()).ids
    if len(ids) < n * T:
        raise SystemExit(f"{text}: {len(ids)} tokens, and {n} rows of {T} are wanted")
    return [ids[i * T : (i + 1) * T] for i in range(n)]


def shorten(args):
    state = {k: v for f in sorted(args.model.glob("*.safetensors")) for k, v in load_file(f).items()
             if not k.startswith("model.layers.") or int(k.split(".")[2]) < args.layers}
    config = json.loads((args.model / "config.json").read_text())
    args.out.mkdir()
    save_file(state, args.out / "model.safetensors", metadata={"format": "pt"})
    (args.out / "config.json").write_text(json.dumps(config | {"num_hidden_layers": args.layers}))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(args.model / name, args.out)


def older(model, folder):
    """The folder of a model as transformers 4 reads it, which has other keys for the rotary embedding and the dtype."""
    config = json.loads(pathlib.Path(model, "config.json").read_text())
    config.update(rope_theta=config.pop("rope_parameters")["rope_theta"], torch_dtype=config.pop("dtype"))
    (folder / "config.json").write_text(json.dumps(config))
    for file in pathlib.Path(model).glob("*.safetensors"):
        (folder / file.name).symlink_to(file.resolve())
    return str(folder)


def keep_weights():
    """AutoAWQ restores the weights of a layer from state_dict(), whose tensors it has scaled in place where they lie on the CPU."""
    from awq.quantize.quantizer import AwqQuantizer
    search = AwqQuantizer._compute_best_scale

    def with_copies(self, x, w_mean, x_mean, module, *rest):
        own = module.state_dict
        module.state_dict = lambda: {k: v.clone() for k, v in own().items()}
        try:
            return search(self, x, w_mean, x_mean, module, *rest)
        finally:
            del module.state_dict

    AwqQuantizer._compute_best_scale = with_copies


def make(args):
    rows = rows_of(args.model, args.text, args.rows)
    if args.library == "autoawq":
        from awq import AutoAWQForCausalLM
        keep_weights()
        with tempfile.TemporaryDirectory() as work:
            folder = older(args.model, pathlib.Path(work))
            model = AutoAWQForCausalLM.from_pretrained(folder, device_map="cpu", torch_dtype=torch.float32, safetensors=True)
        model.quantize(None, quant_config={"w_bit": 4, "q_group_size": args.group, "zero_point": True, "version": "GEMM"},
                       calib_data=rows, max_calib_samples=args.rows, max_calib_seq_len=T)
        model.save_quantized(args.out)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(pathlib.Path(args.model, name), args.out)
        return
    import gptqmodel
    from gptqmodel.quantization.config import AWQConfig, GPTQConfig
    config = (GPTQConfig(bits=4, group_size=args.group, sym=not args.asymmetric) if args.library == "gptq" else
              AWQConfig(bits=4, group_size=args.group))
    model = gptqmodel.GPTQModel.load(args.model, config, device="cpu",
                                   dtype=torch.float32 if args.library == "gptq" else torch.bfloat16)
    model.quantize([{"input_ids": r, "attention_mask": [1] * T} for r in rows], batch_size=1)
    model.save(args.out)


# ---- decoding ----

def nibbles(words, dim):
    """Eight codes of each word, the lowest first, along `dim`."""
    out = (words.unsqueeze(dim + 1 if dim >= 0 else dim) >> (4 * torch.arange(8)).view(*([1] * (dim + 1)), 8, *([1] * (1 - dim)))) & 15
    return out.flatten(dim, dim + 1)


def weights_of(folder):
    """{name: f32} of a folder of GPTQ or AWQ with 4 bits; plain tensors as they are."""
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    state = {k: v for f in sorted(folder.glob("*.safetensors")) for k, v in load_file(f).items()}
    assert config.get("bits", config.get("w_bit")) == 4, config
    is_awq = config["quant_method"] == "awq"
    stored = 1 if not is_awq and config.get("checkpoint_format", "gptq") == "gptq" else 0
    out = {}
    for key, value in state.items():
        at = key.rpartition(".")[0]
        if key.endswith(".qweight"):
            zeros, scales = nibbles(state[at + ".qzeros"], 1) + stored, state[at + ".scales"].float()
            if is_awq:
                codes = nibbles(value, 1).unflatten(1, (-1, 8))[..., AWQ_ORDER].flatten(1)
                zeros = zeros.unflatten(1, (-1, 8))[..., AWQ_ORDER].flatten(1)
                groups = torch.arange(codes.shape[0]) // (codes.shape[0] // scales.shape[0])
            else:
                codes, groups = nibbles(value, 0), state[at + ".g_idx"].long()
            out[at + ".weight"] = ((codes - zeros[groups]).float() * scales[groups]).T.contiguous()
        elif not key.endswith((".qzeros", ".scales", ".g_idx")):
            out[key] = value.float()
    return out


def load(plain, weights):
    config = AutoConfig.from_pretrained(plain)
    config.dtype = torch.float32
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert set(missing) <= {"lm_head.weight"} and set(unexpected) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model


# ---- comparing ----

def compare(args):
    plain = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    models = [load(args.model, weights_of(f)) for f in (args.ours, args.theirs)]
    is_awq = any(json.loads((f / "config.json").read_text())["quantization_config"]["quant_method"] == "awq"
                 for f in (args.ours, args.theirs))
    errors = {}  # kind, name -> [ours, theirs, sum of squares of the output]

    def add(kind, name, outputs):
        e = errors.setdefault((kind, name), [0.0, 0.0, 0.0])
        want = outputs[0]
        for i, y in enumerate(outputs[1:]):
            e[i] += ((y - want).double() ** 2).sum().item()
        e[2] += (want.double() ** 2).sum().item()

    def linear(name, twins):
        def hook(module, inputs, output):
            x = inputs[0]
            add("linear layers", name, [output] + [torch.nn.functional.linear(x, t.weight, t.bias) for t in twins])
        return hook

    def block(name, kind, twins):
        """hook of a decoder layer's attention or MLP; kept: the input of the norm before."""
        def hook(module, inputs, keys, output):
            if kind == "mlp":
                add("attentions and MLPs", name, [output] + [t.mlp(t.post_attention_layernorm(kept["mlp"])) for t in twins])
                return
            keys = dict(keys)
            made = []
            for t in twins:
                keys["hidden_states"] = t.input_layernorm(kept["attention"])
                made.append(t.self_attn(**keys)[0])
            add("attentions and MLPs", name, [output[0]] + made)
        return hook

    kept, active = {}, []
    for i, layer in enumerate(plain.model.layers):
        twins = [m.model.layers[i] for m in models]
        layer.input_layernorm.register_forward_pre_hook(lambda m, x: kept.update(attention=x[0]))
        layer.post_attention_layernorm.register_forward_pre_hook(lambda m, x: kept.update(mlp=x[0]))
        active.append(layer.self_attn.register_forward_hook(block(f"{i}.attention", "attention", twins), with_kwargs=True))
        active.append(layer.mlp.register_forward_hook(block(f"{i}.mlp", "mlp", twins), with_kwargs=True))
        for name, module in layer.named_modules():
            if isinstance(module, torch.nn.Linear) and not is_awq:
                module.register_forward_hook(linear(f"{i}.{name}", [t.get_submodule(name) for t in twins]))
    with torch.no_grad():
        for row in rows_of(args.model, args.text, args.rows):
            plain.model(torch.tensor([row]), use_cache=False)
    good = True
    for kind in dict.fromkeys(k for k, _ in errors):
        of = [e for (k, _), e in errors.items() if k == kind]
        ratio = math.exp(sum(math.log(a / b) for a, b, _ in of) / len(of))
        relative = [math.exp(sum(math.log(e[i] / e[2]) for e in of) / len(of)) for i in range(2)]
        print(f"{len(of)} {kind}: mse over the mean square of the output {relative[0]:.4e} and {relative[1]:.4e}, ratio {ratio:.4f}; "
              f"largest of one {max(a / b for a, b, _ in of):.3f}", flush=True)
        good &= ratio <= MOST
    if args.lathe:
        for folder in (args.model, args.ours, args.theirs):
            with tempfile.TemporaryDirectory() as work:
                name = pathlib.Path(work, "text.txt")
                name.write_bytes(pathlib.Path(args.text).read_bytes())
                done = subprocess.run([args.lathe, "eval", str(folder), "--data", str(name), "--data.seq_len", str(T),
                                       "--train.precision", "bf16", "--json"], check=True, stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL)
            print(f"{folder}: {done.stdout.decode().strip()}")
    sys.exit(0 if good else f"an error of OURS is above {MOST} times that of THEIRS")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("shorten")
    p.add_argument("model", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("layers", type=int)
    p.set_defaults(run=shorten)
    p = commands.add_parser("make")
    p.add_argument("library", choices=["gptq", "gptq-awq", "autoawq"])
    p.add_argument("model")
    p.add_argument("text")
    p.add_argument("out")
    p.add_argument("--rows", type=int, default=128)
    p.add_argument("--group", type=int, default=64)
    p.add_argument("--asymmetric", action="store_true")
    p.set_defaults(run=make)
    p = commands.add_parser("compare")
    p.add_argument("model", type=pathlib.Path)
    p.add_argument("text")
    p.add_argument("ours", type=pathlib.Path)
    p.add_argument("theirs", type=pathlib.Path)
    p.add_argument("--rows", type=int, default=16)
    p.add_argument("--lathe")
    p.set_defaults(run=compare)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()

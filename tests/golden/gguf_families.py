#!/usr/bin/env python3
"""GGUF files of the tiny models of models.py, as llama.cpp's converter writes them and as `lathe convert` does: every tensor and every
key of the architecture.

    /path/to/python tests/golden/gguf_families.py LATHE LLAMA_CPP [MODEL ...]

LLAMA_CPP is a source tree of llama.cpp with conversion/ (that of llama-cpp-python 0.3.36 was used); its converter runs without a
tokenizer. Tensors must be equal in f32; keys that one file alone has, and values that differ, are printed. The converter itself refuses
cohere2 without rotary_pct, and settings of Hunyuan's rotary positions other than the published ones; it reads no rms_norm_eps of glm.
Exits with 1 if a tensor differs.
"""
import logging
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

DATA = pathlib.Path(__file__).parent / "data"
MODELS = ["smollm3", "granite", "cohere", "cohere2", "glm", "glm4", "gemma", "seed_oss", "hunyuan", "ernie4_5", "olmo3", "internlm3",
          "starcoder2", "stablelm", "stablelm_heads", "phi", "exaone4_global", "falcon", "falcon_new", "mpt", "bloom", "apertus",
          "mistral", "olmo2", "gemma2", "gemma3", "mixtral", "qwen2_moe", "qwen3_moe", "glm4_moe", "glm4_moe_groups"]


def by_llama_cpp(name, work):
    import gguf
    from conversion import ModelBase, get_model_class
    folder = work / "theirs"
    folder.mkdir()
    for file in ("config.json", "model.safetensors"):
        shutil.copy(DATA / "models" / name / file, folder)
    kind = get_model_class(ModelBase.load_hparams(folder, False)["architectures"][0])
    no_tokenizer = type(kind.__name__, (kind,), {"model_arch": kind.model_arch, "set_vocab": lambda self: None})
    no_tokenizer(folder, gguf.LlamaFileType.ALL_F32, work / "theirs.gguf", model_name=name).write()
    return work / "theirs.gguf"


def by_lathe(lathe, name, work):
    shutil.copytree(DATA / "models" / name, work / "mine")
    shutil.copy(DATA / "tokenizer" / "tiny_64.json", work / "mine" / "tokenizer.json")
    subprocess.run([lathe, "convert", work / "mine", "-o", work / "mine.gguf", "--type", "f32"], check=True, capture_output=True)
    return work / "mine.gguf"


def read(path):
    import gguf
    reader = gguf.GGUFReader(str(path))
    keys = {k: f.contents() for k, f in reader.fields.items() if not k.startswith(("GGUF.", "tokenizer.", "general."))}
    return keys, {t.name: (list(t.shape), gguf.quants.dequantize(t.data, t.tensor_type).reshape(-1)) for t in reader.tensors}


def compare(theirs, mine):
    differ = 0
    for key in sorted(set(theirs[0]) | set(mine[0])):
        a, b = theirs[0].get(key), mine[0].get(key)
        if a != b and not (isinstance(a, float) and isinstance(b, float) and abs(a - b) <= 1e-6 * abs(a)):
            print(f"    {key}: llama.cpp {a}, Lathe {b}")
    for name in sorted(set(theirs[1]) | set(mine[1])):
        a, b = theirs[1].get(name), mine[1].get(name)
        ulps = 2.0 ** -22 if name == "rope_freqs.weight" else 0.0  # computed, by llama.cpp in f32
        if a is None or b is None or a[0] != b[0] or not np.allclose(a[1], b[1], rtol=ulps, atol=0.0):
            print(f"    the tensor {name} differs")
            differ += 1
    return differ


def main():
    lathe, root = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    sys.path[:0] = [str(root / "gguf-py"), str(root)]
    logging.disable(logging.CRITICAL)
    differ = 0
    for name in sys.argv[3:] or MODELS:
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            try:
                theirs = by_llama_cpp(name, work)
            except Exception as error:  # whatever the converter raises
                print(f"{name}: the converter refuses it: {type(error).__name__}: {error}")
                continue
            print(name)
            differ += compare(read(theirs), read(by_lathe(lathe, name, work)))
    print("all tensors are equal" if differ == 0 else f"{differ} tensors differ")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()

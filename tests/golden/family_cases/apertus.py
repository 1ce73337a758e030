"""Configurations of Apertus; see family_cases/__init__.py."""
from family_cases import DEFAULT, DYNAMIC, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "apertus"
GOLDEN = {"apertus": (53, dict(TINY, hidden_size=32, rope_parameters=LLAMA3))}
SIX = {
    "grouped, llama3": dict(TINY, hidden_size=32, rope_parameters=LLAMA3),
    "one key head, biases, tied": dict(TINY, hidden_size=30, num_attention_heads=3, num_key_value_heads=1, attention_bias=True,
                                       tie_word_embeddings=True, rope_parameters=DEFAULT),
    "as many key heads, head size 10, linear": dict(TINY, head_dim=10, num_key_value_heads=4, rope_parameters=LINEAR),
    "three layers, large epsilon, yarn beside": dict(TINY, num_hidden_layers=3, rms_norm_eps=0.1, rope_scaling=YARN, rope_theta=500.0),
    "gelu instead of xIELU, the settings of the class": dict(TINY, hidden_act="gelu"),
    "one layer, dynamic, biases": dict(TINY, num_hidden_layers=1, attention_bias=True, rope_parameters=DYNAMIC),
}
SWEEP = {"apertus": dict({k: v for k, v in SWEPT.items() if not k.startswith("rope")}, hidden_act="xielu", attention_bias=False,
                         attention_dropout=0.0, rms_norm_eps=1e-6, rope_parameters=dict(LLAMA3))}
OTHER = {"hidden_act": ["xielu"]}

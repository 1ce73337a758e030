"""Configurations of Granite-MoE with a shared expert; see family_cases/__init__.py."""
from family_cases import LINEAR, LLAMA3, SWEPT, TINY, YARN
from family_cases.granitemoe import FOUR, MOE as WITHOUT

TYPE = "granitemoeshared"
MOE = dict(WITHOUT, shared_intermediate_size=20)
GOLDEN = {"granitemoeshared": (98, dict(MOE, **FOUR))}
SIX = {
    "one expert of three, a narrow shared one": dict(MOE, **FOUR, num_local_experts=3, num_experts_per_tok=1, shared_intermediate_size=3),
    "no shared expert, biases, tied": dict(MOE, shared_intermediate_size=0, attention_bias=True, tie_word_embeddings=True,
                                           attention_multiplier=0.05, logits_scaling=0.7),
    "all of four, linear, gelu": dict(MOE, num_local_experts=4, num_experts_per_tok=4, hidden_act="gelu", rope_parameters=LINEAR),
    "auxiliary loss, one key head, a wide shared expert": dict(MOE, **FOUR, output_router_logits=True, router_aux_loss_coef=0.7,
                                                               num_key_value_heads=1, shared_intermediate_size=70),
    "five layers, llama3, large epsilon": dict(MOE, num_hidden_layers=5, residual_multiplier=0.5, rms_norm_eps=0.1,
                                               rope_parameters=LLAMA3),
    "64 experts, as many key heads, yarn": dict(MOE, num_local_experts=64, num_experts_per_tok=8, intermediate_size=5,
                                                num_key_value_heads=4, rope_parameters=YARN),
}
SWEEP = {"granitemoeshared": dict(SWEPT, attention_bias=False, attention_dropout=0.0, rms_norm_eps=1e-6, embedding_multiplier=2.0,
                                  attention_multiplier=0.3, residual_multiplier=0.5, logits_scaling=2.0, num_local_experts=5,
                                  num_experts_per_tok=2, shared_intermediate_size=20, output_router_logits=False,
                                  router_aux_loss_coef=0.001)}
OTHER = {"shared_intermediate_size": [0, 8]}

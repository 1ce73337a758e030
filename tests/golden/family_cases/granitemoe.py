"""Configurations of Granite-MoE; see family_cases/__init__.py."""
from family_cases import DYNAMIC, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "granitemoe"
FOUR = dict(embedding_multiplier=12.0, attention_multiplier=0.3, residual_multiplier=0.22, logits_scaling=8.0)
MOE = dict(TINY, hidden_size=32, intermediate_size=12, num_local_experts=6, num_experts_per_tok=2)
GOLDEN = {"granitemoe": (97, dict(MOE, **FOUR, tie_word_embeddings=True, output_router_logits=True, router_aux_loss_coef=0.2))}
SIX = {
    "one expert of three": dict(MOE, **FOUR, num_local_experts=3, num_experts_per_tok=1),
    "all of four, biases, tied, logits above 1, linear": dict(MOE, num_local_experts=4, num_experts_per_tok=4, attention_bias=True,
                                                              tie_word_embeddings=True, embedding_multiplier=3,
                                                              attention_multiplier=0.05, residual_multiplier=1.5, logits_scaling=0.7,
                                                              rope_parameters=LINEAR),
    "narrow experts, auxiliary loss, one key head": dict(MOE, **FOUR, intermediate_size=3, output_router_logits=True,
                                                         router_aux_loss_coef=0.7, num_key_value_heads=1),
    "five layers, llama3, gelu": dict(MOE, num_hidden_layers=5, residual_multiplier=0.5, hidden_act="gelu_new", rope_parameters=LLAMA3),
    "64 experts, as many key heads, large epsilon, yarn": dict(MOE, num_local_experts=64, num_experts_per_tok=8, intermediate_size=5,
                                                              num_key_value_heads=4, rms_norm_eps=0.1, rope_scaling=YARN,
                                                              rope_theta=500.0),
    "one layer, dynamic, relu": dict(MOE, **FOUR, hidden_act="relu", rope_parameters=DYNAMIC, num_hidden_layers=1),
}
SWEEP = {"granitemoe": dict(SWEPT, attention_bias=False, attention_dropout=0.0, rms_norm_eps=1e-6, embedding_multiplier=2.0,
                            attention_multiplier=0.3, residual_multiplier=0.5, logits_scaling=2.0, num_local_experts=5,
                            num_experts_per_tok=2, output_router_logits=False, router_aux_loss_coef=0.001)}
OTHER = {}

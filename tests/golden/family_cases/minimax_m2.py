"""Configurations of MiniMax-M2; see family_cases/__init__.py."""
from family_cases import DEFAULT, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "minimax_m2"
MOE = dict(TINY, hidden_size=32, head_dim=8, num_local_experts=6, num_experts_per_tok=2)
GOLDEN = {"minimax_m2": (94, dict(MOE, rotary_dim=4, output_router_logits=True, router_aux_loss_coef=0.2))}
SIX = {
    "two of eight, heads of 12, half rotated, tied": dict(MOE, num_local_experts=8, head_dim=12, rotary_dim=6, tie_word_embeddings=True),
    "one expert of three, linear": dict(MOE, num_local_experts=3, num_experts_per_tok=1, rope_parameters=LINEAR),
    "all of three, gelu, auxiliary loss": dict(MOE, num_local_experts=3, num_experts_per_tok=3, hidden_act="gelu",
                                               output_router_logits=True, router_aux_loss_coef=0.5),
    "narrow experts, auxiliary loss, one key head": dict(MOE, intermediate_size=3, output_router_logits=True, router_aux_loss_coef=0.7,
                                                         num_key_value_heads=1),
    "five layers, llama3, large epsilon": dict(MOE, num_hidden_layers=5, rms_norm_eps=0.1, rope_parameters=LLAMA3),
    "64 experts, as many key heads, a quarter rotated, yarn": dict(MOE, num_local_experts=64, num_experts_per_tok=8, head_dim=16,
                                                                   intermediate_size=5, num_key_value_heads=4,
                                                                   rope_parameters=dict(YARN, partial_rotary_factor=0.25)),
}
SWEEP = {"minimax_m2": dict(SWEPT, head_dim=8, attention_dropout=0.0, rms_norm_eps=1e-6, rotary_dim=4, num_local_experts=5,
                            num_experts_per_tok=2, output_router_logits=False, router_aux_loss_coef=0.001, router_jitter_noise=0.0)}
OTHER = {"rotary_dim": [2, 8]}

/* moec import: what a family can switch, what is refused, what is left out with a remark, and that every model written
 * is one moec reads. */
#include "frontend/frontend.h"
#include "ir/interp.h"
#include "models/models.h"
#include "tests/unit/unit.h"

static const char *const families[] = {"mixtral", "qwen3_moe",  "deepseek_v2", "deepseek_v3",
                                       "gpt_oss", "minimax_m3", "qwen3_5_moe"};
enum { N_FAMILIES = sizeof families / sizeof *families, MAX_SETS = 8 };

/* Imports the reference configuration of |family| with random weights into |dir|/m.onnx. */
static moec_status *import(const char *family, const char *dir, size_t n, const char *const *sets, moec_buf *remarks) {
  char from[256], to[256];
  snprintf(from, sizeof from, "tests/data/%s", family);
  const moec_checkpoint_options o = {.output = unit_path(to, dir, "m.onnx"), .init = true, .seed = 3, .sets = sets,
      .n_sets = n};
  return moec_import_checkpoint(from, &o, remarks);
}

/* Reads the model back and runs it on a few tokens: finite logits. */
static void check_model(const char *dir, const char *what) {
  char path[256];
  moec_module *m = NULL;
  const moec_import_options o = {0};
  moec_tensor in[2], out;
  UNIT_OK(moec_import_onnx(unit_path(path, dir, "m.onnx"), &o, &m));
  for (int i = 0; i < 2; i++) {
    UNIT_OK(moec_tensor_init(&in[i], MOEC_I64, 2, (int64_t[]){2, 5}));
    for (int64_t k = 0; k < 10; k++) ((int64_t *)in[i].data)[k] = i ? k != 5 : 7 * k; /* the second row starts with a
                                                                                         gap */
  }
  UNIT_OK(moec_interp_run(m, (moec_fn){1}, in, 2, &out, 1, NULL));
  for (int64_t k = 0; k < moec_tensor_numel(&out); k++) {
    double v = moec_load_f64(out.dtype, out.data, (size_t)k);
    if (!(v > -1e3 && v < 1e3)) ck_abort_msg("%s: logit %lld is %g", what, (long long)k, v);
  }
  for (int i = 0; i < 2; i++) moec_tensor_fini(&in[i]);
  moec_tensor_fini(&out);
  moec_module_destroy(m);
}

START_TEST(random_weights_for_every_family) {
  static const char *const sets[] = {"num_hidden_layers=3"};
  char *dir = unit_folder();
  moec_buf remarks = {0};
  UNIT_OK(import(families[_i], dir, 1, sets, &remarks));
  ck_assert_str_eq(moec_buf_str(&remarks), "");
  check_model(dir, families[_i]);
  moec_buf_fini(&remarks);
  unit_remove(dir);
}
END_TEST

/* Settings that a family honours: the model is written, read and run. */
static const struct { const char *family, *sets[MAX_SETS]; } honoured[] = {
    {"mixtral", {"sliding_window=3"}},
    {"mixtral", {"tie_word_embeddings=true"}},
    {"mixtral", {"head_dim=null"}},
    {"mixtral", {"rope_parameters=null", "rope_theta=5000.0"}},
    {"mixtral", {"rope_parameters.rope_type=linear", "rope_parameters.factor=2"}},
    {"mixtral", {"rope_parameters={\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
                 "\"original_max_position_embeddings\":64}"}},
    {"mixtral", {"rope_parameters=null",
        "rope_scaling={\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":32}"}},
    {"mixtral", {"rope_parameters.partial_rotary_factor=0.5"}},
    {"qwen3_moe", {"norm_topk_prob=false", "attention_bias=true"}},
    {"gpt_oss", {"rope_parameters=null"}},
    {"minimax_m3", {"mlp_layer_types=null", "moe_layer_freq=[false,1,true]"}},
    {"minimax_m3", {"mlp_layer_types=null", "layer_types=null"}},
    {"minimax_m3", {"layer_types=null", "sparse_attention_config={\"sparse_attention_freq\":[0,1,1],"
                                        "\"sparse_block_size\":2,\"sparse_topk_blocks\":1}"}},
    {"minimax_m3", {"rope_parameters=null", "rope_theta=10000", "rotary_dim=4"}},
    {"qwen3_moe", {"decoder_sparse_step=2"}},
    {"qwen3_moe", {"mlp_only_layers=[0,2]"}},
    {"qwen3_moe", {"use_sliding_window=true", "sliding_window=2", "max_window_layers=1"}},
    {"qwen3_moe", {"use_sliding_window=true", "sliding_window=2",
        "layer_types=[\"full_attention\",\"sliding_attention\",\"full_attention\"]"}},
    {"qwen3_moe", {"model_type=qwen2_moe", "shared_expert_intermediate_size=24"}},
    {"qwen3_moe", {"model_type=qwen2_moe", "shared_expert_intermediate_size=24", "qkv_bias=false"}},
    {"deepseek_v2", {"topk_method=greedy"}},
    {"deepseek_v2", {"q_lora_rank=null", "n_shared_experts=null", "first_k_dense_replace=3"}},
    {"deepseek_v2", {"attention_bias=true"}},
    {"deepseek_v3", {"norm_topk_prob=false", "rope_interleave=false"}},
    {"deepseek_v3", {"rope_parameters={\"rope_type\":\"yarn\",\"rope_theta\":10000,\"factor\":4,"
      "\"mscale\":1,"
                     "\"mscale_all_dim\":0.5,"
                     "\"original_max_position_embeddings\":32}"}},
    {"gpt_oss", {"layer_types=null", "sliding_window=2", "swiglu_limit=3"}},
    {"gpt_oss", {"attention_bias=false"}},
    {"minimax_m3", {"index_local_blocks=0", "index_topk_blocks=1", "index_block_size=2"}},
    {"minimax_m3", {"shared_intermediate_size=0"}},
    {"qwen3_5_moe", {"layer_types=null", "full_attention_interval=2", "linear_num_key_heads=4"}},
    {"qwen3_moe", {"dtype=bfloat16"}},
    {"deepseek_v3", {"dtype=bfloat16"}},
    {"minimax_m3", {"dtype=bfloat16"}},
    {"qwen3_5_moe", {"dtype=bfloat16"}},
    {"gpt_oss", {"dtype=float16"}},
};
enum { N_HONOURED = sizeof honoured / sizeof *honoured };

START_TEST(settings_a_family_honours) {
  size_t n = 0;
  char *dir = unit_folder();
  moec_buf remarks = {0};
  while (n < MAX_SETS && honoured[_i].sets[n]) n++;
  moec_status *s = import(honoured[_i].family, dir, n, honoured[_i].sets, &remarks);
  if (s) ck_abort_msg("%s %s: %s", honoured[_i].family, honoured[_i].sets[0], moec_status_message(s));
  check_model(dir, honoured[_i].sets[0]);
  moec_buf_fini(&remarks);
  unit_remove(dir);
}
END_TEST

static const struct { const char *family, *set, *expected; } refused[] = {
    {"mixtral", "model_type=llama", "model_type: expected one of"},
    {"mixtral", "model_type=null", "model_type is missing"},
    {"mixtral", "hidden_act=gelu", "hidden_act: expected \"silu\", got \"gelu\""},
    {"mixtral", "rope_parameters.rope_type=longrope",
        "rope_type: expected default, linear, llama3 or yarn, got \"longrope\""},
    {"mixtral", "rope_parameters.partial_rotary_factor=0.2", "rope: expected"},
    {"mixtral", "num_key_value_heads=3", "expected whole groups, got 4 and 3"},
    {"mixtral", "num_experts_per_tok=5", "num_experts_per_tok: expected at most the 4 experts, got 5"},
    {"mixtral", "num_local_experts=null", "num_local_experts: expected an integer"},
    {"mixtral", "hidden_size=\"64\\u0000\"", "hidden_size"},
    {"mixtral", "dtype=float8_e4m3fn", "dtype: expected float32, bfloat16 or float16"},
    {"qwen3_moe", "layer_types=[\"full_attention\"]", "layer_types: expected one entry for each of 3 layers, got 1"},
    {"qwen3_moe", "layer_types=[\"full_attention\",\"mamba\",\"full_attention\"]", "layer 1 is a \"mamba\""},
    {"deepseek_v2", "topk_method=noaux_tc", "topk_method: expected greedy or group_limited_greedy"},
    {"deepseek_v2", "scoring_func=sigmoid", "scoring_func: expected \"softmax\""},
    {"deepseek_v2", "moe_layer_freq=2", "moe_layer_freq: expected 1"},
    {"deepseek_v3", "n_group=3", "n_group, topk_group"},
    {"deepseek_v3", "topk_group=5", "n_group, topk_group"},
    {"deepseek_v3", "n_group=8", "n_group, topk_group"},
    {"deepseek_v3", "num_key_value_heads=2", "num_key_value_heads"},
    {"minimax_m3", "rotary_dim=4", "rotary_dim: expected 8"},
    {"minimax_m3", "use_qk_norm=false", "use_qk_norm: expected true, got false"},
    {"minimax_m3", "qk_norm_type=per_layer", "qk_norm_type: expected \"per_head\""},
    {"minimax_m3", "scoring_func=softmax", "scoring_func: expected \"sigmoid\""},
    {"minimax_m3", "use_routing_bias=false", "use_routing_bias: expected true"},
    {"minimax_m3", "sparse_attention_config={\"sparse_init_block\":1}", "sparse_init_block: expected 0, got 1"},
    {"minimax_m3", "sparse_attention_config={\"sparse_score_type\":\"mean\"}", "sparse_score_type: expected \"max\""},
    {"minimax_m3", "sparse_attention_config={\"sparse_disable_index_value\":[1,1,0]}",
     "expected 1 for the sparse layer 2"},
    {"minimax_m3", "sparse_attention_config={\"sparse_disable_index_value\":[1]}",
     "expected one entry for each of 3 layers"},
    {"minimax_m3", "index_n_heads=3", "index_n_heads"},
    {"qwen3_5_moe", "linear_num_value_heads=3", "linear_num_value_heads"},
    {"qwen3_5_moe", "attn_output_gate=false", "attn_output_gate: expected true"},
};
enum { N_REFUSED = sizeof refused / sizeof *refused };

START_TEST(settings_a_family_refuses) {
  char *dir = unit_folder();
  moec_buf remarks = {0};
  moec_status *s = import(refused[_i].family, dir, 1, &refused[_i].set, &remarks);
  if (!s || !strstr(moec_status_message(s), refused[_i].expected))
    ck_abort_msg("%s: expected \"%s\", got \"%s\"", refused[_i].set, refused[_i].expected, moec_status_message(s));
  ck_assert_int_eq(moec_status_exit(s), 2);
  moec_status_free(s);
  moec_buf_fini(&remarks);
  unit_remove(dir);
}
END_TEST

START_TEST(what_is_left_out_is_said) {
  static const char *const sets[] = {"attention_dropout=0.1", "favourite_colour=blue", "rope_parameters.odd=1"};
  char *dir = unit_folder();
  moec_buf remarks = {0};
  UNIT_OK(import("mixtral", dir, 3, sets, &remarks));
  ck_assert_ptr_nonnull(strstr(moec_buf_str(&remarks), "attention_dropout = 0.1 acts in training only"));
  ck_assert_ptr_nonnull(strstr(moec_buf_str(&remarks), "not used: favourite_colour, rope_parameters.odd"));
  moec_buf_fini(&remarks);
  unit_remove(dir);
}
END_TEST

START_TEST(a_model_beside_no_weights_says_how_to_compile_it) {
  char *dir = unit_folder(), to[256], expected[512];
  moec_buf remarks = {0};
  const moec_checkpoint_options o = {.output = unit_path(to, dir, "m.onnx")};
  UNIT_OK(moec_import_checkpoint("tests/data/mixtral", &o, &remarks));
  snprintf(expected, sizeof expected,
           "%s lies outside of tests/data/mixtral: to compile it, say --weights tests/data/mixtral\n", to);
  ck_assert_str_eq(moec_buf_str(&remarks), expected);
  moec_buf_fini(&remarks);
  unit_remove(dir);
}
END_TEST

/* transformers' named_parameters() has a tied head once, as the embedding. */
START_TEST(a_tied_head_is_the_embedding) {
  static const char *const sets[] = {"tie_word_embeddings=true"};
  char *dir = unit_folder(), path[256];
  moec_module *m = NULL;
  moec_buf remarks = {0};
  int embeddings = 0;
  const moec_import_options o = {0};
  UNIT_OK(import("mixtral", dir, 1, sets, &remarks));
  UNIT_OK(moec_import_onnx(unit_path(path, dir, "m.onnx"), &o, &m));
  for (uint32_t i = 1; i <= moec_param_count(m); i++) {
    const char *name = moec_sym_str(m, moec_param_get(m, (moec_param){i})->name);
    ck_assert_str_ne(name, "lm_head.weight");
    embeddings += strcmp(name, "model.embed_tokens.weight") == 0;
  }
  ck_assert_int_eq(embeddings, 1);
  moec_module_destroy(m);
  moec_buf_fini(&remarks);
  unit_remove(dir);
}
END_TEST

START_TEST(a_switch_that_transformers_does_not_read_is_said) {
  static const char *const sets[] = {"norm_topk_prob=true"};
  char *dir = unit_folder();
  moec_buf remarks = {0};
  UNIT_OK(import("deepseek_v2", dir, 1, sets, &remarks));
  ck_assert_ptr_nonnull(strstr(moec_buf_str(&remarks), "norm_topk_prob is not read by transformers' deepseek_v2"));
  moec_buf_fini(&remarks);
  unit_remove(dir);
}
END_TEST

START_TEST(windows_as_transformers_reads_them) {
  static const char *const sets[] = {"use_sliding_window=true", "sliding_window=2", "max_window_layers=1"};
  char *dir = unit_folder();
  moec_buf remarks = {0};
  UNIT_OK(import("qwen3_moe", dir, 3, sets, &remarks));
  ck_assert_ptr_nonnull(strstr(moec_buf_str(&remarks), "max_window_layers is not read by transformers' qwen3_moe"));
  moec_buf_fini(&remarks);
  unit_remove(dir);
}
END_TEST

/* The closed form of the gated delta rule ends somewhere; behind that there is an error, no wrong result. */
START_TEST(longer_sequences_than_the_delta_rule_has_fail) {
  static const char *const sets[] = {"num_hidden_layers=1"};
  char *dir = unit_folder(), path[256];
  moec_module *m = NULL;
  const moec_import_options o = {0};
  moec_buf remarks = {0};
  moec_tensor in[2], out;
  UNIT_OK(import("qwen3_5_moe", dir, 1, sets, &remarks));
  UNIT_OK(moec_import_onnx(unit_path(path, dir, "m.onnx"), &o, &m));
  for (int i = 0; i < 2; i++) UNIT_OK(moec_tensor_init(&in[i], MOEC_I64, 2, (int64_t[]){1, 65537}));
  moec_status *s = moec_interp_run(m, (moec_fn){1}, in, 2, &out, 1, NULL);
  if (!s || !strstr(moec_status_message(s), "sequences_up_to_65536"))
    ck_abort_msg("got \"%s\"", moec_status_message(s));
  moec_status_free(s);
  for (int i = 0; i < 2; i++) moec_tensor_fini(&in[i]);
  moec_module_destroy(m);
  moec_buf_fini(&remarks);
  unit_remove(dir);
}
END_TEST

START_TEST(layers_a_config_leaves_out_are_unused_tensors) {
  static const char *const sets[] = {"num_hidden_layers=1"};
  char *dir = unit_folder(), to[256];
  moec_buf remarks = {0};
  const moec_checkpoint_options o = {.output = unit_path(to, dir, "m.onnx"), .sets = sets, .n_sets = 1};
  UNIT_OK(moec_import_checkpoint("tests/data/mixtral", &o, &remarks));
  ck_assert_ptr_nonnull(strstr(moec_buf_str(&remarks), "tensors of the checkpoint not used: model.layers.1."));
  moec_buf_fini(&remarks);
  unit_remove(dir);
}
END_TEST

START_TEST(a_missing_or_misshapen_tensor_is_named) {
  static const struct { const char *set, *expected; } cases[] = {
      {"num_hidden_layers=4", "tensor \"model.layers.3.input_layernorm.weight\" is missing"},
      {"hidden_size=32", "tensor \"model.embed_tokens.weight\": expected shape [199, 32], got [199, 64]"},
      {"num_local_experts=5", "tensor \"model.layers.0.block_sparse_moe.gate.weight\": expected shape [5, 64], got [4, "
                              "64]"},
      {"quantization_config={\"quant_method\":\"fp8\"}", "quantization_config"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char *dir = unit_folder(), to[256];
    moec_buf remarks = {0};
    const moec_checkpoint_options o = {.output = unit_path(to, dir, "m.onnx"), .sets = &cases[i].set, .n_sets = 1};
    moec_status *s = moec_import_checkpoint("tests/data/mixtral", &o, &remarks);
    if (!s || !strstr(moec_status_message(s), cases[i].expected))
      ck_abort_msg("%s: got \"%s\"", cases[i].set, moec_status_message(s));
    moec_status_free(s);
    ck_assert_int_ne(access(to, F_OK), 0);
    moec_buf_fini(&remarks);
    unit_remove(dir);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("models_import");
  TCase *tcase = tcase_create("models_import");
  tcase_set_timeout(tcase, 0);
  tcase_add_loop_test(tcase, random_weights_for_every_family, 0, N_FAMILIES);
  tcase_add_loop_test(tcase, settings_a_family_honours, 0, N_HONOURED);
  tcase_add_loop_test(tcase, settings_a_family_refuses, 0, N_REFUSED);
  tcase_add_test(tcase, what_is_left_out_is_said);
  tcase_add_test(tcase, a_model_beside_no_weights_says_how_to_compile_it);
  tcase_add_test(tcase, windows_as_transformers_reads_them);
  tcase_add_test(tcase, a_tied_head_is_the_embedding);
  tcase_add_test(tcase, a_switch_that_transformers_does_not_read_is_said);
  tcase_add_test(tcase, longer_sequences_than_the_delta_rule_has_fail);
  tcase_add_test(tcase, layers_a_config_leaves_out_are_unused_tensors);
  tcase_add_test(tcase, a_missing_or_misshapen_tensor_is_named);
  suite_add_tcase(suite, tcase);
  return unit_run(suite);
}

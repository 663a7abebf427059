/* config.json: typed reads, overrides, refusals by name, and keys that nobody reads. */
#include "models/config.h"
#include "tests/unit/unit.h"

/* Opens |text| as a config.json with one --set (NULL: none). */
static moec_status *open_text(const char *text, const char *set, moec_config **out) {
  char path[256], *dir = unit_folder();
  UNIT_OK(moec_write_file(unit_path(path, dir, "config.json"), text, strlen(text), 0644));
  moec_status *s = moec_config_open(path, set ? 1 : 0, &set, out);
  unit_remove(dir);
  return s;
}

static moec_config *config(const char *text) {
  moec_config *c = NULL;
  UNIT_OK(open_text(text, NULL, &c));
  return c;
}

START_TEST(values_have_types_and_defaults) {
  moec_config *c = config(
      "{\"n\": 3, \"x\": 2.5, \"yes\": true, \"s\": \"silu\", \"none\": null, \"l\": [\"a\", \"b\"], \"i\": [4]}");
  ck_assert_int_eq(moec_cfg_int(c, "n"), 3);
  ck_assert_int_eq(moec_cfg_int(c, "absent|n"), 3);
  ck_assert_int_eq(moec_cfg_int_or(c, "none", 7), 7);
  ck_assert(moec_cfg_num(c, "x") == 2.5);
  ck_assert(moec_cfg_num(c, "n") == 3);
  ck_assert(moec_cfg_bool_or(c, "yes", false));
  ck_assert_str_eq(moec_cfg_str_or(c, "s", NULL), "silu");
  ck_assert_uint_eq(moec_cfg_list(c, "l"), 2);
  ck_assert_str_eq(moec_cfg_list_str(c, "l", 1), "b");
  ck_assert_int_eq(moec_cfg_list_int(c, "i", 0), 4);
  ck_assert_uint_eq(moec_cfg_list(c, "absent"), 0);
  ck_assert(!moec_cfg_has(c, "none"));
  UNIT_OK(moec_cfg_end(c));
  moec_config_close(c);
}
END_TEST

START_TEST(a_family_has_defaults_of_its_own) {
  static const moec_cfg_default absent[] = {
      {"a", "8", false}, {"b", "8", false}, {"c", "8", false}, {"d", "[1, true, 0]", true}, {.key = NULL}};
  moec_buf unread = {0};
  moec_config *c = config("{\"b\": 3, \"c\": null, \"d\": null, \"e\": 1}");
  moec_cfg_defaults(c, absent);
  ck_assert_int_eq(moec_cfg_int_or(c, "a", 1), 8);
  ck_assert_int_eq(moec_cfg_int_or(c, "b", 1), 3);
  ck_assert_int_eq(moec_cfg_int_or(c, "c", 1), 1);
  ck_assert_uint_eq(moec_cfg_list(c, "d"), 3);
  ck_assert_int_eq(moec_cfg_list_int(c, "d", 1), 1);
  UNIT_OK(moec_cfg_end(c));
  moec_cfg_unread(c, &unread);
  ck_assert_str_eq(moec_buf_str(&unread), "config.json: keys without a meaning for moec, not used: e\n");
  moec_buf_fini(&unread);
  moec_config_close(c);
}
END_TEST

START_TEST(wrong_values_are_named) {
  static const struct { const char *text, *expected; } cases[] = {
      {"{}", "n: expected an integer from 1 to 2147483647, got nothing"},
      {"{\"n\": null}", "got nothing"},
      {"{\"n\": 0}", "got 0"},
      {"{\"n\": -1}", "got -1"},
      {"{\"n\": 2147483648}", "got 2147483648"},
      {"{\"n\": 1.5}", "got 1.5"},
      {"{\"n\": \"8\"}", "got \"8\""},
      {"{\"n\": [8]}", "got [8]"},
      {"{\"n\": {\"a\": 1}}", "got {\"a\":1}"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    moec_config *c = config(cases[i].text);
    moec_cfg_int(c, "n");
    UNIT_FAILS(moec_cfg_end(c), MOEC_INVALID_MODEL, cases[i].expected);
    moec_config_close(c);
  }
}
END_TEST

START_TEST(the_first_error_is_kept) {
  moec_config *c = config("{\"a\": \"x\", \"b\": \"y\", \"l\": 5}");
  moec_cfg_int(c, "a");
  moec_cfg_num(c, "b");
  moec_cfg_bool_or(c, "b", true);
  moec_cfg_list(c, "l");
  moec_cfg_list_str(c, "l", 3);
  UNIT_FAILS(moec_cfg_end(c), MOEC_INVALID_MODEL, "a: expected an integer");
  UNIT_OK(moec_cfg_end(c));
  moec_config_close(c);
}
END_TEST

START_TEST(values_moec_cannot_honour_are_refused) {
  moec_config *c = config("{\"hidden_act\": \"gelu\", \"mlp_bias\": true, \"moe_layer_freq\": 2}");
  moec_cfg_want_str(c, "hidden_act", "silu");
  UNIT_FAILS(moec_cfg_end(c), MOEC_UNSUPPORTED, "hidden_act: expected \"silu\", got \"gelu\"");
  moec_cfg_want_bool(c, "mlp_bias", false);
  UNIT_FAILS(moec_cfg_end(c), MOEC_UNSUPPORTED, "mlp_bias: expected false, got true");
  moec_cfg_want_num(c, "moe_layer_freq", 1);
  UNIT_FAILS(moec_cfg_end(c), MOEC_UNSUPPORTED, "moe_layer_freq: expected 1, got 2");
  moec_cfg_want_str(c, "absent", "silu");
  UNIT_OK(moec_cfg_end(c));
  moec_config_close(c);
}
END_TEST

START_TEST(keys_nobody_reads_are_listed) {
  moec_config *c =
      config("{\"a\": 1, \"odd\": 2, \"known\": 3, \"sub\": {\"x\": 1, \"strange\": 2}, \"other\": {\"y\": 1}}");
  moec_buf b = {0};
  moec_cfg_int(c, "a");
  moec_cfg_ignore(c, "known absent");
  moec_cfg_int(moec_cfg_sub(c, "sub"), "x");
  moec_cfg_unread(c, &b);
  ck_assert_str_eq(moec_buf_str(&b),
                   "config.json: keys without a meaning for moec, not used: odd, other, sub.strange\n");
  moec_buf_fini(&b);
  ck_assert_ptr_null(moec_cfg_sub(c, "absent"));
  ck_assert_ptr_null(moec_cfg_sub(c, "odd"));
  UNIT_FAILS(moec_cfg_end(c), MOEC_INVALID_MODEL, "odd: expected an object");
  moec_config_close(c);
}
END_TEST

START_TEST(settings_overrule_the_file) {
  moec_config *c = NULL;
  UNIT_OK(open_text("{\"n\": 48}", "n=4", &c));
  ck_assert_int_eq(moec_cfg_int(c, "n"), 4);
  moec_config_close(c);
  UNIT_OK(open_text("{\"n\": 48}", "act=silu", &c));
  ck_assert_str_eq(moec_cfg_str_or(c, "act", ""), "silu");
  moec_config_close(c);
  UNIT_OK(open_text("{\"rope\": {\"factor\": 1}}", "rope.factor=8.5", &c));
  ck_assert(moec_cfg_num(moec_cfg_sub(c, "rope"), "factor") == 8.5);
  moec_config_close(c);
  UNIT_FAILS(open_text("{\"n\": 1}", "n", &c), MOEC_INVALID_ARGUMENT, "expected KEY=VALUE, got \"n\"");
  UNIT_FAILS(open_text("{\"n\": 1}", "=4", &c), MOEC_INVALID_ARGUMENT, "expected KEY=VALUE");
  UNIT_FAILS(open_text("{\"n\": 1}", "n.x=4", &c), MOEC_INVALID_ARGUMENT, "\"n\" is no object");
  UNIT_FAILS(open_text("{\"n\": 1}", "a\xff=4", &c), MOEC_INVALID_ARGUMENT, "--set");
}
END_TEST

START_TEST(broken_files_are_refused) {
  static const char *const texts[] = {"", "[]", "{", "{\"a\": 1, \"a\": 2}", "{\"a\": 1} x", "nonsense"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    moec_config *c = NULL;
    UNIT_FAILS(open_text(texts[i], NULL, &c), MOEC_INVALID_MODEL, "config.json");
    ck_assert_ptr_null(c);
  }
}
END_TEST

UNIT_MAIN("models_config", values_have_types_and_defaults, a_family_has_defaults_of_its_own,
          wrong_values_are_named, the_first_error_is_kept,
          values_moec_cannot_honour_are_refused, keys_nobody_reads_are_listed, settings_overrule_the_file,
          broken_files_are_refused)

/* The shape of a report, as tables; and the check that a JSON value has it. A report comes from
 * a file that anybody may have edited: after this check the views trust types and indices. */
#include <string.h>

#include "codegen/report_internal.h"

typedef enum field_type {
  IS_TEXT, IS_TEXT_OR_NULL, IS_INT, IS_BOOL, IS_REAL, IS_SIZE, IS_SIZE_OR_NULL, IS_TEXTS,
  IS_OBJECT, IS_OBJECT_OR_NULL, IS_LIST,
  MAY_BE_OBJECT, MAY_BE_TEXT, /* or absent */
  IS_FUNCTION, IS_BLOCK,  /* indices */
  MAY_BE_FUNCTION,        /* or absent */
  IS_REGION,              /* of the function at hand; -1: none */
  IS_FUNCTIONS, IS_BLOCKS /* lists of indices */
} field_type;

typedef struct field { const char *key; field_type type; const struct field *fields; } field;

#define END {NULL, IS_TEXT, NULL}
static const field value_fields[] = {{"name", IS_TEXT, 0}, {"type", IS_TEXT, 0}, {"bytes", IS_SIZE, 0},
    {"default", MAY_BE_TEXT, 0}, END};
static const field symbol_fields[] = {{"name", IS_TEXT, 0}, {"value", IS_INT, 0}, {"given", IS_BOOL, 0}, END};
static const field constraint_fields[] = {{"text", IS_TEXT, 0}, {"what", IS_TEXT, 0}, END};
static const field totals_fields[] = {{"functions", IS_INT, 0}, {"calls", IS_INT, 0}, {"kernels", IS_INT, 0},
    {"kernel_launches", IS_INT, 0}, {"gemms", IS_INT, 0}, {"expert_regions", IS_INT, 0}, {"library_steps", IS_INT, 0},
    {"flops", IS_SIZE, 0}, {"bytes", IS_SIZE, 0}, END};
static const field block_fields[] = {{"name", IS_TEXT, 0}, {"functions", IS_FUNCTIONS, 0}, {"count", IS_INT, 0}, END};
static const field run_fields[] = {{"first", IS_INT, 0}, {"blocks", IS_BLOCKS, 0}, {"count", IS_INT, 0}, END};
static const field layer_fields[] = {{"layer", IS_INT, 0}, {"block", IS_INT, 0}, {"function", IS_FUNCTION, 0},
    {"region", IS_INT, 0},
    {"experts", IS_INT, 0}, {"k", IS_INT, 0}, {"hidden", IS_SIZE, 0}, {"intermediate", IS_SIZE, 0},
        {"flops", IS_SIZE, 0},
    {"router", IS_TEXT_OR_NULL, 0}, {"fc1", IS_TEXT_OR_NULL, 0}, {"fc2", IS_TEXT_OR_NULL, 0}, END};
static const field sum_fields[] = {{"count", IS_INT, 0}, {"elements", IS_INT, 0}, {"bytes", IS_INT, 0},
    {"active", IS_INT, 0}, END};
static const field counts_fields[] = {{"nodes", IS_INT, 0}, {"views", IS_INT, 0}, {"leaves", IS_INT, 0},
#define KIND_FIELD(name, text, people) {text, IS_INT, 0},
    REPORT_KINDS(KIND_FIELD)
#undef KIND_FIELD
    END};
static const field role_fields[] = {{"role", IS_TEXT, 0}, {"type", IS_TEXT, 0}, {"at", IS_TEXT, 0}, END};
static const field op_fields[] = {{"op", IS_TEXT, 0}, {"count", IS_INT, 0}, END};
static const field input_fields[] = {{"from", IS_TEXT, 0}, {"index", IS_INT, 0}, {"type", IS_TEXT, 0},
    {"bytes", IS_SIZE, 0}, END};
static const field output_fields[] = {{"type", IS_TEXT, 0}, {"bytes", IS_SIZE, 0}, END};
static const field gemm_fields[] = {{"m", IS_SIZE, 0}, {"n", IS_SIZE, 0}, {"k", IS_SIZE, 0}, {"batch", IS_SIZE, 0},
    {"weight", IS_BOOL, 0}, {"accumulates", IS_BOOL, 0}, END};
static const field mask_fields[] = {{"kind", IS_TEXT, 0}, {"text", IS_TEXT, 0}, {"causal", IS_BOOL, 0},
    {"window", IS_INT, 0},
    {"reads", IS_INT, 0}, END};
static const field rope_fields[] = {{"size", IS_SIZE, 0}, {"interleaved", IS_BOOL, 0}, END};
static const field attention_fields[] = {{"heads", IS_SIZE, 0}, {"kv_heads", IS_SIZE, 0}, {"head_size", IS_SIZE, 0},
    {"value_size", IS_SIZE, 0}, {"queries", IS_SIZE, 0}, {"keys", IS_SIZE, 0}, {"scale", IS_REAL, 0},
        {"softcap", IS_REAL, 0},
    {"sinks", IS_BOOL, 0}, {"mask", IS_OBJECT, mask_fields}, {"rope", IS_OBJECT_OR_NULL, rope_fields}, END};
static const field shared_fields[] = {{"gemms", IS_INT, 0}, {"intermediate", IS_SIZE, 0}, {"gated", IS_BOOL, 0}, END};
static const field stage_fields[] = {{"stage", IS_TEXT, 0}, {"why", IS_TEXT, 0}, {"region", IS_REGION, 0},
    {"title", IS_TEXT, 0},
    {"ops", IS_LIST, op_fields}, {"type", IS_TEXT, 0}, {"flops", IS_SIZE, 0}, {"bytes", IS_SIZE, 0}, END};
static const field expert_fields[] = {{"experts", IS_INT, 0}, {"k", IS_INT, 0}, {"hidden", IS_SIZE, 0},
    {"intermediate", IS_SIZE, 0},
    {"gated", IS_BOOL, 0}, {"bias", IS_BOOL, 0}, {"adds_residual", IS_BOOL, 0}, {"shared_expert", IS_OBJECT_OR_NULL,
        shared_fields},
    {"stages", IS_LIST, stage_fields}, END};
static const field region_fields[] = {{"kind", IS_TEXT, 0}, {"title", IS_TEXT, 0}, {"what", IS_TEXT_OR_NULL, 0},
    {"at", IS_TEXT, 0},
    {"stage", IS_TEXT_OR_NULL, 0}, {"ops", IS_LIST, op_fields}, {"rows", IS_SIZE_OR_NULL, 0},
        {"inputs", IS_LIST, input_fields},
    {"outputs", IS_LIST, output_fields}, {"flops", IS_SIZE, 0}, {"bytes", IS_SIZE, 0},
        {"gemm", MAY_BE_OBJECT, gemm_fields},
    {"attention", MAY_BE_OBJECT, attention_fields}, {"expert", MAY_BE_OBJECT, expert_fields},
        {"function", MAY_BE_FUNCTION, 0}, END};
static const field cut_fields[] = {{"from", IS_REGION, 0}, {"to", IS_REGION, 0}, {"type", IS_TEXT, 0},
    {"bytes", IS_SIZE, 0},
    {"reason", IS_TEXT, 0}, {"why", IS_TEXT, 0}, END};
static const field function_fields[] = {{"name", IS_TEXT, 0}, {"kind", IS_TEXT, 0}, {"calls", IS_INT, 0},
    {"hash", IS_TEXT, 0},
    {"counts", IS_OBJECT, counts_fields}, {"flops", IS_SIZE, 0}, {"bytes", IS_SIZE, 0},
        {"parameters", IS_OBJECT, sum_fields},
    {"inputs", IS_LIST, role_fields}, {"outputs", IS_TEXTS, 0}, {"regions", IS_LIST, region_fields},
        {"cuts", IS_LIST, cut_fields}, END};
static const field hoisted_fields[] = {{"function", IS_FUNCTION, 0}, {"region", IS_INT, 0}, {"at", IS_TEXT, 0},
    {"title", IS_TEXT, 0},
    {"type", IS_TEXT, 0}, {"calls", IS_INT, 0}, {"flops", IS_SIZE, 0}, END};
static const field param_fields[] = {{"name", IS_TEXT, 0}, {"type", IS_TEXT, 0}, {"storage", IS_TEXT, 0},
    {"elements", IS_INT, 0},
    {"bytes", IS_INT, 0}, {"active", IS_INT, 0}, {"group", IS_TEXT, 0}, {"tied", IS_BOOL, 0},
    {"function", IS_FUNCTION, 0}, END};
static const field params_fields[] = {{"count", IS_INT, 0}, {"elements", IS_INT, 0}, {"bytes", IS_INT, 0},
    {"active", IS_INT, 0},
    {"dense", IS_OBJECT, sum_fields}, {"expert", IS_OBJECT, sum_fields}, {"unused", IS_OBJECT, sum_fields},
    {"list", IS_LIST, param_fields}, END};
static const field loss_fields[] = {{"name", IS_TEXT, 0}, {"aux", IS_REAL, 0}, {"z", IS_REAL, 0},
    {"chunk", IS_TEXT, 0}, END};
static const field trained_fields[] = {{"trainable", IS_INT, 0}, {"frozen", IS_INT, 0}, {"elements", IS_INT, 0},
    {"without_gradient", IS_TEXTS, 0}, {"gradient_bytes", IS_INT, 0}, {"adamw_bytes", IS_INT, 0}, END};
static const field saved_fields[] = {{"from", IS_TEXT, 0}, {"type", IS_TEXT, 0}, {"bytes", IS_SIZE, 0}, END};
static const field work_fields[] = {{"what", IS_TEXT, 0}, {"saved", IS_INT, 0}, {"again", IS_INT, 0},
    {"left_out", IS_INT, 0}, END};
static const field differentiated_fields[] = {{"name", IS_TEXT, 0}, {"function", MAY_BE_FUNCTION, 0},
    {"forward", IS_TEXT, 0}, {"backward", IS_TEXT, 0}, {"calls", IS_INT, 0}, {"backward_calls", IS_INT, 0},
    {"saved", IS_LIST, saved_fields}, {"saved_bytes", IS_SIZE, 0}, {"work", IS_LIST, work_fields},
    {"reader", IS_TEXT_OR_NULL, 0}, END};
static const field program_fields[] = {{"name", IS_TEXT, 0}, {"entry", IS_TEXT, 0}, {"steps", IS_INT, 0},
    {"kernels", IS_INT, 0}, {"flops", IS_INT, 0}, {"peak", IS_INT, 0}, END};
static const field mode_fields[] = {{"recompute", IS_TEXT, 0}, {"peak", IS_INT, 0}, {"saved", IS_INT, 0}, END};
static const field training_fields[] = {{"loss", IS_OBJECT, loss_fields}, {"recompute", IS_TEXT, 0},
    {"skip_combine", IS_TEXT, 0}, {"parameters", IS_OBJECT, trained_fields},
    {"functions", IS_LIST, differentiated_fields}, {"programs", IS_LIST, program_fields},
    {"modes", IS_LIST, mode_fields}, END};
static const field report_fields[] = {{"model", IS_TEXT, 0}, {"symbols", IS_LIST, symbol_fields},
    {"constraints", IS_LIST, constraint_fields},
    {"inputs", IS_LIST, value_fields}, {"outputs", IS_LIST, value_fields}, {"totals", IS_OBJECT, totals_fields},
    {"blocks", IS_LIST, block_fields}, {"sequence", IS_BLOCKS, 0}, {"runs", IS_LIST, run_fields},
        {"moe_layers", IS_LIST, layer_fields},
    {"functions", IS_LIST, function_fields}, {"hoisted", IS_LIST, hoisted_fields},
        {"parameters", IS_OBJECT, params_fields},
    {"training", MAY_BE_OBJECT, training_fields}, {"notes", IS_TEXTS, 0}, {"remarks", IS_TEXTS, 0}, END};

typedef struct checker {
  size_t n_functions, n_blocks, n_regions;
} checker;

static moec_status *wrong(const char *expected) { return moec_error(MOEC_INVALID_MODEL, "expected %s", expected); }

static bool is_size(const json_t *v) {
  const json_t *n = json_object_get(v, "value");
  return json_is_string(json_object_get(v, "text")) && (json_is_integer(n) || json_is_null(n));
}

static bool in_range(const json_t *v, json_int_t least, size_t end) {
  return json_is_integer(v) && json_integer_value(v) >= least && json_integer_value(v) < (json_int_t)end;
}

static bool all_in_range(const json_t *v, size_t end) {
  if (!json_is_array(v)) return false;
  for (size_t i = 0; i < json_array_size(v); i++)
    if (!in_range(json_array_get(v, i), 0, end)) return false;
  return true;
}

static bool all_text(const json_t *v) {
  if (!json_is_array(v)) return false;
  for (size_t i = 0; i < json_array_size(v); i++)
    if (!json_is_string(json_array_get(v, i))) return false;
  return true;
}

static moec_status *check_fields(checker *c, const json_t *o, const field *fields);

/* Regions of a function are counted before what refers to them is looked at. */
static moec_status *check_object(checker *c, const json_t *v, const field *fields) {
  if (!json_is_object(v)) return wrong("an object");
  if (fields == function_fields) c->n_regions = json_array_size(json_object_get(v, "regions"));
  return check_fields(c, v, fields);
}

static moec_status *check_list(checker *c, const json_t *v, const field *fields) {
  if (!json_is_array(v)) return wrong("a list");
  for (size_t i = 0; i < json_array_size(v); i++)
    MOEC_TRY(moec_context(check_object(c, json_array_get(v, i), fields), "[%zu]", i));
  return NULL;
}

static moec_status *check_value(checker *c, const json_t *v, const field *f) {
  switch (f->type) {
    case IS_TEXT: return json_is_string(v) ? NULL : wrong("a text");
    case IS_TEXT_OR_NULL: return json_is_string(v) || json_is_null(v) ? NULL : wrong("a text or null");
    case IS_INT: return json_is_integer(v) ? NULL : wrong("an integer");
    case IS_BOOL: return json_is_boolean(v) ? NULL : wrong("true or false");
    case IS_REAL: return json_is_number(v) ? NULL : wrong("a number");
    case IS_SIZE: return is_size(v) ? NULL : wrong("a size: {\"text\": ..., \"value\": integer or null}");
    case IS_SIZE_OR_NULL: return json_is_null(v) || is_size(v) ? NULL : wrong("a size or null");
    case IS_TEXTS: return all_text(v) ? NULL : wrong("a list of texts");
    case IS_OBJECT: return check_object(c, v, f->fields);
    case IS_OBJECT_OR_NULL: return json_is_null(v) ? NULL : check_object(c, v, f->fields);
    case MAY_BE_OBJECT: return v ? check_object(c, v, f->fields) : NULL;
    case MAY_BE_TEXT: return !v || json_is_string(v) ? NULL : wrong("a text");
    case IS_LIST: return check_list(c, v, f->fields);
    case IS_FUNCTION: return in_range(v, 0, c->n_functions) ? NULL : wrong("the number of a function");
    case MAY_BE_FUNCTION: return !v || in_range(v, 0, c->n_functions) ? NULL : wrong("the number of a function");
    case IS_BLOCK: return in_range(v, 0, c->n_blocks) ? NULL : wrong("the number of a block");
    case IS_REGION: return in_range(v, -1, c->n_regions) ? NULL : wrong("the number of a region, or -1");
    case IS_FUNCTIONS: return all_in_range(v, c->n_functions) ? NULL : wrong("a list of function numbers");
    case IS_BLOCKS: return all_in_range(v, c->n_blocks) ? NULL : wrong("a list of block numbers");
  }
  return NULL;
}

static moec_status *check_fields(checker *c, const json_t *o, const field *fields) {
  for (const field *f = fields; f->key; f++) {
    const json_t *v = json_object_get(o, f->key);
    bool optional = f->type == MAY_BE_OBJECT || f->type == MAY_BE_TEXT || f->type == MAY_BE_FUNCTION;
    if (!v && !optional) return moec_error(MOEC_INVALID_MODEL, "the field \"%s\" is missing", f->key);
    MOEC_TRY(moec_context(check_value(c, v, f), "%s", f->key));
  }
  return NULL;
}

/* Regions named together with their function. */
static moec_status *check_places(const json_t *root, const char *key) {
  const json_t *list = json_object_get(root, key), *fns = json_object_get(root, "functions");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *o = json_array_get(list, i);
    const json_t *fn = json_array_get(fns, (size_t)moec_report_int(o, "function"));
    if (!in_range(json_object_get(o, "region"), 0, json_array_size(json_object_get(fn, "regions"))))
      return moec_error(MOEC_INVALID_MODEL, "%s: [%zu]: region: expected the number of a region", key, i);
  }
  return NULL;
}

static moec_status *check(const json_t *root) {
  if (!json_is_object(root)) return wrong("an object");
  if (strcmp(moec_report_text(root, "format"), REPORT_FORMAT) != 0) return wrong("\"format\": \"" REPORT_FORMAT "\"");
  if (moec_report_int(root, "version") != REPORT_VERSION)
    return moec_error(MOEC_INVALID_MODEL, "expected version %d, got %lld", REPORT_VERSION,
                      (long long)moec_report_int(root, "version"));
  checker c = {json_array_size(json_object_get(root, "functions")), json_array_size(json_object_get(root, "blocks")),
               0};
  if (!c.n_functions) return wrong("\"functions\" with at least one function");
  MOEC_TRY(check_fields(&c, root, report_fields));
  MOEC_TRY(check_places(root, "moe_layers"));
  return check_places(root, "hoisted");
}

moec_status *moec_report_check(const json_t *root) { return moec_context(check(root), "report"); }

moec_status *moec_report_parse(const char *text, size_t size, json_t **out) {
  MOEC_TRY(moec_context(moec_json_parse(text, size, out), "report"));
  moec_status *s = moec_report_check(*out);
  if (s) {
    json_decref(*out);
    *out = NULL;
  }
  return s;
}

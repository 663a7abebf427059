/* Times by events of the stream, and what a step gives the device: its calls are recorded as a graph, which knows every
 * kernel, also those that libraries launch. */
#include "runtime/cuda.h"

static moec_status *check(const moec_model *m, int error, const char *what) {
  return moec_cu_check(&m->cuda->cu, error, what);
}

/* ---- times ------------------------------------------------------------------------------- */

moec_status *moec_rt_cuda_mark(moec_model *m, uint32_t i) {
  moec_rt_cuda *c = m->cuda;
  if (!c->marks[i]) {
    int error = c->cu.event_create(&c->marks[i], 0);
    if (error) c->marks[i] = NULL;
    MOEC_TRY(check(m, error, "cuEventCreate"));
  }
  return check(m, c->cu.event_record(c->marks[i], c->stream), "cuEventRecord");
}

moec_status *moec_rt_cuda_marked(moec_model *m, uint32_t n, uint64_t *ns) {
  moec_rt_cuda *c = m->cuda;
  for (uint32_t i = 0; i < n; i++) {
    float ms = 0;
    MOEC_TRY(check(m, c->cu.event_elapsed(&ms, c->marks[i], c->marks[i + 1]), "cuEventElapsedTime"));
    ns[i] = (uint64_t)((double)ms * 1e6 + 0.5);
  }
  return NULL;
}

void moec_rt_cuda_marks_fini(moec_model *m) {
  moec_rt_cuda *c = m->cuda;
  for (uint32_t i = 0; c->marks && i <= m->plan.n_steps; i++) {
    if (c->marks[i]) (void)c->cu.event_destroy(c->marks[i]);
  }
}

/* ---- counts ------------------------------------------------------------------------------ */

moec_status *moec_rt_cuda_count_begin(moec_model *m) {
  moec_rt_cuda *c = m->cuda;
  return check(m, c->cu.capture_begin(c->stream, MOEC_CU_CAPTURE_OF_THREAD), "cuStreamBeginCapture");
}

static void add_node(moec_rt_launches *x, int type) {
  switch (type) {
    case MOEC_CU_NODE_KERNEL: x->kernels++; break;
    case MOEC_CU_NODE_COPY: x->copies++; break;
    case MOEC_CU_NODE_FILL: x->fills++; break;
    default: x->others++;
  }
}

static moec_status *count_nodes(moec_model *m, moec_cu_graph graph, moec_rt_launches *out) {
  moec_rt_cuda *c = m->cuda;
  moec_cu_node *nodes;
  size_t n = 0;
  MOEC_TRY(check(m, c->cu.graph_nodes(graph, NULL, &n), "cuGraphGetNodes"));
  if (!n) return NULL;
  MOEC_TRY(MOEC_RT_NEW(&m->memory, nodes, n, "counts"));
  moec_status *s = check(m, c->cu.graph_nodes(graph, nodes, &n), "cuGraphGetNodes");
  for (size_t i = 0; !s && i < n; i++) {
    int type = 0;
    s = check(m, c->cu.graph_node_type(nodes[i], &type), "cuGraphNodeGetType");
    if (!s) add_node(out, type);
  }
  moec_rt_free(&m->memory, nodes);
  return s;
}

moec_status *moec_rt_cuda_count_end(moec_model *m, moec_rt_launches *out) {
  moec_rt_cuda *c = m->cuda;
  moec_cu_graph graph = NULL;
  *out = (moec_rt_launches){0};
  MOEC_TRY(check(m, c->cu.capture_end(c->stream, &graph), "cuStreamEndCapture"));
  moec_status *s = count_nodes(m, graph, out);
  (void)c->cu.graph_destroy(graph);
  return s;
}

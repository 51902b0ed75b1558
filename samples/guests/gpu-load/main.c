// A plugin of Skiff's scheduler: prefers nodes whose GPUs have little to do, by a label from 0 (idle) to 100 (full).
// Its arguments: {"label": "gpu.example.com/load"}. A node without the label counts as full.
#include <stdlib.h>
#include <string.h>

#include "bindings/gpu_load.h"

#define FULL 100

static char label[256] = "gpu.example.com/load";

// Copies the string behind "label": out of the arguments. A label's key has no characters that JSON escapes.
static bool read_label(const char *args, size_t len) {
  static const char key[] = "\"label\"";
  for (size_t i = 0; i + sizeof key - 1 <= len; i++) {
    if (memcmp(args + i, key, sizeof key - 1) != 0) continue;
    size_t at = i + sizeof key - 1;
    while (at < len && (args[at] == ':' || args[at] == ' ')) at++;
    if (at == len || args[at++] != '"') return false;
    size_t end = at;
    while (end < len && args[end] != '"') end++;
    if (end == len || end == at || end - at >= sizeof label) return false;
    memcpy(label, args + at, end - at);
    label[end - at] = '\0';
    return true;
  }
  return true;
}

bool exports_skiff_scheduler_plugin_init(gpu_load_string_t *args, exports_skiff_scheduler_plugin_settings_t *settings,
                                         gpu_load_string_t *error) {
  bool is_valid = read_label((char *)args->ptr, args->len);
  gpu_load_string_free(args);
  if (!is_valid) {
    gpu_load_string_dup(error, "label must be the key of a label, of at most 255 bytes");
    return false;
  }
  gpu_load_string_t message;
  gpu_load_string_set(&message, "nodes are ranked by a label");
  skiff_scheduler_host_log(SKIFF_SCHEDULER_HOST_LEVEL_DEBUG, &message);
  settings->scope = EXPORTS_SKIFF_SCHEDULER_PLUGIN_SCOPE_NODE;
  settings->normalization = EXPORTS_SKIFF_SCHEDULER_PLUGIN_NORMALIZATION_NONE;
  return true;
}

// The load that the label of a node says.
static int load_of(const skiff_scheduler_types_node_t *node) {
  size_t label_len = strlen(label);
  for (size_t i = 0; i < node->labels.len; i++) {
    const skiff_scheduler_types_label_t *one = &node->labels.ptr[i];
    if (one->f0.len != label_len || memcmp(one->f0.ptr, label, label_len) != 0) continue;
    int load = 0;
    for (size_t digit = 0; digit < one->f1.len; digit++) {
      if (one->f1.ptr[digit] < '0' || one->f1.ptr[digit] > '9') return FULL;
      load = load * 10 + (one->f1.ptr[digit] - '0');
      if (load > FULL) return FULL;
    }
    return one->f1.len == 0 ? FULL : load;
  }
  return FULL;
}

void exports_skiff_scheduler_score_score(exports_skiff_scheduler_score_pod_t *pod,
                                         exports_skiff_scheduler_score_list_node_t *nodes, gpu_load_list_s64_t *scores) {
  scores->len = nodes->len;
  scores->ptr = malloc(nodes->len * sizeof *scores->ptr);
  if (scores->ptr == NULL && nodes->len > 0) abort();
  for (size_t i = 0; i < nodes->len; i++) scores->ptr[i] = FULL - load_of(&nodes->ptr[i]);
  exports_skiff_scheduler_score_pod_free(pod);
  exports_skiff_scheduler_score_list_node_free(nodes);
}
